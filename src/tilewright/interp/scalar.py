"""The meaning of every scalar function, cast, reduction and scan, in NumPy, per element type.

This file is the reference every backend is compared with. The rules that NumPy alone does not settle:

* f16 and bf16 are computed in f32 and rounded once at the end; transcendental functions of f32 are computed in f64 and
  rounded, so the reference is never the less accurate side of a comparison.
* Integers wrap. `x // 0`, `x % 0` and `tdiv(x, 0)` are 0; nothing traps. `INT_MIN // -1` wraps to INT_MIN.
* `floordiv` and `mod` round towards minus infinity (Python), `tdiv` and `fmod` towards zero (C).
* Shifts read their amount as unsigned: an amount of the width or more gives 0, or all sign bits for `shr` of a signed
  type.
* Float to integer casts saturate, NaN becomes 0; integer to integer casts wrap; anything to bool is `x != 0`.
* max and min propagate NaN (fold, scan and argfold too: the first NaN is the winner). `round` is half to even.
* Sums and products of floats are accumulated in f64 and rounded to the tile's element type at the end.
* A fold over nothing is the monoid's identity; argmax and argmin of nothing are 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from ..ir.types import DType, f64, from_numpy

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

_ERF = np.frompyfunc(math.erf, 1, 1)


def _erf(x: Array) -> Array:
    return np.asarray(_ERF(x), dtype=np.float64)


def _sigmoid(x: Array) -> Array:
    # exp(-|x|) never overflows; both halves are exact to the last bit or two.
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0 / (1.0 + e), e / (1.0 + e))


#: Computed in f64 for every float type: correctly rounded, or nearly so, after rounding to a narrower one.
_WIDE: dict[str, Callable[..., Array]] = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log1p": np.log1p,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1.0 / np.sqrt(x), "recip": lambda x: 1.0 / x,
    "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan,
    "sinh": np.sinh, "cosh": np.cosh, "tanh": np.tanh, "erf": _erf, "sigmoid": _sigmoid,
    "pow": np.power, "atan2": np.arctan2,
}

#: Computed in the element's own arithmetic (f32 for f16 and bf16).
_PLAIN: dict[str, Callable[..., Array]] = {
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "square": lambda x: x * x,
    "floor": np.floor, "ceil": np.ceil, "round": np.rint, "rint": np.rint, "trunc": np.trunc,
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "fmod": np.fmod,
    "max": np.maximum, "min": np.minimum,
}

_COMPARE: dict[str, Callable[..., Array]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "isnan": np.isnan, "isinf": np.isinf,
}

_BITS: dict[str, Callable[..., Array]] = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert,
}


def dtype_of(x: Array) -> DType:
    found = from_numpy(x.dtype)
    if found is None:
        raise TypeError(f"no element type of Tilewright is NumPy's {x.dtype}")
    return found


def _compute(x: Array) -> Array:
    """`x` in the type its arithmetic is done in."""
    d = dtype_of(x)
    return x.astype(np.float32) if d.is_float and d.bits == 16 else x


def round_to(x: Array, dtype: DType) -> Array:
    """A float array rounded to a float type: through f32 for the 16-bit ones, as hardware does it."""
    with np.errstate(all="ignore"):
        if dtype.bits == 16 and x.dtype == np.float64:
            x = x.astype(np.float32)
        return np.asarray(x).astype(dtype.numpy, copy=False)


def apply(fn: str, *args: Any) -> Array:
    """`fn` of arrays of one element type (`where`: a bool array and two of them); shapes broadcast as NumPy's do."""
    xs = [np.asarray(a) for a in args]
    with np.errstate(all="ignore"):
        if fn == "where":
            return np.asarray(np.where(xs[0], xs[1], xs[2])).astype(xs[1].dtype, copy=False)
        dtype = dtype_of(xs[0])
        if fn in _COMPARE:
            return np.asarray(_COMPARE[fn](*map(_compute, xs)))
        if fn in _BITS:
            return np.asarray(_BITS[fn](*xs))
        if dtype.is_float:
            return _apply_float(fn, dtype, xs)
        return _apply_int(fn, dtype, xs)


