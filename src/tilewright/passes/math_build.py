"""Short constructors of typed Scheduled expressions, for the maths expansions.

Comparisons and selects are written so that NaN takes the useful side and a target can use its plain minimum: the
scalar functions `max` and `min` propagate NaN, which costs extra instructions that the expansions rarely need.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..ir.scheduled.core import Expr, const, expr
from ..ir.types import DType, bool_, f32, f64, i32, i64

INF = math.inf
NAN = math.nan
#: The smallest normal f32.
TINY = 2.0**-126
#: Adding one of these puts the nearest integer into the low bits of the sum, for |x| < 2**22 and 2**51. It only works
#: with plain IEEE arithmetic: a target must not reassociate (x + MAGIC) - MAGIC.
MAGIC_F32 = 1.5 * 2.0**23
MAGIC_F64 = 1.5 * 2.0**52

Number = float | Expr


def lit(x: Number, dtype: DType) -> Expr:
    """A constant, rounded to its type here so that every backend sees the same value."""
    if isinstance(x, Expr):
        return x
    return const(float(np.float32(x)) if dtype == f32 else x, dtype)


def _same(op: str, *xs: Number) -> Expr:
    dtype = next(x.dtype for x in xs if isinstance(x, Expr))
    return expr(op, dtype, *(lit(x, dtype) for x in xs))


def _test(op: str, a: Expr, b: Number) -> Expr:
    return expr(op, bool_, a, lit(b, a.dtype))


def add(a: Number, b: Number) -> Expr:
    return _same("add", a, b)


def sub(a: Number, b: Number) -> Expr:
    return _same("sub", a, b)


def mul(a: Number, b: Number) -> Expr:
    return _same("mul", a, b)


def div(a: Number, b: Number) -> Expr:
    return _same("div", a, b)


def fma(a: Number, b: Number, c: Number) -> Expr:
    """a * b + c, rounded once or twice. The op `fma` promises one rounding, which is slow where no instruction does it
    (SSE4.2); the expansions are right either way, so they leave the contraction to the target."""
    return add(mul(a, b), c)


def neg(a: Expr) -> Expr:
    return _same("neg", a)


def fabs(a: Expr) -> Expr:
    return _same("abs", a)


def sqrt(a: Expr) -> Expr:
    return _same("sqrt", a)


def trunc(a: Expr) -> Expr:
    return _same("trunc", a)


def where(cond: Expr, a: Number, b: Number) -> Expr:
    """Of two numbers: an f32."""
    dtype = next((x.dtype for x in (a, b) if isinstance(x, Expr)), f32)
    return expr("where", dtype, cond, lit(a, dtype), lit(b, dtype))


def lt(a: Expr, b: Number) -> Expr:
    return _test("lt", a, b)


def gt(a: Expr, b: Number) -> Expr:
    return _test("gt", a, b)


def ge(a: Expr, b: Number) -> Expr:
    return _test("ge", a, b)


def eq(a: Expr, b: Number) -> Expr:
    return _test("eq", a, b)


def ne(a: Expr, b: Number) -> Expr:
    return _test("ne", a, b)


def isnan(a: Expr) -> Expr:
    return expr("ne", bool_, a, a)


def both(a: Expr, b: Expr) -> Expr:
    return expr("and", bool_, a, b)


def either(a: Expr, b: Expr) -> Expr:
    return expr("or", bool_, a, b)


def negate(a: Expr) -> Expr:
    return expr("not", bool_, a)


def at_most(x: Expr, high: float) -> Expr:
    """min(x, high), but NaN stays NaN: one minimum instruction."""
    return where(gt(x, high), high, x)


def at_least(x: Expr, low: float) -> Expr:
    return where(lt(x, low), low, x)


def bits(x: Expr) -> Expr:
    """The bits of a float as a signed integer of its width."""
    return expr("bitcast", i64 if x.dtype == f64 else i32, x)


def from_bits(x: Expr) -> Expr:
    return expr("bitcast", f64 if x.dtype == i64 else f32, x)


def cast(x: Expr, dtype: DType) -> Expr:
    return x if x.dtype == dtype else expr("cast", dtype, x)


def integer(op: str, a: int | Expr, b: int | Expr) -> Expr:
    dtype = next(x.dtype for x in (a, b) if isinstance(x, Expr))
    return expr(op, dtype, *(const(x, dtype) if isinstance(x, int) else x for x in (a, b)))


def with_sign_of(magnitude: Expr, x: Expr) -> Expr:
    """`magnitude`, which is not negative, with the sign bit of x (of zeros and NaN too)."""
    sign = integer("and", bits(x), -(2**63) if x.dtype == f64 else -(2**31))
    return from_bits(integer("or", bits(magnitude), sign))


def sign_bit(x: Expr) -> Expr:
    return expr("lt", bool_, bits(x), const(0, i64 if x.dtype == f64 else i32))


def horner(coefficients: Sequence[float], x: Expr) -> Expr:
    """The polynomial with these coefficients, lowest power first."""
    p: Number = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        p = fma(p, x, c)
    return lit(p, x.dtype)


def round_to_integer(x: Expr, scale: float) -> tuple[Expr, Expr]:
    """n = the nearest integer of x * scale, as (a float whose low bits hold n, n as a float). Cheaper than rint and a
    conversion, and where x * scale lies halfway either neighbour will do."""
    magic = MAGIC_F64 if x.dtype == f64 else MAGIC_F32
    t = fma(x, scale, magic)
    return t, sub(t, magic)
