"""Building graphs: one function per op, each returning the value (or the tuple of values) it computes.

Everything goes through `make`, which checks operands and works out types. Plain Python numbers may stand for the second
operand of binary ops: they become scalar constants of the other operand's element type. `location(loc, name)` gives
the nodes built inside a source location.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from ...errors import ArgumentError
from ..types import DType, Loc, f32, i64
from .core import ArrayRef, Graph, TensorType, Value, constant, graph_input
from .dims import Dim
from .dims import floordiv as _divide
from .dims import product as _product
from .make import location, make, rebuild
from .spec_dynamic import clamp_slice

__all__ = ["const", "input", "location", "make", "rebuild"]

Operand: TypeAlias = "Value | int | float | bool"


def input(name: str, dtype: DType, shape: Sequence[Dim], *, loc: Loc | None = None) -> Value:
    """A graph's input."""
    return graph_input(name, TensorType(dtype, tuple(shape)), loc=loc)


def const(x: Any, dtype: DType | None = None, *, name: str = "") -> Value:
    """A constant; without `dtype` an array keeps its own, Python floats are f32 and ints i64."""
    if isinstance(x, ArrayRef):
        return constant(x, name=name)
    array = np.asarray(x)
    if dtype is None and not isinstance(x, (np.ndarray, np.generic)):
        dtype = f32 if array.dtype.kind == "f" else i64 if array.dtype.kind == "i" else None
    return constant(array if dtype is None else array.astype(dtype.numpy), name=name)


def like(x: Value, number: int | float | bool) -> Value:
    """A scalar constant of the element type of `x`."""
    return const(number, x.dtype)


def _pair(a: Operand, b: Operand) -> tuple[Value, Value]:
    if isinstance(a, Value):
        return a, (b if isinstance(b, Value) else like(a, b))
    assert isinstance(b, Value), "one operand must be a value"
    return like(b, a), b


def _unary(op: str) -> Callable[[Value], Value]:
    def build(x: Value) -> Value:
        return make(op, x).out()

    build.__name__ = op
    return build


def _binary(op: str) -> Callable[[Operand, Operand], Value]:
    def build(a: Operand, b: Operand) -> Value:
        return make(op, *_pair(a, b)).out()

    build.__name__ = op
    return build


def _axis(x: Value, axis: int) -> int:
    return axis % x.type.rank if -x.type.rank <= axis < x.type.rank else axis


# elementwise ------------------------------------------------------------------------------------------------------

neg = _unary("neg")
abs = _unary("abs")
sign = _unary("sign")
exp = _unary("exp")
log = _unary("log")
log1p = _unary("log1p")
expm1 = _unary("expm1")
sqrt = _unary("sqrt")
rsqrt = _unary("rsqrt")
reciprocal = _unary("reciprocal")
sin = _unary("sin")
cos = _unary("cos")
tan = _unary("tan")
asin = _unary("asin")
acos = _unary("acos")
atan = _unary("atan")
sinh = _unary("sinh")
cosh = _unary("cosh")
tanh = _unary("tanh")
asinh = _unary("asinh")
acosh = _unary("acosh")
atanh = _unary("atanh")
erf = _unary("erf")
sigmoid = _unary("sigmoid")
floor = _unary("floor")
ceil = _unary("ceil")
round = _unary("round")
trunc = _unary("trunc")
isnan = _unary("isnan")
isinf = _unary("isinf")
logical_not = _unary("logical_not")
bitwise_not = _unary("bitwise_not")

add = _binary("add")
sub = _binary("sub")
mul = _binary("mul")
div = _binary("div")
floordiv = _binary("floordiv")
mod = _binary("mod")
fmod = _binary("fmod")
pow = _binary("pow")
max = _binary("max")
min = _binary("min")
atan2 = _binary("atan2")
eq = _binary("eq")
ne = _binary("ne")
lt = _binary("lt")
le = _binary("le")
gt = _binary("gt")
ge = _binary("ge")
and_ = _binary("and")
or_ = _binary("or")
xor = _binary("xor")
shl = _binary("shl")
shr = _binary("shr")

relu = _unary("relu")
hard_swish = _unary("hard_swish")
softplus = _unary("softplus")
softsign = _unary("softsign")
mish = _unary("mish")
silu = _unary("silu")


