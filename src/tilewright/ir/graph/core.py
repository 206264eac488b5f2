"""Graph IR: immutable, hash-consed nodes over whole tensors.

A `Node` is one application of an op of the spec table (`ir/graph/spec.py`) to values; a `Value` is one of its
results. Nodes are interned: building the same op on the same inputs with the same attributes returns the same
object, so common subexpressions are one node by construction, and `==` is `is`. A source location belongs to a node
but not to its identity (the first to build it gives it). A `Graph` is inputs and outputs; what it computes is
whatever its outputs reach.

Dims are ints or `Dim` expressions over named symbols (`ir/graph/dims.py`). Attributes are hashable Python values:
int, float, str, bool, None, DType, or (nested) tuples of them. Constants carry an `ArrayRef` (content-hashed).
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..types import DType, Loc, from_numpy
from .dims import Dim

Attr: TypeAlias = "int | float | str | bool | None | DType | ArrayRef | Graph | tuple[Attr, ...]"
Shape: TypeAlias = tuple[Dim, ...]


@dataclass(frozen=True, slots=True)
class TensorType:
    dtype: DType
    shape: Shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def is_static(self) -> bool:
        return all(isinstance(d, int) for d in self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        assert self.is_static, f"shape {self.shape} is not static"
        return tuple(int(d) for d in self.shape)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class ArrayRef:
    """A constant's data: a read-only NumPy array, compared by content (dtype, shape, bytes). An array that its owner
    could still change is copied, unless `own` says that it was made for this."""

    __slots__ = ("array", "digest")

    def __init__(self, array: np.ndarray[Any, Any], *, own: bool = False) -> None:
        if array.flags.writeable and not own:
            array = np.array(array, order="C")
        else:
            array = np.ascontiguousarray(array).reshape(array.shape).view()
        array.flags.writeable = False
        self.array = array
        h = hashlib.blake2b(digest_size=16)
        h.update(f"{array.dtype.name}{array.shape}".encode())
        h.update(array.reshape(-1).view(np.uint8).data if array.size else b"")
        self.digest = h.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArrayRef) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"array<{self.digest[:12]}>"


class Node:
    """One op application. `types` are the results' types; build nodes with `ir.graph.build.make`, which infers them."""

    __slots__ = ("op", "inputs", "attrs", "types", "loc", "name", "_digest", "__weakref__")

    op: str
    inputs: tuple[Value | None, ...]
    attrs: tuple[tuple[str, Attr], ...]
    types: tuple[TensorType, ...]
    loc: Loc | None
    name: str
    _digest: str | None

    @property
    def digest(self) -> str:
        """A hash of the computation (op, attributes and everything it reads): the same in every process."""
        if self._digest is None:
            for n in topological([self]):
                if n._digest is None:
                    n._digest = digest_of(n.op, n.inputs, n.attrs)
        assert self._digest is not None
        return self._digest

    def attr(self, key: str, default: Any = None) -> Any:
        for k, v in self.attrs:
            if k == key:
                return v
        return default

    def out(self, index: int = 0) -> Value:
        return Value(self, index)

    @property
    def outputs(self) -> tuple[Value, ...]:
        return tuple(Value(self, i) for i in range(len(self.types)))

    def __repr__(self) -> str:
        return f"<{self.op} {self.name or hex(id(self))}>"


@dataclass(frozen=True, slots=True)
class Value:
    node: Node
    index: int = 0

    @property
    def type(self) -> TensorType:
        return self.node.types[self.index]

    @property
    def dtype(self) -> DType:
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        return self.type.shape

    @property
    def is_constant(self) -> bool:
        return self.node.op == "constant"

    @property
    def constant(self) -> np.ndarray[Any, Any]:
        """The data of a constant (read-only)."""
        ref = self.node.attr("value")
        assert isinstance(ref, ArrayRef)
        return ref.array


def digest_of(op: str, inputs: Sequence[Value | None], attrs: Iterable[tuple[str, Attr]]) -> str:
    h = hashlib.blake2b(op.encode(), digest_size=16)
    for v in inputs:
        h.update(f"|{v.node.digest}.{v.index}".encode() if v is not None else b"|-")
        if v is not None and v.node.op == "input":
            h.update(str(v.type).encode())
    for key, value in attrs:
        h.update(f"|{key}={_attr_text(value)}".encode())
    return h.hexdigest()


def _attr_text(x: Any) -> str:
    if isinstance(x, tuple):
        return "(" + ",".join(map(_attr_text, x)) + ")"
    if isinstance(x, ArrayRef):
        return x.digest
    if isinstance(x, Graph):
        return x.digest
    return x.hex() if isinstance(x, float) else f"{type(x).__name__}:{x}"


