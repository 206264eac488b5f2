"""What a lowering rule answers with, what it may ask, and the table of rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ..ir.graph.core import Node, Value
from ..ir.types import DType, accumulator
from .view import View

if TYPE_CHECKING:
    from ..ir.tile.core import Kernel

Array = np.ndarray[Any, Any]


class Operands(Protocol):
    """What a rule may ask of the plan being made."""

    def view(self, value: Value) -> View:
        """Where the value lies."""

    def shaped(self, value: Value, shape: tuple[int, ...]) -> View:
        """The value in another shape of as many elements; copied when its strides do not allow it."""

    def reshaped(self, view: View, shape: tuple[int, ...]) -> View:
        """A view in another shape; copied when its strides do not allow it."""

    def constant(self, value: Value) -> Array | None:
        """The data of a value known now."""


@dataclass(slots=True)
class Call:
    """`tensors`: parameters in order, as views or as constant arrays; `out_shape`: the dims of the kernel's output;
    `arrange`: a view shaped like the op's result, as the kernel's output dims see it (None: it cannot be seen so);
    `packable`: a constant second operand of a product that may come in panels; `change`: done to the kernel."""

    kernel: Any
    tensors: dict[str, View | Array]
    out_shape: tuple[int, ...]
    static: dict[str, Any] = field(default_factory=dict)
    packable: str | None = None
    arrange: Callable[[View], View | None] | None = None
    change: Callable[[Kernel], Kernel] | None = None

    def arranged(self, v: View) -> View | None:
        return self.arrange(v) if self.arrange is not None else v.reshape(self.out_shape)


Rule = Callable[[Operands, Node], Call]
RULES: dict[str, Rule] = {}


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


def split(shape: tuple[int, ...], first: int, last: int) -> tuple[int, int, int]:
    """(elements before, on, after) the axes first..last."""
    return prod(shape[:first]), prod(shape[first:last + 1]), prod(shape[last + 1:])


def sums(n: Node) -> dict[str, DType]:
    """The types a product sums in and gives, as the kernels' parameters."""
    kind = n.types[0].dtype
    return {"acc": accumulator(kind) if kind.is_float else kind, "kind": kind}


def least(dtype: DType) -> int | float:
    """The value that loses against every other in a maximum."""
    if dtype.is_float:
        return float("-inf")
    return 0 if dtype.kind in "ub" else -(1 << dtype.bits - 1)


def greatest(dtype: DType) -> int | float:
    """The value that loses against every other in a minimum."""
    if dtype.is_float:
        return float("inf")
    return (1 << dtype.bits - (dtype.kind == "i")) - 1
