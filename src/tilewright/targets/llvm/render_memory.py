"""Loads, stores and scatters. The flat address decides the form: the same for all lanes, neighbouring, or anything."""

from __future__ import annotations

from collections.abc import Sequence

from ...errors import VerifyError
from ...ir.scheduled.core import Buffer, Expr, Scatter, Store, lift
from ...ir.types import DType, i64
from . import render_acc, render_expr
from .render_emit import Value
from .render_state import Group, State
from .types import literal, memory_type, register_type, splat_literal, suffix, vector


def address(w: State, buffer: Buffer, index: Sequence[Expr], group: Group) -> Value:
    """The flat element offset, for the lanes of `group`."""
    if len(index) != len(buffer.strides):
        raise VerifyError(f"{len(index)} indices for buffer '{buffer.name}' of rank {len(buffer.strides)}")
    total = Value("s", "0", i64)
    for i, stride in zip(index, buffer.strides, strict=True):
        step = render_expr.evaluate(w, lift(stride), w.common)
        total = _add(w, total, _scale(w, render_expr.evaluate(w, i, group), step))
    return total


def _add(w: State, a: Value, b: Value) -> Value:
    found = render_expr.plus(w, a, b)
    if found is not None:
        return found
    if b.text == "0" and b.kind == "s":
        return a
    if a.text == "0" and a.kind == "s":
        return b
    x, y = render_expr.lanes_of(w, a), render_expr.lanes_of(w, b)
    return Value("v", w.op(f"add {vector('i64', w.lanes)} {x}, {y}"), i64)


def _scale(w: State, a: Value, step: Value) -> Value:
    found = render_expr.scale(w, a, step)
    if found is not None:
        return found
    if step.text == "1":
        return a
    x, y = render_expr.lanes_of(w, a), render_expr.lanes_of(w, step)
    return Value("v", w.op(f"mul {vector('i64', w.lanes)} {x}, {y}"), i64)


# ---------------------------------------------------------------------------------------------- loads


def load(
    w: State, buffer: Buffer, index: Sequence[Expr], cond: Expr | None, other: Expr | None, group: Group
) -> Value:
    """buffer[index]; where `cond` is false memory is not touched and the value is `other`'s."""
    guard = None if cond is None else render_expr.evaluate(w, cond, group)
    if guard is not None and guard.text == "true":
        guard = None
    at = address(w, buffer, index, group)
    rest = None if guard is None or other is None else render_expr.evaluate(w, other, group)
    ty, base = memory_type(buffer.dtype), w.address_of(buffer)
    if at.kind == "s":
        return _load_one(w, buffer, w.gep(ty, base, at.text), guard, rest, group)
    n = w.lanes
    if guard is not None and rest is not None and guard.kind == "s" and at.kind == "l" and at.step == "1":
        return _load_or_zeros(w, buffer, w.gep(ty, base, at.text), guard, rest, other, group)
    mask = group.tail if guard is None else w.both(n, group.tail, render_expr.lanes_of(w, guard))
    mask = w.both(n, mask, group.condition)
    if mask is None:
        filler = None
    elif rest is not None:
        filler = _to_memory(w, render_expr.lanes_of(w, rest), buffer.dtype, n)
    else:
        filler = splat_literal(ty, literal(0, buffer.dtype) if ty != "i8" else "0", n)
    if at.kind == "l" and at.step == "1":
        raw = load_lanes(w, ty, w.gep(ty, base, at.text), n, mask, filler)
    else:
        raw = _gather(w, ty, base, at, mask, filler)
    text = _from_memory(w, raw, buffer.dtype, n)
    return Value("v", text, buffer.dtype)