def where(cond: Value, a: Operand, b: Operand) -> Value:
    return make("where", cond, *_pair(a, b)).out()


def cast(x: Value, dtype: DType) -> Value:
    return make("cast", x, dtype=dtype).out() if x.dtype != dtype else x


def leaky_relu(x: Value, alpha: float = 0.01) -> Value:
    return make("leaky_relu", x, alpha=alpha).out()


def elu(x: Value, alpha: float = 1.0) -> Value:
    return make("elu", x, alpha=alpha).out()


def selu(x: Value, alpha: float = 1.6732632423543772, gamma: float = 1.0507009873554805) -> Value:
    return make("selu", x, alpha=alpha, gamma=gamma).out()


def prelu(x: Value, slope: Value) -> Value:
    return make("prelu", x, slope).out()


def hard_sigmoid(x: Value, alpha: float = 0.2, beta: float = 0.5) -> Value:
    return make("hard_sigmoid", x, alpha=alpha, beta=beta).out()


def gelu(x: Value, approximate: str = "none") -> Value:
    return make("gelu", x, approximate=approximate).out()


def clip(x: Value, lo: Operand | None = None, hi: Operand | None = None) -> Value:
    low, high = (like(x, v) if isinstance(v, (int, float)) else v for v in (lo, hi))
    return make("clip", x, low, high).out()


def quantize(x: Value, scale: Value, zero_point: Value | None, dtype: DType, axis: int = 1) -> Value:
    return make("quantize", x, scale, zero_point, dtype=dtype, axis=axis).out()


def dequantize(x: Value, scale: Value, zero_point: Value | None = None, axis: int = 1) -> Value:
    return make("dequantize", x, scale, zero_point, axis=axis).out()


# shape ------------------------------------------------------------------------------------------------------------


def reshape(x: Value, shape: Sequence[Dim]) -> Value:
    """`shape` may hold one -1."""
    target = tuple(shape)
    if any(isinstance(d, int) and d == -1 for d in target):
        rest = _product(d for d in target if not (isinstance(d, int) and d == -1))
        gap: Dim = 0 if isinstance(rest, int) and rest == 0 else _divide(_product(x.shape), rest)
        target = tuple(gap if isinstance(d, int) and d == -1 else d for d in target)
    return make("reshape", x, shape=target).out()


def transpose(x: Value, perm: Sequence[int]) -> Value:
    return make("transpose", x, perm=tuple(perm)).out()


def broadcast(x: Value, shape: Sequence[Dim]) -> Value:
    return make("broadcast", x, shape=tuple(shape)).out()


def squeeze(x: Value, axes: Sequence[int]) -> Value:
    """A reshape which drops axes of extent 1."""
    drop = {_axis(x, a) for a in axes}
    return reshape(x, [d for i, d in enumerate(x.shape) if i not in drop])


def unsqueeze(x: Value, axes: Sequence[int]) -> Value:
    """A reshape which adds axes of extent 1, at their places in the result."""
    rank = x.type.rank + len(axes)
    added = {a % rank for a in axes}
    rest = iter(x.shape)
    return reshape(x, [1 if i in added else next(rest) for i in range(rank)])


def slice(x: Value, starts: Sequence[Dim], stops: Sequence[Dim], steps: Sequence[int] | None = None) -> Value:
    """All axes, clamped already (`slice_axis` clamps)."""
    return make("slice", x, starts=tuple(starts), stops=tuple(stops), steps=tuple(steps or (1,) * x.type.rank)).out()


def slice_axis(x: Value, axis: int, start: Dim, stop: Dim, step: int = 1) -> Value:
    """Python's x[start:stop:step] along one axis."""
    axis = _axis(x, axis)
    clamped = clamp_slice(x.shape[axis], start, stop, step)
    if clamped is None:
        raise ArgumentError(f"whether {start} and {stop} count from the end of extent {x.shape[axis]} is not known")
    lo, hi = clamped
    starts: list[Dim] = [0] * x.type.rank
    stops, steps = list(x.shape), [1] * x.type.rank
    starts[axis], stops[axis], steps[axis] = lo, hi, step
    return slice(x, starts, stops, steps)


def pad(x: Value, lo: Sequence[Dim], hi: Sequence[Dim], value: float = 0.0, mode: str = "constant") -> Value:
    return make("pad", x, lo=tuple(lo), hi=tuple(hi), value=value, mode=mode).out()


