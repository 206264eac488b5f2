"""One spelling for each computation: identities removed, casts, reshapes, transposes and slices merged, arithmetic in
its cheapest exact form."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from ...ir.graph import build as b
from ...ir.graph.core import Graph, Node, Value
from ...ir.graph.spec import SPECS
from ...ir.types import DType
from .rewrite import Uses, constant_of, rewrite, scalar_of

_Rule = Callable[[Node], "Sequence[Value] | Value | None"]


def canonicalise(graph: Graph) -> Graph:
    return rewrite(graph, canonical_rule)


def canonical_rule(node: Node, _: Uses) -> Sequence[Value] | None:
    for rule in _RULES.get(node.op, ()):
        found = rule(node)
        if found is not None:
            return _same_type(node, [found] if isinstance(found, Value) else found)
    return _drop_broadcasts(node) if SPECS[node.op].elementwise else None


def _same_type(node: Node, found: Sequence[Value]) -> Sequence[Value] | None:
    """A replacement only where it keeps the type (a scalar operand may have been what gave the shape)."""
    return found if all(v.type == t for v, t in zip(found, node.types, strict=True)) else None


def _x(node: Node, index: int = 0) -> Value:
    v = node.inputs[index]
    assert v is not None
    return v


def _made_by(v: Value, op: str) -> Node | None:
    return v.node if v.node.op == op else None


# movement ---------------------------------------------------------------------------------------------------------


def _reshape(node: Node) -> Value | None:
    x, shape = _x(node), node.attr("shape")
    if x.shape == shape:
        return x
    inner = _made_by(x, "reshape")
    if inner is not None:
        return b.reshape(_x(inner), shape)
    return None


def _transpose(node: Node) -> Value | None:
    x, perm = _x(node), node.attr("perm")
    if perm == tuple(range(len(perm))):
        return x
    inner = _made_by(x, "transpose")
    if inner is not None:
        first = inner.attr("perm")
        return b.transpose(_x(inner), [first[p] for p in perm])
    moved = [p for p in perm if x.shape[p] != 1]
    if moved == sorted(moved):
        return b.reshape(x, [x.shape[p] for p in perm])
    return None


def _broadcast(node: Node) -> Value | None:
    x, shape = _x(node), node.attr("shape")
    if x.shape == shape:
        return x
    inner = _made_by(x, "broadcast")
    return b.broadcast(_x(inner), shape) if inner is not None else None


def _drop_broadcasts(node: Node) -> Sequence[Value] | None:
    """Elementwise ops broadcast by themselves."""
    for i, v in enumerate(node.inputs):
        if v is None or v.node.op != "broadcast":
            continue
        inputs = list(node.inputs)
        inputs[i] = _x(v.node)
        if [w for w in inputs if w is not None and w is not inputs[i]] or node.types[0].shape == inputs[i].shape:  # type: ignore[union-attr]
            again = b.rebuild(node, inputs)
            if again.types == node.types:
                return again.outputs
    return None


def _slice(node: Node) -> Value | None:
    x = _x(node)
    starts, stops, steps = node.attr("starts"), node.attr("stops"), node.attr("steps")
    if all(s == 0 for s in starts) and stops == x.shape and all(s == 1 for s in steps):
        return x
    inner = _made_by(x, "slice")
    if inner is not None and all(s == 1 for s in (*steps, *inner.attr("steps"))):
        return b.slice(
            _x(inner),
            [a + c for a, c in zip(inner.attr("starts"), starts, strict=True)],
            [a + c for a, c in zip(inner.attr("starts"), stops, strict=True)],
        )
    return None


def _pad(node: Node) -> Value | None:
    lo, hi = node.attr("lo"), node.attr("hi")
    if all(p == 0 for p in (*lo, *hi)):
        return _x(node)
    return None


def _concat(node: Node) -> Value | None:
    if len(node.inputs) == 1:
        return _x(node)
    axis = node.attr("axis")
    kept = [v for v in node.inputs if v is not None and v.shape[axis] != 0]
    if kept and len(kept) < len(node.inputs):
        return b.concat(kept, axis)
    if any(v.node.op == "concat" and v.node.attr("axis") == axis for v in kept):
        flat = [w for v in kept for w in (v.node.inputs if _joins(v, axis) else (v,)) if w is not None]
        return b.concat(flat, axis)
    return None


def _joins(v: Value, axis: int) -> bool:
    return v.node.op == "concat" and v.node.attr("axis") == axis


def _single(node: Node) -> Value | None:
    return _x(node) if len(node.types) == 1 and node.types[0] == _x(node).type else None


def _gather(node: Node) -> Value | None:
    """A run of constant indices is a slice."""
    x, axis, index = _x(node), node.attr("axis"), constant_of(node.inputs[1])
    extent = x.shape[axis]
    if index is None or not isinstance(extent, int) or index.size == 0 or index.ndim > 1:
        return None
    flat = np.where(index < 0, index.astype(np.int64) + extent, index.astype(np.int64)).reshape(-1)
    start, n = int(flat[0]), len(flat)
    if not 0 <= start <= extent - n or not np.array_equal(flat, np.arange(start, start + n)):
        return None
    cut = b.slice_axis(x, axis, start, start + n)
    return cut if index.ndim == 1 else b.squeeze(cut, [axis])


def _reduce_nothing(node: Node) -> Value | None:
    x, axes = _x(node), node.attr("axes")
    if any(x.shape[a] != 1 for a in axes):
        return None
    if node.op in ("reduce_l1", "reduce_l2"):
        x = b.abs(x)
    return x if node.attr("keepdims") else b.squeeze(x, axes)


# casts ------------------------------------------------------------------------------------------------------------


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every value of `narrow` is a value of `wide`."""
    if wide == narrow or narrow.is_bool:
        return wide == narrow or not wide.is_bool
    if wide.is_float and narrow.is_float:
        return wide.bits > narrow.bits
    if wide.is_float and narrow.is_int:
        mantissa = {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}[wide.name]
        return narrow.bits - (narrow.kind == "i") <= mantissa and not (wide.name == "f16" and narrow.bits > 8)
    if wide.is_int and narrow.is_int:
        return wide.bits > narrow.bits and (wide.kind == "i" or narrow.kind == "u")
    return False


