"""Evaluates Scheduled expressions over arrays, with `fma` either fused or as two roundings, and measures ulps."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.interp import scalar
from tilewright.ir.scheduled.core import Expr, Var
from tilewright.ir.types import f64

Array = np.ndarray[Any, np.dtype[Any]]


def evaluate(root: Expr, env: dict[Var, Array], fused: bool = True) -> Array:
    done: dict[Expr, Array] = {}
    stack = [root]
    while stack:
        e = stack[-1]
        waiting = [a for a in e.args if a not in done]
        if waiting:
            stack.extend(waiting)
            continue
        stack.pop()
        done[e] = _one(e, [done[a] for a in e.args], env, fused)
    return done[root]


def _one(e: Expr, args: list[Array], env: dict[Var, Array], fused: bool) -> Array:
    match e.op:
        case "var":
            return env[e.attr]
        case "const":
            return np.asarray(e.attr).astype(e.dtype.numpy)
        case "cast":
            return scalar.cast(args[0], e.dtype)
        case "bitcast":
            return scalar.bitcast(args[0], e.dtype)
        case "fma" if not fused:
            return scalar.apply("add", scalar.apply("mul", args[0], args[1]), args[2])
        case "fma" if e.dtype == f64:
            return _fma64(*args)
        case _:
            return scalar.apply(e.op, *args)


def _fma64(a: Array, b: Array, c: Array) -> Array:
    """a * b + c with one rounding (but for ties), from exact sums and products of halves."""
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
