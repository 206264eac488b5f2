"""The Scheduled IR interpreter: lanes, accumulators, register blocks, threads, and what it must notice."""

import dataclasses
import math

import numpy as np
import pytest

from tilewright.errors import ArgumentError, VerifyError
from tilewright.interp import scheduled
from tilewright.ir.scheduled import core as s
from tilewright.ir.types import bf16, bool_, f32, i8, i32, i64, u8, u32

M, K = s.dim("M"), s.dim("K")


def vector_program(name, body, buffers, outputs, dims=("M", "K"), scalars=()):
    return s.Program(name, buffers, outputs, dims, (), scalars, body)


def rows(monoid, init, width=8, unroll=2, last=False):
    """out[m] = fold of x[m, :]; for argmax and argmin the position."""
    x, out = s.dense("x", f32, "arg", (M, K)), s.dense("out", i64 if "arg" in monoid else f32, "arg", (M,))
    i, k = s.fresh("i"), s.fresh("k")
    value = s.fresh("v", f32)
    names, inits, values = (value,), (s.const(init, f32),), (x.load(s.var(i), s.var(k)),)
    if "arg" in monoid:
        names, inits, values = (*names, s.fresh("at")), (*inits, s.const(0)), (*values, s.var(k))
    body = (
        s.Acc(names, inits, monoid, last),
        s.For(k, s.const(0), K, (s.Update(names, values),), "vector", 1, width, unroll),
        s.Store(out, (s.var(i),), s.var(names[-1])),
    )
    return vector_program("rows", (s.ParFor((i,), (M,), body),), (x, out), ("out",))


def call(program, x, threads=2, **more):
    return scheduled.run(program, {"x": x, **more}, {"M": x.shape[0], "K": x.shape[1]}, threads=threads)["out"]


@pytest.mark.parametrize("k", [0, 1, 7, 16, 17, 33])
@pytest.mark.parametrize("threads", [1, 3])
def test_accumulators_outside_a_vector_loop_fold_across_lanes(k, threads):
    x = np.random.default_rng(k).integers(-9, 9, (5, k)).astype(np.float32)
    np.testing.assert_array_equal(call(rows("sum", 0.0), x, threads), x.sum(1))
    if k:
        np.testing.assert_array_equal(call(rows("max", -math.inf), x), x.max(1))
        np.testing.assert_array_equal(call(rows("argmax", -math.inf), x), x.argmax(1))
        np.testing.assert_array_equal(call(rows("argmin", math.inf), x), x.argmin(1))
        last = k - 1 - x[:, ::-1].argmax(1)
        np.testing.assert_array_equal(call(rows("argmax", -math.inf, last=True), x), last)


def test_the_first_nan_wins_whichever_lane_saw_it():
    x = np.ones((1, 40), np.float32)
    x[0, [13, 21, 39]] = math.nan
    for kind, last in (("argmax", False), ("argmin", True)):
        assert call(rows(kind, -math.inf if kind == "argmax" else math.inf, last=last), x) == 13
    assert math.isnan(call(rows("max", -math.inf), x)[0])


def test_strided_and_reversed_arguments():
    x, out = s.Buffer("x", f32, "arg", (M, K), (s.stride("x", 0), s.stride("x", 1))), s.dense("out", f32, "arg", (M, K))
    i, k = s.fresh("i"), s.fresh("k")
    store = s.Store(out, (s.var(i), s.var(k)), x.load(s.var(i), s.var(k)))
    body = s.ParFor((i,), (M,), (s.For(k, s.const(0), K, (store,), "vector", 1, 4, 1),))
    program = s.Program("copy", (x, out), ("out",), ("M", "K"), (("x", 0), ("x", 1)), (), (body,))
    base = np.arange(60, dtype=np.float32).reshape(6, 10)
    for view in (base[::-1], base[:, ::-2], base.T, base[2:5, 1:4], base[::-1].T[::-1]):
        np.testing.assert_array_equal(call(program, view), view)
    half = base.astype(bf16.numpy)
    with pytest.raises(ArgumentError, match="holds bfloat16, the program says f32"):
        call(program, half)


def test_rank_zero_arguments_are_written_in_place():
    out = s.dense("out", f32, "arg", ())
    body = s.ParFor((), (), (s.Store(out, (), s.const(3.0, f32)),))
    program = s.Program("zero", (out,), ("out",), (), (), (), (body,))
    given = np.zeros((), np.float32)
    assert scheduled.run(program, {"out": given})["out"] is given and given == 3


