"""Operators of the kernel language on whatever values meet: tiles, indices, sizes and Python numbers."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from ..errors import DTypeError, TilewrightError
from ..ir.tile import build
from ..ir.tile.core import FLOAT_ONLY, Node, Shape, TileOf, const_value
from ..ir.types import DType, bool_, f32, i64
from .context import Context, has_dim, is_size
from .values import Index, InTensor, Method, OutTensor, describe

BINARY: dict[type[ast.operator], tuple[str, str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("add", "+", operator.add), ast.Sub: ("sub", "-", operator.sub), ast.Mult: ("mul", "*", operator.mul),
    ast.Div: ("div", "/", operator.truediv), ast.FloorDiv: ("floordiv", "//", operator.floordiv),
    ast.Mod: ("mod", "%", operator.mod), ast.Pow: ("pow", "**", operator.pow),
    ast.BitAnd: ("and", "&", operator.and_), ast.BitOr: ("or", "|", operator.or_),
    ast.BitXor: ("xor", "^", operator.xor), ast.LShift: ("shl", "<<", operator.lshift),
    ast.RShift: ("shr", ">>", operator.rshift),
}
COMPARE: dict[type[ast.cmpop], tuple[str, str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("eq", "==", operator.eq), ast.NotEq: ("ne", "!=", operator.ne), ast.Lt: ("lt", "<", operator.lt),
    ast.LtE: ("le", "<=", operator.le), ast.Gt: ("gt", ">", operator.gt), ast.GtE: ("ge", ">=", operator.ge),
}
_STATIC = (bool, int, float, str, tuple, DType, type(None))


def is_static(x: Any) -> bool:
    return isinstance(x, _STATIC)


def weak(x: Any) -> bool:
    """Takes the other operand's element type: a Python number, or arithmetic on dims."""
    return isinstance(x, bool | int | float) or (isinstance(x, Node) and is_size(x) and has_dim(x))


def plain(n: Node) -> Any:
    """An integer scalar that folded to a number is a Python number again."""
    return int(n.attr("value")) if n.op == "const" and n.dtype == i64 else n


# ---------------------------------------------------------------------------------------------- lifting


def literal(ctx: Context, value: Any, dtype: DType) -> Node:
    """A Python number as a constant of an element type; it must be one of that type's values."""
    if isinstance(value, bool):
        if not dtype.is_bool:
            raise DTypeError(f"{value} is bool and does not mix with {dtype}", loc=ctx.loc, hint=f"write {int(value)}")
    elif isinstance(value, float):
        if not dtype.is_float:
            raise DTypeError(f"the number {value} does not mix with {dtype}", loc=ctx.loc,
                             hint="cast the tile to a float type first: .to(tw.f32)")
    elif dtype.is_bool:
        raise DTypeError(f"the number {value} does not mix with bool", loc=ctx.loc,
                         hint="write True or False, or cast the tile: .to(tw.i32)")
    elif dtype.is_int:
        half = 1 << (dtype.bits - 1)
        if not (-half <= value < half if dtype.kind == "i" else 0 <= value < 2 * half):
            raise DTypeError(f"{value} does not fit {dtype}", loc=ctx.loc)
    return build.const(value, dtype, ctx.loc)


def recast(ctx: Context, n: Node, dtype: DType) -> Node:
    """Arithmetic on dims, done in another element type."""
    if n.dtype == dtype:
        return n
    if n.dtype == i64 or n.op in ("const", "cast"):
        return build.cast(n.args[0] if n.op == "cast" else n, dtype, ctx.loc)
    return build.map(n.attr("fn"), *(recast(ctx, a, dtype) for a in n.args), loc=ctx.loc)


def default_dtype(x: Any) -> DType:
    """The element type of a number that meets no tile: f32 for floats, i64 for ints, bool for bools."""
    return bool_ if isinstance(x, bool) else f32 if isinstance(x, float) else i64


