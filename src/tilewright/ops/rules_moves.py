"""Gathers, scatters and powers of integers as calls of library kernels."""

from __future__ import annotations

from math import prod

from ..ir.graph.core import Node
from ..ir.tile import core as t
from .call import Call, Operands, operand, rule, split

_MONOIDS = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}


@rule("gather")
def _gather(ctx: Operands, n: Node) -> Call:
    from . import copy

    x, index = operand(n, 0), operand(n, 1)
    before, length, after = split(x.type.static_shape, int(n.attr("axis")), int(n.attr("axis")))
    count = prod(index.type.static_shape)
    return Call(copy.gather_rows, {"x": ctx.shaped(x, (before, length, after)), "index": ctx.shaped(index, (count,))},
                (before, count, after))


@rule("scatter_nd")
def _scatter(ctx: Operands, n: Node) -> Call:
    """Index tuples of one entry (passes.graph.for_kernels makes every scatter one of rows)."""
    from . import select

    x, index, update = operand(n, 0), operand(n, 1), operand(n, 2)
    rows, columns, count = x.type.static_shape[0], prod(x.type.static_shape[1:]), prod(index.type.static_shape)
    tensors = {"x": ctx.shaped(x, (rows, columns)), "index": ctx.shaped(index, (count,)),
               "update": ctx.shaped(update, (count, columns))}
    how = n.attr("reduction")
    if how == "none":
        return Call(select.scatter_rows, {**tensors}, (rows, columns))
    return Call(select.scatter_rows_add, {**tensors}, (rows, columns), change=lambda k: _combining(k, _MONOIDS[how]))


def _combining(kernel: t.Kernel, monoid: str) -> t.Kernel:
    from ..ir.tile import build as b
    from ..ir.tile.rewrite import rebuild

    out = kernel.outputs[0]

    def visit(node: t.Node, args: tuple[t.Node, ...]) -> t.Node | None:
        return b.scatter(out, args[:-1], args[-1], monoid, loc=node.loc) if node.op == "scatter" else None

    return rebuild(kernel, visit)


@rule("pow")
def _power(ctx: Operands, n: Node) -> Call:
    from . import select

    out = n.types[0]
    x, y = (ctx.reshaped(ctx.view(operand(n, k)).broadcast(out.static_shape), (prod(out.static_shape),))
            for k in range(2))
    return Call(select.power, {"x": x, "y": y}, (prod(out.static_shape),),
                {"bits": out.dtype.bits, "signed": out.dtype.kind == "i"})
