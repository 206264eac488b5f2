"""Reductions, scans and what works along one axis, as calls of library kernels."""

from __future__ import annotations

from math import prod

from ..errors import UnsupportedError
from ..ir.graph.core import Node
from ..ir.types import accumulator
from .call import Call, Operands, greatest, least, operand, rule, split
from .view import View


def _rows(ctx: Operands, n: Node) -> tuple[View, tuple[int, int]]:
    x = operand(n, 0)
    shape = x.type.static_shape
    axis = int(n.attr("axis", -1)) % len(shape)
    before, length, after = split(shape, axis, axis) if n.op != "layer_norm" else split(shape, axis, len(shape) - 1)
    if after != 1:
        raise UnsupportedError(f"{n.op} over an inner axis reached code generation", loc=n.loc,
                               hint="passes.graph.for_kernels moves the axis to the end")
    return ctx.shaped(x, (before, length)), (before, length)


@rule("softmax", "log_softmax", "layer_norm")
def _normalise(ctx: Operands, n: Node) -> Call:
    from . import reduce

    x, shape = _rows(ctx, n)
    static = {"epsilon": float(n.attr("epsilon", 1e-5))} if n.op == "layer_norm" else {}
    return Call(getattr(reduce, n.op), {"x": x}, shape, {**static, "acc": accumulator(x.base.dtype)})


@rule("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_mean")
def _reduce(ctx: Operands, n: Node) -> Call:
    from . import reduce

    x = operand(n, 0)
    shape = x.type.static_shape
    axes = tuple(sorted(int(a) % len(shape) for a in n.attr("axes")))
    kept = tuple(k for k in range(len(shape)) if k not in axes)
    kind = {"kind": n.op.removeprefix("reduce_")}
    if axes != tuple(range(axes[0], axes[-1] + 1)):  # bring the folded axes to the end
        view = ctx.view(x).transpose((*kept, *axes))
        rows = prod(shape[k] for k in kept)
        return Call(reduce.reduce_inner, {"x": ctx.reshaped(view, (rows, prod(shape[k] for k in axes)))}, (rows,), kind)
    before, length, after = split(shape, axes[0], axes[-1])
    if after == 1:
        return Call(reduce.reduce_inner, {"x": ctx.shaped(x, (before, length))}, (before,), kind)
    return Call(reduce.reduce_middle, {"x": ctx.shaped(x, (before, length, after))}, (before, after), kind)


@rule("argmax", "argmin")
def _arg(ctx: Operands, n: Node) -> Call:
    from . import reduce

    x = operand(n, 0)
    before, length, after = parts = split(x.type.static_shape, int(n.attr("axis")), int(n.attr("axis")))
    return Call(reduce.arg_middle, {"x": ctx.shaped(x, parts)}, (before, after), {"largest": n.op == "argmax"})


@rule("cumsum")
def _cumsum(ctx: Operands, n: Node) -> Call:
    from . import reduce

    x = operand(n, 0)
    parts = split(x.type.static_shape, int(n.attr("axis")), int(n.attr("axis")))
    return Call(reduce.cumsum_middle, {"x": ctx.shaped(x, parts)}, parts,
                {"exclusive": bool(n.attr("exclusive")), "reverse": bool(n.attr("reverse"))})


@rule("topk")
def _topk(ctx: Operands, n: Node) -> Call:
    from . import select

    x, shape = _rows(ctx, n)
    largest, k = bool(n.attr("largest")), int(n.attr("k"))
    worst = least(x.base.dtype) if largest else greatest(x.base.dtype)
    return Call(select.topk, {"x": x}, (shape[0], k), {"k": k, "largest": largest, "worst": worst})
