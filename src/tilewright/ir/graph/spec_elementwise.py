"""Elementwise ops: arithmetic, comparisons, maths functions, casts and the activation functions made of them.

Binary and ternary ops broadcast as NumPy does; element types must agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..types import DType, bool_, f32
from .core import TensorType
from .op_spec import Array, Attrs, Infer, Reference, Site, define

_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Array) -> Array:
    return np.asarray(_erf(x.astype(np.float64)), dtype=np.float64).astype(x.dtype).reshape(x.shape)


def sigmoid(x: Array) -> Array:
    e = np.exp(-np.abs(x))
    return np.asarray(np.where(x >= 0, 1 / (1 + e), e / (1 + e)), dtype=x.dtype)


def softplus(x: Array) -> Array:
    return np.asarray(np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))), dtype=x.dtype)


def gelu(x: Array, approximate: str) -> Array:
    if approximate == "tanh":
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
        return np.asarray(0.5 * x * (1 + np.tanh(inner)), dtype=x.dtype)
    return np.asarray(0.5 * x * (1 + erf(np.asarray(x * math.sqrt(0.5), dtype=x.dtype))), dtype=x.dtype)


# type rules --------------------------------------------------------------------------------------------------------


_KINDS = {
    "f": "a floating-point operand",
    "iu": "an integer operand",
    "b": "a bool operand",
    "fiu": "a numeric operand",
    "biu": "an integer or bool operand",
    "fiub": "an operand",
}


def same_type(kinds: str, result: DType | None = None) -> Infer:
    def infer(site: Site) -> tuple[TensorType, ...]:
        dtype = site.need_kind(0, kinds, _KINDS[kinds])
        return (TensorType(result or dtype, site.type().shape),)

    return infer


def broadcast_type(kinds: str, result: DType | None = None) -> Infer:
    def infer(site: Site) -> tuple[TensorType, ...]:
        dtype = site.need_kind(0, kinds, _KINDS[kinds])
        site.same_dtype()
        return (TensorType(result or dtype, site.broadcast()),)

    return infer


def _where_type(site: Site) -> tuple[TensorType, ...]:
    site.need_kind(0, "b", "a bool condition")
    dtype = site.same_dtype(1, 2)
    return (TensorType(dtype, site.broadcast()),)


# references --------------------------------------------------------------------------------------------------------


def one(fn: Callable[[Any], Any]) -> Reference:
    return lambda xs, attrs: (np.asarray(fn(xs[0])),)


def two(fn: Callable[[Any, Any], Any]) -> Reference:
    return lambda xs, attrs: (np.asarray(fn(xs[0], xs[1])),)


def divide(a: Array, b: Array) -> Array:
    """True division of floats; integers truncate toward zero, and x / 0 is 0."""
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    q = np.floor_divide(a, b)
    r = a - q * b
    return np.asarray(q + ((r != 0) & ((a < 0) != (b < 0)) & (b != 0)).astype(a.dtype), dtype=a.dtype)


def power(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.asarray(np.power(a, b))
    whole = np.power(a, np.maximum(b, 0))
    odd = (b & np.ones_like(b)) == 1
    inverse = np.where(a == 1, 1, np.where((a == -1) if a.dtype.kind == "i" else False, np.where(odd, -1, 1), 0))
    return np.asarray(np.where(b < 0, inverse, whole)).astype(a.dtype)


def cast(x: Array, dtype: DType) -> Array:
    """Floats to integers truncate, saturate at the type's range, and take NaN to 0; integers to integers wrap."""
    if dtype.is_int and x.dtype.kind == "f":
        info = np.iinfo(dtype.numpy)
        clean = np.where(np.isnan(x), 0, x).astype(np.float64)
        inside = np.trunc(np.clip(clean, -(2.0**63), 2.0**64))
        if dtype.bits == 64:
            limit = 2.0**63 if dtype.kind == "i" else 2.0**64
            safe = np.clip(inside, 0.0 if dtype.kind == "u" else -limit, np.nextafter(limit, 0)).astype(dtype.numpy)
            return np.asarray(np.where(inside >= limit, np.asarray(info.max, dtype.numpy), safe))
        return np.clip(inside, info.min, info.max).astype(dtype.numpy)
    if dtype.is_bool:
        return np.asarray(x != 0)
    return x.astype(dtype.numpy)


