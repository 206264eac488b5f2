"""The value of an integer expression of Scheduled IR, where it follows from dims, strides and loop variables."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .core import Expr, IntLike, Var

_FNS: Mapping[str, Callable[..., int]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "min": min, "max": max,
    "floordiv": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0, "neg": lambda a: -a,
    "abs": abs, "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b,
    "where": lambda c, a, b: a if c else b,
}


def evaluate(
    root: IntLike, dims: Mapping[str, int], variables: Mapping[Var, int | None] | None = None,
    strides: Mapping[tuple[str, int], int] | None = None, scalars: Mapping[str, Any] | None = None,
) -> int | None:
    """The integer (of a bool: 0 or 1), or None when it depends on what is not given."""
    if isinstance(root, int):
        return root
    known: dict[Expr, int | None] = {}
    stack = [root]
    while stack:
        e = stack[-1]
        if e in known:
            stack.pop()
            continue
        missing = [a for a in e.args if a not in known]
        if missing:
            stack.extend(missing)
            continue
        known[stack.pop()] = _one(e, [known[a] for a in e.args], dims, variables or {}, strides or {}, scalars or {})
    return known[root]


def _one(
    e: Expr, args: list[int | None], dims: Mapping[str, int], variables: Mapping[Var, int | None],
    strides: Mapping[tuple[str, int], int], scalars: Mapping[str, Any],
) -> int | None:
    match e.op:
        case "const":
            return int(e.attr) if not e.dtype.is_float else None
        case "dim":
            return dims.get(e.attr)
        case "var":
            return variables.get(e.attr)
        case "stride":
            return strides.get(e.attr)
        case "param":
            return int(scalars[e.attr]) if e.attr in scalars and not e.dtype.is_float else None
    values = [a for a in args if a is not None]
    if e.op not in _FNS or len(values) < len(args):
        return None
    return int(_FNS[e.op](*values))
