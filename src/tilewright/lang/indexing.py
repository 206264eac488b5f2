"""Subscripts: tiles of tensors (loads and stores), and parts of tiles (t[:, None])."""

from __future__ import annotations

from typing import Any

from ..errors import ShapeError
from ..ir.tile import build
from ..ir.tile.core import Node, Static, TensorParam
from ..ir.types import i64
from .context import Context, is_size
from .operators import plain, tile
from .values import Index, InTensor, OutTensor, describe


def tensor_index(ctx: Context, p: TensorParam, index: Any) -> tuple[Node, ...]:
    """One index node per dim of the tensor."""
    items = _flat(index)
    if Ellipsis in [i for i in items if not isinstance(i, Node | Index)]:
        at = next(k for k, i in enumerate(items) if i is Ellipsis)
        items[at:at + 1] = [slice(None)] * (p.rank - len(items) + 1)
    if len(items) != p.rank:
        hint = None
        if len(items) < p.rank:
            hint = f"write every axis: {p.name}[{', '.join(['i'] * len(items) + [':'] * (p.rank - len(items)))}]"
        raise ShapeError(f"'{p.name}' has {p.rank} dims and is indexed with {len(items)}", loc=ctx.loc, hint=hint)
    return tuple(_one(ctx, p, d, i) for d, i in enumerate(items))


def _flat(index: Any) -> list[Any]:
    out: list[Any] = []
    for i in index if isinstance(index, tuple) else (index,):
        out.extend(_flat(i) if isinstance(i, tuple) else [i])
    return out


def _one(ctx: Context, p: TensorParam, d: int, i: Any) -> Node:
    match i:
        case Index():
            return i.node
        case None:
            ctx.fail(f"'{p.name}' is indexed with None", hint="load the tile first, then place it: x[i, j][:, None]")
        case bool() | float():
            ctx.fail(f"index {d} of '{p.name}' is {describe(i)}, not a position")
        case int():
            if i < 0:
                ctx.fail(f"index {d} of '{p.name}' is negative: {i}",
                         hint=f"count from the end with the dim: {p.name}.shape[{d}] - {-i}")
            return build.const(i, i64)
        case Node():
            if not i.dtype.is_int:
                ctx.fail(f"index {d} of '{p.name}' is {describe(i)}, not an integer",
                         hint="select with tw.where" if i.dtype.is_bool else "cast it: .to(tw.i64)")
            return i
        case slice():
            return _slice(ctx, p, d, i)
        case _:
            ctx.fail(f"index {d} of '{p.name}' is {describe(i)}")


def _slice(ctx: Context, p: TensorParam, d: int, s: slice) -> Node:
    size = p.dims[d]
    step = 1 if s.step is None else ctx.as_int(s.step, "the step of a slice")
    if step < 1:
        ctx.fail(f"the step of a slice is {step}", hint="steps are positive; reverse by an index tile")
    ends: list[Node] = []
    for end, default in ((s.start, build.const(0, i64)), (s.stop, size)):
        if end is None:
            ends.append(default)
        elif isinstance(end, Node) and not is_size(end) or not isinstance(end, int | Node):
            ctx.fail(f"the slice of '{p.name}' ends at {describe(end)}",
                     hint="slices take ints and dims; use a loop variable for a moving tile")
        elif isinstance(end, int) and end < 0:
            ctx.fail(f"the slice of '{p.name}' counts from the end: {end}", hint=f"write {p.name}.shape[{d}] - {-end}")
        else:
            ends.append(tile(ctx, end, i64))
    start, stop = ends
    count = build.isub(stop, start)
    if step > 1:
        count = build.ifloordiv(build.iadd(count, build.const(step - 1, i64)), build.const(step, i64))
    value = plain(count)
    if isinstance(value, int) and value < 0:
        ctx.fail(f"the slice of '{p.name}' has {value} elements")
    out = build.iota(build.extent_of(count), ctx.loc)
    if step > 1:
        out = build.map("mul", out, build.const(step, i64), loc=ctx.loc)
    return out if plain(start) == 0 else build.map("add", out, start, loc=ctx.loc)


def load_tile(ctx: Context, x: InTensor, index: Any, fill: int | float | bool = 0) -> Node:
    return build.load(x.param, tensor_index(ctx, x.param, index), fill, ctx.loc)


def stored_index(ctx: Context, out: OutTensor, index: Any) -> tuple[Node, ...]:
    return tensor_index(ctx, out.param, index)


# ---------------------------------------------------------------------------------------------- parts of tiles


def tile_part(ctx: Context, x: Node, index: Any) -> Node:
    """t[:, None], t[..., None], t[0], t[2:4] (numbers and ranges on static axes only)."""
    items = list(index) if isinstance(index, tuple) else [index]
    used = sum(i is not None and i is not Ellipsis for i in items)
    if used > len(x.shape):
        raise ShapeError(f"the {build.tile_text(x)} is indexed with {used} axes", loc=ctx.loc)
    at = next((k for k, i in enumerate(items) if i is Ellipsis), None)
    rest = [slice(None)] * (len(x.shape) - used)
    items[len(items) if at is None else at: len(items) if at is None else at + 1] = rest
    part = _select(ctx, x, [i for i in items if i is not None])
    numbers = [isinstance(i, int) for i in items if i is not None]
    for d in reversed([d for d, number in enumerate(numbers) if number]):
        part = build.fold(part, d, "max", ctx.loc)  # an axis of one element
    kept = [i for i in items if not isinstance(i, int)]
    if None not in kept:
        return part
    places = tuple(k for k, i in enumerate(kept) if i is not None)
    extents = iter(part.shape)
    shape = tuple(Static(1) if i is None else next(extents) for i in kept)
    return build.broadcast(part, shape, places, ctx.loc)


def _select(ctx: Context, x: Node, items: list[Any]) -> Node:
    parts: list[tuple[int, int | None, int]] = []
    for d, i in enumerate(items):
        if isinstance(i, slice) and i == slice(None):
            parts.append((0, None, 1))
            continue
        extent = x.shape[d]
        if isinstance(i, bool) or not isinstance(i, int | slice):
            ctx.fail(f"a tile is indexed with {describe(i)}",
                     hint="tiles take ':', None, numbers and ranges; gather from a tensor instead: x[idx, j]")
        if not isinstance(extent, Static):
            raise ShapeError(f"axis {extent} of the {build.tile_text(x)} has no static size to take part of",
                             loc=ctx.loc, hint="index the tensor instead of the tile")
        if isinstance(i, int):
            place = i + extent.size if i < 0 else i
            if not 0 <= place < extent.size:
                raise ShapeError(f"position {i} is outside axis {d} of the {build.tile_text(x)}", loc=ctx.loc)
            span = range(place, place + 1)
        else:
            span = range(extent.size)[i]
        parts.append((span.start, len(span), span.step))
    if all(size is None for _, size, _ in parts):
        return x
    starts, sizes, steps = zip(*parts, strict=True)
    return build.slice(x, starts, sizes, steps, ctx.loc)