def _where_reference(xs: Sequence[Any], _: Attrs) -> tuple[Array, ...]:
    return (np.asarray(np.where(xs[0], xs[1], xs[2])),)


def clip(xs: Any, _: Attrs) -> tuple[Array, ...]:
    x, lo, hi = [*xs, None, None][:3]
    y = x if lo is None else np.maximum(x, lo)
    return (np.asarray(y if hi is None else np.minimum(y, hi)),)


# rows --------------------------------------------------------------------------------------------------------------

_UNARY: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "neg": (np.negative, "fiu", "-x"),
    "abs": (np.abs, "fiu", "|x|"),
    "sign": (np.sign, "fiu", "-1, 0 or 1 (NaN stays NaN)"),
    "exp": (np.exp, "f", "e to the x"),
    "log": (np.log, "f", "natural logarithm"),
    "log1p": (np.log1p, "f", "log(1 + x), exact near 0"),
    "expm1": (np.expm1, "f", "exp(x) - 1, exact near 0"),
    "sqrt": (np.sqrt, "f", "square root"),
    "rsqrt": (lambda x: 1 / np.sqrt(x), "f", "1 / sqrt(x)"),
    "reciprocal": (lambda x: 1 / x, "f", "1 / x"),
    "sin": (np.sin, "f", "sine"),
    "cos": (np.cos, "f", "cosine"),
    "tan": (np.tan, "f", "tangent"),
    "asin": (np.arcsin, "f", "inverse sine"),
    "acos": (np.arccos, "f", "inverse cosine"),
    "atan": (np.arctan, "f", "inverse tangent"),
    "sinh": (np.sinh, "f", "hyperbolic sine"),
    "cosh": (np.cosh, "f", "hyperbolic cosine"),
    "tanh": (np.tanh, "f", "hyperbolic tangent"),
    "asinh": (np.arcsinh, "f", "inverse hyperbolic sine"),
    "acosh": (np.arccosh, "f", "inverse hyperbolic cosine"),
    "atanh": (np.arctanh, "f", "inverse hyperbolic tangent"),
    "erf": (erf, "f", "the error function"),
    "sigmoid": (sigmoid, "f", "1 / (1 + exp(-x))"),
    "floor": (np.floor, "f", "round down"),
    "ceil": (np.ceil, "f", "round up"),
    "round": (np.rint, "f", "round to nearest, halves to even"),
    "trunc": (np.trunc, "f", "round toward zero"),
    "logical_not": (np.logical_not, "b", "not x"),
    "bitwise_not": (np.invert, "iu", "every bit of x flipped"),
}
for _name, (_fn, _kinds, _doc) in _UNARY.items():
    define(_name, "x", infer=same_type(_kinds), reference=one(_fn), doc=_doc, elementwise=True)
define("isnan", "x", infer=same_type("f", bool_), reference=one(np.isnan), doc="whether x is NaN", elementwise=True)
define(
    "isinf", "x", infer=same_type("f", bool_), reference=one(np.isinf), doc="whether x is infinite", elementwise=True
)

_BINARY: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    "add": (np.add, "fiu", "a + b"),
    "sub": (np.subtract, "fiu", "a - b"),
    "mul": (np.multiply, "fiu", "a * b"),
    "div": (divide, "fiu", "a / b; integers truncate toward zero"),
    "floordiv": (np.floor_divide, "fiu", "floor(a / b)"),
    "mod": (np.mod, "fiu", "remainder with the sign of b"),
    "fmod": (np.fmod, "fiu", "remainder with the sign of a"),
    "pow": (power, "fiu", "a to the power b"),
    "max": (np.maximum, "fiub", "the greater; NaN wins"),
    "min": (np.minimum, "fiub", "the lesser; NaN wins"),
    "atan2": (np.arctan2, "f", "the angle of (b, a)"),
    "shl": (np.left_shift, "iu", "a shifted left by b bits"),
    "shr": (np.right_shift, "iu", "a shifted right by b bits (arithmetic for signed types)"),
    "and": (np.bitwise_and, "biu", "logical and of bools, bitwise and of integers"),
    "or": (np.bitwise_or, "biu", "logical or of bools, bitwise or of integers"),
    "xor": (np.bitwise_xor, "biu", "logical xor of bools, bitwise xor of integers"),
}
for _name, (_fn2, _kinds, _doc) in _BINARY.items():
    define(_name, "a b", infer=broadcast_type(_kinds), reference=two(_fn2), doc=_doc, elementwise=True)

