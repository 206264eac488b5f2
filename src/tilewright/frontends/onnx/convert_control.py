"""Control flow: If. A condition that is known picks its branch at once; otherwise both become graphs of their own.

Exporters use If to choose by rank (squeeze a size-one axis, or leave it). Such branches disagree in rank, so the
condition has to follow from the shapes: the message says which dims to fix when it does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir.graph.core import Graph, Value, graph_input
from .registry import Context, Poisoned, Results, op
from .tensors import Refusal


@op("If")
def if_(c: Context) -> Results:
    cond = c.x()
    then_proto, else_proto = c.attr("then_branch"), c.attr("else_branch")
    known = c.known(cond)
    if known is not None and known.size == 1:
        taken = then_proto if bool(known.reshape(-1)[0]) else else_proto
        inlined: list[Value | Poisoned] = c.importer.inline(taken, c.scope, c.name)
        return inlined
    if cond.type.rank:
        cond = c.make("reshape", cond, shape=())
    then = c.importer.branch(then_proto, c.scope, f"{c.name}/then")
    other = c.importer.branch(else_proto, c.scope, f"{c.name}/else")
    if not all(isinstance(v, Value) for v in [*then.outputs, *other.outputs]):
        return [Poisoned()] * c.outputs
    _same_types(then.outputs, other.outputs)
    captured = list(dict.fromkeys([*then.captures, *other.captures]))
    graphs = [_graph(c, label, built, captured) for label, built in (("then", then), ("else", other))]
    return c.node("if_", cond, *captured, then_branch=graphs[0], else_branch=graphs[1]).outputs


def _graph(c: Context, label: str, built: Any, captured: Sequence[Value]) -> Graph:
    inputs = [
        built.captures[v] if v in built.captures else graph_input(f"{c.name}/{label}/unused {i}", v.type)
        for i, v in enumerate(captured)
    ]
    names: dict[Value, str] = dict(zip(built.outputs, built.names, strict=True))
    return Graph(f"{c.name}/{label}", inputs, built.outputs, built.names, names)


def _same_types(then: Sequence[Value], other: Sequence[Value]) -> None:
    if len(then) != len(other):
        raise Refusal(f"its branches give {len(then)} and {len(other)} results")
    for i, (a, b) in enumerate(zip(then, other, strict=True)):
        if a.dtype != b.dtype or a.type.rank != b.type.rank:
            raise Refusal(
                f"result {i} is {a.type} in one branch and {b.type} in the other, and its condition is not known when "
                f"the model is loaded: fix the dims or inputs that decide it, with load(..., dims=...) or fixed=...",
                until_shapes=True,
            )