def concat(xs: Sequence[Value], axis: int) -> Value:
    return make("concat", *xs, axis=axis).out()


def split(x: Value, sizes: Sequence[Dim], axis: int) -> tuple[Value, ...]:
    return make("split", x, sizes=tuple(sizes), axis=axis).outputs


def tile(x: Value, repeats: Sequence[Dim]) -> Value:
    return make("tile", x, repeats=tuple(repeats)).out()


def gather(x: Value, indices: Value, axis: int = 0) -> Value:
    return make("gather", x, indices, axis=axis).out()


def gather_elements(x: Value, indices: Value, axis: int = 0) -> Value:
    return make("gather_elements", x, indices, axis=axis).out()


def gather_nd(x: Value, indices: Value, batch_dims: int = 0) -> Value:
    return make("gather_nd", x, indices, batch_dims=batch_dims).out()


def scatter_elements(x: Value, indices: Value, updates: Value, axis: int = 0, reduction: str = "none") -> Value:
    return make("scatter_elements", x, indices, updates, axis=axis, reduction=reduction).out()


def scatter_nd(x: Value, indices: Value, updates: Value, reduction: str = "none") -> Value:
    return make("scatter_nd", x, indices, updates, reduction=reduction).out()


def iota(shape: Sequence[Dim], axis: int = 0, dtype: DType = i64) -> Value:
    return make("iota", shape=tuple(shape), axis=axis, dtype=dtype).out()


def one_hot(indices: Value, depth: int, values: Value, axis: int = -1) -> Value:
    return make("one_hot", indices, values, depth=depth, axis=axis).out()


def trilu(x: Value, upper: bool = True, k: int = 0) -> Value:
    return make("trilu", x, upper=upper, k=k).out()


def space_to_depth(x: Value, block: int) -> Value:
    return make("space_to_depth", x, block=block).out()


def depth_to_space(x: Value, block: int, mode: str = "dcr") -> Value:
    return make("depth_to_space", x, block=block, mode=mode).out()


# reductions -------------------------------------------------------------------------------------------------------


def _reduction(op: str) -> Callable[..., Value]:
    def build(x: Value, axes: Sequence[int] | None = None, keepdims: bool = True) -> Value:
        chosen = tuple(range(x.type.rank)) if axes is None else tuple(axes)
        return make(op, x, axes=chosen, keepdims=keepdims).out()

    build.__name__ = op
    return build


#: (x, axes=None for all of them, keepdims=True)
reduce_sum = _reduction("reduce_sum")
reduce_max = _reduction("reduce_max")
reduce_min = _reduction("reduce_min")
reduce_prod = _reduction("reduce_prod")
reduce_mean = _reduction("reduce_mean")
reduce_l1 = _reduction("reduce_l1")
reduce_l2 = _reduction("reduce_l2")
reduce_logsumexp = _reduction("reduce_logsumexp")


def argmax(x: Value, axis: int = 0, keepdims: bool = True, last: bool = False) -> Value:
    return make("argmax", x, axis=axis, keepdims=keepdims, last=last).out()


def argmin(x: Value, axis: int = 0, keepdims: bool = True, last: bool = False) -> Value:
    return make("argmin", x, axis=axis, keepdims=keepdims, last=last).out()


def cumsum(x: Value, axis: int, exclusive: bool = False, reverse: bool = False) -> Value:
    return make("cumsum", x, axis=axis, exclusive=exclusive, reverse=reverse).out()


def topk(x: Value, k: int, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Value, ...]:
    return make("topk", x, k=k, axis=axis, largest=largest, sorted=sorted).outputs


def softmax(x: Value, axis: int = -1) -> Value:
    return make("softmax", x, axis=axis).out()


def log_softmax(x: Value, axis: int = -1) -> Value:
    return make("log_softmax", x, axis=axis).out()


def layer_norm(
    x: Value, scale: Value | None = None, bias: Value | None = None, axis: int = -1, epsilon: float = 1e-5
) -> Value:
    return make("layer_norm", x, scale, bias, axis=axis, epsilon=epsilon).out()


def rms_norm(x: Value, scale: Value | None = None, axis: int = -1, epsilon: float = 1e-5) -> Value:
    return make("rms_norm", x, scale, axis=axis, epsilon=epsilon).out()


