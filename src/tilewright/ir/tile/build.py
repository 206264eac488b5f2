"""Typed constructors of Tile IR: each checks its operands and infers the result's type.

`core.make` builds any node unchecked; everything that makes Tile IR from outside (the kernel language, the lowering of
graph regions, gradients) comes through here, so a wrong shape or element type is refused where it is written.
Integer scalars (dims, offsets, trip counts) fold and normalise as they are built, so that equal sizes are one node.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import DTypeError, ShapeError, VerifyError
from ..types import DType, Loc, bool_, f32, i64, u32
from .core import (
    FLOAT_ONLY,
    MONOIDS,
    SCALAR_FNS,
    Axis,
    Extent,
    Full,
    Kernel,
    Node,
    ScalarParam,
    Shape,
    Static,
    TensorParam,
    TileOf,
    TileType,
    carried,
    const,
    const_value,
    dim,
    make,
    scalar_text,
)
from .integers import INTEGER_FNS, iadd, ifloordiv, imax, imin, imod, imul, isub

__all__ = [
    "argfold", "broadcast", "broadcast_shapes", "broadcast_to", "carried", "cast", "const", "dim", "dot", "elementwise",
    "extent_of", "extent_size", "fold", "full", "iadd", "if_", "ifloordiv", "imax", "imin", "imod", "imul", "index",
    "iota", "isub", "kernel", "load", "loop", "map", "par", "param", "pos", "reshape", "result", "rng", "same_extent",
    "same_shape", "scan", "scatter", "shape_text", "slice", "splat", "store", "tile_text", "transpose",
]

# ---------------------------------------------------------------------------------------------- extents and their text


def extent_of(size: Node | int) -> Extent:
    """The whole of a size: `Static` when it is known, so that a known size has one spelling."""
    if isinstance(size, int):
        return Static(size)
    value = const_value(size)
    return Full(size) if value is None else Static(int(value))


def extent_size(e: Extent) -> Node | None:
    """The size as an i64 scalar; None for the tile of an axis, whose size only a schedule knows."""
    if isinstance(e, Static):
        return const(e.size, i64)
    return e.size if isinstance(e, Full) else None


def same_extent(a: Extent, b: Extent) -> bool:
    if a == b:
        return True
    if isinstance(a, TileOf) or isinstance(b, TileOf):
        return False
    return extent_size(a) is extent_size(b)


def same_shape(a: Shape, b: Shape) -> bool:
    return len(a) == len(b) and all(same_extent(x, y) for x, y in zip(a, b, strict=True))


def shape_text(shape: Shape) -> str:
    return "(" + ", ".join(str(e) for e in shape) + ("," if len(shape) == 1 else "") + ")"


def tile_text(x: Node) -> str:
    """How a message names a tile: `f32 tile (i, :K)`, or `i64 scalar`."""
    return f"{x.dtype} tile {shape_text(x.shape)}" if x.shape else f"{x.dtype} scalar"


def _misfit(a: Node, b: Node, loc: Loc | None, what: str, hint: str | None = None) -> ShapeError:
    return ShapeError(f"{what}: tile {shape_text(a.shape)} does not fit tile {shape_text(b.shape)}", loc=loc, hint=hint)


def _axis_of(x: Node, axis: int, loc: Loc | None, what: str) -> int:
    rank = len(x.shape)
    if not -rank <= axis < rank:
        raise ShapeError(f"{what}: axis {axis} does not exist in the {tile_text(x)}", loc=loc)
    return axis % rank


# ---------------------------------------------------------------------------------------------- leaves


def param(p: ScalarParam, loc: Loc | None = None) -> Node:
    return make("param", (), TileType(p.dtype), loc, name=p.name)


def pos(axis: Axis, loc: Loc | None = None) -> Node:
    if axis.kind == "tile":
        raise ShapeError(f"axis {axis} runs over tiles: it has coordinates, not one position", loc=loc)
    return make("pos", (), TileType(i64), loc, axis=axis)


def index(axis: Axis, loc: Loc | None = None) -> Node:
    if axis.kind != "tile":
        raise ShapeError(f"axis {axis} is a single position: it has no tile of coordinates", loc=loc)
    return make("index", (), TileType(i64, (TileOf(axis),)), loc, axis=axis)


def iota(extent: Extent, loc: Loc | None = None) -> Node:
    if isinstance(extent, TileOf):
        raise ShapeError(f"iota needs a known or whole extent, not the tile of axis {extent}", loc=loc)
    extent = extent_of(extent.size)
    return make("iota", (), TileType(i64, (extent,)), loc, extent=extent)


# ---------------------------------------------------------------------------------------------- elementwise


def _numbers(fn: str, xs: Sequence[Node], loc: Loc | None) -> DType:
    """Checks element types of a scalar function's operands; returns the result's."""
    arity, kind = SCALAR_FNS[fn]
    if len(xs) != arity:
        raise ShapeError(f"{fn} takes {arity} operands, not {len(xs)}", loc=loc)
    values = xs
    if fn == "where":
        if not xs[0].dtype.is_bool:
            raise DTypeError(f"the condition of where must be bool, not the {tile_text(xs[0])}", loc=loc)
        values = xs[1:]
    first = values[0].dtype
    for other in values[1:]:
        if other.dtype != first:
            raise DTypeError(
                f"{fn}: {tile_text(values[0])} and {tile_text(other)} have different element types", loc=loc,
                hint=f"there is no implicit promotion: write .to(tw.{first}) or .to(tw.{other.dtype}) on one of them")
    if fn in FLOAT_ONLY and not first.is_float:
        raise DTypeError(f"{fn} is for floats, not for the {tile_text(values[0])}", loc=loc,
                         hint="cast first, e.g. .to(tw.f32)")
    if fn in ("and", "or", "xor", "not") and first.is_float:
        raise DTypeError(f"{fn} is for bool and integers, not for the {tile_text(values[0])}", loc=loc)
    if fn in ("shl", "shr") and not first.is_int:
        raise DTypeError(f"{fn} is for integers, not for the {tile_text(values[0])}", loc=loc)
    if first.is_bool and fn in ("add", "sub", "mul", "floordiv", "mod", "tdiv", "neg", "abs", "sign", "square"):
        raise DTypeError(f"{fn} is arithmetic, and the {tile_text(values[0])} is bool", loc=loc,
                         hint="cast first, e.g. .to(tw.i32), or use & | ^ ~")
    return bool_ if kind == "bool" else first


def map(fn: str, *xs: Node, loc: Loc | None = None) -> Node:
    """A scalar function over tiles of one shape; scalars among them are repeated."""
    if fn not in SCALAR_FNS:
        raise VerifyError(f"there is no scalar function '{fn}'", loc=loc)
    dtype = _numbers(fn, xs, loc)
    shape = max((x.shape for x in xs), key=len)
    for x in xs:
        if x.shape and not same_shape(x.shape, shape):
            other = next(y for y in xs if y.shape is shape)
            raise _misfit(x, other, loc, fn)
    if not shape and all(x.dtype == i64 for x in xs) and fn in INTEGER_FNS:
        return INTEGER_FNS[fn](xs[0], xs[1], loc)
    if fn == "neg" and (value := const_value(xs[0])) is not None:
        return const(-value, dtype, loc)
    sunk = _sink_ones(fn, xs, dtype, shape, loc)
    if sunk is not None:
        return sunk
    return make("map", [splat(x, shape, loc) for x in xs], TileType(dtype, shape), loc, fn=fn)


def _sink_ones(fn: str, xs: Sequence[Node], dtype: DType, shape: Shape, loc: Loc | None) -> Node | None:
    """f(x[:, None]) is f(x)[:, None]: axes of size one stay outermost, where the next broadcast absorbs them."""
    if not any(e == Static(1) for e in shape):
        return None
    tiles = [x for x in xs if x.shape]
    dims = tiles[0].attr("dims") if tiles[0].op == "broadcast" else None
    if not dims or any(x.op != "broadcast" or x.attr("dims") != dims for x in tiles):
        return None
    if any(e != Static(1) for d, e in enumerate(shape) if d not in dims):
        return None
    inner = tiles[0].args[0].shape
    if any(not same_shape(x.args[0].shape, inner) for x in tiles):
        return None
    return broadcast(map(fn, *(x.args[0] if x.shape else x for x in xs), loc=loc), shape, dims, loc)


def broadcast_shapes(fn: str, xs: Sequence[Node], loc: Loc | None = None) -> Shape:
    """NumPy's rule, right aligned: equal extents, or a size of one that repeats."""
    out: list[Extent] = []
    for x in xs:
        shape = list(x.shape)
        if len(shape) > len(out):
            out = shape[: len(shape) - len(out)] + out
        for back in range(1, len(shape) + 1):
            a, b = out[-back], shape[-back]
            if same_extent(a, b) or b == Static(1):
                continue
            if a != Static(1):
                other = next(y for y in xs if len(y.shape) >= back and same_extent(y.shape[-back], a))
                hint = None
                if len(x.shape) != len(other.shape) and min(len(x.shape), len(other.shape)) == 1:
                    hint = "tiles are aligned at their last axes: write t[:, None] to place a tile along the rows"
                raise _misfit(other, x, loc, fn, hint)
            out[-back] = b
    return tuple(out)


