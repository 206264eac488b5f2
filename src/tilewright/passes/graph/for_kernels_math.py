"""Functions that kernels lack, in terms of those they have, accurate over their whole range."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...ir.graph import build as b
from ...ir.graph.core import Node, Value
from ...ir.types import f32


def _wide(rule: Callable[[Value], Value]) -> Callable[[Node], Value]:
    """f16 and bf16 are computed in f32 and rounded once."""

    def changed(node: Node) -> Value:
        x = node.inputs[0]
        assert x is not None
        return b.cast(rule(b.cast(x, f32) if x.dtype.bits == 16 else x), x.dtype)

    return changed


def _huge(x: Value) -> float:
    """Beyond it, sqrt(x * x + 1) is x, and x * x may overflow."""
    return 1e9 if x.dtype.bits == 64 else 1e5


@_wide
def asinh(x: Value) -> Value:
    """log1p(|x| + x^2 / (1 + sqrt(x^2 + 1))) with the sign of x."""
    y = b.abs(x)
    square = b.mul(y, y)
    near = b.log1p(b.add(y, b.div(square, b.add(b.sqrt(b.add(square, 1)), 1))))
    far = b.add(b.log(y), math.log(2))
    y = b.where(b.gt(y, _huge(x)), far, near)
    return b.where(b.lt(x, 0), b.neg(y), y)


@_wide
def acosh(x: Value) -> Value:
    """log1p(t + sqrt(2 t + t^2)) with t = x - 1."""
    t = b.sub(x, 1)
    near = b.log1p(b.add(t, b.sqrt(b.add(b.add(t, t), b.mul(t, t)))))
    y = b.where(b.gt(x, _huge(x)), b.add(b.log(x), math.log(2)), near)
    return b.where(b.lt(x, 1), math.nan, y)


@_wide
def atanh(x: Value) -> Value:
    """log1p(2 |x| / (1 - |x|)) / 2 with the sign of x."""
    y = b.abs(x)
    y = b.mul(b.log1p(b.div(b.add(y, y), b.sub(1, y))), 0.5)
    return b.where(b.lt(x, 0), b.neg(y), y)


def integer_fmod(node: Node) -> Value:
    """What truncating division leaves; 0 where the divisor is."""
    x, y = node.inputs
    assert x is not None and y is not None
    return b.where(b.eq(y, 0), 0, b.sub(x, b.mul(b.div(x, y), y)))