def lanes(*body, width=4):
    """A vector loop over k < K that the given statements make up; they get k and the buffers x[K] and out[K]."""
    x, out = s.dense("x", f32, "arg", (K,)), s.dense("out", f32, "arg", (K,))
    k = s.fresh("k")
    made = tuple(st for make in body for st in make(s.var(k), x, out))
    loop = s.For(k, s.const(0), K, made, "vector", 1, width, 1)
    return s.Program("lanes", (x, out), ("out",), ("K",), (), (), (s.ParFor((), (), (loop,)),))


def run_lanes(program, x):
    return scheduled.run(program, {"x": np.asarray(x, np.float32)}, {"K": len(x)})["out"]


def test_masks_branches_and_guarded_loads():
    def shifted(k, x, out):
        inside = s.expr("lt", bool_, s.add(k, 2), K)
        return [s.Store(out, (k,), x.load_if(inside, s.const(9.0, f32), s.add(k, 2)))]

    assert run_lanes(lanes(shifted), [0, 1, 2, 3, 4]).tolist() == [2, 3, 4, 9, 9]

    def masked(k, x, out):
        even = s.expr("eq", bool_, s.mod(k, 2), s.const(0))
        return [s.Store(out, (k,), s.const(0.0, f32)), s.Store(out, (k,), x.load(k), even)]

    assert run_lanes(lanes(masked), [1, 2, 3, 4, 5]).tolist() == [1, 0, 3, 0, 5]

    def branch(k, x, out):
        big = s.expr("gt", bool_, x.load(k), s.const(2.0, f32))
        return [s.If(big, (s.Store(out, (k,), s.const(1.0, f32)),), (s.Store(out, (k,), s.const(-1.0, f32)),))]

    assert run_lanes(lanes(branch), [1, 2, 3, 4, 5]).tolist() == [-1, -1, 1, 1, 1]


def test_loops_inside_lanes():
    """A serial loop whose end differs from lane to lane, with an accumulator per lane."""
    def triangle(k, x, out):
        a, j = s.fresh("a", f32), s.fresh("j")
        return [
            s.Acc((a,), (s.const(0.0, f32),), "sum"),
            s.For(j, s.const(0), s.add(k, 1), (s.Update((a,), (x.load(s.var(j)),)),)),
            s.Store(out, (k,), s.var(a)),
        ]

    x = np.arange(1, 12, dtype=np.float32)
    np.testing.assert_array_equal(run_lanes(lanes(triangle), x), np.cumsum(x))


def test_scatter_counts_every_lane():
    def into_first(k, x, out):
        zero = s.expr("lt", bool_, k, s.const(3))
        return [s.Scatter(out, (s.const(0),), x.load(k), "sum", zero)]

    x = np.asarray([1, 2, 3, 4, 5], np.float32)
    given = np.zeros(5, np.float32)
    scheduled.run(lanes(into_first), {"x": x, "out": given}, {"K": 5})
    assert given.tolist() == [6, 0, 0, 0, 0]


@pytest.mark.parametrize("dtype", [f32, bf16], ids=str)
@pytest.mark.parametrize("init", [False, True])
@pytest.mark.parametrize("valid", [3, 8, None])
def test_micro(dtype, init, valid):
    rows, cols, depth = 3, 8, 5
    a, b = s.dense("a", dtype, "arg", (rows, depth)), s.dense("b", dtype, "arg", (depth, cols))
    out = s.dense("out", f32, "arg", (rows, cols))
    zero = s.const(0)
    operands = s.Operand(out, zero, cols), s.Operand(a, zero, depth), s.Operand(b, zero, cols)
    block = s.Micro(*operands, s.const(depth), rows, cols, 4, init, None if valid is None else s.const(valid))
    program = s.Program("micro", (a, b, out), ("out",), (), (), (), (s.ParFor((), (), (block,)),))
    rng = np.random.default_rng(1)
    x, y = (rng.integers(-4, 5, n).astype(dtype.numpy) for n in ((rows, depth), (depth, cols)))
    old = rng.integers(-4, 5, (rows, cols)).astype(np.float32)
    want, given = old.copy(), old.copy()
    n = cols if valid is None else valid
    want[:, :n] = x.astype(float) @ y.astype(float)[:, :n] + (0 if init else old[:, :n])
    scheduled.run(program, {"a": x, "b": y, "out": given})
    np.testing.assert_array_equal(given, want)
    short = dataclasses.replace(block, depth=s.const(depth + 1))
    with pytest.raises(VerifyError, match="a register block outside the memory of buffer 'a'.*in: micro out"):
        scheduled.run(dataclasses.replace(program, body=(s.ParFor((), (), (short,)),)), {"a": x, "b": y})


