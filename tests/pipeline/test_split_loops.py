"""Loops that end before the tiles that are masked out: where they may, where they may not, and what they compute."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

import tilewright as tw
from examples import kernels as examples
from tests.generators import Case
from tests.pipeline.support import axes_of, check_case, error
from tilewright.interp import tile as oracle
from tilewright.ir.tile.core import Kernel
from tilewright.ir.tile.rewrite import walk
from tilewright.ir.tile.verify import verify
from tilewright.passes.split_loops import cut_dead_ranges
from tilewright.targets.interp import describe as interp
from tilewright.targets.llvm.description import host_description

H, G, S, T, D = tw.dims("H G S T D")
rng = np.random.default_rng(5)


def f(*shape):
    return rng.standard_normal(shape, dtype=np.float32)


def stops(kernel: Kernel) -> int:
    return sum(n.op == "loop" and n.attr("stop") is not None for n in walk(kernel.effects))


@pytest.mark.parametrize("s, t", [(1, 1), (13, 13), (7, 40), (33, 5)])
def test_causal_attention_is_cut_and_stays_the_same(s, t):
    q, k, v = f(4, s, 8), f(2, t, 8), f(2, t, 8)
    whole = examples.attention.tile_ir(q, k, v)
    cut = cut_dead_ranges(whole)
    verify(cut)
    assert stops(whole) == 0 and stops(cut) == 1
    case = Case(cut, {"H": 4, "G": 2, "S": s, "T": t, "D": 8}, {"q": q, "k": k, "v": v}, {})
    for tiles in ({"i": 1, "j": 1}, {"i": 4, "j": 3}, {"i": 16, "j": 16}):
        want = oracle.run(whole, case.arrays, {}, case.dims, tiles)["out"]
        assert error(oracle.run(cut, case.arrays, {}, case.dims, tiles)["out"], want) < 1e-6
    if s <= t:  # rows of NaN have no relative error
        check_case(case, s + t, [interp(), host_description()], 3)
    assert {a.name for a in axes_of(cut)} == {"h", "i", "j"}


def test_masked_values_and_infinite_scores():
    q, k, v = f(2, 40, 8), f(2, 40, 8), f(2, 40, 8)
    k[:, 30:], v[:, 30:] = math.nan, math.inf
    out = examples.attention(q, k, v)
    clean = examples.attention(q[:, :30], k[:, :30], v[:, :30])
    assert np.isnan(out[:, 30:]).all() and np.isfinite(clean).all()
    k = f(2, 40, 8)
    k[0, 3] = math.inf
    whole = examples.attention.tile_ir(q, k, v)
    arrays, dims = {"q": q, "k": k, "v": f(2, 40, 8)}, {"H": 2, "G": 2, "S": 40, "T": 40, "D": 8}
    for kernel in (whole, cut_dead_ranges(whole)):
        got = oracle.run(kernel, arrays, {}, dims, {"i": 8, "j": 8})["out"]
        assert np.isfinite(got[0, :3]).all() and np.isnan(got[0, 3:]).any() and np.isfinite(got[1]).all()


def cut_of(kernel: tw.Kernel, *args: object) -> tuple[Kernel, Kernel]:
    whole = kernel.tile_ir(*args)
    cut = cut_dead_ranges(whole)
    verify(cut)
    return whole, cut


@tw.kernel
def prefix_sums(x: tw.Tensor[S, T]):
    out = tw.empty((S,), x.dtype)
    for i in tw.tiles(S):
        acc = tw.zeros((i,), x.dtype)
        for j in tw.tiles(T):
            acc += tw.where((i > j + 2) & (x[i, j] > 0), x[i, j], 0.0).sum(1)
        out[i] = acc
    return out


def test_sums_over_a_prefix_are_cut():
    x = f(37, 29)
    _, cut = cut_of(prefix_sums, x)
    assert stops(cut) == 1
    i, j = np.indices(x.shape)
    want = np.where((j + 2 < i) & (x > 0), x.astype(np.float64), 0).sum(1)
    case = Case(cut, {"S": 37, "T": 29}, {"x": x}, {})
    check_case(case, 1, [interp(), host_description()], 4)
    assert error(prefix_sums(x), want) < 1e-5


@tw.kernel
def counts_turns(x: tw.Tensor[S, T]):
    """Every masked element counts."""
    out = tw.empty((S,), x.dtype)
    for i in tw.tiles(S):
        acc = tw.zeros((i,), x.dtype)
        for j in tw.tiles(T):
            acc += tw.where(i >= j, x[i, j], 1.0).sum(1)
        out[i] = acc
    return out


@tw.kernel
def product(x: tw.Tensor[S, T], y: tw.Tensor[T, D]):
    """A masked zero times NaN is NaN: these turns matter."""
    out = tw.empty((S, D), x.dtype)
    for i, d in tw.tiles(S, D):
        acc = tw.zeros((i, d), x.dtype)
        for j in tw.tiles(T):
            acc += tw.dot(tw.where(i >= j, x[i, j], 0.0), y[j, d])
        out[i, d] = acc
    return out


@tw.kernel
def decays(x: tw.Tensor[S, T]):
    """The carried value changes in every turn."""
    out = tw.empty((S,), x.dtype)
    for i in tw.tiles(S):
        acc = tw.zeros((i,), x.dtype)
        for j in tw.tiles(T):
            acc = acc * 0.5 + tw.where(i >= j, x[i, j], 0.0).sum(1)
        out[i] = acc
    return out


@tw.kernel
def starts_high(x: tw.Tensor[S, T]):
    """The maximum starts from a number that may be infinite: exp(top - top) may be NaN in a masked turn alone."""
    out = tw.empty((S,), x.dtype)
    for i in tw.tiles(S):
        top, total = x[i, 0], tw.zeros((i,), x.dtype)
        for j in tw.tiles(T):
            s = tw.where(i >= j, x[i, j], -math.inf)
            high = tw.maximum(top, s.max(1))
            total = total * tw.exp(top - high) + tw.exp(s - high[:, None]).sum(1)
            top = high
        out[i] = total
    return out


@tw.kernel
def forgets(x: tw.Tensor[S, T]):
    """A value that an infinite maximum does not reach."""
    out = tw.empty((S,), x.dtype)
    for i in tw.tiles(S):
        top, total = tw.full((i,), -math.inf, x.dtype), tw.zeros((i,), x.dtype)
        for j in tw.tiles(T):
            s = tw.where(i >= j, x[i, j], -math.inf)
            high = tw.maximum(top, s.max(1))
            total = total * tw.exp(top - high)
            top = high
        out[i] = total
    return out


@pytest.mark.parametrize("kernel", [counts_turns, product, decays, starts_high, forgets], ids=lambda k: k.name)
def test_loops_whose_masked_turns_matter_run_to_their_end(kernel):
    args = (f(9, 11), f(11, 4)) if kernel is product else (f(9, 11),)
    _, cut = cut_of(kernel, *args)
    assert stops(cut) == 0


def test_limits_of_loops_never_leave_the_axis():
    from tilewright.ir.tile import build as b
    from tilewright.ir.tile.core import Axis, TensorParam, const, dim
    from tilewright.ir.types import f32, i64

    n = dim("N")
    for start, stop in ((-5, 100), (3, 100), (4, 9), (9, 4), (0, 0), (-3, 7), (None, 20), (12, None)):
        i, k = Axis("i", n, "single"), Axis("k", n)
        x, out = TensorParam("x", f32, (n,)), TensorParam("out", f32, (n,), "out")
        zero = const(0, f32)
        c = b.carried(zero.type, "acc")
        limits = {k: None if v is None else const(v, i64) for k, v in (("start", start), ("stop", stop))}
        total = b.map("add", c, b.fold(b.load(x, (b.index(k),)), 0, "sum"))
        store = b.store(out, (b.pos(i),), b.result(b.loop(k, [zero], [c], [total], **limits), 0))
        kernel = b.kernel("limits", [x, out], [b.par((i,), [store])])
        data = f(13)
        case = Case(kernel, {"N": 13}, {"x": data}, {})
        want = data.astype(np.float64)[slice(max(0, start or 0), None if stop is None else max(0, stop))].sum()
        assert abs(oracle.run(kernel, case.arrays)["out"] - want).max() < 1e-5
        check_case(case, random.Random(f"{start} {stop}").randrange(1000), [interp(), host_description()], 2)