def _load_or_zeros(
    w: State, buffer: Buffer, pointer: str, guard: Value, rest: Value, other: Expr | None, group: Group
) -> Value:
    """Neighbours under a guard that all lanes share: where it fails, zeros of our own are read. A masked load would do,
    but some processors take hundreds of cycles for one whose address is not mapped, be all its lanes off."""
    n, dtype = w.lanes, buffer.dtype
    ty = memory_type(dtype)
    place = w.op(f"select i1 {guard.text}, ptr {pointer}, ptr {zero_page(w, n * dtype.itemsize)}")
    mask = w.both(n, group.tail, group.condition)
    filler = None if mask is None else splat_literal(ty, literal(0, dtype) if ty != "i8" else "0", n)
    text = _from_memory(w, load_lanes(w, ty, place, n, mask, filler), dtype, n)
    if other is not None and other.op == "const" and str(other.attr) in ("0", "0.0", "False"):
        return Value("v", text, dtype)
    lanes = [render_expr.lanes_of(w, guard), text, render_expr.lanes_of(w, rest)]
    return Value("v", w.select(register_type(dtype), n, *lanes), dtype)


def _load_one(
    w: State, buffer: Buffer, pointer: str, guard: Value | None, rest: Value | None, group: Group
) -> Value:
    """All lanes read the same element: once. A guard that fails reads a zero of our own instead of branching."""
    dtype = buffer.dtype
    ty, align = memory_type(dtype), dtype.itemsize
    reach = None  # whether any lane at all reads
    if guard is not None:
        reach = guard.text if guard.kind == "s" else any_lane(w, w.both(w.lanes, guard.text, w.mask_of(group)) or "")
    else:
        for one in w.groups:  # an element that all groups share is read once, if any lane of any of them is live
            if one.condition is not None:
                live = any_lane(w, one.condition)
                reach = live if reach is None else w.op(f"or i1 {reach}, {live}")
    if reach is not None:
        zeros = zero_page(w)
        pointer = w.op(f"select i1 {reach}, ptr {pointer}, ptr {zeros}")
    text = _from_memory(w, w.op(f"load {ty}, ptr {pointer}, align {align}"), dtype, 1)
    if guard is None or rest is None:
        return Value("s", text, dtype)
    if guard.kind == "s" and rest.kind == "s":
        return Value("s", w.select(register_type(dtype), 1, guard.text, text, rest.text), dtype)
    n, found = w.lanes, Value("s", text, dtype)
    lanes = [render_expr.lanes_of(w, v) for v in (guard, found, rest)]
    return Value("v", w.select(register_type(dtype), n, *lanes), dtype)


def zero_page(w: State, nbytes: int = 64) -> str:
    """Zeros to read in place of what is not there."""
    size = max(64, 1 << (nbytes - 1).bit_length())
    name = f"@tilewright.zeros.{size}"
    w.module.helpers.setdefault(name, f"{name} = private constant [{size} x i8] zeroinitializer, align 64")
    return name


def load_lanes(w: State, ty: str, pointer: str, n: int, mask: str | None, filler: str | None, align: int = 0) -> str:
    """Neighbouring elements, in memory form."""
    full = vector(ty, n)
    align = align or _size(ty)
    if mask is None:
        return w.op(f"load {full}, ptr {pointer}, align {align}")
    name = f"llvm.masked.load.{suffix(ty, n)}.p0"
    operands = [(f"ptr align {align}", pointer), (vector("i1", n), mask), (full, filler or "zeroinitializer")]
    return w.call(full, name, operands)


def store_lanes(w: State, ty: str, text: str, pointer: str, n: int, mask: str | None, align: int = 0) -> None:
    full = vector(ty, n)
    align = align or _size(ty)
    if mask is None:
        w.line(f"store {full} {text}, ptr {pointer}, align {align}")
        return
    if _size(ty) < 4 and w.module.description.masked:
        mask = opaque_mask(w, mask, n)
    name = f"llvm.masked.store.{suffix(ty, n)}.p0"
    w.call("void", name, [(full, text), (f"ptr align {align}", pointer), (vector("i1", n), mask)])


def opaque_mask(w: State, mask: str, n: int) -> str:
    """The same mask, of which LLVM knows nothing. LLVM 22 writes four bytes where it fuses a truncation to 16 bits with
    a masked store of one element: it must not find out that a mask has one lane."""
    short = w.op(f"bitcast {vector('i1', n)} {mask} to i{n}")
    wide = 64 if n > 32 else 32
    bits = short if n == wide else w.op(f"zext i{n} {short} to i{wide}")
    kept = w.op(f'call i{wide} asm "", "=r,0"(i{wide} {bits})')
    back = kept if n == wide else w.op(f"trunc i{wide} {kept} to i{n}")
    return w.op(f"bitcast i{n} {back} to {vector('i1', n)}")


