"""Evaluates Scheduled expressions over arrays, with products contracted into sums or not, and measures ulps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from tilewright.interp import scalar
from tilewright.ir.scheduled.core import Expr, Var

Array = np.ndarray[Any, np.dtype[Any]]


def subexpressions(root: Expr) -> Iterator[Expr]:
    """Each once."""
    seen: set[Expr] = set()
    stack = [root]
    while stack:
        e = stack.pop()
        if e not in seen:
            seen.add(e)
            stack.extend(e.args)
            yield e


def contracted(e: Expr, uses: Counter[Expr]) -> int | None:
    """Which operand of a sum or difference is a product that a fused multiply-add would take in."""
    if e.op not in ("add", "sub") or not e.dtype.is_float:
        return None
    return next((i for i, a in enumerate(e.args) if a.op == "mul" and uses[a] == 1), None)


def operations(root: Expr) -> int:
    """Roughly the instructions of an expression, multiply-adds as one and a comparison and its select as two."""
    uses = Counter(a for e in subexpressions(root) for a in e.args)
    found = [e for e in subexpressions(root) if e.op not in ("const", "var", "bitcast")]
    return len(found) - sum(contracted(e, uses) is not None for e in found)


def evaluate(root: Expr, env: dict[Var, Array], fused: bool = True) -> Array:
    """`fused`: a float product that is used once, by a sum or a difference, is not rounded by itself, which is what a
    target with a fused multiply-add makes of the two."""
    done: dict[Expr, Array] = {}
    uses = Counter(a for e in subexpressions(root) for a in e.args)
    stack = [root]
    while stack:
        e = stack[-1]
        waiting = [a for a in e.args if a not in done]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        product = contracted(e, uses) if fused else None
        if product is not None:
            a, b = (done[x] for x in e.args[product].args)
            c = done[e.args[1 - product]]
            done[e] = _fma(-a if e.op == "sub" and product else a, b, -c if e.op == "sub" and not product else c)
        else:
            done[e] = _one(e, [done[a] for a in e.args], env)
    return done[root]


def _one(e: Expr, args: list[Array], env: dict[Var, Array]) -> Array:
    match e.op:
        case "var":
            return env[e.attr]
        case "const":
            return np.asarray(e.attr).astype(e.dtype.numpy)
        case "cast":
            return scalar.cast(args[0], e.dtype)
        case "bitcast":
            return scalar.bitcast(args[0], e.dtype)
        case _:
            return scalar.apply(e.op, *args)


def _fma(a: Array, b: Array, c: Array) -> Array:
    """a * b + c with one rounding (but for ties); for f64 from exact sums and products of halves."""
    if a.dtype != np.float64:
        return scalar.apply("fma", a, b, c)
    with np.errstate(all="ignore"):
        p = a * b
        halves = []
        for v in (a, b):
            t = v * 134217729.0
            high = t - (t - v)
            halves.append((high, v - high))
        (ah, al), (bh, bl) = halves
        low = ((ah * bh - p) + ah * bl + al * bh) + al * bl
        s = p + c
        z = s - p
        rest = (p - (s - z)) + (c - z)
        out = s + (rest + low)
    return np.where(np.isfinite(out), out, s)


def ulps(got: Array, exact: Array) -> Array:
    """|got - exact| in units of the last place of an f32 of that size (f64 in); equal and both-NaN count 0."""
    with np.errstate(all="ignore"):
        near = exact.astype(np.float32)
        size = np.maximum(np.abs(exact), 2.0**-126)
        unit = 2.0 ** (np.floor(np.log2(size)) - 23)
        out = np.abs(got.astype(np.float64) - exact) / unit
    same = (got == near) & (np.abs(out) < 1) | (np.isnan(got) & np.isnan(near)) | (np.isinf(near) & (got == near))
    return np.where(same, np.where(np.isfinite(out), out, 0.0), np.where(np.isnan(out), np.inf, out))


def all_exponents(per: int, rng: np.random.Generator) -> Array:
    """Random mantissas under every exponent (denormals, zeros, infinities and NaN apart), both signs."""
    exponent = np.repeat(np.arange(0, 255, dtype=np.uint32), per)
    mantissa = rng.integers(0, 1 << 23, exponent.size, dtype=np.uint32)
    positive = (exponent << np.uint32(23)) | mantissa
    return np.concatenate([positive, positive | np.uint32(1 << 31)]).view(np.float32)
