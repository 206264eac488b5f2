"""Fold what scales and shifts channels into the weights before it.

A batch_norm with constant statistics is x * a + b per channel. Where x is a convolution or a product with constant
weights that nothing else reads, a and b go into its weights and bias; what is left stays a multiply and an add.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ...ir.graph import build as b
from ...ir.graph.core import Graph, Node, Value
from ...ir.graph.spec_reduce import channel_axis
from .rewrite import Uses, constant_of, rewrite

Array: TypeAlias = np.ndarray[Any, Any]
CONVS = ("conv", "conv_transpose")


def fold_batchnorm(graph: Graph) -> Graph:
    return rewrite(graph, fold_rule)


def fold_rule(node: Node, uses: Uses) -> Sequence[Value] | None:
    if node.op == "batch_norm":
        return _as_affine(node)
    if node.op not in ("add", "sub", "mul", "div") or not node.types[0].dtype.is_float:
        return None
    for i in (0, 1):
        x, p = node.inputs[i], constant_of(node.inputs[1 - i])
        if x is None or p is None or (node.op in ("sub", "div") and i == 1) or x.shape != node.types[0].shape:
            continue
        p = p.astype(np.float64)
        p = -p if node.op == "sub" else 1 / p if node.op == "div" else p
        if not np.isfinite(p).all():
            continue
        scale = node.op in ("mul", "div")
        found = _scaled(x, p, uses) if scale else _shifted(x, p, uses)
        if found is not None:
            return (found,)
    return None


def _as_affine(node: Node) -> Sequence[Value] | None:
    x = node.inputs[0]
    assert x is not None
    found = [constant_of(v) for v in node.inputs[1:]]
    if any(p is None for p in found):
        return None
    scale, bias, mean, var = (np.asarray(p, dtype=np.float64) for p in found)
    a = scale / np.sqrt(var + node.attr("epsilon"))
    shape = [1] * x.type.rank
    shape[channel_axis(node.attr("layout"), x.type.rank)] = -1
    y = b.mul(x, b.const(a.reshape(shape), x.dtype))
    return (b.add(y, b.const((bias - mean * a).reshape(shape), x.dtype)),)


def per_channel(p: Array, x: Value, axis: int) -> Array | None:
    """`p`, which broadcasts against x, as one number per channel; None where it varies along another axis."""
    full = p.reshape((1,) * (x.type.rank - p.ndim) + p.shape)
    channels = x.shape[axis]
    if not isinstance(channels, int) or any(d != 1 for i, d in enumerate(full.shape) if i != axis):
        return None
    return np.asarray(np.broadcast_to(full.reshape(-1), (channels,)))


def _channels(x: Value) -> int | None:
    """The channel axis of a value whose weights can take a scale."""
    if x.node.op in CONVS:
        return channel_axis(x.node.attr("layout"), x.type.rank)
    if x.node.op == "matmul" and x.node.types[0].rank >= 2:
        w = x.node.inputs[1]
        return x.type.rank - 1 if w is not None and w.type.rank == 2 else None
    return None


def _scaled(x: Value, p: Array, uses: Uses) -> Value | None:
    if not uses.once(x):
        return None
    if x.node.op == "add":
        return _through_add(x, p, uses)
    axis = _channels(x)
    a = None if axis is None else per_channel(p, x, axis)
    if a is None:
        return None
    w = constant_of(x.node.inputs[1])
    if w is None:
        return None
    inputs = list(x.node.inputs)
    if x.node.op == "matmul":
        inputs[1] = b.const(w * a, x.node.inputs[1].dtype)  # type: ignore[union-attr]
        return b.rebuild(x.node, inputs).out()
    bias = constant_of(inputs[2])
    if inputs[2] is not None and bias is None:
        return None
    inputs[1] = b.const(_scale_filters(x.node, w.astype(np.float64), a), x.dtype)
    inputs[2] = None if bias is None else b.const(bias * a, x.dtype)
    return b.rebuild(x.node, inputs).out()


def _scale_filters(node: Node, w: Array, a: Array) -> Array:
    if node.op == "conv":
        return w * (a.reshape(-1, *(1,) * (w.ndim - 1)) if node.attr("layout") == "first" else a)
    groups = node.attr("groups")
    last = node.attr("layout") == "last"
    first = np.moveaxis(w, (-1, -2), (0, 1)) if last else w
    blocks = first.reshape(groups, first.shape[0] // groups, *first.shape[1:])
    scaled = (blocks * a.reshape(groups, 1, -1, *(1,) * (first.ndim - 2))).reshape(first.shape)
    return np.moveaxis(scaled, (0, 1), (-1, -2)) if last else scaled


def _through_add(x: Value, p: Array, uses: Uses) -> Value | None:
    """(y + c) * p = y * p + c * p, where y can take the scale."""
    for i in (0, 1):
        y, c = x.node.inputs[i], constant_of(x.node.inputs[1 - i])
        if y is None or c is None or y.shape != x.shape or _channels(y) is None:
            continue
        scaled = _scaled(y, p, uses)
        if scaled is not None:
            return b.add(scaled, b.const(c * p, x.dtype))
    return None


def _shifted(x: Value, p: Array, uses: Uses) -> Value | None:
    """A convolution's bias takes an added constant."""
    if x.node.op not in CONVS or not uses.once(x):
        return None
    offset = per_channel(p, x, channel_axis(x.node.attr("layout"), x.type.rank))
    if offset is None:
        return None
    inputs = list(x.node.inputs)
    bias = constant_of(inputs[2])
    if inputs[2] is not None and bias is None:
        return None
    inputs[2] = b.const(offset if bias is None else bias + offset, x.dtype)
    return b.rebuild(x.node, inputs).out()
