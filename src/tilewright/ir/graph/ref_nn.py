"""NumPy references of windows (convolution, pooling) and attention: one product per kernel position, no big copies."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..types import accumulator, from_numpy

Array: TypeAlias = np.ndarray[Any, Any]


def _to_first(x: Array) -> Array:
    return np.moveaxis(x, -1, 1)


def _from_first(x: Array, layout: str) -> Array:
    return x if layout == "first" else np.moveaxis(x, 1, -1)


def _pad_space(x: Array, lo: Sequence[int], hi: Sequence[int], value: Any) -> Array:
    if not any(lo) and not any(hi):
        return x
    shape = [*x.shape[:2], *(d + a + b for d, a, b in zip(x.shape[2:], lo, hi, strict=True))]
    out = np.full(shape, value, x.dtype)
    out[(slice(None), slice(None), *(slice(a, a + d) for d, a in zip(x.shape[2:], lo, strict=True)))] = x
    return out


def _taps(kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], out: Sequence[int]) -> Iterator[Any]:
    """For each kernel position: the position, and the strided view of the padded input it meets."""
    for at in itertools.product(*map(range, kernel)):
        view = tuple(
            slice(k * d, k * d + (o - 1) * s + 1 if o else k * d, s)
            for k, d, s, o in zip(at, dilations, strides, out, strict=True)
        )
        yield at, (slice(None), slice(None), *view)


def conv(xs: Sequence[Any], attrs: Any) -> tuple[Array, ...]:
    x, w, b = [*xs, None][:3]
    layout, groups = attrs["layout"], attrs["groups"]
    if layout == "last":
        x, w = _to_first(x), np.moveaxis(w, (-1, -2), (0, 1))
    dtype = from_numpy(x.dtype)
    assert dtype is not None
    wide = accumulator(dtype).numpy
    n, f, kernel = x.shape[0], w.shape[0], w.shape[2:]
    x = _pad_space(x, attrs["pads_lo"], attrs["pads_hi"], 0).astype(wide, copy=False)
    w = w.astype(wide, copy=False)
    out = [
        max(0, (d - (dil * (k - 1) + 1)) // s + 1)
        for d, k, s, dil in zip(x.shape[2:], kernel, attrs["strides"], attrs["dilations"], strict=True)
    ]
    per = w.shape[1]
    y = np.zeros((n, groups, f // groups, math.prod(out)), wide)
    for at, view in _taps(kernel, attrs["strides"], attrs["dilations"], out):
        piece = x[view].reshape(n, groups, per, -1) if y.size else np.zeros((n, groups, per, y.shape[-1]), wide)
        weight = w[(slice(None), slice(None), *at)].reshape(groups, f // groups, per)
        y += piece * weight if per == 1 and f == groups else np.matmul(weight, piece)
    y = y.reshape(n, f, *out)
    if b is not None:
        y += b.reshape(-1, *(1,) * len(out))
    return (_from_first(y, layout),)


def conv_transpose(xs: Sequence[Any], attrs: Any) -> tuple[Array, ...]:
    x, w, b = [*xs, None][:3]
    layout, groups = attrs["layout"], attrs["groups"]
    if layout == "last":
        x, w = _to_first(x), np.moveaxis(w, (-1, -2), (0, 1))
    n, c, space, kernel = x.shape[0], x.shape[1], x.shape[2:], w.shape[2:]
    per = w.shape[1]
    full = [
        max(d - 1, 0) * s + dil * (k - 1) + 1 + extra
        for d, s, dil, k, extra in zip(
            space, attrs["strides"], attrs["dilations"], kernel, attrs["output_padding"], strict=True
        )
    ]
    y = np.zeros((n, groups * per, *full), x.dtype)
    flat = x.reshape(n, groups, c // groups, math.prod(space))
    for at, view in _taps(kernel, attrs["strides"], attrs["dilations"], space):
        weight = w[(slice(None), slice(None), *at)].reshape(groups, c // groups, per)
        y[view] += np.matmul(np.swapaxes(weight, 1, 2), flat).reshape(n, groups * per, *space)
    wanted = [
        (d - 1) * s + dil * (k - 1) + 1 + extra - lo - hi
        for d, s, dil, k, extra, lo, hi in zip(
            space,
            attrs["strides"],
            attrs["dilations"],
            kernel,
            attrs["output_padding"],
            attrs["pads_lo"],
            attrs["pads_hi"],
            strict=True,
        )
    ]
    y = y[(slice(None), slice(None), *(slice(lo, lo + o) for lo, o in zip(attrs["pads_lo"], wanted, strict=True)))]
    if b is not None:
        y = y + b.reshape(-1, *(1,) * len(kernel))
    return (_from_first(y, layout),)


def _pool_frame(x: Array, attrs: Any) -> tuple[list[int], list[int], list[int]]:
    """Windows per axis, the padding after needed for the last of them, and the dilations."""
    dilations = list(attrs.get("dilations", (1,) * len(attrs["kernel"])))
    out, after = [], []
    for d, k, s, lo, hi, dil in zip(
        x.shape[2:], attrs["kernel"], attrs["strides"], attrs["pads_lo"], attrs["pads_hi"], dilations, strict=True
    ):
        span = dil * (k - 1) + 1
        n = (d + lo + hi - span) // s + 1
        if attrs["ceil"]:
            n = min(-(-(d + lo + hi - span) // s) + 1, (d + lo - 1) // s + 1)
        n = max(n, 0)
        out.append(n)
        after.append(max(hi, (n - 1) * s + span - d - lo))
    return out, after, dilations


def max_pool(xs: Sequence[Any], attrs: Any) -> tuple[Array, ...]:
    x = xs[0] if attrs["layout"] == "first" else _to_first(xs[0])
    out, after, dilations = _pool_frame(x, attrs)
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    padded = _pad_space(x, attrs["pads_lo"], after, least)
    y = np.full((*x.shape[:2], *out), least, x.dtype)
    for _, view in _taps(attrs["kernel"], attrs["strides"], dilations, out):
        if y.size:
            y = np.maximum(y, padded[view])
    return (_from_first(y, attrs["layout"]),)


def avg_pool(xs: Sequence[Any], attrs: Any) -> tuple[Array, ...]:
    x = xs[0] if attrs["layout"] == "first" else _to_first(xs[0])
    out, after, dilations = _pool_frame(x, attrs)
    count = _pad_space(
        np.ones((1, 1, *x.shape[2:]), x.dtype),
        attrs["pads_lo"],
        attrs["pads_hi"],
        1 if attrs["count_include_pad"] else 0,
    )
    beyond = [a - h for a, h in zip(after, attrs["pads_hi"], strict=True)]
    count = _pad_space(count, (0,) * len(out), beyond, 0)
    padded = _pad_space(x, attrs["pads_lo"], after, 0)
    total, number = np.zeros((*x.shape[:2], *out), x.dtype), np.zeros((1, 1, *out), x.dtype)
    for _, view in _taps(attrs["kernel"], attrs["strides"], dilations, out):
        if total.size:
            total += padded[view]
            number += count[view]
    return (_from_first(total / number, attrs["layout"]),)


def attention(xs: Sequence[Any], attrs: Any) -> tuple[Array, ...]:
    q, k, v, mask = [*xs, None][:4]
    repeat = q.shape[1] // max(k.shape[1], 1)
    k, v = np.repeat(k, repeat, axis=1), np.repeat(v, repeat, axis=1)
    scale = attrs["scale"] if attrs["scale"] is not None else 1 / math.sqrt(max(q.shape[-1], 1))
    scores = np.matmul(q, np.swapaxes(k, -1, -2)) * np.asarray(scale, q.dtype)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == np.bool_ else scores + mask
    if attrs["causal"]:
        s, t = scores.shape[-2:]
        scores = np.where(np.arange(t) <= np.arange(s)[:, None] + (t - s), scores, -np.inf)
    e = np.exp(scores - np.max(scores, axis=-1, keepdims=True, initial=-np.inf))
    p = (e / np.sum(e, axis=-1, keepdims=True)).astype(q.dtype)
    return (np.matmul(p, v),)


def expand_equation(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """An einsum equation with `...` spelt out and the result explicit: the letters of each operand, of the result."""
    text = equation.replace(" ", "")
    left, arrow, right = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise ValueError(f"names {len(terms)} operands, but there are {len(ranks)}")
    used = set(text)
    spare = [c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in used]
    widest = 0
    for term, rank in zip(terms, ranks, strict=True):
        named = len(term.replace("...", ""))
        if not all(c.isascii() and c.isalpha() for c in term.replace("...", "", 1)):
            raise ValueError(f"'{term}' may hold letters and one '...'")
        if named > rank or ("..." not in term and named != rank):
            raise ValueError(f"'{term}' names {named} axes of an operand of rank {rank}")
        if "..." in term:
            widest = max(widest, rank - named)
    if widest > len(spare):
        raise ValueError("too many axes")
    dots = "".join(spare[:widest])
    out_terms = []
    for term, rank in zip(terms, ranks, strict=True):
        n = rank - len(term.replace("...", ""))
        out_terms.append(term.replace("...", dots[widest - n :] if n else ""))
    if arrow:
        result = right.replace("...", dots, 1)
    else:
        letters = left.replace("...", "").replace(",", "")
        result = dots + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    if not all(c in "".join(out_terms) for c in result) or len(set(result)) != len(result):
        raise ValueError("the result names a letter that no operand has, or one twice")
    return out_terms, result