def batch_norm(
    x: Value, scale: Value, bias: Value, mean: Value, var: Value, epsilon: float = 1e-5, layout: str = "first"
) -> Value:
    return make("batch_norm", x, scale, bias, mean, var, epsilon=epsilon, layout=layout).out()


def instance_norm(x: Value, scale: Value | None = None, bias: Value | None = None, epsilon: float = 1e-5) -> Value:
    return make("instance_norm", x, scale, bias, epsilon=epsilon).out()


def group_norm(
    x: Value, num_groups: int, scale: Value | None = None, bias: Value | None = None, epsilon: float = 1e-5
) -> Value:
    return make("group_norm", x, scale, bias, num_groups=num_groups, epsilon=epsilon).out()


def lp_norm(x: Value, p: int = 2, axis: int = -1) -> Value:
    return make("lp_norm", x, p=p, axis=axis).out()


# products, windows, attention --------------------------------------------------------------------------------------


def matmul(a: Value, b: Value, acc: DType | None = None) -> Value:
    return make("matmul", a, b, acc=acc).out()


def gemm(
    a: Value,
    b: Value,
    c: Value | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    trans_a: bool = False,
    trans_b: bool = False,
) -> Value:
    return make("gemm", a, b, c, alpha=alpha, beta=beta, trans_a=trans_a, trans_b=trans_b).out()


def linear(x: Value, w: Value, b: Value | None = None) -> Value:
    return make("linear", x, w, b).out()


def einsum(equation: str, *xs: Value) -> Value:
    return make("einsum", *xs, equation=equation).out()


def _tuples(window: dict[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) for k, v in window.items()}


def conv(
    x: Value,
    w: Value,
    b: Value | None = None,
    strides: Sequence[int] = (),
    pads_lo: Sequence[Dim] = (),
    pads_hi: Sequence[Dim] = (),
    dilations: Sequence[int] = (),
    groups: int = 1,
    layout: str = "first",
) -> Value:
    """Empty strides, padding and dilations mean 1, 0 and 1."""
    window: dict[str, Any] = {"strides": strides, "pads_lo": pads_lo, "pads_hi": pads_hi, "dilations": dilations}
    return make("conv", x, w, b, groups=groups, layout=layout, **_tuples(window)).out()


def conv_transpose(
    x: Value,
    w: Value,
    b: Value | None = None,
    strides: Sequence[int] = (),
    pads_lo: Sequence[Dim] = (),
    pads_hi: Sequence[Dim] = (),
    dilations: Sequence[int] = (),
    groups: int = 1,
    output_padding: Sequence[int] = (),
    layout: str = "first",
) -> Value:
    window: dict[str, Any] = {"strides": strides, "pads_lo": pads_lo, "pads_hi": pads_hi, "dilations": dilations}
    window["output_padding"] = output_padding
    return make("conv_transpose", x, w, b, groups=groups, layout=layout, **_tuples(window)).out()


def max_pool(
    x: Value,
    kernel: Sequence[int],
    strides: Sequence[int] = (),
    pads_lo: Sequence[Dim] = (),
    pads_hi: Sequence[Dim] = (),
    dilations: Sequence[int] = (),
    ceil: bool = False,
    layout: str = "first",
) -> Value:
    window: dict[str, Any] = {
        "kernel": kernel,
        "strides": strides,
        "pads_lo": pads_lo,
        "pads_hi": pads_hi,
        "dilations": dilations,
    }
    return make("max_pool", x, ceil=ceil, layout=layout, **_tuples(window)).out()


def avg_pool(
    x: Value,
    kernel: Sequence[int],
    strides: Sequence[int] = (),
    pads_lo: Sequence[Dim] = (),
    pads_hi: Sequence[Dim] = (),
    ceil: bool = False,
    count_include_pad: bool = False,
    layout: str = "first",
) -> Value:
    window: dict[str, Any] = {"kernel": kernel, "strides": strides, "pads_lo": pads_lo, "pads_hi": pads_hi}
    attrs: dict[str, Any] = {"ceil": ceil, "count_include_pad": count_include_pad, "layout": layout}
    return make("avg_pool", x, **attrs, **_tuples(window)).out()


def global_avg_pool(x: Value, layout: str = "first") -> Value:
    return make("global_avg_pool", x, layout=layout).out()


def global_max_pool(x: Value, layout: str = "first") -> Value:
    return make("global_max_pool", x, layout=layout).out()