_interned: weakref.WeakValueDictionary[tuple[Any, ...], Node] = weakref.WeakValueDictionary()


def intern_node(
    op: str,
    inputs: Sequence[Value | None],
    attrs: dict[str, Attr],
    types: Sequence[TensorType],
    *,
    loc: Loc | None = None,
    name: str = "",
) -> Node:
    """The one node with this op, inputs, attributes and result types. Low level: no checks (see `build.make`)."""
    ins = tuple(inputs)
    items = tuple(sorted(attrs.items()))
    key = (op, tuple((id(v.node), v.index) if v is not None else None for v in ins), _freeze(items), tuple(types))
    found = _interned.get(key)
    if found is not None:
        return found
    node = Node()
    node.op, node.inputs, node.attrs, node.types, node.loc, node.name = op, ins, items, tuple(types), loc, name
    node._digest = None
    _interned[key] = node
    return node


def _freeze(x: Any) -> Any:
    """Attributes as a key: 1, 1.0 and True are different attributes although Python calls them equal; so are 0.0 and
    -0.0."""
    if isinstance(x, tuple):
        return tuple(_freeze(i) for i in x)
    if isinstance(x, float):
        return ("f", x.hex())
    if isinstance(x, bool):
        return ("b", x)
    return x


def constant(array: np.ndarray[Any, Any] | ArrayRef, *, loc: Loc | None = None, name: str = "") -> Value:
    ref = array if isinstance(array, ArrayRef) else ArrayRef(np.asarray(array))
    dtype = from_numpy(ref.array.dtype)
    assert dtype is not None, f"no element type for {ref.array.dtype}"
    return intern_node("constant", (), {"value": ref}, (TensorType(dtype, ref.array.shape),), loc=loc, name=name).out()


def graph_input(name: str, type: TensorType, *, loc: Loc | None = None) -> Value:
    return intern_node("input", (), {"name": name}, (type,), loc=loc, name=name).out()


class Graph:
    """Inputs, outputs and their names. Immutable; passes build a new one. Two graphs are equal when they compute the
    same from the same inputs under the same output names."""

    __slots__ = ("name", "inputs", "outputs", "output_names", "value_names", "_order")

    def __init__(
        self,
        name: str,
        inputs: Sequence[Value],
        outputs: Sequence[Value],
        output_names: Sequence[str],
        value_names: dict[Value, str] | None = None,
    ) -> None:
        self.name = name
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.output_names = tuple(output_names)
        #: names that a model file gave to values (kept so that reports and comparisons can name them)
        self.value_names = dict(value_names or {})
        self._order: tuple[Node, ...] | None = None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        return (self.inputs, self.outputs, self.output_names) == (other.inputs, other.outputs, other.output_names)

    def __hash__(self) -> int:
        return hash((self.inputs, self.outputs, self.output_names))

    @property
    def digest(self) -> str:
        """A hash of the inputs' types, the computation and the output names: the same in every process."""
        h = hashlib.blake2b(digest_size=16)
        for v in self.inputs:
            h.update(f"{v.node.digest}{v.type}".encode())
        for name, v in zip(self.output_names, self.outputs, strict=True):
            h.update(f"|{name}={v.node.digest}.{v.index}".encode())
        return h.hexdigest()

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(str(v.node.attr("name")) for v in self.inputs)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Every node the outputs need, operands before users (deterministic)."""
        if self._order is None:
            self._order = tuple(topological([v.node for v in self.outputs], first=[v.node for v in self.inputs]))
        return self._order

    def users(self) -> dict[Value, list[Node]]:
        table: dict[Value, list[Node]] = {}
        for n in self.nodes:
            for v in n.inputs:
                if v is not None:
                    table.setdefault(v, []).append(n)
        return table

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)


def topological(roots: Iterable[Node], first: Iterable[Node] = ()) -> list[Node]:
    """Nodes reachable from `roots`, operands first; no recursion, so deep graphs are fine."""
    done: set[int] = set()
    order: list[Node] = []
    for root in [*first, *roots]:
        stack: list[tuple[Node, bool]] = [(root, False)]
        while stack:
            node, expanded = stack.pop()
            if id(node) in done:
                continue
            if expanded:
                done.add(id(node))
                order.append(node)
                continue
            stack.append((node, True))
            for v in reversed(node.inputs):
                if v is not None and id(v.node) not in done:
                    stack.append((v.node, False))
    return order
