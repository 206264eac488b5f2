"""Counter-based random bits as integer expressions: the same bits as `interp.scalar.philox` gives, on any target."""

from __future__ import annotations

from ...ir.scheduled import core as s
from ...ir.types import f32, u32, u64

_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_STEPS = (0x9E3779B9, 0xBB67AE85)


def philox(seed: s.Expr, counter: s.Expr) -> s.Expr:
    """Word 0 of Philox4x32-10. 32-bit words are kept in u64, so that a product has both its halves."""
    k1, k0 = _halves(s.expr("cast", u64, seed))
    c1, c0 = _halves(s.expr("cast", u64, counter))
    c2 = c3 = s.const(0, u64)
    for _ in range(_ROUNDS):
        high0, low0 = _halves(_op("mul", c0, s.const(_MULTIPLIERS[0], u64)))
        high1, low1 = _halves(_op("mul", c2, s.const(_MULTIPLIERS[1], u64)))
        c0, c1, c2, c3 = _op("xor", _op("xor", high1, c1), k0), low1, _op("xor", _op("xor", high0, c3), k1), low0
        k0, k1 = (_low(_op("add", k, s.const(step, u64))) for k, step in zip((k0, k1), _STEPS, strict=True))
    return s.expr("cast", u32, c0)


def uniform(bits: s.Expr) -> s.Expr:
    """The top 24 bits as an f32 in [0, 1)."""
    top = s.expr("cast", f32, s.expr("shr", u32, bits, s.const(8, u32)))
    return s.expr("mul", f32, top, s.const(2.0**-24, f32))


def _op(fn: str, a: s.Expr, b: s.Expr) -> s.Expr:
    return s.expr(fn, u64, a, b)


def _low(x: s.Expr) -> s.Expr:
    return _op("and", x, s.const(0xFFFFFFFF, u64))


def _halves(x: s.Expr) -> tuple[s.Expr, s.Expr]:
    """High and low word."""
    return _op("shr", x, s.const(32, u64)), _low(x)
