"""Kernels of the language under random legal schedules: any tiles, register blocks, staged and packed operands."""

from __future__ import annotations

import random

import ml_dtypes
import numpy as np
import pytest

from examples import kernels as examples
from tests.generators import Case
from tests.pipeline import test_language_kernels as here
from tests.pipeline.support import check_case, check_packed, facts_of
from tests.targets.llvm.test_render_groups import narrow
from tilewright.ir.tile.rewrite import bind_dims
from tilewright.passes.split_loops import cut_dead_ranges
from tilewright.targets.interp import describe as interp
from tilewright.targets.llvm.description import describe, features_of, host_description, host_level

rng = np.random.default_rng(23)
TARGETS = [interp(), host_description()] + ([describe("avx2")] if host_level() == "avx512" else [])


def f(*shape):
    return rng.standard_normal(shape, dtype=np.float32)


def i(low, high, *shape):
    return rng.integers(low, high, shape, np.int32)


def h(*shape):
    return f(*shape).astype(ml_dtypes.bfloat16)


def byte(kind, *shape):
    info = np.iinfo(kind)
    return rng.integers(info.min, info.max, shape, endpoint=True).astype(kind)


KERNELS = {
    "linear": (examples.linear_relu, (f(9, 13), f(13, 19), f(19))),
    "conv": (examples.conv2d, (f(1, 3, 5, 5), f(2, 2, 5, 9), 1, 1)),
    "strided conv": (examples.conv2d, (f(2, 5, 7, 3), f(1, 2, 3, 7), 2, 0)),
    "softmax": (examples.softmax, (f(11, 37),)),
    "layer norm": (examples.layer_norm, (f(11, 37), f(37), f(37))),
    "attention": (examples.attention, (f(2, 9, 4), f(1, 13, 4), f(1, 13, 4), False)),
    "causal attention": (examples.attention, (f(2, 9, 4), f(1, 13, 4), f(1, 13, 4), True)),
    "half attention": (examples.attention, tuple(f(1, 11, 8).astype(np.float16) for _ in range(3))),
    "leading axes": (here.vectors, (f(3, 5, 7), f(7, 9), f(7))),
    "reductions": (here.reductions, (f(3, 9, 13),)),
    "folds": (here.folds, (f(9, 21),)),
    "running": (here.running, (1 + f(9, 21) / 8,)),
    "looped": (here.looped, (f(9, 20), f(20, 21), f(9, 21))),
    "small integers": (here.looped, (i(-9, 9, 5, 20).astype("i1"), i(-9, 9, 20, 9).astype("i1"), i(-9, 9, 5, 9))),
    "bf16 linear": (examples.linear_relu, (h(9, 13), h(13, 19), h(19))),
    "bf16 conv": (examples.conv2d, (h(1, 3, 5, 6), h(2, 2, 6, 9), 1, 1)),
    "bf16 odd conv": (examples.conv2d, (h(1, 3, 5, 5), h(2, 2, 5, 9), 1, 1)),
    "bf16 attention": (examples.attention, (*(h(1, 11, 8) for _ in range(3)), True)),
    **{f"{x} x {w}": (here.byte_products, (byte(x, 9, 21), byte(w, 21, 19)))
       for x in ("i1", "u1") for w in ("i1", "u1")},
    "gathers": (here.gathered, (f(9, 21), i(-1, 10, 30))),
    "two grids": (here.statistics, (8 + f(9, 17),)),
    "branches": (here.branches, (f(9, 17), 3, 0.25)),
}


def case_of(kernel, args):
    calls = kernel._calls or kernel._dispatcher()
    call = calls.read(args, {})
    parameters = calls.signature.params
    arrays = {p.name: a for p, a in zip(parameters, args) if p.kind == "tensor"}
    return Case(cut_dead_ranges(kernel.tile_ir(*args)), dict(call.dims), arrays, dict(call.scalars))


@pytest.mark.parametrize("name", KERNELS)
def test_any_schedule(name):
    check_case(case_of(*KERNELS[name]), len(name), TARGETS, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("seed", range(8))
def test_more_schedules(name, seed):
    check_case(case_of(*KERNELS[name]), 1000 + seed, TARGETS, 8)


PACKED = {
    "linear": (*KERNELS["linear"], "w"),
    "conv": (*KERNELS["conv"], "w"),
    "strided conv": (*KERNELS["strided conv"], "w"),
    "looped": (*KERNELS["looped"], "w"),
    **{name: (*KERNELS[name], "w") for name in ("bf16 linear", "bf16 conv", "bf16 odd conv", "i1 x i1", "u1 x u1")},
}


@pytest.mark.parametrize("name", PACKED)
def test_packed_operands(name):
    kernel, args, tensor = PACKED[name]
    check_packed(case_of(kernel, args), len(name), TARGETS[:2], tensor, 1)


def test_known_sizes_give_the_same():
    """All dims as numbers: loops of one turn, tiles that divide, and bounds that are proven."""
    for name in ("linear", "causal attention", "gathers"):
        case = case_of(*KERNELS[name])
        bound = Case(bind_dims(case.kernel, case.dims), {}, case.arrays, case.scalars)
        assert facts_of(bound, random.Random(0)).sizes == ()
        check_case(bound, 7, TARGETS[:2], 1)


@pytest.mark.parametrize("name", [n for n in KERNELS if " x " in n])
def test_bytes_in_narrow_vectors(name):
    """The instructions of machines without wide vectors: edges of panels are walked otherwise there."""
    if "avxvnni" not in features_of(host_description()):
        pytest.skip("this machine has no avxvnni")
    check_case(case_of(*KERNELS[name]), 3, [narrow()], 3)
