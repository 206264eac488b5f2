"""Tile IR: hardware-free SSA over tiles, as a hash-consed graph of nodes.

*Values* are immutable tiles. A tile's type is its element type and, per axis, an `Extent`: a number known when the
kernel was built (`Static`), the whole of a tensor's dim (`Full`), or the tile of an `Axis` (`TileOf`), whose size is a
decision of the schedule and whose *valid* extent is smaller at the edge: boundaries belong to the type, never to a
user's mask. Rank-0 tiles are scalars. Integer scalars of type i64 are also how dims, offsets and indices are written.

*Pure* nodes carry no order: they are interned, so equal expressions are one node, and where one is evaluated follows
from the loop variables it depends on (`free`). *Effects* (`store`, `scatter`, and the structure that holds them) are
ordered lists in the regions of `par`, `loop` and `if`.

Loads are total: an index outside the tensor reads `fill`. A pass may drop a check it can prove; nothing else may.
Inputs are read-only and outputs write-only, so loads and stores never need ordering.
Source locations are not part of a node's identity.

    op          args                      attrs                          result
    const       -                         value                          scalar
    dim         -                         name                           i64 scalar (a symbolic dim of a parameter)
    param       -                         name                           scalar parameter
    pos         -                         axis (single / range)          i64 scalar: the loop's position
    index       -                         axis (tile)                    i64 (TileOf axis): element coordinates
    iota        -                         extent (Full / Static)         i64 (extent): 0, 1, 2 ...
    map         x...                      fn                             same shape; see SCALAR_FNS
    cast        x                         dtype                          saturates for float -> int, NaN -> 0
    broadcast   x                         shape, dims                    axis d of x becomes axis dims[d] (a Static 1
                                                                         axis may stretch); others repeat
    transpose   x                         perm
    reshape     x                         shape                          same number of elements, Static/Full axes only
    slice       x                         starts, sizes, steps           per axis; Static axes only where not whole
    load        index...                  tensor, fill                   one index tile per tensor dim; the result's
                                                                         shape is all of their shapes in a row
    dot         acc, a, b                 -                              acc[.., n] + sum_k a[.., k] * b[k, n]
    fold        x                         axis, monoid                   sum | max | min | prod | any | all
    argfold     x                         axis, kind, last               argmax | argmin -> i64
    scan        x                         axis, monoid, reverse, exclusive   sum | prod | max | min
    rng         seed, counter             kind                           counter-based random bits ("u32") / "uniform"
    loop        inits...                  axis, params, yields, effects, start, stop    (results by `result`)
    if          cond                      then/else yields and effects   (results by `result`)
    result      loop | if                 index
    carried     -                         uid, init type                 leaf: a loop's carried value inside its body
    store       index..., value           tensor                         effect
    scatter     index..., value           tensor, monoid, deterministic  effect
    par         -                         axes, effects                  effect (top level, unordered)
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..types import DType, Loc, i64

# ---------------------------------------------------------------------------------------------- types and extents


@dataclass(frozen=True, slots=True)
class Static:
    size: int

    def __str__(self) -> str:
        return str(self.size)


@dataclass(frozen=True, slots=True)
class Full:
    """The whole of a dim: `size` is an i64 scalar node (a `dim`, a constant, or arithmetic on them)."""

    size: Node

    def __str__(self) -> str:
        return f":{scalar_text(self.size)}"


@dataclass(frozen=True, slots=True)
class TileOf:
    """The tile of an axis made by `tiles(...)`; its size is chosen by the schedule."""

    axis: Axis

    def __str__(self) -> str:
        return self.axis.name


Extent: TypeAlias = Static | Full | TileOf
Shape: TypeAlias = tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class TileType:
    dtype: DType
    shape: Shape = ()

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype}({', '.join(map(str, self.shape))})"


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop variable. kind 'tile': runs over tiles of [0, extent); 'single': over positions one by one (unordered at
    the top level); 'range': ordered positions of a loop. Names are unique within a kernel."""

    name: str
    extent: Node
    kind: str = "tile"

    def __str__(self) -> str:
        return self.name


