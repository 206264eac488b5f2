"""The Tile IR interpreter: tile sizes and the order of the grid never change a result."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.generators import cases
from tilewright.errors import ArgumentError, ShapeError, VerifyError
from tilewright.interp import tile
from tilewright.ir.tile import build as b
from tilewright.ir.tile.core import Axis, ScalarParam, TensorParam, TileOf, const, dim
from tilewright.ir.types import ALL_DTYPES, bool_, f32, f64, i64

M, N, K = dim("M"), dim("N"), dim("K")


def matmul(acc=f32):
    x, w = TensorParam("x", acc, (M, K)), TensorParam("w", acc, (K, N))
    out = TensorParam("out", acc, (M, N), "out")
    i, j, k = Axis("i", M), Axis("j", N), Axis("k", K)
    zero = b.full((TileOf(i), TileOf(j)), 0, acc)
    c = b.carried(zero.type, "acc")
    body = b.dot(c, b.load(x, (b.index(i), b.index(k))), b.load(w, (b.index(k), b.index(j))))
    value = b.result(b.loop(k, [zero], [c], [body]), 0)
    return b.kernel("matmul", [x, w, out], [b.par((i, j), [b.store(out, (b.index(i), b.index(j)), value)])])


SIZES = [None, {"i": 1, "j": 1, "k": 1}, {"i": 8, "j": 5, "k": 7}, {"i": 64, "j": 64, "k": 64}]


@pytest.mark.parametrize("sizes", SIZES)
def test_matmul(sizes):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((37, 53)), rng.standard_normal((53, 29))
    out = tile.run(matmul(f64), {"x": x, "w": w}, tile_sizes=sizes, seed=3)["out"]
    np.testing.assert_allclose(out, x @ w, rtol=1e-12, atol=1e-12)


@settings(max_examples=60, deadline=None)
@given(cases(ALL_DTYPES), st.integers(1, 40), st.integers(1, 40), st.integers(1, 9))
def test_tiles_and_order_do_not_matter(case, ti, tj, tk):
    plain = tile.run(case.kernel, case.arrays, case.scalars, case.dims)
    names = {"i": ti, "j": tj, **{f"k{n}": tk for n in range(1, 9)}}
    tiled = tile.run(case.kernel, case.arrays, case.scalars, case.dims, names, seed=ti)
    for name, want in plain.items():
        got = tiled[name]
        if want.dtype.kind in "iub":
            np.testing.assert_array_equal(got, want)
        else:
            rtol = {2: 0.1, 4: 1e-3, 8: 1e-9}[want.dtype.itemsize]
            np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=rtol, atol=rtol)


def test_loads_outside_read_the_fill():
    x, out = TensorParam("x", f32, (M,)), TensorParam("out", f32, (M,), "out")
    i = Axis("i", M)
    at = b.elementwise("sub", b.index(i), const(2, i64))
    kernel = b.kernel("shift", [x, out], [b.par((i,), [b.store(out, (b.index(i),), b.load(x, (at,), 7.0))])])
    got = tile.run(kernel, {"x": np.arange(5, dtype=np.float32)}, tile_sizes={"i": 3})["out"]
    assert got.tolist() == [7, 7, 0, 1, 2]


def test_gather_scatter_and_if():
    at, out = TensorParam("at", i64, (M,)), TensorParam("out", f32, (N,), "accumulate")
    flag = ScalarParam("flag", bool_)
    i = Axis("i", M)
    place = b.load(at, (b.index(i),))
    value = b.cast(b.index(i), f32)
    work = b.if_(b.param(flag), [], [], [b.scatter(out, (place,), value)], [])
    kernel = b.kernel("histogram", [at, flag, out], [b.par((i,), [work])])
    arrays = {"at": np.asarray([0, 2, 2, 9, -1, 0])}
    got = tile.run(kernel, arrays, {"flag": True}, {"N": 4}, {"i": 4})["out"]
    assert got.tolist() == [0 + 5, 0, 1 + 2, 0], "indices outside are dropped"
    assert not tile.run(kernel, arrays, {"flag": False}, {"N": 4})["out"].any()


def test_effects_in_a_loop_run_once_per_trip():
    """A loop that scatters a constant depends on no grid variable, yet counts for every position of the grid."""
    out = TensorParam("out", f32, (const(1, i64),), "accumulate")
    i, k = Axis("i", const(3, i64), "single"), Axis("k", const(4, i64), "range")
    zero = const(0, i64)
    body = b.loop(k, [], [], [], [b.scatter(out, (zero,), const(1.0, f32))])
    kernel = b.kernel("count", [out], [b.par((i,), [body])])
    assert tile.run(kernel, {})["out"].tolist() == [12]


def test_limits_of_a_loop():
    out = TensorParam("out", i64, (M,), "out")
    i, k = Axis("i", M, "single"), Axis("k", N, "range")
    c = b.carried(const(0, i64).type, "sum")
    loop = b.loop(k, [const(0, i64)], [c], [b.iadd(c, b.pos(k))], start=b.pos(i), stop=b.iadd(b.pos(i), const(2, i64)))
    kernel = b.kernel("window", [out], [b.par((i,), [b.store(out, (b.pos(i),), b.result(loop, 0))])])
    assert tile.run(kernel, {}, {}, {"M": 4, "N": 4})["out"].tolist() == [1, 3, 5, 3]


def test_deep_chains_need_no_recursion():
    x, out = TensorParam("x", f32, (M,)), TensorParam("out", f32, (M,), "out")
    i = Axis("i", M)
    value = b.load(x, (b.index(i),))
    for _ in range(3000):
        value = b.map("neg", value)
    kernel = b.kernel("deep", [x, out], [b.par((i,), [b.store(out, (b.index(i),), value)])])
    data = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(tile.run(kernel, {"x": data})["out"], data)


def test_bad_arguments_are_named():
    x, w = np.zeros((2, 3), np.float32), np.zeros((4, 5), np.float32)
    with pytest.raises(ShapeError, match=r"dim K is 3 by axis 1 of 'x' but 4 by axis 0 of 'w'"):
        tile.run(matmul(), {"x": x, "w": w})
    with pytest.raises(ArgumentError, match="no array for its input 'w'"):
        tile.run(matmul(), {"x": x})
    with pytest.raises(ShapeError, match="rank 2, not 1"):
        tile.run(matmul(), {"x": x[0], "w": w})
    with pytest.raises(ArgumentError, match="float64"):
        tile.run(matmul(), {"x": x, "w": np.zeros((3, 5))})
    with pytest.raises(ArgumentError, match="tile size of axis i is 0"):
        tile.run(matmul(), {"x": x, "w": w[:3]}, tile_sizes={"i": 0})


def test_unwritten_outputs_are_poisoned():
    out = TensorParam("out", f32, (M,), "out")
    i = Axis("i", b.ifloordiv(M, const(2, i64)))
    kernel = b.kernel("half", [out], [b.par((i,), [b.store(out, (b.index(i),), b.full((TileOf(i),), 1, f32))])])
    assert np.isnan(tile.run(kernel, {}, {}, {"M": 5})["out"]).tolist() == [False, False, True, True, True]


def test_effectful_results_before_the_effect_are_refused():
    out = TensorParam("out", f32, (M,), "accumulate")
    i, k = Axis("i", M, "single"), Axis("k", const(2, i64), "range")
    c = b.carried(const(0.0, f32).type, "c")
    loop = b.loop(k, [const(0.0, f32)], [c], [b.map("add", c, const(1.0, f32))],
                  [b.scatter(out, (b.pos(i),), c)])
    kernel = b.kernel("order", [out], [b.par((i,), [b.scatter(out, (b.pos(i),), b.result(loop, 0)), loop])])
    with pytest.raises(VerifyError, match="used before it is run"):
        tile.run(kernel, {}, {}, {"M": 2})
