"""Simplified expressions mean what they meant, and equal addresses become one expression."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.ir.scheduled.core import (
    Expr,
    For,
    ParFor,
    Program,
    Store,
    const,
    dense,
    dim,
    expr,
    fresh,
    var,
)
from tilewright.ir.types import ALL_DTYPES, DType, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8
from tilewright.passes.simplify_expr import Simplifier, keeps_value, simplify, simplify_expr

_SPEC = importlib.util.spec_from_file_location("expand_support", Path(__file__).with_name("expand_support.py"))
assert _SPEC is not None and _SPEC.loader is not None
support = importlib.util.module_from_spec(_SPEC)
sys.modules["expand_support"] = support
_SPEC.loader.exec_module(support)

VARS = {d: [fresh(f"{d}{i}", d) for i in range(3)] for d in ALL_DTYPES}
A, B, C = map(var, VARS[i64])
X, Y, Z = map(var, VARS[f32])


def i(op: str, *args: Expr | int) -> Expr:
    return expr(op, i64, *(const(a) if isinstance(a, int) else a for a in args))


def f(op: str, *args: Expr | float) -> Expr:
    return expr(op, f32, *(const(a, f32) if isinstance(a, float) else a for a in args))


def sample(dtype: DType) -> Any:
    rng = np.random.default_rng(dtype.bits)
    if dtype.is_bool:
        return rng.random(64) < 0.5
    if dtype.is_float:
        edge = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 3e4, 1e-7]
        return np.concatenate([edge, rng.standard_normal(54) * 4]).astype(dtype.numpy)
    info = np.iinfo(dtype.numpy)
    values = rng.integers(info.min, info.max, 48, dtype.numpy, endpoint=True)
    small = rng.integers(0, 9, 12).astype(dtype.numpy)
    return np.concatenate([values, small, np.array([info.min, info.max, 0, 1], dtype.numpy)])


def environment() -> dict[Any, Any]:
    rng = np.random.default_rng(9)
    return {v: rng.permutation(sample(d)) for d, vs in VARS.items() for v in vs}


ENV = environment()


def assert_same_meaning(e: Expr) -> None:
    small = simplify_expr(e)
    assert small.dtype == e.dtype
    shape = (64,)
    before, after = (np.broadcast_to(support.evaluate(x, ENV, fused=False), shape) for x in (e, small))
    np.testing.assert_array_equal(after, before)
    if e.dtype.is_float:
        number = ~np.isnan(before.astype(np.float64))
        np.testing.assert_array_equal(np.signbit(after[number]), np.signbit(before[number]))
    again = simplify_expr(small)
    np.testing.assert_array_equal(np.broadcast_to(support.evaluate(again, ENV, fused=False), shape), before)


# ---------------------------------------------------------------------------------------------- random expressions

FLOAT_OPS = ("neg", "abs", "floor", "add", "sub", "mul", "div", "add", "sub", "mul", "div")
INTEGER_OPS = ("neg", "abs", "add", "sub", "mul", "add", "sub", "mul", "floordiv", "mod", "tdiv", "and", "or", "xor",
               "max", "min", "shl", "shr")
UNARY_OPS = ("neg", "abs", "floor")
NUMBERS = (i8, u8, i32, i64, f16, bf16, f32, f64)


@st.composite
def expressions(draw: st.DrawFn, dtype: DType | None = None, depth: int = 4) -> Expr:
    d = dtype or draw(st.sampled_from((*NUMBERS, bool_)))
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        return draw(leaves(d))
    sub = expressions(d, depth - 1)
    kind = draw(st.sampled_from(("arithmetic", "arithmetic", "where", "cast")))
    if kind == "where":
        return expr("where", d, draw(expressions(bool_, depth - 1)), draw(sub), draw(sub))
    if kind == "cast":
        return expr("cast", d, draw(expressions(draw(st.sampled_from(NUMBERS)), depth - 1)))
    if d.is_bool:
        return draw(conditions(depth))
    op = draw(st.sampled_from(FLOAT_OPS if d.is_float else INTEGER_OPS))
    return expr(op, d, draw(sub)) if op in UNARY_OPS else expr(op, d, draw(sub), draw(sub))


@st.composite
def leaves(draw: st.DrawFn, d: DType) -> Expr:
    if draw(st.booleans()):
        return var(draw(st.sampled_from(VARS[d])))
    if d.is_bool:
        return const(draw(st.booleans()), d)
    if d.is_float:
        return const(draw(st.sampled_from((0.0, -0.0, 1.0, -1.0, 2.0, 0.5, float("inf")))), d)
    top = np.iinfo(d.numpy).max
    values = (0, 1, 2, 3, 7, top) if d.kind == "u" else (0, 1, -1, 2, 5, top, -top - 1)
    return const(draw(st.sampled_from(values)), d)


@st.composite
def conditions(draw: st.DrawFn, depth: int) -> Expr:
    op = draw(st.sampled_from(("and", "or", "not", "lt", "le", "gt", "ge", "eq", "ne")))
    if op in ("and", "or", "not"):
        sub = expressions(bool_, depth - 1)
        return expr(op, bool_, draw(sub)) if op == "not" else expr(op, bool_, draw(sub), draw(sub))
    operand = expressions(draw(st.sampled_from(NUMBERS)), depth - 1)
    a = draw(operand)
    b = a if draw(st.integers(0, 4)) == 0 else draw(expressions(a.dtype, depth - 1))
    return expr(op, bool_, a, b)


@settings(max_examples=250, deadline=None)
@given(expressions())
def test_meaning_is_kept(e: Expr) -> None:
    assert_same_meaning(e)


@settings(max_examples=100, deadline=None)
@given(expressions(i64, 5))
def test_meaning_of_integers_is_kept(e: Expr) -> None:
    assert_same_meaning(e)


@pytest.mark.parametrize("target", ALL_DTYPES, ids=str)
@pytest.mark.parametrize("middle", ALL_DTYPES, ids=str)
def test_cast_chains_keep_their_value(middle: DType, target: DType) -> None:
    for source in ALL_DTYPES:
        assert_same_meaning(expr("cast", target, expr("cast", middle, var(VARS[source][0]))))


# ---------------------------------------------------------------------------------------------- single rules


def test_equal_addresses_are_one_expression() -> None:
    one = Simplifier().expr
    left = one(i("add", i("mul", i("add", A, 1), 8), B))
    for other in (
        i("add", B, i("add", 8, i("mul", A, 8))),
        i("sub", i("add", i("mul", 4, i("add", A, A)), i("add", B, 10)), 2),
        i("sub", i("mul", i("add", i("add", A, B), 1), 8), i("mul", B, 7)),
        i("neg", i("sub", i("mul", A, -8), i("add", B, 8))),
    ):
        assert one(other) is left
    assert one(i("mul", C, i("add", A, 2))) is one(i("add", i("mul", A, C), i("add", C, C)))
    assert one(i("sub", i("add", A, B), i("add", B, A))) == const(0)


def test_sums_of_many_terms_are_not_multiplied_out() -> None:
    product = i("mul", i("add", A, 1), i("add", B, 1))
    assert simplify_expr(product).op == "mul"
    assert simplify_expr(product) is simplify_expr(i("mul", i("add", A, 1), i("add", 1, B)))


@pytest.mark.parametrize("before, after", [
    (f("mul", X, 1.0), X), (f("mul", 1.0, X), X), (f("div", X, 1.0), X), (f("sub", X, 0.0), X), (f("add", X, -0.0), X),
    (f("add", X, 0.0), f("add", X, 0.0)), (f("mul", X, 0.0), f("mul", X, 0.0)), (f("sub", X, X), f("sub", X, X)),
    (f("neg", f("neg", X)), X), (f("abs", f("neg", X)), f("abs", X)), (f("mul", X, -1.0), f("neg", X)),
    (f("add", 0.1, 0.2), f("add", 0.1, 0.2)), (f("mul", 3.0, 0.5), const(1.5, f32)),
    (f("where", const(True, bool_), X, Y), X), (f("where", var(VARS[bool_][0]), X, X), X),
    (f("exp", 0.0), f("exp", 0.0)), (f("div", 0.0, 0.0), f("div", 0.0, 0.0)),
    (expr("cast", f16, expr("cast", f32, var(VARS[f16][0]))), var(VARS[f16][0])),
    (expr("cast", bf16, expr("cast", f32, X)), expr("cast", bf16, X)),
    (expr("cast", f32, expr("cast", bf16, X)), expr("cast", f32, expr("cast", bf16, X))),
    (expr("cast", i64, expr("cast", i16, var(VARS[i8][0]))), expr("cast", i64, var(VARS[i8][0]))),
    (expr("not", bool_, expr("lt", bool_, A, B)), expr("ge", bool_, A, B)),
    (expr("not", bool_, expr("lt", bool_, X, Y)), expr("not", bool_, expr("lt", bool_, X, Y))),
    (expr("eq", bool_, X, X), expr("eq", bool_, X, X)), (expr("le", bool_, A, A), const(True, bool_)),
    (expr("bitcast", f32, expr("bitcast", i32, X)), X), (i("floordiv", 7, -2), const(-4)),
], ids=str)  # fmt: skip
def test_rules(before: Expr, after: Expr) -> None:
    if before.op == "add" and all(a.op == "const" for a in before.args):
        after = const(float(np.float32(0.1) + np.float32(0.2)), f32)
    assert simplify_expr(before) is after


def test_guards_that_are_known() -> None:
    b = dense("b", f32, "arg", (8,))
    assert simplify_expr(b.load_if(expr("lt", bool_, const(1), const(2)), X, A)) is b.load(A)
    assert simplify_expr(b.load_if(const(False, bool_), X, A)) is X


def test_contraction() -> None:
    assert simplify_expr(f("add", f("mul", X, Y), Z), contract=True) is f("fma", X, Y, Z)
    assert simplify_expr(f("sub", f("mul", X, Y), 1.0), contract=True) is f("fma", X, Y, -1.0)
    assert simplify_expr(f("sub", Z, f("mul", X, Y)), contract=True) is f("fma", f("neg", X), Y, Z)
    shared = f("mul", X, Y)
    both = f("div", f("add", shared, Z), shared)
    assert simplify_expr(both, contract=True) is both
    assert simplify_expr(f("add", shared, Z)) is f("add", shared, Z)
    narrow = expr("add", f16, expr("mul", f16, *map(var, VARS[f16][:2])), var(VARS[f16][2]))
    assert simplify_expr(narrow, contract=True) is narrow


def test_deep_expressions() -> None:
    e = X
    for _ in range(5000):
        e = f("add", f("mul", e, Y), Z)
    small = simplify_expr(e, contract=True)
    assert small.op == "fma"


def test_a_program() -> None:
    n = dim("n")
    x, y = dense("x", f32, "arg", (n,)), dense("y", f32, "arg", (n,))
    k, p = fresh("k"), fresh("p")
    at = i("sub", i("add", var(k), 3), 3)
    loop = For(k, const(0), i("add", n, 0), (Store(y, (at,), f("mul", x.load(at), 1.0)),))
    before = Program("k", (x, y), ("y",), ("n",), (), (), (ParFor((p,), (const(1),), (loop,)),))
    after = simplify(before)
    assert after.body == (ParFor((p,), (const(1),), (For(k, const(0), n, (Store(y, (var(k),), x.load(var(k))),)),)),)


def test_which_types_hold_which() -> None:
    for source in ALL_DTYPES:
        values = sample(source)
        for target in ALL_DTYPES:
            if keeps_value(source, target):
                with np.errstate(all="ignore"):
                    np.testing.assert_array_equal(values.astype(target.numpy).astype(source.numpy), values)
