"""Runs Scheduled IR in NumPy: the check between a schedule's decisions and the code a target makes of them.

A vector loop is evaluated in groups of `width * unroll` lanes, each value that depends on the loop variable being an
array with one entry per lane; the last group is smaller. Accumulators declared outside such a loop get one partial
value per lane, folded together when the loop ends, as a renderer does it. A vector loop inside a vector loop runs as a
serial one: that is the same program.

Everything a target would do silently is checked here: each index against its buffer's shape, each address against the
memory behind it, lanes that store different values to one element, and reads of undefined memory (local buffers and
fresh outputs start poisoned, so that such a read shows in the result).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..errors import ArgumentError, VerifyError
from ..ir.scheduled.core import (
    Acc,
    Alloc,
    Buffer,
    Expr,
    For,
    If,
    Let,
    Micro,
    Operand,
    ParFor,
    Program,
    Scatter,
    Stmt,
    Store,
    Update,
    Var,
    lift,
    walk,
)
from ..ir.scheduled.printer import statement_text
from ..ir.types import bool_, i64
from . import scalar

Array: TypeAlias = scalar.Array
#: A Python int or bool (one i64 or bool for all lanes), or an array: rank 0 (one value for all lanes) or rank 1.
Value: TypeAlias = Any

_WRAP = 1 << 64
_HALF = 1 << 63


def run(
    program: Program,
    arrays: Mapping[str, Any],
    dims: Mapping[str, int] | None = None,
    scalars: Mapping[str, Any] | None = None,
    threads: int = 1,
) -> dict[str, Array]:
    """The program's outputs by name. An output found in `arrays` is written in place; others are made, poisoned.
    The shares of the threads run one after another, the last thread first."""
    machine = _Machine(program, dict(dims or {}), dict(scalars or {}))
    machine.bind(arrays)
    for statement in program.body:
        if not isinstance(statement, ParFor):
            raise VerifyError(f"only parallel loops stand at the top level, not: {statement_text(statement)}")
        for thread in reversed(range(threads)):
            machine.share(statement, thread, threads)
    return {name: machine.arrays[name] for name in program.outputs}


@dataclass(slots=True)
class _Storage:
    """Memory as elements one after another; flat offset 0 of a buffer is element `base`."""

    flat: Array
    base: int


@dataclass(slots=True)
class _Lanes:
    """An accumulator declared outside the vector loop that updates it: one partial value per lane."""

    acc: Acc
    values: list[Array]


class _Machine:
    def __init__(self, program: Program, dims: dict[str, int], scalars: dict[str, Any]) -> None:
        self.program, self.dims, self.scalars = program, dims, scalars
        self.arrays: dict[str, Array] = {}
        self.storage: dict[str, _Storage] = {}
        self.env: dict[Var, Value] = {}
        self.declared: dict[Var, Acc] = {}
        self.partial: dict[Var, _Lanes] = {}
        self.lanes = 0
        self.mask: Array | None = None
        self.orders: dict[Expr, list[Expr]] = {}
        self.where: Stmt | None = None

    # ------------------------------------------------------------------------------------------ arguments

    def bind(self, arrays: Mapping[str, Any]) -> None:
        for name in self.program.dims:
            if name not in self.dims:
                raise ArgumentError(f"program '{self.program.name}' got no value for dim {name}")
        for name, _ in self.program.scalars:
            if name not in self.scalars:
                raise ArgumentError(f"program '{self.program.name}' got no value for scalar {name}")
        for b in self.program.buffers:
            given = arrays.get(b.name)
            if given is None:
                if b.name not in self.program.outputs:
                    raise ArgumentError(f"program '{self.program.name}' got no array for '{b.name}'")
                shape = tuple(self.integer(lift(n)) for n in b.shape)
                given = np.full(shape, scalar.poison(b.dtype), b.dtype.numpy)
            elif np.asarray(given).dtype != b.dtype.numpy:
                raise ArgumentError(f"'{b.name}' holds {np.asarray(given).dtype}, the program says {b.dtype}")
            self.arrays[b.name] = np.asarray(given)
        for b in self.program.buffers:
            self._check_layout(b, self.arrays[b.name])
            self.storage[b.name] = _storage_of(b.name, self.arrays[b.name])

    def _check_layout(self, b: Buffer, array: Array) -> None:
        shape = tuple(self.integer(lift(n)) for n in b.shape)
        if shape != array.shape:
            raise ArgumentError(f"'{b.name}' has shape {array.shape}, the program says {shape}")
        strides = tuple(self.integer(lift(n)) for n in b.strides)
        real = tuple(s // array.itemsize for s in array.strides)
        if array.size and any(n > 1 and s != r for n, s, r in zip(shape, strides, real)):
            raise ArgumentError(f"'{b.name}' has strides {real}, the program was made for {strides}")

    # ------------------------------------------------------------------------------------------ expressions

    def fail(self, why: str) -> VerifyError:
        at = f", in: {statement_text(self.where)}" if self.where is not None else ""
        return VerifyError(f"program '{self.program.name}': {why}{at}")

    def order(self, root: Expr) -> list[Expr]:
        """Every subexpression, operands first."""
        found = self.orders.get(root)
        if found is None:
            found = self.orders[root] = _postorder(root)
        return found

    def value(self, root: Expr) -> Value:
        if root.op == "const":
            return root.attr if root.dtype in (i64, bool_) else np.asarray(root.attr, root.dtype.numpy)
        if root.op == "var":
            return self._read(root.attr)
        done: dict[Expr, Value] = {}
        for e in self.order(root):
            done[e] = self._evaluate(e, [done[a] for a in e.args])
        return done[root]

    def integer(self, e: Expr) -> int:
        """A value that is the same in every lane."""
        v = self.value(e)
        if np.ndim(v):
            raise self.fail(f"{e!r} must not differ from lane to lane")
        return int(v)

    def _read(self, v: Var) -> Value:
        if v in self.partial:
            raise self.fail(f"accumulator {v} is read inside the vector loop that updates it")
        if v not in self.env:
            raise self.fail(f"variable {v} is read before it has a value")
        return self.env[v]

    def _evaluate(self, e: Expr, args: list[Value]) -> Value:
        match e.op:
            case "const":
                return e.attr if e.dtype in (i64, bool_) else np.asarray(e.attr, e.dtype.numpy)
            case "var":
                return self._read(e.attr)
            case "dim":
                return self._look("dim", self.dims, e.attr)
            case "param":
                out = np.asarray(self._look("scalar", self.scalars, e.attr)).astype(e.dtype.numpy)
            case "stride":
                tensor, axis = e.attr
                array = self._look("array", self.arrays, tensor)
                return array.strides[axis] // array.itemsize
            case "load":
                out = self._load(e.attr, args, None, None)
            case "load_if":
                out = self._load(e.attr, args[2:], args[0], args[1])
            case "cast":
                out = scalar.cast(args[0], e.dtype)
            case "bitcast":
                out = scalar.bitcast(args[0], e.dtype)
            case _:
                fast = _INT_FNS.get(e.op)
                if fast is not None and all(type(a) is int for a in args):
                    got = fast(*args)
                    return got if type(got) is bool or -_HALF <= got < _HALF else (got + _HALF) % _WRAP - _HALF
                out = scalar.apply(e.op, *args)
        if out.ndim == 0 and e.dtype in (i64, bool_):
            return out.item()
        return out

    def _look(self, what: str, table: dict[str, Any], name: str) -> Any:
        if name not in table:
            raise self.fail(f"there is no {what} named '{name}'")
        return table[name]

    # ------------------------------------------------------------------------------------------ memory

    def _address(self, b: Buffer, index: Sequence[Value], guard: Value) -> tuple[_Storage, Value, Value]:
        """Storage, flat position, and which lanes are live (True, or an array); the indices of live lanes are checked,
        those of others are replaced by position 0."""
        storage = self.storage.get(b.name)
        if storage is None:
            raise self.fail(f"buffer '{b.name}' is used before it exists")
        if len(index) != len(b.shape):
            raise self.fail(f"{len(index)} indices for buffer '{b.name}' of rank {len(b.shape)}")
        live: Value = True if self.mask is None else self.mask
        if guard is not None:
            live = live & np.asarray(guard) if np.ndim(guard) or live is not True else bool(guard)
        flat: Value = storage.base
        for axis, (i, n, step) in enumerate(zip(index, b.shape, b.strides)):
            size, stride = self.integer(lift(n)), self.integer(lift(step))
            bad = ((i < 0) | (i >= size)) & live if live is not True else (i < 0) | (i >= size)
            if np.any(bad):
                wrong = np.asarray(i)[bad].ravel()[0] if np.ndim(i) and np.shape(i) == np.shape(bad) else i
                raise self.fail(f"index {wrong} of axis {axis} of buffer '{b.name}' is outside 0..{size - 1}")
            flat = flat + i * stride
        if np.any(((flat < 0) | (flat >= storage.flat.size)) & live):
            raise self.fail(f"an address outside the memory of buffer '{b.name}'")
        return storage, flat, live

    def _load(self, b: Buffer, index: Sequence[Value], guard: Value, other: Value) -> Array:
        storage, flat, live = self._address(b, index, guard)
        if live is True:
            return np.asarray(storage.flat[flat])
        if not np.any(live):
            return np.asarray(scalar.poison(b.dtype) if other is None else other, b.dtype.numpy)
        found = storage.flat[np.where(live, flat, 0)]
        rest = scalar.poison(b.dtype) if other is None else other
        return np.asarray(np.where(live, found, rest)).astype(b.dtype.numpy, copy=False)

    def _target(self, s: Store | Scatter) -> tuple[_Storage, Array, Array]:
        """Flat positions and values of the live lanes."""
        mask = None if s.mask is None else self.value(s.mask)
        index = [self.value(i) for i in s.index]
        value = np.asarray(self.value(s.value))
        several = 1
        if isinstance(s, Store) and s.value.dtype.bits > s.buffer.dtype.bits and s.value.dtype.kind == "u":
            several = s.value.dtype.bits // s.buffer.dtype.bits
        elif value.dtype != s.buffer.dtype.numpy:
            raise self.fail(f"a value of {value.dtype} for buffer '{s.buffer.name}' of {s.buffer.dtype}")
        storage, flat, live = self._address(s.buffer, index, mask)
        shape = (self.lanes,) if self.lanes else (1,)
        keep = np.broadcast_to(live, shape)
        places, written = np.broadcast_to(flat, shape)[keep], np.broadcast_to(value, shape)[keep]
        if several > 1:  # one wide value is a row of elements, the lowest bits first
            places = (places[:, None] + np.arange(several)).ravel()
            written = np.ascontiguousarray(written.astype(written.dtype.newbyteorder("<"))).view(s.buffer.dtype.numpy)
            if places.size and places.max() >= storage.flat.size:
                raise self.fail(f"a wide value ends outside the memory of buffer '{s.buffer.name}'")
        return storage, places, written

    def _store(self, s: Store) -> None:
        if s.buffer.space == "arg" and s.buffer.name not in self.program.outputs:
            raise self.fail(f"'{s.buffer.name}' is an input: inputs are read-only")
        storage, flat, value = self._target(s)
        if flat.size > 1 and not (np.diff(flat) > 0).all() and np.unique(flat).size < flat.size:
            for place in np.unique(flat):
                here = value[flat == place]
                if here.tobytes() != here[:1].tobytes() * here.size:
                    raise self.fail(f"lanes store different values to one element of buffer '{s.buffer.name}'")
        storage.flat[flat] = value

    def _scatter(self, s: Scatter) -> None:
        storage, flat, value = self._target(s)
        for place, v in zip(flat, value):
            storage.flat[place] = scalar.combine(s.monoid, storage.flat[place], v)

    def _alloc(self, b: Buffer) -> None:
        if self.lanes:
            raise self.fail(f"buffer '{b.name}' is made inside a vector loop")
        shape = [self.integer(lift(n)) for n in b.shape]
        strides = [self.integer(lift(n)) for n in b.strides]
        if any(n < 0 for n in shape) or any(n < 0 for n in strides):
            raise self.fail(f"buffer '{b.name}' has a negative size or stride")
        size = self.integer(lift(b.elements()))
        self.storage[b.name] = _Storage(np.full(size, scalar.poison(b.dtype), b.dtype.numpy), 0)

    # ------------------------------------------------------------------------------------------ the register block

    def _block(self, o: Operand, rows: int, cols: int, group: int = 1) -> tuple[_Storage, Array]:
        """Storage and flat positions; `group`: so many rows are interleaved, column by column."""
        storage = self.storage.get(o.buffer.name)
        if storage is None:
            raise self.fail(f"buffer '{o.buffer.name}' is used before it exists")
        row, col = self.integer(lift(o.row)), self.integer(lift(o.col))
        r = np.arange(rows)
        across = col * group * np.arange(cols)[None, :]
        flat = storage.base + self.integer(o.offset) + (row * (r // group) + r % group)[:, None] + across
        if flat.size and (flat.min() < 0 or flat.max() >= storage.flat.size):
            raise self.fail(f"a register block outside the memory of buffer '{o.buffer.name}'")
        return storage, flat

    def _micro(self, s: Micro) -> None:
        if self.lanes:
            raise self.fail("a register block inside a vector loop")
        depth = max(0, self.integer(s.depth))
        cols = s.cols if s.cols_valid is None else min(s.cols, max(0, self.integer(s.cols_valid)))
        if depth % s.group:
            raise self.fail(f"a depth of {depth} is no multiple of the group of {s.group}")
        a, a_at = self._block(s.a, s.rows, depth)
        b, b_at = self._block(s.b, depth, cols, s.group)
        c, c_at = self._block(s.acc, s.rows, cols)
        old = np.zeros(c_at.shape, c.flat.dtype) if s.init else c.flat[c_at]
        if s.bias is not None:
            bias, bias_at = self._block(s.bias, 1, cols)
            with np.errstate(all="ignore"):
                old = old + bias.flat[bias_at]
        c.flat[c_at] = scalar.dot(old, a.flat[a_at], b.flat[b_at])

    # ------------------------------------------------------------------------------------------ accumulators

    def _acc(self, s: Acc) -> None:
        for v, init in zip(s.vars, s.inits):
            self.env[v] = self.value(init)
            self.declared[v] = s

    def _update(self, s: Update) -> None:
        acc = self.declared.get(s.vars[0])
        if acc is None:
            raise self.fail(f"{s.vars[0]} is no accumulator")
        new = [np.asarray(self.value(v)) for v in s.values]
        lanes = self.partial.get(s.vars[0])
        if lanes is not None:
            self._update_lanes(lanes, new)
            return
        old = [np.asarray(self.env[v]) for v in acc.vars]
        out = new if acc.monoid == "none" else combine(acc, old, new)
        for v, before, after in zip(acc.vars, old, out):
            if self.mask is not None:
                after = np.where(self.mask, after, before).astype(after.dtype)
            self.env[v] = _plain(after, v)

    def _update_lanes(self, lanes: _Lanes, new: list[Array]) -> None:
        if lanes.acc.monoid == "none":
            raise self.fail(f"the plain register {lanes.acc.vars[0]} is declared outside the vector loop that sets it")
        old = [p[:self.lanes] for p in lanes.values]
        for p, before, after in zip(lanes.values, old, combine(lanes.acc, old, new)):
            p[:self.lanes] = after if self.mask is None else np.where(self.mask, after, before)

    # ------------------------------------------------------------------------------------------ control

    def block(self, body: Sequence[Stmt]) -> None:
        for s in body:
            self.where = s
            match s:
                case Let():
                    self.env[s.var] = self.value(s.value)
                case Store():
                    self._store(s)
                case Scatter():
                    self._scatter(s)
                case Acc():
                    self._acc(s)
                case Update():
                    self._update(s)
                case For():
                    self._for(s)
                case If():
                    self._if(s)
                case Alloc():
                    self._alloc(s.buffer)
                case Micro():
                    self._micro(s)
                case _:
                    raise self.fail("a parallel loop inside another statement")

    def share(self, s: ParFor, thread: int, threads: int) -> None:
        """One thread's part: positions total * t // n up to total * (t + 1) // n of the flattened grid."""
        self.where = s
        extents = [max(0, self.integer(e)) for e in s.extents]
        total = int(np.prod(extents, dtype=np.int64))
        for position in range(total * thread // threads, total * (thread + 1) // threads):
            for v, size in reversed(list(zip(s.vars, extents))):
                position, self.env[v] = divmod(position, size)
            self.block(s.body)

    def _for(self, s: For) -> None:
        start, stop = self.value(s.start), self.value(s.stop)
        if s.kind == "vector" and not self.lanes:
            if s.step != 1:
                raise self.fail(f"a vector loop with step {s.step}")
            self._vector(s, self.integer(s.start), self.integer(s.stop))
        elif np.ndim(start) or np.ndim(stop):
            self._ragged(s, np.asarray(start), np.asarray(stop))
        else:
            for i in range(int(start), int(stop), s.step):
                self.env[s.var] = i
                self.block(s.body)

    def _ragged(self, s: For, start: Array, stop: Array) -> None:
        """Bounds that differ from lane to lane: every lane runs its own range."""
        outer, i = self.mask, np.broadcast_to(start, (self.lanes,))
        while True:
            live = i < stop if outer is None else (i < stop) & outer
            if not live.any():
                break
            self.mask, self.env[s.var] = live, i
            self.block(s.body)
            i = i + s.step
        self.mask = outer

    def _vector(self, s: For, start: int, stop: int) -> None:
        group = max(1, s.width * s.unroll)
        outside = self._outer_accumulators(s, group)
        for first in range(start, stop, group):
            self.lanes = min(group, stop - first)
            self.env[s.var] = np.arange(first, first + self.lanes, dtype=np.int64)
            self.block(s.body)
        self.lanes = 0
        for lanes in outside:
            for v in lanes.acc.vars:
                del self.partial[v]
            old = [np.asarray(self.env[v]) for v in lanes.acc.vars]
            for lane in range(group):
                old = combine(lanes.acc, old, [np.asarray(p[lane]) for p in lanes.values])
            for v, x in zip(lanes.acc.vars, old):
                self.env[v] = _plain(x, v)

    def _outer_accumulators(self, s: For, group: int) -> list[_Lanes]:
        inside = {v for x in walk(s.body) if isinstance(x, Acc) for v in x.vars}
        out: list[_Lanes] = []
        for x in walk(s.body):
            if not isinstance(x, Update) or x.vars[0] in inside or x.vars[0] in self.partial:
                continue
            acc = self.declared.get(x.vars[0])
            if acc is None:
                raise self.fail(f"{x.vars[0]} is no accumulator")
            lanes = _Lanes(acc, _neutral(acc, [np.asarray(self.env[v]) for v in acc.vars], group))
            self.partial.update((v, lanes) for v in acc.vars)
            out.append(lanes)
        return out

    def _if(self, s: If) -> None:
        cond = self.value(s.cond)
        if np.ndim(cond) == 0:
            self.block(s.then if cond else s.orelse)
            return
        outer = self.mask
        for side, body in ((cond, s.then), (~cond, s.orelse)):
            self.mask = side if outer is None else side & outer
            if body and self.mask.any():
                self.block(body)
        self.mask = outer


# ---------------------------------------------------------------------------------------------- helpers


def _plain(x: Array, v: Var) -> Value:
    return x.item() if x.ndim == 0 and v.dtype in (i64, bool_) else x


def _neutral(acc: Acc, inits: list[Array], group: int) -> list[Array]:
    """Lane values that change nothing; for argmax and argmin the accumulator's own content, which is idempotent."""
    if acc.monoid in ("argmax", "argmin"):
        return [np.full(group, x, x.dtype) for x in inits]
    if acc.monoid == "none":
        return [np.full(group, scalar.poison(scalar.dtype_of(x)), x.dtype) for x in inits]
    return [np.full(group, scalar.identity(acc.monoid, scalar.dtype_of(x)), x.dtype) for x in inits]


def combine(acc: Acc, old: Sequence[Array], new: Sequence[Array]) -> list[Array]:
    """One step of an accumulator's monoid. argmax / argmin: NaN beats all; of equal values the smaller index stays
    (the larger with `last`; of two NaN always the smaller)."""
    if acc.monoid not in ("argmax", "argmin"):
        return [scalar.combine(acc.monoid, old[0], new[0])]
    (v, i), (w, j) = old, new
    better = scalar.apply("gt" if acc.monoid == "argmax" else "lt", w, v)
    tie = scalar.apply("eq", v, w) & ((j > i) if acc.last else (j < i))
    if scalar.dtype_of(v).is_float:
        nan_v, nan_w = scalar.apply("isnan", v), scalar.apply("isnan", w)
        take = np.where(nan_w, ~nan_v | (j < i), ~nan_v & (better | tie))
    else:
        take = better | tie
    return [np.asarray(np.where(take, w, v)).astype(v.dtype), np.asarray(np.where(take, j, i)).astype(np.int64)]


def _postorder(root: Expr) -> list[Expr]:
    seen: set[Expr] = set()
    out: list[Expr] = []
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        e, ready = stack.pop()
        if ready:
            out.append(e)
        elif e not in seen:
            seen.add(e)
            stack.append((e, True))
            stack.extend((a, False) for a in e.args)
    return out


def _storage_of(name: str, array: Array) -> _Storage:
    """The memory an array spans, from its lowest address to its highest, as one run of elements."""
    if array.size == 0:
        return _Storage(np.zeros(0, array.dtype), 0)
    if any(s % array.itemsize for s in array.strides):
        raise ArgumentError(f"'{name}' has strides that are no multiple of its element size")
    steps = [s // array.itemsize for s in array.strides]
    low = sum(min(0, (n - 1) * s) for n, s in zip(array.shape, steps))
    high = sum(max(0, (n - 1) * s) for n, s in zip(array.shape, steps))
    if array.ndim == 0:
        return _Storage(array.reshape(1), 0)
    corner = array[tuple(slice(-1, None) if s < 0 else slice(0, 1) for s in steps)]
    stride = (array.itemsize,)
    flat = np.lib.stride_tricks.as_strided(corner, (high - low + 1,), stride, writeable=array.flags.writeable)
    return _Storage(flat, -low)


_INT_FNS: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "min": min, "max": max,
    "floordiv": lambda a, b: a // b if b else 0, "mod": lambda a, b: a % b if b else 0,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b, "neg": lambda a: -a,
}
