"""Elementwise functions of the kernel language, by name; composed ones are built from Tile IR's scalar functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ..errors import DTypeError
from ..ir.tile import build
from ..ir.tile.core import SCALAR_FNS, Node
from ..ir.types import DType
from .context import Context
from .intrinsics import UNARY
from .operators import apply, power, recast, tile, tiles, weak
from .values import Index, describe

Handler = Callable[..., Any]
HANDLERS: dict[str, Handler] = {}


def handler(fn: Handler) -> Handler:
    HANDLERS[fn.__name__.rstrip("_")] = fn
    return fn


def _direct(name: str) -> Handler:
    def one(ctx: Context, x: Any) -> Any:
        return apply(ctx, name, x)

    return one


def _direct2(name: str) -> Handler:
    def two(ctx: Context, x: Any, y: Any) -> Any:
        return apply(ctx, name, x, y)

    return two


HANDLERS.update({name: _direct(name) for name in UNARY if name in SCALAR_FNS})
HANDLERS.update({name: _direct2(name) for name in ("atan2", "fmod", "tdiv", "floordiv", "mod")})
HANDLERS.update({"maximum": _direct2("max"), "minimum": _direct2("min"), "logical_not": _direct("not")})


@handler
def pow_(ctx: Context, x: Any, y: Any) -> Any:
    return power(ctx, x, y)


@handler
def fma(ctx: Context, a: Any, b: Any, c: Any) -> Any:
    return apply(ctx, "fma", a, b, c)


@handler
def where(ctx: Context, cond: Any, a: Any, b: Any) -> Any:
    if isinstance(cond, bool):
        return a if cond else b
    c = tile(ctx, cond)
    if not c.dtype.is_bool:
        raise DTypeError(f"the condition of where must be bool, not {describe(c)}", loc=ctx.loc,
                         hint="compare it with something, e.g. x > 0")
    return build.elementwise("where", c, *tiles(ctx, a, b), loc=ctx.loc)


@handler
def isfinite(ctx: Context, x: Any) -> Any:
    return apply(ctx, "not", apply(ctx, "or", apply(ctx, "isnan", x), apply(ctx, "isinf", x)))


# ---------------------------------------------------------------------------------------------- activations


def _float(ctx: Context, x: Any, name: str) -> Node:
    n = tiles(ctx, x, floats=True)[0]
    if not n.dtype.is_float:
        raise DTypeError(f"{name} is for floats, not for {describe(n)}", loc=ctx.loc, hint="cast first: .to(tw.f32)")
    return n


def _mul(ctx: Context, a: Any, b: Any) -> Any:
    return apply(ctx, "mul", a, b)


def _add(ctx: Context, a: Any, b: Any) -> Any:
    return apply(ctx, "add", a, b)


@handler
def relu(ctx: Context, x: Any) -> Any:
    return apply(ctx, "max", tile(ctx, x), 0)


@handler
def relu6(ctx: Context, x: Any) -> Any:
    return apply(ctx, "min", relu(ctx, x), 6)


@handler
def clip(ctx: Context, x: Any, low: Any = None, high: Any = None) -> Any:
    out = tile(ctx, x)
    if low is not None:
        out = apply(ctx, "max", out, low)
    return out if high is None else apply(ctx, "min", out, high)


@handler
def gelu(ctx: Context, x: Any) -> Any:
    x = _float(ctx, x, "gelu")
    half = _mul(ctx, x, 0.5)
    return _mul(ctx, half, _add(ctx, apply(ctx, "erf", _mul(ctx, x, math.sqrt(0.5))), 1.0))


@handler
def gelu_tanh(ctx: Context, x: Any) -> Any:
    x = _float(ctx, x, "gelu_tanh")
    inner = _mul(ctx, x, _add(ctx, _mul(ctx, _mul(ctx, x, x), 0.044715), 1.0))
    bent = apply(ctx, "tanh", _mul(ctx, inner, math.sqrt(2 / math.pi)))
    return _mul(ctx, _mul(ctx, x, 0.5), _add(ctx, bent, 1.0))


@handler
def silu(ctx: Context, x: Any) -> Any:
    x = _float(ctx, x, "silu")
    return _mul(ctx, x, apply(ctx, "sigmoid", x))


@handler
def softplus(ctx: Context, x: Any) -> Any:
    x = _float(ctx, x, "softplus")
    tail = apply(ctx, "log1p", apply(ctx, "exp", apply(ctx, "neg", apply(ctx, "abs", x))))
    return _add(ctx, apply(ctx, "max", x, 0), tail)


@handler
def softsign(ctx: Context, x: Any) -> Any:
    x = _float(ctx, x, "softsign")
    return apply(ctx, "div", x, _add(ctx, apply(ctx, "abs", x), 1.0))


@handler
def mish(ctx: Context, x: Any) -> Any:
    x = _float(ctx, x, "mish")
    return _mul(ctx, x, apply(ctx, "tanh", softplus(ctx, x)))


@handler
def hard_sigmoid(ctx: Context, x: Any) -> Any:
    return clip(ctx, _add(ctx, _mul(ctx, _float(ctx, x, "hard_sigmoid"), 1 / 6), 0.5), 0.0, 1.0)


@handler
def hard_swish(ctx: Context, x: Any) -> Any:
    x = _float(ctx, x, "hard_swish")
    return _mul(ctx, x, hard_sigmoid(ctx, x))


@handler
def leaky_relu(ctx: Context, x: Any, alpha: Any = 0.01) -> Any:
    x = _float(ctx, x, "leaky_relu")
    return where(ctx, apply(ctx, "ge", x, 0), x, _mul(ctx, x, alpha))


@handler
def elu(ctx: Context, x: Any, alpha: Any = 1.0) -> Any:
    x = _float(ctx, x, "elu")
    return where(ctx, apply(ctx, "gt", x, 0), x, _mul(ctx, apply(ctx, "expm1", x), alpha))


# ---------------------------------------------------------------------------------------------- casts


@handler
def cast(ctx: Context, x: Any, dtype: Any) -> Any:
    if not isinstance(dtype, DType):
        ctx.fail(f"cast needs a dtype, not {describe(dtype)}", hint="write tw.f32, tw.i8, ... or x.dtype")
    if isinstance(x, Index):
        ctx.fail("a tile index cannot be cast", hint="write i.index.to(...): its coordinates as an ordinary tile")
    if weak(x):
        if isinstance(x, Node):
            return recast(ctx, x, dtype)
        return build.const(int(x) if dtype.is_int else x, dtype, ctx.loc)
    return build.cast(tile(ctx, x), dtype, ctx.loc)


