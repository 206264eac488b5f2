"""Find composites that a model spells out: layer_norm, rms_norm, gelu, hard_swish, silu, softmax.

A composite says what is meant, so that a target may run it as one kernel. Patterns look at what is computed, not at
the order of operands: products are compared as sets of factors and one constant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.graph import build as b
from ...ir.graph.core import Graph, Node, Value
from .rewrite import Uses, rewrite, scalar_of


def recognise(graph: Graph) -> Graph:
    return rewrite(graph, recognise_rule)


def recognise_rule(node: Node, _: Uses) -> Sequence[Value] | None:
    if not node.types[0].dtype.is_float:
        return None
    for rule in _RULES.get(node.op, ()):
        found = rule(node)
        if found is not None and found.type == node.types[0] and found.node is not node:
            return (found,)
    return None


def _x(node: Node, index: int = 0) -> Value:
    v = node.inputs[index]
    assert v is not None
    return v


def _close(a: float | None, c: float) -> bool:
    return a is not None and math.isclose(a, c, rel_tol=2e-3 if abs(c) < 1 else 1e-3)


def _exact(a: float | None, c: float) -> bool:
    return a is not None and math.isclose(a, c, rel_tol=1e-6)


@dataclass(slots=True)
class Product:
    """factor * the product of values."""

    factor: float
    values: list[Value]


def product_of(v: Value, depth: int = 4) -> Product:
    """A tree of mul, and of div by a number, taken apart."""
    number = scalar_of(v)
    if number is not None:
        return Product(number, [])
    if depth and v.node.op == "mul":
        left, right = product_of(_x(v.node), depth - 1), product_of(_x(v.node, 1), depth - 1)
        return Product(left.factor * right.factor, left.values + right.values)
    if depth and v.node.op == "div":
        by = scalar_of(v.node.inputs[1])
        if by is not None and by != 0:
            left = product_of(_x(v.node), depth - 1)
            return Product(left.factor / by, left.values)
    if depth and v.node.op == "neg":
        left = product_of(_x(v.node), depth - 1)
        return Product(-left.factor, left.values)
    return Product(1.0, [v])


def sum_with_number(v: Value) -> tuple[Value, float] | None:
    """(x, c) of x + c."""
    if v.node.op not in ("add", "sub"):
        return None
    for i in (0, 1):
        number = scalar_of(v.node.inputs[i])
        if number is not None and (v.node.op == "add" or i == 1):
            return _x(v.node, 1 - i), number if v.node.op == "add" else -number
    return None


# activations ------------------------------------------------------------------------------------------------------


def _activation(node: Node) -> Value | None:
    whole = product_of(node.out())
    if len(whole.values) < 2 or len(whole.values) > 4:
        return None
    for gate in whole.values:
        rest = list(whole.values)
        rest.remove(gate)
        if len(rest) != 1:
            continue
        x = rest[0]
        if gate.node.op == "sigmoid" and _x(gate.node) == x and _exact(whole.factor, 1):
            return b.silu(x)
        if _is_hard_gate(gate, x, whole.factor):
            return b.hard_swish(x)
        if _exact(whole.factor, 0.5) and _is_gelu_gate(gate, x):
            return b.gelu(x)
        if _exact(whole.factor, 0.5) and _is_tanh_gate(gate, x):
            return b.gelu(x, "tanh")
    return None


def _is_gelu_gate(gate: Value, x: Value) -> bool:
    """1 + erf(x / sqrt(2))"""
    parts = sum_with_number(gate)
    if parts is None or not _exact(parts[1], 1) or parts[0].node.op != "erf":
        return False
    inner = product_of(_x(parts[0].node))
    return inner.values == [x] and _close(inner.factor, math.sqrt(0.5))


def _is_tanh_gate(gate: Value, x: Value) -> bool:
    """1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))"""
    parts = sum_with_number(gate)
    if parts is None or not _exact(parts[1], 1) or parts[0].node.op != "tanh":
        return False
    inner = product_of(_x(parts[0].node))
    if not _close(inner.factor, math.sqrt(2 / math.pi)) or len(inner.values) != 1 or inner.values[0].node.op != "add":
        return False
    a, c = (_x(inner.values[0].node, i) for i in (0, 1))
    cube = product_of(c if a == x else a)
    return x in (a, c) and cube.values == [x, x, x] and _close(cube.factor, 0.044715)


def _is_hard_gate(gate: Value, x: Value, factor: float) -> bool:
    """clip(x + 3, 0, 6) / 6, or hard_sigmoid with slope 1/6"""
    if gate.node.op == "hard_sigmoid":
        return (
            _x(gate.node) == x
            and _exact(factor, 1)
            and _close(gate.node.attr("alpha"), 1 / 6)
            and (_exact(gate.node.attr("beta"), 0.5))
        )
    bounds = clipped(gate)
    if bounds is None:
        return False
    inner, lo, hi = bounds
    parts = sum_with_number(inner)
    if parts is None or lo != 0:
        return False
    slope = product_of(parts[0])
    if slope.values != [x]:
        return False
    scale = factor * slope.factor
    return _exact(scale, 1 / 6) and _exact(parts[1] * factor, 0.5) and _exact(hi * factor, 1)


def clipped(v: Value) -> tuple[Value, float, float] | None:
    """(x, lo, hi) of a clip, however it is written."""
    if v.node.op == "clip":
        lo, hi = scalar_of(v.node.inputs[1]), scalar_of(v.node.inputs[2])
        return None if lo is None or hi is None else (_x(v.node), lo, hi)
    if v.node.op in ("min", "max"):
        for i in (0, 1):
            outer, inner = scalar_of(v.node.inputs[i]), _x(v.node, 1 - i)
            if outer is None:
                continue
            if v.node.op == "min" and inner.node.op == "relu":
                return _x(inner.node), 0.0, outer
            if inner.node.op in ("min", "max") and inner.node.op != v.node.op:
                for j in (0, 1):
                    number = scalar_of(inner.node.inputs[j])
                    if number is not None:
                        lo, hi = sorted((outer, number))
                        return _x(inner.node, 1 - j), lo, hi
    return None


# normalisations ---------------------------------------------------------------------------------------------------


def _trailing_axis(x: Value, axes: tuple[int, ...]) -> int | None:
    rank = x.type.rank
    return axes[0] if axes and axes == tuple(range(axes[0], rank)) else None


def _mean_of(v: Value) -> tuple[Value, tuple[int, ...]] | None:
    """(x, axes) of a mean that keeps its axes."""
    if v.node.op == "reduce_mean" and v.node.attr("keepdims"):
        return _x(v.node), v.node.attr("axes")
    return None


def _square_of(v: Value) -> Value | None:
    if v.node.op == "mul" and v.node.inputs[0] == v.node.inputs[1]:
        return _x(v.node)
    if v.node.op == "pow" and scalar_of(v.node.inputs[1]) == 2:
        return _x(v.node)
    return None


def _deviation(v: Value) -> tuple[Value, float, tuple[int, ...]] | None:
    """(c, epsilon, axes) of mean(c^2) + epsilon."""
    parts = sum_with_number(v)
    if parts is None:
        return None
    mean = _mean_of(parts[0])
    square = None if mean is None else _square_of(mean[0])
    return None if mean is None or square is None else (square, parts[1], mean[1])


def _normalised(node: Node) -> Value | None:
    """c / sqrt(mean(c^2) + epsilon), or c * rsqrt(...)"""
    for numerator, root in _quotients(node):
        found = _deviation(root)
        if found is None or found[0] != numerator or found[1] < 0:
            continue
        c, epsilon, axes = found
        if c.node.op == "sub":
            x, mean = _x(c.node), _mean_of(_x(c.node, 1))
            axis = _trailing_axis(x, axes)
            if mean is not None and mean == (x, axes) and axis is not None:
                return b.layer_norm(x, axis=axis, epsilon=epsilon)
        axis = _trailing_axis(c, axes)
        if axis is not None:
            return b.rms_norm(c, axis=axis, epsilon=epsilon)
    return None


def _quotients(node: Node) -> list[tuple[Value, Value]]:
    """(a, s) for which the node is a / sqrt(s)."""
    a, c = _x(node), _x(node, 1)
    if node.op == "div":
        return [(a, _x(c.node))] if c.node.op == "sqrt" else []
    out = []
    for p, q in ((a, c), (c, a)):
        if q.node.op == "rsqrt":
            out.append((p, _x(q.node)))
        if q.node.op == "reciprocal" and _x(q.node).node.op == "sqrt":
            out.append((p, _x(_x(q.node).node)))
    return out


def _affine(node: Node) -> Value | None:
    """layer_norm(x) * scale and layer_norm(x, scale) + bias with constant parameters"""
    for i in (0, 1):
        norm, p = _x(node, i), _x(node, 1 - i)
        if norm.node.op not in ("layer_norm", "rms_norm") or not p.is_constant:
            continue
        rank = norm.type.rank - norm.node.attr("axis")
        if p.type.rank > rank:
            if any(d != 1 for d in p.shape[: p.type.rank - rank]):
                continue
            p = b.reshape(p, p.shape[p.type.rank - rank :])
        scaled = norm.node.inputs[1] is not None
        biased = len(norm.node.inputs) > 2 and norm.node.inputs[2] is not None
        a = norm.node.attr
        if node.op == "mul" and not scaled and not biased:
            if norm.node.op == "rms_norm":
                return b.rms_norm(_x(norm.node), p, a("axis"), a("epsilon"))
            return b.layer_norm(_x(norm.node), p, None, a("axis"), a("epsilon"))
        if node.op == "add" and norm.node.op == "layer_norm" and not biased:
            return b.layer_norm(_x(norm.node), norm.node.inputs[1], p, a("axis"), a("epsilon"))
    return None


def _softmax(node: Node) -> Value | None:
    """exp(x - max(x)) / sum(exp(x - max(x)))"""
    e, total = _x(node), _x(node, 1)
    if e.node.op != "exp" or total.node.op != "reduce_sum" or _x(total.node) != e or not total.node.attr("keepdims"):
        return None
    shifted, axes = _x(e.node), total.node.attr("axes")
    if shifted.node.op != "sub" or len(axes) != 1:
        return None
    x, top = _x(shifted.node), _x(shifted.node, 1)
    same = top.node.op == "reduce_max" and _x(top.node) == x and top.node.attr("axes") == axes
    return b.softmax(x, axes[0]) if same and top.node.attr("keepdims") else None


_RULES = {
    "mul": (_normalised, _affine, _activation),
    "div": (_normalised, _softmax, _activation),
    "add": (_affine,),
}
