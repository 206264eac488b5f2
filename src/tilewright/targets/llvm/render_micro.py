"""The register block: rows x cols accumulators held in registers over one loop of k.

Every step of k loads `cols` elements of b as vectors, and for each row one element of a which all lanes share. Pointers
advance by adding; rows of a that lie a run-time stride apart share a pointer by threes, because an address may add the
stride once or twice for free but there are not enough registers for a pointer per row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import VerifyError
from ...ir.scheduled.core import Micro, lift
from . import render_expr, render_memory
from .atoms import Atom, choose
from .render_casts import convert
from .render_state import State
from .types import constant, literal, memory_type, register_type, splat_literal, vector

_UNROLL = 4


@dataclass(slots=True)
class _Block:
    """A Micro with its scalars computed."""

    s: Micro
    atom: Atom
    ty: str  # the accumulators' type
    vectors: int
    masks: list[str | None]  # per vector of columns
    rows: str  # elements between rows of acc
    acc: str  # address of acc[0, 0]
    b_row: str
    a_row: str
    a_col: str
    word: str  # what is loaded of a and b for one lane: an element, or a group of them as an integer


def micro(w: State, s: Micro) -> None:
    if w.lanes > 1:
        raise VerifyError("a register block inside a vector loop")
    if s.rows < 1 or s.cols < 1 or s.cols % s.width:
        raise VerifyError(f"a register block of {s.rows} x {s.cols} with vectors of {s.width}")
    if _number(w, s.b.col) != "1" or _number(w, s.acc.col) != "1":
        raise VerifyError("a register block needs neighbouring columns in b and acc")
    if s.group > 1 and _number(w, s.a.col) != "1":
        raise VerifyError("a register block that takes steps in groups needs them as neighbours in a")
    dtype = s.acc.buffer.dtype
    acc = w.gep(memory_type(dtype), w.address_of(s.acc.buffer), render_expr.scalar(w, s.acc.offset))
    vectors = s.cols // s.width
    one = _Block(
        s, choose(dtype, s.a.buffer.dtype, s.b.buffer.dtype, s.group, s.width, w.module.features),
        register_type(dtype), vectors, [None] * vectors,
        _number(w, s.acc.row), acc, _number(w, s.b.row), _number(w, s.a.row), _number(w, s.a.col),
        f"i{dtype.bits}" if s.group > 1 else "",
    )  # fmt: skip
    depth = render_expr.scalar(w, s.depth)
    if s.group > 1:  # counted in groups from here on
        known = constant(depth)
        depth = w.op(f"sdiv i64 {depth}, {s.group}") if known is None else str(known // s.group)
    valid = str(s.cols) if s.cols_valid is None else render_expr.scalar(w, s.cols_valid)
    known = constant(valid)
    if known is not None and known >= s.cols:
        _run(w, one, depth, _UNROLL)
    elif w.module.description.masked:  # a masked access costs no more than a whole one
        one.masks = _masks(w, s, valid)
        _run(w, one, depth, _UNROLL)
    else:
        _two_ways(w, one, depth, valid)


def _number(w: State, x: object) -> str:
    return str(x) if isinstance(x, int) else render_expr.scalar(w, lift(x))  # type: ignore[arg-type]


def _two_ways(w: State, one: _Block, depth: str, valid: str) -> None:
    whole, edge, after = w.label("whole"), w.label("edge"), w.label("after")
    w.branch(w.op(f"icmp sge i64 {valid}, {one.s.cols}"), whole, edge)
    w.start(whole)
    with w.scope():
        _run(w, one, depth, _UNROLL)
    w.jump(after)
    w.start(edge)
    with w.scope():
        one.masks = _masks(w, one.s, valid)
        _run(w, one, depth, 1)
    w.jump(after)
    w.start(after)


def _masks(w: State, s: Micro, valid: str) -> list[str | None]:
    n = s.width
    most = w.call("i64", "llvm.smin.i64", [("i64", valid), ("i64", str(s.cols))])
    count = w.splat("i32", w.op(f"trunc i64 {most} to i32"), n)
    out: list[str | None] = []
    for c in range(s.cols // n):
        columns = "<" + ", ".join(f"i32 {c * n + k}" for k in range(n)) + ">"
        out.append(w.compare("slt", "i32", n, columns, count))
    return out


# ---------------------------------------------------------------------------------------------- the block


def _run(w: State, one: _Block, depth: str, unroll: int) -> None:
    s = one.s
    values = _load_block(w, one)
    a = w.gep(memory_type(s.a.buffer.dtype), w.address_of(s.a.buffer), render_expr.scalar(w, s.a.offset))
    b = w.gep(memory_type(s.b.buffer.dtype), w.address_of(s.b.buffer), render_expr.scalar(w, s.b.offset))
    pointers = [b, *_row_pointers(w, one, a)]
    known = constant(depth)
    if known is not None:
        whole = str(max(0, known) // unroll)
        rest = str(max(0, known) % unroll)
    elif unroll == 1:
        whole, rest = depth, "0"
    else:
        # a negative depth counts as none: the arithmetic shift keeps it negative, and `rest` is not reached
        whole = w.op(f"ashr i64 {depth}, {unroll.bit_length() - 1}")
        rest = w.op(f"and i64 {w.call('i64', 'llvm.smax.i64', [('i64', depth), ('i64', '0')])}, {unroll - 1}")
    pointers, values = _k_loop(w, one, pointers, values, whole, unroll)
    pointers, values = _k_loop(w, one, pointers, values, rest, 1)
    _store_block(w, one, values)


def _row_pointers(w: State, one: _Block, a: str) -> list[str]:
    """The base pointers of a's rows: one when the distances are numbers, else one per three rows."""
    if constant(one.a_row) is not None:
        return [a]
    ty = memory_type(one.s.a.buffer.dtype)
    return [w.gep(ty, a, w.imul(one.a_row, str(r))) for r in range(0, one.s.rows, 3)]


