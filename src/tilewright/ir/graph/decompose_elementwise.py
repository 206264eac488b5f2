"""What activations and quantisation mean in primitives. f16 and bf16 are computed in f32 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeAlias

from ..types import bf16, f16, f32, i32
from . import build as b
from .core import Node, Value
from .op_spec import decomposition
from .spec_reduce import channel_axis

Rule: TypeAlias = Callable[[Node], "tuple[Value, ...] | None"]


def in_f32(rule: Rule) -> Rule:
    """`rule` applied to the same op on f32 where the operands are f16 or bf16."""

    def wrapped(node: Node) -> tuple[Value, ...] | None:
        if not any(v is not None and v.dtype in (f16, bf16) for v in node.inputs):
            return rule(node)
        wide = [v if v is None or v.dtype not in (f16, bf16) else b.cast(v, f32) for v in node.inputs]
        attrs: dict[str, Any] = dict(node.attrs)
        results = rule(b.make(node.op, *wide, **attrs))
        return None if results is None else tuple(b.cast(r, t.dtype) for r, t in zip(results, node.types, strict=True))

    return wrapped


def operands(node: Node, count: int) -> list[Value | None]:
    return [*node.inputs, *[None] * count][:count]


def operand(node: Node, index: int = 0) -> Value:
    v = node.inputs[index]
    assert v is not None
    return v


def _activation(*names: str) -> Callable[[Callable[[Value, Node], Value]], None]:
    def attach(fn: Callable[[Value, Node], Value]) -> None:
        decomposition(*names)(in_f32(lambda node: (fn(operand(node), node),)))

    return attach


@_activation("relu")
def _(x: Value, node: Node) -> Value:
    return b.max(x, 0)


@_activation("leaky_relu")
def _(x: Value, node: Node) -> Value:
    return b.where(b.lt(x, 0), b.mul(x, node.attr("alpha")), x)


@_activation("elu", "selu")
def _(x: Value, node: Node) -> Value:
    y = b.where(b.lt(x, 0), b.mul(b.expm1(b.min(x, 0)), node.attr("alpha")), x)
    return b.mul(y, node.attr("gamma")) if node.op == "selu" else y


@_activation("hard_sigmoid")
def _(x: Value, node: Node) -> Value:
    return b.max(b.min(b.add(b.mul(x, node.attr("alpha")), node.attr("beta")), 1), 0)


@_activation("hard_swish")
def _(x: Value, node: Node) -> Value:
    return b.mul(x, b.max(b.min(b.add(b.mul(x, 1 / 6), 0.5), 1), 0))


def _softplus(x: Value) -> Value:
    return b.add(b.max(x, 0), b.log1p(b.exp(b.neg(b.abs(x)))))


@_activation("softplus")
def _(x: Value, node: Node) -> Value:
    return _softplus(x)


@_activation("softsign")
def _(x: Value, node: Node) -> Value:
    return b.div(x, b.add(b.abs(x), 1))


@_activation("mish")
def _(x: Value, node: Node) -> Value:
    return b.mul(x, b.tanh(_softplus(x)))


@_activation("silu")
def _(x: Value, node: Node) -> Value:
    return b.mul(x, b.sigmoid(x))


@_activation("gelu")
def _(x: Value, node: Node) -> Value:
    if node.attr("approximate") == "tanh":
        inner = b.add(x, b.mul(b.mul(b.mul(x, x), x), 0.044715))
        return b.mul(b.mul(x, 0.5), b.add(b.tanh(b.mul(inner, math.sqrt(2 / math.pi))), 1))
    return b.mul(b.mul(x, 0.5), b.add(b.erf(b.mul(x, math.sqrt(0.5))), 1))


@decomposition("prelu")
@in_f32
def _(node: Node) -> tuple[Value, ...]:
    x, slope = operand(node), operand(node, 1)
    return (b.where(b.lt(x, 0), b.mul(x, slope), x),)


@decomposition("clip")
def _(node: Node) -> tuple[Value, ...]:
    x, lo, hi = operands(node, 3)
    assert x is not None
    y = x if lo is None else b.max(x, lo)
    return (y if hi is None else b.min(y, hi),)


def per_axis(p: Value, rank: int, axis: int) -> Value:
    """A vector shaped to broadcast along `axis`; a scalar as it is."""
    if p.type.rank == 0:
        return p
    return b.reshape(p, [p.shape[0] if i == axis else 1 for i in range(rank)])


@decomposition("quantize")
@in_f32
def _(node: Node) -> tuple[Value, ...]:
    x, scale, zero = operands(node, 3)
    assert x is not None and scale is not None
    rank, axis = x.type.rank, node.attr("axis")
    q = b.round(b.div(x, _parameter(scale, rank, axis)))
    if zero is not None:
        q = b.add(q, b.cast(_parameter(zero, rank, axis), q.dtype))
    return (b.cast(q, node.attr("dtype")),)


@decomposition("dequantize")
@in_f32
def _(node: Node) -> tuple[Value, ...]:
    x, scale, zero = operands(node, 3)
    assert x is not None and scale is not None
    rank, axis = x.type.rank, node.attr("axis")
    y = b.cast(x, i32) if x.dtype.bits < 32 else x
    if zero is not None:
        y = b.sub(y, b.cast(_parameter(zero, rank, axis), y.dtype))
    return (b.mul(b.cast(y, scale.dtype), _parameter(scale, rank, axis)),)


def _parameter(p: Value, rank: int, axis: int) -> Value:
    return b.reshape(p, ()) if p.shape == (1,) else per_axis(p, rank, axis)


@decomposition("batch_norm")
@in_f32
def _(node: Node) -> tuple[Value, ...]:
    x, scale, bias, mean, var = (operand(node, i) for i in range(5))
    rank = x.type.rank
    axis = channel_axis(node.attr("layout"), rank)
    factor = b.div(scale, b.sqrt(b.add(var, node.attr("epsilon"))))
    offset = b.sub(bias, b.mul(mean, factor))
    return (b.add(b.mul(x, per_axis(factor, rank, axis)), per_axis(offset, rank, axis)),)
