"""Operators that move elements: reshape, slice, pad, gather, scatter, tile, resize.

Parameters which are tensors stay tensors: the `dyn_` forms of the Graph IR take them, and the `canonicalise` pass makes
them static where their values follow from constants and shapes. Older opsets give the same parameters as attributes;
they become constants here, so there is one path.
"""

from __future__ import annotations

import numpy as np

from ...ir.graph.core import Value
from ...ir.graph.dims import Dim, DimExpr, floordiv, product
from ...ir.types import i64
from .registry import Context, Results, op
from .tensors import MAX_RANK, Refusal, dtype_of


def _listed(c: Context, index: int, name: str) -> Value | None:
    """A parameter that is an operand in newer versions and an attribute in older ones."""
    given = c.ints(name)
    if given is not None:
        return c.i64(given)
    v = c.opt(index)
    if v is None:
        return None
    return c.vector(v if v.type.rank else c.make("reshape", v, shape=(1,)), 2 * MAX_RANK)


@op("Reshape")
def reshape(c: Context) -> Results:
    return c.make("dyn_reshape", c.x(), c.vector(c.x(1)), allowzero=bool(c.int_("allowzero", 0)))


@op("Flatten")
def flatten(c: Context) -> Results:
    x = c.x()
    axis, rank = c.int_("axis", 1), x.type.rank
    if not -rank <= axis <= rank:
        raise Refusal(f"axis {axis} is out of range for rank {rank}")
    axis = axis + rank if axis < 0 else axis
    return c.make("reshape", x, shape=(product(x.shape[:axis]), product(x.shape[axis:])))


@op("Transpose")
def transpose(c: Context) -> Results:
    perm = c.ints("perm")
    return c.make("transpose", c.x(), perm=tuple(perm if perm is not None else reversed(range(c.x().type.rank))))


@op("Squeeze")
def squeeze(c: Context) -> Results:
    x, axes = c.x(), _listed(c, 1, "axes")
    if axes is None:
        shape = c.static_dims(x.shape, "every extent of an operand squeezed without axes")
        axes = c.i64([i for i, d in enumerate(shape) if d == 1])
    return c.make("dyn_squeeze", x, axes)


@op("Unsqueeze")
def unsqueeze(c: Context) -> Results:
    axes = _listed(c, 1, "axes")
    if axes is None:
        raise Refusal("its axes are missing")
    return c.make("dyn_unsqueeze", c.x(), axes)


@op("Expand")
def expand(c: Context) -> Results:
    return c.make("dyn_broadcast", c.x(), c.vector(c.x(1)))


@op("Shape")
def shape(c: Context) -> Results:
    x = c.x()
    full = c.make("shape_of", x)
    rank = x.type.rank
    start, end = c.int_("start", 0), c.int_("end", rank)
    lo, hi = (min(max(v + rank if v < 0 else v, 0), rank) for v in (start, end))
    if (lo, hi) == (0, rank):
        return full
    return c.make("slice", full, starts=(lo,), stops=(max(lo, hi),), steps=(1,))


@op("Size")
def size(c: Context) -> Results:
    return c.make("size_of", c.x())


@op("Concat")
def concat(c: Context) -> Results:
    xs = [c.x(i) for i in range(len(c.ins))]
    return c.make("concat", *xs, axis=c.axis(c.int_("axis", 1), xs[0].type.rank))


@op("Slice")
def slice_attributes(c: Context) -> Results:
    axes = c.ints("axes")
    return c.make(
        "dyn_slice", c.x(), c.i64(c.ints("starts")), c.i64(c.ints("ends")), None if axes is None else c.i64(axes)
    )


@op("Slice", since=10)
def slice_(c: Context) -> Results:
    params = [c.maybe_vector(c.opt(i)) for i in range(1, 5)]
    return c.make("dyn_slice", c.x(), *params)


@op("Split")
def split(c: Context) -> Results:
    x = c.x()
    axis = c.axis(c.int_("axis", 0), x.type.rank)
    given = c.ints("split")
    sizes = c.i64(given) if given is not None else c.maybe_vector(c.opt(1), c.outputs)
    count = c.int_("num_outputs", c.outputs)
    if sizes is not None:
        known = c.known(sizes)
        if known is None:
            return c.node("dyn_split", x, sizes, axis=axis).outputs
        pieces: list[Dim] = list(known.flat)
        if len(pieces) != c.outputs:
            raise Refusal(f"split names {len(pieces)} sizes for {c.outputs} outputs")
    else:
        if count != c.outputs or count < 1:
            raise Refusal(f"num_outputs is {count}, but the node has {c.outputs} outputs")
        pieces = _even_pieces(x.shape[axis], count, exact=c.version < 18)
    return c.node("split", x, sizes=tuple(pieces), axis=axis).outputs


