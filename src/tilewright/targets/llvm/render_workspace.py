"""Where local buffers lie in a thread's workspace.

Buffers get a slot by nesting: those alive at once have different slots, those of separate blocks share. A slot is as
large as the largest buffer that uses it. Slots are what the compiler is told apart by: it may assume that two of them
never overlap, which is true of slots and would not be of buffers packed more cleverly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...ir.scheduled.core import (
    Alloc,
    Buffer,
    Expr,
    For,
    If,
    IntLike,
    ParFor,
    Program,
    Stmt,
    add,
    floordiv,
    imax,
    mul,
)
from ...ir.types import i64

_LINE = 64
#: Between slots, so that equal positions of two of them do not fall into the same cache set.
_SKEW = 5 * _LINE


@dataclass(slots=True)
class Slots:
    """Of one phase: which slot a buffer has, and each slot's size in bytes."""

    of: dict[Buffer, int] = field(default_factory=dict)
    sizes: list[IntLike] = field(default_factory=list)

    def offsets(self) -> list[IntLike]:
        out: list[IntLike] = []
        at: IntLike = 0
        for size in self.sizes:
            out.append(at)
            at = _sum(at, _sum(size, _SKEW))
        return out

    def total(self) -> IntLike:
        at: IntLike = 0
        for size in self.sizes:
            at = _sum(at, _sum(size, _SKEW))
        return at


def slots_of(phase: ParFor) -> Slots:
    out = Slots()
    _place(phase.body, 0, out)
    return out


def workspace_bytes(program: Program) -> IntLike:
    """What one thread needs for the whole program: a number, or an expression of dims."""
    most: IntLike = 0
    for phase in program.body:
        if isinstance(phase, ParFor):
            size = slots_of(phase).total()
            if isinstance(most, int) and isinstance(size, int):
                most = max(most, size)
            else:
                most = imax(most, size)
    return most


def _place(body: Sequence[Stmt], depth: int, out: Slots) -> None:
    """`depth`: slots that are in use where the block begins."""
    for s in body:
        if isinstance(s, Alloc) and s.buffer.space == "local":
            out.of[s.buffer] = depth
            size = _bytes(s.buffer)
            if depth == len(out.sizes):
                out.sizes.append(size)
            else:
                out.sizes[depth] = _largest(out.sizes[depth], size)
            depth += 1
        elif isinstance(s, For):
            _place(s.body, depth, out)
        elif isinstance(s, If):
            _place(s.then, depth, out)
            _place(s.orelse, depth, out)


def _bytes(b: Buffer) -> IntLike:
    """Rounded up to whole cache lines."""
    lines = floordiv(add(mul(b.elements(), b.dtype.itemsize), _LINE - 1), _LINE)
    return _number(mul(lines, _LINE))


def _sum(a: IntLike, b: IntLike) -> IntLike:
    return _number(add(a, b))


def _largest(a: IntLike, b: IntLike) -> IntLike:
    return _number(imax(a, b))


def _number(e: Expr) -> IntLike:
    return int(e.attr) if e.op == "const" and e.dtype == i64 else e
