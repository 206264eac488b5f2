"""sin, cos, tan and the inverse functions, in f32.

The range reduction of sin, cos and tan is done in f64 for all arguments: a select between an f32 reduction and an f64
one would compute both. pi/2 has three parts. Where the target contracts products into sums, the reduced argument is
right to about 1e-16 for |x| < 2**51; where it does not, the first two products are exact for |x| < 1e7, and beyond that
the absolute error is about 1e-16 |x|. From 2**51 on the argument is not reduced correctly; the results stay within
[-1, 1].
"""

from __future__ import annotations

from ..ir.scheduled.core import Expr, const, expr
from ..ir.types import bool_, f32, f64, i32
from . import math_constants as k
from .math_build import (
    add,
    at_least,
    at_most,
    bits,
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
    neg,
    round_to_integer,
    sign_bit,
    sqrt,
    sub,
    where,
    with_sign_of,
)

PI = (2 * k.PI_2[0], 2 * k.PI_2[1])


def _reduced(x: Expr) -> tuple[Expr, Expr]:
    """(q, r): x = q * pi/2 + r with |r| <= 0.9; q as an i32 (its low two bits are what counts)."""
    wide = cast(x, f64)
    t, n = round_to_integer(wide, 0.6366197723675814)
    r = wide
    for part in k.PI_2_F64:
        r = fma(n, -part, r)
    # Near 2**51 the rounding of 2/pi shifts n by up to 0.1, so |r| may exceed pi/4; the polynomials reach to 0.9.
    return cast(bits(t), i32), at_most(at_least(cast(r, f32), -0.9), 0.9)


def _kernels(r: Expr) -> tuple[Expr, Expr]:
    """sin(r) and cos(r) for |r| <= 0.9."""
    u = mul(r, r)
    sine = fma(mul(r, u), horner(k.SIN, u), r)
    cosine = fma(mul(u, u), horner(k.COS, u), fma(u, -0.5, 1.0))
    return sine, cosine


def _odd(q: Expr) -> Expr:
    return expr("ne", bool_, integer("and", q, 1), const(0, i32))


def _flip_for_quadrant(value: Expr, q: Expr) -> Expr:
    """-value in the quadrants 2 and 3: bit 1 of q becomes the sign bit."""
    sign = integer("and", integer("shl", q, 30), -(2**31))
    return from_bits(integer("xor", bits(value), sign))


def sin(x: Expr) -> Expr:
    q, r = _reduced(x)
    sine, cosine = _kernels(r)
    # r of -0 is +0 after the reduction, and a denormal keeps all its bits only if it is not touched.
    return where(lt(fabs(x), 2.0**-12), x, _flip_for_quadrant(where(_odd(q), cosine, sine), q))


def cos(x: Expr) -> Expr:
    q, r = _reduced(x)
    sine, cosine = _kernels(r)
    return _flip_for_quadrant(where(_odd(q), sine, cosine), integer("add", q, 1))


def tan(x: Expr) -> Expr:
    q, r = _reduced(x)
    sine, cosine = _kernels(r)
    odd = _odd(q)
    return where(lt(fabs(x), 2.0**-12), x, div(where(odd, neg(cosine), sine), where(odd, sine, cosine)))


def _asin_parts(x: Expr) -> tuple[Expr, Expr]:
    """(big, p): p = asin(|x|) where |x| <= 1/2, elsewhere asin(sqrt((1 - |x|) / 2)); NaN where |x| > 1."""
    a = fabs(x)
    big = gt(a, 0.5)
    u = where(big, mul(sub(1.0, a), 0.5), mul(a, a))
    s = where(big, sqrt(u), a)
    return big, fma(mul(s, u), horner(k.ASIN, u), s)


def asin(x: Expr) -> Expr:
    big, p = _asin_parts(x)
    outer = add(fma(p, -2.0, k.PI_2[0]), k.PI_2[1])
    return with_sign_of(where(big, outer, p), x)


def acos(x: Expr) -> Expr:
    big, p = _asin_parts(x)
    twice = add(p, p)
    outer = where(lt(x, 0.0), add(sub(PI[0], twice), PI[1]), twice)
    inner = add(sub(k.PI_2[0], with_sign_of(p, x)), k.PI_2[1])
    return where(big, outer, inner)


def _atan_kernel(z: Expr) -> Expr:
    u = mul(z, z)
    return fma(mul(z, u), horner(k.ATAN, u), z)


def atan(x: Expr) -> Expr:
    a = fabs(x)
    big = gt(a, 1.0)
    p = _atan_kernel(where(big, div(1.0, a), a))
    return with_sign_of(where(big, add(sub(k.PI_2[0], p), k.PI_2[1]), p), x)


def atan2(y: Expr, x: Expr) -> Expr:
    ay, ax = fabs(y), fabs(x)
    steep = gt(ay, ax)
    low, high = where(steep, ax, ay), where(steep, ay, ax)
    # Both infinite counts as a slope of 1, both zero as 0.
    z = where(eq(low, high), where(eq(high, 0.0), lit(0.0, f32), 1.0), div(low, high))
    p = _atan_kernel(z)
    p = where(steep, add(sub(k.PI_2[0], p), k.PI_2[1]), p)
    p = where(sign_bit(x), add(sub(PI[0], p), PI[1]), p)
    return where(either(isnan(x), isnan(y)), add(x, y), with_sign_of(p, y))
