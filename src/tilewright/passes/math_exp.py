"""exp, exp2, expm1, log, log2, log1p and what is built on them (sigmoid, sinh, cosh, tanh, erf), in f32.

All use only arithmetic, selects and integer operations on the bits, so that a vector loop stays vectorised. Both sides
of every select are computed. Measured errors: the table in `expand_math.py`.
"""

from __future__ import annotations

from ..ir.scheduled.core import Expr
from ..ir.types import f32
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
    eq,
    fabs,
    fma,
    from_bits,
    gt,
    horner,
    integer,
    lt,
    mul,
    neg,
    round_to_integer,
    sub,
    where,
    with_sign_of,
)

ONE_BITS = 0x3F800000
#: The bits of sqrt(1/2): the mantissa's range in the logarithms is [sqrt(1/2), sqrt(2)).
SQRT_HALF_BITS = 0x3F3504F3


def exp(x: Expr) -> Expr:
    """x = m * 2 ln 2 + r; exp(x) = exp(r) * 2**m * 2**m. Squaring the scale reaches from the denormals to beyond the
    overflow with two multiplications, of which only the second can round."""
    x = at_most(at_least(x, -104.0), 90.0)
    t, m = round_to_integer(x, 1.0 / (2.0 * 0.6931471805599453))
    r = fma(m, -k.TWO_LN2[0], x)
    r = fma(m, -k.TWO_LN2[1], r)
    # The shift drops the constant part of t's bits.
    s = from_bits(integer("add", integer("shl", bits(t), 23), ONE_BITS))
    return mul(mul(horner((1.0, 1.0, *k.EXP), r), s), s)


def _ln2_steps(x: Expr) -> tuple[Expr, Expr]:
    """(n << 23 as an i32, r) with x = n ln 2 + r, |r| <= ln 2 / 2."""
    t, n = round_to_integer(x, 1.0 / 0.6931471805599453)
    r = fma(n, -k.LN2[0], x)
    return integer("shl", bits(t), 23), fma(n, -k.LN2[1], r)


def _scaled_exp(x: Expr, shift: int, factor: float) -> Expr:
    """exp(x) * 2**shift * factor, where the argument has one sign only, so that one constant `shift` keeps the scale
    a normal number. A shorter polynomial and a smaller error than `exp`."""
    n, r = _ln2_steps(x)
    s = from_bits(integer("add", n, ONE_BITS + (shift << 23)))
    return mul(mul(horner((1.0, 1.0, *k.EXP_NARROW), r), s), factor)


def _exp_of_negative(x: Expr) -> Expr:
    return _scaled_exp(at_least(x, -104.0), 75, 2.0**-75)


def _half_exp(x: Expr) -> Expr:
    """exp(x) / 2 of x >= 0, without an overflow before the result's own."""
    return _scaled_exp(at_most(x, 91.0), -5, 16.0)


def exp2(x: Expr) -> Expr:
    x = at_most(at_least(x, -152.0), 130.0)
    t, n = round_to_integer(x, 1.0)
    r = sub(x, n)
    p = horner((1.0, *k.EXP2), r)
    # 2**n in two factors, each a normal number. Powers of two come out exact.
    whole = integer("sub", bits(t), 0x4B400000)
    half = integer("shr", whole, 1)
    a = from_bits(integer("add", integer("shl", half, 23), ONE_BITS))
    b = from_bits(integer("add", integer("shl", integer("sub", whole, half), 23), ONE_BITS))
    return mul(mul(p, a), b)


def expm1(x: Expr) -> Expr:
    y = at_most(at_least(x, -18.0), 89.0)
    n, r = _ln2_steps(y)
    p = fma(mul(r, r), horner(k.EXPM1, r), r)
    # 2**(n - 1) is finite for all n that occur; the doubling then overflows where the result does.
    s = from_bits(integer("add", n, ONE_BITS - (1 << 23)))
    big = mul(fma(p, s, sub(s, 0.5)), 2.0)
    return where(lt(fabs(x), 2.0**-24), x, big)


def sigmoid(x: Expr) -> Expr:
    e = _exp_of_negative(neg(fabs(x)))
    return div(where(lt(x, 0.0), e, 1.0), add(e, 1.0))


