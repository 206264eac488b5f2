"""Work out at compile time what depends on constants and on known shapes only; inline branches that are decided."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import TilewrightError
from ...interp.graph import evaluate_node
from ...ir.graph.build import const
from ...ir.graph.core import ArrayRef, Graph, Node, Value, constant
from ...ir.graph.shape_values import known_dims
from .rewrite import Uses, inline, rewrite

LIMIT = 64 << 20
#: ops whose result is cheaper to make again than to keep, when it is large
SPREADING = frozenset(
    {"broadcast", "dyn_broadcast", "dyn_full", "iota", "dyn_range", "tile", "dyn_tile", "resize", "pad"}
)
SPREAD_LIMIT = 64 << 10


def fold_constants(graph: Graph, limit: int = LIMIT) -> Graph:
    """Nodes with constant operands become constants, unless a result is larger than `limit` bytes."""

    def rule(node: Node, _: Uses) -> Sequence[Value] | None:
        if node.op == "if_":
            return _decided(node)
        known = _from_shapes(node)
        if known is not None:
            return known
        return _evaluated(node, limit)

    return rewrite(graph, rule)


def _decided(node: Node) -> Sequence[Value] | None:
    condition = node.inputs[0]
    assert condition is not None
    known = known_dims(condition)
    if known is None:
        return None
    branch = node.attr("then_branch" if known.reshape(-1)[0] else "else_branch")
    return inline(branch, [v for v in node.inputs[1:] if v is not None])


def _from_shapes(node: Node) -> Sequence[Value] | None:
    if len(node.types) != 1:
        return None
    t = node.types[0]
    known = known_dims(node.out())
    if known is None or any(not isinstance(x, (int, bool)) for x in known.flat):
        return None
    return (const(known.astype(t.dtype.numpy)),)


def _evaluated(node: Node, limit: int) -> Sequence[Value] | None:
    if any(v is not None and not v.is_constant for v in node.inputs):
        return None
    if not all(t.is_static for t in node.types):
        return None
    size = sum(int(np.prod(t.static_shape)) * t.dtype.itemsize for t in node.types)
    if size > (SPREAD_LIMIT if node.op in SPREADING else limit):
        return None
    try:
        results = evaluate_node(node, [None if v is None else v.constant for v in node.inputs], {})
    except TilewrightError:
        return None
    return tuple(constant(ArrayRef(np.array(r), own=True)) for r in results)
