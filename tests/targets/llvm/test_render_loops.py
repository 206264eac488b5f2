"""Loops, accumulators, conditions, local memory, scatters, threads."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.errors import VerifyError
from tilewright.interp import scheduled as oracle
from tilewright.ir.scheduled.core import (
    Acc,
    Alloc,
    For,
    If,
    Let,
    ParFor,
    Program,
    Scatter,
    Store,
    Update,
    add,
    const,
    dense,
    dim,
    expr,
    fresh,
    mul,
    var,
)
from tilewright.ir.types import DType, bf16, bool_, f16, f32, f64, i8, i32, i64, u8, u32
from tilewright.targets.llvm.description import host_description
from tilewright.targets.llvm.render import render, workspace_bytes

from .render_support import check, tiled, values

M, N = dim("M"), dim("N")
SIZES = (0, 1, 5, 16, 33, 64, 129, 300)


def rows_program(name: str, buffers, outputs, body_of, scalars=()) -> Program:
    """One grid position per row of x (M, N)."""
    p = fresh("row")
    return Program(name, buffers, outputs, ("M", "N"), (), scalars, (ParFor((p,), (M,), body_of(var(p))),))


def reduction(monoid: str, dtype: DType, unroll: int, last: bool = False) -> Program:
    x = dense("x", dtype, "arg", (M, N))
    i = fresh("i")
    indexed = monoid in ("argmax", "argmin")
    acc = (fresh("acc", dtype), fresh("at", i64)) if indexed else (fresh("acc", dtype),)
    outs = tuple(dense(f"o{k}", v.dtype, "arg", (M,)) for k, v in enumerate(acc))
    start = {"sum": 0, "prod": 1, "any": False, "all": True}.get(monoid)

    def body(row):
        first = x.load(row, const(0)) if start is None else const(start, dtype)
        inits = (first, const(0)) if indexed else (first,)
        given = (x.load(row, var(i)), var(i)) if indexed else (x.load(row, var(i)),)
        return (
            Acc(acc, inits, monoid, last),
            For(i, const(0), N, (Update(acc, given),), kind="vector", width=16, unroll=unroll),
            *(Store(o, (row,), var(v)) for o, v in zip(outs, acc)),
        )

    return rows_program("reduce", (x, *outs), tuple(o.name for o in outs), body)


@pytest.mark.parametrize("monoid", ("sum", "prod", "max", "min", "argmax", "argmin"))
@pytest.mark.parametrize("dtype", (f32, f64, f16, bf16, i32, i8, u8, u32, i64), ids=str)
def test_reductions(dtype: DType, monoid: str) -> None:
    program = reduction(monoid, dtype, 4 if dtype.bits == 32 else 1)
    outs = [b for b in program.buffers if b.name in program.outputs]
    for n in (1, 5, 33, 129):
        x = values(dtype, 4 * n, n, special=False).reshape(4, n)
        if dtype.is_float and monoid in ("sum", "prod"):
            x = (np.random.default_rng(n).random((4, n)) + 0.5).astype(dtype.numpy)
            if monoid == "prod":
                x = x ** np.asarray(0.25, x.dtype)
        arrays = {"x": x, **{o.name: np.zeros(4, o.dtype.numpy) for o in outs}}
        tolerance = {16: 5e-2, 32: 1e-5}.get(dtype.bits, 1e-12)  # f16 sums are rounded at every step
        check(program, arrays, {"M": 4, "N": n}, exact=monoid not in ("sum", "prod"), tolerance=tolerance)


@pytest.mark.parametrize("monoid", ("any", "all"))
def test_reductions_of_bool(monoid: str) -> None:
    program = reduction(monoid, bool_, 2)
    for n in SIZES:
        x = np.full((3, n), monoid == "all")
        if n:
            x[1, n // 2] ^= True
            x[2, -1] ^= True
        check(program, {"x": x, "o0": np.zeros(3, bool)}, {"M": 3, "N": n})


@pytest.mark.parametrize("monoid", ("max", "min", "argmax", "argmin", "sum"))
def test_nan_wins_wherever_it_stands(monoid: str) -> None:
    n = 150
    x = np.random.default_rng(0).standard_normal((n, n)).astype("f")
    x[np.arange(n), np.arange(n)] = np.nan
    x[:, 149] = np.nan
    x[7, 3] = np.nan
    for last in (False, True):
        program = reduction(monoid, f32, 4, last)
        arrays = {"x": x, "o0": np.zeros(n, "f"), "o1": np.zeros(n, np.int64)}
        arrays = {k: v for k, v in arrays.items() if k == "x" or k in program.outputs}
        out = check(program, arrays, {"M": n, "N": n})
        if monoid.startswith("arg"):
            np.testing.assert_array_equal(out["o1"], [min(k, 149) if k != 7 else 3 for k in range(n)])


@pytest.mark.parametrize("last", (False, True))
@pytest.mark.parametrize("dtype", (f32, i32, u8), ids=str)
def test_equal_values_go_to_the_first_or_last(dtype: DType, last: bool) -> None:
    n = 200
    x = np.random.default_rng(0).integers(0, 4, (6, n)).astype(dtype.numpy)
    for monoid in ("argmax", "argmin"):
        arrays = {"x": x, "o0": np.zeros(6, dtype.numpy), "o1": np.zeros(6, np.int64)}
        out = check(reduction(monoid, dtype, 4, last), arrays, {"M": 6, "N": n})["o1"]
        pick = getattr(np, monoid)
        np.testing.assert_array_equal(out, n - 1 - pick(x[:, ::-1], 1) if last else pick(x, 1))


@pytest.mark.parametrize("n", SIZES)
def test_softmax_like_passes_over_a_row(n: int) -> None:
    """Maximum, then a sum of exponentials kept in local memory, then the quotient."""
    x, o = dense("x", f32, "arg", (M, N)), dense("o", f32, "arg", (M, N))
    e = dense("e", f32, "local", (N,))
    top, total = fresh("top", f32), fresh("total", f32)
    i, j, k = fresh("i"), fresh("j"), fresh("k")

    def body(row):
        grown = expr("exp", f32, expr("sub", f32, x.load(row, var(i)), var(top)))
        value = fresh("value", f32)
        return (
            Alloc(e),
            Acc((top,), (const(float("-inf"), f32),), "max"),
            For(j, const(0), N, (Update((top,), (x.load(row, var(j)),)),), kind="vector", width=16, unroll=2),
            Acc((total,), (const(0.0, f32),), "sum"),
            For(
                i,
                const(0),
                N,
                (Let(value, grown), Store(e, (var(i),), var(value)), Update((total,), (var(value),))),
                kind="vector",
                width=16,
                unroll=4,
            ),
            For(
                k,
                const(0),
                N,
                (Store(o, (row, var(k)), expr("div", f32, e.load(var(k)), var(total))),),
                kind="vector",
                width=16,
            ),
        )

    program = rows_program("softmax", (x, o), ("o",), body)
    data = np.random.default_rng(n).standard_normal((5, n)).astype("f")
    out = check(program, {"x": data, "o": np.zeros((5, n), "f")}, {"M": 5, "N": n}, exact=False)["o"]
    if n:
        wide = np.exp(data.astype("d") - data.max(1, keepdims=True))
        np.testing.assert_allclose(out, wide / wide.sum(1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("unroll", (1, 2))
def test_inner_loops_and_accumulators_inside_a_vector_loop(unroll: int) -> None:
    """A matrix-vector product down the columns: lanes are columns, the inner loop runs over rows."""
    x, w, o = dense("x", f32, "arg", (M, N)), dense("w", f32, "arg", (M,)), dense("o", f32, "arg", (N,))
    i, r, acc, p = fresh("i"), fresh("r"), fresh("acc", f32), fresh("p")
    inner = For(r, const(0), M, (Update((acc,), (expr("mul", f32, w.load(var(r)), x.load(var(r), var(i))),)),))
    loop = For(
        i,
        const(0),
        N,
        (Acc((acc,), (const(0.0, f32),), "sum"), inner, Store(o, (var(i),), var(acc))),
        kind="vector",
        width=16,
        unroll=unroll,
    )
    program = Program("matvec", (x, w, o), ("o",), ("M", "N"), (), (), (ParFor((p,), (const(1),), (loop,)),))
    for n in SIZES:
        rng = np.random.default_rng(n)
        arrays = {
            "x": rng.standard_normal((9, n)).astype("f"),
            "w": rng.standard_normal(9).astype("f"),
            "o": np.zeros(n, "f"),
        }
        check(program, arrays, {"M": 9, "N": n}, exact=False)


def test_conditions_per_lane_and_for_all_lanes() -> None:
    x, o, q = (dense(k, f32, "arg", (N,)) for k in "xoq")
    i, acc, count = fresh("i"), fresh("acc", f32), fresh("count", i64)
    value = x.load(var(i))
    positive = expr("gt", bool_, value, const(0.0, f32))
    flag = expr("param", bool_, attr="flag")
    total = dense("total", i64, "arg", (const(1),))
    body = (
        Acc((acc,), (const(1.0, f32),), "none"),
        If(
            positive,
            (Update((acc,), (value,)), Store(o, (var(i),), const(1.0, f32)), Update((count,), (const(1),))),
            (
                Store(o, (var(i),), const(2.0, f32)),
                If(expr("lt", bool_, value, const(-1.0, f32)), (Update((acc,), (const(-5.0, f32),)),)),
            ),
        ),
        If(flag, (Store(q, (var(i),), var(acc)),), (Store(q, (var(i),), value),)),
    )
    p = fresh("p")
    loop = For(i, const(0), N, body, kind="vector", width=16, unroll=2)
    phase = ParFor((p,), (const(1),), (Acc((count,), (const(0),), "sum"), loop, Store(total, (const(0),), var(count))))
    program = Program("conditions", (x, o, q, total), ("o", "q", "total"), ("N",), (), (("flag", bool_),), (phase,))
    for n in (1, 16, 50, 64):
        data = np.random.default_rng(n).standard_normal(n).astype("f")
        for on in (False, True):
            arrays = {"x": data, "o": np.zeros(n, "f"), "q": np.zeros(n, "f"), "total": np.zeros(1, np.int64)}
            out = check(program, arrays, {"N": n}, {"flag": on})
            assert out["total"][0] == (data > 0).sum()


def test_bounds_that_differ_between_lanes_run_one_by_one() -> None:
    """Row sums of a triangle."""
    x, o = dense("x", f32, "arg", (N, N)), dense("o", f32, "arg", (N,))
    i, j, acc = fresh("i"), fresh("j"), fresh("acc", f32)
    inner = For(j, const(0), add(var(i), 1), (Update((acc,), (x.load(var(i), var(j)),)),), kind="vector", width=16)
    body = (Acc((acc,), (const(0.0, f32),), "sum"), inner, Store(o, (var(i),), var(acc)))
    program = tiled("triangle", (x, o), ("o",), i, body, tile=16)
    data = np.random.default_rng(0).standard_normal((45, 45)).astype("f")
    out = check(program, {"x": data, "o": np.zeros(45, "f")}, {"N": 45}, exact=False)["o"]
    np.testing.assert_allclose(out, np.tril(data).sum(1), rtol=1e-3, atol=1e-4)


def test_a_running_sum_reads_its_accumulator() -> None:
    x, o = dense("x", i32, "arg", (N,)), dense("o", i32, "arg", (N,))
    i, acc, p = fresh("i"), fresh("acc", i32), fresh("p")
    loop = For(i, const(0), N, (Update((acc,), (x.load(var(i)),)), Store(o, (var(i),), var(acc))))
    phase = ParFor((p,), (const(1),), (Acc((acc,), (const(0, i32),), "sum"), loop))
    program = Program("cumsum", (x, o), ("o",), ("N",), (), (), (phase,))
    check(program, {"x": values(i32, 40), "o": np.zeros(40, np.int32)}, {"N": 40})


def test_unrolled_loops_steps_and_stack_buffers() -> None:
    x, o = dense("x", f32, "arg", (N, const(4))), dense("o", f32, "arg", (N, const(4)))
    s = dense("s", f32, "stack", (4,))
    i, a, b = fresh("i"), fresh("a"), fresh("b")
    body = (
        Alloc(s),
        For(a, const(0), const(4), (Store(s, (var(a),), x.load(var(i), var(a))),), kind="unroll"),
        For(
            b,
            const(0),
            const(4),
            (Store(o, (var(i), var(b)), expr("add", f32, s.load(var(b)), s.load(const(3)))),),
            step=2,
        ),
    )
    p = fresh("p")
    program = Program("steps", (x, o), ("o",), ("N",), (), (), (ParFor((p, i), (const(1), N), body),))
    check(program, {"x": values(f32, 44).reshape(11, 4), "o": np.zeros((11, 4), "f")}, {"N": 11})


@pytest.mark.parametrize("dtype", (f32, f64, bf16, f16, i32, i8, i64), ids=str)
@pytest.mark.parametrize("monoid", ("sum", "max", "min"))
def test_scatter(dtype: DType, monoid: str) -> None:
    x, k, o = dense("x", dtype, "arg", (N,)), dense("k", i32, "arg", (N,)), dense("o", dtype, "arg", (const(10),))
    i = fresh("i")
    at = expr("cast", i64, k.load(var(i)))
    keep = expr("ne", bool_, at, const(3))
    program = tiled("scatter", (x, k, o), ("o",), i, (Scatter(o, (at,), x.load(var(i)), monoid, keep),))
    n = 143
    rng = np.random.default_rng(0)
    x_data = values(dtype, n, special=False)
    if dtype.is_float:
        x_data = rng.integers(-3, 4, n).astype(dtype.numpy)
    arrays = {"x": x_data, "k": rng.integers(0, 10, n).astype(np.int32), "o": np.zeros(10, dtype.numpy)}
    check(program, arrays, {"N": n}, exact=True)


def test_grids_of_several_axes_give_every_thread_its_share() -> None:
    o = dense("o", i64, "arg", (const(3), const(5), const(7)))
    a, b, c = fresh("a"), fresh("b"), fresh("c")
    value = add(add(mul(var(a), 100), mul(var(b), 10)), var(c))
    old = o.load(var(a), var(b), var(c))
    body = (Store(o, (var(a), var(b), var(c)), add(old, add(value, 1))),)
    program = Program("grid", (o,), ("o",), (), (), (), (ParFor((a, b, c), (const(3), const(5), const(7)), body),))
    for threads in (1, 2, 7, 200):
        check(program, {"o": np.zeros((3, 5, 7), np.int64)}, threads=threads)


def test_phases_and_empty_grids() -> None:
    x, o = dense("x", f32, "arg", (N,)), dense("o", f32, "arg", (N,))
    phases = []
    for k in range(2):
        i = fresh("i")
        source = x if k == 0 else o
        phases.append(
            ParFor((i,), (N,), (Store(o, (var(i),), expr("add", f32, source.load(var(i)), const(1.0, f32))),))
        )
    program = Program("phases", (x, o), ("o",), ("N",), (), (), tuple(phases))
    for n in (0, 1, 9):
        check(program, {"x": np.arange(n, dtype="f"), "o": np.zeros(n, "f")}, {"N": n})


def test_buffers_of_separate_blocks_share_the_workspace() -> None:
    i = fresh("i")
    big = [dense(f"l{k}", f32, "local", (1000,)) for k in range(3)]
    one = If(const(True, bool_), (Alloc(big[0]),), (Alloc(big[1]), Alloc(big[2])))
    alone = Program("alone", (), (), (), (), (), (ParFor((i,), (const(1),), (Alloc(big[0]),)),))
    shared = Program("shared", (), (), (), (), (), (ParFor((i,), (const(1),), (one,)),))
    assert 4000 <= workspace_bytes(alone) < 5000
    assert workspace_bytes(shared) == 2 * workspace_bytes(alone)
    sized = Program(
        "sized", (), (), ("N",), (), (), (ParFor((i,), (const(1),), (Alloc(dense("l", f32, "local", (N,))),)),)
    )
    assert not isinstance(workspace_bytes(sized), int)


def test_a_plain_register_cannot_leave_a_vector_loop() -> None:
    x, i, acc, p = dense("x", f32, "arg", (N,)), fresh("i"), fresh("acc", f32), fresh("p")
    loop = For(i, const(0), N, (Update((acc,), (x.load(var(i)),)),), kind="vector", width=16)
    phase = ParFor((p,), (const(1),), (Acc((acc,), (const(0.0, f32),), "none"), loop))
    with pytest.raises(VerifyError, match="plain register"):
        render(Program("plain", (x,), (), ("N",), (), (), (phase,)), host_description())


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    program = reduction("sum", f32, 4)
    x = np.random.default_rng(0).standard_normal((64, 1001)).astype("f")
    from .render_support import TARGETS, execute

    for target in TARGETS:
        results = []
        for threads in (1, 2, 5):
            out = np.zeros(64, "f")
            execute(program, target, {"x": x, "o0": out}, {"M": 64, "N": 1001}, threads=threads)
            results.append(out)
        assert all(np.array_equal(results[0], r) for r in results)
    wanted = oracle.run(program, {"x": x}, {"M": 64, "N": 1001})["o0"]
    np.testing.assert_allclose(results[0], wanted, rtol=1e-4, atol=1e-4)