def _pointers(w: State, ty: str, base: str, at: Value) -> str:
    """One address per lane."""
    n = w.lanes
    if at.kind == "l":  # scalar base first: the lanes then add small numbers
        base = w.gep(ty, base, at.text)
        at = Value("l", "0", i64, at.step)
    offsets = render_expr.lanes_of(w, at)
    return w.op(f"getelementptr {ty}, ptr {base}, {vector('i64', n)} {offsets}")


def _gather(w: State, ty: str, base: str, at: Value, mask: str | None, filler: str | None) -> str:
    n = w.lanes
    full, pointers = vector(ty, n), _pointers(w, ty, base, at)
    lanes = mask or splat_literal("i1", "true", n)
    name = f"llvm.masked.gather.{suffix(ty, n)}.v{n}p0"
    places = f"{vector('ptr', n)} align {_size(ty)}"
    return w.call(full, name, [(places, pointers), (vector("i1", n), lanes), (full, filler or "poison")])


# ---------------------------------------------------------------------------------------------- stores


def store(w: State, s: Store) -> None:
    if s.mask is not None and not w.is_varying(s.mask):
        condition = render_expr.scalar(w, s.mask)
        if condition == "false":
            return
        if condition != "true":  # index and value may be computable only where the mask holds
            inside, after = w.label("store"), w.label("stored")
            w.branch(condition, inside, after)
            w.start(inside)
            with w.scope():
                _store(w, s, None)
            w.jump(after)
            w.start(after)
            w.forget_volatile()
            return
        _store(w, s, None)
        return
    _store(w, s, s.mask)


def _store(w: State, s: Store, mask: Expr | None) -> None:
    for group in w.groups:
        limit = w.mask_of(group)
        if mask is not None:
            limit = w.both(w.lanes, limit, render_expr.evaluate(w, mask, group).text)
        _store_group(w, s, limit, group)