def _apply_float(fn: str, dtype: DType, xs: list[Array]) -> Array:
    if fn in _WIDE:
        return round_to(_WIDE[fn](*(x.astype(np.float64) for x in xs)), dtype)
    ys = [_compute(x) for x in xs]
    if fn == "fma":
        # The product of two f32 is exact in f64. For f64 the x87 type is the closest NumPy has to a single rounding.
        wide = np.longdouble if dtype == f64 else np.float64
        a, b, c = (y.astype(wide) for y in ys)
        return round_to(np.asarray(a * b + c).astype(np.float64), dtype)
    if fn == "floordiv":
        out = np.floor_divide(*ys)
    elif fn == "mod":
        out = np.mod(*ys)
    elif fn == "tdiv":
        out = np.trunc(np.divide(*ys))
    elif fn in _PLAIN:
        out = _PLAIN[fn](*ys)
    else:
        raise ValueError(f"no meaning for {fn} of {dtype}")
    return round_to(np.asarray(out), dtype)


def _apply_int(fn: str, dtype: DType, xs: list[Array]) -> Array:
    if dtype.is_bool:
        out = _bool_arithmetic(fn, xs)
    elif fn in ("floordiv", "mod", "tdiv"):
        out = _int_divide(fn, dtype, *xs)
    elif fn in ("shl", "shr", "lshr"):
        out = _shift(fn, dtype, *xs)
    elif fn == "fma":
        out = xs[0] * xs[1] + xs[2]
    elif fn in ("floor", "ceil", "round", "rint", "trunc"):
        out = xs[0]
    elif fn in _PLAIN and fn not in ("div", "fmod"):
        out = _PLAIN[fn](*xs)
    else:
        raise ValueError(f"no meaning for {fn} of {dtype}")
    return np.asarray(out).astype(dtype.numpy, copy=False)


def _bool_arithmetic(fn: str, xs: list[Array]) -> Array:
    if fn in ("max", "add"):
        return np.asarray(np.logical_or(*xs))
    if fn in ("min", "mul"):
        return np.asarray(np.logical_and(*xs))
    raise ValueError(f"no meaning for {fn} of bool")


def _int_divide(fn: str, dtype: DType, a: Array, b: Array) -> Array:
    zero = b == 0
    safe = np.where(zero, dtype.numpy.type(1), b).astype(b.dtype, copy=False)
    if fn == "mod":
        out = np.mod(a, safe)
    else:
        out = np.floor_divide(a, safe)
        if fn == "tdiv" and dtype.kind == "i":
            inexact = np.mod(a, safe) != 0
            out = out + ((inexact & ((a < 0) != (safe < 0))).astype(dtype.numpy))
        if dtype.kind == "i":
            # NumPy already wraps INT_MIN // -1, with a warning; negation states the rule.
            out = np.where(safe == -1, np.negative(a), out)
    return np.where(zero, dtype.numpy.type(0), out)


def _shift(fn: str, dtype: DType, a: Array, amount: Array) -> Array:
    unsigned = np.dtype(f"u{dtype.itemsize}")
    big = amount.astype(unsigned, copy=False) >= dtype.bits
    n = np.where(big, 0, amount).astype(a.dtype, copy=False)
    if fn == "shl":
        return np.where(big, 0, np.left_shift(a, n))
    if fn == "lshr":
        logical = np.right_shift(a.astype(unsigned, copy=False), n.astype(unsigned, copy=False))
        return np.where(big, 0, logical).astype(a.dtype)
    far = np.where(a < 0, -1, 0) if dtype.kind == "i" else np.zeros_like(a)
    return np.where(big, far, np.right_shift(a, n))


# ---------------------------------------------------------------------------------------------- casts


