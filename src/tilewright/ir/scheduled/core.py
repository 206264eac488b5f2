"""Scheduled IR: the same program with the decisions made. Explicit loops, memory spaces, staging copies, registers.

Expressions are scalars (hash-consed, typed); statements are ordered and own mutable state: buffers and accumulators.
A `For` of kind 'vector' runs its body for `width` neighbouring values of its variable at once: the renderer gives each
expression that depends on the variable one lane per value (the last group is partial, masked); anything a body may
hold is allowed in one, and accumulators declared outside it are combined across lanes when it ends. Nothing in here
knows an instruction set: `width` and the register block of `Micro` come from the target's description, as numbers.

The interpreter (`interp/scheduled.py`) runs all of it in NumPy, vector loops included.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from ..types import DType, bool_, i64

# ---------------------------------------------------------------------------------------------- expressions


class Expr:
    """A scalar expression. ops:

    const(value) · var(Var) · dim(name) i64 · stride(tensor, axis) i64, in elements · param(name)
    load(buffer; index...) · load_if(buffer; cond, other, index...): the element where cond holds, else `other`, and
    then memory is not touched (guards may differ per lane: a masked load) · cast(x) · every scalar function of Tile
    IR's SCALAR_FNS, and the machine-level ones that passes/expand_math.py makes: bitcast(x), rint(x) (round half to
    even), lshr (logical shift)
    """

    __slots__ = ("op", "args", "attr", "dtype", "__weakref__")

    op: str
    args: tuple[Expr, ...]
    attr: Any
    dtype: DType

    def __repr__(self) -> str:
        return expr_text(self)


_interned: weakref.WeakValueDictionary[tuple[Any, ...], Expr] = weakref.WeakValueDictionary()


def expr(op: str, dtype: DType, *args: Expr, attr: Any = None) -> Expr:
    k: Any = attr.hex() if isinstance(attr, float) else ("b", attr) if isinstance(attr, bool) else attr
    key = (op, dtype, args, k)
    found = _interned.get(key)
    if found is None:
        found = Expr()
        found.op, found.dtype, found.args, found.attr = op, dtype, args, attr
        _interned[key] = found
    return found


@dataclass(frozen=True, slots=True)
class Var:
    """A loop variable (i64), a `Let` name or an accumulator; `uid` makes it unique."""

    name: str
    dtype: DType
    uid: int

    def __str__(self) -> str:
        return f"{self.name}.{self.uid}"


_uids = itertools.count()


def fresh(name: str, dtype: DType = i64) -> Var:
    return Var(name, dtype, next(_uids))


def const(value: int | float | bool, dtype: DType = i64) -> Expr:
    value = float(value) if dtype.is_float else bool(value) if dtype.is_bool else int(value)
    return expr("const", dtype, attr=value)


def var(v: Var) -> Expr:
    return expr("var", v.dtype, attr=v)


def dim(name: str) -> Expr:
    return expr("dim", i64, attr=name)


def stride(tensor: str, axis: int) -> Expr:
    return expr("stride", i64, attr=(tensor, axis))


IntLike: TypeAlias = int | Expr


def lift(x: IntLike) -> Expr:
    return const(x) if isinstance(x, int) else x


def _int(x: Expr) -> int | None:
    return x.attr if x.op == "const" and x.dtype == i64 else None


def add(a: IntLike, b: IntLike) -> Expr:
    a, b = lift(a), lift(b)
    x, y = _int(a), _int(b)
    if x is not None and y is not None:
        return const(x + y)
    if x == 0:
        return b
    if y == 0:
        return a
    if x is not None:
        return add(b, a)
    if y is not None and a.op == "add" and (z := _int(a.args[1])) is not None:
        return add(a.args[0], y + z)
    return expr("add", i64, a, b)


def mul(a: IntLike, b: IntLike) -> Expr:
    a, b = lift(a), lift(b)
    x, y = _int(a), _int(b)
    if x is not None and y is not None:
        return const(x * y)
    if x is not None:
        return mul(b, a)
    if y == 0:
        return const(0)
    if y == 1:
        return a
    if y is not None and a.op == "mul" and (z := _int(a.args[1])) is not None:
        return mul(a.args[0], y * z)
    return expr("mul", i64, a, b)


def sub(a: IntLike, b: IntLike) -> Expr:
    a, b = lift(a), lift(b)
    y = _int(b)
    if y is not None:
        return add(a, -y)
    if a is b:
        return const(0)
    return expr("sub", i64, a, b)


def floordiv(a: IntLike, b: IntLike) -> Expr:
    a, b = lift(a), lift(b)
    x, y = _int(a), _int(b)
    if x is not None and y is not None and y:
        return const(x // y)
    return a if y == 1 else expr("floordiv", i64, a, b)


def mod(a: IntLike, b: IntLike) -> Expr:
    a, b = lift(a), lift(b)
    x, y = _int(a), _int(b)
    if x is not None and y is not None and y:
        return const(x % y)
    return const(0) if y == 1 else expr("mod", i64, a, b)


def imin(a: IntLike, b: IntLike) -> Expr:
    a, b = lift(a), lift(b)
    x, y = _int(a), _int(b)
    if x is not None and y is not None:
        return const(min(x, y))
    return a if a is b else expr("min", i64, a, b)


def imax(a: IntLike, b: IntLike) -> Expr:
    a, b = lift(a), lift(b)
    x, y = _int(a), _int(b)
    if x is not None and y is not None:
        return const(max(x, y))
    return a if a is b else expr("max", i64, a, b)


_INTEGER_OPS = {"add": add, "sub": sub, "mul": mul, "floordiv": floordiv, "mod": mod, "min": imin, "max": imax}


def apply(op: str, dtype: DType, *args: Expr, attr: Any = None) -> Expr:
    """An op on operands; i64 arithmetic is simplified as it is built."""
    simplified = _INTEGER_OPS.get(op) if dtype is i64 else None
    return simplified(*args) if simplified is not None else expr(op, dtype, *args, attr=attr)


def ceildiv(a: IntLike, b: int) -> Expr:
    return floordiv(add(a, b - 1), b)


def logical_and(a: Expr, b: Expr) -> Expr:
    return expr("and", bool_, a, b)


# ---------------------------------------------------------------------------------------------- buffers


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of elements. space 'arg': a tensor argument; 'local': a thread's own scratch, 64-byte aligned, taken from
    the workspace; 'stack': a few hundred bytes of a thread's own scratch, which the target may keep in registers.
    `shape` bounds the index of each axis (local and stack: numbers, or expressions of dims); `strides` in elements.
    Memory of a local or stack buffer is `elements`: its rows are whole, the padding after the last one included."""

    name: str
    dtype: DType
    space: str
    shape: tuple[IntLike, ...]
    strides: tuple[IntLike, ...]

    def load(self, *index: IntLike) -> Expr:
        return expr("load", self.dtype, *(lift(i) for i in index), attr=self)

    def elements(self) -> IntLike:
        """How many elements of memory a local or stack buffer has: the most that `n * stride` of an axis is."""
        most: IntLike = 1
        for n, step in zip(self.shape, self.strides, strict=True):
            most = imax(most, mul(n, step))
        return int(most.attr) if isinstance(most, Expr) and most.op == "const" else most

    def load_if(self, cond: Expr, other: Expr, *index: IntLike) -> Expr:
        return expr("load_if", self.dtype, cond, other, *(lift(i) for i in index), attr=self)