def _store_group(w: State, s: Store, limit: str | None, group: Group) -> None:
    value = render_expr.evaluate(w, s.value, group)
    at = address(w, s.buffer, s.index, group)
    dtype, n = s.buffer.dtype, w.lanes
    ty, base = memory_type(dtype), w.address_of(s.buffer)
    if value.dtype.bits > dtype.bits and value.dtype.kind == "u":
        _store_wide(w, value, at, ty, base, limit, value.dtype.bits // dtype.bits)
        return
    if at.kind == "s" and value.kind == "s" and limit in (None, group.tail):  # a group has at least one lane
        text = _to_memory(w, value.text, dtype, 1)
        w.line(f"store {ty} {text}, ptr {w.gep(ty, base, at.text)}, align {dtype.itemsize}")
        return
    text = _to_memory(w, render_expr.lanes_of(w, value), dtype, n)
    if at.kind == "l" and at.step == "1":
        store_lanes(w, ty, text, w.gep(ty, base, at.text), n, limit)
        return
    name = f"llvm.masked.scatter.{suffix(ty, n)}.v{n}p0"
    pointers, lanes = _pointers(w, ty, base, at), limit or splat_literal("i1", "true", n)
    align = f"{vector('ptr', n)} align {_size(ty)}"
    w.call("void", name, [(vector(ty, n), text), (align, pointers), (vector("i1", n), lanes)])


def _store_wide(w: State, value: Value, at: Value, ty: str, base: str, limit: str | None, several: int) -> None:
    """Words that are `several` elements each: neighbouring words where the address advances by as many elements."""
    wide, n, align = memory_type(value.dtype), w.lanes, _size(ty)
    if at.kind == "s" and n == 1 and limit is None:
        w.line(f"store {wide} {value.text}, ptr {w.gep(ty, base, at.text)}, align {align}")
        return
    text = render_expr.lanes_of(w, value)
    if at.kind == "l" and at.step == str(several):
        store_lanes(w, wide, text, w.gep(ty, base, at.text), n, limit, align)
        return
    pointers, lanes = _pointers(w, ty, base, at), limit or splat_literal("i1", "true", n)
    places = f"{vector('ptr', n)} align {align}"
    name = f"llvm.masked.scatter.{suffix(wide, n)}.v{n}p0"
    w.call("void", name, [(vector(wide, n), text), (places, pointers), (vector("i1", n), lanes)])


# ---------------------------------------------------------------------------------------------- scatter


def scatter(w: State, s: Scatter) -> None:
    """One atomic read-modify-write per lane; lanes and threads may meet in one element."""
    helper = _scatter_helper(w, s.buffer.dtype, s.monoid)
    dtype, n = s.buffer.dtype, w.lanes
    ty, reg = memory_type(dtype), register_type(dtype)
    for group in w.groups:
        limit = w.mask_of(group)
        if s.mask is not None:
            limit = w.both(n, limit, render_expr.lanes_of(w, render_expr.evaluate(w, s.mask, group)))
        at = address(w, s.buffer, s.index, group)
        value = render_expr.lanes_of(w, render_expr.evaluate(w, s.value, group))
        where = render_expr.lanes_of(w, at)
        base = w.address_of(s.buffer)
        for lane in range(n):
            after = ""
            if limit is not None:
                inside, after = w.label("lane"), w.label("next")
                w.branch(w.extract("i1", limit, n, lane), inside, after)
                w.start(inside)
            pointer = w.gep(ty, base, w.extract("i64", where, n, lane))
            w.line(f"call void @{helper}(ptr {pointer}, {reg} {w.extract(reg, value, n, lane)})")
            if after:
                w.jump(after)
                w.start(after)


def _scatter_helper(w: State, dtype: DType, monoid: str) -> str:
    """A function that retries `old -> monoid(old, value)` until no other thread came between."""
    name = f"tilewright.scatter.{monoid}.{dtype.name}"
    if name in w.module.helpers:
        return name
    h = State(w.module, w.program)
    bits, reg = f"i{dtype.bits}", register_type(dtype)
    h.start("entry")
    first = h.op(f"load atomic {bits}, ptr %p monotonic, align {dtype.itemsize}")
    h.jump("again")
    h.start("again")
    seen = h.name()
    slot = len(h.lines)
    old = _bits_to_register(h, seen, dtype)
    new = render_acc.combine(h, monoid, dtype, 1, old, "%x")
    raw = h.op(f"bitcast {reg} {new} to {bits}") if dtype.is_float and reg != bits else _to_memory(h, new, dtype, 1)
    pair = h.op(f"cmpxchg ptr %p, {bits} {seen}, {bits} {raw} monotonic monotonic, align {dtype.itemsize}")
    found = h.op(f"extractvalue {{ {bits}, i1 }} {pair}, 0")
    done = h.op(f"extractvalue {{ {bits}, i1 }} {pair}, 1")
    h.lines.insert(slot, f"  {seen} = phi {bits} [ {first}, %entry ], [ {found}, %again ]")
    h.branch(done, "done", "again")
    h.start("done")
    h.line("ret void")
    body = "\n".join(h.lines)
    w.module.helpers[name] = f"define internal void @{name}(ptr %p, {reg} %x) nounwind {{\n{body}\n}}"
    return name


def _bits_to_register(h: State, text: str, dtype: DType) -> str:
    reg = register_type(dtype)
    if dtype.is_float and reg != f"i{dtype.bits}":
        return h.op(f"bitcast i{dtype.bits} {text} to {reg}")
    return _from_memory(h, text, dtype, 1)


# ---------------------------------------------------------------------------------------------- helpers


def any_lane(w: State, mask: str) -> str:
    n = w.lanes
    return w.call("i1", f"llvm.vector.reduce.or.v{n}i1", [(vector("i1", n), mask)]) if n > 1 else mask


def _from_memory(w: State, text: str, dtype: DType, n: int) -> str:
    return w.compare("ne", "i8", n, text, splat_literal("i8", "0", n)) if dtype.is_bool else text


def _to_memory(w: State, text: str, dtype: DType, n: int) -> str:
    return w.op(f"zext {vector('i1', n)} {text} to {vector('i8', n)}") if dtype.is_bool else text


def _size(ty: str) -> int:
    return {"double": 8, "float": 4}.get(ty) or int(ty[1:]) // 8
