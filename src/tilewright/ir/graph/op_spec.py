"""What one row of the spec table is, and the small language that rows are written in.

A row says everything the compiler knows about an op: its operands, its attributes, how result types follow from them,
what it computes (a NumPy reference) and, for a composite, what it means in terms of other ops. Rows are made with
`define`; `ir/graph/spec.py` gathers them.

Operands: `"x w b?"` - names, `?` optional, a leading `*` for any number. Attributes: `"axis:axis=-1 mode:a|b=a"`,
which is `name:kind[=default]` with the kinds int, float, bool, str, dtype, ints, floats, strs, dims (a shape), axis
and axes (made non-negative against the rank of the first operand), graph, array, or a choice of words; `kind?` also
allows None.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import numpy as np

from ...errors import ArgumentError, DTypeError, ShapeError, VerifyError
from ..types import DType, Loc, bf16, f16, from_numpy
from .core import ArrayRef, Graph, Node, TensorType, Value
from .dims import Dim, DimExpr, differ, dim_broadcast

Array: TypeAlias = np.ndarray[Any, Any]
Attrs: TypeAlias = Mapping[str, Any]
REQUIRED: Any = type("Required", (), {"__repr__": lambda _: "REQUIRED"})()


@dataclass(frozen=True, slots=True)
class AttrSpec:
    kind: str
    optional: bool = False
    default: Any = REQUIRED


@dataclass(slots=True)
class Site:
    """One application of an op while its result types are worked out."""

    op: str
    operand_names: tuple[str, ...]
    types: tuple[TensorType | None, ...]
    attrs: dict[str, Any]
    constants: tuple[Array | None, ...] = ()
    #: values of small integer operands as arrays of dims, as far as they follow from shapes
    known: Callable[[int], Array | None] = field(default=lambda _: None)
    fresh_name: Callable[[], str] = field(default=lambda: "u")
    loc: Loc | None = None
    name: str = ""

    def type(self, index: int = 0) -> TensorType:
        t = self.types[index]
        assert t is not None
        return t

    def optional(self, index: int) -> TensorType | None:
        return self.types[index] if index < len(self.types) else None

    @property
    def present(self) -> list[TensorType]:
        return [t for t in self.types if t is not None]

    def constant(self, index: int) -> Array | None:
        return self.constants[index] if index < len(self.constants) else None

    def dims(self, index: int) -> Array | None:
        """The value of operand `index` as an array of dims (dtype object), or None when it is not known."""
        c = self.constant(index)
        if c is not None:
            return c.astype(object)
        return self.known(index)

    def fresh(self, position: int | str) -> Dim:
        from .dims import symbol

        return symbol(f"{self.op}_{self.fresh_name()[:10]}_{position}")

    @property
    def label(self) -> str:
        return f"'{self.op}'" + (f" (node '{self.name}')" if self.name else "")

    def operand(self, index: int) -> str:
        names = self.operand_names
        name = names[index] if index < len(names) and not names[index].startswith("*") else f"operand {index}"
        return f"{name} {self.types[index]}"

    def shape_error(self, message: str, hint: str | None = None) -> NoReturn:
        raise ShapeError(f"{self.label}: {message}", loc=self.loc, hint=hint)

    def dtype_error(self, message: str, hint: str | None = None) -> NoReturn:
        raise DTypeError(f"{self.label}: {message}", loc=self.loc, hint=hint)

    def argument_error(self, message: str, hint: str | None = None) -> NoReturn:
        raise ArgumentError(f"{self.label}: {message}", loc=self.loc, hint=hint)

    def need_kind(self, index: int, kinds: str, what: str) -> DType:
        t = self.type(index)
        if t.dtype.kind not in kinds:
            self.dtype_error(f"needs {what}, but {self.operand(index)} is not")
        return t.dtype

    def need_rank(self, index: int, rank: int) -> TensorType:
        t = self.type(index)
        if t.rank != rank:
            self.shape_error(f"{self.operand(index)} must have rank {rank}, not {t.rank}")
        return t

    def same_dtype(self, *indices: int) -> DType:
        """The one element type of these operands (all of them by default)."""
        chosen = [i for i in (indices or range(len(self.types))) if self.optional(i) is not None]
        first = self.type(chosen[0]).dtype
        for i in chosen[1:]:
            if self.type(i).dtype != first:
                self.dtype_error(
                    f"{self.operand(chosen[0])} and {self.operand(i)} have different element types",
                    hint="there is no implicit promotion: insert a cast",
                )
        return first

    def broadcast(self, *indices: int) -> tuple[Dim, ...]:
        """The NumPy broadcast of the shapes of these operands (all of them by default)."""
        chosen = [i for i in (indices or range(len(self.types))) if self.optional(i) is not None]
        out: tuple[Dim, ...] = self.type(chosen[0]).shape
        for i in chosen[1:]:
            merged = broadcast_shapes(out, self.type(i).shape)
            if merged is None:
                self.shape_error(f"{self.operand(chosen[0])} and {self.operand(i)} cannot be broadcast together")
            out = merged
        return out

    def same_extent(self, a: Dim, b: Dim, message: str) -> Dim:
        """One of two extents that must be equal (the one that says more)."""
        if differ(a, b):
            self.shape_error(f"{message}: {a} and {b}")
        return b if isinstance(b, int) else a


def broadcast_shapes(a: Sequence[Dim], b: Sequence[Dim]) -> tuple[Dim, ...] | None:
    n = max(len(a), len(b))
    left, right = (1,) * (n - len(a)) + tuple(a), (1,) * (n - len(b)) + tuple(b)
    out: list[Dim] = []
    for x, y in zip(left, right, strict=True):
        d = dim_broadcast(x, y)
        if d is None:
            return None
        out.append(d)
    return tuple(out)


def may_broadcast_to(shape: Sequence[Dim], target: Sequence[Dim]) -> bool:
    """Whether nothing says that `shape` does not broadcast to `target`; once dims are numbers, whether it does."""
    rest = target[len(target) - len(shape) :]
    return len(shape) <= len(target) and not any(d != 1 and differ(d, t) for d, t in zip(shape, rest, strict=True))


Infer: TypeAlias = Callable[[Site], tuple[TensorType, ...]]
Reference: TypeAlias = Callable[[Sequence[Any], Attrs], tuple[Array, ...]]
Decompose: TypeAlias = "Callable[[Node], tuple[Value, ...] | None]"


@dataclass(slots=True)
class OpSpec:
    """One op. `elementwise`: each result element depends on the operands' elements at its own (broadcast) position.
    `decompose` gives the same values from simpler ops, or None where it cannot (a symbolic extent it would need)."""

    name: str
    operands: tuple[str, ...]
    attrs: dict[str, AttrSpec]
    infer: Infer
    reference: Reference
    doc: str
    composite: bool = False
    elementwise: bool = False
    #: fills in attributes whose default depends on the operands' types
    normalise: Callable[[Sequence[TensorType | None], dict[str, Any]], dict[str, Any]] | None = None
    decompose: Decompose | None = None
    gradient: None = None

    @property
    def variadic(self) -> bool:
        return bool(self.operands) and self.operands[-1].startswith("*")

    @property
    def min_operands(self) -> int:
        return sum(not (n.endswith("?") or n.startswith("*")) for n in self.operands)

    @property
    def dynamic(self) -> bool:
        """A form whose parameters are tensors (`canonicalise` makes it static)."""
        return self.name.startswith("dyn_")

    def evaluate(self, arrays: Sequence[Array | None], attrs: Attrs) -> tuple[Array, ...]:
        """What the op computes. f16 and bf16 are computed in f32 and rounded once; f64 stays f64; integers wrap.
        The result's shape and type are checked against the type rule."""
        types: list[TensorType | None] = []
        for a in arrays:
            dtype = None if a is None else from_numpy(a.dtype)
            types.append(None if a is None or dtype is None else TensorType(dtype, a.shape))
        site = Site(self.name, self.operands, tuple(types), dict(attrs), tuple(arrays))
        wanted = self.infer(site)
        wide = [None if a is None else _widen(a) for a in arrays]
        with np.errstate(all="ignore"):
            results = self.reference(wide, attrs)
        out = []
        for got, want in zip(results, wanted, strict=True):
            got = np.asarray(got)
            if not _fits(got.shape, want.shape):
                raise VerifyError(f"the reference of '{self.name}' made shape {got.shape}, its type rule says {want}")
            with np.errstate(all="ignore"):
                out.append(got if got.dtype == want.dtype.numpy else got.astype(want.dtype.numpy))
        return tuple(out)