_COMPARE: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "eq": (np.equal, "fiub"),
    "ne": (np.not_equal, "fiub"),
    "lt": (np.less, "fiu"),
    "le": (np.less_equal, "fiu"),
    "gt": (np.greater, "fiu"),
    "ge": (np.greater_equal, "fiu"),
}
for _name, (_fn3, _kinds) in _COMPARE.items():
    define(
        _name,
        "a b",
        infer=broadcast_type(_kinds, bool_),
        reference=two(_fn3),
        doc=f"{_name} comparison, as bool",
        elementwise=True,
    )

define("where", "cond a b", infer=_where_type, reference=_where_reference, doc="a where cond, else b", elementwise=True)
define(
    "cast",
    "x",
    "dtype:dtype",
    infer=lambda site: (TensorType(site.attrs["dtype"], site.type().shape),),
    reference=lambda xs, attrs: (cast(xs[0], attrs["dtype"]),),
    doc="x as another element type; floats to integers truncate and saturate, NaN becomes 0",
    elementwise=True,
)


def _prelu(x: Array, slope: Array) -> Array:
    return np.asarray(np.where(x < 0, x * slope, x))


def _prelu_type(site: Site) -> tuple[TensorType, ...]:
    dtype = site.same_dtype()
    if site.broadcast() != site.type().shape:
        site.shape_error(f"{site.operand(1)} must broadcast to {site.operand(0)}")
    return (TensorType(dtype, site.type().shape),)


def _clip_type(site: Site) -> tuple[TensorType, ...]:
    dtype = site.need_kind(0, "fiu", _KINDS["fiu"])
    site.same_dtype()
    return (TensorType(dtype, site.broadcast()),)


def _activation(name: str, attrs: str, fn: Callable[[Array, Attrs], Any], doc: str, kinds: str = "f") -> None:
    define(
        name,
        "x",
        attrs,
        infer=same_type(kinds),
        reference=lambda xs, a: (np.asarray(fn(xs[0], a), xs[0].dtype),),
        doc=doc,
        composite=True,
        elementwise=True,
    )


_activation("relu", "", lambda x, a: np.maximum(x, 0), "max(x, 0)", "fiu")
_activation("leaky_relu", "alpha:float=0.01", lambda x, a: np.where(x < 0, a["alpha"] * x, x), "x, or alpha x below 0")
_activation(
    "elu",
    "alpha:float=1.0",
    lambda x, a: np.where(x < 0, a["alpha"] * np.expm1(np.minimum(x, 0)), x),
    "x, or alpha (exp(x) - 1) below 0",
)
_activation(
    "selu",
    "alpha:float=1.6732632423543772 gamma:float=1.0507009873554805",
    lambda x, a: a["gamma"] * np.where(x < 0, a["alpha"] * np.expm1(np.minimum(x, 0)), x),
    "a scaled elu",
)
_activation(
    "hard_sigmoid",
    "alpha:float=0.2 beta:float=0.5",
    lambda x, a: np.maximum(0, np.minimum(1, a["alpha"] * x + a["beta"])),
    "alpha x + beta, kept in [0, 1]",
)
_activation("hard_swish", "", lambda x, a: x * np.maximum(0, np.minimum(1, x / 6 + 0.5)), "x hard_sigmoid(x; 1/6, 1/2)")
_activation("softplus", "", lambda x, a: softplus(x), "log(1 + exp(x))")
_activation("softsign", "", lambda x, a: x / (1 + np.abs(x)), "x / (1 + |x|)")
_activation("mish", "", lambda x, a: x * np.tanh(softplus(x)), "x tanh(softplus(x))")
_activation("silu", "", lambda x, a: x * sigmoid(x), "x sigmoid(x)")
_activation("gelu", "approximate:none|tanh=none", lambda x, a: gelu(x, a["approximate"]), "x Phi(x)")
define(
    "prelu",
    "x slope",
    infer=_prelu_type,
    reference=two(_prelu),
    doc="x, or slope x below 0",
    composite=True,
    elementwise=True,
)
define(
    "clip",
    "x lo? hi?",
    infer=_clip_type,
    reference=clip,
    doc="x kept in [lo, hi]; NaN stays NaN",
    composite=True,
    elementwise=True,
)


