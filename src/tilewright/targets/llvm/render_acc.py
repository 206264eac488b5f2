"""Accumulators: their memory (which LLVM turns into registers), updates under masks, and combining lanes.

Outside a vector loop an accumulator is one value. A vector loop that updates it works on partial values, one per lane
and group, which are combined pairwise afterwards: the order depends on the loop alone, never on threads.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import VerifyError
from ...ir.scheduled.core import Acc, Update, Var
from ...ir.types import DType
from . import render_expr, render_scalar
from .render_emit import Writer
from .render_state import AccState, Group, State
from .types import literal, register_type, splat_literal, vector

_COMBINE = {"sum": "add", "prod": "mul", "max": "max", "min": "min", "any": "or", "all": "and"}
INDEXED = ("argmax", "argmin")


def combine(w: Writer, monoid: str, dtype: DType, n: int, old: str, new: str) -> str:
    """One step. `old` is the accumulator: with max and min, its chain of dependent instructions is the shorter one."""
    if monoid in ("any", "all") and not dtype.is_bool:
        raise VerifyError(f"monoid '{monoid}' of {dtype}: it is for bool")
    return render_scalar.emit(w, _COMBINE[monoid], dtype, n, [old, new])


def combine_indexed(
    w: Writer, acc: Acc, dtype: DType, n: int, old: Sequence[str], new: Sequence[str]
) -> tuple[str, str]:
    """argmax / argmin of (value, index) pairs: the first NaN wins; of equal values the first index (or the last)."""
    (v, i), (x, j) = old, new
    bit = vector("i1", n)
    better = render_scalar.emit(w, "gt" if acc.monoid == "argmax" else "lt", dtype, n, [x, v])
    equal = render_scalar.emit(w, "eq", dtype, n, [x, v])
    earlier = w.compare("slt", "i64", n, j, i)
    closer = w.compare("sgt", "i64", n, j, i) if acc.last else earlier
    take = w.op(f"or {bit} {better}, {w.op(f'and {bit} {equal}, {closer}')}")
    if dtype.is_float:
        old_nan, new_nan = (render_scalar.emit(w, "isnan", dtype, n, [t]) for t in (v, x))
        fresh = w.op(f"xor {bit} {old_nan}, {splat_literal('i1', 'true', n)}")
        first = w.op(f"and {bit} {new_nan}, {w.op(f'or {bit} {fresh}, {earlier}')}")
        take = w.op(f"or {bit} {take}, {first}")  # comparisons with a NaN are false already
    return w.select(register_type(dtype), n, take, x, v), w.select("i64", n, take, j, i)


def identity(monoid: str, dtype: DType) -> str:
    """The value that changes nothing, as a literal."""
    if monoid in ("sum", "any"):
        return literal(0, dtype)
    if monoid in ("prod", "all"):
        return literal(1, dtype)
    largest = monoid == "min"
    if dtype.is_bool:
        return literal(largest, dtype)
    if dtype.is_float:
        return literal(float("inf") if largest else float("-inf"), dtype)
    top = (1 << (dtype.bits - 1)) - 1 if dtype.kind == "i" else (1 << dtype.bits) - 1
    bottom = -top - 1 if dtype.kind == "i" else 0
    return literal(top if largest else bottom, dtype)


# ---------------------------------------------------------------------------------------------- statements


def declare(w: State, acc: Acc) -> None:
    n = w.lanes
    slots = [[_slot(w, v, n) for v in acc.vars] for _ in w.groups]
    for group, places in zip(w.groups, slots, strict=True):
        for v, init, place in zip(acc.vars, acc.inits, places, strict=True):
            value = render_expr.lanes_of(w, render_expr.evaluate(w, init, group))
            w.line(f"store {vector(register_type(v.dtype), n)} {value}, ptr {place}")
    state = AccState(acc, slots, n)
    for v in acc.vars:
        w.accs[v] = state
        if n > 1:
            w.varying.add(v)


def update(w: State, s: Update) -> None:
    state = w.accs.get(s.vars[0])
    if state is None:
        raise VerifyError(f"{s.vars[0]} is no accumulator")
    for number, group in enumerate(w.groups):
        new = [render_expr.lanes_of(w, render_expr.evaluate(w, v, group)) for v in s.values]
        _update_group(w, state, number, group, new)


def _update_group(w: State, state: AccState, number: int, group: Group, new: list[str]) -> None:
    n, acc, places = w.lanes, state.acc, state.slots[number]
    types = [vector(register_type(v.dtype), n) for v in acc.vars]
    limit = w.mask_of(group)
    old: list[str] = []
    if acc.monoid != "none" or limit is not None:
        old = [w.op(f"load {t}, ptr {p}") for t, p in zip(types, places, strict=True)]
    result = _step(w, acc, n, old, new)
    for k, (v, t, p) in enumerate(zip(acc.vars, types, places, strict=True)):
        value = result[k] if limit is None else w.select(register_type(v.dtype), n, limit, result[k], old[k])
        w.line(f"store {t} {value}, ptr {p}")


def _step(w: Writer, acc: Acc, n: int, old: Sequence[str], new: Sequence[str]) -> list[str]:
    if acc.monoid == "none":
        return list(new)
    dtype = acc.vars[0].dtype
    if acc.monoid in INDEXED:
        return list(combine_indexed(w, acc, dtype, n, old, new))
    return [combine(w, acc.monoid, dtype, n, old[0], new[0])]


def _slot(w: State, v: Var, n: int) -> str:
    return w.alloca(vector(register_type(v.dtype), n))


# ---------------------------------------------------------------------------------------------- partial values


def open_partials(w: State, outer: Sequence[AccState], groups: int, lanes: int) -> list[AccState]:
    """Lane values for accumulators declared outside the vector loop that begins; they change nothing yet."""
    partials: list[AccState] = []
    for state in outer:
        acc = state.acc
        if acc.monoid == "none":
            raise VerifyError(f"the plain register {acc.vars[0]} is set in a vector loop but declared outside it")
        slots = [[_slot(w, v, lanes) for v in acc.vars] for _ in range(groups)]
        for k, v in enumerate(acc.vars):
            ty = register_type(v.dtype)
            if acc.monoid in INDEXED:  # its own content: taking the larger twice is taking it once
                start = w.splat(ty, w.op(f"load {ty}, ptr {state.slots[0][k]}"), lanes)
            else:
                start = w.splat(ty, identity(acc.monoid, v.dtype), lanes)
            for places in slots:
                w.line(f"store {vector(ty, lanes)} {start}, ptr {places[k]}")
        partials.append(AccState(acc, slots, lanes))
    return partials


def close_partials(w: State, outer: Sequence[AccState], partials: Sequence[AccState]) -> None:
    """Combines groups pairwise, then lanes by halves, then with what the accumulator held."""
    for state, partial in zip(outer, partials, strict=True):
        acc, n = state.acc, partial.lanes
        types = [register_type(v.dtype) for v in acc.vars]
        values = [
            [w.op(f"load {vector(t, n)}, ptr {p}") for t, p in zip(types, places, strict=True)]
            for places in partial.slots
        ]
        while len(values) > 1:
            pairs = [_step(w, acc, n, values[k], values[k + 1]) for k in range(0, len(values) - 1, 2)]
            values = pairs + values[len(pairs) * 2 :]
        reduced = _across(w, acc, types, values[0], n)
        old = [w.op(f"load {t}, ptr {p}") for t, p in zip(types, state.slots[0], strict=True)]
        for t, value, place in zip(types, _step(w, acc, 1, old, reduced), state.slots[0], strict=True):
            w.line(f"store {t} {value}, ptr {place}")


def _across(w: State, acc: Acc, types: list[str], values: Sequence[str], n: int) -> list[str]:
    while n > 1 and n % 2 == 0:
        half = n // 2
        low, high = (
            [_part(w, t, v, n, first, half) for t, v in zip(types, values, strict=True)] for first in (0, half)
        )
        values, n = _step(w, acc, half, low, high), half
    out = [w.extract(t, v, n, 0) for t, v in zip(types, values, strict=True)]
    for lane in range(1, n):  # a number of lanes that is no power of two
        out = _step(w, acc, 1, out, [w.extract(t, v, n, lane) for t, v in zip(types, values, strict=True)])
    return out


def _part(w: State, ty: str, text: str, n: int, first: int, count: int) -> str:
    if count == 1:
        return w.extract(ty, text, n, first)
    lanes = ", ".join(f"i32 {first + k}" for k in range(count))
    full = vector(ty, n)
    return w.op(f"shufflevector {full} {text}, {full} poison, <{count} x i32> <{lanes}>")