def _cast(node: Node) -> Value | None:
    x, dtype = _x(node), node.attr("dtype")
    if x.dtype == dtype:
        return x
    inner = _made_by(x, "cast")
    if inner is not None and _holds(x.dtype, _x(inner).dtype):
        return b.cast(_x(inner), dtype)
    return None


# arithmetic -------------------------------------------------------------------------------------------------------


def _identity(neutral: float, *, right_only: bool = False) -> _Rule:
    def rule(node: Node) -> Value | None:
        if scalar_of(node.inputs[1]) == neutral:
            return _x(node)
        if not right_only and scalar_of(node.inputs[0]) == neutral:
            return _x(node, 1)
        return None

    return rule


def _involution(node: Node) -> Value | None:
    inner = _made_by(_x(node), node.op)
    return None if inner is None else _x(inner)


def _idempotent(node: Node) -> Value | None:
    return _x(node) if _x(node).node.op == node.op else None


def _pow(node: Node) -> Value | None:
    x, exponent = _x(node), scalar_of(node.inputs[1])
    if exponent == 2:
        return b.mul(x, x)
    if not x.dtype.is_float:
        return None
    if exponent == 3:
        return b.mul(b.mul(x, x), x)
    if exponent == 0.5:
        return b.sqrt(x)
    if exponent == -0.5:
        return b.rsqrt(x)
    return b.reciprocal(x) if exponent == -1 else None


def _div(node: Node) -> Value | None:
    x, y = _x(node), _x(node, 1)
    if not x.dtype.is_float:
        return None
    number = scalar_of(y)
    if number is not None and number != 0 and math.isfinite(number) and abs(math.frexp(number)[0]) == 0.5:
        inverse = 1 / number
        tiny = float(np.finfo(np.float32).tiny) if x.dtype.name != "f16" else 6.2e-5
        if tiny <= abs(inverse) and tiny <= abs(number):
            return b.mul(x, inverse)
    if scalar_of(x) == 1 and x.type.rank <= y.type.rank:
        return b.rsqrt(_x(y.node)) if y.node.op == "sqrt" else b.reciprocal(y)
    return None


def _reciprocal(node: Node) -> Value | None:
    inner = _made_by(_x(node), "sqrt")
    return None if inner is None else b.rsqrt(_x(inner))


def _clip(node: Node) -> Value | None:
    return _x(node) if node.inputs[1] is None and node.inputs[2] is None else None


def _where(node: Node) -> Value | None:
    chosen = scalar_of(node.inputs[0])
    return None if chosen is None else _x(node, 1 if chosen else 2)


def _add_negated(node: Node) -> Value | None:
    inner = _made_by(_x(node, 1), "neg")
    return None if inner is None else b.sub(_x(node), _x(inner))


_RULES: dict[str, tuple[_Rule, ...]] = {
    "reshape": (_reshape,),
    "transpose": (_transpose,),
    "broadcast": (_broadcast,),
    "slice": (_slice,),
    "pad": (_pad,),
    "concat": (_concat,),
    "split": (_single,),
    "tile": (_single,),
    "gather": (_gather,),
    "cast": (_cast,),
    "add": (_identity(0.0), _add_negated),
    "sub": (_identity(0.0, right_only=True),),
    "mul": (_identity(1.0),),
    "div": (_identity(1.0, right_only=True), _div),
    "pow": (_identity(1.0, right_only=True), _pow),
    "reciprocal": (_reciprocal,),
    "neg": (_involution,),
    "logical_not": (_involution,),
    "abs": (_idempotent,),
    "relu": (_idempotent,),
    "clip": (_clip,),
    "where": (_where,),
    **{f"reduce_{k}": (_reduce_nothing,) for k in ("sum", "max", "min", "prod", "mean", "l1", "l2", "logsumexp")},
}
