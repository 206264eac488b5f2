"""Every rule of Scheduled IR has a program that breaks it."""

import dataclasses
import random

import pytest

from tests.generators import generate
from tests.pipeline import program_of
from tilewright.errors import VerifyError
from tilewright.ir.scheduled import core as s
from tilewright.ir.scheduled.verify import verify
from tilewright.ir.types import ALL_DTYPES, bf16, bool_, f32, f64, i8, i32, i64, u32

K = s.dim("K")
X, OUT = s.dense("x", f32, "arg", (K,)), s.dense("out", f32, "arg", (K,))
TMP = s.dense("tmp", f32, "local", (8,))
ZERO, ONE = s.const(0), s.const(1.0, f32)
STORE = s.Store(OUT, (ZERO,), ONE)


def program(*body, buffers=(X, OUT), outputs=("out",)):
    return s.Program("p", buffers, outputs, ("K",), (("x", 0),), (("alpha", f32),), (s.ParFor((), (), body),))


def store(value):
    return s.Store(OUT, (ZERO,), value)


def loop(*body, kind="serial", **facts):
    return s.For(s.fresh("k"), ZERO, K, body, kind, **facts)


def block(**changes):
    base = s.Micro(s.Operand(OUT, ZERO, 8), s.Operand(X, ZERO, 4), s.Operand(X, ZERO, 8), K, 2, 8, 4)
    return dataclasses.replace(base, **changes)


def acc(monoid="sum", count=1, dtype=f32):
    names = tuple(s.fresh("a", dtype) for _ in range(count))
    return s.Acc(names, tuple(s.const(0, dtype) for _ in names), monoid)


def test_valid_programs():
    verify(program(STORE, loop(STORE, kind="vector", width=8), block(), s.Alloc(TMP), s.Store(TMP, (ZERO,), ONE)))
    for seed in range(60):
        verify(program_of(generate(random.Random(seed), ALL_DTYPES, smooth=False), seed))


V, A = s.fresh("v", f32), acc()
OTHER = s.dense("x", f32, "arg", (K, K))
ALIAS = s.dense("out", f64, "arg", (K,))

HALVES = s.dense("halves", bf16, "local", (64,))
APART = s.Buffer("apart", bf16, "local", (8,), (2,))

