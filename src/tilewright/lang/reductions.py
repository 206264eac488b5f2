"""Reductions, scans and matrix products of the kernel language."""

from __future__ import annotations

from typing import Any

from ..errors import DTypeError, ShapeError
from ..ir.tile import build
from ..ir.tile.core import Node, Static, TileOf
from ..ir.types import DType, accumulator, i32
from .context import Context
from .elementwise import handler
from .operators import apply, recast, tile
from .values import describe


def _axes(ctx: Context, x: Node, axis: Any, name: str) -> tuple[int, ...]:
    rank = len(x.shape)
    if axis is None:
        return tuple(range(rank))
    out = []
    for a in axis if isinstance(axis, tuple) else (axis,):
        a = ctx.as_int(a, f"the axis of {name}")
        if not -rank <= a < rank:
            raise ShapeError(f"{name}: axis {a} does not exist in the {build.tile_text(x)}", loc=ctx.loc)
        out.append(a % rank)
    if len(set(out)) != len(out):
        raise ShapeError(f"{name}: axis {axis} names one axis twice", loc=ctx.loc)
    return tuple(sorted(out))


def _keep(ctx: Context, out: Node, x: Node, axes: tuple[int, ...], keepdims: Any) -> Node:
    if not keepdims:
        return out
    shape = tuple(Static(1) if d in axes else e for d, e in enumerate(x.shape))
    return build.broadcast(out, shape, tuple(d for d in range(len(shape)) if d not in axes), ctx.loc)


def _reduce(ctx: Context, x: Any, axis: Any, monoid: str, keepdims: Any) -> Node:
    x = tile(ctx, x)
    axes = _axes(ctx, x, axis, monoid)
    out = x
    for a in reversed(axes):
        out = build.fold(out, a, monoid, ctx.loc)
    return _keep(ctx, out, x, axes, keepdims)


def _widen(ctx: Context, x: Any, dtype: Any, name: str) -> tuple[Node, DType]:
    """The tile in the type it is summed in, and the type of the result."""
    x = tile(ctx, x)
    if dtype is not None and not isinstance(dtype, DType):
        ctx.fail(f"dtype of {name} must be a dtype, not {describe(dtype)}")
    if x.dtype.is_bool:
        return build.cast(x, dtype or i32, ctx.loc), dtype or i32
    wide = accumulator(dtype or x.dtype)
    if wide.is_float != x.dtype.is_float and not wide.is_float:
        raise DTypeError(f"{name} of {describe(x)} in {dtype}", loc=ctx.loc, hint="cast the tile explicitly first")
    return build.cast(x, wide, ctx.loc), dtype or (x.dtype if x.dtype.is_float else wide)


@handler
def sum_(ctx: Context, x: Any, axis: Any = None, keepdims: Any = False, dtype: Any = None) -> Node:
    wide, out = _widen(ctx, x, dtype, "sum")
    return build.cast(_reduce(ctx, wide, axis, "sum", keepdims), out, ctx.loc)


@handler
def prod(ctx: Context, x: Any, axis: Any = None, keepdims: Any = False, dtype: Any = None) -> Node:
    wide, out = _widen(ctx, x, dtype, "prod")
    return build.cast(_reduce(ctx, wide, axis, "prod", keepdims), out, ctx.loc)


@handler
def mean(ctx: Context, x: Any, axis: Any = None, keepdims: Any = False, dtype: Any = None) -> Node:
    x = tile(ctx, x)
    if not x.dtype.is_float and not (isinstance(dtype, DType) and dtype.is_float):
        raise DTypeError(f"mean of {describe(x)}", loc=ctx.loc, hint="cast first, .to(tw.f32), or give dtype=tw.f32")
    count: Any = 1
    for a in _axes(ctx, x, axis, "mean"):
        size = build.extent_size(x.shape[a])
        if size is None:
            raise ShapeError(
                f"mean over axis {x.shape[a]} of the {build.tile_text(x)}: how many elements a tile has belongs to the "
                "schedule", loc=ctx.loc, hint="take the whole axis, x[i, :], or divide a sum by the dim")
        count = build.imul(build.const(count, size.dtype) if isinstance(count, int) else count, size)
    wide, out = _widen(ctx, x, dtype, "mean")
    total = _reduce(ctx, wide, axis, "sum", keepdims)
    if isinstance(count, int):
        return build.cast(total, out, ctx.loc)
    divisor = recast(ctx, count, total.dtype)
    return build.cast(build.elementwise("div", total, divisor, loc=ctx.loc), out, ctx.loc)


@handler
def max_(ctx: Context, x: Any, axis: Any = None, keepdims: Any = False) -> Node:
    return _reduce(ctx, x, axis, "max", keepdims)


