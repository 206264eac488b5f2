"""Making and reshaping tiles and outputs, loads with a fill value, scatters, random numbers."""

from __future__ import annotations

from typing import Any

from ..errors import DTypeError, ShapeError
from ..ir.tile import build
from ..ir.tile.core import Extent, Full, Node, Shape, Static, TileOf
from ..ir.types import DType, i64
from .context import Context, is_size
from .dims import Dim
from .elementwise import handler
from .indexing import load_tile, stored_index
from .operators import tile
from .values import Index, InTensor, OutTensor, describe


def shape_of(ctx: Context, shape: Any) -> Shape:
    """Extents from what users write in a shape: loop variables, dims, ints, extents of other tiles."""
    items = shape if isinstance(shape, tuple) else (shape,)
    out: list[Extent] = []
    for item in items:
        match item:
            case Index(axis=axis) if axis is not None:
                out.append(TileOf(axis))
            case Static() | Full() | TileOf():
                out.append(item)
            case Dim():
                out.append(build.extent_of(ctx.size(item)))
            case Node() if is_size(item) and item.dtype == i64:
                out.append(build.extent_of(item))
            case bool():
                ctx.fail(f"{describe(item)} is no size")
            case int():
                if item < 0:
                    raise ShapeError(f"a size cannot be negative: {item}", loc=ctx.loc)
                out.append(Static(item))
            case _:
                ctx.fail(f"{describe(item)} is no size", hint="write loop variables, dims or ints: (i, K, 4)")
    return tuple(out)


def _dtype(ctx: Context, dtype: Any, name: str) -> DType:
    if not isinstance(dtype, DType):
        what = "no dtype" if dtype is None else describe(dtype)
        ctx.fail(f"{name} got {what} where its dtype should be", hint=f"write {name}((i, j), tw.f32) or x.dtype")
    return dtype


def _output(ctx: Context, shape: Shape, dtype: DType, start: str) -> OutTensor:
    dims = []
    for e in shape:
        size = build.extent_size(e)
        assert size is not None
        dims.append(size)
    out = OutTensor(dtype, tuple(dims), start, ctx.loc)
    ctx.outputs.append(out)
    return out


def _made(ctx: Context, shape: Any, dtype: Any, value: Any, name: str) -> Any:
    kind = _dtype(ctx, dtype, name)
    extents = shape_of(ctx, shape)
    if not ctx.at_top:
        return build.splat(tile(ctx, value, kind), extents, ctx.loc)
    start = "zeros" if not isinstance(value, Node) and value == 0 else "full"
    out = _output(ctx, extents, kind, start)
    if start == "full":
        ctx.pending_fills.append((out, tile(ctx, value, kind)))
    return out


@handler
def empty(ctx: Context, shape: Any, dtype: Any = None) -> Any:
    if not ctx.at_top:
        ctx.fail("empty makes an output tensor and stands before the loops",
                 hint="inside loops write tw.zeros or tw.full")
    return _output(ctx, shape_of(ctx, shape), _dtype(ctx, dtype, "empty"), "empty")


@handler
def zeros(ctx: Context, shape: Any, dtype: Any = None) -> Any:
    return _made(ctx, shape, dtype, 0 if not (isinstance(dtype, DType) and dtype.is_bool) else False, "zeros")


@handler
def full(ctx: Context, shape: Any, value: Any, dtype: Any = None) -> Any:
    if dtype is None and isinstance(value, Node):
        dtype = value.dtype
    return _made(ctx, shape, dtype, value, "full")


@handler
def empty_like(ctx: Context, x: Any, dtype: Any = None) -> Any:
    if not isinstance(x, InTensor):
        ctx.fail(f"empty_like takes a tensor, not {describe(x)}")
    return empty(ctx, x.param.dims, dtype or x.param.dtype)


@handler
def zeros_like(ctx: Context, x: Any, dtype: Any = None) -> Any:
    if isinstance(x, InTensor):
        return zeros(ctx, x.param.dims, dtype or x.param.dtype)
    n = tile(ctx, x)
    return zeros(ctx, n.shape, dtype or n.dtype)


@handler
def arange(ctx: Context, n: Any) -> Node:
    (extent,) = shape_of(ctx, n)
    if isinstance(extent, TileOf):
        ctx.fail("arange takes a size", hint="the coordinates of a loop variable are i.index")
    return build.iota(extent, ctx.loc)


# ---------------------------------------------------------------------------------------------- shape


@handler
def transpose(ctx: Context, x: Any, *axes: Any) -> Node:
    n = tile(ctx, x)
    if len(axes) == 1 and isinstance(axes[0], tuple):
        axes = axes[0]
    perm = tuple(ctx.as_int(a, "an axis of transpose") for a in axes) or tuple(reversed(range(len(n.shape))))
    return build.transpose(n, perm, ctx.loc)


@handler
def reshape(ctx: Context, x: Any, *shape: Any) -> Node:
    if len(shape) == 1 and isinstance(shape[0], tuple):
        shape = shape[0]
    return build.reshape(tile(ctx, x), shape_of(ctx, shape), ctx.loc)


@handler
def broadcast_to(ctx: Context, x: Any, shape: Any) -> Node:
    return build.broadcast_to(tile(ctx, x), shape_of(ctx, shape), ctx.loc)


# ---------------------------------------------------------------------------------------------- memory and random


@handler
def load(ctx: Context, x: Any, *index: Any, fill: Any = 0) -> Node:
    if not isinstance(x, InTensor):
        ctx.fail(f"load takes a tensor, not {describe(x)}")
    if not isinstance(fill, bool | int | float):
        ctx.fail(f"fill must be a number known at compile time, not {describe(fill)}")
    if isinstance(fill, float) and not x.param.dtype.is_float:
        raise DTypeError(f"fill {fill} does not fit '{x.param.name}', which holds {x.param.dtype}", loc=ctx.loc)
    return load_tile(ctx, x, index, fill)


@handler
def scatter_add(ctx: Context, out: Any, *args: Any, deterministic: Any = True) -> None:
    if not isinstance(out, OutTensor):
        ctx.fail(f"scatter_add adds into an output, not into {describe(out)}")
    if out.start != "zeros":
        ctx.fail(f"scatter_add adds into '{out.name}', which does not start from zero",
                 hint=f"make it with tw.zeros instead of tw.{out.start}")
    if ctx.at_top:
        ctx.fail("scatter_add stands outside every loop", hint="put it into a loop over tw.tiles or tw.indices")
    if len(args) < 1:
        ctx.fail("scatter_add needs an index and a value", hint="scatter_add(out, i, j, value)")
    *index, value = args
    places = stored_index(ctx, out, tuple(index))
    node = build.scatter(out.param, places, tile(ctx, value, out.dtype), "sum", bool(deterministic), ctx.loc)
    out.written = True
    ctx.effects.append(node)


def _random(ctx: Context, seed: Any, counter: Any, kind: str) -> Node:
    return build.rng(build.cast(tile(ctx, seed, i64), i64), build.cast(tile(ctx, counter, i64), i64), kind, ctx.loc)


@handler
def random_bits(ctx: Context, seed: Any, counter: Any) -> Node:
    return _random(ctx, seed, counter, "u32")


@handler
def random_uniform(ctx: Context, seed: Any, counter: Any) -> Node:
    return _random(ctx, seed, counter, "uniform")
