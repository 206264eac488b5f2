"""dyn_* ops whose parameters are known become their static forms."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.graph import build as b
from ...ir.graph.core import Graph, Node, Value
from ...ir.graph.dims import Dim, DimExpr, compare, symbols
from ...ir.graph.make import site_of
from ...ir.graph.spec_dynamic import known_vector, pad_plan, reduce_axes, resize_parameters, slice_plan
from .rewrite import Uses, constant_of, rewrite


def canonicalise_dynamic(graph: Graph) -> Graph:
    return rewrite(graph, dynamic_rule)


def dynamic_rule(node: Node, _: Uses) -> Sequence[Value] | None:
    rule = _RULES.get(node.op)
    return None if rule is None else rule(node)


def _operand(node: Node, index: int = 0) -> Value:
    v = node.inputs[index]
    assert v is not None
    return v


def _settled(node: Node) -> bool:
    """No extent of the results is a symbol of this node's own making."""
    return not any(s.startswith(f"{node.op}_") for t in node.types for d in t.shape for s in symbols(d))


def _reshape(node: Node) -> Sequence[Value] | None:
    return (b.reshape(_operand(node), node.types[0].shape),) if _settled(node) else None


def _broadcast(node: Node) -> Sequence[Value] | None:
    return (b.broadcast(_operand(node), node.types[0].shape),) if _settled(node) else None


def _full(node: Node) -> Sequence[Value] | None:
    if not _settled(node):
        return None
    return (b.broadcast(b.reshape(_operand(node, 1), ()), node.types[0].shape),)


def _range(node: Node) -> Sequence[Value] | None:
    if not _settled(node):
        return None
    start, _, delta = (b.reshape(_operand(node, i), ()) for i in range(3))
    ramp = b.iota(node.types[0].shape, 0, node.types[0].dtype)
    return (b.add(b.mul(ramp, delta), start),)


def _tile(node: Node) -> Sequence[Value] | None:
    repeats = site_of(node).dims(1)
    return None if repeats is None else (b.tile(_operand(node), list(repeats)),)


def _slice(node: Node) -> Sequence[Value] | None:
    plan = slice_plan(site_of(node))
    if plan is None:
        return None
    starts, stops, steps = zip(*plan, strict=True) if plan else ((), (), ())
    return (b.slice(_operand(node), starts, stops, steps),)


def _pad(node: Node) -> Sequence[Value] | None:
    site = site_of(node)
    plan = pad_plan(site)
    value = 0.0
    if site.optional(2) is not None:
        fill = constant_of(node.inputs[2])
        if fill is None:
            return None
        value = float(fill.reshape(-1)[0])
    if plan is None:
        return None
    x = _operand(node)
    lo, hi = plan
    if any(compare(p, 0) is None for p in (*lo, *hi)):
        return None
    cut_lo: list[Dim] = [-p if compare(p, 0) == -1 else 0 for p in lo]
    cut_hi: list[Dim] = [d + p if compare(p, 0) == -1 else d for p, d in zip(hi, x.shape, strict=True)]
    x = b.slice(x, cut_lo, cut_hi)
    keep_lo, keep_hi = ([p if compare(p, 0) != -1 else 0 for p in side] for side in (lo, hi))
    return (b.pad(x, keep_lo, keep_hi, value, node.attr("mode")),)


def _split(node: Node) -> Sequence[Value] | None:
    sizes = site_of(node).dims(1)
    return None if sizes is None else b.split(_operand(node), list(sizes), node.attr("axis"))


def _squeeze(node: Node) -> Sequence[Value] | None:
    return (b.reshape(_operand(node), node.types[0].shape),)


def _resize(node: Node) -> Sequence[Value] | None:
    found = resize_parameters(site_of(node))
    if found is None:
        return None
    return (b.resize(_operand(node), scales=found[0], sizes=found[1], **dict(node.attrs)),)


def _topk(node: Node) -> Sequence[Value] | None:
    k = site_of(node).dims(1)
    if k is None or isinstance(k.reshape(-1)[0], DimExpr):
        return None
    a = node.attr
    return b.topk(_operand(node), int(k.reshape(-1)[0]), a("axis"), a("largest"), a("sorted"))


def _reduce(node: Node) -> Sequence[Value] | None:
    axes = reduce_axes(site_of(node))
    if axes is None:
        return None
    if not axes:
        return (_operand(node),)
    op = f"reduce_{node.attr('kind')}"
    return b.make(op, _operand(node), axes=tuple(axes), keepdims=node.attr("keepdims")).outputs


def _unsqueeze(node: Node) -> Sequence[Value] | None:
    return None if known_vector(site_of(node), 1) is None else _squeeze(node)


_RULES: dict[str, Callable[[Node], Sequence[Value] | None]] = {
    "dyn_reshape": _reshape,
    "dyn_broadcast": _broadcast,
    "dyn_full": _full,
    "dyn_range": _range,
    "dyn_tile": _tile,
    "dyn_slice": _slice,
    "dyn_pad": _pad,
    "dyn_split": _split,
    "dyn_squeeze": _squeeze,
    "dyn_unsqueeze": _unsqueeze,
    "dyn_resize": _resize,
    "dyn_topk": _topk,
    "dyn_reduce": _reduce,
}
