"""Resampling along one axis at a time: which input elements an output element reads, and with what weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]


def coordinates(extent: int, out: int, scale: float, mode: str) -> Array:
    """Where each output element lies on the input axis."""
    i = np.arange(out, dtype=np.float64)
    match mode:
        case "half_pixel":
            return (i + 0.5) / scale - 0.5
        case "pytorch_half_pixel":
            return (i + 0.5) / scale - 0.5 if out > 1 else np.zeros(out)
        case "half_pixel_symmetric":
            adjust = out / (scale * extent) if extent else 1.0
            return extent / 2 * (1 - adjust) + (i + 0.5) / scale - 0.5
        case "align_corners":
            return i * ((extent - 1) / (out - 1)) if out > 1 else np.zeros(out)
        case _:
            return i / scale


def nearest_index(x: Array, mode: str) -> Array:
    match mode:
        case "floor":
            return np.floor(x)
        case "ceil":
            return np.ceil(x)
        case "round_prefer_ceil":
            return np.floor(x + 0.5)
        case _:
            return np.ceil(x - 0.5)


def _near(d: Array, a: float) -> Array:
    """The cubic kernel within one element."""
    return np.asarray(((a + 2) * d - (a + 3)) * d * d + 1)


def _far(d: Array, a: float) -> Array:
    """The cubic kernel between one and two elements away."""
    return np.asarray(((a * d - 5 * a) * d + 8 * a) * d - 4 * a)


def axis_taps(extent: int, out: int, scale: float, attrs: Mapping[str, Any]) -> tuple[Array, Array]:
    """Indices [taps, out] into the axis and their weights [taps, out]."""
    x = coordinates(extent, out, scale, attrs["coordinate_mode"])
    last = max(extent - 1, 0)
    if attrs["mode"] == "nearest":
        at = np.clip(nearest_index(x, attrs["nearest_mode"]), 0, last)
        return at.astype(np.int64)[None], np.ones((1, out))
    base = np.floor(x)
    offsets: tuple[int, ...]
    if attrs["mode"] == "linear":
        offsets, t = (0, 1), x - base
        weights = np.stack([1 - t, t])
    else:
        offsets, a = (-1, 0, 1, 2), attrs["cubic_coeff_a"]
        t = x - base
        weights = np.stack([_far(1 + t, a), _near(t, a), _near(1 - t, a), _far(2 - t, a)])
    at = np.stack([base + o for o in offsets])
    if attrs["exclude_outside"]:
        weights = np.where((at < 0) | (at > last), 0.0, weights)
        total = weights.sum(axis=0)
        weights = weights / np.where(total == 0, 1, total)
    return np.clip(at, 0, last).astype(np.int64), weights


def axis_scale(extent: int, out: int, scales: Sequence[float] | None, axis: int) -> float:
    return scales[axis] if scales is not None else (out / extent if extent else 1.0)


def untouched(extent: int, out: int, scale: float) -> bool:
    return extent == out and scale == 1.0


def resize(x: Array, scales: Sequence[float] | None, sizes: Sequence[int] | None, attrs: Mapping[str, Any]) -> Array:
    for axis, extent in enumerate(x.shape):
        out = int(sizes[axis]) if sizes is not None else int(np.floor(extent * scales[axis])) if scales else extent
        scale = axis_scale(extent, out, scales, axis)
        if untouched(extent, out, scale):
            continue
        at, weights = axis_taps(extent, out, scale, attrs)
        if attrs["mode"] == "nearest":
            x = np.take(x, at[0], axis=axis)
            continue
        shape = [-1 if i == axis else 1 for i in range(x.ndim)]
        total = np.zeros_like(np.take(x, at[0], axis=axis))
        for index, weight in zip(at, weights, strict=True):
            total += np.take(x, index, axis=axis) * weight.reshape(shape).astype(x.dtype)
        x = total
    return x
