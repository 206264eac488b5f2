"""Products, convolutions, pooling, resizing and attention.

`layout` says where channels are: "first" is [N, C, *space] with weights [F, C/groups, *kernel], "last" is
[N, *space, C] with weights [*kernel, C/groups, F]. A result has its operand's layout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from ..types import DType, accumulator
from .core import TensorType
from .dims import Dim, compare, differ, dim_max, dim_min, floordiv
from .op_spec import Array, Attrs, Site, broadcast_shapes, define, may_broadcast_to
from .ref_nn import attention, avg_pool, conv, conv_transpose, expand_equation, max_pool
from .ref_resize import resize
from .spec_reduce import average

# matmul, gemm, linear, einsum --------------------------------------------------------------------------------------


def product_type(site: Site, given: DType | None = None) -> DType:
    """The result type of a product: as asked, else floats keep theirs and integers use their accumulator."""
    dtype = site.need_kind(0, "fiu", "a numeric operand")
    if given is not None:
        return given
    return dtype if dtype.is_float else accumulator(dtype)


def _matmul_type(site: Site) -> tuple[TensorType, ...]:
    site.same_dtype()
    a, b = site.type(0), site.type(1)
    if a.rank == 0 or b.rank == 0:
        site.shape_error(f"{site.operand(0)} and {site.operand(1)} must have at least one axis")
    inner = b.shape[-2] if b.rank > 1 else b.shape[0]
    if differ(a.shape[-1], inner):
        site.shape_error(
            f"the inner extents of {site.operand(0)} and {site.operand(1)} differ: {a.shape[-1]} and {inner}"
        )
    batch = broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if batch is None:
        site.shape_error(f"the batch axes of {site.operand(0)} and {site.operand(1)} cannot be broadcast together")
    tail = (a.shape[-2:-1] if a.rank > 1 else ()) + (b.shape[-1:] if b.rank > 1 else ())
    return (TensorType(product_type(site, site.attrs["acc"]), batch + tail),)


def _matmul(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    wide = attrs["acc"].numpy if attrs["acc"] is not None else widened(xs[0].dtype)
    if attrs["acc"] is not None and attrs["acc"].is_float and attrs["acc"].bits < 32:
        wide = xs[0].dtype
    return (np.matmul(xs[0].astype(wide, copy=False), xs[1].astype(wide, copy=False)),)


def widened(dtype: Any) -> Any:
    from ..types import from_numpy

    d = from_numpy(dtype)
    assert d is not None
    return accumulator(d).numpy


def _gemm_shape(site: Site) -> tuple[Dim, ...]:
    a, b = site.need_rank(0, 2).shape, site.need_rank(1, 2).shape
    a = a[::-1] if site.attrs["trans_a"] else a
    b = b[::-1] if site.attrs["trans_b"] else b
    if differ(a[1], b[0]):
        site.shape_error(f"the inner extents of {site.operand(0)} and {site.operand(1)} differ: {a[1]} and {b[0]}")
    return a[0], b[1]


def _gemm_type(site: Site) -> tuple[TensorType, ...]:
    dtype = site.same_dtype()
    site.need_kind(0, "f", "a floating-point operand")
    shape, c = _gemm_shape(site), site.optional(2)
    if c is not None and not may_broadcast_to(c.shape, shape):
        site.shape_error(f"{site.operand(2)} does not broadcast to the result [{shape[0]}, {shape[1]}]")
    return (TensorType(dtype, shape),)


def _gemm(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    a, b, c = [*xs, None][:3]
    y = attrs["alpha"] * ((a.T if attrs["trans_a"] else a) @ (b.T if attrs["trans_b"] else b))
    return (np.asarray(y if c is None else y + attrs["beta"] * c, dtype=a.dtype),)


def _linear_type(site: Site) -> tuple[TensorType, ...]:
    dtype = site.same_dtype()
    site.need_kind(0, "f", "a floating-point operand")
    x, w, b = site.type(0), site.need_rank(1, 2), site.optional(2)
    if x.rank == 0 or differ(x.shape[-1], w.shape[1]):
        site.shape_error(f"the last extent of {site.operand(0)} and of {site.operand(1)} differ")
    if b is not None and (b.rank != 1 or differ(b.shape[0], w.shape[0])):
        site.shape_error(f"{site.operand(2)} must have one entry per row of {site.operand(1)}")
    return (TensorType(dtype, (*x.shape[:-1], w.shape[0])),)


def _linear(xs: Sequence[Any], _: Attrs) -> tuple[Array, ...]:
    x, w, b = [*xs, None][:3]
    return (x @ w.T if b is None else x @ w.T + b,)


def _einsum_type(site: Site) -> tuple[TensorType, ...]:
    site.need_kind(0, "fiu", "a numeric operand")
    dtype = site.same_dtype()
    try:
        terms, out = expand_equation(site.attrs["equation"], [t.rank for t in site.present])
    except ValueError as e:
        site.argument_error(f"equation '{site.attrs['equation']}': {e}")
    extents: dict[str, Dim] = {}
    for i, (term, t) in enumerate(zip(terms, site.present, strict=True)):
        for letter, d in zip(term, t.shape, strict=True):
            seen = extents.get(letter, 1)
            merged = broadcast_shapes((seen,), (d,))
            if merged is None:
                site.shape_error(
                    f"letter '{letter}' of '{site.attrs['equation']}' has extents {seen} and {d} (in {site.operand(i)})"
                )
            extents[letter] = merged[0]
    return (TensorType(dtype, tuple(extents[c] for c in out)),)


def _einsum(xs: Sequence[Any], attrs: Attrs) -> tuple[Array, ...]:
    terms, out = expand_equation(attrs["equation"], [x.ndim for x in xs])
    return (np.einsum(",".join(terms) + "->" + out, *xs),)


define(
    "matmul",
    "a b",
    "acc:dtype?=None",
    infer=_matmul_type,
    reference=_matmul,
    doc="NumPy's matmul; `acc` is the result's type (by default a float's own, an integer's accumulator)",
)
define(
    "gemm",
    "a b c?",
    "alpha:float=1.0 beta:float=1.0 trans_a:bool=False trans_b:bool=False",
    infer=_gemm_type,
    reference=_gemm,
    doc="alpha a b + beta c",
    composite=True,
)
define("linear", "x w b?", infer=_linear_type, reference=_linear, doc="x w^T + b, w as [out, in]", composite=True)
define(
    "einsum",
    "*xs",
    "equation:str",
    infer=_einsum_type,
    reference=_einsum,
    composite=True,
    doc="a sum of products named by letters, as NumPy's einsum (with ... )",
)

# convolutions ------------------------------------------------------------------------------------------------------


def spatial(shape: Sequence[Dim], layout: str) -> tuple[Dim, ...]:
    return tuple(shape[2:] if layout == "first" else shape[1:-1])


def image_shape(n: Dim, c: Dim, space: Sequence[Dim], layout: str) -> tuple[Dim, ...]:
    return (n, c, *space) if layout == "first" else (n, *space, c)


def _fill_window(types: Sequence[TensorType | None], attrs: dict[str, Any]) -> dict[str, Any]:
    """Strides, dilations and padding that were left out: 1 and 0 on every spatial axis."""
    t = types[0]
    n = max(t.rank - 2, 0) if t is not None else 0
    neutral = {"strides": 1, "dilations": 1, "pads_lo": 0, "pads_hi": 0, "output_padding": 0}
    return {k: (neutral[k],) * n if k in neutral and (v is None or v == ()) else v for k, v in attrs.items()}


def _check_window(site: Site, n: int) -> None:
    a = site.attrs
    for key in ("kernel", "strides", "dilations", "pads_lo", "pads_hi", "output_padding"):
        if key not in a:
            continue
        least = 1 if key in ("kernel", "strides", "dilations") else 0
        if len(a[key]) != n or any(isinstance(v, int) and v < least for v in a[key]):
            site.argument_error(f"'{key}' = {a[key]} must have {n} entries of at least {least}")


def window_extent(d: Dim, kernel: int, stride: int, lo: Dim, hi: Dim, dilation: int, ceil: bool = False) -> Dim:
    """How many windows fit; with `ceil` a last window may run past the end, if it starts before it."""
    room = d + lo + hi - (dilation * (kernel - 1) + 1)
    if not ceil:
        return floordiv(room, stride) + 1
    return dim_min(floordiv(room + (stride - 1), stride) + 1, floordiv(d + lo - 1, stride) + 1)


def _windows(site: Site, space: Sequence[Dim], kernel: Sequence[Any]) -> tuple[Dim, ...]:
    a, out = site.attrs, []
    for i, d in enumerate(space):
        dilation = a["dilations"][i] if "dilations" in a else 1
        extent = window_extent(
            d, kernel[i], a["strides"][i], a["pads_lo"][i], a["pads_hi"][i], dilation, a.get("ceil", False)
        )
        if isinstance(extent, int):
            if extent < 1 and d != 0:
                site.shape_error(f"the window (kernel {tuple(kernel)}) does not fit into {site.operand(0)}")
            extent = max(extent, 0)
        elif compare(extent, 0) not in (0, 1) and kernel[i] != 1:
            extent = dim_max(extent, 0) if a["strides"][i] == 1 else extent
        out.append(extent)
    return tuple(out)


def _image(site: Site) -> tuple[Dim, Dim, tuple[Dim, ...]]:
    t, layout = site.type(), site.attrs["layout"]
    if t.rank < 3:
        site.shape_error(f"{site.operand(0)} needs batch, channel and spatial axes")
    return t.shape[0], t.shape[1 if layout == "first" else -1], spatial(t.shape, layout)


def _conv_type(site: Site) -> tuple[TensorType, ...]:
    site.same_dtype(0, 1)
    n, c, space = _image(site)
    layout, groups, w = site.attrs["layout"], site.attrs["groups"], site.need_rank(1, site.type().rank)
    filters, per_group = (w.shape[0], w.shape[1]) if layout == "first" else (w.shape[-1], w.shape[-2])
    kernel = w.shape[2:] if layout == "first" else w.shape[:-2]
    if not all(isinstance(k, int) for k in w.shape):
        site.shape_error(f"{site.operand(1)} must have a static shape")
    _check_window(site, len(space))
    if groups < 1 or differ(per_group * groups, c) or (isinstance(filters, int) and filters % groups):
        site.shape_error(f"{site.operand(1)} with {groups} group(s) does not fit the {c} channels of {site.operand(0)}")
    result = product_type(site)
    _check_bias(site, filters, result)
    return (TensorType(result, image_shape(n, filters, _windows(site, space, kernel), layout)),)


def _check_bias(site: Site, filters: Dim, dtype: DType) -> None:
    b = site.optional(2)
    if b is None:
        return
    if b.dtype != dtype:
        site.dtype_error(f"{site.operand(2)} must have the result's element type {dtype}")
    if b.rank != 1 or differ(b.shape[0], filters):
        site.shape_error(f"{site.operand(2)} must have one entry for each of the {filters} filters")


def _conv_transpose_type(site: Site) -> tuple[TensorType, ...]:
    dtype = site.same_dtype(0, 1)
    site.need_kind(0, "f", "a floating-point operand")
    n, c, space = _image(site)
    a, w = site.attrs, site.need_rank(1, site.type().rank)
    _check_window(site, len(space))
    w_c, w_f = (w.shape[0], w.shape[1]) if a["layout"] == "first" else (w.shape[-1], w.shape[-2])
    kernel = w.shape[2:] if a["layout"] == "first" else w.shape[:-2]
    if differ(w_c, c) or a["groups"] < 1 or (isinstance(c, int) and c % a["groups"]):
        site.shape_error(
            f"{site.operand(1)} with {a['groups']} group(s) does not fit the {c} channels of {site.operand(0)}"
        )
    out: list[Dim] = []
    for i, d in enumerate(space):
        extent = (d - 1) * a["strides"][i] + a["dilations"][i] * (kernel[i] - 1) + 1
        extent = extent + a["output_padding"][i] - a["pads_lo"][i] - a["pads_hi"][i]
        if isinstance(extent, int) and extent < 0:
            site.shape_error(f"padding leaves a negative extent on spatial axis {i} of {site.operand(0)}")
        out.append(extent)
    filters = w_f * a["groups"]
    _check_bias(site, filters, dtype)
    return (TensorType(dtype, image_shape(n, filters, out, a["layout"])),)


_WINDOW = "strides:ints=() pads_lo:dims=() pads_hi:dims=()"
_LAYOUT = "layout:first|last=first"
define(
    "conv",
    "x w b?",
    f"{_WINDOW} dilations:ints=() groups:int=1 {_LAYOUT}",
    infer=_conv_type,
    normalise=_fill_window,
    reference=conv,
    doc="convolution (correlation) over 1, 2 or 3 spatial axes, zero padded, plus a bias per filter",
)
define(
    "conv_transpose",
    "x w b?",
    f"{_WINDOW} dilations:ints=() groups:int=1 output_padding:ints=() {_LAYOUT}",
    infer=_conv_transpose_type,
    normalise=_fill_window,
    reference=conv_transpose,
    doc="the adjoint of conv: weights [C, F/groups, *kernel], in layout last [*kernel, F/groups, C]",
)

# pooling -----------------------------------------------------------------------------------------------------------


def _pool_type(site: Site) -> tuple[TensorType, ...]:
    n, c, space = _image(site)
    dtype = site.need_kind(0, "f" if site.op == "avg_pool" else "fiu", "a numeric operand (avg_pool: floating-point)")
    _check_window(site, len(space))
    return (TensorType(dtype, image_shape(n, c, _windows(site, space, site.attrs["kernel"]), site.attrs["layout"])),)


def _global_type(site: Site) -> tuple[TensorType, ...]:
    n, c, space = _image(site)
    dtype = site.need_kind(0, "f", "a floating-point operand")
    return (TensorType(dtype, image_shape(n, c, (1,) * len(space), site.attrs["layout"])),)


def space_axes(rank: int, layout: str) -> tuple[int, ...]:
    return tuple(range(2, rank)) if layout == "first" else tuple(range(1, rank - 1))


define(
    "max_pool",
    "x",
    f"kernel:ints {_WINDOW} dilations:ints=() ceil:bool=False {_LAYOUT}",
    infer=_pool_type,
    normalise=_fill_window,
    reference=max_pool,
    doc="the greatest element under each window (padding never wins)",
)
define(
    "avg_pool",
    "x",
    f"kernel:ints {_WINDOW} ceil:bool=False count_include_pad:bool=False {_LAYOUT}",
    infer=_pool_type,
    normalise=_fill_window,
    reference=avg_pool,
    doc="the mean under each window, padding counted or not",
)
define(
    "global_avg_pool",
    "x",
    _LAYOUT,
    infer=_global_type,
    composite=True,
    reference=lambda xs, a: (average(xs[0], space_axes(xs[0].ndim, a["layout"])),),
    doc="the mean over all spatial axes, which stay as 1",
)
define(
    "global_max_pool",
    "x",
    _LAYOUT,
    infer=_global_type,
    composite=True,
    reference=lambda xs, a: (np.max(xs[0], axis=space_axes(xs[0].ndim, a["layout"]), keepdims=True, initial=-np.inf),),
    doc="the greatest element over all spatial axes, which stay as 1",
)

# resize and attention ----------------------------------------------------------------------------------------------

RESIZE_ATTRS = (
    "mode:nearest|linear|cubic=nearest "
    "coordinate_mode:half_pixel|half_pixel_symmetric|pytorch_half_pixel|align_corners|asymmetric=half_pixel "
    "nearest_mode:round_prefer_floor|round_prefer_ceil|floor|ceil=round_prefer_floor "
    "cubic_coeff_a:float=-0.75 exclude_outside:bool=False"
)


def resized_extent(d: Dim, scale: float, fresh: Any) -> Dim:
    if isinstance(d, int):
        return math.floor(d * scale)
    ratio = Fraction(scale).limit_denominator(4096)
    if float(ratio) != scale:
        return fresh  # type: ignore[no-any-return]
    return floordiv(d * ratio.numerator, ratio.denominator)


def resize_type(site: Site, scales: Sequence[float] | None, sizes: Sequence[Dim] | None) -> tuple[TensorType, ...]:
    t = site.type()
    site.need_kind(0, "f" if site.attrs["mode"] != "nearest" else "fiub", "a floating-point operand")
    if (scales is None) == (sizes is None):
        site.argument_error("needs either scales or sizes")
    given = scales if scales is not None else sizes
    assert given is not None
    if len(given) != t.rank:
        site.argument_error(f"scales or sizes {tuple(given)} must have one entry per axis of {site.operand(0)}")
    if sizes is not None:
        if any(isinstance(s, int) and s < 0 for s in sizes):
            site.shape_error(f"sizes {tuple(sizes)} has a negative extent")
        return (TensorType(t.dtype, tuple(sizes)),)
    assert scales is not None
    if any(not (math.isfinite(s) and s > 0) for s in scales):
        site.argument_error(f"scales {tuple(scales)} must be positive")
    shape = tuple(resized_extent(d, s, site.fresh(i)) for i, (d, s) in enumerate(zip(t.shape, scales, strict=True)))
    return (TensorType(t.dtype, shape),)


define(
    "resize",
    "x",
    f"scales:floats?=None sizes:dims?=None {RESIZE_ATTRS}",
    infer=lambda site: resize_type(site, site.attrs["scales"], site.attrs["sizes"]),
    reference=lambda xs, a: (resize(xs[0], a["scales"], a["sizes"], a),),
    composite=True,
    doc="x sampled on another grid, by scales or to sizes (one entry per axis)",
)


def _attention_type(site: Site) -> tuple[TensorType, ...]:
    site.need_kind(0, "f", "a floating-point operand")
    dtype = site.same_dtype(0, 1, 2)
    q, k, v, mask = site.need_rank(0, 4), site.need_rank(1, 4), site.need_rank(2, 4), site.optional(3)
    for a, b, ia, ib, axis in ((q, k, 0, 1, 0), (q, k, 0, 1, 3), (k, v, 1, 2, 0), (k, v, 1, 2, 1), (k, v, 1, 2, 2)):
        site.same_extent(
            a.shape[axis], b.shape[axis], f"{site.operand(ia)} and {site.operand(ib)} differ along axis {axis}"
        )
    heads, groups = q.shape[1], k.shape[1]
    if isinstance(heads, int) and isinstance(groups, int) and (groups == 0 or heads % groups):
        site.shape_error(f"the {heads} heads of {site.operand(0)} are no multiple of the {groups} of {site.operand(1)}")
    if mask is not None:
        if not mask.dtype.is_bool and mask.dtype != dtype:
            site.dtype_error(f"{site.operand(3)} must be bool (true: attend), or {dtype} to be added to the scores")
        scores = (q.shape[0], heads, q.shape[2], k.shape[2])
        merged = broadcast_shapes(mask.shape, scores)
        if merged is None or mask.rank > 4 or any(differ(a, b) for a, b in zip(merged, scores, strict=True)):
            site.shape_error(f"{site.operand(3)} does not broadcast to the scores [{', '.join(map(str, scores))}]")
    return (TensorType(dtype, (*q.shape[:3], v.shape[3])),)


define(
    "attention",
    "q k v mask?",
    "scale:float?=None causal:bool=False",
    infer=_attention_type,
    reference=attention,
    composite=True,
    doc="softmax(scale q k^T + mask) v; q [B, H, S, D], k [B, G, T, D], v [B, G, T, E], H a multiple of G; scale is "
    "1/sqrt(D) by default; causal lets query i see keys up to i + T - S",
)
