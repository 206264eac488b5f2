"""Replace composites that a target does not run by their decompositions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...ir.graph.core import Graph, Node, Value
from ...ir.graph.spec import SPECS
from .rewrite import Uses, rewrite


def decompose(graph: Graph, keep: Collection[str] = frozenset()) -> Graph:
    """Every composite not in `keep`, as far as its extents are known."""

    def rule(node: Node, _: Uses) -> Sequence[Value] | None:
        spec = SPECS[node.op]
        if not spec.composite or node.op in keep or spec.decompose is None:
            return None
        return spec.decompose(node)

    return rewrite(graph, rule)
