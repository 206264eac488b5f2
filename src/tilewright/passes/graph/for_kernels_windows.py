"""Padding and windows in the form that library kernels want."""

from __future__ import annotations

import numpy as np

from ...ir.graph import build as b
from ...ir.graph.core import Node, Value
from ...ir.graph.make import make


def pad_by_gather(node: Node) -> Value:
    """Reflected and repeated edges: which element each position repeats is known, so each axis is one gather."""
    (y,) = node.inputs
    assert y is not None
    for axis, (lo, hi) in enumerate(zip(node.attr("lo"), node.attr("hi"), strict=True)):
        if lo or hi:
            at = np.pad(np.arange(y.shape[axis]), (lo, hi), mode=node.attr("mode"))
            y = b.gather(y, b.const(at.astype(np.int64)), axis=axis)
    return y


def overlaps(node: Node) -> bool:
    w = node.inputs[1]
    assert w is not None
    zero = (0,) * (w.type.rank - 2)
    return not (w.is_constant and len(zero) < 3 and tuple(node.attr("strides")) == w.shape[:-2]
                and node.attr("groups") == 1 and tuple(node.attr("pads_lo")) == tuple(node.attr("pads_hi")) == zero
                and tuple(node.attr("output_padding") or zero) == zero)


def as_convolution(node: Node) -> Value:
    """As a convolution of the input with zeros between its pixels, with the window turned round."""
    x, w = node.inputs[:2]
    assert x is not None and w is not None
    n, *space, c = x.type.static_shape
    *window, per_group, _ = w.type.static_shape
    dims = range(len(space))
    strides, dilations, groups = node.attr("strides"), node.attr("dilations"), int(node.attr("groups"))
    spread = b.reshape(x, (n, *(k for s in space for k in (s, 1)), c))
    spread = b.pad(spread, (0,) * spread.type.rank, (0, *(k for s in strides for k in (0, s - 1)), 0))
    spread = b.reshape(spread, (n, *(s * k for s, k in zip(space, strides, strict=True)), c))
    out = node.types[0].static_shape[1:-1]
    lo = [dilations[d] * (window[d] - 1) - node.attr("pads_lo")[d] for d in dims]
    # the convolution's padded input must be as long as its outputs need, no more
    hi = [out[d] - 1 + dilations[d] * (window[d] - 1) + 1 - lo[d] - spread.type.static_shape[1 + d] for d in dims]
    starts = [max(0, -v) for v in lo]
    stops = [spread.type.static_shape[1 + d] + min(0, hi[d]) for d in dims]
    spread = b.slice(spread, (0, *starts, 0), (n, *stops, c), (1,) * spread.type.rank)
    kernel = b.slice(w, (*(k - 1 for k in window), 0, 0), (*(-1 for _ in window), *w.shape[-2:]),
                     (*(-1 for _ in window), 1, 1))
    kernel = b.reshape(kernel, (*window, per_group, groups, c // groups))
    order = (*dims, len(window) + 2, len(window) + 1, len(window))
    kernel = b.reshape(b.transpose(kernel, order), (*window, c // groups, groups * per_group))
    return make("conv", spread, kernel, loc=node.loc, name=node.name, strides=(1,) * len(window),
                pads_lo=tuple(max(0, v) for v in lo), pads_hi=tuple(max(0, v) for v in hi), dilations=tuple(dilations),
                groups=groups, layout="last").out()


def split_bias(node: Node) -> Value:
    x, w, bias = node.inputs[:3]
    assert bias is not None
    plain = make(node.op, x, w, loc=node.loc, name=node.name, **dict(node.attrs)).out()
    if node.attr("layout") == "last":
        return b.add(plain, bias)
    return b.add(plain, b.reshape(bias, (bias.shape[0], *(1,) * (plain.type.rank - 2))))
