"""Ops whose result shape depends on a tensor's value, the ops that read shapes, and `if_`.

The dyn_* forms are what model files say; `passes/graph/canonicalise.py` makes them static once their parameters are
known. Until then extents that do not follow from the operands' shapes are fresh symbols, named after the node.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...errors import ArgumentError
from ..types import i64
from .core import Graph, TensorType
from .dims import Dim, DimExpr, compare, differ, dim_max, dim_min, floordiv, product
from .op_spec import SPECS, Array, Attrs, Site, broadcast_shapes, define
from .ref_resize import resize
from .spec_nn import RESIZE_ATTRS, resize_type
from .spec_reduce import reduced_shape, topk, topk_type
from .spec_shape import pad_value, slice_extent

define(
    "shape_of",
    "x",
    infer=lambda site: (TensorType(i64, (site.type().rank,)),),
    reference=lambda xs, _: (np.array(xs[0].shape, np.int64),),
    doc="the extents of x, as i64",
)
define(
    "size_of",
    "x",
    infer=lambda site: (TensorType(i64, ()),),
    reference=lambda xs, _: (np.array(xs[0].size, np.int64),),
    doc="the number of elements of x, as an i64 scalar",
)

# parameters --------------------------------------------------------------------------------------------------------


def vector(site: Site, index: int) -> tuple[list[Any] | None, int]:
    """A one-axis integer parameter: its entries where known, and how many there are."""
    t = site.need_rank(index, 1)
    site.need_kind(index, "iu", "an integer parameter")
    n = t.shape[0]
    if not isinstance(n, int):
        site.shape_error(f"the length of {site.operand(index)} must be static, for it is the rank of the result")
    known = site.dims(index)
    return (None if known is None else list(known)), n


def known_vector(site: Site, index: int) -> list[int] | None:
    """Entries of a parameter that are all plain integers."""
    if site.optional(index) is None:
        return None
    known = site.dims(index)
    if known is None or any(isinstance(v, DimExpr) for v in known.flat):
        return None
    return [int(v) for v in known.reshape(-1)]


def normal_axes(site: Site, axes: Sequence[int], rank: int) -> list[int]:
    out = []
    for a in axes:
        if not -rank <= a < rank:
            site.argument_error(f"axis {a} is out of range for rank {rank}")
        out.append(a % rank)
    if len(set(out)) != len(out):
        site.argument_error(f"axes {list(axes)} name an axis twice")
    return out


# reshape, broadcast, full, range, tile -----------------------------------------------------------------------------


def reshape_target(site: Site, shape: Sequence[Any]) -> tuple[Dim, ...]:
    """The new shape with 0 (copy) and -1 (infer) replaced."""
    t, out = site.type(), list(shape)
    if not site.attrs["allowzero"]:
        for i, d in enumerate(out):
            if isinstance(d, int) and d == 0:
                if i >= t.rank:
                    site.shape_error(
                        f"extent {i} of the new shape {tuple(shape)} copies an axis {site.operand(0)} lacks"
                    )
                out[i] = t.shape[i]
    unknown = [i for i, d in enumerate(out) if isinstance(d, int) and d == -1]
    if len(unknown) > 1 or any(isinstance(d, int) and d < -1 for d in out):
        site.shape_error(f"the new shape {tuple(shape)} has more than one -1, or a negative extent")
    if unknown:
        rest = product(d for i, d in enumerate(out) if i != unknown[0])
        total = product(t.shape)
        if isinstance(total, int) and isinstance(rest, int) and (rest == 0 or total % rest):
            site.shape_error(f"{site.operand(0)} has {total} elements, which the new shape {tuple(shape)} cannot hold")
        out[unknown[0]] = 0 if rest == 0 else floordiv(total, rest)
    return tuple(out)


def _dyn_reshape(site: Site) -> tuple[TensorType, ...]:
    shape, rank = vector(site, 1)
    if shape is None:
        return (TensorType(site.type().dtype, tuple(site.fresh(i) for i in range(rank))),)
    target = reshape_target(site, shape)
    if differ(product(target), product(site.type().shape)):
        site.shape_error(
            f"{site.operand(0)} has {product(site.type().shape)} elements, but the new shape "
            f"{tuple(target)} has {product(target)}"
        )
    return (TensorType(site.type().dtype, target),)


def _dyn_broadcast(site: Site) -> tuple[TensorType, ...]:
    t = site.type()
    shape, rank = vector(site, 1)
    if shape is None:
        n = max(rank, t.rank)
        lead = n - t.rank
        keep = [t.shape[i - lead] if i >= lead else None for i in range(n)]
        return (
            TensorType(
                t.dtype, tuple(d if isinstance(d, int) and d > 1 else site.fresh(i) for i, d in enumerate(keep))
            ),
        )
    merged = broadcast_shapes(t.shape, shape)
    if merged is None:
        site.shape_error(f"{site.operand(0)} and the shape {tuple(shape)} cannot be broadcast together")
    return (TensorType(t.dtype, merged),)


def _dyn_full(site: Site) -> tuple[TensorType, ...]:
    shape, rank = vector(site, 0)
    value = site.type(1)
    if value.shape not in ((), (1,)):
        site.shape_error(f"{site.operand(1)} must be one element")
    if shape is not None and any(isinstance(d, int) and d < 0 for d in shape):
        site.shape_error(f"the shape {tuple(shape)} has a negative extent")
    out = tuple(shape) if shape is not None else tuple(site.fresh(i) for i in range(rank))
    return (TensorType(value.dtype, out),)


def _dyn_range(site: Site) -> tuple[TensorType, ...]:
    dtype = site.same_dtype()
    for i in range(3):
        if site.type(i).shape not in ((), (1,)):
            site.shape_error(f"{site.operand(i)} must be one element")
    values = [site.constant(i) for i in range(3)]
    if all(v is not None for v in values):
        a, b, s = (np.asarray(v).reshape(()).item() for v in values)
        if s == 0:
            site.argument_error("delta may not be 0")
        return (TensorType(dtype, (max(0, int(np.ceil((b - a) / s))),)),)
    dims = [site.dims(i) for i in range(3)]
    if dtype.is_int and all(d is not None for d in dims):
        a, b, s = (np.asarray(d, dtype=object).reshape(()).item() for d in dims)
        if isinstance(s, int) and s > 0:
            return (TensorType(dtype, (slice_extent(a, b, int(s)),)),)
    return (TensorType(dtype, (site.fresh(0),)),)


def _range(xs: Sequence[Any], _: Attrs) -> tuple[Array, ...]:
    a, b, s = (x.reshape(()) for x in xs)
    n = max(0, int(np.ceil((b.item() - a.item()) / s.item())))
    return ((a + np.arange(n).astype(a.dtype) * s).astype(a.dtype),)


def _dyn_tile(site: Site) -> tuple[TensorType, ...]:
    t = site.type()
    repeats, n = vector(site, 1)
    if n != t.rank:
        site.shape_error(f"{site.operand(1)} must have one entry per axis of {site.operand(0)}")
    if repeats is None:
        return (TensorType(t.dtype, tuple(site.fresh(i) for i in range(n))),)
    return (TensorType(t.dtype, tuple(d * r for d, r in zip(t.shape, repeats, strict=True))),)


def _reshape(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    x, shape = xs[0], [int(v) for v in xs[1]]
    if not attrs["allowzero"]:
        shape = [x.shape[i] if d == 0 else d for i, d in enumerate(shape)]
    if -1 in shape:
        rest = int(np.prod([d for d in shape if d != -1]))
        shape = [(x.size // rest if rest else 0) if d == -1 else d for d in shape]
    return (x.reshape(shape),)


define(
    "dyn_reshape",
    "x shape",
    "allowzero:bool=False",
    infer=_dyn_reshape,
    reference=_reshape,
    doc="reshape to a tensor's value: 0 copies an extent (unless allowzero), -1 is worked out",
)
define(
    "dyn_broadcast",
    "x shape",
    infer=_dyn_broadcast,
    reference=lambda xs, _: (np.broadcast_to(xs[0], np.broadcast_shapes(xs[0].shape, tuple(int(v) for v in xs[1]))),),
    doc="x and a shape broadcast together (both ways)",
)
define(
    "dyn_full",
    "shape value",
    infer=_dyn_full,
    reference=lambda xs, _: (np.broadcast_to(xs[1].reshape(()), tuple(int(v) for v in xs[0])),),
    doc="one value everywhere",
)
define(
    "dyn_range", "start limit delta", infer=_dyn_range, reference=_range, doc="start, start + delta ... before limit"
)
define(
    "dyn_tile",
    "x repeats",
    infer=_dyn_tile,
    reference=lambda xs, _: (np.tile(xs[0], tuple(int(v) for v in xs[1])),),
    doc="x repeated along each axis",
)

# slice, pad, split, squeeze, unsqueeze -----------------------------------------------------------------------------


FAR = 2**31 - 1


def clamp_slice(extent: Dim, start: Dim, stop: Dim, step: int) -> tuple[Dim, Dim] | None:
    """A Python-style slice of an axis with its ends made non-negative and clamped (see the op `slice`); None where it
    depends on symbols whether an end counts from the back. Ends beyond 32 bits mean 'as far as there is'."""
    ends = []
    for v in (start, stop):
        if isinstance(v, int):
            ends.append(extent if v >= FAR else v if v >= 0 or v <= -FAR else extent + v)
        elif compare(v, 0) is None:
            return None
        else:
            ends.append(v if compare(v, 0) == 1 else extent + v)
    a, b = ends
    if step > 0:
        return dim_min(dim_max(a, 0), extent), dim_min(dim_max(b, 0), extent)
    last = extent - 1
    return dim_max(dim_min(a, last), -1), dim_max(dim_min(b, last), -1)


def clamp_ints(extent: int, start: int, stop: int, step: int) -> tuple[int, int]:
    a, b, _ = slice(start, stop, step).indices(extent)
    return a, b


def slice_plan(site: Site) -> list[tuple[Dim, Dim, int]] | None:
    """(start, stop, step) of every axis, or None while they are not known."""
    t = site.type()
    starts, ends = site.dims(1), site.dims(2)
    axes, steps = known_vector(site, 3), known_vector(site, 4)
    if starts is None or ends is None or (site.optional(3) and axes is None) or (site.optional(4) and steps is None):
        return None
    chosen = normal_axes(site, axes if axes is not None else range(len(starts)), t.rank)
    steps = steps if steps is not None else [1] * len(chosen)
    if not len(starts) == len(ends) == len(chosen) == len(steps):
        site.argument_error("starts, ends, axes and steps must have one length")
    if 0 in steps:
        site.argument_error("a slice's step may not be 0")
    plan: list[tuple[Dim, Dim, int]] = [(0, d, 1) for d in t.shape]
    for axis, a, b, s in zip(chosen, starts, ends, steps, strict=True):
        clamped = clamp_slice(t.shape[axis], a, b, s)
        if clamped is None:
            return None
        lo, hi = clamped
        plan[axis] = (lo if s > 0 or lo != -1 else 0, hi if lo != -1 or s > 0 else 0, s)
        if lo == -1 and s < 0:
            plan[axis] = (0, 0, 1)
    return plan


def _dyn_slice(site: Site) -> tuple[TensorType, ...]:
    t = site.type()
    for i in (1, 2, 3, 4):
        if site.optional(i) is not None:
            vector(site, i)
    plan = slice_plan(site)
    if plan is not None:
        return (TensorType(t.dtype, tuple(slice_extent(*p) for p in plan)),)
    axes = known_vector(site, 3)
    n = site.type(1).shape[0]
    touched = normal_axes(site, axes, t.rank) if axes is not None else list(range(t.rank))
    if site.optional(3) is None and isinstance(n, int):
        touched = list(range(n))
    return (TensorType(t.dtype, tuple(site.fresh(i) if i in touched else d for i, d in enumerate(t.shape))),)


def _slice(xs: Sequence[Any], _: Attrs) -> tuple[Array, ...]:
    x, starts, ends, axes, steps = [*xs, None, None][:5]
    key = [slice(None)] * x.ndim
    for i, (a, b) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        axis = int(axes[i]) if axes is not None else i
        step = int(steps[i]) if steps is not None else 1
        d = x.shape[axis]
        lo, hi = clamp_ints(d, a, b, step)
        key[axis] = slice(lo, None if step < 0 and hi == -1 else hi, step) if step > 0 or lo != -1 else slice(0, 0)
    return (x[tuple(key)],)


def pad_plan(site: Site) -> tuple[list[Any], list[Any]] | None:
    t = site.type()
    pads, axes = site.dims(1), known_vector(site, 3)
    if pads is None or (site.optional(3) is not None and axes is None):
        return None
    chosen = normal_axes(site, axes if axes is not None else range(t.rank), t.rank)
    if len(pads) != 2 * len(chosen):
        site.argument_error(f"{site.operand(1)} must have two entries per padded axis ({len(chosen)} axes)")
    lo: list[Any] = [0] * t.rank
    hi: list[Any] = [0] * t.rank
    for i, axis in enumerate(chosen):
        lo[axis], hi[axis] = pads[i], pads[i + len(chosen)]
    return lo, hi


def _dyn_pad(site: Site) -> tuple[TensorType, ...]:
    t = site.type()
    vector(site, 1)
    if site.optional(2) is not None:
        site.same_dtype(0, 2)
        if site.type(2).shape not in ((), (1,)):
            site.shape_error(f"{site.operand(2)} must be one element")
    plan = pad_plan(site)
    if plan is None:
        return (TensorType(t.dtype, tuple(site.fresh(i) for i in range(t.rank))),)
    out = tuple(d + a + b for d, a, b in zip(t.shape, *plan, strict=True))
    if any(isinstance(d, int) and d < 0 for d in out):
        site.shape_error(f"padding {plan} leaves a negative extent of {site.operand(0)}")
    return (TensorType(t.dtype, out),)


def _pad(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    x, pads, value, axes = [*xs, None, None][:4]
    chosen = [int(a) % x.ndim for a in axes] if axes is not None else list(range(x.ndim))
    lo, hi = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(chosen):
        lo[axis], hi[axis] = int(pads[i]), int(pads[i + len(chosen)])
    x = x[tuple(slice(max(0, -a), d - max(0, -b)) for d, a, b in zip(x.shape, lo, hi, strict=True))]
    width = [(max(0, a), max(0, b)) for a, b in zip(lo, hi, strict=True)]
    if attrs["mode"] == "constant":
        fill = pad_value(0.0, x.dtype) if value is None else value.reshape(())
        return (np.pad(x, width, constant_values=fill),)
    return (np.pad(x, width, mode=attrs["mode"]),)


def _dyn_split(site: Site) -> tuple[TensorType, ...]:
    t, axis = site.type(), site.attrs["axis"]
    sizes, n = vector(site, 1)
    pieces = sizes if sizes is not None else [site.fresh(i) for i in range(n)]
    return tuple(TensorType(t.dtype, (*t.shape[:axis], s, *t.shape[axis + 1 :])) for s in pieces)


def _dyn_squeeze(site: Site) -> tuple[TensorType, ...]:
    t = site.type()
    vector(site, 1)
    axes = known_vector(site, 1)
    if axes is None:
        site.shape_error(
            f"the rank of the result depends on {site.operand(1)}, which is not known", hint="make the axes a constant"
        )
    drop = normal_axes(site, axes, t.rank)
    for a in drop:
        if differ(t.shape[a], 1):
            site.shape_error(f"axis {a} of {site.operand(0)} cannot be squeezed: its extent is not 1")
    return (TensorType(t.dtype, tuple(d for i, d in enumerate(t.shape) if i not in drop)),)


def _dyn_unsqueeze(site: Site) -> tuple[TensorType, ...]:
    t = site.type()
    _, n = vector(site, 1)
    axes = known_vector(site, 1)
    if axes is None:
        return (TensorType(t.dtype, tuple(site.fresh(i) for i in range(t.rank + n))),)
    return (TensorType(t.dtype, unsqueezed(t.shape, normal_axes(site, axes, t.rank + n))),)


def unsqueezed(shape: Sequence[Dim], axes: Sequence[int]) -> tuple[Dim, ...]:
    rest = iter(shape)
    return tuple(1 if i in axes else next(rest) for i in range(len(shape) + len(axes)))


define(
    "dyn_slice",
    "x starts ends axes? steps?",
    infer=_dyn_slice,
    reference=_slice,
    doc="x[start:end:step] of the named axes, with Python's clamping",
)
define(
    "dyn_pad",
    "x pads value? axes?",
    "mode:constant|reflect|edge=constant",
    infer=_dyn_pad,
    reference=_pad,
    doc="padding before all named axes, then after them; negative padding crops",
)
define(
    "dyn_split",
    "x split",
    "axis:axis",
    infer=_dyn_split,
    reference=lambda xs, a: tuple(np.split(xs[0], np.cumsum(xs[1])[:-1].tolist(), axis=a["axis"])),
    doc="x cut along an axis into pieces of the given sizes",
)
define(
    "dyn_squeeze",
    "x axes",
    infer=_dyn_squeeze,
    reference=lambda xs, _: (np.squeeze(xs[0], axis=tuple(int(a) for a in xs[1])),),
    doc="axes of extent 1 removed",
)
define(
    "dyn_unsqueeze",
    "x axes",
    infer=_dyn_unsqueeze,
    reference=lambda xs, _: (np.expand_dims(xs[0], tuple(int(a) for a in xs[1])),),
    doc="axes of extent 1 added",
)

# resize, topk, reduce ----------------------------------------------------------------------------------------------


def resize_parameters(site: Site) -> tuple[tuple[float, ...] | None, tuple[Dim, ...] | None] | None:
    """(scales, sizes), one of which is None; None while neither is known."""
    scales = site.constant(2)
    sizes = site.dims(3) if site.optional(3) is not None else None
    if site.optional(3) is not None:
        return None if sizes is None else (None, tuple(sizes))
    return None if scales is None else (tuple(float(s) for s in scales), None)


def _dyn_resize(site: Site) -> tuple[TensorType, ...]:
    for i in (2, 3):
        if site.optional(i) is not None:
            site.need_rank(i, 1)
    if (site.optional(2) is None) == (site.optional(3) is None):
        site.argument_error("needs either scales or sizes")
    found = resize_parameters(site)
    if found is None:
        return (TensorType(site.type().dtype, tuple(site.fresh(i) for i in range(site.type().rank))),)
    return resize_type(site, *found)


def _resize(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    x, _, scales, sizes = [*xs, None, None, None][:4]
    return (
        resize(
            x,
            None if sizes is not None else [float(s) for s in scales],
            None if sizes is None else [int(s) for s in sizes],
            attrs,
        ),
    )


def _dyn_topk(site: Site) -> tuple[TensorType, ...]:
    if site.type(1).shape not in ((), (1,)):
        site.shape_error(f"{site.operand(1)} must be one element")
    k = site.dims(1)
    return topk_type(site, site.fresh("k") if k is None else k.reshape(-1)[0])


_KINDS = "sum|mean|max|min|prod|l1|l2|logsumexp"


def reduce_axes(site: Site) -> list[int] | None:
    """The axes that a dyn_reduce takes, or None while they are not known."""
    rank = site.type().rank
    if site.optional(1) is None:
        return [] if site.attrs["noop_with_empty_axes"] else list(range(rank))
    axes = known_vector(site, 1)
    if axes is None:
        return None
    if not axes:
        return [] if site.attrs["noop_with_empty_axes"] else list(range(rank))
    return normal_axes(site, axes, rank)


def _dyn_reduce(site: Site) -> tuple[TensorType, ...]:
    t, axes = site.type(), reduce_axes(site)
    if axes is None:
        if not site.attrs["keepdims"]:
            site.shape_error(
                f"the rank of the result depends on {site.operand(1)}, which is not known",
                hint="make the axes a constant, or keep the reduced axes",
            )
        return (TensorType(t.dtype, tuple(1 if d == 1 else site.fresh(i) for i, d in enumerate(t.shape))),)
    return (TensorType(t.dtype, reduced_shape(t.shape, axes, site.attrs["keepdims"])),)


def _reduce(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    x, axes = [*xs, None][:2]
    rank = x.ndim
    chosen = tuple(sorted(int(a) % rank for a in axes)) if axes is not None else ()
    if not chosen and not attrs["noop_with_empty_axes"]:
        chosen = tuple(range(rank))
    if not chosen:
        return (x,)
    return SPECS[f"reduce_{attrs['kind']}"].reference([x], {"axes": chosen, "keepdims": attrs["keepdims"]})


define(
    "dyn_resize",
    "x roi? scales? sizes?",
    RESIZE_ATTRS,
    infer=_dyn_resize,
    reference=_resize,
    doc="resize by the values of tensors (the region of interest is not used by these coordinate modes)",
)
define(
    "dyn_topk",
    "x k",
    "axis:axis=-1 largest:bool=True sorted:bool=True",
    infer=_dyn_topk,
    reference=lambda xs, a: topk(xs[0], int(xs[1].reshape(())), a["axis"], a["largest"]),
    doc="topk with a computed k",
)
define(
    "dyn_reduce",
    "x axes?",
    f"kind:{_KINDS} keepdims:bool=True noop_with_empty_axes:bool=False",
    infer=_dyn_reduce,
    reference=_reduce,
    doc="a reduction over computed axes; no axes means all of them unless noop_with_empty_axes",
)

# if_ ---------------------------------------------------------------------------------------------------------------


def known_condition(site: Site) -> bool | None:
    known = site.dims(0)
    return None if known is None else bool(known.reshape(-1)[0])


def _if(site: Site) -> tuple[TensorType, ...]:
    site.need_kind(0, "b", "a bool condition")
    if site.type(0).shape not in ((), (1,)):
        site.shape_error(f"{site.operand(0)} must be one element")
    branches: list[Graph] = [site.attrs["then_branch"], site.attrs["else_branch"]]
    condition = known_condition(site)
    if condition is not None:
        branches = [branches[0 if condition else 1]]
    for g in branches:
        if len(g.inputs) != len(site.types) - 1:
            site.argument_error(
                f"branch '{g.name}' takes {len(g.inputs)} values, but {len(site.types) - 1} are captured"
            )
        for i, v in enumerate(g.inputs):
            if v.type != site.type(i + 1):
                site.shape_error(
                    f"branch '{g.name}' takes {v.type} as value {i}, but {site.operand(i + 1)} is captured"
                )
    first = [v.type for v in branches[0].outputs]
    if len(branches) == 1:
        return tuple(first)
    second = [v.type for v in branches[1].outputs]
    if len(first) != len(second):
        site.argument_error(f"the branches give {len(first)} and {len(second)} results")
    out = []
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        if a.dtype != b.dtype:
            site.dtype_error(f"result {i} is {a} in one branch and {b} in the other")
        if a.rank != b.rank:
            site.shape_error(
                f"result {i} is {a} in one branch and {b} in the other: the ranks differ",
                hint="bind the input's dims, so that the condition is known",
            )
        shape = tuple(
            p if p == q else site.fresh(f"{i}_{k}") for k, (p, q) in enumerate(zip(a.shape, b.shape, strict=True))
        )
        out.append(TensorType(a.dtype, shape))
    return tuple(out)


def _if_reference(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    raise ArgumentError("'if_' is run by the graph interpreter, not by a reference")


define(
    "if_",
    "cond *captured",
    "then_branch:graph else_branch:graph",
    infer=_if,
    reference=_if_reference,
    doc="the results of one of two graphs, which take the captured values as their inputs, in order",
)
