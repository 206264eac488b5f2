"""The engine of the graph passes: rebuild a graph bottom-up, replacing nodes by a rule, to a fixed point.

Nodes are immutable, so a pass builds new ones: for every node, operands first, the rule is asked for values that
equal the node's results. Whatever is not replaced is rebuilt on its new operands with its types worked out again. Where
that makes an extent exact that was a fresh symbol before, the symbol is replaced in everything that follows.
Common subexpressions and dead code need no pass: nodes are interned, and a graph is what its outputs reach.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from ...errors import VerifyError
from ...ir.graph.build import location, rebuild
from ...ir.graph.core import Graph, Node, TensorType, Value, graph_input
from ...ir.graph.dims import Dim, DimExpr, Symbol, substitute, symbols

Rule: TypeAlias = "Callable[[Node, Uses], Sequence[Value] | None]"
MAX_SWEEPS = 64


class Uses:
    """How many times each value is read (by nodes and as an output), kept right for values a sweep has rebuilt."""

    def __init__(self, graph: Graph) -> None:
        self.counts: dict[Value, int] = {}
        for node in graph.nodes:
            for v in node.inputs:
                if v is not None:
                    self.counts[v] = self.counts.get(v, 0) + 1
        for v in graph.outputs:
            self.counts[v] = self.counts.get(v, 0) + 1

    def once(self, v: Value) -> bool:
        return self.counts.get(v, 1) <= 1

    def follow(self, old: Node, new: Sequence[Value]) -> None:
        for i, v in enumerate(new):
            n = self.counts.get(old.out(i), 0)
            if v not in self.counts or v == old.out(i):
                self.counts[v] = n
            elif v.node is not old:
                self.counts[v] = max(self.counts[v], n)


def rewrite(graph: Graph, rule: Rule, *, sweeps: int = MAX_SWEEPS) -> Graph:
    """`graph` with `rule` applied until nothing changes (or for a number of sweeps)."""
    for _ in range(sweeps):
        after = sweep(graph, rule)
        if after == graph:
            return after
        graph = after
    if sweeps == MAX_SWEEPS:
        raise VerifyError(f"rewriting graph '{graph.name}' did not come to an end")
    return graph


def sweep(
    graph: Graph,
    rule: Rule,
    *,
    inputs: Sequence[Value] | None = None,
    dims: Mapping[str, Dim] | None = None,
) -> Graph:
    """One pass over the nodes. `inputs` replace the graph's inputs, `dims` its symbols."""
    uses = Uses(graph)
    bound: dict[str, Dim] = dict(dims or {})
    table: dict[Value, Value] = {}
    for old, new in zip(graph.inputs, inputs or graph.inputs, strict=True):
        table[old] = new
        _learn(old.type, new.type, bound)
    for node in graph.nodes:
        if node.op in ("input", "constant"):
            if node.op == "constant" or node.out() not in table:
                table[node.out()] = node.out()
            continue
        operands = [None if v is None else table[v] for v in node.inputs]
        with location(node.loc, node.name):
            rebuilt = _rebuilt(node, operands, bound, rule)
            uses.follow(node, rebuilt.outputs)
            replaced = rule(rebuilt, uses)
        results = rebuilt.outputs if replaced is None else tuple(replaced)
        for i, (before, after) in enumerate(zip(node.outputs, results, strict=True)):
            if before.type != after.type:
                if before.dtype != after.dtype or before.type.rank != after.type.rank:
                    raise VerifyError(
                        f"a pass put {after.type} for result {i} of '{node.op}' (node '{node.name}'), {before.type}",
                        loc=node.loc,
                    )
                _learn(before.type, after.type, bound)
            table[before] = after
        if replaced is not None:
            uses.follow(node, results)
    return regraph(graph, [table[v] for v in graph.inputs], [table[v] for v in graph.outputs], table)


def regraph(graph: Graph, inputs: Sequence[Value], outputs: Sequence[Value], table: Mapping[Value, Value]) -> Graph:
    """A graph with new values, keeping the names of those that still exist."""
    out = Graph(graph.name, inputs, outputs, graph.output_names)
    if graph.value_names:
        alive = {id(n) for n in out.nodes}
        for v, name in graph.value_names.items():
            new = table.get(v)
            if new is not None and id(new.node) in alive:
                out.value_names.setdefault(new, name)
    return out


def _learn(before: TensorType, after: TensorType, bound: dict[str, Dim]) -> None:
    """Symbols that stood for an extent which is known better now."""
    for a, b in zip(before.shape, after.shape, strict=True):
        if isinstance(a, DimExpr) and a != b and len(a.terms) == 1 and a.terms[0][1] == 1 and not a.const:
            atom = a.terms[0][0]
            if isinstance(atom, Symbol) and atom.name not in symbols(b):
                bound.setdefault(atom.name, b)


def _rebuilt(node: Node, operands: Sequence[Value | None], bound: Mapping[str, Dim], rule: Rule) -> Node:
    changed: dict[str, Any] = {}
    for key, value in node.attrs:
        if isinstance(value, tuple) and bound:
            fresh = substituted(value, bound)
            if fresh != value:
                changed[key] = fresh
        elif isinstance(value, Graph):
            branch = retyped(value, [v.type for v in operands[1:] if v is not None], bound)
            branch = rewrite(branch, rule)
            if branch != value:
                changed[key] = branch
    return rebuild(node, operands, **changed)


def substituted(value: Any, bound: Mapping[str, Dim]) -> Any:
    if isinstance(value, DimExpr):
        out = substitute(value, bound)
        return out
    return tuple(substituted(v, bound) for v in value) if isinstance(value, tuple) else value


def retyped(graph: Graph, types: Sequence[TensorType], bound: Mapping[str, Dim]) -> Graph:
    """A branch whose inputs have these types."""
    if all(v.type == t for v, t in zip(graph.inputs, types, strict=True)) and not bound:
        return graph
    inputs = [graph_input(str(v.node.attr("name")), t) for v, t in zip(graph.inputs, types, strict=True)]
    return sweep(graph, lambda node, uses: None, inputs=inputs, dims=bound)


def inline(graph: Graph, values: Sequence[Value]) -> list[Value]:
    """The outputs of a graph with its inputs replaced by values."""
    table: dict[Value, Value] = dict(zip(graph.inputs, values, strict=True))
    bound: dict[str, Dim] = {}
    for old, new in table.items():
        _learn(old.type, new.type, bound)
    for node in graph.nodes:
        if node.op == "input" and node.out() in table:
            continue
        if node.op in ("input", "constant"):
            table[node.out()] = node.out()
            continue
        new_node = _rebuilt(node, [None if v is None else table[v] for v in node.inputs], bound, lambda n, u: None)
        for before, after in zip(node.outputs, new_node.outputs, strict=True):
            if before.type.rank == after.type.rank:
                _learn(before.type, after.type, bound)
            table[before] = after
    return [table[v] for v in graph.outputs]


def constant_of(v: Value | None) -> Any:
    """The array of a constant, or None."""
    return v.constant if v is not None and v.is_constant else None


def scalar_of(v: Value | None) -> float | None:
    """The number a constant holds in every element, or None."""
    if v is None:
        return None
    if v.node.op == "broadcast":
        return scalar_of(v.node.inputs[0])
    if not v.is_constant or v.constant.size == 0 or v.constant.size > 4096:
        return None
    flat = v.constant.reshape(-1)
    first = flat[0]
    return float(first) if bool((flat == first).all()) else None
