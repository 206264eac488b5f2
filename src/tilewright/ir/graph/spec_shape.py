"""Ops that move elements without computing on them: reshape, slice, concat, gather, scatter and their kin."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...errors import ArgumentError
from .core import TensorType
from .dims import Dim, compare, differ, dim_max, floordiv, product
from .op_spec import Array, Attrs, Site, define

# reshape, transpose, broadcast


def _reshape_type(site: Site) -> tuple[TensorType, ...]:
    shape = site.attrs["shape"]
    if any(isinstance(d, int) and d < 0 for d in shape):
        site.shape_error(f"the new shape {_text(shape)} has a negative extent")
    if differ(product(site.type().shape), product(shape)):
        site.shape_error(
            f"{site.operand(0)} has {product(site.type().shape)} elements, but the new shape "
            f"[{_text(shape)}] has {product(shape)}"
        )
    return (TensorType(site.type().dtype, shape),)


def _text(shape: Sequence[Dim]) -> str:
    return ", ".join(map(str, shape))


def _transpose_type(site: Site) -> tuple[TensorType, ...]:
    perm, t = site.attrs["perm"], site.type()
    if sorted(perm) != list(range(t.rank)):
        site.argument_error(f"perm {perm} is not a permutation of the axes of {site.operand(0)}")
    return (TensorType(t.dtype, tuple(t.shape[p] for p in perm)),)


def _broadcast_type(site: Site) -> tuple[TensorType, ...]:
    t, shape = site.type(), site.attrs["shape"]
    lead = len(shape) - t.rank
    fits = lead >= 0 and all(a == 1 or not differ(a, b) for a, b in zip(t.shape, shape[lead:], strict=True))
    if not fits:
        site.shape_error(f"{site.operand(0)} cannot be broadcast to [{_text(shape)}]")
    return (TensorType(t.dtype, shape),)


define(
    "reshape",
    "x",
    "shape:dims",
    infer=_reshape_type,
    reference=lambda xs, a: (xs[0].reshape(a["shape"]),),
    doc="the same elements in row-major order under another shape",
)
define(
    "transpose",
    "x",
    "perm:ints",
    infer=_transpose_type,
    reference=lambda xs, a: (np.transpose(xs[0], a["perm"]),),
    doc="axis i of the result is axis perm[i] of x",
)
define(
    "broadcast",
    "x",
    "shape:dims",
    infer=_broadcast_type,
    reference=lambda xs, a: (np.broadcast_to(xs[0], a["shape"]),),
    doc="x repeated along axes of extent 1",
)

# slice, pad, concat, split, tile -----------------------------------------------------------------------------------


def slice_extent(start: Dim, stop: Dim, step: int) -> Dim:
    """How many elements a clamped slice takes."""
    n = floordiv(stop - start + (step - 1), step) if step > 0 else floordiv(start - stop + (-step - 1), -step)
    return n if compare(n, 0) in (0, 1) else dim_max(n, 0)


def _slice_type(site: Site) -> tuple[TensorType, ...]:
    t = site.type()
    starts, stops, steps = site.attrs["starts"], site.attrs["stops"], site.attrs["steps"]
    if not len(starts) == len(stops) == len(steps) == t.rank:
        site.argument_error(f"starts, stops and steps must name all {t.rank} axes of {site.operand(0)}")
    if 0 in steps:
        site.argument_error("a slice's step may not be 0")
    for axis, (start, stop, step, extent) in enumerate(zip(starts, stops, steps, t.shape, strict=True)):
        if isinstance(start, int) and isinstance(stop, int) and isinstance(extent, int):
            if step > 0:
                clamped = 0 <= start <= extent and 0 <= stop <= extent
            else:
                clamped = -1 <= stop and 0 <= start < max(extent, 1)
            if not clamped:
                site.argument_error(f"slice {start}:{stop}:{step} of axis {axis} is not clamped to {site.operand(0)}")
    shape = tuple(slice_extent(a, b, s) for a, b, s in zip(starts, stops, steps, strict=True))
    return (TensorType(t.dtype, shape),)


def _slice(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    keys = [
        slice(a, None if b < 0 else b, s) if (b > a if s > 0 else a > b) else slice(0, 0)
        for a, b, s in zip(attrs["starts"], attrs["stops"], attrs["steps"], strict=True)
    ]
    return (xs[0][tuple(keys)],)


def _pad_type(site: Site) -> tuple[TensorType, ...]:
    t, lo, hi = site.type(), site.attrs["lo"], site.attrs["hi"]
    if not len(lo) == len(hi) == t.rank:
        site.argument_error(f"lo and hi must name all {t.rank} axes of {site.operand(0)}")
    for axis, (a, b, d) in enumerate(zip(lo, hi, t.shape, strict=True)):
        if any(isinstance(v, int) and v < 0 for v in (a, b)):
            site.argument_error(f"padding of axis {axis} is negative ({a}, {b})", hint="slice instead")
        if site.attrs["mode"] != "constant" and isinstance(d, int) and isinstance(a, int) and isinstance(b, int):
            most = d - 1 if site.attrs["mode"] == "reflect" else (None if d else 0)
            if most is not None and max(int(a), int(b)) > max(most, 0):
                site.shape_error(
                    f"{site.attrs['mode']} padding ({a}, {b}) of axis {axis} needs a greater extent "
                    f"than {site.operand(0)} has"
                )
    return (TensorType(t.dtype, tuple(d + a + b for a, b, d in zip(lo, hi, t.shape, strict=True))),)


def _pad(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    x, width = xs[0], list(zip(attrs["lo"], attrs["hi"], strict=True))
    if attrs["mode"] != "constant":
        return (np.pad(x, width, mode=attrs["mode"]),)
    out = np.full(
        [d + a + b for d, (a, b) in zip(x.shape, width, strict=True)], pad_value(attrs["value"], x.dtype), x.dtype
    )
    out[tuple(slice(a, a + d) for d, (a, _) in zip(x.shape, width, strict=True))] = x
    return (out,)


def pad_value(value: float, dtype: Any) -> Any:
    """The attribute (a float) as an element; infinities become an integer type's ends."""
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return info.min if value <= info.min else info.max if value >= info.max else int(value)
    return value