def dense(name: str, dtype: DType, space: str, shape: Sequence[IntLike]) -> Buffer:
    """A row-major buffer."""
    strides: list[IntLike] = []
    step: IntLike = 1
    for n in reversed(shape):
        strides.append(step)
        step = step * n if isinstance(step, int) and isinstance(n, int) else mul(step, n)
    return Buffer(name, dtype, space, tuple(shape), tuple(reversed(strides)))


# ---------------------------------------------------------------------------------------------- statements


@dataclass(frozen=True, slots=True)
class Let:
    """Names a value for the rest of the block."""

    var: Var
    value: Expr


@dataclass(frozen=True, slots=True)
class Store:
    """buffer[index] = value. A value of an unsigned type that is n times as wide as the buffer's elements writes n
    neighbouring elements from `index` on (unit stride), its lowest bits first: that is how operands are interleaved."""

    buffer: Buffer
    index: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None  # bool; where false, nothing is written


@dataclass(frozen=True, slots=True)
class Scatter:
    """buffer[index] = monoid(buffer[index], value), where `mask` holds; safe between threads."""

    buffer: Buffer
    index: tuple[Expr, ...]
    value: Expr
    monoid: str
    mask: Expr | None = None


@dataclass(frozen=True, slots=True)
class Acc:
    """Declares accumulators, alive to the end of the block. monoid: sum, prod, max, min, any, all (one variable), or
    argmax / argmin (value, i64 index; `last` picks the last of equal values; NaN wins, the first one), or 'none': a
    plain register that `Update` overwrites."""

    vars: tuple[Var, ...]
    inits: tuple[Expr, ...]
    monoid: str
    last: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    """vars = monoid(vars, values) of the accumulators' declaration."""

    vars: tuple[Var, ...]
    values: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class For:
    """for var in range(start, stop, step). kind: serial | unroll | vector. A vector loop has step 1; `width` is its
    number of lanes and `unroll` how many groups of lanes to keep in flight (independent accumulators)."""

    var: Var
    start: Expr
    stop: Expr
    body: tuple[Stmt, ...]
    kind: str = "serial"
    step: int = 1
    width: int = 1
    unroll: int = 1