def _fits(shape: tuple[int, ...], dims: Sequence[Dim]) -> bool:
    return len(shape) == len(dims) and all(isinstance(d, DimExpr) or d == s for s, d in zip(shape, dims, strict=True))


def _widen(a: Array) -> Array:
    return a.astype(np.float32) if a.dtype in (f16.numpy, bf16.numpy) else a


SPECS: dict[str, OpSpec] = {}


def define(
    name: str,
    operands: str,
    attrs: str = "",
    *,
    infer: Infer,
    reference: Reference,
    doc: str,
    composite: bool = False,
    elementwise: bool = False,
    normalise: Callable[[Sequence[TensorType | None], dict[str, Any]], dict[str, Any]] | None = None,
) -> None:
    """Add a row to the spec table."""
    assert name not in SPECS, f"op {name} is defined twice"
    table: dict[str, AttrSpec] = {}
    for item in attrs.split():
        key, _, rest = item.partition(":")
        kind, has_default, default = rest.partition("=")
        optional = kind.endswith("?")
        kind = kind.rstrip("?")
        value: Any = REQUIRED
        if has_default:
            value = default if kind == "str" or "|" in kind else ast.literal_eval(default)
        table[key] = AttrSpec(kind, optional, value)
    SPECS[name] = OpSpec(
        name, tuple(operands.split()), table, infer, reference, doc, composite, elementwise, normalise=normalise
    )


