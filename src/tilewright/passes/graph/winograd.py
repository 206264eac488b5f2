"""3x3 convolutions of stride 1 through Winograd's F(4x4, 3x3), where that is cheaper: a quarter of the products, for
two transforms and more memory traffic. In f32 the result's relative error grows from about 2e-7 to about 1e-6."""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakValueDictionary

import numpy as np

from ...ir.graph import build as b
from ...ir.graph.core import Graph, Node, Value
from ...ir.graph.make import make
from ...ir.graph.spec_winograd import WEIGHTS
from ...ir.types import f32
from .rewrite import Uses, rewrite

#: cycles of one vector core: products per cycle, vector operations of the two transforms per tile and 16 channels,
#: bytes of weights a cycle brings from the outer cache
_PRODUCTS, _TRANSFORM, _BYTES = 32.0, 200.0, 10.0


def winograd(graph: Graph) -> Graph:
    return rewrite(graph, _rule)


def _rule(node: Node, _: Uses) -> Sequence[Value] | None:
    if node.op != "conv" or node.attr("layout") != "last" or node.attr("groups") != 1:
        return None
    x, w = node.inputs[:2]
    assert x is not None and w is not None
    shape, out = x.type, node.types[0]
    if x.dtype is not f32 or not w.is_constant or not shape.is_static or w.shape[:-2] != (3, 3):
        return None
    if tuple(node.attr("strides")) != (1, 1) or tuple(node.attr("dilations")) != (1, 1):
        return None
    n, p, q, _ = out.static_shape
    if not pays(n, p, q, *w.type.static_shape[-2:]):
        return None
    tiles = (-(-p // 4), -(-q // 4))
    moved = make("winograd_input", x, loc=node.loc, name=node.name, tiles=tiles, pads=tuple(node.attr("pads_lo"))).out()
    products = b.matmul(moved, _transformed(w))
    y = make("winograd_output", products, loc=node.loc, name=node.name, batch=n, size=(p, q)).out()
    bias = node.inputs[2] if len(node.inputs) > 2 else None
    return (b.add(y, bias) if bias is not None else y,)


def pays(n: int, p: int, q: int, channels: int, features: int) -> bool:
    """Whether the estimate in cycles is clearly below that of the direct convolution."""
    tiles = n * -(-p // 4) * -(-q // 4)
    few = 1.0 if tiles >= 12 else 1.4  # few rows leave a register block's latency in sight
    direct = max(9 * n * p * q * channels * features / _PRODUCTS, 9 * channels * features * 4 / _BYTES)
    products = max(36 * tiles * channels * features / _PRODUCTS * few, 36 * channels * features * 4 / _BYTES)
    return 1.2 * (products + tiles * (channels + features) / 16 * _TRANSFORM) < direct


#: transformed weights by the weights' digest, for as long as someone uses them: every batch size asks again
_transformed_weights: WeakValueDictionary[str, Node] = WeakValueDictionary()


def _transformed(w: Value) -> Value:
    found = _transformed_weights.get(w.node.digest)
    if found is None:
        kernel = np.einsum("ir,jq,rqcf->ijcf", WEIGHTS, WEIGHTS, w.constant.astype(np.float64), optimize=True)
        found = b.const(kernel.reshape(36, *w.type.static_shape[-2:]).astype(np.float32)).node
        _transformed_weights[w.node.digest] = found
    return found.out()