def cast(x: Any, dtype: DType) -> Array:
    """`x` converted to `dtype` by the rules above."""
    x = np.asarray(x)
    src = dtype_of(x)
    if src == dtype:
        return x
    with np.errstate(all="ignore"):
        if dtype.is_bool:
            return np.asarray(_compute(x) != 0)
        if src.is_float and dtype.is_int:
            return _saturate(x.astype(np.float64), dtype)
        if src.is_int and dtype.is_float and dtype.bits == 16:
            return x.astype(np.float32).astype(dtype.numpy)
        if src.is_float and dtype.is_float:
            return round_to(x.astype(np.float32) if src.bits == 16 else x, dtype)
        return x.astype(dtype.numpy)


def _saturate(x: Array, dtype: DType) -> Array:
    info = np.iinfo(dtype.numpy)
    # 2.0 ** 63 and 2.0 ** 64 are exact, so the comparisons are exact where the largest integer itself is not.
    high, low = float(info.max) if dtype.bits < 64 else 2.0 ** (63 if dtype.kind == "i" else 64), float(info.min)
    inside = np.where(np.isnan(x) | (x >= high) | (x <= low), 0.0, x)
    out = np.trunc(inside).astype(dtype.numpy)
    out = np.where(x >= high, info.max, out)
    return np.asarray(np.where(x <= low, info.min, out)).astype(dtype.numpy)


def bitcast(x: Any, dtype: DType) -> Array:
    """The same bits read as another type of the same width."""
    x = np.asarray(x)
    if dtype_of(x).bits != dtype.bits:
        raise ValueError(f"bitcast from {dtype_of(x)} to {dtype} changes the width")
    return np.ascontiguousarray(x).view(dtype.numpy).reshape(x.shape)  # contiguous arrays have at least one axis


# ---------------------------------------------------------------------------------------------- monoids


def identity(monoid: str, dtype: DType) -> Any:
    """The value that changes nothing, as a NumPy scalar of `dtype`."""
    if monoid in ("sum", "any"):
        return dtype.numpy.type(0)
    if monoid in ("prod", "all"):
        return dtype.numpy.type(1)
    largest = monoid == "min"
    if monoid not in ("max", "min"):
        raise ValueError(f"no identity for {monoid}")
    if dtype.is_float:
        return dtype.numpy.type(math.inf if largest else -math.inf)
    if dtype.is_bool:
        return np.bool_(largest)
    info = np.iinfo(dtype.numpy)
    return dtype.numpy.type(info.max if largest else info.min)


def combine(monoid: str, a: Any, b: Any) -> Array:
    """One step of a monoid."""
    fn = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}[monoid]
    return apply(fn, a, b)


_UFUNC = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "any": np.logical_or,
          "all": np.logical_and}


def _accumulate_in(x: Array, monoid: str) -> Array:
    d = dtype_of(x)
    if d.is_float:
        return x.astype(np.float64)
    return x.astype(np.bool_) if monoid in ("any", "all") else x


def fold(monoid: str, x: Any, axis: int) -> Array:
    """Reduces one axis; over nothing it gives the identity."""
    x = np.asarray(x)
    dtype = dtype_of(x)
    if x.shape[axis] == 0:
        return np.full(x.shape[:axis] + x.shape[axis + 1:], identity(monoid, dtype), dtype.numpy)
    with np.errstate(all="ignore"):
        wide = _accumulate_in(x, monoid)
        if dtype.is_bool and monoid in ("sum", "prod"):
            raise ValueError(f"no meaning for {monoid} of bool")
        out = np.asarray(_UFUNC[monoid].reduce(wide, axis=axis, dtype=wide.dtype))
    return round_to(out, dtype) if dtype.is_float else out.astype(dtype.numpy, copy=False)


