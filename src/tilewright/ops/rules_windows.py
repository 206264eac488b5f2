"""Convolutions and pools (channels last) as calls of library kernels."""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np

from ..errors import UnsupportedError
from ..ir.graph.core import Node
from ..ir.types import accumulator
from .call import Array, Call, Operands, least, operand, rule, sums, weights
from .view import View

#: the kernels' names of an attribute, and what an axis that the op does not have would say
_NAMES = {"kernel": ("kernel", 1), "strides": ("stride", 1), "pads_lo": ("pad", 0), "dilations": ("dilation", 1)}


def _checked(n: Node) -> int:
    """How many spatial axes; kernels have 2 (one-dimensional ops get a height of one) or 3."""
    if n.attr("layout", "last") != "last":
        raise UnsupportedError(f"{n.op} with channels first reached code generation", loc=n.loc,
                               hint="run passes.graph.pipeline first")
    spatial = operand(n, 0).type.rank - 2
    if spatial > 3:
        raise UnsupportedError(f"{n.op} over {spatial} spatial axes has no kernel (up to 3 have)", loc=n.loc)
    return spatial


def _volume(shape: tuple[int, ...]) -> tuple[int, ...]:
    """[N, *space, C] with at least two spatial axes."""
    return (shape[0], 1, *shape[1:]) if len(shape) == 3 else shape


def _window(n: Node, *names: str) -> dict[str, int]:
    """Per-axis attributes and the result's extents as the kernels' parameters."""
    spatial = _checked(n)
    axes = ("d", "h", "w")[-max(2, spatial):]
    out: dict[str, int] = {}
    for name in names:
        word, neutral = _NAMES[name]
        given = tuple(int(v) for v in n.attr(name) or (neutral,) * spatial)
        for axis, value in zip(axes, (neutral,) * (len(axes) - spatial) + given, strict=True):
            out[f"{word}_{axis}"] = value
    sizes = _volume(n.types[0].static_shape)[1:-1]
    out.update(zip(("o_size", "p_size", "q_size")[-len(sizes):], sizes, strict=True))
    return out


@rule("conv")
def _conv(ctx: Operands, n: Node) -> Call:
    from . import conv, matmul

    at = _window(n, "strides", "pads_lo", "dilations")
    x, w = operand(n, 0), operand(n, 1)
    shape, ws, out = _volume(x.type.static_shape), w.type.static_shape, _volume(n.types[0].static_shape)
    ws = (1, *ws) if len(ws) == 3 else ws
    groups, (per_group, features) = int(n.attr("groups", 1)), ws[-2:]
    channels = shape[-1]
    static: dict[str, Any] = {**at, **sums(n)}

    def call(kernel: Any, w_shape: tuple[int, ...], packable: str | None = None, **more: Any) -> Call:
        tensors = {"x": ctx.shaped(x, shape), "w": weights(ctx, w, w_shape)}
        return Call(kernel, tensors, out, {**static, **more}, packable)

    if len(shape) == 5:
        return call(conv.conv3d, ws, groups=groups)
    b, height, width, _ = shape
    r, s = ws[:2]
    if groups == channels and per_group == 1 and features == channels and groups > 1:
        return call(conv.conv2d_depthwise, (r, s, channels))
    if groups > 1:
        return call(conv.conv2d_grouped, ws, groups=groups)
    still = (at["stride_h"], at["stride_w"]) == (1, 1) and (at["pad_h"], at["pad_w"]) == (0, 0)
    if r == s == 1 and still and out[1:3] == (height, width):
        rows = b * height * width
        return Call(matmul.matmul, {"x": ctx.shaped(x, (rows, channels)), "w": weights(ctx, w, (channels, features))},
                    (rows, features), sums(n), packable="w")
    plain = (at.pop("dilation_h"), at.pop("dilation_w")) == (1, 1)
    if (channels < 32 or channels * s <= 64) and s > 1 and plain:
        return Call(conv.conv2d_narrow, {"x": ctx.shaped(x, (b, height, width * channels)),
                                         "w": weights(ctx, w, (r, s * channels, features))}, out,
                    {"channels": channels, **at, **sums(n)}, packable="w")
    return call(conv.conv2d, ws, "w")