@dataclass(frozen=True, slots=True)
class If:
    cond: Expr
    then: tuple[Stmt, ...]
    orelse: tuple[Stmt, ...] = ()


@dataclass(frozen=True, slots=True)
class Alloc:
    """The buffer exists from here to the end of the block. Contents are undefined (finite garbage must be assumed)."""

    buffer: Buffer


@dataclass(frozen=True, slots=True)
class Operand:
    """A matrix inside a buffer: element (r, c) is at flat element offset `offset + r * row + c * col`."""

    buffer: Buffer
    offset: Expr
    row: IntLike
    col: IntLike = 1


@dataclass(frozen=True, slots=True)
class Micro:
    """The register block: acc[r, c] += sum over k < depth of a[r, k] * b[k, c], for r < rows, c < cols.

    acc.dtype is the accumulator's; a and b hold elements that are converted to it as they are loaded. `rows` and
    `cols` are numbers, so that the block lives in registers; `cols` is a multiple of `width` (lanes of a vector) and
    c is unit-stride in b and acc. `cols_valid` (None: all) bounds the columns of *b and acc* that may be touched.
    `init` true: acc starts from zero instead of its old content. `bias`: a row of `cols` values in the accumulator's
    type, unit-stride, the whole of it readable, which is added to every row once.

    `group` > 1 takes so many neighbouring steps of k at once. They are contiguous in a (a.col is 1), b holds for each
    group of k `cols` words of `group` elements: element (k, c) at flat offset `b.offset + (k // group) * b.row +
    c * group + k % group`, and `depth` is a multiple of `group` (operands are filled up with zeros). The products are
    exact; sums of a float accumulator may be taken in any order, rounded to nearest, and may take subnormal numbers
    for zeros. The elements of a and b are then not converted: they are what an instruction multiplies."""

    acc: Operand
    a: Operand
    b: Operand
    depth: Expr
    rows: int
    cols: int
    width: int
    init: bool = False
    cols_valid: Expr | None = None
    prefetch: int = 0
    group: int = 1
    bias: Operand | None = None


@dataclass(frozen=True, slots=True)
class ParFor:
    """Unordered grid: the product of extents is split into equal contiguous shares, one per thread."""

    vars: tuple[Var, ...]
    extents: tuple[Expr, ...]
    body: tuple[Stmt, ...]


Stmt: TypeAlias = Let | Store | Scatter | Acc | Update | For | If | Alloc | Micro | ParFor


@dataclass(frozen=True, slots=True)
class Program:
    """`buffers` are the tensor arguments in call order; `dims`, `strides` and `scalars` are the integers and scalars
    the code reads at run time, in the order of its argument block. Top level: ParFor statements, separated by
    barriers."""

    name: str
    buffers: tuple[Buffer, ...]
    outputs: tuple[str, ...]
    dims: tuple[str, ...]
    strides: tuple[tuple[str, int], ...]
    scalars: tuple[tuple[str, DType], ...]
    body: tuple[Stmt, ...]
    notes: tuple[tuple[str, str], ...] = field(default=(), compare=False)


def walk(stmts: Sequence[Stmt]) -> Iterator[Stmt]:
    """Every statement, outer before inner."""
    for s in stmts:
        yield s
        if isinstance(s, For | ParFor):
            yield from walk(s.body)
        elif isinstance(s, If):
            yield from walk(s.then)
            yield from walk(s.orelse)


def expr_text(e: Expr) -> str:
    match e.op:
        case "const":
            return f"{e.attr}" if e.dtype in (i64, bool_) else f"{e.attr}:{e.dtype}"
        case "var":
            return str(e.attr)
        case "dim":
            return f"%{e.attr}"
        case "param":
            return f"${e.attr}"
        case "stride":
            return f"stride({e.attr[0]}, {e.attr[1]})"
        case "load":
            return f"{e.attr.name}[{', '.join(map(expr_text, e.args))}]"
        case "load_if":
            cond, other, *index = map(expr_text, e.args)
            return f"{e.attr.name}[{', '.join(index)} if {cond} else {other}]"
        case "cast" | "bitcast":
            return f"{e.op}({expr_text(e.args[0])}, {e.dtype})"
        case _:
            return f"{e.op}({', '.join(map(expr_text, e.args))})"