def _even_pieces(extent: Dim, count: int, exact: bool) -> list[Dim]:
    """Equal pieces; the last may be smaller where the operator's version allows it."""
    if isinstance(extent, int) and extent % count and exact:
        raise Refusal(f"an extent of {extent} does not split evenly into {count} outputs")
    if exact:
        return [floordiv(extent, count)] * count
    piece = floordiv(extent + (count - 1), count)
    last = extent - piece * (count - 1)
    if isinstance(last, int) and last < 0:
        raise Refusal(f"an extent of {extent} does not split into {count} outputs of {piece}")
    return [piece] * (count - 1) + [last]


@op("Tile")
def tile(c: Context) -> Results:
    return c.make("dyn_tile", c.x(), c.vector(c.x(1)))


@op("Pad")
def pad(c: Context) -> Results:
    pads = _listed(c, 1, "pads")
    if pads is None:
        raise Refusal("its pads are missing")
    x = c.x()
    value, axes = c.opt(2), c.opt(3)
    if c.version < 11:
        value = c.scalar(c.float_("value", 0.0), x)
    elif value is not None and value.type.rank == 1:
        value = c.make("reshape", value, shape=())
    mode = c.str_("mode", "constant")
    if mode not in ("constant", "reflect", "edge", "wrap"):
        raise Refusal(f"mode '{mode}' is not supported, only constant, reflect, edge and wrap")
    widths = c.known_ints(pads)
    if widths is not None and (mode == "wrap" or min(widths, default=0) < 0):
        x, widths = _cut(c, x, widths, c.known_ints(axes) if axes is not None else None)
        pads, axes = c.i64(widths), None
    if mode == "wrap":
        if widths is None:
            raise Refusal("wrap padding needs pads that are known when the model is loaded")
        return _wrap(c, x, widths)
    return c.make("dyn_pad", x, pads, value, c.maybe_vector(axes), mode=mode)


def _cut(c: Context, x: Value, widths: list[int], axes: list[int] | None) -> tuple[Value, list[int]]:
    """Negative pads as a slice; what is left, for every axis."""
    rank = x.type.rank
    listed = list(range(rank)) if axes is None else [c.axis(a, rank) for a in axes]
    if len(widths) != 2 * len(listed):
        raise Refusal(f"{len(widths)} pads do not fit {len(listed)} axes")
    lo, hi = [0] * rank, [0] * rank
    for i, a in enumerate(listed):
        lo[a], hi[a] = widths[i], widths[len(listed) + i]
    end = np.iinfo(np.int64).max
    starts = [min(max(-v, 0), end) for v in lo]
    stops = [min(v, 0) or end for v in hi]
    cut = c.make("dyn_slice", x, c.i64(starts), c.i64(stops))
    return cut, [max(v, 0) for v in lo + hi]


def _wrap(c: Context, x: Value, widths: list[int]) -> Value:
    rank = x.type.rank
    for axis in range(rank):
        lo, hi = widths[axis], widths[rank + axis]
        if lo or hi:
            extent = c.static_dims([x.shape[axis]], "the extent of an axis padded by wrapping")[0]
            if extent == 0 or lo + hi + extent > 1 << 20:
                raise Refusal(f"an axis of extent {extent} cannot be wrapped by {lo} and {hi}")
            x = c.make("gather", x, c.i64(np.arange(-lo, extent + hi) % extent), axis=axis)
    return x


# gather and scatter ---------------------------------------------------------------------------------------------------


@op("Gather")
def gather(c: Context) -> Results:
    return c.make("gather", c.x(0), c.x(1), axis=c.axis(c.int_("axis", 0), c.x().type.rank))


@op("GatherElements")
def gather_elements(c: Context) -> Results:
    return c.make("gather_elements", c.x(0), c.x(1), axis=c.axis(c.int_("axis", 0), c.x().type.rank))


@op("GatherND")
def gather_nd(c: Context) -> Results:
    return c.make("gather_nd", c.x(0), c.x(1), batch_dims=c.int_("batch_dims", 0))


def _combine(c: Context) -> str:
    reduction = c.str_("reduction", "none")
    if reduction not in ("none", "add", "mul", "max", "min"):
        raise Refusal(f"reduction '{reduction}' is not supported")
    return reduction


@op("Scatter", "ScatterElements")
def scatter_elements(c: Context) -> Results:
    axis = c.axis(c.int_("axis", 0), c.x().type.rank)
    return c.make("scatter_elements", c.x(0), c.x(1), c.x(2), axis=axis, reduction=_combine(c))


@op("ScatterND")
def scatter_nd(c: Context) -> Results:
    return c.make("scatter_nd", c.x(0), c.x(1), c.x(2), reduction=_combine(c))