def _normalised(x: Expr) -> tuple[Expr, Expr]:
    """(n, m) with x = 2**n * m, for x > 0 and finite (denormals too); n as a float, m in [sqrt(1/2), sqrt(2))."""
    small = lt(x, TINY)
    i = bits(where(small, mul(x, 2.0**24), x))
    n = integer("shr", integer("sub", i, SQRT_HALF_BITS), 23)
    m = from_bits(integer("sub", i, integer("shl", n, 23)))
    return add(cast(n, f32), where(small, -24.0, 0.0)), m


def _log_tail(f: Expr) -> Expr:
    """log(1 + f) - f."""
    y = mul(f, f)
    return fma(y, mul(f, horner(k.LOG, f)), mul(y, -0.5))


def _log_edges(x: Expr, result: Expr) -> Expr:
    """log's value at zero, at negative numbers, infinity and NaN."""
    edge = where(lt(x, 0.0), NAN, where(eq(x, 0.0), -INF, x))
    return where(both(gt(x, 0.0), lt(x, INF)), result, edge)


def _log_sum(n: Expr, f: Expr) -> Expr:
    """n ln 2 + log(1 + f), small terms first."""
    tail = fma(n, k.LN2[1], _log_tail(f))
    return fma(n, k.LN2[0], add(f, tail))


def log(x: Expr) -> Expr:
    n, m = _normalised(x)
    return _log_edges(x, _log_sum(n, sub(m, 1.0)))


def log2(x: Expr) -> Expr:
    n, m = _normalised(x)
    f = sub(m, 1.0)
    tail = _log_tail(f)
    small = fma(tail, k.LOG2E[0], mul(add(f, tail), k.LOG2E[1]))
    return _log_edges(x, add(n, fma(f, k.LOG2E[0], small)))


def log1p(x: Expr) -> Expr:
    u = add(x, 1.0)
    n = integer("shr", integer("sub", bits(u), SQRT_HALF_BITS), 23)
    s = from_bits(integer("sub", ONE_BITS, integer("shl", n, 23)))  # 2**-n
    # (1 + x) * 2**-n - 1 with one rounding, though 1 + x itself was rounded; for a large x the 1 does not matter and
    # 2**-n may be denormal.
    m = from_bits(integer("sub", bits(u), integer("shl", n, 23)))
    f = where(gt(x, 2.0**30), sub(m, 1.0), fma(x, s, sub(s, 1.0)))
    result = _log_edges(u, _log_sum(cast(n, f32), f))
    return where(lt(fabs(x), 2.0**-24), x, result)


def sinh(x: Expr) -> Expr:
    a = fabs(x)
    h = _half_exp(a)
    large = sub(h, div(0.25, h))
    u = mul(x, x)
    small = fma(mul(x, u), horner(k.SINH, u), x)
    return where(lt(a, 1.0), small, with_sign_of(large, x))


def cosh(x: Expr) -> Expr:
    h = _half_exp(fabs(x))
    return add(h, div(0.25, h))


def tanh(x: Expr) -> Expr:
    """-e / (e + 2) with e = expm1(-2 |x|): no cancellation anywhere, and exactly 1 once e is -1."""
    n, r = _ln2_steps(at_least(mul(fabs(x), -2.0), -20.0))
    p = fma(mul(r, r), horner(k.EXPM1, r), r)
    s = from_bits(integer("add", n, ONE_BITS))
    e = fma(p, s, sub(s, 1.0))
    return with_sign_of(div(fabs(e), add(e, 2.0)), x)


def erf(x: Expr) -> Expr:
    """Near zero a polynomial; elsewhere 1 - 1 / P(|x|)**4, where the relative error of the power counts little."""
    u = mul(x, x)
    near = fma(x, horner(k.ERF_NEAR, u), x)
    a = at_most(fabs(x), 4.0)
    p = horner(k.ERF_FAR, a)
    p = mul(p, p)
    far = sub(1.0, div(1.0, mul(p, p)))
    return where(lt(a, 1.0), near, with_sign_of(far, x))