def elementwise(fn: str, *xs: Node, loc: Loc | None = None) -> Node:
    """`map` after broadcasting the operands as NumPy does."""
    if not any(x.shape for x in xs):
        return map(fn, *xs, loc=loc)
    shape = broadcast_shapes(fn, xs, loc)
    return map(fn, *(broadcast_to(x, shape, loc) if x.shape else x for x in xs), loc=loc)


def cast(x: Node, dtype: DType, loc: Loc | None = None) -> Node:
    if x.dtype == dtype:
        return x
    value = const_value(x)
    if value is not None and (dtype.is_float or (dtype.is_int and x.dtype.is_int and _fits(int(value), dtype))):
        return const(value, dtype, loc)
    return make("cast", (x,), TileType(dtype, x.shape), loc, dtype=dtype)


def _fits(value: int, dtype: DType) -> bool:
    half = 1 << (dtype.bits - 1)
    return -half <= value < half if dtype.kind == "i" else 0 <= value < 2 * half


# ---------------------------------------------------------------------------------------------- shape


def broadcast(x: Node, shape: Shape, dims: Sequence[int], loc: Loc | None = None) -> Node:
    """Axis d of x becomes axis dims[d] of the result (an axis of size one may stretch); the other axes repeat x."""
    dims = tuple(dims)
    if len(dims) != len(x.shape) or list(dims) != sorted(set(dims)) or any(not 0 <= d < len(shape) for d in dims):
        raise ShapeError(f"broadcast of a {tile_text(x)} to {shape_text(shape)}: axes {dims} do not place it", loc=loc)
    for d, e in zip(dims, x.shape, strict=True):
        if e != Static(1) and not same_extent(e, shape[d]):
            raise ShapeError(f"tile {shape_text(x.shape)} does not fit tile {shape_text(shape)}", loc=loc)
    if x.op == "broadcast":
        inner = x.attr("dims")
        kept = tuple(dims[d] for d in inner)
        if all(same_extent(e, shape[k]) or e == Static(1) for e, k in zip(x.args[0].shape, kept, strict=True)):
            return broadcast(x.args[0], shape, kept, loc)
    if same_shape(x.shape, shape):
        return x
    return make("broadcast", (x,), TileType(x.dtype, shape), loc, shape=shape, dims=dims)


