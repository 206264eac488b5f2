"""Mixed precision: products read 16-bit operands, elementwise work stays f32, a model's types at its edges stay."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.errors import UnsupportedError
from tilewright.interp import graph as oracle
from tilewright.ir.graph import build as b
from tilewright.ir.graph.core import Graph
from tilewright.ir.graph.make import make
from tilewright.ir.graph.spec import SPECS
from tilewright.ir.types import DType, bf16, f16, f32, i64
from tilewright.passes.graph.precision import to_precision

TOLERANCE = {"f16": 4e-3, "bf16": 3e-2}


def network() -> Graph:
    """A residual block, a pool, a product, a softmax, and an index beside them."""
    rng = np.random.default_rng(3)

    def weights(*shape: int) -> b.Operand:
        return b.const((rng.standard_normal(shape) / np.sqrt(np.prod(shape[:-1]))).astype(np.float32))

    x = b.input("x", f32, (1, 9, 8, 6))
    y = make("conv", x, weights(3, 3, 6, 6), pads_lo=(1, 1), pads_hi=(1, 1), layout="last").out()
    y = b.max(b.add(y, weights(6)), 0.0)
    z = b.add(make("conv", y, weights(3, 3, 6, 6), pads_lo=(1, 1), pads_hi=(1, 1), layout="last").out(), y)
    pooled = make("reduce_mean", z, axes=(1, 2), keepdims=False).out()
    logits = b.matmul(pooled, weights(6, 5))
    best = make("argmax", logits, axis=1, keepdims=False).out()
    return Graph("net", [x], [make("softmax", logits, axis=1).out(), best], ["p", "best"])


@pytest.mark.parametrize("dtype", [f16, bf16])
def test_products_read_the_low_type_and_elementwise_work_stays_f32(dtype: DType) -> None:
    graph = to_precision(network(), dtype)
    assert [v.dtype for v in graph.outputs] == [f32, i64] and graph.inputs == network().inputs
    for n in graph.nodes:
        if n.op in ("conv", "matmul", "softmax"):
            assert all(v.dtype is dtype for v in n.inputs if v is not None), n.op
        elif n.op not in ("input", "constant", "cast") and SPECS[n.op].elementwise:
            assert all(v.dtype is f32 for v in n.inputs if v is not None), n.op


@pytest.mark.parametrize("dtype", [f16, bf16])
def test_the_network_means_the_same_up_to_rounding(dtype: DType) -> None:
    x = np.random.default_rng(0).standard_normal((1, 9, 8, 6)).astype(np.float32)
    exact, found = oracle.run(network(), {"x": x}), oracle.run(to_precision(network(), dtype), {"x": x})
    error = np.linalg.norm(found["p"] - exact["p"]) / np.linalg.norm(exact["p"])
    assert 0 < error < TOLERANCE[dtype.name]


def test_sums_do_not_leave_the_range_of_f16() -> None:
    x = b.input("x", f32, (1, 4096))
    graph = Graph("sum", [x], [make("reduce_sum", x, axes=(1,), keepdims=False).out()], ["y"])
    found = oracle.run(to_precision(graph, f16), {"x": np.full((1, 4096), 100.0, np.float32)})
    assert found["y"] == 409600.0


def test_branches_are_converted_too() -> None:
    inner = b.input("v", f32, (2, 3))
    weights = b.const(np.ones((3, 3), np.float32))
    then = Graph("then", [inner], [b.matmul(inner, weights)], ["r"])
    other = Graph("else", [inner], [b.neg(inner)], ["r"])
    x, c = b.input("x", f32, (2, 3)), b.input("c", tw.bool_, ())
    graph = Graph("if", [x, c], [make("if_", c, x, then_branch=then, else_branch=other).out()], ["y"])
    (node,) = [n for n in to_precision(graph, bf16).nodes if n.op == "if_"]
    product = next(n for n in node.attr("then_branch").nodes if n.op == "matmul")
    assert product.inputs[0] is not None and product.inputs[0].dtype is bf16


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_a_compiled_model_takes_and_gives_f32(dtype: str) -> None:
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    rng = np.random.default_rng(1)
    w = onnx.numpy_helper.from_array(rng.standard_normal((8, 3, 3, 3)).astype(np.float32) / 5, "w")
    nodes = [h.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), h.make_node("Relu", ["c"], ["y"])]
    x, y = (h.make_tensor_value_info(n, 1, s) for n, s in (("x", [1, 3, 12, 11]), ("y", [1, 8, 12, 11])))
    model = tw.load(h.make_model(h.make_graph(nodes, "g", [x], [y], [w]), opset_imports=[h.make_opsetid("", 13)]))
    image = rng.standard_normal((1, 3, 12, 11)).astype(np.float32)
    exact, found = model.compile("cpu")(image), model.compile("cpu", dtype=dtype)(image)
    assert found.dtype == np.float32
    assert 0 < np.linalg.norm(found - exact) / np.linalg.norm(exact) < TOLERANCE[dtype]


def test_other_types_are_refused() -> None:
    onnx = pytest.importorskip("onnx")
    h = onnx.helper
    v = [h.make_tensor_value_info(n, 1, [2]) for n in "xy"]
    graph = h.make_graph([h.make_node("Neg", ["x"], ["y"])], "g", v[:1], v[1:])
    model = tw.load(h.make_model(graph, opset_imports=[h.make_opsetid("", 13)]))
    with pytest.raises(UnsupportedError, match="cannot be compiled for dtype 'i4'"):
        model.compile("cpu", dtype="i4")
