"""What the composite shape ops mean in primitives."""

from __future__ import annotations

import numpy as np

from ..types import i64
from . import build as b
from .core import Node, Value
from .decompose_elementwise import in_f32, operand
from .dims import Dim, floordiv
from .op_spec import decomposition
from .ref_resize import axis_scale, axis_taps, untouched


@decomposition("split")
def _(node: Node) -> tuple[Value, ...]:
    x, axis = operand(node), node.attr("axis")
    out, at = [], 0
    for size in node.attr("sizes"):
        starts: list[Dim] = [at if i == axis else 0 for i in range(x.type.rank)]
        stops = [at + size if i == axis else d for i, d in enumerate(x.shape)]
        out.append(b.slice(x, starts, stops))
        at = at + size
    return tuple(out)


@decomposition("tile")
def _(node: Node) -> tuple[Value, ...]:
    x, repeats = operand(node), node.attr("repeats")
    spread = [e for d in x.shape for e in (1, d)]
    wide = [e for r, d in zip(repeats, x.shape, strict=True) for e in (r, d)]
    return (b.reshape(b.broadcast(b.reshape(x, spread), wide), node.types[0].shape),)


@decomposition("one_hot")
def _(node: Node) -> tuple[Value, ...]:
    index, values = operand(node), operand(node, 1)
    depth, rank = node.attr("depth"), index.type.rank + 1
    axis = node.attr("axis") % rank
    wide = b.cast(index, i64)
    wide = b.unsqueeze(b.where(b.lt(wide, 0), b.add(wide, depth), wide), [axis])
    ramp = b.iota([depth if i == axis else 1 for i in range(rank)], axis)
    off, on = (b.reshape(b.slice(values, [i], [i + 1]), ()) for i in range(2))
    return (b.where(b.eq(wide, ramp), on, off),)


@decomposition("trilu")
def _(node: Node) -> tuple[Value, ...]:
    x = operand(node)
    rows, columns = x.shape[-2:]
    down = b.add(b.iota((rows, 1), 0), node.attr("k"))
    across = b.iota((1, columns), 1)
    keep = b.ge(across, down) if node.attr("upper") else b.le(across, down)
    return (b.where(keep, x, b.like(x, 0)),)


@decomposition("space_to_depth")
def _(node: Node) -> tuple[Value, ...]:
    x, k = operand(node), node.attr("block")
    n, c, h, w = x.shape
    y = b.reshape(x, (n, c, floordiv(h, k), k, floordiv(w, k), k))
    return (b.reshape(b.transpose(y, (0, 3, 5, 1, 2, 4)), node.types[0].shape),)


@decomposition("depth_to_space")
def _(node: Node) -> tuple[Value, ...]:
    x, k = operand(node), node.attr("block")
    n, c, h, w = x.shape
    rest = floordiv(c, k * k)
    if node.attr("mode") == "dcr":
        y = b.transpose(b.reshape(x, (n, k, k, rest, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        y = b.transpose(b.reshape(x, (n, rest, k, k, h, w)), (0, 1, 4, 2, 5, 3))
    return (b.reshape(y, node.types[0].shape),)


@decomposition("resize")
@in_f32
def _(node: Node) -> tuple[Value, ...] | None:
    x, scales = operand(node), node.attr("scales")
    attrs = dict(node.attrs)
    for axis, (extent, out) in enumerate(zip(x.shape, node.types[0].shape, strict=True)):
        if extent == out and (scales is None or scales[axis] == 1.0):
            continue
        if not isinstance(extent, int) or not isinstance(out, int):
            return None
        scale = axis_scale(extent, out, scales, axis)
        if untouched(extent, out, scale):
            continue
        at, weights = axis_taps(extent, out, scale, attrs)
        whole = out // extent if extent and out % extent == 0 else 0
        if attrs["mode"] == "nearest":
            if whole and np.array_equal(at[0], np.arange(out) // whole):
                x = _repeat(x, axis, whole)
            else:
                x = b.gather(x, b.const(at[0]), axis)
            continue
        total: Value | None = None
        for index, weight in zip(at, weights, strict=True):
            if not weight.any():
                continue
            shape = [out if i == axis else 1 for i in range(x.type.rank)]
            term = b.mul(b.gather(x, b.const(index), axis), b.const(weight.reshape(shape), x.dtype))
            total = term if total is None else b.add(total, term)
        x = total if total is not None else b.mul(b.gather(x, b.const(at[0]), axis), 0.0)
    return (x,)


def _repeat(x: Value, axis: int, times: int) -> Value:
    """Every element `times` times in a row along an axis."""
    shape = list(x.shape)
    thin = [*shape[: axis + 1], 1, *shape[axis + 1 :]]
    wide = [*shape[: axis + 1], times, *shape[axis + 1 :]]
    out = [d * times if i == axis else d for i, d in enumerate(shape)]
    return b.reshape(b.broadcast(b.reshape(x, thin), wide), out)