def broadcast_to(x: Node, shape: Shape, loc: Loc | None = None) -> Node:
    """Right-aligned, as NumPy's broadcast_to."""
    if len(x.shape) > len(shape):
        raise ShapeError(f"tile {shape_text(x.shape)} does not fit tile {shape_text(shape)}", loc=loc)
    offset = len(shape) - len(x.shape)
    return broadcast(x, shape, tuple(range(offset, len(shape))), loc)


def splat(x: Node, shape: Shape, loc: Loc | None = None) -> Node:
    """A scalar repeated over a shape; a tile that already has the shape is itself."""
    return x if x.shape or not shape else broadcast(x, shape, (), loc)


def full(shape: Shape, value: int | float | bool, dtype: DType, loc: Loc | None = None) -> Node:
    return splat(const(value, dtype), shape, loc)


def transpose(x: Node, perm: Sequence[int], loc: Loc | None = None) -> Node:
    perm = tuple(_axis_of(x, p, loc, "transpose") for p in perm)
    if sorted(perm) != list(range(len(x.shape))):
        raise ShapeError(f"transpose of the {tile_text(x)}: {perm} is not an order of its axes", loc=loc)
    if perm == tuple(range(len(perm))):
        return x
    if x.op == "transpose":
        inner = x.attr("perm")
        return transpose(x.args[0], tuple(inner[p] for p in perm), loc)
    if x.op == "broadcast" and not x.args[0].shape:
        return splat(x.args[0], tuple(x.shape[p] for p in perm), loc)
    return make("transpose", (x,), TileType(x.dtype, tuple(x.shape[p] for p in perm)), loc, perm=perm)


