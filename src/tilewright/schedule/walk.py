"""Walking Tile IR: what a schedule needs to see of a kernel."""

from __future__ import annotations

from collections.abc import Iterable

from ..ir.tile import core as t
from ..ir.tile.rewrite import walk


def nodes_of(kernel: t.Kernel) -> list[t.Node]:
    """Every node, regions included, operands and bodies first."""
    return list(walk(kernel.effects))


def region_roots(n: t.Node) -> tuple[t.Node, ...]:
    """What the regions of a structured node end in: its yields and effects."""
    match n.op:
        case "loop":
            return (*n.attr("yields"), *n.attr("effects"))
        case "if":
            return (*n.attr("then_yields"), *n.attr("then_effects"), *n.attr("else_yields"), *n.attr("else_effects"))
        case "par":
            return tuple(n.attr("effects"))
        case _:
            return ()


def parts_of(n: t.Node) -> tuple[t.Node, ...]:
    """What must be evaluated for a node: operands, limits of a loop, then what its regions end in."""
    limits = (n.attr("start"), n.attr("stop")) if n.op == "loop" else ()
    return (*n.args, *(x for x in limits if x is not None), *region_roots(n))


def dots_of(nodes: list[t.Node]) -> list[t.Node]:
    """The matrix products, in the order that a schedule's plans follow."""
    return [n for n in nodes if n.op == "dot"]


def size_of(n: t.Node, sizes: dict[str, int]) -> int:
    """The value of an i64 scalar expression for these dims."""
    match n.op:
        case "const":
            return int(n.attr("value"))
        case "dim":
            return sizes[n.attr("name")]
        case "param":
            return 1
        case "map":
            a = [size_of(x, sizes) for x in n.args]
            match n.attr("fn"):
                case "add":
                    return a[0] + a[1]
                case "sub":
                    return a[0] - a[1]
                case "mul":
                    return a[0] * a[1]
                case "floordiv":
                    return a[0] // a[1] if a[1] else 0
                case "mod":
                    return a[0] % a[1] if a[1] else 0
                case "min":
                    return min(a)
                case "max":
                    return max(a)
                case "neg":
                    return -a[0]
    return 1


def in_order(nodes: Iterable[t.Node]) -> bool:
    """Whether a grid with these nodes must run in one order on one thread: sums of floats depend on the order, and
    results must not depend on the number of threads unless the kernel says that they may."""
    return any(n.op == "scatter" and n.attr("deterministic") and n.args[-1].dtype.is_float
               and n.attr("monoid") in ("sum", "prod") for n in nodes)