def without_overlap(n: Node) -> bool:
    """Whether every output pixel of a conv_transpose (channels last) sees just one input pixel."""
    w = operand(n, 1)
    window = w.shape[:-2]
    zero = (0,) * len(window)
    return (len(window) < 3 and w.is_constant and tuple(n.attr("strides")) == tuple(window)
            and tuple(n.attr("pads_lo")) == tuple(n.attr("pads_hi")) == zero
            and int(n.attr("groups", 1)) == 1 and tuple(n.attr("output_padding") or zero) == zero)


@rule("conv_transpose")
def _conv_transpose(ctx: Operands, n: Node) -> Call:
    from . import conv

    _checked(n)
    x, w = operand(n, 0), operand(n, 1)
    data = ctx.constant(w)
    if not without_overlap(n) or data is None:
        raise UnsupportedError("conv_transpose has a kernel for constant weights and strides equal to the window, "
                               "without padding or groups; passes.graph.for_kernels rewrites the others", loc=n.loc)
    b, height, width, channels = _volume(x.type.static_shape)
    *window, features, _ = w.type.static_shape
    r, s = (1, *window)[-2:]
    static = {"p_size": height * r, "q_size": width, "stride_h": r, "stride_w": s, **sums(n)}

    def arrange(v: View) -> View | None:
        cut = v.reshape((b, height * r, width, s, features))
        return cut.transpose((0, 1, 3, 2, 4)) if cut is not None else None

    turned = np.ascontiguousarray(np.swapaxes(data, -1, -2)).reshape((r, s, channels, features))
    return Call(conv.conv2d_transposed, {"x": ctx.shaped(x, (b, height, width, channels)), "w": turned},
                (b, height * r, s, width, features), static, packable="w", arrange=arrange)


# ---------------------------------------------------------------------------------------------- pools


@rule("max_pool")
def _max_pool(ctx: Operands, n: Node) -> Call:
    from . import pool

    x, at = operand(n, 0), _window(n, "kernel", "strides", "pads_lo", "dilations")
    shape = _volume(x.type.static_shape)
    return Call(pool.max_pool if len(shape) == 4 else pool.max_pool3d, {"x": ctx.shaped(x, shape)},
                _volume(n.types[0].static_shape), {**at, "lowest": least(x.dtype)})


@rule("avg_pool")
def _avg_pool(ctx: Operands, n: Node) -> Call:
    from . import pool

    x, at = operand(n, 0), _window(n, "kernel", "strides", "pads_lo")
    shape, out = _volume(x.type.static_shape), _volume(n.types[0].static_shape)
    spatial = x.type.rank - 2
    hi = (0,) * (len(shape) - 2 - spatial) + tuple(int(v) for v in n.attr("pads_hi") or (0,) * spatial)
    padded = bool(n.attr("count_include_pad"))
    counts = [_covered(out[1 + k], at[f"stride_{a}"], at[f"pad_{a}"], at[f"kernel_{a}"], shape[1 + k], hi[k], padded)
              for k, a in enumerate(("d", "h", "w")[-(len(shape) - 2):])]
    count = reduce(np.multiply.outer, counts).astype(accumulator(x.dtype).numpy)
    return Call(pool.avg_pool if len(shape) == 4 else pool.avg_pool3d, {"x": ctx.shaped(x, shape), "count": count},
                out, at)


def _covered(outputs: int, stride: int, pad: int, kernel: int, size: int, pad_hi: int, padded: bool) -> Array:
    """How many positions of each window count along one axis."""
    start = np.arange(outputs) * stride - pad
    low, high = (-pad, size + pad_hi) if padded else (0, size)
    found: Array = np.minimum(start + kernel, high) - np.maximum(start, low)
    return found
