"""pow and the float remainders (fmod, mod, floordiv) of f32, computed in f64 inside.

pow's logarithm must be good to about 2**-32, which f32 has no room for; f64 gives that with short polynomials, and the
final conversion rounds once, so that results that are exact (integer bases and exponents) come out exact.
"""

from __future__ import annotations

from ..ir.scheduled.core import Expr
from ..ir.types import f32, f64
from . import math_constants as k
from .math_build import (
    INF,
    NAN,
    TINY,
    add,
    at_least,
    at_most,
    bits,
    both,
    cast,
    div,
    either,
    eq,
    fabs,
    fma,
    from_bits,
    gt,
    horner,
    integer,
    isnan,
    lit,
    lt,
    mul,
    ne,
    negate,
    round_to_integer,
    sqrt,
    sub,
    trunc,
    where,
    with_sign_of,
)

SQRT_HALF_BITS = 0x3F3504F3


def _log2(a: Expr) -> Expr:
    """log2 of a >= 0 (f32) as f64; -inf for 0, inf for infinity; NaN is left to the caller."""
    small = lt(a, TINY)
    i = bits(where(small, mul(a, 2.0**24), a))
    n = integer("shr", integer("sub", i, SQRT_HALF_BITS), 23)
    m = cast(from_bits(integer("sub", i, integer("shl", n, 23))), f64)
    s = div(sub(m, 1.0), add(m, 1.0))
    whole = cast(add(cast(n, f32), where(small, lit(-24.0, f32), 0.0)), f64)
    value = fma(s, horner(k.LOG2_F64, mul(s, s)), whole)
    return where(eq(a, 0.0), -INF, where(eq(a, INF), INF, value))


def _exp2(t: Expr) -> Expr:
    """2**t of f64 as f32, right down to the denormals."""
    t = at_most(at_least(t, -160.0), 130.0)
    u, n = round_to_integer(t, 1.0)
    p = horner(k.EXP2_F64, sub(t, n))
    return cast(from_bits(integer("add", bits(p), integer("shl", bits(u), 52))), f32)


def _constant_exponent(x: Expr, y: float) -> Expr | None:
    """The exponents people write: shorter, and at least as exact."""
    if y == 0.0:
        return lit(1.0, f32)
    if y == 1.0:
        return x
    if y == 2.0:
        return mul(x, x)
    if y == 3.0:
        return mul(mul(x, x), x)
    if y == -1.0:
        return div(1.0, x)
    if y == 0.5:  # as NumPy's x ** 0.5: NaN, not infinity, of -inf
        return sqrt(x)
    return None


def pow(x: Expr, y: Expr) -> Expr:
    if y.op == "const" and (short := _constant_exponent(x, y.attr)) is not None:
        return short
    size = _exp2(mul(cast(y, f64), _log2(fabs(x))))
    whole = eq(trunc(y), y)
    half = mul(y, 0.5)
    odd = both(whole, ne(trunc(half), half))
    signed = where(odd, with_sign_of(size, x), size)
    undefined = both(both(lt(x, 0.0), gt(x, -INF)), negate(whole))
    result = where(either(undefined, either(isnan(x), isnan(y))), NAN, signed)
    unit = either(either(eq(y, 0.0), eq(x, 1.0)), both(eq(x, -1.0), eq(fabs(y), INF)))
    return where(unit, 1.0, result)


def fmod(x: Expr, y: Expr) -> Expr:
    """x - trunc(x / y) * y, exactly. The quotient has up to 278 bits: ten rounds take 28 of them each, and in f64 the
    products of every round are exact."""
    b = cast(fabs(y), f64)
    r = cast(fabs(x), f64)
    for step in range(9, -1, -1):
        unit = mul(b, 2.0 ** (28 * step))
        r = sub(r, mul(trunc(div(r, unit)), unit))
        r = where(lt(r, 0.0), add(r, unit), r)  # the quotient was rounded up to the next integer
    value = with_sign_of(cast(r, f32), x)
    value = where(both(eq(fabs(y), INF), lt(fabs(x), INF)), x, value)
    bad = either(either(isnan(x), isnan(y)), either(eq(y, 0.0), eq(fabs(x), INF)))
    return where(bad, NAN, value)


def mod(x: Expr, y: Expr, r: Expr) -> Expr:
    """The remainder with the sign of y, as Python has it, from r = fmod(x, y); f32 or f64."""
    crossed = both(ne(r, 0.0), _differ(lt(r, 0.0), lt(y, 0.0)))
    return where(eq(r, 0.0), with_sign_of(lit(0.0, x.dtype), y), where(crossed, add(r, y), r))


def floordiv(x: Expr, y: Expr, r: Expr) -> Expr:
    """(x - mod(x, y)) / y, snapped to an integer, as NumPy has it; x / y where y is 0. r = fmod(x, y); f32 or f64."""
    q = div(sub(x, r), y)
    q = where(both(ne(r, 0.0), _differ(lt(r, 0.0), lt(y, 0.0))), sub(q, 1.0), q)
    whole = trunc(q)
    whole = where(gt(whole, q), sub(whole, 1.0), whole)
    whole = where(gt(sub(q, whole), 0.5), add(whole, 1.0), whole)
    quotient = div(x, y)
    return where(eq(y, 0.0), quotient, where(eq(q, 0.0), with_sign_of(lit(0.0, x.dtype), quotient), whole))


def _differ(a: Expr, b: Expr) -> Expr:
    return either(both(a, negate(b)), both(b, negate(a)))