def _k_loop(
    w: State, one: _Block, pointers: list[str], values: list[str], count: str, unroll: int
) -> tuple[list[str], list[str]]:
    """`count` rounds of `unroll` steps each; returns where the pointers and accumulators are after them."""
    if count == "0":
        return pointers, values
    if count == "1":
        return _round(w, one, pointers, values, unroll)
    before, loop, after = w.block, w.label("k"), w.label("after")
    w.branch(w.op(f"icmp sgt i64 {count}, 0"), loop, after)
    w.start(loop)
    inner_p, inner_v, counter = [w.name() for _ in pointers], [w.name() for _ in values], w.name()
    slot = len(w.lines)
    next_p, next_v = _round(w, one, inner_p, inner_v, unroll)
    left = w.op(f"add nsw i64 {counter}, -1")
    full = vector(one.ty, one.s.width)
    phis = [(counter, "i64", count, left)]
    phis += [(p, "ptr", first, nxt) for p, first, nxt in zip(inner_p, pointers, next_p, strict=True)]
    phis += [(v, full, first, nxt) for v, first, nxt in zip(inner_v, values, next_v, strict=True)]
    w.lines[slot:slot] = [f"  {p} = phi {t} [ {first}, %{before} ], [ {nxt}, %{w.block} ]" for p, t, first, nxt in phis]
    w.branch(w.op(f"icmp sgt i64 {left}, 0"), loop, after)
    inside = w.block
    w.start(after)
    out: list[list[str]] = [[], []]
    for names, (firsts, nexts, t) in zip(out, ((pointers, next_p, "ptr"), (values, next_v, full)), strict=True):
        for first, nxt in zip(firsts, nexts, strict=True):
            names.append(w.op(f"phi {t} [ {first}, %{before} ], [ {nxt}, %{inside} ]"))
    return out[0], out[1]


def _round(w: State, one: _Block, pointers: list[str], values: list[str], unroll: int) -> tuple[list[str], list[str]]:
    for k in range(unroll):
        if k:  # loads of the next step must not be moved up here: there are no registers to hold them
            w.line('call void asm sideeffect "", "~{memory}"()')
        values = _step(w, one, pointers, values, k)
    a_ty, b_ty = memory_type(one.s.a.buffer.dtype), memory_type(one.s.b.buffer.dtype)
    moved = [w.gep(b_ty, pointers[0], w.imul(one.b_row, str(unroll)))]
    moved += [w.gep(a_ty, p, w.imul(one.a_col, str(unroll * one.s.group))) for p in pointers[1:]]
    return moved, values


