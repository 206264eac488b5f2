"""Integer expressions over dims as plain data, so that finished code can be called without the IR it came from.

A size is a number, the name of a dim (or of an integer parameter), or [operator, size, ...]; JSON keeps it as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import UnsupportedError

if TYPE_CHECKING:
    from ..ir.scheduled.core import Expr
    from ..ir.tile.core import Node

Size: TypeAlias = "int | str | list[Any]"

_OPERATORS: dict[str, Callable[..., int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floordiv": lambda a, b: a // b,
    "mod": lambda a, b: a % b,
    "min": min,
    "max": max,
    "neg": lambda a: -a,
    "abs": abs,
    "eq": lambda a, b: int(a == b),
    "ne": lambda a, b: int(a != b),
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "gt": lambda a, b: int(a > b),
    "ge": lambda a, b: int(a >= b),
    "where": lambda c, a, b: a if c else b,
}


def evaluate(size: Size, values: Mapping[str, int]) -> int:
    if isinstance(size, int):
        return size
    if isinstance(size, str):
        return values[size]
    return int(_OPERATORS[size[0]](*(evaluate(s, values) for s in size[1:])))


def text(size: Size) -> str:
    """As people write it."""
    if not isinstance(size, list):
        return str(size)
    sign = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}.get(size[0])
    parts = [text(s) for s in size[1:]]
    return f"({parts[0]} {sign} {parts[1]})" if sign else f"{size[0]}({', '.join(parts)})"


def of_node(node: Node) -> Size:
    """The size that an i64 scalar of Tile IR stands for."""
    match node.op:
        case "const":
            return int(node.attr("value"))
        case "dim" | "param":
            return str(node.attr("name"))
        case "map" if node.attr("fn") in _OPERATORS:
            return [str(node.attr("fn")), *(of_node(a) for a in node.args)]
        case "cast":
            return of_node(node.args[0])
    raise UnsupportedError(f"the size of an output cannot be computed from '{node.op}'", loc=node.loc)


def of_expr(e: Expr | int) -> Size:
    """The size that an i64 expression of Scheduled IR stands for. A stride is named `tensor.axis`."""
    if isinstance(e, int):
        return e
    match e.op:
        case "const":
            return int(e.attr)
        case "dim" | "param":
            return str(e.attr)
        case "stride":
            return stride_name(*e.attr)
        case "cast":
            return of_expr(e.args[0])
        case op if op in _OPERATORS:
            return [op, *(of_expr(a) for a in e.args)]
    raise UnsupportedError(f"the size of a scratch buffer cannot be computed from '{e.op}'")


def stride_name(tensor: str, axis: int) -> str:
    return f"{tensor}.{axis}"
