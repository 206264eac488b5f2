"""Elementwise operators: arithmetic, comparisons, maths functions, casts, activations."""

from __future__ import annotations

import numpy as np

from ...ir.graph.core import Value
from ...ir.types import bool_, f32, f64, i64
from .registry import Context, Results, op
from .tensors import Refusal, dtype_of

_SAME = {
    "Abs": "abs", "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan",
    "Atanh": "atanh", "BitwiseNot": "bitwise_not", "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf",
    "Exp": "exp", "Floor": "floor", "HardSwish": "hard_swish", "IsNaN": "isnan", "Log": "log", "Mish": "mish",
    "Neg": "neg", "Not": "logical_not", "Reciprocal": "reciprocal", "Relu": "relu", "Round": "round",
    "Sigmoid": "sigmoid", "Sign": "sign", "Sin": "sin", "Sinh": "sinh", "Softplus": "softplus",
    "Softsign": "softsign", "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
    "Add": "add", "Sub": "sub", "Mul": "mul", "Div": "div", "Equal": "eq", "Less": "lt", "LessOrEqual": "le",
    "Greater": "gt", "GreaterOrEqual": "ge", "And": "and", "Or": "or", "Xor": "xor", "BitwiseAnd": "and",
    "BitwiseOr": "or", "BitwiseXor": "xor", "PRelu": "prelu", "Where": "where",
}  # fmt: skip


def _same(name: str) -> None:
    @op(name)
    def convert(c: Context) -> Results:
        return c.make(_SAME[name], *(c.x(i) for i in range(len(c.ins))))


for _name in _SAME:
    _same(_name)


@op("Identity")
def identity(c: Context) -> Results:
    return c.x()


@op("IsInf")
def is_inf(c: Context) -> Results:
    x = c.x()
    positive, negative = c.int_("detect_positive", 1), c.int_("detect_negative", 1)
    inf = c.make("isinf", x)
    if positive and negative:
        return inf
    if not positive and not negative:
        return c.make("broadcast", c.const(False), shape=x.shape)
    return c.make("and", inf, c.make("gt" if positive else "lt", x, c.scalar(0, x)))


@op("Cast")
def cast(c: Context) -> Results:
    c.ignore("saturate", "round_mode")  # both concern 8-bit floats, which dtype_of refuses
    return c.cast(c.x(), dtype_of(c.int_("to")))


@op("CastLike")
def cast_like(c: Context) -> Results:
    c.ignore("saturate", "round_mode")
    return c.cast(c.x(), c.x(1).dtype)


@op("Clip")
def clip_attributes(c: Context) -> Results:
    x = c.x()
    bounds = [c.scalar(c.float_(k), x) if c.has(k) else None for k in ("min", "max")]
    return c.make("clip", x, *bounds)


@op("Clip", since=11)
def clip(c: Context) -> Results:
    return c.make("clip", c.x(), *(None if v is None else _scalar(c, v) for v in (c.opt(1), c.opt(2))))


def _scalar(c: Context, v: Value) -> Value:
    """A bound as a rank-0 value (some exporters write one element of rank 1)."""
    if v.type.rank and all(d == 1 for d in v.shape):
        return c.make("reshape", v, shape=())
    return v


@op("Pow")
def power(c: Context) -> Results:
    """Base and exponent may differ in type; the result has the base's."""
    x, y = c.x(0), c.x(1)
    if x.dtype == y.dtype:
        return c.make("pow", x, y)
    if x.dtype.is_float:
        return c.make("pow", x, c.cast(y, x.dtype))
    if y.dtype.is_float:
        return c.cast(c.make("pow", c.cast(x, f64), c.cast(y, f64)), x.dtype)
    return c.cast(c.make("pow", c.cast(x, i64), c.cast(y, i64)), x.dtype)


@op("Mod")
def modulo(c: Context) -> Results:
    if c.int_("fmod", 0):
        return c.make("fmod", c.x(0), c.x(1))
    if c.x().dtype.is_float and c.version < 28:
        raise Refusal("fmod = 0 is for integers only")
    return c.make("mod", c.x(0), c.x(1))