BAD = {
    r"variable v\.\d+ has no value here": [store(s.var(V))],
    r"variable v\.\d+ is defined twice": [s.Let(V, ONE), s.Let(V, ONE)],
    r"read as i64": [s.Let(V, ONE), store(s.expr("cast", f32, s.expr("var", i64, attr=V)))],
    "there is no dim 'Q'": [s.Store(OUT, (s.dim("Q"),), ONE)],
    "there is no f64 scalar 'alpha'": [store(s.expr("cast", f32, s.expr("param", f64, attr="alpha")))],
    "stride .* is not passed": [s.Store(OUT, (s.stride("out", 0),), ONE)],
    "there is no function 'mystery'": [store(s.expr("mystery", f32, ONE))],
    "add with 1 operands": [store(s.expr("add", f32, ONE))],
    "add of f32, i64": [store(s.expr("add", f32, ONE, ZERO))],
    "exp of i64: it is for floats": [s.Store(OUT, (s.expr("exp", i64, ZERO),), ONE)],
    "shl of f32": [store(s.expr("shl", f32, ONE, ONE))],
    "and of f32": [store(s.expr("and", f32, ONE, ONE))],
    "lt of f32 gives bool, not f32": [store(s.expr("lt", f32, ONE, ONE))],
    "condition of where is not bool": [store(s.expr("where", f32, ONE, ONE, ONE))],
    "300 is no i8": [s.Let(s.fresh("c", i8), s.expr("const", i8, attr=300))],
    "True is no i64": [s.Store(OUT, (s.expr("const", i64, attr=True),), ONE)],
    "a bitcast to another width": [s.Let(s.fresh("c", f64), s.expr("bitcast", f64, ONE))],
    "a load of another element type": [store(s.expr("cast", f32, s.expr("load", f64, ZERO, attr=X)))],
    "without a bool guard": [store(X.load_if(ONE, ONE, ZERO))],
    "guarded load of different element types": [
        store(s.expr("load_if", f32, s.const(True, bool_), ZERO, ZERO, attr=X))],
    "buffer 'tmp' does not exist here": [store(TMP.load(ZERO))],
    "another shape or type than it was declared": [s.Store(ALIAS, (ZERO,), s.const(1.0, f64))],
    "2 indices for buffer 'x' of rank 1": [store(s.expr("load", f32, ZERO, ZERO, attr=X))],
    "an index of 'out' is f32": [s.Store(OUT, (ONE,), ONE)],
    "'x' is an input": [s.Store(X, (ZERO,), ONE)],
    "i64 where f32 is needed": [store(ZERO)],
    "f32 where bool is needed": [s.Store(OUT, (ZERO,), ONE, ONE)],
    "there is no scatter by 'mean'": [s.Scatter(OUT, (ZERO,), ONE, "mean")],
    "there is no monoid 'mean'": [acc("mean")],
    "the wrong number of variables": [acc("argmax", 1)],
    "position of an argmax or argmin is i64": [acc("argmax", 2)],
    "not, as it stands, one accumulator": [s.Update((V,), (ONE,))],
    "the accumulator does not exist here": [loop(A), s.Update(A.vars, (ONE,))],
    "there is no loop of kind 'odd'": [loop(kind="odd")],
    "a vector loop has step 1": [loop(kind="vector", step=2)],
    "step, width and inflight are at least 1": [loop(step=0)],
    "loop variable .* is not i64": [s.For(s.fresh("k", i32), ZERO, K, ())],
    "buffer 'tmp' exists already": [s.Alloc(TMP), s.Alloc(TMP)],
    "cannot be made in space 'arg'": [s.Alloc(s.dense("t", f32, "arg", (8,)))],
    "made inside a vector loop": [loop(s.Alloc(TMP), kind="vector")],
    "has 2 axes and 1 strides": [s.Alloc(s.Buffer("t", f32, "local", (8, 8), (1,)))],
    "a parallel loop inside another": [s.ParFor((), (), ())],
    "variables and extents differ": [loop(), s.If(s.const(True, bool_), (s.Let(V, ONE),)), store(s.var(V))],
    "a register block inside a vector loop": [loop(block(), kind="vector")],
    "cols 8 is no multiple of width 3": [block(width=3)],
    "rows, cols and width are at least 1": [block(rows=0)],
    "columns must be unit-stride": [block(b=s.Operand(X, ZERO, 8, 2))],
    "a register block of f32 and f32 into i32": [
        s.Alloc(s.dense("n", i32, "local", (8,))), block(acc=s.Operand(s.dense("n", i32, "local", (8,)), ZERO, 8))],
    "groups of 2 steps of f32 and f32 do not fill the lanes of f32": [block(group=2)],
    "the steps of a group must be unit-stride in a": [block(group=2, a=s.Operand(X, ZERO, 4, 2))],
    "a group has at least one step": [block(group=0)],
    "the depth is no multiple of the group of 2 steps": [
        s.Alloc(HALVES), block(group=2, a=s.Operand(HALVES, ZERO, 4), b=s.Operand(HALVES, ZERO, 16), depth=s.const(3))],
    "a bias is a unit-stride row of f32": [block(bias=s.Operand(X, ZERO, 0, 2))],
    "f64 where f32 is needed": [store(s.const(1.0, f64))],
    "a value of u32 does not cover neighbouring elements": [
        s.Alloc(APART), s.Store(APART, (ZERO,), s.const(1, u32))],
}
BAD.pop("variables and extents differ")


@pytest.mark.parametrize("message", BAD)
def test_bad_statements(message):
    with pytest.raises(VerifyError, match=message):
        verify(program(*BAD[message]))


def test_bad_programs():
    with pytest.raises(VerifyError, match="only parallel loops"):
        verify(dataclasses.replace(program(), body=(STORE,)))
    with pytest.raises(VerifyError, match="variables and extents differ"):
        verify(dataclasses.replace(program(), body=(s.ParFor((s.fresh("i"),), (), ()),)))
    with pytest.raises(VerifyError, match="buffer 'x' is declared twice"):
        verify(program(buffers=(X, OTHER)))
    with pytest.raises(VerifyError, match="output 'y' is no buffer"):
        verify(program(outputs=("y",)))
    with pytest.raises(VerifyError, match="argument 'tmp' is in space 'local'"):
        verify(program(buffers=(X, TMP)))
    with pytest.raises(VerifyError, match="there is no axis 0 of 'x'"):
        verify(program(buffers=(OUT,)))
    with pytest.raises(VerifyError, match="is an input"):
        verify(program(block(), outputs=()))


def test_names_end_with_their_block():
    with pytest.raises(VerifyError, match="has no value here"):
        verify(program(loop(s.Let(V, ONE)), store(s.var(V))))
    with pytest.raises(VerifyError, match="does not exist here"):
        verify(program(loop(s.Alloc(TMP)), s.Store(TMP, (ZERO,), ONE)))
    verify(program(loop(s.Alloc(TMP)), loop(s.Alloc(TMP))))


def test_messages_name_the_statement():
    with pytest.raises(VerifyError, match=r"program 'p': i64 where f32 is needed\n  in: store out\[0\] = 0"):
        verify(program(store(ZERO)))


def test_half_operands_of_a_register_block():
    half = s.dense("h", bf16, "local", (64,))
    verify(program(s.Alloc(half), block(a=s.Operand(half, ZERO, 4), b=s.Operand(half, ZERO, 8))))