def reshape(x: Node, shape: Shape, loc: Loc | None = None) -> Node:
    """Same elements in row-major order. Tile axes may only keep their place (sizes of one come and go)."""
    if same_shape(x.shape, shape):
        return x
    if any(isinstance(e, TileOf) for e in (*x.shape, *shape)):
        raise ShapeError(
            f"reshape of tile {shape_text(x.shape)} to {shape_text(shape)}: "
            "the size of a tile axis belongs to the schedule", loc=loc, hint="reshape only static or full (':') axes")
    before, after = _count(x.shape), _count(shape)
    if before is not after:
        raise ShapeError(
            f"reshape of tile {shape_text(x.shape)} ({scalar_text(before)} elements) to {shape_text(shape)} "
            f"({scalar_text(after)} elements)", loc=loc)
    if x.op == "broadcast" and not x.args[0].shape:
        return splat(x.args[0], shape, loc)
    if x.op == "reshape":
        return reshape(x.args[0], shape, loc)
    return make("reshape", (x,), TileType(x.dtype, shape), loc, shape=shape)


def _count(shape: Shape) -> Node:
    """Number of elements with factors in one fixed order, so that equal products are one node."""
    known, symbols = 1, []
    for e in shape:
        size = extent_size(e)
        assert size is not None
        value = const_value(size)
        if value is not None:
            known *= int(value)
        else:
            symbols.append(size)
    out = const(known, i64)
    for s in sorted(symbols, key=scalar_text):
        out = imul(out, s)
    return out


def slice(x: Node, starts: Sequence[int], sizes: Sequence[int | None], steps: Sequence[int],
          loc: Loc | None = None) -> Node:
    """Part of a tile. `sizes[d]` None keeps axis d whole; any other axis must have a static size."""
    rank = len(x.shape)
    if not len(starts) == len(sizes) == len(steps) == rank:
        raise ShapeError(f"slice of the {tile_text(x)} needs {rank} starts, sizes and steps", loc=loc)
    shape: list[Extent] = []
    for e, start, size, step in zip(x.shape, starts, sizes, steps, strict=True):
        if size is None:
            shape.append(e)
            continue
        if not isinstance(e, Static):
            raise ShapeError(f"slice of tile {shape_text(x.shape)}: axis {e} has no static size", loc=loc,
                             hint="index the tensor instead, or slice a static axis")
        if step == 0 or size < 0 or not (0 <= start < e.size and 0 <= start + (size - 1) * step < e.size) and size:
            raise ShapeError(f"slice of tile {shape_text(x.shape)}: {start}, {size} by {step} leaves the axis", loc=loc)
        shape.append(Static(size))
    if same_shape(tuple(shape), x.shape) and all(s == 0 or z is None for s, z in zip(starts, sizes, strict=True)):
        if all(step == 1 or z is None for step, z in zip(steps, sizes, strict=True)):
            return x
    return make("slice", (x,), TileType(x.dtype, tuple(shape)), loc,
                starts=tuple(starts), sizes=tuple(sizes), steps=tuple(steps))


