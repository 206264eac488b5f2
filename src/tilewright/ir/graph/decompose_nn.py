"""What gemm, linear, einsum and attention mean in primitives. Half-precision products accumulate in f32, and what
follows them stays in f32 until the result is rounded."""

from __future__ import annotations

import math

from ..types import bf16, f16, f32
from . import build as b
from .core import Node, Value
from .decompose_elementwise import operand, operands
from .dims import Dim, DimExpr, floordiv, product
from .op_spec import decomposition
from .ref_nn import expand_equation


def _product(x: Value, y: Value) -> Value:
    return b.matmul(x, y, acc=f32 if x.dtype in (f16, bf16) else None)


def _wide(x: Value, like: Value) -> Value:
    return b.cast(x, like.dtype)


@decomposition("gemm")
def _(node: Node) -> tuple[Value, ...]:
    x, y, c = operands(node, 3)
    assert x is not None and y is not None
    dtype = x.dtype
    x = b.transpose(x, (1, 0)) if node.attr("trans_a") else x
    y = b.transpose(y, (1, 0)) if node.attr("trans_b") else y
    out = _product(x, y)
    if node.attr("alpha") != 1.0:
        out = b.mul(out, node.attr("alpha"))
    if c is not None and node.attr("beta") != 0.0:
        c = _wide(c, out)
        out = b.add(out, c if node.attr("beta") == 1.0 else b.mul(c, node.attr("beta")))
    return (b.cast(out, dtype),)


@decomposition("linear")
def _(node: Node) -> tuple[Value, ...]:
    x, w, bias = operands(node, 3)
    assert x is not None and w is not None
    out = _product(x, b.transpose(w, (1, 0)))
    return (b.cast(out if bias is None else b.add(out, _wide(bias, out)), x.dtype),)


@decomposition("attention")
def _(node: Node) -> tuple[Value, ...] | None:
    q, k, v, mask = operands(node, 4)
    assert q is not None and k is not None and v is not None
    dtype, depth = q.dtype, q.shape[3]
    (batch, heads, s, _), groups, t = q.shape, k.shape[1], k.shape[2]
    scale = node.attr("scale")
    if scale is None:
        if isinstance(depth, DimExpr):
            return None
        scale = 1 / math.sqrt(max(depth, 1))
    repeat = 1 if heads == groups else floordiv(heads, groups)
    if repeat != 1:
        q = b.reshape(q, (batch, groups, repeat, s, depth))
        k, v = b.unsqueeze(k, [2]), b.unsqueeze(v, [2])
    rank = q.type.rank
    scores = b.mul(_product(q, b.transpose(k, (*range(rank - 2), rank - 1, rank - 2))), scale)
    low = b.like(scores, -math.inf)
    if mask is not None:
        mask = _mask_for(mask, groups, repeat)
        scores = b.where(mask, scores, low) if mask.dtype.is_bool else b.add(scores, _wide(mask, scores))
    if node.attr("causal"):
        if isinstance(s, DimExpr) or isinstance(t, DimExpr):
            if s != t:
                return None
        offset = t - s
        assert isinstance(offset, int)
        seen = b.le(b.iota((1, t), 1), b.add(b.iota((s, 1), 0), offset))
        scores = b.where(seen, scores, low)
    p = b.softmax(scores, -1)
    out = b.cast(b.matmul(p, b.cast(v, p.dtype)), dtype)
    return (b.reshape(out, node.types[0].shape),)


def _mask_for(mask: Value, groups: Dim, repeat: Dim) -> Value:
    """A mask for [B, H, S, T] scores, for scores whose heads are split into [G, H/G]."""
    if repeat == 1 or mask.type.rank < 3:
        return mask
    shape = mask.shape
    heads = shape[-3]
    split = (1, 1) if heads == 1 else (groups, repeat)
    return b.reshape(mask, (*shape[:-3], *split, *shape[-2:]))


@decomposition("einsum")
def _(node: Node) -> tuple[Value, ...] | None:
    xs = [operand(node, i) for i in range(len(node.inputs))]
    terms, result = expand_equation(node.attr("equation"), [x.type.rank for x in xs])
    extents: dict[str, Dim] = {}
    for term, x in zip(terms, xs, strict=True):
        for letter, d in zip(term, x.shape, strict=True):
            if extents.setdefault(letter, d) != d:
                return None
        if len(set(term)) != len(term):
            return None
    x, term = xs[0], terms[0]
    if len(xs) == 1:
        x, term = _drop(x, term, set(result))
    for i in range(1, len(xs)):
        later = set(result) | set("".join(terms[i + 1 :]))
        x, term = _contract(x, term, xs[i], terms[i], later)
    x, term = _drop(x, term, set(result))
    return (_arranged(x, term, result),)


def _drop(x: Value, term: str, keep: set[str]) -> tuple[Value, str]:
    """Sum over the letters nobody asks for."""
    gone = [i for i, c in enumerate(term) if c not in keep]
    if not gone:
        return x, term
    return b.reduce_sum(x, gone, keepdims=False), "".join(c for c in term if c in keep)


def _arranged(x: Value, term: str, order: str) -> Value:
    perm = tuple(term.index(c) for c in order)
    return x if perm == tuple(range(len(perm))) else b.transpose(x, perm)


def _contract(x: Value, xt: str, y: Value, yt: str, keep: set[str]) -> tuple[Value, str]:
    x, xt = _drop(x, xt, keep | set(yt))
    y, yt = _drop(y, yt, keep | set(xt))
    both = [c for c in xt if c in yt]
    batch, inner = [c for c in both if c in keep], [c for c in both if c not in keep]
    left, right = [c for c in xt if c not in yt], [c for c in yt if c not in xt]
    extent = dict(zip(xt + yt, x.shape + y.shape, strict=True))
    if not inner:
        order = "".join(batch + left + right)
        return b.mul(_spread(x, xt, order, extent), _spread(y, yt, order, extent)), order
    x = _arranged(x, xt, "".join(batch + left + inner))
    y = _arranged(y, yt, "".join(batch + inner + right))

    lead = [extent[c] for c in batch]
    rows, depth, columns = (product(extent[c] for c in letters) for letters in (left, inner, right))
    out = b.matmul(b.reshape(x, [*lead, rows, depth]), b.reshape(y, [*lead, depth, columns]))
    out = b.cast(out, x.dtype)
    return b.reshape(out, [extent[c] for c in batch + left + right]), "".join(batch + left + right)


def _spread(x: Value, term: str, order: str, extent: dict[str, Dim]) -> Value:
    x = _arranged(x, term, "".join(c for c in order if c in term))
    return b.reshape(x, [extent[c] if c in term else 1 for c in order])
