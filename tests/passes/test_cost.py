"""Counted costs: exact where the program is regular, and labelled as estimates."""

import random

import pytest

from tests.generators import generate
from tests.pipeline import program_of
from tilewright.errors import UnsupportedError
from tilewright.ir.scheduled import core as s
from tilewright.ir.types import bool_, f32, i8, i32, i64
from tilewright.passes.cost import Cost, count

M, N, K = s.dim("M"), s.dim("N"), s.dim("K")


def program(*body, buffers, dims=("M", "N", "K")):
    return s.Program("p", buffers, tuple(b.name for b in buffers), dims, (), (), body)


def test_an_elementwise_kernel():
    x, y = s.dense("x", f32, "arg", (M, N)), s.dense("y", f32, "arg", (M, N))
    i, j = s.fresh("i"), s.fresh("j")
    e = x.load(s.var(i), s.var(j))
    value = s.expr("fma", f32, e, e, s.expr("exp", f32, e))
    loop = s.For(j, s.const(0), N, (s.Store(y, (s.var(i), s.var(j)), value),), "vector", 1, 8, 1)
    got = count(program(s.ParFor((i,), (M,), (loop,)), buffers=(x, y)), {"M": 1000, "N": 77})
    n = 77_000
    assert got == Cost(flops=2 * n, functions=n, read=4 * n, written=4 * n, tensors=8 * n)
    assert got.intensity == 2 / 8


def matmul(dtype=f32, acc=f32, tile=8):
    """Tiles of rows; the last one is smaller."""
    x, y = s.dense("x", dtype, "arg", (M, K)), s.dense("y", dtype, "arg", (K, 16))
    out = s.dense("out", acc, "arg", (M, 16))
    i, r = s.fresh("i"), s.fresh("r")
    row = s.add(s.mul(s.var(i), tile), s.var(r))
    operands = s.Operand(out, s.mul(row, 16), 16), s.Operand(x, s.mul(row, K), K), s.Operand(y, s.const(0), 16)
    block = s.Micro(*operands, K, 1, 16, 8, True)
    rows = s.For(r, s.const(0), s.imin(s.const(tile), s.sub(M, s.mul(s.var(i), tile))), (block,))
    return program(s.ParFor((i,), (s.ceildiv(M, tile),), (rows,)), buffers=(x, y, out))


@pytest.mark.parametrize("m", [0, 1, 8, 9, 77, 80, 4001])
def test_edge_tiles_are_counted_exactly(m):
    got = count(matmul(), {"M": m, "N": 0, "K": 30})
    assert got.flops == pytest.approx(2 * m * 16 * 30)
    assert got.read == pytest.approx(4 * (m * 30 + m * 30 * 16))
    assert got.written == pytest.approx(4 * m * 16)


def test_integer_blocks_are_counted_apart():
    got = count(matmul(i8, i32), {"M": 10, "N": 0, "K": 30})
    assert (got.flops, got.int_ops, got.tensors) == (0, 2 * 10 * 16 * 30, 300 + 480 + 640)


@pytest.mark.parametrize("n", [1, 5, 40, 1000])
def test_triangles(n):
    x = s.dense("x", f32, "arg", (M,))
    i, j = s.fresh("i"), s.fresh("j")
    inner = s.For(j, s.const(0), s.add(s.var(i), 1), (s.Store(x, (s.var(j),), s.const(0.0, f32)),))
    got = count(program(s.ParFor((i,), (M,), (inner,)), buffers=(x,)), {"M": n})
    assert got.written == pytest.approx(4 * n * (n + 1) / 2, rel=0.02)


def test_branches():
    x = s.dense("x", f32, "arg", (M,))
    i, v = s.fresh("i"), s.fresh("v")
    store = s.Store(x, (s.var(i),), s.const(0.0, f32))
    half = s.If(s.expr("lt", bool_, s.var(v), s.const(5)), (store,))
    let = s.Let(v, s.add(s.var(i), 0))
    got = count(program(s.ParFor((i,), (M,), (let, half)), buffers=(x,)), {"M": 9})
    assert got.written == 4 * 5
    unknown = s.If(s.expr("lt", bool_, x.load(s.var(i)), s.const(5.0, f32)), (store,), (store, store))
    got = count(program(s.ParFor((i,), (M,), (unknown,)), buffers=(x,)), {"M": 9})
    assert (got.written, got.read) == (4 * 18, 4 * 9), "the dearer side bounds the cost"


def test_bounds_from_data_are_refused():
    x = s.dense("x", i64, "arg", (M,))
    loop = s.For(s.fresh("j"), s.const(0), x.load(s.const(0)), ())
    with pytest.raises(UnsupportedError, match="depends on data"):
        count(program(s.ParFor((), (), (loop,)), buffers=(x,)), {"M": 9})


def test_generated_programs_can_be_counted():
    for seed in range(60):
        case = generate(random.Random(seed))
        got = count(program_of(case, seed), case.dims, case.scalars)
        assert min(got.flops, got.read, got.written, got.scratch, got.functions) >= 0
        if case.dims["M"] * case.dims["N"]:
            assert got.written >= 4 * case.dims["M"] * case.dims["N"]