def _step(w: State, one: _Block, pointers: list[str], values: Sequence[str], k: int) -> list[str]:
    """One k, or group of them: all columns of b, then row by row the element of a and its products."""
    s, n = one.s, one.s.width
    acc_type = s.acc.buffer.dtype
    a_ty, b_ty = memory_type(s.a.buffer.dtype), memory_type(s.b.buffer.dtype)
    here = w.gep(b_ty, pointers[0], w.imul(one.b_row, str(k)))
    columns: list[str] = []
    for c in range(one.vectors):
        at = w.gep(b_ty, here, str(c * n * s.group))
        loaded, align = one.word or b_ty, s.b.buffer.dtype.itemsize
        filler = splat_literal(loaded, "0" if one.word else literal(0, s.b.buffer.dtype), n)
        raw = render_memory.load_lanes(w, loaded, at, n, one.masks[c], filler, align)
        columns.append(raw if one.word else convert(w, raw, s.b.buffer.dtype, acc_type, n))
        if s.prefetch:
            ahead = w.gep(b_ty, at, w.imul(one.b_row, str(s.prefetch)))
            w.call("void", "llvm.prefetch.p0", [("ptr", ahead), ("i32", "0"), ("i32", "3"), ("i32", "1")])
    out: list[str] = []
    for r in range(s.rows):
        place, align = _a_address(w, one, pointers, r, k), s.a.buffer.dtype.itemsize
        raw = w.op(f"load {one.word or a_ty}, ptr {place}, align {align}")
        alone = raw if one.word else convert(w, raw, s.a.buffer.dtype, acc_type, 1)
        shared = w.splat(one.word or one.ty, alone, n)
        for c in range(one.vectors):
            out.append(one.atom.emit(w, one.ty, n, values[r * one.vectors + c], shared, columns[c]))
    return out


def _a_address(w: State, one: _Block, pointers: list[str], row: int, k: int) -> str:
    ty = memory_type(one.s.a.buffer.dtype)
    step = w.imul(one.a_col, str(k * one.s.group))
    if constant(one.a_row) is not None:
        return w.gep(ty, pointers[1], w.iadd(w.imul(one.a_row, str(row)), step))
    base = w.gep(ty, pointers[1 + row // 3], w.imul(one.a_row, str(row % 3)))
    return w.gep(ty, base, step)


def _places(w: State, one: _Block) -> list[str]:
    """Addresses of the accumulator's vectors, row by row."""
    ty = memory_type(one.s.acc.buffer.dtype)
    rows = [w.gep(ty, one.acc, w.imul(one.rows, str(r))) for r in range(one.s.rows)]
    return [w.gep(ty, row, str(c * one.s.width)) for row in rows for c in range(one.vectors)]


def _load_block(w: State, one: _Block) -> list[str]:
    s, n = one.s, one.s.width
    zero = splat_literal(one.ty, literal(0, s.acc.buffer.dtype), n)
    start = [zero] * (s.rows * one.vectors)
    if not s.init:
        places = zip(_places(w, one), one.masks * s.rows, strict=True)
        start = [render_memory.load_lanes(w, one.ty, p, n, m, zero) for p, m in places]
    if s.bias is None:
        return start
    first = w.gep(one.ty, w.address_of(s.bias.buffer), render_expr.scalar(w, s.bias.offset))
    row = [render_memory.load_lanes(w, one.ty, w.gep(one.ty, first, str(c * n)), n, None, None)
           for c in range(one.vectors)]
    if s.init:
        return row * s.rows
    add = "fadd" if s.acc.buffer.dtype.is_float else "add"
    full = vector(one.ty, n)
    return [w.op(f"{add} {full} {v}, {row[k % one.vectors]}") for k, v in enumerate(start)]


def _store_block(w: State, one: _Block, values: list[str]) -> None:
    masks = one.masks * one.s.rows
    for place, value, mask in zip(_places(w, one), values, masks, strict=True):
        render_memory.store_lanes(w, one.ty, value, place, one.s.width, mask)
