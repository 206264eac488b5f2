"""Lowering's view of values: where each lives, and the scalar expression of one element of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...errors import VerifyError
from ...ir.scheduled import core as s
from ...ir.tile import core as t
from ...ir.types import DType, bool_, i64
from ...schedule.facts import Facts
from ...schedule.schedule import Schedule
from ...targets.description import TargetDescription
from . import random
from .analysis import Analysis

Index = tuple[s.Expr, ...]


@dataclass(slots=True)
class AxisEnv:
    """An axis inside its loop: elements `base .. base + valid - 1`; a position has valid 1."""

    base: s.Expr
    valid: s.Expr


@dataclass(slots=True)
class Context:
    kernel: t.Kernel
    analysis: Analysis
    schedule: Schedule
    facts: Facts
    target: TargetDescription
    args: dict[str, s.Buffer] = field(default_factory=dict)
    places: dict[t.Node, s.Buffer] = field(default_factory=dict)
    axes: dict[t.Axis, AxisEnv] = field(default_factory=dict)
    scope: set[t.Axis | t.Node] = field(default_factory=set)
    memo: dict[tuple[t.Node, Index], s.Expr] = field(default_factory=dict)
    chains: dict[t.Node, list[t.Node]] = field(default_factory=dict)  # last product of a chain -> the chain
    absorbed: set[t.Node] = field(default_factory=set)  # the others of it: they get no memory of their own
    inline: set[t.Node] = field(default_factory=set)  # kept nodes that the nest being written computes itself

    # ------------------------------------------------------------------ scalars and extents

    def dim_value(self, name: str) -> int | None:
        return self.facts.size(name) if name in self.facts.static else None

    def scalar(self, n: t.Node) -> s.Expr:
        return self.elem(n, ())

    def extent(self, e: t.Extent) -> s.Expr:
        """How many elements an axis of a tile really has."""
        match e:
            case t.Static(size):
                return s.const(size)
            case t.Full(size):
                return self.scalar(size)
            case t.TileOf(axis):
                return self.axes[axis].valid
        raise AssertionError(e)

    def cap(self, e: t.Extent) -> s.IntLike:
        """A bound on `extent` that sizes memory: a number, or an expression of dims for a whole dim not known now."""
        match e:
            case t.Static(size):
                return size
            case t.Full(size):
                x = self.scalar(size)
                return int(x.attr) if x.op == "const" else x
            case t.TileOf(axis):
                return self.tile_size(axis)
        raise AssertionError(e)

    def tile_size(self, axis: t.Axis) -> int:
        size = self.schedule.tile(axis.name)
        extent = self.scalar(axis.extent)
        return min(size, max(1, int(extent.attr))) if extent.op == "const" else size

    # ------------------------------------------------------------------ memory

    def allocate(self, name: str, node: t.Node, pads: Sequence[int] = (), dtype: DType | None = None) -> s.Buffer:
        """Scratch for a value. Rows are long enough for whole panels of each width in `pads`, which register blocks may
        write to their end, and kept from falling on the same cache sets when their length is a large power of two."""
        caps = [self.cap(e) for e in node.shape] or [1]
        dtype = dtype or node.dtype
        strides: list[s.IntLike] = [1]
        step: s.IntLike = caps[-1]
        for pad in pads:
            whole = _round_up(caps[-1], pad)
            step = max(step, whole) if isinstance(step, int) and isinstance(whole, int) else s.imax(step, whole)
        if len(caps) > 1 and isinstance(step, int) and step * dtype.itemsize % 2048 == 0:
            step += max(16, 64 // dtype.itemsize)
        if len(caps) == 1:
            caps = [step]
        for c in reversed(caps[:-1]):
            strides.append(step)
            step = step * c if isinstance(step, int) and isinstance(c, int) else s.mul(step, c)
        small = all(isinstance(c, int) for c in caps) and isinstance(step, int) and step <= 1
        return s.Buffer(f"{name}.{s.fresh(name).uid}", dtype, "stack" if small else "local", tuple(caps),
                        tuple(reversed(strides)))

    # ------------------------------------------------------------------ elements

    def place(self, n: t.Node, buffer: s.Buffer) -> None:
        self.places[n] = buffer

    def is_placed(self, n: t.Node) -> bool:
        return n in self.places and n not in self.inline

    def elem(self, n: t.Node, idx: Index) -> s.Expr:
        """The element of `n` at tile-local indices `idx` (one per axis)."""
        if self.is_placed(n):
            buffer = self.places[n]
            return buffer.load(*(idx or (s.const(0),)))
        key = (n, idx)
        found = self.memo.get(key)
        if found is None:
            found = self.memo[key] = self._elem(n, idx)
        return found

    def forget(self) -> None:
        """Expressions change when placements do."""
        self.memo.clear()

    def _elem(self, n: t.Node, idx: Index) -> s.Expr:
        match n.op:
            case "const":
                return s.const(n.attr("value"), n.dtype)
            case "dim":
                value = self.dim_value(n.attr("name"))
                return s.dim(n.attr("name")) if value is None else s.const(value)
            case "param":
                return s.expr("param", n.dtype, attr=n.attr("name"))
            case "pos":
                return self.axes[n.attr("axis")].base
            case "index":
                return s.add(self.axes[n.attr("axis")].base, idx[0])
            case "iota":
                return idx[0]
            case "map":
                return s.apply(n.attr("fn"), n.dtype, *(self.elem(a, idx) for a in n.args))
            case "cast":
                return s.expr("cast", n.dtype, self.elem(n.args[0], idx))
            case "broadcast":
                return self._broadcast(n, idx)
            case "transpose":
                perm = n.attr("perm")
                source = [s.const(0)] * len(idx)
                for out_axis, in_axis in enumerate(perm):
                    source[in_axis] = idx[out_axis]
                return self.elem(n.args[0], tuple(source))
            case "reshape":
                return self._reshape(n, idx)
            case "slice":
                steps = n.attr("steps") or (1,) * len(idx)
                starts = n.attr("starts")
                return self.elem(n.args[0], tuple(
                    s.add(_scalar(self, b), s.mul(i, _scalar(self, k)))
                    for i, b, k in zip(idx, starts, steps, strict=True)))
            case "load":
                return self._load(n, idx)
            case "rng":
                return self._rng(n, idx)
            case _:
                raise VerifyError(f"lowering met {n.op} before it was given memory: {n!r}", loc=n.loc)

    def _broadcast(self, n: t.Node, idx: Index) -> s.Expr:
        x = n.args[0]
        dims = n.attr("dims")
        if x.op in ("const", "dim", "param", "pos"):
            return self.elem(x, ())
        source = tuple(
            s.const(0) if x.shape[d] == t.Static(1) and n.shape[out] != t.Static(1) else idx[out]
            for d, out in enumerate(dims))
        return self.elem(x, source)

    def _reshape(self, n: t.Node, idx: Index) -> s.Expr:
        x = n.args[0]
        kept_out = [k for k, e in enumerate(n.shape) if e != t.Static(1)]
        kept_in = [k for k, e in enumerate(x.shape) if e != t.Static(1)]
        if [n.shape[k] for k in kept_out] == [x.shape[k] for k in kept_in]:  # only axes of size one come and go
            source = [s.const(0)] * len(x.shape)
            for inner, outer in zip(kept_in, kept_out, strict=True):
                source[inner] = idx[outer]
            return self.elem(x, tuple(source))
        flat: s.Expr = s.const(0)
        for i, e in zip(idx, n.shape, strict=True):
            flat = s.add(s.mul(flat, self.extent(e)), i)
        source = []
        for e in reversed(x.shape):
            size = self.extent(e)
            source.append(s.mod(flat, size))
            flat = s.floordiv(flat, size)
        return self.elem(x, tuple(reversed(source)))

    def _rng(self, n: t.Node, idx: Index) -> s.Expr:
        seed, counter = n.args
        bits = random.philox(self.elem(seed, idx if seed.shape else ()), self.elem(counter, idx))
        return bits if n.attr("kind") == "u32" else random.uniform(bits)

    # ------------------------------------------------------------------ memory access

    def coordinates(self, indices: tuple[t.Node, ...], idx: Index) -> Index:
        out, at = [], 0
        for node in indices:
            rank = len(node.shape)
            out.append(self.elem(node, idx[at:at + rank]))
            at += rank
        return tuple(out)

    def guard(self, tensor: t.TensorParam, indices: tuple[t.Node, ...], coords: Index) -> s.Expr | None:
        """The condition under which coordinates are inside the tensor; None when that is proven."""
        cond: s.Expr | None = None
        for node, coord, size in zip(indices, coords, tensor.dims, strict=True):
            low, high = self.proof(node, size)
            tests = [] if low else [compare("ge", coord, s.const(0))]
            tests += [] if high else [compare("lt", coord, self.scalar(size))]
            for test in tests:
                cond = test if cond is None else s.logical_and(cond, test)
        return cond

    def proof(self, node: t.Node, size: t.Node) -> tuple[bool, bool]:
        """(never below 0, never at or above `size`)."""
        if node.op in ("index", "pos") and node.attr("axis").extent is size:
            return True, True
        if node.op == "iota":
            e = node.attr("extent")
            if isinstance(e, t.Full) and e.size is size:
                return True, True
        interval = self.interval(node)
        if interval is None:
            return False, False
        limit = self.scalar(size)
        return interval[0] >= 0, limit.op == "const" and interval[1] < int(limit.attr)

    def interval(self, n: t.Node) -> tuple[int, int] | None:
        """Bounds of an integer tile's values, where they follow from known sizes."""
        match n.op:
            case "const":
                return int(n.attr("value")), int(n.attr("value"))
            case "dim":
                v = self.dim_value(n.attr("name"))
                return None if v is None else (v, v)
            case "pos" | "index":
                e = self.scalar(n.attr("axis").extent)
                return (0, max(0, int(e.attr) - 1)) if e.op == "const" else None
            case "iota":
                x = self.cap(n.attr("extent"))
                return (0, max(0, x - 1)) if isinstance(x, int) else None
            case "broadcast" | "transpose" | "reshape" | "cast" if n.args[0].dtype.is_int and n.dtype is i64:
                return self.interval(n.args[0])
            case "map" if len(n.args) == 2 and n.dtype is i64:
                a, b = (self.interval(x) for x in n.args)
                out = None if a is None or b is None else _interval(n.attr("fn"), a, b)
                return out if out is not None and -(1 << 62) <= out[0] and out[1] < 1 << 62 else None  # nothing wraps
            case _:
                return None

    def _load(self, n: t.Node, idx: Index) -> s.Expr:
        tensor = self.kernel.tensor(n.attr("tensor"))
        buffer = self.args[tensor.name]
        coords = self.coordinates(n.args, idx)
        cond = self.guard(tensor, n.args, coords)
        if cond is None:
            return buffer.load(*coords)
        return buffer.load_if(cond, s.const(n.attr("fill") or 0, n.dtype), *coords)


