"""What the composite reductions, softmaxes and normalisations mean in primitives."""

from __future__ import annotations

from collections.abc import Sequence

from ..types import DType
from . import build as b
from .core import Node, Value
from .decompose_elementwise import in_f32, operand, operands, per_axis
from .dims import DimExpr, floordiv, product
from .op_spec import decomposition


def count(x: Value, axes: Sequence[int], dtype: DType) -> Value:
    """How many elements the axes hold, as a scalar; read from the tensor where a dim is symbolic."""
    n = product(x.shape[a] for a in axes)
    if not isinstance(n, DimExpr):
        return b.const(n, dtype)
    extents = b.gather(b.shape_of(x), b.const(list(axes)))
    return b.cast(b.reduce_prod(extents, keepdims=False), dtype)


def mean(x: Value, axes: Sequence[int], keepdims: bool = True) -> Value:
    return b.div(b.reduce_sum(x, axes, keepdims), count(x, axes, x.dtype))


@decomposition("reduce_mean")
@in_f32
def _(node: Node) -> tuple[Value, ...]:
    return (mean(operand(node), node.attr("axes"), node.attr("keepdims")),)


@decomposition("reduce_l1")
@in_f32
def _(node: Node) -> tuple[Value, ...]:
    return (b.reduce_sum(b.abs(operand(node)), node.attr("axes"), node.attr("keepdims")),)


@decomposition("reduce_l2")
@in_f32
def _(node: Node) -> tuple[Value, ...]:
    x = operand(node)
    return (b.sqrt(b.reduce_sum(b.mul(x, x), node.attr("axes"), node.attr("keepdims"))),)


@decomposition("reduce_logsumexp")
@in_f32
def _(node: Node) -> tuple[Value, ...]:
    x, axes = operand(node), node.attr("axes")
    top = b.reduce_max(x, axes)
    top = b.where(b.or_(b.isinf(top), b.isnan(top)), b.like(top, 0), top)
    y = b.add(b.log(b.reduce_sum(b.exp(b.sub(x, top)), axes)), top)
    return (y if node.attr("keepdims") else b.squeeze(y, axes),)


@decomposition("softmax")
@in_f32
def _(node: Node) -> tuple[Value, ...]:
    x, axis = operand(node), [node.attr("axis")]
    e = b.exp(b.sub(x, b.reduce_max(x, axis)))
    return (b.div(e, b.reduce_sum(e, axis)),)


@decomposition("log_softmax")
@in_f32
def _(node: Node) -> tuple[Value, ...]:
    x, axis = operand(node), [node.attr("axis")]
    y = b.sub(x, b.reduce_max(x, axis))
    return (b.sub(y, b.log(b.reduce_sum(b.exp(y), axis))),)


def _normalised(x: Value, axes: Sequence[int], epsilon: float) -> Value:
    centred = b.sub(x, mean(x, axes))
    return b.div(centred, b.sqrt(b.add(mean(b.mul(centred, centred), axes), epsilon)))


@decomposition("layer_norm")
@in_f32
def _(node: Node) -> tuple[Value, ...]:
    x, scale, bias = operands(node, 3)
    assert x is not None
    y = _normalised(x, range(node.attr("axis"), x.type.rank), node.attr("epsilon"))
    y = y if scale is None else b.mul(y, scale)
    return (y if bias is None else b.add(y, bias),)


@decomposition("rms_norm")
@in_f32
def _(node: Node) -> tuple[Value, ...]:
    x, scale = operands(node, 2)
    assert x is not None
    square = mean(b.mul(x, x), range(node.attr("axis"), x.type.rank))
    y = b.div(x, b.sqrt(b.add(square, node.attr("epsilon"))))
    return (y if scale is None else b.mul(y, scale),)


@decomposition("instance_norm", "group_norm")
@in_f32
def _(node: Node) -> tuple[Value, ...] | None:
    x, scale, bias = operands(node, 3)
    assert x is not None
    channels, rank = x.shape[1], x.type.rank
    groups = node.attr("num_groups", channels)
    if groups == channels:
        y = _normalised(x, range(2, rank), node.attr("epsilon"))
    else:
        grouped = b.reshape(x, (x.shape[0], groups, floordiv(channels, groups), *x.shape[2:]))
        y = b.reshape(_normalised(grouped, range(2, rank + 1), node.attr("epsilon")), x.shape)
    y = y if scale is None else b.mul(y, per_axis(scale, rank, 1))
    return (y if bias is None else b.add(y, per_axis(bias, rank, 1)),)


@decomposition("lp_norm")
@in_f32
def _(node: Node) -> tuple[Value, ...]:
    x, axis = operand(node), [node.attr("axis")]
    if node.attr("p") == 1:
        norm = b.reduce_sum(b.abs(x), axis)
    else:
        norm = b.sqrt(b.reduce_sum(b.mul(x, x), axis))
    return (b.where(b.eq(norm, 0), b.like(x, 0), b.div(x, norm)),)


@decomposition("global_avg_pool")
@in_f32
def _(node: Node) -> tuple[Value, ...]:
    x = operand(node)
    return (mean(x, _space(x, node)),)


@decomposition("global_max_pool")
def _(node: Node) -> tuple[Value, ...]:
    x = operand(node)
    return (b.reduce_max(x, _space(x, node)),)


def _space(x: Value, node: Node) -> range:
    return range(2, x.type.rank) if node.attr("layout") == "first" else range(1, x.type.rank - 1)