def tile(ctx: Context, x: Any, dtype: DType | None = None) -> Node:
    """x as a node; numbers and sizes take `dtype`, if one is given."""
    match x:
        case Node():
            return recast(ctx, x, dtype) if dtype is not None and weak(x) and dtype != x.dtype else x
        case Index():
            return x.node
        case bool() | int() | float():
            return literal(ctx, x, dtype or default_dtype(x))
        case InTensor():
            ctx.fail(f"the tensor '{x.param.name}' is used without an index",
                     hint=f"load a tile first: {x.param.name}[{', '.join('ijklmnop'[: max(1, x.param.rank)])}]")
        case OutTensor():
            ctx.fail(f"the output '{x.name}' cannot be read",
                     hint="what is made before the loops is an output, and outputs are write-only: make a sum or a "
                          "maximum inside the outermost loop, and store it once")
        case Method():
            ctx.fail(f"the method {x.intrinsic.__name__} is not called", hint=f"write .{x.intrinsic.__name__}(...)")
        case _:
            ctx.fail(f"{describe(x)} cannot be used in arithmetic")


def tiles(ctx: Context, *xs: Any, floats: bool = False) -> list[Node]:
    """Operands of one function: numbers take the element type of the tiles among them."""
    strong = [tile(ctx, x) for x in xs if not weak(x)]
    if strong:
        dtype = strong[0].dtype
    elif floats or any(isinstance(x, float) or (isinstance(x, Node) and x.dtype.is_float) for x in xs):
        dtype = f32
    else:
        dtype = default_dtype(next((x for x in xs if isinstance(x, bool)), 0))
    return [tile(ctx, x, dtype) for x in xs]


# ---------------------------------------------------------------------------------------------- application


def apply(ctx: Context, fn: str, *xs: Any) -> Any:
    """A scalar function of Tile IR over values, after broadcasting."""
    if any(isinstance(x, Index) for x in xs):
        found = _outward(ctx, fn, xs)
        if found is not None:
            return found
    nodes = tiles(ctx, *xs, floats=fn in FLOAT_ONLY)
    if fn == "div" and nodes[0].dtype.is_int and all(weak(x) for x in xs):
        nodes = [recast(ctx, n, f32) for n in nodes]
    out = build.elementwise(fn, *nodes, loc=ctx.loc)
    return plain(out) if all(weak(x) for x in xs) else out


def _outward(ctx: Context, fn: str, xs: tuple[Any, ...]) -> Any:
    """Arithmetic on tile indices: loop variables combine outwards, q*6 + k is a tile (q, k)."""
    nodes = []
    for x in xs:
        if isinstance(x, Node) and (x.shape or not x.dtype.is_int):
            ctx.fail(f"a tile index meets {describe(x)}", hint="write i.index for its coordinates as an ordinary tile")
        nodes.append(tile(ctx, x, i64))
    axes: list[TileOf] = []
    for n in nodes:
        axes.extend(e for e in n.shape if isinstance(e, TileOf) and e not in axes)
    shape: Shape = tuple(axes)
    placed = [build.broadcast(build.cast(n, i64), shape, _places(ctx, n, axes), ctx.loc) if n.shape
              else build.cast(n, i64) for n in nodes]
    out = build.map(fn, *placed, loc=ctx.loc) if not _is_neutral(fn, placed) else placed[0]
    return Index(out) if out.dtype == i64 else out


def _places(ctx: Context, n: Node, axes: list[TileOf]) -> tuple[int, ...]:
    places = tuple(axes.index(e) for e in n.shape if isinstance(e, TileOf))
    if list(places) != sorted(places):
        ctx.fail("tile indices meet in two different orders",
                 hint="write the loop variables in one order, e.g. q*6 + k")
    return places


def _is_neutral(fn: str, nodes: list[Node]) -> bool:
    """x + 0 and x * 1 are x, so that unrolled loops do not leave arithmetic behind."""
    value = const_value(nodes[1]) if len(nodes) == 2 else None
    return value is not None and ((fn in ("add", "sub") and value == 0) or (fn in ("mul", "floordiv") and value == 1))


def static(ctx: Context, sign: str, fn: Callable[..., Any], *xs: Any) -> Any:
    try:
        return fn(*xs)
    except TilewrightError:
        raise
    except Exception as e:
        ctx.fail(f"{' and '.join(map(describe, xs))} under '{sign}': {e}")