# ---------------------------------------------------------------------------------------------- memory


def _indices(p: TensorParam, idx: Sequence[Node], loc: Loc | None) -> tuple[tuple[Node, ...], Shape]:
    if len(idx) != p.rank:
        raise ShapeError(f"'{p.name}' has {p.rank} dims and is indexed with {len(idx)}", loc=loc)
    shape: list[Extent] = []
    out: list[Node] = []
    for d, i in enumerate(idx):
        if not i.dtype.is_int:
            raise DTypeError(f"index {d} of '{p.name}' must be an integer, not a {tile_text(i)}", loc=loc)
        for e in i.shape:
            if isinstance(e, TileOf) and e in shape:
                raise ShapeError(f"axis {e} indexes two dims of '{p.name}'", loc=loc,
                                 hint="for one element per position, loop over single positions with tw.indices")
            shape.append(e)
        out.append(cast(i, i64, loc))
    return tuple(out), tuple(shape)


def load(p: TensorParam, idx: Sequence[Node], fill: int | float | bool = 0, loc: Loc | None = None) -> Node:
    """A tile of tensor p: one index (scalar or tile) per dim; outside the tensor it reads `fill`."""
    idx, shape = _indices(p, idx, loc)
    value = const(fill, p.dtype).attr("value")
    return make("load", idx, TileType(p.dtype, shape), loc, tensor=p.name, fill=value)


def _stored(p: TensorParam, idx: Sequence[Node], value: Node, loc: Loc | None) -> tuple[Node, ...]:
    if p.role == "in":
        raise ShapeError(f"'{p.name}' is an input and cannot be written", loc=loc)
    idx, shape = _indices(p, idx, loc)
    if value.dtype != p.dtype:
        raise DTypeError(f"'{p.name}' holds {p.dtype} and is given a {tile_text(value)}", loc=loc,
                         hint=f"write .to({p.name}.dtype) on the value")
    if len(value.shape) > len(shape):
        raise ShapeError(
            f"store to '{p.name}': tile {shape_text(value.shape)} does not fit tile {shape_text(shape)}", loc=loc)
    try:
        return (*idx, broadcast_to(value, shape, loc))
    except ShapeError as e:
        raise ShapeError(f"store to '{p.name}': {e.message}", loc=loc, hint=e.hint) from None


def store(p: TensorParam, idx: Sequence[Node], value: Node, loc: Loc | None = None) -> Node:
    return make("store", _stored(p, idx, value, loc), None, loc, tensor=p.name)


def scatter(p: TensorParam, idx: Sequence[Node], value: Node, monoid: str = "sum", deterministic: bool = True,
            loc: Loc | None = None) -> Node:
    if monoid not in ("sum", "max", "min", "prod"):
        raise VerifyError(f"there is no scatter by '{monoid}'", loc=loc)
    args = _stored(p, idx, value, loc)
    return make("scatter", args, None, loc, tensor=p.name, monoid=monoid, deterministic=deterministic)


# ---------------------------------------------------------------------------------------------- products and reductions