@op("Compress")
def compress(c: Context) -> Results:
    known = c.known(c.x(1))
    if known is None:
        raise Refusal("the condition must be known when the model is loaded: the result's size depends on it")
    keep = np.flatnonzero(known.reshape(-1).astype(bool))
    x = c.x()
    axis = c.attr("axis")
    if axis is None:
        return c.make("gather", c.make("reshape", x, shape=(product(x.shape),)), c.i64(keep), axis=0)
    return c.make("gather", x, c.i64(keep), axis=c.axis(int(axis), x.type.rank))


@op("ReverseSequence")
def reverse_sequence(c: Context) -> Results:
    """The first `length` steps of each sequence backwards: a gather whose indices follow from the lengths."""
    x, batch, time = c.x(), c.int_("batch_axis", 1), c.int_("time_axis", 0)
    if {batch, time} != {0, 1} or x.type.rank < 2:
        raise Refusal(f"batch_axis and time_axis must be 0 and 1, not {batch} and {time}")
    rest = (1,) * (x.type.rank - 2)
    across = (x.shape[0], 1) if batch == 0 else (1, x.shape[1])
    lengths = c.make("reshape", c.cast(c.x(1), i64), shape=(*across, *rest))
    step = c.make("iota", shape=(*x.shape[:2], *rest), axis=time, dtype=i64)
    back = c.make("sub", c.make("sub", lengths, c.i64(1)), step)
    index = c.make("where", c.make("lt", step, lengths), back, step)
    return c.make("gather_elements", x, c.make("broadcast", index, shape=x.shape), axis=time)


# filled tensors -------------------------------------------------------------------------------------------------------


@op("ConstantOfShape")
def constant_of_shape(c: Context) -> Results:
    given = c.attr("value")
    value = np.zeros((), np.float32) if given is None else c.tensor(given)
    if value.size != 1:
        raise Refusal(f"its value must have one element, not {value.size}")
    return c.make("dyn_full", c.vector(c.x()), c.const(value.reshape(())))


@op("Range")
def range_(c: Context) -> Results:
    c.ignore("stash_type")
    scalars = [c.make("reshape", v, shape=()) if v.type.rank else v for v in (c.x(0), c.x(1), c.x(2))]
    return c.make("dyn_range", *scalars)


@op("EyeLike")
def eye_like(c: Context) -> Results:
    x = c.x()
    if x.type.rank != 2:
        raise Refusal(f"its operand must have rank 2, not {x.type.rank}")
    dtype = dtype_of(c.int_("dtype")) if c.has("dtype") else x.dtype
    row = c.make("iota", shape=x.shape, axis=0, dtype=i64)
    column = c.make("iota", shape=x.shape, axis=1, dtype=i64)
    return c.cast(c.make("eq", c.make("add", row, c.const(c.int_("k", 0), i64)), column), dtype)


@op("OneHot")
def one_hot(c: Context) -> Results:
    found = c.known(c.x(1))
    if found is None or found.size != 1 or isinstance(found.reshape(-1)[0], DimExpr):
        raise Refusal("the depth must be known when the model is loaded")
    indices = c.cast(c.x(0), i64)
    axis, rank = c.int_("axis", -1), indices.type.rank + 1
    return c.make("one_hot", indices, c.x(2), depth=int(found.reshape(-1)[0]), axis=c.axis(axis, rank))


@op("Trilu")
def trilu(c: Context) -> Results:
    k = c.need_int(1, "the diagonal k") if c.opt(1) is not None else 0
    return c.make("trilu", c.x(), upper=bool(c.int_("upper", 1)), k=k)


@op("DepthToSpace")
def depth_to_space(c: Context) -> Results:
    mode = c.str_("mode", "DCR")
    if mode not in ("DCR", "CRD"):
        raise Refusal(f"mode must be DCR or CRD, not '{mode}'")
    return c.make("depth_to_space", c.x(), block=c.int_("blocksize"), mode=mode.lower())


@op("SpaceToDepth")
def space_to_depth(c: Context) -> Results:
    mode, x, b = c.str_("mode", "DCR"), c.x(), c.int_("blocksize")
    if mode == "DCR":
        return c.make("space_to_depth", x, block=b)
    if mode != "CRD":
        raise Refusal(f"mode must be DCR or CRD, not '{mode}'")
    if x.type.rank != 4 or b < 1:
        raise Refusal("it needs an operand of rank 4 and a positive blocksize")
    n, ch, h, w = x.shape
    split = c.make("reshape", x, shape=(n, ch, floordiv(h, b), b, floordiv(w, b), b))
    moved = c.make("transpose", split, perm=(0, 1, 3, 5, 2, 4))
    return c.make("reshape", moved, shape=(n, ch * (b * b), floordiv(h, b), floordiv(w, b)))
