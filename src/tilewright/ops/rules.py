"""From a graph op to a library kernel: which kernel, on which views of which operands, with which static arguments.

A rule answers with a `Call`, or raises UnsupportedError with the reason and what would work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

import numpy as np

from ..errors import UnsupportedError
from ..ir.graph.core import Node, Value
from .view import View

Array = np.ndarray[Any, Any]


class Operands(Protocol):
    """What a rule may ask of the plan being made."""

    def view(self, value: Value) -> View:
        """Where the value lies."""

    def shaped(self, value: Value, shape: tuple[int, ...]) -> View:
        """The value in another shape of as many elements; copied when its strides do not allow it."""

    def constant(self, value: Value) -> Array | None:
        """The data of a value known now."""


@dataclass(slots=True)
class Call:
    """`tensors`: parameters in order, as views or as constant arrays; `out_shape`: the dims of the kernel's output;
    `arrange`: a view shaped like the op's result, as the kernel's output dims see it (None: it cannot be seen so);
    `packable`: a constant second operand of a product that may come in panels."""

    kernel: Any
    tensors: dict[str, View | Array]
    out_shape: tuple[int, ...]
    static: dict[str, Any] = field(default_factory=dict)
    packable: str | None = None
    arrange: Callable[[View], View | None] | None = None

    def arranged(self, v: View) -> View | None:
        return self.arrange(v) if self.arrange is not None else v.reshape(self.out_shape)


Rule = Callable[[Operands, Node], Call]
RULES: dict[str, Rule] = {}

#: anchors whose kernel may end in an elementwise tail
FUSABLE = frozenset({"matmul", "conv", "conv_transpose", "max_pool", "avg_pool", "softmax", "log_softmax", "layer_norm",
                     "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_mean", "gather"})
#: composites with a kernel of their own; all others are decomposed
KEPT = frozenset({"softmax", "log_softmax", "layer_norm", "reduce_mean"})


def rule(*ops: str) -> Callable[[Rule], Rule]:
    def register(fn: Rule) -> Rule:
        for op in ops:
            RULES[op] = fn
        return fn

    return register


def operand(n: Node, k: int) -> Value:
    v = n.inputs[k]
    assert v is not None, f"{n.op} lacks operand {k}"
    return v


def weights(ctx: Operands, v: Value, shape: tuple[int, ...]) -> View | Array:
    """A constant in the shape a kernel wants, or the view of a computed value."""
    data = ctx.constant(v)
    return data.reshape(shape) if data is not None else ctx.shaped(v, shape)


# ---------------------------------------------------------------------------------------------- products


@rule("matmul")
def _matmul(ctx: Operands, n: Node) -> Call:
    from . import matmul

    a, b = operand(n, 0), operand(n, 1)
    sa, sb = a.type.static_shape, b.type.static_shape
    sa = (1, *sa) if len(sa) == 1 else sa
    sb = (*sb, 1) if len(sb) == 1 else sb
    m, k, cols = sa[-2], sa[-1], sb[-1]
    lead_b = prod(sb[:-2])
    if lead_b == 1:
        rows = prod(sa[:-1])
        return Call(matmul.matmul, {"x": ctx.shaped(a, (rows, k)), "w": weights(ctx, b, (k, cols))}, (rows, cols),
                    packable="w")
    lead = np.broadcast_shapes(sa[:-2], sb[:-2])
    batch = prod(lead)
    x, w = ctx.shaped(a, sa).broadcast((*lead, m, k)), ctx.shaped(b, sb).broadcast((*lead, k, cols))
    xs, ws = x.reshape((batch, m, k)), w.reshape((batch, k, cols))
    if xs is None or ws is None:
        raise UnsupportedError(f"matmul of {sa} and {sb}: batch axes that broadcast in alternation are not supported",
                               loc=n.loc)
    return Call(matmul.batched_matmul, {"x": xs, "w": ws}, (batch, m, cols))


def _two_dims(n: Node, names: tuple[str, ...], spatial: int) -> dict[str, tuple[int, int]]:
    """Per-axis attributes as (height, width); a one-dimensional op has height one."""
    out: dict[str, tuple[int, int]] = {}
    for name in names:
        value = n.attr(name) or ((0,) if name.startswith("pads") else (1,)) * spatial
        out[name] = (0 if name.startswith("pads") else 1, int(value[0])) if spatial == 1 else (int(value[0]), int(value[1]))
    return out


def _planes(n: Node, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    if n.attr("layout", "last") != "last":
        raise UnsupportedError(f"{n.op} with channels first reached code generation", loc=n.loc,
                               hint="run passes.graph.pipeline first")
    if len(shape) == 3:
        return shape[0], 1, shape[1], shape[2]
    if len(shape) == 4:
        return shape[0], shape[1], shape[2], shape[3]
    raise UnsupportedError(f"{n.op} over {len(shape) - 2} spatial axes has no kernel yet (one and two have)", loc=n.loc)


@rule("conv")
def _conv(ctx: Operands, n: Node) -> Call:
    from . import conv

    x, w = operand(n, 0), operand(n, 1)
    shape, ws = x.type.static_shape, w.type.static_shape
    b, height, width, channels = _planes(n, shape)
    spatial = len(shape) - 2
    at = _two_dims(n, ("strides", "pads_lo", "dilations"), spatial)
    r, s = (1, ws[0]) if spatial == 1 else (ws[0], ws[1])
    per_group, features = ws[-2], ws[-1]
    out = n.types[0].static_shape
    p, q = (1, out[1]) if spatial == 1 else (out[1], out[2])
    groups = int(n.attr("groups", 1))
    static = {"p_size": p, "q_size": q, "stride_h": at["strides"][0], "stride_w": at["strides"][1],
              "pad_h": at["pads_lo"][0], "pad_w": at["pads_lo"][1]}
    dilation = {"dilation_h": at["dilations"][0], "dilation_w": at["dilations"][1]}
    kernel_out = (b, p, q, features)
    if groups == channels and per_group == 1 and features == channels and groups > 1:
        return Call(conv.conv2d_depthwise, {"x": ctx.shaped(x, (b, height, width, channels)),
                                            "w": weights(ctx, w, (r, s, channels))}, kernel_out, {**static, **dilation})
    if groups > 1:
        return Call(conv.conv2d_grouped, {"x": ctx.shaped(x, (b, height, width, channels)),
                                          "w": weights(ctx, w, (r, s, per_group, features))}, kernel_out,
                    {"groups": groups, **static, **dilation})
    if r == s == 1 and at["strides"] == (1, 1) and at["pads_lo"] == (0, 0) and (p, q) == (height, width):
        from . import matmul

        rows = b * p * q
        return Call(matmul.matmul, {"x": ctx.shaped(x, (rows, channels)), "w": weights(ctx, w, (channels, features))},
                    (rows, features), packable="w")
    if channels * s <= 64 and s > 1 and at["dilations"] == (1, 1):
        return Call(conv.conv2d_narrow, {"x": ctx.shaped(x, (b, height, width * channels)),
                                         "w": weights(ctx, w, (r, s * channels, features))}, kernel_out,
                    {"channels": channels, **static}, packable="w")
    return Call(conv.conv2d, {"x": ctx.shaped(x, (b, height, width, channels)),
                              "w": weights(ctx, w, (r, s, channels, features))}, kernel_out, {**static, **dilation},
                packable="w")


def without_overlap(n: Node) -> bool:
    """Whether every output pixel of a conv_transpose (channels last) sees just one input pixel."""
    w = operand(n, 1)
    window = w.shape[:-2]
    zero = (0,) * len(window)
    return (tuple(n.attr("strides")) == tuple(window) and tuple(n.attr("pads_lo")) == tuple(n.attr("pads_hi")) == zero
            and int(n.attr("groups", 1)) == 1 and tuple(n.attr("output_padding") or zero) == zero)


@rule("conv_transpose")
def _conv_transpose(ctx: Operands, n: Node) -> Call:
    from . import conv

    x, w = operand(n, 0), operand(n, 1)
    shape, ws = x.type.static_shape, w.type.static_shape
    b, height, width, channels = _planes(n, shape)
    spatial = len(shape) - 2
    at = _two_dims(n, ("strides", "pads_lo", "pads_hi", "dilations", "output_padding"), spatial)
    r, s = (1, ws[0]) if spatial == 1 else (ws[0], ws[1])
    features = ws[-2]
    data = ctx.constant(w)
    if not without_overlap(n) or data is None:
        raise UnsupportedError("conv_transpose has a kernel for constant weights and strides equal to the window, "
                               "without padding or groups; passes.graph.for_kernels rewrites the others", loc=n.loc)
    p = height * r
    static = {"p_size": p, "q_size": width, "stride_h": r, "stride_w": s}

    def arrange(v: View) -> View | None:
        split = v.reshape((b, p, width, s, features))
        return split.transpose((0, 1, 3, 2, 4)) if split is not None else None

    return Call(conv.conv2d_transposed, {"x": ctx.shaped(x, (b, height, width, channels)),
                                         "w": np.ascontiguousarray(np.swapaxes(data, -1, -2)).reshape(
                                             (r, s, channels, features))},
                (b, p, s, width, features), static, packable="w", arrange=arrange)


# ---------------------------------------------------------------------------------------------- pools


def _pool_geometry(ctx: Operands, n: Node) -> tuple[View, dict[str, int], tuple[int, ...]]:
    x = operand(n, 0)
    shape = x.type.static_shape
    b, height, width, channels = _planes(n, shape)
    spatial = len(shape) - 2
    at = _two_dims(n, ("kernel", "strides", "pads_lo", "dilations"), spatial)
    out = n.types[0].static_shape
    p, q = (1, out[1]) if spatial == 1 else (out[1], out[2])
    static = {"p_size": p, "q_size": q, "kernel_h": at["kernel"][0], "kernel_w": at["kernel"][1],
              "stride_h": at["strides"][0], "stride_w": at["strides"][1], "pad_h": at["pads_lo"][0],
              "pad_w": at["pads_lo"][1], "dilation_h": at["dilations"][0], "dilation_w": at["dilations"][1]}
    return ctx.shaped(x, (b, height, width, channels)), static, (b, p, q, channels)


@rule("max_pool")
def _max_pool(ctx: Operands, n: Node) -> Call:
    from . import pool

    x, static, out = _pool_geometry(ctx, n)
    dtype = operand(n, 0).dtype
    if not dtype.is_float:
        raise UnsupportedError(f"max_pool of {dtype} has no kernel yet (floats have)", loc=n.loc)
    return Call(pool.max_pool, {"x": x}, out, {**static, "lowest": float("-inf")})


@rule("avg_pool")
def _avg_pool(ctx: Operands, n: Node) -> Call:
    from . import pool

    x, static, out = _pool_geometry(ctx, n)
    if static.pop("dilation_h") != 1 or static.pop("dilation_w") != 1:
        raise UnsupportedError("avg_pool with dilation has no kernel", loc=n.loc)
    _, p, q, _ = out
    count = np.empty((p, q), np.float32)
    _, height, width, _ = x.shape
    hi = n.attr("pads_hi") or (0,) * (len(operand(n, 0).type.static_shape) - 2)
    hi_h, hi_w = (0, int(hi[0])) if len(hi) == 1 else (int(hi[0]), int(hi[1]))
    padded = bool(n.attr("count_include_pad"))
    rows = _covered(p, static["stride_h"], static["pad_h"], static["kernel_h"], height, hi_h, padded)
    cols = _covered(q, static["stride_w"], static["pad_w"], static["kernel_w"], width, hi_w, padded)
    count[:] = np.outer(rows, cols)
    return Call(pool.avg_pool, {"x": x, "count": count}, out, static)


def _covered(outputs: int, stride: int, pad: int, kernel: int, size: int, pad_hi: int, padded: bool) -> Array:
    """How many positions of each window count along one axis."""
    start = np.arange(outputs) * stride - pad
    low, high = (-pad, size + pad_hi) if padded else (0, size)
    return np.minimum(start + kernel, high) - np.maximum(start, low)


# ---------------------------------------------------------------------------------------------- along one axis


def _split(shape: tuple[int, ...], first: int, last: int) -> tuple[int, int, int]:
    """(elements before, on, after) the axes first..last."""
    return prod(shape[:first]), prod(shape[first:last + 1]), prod(shape[last + 1:])


def _rows(ctx: Operands, n: Node) -> tuple[View, tuple[int, int]]:
    x = operand(n, 0)
    shape = x.type.static_shape
    axis = int(n.attr("axis", -1)) % len(shape)
    before, length, after = _split(shape, axis, axis) if n.op != "layer_norm" else _split(shape, axis, len(shape) - 1)
    if after != 1:
        raise UnsupportedError(f"{n.op} over an inner axis reached code generation", loc=n.loc,
                               hint="the pipeline moves the axis to the end")
    return ctx.shaped(x, (before, length)), (before, length)


@rule("softmax")
def _softmax(ctx: Operands, n: Node) -> Call:
    from . import reduce

    x, shape = _rows(ctx, n)
    return Call(reduce.softmax, {"x": x}, shape)


@rule("log_softmax")
def _log_softmax(ctx: Operands, n: Node) -> Call:
    from . import reduce

    x, shape = _rows(ctx, n)
    return Call(reduce.log_softmax, {"x": x}, shape)


@rule("layer_norm")
def _layer_norm(ctx: Operands, n: Node) -> Call:
    from . import reduce

    x, shape = _rows(ctx, n)
    return Call(reduce.layer_norm, {"x": x}, shape, {"epsilon": float(n.attr("epsilon", 1e-5))})


@rule("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_mean")
def _reduce(ctx: Operands, n: Node) -> Call:
    from . import reduce

    x = operand(n, 0)
    shape = x.type.static_shape
    axes = tuple(sorted(int(a) % len(shape) for a in n.attr("axes")))
    kept = tuple(k for k in range(len(shape)) if k not in axes)
    if not axes:
        raise UnsupportedError(f"{n.op} over no axes reached code generation", loc=n.loc)
    kind = {"kind": n.op.removeprefix("reduce_")}
    if axes != tuple(range(axes[0], axes[-1] + 1)):  # bring the folded axes to the end
        view = ctx.view(x).transpose((*kept, *axes))
        folded = view.reshape((prod(shape[k] for k in kept), prod(shape[k] for k in axes)))
        if folded is None:
            raise UnsupportedError(f"{n.op} over axes {axes} of {shape} has no kernel yet", loc=n.loc)
        return Call(reduce.reduce_inner, {"x": folded}, (folded.shape[0],), kind)
    before, length, after = _split(shape, axes[0], axes[-1])
    if after == 1:
        return Call(reduce.reduce_inner, {"x": ctx.shaped(x, (before, length))}, (before,), kind)
    return Call(reduce.reduce_middle, {"x": ctx.shaped(x, (before, length, after))}, (before, after), kind)


@rule("argmax", "argmin")
def _arg(ctx: Operands, n: Node) -> Call:
    from . import reduce

    x = operand(n, 0)
    shape = x.type.static_shape
    axis = int(n.attr("axis")) % len(shape)
    if n.attr("last"):
        raise UnsupportedError(f"{n.op} that picks the last of equal values has no kernel yet", loc=n.loc)
    before, length, after = _split(shape, axis, axis)
    return Call(reduce.arg_middle, {"x": ctx.shaped(x, (before, length, after))}, (before, after),
                {"largest": n.op == "argmax"})


@rule("cumsum")
def _cumsum(ctx: Operands, n: Node) -> Call:
    from . import reduce

    x = operand(n, 0)
    shape = x.type.static_shape
    axis = int(n.attr("axis")) % len(shape)
    if n.attr("exclusive") or n.attr("reverse"):
        raise UnsupportedError("exclusive or reversed cumsum has no kernel yet", loc=n.loc)
    split = _split(shape, axis, axis)
    return Call(reduce.cumsum_middle, {"x": ctx.shaped(x, split)}, split)


@rule("gather")
def _gather(ctx: Operands, n: Node) -> Call:
    from . import copy

    x, index = operand(n, 0), operand(n, 1)
    shape = x.type.static_shape
    axis = int(n.attr("axis", 0)) % len(shape)
    before, length, after = _split(shape, axis, axis)
    count = prod(index.type.static_shape)
    return Call(copy.gather_rows, {"x": ctx.shaped(x, (before, length, after)), "index": ctx.shaped(index, (count,))},
                (before, count, after))