def resize(x: Value, scales: Sequence[float] | None = None, sizes: Sequence[Dim] | None = None, **attrs: Any) -> Value:
    """attrs: mode, coordinate_mode, nearest_mode, cubic_coeff_a, exclude_outside."""
    return make(
        "resize",
        x,
        scales=None if scales is None else tuple(scales),
        sizes=None if sizes is None else tuple(sizes),
        **attrs,
    ).out()


def attention(
    q: Value, k: Value, v: Value, mask: Value | None = None, scale: float | None = None, causal: bool = False
) -> Value:
    return make("attention", q, k, v, mask, scale=scale, causal=causal).out()


def lstm(
    x: Value,
    w: Value,
    r: Value,
    b: Value | None = None,
    h0: Value | None = None,
    c0: Value | None = None,
    *,
    hidden: int,
    **attrs: Any,
) -> tuple[Value, ...]:
    """attrs: direction, time_first, activations. Every state, the last state, the last cell."""
    return make("lstm", x, w, r, b, h0, c0, hidden=hidden, **attrs).outputs


def gru(
    x: Value, w: Value, r: Value, b: Value | None = None, h0: Value | None = None, *, hidden: int, **attrs: Any
) -> tuple[Value, ...]:
    """attrs: direction, time_first, activations, linear_before_reset."""
    return make("gru", x, w, r, b, h0, hidden=hidden, **attrs).outputs


def rnn(
    x: Value, w: Value, r: Value, b: Value | None = None, h0: Value | None = None, *, hidden: int, **attrs: Any
) -> tuple[Value, ...]:
    """attrs: direction, time_first, activations."""
    return make("rnn", x, w, r, b, h0, hidden=hidden, **attrs).outputs


# shapes as tensors, dynamic forms, control ---------------------------------------------------------------------------

shape_of = _unary("shape_of")
size_of = _unary("size_of")


def dyn_reshape(x: Value, shape: Value, allowzero: bool = False) -> Value:
    return make("dyn_reshape", x, shape, allowzero=allowzero).out()


def dyn_broadcast(x: Value, shape: Value) -> Value:
    return make("dyn_broadcast", x, shape).out()


def dyn_slice(x: Value, starts: Value, ends: Value, axes: Value | None = None, steps: Value | None = None) -> Value:
    return make("dyn_slice", x, starts, ends, axes, steps).out()


def dyn_pad(
    x: Value, pads: Value, value: Value | None = None, axes: Value | None = None, mode: str = "constant"
) -> Value:
    return make("dyn_pad", x, pads, value, axes, mode=mode).out()


def dyn_range(start: Value, limit: Value, delta: Value) -> Value:
    return make("dyn_range", start, limit, delta).out()


def dyn_full(shape: Value, value: Value) -> Value:
    return make("dyn_full", shape, value).out()


def dyn_tile(x: Value, repeats: Value) -> Value:
    return make("dyn_tile", x, repeats).out()


def dyn_resize(
    x: Value, roi: Value | None = None, scales: Value | None = None, sizes: Value | None = None, **attrs: Any
) -> Value:
    return make("dyn_resize", x, roi, scales, sizes, **attrs).out()


def dyn_topk(x: Value, k: Value, axis: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Value, ...]:
    return make("dyn_topk", x, k, axis=axis, largest=largest, sorted=sorted).outputs


def dyn_squeeze(x: Value, axes: Value) -> Value:
    return make("dyn_squeeze", x, axes).out()


def dyn_unsqueeze(x: Value, axes: Value) -> Value:
    return make("dyn_unsqueeze", x, axes).out()


def dyn_reduce(
    x: Value, axes: Value | None, kind: str, keepdims: bool = True, noop_with_empty_axes: bool = False
) -> Value:
    return make("dyn_reduce", x, axes, kind=kind, keepdims=keepdims, noop_with_empty_axes=noop_with_empty_axes).out()


def dyn_split(x: Value, split: Value, axis: int) -> tuple[Value, ...]:
    return make("dyn_split", x, split, axis=axis).outputs


def if_(cond: Value, captured: Sequence[Value], then_branch: Graph, else_branch: Graph) -> tuple[Value, ...]:
    """The branches take `captured` as their inputs, in order."""
    return make("if_", cond, *captured, then_branch=then_branch, else_branch=else_branch).outputs
