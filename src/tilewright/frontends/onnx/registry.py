"""Handlers by op type, and what a handler sees of the node it converts.

A handler is `fn(c: Context) -> Value | sequence of Values`, registered with `@op("Conv")`; `since` picks between
meanings that changed (the newest one not newer than the op's own version is used). ONNX's schema has already checked
the node when a handler runs: attribute names and types, arity. An attribute that the node sets and the handler never
reads is a problem of its own, so nothing is ignored silently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...ir.graph import spec as _spec  # noqa: F401  (fills the table that `make` reads)
from ...ir.graph.core import Node, Value, constant
from ...ir.graph.dims import Dim, DimExpr
from ...ir.graph.make import make
from ...ir.graph.shape_values import known_dims
from ...ir.types import DType, i64
from .tensors import MAX_RANK, Refusal

if TYPE_CHECKING:
    import onnx

Results: TypeAlias = "Value | Sequence[Value | Poisoned | None]"
Handler: TypeAlias = "Callable[[Context], Results]"

HANDLERS: dict[str, list[tuple[int, Handler]]] = {}


def op(*names: str, since: int = 1) -> Callable[[Handler], Handler]:
    """Register a handler for the named ops, from version `since` of each on."""

    def register(fn: Handler) -> Handler:
        for name in names:
            rows = HANDLERS.setdefault(name, [])
            assert since not in [s for s, _ in rows], f"{name} has two handlers since {since}"
            rows.append((since, fn))
            rows.sort(key=lambda row: row[0])
        return fn

    return register


def handler(name: str, version: int) -> Handler | None:
    """The handler for version `version` of an op."""
    found = [fn for since, fn in HANDLERS.get(name, []) if since <= version]
    return found[-1] if found else None


class Missing:
    """An output that a node does not provide; using it is a problem."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Poisoned:
    """The result of a node that had a problem."""


@dataclass(slots=True)
class Context:
    """One node while it is converted."""

    proto: onnx.NodeProto
    ins: tuple[Value | None, ...]
    version: int
    attributes: dict[str, Any]
    defaults: dict[str, Any]
    name: str
    #: read a TensorProto or a SparseTensorProto attribute
    tensor: Callable[[Any], np.ndarray[Any, Any]]
    sparse: Callable[[Any], np.ndarray[Any, Any]]
    #: converts a GraphProto attribute (used by control flow)
    importer: Any = None
    scope: Any = None
    read: set[str] = field(default_factory=set)

    # ---- operands

    def x(self, index: int = 0) -> Value:
        v = self.opt(index)
        if v is None:
            raise Refusal(f"operand {index} is missing")
        return v

    def opt(self, index: int) -> Value | None:
        return self.ins[index] if index < len(self.ins) else None

    @property
    def outputs(self) -> int:
        return len(self.proto.output)

    def uses_output(self, index: int) -> bool:
        return index < len(self.proto.output) and bool(self.proto.output[index])

    # ---- attributes

    def attr(self, name: str, default: Any = None) -> Any:
        """The attribute as the node gives it, else the schema's default, else `default`."""
        self.read.add(name)
        if name in self.attributes:
            return self.attributes[name]
        found = self.defaults.get(name)
        return default if found is None else found

    def given(self, name: str, default: Any = None) -> Any:
        """The attribute as the node gives it, without the schema's default."""
        self.read.add(name)
        return self.attributes.get(name, default)

    def has(self, name: str) -> bool:
        return name in self.attributes

    def ignore(self, *names: str) -> None:
        """Attributes that change nothing about what is computed."""
        self.read.update(names)

    def only(self, name: str, *allowed: Any) -> None:
        """Refuse any value of an attribute but these."""
        value = self.attr(name, allowed[0])
        if value not in allowed:
            words = " or ".join(repr(a) for a in allowed)
            raise Refusal(f"attribute '{name}' = {value!r} is not supported, only {words}")

    def int_(self, name: str, default: int = 0) -> int:
        return int(self.attr(name, default))

    def float_(self, name: str, default: float = 0.0) -> float:
        return float(self.attr(name, default))

    def str_(self, name: str, default: str = "") -> str:
        value = self.attr(name, default)
        return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)

    def ints(self, name: str) -> list[int] | None:
        value = self.attr(name)
        return None if value is None else [int(v) for v in value]

    # ---- building

    def make(self, op: str, *inputs: Value | None, **attrs: Any) -> Value:
        return self.node(op, *inputs, **attrs).out()

    def node(self, op: str, *inputs: Value | None, **attrs: Any) -> Node:
        return make(op, *inputs, **attrs)

    def const(self, array: Any, dtype: DType | None = None) -> Value:
        return constant(np.asarray(array, None if dtype is None else dtype.numpy))

    def scalar(self, value: Any, like: Value) -> Value:
        """A rank-0 constant of the element type of `like`."""
        if like.dtype.is_int and not np.iinfo(like.dtype.numpy).min <= value <= np.iinfo(like.dtype.numpy).max:
            raise Refusal(f"{value} is not a value of {like.dtype}")
        return constant(np.asarray(value).astype(like.dtype.numpy))

    def i64(self, values: Any) -> Value:
        return constant(np.asarray(values, np.int64))

    def cast(self, v: Value, dtype: DType) -> Value:
        return v if v.dtype == dtype else self.make("cast", v, dtype=dtype)

    def axis(self, axis: int, rank: int) -> int:
        if not -rank <= axis < rank:
            raise Refusal(f"axis {axis} is out of range for rank {rank}")
        return axis % rank

    def vector(self, v: Value, most: int = MAX_RANK) -> Value:
        """A parameter with an entry for each axis, as i64: its length becomes a rank, and so is bounded."""
        if not v.dtype.is_int or v.type.rank != 1:
            raise Refusal("a parameter must be a vector of integers", f"{v.type}")
        length = self.static_dims(v.shape, "the length of a parameter")[0]
        if length > most:
            raise Refusal(f"a parameter has {length} entries, over the limit of {most}", f"{v.type}")
        return self.cast(v, i64)

    def maybe_vector(self, v: Value | None, most: int = MAX_RANK) -> Value | None:
        return None if v is None else self.vector(v, most)

    # ---- what is known at import

    def known_ints(self, v: Value | None) -> list[int] | None:
        """All elements of an integer operand in order, when every one is known; None otherwise."""
        found = None if v is None or v.dtype.is_float else self.known(v)
        if found is None or any(isinstance(d, DimExpr) for d in found.flat):
            return None
        return [int(d) for d in found.flat]

    def known(self, v: Value) -> np.ndarray[Any, Any] | None:
        if v.is_constant:
            return v.constant.astype(object)
        return known_dims(v)

    def need_ints(self, index: int, what: str) -> list[int]:
        found = self.known_ints(self.x(index))
        if found is None:
            raise Refusal(f"{what} must be known when the model is loaded", f"operand {index}: {self.x(index).type}")
        return found

    def need_int(self, index: int, what: str) -> int:
        found = self.need_ints(index, what)
        if len(found) != 1:
            raise Refusal(f"{what} must be one number", f"operand {index}: {self.x(index).type}")
        return found[0]

    def static_dims(self, dims: Sequence[Dim], what: str) -> list[int]:
        """Dims that must be numbers by now."""
        out: list[int] = []
        for d in dims:
            if isinstance(d, DimExpr):
                raise Refusal(
                    f"{what} must be known, but it is '{d}'", "load the model with dims={name: size} to fix a dim"
                )
            out.append(d)
        return out
