"""Neural-network operators: convolutions, pools, matrix products, normalisations, resizing, quantisation."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.graph.core import Value
from ...ir.graph.dims import Dim, product
from ...ir.types import f32, i32, u8
from .convert_reduce import reduce
from .registry import Context, Results, op
from .tensors import Refusal, dtype_of

# windows: what convolutions and pools share ---------------------------------------------------------------------------


def _window(c: Context, name: str, count: int, default: int = 1) -> tuple[int, ...]:
    values = c.ints(name)
    if values is None:
        return (default,) * count
    if len(values) != count:
        raise Refusal(f"attribute '{name}' = {values} must have {count} numbers, one for each spatial axis")
    return tuple(values)


def _positive(**named: Sequence[int]) -> None:
    for name, values in named.items():
        if any(v < 1 for v in values):
            raise Refusal(f"attribute '{name}' = {list(values)} must be positive")


def _pads(
    c: Context, spatial: Sequence[Dim], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Padding before and after each spatial axis, from `pads` or `auto_pad`."""
    n, mode = len(kernel), c.str_("auto_pad", "NOTSET")
    if mode == "VALID":
        c.ignore("pads")
        return (0,) * n, (0,) * n
    if mode == "NOTSET":
        pads = _window(c, "pads", 2 * n, 0)
        if any(p < 0 for p in pads):
            raise Refusal(f"negative pads are not supported: {list(pads)}")
        return pads[:n], pads[n:]
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        raise Refusal(f"auto_pad must be NOTSET, VALID, SAME_UPPER or SAME_LOWER, not '{mode}'")
    c.ignore("pads")
    totals = [_same_total(c, d, k, s, e) for d, k, s, e in zip(spatial, kernel, strides, dilations, strict=True)]
    small, large = tuple(t // 2 for t in totals), tuple(t - t // 2 for t in totals)
    return (small, large) if mode == "SAME_UPPER" else (large, small)


def _same_total(c: Context, extent: Dim, kernel: int, stride: int, dilation: int) -> int:
    reach = (kernel - 1) * dilation + 1
    if stride == 1:
        return reach - 1
    size = c.static_dims([extent], "a spatial extent under auto_pad SAME")[0]
    return max((-(-size // stride) - 1) * stride + reach - size, 0)


def _spatial(x: Value) -> tuple[Dim, ...]:
    if x.type.rank < 3:
        raise Refusal("its operand must have a batch axis, a channel axis and spatial axes")
    return x.shape[2:]


# convolution ----------------------------------------------------------------------------------------------------------


def _kernel(c: Context, w: Value) -> tuple[int, ...]:
    shape = tuple(c.static_dims(w.shape[2:], "the extent of a convolution's kernel"))
    given = c.ints("kernel_shape")
    if given is not None and tuple(given) != shape:
        raise Refusal(f"kernel_shape {given} does not fit the weights")
    return shape


def convolve(c: Context, x: Value, w: Value, b: Value | None) -> Value:
    spatial, kernel = _spatial(x), _kernel(c, w)
    if len(kernel) != len(spatial):
        raise Refusal(f"the data has {len(spatial)} spatial axes, the weights have {len(kernel)}")
    strides, dilations = _window(c, "strides", len(kernel)), _window(c, "dilations", len(kernel))
    _positive(strides=strides, dilations=dilations, group=[c.int_("group", 1)])
    lo, hi = _pads(c, spatial, kernel, strides, dilations)
    return c.make(
        "conv", x, w, b, strides=strides, pads_lo=lo, pads_hi=hi, dilations=dilations, groups=c.int_("group", 1),
        layout="first",
    )  # fmt: skip


@op("Conv")
def conv(c: Context) -> Results:
    return convolve(c, c.x(0), c.x(1), c.opt(2))


@op("ConvTranspose")
def conv_transpose(c: Context) -> Results:
    x, w = c.x(0), c.x(1)
    spatial, kernel = _spatial(x), _kernel(c, w)
    n = len(kernel)
    if n != len(spatial):
        raise Refusal(f"the data has {len(spatial)} spatial axes, the weights have {n}")
    strides, dilations = _window(c, "strides", n), _window(c, "dilations", n)
    extra = list(_window(c, "output_padding", n, 0))
    _positive(strides=strides, dilations=dilations, group=[c.int_("group", 1)])
    lo, hi = _transposed_pads(c, spatial, kernel, strides, dilations, extra)
    return c.make(
        "conv_transpose", x, w, c.opt(2), strides=strides, pads_lo=lo, pads_hi=hi, dilations=dilations,
        groups=c.int_("group", 1), output_padding=tuple(extra),
    )  # fmt: skip


def _transposed_pads(
    c: Context,
    spatial: Sequence[Dim],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    extra: list[int],
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Pads of a transposed convolution; `output_shape` and the SAME modes fix the result's extents
    instead (and may add to `extra`, the padding of the result)."""
    n, wanted, mode = len(kernel), c.ints("output_shape"), c.str_("auto_pad", "NOTSET")
    if wanted is None and mode in ("NOTSET", "VALID"):
        return _pads(c, spatial, kernel, strides, dilations)
    c.ignore("pads")
    if mode not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise Refusal(f"auto_pad must be NOTSET, VALID, SAME_UPPER or SAME_LOWER, not '{mode}'")
    if wanted is not None and len(wanted) == n + 2:
        wanted = wanted[2:]
    if wanted is not None and len(wanted) != n:
        raise Refusal(f"output_shape {wanted} must have {n} numbers, one for each spatial axis")
    lo, hi = [], []
    for i, (k, s, e) in enumerate(zip(kernel, strides, dilations, strict=True)):
        reach = (k - 1) * e + 1
        if wanted is None:
            total = reach + extra[i] - s  # the result is stride times the operand
        else:
            size = c.static_dims([spatial[i]], "a spatial extent under output_shape")[0]
            total = s * (size - 1) + extra[i] + reach - wanted[i]
        if total < 0:  # the result asked for is larger than what the windows reach: zeros follow
            extra[i], total = extra[i] - total, 0
        small, large = total // 2, total - total // 2
        before, after = (small, large) if mode == "SAME_UPPER" else (large, small)
        lo.append(before)
        hi.append(after)
    return tuple(lo), tuple(hi)


# pools ----------------------------------------------------------------------------------------------------------------


def _pool(c: Context) -> dict[str, object]:
    spatial = _spatial(c.x())
    kernel = _window(c, "kernel_shape", len(spatial))
    strides = _window(c, "strides", len(kernel))
    dilations = _window(c, "dilations", len(kernel))
    _positive(kernel_shape=kernel, strides=strides, dilations=dilations)
    lo, hi = _pads(c, spatial, kernel, strides, dilations)
    ceil = bool(c.int_("ceil_mode", 0)) and c.str_("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    return {
        "kernel": kernel, "strides": strides, "pads_lo": lo, "pads_hi": hi, "dilations": dilations, "ceil": ceil,
        "layout": "first",
    }  # fmt: skip


@op("MaxPool")
def max_pool(c: Context) -> Results:
    if c.uses_output(1):
        raise Refusal("the indices of a max pool are not supported")
    c.ignore("storage_order")  # orders the indices only
    return c.make("max_pool", c.x(), **_pool(c))


def _average(c: Context, x: Value, attrs: dict[str, object], include_pad: bool) -> Value:
    dilations = attrs.pop("dilations")
    if any(d != 1 for d in dilations):  # type: ignore[attr-defined]
        raise Refusal(f"dilations {dilations} are not supported for this pool")
    return c.make("avg_pool", x, count_include_pad=include_pad, **attrs)


@op("AveragePool")
def average_pool(c: Context) -> Results:
    return _average(c, c.x(), _pool(c), bool(c.int_("count_include_pad", 0)))


@op("LpPool")
def lp_pool(c: Context) -> Results:
    """(sum |x|^p)^(1/p): an average over whole windows, times their size."""
    x, p, attrs = c.x(), c.int_("p", 2), _pool(c)
    if attrs["ceil"] or p < 1:
        raise Refusal("ceil_mode and p < 1 are not supported for this pool")
    size = product(tuple(attrs["kernel"]))  # type: ignore[arg-type]
    powered = c.make("pow", c.make("abs", x), c.scalar(p, x))
    total = c.make("mul", _average(c, powered, attrs, True), c.scalar(size, x))
    return c.make("pow", total, c.scalar(1 / p, x))


@op("GlobalAveragePool")
def global_average_pool(c: Context) -> Results:
    return c.make("global_avg_pool", c.x(), layout="first")


@op("GlobalMaxPool")
def global_max_pool(c: Context) -> Results:
    return c.make("global_max_pool", c.x(), layout="first")


# matrix products ------------------------------------------------------------------------------------------------------


@op("MatMul")
def matmul(c: Context) -> Results:
    return c.make("matmul", c.x(0), c.x(1))


@op("Gemm")
def gemm(c: Context) -> Results:
    attrs = {"alpha": c.float_("alpha", 1.0), "beta": c.float_("beta", 1.0)}
    transposed = {"trans_a": bool(c.int_("transA", 0)), "trans_b": bool(c.int_("transB", 0))}
    if c.x().dtype.is_int:
        return _integer_gemm(c, **transposed)
    return c.make("gemm", c.x(0), c.x(1), c.opt(2), **attrs, **transposed)


def _integer_gemm(c: Context, trans_a: bool, trans_b: bool) -> Value:
    c.only("alpha", 1.0)
    c.only("beta", 1.0)
    a, b = c.x(0), c.x(1)
    a = c.make("transpose", a, perm=(1, 0)) if trans_a else a
    b = c.make("transpose", b, perm=(1, 0)) if trans_b else b
    out = c.make("matmul", a, b)
    bias = c.opt(2)
    return out if bias is None else c.make("add", out, bias)


@op("Einsum")
def einsum(c: Context) -> Results:
    equation = c.str_("equation")
    if len(equation) > 512:
        raise Refusal("the equation is longer than 512 characters")
    return c.make("einsum", *(c.x(i) for i in range(len(c.ins))), equation=equation.replace(" ", ""))


# normalisation --------------------------------------------------------------------------------------------------------


@op("BatchNormalization")
def batch_normalization(c: Context) -> Results:
    """Inference only; the statistics outputs of training do not exist."""
    c.ignore("momentum")
    if c.int_("training_mode", 0):
        raise Refusal("training mode is not supported")
    if c.version < 9:
        c.only("spatial", 1)
    x = c.x()
    params = [c.cast(c.x(i), x.dtype) for i in range(1, 5)]
    return c.make("batch_norm", x, *params, epsilon=c.float_("epsilon", 1e-5), layout="first")


@op("InstanceNormalization")
def instance_normalization(c: Context) -> Results:
    return c.make("instance_norm", c.x(0), c.x(1), c.x(2), epsilon=c.float_("epsilon", 1e-5))


@op("LayerNormalization")
def layer_normalization(c: Context) -> Results:
    x = c.x()
    rank = x.type.rank
    axis, epsilon = c.axis(c.int_("axis", -1), rank), c.float_("epsilon", 1e-5)
    c.only("stash_type", 1)
    mean = inverse = None
    if c.uses_output(1) or c.uses_output(2):
        mean, inverse = _moments(c, c.cast(x, f32), list(range(axis, rank)), epsilon)
    return c.make("layer_norm", x, c.x(1), c.opt(2), axis=axis, epsilon=epsilon), mean, inverse


@op("RMSNormalization")
def rms_normalization(c: Context) -> Results:
    x = c.x()
    c.only("stash_type", 1)
    axis, epsilon = c.axis(c.int_("axis", -1), x.type.rank), c.float_("epsilon", 1e-5)
    return c.make("rms_norm", x, c.x(1), axis=axis, epsilon=epsilon)


def _moments(c: Context, x: Value, axes: list[int], epsilon: float) -> tuple[Value, Value]:
    mean = reduce(c, "mean", x, axes, True)
    centred = c.make("sub", x, mean)
    variance = reduce(c, "mean", c.make("mul", centred, centred), axes, True)
    return mean, c.make("rsqrt", c.make("add", variance, c.scalar(epsilon, x)))


@op("GroupNormalization", since=21)
def group_normalization(c: Context) -> Results:
    c.only("stash_type", 1)
    groups = c.int_("num_groups")
    return c.make("group_norm", c.x(0), c.x(1), c.x(2), num_groups=groups, epsilon=c.float_("epsilon", 1e-5))


@op("LRN")
def lrn(c: Context) -> Results:
    """x / (bias + alpha / size * sum of squares over `size` neighbouring channels) ** beta."""
    x, size = c.x(), c.int_("size")
    rank = x.type.rank
    if rank < 2 or size < 1:
        raise Refusal("it needs a channel axis and a positive size")
    lo, hi = (size - 1) // 2, size // 2
    squares = c.make("mul", x, x)
    padded = c.make("pad", squares, lo=_at(1, lo, rank), hi=_at(1, hi, rank), value=0.0, mode="constant")
    running = c.make("cumsum", padded, axis=1, exclusive=False, reverse=False)
    running = c.make("pad", running, lo=_at(1, 1, rank), hi=(0,) * rank, value=0.0, mode="constant")
    extent = x.shape[1]
    upper, lower = (_slab(c, running, 1, start, start + extent) for start in (size, 0))
    total = c.make("sub", upper, lower)
    scale = c.make("mul", total, c.scalar(c.float_("alpha", 1e-4) / size, x))
    base = c.make("add", scale, c.scalar(c.float_("bias", 1.0), x))
    return c.make("div", x, c.make("pow", base, c.scalar(c.float_("beta", 0.75), x)))


def _at(axis: int, value: int, rank: int) -> tuple[int, ...]:
    return tuple(value if i == axis else 0 for i in range(rank))


def _slab(c: Context, x: Value, axis: int, start: Dim, stop: Dim) -> Value:
    starts = tuple(start if i == axis else 0 for i in range(x.type.rank))
    stops = tuple(stop if i == axis else d for i, d in enumerate(x.shape))
    return c.make("slice", x, starts=starts, stops=stops, steps=(1,) * x.type.rank)


# quantisation ---------------------------------------------------------------------------------------------------------


@op("QuantizeLinear")
def quantize_linear(c: Context) -> Results:
    c.only("block_size", 0)
    c.ignore("saturate", "precision")
    x, scale, zero = c.x(0), c.x(1), c.opt(2)
    declared = c.int_("output_dtype", 0)
    dtype = zero.dtype if zero is not None else dtype_of(declared) if declared else u8
    if not dtype.is_int:
        raise Refusal(f"quantising to {dtype} is not supported")
    if x.dtype.is_int:
        x = c.cast(x, scale.dtype)
    scale, zero = _squeezed(c, scale), None if zero is None else _squeezed(c, zero)
    return c.make("quantize", x, c.cast(scale, x.dtype), zero, axis=_channel(c, x), dtype=dtype)


@op("DequantizeLinear")
def dequantize_linear(c: Context) -> Results:
    c.only("block_size", 0)
    x, scale, zero = c.x(0), c.x(1), c.opt(2)
    declared = c.int_("output_dtype", 0)
    scale, zero = _squeezed(c, scale), None if zero is None else _squeezed(c, zero)
    y = c.make("dequantize", x, scale, zero, axis=_channel(c, x))
    return c.cast(y, dtype_of(declared)) if declared else y


def _squeezed(c: Context, v: Value) -> Value:
    return c.make("reshape", v, shape=()) if v.shape == (1,) else v


def _channel(c: Context, x: Value) -> int:
    axis = c.int_("axis", 1)
    return axis + x.type.rank if axis < 0 else axis


def _centred(c: Context, v: Value, zero: Value | None, axis: int | None = None) -> Value:
    """An integer operand less its zero point, as i32."""
    wide = c.cast(v, i32)
    if zero is None:
        return wide
    z = c.cast(_squeezed(c, zero), i32)
    if z.type.rank == 1 and axis is not None:
        z = c.make("reshape", z, shape=tuple(z.shape[0] if i == axis else 1 for i in range(v.type.rank)))
    return c.make("sub", wide, z)


@op("MatMulInteger")
def matmul_integer(c: Context) -> Results:
    a, b = c.x(0), c.x(1)
    rows = a.type.rank - 2 if a.type.rank > 1 else None
    return c.make("matmul", _centred(c, a, c.opt(2), rows), _centred(c, b, c.opt(3), b.type.rank - 1))


@op("ConvInteger")
def conv_integer(c: Context) -> Results:
    return convolve(c, _centred(c, c.x(0), c.opt(2)), _centred(c, c.x(1), c.opt(3), 0), None)


def _requantize(c: Context, acc: Value, scales: Sequence[Value], out_scale: Value, zero: Value, axis: int) -> Value:
    """round(acc * product of scales / out_scale) + zero, in the type of `zero`."""
    real = c.cast(acc, f32)
    for s in scales:
        real = c.make("mul", real, _aligned(c, c.cast(s, f32), acc.type.rank, axis))
    scale = _squeezed(c, c.cast(out_scale, f32))
    return c.make("quantize", real, scale, _squeezed(c, zero), axis=axis, dtype=zero.dtype)


def _aligned(c: Context, s: Value, rank: int, axis: int) -> Value:
    s = _squeezed(c, s)
    if s.type.rank != 1:
        return s
    return c.make("reshape", s, shape=tuple(s.shape[0] if i == axis else 1 for i in range(rank)))


@op("QLinearMatMul")
def qlinear_matmul(c: Context) -> Results:
    a, b = c.x(0), c.x(3)
    acc = c.make("matmul", _centred(c, a, c.x(2), max(a.type.rank - 2, 0)), _centred(c, b, c.x(5), b.type.rank - 1))
    if c.x(1).type.rank > 1 or any(d != 1 for d in c.x(1).shape):
        raise Refusal("a scale per row of the first operand is not supported", f"{c.x(1).type}")
    return _requantize(c, acc, [c.x(1), c.x(4)], c.x(6), c.x(7), acc.type.rank - 1)


@op("QLinearConv")
def qlinear_conv(c: Context) -> Results:
    acc = convolve(c, _centred(c, c.x(0), c.x(2)), _centred(c, c.x(3), c.x(5), 0), c.opt(8))
    return _requantize(c, acc, [c.x(1), c.x(4)], c.x(6), c.x(7), 1)