def binary(ctx: Context, op: type[ast.operator], a: Any, b: Any) -> Any:
    fn, sign, python = BINARY[op]
    if is_static(a) and is_static(b):
        return static(ctx, sign, python, a, b)
    for x in (a, b):
        if isinstance(x, str | tuple | DType | None):
            ctx.fail(f"{describe(a)} and {describe(b)} do not combine under '{sign}'")
    if fn == "pow":
        return power(ctx, a, b)
    if fn == "add":
        fused = _accumulate(ctx, a, b)
        if fused is not None:
            return fused
    if fn == "div" and not (weak(a) and weak(b)):
        whole = next((x for x in (a, b) if not weak(x) and tile(ctx, x).dtype.is_int), None)
        if whole is not None:
            raise DTypeError(f"'/' is for floats, not for {describe(whole)}", loc=ctx.loc,
                             hint="write // for whole quotients, or cast first: .to(tw.f32)")
    if fn in ("mod", "floordiv") and not weak(a) and tile(ctx, a).dtype.is_bool:
        ctx.fail(f"'{sign}' does not work on bool")
    return apply(ctx, fn, a, b)


def _accumulate(ctx: Context, a: Any, b: Any) -> Node | None:
    """acc + dot(x, y) accumulates in place when acc is itself an accumulator."""
    for acc, product in ((a, b), (b, a)):
        if (isinstance(product, Node) and product.op == "dot" and isinstance(acc, Node) and acc.type == product.type
                and (acc.op in ("carried", "dot", "result") or _is_zero(acc)) and _is_zero(product.args[0])):
            return build.dot(acc, product.args[1], product.args[2], ctx.loc)
    return None


def _is_zero(n: Node) -> bool:
    return n.op == "broadcast" and const_value(n.args[0]) == 0


def compare(ctx: Context, op: type[ast.cmpop], a: Any, b: Any) -> Any:
    fn, sign, python = COMPARE[op]
    if is_static(a) and is_static(b):
        return static(ctx, sign, python, a, b)
    if isinstance(a, Node) and isinstance(b, Node) and a is b and is_size(a):
        return python(0, 0)  # one spelling per size: the same node is the same number
    return apply(ctx, fn, a, b)


def power(ctx: Context, a: Any, b: Any) -> Any:
    """x ** y; small whole powers become multiplications."""
    if isinstance(b, Node) or weak(a) and not isinstance(a, Node):
        return apply(ctx, "pow", a, b)
    base = tile(ctx, a)
    if isinstance(b, float) and weak(base) and base.dtype == i64:
        base = recast(ctx, base, f32)
    match b:
        case 0.5:
            return apply(ctx, "sqrt", base)
        case -0.5:
            return apply(ctx, "rsqrt", base)
        case float() if b.is_integer() and abs(b) <= 16 or isinstance(b, int):
            b = int(b)
    if not isinstance(b, int) or isinstance(b, bool) or (abs(b) > 16 and base.dtype.is_float):
        return apply(ctx, "pow", base, b)
    if b < 0:
        if not base.dtype.is_float:
            ctx.fail(f"a negative power of {describe(a)}", hint="cast it to a float type first: .to(tw.f32)")
        return apply(ctx, "recip", power(ctx, base, -b))
    out: Node | None = None
    square, left = base, b
    while left:
        if left & 1:
            out = square if out is None else build.map("mul", out, square, loc=ctx.loc)
        left >>= 1
        if left:
            square = build.map("mul", square, square, loc=ctx.loc)
    return plain(out) if out is not None else build.splat(literal(ctx, 1, base.dtype), base.shape)


def unary(ctx: Context, op: ast.unaryop, x: Any) -> Any:
    if is_static(x):
        table: dict[type[ast.unaryop], Callable[[Any], Any]] = {
            ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Invert: operator.invert, ast.Not: operator.not_}
        return static(ctx, type(op).__name__, table[type(op)], x)
    match op:
        case ast.USub():
            if isinstance(x, Index) or weak(x) and tile(ctx, x).dtype == i64:
                return apply(ctx, "mul", x, -1)
            return apply(ctx, "neg", x)
        case ast.UAdd():
            return tile(ctx, x)
        case ast.Invert():
            return apply(ctx, "not", x)
        case _:
            return apply(ctx, "not", condition(ctx, x))


def condition(ctx: Context, x: Any, node: ast.AST | None = None) -> Any:
    """A static value's truth, or a bool scalar."""
    if is_static(x):
        return bool(x)
    n = tile(ctx, x)
    if n.shape:
        ctx.fail(f"{describe(n)} is no single truth value", node, "choose element by element with tw.where(cond, a, b)")
    if not n.dtype.is_bool:
        ctx.fail(f"{describe(n)} is used as a condition", node, "compare it with something, e.g. x != 0")
    return n