def _concat_type(site: Site) -> tuple[TensorType, ...]:
    if not site.types:
        site.argument_error("needs at least one operand")
    dtype, first, axis = site.same_dtype(), site.type(), site.attrs["axis"]
    total: Dim = 0
    shape = list(first.shape)
    for i, t in enumerate(site.present):
        if t.rank != first.rank:
            site.shape_error(f"{site.operand(0)} and {site.operand(i)} have different ranks")
        for a in range(first.rank):
            if a != axis:
                shape[a] = site.same_extent(
                    shape[a],
                    t.shape[a],
                    f"{site.operand(0)} and {site.operand(i)} differ along axis {a}, "
                    f"which is not the axis {axis} they are joined along",
                )
        total = total + t.shape[axis]
    shape[axis] = total
    return (TensorType(dtype, tuple(shape)),)


def _split_type(site: Site) -> tuple[TensorType, ...]:
    t, axis, sizes = site.type(), site.attrs["axis"], site.attrs["sizes"]
    total: Dim = 0
    for s in sizes:
        if isinstance(s, int) and s < 0:
            site.argument_error(f"sizes {sizes} has a negative entry")
        total = total + s
    site.same_extent(t.shape[axis], total, f"axis {axis} of {site.operand(0)} and the sum of sizes {sizes} differ")
    return tuple(TensorType(t.dtype, (*t.shape[:axis], s, *t.shape[axis + 1 :])) for s in sizes)


