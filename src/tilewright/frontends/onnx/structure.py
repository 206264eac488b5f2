"""The shape of a GraphProto as a graph: names defined once, operands that exist, and an order without cycles.

Nothing here recurses on the size of a model; nesting of subgraphs is bounded.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ...errors import Problem

if TYPE_CHECKING:
    import onnx

MAX_DEPTH = 24
_GRAPH, _GRAPHS = 5, 10  # AttributeProto.AttributeType


def node_name(node: onnx.NodeProto, index: int) -> str:
    """What to call a node in a message: its name, else its first output, else its position."""
    return str(node.name or next((o for o in node.output if o), "") or f"#{index}")


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for a in node.attribute:
        if a.type == _GRAPH:
            yield a.g
        elif a.type == _GRAPHS:
            yield from a.graphs


def depth(graph: onnx.GraphProto, limit: int = MAX_DEPTH) -> int:
    """Levels of nested subgraphs; stops counting one past `limit`."""
    if limit < 0:
        return 1
    return 1 + max((depth(g, limit - 1) for n in graph.node for g in subgraphs(n)), default=0)


def free_names(graph: onnx.GraphProto) -> set[str]:
    """Names that a subgraph takes from the graphs around it."""
    own = {v.name for v in graph.input} | {t.name for t in graph.initializer}
    own |= {t.values.name for t in graph.sparse_initializer}
    own |= {o for n in graph.node for o in n.output}
    used = {o.name for o in graph.output}
    for n in graph.node:
        used.update(n.input)
        for g in subgraphs(n):
            used |= free_names(g)
    return {u for u in used - own if u}


def order(
    graph: onnx.GraphProto, visible: Callable[[str], bool], problems: list[Problem], where: str
) -> list[int]:
    """Positions of the nodes, operands first (the file's own order where that is possible). Problems found are
    added to the list: names defined twice, operands nobody defines, cycles. `visible` knows outer names."""
    return order_nodes(
        list(graph.node),
        [v.name for v in graph.input],
        [t.name for t in graph.initializer] + [t.values.name for t in graph.sparse_initializer],
        visible, problems, where,
    )  # fmt: skip


def order_nodes(
    nodes: list[onnx.NodeProto],
    inputs: list[str],
    initializers: list[str],
    visible: Callable[[str], bool],
    problems: list[Problem],
    where: str,
) -> list[int]:
    names = [node_name(n, i) for i, n in enumerate(nodes)]
    producer = _producers(nodes, names, inputs, initializers, problems, where)
    needs: list[set[int]] = []
    for i, n in enumerate(nodes):
        wanted = [x for x in n.input if x]
        for g in subgraphs(n):
            wanted.extend(sorted(free_names(g)))
        deps = set[int]()
        for x in dict.fromkeys(wanted):
            if x in producer:
                if producer[x] >= 0:
                    deps.add(producer[x])
            elif not visible(x):
                problems.append(Problem(names[i], n.op_type, f"its operand '{x}' is not defined anywhere"))
        needs.append(deps)
    found = _sorted(needs)
    if len(found) < len(nodes):
        stuck = _cycle(needs, set(range(len(nodes))) - set(found))
        path = " -> ".join(f"'{names[i]}'" for i in stuck[:8]) + (" -> ..." if len(stuck) > 8 else "")
        problems.append(Problem(names[stuck[0]], nodes[stuck[0]].op_type, f"the graph has a cycle: {path}"))
    return found


def _producers(
    nodes: list[onnx.NodeProto],
    names: list[str],
    inputs: list[str],
    initializers: list[str],
    problems: list[Problem],
    where: str,
) -> dict[str, int]:
    """Who defines a name: a node's position, or -1 for an input or initialiser."""
    for kind, listed in (("input", inputs), ("initialiser", initializers)):
        for name in repeated(listed):
            problems.append(Problem(where, kind, f"the name '{name}' is defined twice"))
    producer = dict.fromkeys([*inputs, *initializers], -1)
    for i, n in enumerate(nodes):
        for o in n.output:
            if not o:
                continue
            if o in producer:
                problems.append(Problem(names[i], n.op_type, f"its output '{o}' is already defined elsewhere"))
            else:
                producer[o] = i
    return producer


def repeated(names: Iterable[str]) -> list[str]:
    seen, twice = set[str](), dict[str, None]()
    for n in names:
        if n in seen:
            twice[n] = None
        seen.add(n)
    return list(twice)


def _sorted(needs: list[set[int]]) -> list[int]:
    users: list[list[int]] = [[] for _ in needs]
    waiting = [len(d) for d in needs]
    for i, deps in enumerate(needs):
        for d in deps:
            users[d].append(i)
    ready = [i for i, w in enumerate(waiting) if w == 0]
    heapq.heapify(ready)
    out: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        out.append(i)
        for u in users[i]:
            waiting[u] -= 1
            if waiting[u] == 0:
                heapq.heappush(ready, u)
    return out


def _cycle(needs: list[set[int]], stuck: set[int]) -> list[int]:
    """One cycle among the nodes that could not be ordered, starting and ending at the same node."""
    at, seen, path = min(stuck), dict[int, int](), list[int]()
    while at not in seen:
        seen[at] = len(path)
        path.append(at)
        at = min(d for d in needs[at] if d in stuck)
    loop = path[seen[at] :]
    return [*reversed(loop), loop[-1]]
