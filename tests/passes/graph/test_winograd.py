"""Winograd's rewrite: the same convolution, within the error that its page states, and only where it pays."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.interp import graph as oracle
from tilewright.ir.graph import build as b
from tilewright.ir.graph.core import Graph
from tilewright.ir.graph.make import make
from tilewright.ir.types import f32
from tilewright.passes.graph import winograd as module
from tilewright.passes.graph.winograd import pays, winograd


def convolution(shape: tuple[int, ...], features: int, pads: tuple[int, int], bias: bool, **attrs: object) -> Graph:
    rng = np.random.default_rng(1)
    x = b.input("x", f32, shape)
    w = b.const(rng.standard_normal((3, 3, shape[-1], features)).astype(np.float32))
    operands = [x, w, *([b.const(rng.standard_normal(features).astype(np.float32))] if bias else [])]
    y = make("conv", *operands, pads_lo=pads, pads_hi=pads, layout="last", **attrs).out()
    return Graph("conv", [x], [y], ["y"])


@pytest.mark.parametrize("size", [(1, 8, 8), (2, 13, 14), (1, 5, 31), (1, 4, 3)])
@pytest.mark.parametrize(("pads", "bias"), [((1, 1), True), ((0, 1), False)])
def test_the_rewritten_convolution_is_the_same(
    size: tuple[int, int, int], pads: tuple[int, int], bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "pays", lambda *_: True)
    graph = convolution((*size, 24), 20, pads, bias)
    changed = winograd(graph)
    assert {"winograd_input", "winograd_output"} <= {n.op for n in changed.nodes}
    x = np.random.default_rng(0).standard_normal((*size, 24)).astype(np.float32)
    exact = oracle.run(graph, {"x": x})
    found = oracle.run(changed, {"x": x})
    error = np.linalg.norm(found["y"] - exact["y"]) / np.linalg.norm(exact["y"])
    assert error < 5e-6


@pytest.mark.parametrize("attrs", [{"strides": (2, 2)}, {"dilations": (2, 2)}])
def test_other_convolutions_stay(attrs: dict[str, tuple[int, int]]) -> None:
    graph = convolution((1, 64, 64, 64), 64, (1, 1), False, **attrs)
    assert winograd(graph) == graph


def test_it_is_used_where_it_pays() -> None:
    assert pays(1, 56, 56, 64, 64) and pays(1, 28, 28, 128, 128)
    assert not pays(1, 7, 7, 512, 512)  # four times the weights to read, for four rows of products each
    assert not pays(1, 112, 112, 3, 4)  # the transforms cost more than the products