def scan(monoid: str, x: Any, axis: int, reverse: bool = False, exclusive: bool = False) -> Array:
    """Running fold along one axis."""
    x = np.asarray(x)
    dtype = dtype_of(x)
    with np.errstate(all="ignore"):
        wide = _accumulate_in(x, monoid)
        if reverse:
            wide = np.flip(wide, axis)
        out = np.asarray(_UFUNC[monoid].accumulate(wide, axis=axis, dtype=wide.dtype))
        if exclusive and x.shape[axis]:
            first = np.full_like(np.take(out, [0], axis=axis), identity(monoid, dtype_of(wide)))
            out = np.concatenate([first, np.take(out, range(x.shape[axis] - 1), axis=axis)], axis=axis)
        if reverse:
            out = np.flip(out, axis)
    return round_to(out, dtype) if dtype.is_float else out.astype(dtype.numpy, copy=False)


def argfold(kind: str, x: Any, axis: int, last: bool = False) -> Array:
    """Position of the largest or smallest element; equal ones: the first, or the last; the first NaN beats all."""
    x = _compute(np.asarray(x))
    size = x.shape[axis]
    if size == 0:
        return np.zeros(x.shape[:axis] + x.shape[axis + 1:], np.int64)
    pick = np.argmax if kind == "argmax" else np.argmin
    if not last:
        return np.asarray(pick(x, axis=axis), dtype=np.int64)
    out = size - 1 - np.asarray(pick(np.flip(x, axis), axis=axis), dtype=np.int64)
    if np.issubdtype(x.dtype, np.floating):
        nan = np.isnan(x)
        out = np.where(nan.any(axis=axis), np.argmax(nan, axis=axis), out)
    return np.asarray(out, dtype=np.int64)


def dot(acc: Any, a: Any, b: Any) -> Array:
    """acc[.., n] + sum over k of a[.., k] * b[k, n]: floats in f64, integers modulo 2**bits of the accumulator."""
    acc, a, b = np.asarray(acc), np.asarray(a), np.asarray(b)
    dtype = dtype_of(acc)
    with np.errstate(all="ignore"):
        if dtype.is_float:
            return round_to(acc.astype(np.float64) + np.matmul(a.astype(np.float64), b.astype(np.float64)), dtype)
        wide = a.astype(dtype.numpy), b.astype(dtype.numpy)
        return np.asarray(acc + np.matmul(*wide)).astype(dtype.numpy, copy=False)


# ---------------------------------------------------------------------------------------------- random bits


def philox(seed: Any, counter: Any) -> Array:
    """Word 0 of Philox4x32-10 (Salmon et al., 2011): key = the two halves of `seed`, counter = the two halves of
    `counter`, then zeros. Only 32-bit multiplications, so every backend gives the same bits."""
    seed64, count64 = (np.asarray(v).astype(np.int64).astype(np.uint64) for v in (seed, counter))
    low = np.uint64(0xFFFFFFFF)
    k0, k1 = seed64 & low, seed64 >> np.uint64(32)
    c0, c1 = count64 & low, count64 >> np.uint64(32)
    c2 = c3 = np.zeros_like(c0)
    with np.errstate(all="ignore"):
        for _ in range(10):
            p0, p1 = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
            c0, c1, c2, c3 = (p1 >> np.uint64(32)) ^ c1 ^ k0, p1 & low, (p0 >> np.uint64(32)) ^ c3 ^ k1, p0 & low
            k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
    return np.asarray(c0).astype(np.uint32)


def rng(kind: str, seed: Any, counter: Any) -> Array:
    """'u32': the bits; 'uniform': the top 24 of them as an f32 in [0, 1)."""
    bits = philox(seed, counter)
    if kind == "u32":
        return bits
    if kind == "uniform":
        return np.asarray((bits >> np.uint32(8)).astype(np.float32) * np.float32(2.0 ** -24))
    raise ValueError(f"no random kind {kind}")


def poison(dtype: DType) -> Any:
    """What undefined memory holds in the interpreters: a value that is noticed when it reaches a result."""
    if dtype.is_float:
        return dtype.numpy.type(math.nan)
    if dtype.is_bool:
        return np.bool_(True)
    info = np.iinfo(dtype.numpy)
    return dtype.numpy.type(info.min + 77 if dtype.kind == "i" else info.max - 77)