def dot(acc: Node, a: Node, b: Node, loc: Loc | None = None) -> Node:
    """acc[.., n] + sum over k of a[.., k] * b[k, n], in acc's element type."""
    if len(a.shape) < 1 or len(b.shape) != 2:
        raise ShapeError(
            f"dot of tile {shape_text(a.shape)} and tile {shape_text(b.shape)}: needs (.., k) and (k, n)", loc=loc)
    if not same_extent(a.shape[-1], b.shape[0]):
        raise ShapeError(
            f"dot: tile {shape_text(a.shape)} does not fit tile {shape_text(b.shape)}: the last axis of the first "
            f"({a.shape[-1]}) must be the first axis of the second ({b.shape[0]})", loc=loc)
    if a.dtype != b.dtype and not (a.dtype.bits == b.dtype.bits == 8 and a.dtype.is_int and b.dtype.is_int):
        raise DTypeError(f"dot: {tile_text(a)} and {tile_text(b)} have different element types", loc=loc,
                         hint=f"write .to(tw.{a.dtype}) or .to(tw.{b.dtype}) on one of them")
    if a.dtype.is_bool or a.dtype.is_float != acc.dtype.is_float or acc.dtype.bits < a.dtype.bits:
        raise DTypeError(f"dot of {a.dtype} cannot accumulate in {acc.dtype}", loc=loc)
    want = (*a.shape[:-1], b.shape[1])
    if not same_shape(acc.shape, want):
        raise ShapeError(
            f"dot: accumulator {shape_text(acc.shape)} does not fit the product {shape_text(want)}", loc=loc)
    return make("dot", (acc, a, b), acc.type, loc)


def _without(shape: Shape, axis: int) -> Shape:
    return shape[:axis] + shape[axis + 1:]


def fold(x: Node, axis: int, monoid: str, loc: Loc | None = None) -> Node:
    if monoid not in MONOIDS:
        raise VerifyError(f"there is no reduction '{monoid}'", loc=loc)
    axis = _axis_of(x, axis, loc, monoid)
    if (monoid in ("any", "all")) != x.dtype.is_bool and monoid not in ("max", "min"):
        want = "bool" if monoid in ("any", "all") else "numbers"
        raise DTypeError(f"{monoid} reduces {want}, not the {tile_text(x)}", loc=loc)
    return make("fold", (x,), TileType(x.dtype, _without(x.shape, axis)), loc, axis=axis, monoid=monoid)


def argfold(x: Node, axis: int, kind: str, last: bool = False, loc: Loc | None = None) -> Node:
    if kind not in ("argmax", "argmin"):
        raise VerifyError(f"there is no reduction '{kind}'", loc=loc)
    axis = _axis_of(x, axis, loc, kind)
    return make("argfold", (x,), TileType(i64, _without(x.shape, axis)), loc, axis=axis, kind=kind, last=last)


def scan(x: Node, axis: int, monoid: str, reverse: bool = False, exclusive: bool = False,
         loc: Loc | None = None) -> Node:
    if monoid not in ("sum", "prod", "max", "min"):
        raise VerifyError(f"there is no scan '{monoid}'", loc=loc)
    axis = _axis_of(x, axis, loc, f"cumulative {monoid}")
    if x.dtype.is_bool:
        raise DTypeError(f"cumulative {monoid} is for numbers, not the {tile_text(x)}", loc=loc)
    return make("scan", (x,), x.type, loc, axis=axis, monoid=monoid, reverse=reverse, exclusive=exclusive)


def rng(seed: Node, counter: Node, kind: str = "u32", loc: Loc | None = None) -> Node:
    """Counter-based random bits: the same seed and counter always give the same value."""
    if kind not in ("u32", "uniform"):
        raise VerifyError(f"there is no random kind '{kind}'", loc=loc)
    for what, x in (("seed", seed), ("counter", counter)):
        if x.dtype != i64:
            raise DTypeError(f"the {what} of rng must be i64, not a {tile_text(x)}", loc=loc)
    return make("rng", (seed, counter), TileType(u32 if kind == "u32" else f32, counter.shape), loc, kind=kind)