# ---------------------------------------------------------------------------------------------- nodes


class Node:
    """One op. Build with `make` (no checks) or `ir.tile.build` (checks and infers the type)."""

    __slots__ = ("op", "args", "attrs", "type", "loc", "free", "__weakref__")

    op: str
    args: tuple[Node, ...]
    attrs: tuple[tuple[str, Any], ...]
    type: TileType | None  # None for effects and for loop / if, whose results are `result` nodes
    loc: Loc | None
    free: frozenset[Axis | Node]  # axes and carried leaves that the node's value depends on

    def attr(self, key: str, default: Any = None) -> Any:
        for k, v in self.attrs:
            if k == key:
                return v
        return default

    @property
    def dtype(self) -> DType:
        assert self.type is not None
        return self.type.dtype

    @property
    def shape(self) -> Shape:
        assert self.type is not None
        return self.type.shape

    def __repr__(self) -> str:
        return f"<{self.op} {dict(self.attrs) if self.op in ('const', 'dim', 'param', 'map') else ''} {self.type}>"


_interned: weakref.WeakValueDictionary[tuple[Any, ...], Node] = weakref.WeakValueDictionary()
_uids = itertools.count()


def make(
    op: str, args: Sequence[Node] = (), type: TileType | None = None, loc: Loc | None = None, **attrs: Any
) -> Node:
    """The one node with this op, operands, attributes and type."""
    items = tuple(sorted(attrs.items()))
    key = (op, tuple(args), tuple((k, _freeze(v)) for k, v in items), type)
    found = _interned.get(key)
    if found is not None:
        return found
    node = Node()
    node.op, node.args, node.attrs, node.type, node.loc = op, tuple(args), items, type, loc
    node.free = _free(node)
    _interned[key] = node
    return node


def _freeze(x: Any) -> Any:
    if isinstance(x, bool):
        return ("b", x)
    if isinstance(x, float):
        return ("f", x.hex())
    if isinstance(x, tuple):
        return tuple(_freeze(i) for i in x)
    return x


def _shape_free(shape: Shape) -> frozenset[Axis | Node]:
    out: set[Axis | Node] = set()
    for e in shape:
        if isinstance(e, TileOf):
            out.add(e.axis)
        elif isinstance(e, Full):
            out |= e.size.free
    return frozenset(out)


def _free(n: Node) -> frozenset[Axis | Node]:
    free: frozenset[Axis | Node] = frozenset().union(*(a.free for a in n.args)) if n.args else frozenset()
    if n.type is not None:
        free |= _shape_free(n.type.shape)
    if n.op in ("pos", "index"):
        return free | {n.attr("axis")}
    if n.op == "carried":
        return free | {n}
    if n.op == "loop":
        body = frozenset().union(*(y.free for y in (*n.attr("yields"), *n.attr("effects"))))
        for limit in (n.attr("start"), n.attr("stop")):
            free |= limit.free if isinstance(limit, Node) else frozenset()
        outer: frozenset[Axis | Node] = free | n.attr("axis").extent.free
        return outer | (body - {n.attr("axis"), *n.attr("params")})
    if n.op == "if":
        for key in ("then_yields", "then_effects", "else_yields", "else_effects"):
            free = free.union(*(y.free for y in n.attr(key)))
        return free
    if n.op == "par":
        body = frozenset().union(*(y.free for y in n.attr("effects")))
        return body - set(n.attr("axes"))
    return free


def carried(type: TileType, name: str = "") -> Node:
    """A fresh leaf that stands for a loop-carried value inside the loop's body."""
    return make("carried", (), type, uid=next(_uids), name=name)


# ---------------------------------------------------------------------------------------------- parameters and kernels


@dataclass(frozen=True, slots=True)
class TensorParam:
    """`dims` are i64 scalar nodes: `dim` symbols, constants, or arithmetic on symbols that other axes determine."""

    name: str
    dtype: DType
    dims: tuple[Node, ...]
    role: str = "in"  # in | out | accumulate (out that scatter adds into; starts from zero)
    loc: Loc | None = field(default=None, compare=False)

    @property
    def rank(self) -> int:
        return len(self.dims)


