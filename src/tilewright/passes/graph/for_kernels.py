"""The form that library kernels want: biases, scales and shifts as separate elementwise nodes (they are fused back as
tails), and rows that are normalised along their last axis."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph import build as b
from ...ir.graph.core import Graph, Node, Value
from ...ir.graph.make import make
from .rewrite import Uses, rewrite


def for_kernels(graph: Graph) -> Graph:
    return rewrite(graph, _rule)


def _rule(node: Node, _: Uses) -> Sequence[Value] | None:
    match node.op:
        case "conv" | "conv_transpose" if len(node.inputs) > 2 and node.inputs[2] is not None:
            return (_split_bias(node),)
        case "layer_norm" if any(v is not None for v in node.inputs[1:]):
            return (_split_affine(node),)
        case "softmax" | "log_softmax" if node.attr("axis") != node.types[0].rank - 1:
            return (_last_axis(node),)
        case _:
            return None


def _split_bias(node: Node) -> Value:
    x, w, bias = node.inputs[:3]
    assert bias is not None
    plain = make(node.op, x, w, loc=node.loc, name=node.name, **dict(node.attrs)).out()
    if node.attr("layout") == "last":
        return b.add(plain, bias)
    return b.add(plain, b.reshape(bias, (bias.shape[0], *(1,) * (plain.type.rank - 2))))


def _split_affine(node: Node) -> Value:
    x, scale, bias = [*node.inputs, None, None][:3]
    y = make("layer_norm", x, loc=node.loc, name=node.name, **dict(node.attrs)).out()
    if scale is not None:
        y = b.mul(y, scale)
    return b.add(y, bias) if bias is not None else y


def _last_axis(node: Node) -> Value:
    (x,) = node.inputs
    assert x is not None
    rank, axis = x.type.rank, int(node.attr("axis"))
    perm = (*(k for k in range(rank) if k != axis), axis)
    back = tuple(perm.index(k) for k in range(rank))
    moved = make(node.op, b.transpose(x, perm), loc=node.loc, name=node.name, **{**dict(node.attrs), "axis": rank - 1})
    return b.transpose(moved.out(), back)