def _split(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    at = np.cumsum(attrs["sizes"])[:-1].tolist()
    return tuple(np.split(xs[0], at, axis=attrs["axis"]))


def _tile_type(site: Site) -> tuple[TensorType, ...]:
    t, repeats = site.type(), site.attrs["repeats"]
    if len(repeats) != t.rank or any(isinstance(r, int) and r < 0 for r in repeats):
        site.argument_error(f"repeats {repeats} must have one entry of at least 0 per axis of {site.operand(0)}")
    return (TensorType(t.dtype, tuple(d * r for d, r in zip(t.shape, repeats, strict=True))),)


define(
    "slice",
    "x",
    "starts:dims stops:dims steps:ints",
    infer=_slice_type,
    reference=_slice,
    doc="x[start:stop:step] of every axis, clamped already; stop -1 under a negative step means 'past element 0'",
)
define(
    "pad",
    "x",
    "lo:dims hi:dims value:float=0.0 mode:constant|reflect|edge=constant",
    infer=_pad_type,
    reference=_pad,
    doc="x with lo and hi elements added before and after each axis",
)
define(
    "concat",
    "*xs",
    "axis:axis",
    infer=_concat_type,
    reference=lambda xs, a: (np.concatenate(xs, axis=a["axis"]),),
    doc="operands joined along an axis",
)
define(
    "split",
    "x",
    "sizes:dims axis:axis",
    infer=_split_type,
    reference=_split,
    composite=True,
    doc="x cut along an axis into pieces of the given sizes",
)
define(
    "tile",
    "x",
    "repeats:dims",
    infer=_tile_type,
    reference=lambda xs, a: (np.tile(xs[0], a["repeats"]),),
    composite=True,
    doc="x repeated along each axis",
)

# gather and scatter ------------------------------------------------------------------------------------------------


def _check_index(site: Site, index: int) -> None:
    site.need_kind(index, "iu", "an integer index")


def wrap_index(idx: Array, extent: int) -> Array:
    """Negative indices count from the end; one out of range is an error."""
    out = np.where(idx < 0, idx.astype(np.int64) + extent, idx.astype(np.int64))
    if out.size and (out.min() < 0 or out.max() >= extent):
        bad = idx.reshape(-1)[int(np.argmax(((out < 0) | (out >= extent)).reshape(-1)))]
        raise ArgumentError(f"index {bad} is out of range for an axis of extent {extent}")
    return np.asarray(out)


def _gather_type(site: Site) -> tuple[TensorType, ...]:
    _check_index(site, 1)
    t, axis = site.type(), site.attrs["axis"]
    return (TensorType(t.dtype, (*t.shape[:axis], *site.type(1).shape, *t.shape[axis + 1 :])),)


def _gather(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    axis = attrs["axis"]
    return (np.take(xs[0], wrap_index(xs[1], xs[0].shape[axis]), axis=axis),)


def _elements_type(site: Site) -> tuple[TensorType, ...]:
    _check_index(site, 1)
    t, idx, axis = site.type(), site.type(1), site.attrs["axis"]
    if idx.rank != t.rank:
        site.shape_error(f"{site.operand(0)} and {site.operand(1)} must have one rank")
    for a in range(t.rank):
        extent, taken = t.shape[a], idx.shape[a]
        if a != axis and isinstance(extent, int) and isinstance(taken, int) and taken > extent:
            site.shape_error(f"{site.operand(1)} is longer than {site.operand(0)} along axis {a}")
    return (TensorType(t.dtype, idx.shape),)


def _grid(xs: Sequence[Any], axis: int) -> tuple[Any, ...]:
    idx = wrap_index(xs[1], xs[0].shape[axis])
    key: list[Any] = list(np.indices(idx.shape, sparse=True))
    key[axis] = idx
    return tuple(key)


def _nd_parts(site: Site) -> tuple[int, int]:
    _check_index(site, 1)
    t, idx, batch = site.type(), site.type(1), site.attrs.get("batch_dims", 0)
    if idx.rank < batch + 1 or t.rank < batch:
        site.shape_error(f"{site.operand(1)} needs more than batch_dims = {batch} axes")
    depth = idx.shape[-1]
    if not isinstance(depth, int):
        site.shape_error(f"the last extent of {site.operand(1)} must be static")
    if depth + batch > t.rank:
        site.shape_error(f"{site.operand(1)} indexes {depth} axes after {batch}, more than {site.operand(0)} has")
    for a in range(batch):
        site.same_extent(
            t.shape[a], idx.shape[a], f"{site.operand(0)} and {site.operand(1)} differ along batch axis {a}"
        )
    return batch, depth


def _gather_nd_type(site: Site) -> tuple[TensorType, ...]:
    batch, depth = _nd_parts(site)
    t, idx = site.type(), site.type(1)
    return (TensorType(t.dtype, (*idx.shape[:-1], *t.shape[batch + depth :])),)


def _nd_key(shape: tuple[int, ...], idx: Array, batch: int) -> tuple[Any, ...]:
    depth = idx.shape[-1]
    key: list[Any] = []
    for a in range(batch):
        key.append(np.arange(shape[a]).reshape([-1 if i == a else 1 for i in range(idx.ndim - 1)]))
    key += [wrap_index(idx[..., j], shape[batch + j]) for j in range(depth)]
    return tuple(key)


def _gather_nd(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    key = _nd_key(xs[0].shape, xs[1], attrs["batch_dims"])
    if not key:
        return (np.broadcast_to(xs[0], xs[1].shape[:-1] + xs[0].shape),)
    out = xs[0][key]
    return (np.broadcast_to(out, xs[1].shape[:-1] + xs[0].shape[len(key) :]),)


_APPLY: dict[str, Callable[..., None]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


def _write(data: Array, key: tuple[Any, ...], update: Array, reduction: str) -> Array:
    out = np.array(data)
    if not key:
        key = (...,)
    if reduction == "none":
        out[key] = update
    else:
        _APPLY[reduction](out, key, update)
    return out


def _scatter_elements_type(site: Site) -> tuple[TensorType, ...]:
    _elements_type(site)
    dtype = site.same_dtype(0, 2)
    if len(site.type(1).shape) != len(site.type(2).shape) or any(
        differ(a, b) for a, b in zip(site.type(1).shape, site.type(2).shape, strict=True)
    ):
        site.shape_error(f"{site.operand(1)} and {site.operand(2)} must have one shape")
    return (TensorType(dtype, site.type().shape),)


def _scatter_nd_type(site: Site) -> tuple[TensorType, ...]:
    _, depth = _nd_parts(site)
    dtype, t, idx, upd = site.same_dtype(0, 2), site.type(), site.type(1), site.type(2)
    want = (*idx.shape[:-1], *t.shape[depth:])
    if len(want) != upd.rank or any(differ(a, b) for a, b in zip(want, upd.shape, strict=True)):
        site.shape_error(
            f"{site.operand(2)} must have shape [{_text(want)}] to fit {site.operand(0)} and {site.operand(1)}"
        )
    return (TensorType(dtype, t.shape),)


_REDUCTION = "reduction:none|add|mul|max|min=none"
define(
    "gather",
    "x indices",
    "axis:axis=0",
    infer=_gather_type,
    reference=_gather,
    doc="slices of x along an axis; negative indices count from the end",
)
define(
    "gather_elements",
    "x indices",
    "axis:axis=0",
    infer=_elements_type,
    reference=lambda xs, a: (xs[0][_grid(xs, a["axis"])],),
    doc="one element of x per index, along an axis",
)
define(
    "gather_nd",
    "x indices",
    "batch_dims:int=0",
    infer=_gather_nd_type,
    reference=_gather_nd,
    doc="slices of x at index tuples (the last axis of indices)",
)
define(
    "scatter_elements",
    "x indices updates",
    f"axis:axis=0 {_REDUCTION}",
    infer=_scatter_elements_type,
    reference=lambda xs, a: (_write(xs[0], _grid(xs, a["axis"]), xs[2], a["reduction"]),),
    doc="x with one element per index replaced, or combined with, an update",
)
define(
    "scatter_nd",
    "x indices updates",
    _REDUCTION,
    infer=_scatter_nd_type,
    reference=lambda xs, a: (_write(xs[0], _nd_key(xs[0].shape, xs[1], 0), xs[2], a["reduction"]),),
    doc="x with slices at index tuples replaced by, or combined with, updates",
)

# iota, one_hot, trilu, space and depth -----------------------------------------------------------------------------


def _iota(_: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    shape, axis, dtype = attrs["shape"], attrs["axis"], attrs["dtype"]
    ramp = np.arange(shape[axis]).astype(dtype.numpy).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return (np.broadcast_to(ramp, shape),)


def _iota_type(site: Site) -> tuple[TensorType, ...]:
    shape, axis, dtype = site.attrs["shape"], site.attrs["axis"], site.attrs["dtype"]
    if not 0 <= axis < len(shape) or any(isinstance(d, int) and d < 0 for d in shape):
        site.argument_error(f"axis {axis} or an extent of [{_text(shape)}] is out of range")
    if dtype.is_bool:
        site.dtype_error("counts in a numeric element type, not bool")
    return (TensorType(dtype, shape),)


def _one_hot_type(site: Site) -> tuple[TensorType, ...]:
    _check_index(site, 0)
    t, values = site.type(), site.type(1)
    axis, depth = site.attrs["axis"], site.attrs["depth"]
    if values.shape != (2,):
        site.shape_error(f"{site.operand(1)} must have shape [2]: the off value and the on value")
    if not -t.rank - 1 <= axis <= t.rank or depth < 0:
        site.argument_error(f"axis {axis} or depth {depth} is out of range")
    axis %= t.rank + 1
    return (TensorType(values.dtype, (*t.shape[:axis], depth, *t.shape[axis:])),)


def _one_hot(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    idx, values = xs[0].astype(np.int64), xs[1]
    axis, depth = attrs["axis"] % (xs[0].ndim + 1), attrs["depth"]
    idx = np.where(idx < 0, idx + depth, idx)
    ramp = np.arange(depth).reshape([-1 if i == axis else 1 for i in range(idx.ndim + 1)])
    return (np.where(np.expand_dims(idx, axis) == ramp, values[1], values[0]),)


def _trilu_type(site: Site) -> tuple[TensorType, ...]:
    if site.type().rank < 2:
        site.shape_error(f"{site.operand(0)} needs at least two axes")
    return (site.type(),)


def _trilu(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    return ((np.triu if attrs["upper"] else np.tril)(xs[0], attrs["k"]),)


def _block_type(site: Site) -> tuple[TensorType, ...]:
    t, block = site.need_rank(0, 4), site.attrs["block"]
    if block < 1:
        site.argument_error(f"block must be at least 1, not {block}")
    n, c, h, w = t.shape
    if site.op == "space_to_depth":
        for d in (h, w):
            if isinstance(d, int) and d % block:
                site.shape_error(f"{site.operand(0)} does not divide into blocks of {block}")
        return (TensorType(t.dtype, (n, c * (block * block), floordiv(h, block), floordiv(w, block))),)
    if isinstance(c, int) and c % (block * block):
        site.shape_error(f"the channels of {site.operand(0)} do not divide into blocks of {block} x {block}")
    return (TensorType(t.dtype, (n, floordiv(c, block * block), h * block, w * block)),)


def _space_to_depth(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    n, c, h, w = xs[0].shape
    b = attrs["block"]
    y = xs[0].reshape(n, c, h // b, b, w // b, b).transpose(0, 3, 5, 1, 2, 4)
    return (y.reshape(n, c * b * b, h // b, w // b),)


def _depth_to_space(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    n, c, h, w = xs[0].shape
    b, k = attrs["block"], xs[0].shape[1] // attrs["block"] ** 2
    if attrs["mode"] == "dcr":
        y = xs[0].reshape(n, b, b, k, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        y = xs[0].reshape(n, k, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return (y.reshape(n, k, h * b, w * b),)


define(
    "iota",
    "",
    "shape:dims axis:int=0 dtype:dtype",
    infer=_iota_type,
    reference=_iota,
    doc="0, 1, 2 ... along an axis, repeated along the others",
)
define(
    "one_hot",
    "indices values",
    "depth:int axis:int=-1",
    infer=_one_hot_type,
    reference=_one_hot,
    composite=True,
    doc="values[1] where the position along the new axis is the index, else values[0]",
)
define(
    "trilu",
    "x",
    "upper:bool=True k:int=0",
    infer=_trilu_type,
    reference=_trilu,
    composite=True,
    doc="the upper (or lower) triangle of the last two axes from diagonal k, zero elsewhere",
)
define(
    "space_to_depth",
    "x",
    "block:int",
    infer=_block_type,
    reference=_space_to_depth,
    composite=True,
    doc="blocks of the plane moved to channels, block position major",
)
define(
    "depth_to_space",
    "x",
    "block:int mode:dcr|crd=dcr",
    infer=_block_type,
    reference=_depth_to_space,
    composite=True,
    doc="channels moved to blocks of the plane, the channel index split as block-channel (dcr) or channel-block (crd)",
)
