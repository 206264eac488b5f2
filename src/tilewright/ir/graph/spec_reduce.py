"""Ops along axes: reductions, arg reductions, scans, top-k, and the normalisations and softmaxes made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..types import i64
from .core import TensorType
from .dims import Dim, differ
from .op_spec import Array, Attrs, Reference, Site, define, may_broadcast_to


def reduced_shape(shape: Sequence[Dim], axes: Sequence[int], keepdims: bool) -> tuple[Dim, ...]:
    if keepdims:
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def _reduce_type(kinds: str) -> Callable[[Site], tuple[TensorType, ...]]:
    def infer(site: Site) -> tuple[TensorType, ...]:
        dtype = site.need_kind(0, kinds, "a floating-point operand" if kinds == "f" else "a numeric operand")
        shape = reduced_shape(site.type().shape, site.attrs["axes"], site.attrs["keepdims"])
        return (TensorType(dtype, shape),)

    return infer


def _least(dtype: Any) -> Any:
    return -np.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min


def _greatest(dtype: Any) -> Any:
    return np.inf if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max


def axis_max(x: Array, axes: Any, keepdims: bool = True) -> Array:
    return np.asarray(np.max(x, axis=axes, keepdims=keepdims, initial=_least(x.dtype)))


def average(x: Array, axes: tuple[int, ...], keepdims: bool = True) -> Array:
    """The mean; NaN where there is nothing to average."""
    n = math.prod(x.shape[a] for a in axes)
    return np.asarray(np.sum(x, axis=axes, keepdims=keepdims) / np.asarray(n, x.dtype))


def _over(fn: Callable[[Array, tuple[int, ...], bool], Any]) -> Reference:
    return lambda xs, a: (np.asarray(fn(xs[0], tuple(a["axes"]), a["keepdims"])),)


def _logsumexp(x: Array, axes: tuple[int, ...], keepdims: bool) -> Array:
    m = axis_max(x, axes)
    m = np.where(np.isfinite(m), m, 0).astype(x.dtype)
    total = np.log(np.sum(np.exp(x - m), axis=axes, keepdims=True)) + m
    return np.asarray(total if keepdims else np.squeeze(total, axis=axes))


_AXES = "axes:axes keepdims:bool=True"
_REDUCE: dict[str, tuple[str, str, Reference]] = {
    "reduce_sum": ("fiu", "sum", _over(lambda x, a, k: np.sum(x, axis=a, keepdims=k, dtype=x.dtype))),
    "reduce_prod": ("fiu", "product", _over(lambda x, a, k: np.prod(x, axis=a, keepdims=k, dtype=x.dtype))),
    "reduce_max": ("fiub", "greatest element (NaN wins)", _over(axis_max)),
    "reduce_min": (
        "fiub",
        "least element (NaN wins)",
        _over(lambda x, a, k: np.min(x, axis=a, keepdims=k, initial=_greatest(x.dtype))),
    ),
}
for _name, (_kinds, _doc, _ref) in _REDUCE.items():
    define(_name, "x", _AXES, infer=_reduce_type(_kinds), reference=_ref, doc=f"{_doc} over axes")

_REDUCE_COMPOSITE: dict[str, tuple[str, Reference]] = {
    "reduce_mean": ("mean", _over(lambda x, a, k: average(x, a, k))),
    "reduce_l1": ("sum of |x|", _over(lambda x, a, k: np.sum(np.abs(x), axis=a, keepdims=k))),
    "reduce_l2": (
        "square root of the sum of squares",
        _over(lambda x, a, k: np.sqrt(np.sum(x * x, axis=a, keepdims=k))),
    ),
    "reduce_logsumexp": ("log of the sum of exponentials", _over(_logsumexp)),
}
for _name, (_doc, _ref) in _REDUCE_COMPOSITE.items():
    define(_name, "x", _AXES, infer=_reduce_type("f"), reference=_ref, doc=f"{_doc} over axes", composite=True)


def _arg_type(site: Site) -> tuple[TensorType, ...]:
    t, axis = site.type(), site.attrs["axis"]
    site.need_kind(0, "fiu", "a numeric operand")
    if t.shape[axis] == 0:
        site.shape_error(f"axis {axis} of {site.operand(0)} is empty")
    return (TensorType(i64, reduced_shape(t.shape, (axis,), site.attrs["keepdims"])),)


def _arg(fn: Callable[..., Any]) -> Reference:
    def reference(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
        x, axis = xs[0], attrs["axis"]
        if attrs["last"]:
            at = x.shape[axis] - 1 - fn(np.flip(x, axis), axis=axis, keepdims=attrs["keepdims"])
        else:
            at = fn(x, axis=axis, keepdims=attrs["keepdims"])
        return (np.asarray(at, dtype=np.int64),)

    return reference


for _name, _fn in (("argmax", np.argmax), ("argmin", np.argmin)):
    define(
        _name,
        "x",
        "axis:axis=0 keepdims:bool=True last:bool=False",
        infer=_arg_type,
        reference=_arg(_fn),
        doc=f"where the {_name[3:]}imum is along an axis: its first place, or its last",
    )


def _cumsum_type(site: Site) -> tuple[TensorType, ...]:
    site.need_kind(0, "fiu", "a numeric operand")
    return (site.type(),)


def _cumsum(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    x, axis = xs[0], attrs["axis"]
    x = np.flip(x, axis) if attrs["reverse"] else x
    y = np.cumsum(x, axis=axis, dtype=x.dtype)
    if attrs["exclusive"] and x.shape[axis]:
        y = np.roll(y, 1, axis=axis)
        y[tuple(0 if i == axis else slice(None) for i in range(x.ndim))] = 0
    return (np.flip(y, axis) if attrs["reverse"] else y,)


define(
    "cumsum",
    "x",
    "axis:axis exclusive:bool=False reverse:bool=False",
    infer=_cumsum_type,
    reference=_cumsum,
    doc="running sums along an axis; exclusive leaves an element out of its own sum, reverse starts from the end",
)


def topk_type(site: Site, k: Dim) -> tuple[TensorType, ...]:
    t, axis = site.type(), site.attrs["axis"]
    site.need_kind(0, "fiu", "a numeric operand")
    if isinstance(k, int) and (k < 0 or (isinstance(t.shape[axis], int) and k > t.shape[axis])):
        site.argument_error(f"k = {k} is out of range for axis {axis} of {site.operand(0)}")
    shape = (*t.shape[:axis], k, *t.shape[axis + 1 :])
    return TensorType(t.dtype, shape), TensorType(i64, shape)


def topk(x: Array, k: int, axis: int, largest: bool) -> tuple[Array, ...]:
    if largest:
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    at = np.take(order, np.arange(k), axis=axis)
    return np.take_along_axis(x, at, axis=axis), at.astype(np.int64)


define(
    "topk",
    "x",
    "k:int axis:axis=-1 largest:bool=True sorted:bool=True",
    infer=lambda site: topk_type(site, site.attrs["k"]),
    reference=lambda xs, a: topk(xs[0], a["k"], a["axis"], a["largest"]),
    doc="the k greatest (or least) elements along an axis, best first, and where they are; equal ones in order",
)

# softmax and normalisations ----------------------------------------------------------------------------------------


def _float_same(site: Site) -> tuple[TensorType, ...]:
    site.need_kind(0, "f", "a floating-point operand")
    return (site.type(),)


def softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - axis_max(x, axis))
    return np.asarray(e / np.sum(e, axis=axis, keepdims=True))


def _log_softmax(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    y = xs[0] - axis_max(xs[0], attrs["axis"])
    return (y - np.log(np.sum(np.exp(y), axis=attrs["axis"], keepdims=True)),)


define(
    "softmax",
    "x",
    "axis:axis=-1",
    infer=_float_same,
    reference=lambda xs, a: (softmax(xs[0], a["axis"]),),
    doc="exp(x) / sum(exp(x)) along an axis",
    composite=True,
)
define(
    "log_softmax",
    "x",
    "axis:axis=-1",
    infer=_float_same,
    reference=_log_softmax,
    composite=True,
    doc="log(softmax(x)) along an axis",
)


def _trailing_norm_type(site: Site) -> tuple[TensorType, ...]:
    site.need_kind(0, "f", "a floating-point operand")
    site.same_dtype()
    rest = site.type().shape[site.attrs["axis"] :]
    for i in range(1, len(site.types)):
        t = site.optional(i)
        if t is not None and not may_broadcast_to(t.shape, rest):
            site.shape_error(f"{site.operand(i)} must broadcast to the normalised axes of {site.operand(0)}")
    return (site.type(),)


def _layer_norm(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    x, scale, bias = [*xs, None, None][:3]
    axes = tuple(range(attrs["axis"], x.ndim))
    centred = x - average(x, axes)
    y = centred / np.sqrt(average(centred * centred, axes) + attrs["epsilon"])
    y = y if scale is None else y * scale
    return (y if bias is None else y + bias,)


def _rms_norm(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    x, scale = [*xs, None][:2]
    axes = tuple(range(attrs["axis"], x.ndim))
    y = x / np.sqrt(average(x * x, axes) + attrs["epsilon"])
    return (y if scale is None else y * scale,)


define(
    "layer_norm",
    "x scale? bias?",
    "axis:axis=-1 epsilon:float=1e-05",
    infer=_trailing_norm_type,
    reference=_layer_norm,
    doc="(x - mean) / sqrt(variance + epsilon) over axis and all after it, then scale and bias",
    composite=True,
)
define(
    "rms_norm",
    "x scale?",
    "axis:axis=-1 epsilon:float=1e-05",
    infer=_trailing_norm_type,
    reference=_rms_norm,
    doc="x / sqrt(mean(x^2) + epsilon) over axis and all after it, then scale",
    composite=True,
)


def channel_axis(layout: str, rank: int) -> int:
    return 1 if layout == "first" else rank - 1


def _channel_norm_type(site: Site) -> tuple[TensorType, ...]:
    site.need_kind(0, "f", "a floating-point operand")
    site.same_dtype()
    t = site.type()
    if t.rank < 2:
        site.shape_error(f"{site.operand(0)} needs a batch axis and a channel axis")
    axis = channel_axis(site.attrs.get("layout", "first"), t.rank)
    for i in range(1, len(site.types)):
        p = site.optional(i)
        if p is not None and (p.rank != 1 or differ(p.shape[0], t.shape[axis])):
            site.shape_error(f"{site.operand(i)} must have one entry per channel (axis {axis}) of {site.operand(0)}")
    groups, c = site.attrs.get("num_groups", 1), t.shape[axis]
    if groups < 1 or (isinstance(c, int) and c % groups):
        site.argument_error(f"num_groups = {groups} does not divide the {c} channels of {site.operand(0)}")
    return (t,)


def per_channel(p: Array, rank: int, axis: int = 1) -> Array:
    return p.reshape([-1 if i == axis else 1 for i in range(rank)])


def _batch_norm(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    x = xs[0]
    axis = channel_axis(attrs["layout"], x.ndim)
    scale, bias, mean, var = (per_channel(p, x.ndim, axis) for p in xs[1:])
    return ((x - mean) / np.sqrt(var + attrs["epsilon"]) * scale + bias,)


def _grouped_norm(xs: Sequence[Any], groups: int, epsilon: float) -> tuple[Array, ...]:
    x, scale, bias = [*xs, None, None][:3]
    g = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    axes = tuple(range(2, g.ndim))
    centred = g - average(g, axes)
    y = (centred / np.sqrt(average(centred * centred, axes) + epsilon)).reshape(x.shape)
    y = y if scale is None else y * per_channel(scale, x.ndim)
    return (y if bias is None else y + per_channel(bias, x.ndim),)


define(
    "batch_norm",
    "x scale bias mean var",
    "epsilon:float=1e-05 layout:first|last=first",
    infer=_channel_norm_type,
    reference=_batch_norm,
    doc="(x - mean) / sqrt(var + epsilon) * scale + bias per channel, with given statistics",
    composite=True,
)
define(
    "instance_norm",
    "x scale? bias?",
    "epsilon:float=1e-05",
    infer=_channel_norm_type,
    reference=lambda xs, a: _grouped_norm(xs, max(xs[0].shape[1], 1), a["epsilon"]),
    doc="each sample's channels normalised over the plane, then scale and bias per channel",
    composite=True,
)
define(
    "group_norm",
    "x scale? bias?",
    "num_groups:int epsilon:float=1e-05",
    infer=_channel_norm_type,
    reference=lambda xs, a: _grouped_norm(xs, a["num_groups"], a["epsilon"]),
    doc="each sample's groups of channels normalised, then scale and bias per channel",
    composite=True,
)


def _lp_type(site: Site) -> tuple[TensorType, ...]:
    if site.attrs["p"] not in (1, 2):
        site.argument_error(f"p must be 1 or 2, not {site.attrs['p']}")
    return _float_same(site)


def _lp_norm(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    x, axis = xs[0], attrs["axis"]
    total = np.sum(np.abs(x) if attrs["p"] == 1 else x * x, axis=axis, keepdims=True)
    norm = total if attrs["p"] == 1 else np.sqrt(total)
    return (np.where(norm == 0, 0, x / norm).astype(x.dtype),)


define(
    "lp_norm",
    "x",
    "p:int=2 axis:axis=-1",
    infer=_lp_type,
    reference=_lp_norm,
    composite=True,
    doc="x divided by its 1-norm or 2-norm along an axis (0 where the norm is 0)",
)
