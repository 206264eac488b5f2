"""Convolutions that are matrix products: 1x1, stride 1, no padding, one group, channels last."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph import build as b
from ...ir.graph.core import Graph, Node, Value
from ...ir.graph.dims import product
from .rewrite import Uses, rewrite


def simplify_matmul(graph: Graph) -> Graph:
    return rewrite(graph, _pointwise)


def _pointwise(node: Node, _: Uses) -> Sequence[Value] | None:
    if node.op != "conv" or node.attr("layout") != "last" or node.attr("groups") != 1:
        return None
    x, w, bias = [*node.inputs, None][:3]
    assert x is not None and w is not None
    plain = all(k == 1 for k in w.shape[:-2]) and all(s == 1 for s in node.attr("strides"))
    if not plain or any(p != 0 for p in (*node.attr("pads_lo"), *node.attr("pads_hi"))):
        return None
    rows = b.reshape(x, (product(x.shape[:-1]), x.shape[-1]))
    y = b.matmul(rows, b.reshape(w, w.shape[-2:]))
    if bias is not None:
        y = b.add(y, bias)
    return (b.reshape(y, node.types[0].shape),)
