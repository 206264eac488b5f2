"""Facts about a kernel's node graph that lowering needs: who uses what, what must be given memory, in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...ir.tile import core as t
from ...schedule.walk import dots_of, nodes_of, parts_of, region_roots

#: functions worth keeping in memory rather than computing twice
EXPENSIVE = frozenset({
    "exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "erf", "sigmoid", "pow", "atan2", "fmod",
})
#: nodes that always get memory of their own
STRUCTURED = frozenset({"fold", "argfold", "scan", "dot", "loop", "if"})
EFFECTS = frozenset({"store", "scatter", "par"})


@dataclass(frozen=True, slots=True)
class Analysis:
    order: tuple[t.Node, ...]
    users: dict[t.Node, list[t.Node]]
    kept: frozenset[t.Node]  # elementwise nodes that get memory because recomputing them would cost more
    dots: tuple[t.Node, ...]

    def needs_memory(self, n: t.Node) -> bool:
        return n.op in STRUCTURED or n in self.kept


def analyse(kernel: t.Kernel) -> Analysis:
    order = nodes_of(kernel)
    users: dict[t.Node, list[t.Node]] = {}
    for n in order:
        for c in parts_of(n):
            users.setdefault(c, []).append(n)
    dots = tuple(dots_of(order))
    return Analysis(tuple(order), users, _kept(order, dots), dots)


def _kept(order: Sequence[t.Node], dots: Sequence[t.Node]) -> frozenset[t.Node]:
    """Expensive elementwise nodes reached from two consumers that own memory, and operands of products that stay the
    same from one trip of the product's loop to the next."""
    reached_by: dict[t.Node, set[t.Node]] = {}
    kept: set[t.Node] = set()
    for n in reversed(order):  # users before operands
        owners = reached_by.get(n, set())
        if n.op == "map" and n.attr("fn") in EXPENSIVE and n.type is not None and n.type.rank and len(owners) > 1:
            kept.add(n)
            owners = {n}
        if n.op in STRUCTURED or n.op in EFFECTS:
            owners = {n}
        for c in parts_of(n):
            reached_by.setdefault(c, set()).update(owners)
    for d in dots:
        for operand in d.args[1:]:
            if operand.op not in STRUCTURED and operand.op != "load" and _invariant(operand, d):
                kept.add(operand)
    return frozenset(kept)


def _invariant(operand: t.Node, dot: t.Node) -> bool:
    """Whether the operand ignores a loop variable that the rest of the product depends on."""
    loops = {v for v in dot.free if isinstance(v, t.Node)}  # carried values stand for the loops around
    return bool(loops) and not (loops & operand.free) and bool(dot.free - operand.free)


def has_effects(n: t.Node) -> bool:
    """Whether a structured node stores or scatters, directly or further in."""
    return any(r.op in EFFECTS or has_effects(r) for r in region_roots(n))