@handler
def min_(ctx: Context, x: Any, axis: Any = None, keepdims: Any = False) -> Node:
    return _reduce(ctx, x, axis, "min", keepdims)


@handler
def any_(ctx: Context, x: Any, axis: Any = None, keepdims: Any = False) -> Node:
    return _reduce(ctx, x, axis, "any", keepdims)


@handler
def all_(ctx: Context, x: Any, axis: Any = None, keepdims: Any = False) -> Node:
    return _reduce(ctx, x, axis, "all", keepdims)


def _arg(ctx: Context, x: Any, axis: Any, kind: str, keepdims: Any) -> Node:
    x = tile(ctx, x)
    if axis is None and len(x.shape) == 1:
        axis = 0
    if axis is None or isinstance(axis, tuple):
        ctx.fail(f"{kind} needs one axis", hint=f"write {kind}(x, axis)")
    (a,) = _axes(ctx, x, axis, kind)
    if isinstance(x.shape[a], TileOf):
        raise ShapeError(
            f"{kind} over axis {x.shape[a]} of the {build.tile_text(x)}: positions in a tile depend on the schedule",
            loc=ctx.loc, hint="take the whole axis, x[i, :]")
    return _keep(ctx, build.argfold(x, a, kind, loc=ctx.loc), x, (a,), keepdims)


@handler
def argmax(ctx: Context, x: Any, axis: Any = None, keepdims: Any = False) -> Node:
    return _arg(ctx, x, axis, "argmax", keepdims)


@handler
def argmin(ctx: Context, x: Any, axis: Any = None, keepdims: Any = False) -> Node:
    return _arg(ctx, x, axis, "argmin", keepdims)


def _scan(ctx: Context, x: Any, axis: Any, monoid: str, reverse: Any, exclusive: Any) -> Node:
    wide, out = _widen(ctx, x, None, f"cumulative {monoid}")
    if axis is None and len(wide.shape) != 1:
        ctx.fail(f"the cumulative {monoid} of {describe(wide)} needs an axis")
    (a,) = _axes(ctx, wide, 0 if axis is None else axis, f"cumulative {monoid}")
    return build.cast(build.scan(wide, a, monoid, bool(reverse), bool(exclusive), ctx.loc), out, ctx.loc)


@handler
def cumsum(ctx: Context, x: Any, axis: Any = None, reverse: Any = False, exclusive: Any = False) -> Node:
    return _scan(ctx, x, axis, "sum", reverse, exclusive)


@handler
def cumprod(ctx: Context, x: Any, axis: Any = None, reverse: Any = False, exclusive: Any = False) -> Node:
    return _scan(ctx, x, axis, "prod", reverse, exclusive)


@handler
def dot(ctx: Context, a: Any, b: Any, acc: Any = None, dtype: Any = None) -> Any:
    a, b = tile(ctx, a), tile(ctx, b)
    if acc is not None and dtype is not None:
        ctx.fail("dot takes acc or dtype, not both", hint="the accumulator's dtype is the result's")
    if dtype is not None and not isinstance(dtype, DType):
        ctx.fail(f"dtype of dot must be a dtype, not {describe(dtype)}")
    if a.dtype.is_bool:
        raise DTypeError(f"dot of {describe(a)}", loc=ctx.loc, hint="cast first: .to(tw.i8)")
    kind = acc.dtype if isinstance(acc, Node) else dtype or accumulator(a.dtype)
    if len(b.shape) == 1 and a.shape:
        return _dot_vector(ctx, a, b, acc, kind)
    if not a.shape or len(b.shape) != 2:
        raise ShapeError(f"dot of the {build.tile_text(a)} and the {build.tile_text(b)}", loc=ctx.loc,
                         hint="the first is (.., k), the second (k, n) or (k,)")
    shape = (*a.shape[:-1], b.shape[1])
    start = build.splat(tile(ctx, 0 if acc is None else acc, kind), shape, ctx.loc)
    return build.dot(start, a, b, ctx.loc)


def _dot_vector(ctx: Context, a: Node, b: Node, acc: Any, kind: DType) -> Any:
    """(.., k) times (k,): products, then a sum."""
    if not build.same_extent(a.shape[-1], b.shape[0]):
        raise ShapeError(f"dot: tile {build.shape_text(a.shape)} does not fit tile {build.shape_text(b.shape)}",
                         loc=ctx.loc)
    if a.dtype != b.dtype:
        raise DTypeError(f"dot: {describe(a)} and {describe(b)} have different element types", loc=ctx.loc)
    product = build.elementwise("mul", build.cast(a, kind), build.cast(b, kind), loc=ctx.loc)
    total = build.fold(product, len(a.shape) - 1, "sum", ctx.loc)
    return total if acc is None else apply(ctx, "add", acc, total)
