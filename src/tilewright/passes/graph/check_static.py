"""Refuse graphs with shapes that only values known at run time decide: code is made for known shapes."""

from __future__ import annotations

from ...errors import ModelError, Problem
from ...ir.graph.core import Graph, Node


def check_static(graph: Graph) -> None:
    """Raises ModelError with every node where such a shape begins; those after it are not blamed."""
    problems = _problems(graph)
    if problems:
        raise ModelError(f"model '{graph.name}' has shapes that depend on values", problems,
                         hint="give the inputs that decide them a value: load(..., fixed={...}), or dims={...}")


def _problems(graph: Graph) -> list[Problem]:
    found: list[Problem] = []
    for n in graph.nodes:
        for key in ("then_branch", "else_branch") if n.op == "if_" else ():
            found += _problems(n.attr(key))
        if all(t.is_static for t in n.types) or not all(v is None or v.type.is_static for v in n.inputs):
            continue
        types = ", ".join(f"{t.dtype}[{', '.join(str(d) if isinstance(d, int) else '?' for d in t.shape)}]"
                          for t in n.types)
        found.append(Problem(n.name or n.op, n.op, _reason(n), types))
    return found


def _reason(n: Node) -> str:
    if n.op == "input":
        return "a dim of this input has no value"
    if n.op == "if_":
        return "its branches give results of different shapes, and which one is taken is known only when the model runs"
    return "the shape of its result depends on values that are known only when the model runs"