@pytest.mark.parametrize("a, b, acc, group", [(bf16, bf16, f32, 2), (u8, i8, i32, 4), (i8, i8, i32, 4)], ids=str)
def test_micro_in_groups(a, b, acc, group):
    """Operand b is written as words, so that wide stores are tried as well; a bias is added to every row."""
    rows, cols, depth = 3, 8, 12
    x, out, bias = s.dense("x", a, "arg", (rows, depth)), s.dense("out", acc, "arg", (rows, cols)), s.dense(
        "bias", acc, "arg", (cols,))
    words, given = s.dense("words", b, "local", (depth // group, cols, group)), s.dense("w", u32, "arg", (24 * 8,))
    q, c, zero = s.fresh("q"), s.fresh("c"), s.const(0)
    word = given.load(s.add(s.mul(s.var(q), cols), s.var(c)))
    fill = s.For(c, zero, s.const(cols), (s.Store(words, (s.var(q), s.var(c), zero), word),), "vector", 1, 4)
    block = s.Micro(s.Operand(out, zero, cols), s.Operand(x, zero, depth), s.Operand(words, zero, cols * group),
                    s.const(depth), rows, cols, 4, group=group, bias=s.Operand(bias, zero, 0))
    body = (s.Alloc(words), s.For(q, zero, s.const(depth // group), (fill,)), block)
    program = s.Program("groups", (x, given, out, bias), ("out",), (), (), (), (s.ParFor((), (), body),))
    rng = np.random.default_rng(1)
    left, right = rng.integers(0, 90, (rows, depth)).astype(a.numpy), rng.integers(-9, 9, (depth, cols)).astype(b.numpy)
    start, more = rng.integers(-9, 9, (rows, cols)).astype(acc.numpy), rng.integers(-9, 9, cols).astype(acc.numpy)
    packed = np.zeros(24 * 8, np.uint32)
    inside = np.ascontiguousarray(right.reshape(depth // group, group, cols).transpose(0, 2, 1)).view(np.uint32).ravel()
    packed[:inside.size] = inside
    want = start + more + left.astype(float) @ right.astype(float)
    scheduled.run(program, {"x": left, "w": packed, "out": start, "bias": more})
    np.testing.assert_array_equal(start, want)
    odd = dataclasses.replace(block, depth=s.const(depth - 1))
    with pytest.raises(VerifyError, match="a depth of 11 is no multiple of the group"):
        scheduled.run(dataclasses.replace(program, body=(s.ParFor((), (), (*body[:2], odd)),)),
                      {"x": left, "w": packed, "out": start, "bias": more})


def test_local_memory_is_poisoned_every_time_it_is_made():
    out, tmp = s.dense("out", f32, "arg", (M,)), s.dense("tmp", f32, "local", (1,))
    i, zero = s.fresh("i"), s.const(0)
    fill = s.If(s.expr("eq", bool_, s.var(i), zero), (s.Store(tmp, (zero,), s.const(1.0, f32)),))
    body = (s.Alloc(tmp), fill, s.Store(out, (s.var(i),), tmp.load(zero)))
    program = s.Program("poison", (out,), ("out",), ("M",), (), (), (s.ParFor((i,), (M,), body),))
    got = scheduled.run(program, {}, {"M": 3})["out"]
    assert got[0] == 1 and np.isnan(got[1:]).all()


def test_threads_cover_every_position_once():
    out = s.dense("out", i32, "arg", (M, K))
    i, k = s.fresh("i"), s.fresh("k")
    one = s.Scatter(out, (s.var(i), s.var(k)), s.const(1, i32), "sum")
    program = s.Program("cover", (out,), ("out",), ("M", "K"), (), (), (s.ParFor((i, k), (M, K), (one,)),))
    for threads in (1, 2, 5, 64):
        given = np.zeros((5, 7), np.int32)
        scheduled.run(program, {"out": given}, {"M": 5, "K": 7}, threads=threads)
        assert (given == 1).all()


def test_index_arithmetic_wraps_at_64_bits():
    out = s.dense("out", i64, "arg", (1,))
    big = s.expr("mul", i64, s.const(2**62), s.dim("K"))
    body = s.ParFor((), (), (s.Store(out, (s.const(0),), big),))
    program = s.Program("wrap", (out,), ("out",), ("K",), (), (), (body,))
    assert scheduled.run(program, {}, {"K": 3})["out"] == 2**62 * 3 - 2**64


def one_statement(make):
    x, out = s.dense("x", f32, "arg", (K,)), s.dense("out", f32, "arg", (K,))
    return s.Program("bad", (x, out), ("out",), ("K",), (), (), (s.ParFor((), (), tuple(make(x, out))),))


NOTICED = {
    "index 5 of axis 0 of buffer 'x' is outside 0..4, in: store out": lambda x, out: [
        s.Store(out, (s.const(0),), x.load(s.const(5)))],
    "index -1 of axis 0 of buffer 'out' is outside": lambda x, out: [
        s.Store(out, (s.const(-1),), s.const(1.0, f32))],
    "'x' is an input": lambda x, out: [s.Store(x, (s.const(0),), s.const(1.0, f32))],
    "read before it has a value": lambda x, out: [s.Store(out, (s.const(0),), s.var(s.fresh("v", f32)))],
    "used before it exists": lambda x, out: [
        s.Store(out, (s.const(0),), s.dense("tmp", f32, "local", (4,)).load(s.const(0)))],
    "a value of int64 for buffer 'out'": lambda x, out: [s.Store(out, (s.const(0),), s.const(1))],
    "is no accumulator": lambda x, out: [s.Update((s.fresh("v", f32),), (s.const(1.0, f32),))],
    "there is no dim named 'Q'": lambda x, out: [s.Store(out, (s.dim("Q"),), s.const(1.0, f32))],
    "2 indices for buffer 'x' of rank 1": lambda x, out: [
        s.Store(out, (s.const(0),), s.expr("load", f32, s.const(0), s.const(0), attr=x))],
}


@pytest.mark.parametrize("message", NOTICED)
def test_faults_are_noticed(message):
    with pytest.raises(VerifyError, match=message):
        scheduled.run(one_statement(NOTICED[message]), {"x": np.zeros(5, np.float32)}, {"K": 5})


def test_faults_in_lanes_are_noticed():
    def race(k, x, out):
        return [s.Store(out, (s.const(0),), x.load(k))]

    with pytest.raises(VerifyError, match="lanes store different values to one element of buffer 'out'"):
        run_lanes(lanes(race), [1, 2, 3])
    assert run_lanes(lanes(race), [2, 2, 2])[0] == 2

    def scratch(k, x, out):
        return [s.Alloc(s.dense("tmp", f32, "local", (4,)))]

    with pytest.raises(VerifyError, match="made inside a vector loop"):
        run_lanes(lanes(scratch), [1])
    with pytest.raises(VerifyError, match="read inside the vector loop that updates it"):
        program = rows("sum", 0.0)
        acc, loop, store = program.body[0].body
        update = loop.body[0]
        reads = s.Update(update.vars, (s.expr("mul", f32, s.var(update.vars[0]), s.const(2.0, f32)),))
        body = (acc, dataclasses.replace(loop, body=(reads,)), store)
        par = dataclasses.replace(program.body[0], body=body)
        call(dataclasses.replace(program, body=(par,)), np.ones((1, 3), np.float32))


def test_arguments_are_checked():
    program = rows("sum", 0.0)
    x = np.zeros((3, 4), np.float32)
    with pytest.raises(ArgumentError, match="no value for dim K"):
        scheduled.run(program, {"x": x}, {"M": 3})
    with pytest.raises(ArgumentError, match="no array for 'x'"):
        scheduled.run(program, {}, {"M": 3, "K": 4})
    with pytest.raises(ArgumentError, match="has shape"):
        scheduled.run(program, {"x": x}, {"M": 3, "K": 5})
    with pytest.raises(ArgumentError, match=r"has strides \(1, 3\), the program was made for \(4, 1\)"):
        scheduled.run(program, {"x": np.asfortranarray(x)}, {"M": 3, "K": 4})