@dataclass(frozen=True, slots=True)
class ScalarParam:
    name: str
    dtype: DType
    loc: Loc | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Kernel:
    """Parameters in call order (inputs and scalars, then outputs) and top-level effects (`par` nodes, in order)."""

    name: str
    params: tuple[TensorParam | ScalarParam, ...]
    effects: tuple[Node, ...]
    loc: Loc | None = field(default=None, compare=False)

    @property
    def tensors(self) -> tuple[TensorParam, ...]:
        return tuple(p for p in self.params if isinstance(p, TensorParam))

    @property
    def inputs(self) -> tuple[TensorParam, ...]:
        return tuple(p for p in self.tensors if p.role == "in")

    @property
    def outputs(self) -> tuple[TensorParam, ...]:
        return tuple(p for p in self.tensors if p.role != "in")

    @property
    def scalars(self) -> tuple[ScalarParam, ...]:
        return tuple(p for p in self.params if isinstance(p, ScalarParam))

    def tensor(self, name: str) -> TensorParam:
        return next(p for p in self.tensors if p.name == name)


# ---------------------------------------------------------------------------------------------- scalar functions

#: fn -> (number of operands, result: 'same' | 'bool' | 'float'); see interp/scalar.py for the meaning of each.
#: div is true division (floats only); floordiv / mod have Python's meaning; max / min propagate NaN;
#: round is half to even; shr is arithmetic on signed types; and / or / xor / not are logical on bool, bitwise on ints.
SCALAR_FNS: dict[str, tuple[int, str]] = {
    **{f: (1, "same") for f in ("neg", "abs", "sign", "square")},
    **{f: (1, "same") for f in (
        "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "recip", "sin", "cos", "tan", "asin", "acos",
        "atan", "sinh", "cosh", "tanh", "erf", "sigmoid", "floor", "ceil", "round", "trunc")},
    **{f: (1, "bool") for f in ("isnan", "isinf")},
    "not": (1, "same"),
    **{f: (2, "same") for f in ("add", "sub", "mul", "div", "floordiv", "mod", "tdiv", "fmod", "pow", "atan2", "max",
                                "min", "and", "or", "xor", "shl", "shr")},
    **{f: (2, "bool") for f in ("eq", "ne", "lt", "le", "gt", "ge")},
    "fma": (3, "same"),
    "where": (3, "same"),
}
FLOAT_ONLY = frozenset({
    "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "recip", "sin", "cos", "tan", "asin", "acos",
    "atan", "sinh", "cosh", "tanh", "erf", "sigmoid", "floor", "ceil", "round", "trunc", "isnan", "isinf", "div",
    "atan2", "pow", "fmod", "fma",
})
MONOIDS = ("sum", "max", "min", "prod", "any", "all")


# ---------------------------------------------------------------------------------------------- small helpers


def const(value: int | float | bool, dtype: DType, loc: Loc | None = None) -> Node:
    if dtype.is_float:
        value = float(value)
    elif dtype.is_bool:
        value = bool(value)
    else:
        value = int(value)
    return make("const", (), TileType(dtype), loc, value=value)


def dim(name: str, loc: Loc | None = None) -> Node:
    return make("dim", (), TileType(i64), loc, name=name)


def const_value(n: Node) -> int | float | bool | None:
    return n.attr("value") if n.op == "const" else None


def scalar_text(n: Node) -> str:
    """A scalar index expression as people write it; used in messages and in printed types."""
    match n.op:
        case "const":
            return str(n.attr("value"))
        case "dim" | "param":
            return str(n.attr("name"))
        case "pos" | "index":
            return str(n.attr("axis").name)
        case "map" if len(n.args) == 2:
            sign = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}.get(n.attr("fn"))
            a, b = (scalar_text(x) for x in n.args)
            return f"({a} {sign} {b})" if sign else f"{n.attr('fn')}({a}, {b})"
        case _:
            return f"<{n.op}>"