# quantisation: q = round(x / scale) + zero_point -------------------------------------------------------------------


def along(param: Array, rank: int, axis: int) -> Array:
    """A per-channel parameter shaped to broadcast along `axis`."""
    return param.reshape([-1 if i == axis else 1 for i in range(rank)]) if param.ndim == 1 else param


def _check_quantisation(site: Site) -> None:
    x, scale, zero = site.type(), site.type(1), site.optional(2)
    if scale.rank > 1:
        site.shape_error(f"{site.operand(1)} must be a scalar or have one axis")
    if scale.rank == 1 and scale.shape != (1,):
        axis = site.attrs["axis"]
        if not 0 <= axis < x.rank:
            site.argument_error(f"axis {axis} is out of range for {site.operand(0)}")
        site.same_extent(
            x.shape[axis], scale.shape[0], f"extents of axis {axis} of {site.operand(0)} and of scale differ"
        )
    if zero is not None and zero.shape != scale.shape:
        site.shape_error(f"{site.operand(1)} and {site.operand(2)} must have one shape")


def _quantize_type(site: Site) -> tuple[TensorType, ...]:
    site.need_kind(0, "f", _KINDS["f"])
    site.same_dtype(0, 1)
    _check_quantisation(site)
    zero, dtype = site.optional(2), site.attrs["dtype"]
    if not dtype.is_int or (zero is not None and zero.dtype != dtype):
        site.dtype_error(f"the result type {dtype} must be an integer type, and that of zero_point")
    return (TensorType(dtype, site.type().shape),)


def _quantize(xs: Any, attrs: Attrs) -> tuple[Array, ...]:
    x, scale, zero = [*xs, None][:3]
    rank, axis, dtype = x.ndim, attrs["axis"], attrs["dtype"]
    q = np.rint(x / along(scale, rank, axis)).astype(np.float64)
    if zero is not None:
        q = q + along(zero, rank, axis)
    return (cast(q.reshape(x.shape), dtype),)


def _dequantize_type(site: Site) -> tuple[TensorType, ...]:
    site.need_kind(0, "iu", _KINDS["iu"])
    _check_quantisation(site)
    if site.optional(2) is not None:
        site.same_dtype(0, 2)
    return (TensorType(site.need_kind(1, "f", "a floating-point scale"), site.type().shape),)


def _dequantize(xs: Any, attrs: Attrs) -> tuple[Array, ...]:
    x, scale, zero = [*xs, None][:3]
    rank, axis = x.ndim, attrs["axis"]
    y = x.astype(np.int64 if x.dtype.itemsize < 8 else x.dtype)
    if zero is not None:
        y = y - along(zero, rank, axis).astype(y.dtype)
    wide = scale.dtype if scale.dtype == np.float64 else f32.numpy
    return ((y.astype(wide) * along(scale, rank, axis)).reshape(x.shape),)


define(
    "quantize",
    "x scale zero_point?",
    "axis:int=1 dtype:dtype",
    infer=_quantize_type,
    reference=_quantize,
    doc="round(x / scale) + zero_point, saturated to dtype; scale per tensor, or per channel of axis",
    composite=True,
)
define(
    "dequantize",
    "x scale zero_point?",
    "axis:int=1",
    infer=_dequantize_type,
    reference=_dequantize,
    doc="(x - zero_point) * scale; scale per tensor, or per channel of axis",
    composite=True,
)