def compare(fn: str, a: s.Expr, b: s.Expr) -> s.Expr:
    return s.expr(fn, bool_, a, b)


def _interval(fn: str, a: tuple[int, int], b: tuple[int, int]) -> tuple[int, int] | None:
    match fn:
        case "add":
            return a[0] + b[0], a[1] + b[1]
        case "sub":
            return a[0] - b[1], a[1] - b[0]
        case "mul":
            ends = [x * y for x in a for y in b]
            return min(ends), max(ends)
        case "min":
            return min(a[0], b[0]), min(a[1], b[1])
        case "max":
            return max(a[0], b[0]), max(a[1], b[1])
        case "floordiv" if b[0] == b[1] and b[0] > 0:
            return a[0] // b[0], a[1] // b[0]
        case "mod" if b[0] == b[1] and b[0] > 0:
            return (a[0], a[1]) if 0 <= a[0] and a[1] < b[0] else (0, b[0] - 1)
        case _:
            return None


def _scalar(ctx: Context, x: int | t.Node) -> s.Expr:
    return s.const(x) if isinstance(x, int) else ctx.scalar(x)


def _round_up(x: s.IntLike, to: int) -> s.IntLike:
    if isinstance(x, int):
        return -(-x // to) * to
    return s.mul(s.ceildiv(x, to), to) if to > 1 else x