def decomposition(*names: str) -> Callable[[Decompose], Decompose]:
    """Attach a decomposition to the named ops."""

    def attach(fn: Decompose) -> Decompose:
        for n in names:
            assert SPECS[n].decompose is None, f"{n} is decomposed twice"
            SPECS[n].decompose = fn
        return fn

    return attach


def check_attr(key: str, spec: AttrSpec, value: Any, rank: int | None) -> Any:
    """The canonical form of an attribute's value; ValueError says what is wrong with it."""
    if value is None:
        if spec.optional:
            return None
        raise ValueError(f"attribute '{key}' is required")
    match spec.kind:
        case "int":
            return _int(key, value)
        case "axis":
            return _axis(key, _int(key, value), rank)
        case "axes":
            axes = tuple(sorted(_axis(key, _int(key, v), rank) for v in _tuple(key, value)))
            if len(set(axes)) != len(axes):
                raise ValueError(f"attribute '{key}' names an axis twice: {value}")
            return axes
        case "float":
            if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
                raise ValueError(f"attribute '{key}' must be a number, not {value!r}")
            return float(value)
        case "bool":
            if not isinstance(value, (bool, np.bool_)):
                raise ValueError(f"attribute '{key}' must be True or False, not {value!r}")
            return bool(value)
        case "str":
            if not isinstance(value, str):
                raise ValueError(f"attribute '{key}' must be a string, not {value!r}")
            return value
        case "dtype":
            if not isinstance(value, DType):
                raise ValueError(f"attribute '{key}' must be an element type, not {value!r}")
            return value
        case "ints":
            return tuple(_int(key, v) for v in _tuple(key, value))
        case "floats":
            return tuple(check_attr(key, AttrSpec("float"), v, rank) for v in _tuple(key, value))
        case "strs":
            return tuple(check_attr(key, AttrSpec("str"), v, rank) for v in _tuple(key, value))
        case "dims":
            return tuple(v if isinstance(v, DimExpr) else _int(key, v) for v in _tuple(key, value))
        case "graph":
            if not isinstance(value, Graph):
                raise ValueError(f"attribute '{key}' must be a graph, not {value!r}")
            return value
        case "array":
            return value if isinstance(value, ArrayRef) else ArrayRef(np.asarray(value))
        case choice:
            words = choice.split("|")
            if value not in words:
                raise ValueError(f"attribute '{key}' must be one of {', '.join(words)}, not {value!r}")
            return value


def _int(key: str, value: Any) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise ValueError(f"attribute '{key}' must be an integer, not {value!r}")
    return int(value)


def _tuple(key: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, (tuple, list, np.ndarray)):
        raise ValueError(f"attribute '{key}' must be a tuple, not {value!r}")
    return tuple(value)


def _axis(key: str, axis: int, rank: int | None) -> int:
    if rank is None:
        return axis
    if not -rank <= axis < rank:
        raise ValueError(f"attribute '{key}' = {axis} is out of range for rank {rank}")
    return axis % rank
