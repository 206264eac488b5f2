"""Fusion: which nodes of a graph become one region, that is, one kernel.

Walking from the outputs back, an elementwise node joins the region of its users when they are all in one region of as
many elements; the region then takes in at most one *anchor* (a product, a reduction, a pool ...) whose only users are
in it. What joins is never written to memory. Values whose users disagree are written once and read by each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

from ...ir.graph.core import Graph, Node, Value
from ...ir.graph.spec import SPECS

#: ops that are only another view of their operand
VIEWS = frozenset({"reshape", "transpose", "slice", "broadcast"})
LEAVES = frozenset({"constant", "input"})


@dataclass(slots=True)
class Region:
    """`root` is what it writes. `body`: the elementwise (and reshape) nodes, operands first; the anchor feeds it."""

    root: Value
    body: list[Node] = field(default_factory=list)
    anchor: Node | None = None

    @property
    def nodes(self) -> list[Node]:
        return [*([self.anchor] if self.anchor is not None else []), *self.body]

    @property
    def name(self) -> str:
        first = self.anchor or self.body[0]
        rest = "+".join(dict.fromkeys(n.op for n in self.body if n is not first and n.op not in VIEWS))
        return first.op + (f"+{rest}" if rest else "")


def size(v: Value) -> int:
    return prod(v.type.static_shape)


def is_elementwise(n: Node) -> bool:
    return SPECS[n.op].elementwise and not (n.op == "pow" and n.types[0].dtype.is_int)  # which has a kernel of its own


def clusters(graph: Graph, fusable: frozenset[str], keep: frozenset[Value] = frozenset()) -> list[Region]:
    """Regions in an order that can run. `fusable`: anchors that an elementwise tail may follow in the same kernel.
    `keep`: values that must be written whatever their users."""
    users = graph.users()
    outputs = set(graph.outputs) | keep
    home: dict[Node, Region] = {}
    regions: list[Region] = []
    for n in reversed(graph.nodes):
        if n.op in LEAVES:
            continue
        joined = _common_home(n, users, outputs, home)
        small = n.op in ("reshape",)
        if joined is not None and (is_elementwise(n) or small) and size(n.out()) == size(joined.root):
            joined.body.insert(0, n)
            home[n] = joined
        elif is_elementwise(n):
            home[n] = Region(n.out(), [n])
            regions.append(home[n])
        elif n.op in VIEWS:
            continue
        elif (
            joined is not None
            and n.op in fusable
            and joined.anchor is None
            and len(n.types) == 1
            and size(n.out()) == size(joined.root)
        ):
            joined.anchor = n
            home[n] = joined
        else:
            home[n] = Region(n.out(), [], n)
            regions.append(home[n])
    position = {n: k for k, n in enumerate(graph.nodes)}
    for r in regions:
        r.body.sort(key=position.__getitem__)
    return sorted(regions, key=lambda r: position[r.root.node])


def _common_home(
    n: Node, users: dict[Value, list[Node]], outputs: set[Value], home: dict[Node, Region]
) -> Region | None:
    """The region that all users of `n` are in, when there is just one."""
    if any(v in outputs for v in n.outputs):
        return None
    found: Region | None = None
    for v in n.outputs:
        for u in users.get(v, ()):
            r = home.get(u)
            if r is None or u not in r.body or (found is not None and r is not found):
                return None
            found = r
    return found