# ---------------------------------------------------------------------------------------------- structure


def _same_type(a: Node, b: Node) -> bool:
    return a.dtype == b.dtype and same_shape(a.shape, b.shape)


def loop(axis: Axis, inits: Sequence[Node], params: Sequence[Node], yields: Sequence[Node],
         effects: Sequence[Node] = (), start: Node | None = None, stop: Node | None = None,
         loc: Loc | None = None) -> Node:
    """An ordered loop; `params` are fresh `carried` leaves, `result(loop, k)` its k-th final value. `start` and `stop`
    (i64 scalars, in elements of the axis) narrow [0, extent)."""
    if not len(inits) == len(params) == len(yields):
        raise VerifyError(f"loop over {axis}: {len(inits)} inits, {len(params)} params, {len(yields)} yields", loc=loc)
    for init, p, y in zip(inits, params, yields, strict=True):
        if not (_same_type(init, p) and _same_type(p, y)):
            name = p.attr("name") or "a carried value"
            raise ShapeError(
                f"loop over {axis}: {name} starts as {tile_text(init)} and becomes {tile_text(y)}", loc=loc)
    return make("loop", inits, None, loc, axis=axis, params=tuple(params), yields=tuple(yields), effects=tuple(effects),
                start=start, stop=stop)


def if_(cond: Node, then_yields: Sequence[Node], else_yields: Sequence[Node], then_effects: Sequence[Node] = (),
        else_effects: Sequence[Node] = (), loc: Loc | None = None) -> Node:
    if cond.shape or not cond.dtype.is_bool:
        raise DTypeError(f"the condition of if must be a bool scalar, not a {tile_text(cond)}", loc=loc)
    if len(then_yields) != len(else_yields):
        raise VerifyError(f"if: branches yield {len(then_yields)} and {len(else_yields)} values", loc=loc)
    for a, b in zip(then_yields, else_yields, strict=True):
        if not _same_type(a, b):
            raise ShapeError(f"if: one branch gives a {tile_text(a)}, the other a {tile_text(b)}", loc=loc)
    return make("if", (cond,), None, loc, then_yields=tuple(then_yields), then_effects=tuple(then_effects),
                else_yields=tuple(else_yields), else_effects=tuple(else_effects))


def result(structure: Node, k: int) -> Node:
    """The k-th value of a loop or an if."""
    if structure.op not in ("loop", "if"):
        raise VerifyError(f"results belong to loop and if, not to {structure.op}", loc=structure.loc)
    values = structure.attr("yields") if structure.op == "loop" else structure.attr("then_yields")
    if not 0 <= k < len(values):
        raise VerifyError(f"{structure.op} has {len(values)} results, asked for {k}", loc=structure.loc)
    return make("result", (structure,), values[k].type, structure.loc, index=k)


def par(axes: Sequence[Axis], effects: Sequence[Node], loc: Loc | None = None) -> Node:
    return make("par", (), None, loc, axes=tuple(axes), effects=tuple(effects))


def kernel(name: str, params: Sequence[TensorParam | ScalarParam], effects: Sequence[Node],
           loc: Loc | None = None) -> Kernel:
    """Checks what belongs to the kernel as a whole: names, top-level structure, axes used inside their loops only."""
    names = [p.name for p in params]
    if len(set(names)) != len(names):
        raise VerifyError(f"kernel {name}: parameter names repeat: {names}", loc=loc)
    for e in effects:
        if e.op != "par":
            raise VerifyError(f"kernel {name}: only par stands at the top level, not {e.op}", loc=e.loc)
        if e.free:
            loose = ", ".join(sorted(str(f) if isinstance(f, Axis) else f"<{f.attr('name')}>" for f in e.free))
            raise VerifyError(f"kernel {name}: {loose} is used outside its loop", loc=e.loc)
    return Kernel(name, tuple(params), tuple(effects), loc)