@op("BitShift")
def bit_shift(c: Context) -> Results:
    direction = c.str_("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise Refusal(f"direction must be LEFT or RIGHT, not '{direction}'")
    return c.make("shl" if direction == "LEFT" else "shr", c.x(0), c.x(1))


def _fold(c: Context, name: str) -> Value:
    total = c.x(0)
    for i in range(1, len(c.ins)):
        total = c.make(name, total, c.x(i))
    return total


@op("Sum")
def sum_(c: Context) -> Results:
    return _fold(c, "add")


@op("Max")
def max_(c: Context) -> Results:
    return _fold(c, "max")


@op("Min")
def min_(c: Context) -> Results:
    return _fold(c, "min")


@op("Mean")
def mean(c: Context) -> Results:
    total = _fold(c, "add")
    return c.make("div", total, c.scalar(len(c.ins), total))


# activations with parameters ------------------------------------------------------------------------------------------


@op("LeakyRelu")
def leaky_relu(c: Context) -> Results:
    return c.make("leaky_relu", c.x(), alpha=c.float_("alpha", 0.01))


@op("Elu")
def elu(c: Context) -> Results:
    return c.make("elu", c.x(), alpha=c.float_("alpha", 1.0))


@op("Selu")
def selu(c: Context) -> Results:
    alpha, gamma = c.float_("alpha", 1.6732632423543772), c.float_("gamma", 1.0507009873554805)
    return c.make("selu", c.x(), alpha=alpha, gamma=gamma)


@op("Celu")
def celu(c: Context) -> Results:
    alpha = c.float_("alpha", 1.0)
    if alpha == 0:
        raise Refusal("alpha may not be 0")
    x = c.x()
    scaled = c.make("elu", c.make("div", x, c.scalar(alpha, x)), alpha=1.0)
    return c.make("mul", scaled, c.scalar(alpha, x))


@op("HardSigmoid")
def hard_sigmoid(c: Context) -> Results:
    return c.make("hard_sigmoid", c.x(), alpha=c.float_("alpha", 0.2), beta=c.float_("beta", 0.5))


@op("Gelu")
def gelu(c: Context) -> Results:
    approximate = c.str_("approximate", "none")
    if approximate not in ("none", "tanh"):
        raise Refusal(f"approximate must be none or tanh, not '{approximate}'")
    return c.make("gelu", c.x(), approximate=approximate)


@op("Swish")
def swish(c: Context) -> Results:
    x, alpha = c.x(), c.float_("alpha", 1.0)
    if alpha == 1.0:
        return c.make("silu", x)
    return c.make("mul", x, c.make("sigmoid", c.make("mul", x, c.scalar(alpha, x))))


@op("ThresholdedRelu")
def thresholded_relu(c: Context) -> Results:
    x = c.x()
    above = c.make("gt", x, c.scalar(c.float_("alpha", 1.0), x))
    return c.make("where", above, x, c.scalar(0, x))


@op("Shrink")
def shrink(c: Context) -> Results:
    x, lambd, bias = c.x(), c.float_("lambd", 0.5), c.float_("bias", 0.0)
    b = c.scalar(bias, x)
    low = c.make("where", c.make("lt", x, c.scalar(-lambd, x)), c.make("add", x, b), c.scalar(0, x))
    return c.make("where", c.make("gt", x, c.scalar(lambd, x)), c.make("sub", x, b), low)


@op("Dropout")
def dropout(c: Context) -> Results:
    """Inference only: the data passes through, and the mask keeps everything."""
    c.ignore("ratio", "seed")
    training = c.opt(2)
    if training is not None:
        known = c.known(training)
        if known is None or known.size != 1 or bool(known.reshape(-1)[0]):
            raise Refusal("training mode is not supported")
    x = c.x()
    mask_type = bool_ if c.version >= 10 else x.dtype
    mask = c.make("broadcast", c.const(1, mask_type), shape=x.shape) if c.uses_output(1) else None
    return x, mask


@op("Constant")
def constant_(c: Context) -> Results:
    given = [k for k in c.attributes if k.startswith(("value", "sparse_value"))]
    if len(given) != 1:
        raise Refusal(f"exactly one value attribute must be set, not {len(given)}")
    value = c.attr(given[0])
    match given[0]:
        case "value":
            return c.const(c.tensor(value))
        case "sparse_value":
            return c.const(c.sparse(value))
        case "value_float" | "value_floats":
            return c.const(np.asarray(value, np.float32), f32)
        case "value_int" | "value_ints":
            return c.const(np.asarray(value, np.int64), i64)
    raise Refusal("strings are not supported")
