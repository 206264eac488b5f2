"""Integer scalars of Tile IR: dims, offsets and trip counts, folded and normalised as they are built.

One spelling per value: constants stand last, never negative, never nested; so equal sizes are one node.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...errors import ShapeError
from ..types import Loc, i64
from .core import Node, TileType, const, const_value, make, scalar_text


def _isum(base: Node, offset: int, loc: Loc | None) -> Node:
    """base + offset in its one spelling: no nested constants, never a negative one."""
    if base.op == "map" and base.attr("fn") in ("add", "sub") and not base.shape:
        inner = const_value(base.args[1])
        if inner is not None:
            offset += int(inner) if base.attr("fn") == "add" else -int(inner)
            base = base.args[0]
    if offset == 0:
        return base
    fn = "add" if offset > 0 else "sub"
    return make("map", (base, const(abs(offset), i64)), TileType(i64), loc, fn=fn)


def _int(fn: str, a: Node, b: Node, loc: Loc | None) -> Node:
    return make("map", (a, b), TileType(i64), loc, fn=fn)


def _both(a: Node, b: Node, fn: Callable[[int, int], int]) -> Node | None:
    x, y = const_value(a), const_value(b)
    return None if x is None or y is None else const(fn(int(x), int(y)), i64)


def iadd(a: Node, b: Node, loc: Loc | None = None) -> Node:
    if const_value(a) is not None:
        a, b = b, a
    value = const_value(b)
    if value is not None:
        return const(int(const_value(a) or 0) + int(value), i64) if a.op == "const" else _isum(a, int(value), loc)
    if b.op == "map" and b.attr("fn") in ("add", "sub") and (inner := const_value(b.args[1])) is not None:
        offset = int(inner) if b.attr("fn") == "add" else -int(inner)
        return _isum(iadd(a, b.args[0], loc), offset, loc)
    if a.op == "map" and a.attr("fn") in ("add", "sub"):
        if (inner := const_value(a.args[1])) is not None:
            offset = int(inner) if a.attr("fn") == "add" else -int(inner)
            return _isum(iadd(a.args[0], b, loc), offset, loc)
        if a.attr("fn") == "sub" and a.args[1] is b:
            return a.args[0]
    return _int("add", a, b, loc)


def isub(a: Node, b: Node, loc: Loc | None = None) -> Node:
    if a is b:
        return const(0, i64)
    value = const_value(b)
    if value is not None:
        return iadd(a, const(-int(value), i64), loc)
    if a.op == "map" and a.attr("fn") == "add" and b in a.args:
        return a.args[1] if a.args[0] is b else a.args[0]
    if a.op == "map" and a.attr("fn") in ("add", "sub") and (inner := const_value(a.args[1])) is not None:
        return _isum(isub(a.args[0], b, loc), int(inner) if a.attr("fn") == "add" else -int(inner), loc)
    return _int("sub", a, b, loc)


def imul(a: Node, b: Node, loc: Loc | None = None) -> Node:
    if const_value(a) is not None:
        a, b = b, a
    if (folded := _both(a, b, lambda x, y: x * y)) is not None:
        return folded
    match const_value(b):
        case 0:
            return b
        case 1:
            return a
        case _:
            return _int("mul", a, b, loc)


def ifloordiv(a: Node, b: Node, loc: Loc | None = None) -> Node:
    if const_value(b) == 0:
        raise ShapeError(f"division of {scalar_text(a)} by zero", loc=loc)
    if const_value(b) == 1:
        return a
    return _both(a, b, lambda x, y: x // y) or _int("floordiv", a, b, loc)


def imod(a: Node, b: Node, loc: Loc | None = None) -> Node:
    if const_value(b) == 0:
        raise ShapeError(f"remainder of {scalar_text(a)} by zero", loc=loc)
    if const_value(b) == 1:
        return const(0, i64)
    return _both(a, b, lambda x, y: x % y) or _int("mod", a, b, loc)


def imin(a: Node, b: Node, loc: Loc | None = None) -> Node:
    return a if a is b else _both(a, b, min) or _int("min", a, b, loc)


def imax(a: Node, b: Node, loc: Loc | None = None) -> Node:
    return a if a is b else _both(a, b, max) or _int("max", a, b, loc)


INTEGER_FNS: Mapping[str, Callable[[Node, Node, Loc | None], Node]] = {
    "add": iadd, "sub": isub, "mul": imul, "floordiv": ifloordiv, "mod": imod, "min": imin, "max": imax,
}
