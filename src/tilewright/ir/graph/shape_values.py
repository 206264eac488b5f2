"""What is known about small integer tensors that are computed from shapes.

Models compute shapes with ordinary ops: `shape_of`, gathers, concatenations, products. `known_dims` follows those
and gives such a tensor's value as an array of dims (ints, or expressions over the input's symbols), so that a
`dyn_reshape` under a symbolic batch gets an exact type and becomes a static `reshape`.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from .core import Node, Value
from .dims import DimExpr, compare, differ, dim_max, dim_min, floordiv, mod, product

Array: TypeAlias = np.ndarray[Any, Any]
LIMIT = 256
_memo: weakref.WeakKeyDictionary[Node, Array | None] = weakref.WeakKeyDictionary()


def known_dims(value: Value) -> Array | None:
    """The value as an array (dtype object) of ints, dims or bools, or None where it is not known from shapes alone."""
    if value.index != 0 or not _could_be_known(value.node):
        return None
    if value.node in _memo:
        return _memo[value.node]
    stack = [value.node]
    while stack:
        node = stack[-1]
        wanted = [] if node.op in ("shape_of", "size_of") else [v.node for v in node.inputs if v is not None]
        missing = [n for n in wanted if n not in _memo] if _could_be_known(node) else []
        if missing:
            stack += missing
            continue
        stack.pop()
        if node not in _memo:
            _memo[node] = _evaluate(node)
    return _memo[value.node]


def _could_be_known(node: Node) -> bool:
    t = node.types[0]
    return (
        (t.dtype.is_int or t.dtype.is_bool)
        and (node.op in _RULES or node.op in ("constant", "shape_of", "size_of"))
        and t.is_static
        and math.prod(t.static_shape) <= LIMIT
    )


def _evaluate(node: Node) -> Array | None:
    t = node.types[0]
    if not _could_be_known(node):
        return None
    if node.op == "constant":
        return node.out().constant.astype(object)
    if node.op == "shape_of":
        return _objects(list(_operand(node, 0).shape))
    if node.op == "size_of":
        return _objects(product(_operand(node, 0).shape))
    rule = _RULES[node.op]
    operands: list[Any] = []
    for v in node.inputs:
        known = None if v is None else _memo.get(v.node) if v.index == 0 else None
        if v is not None and known is None:
            return None
        operands.append(known)
    try:
        out = rule(node, operands)
    except (ValueError, IndexError, ZeroDivisionError, TypeError, OverflowError):
        return None
    if out is None:
        return None
    result = np.asarray(out, dtype=object)
    return result if result.shape == t.static_shape and _whole(result, node) else None


def _whole(result: Array, node: Node) -> bool:
    """Everything in it is known, and fits the element type."""
    dtype = node.types[0].dtype
    for x in result.flat:
        if x is None:
            return False
        if dtype.is_bool and not isinstance(x, bool):
            return False
        if isinstance(x, int) and dtype.is_int:
            info = np.iinfo(dtype.numpy)
            if not info.min <= x <= info.max:
                return False
    return True


def _operand(node: Node, index: int) -> Value:
    v = node.inputs[index]
    assert v is not None
    return v


def _objects(x: Any) -> Array:
    out = np.empty((len(x),) if isinstance(x, list) else (), dtype=object)
    out[...] = x
    return out


def _each(fn: Callable[..., Any], outputs: int = 1) -> Callable[[Node, list[Any]], Array]:
    def rule(_: Node, xs: list[Any]) -> Array:
        return np.asarray(np.frompyfunc(fn, len(xs), outputs)(*xs), dtype=object)

    return rule


def _div(a: Any, b: Any) -> Any:
    """Division toward zero, where the signs are known."""
    if isinstance(a, int) and isinstance(b, int):
        return None if b == 0 else (abs(a) // abs(b)) * (1 if (a < 0) == (b < 0) else -1)
    return floordiv(a, b) if compare(a, 0) in (0, 1) and compare(b, 1) in (0, 1) else None


def _floordiv(a: Any, b: Any) -> Any:
    return None if b == 0 else floordiv(a, b)


def _mod(a: Any, b: Any) -> Any:
    return None if isinstance(b, int) and b == 0 else mod(a, b)


def _eq(a: Any, b: Any) -> Any:
    return True if a == b else False if differ(a, b) else None


def _lt(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    if compare(a, b) == -1 and differ(a, b):
        return True
    return False if compare(a, b) in (0, 1) else None


def _not(x: Any) -> Any:
    return None if x is None else not x


def _and(a: Any, b: Any) -> Any:
    return a and b if isinstance(a, bool) else None


def _or(a: Any, b: Any) -> Any:
    return a or b if isinstance(a, bool) else None


def _where(c: Any, a: Any, b: Any) -> Any:
    return a if c is True else b if c is False else None


def _cast(node: Node, xs: list[Any]) -> Array | None:
    if node.types[0].dtype.is_bool:
        return _each(lambda x: x if isinstance(x, bool) else _not(_eq(x, 0)))(node, xs)
    return _each(lambda x: int(x) if isinstance(x, bool) else x)(node, xs)


def _slice(node: Node, xs: list[Any]) -> Array | None:
    out = xs[0]
    keys: list[slice] = []
    for start, stop, step in zip(node.attr("starts"), node.attr("stops"), node.attr("steps"), strict=True):
        if isinstance(start, DimExpr) or isinstance(stop, DimExpr):
            return None
        keys.append(slice(start, None if stop < 0 else stop, step))
    return np.asarray(out[tuple(keys)], dtype=object)


def _dyn_slice(node: Node, xs: list[Any]) -> Array | None:
    if any(isinstance(v, DimExpr) for x in xs[1:] if x is not None for v in x.flat):
        return None
    data, starts, ends, axes, steps = [*xs, None, None][:5]
    keys = [slice(None)] * data.ndim
    for i, (lo, hi) in enumerate(zip(starts, ends, strict=True)):
        axis = int(axes[i]) if axes is not None else i
        keys[axis] = slice(lo, hi, None if steps is None else steps[i])
        if steps is not None and steps[i] < 0 and hi < -data.shape[axis]:
            keys[axis] = slice(lo, None, steps[i])
    return np.asarray(data[tuple(keys)], dtype=object)


def _gather(node: Node, xs: list[Any]) -> Array | None:
    if any(isinstance(i, DimExpr) for i in xs[1].flat):
        return None
    return np.asarray(np.take(xs[0], xs[1].astype(np.int64), axis=node.attr("axis")), dtype=object)


def _static_shape(node: Node, xs: list[Any]) -> Array:
    return np.asarray(xs[0].reshape(node.types[0].static_shape), dtype=object)


def _prod(node: Node, xs: list[Any]) -> Array | None:
    return np.asarray(np.multiply.reduce(xs[0], axis=node.attr("axes"), keepdims=node.attr("keepdims")), dtype=object)


def _sum(node: Node, xs: list[Any]) -> Array | None:
    return np.asarray(np.add.reduce(xs[0], axis=node.attr("axes"), keepdims=node.attr("keepdims")), dtype=object)


def _broadcast(node: Node, xs: list[Any]) -> Array:
    return np.broadcast_to(xs[0], node.types[0].static_shape)


def _range(node: Node, xs: list[Any]) -> Array | None:
    lo, hi, step = (x.item() for x in xs)
    return np.arange(lo, hi, step).astype(object) if all(isinstance(v, int) for v in (lo, hi, step)) else None


_RULES: dict[str, Callable[[Node, list[Any]], Array | None]] = {
    "add": _each(lambda a, b: a + b),
    "sub": _each(lambda a, b: a - b),
    "mul": _each(lambda a, b: a * b),
    "neg": _each(lambda a: a * -1),
    "div": _each(_div),
    "floordiv": _each(_floordiv),
    "mod": _each(_mod),
    "max": _each(dim_max),
    "min": _each(dim_min),
    "eq": _each(_eq),
    "ne": _each(lambda a, b: _not(_eq(a, b))),
    "lt": _each(_lt),
    "gt": _each(lambda a, b: _lt(b, a)),
    "ge": _each(lambda a, b: _not(_lt(a, b))),
    "le": _each(lambda a, b: _not(_lt(b, a))),
    "logical_not": _each(_not),
    "and": _each(_and),
    "or": _each(_or),
    "where": _each(_where),
    "cast": _cast,
    "slice": _slice,
    "dyn_slice": _dyn_slice,
    "gather": _gather,
    "concat": lambda node, xs: np.concatenate(xs, axis=node.attr("axis")),
    "reshape": _static_shape,
    "dyn_reshape": lambda node, xs: _static_shape(node, xs[:1]),
    "dyn_squeeze": lambda node, xs: _static_shape(node, xs[:1]),
    "dyn_unsqueeze": lambda node, xs: _static_shape(node, xs[:1]),
    "transpose": lambda node, xs: np.transpose(xs[0], node.attr("perm")),
    "broadcast": _broadcast,
    "dyn_broadcast": lambda node, xs: _broadcast(node, xs[:1]),
    "dyn_full": lambda node, xs: np.broadcast_to(xs[1].reshape(()), node.types[0].static_shape),
    "dyn_range": _range,
    "iota": lambda node, xs: np.broadcast_to(
        np.arange(node.types[0].static_shape[node.attr("axis")])
        .astype(object)
        .reshape([-1 if i == node.attr("axis") else 1 for i in range(node.types[0].rank)]),
        node.types[0].static_shape,
    ),
    "reduce_prod": _prod,
    "reduce_sum": _sum,
}
