"""The instructions that multiply and accumulate, one record each: what it computes, on what, and the code for it.

A register block names no instruction: it says the element types and how many steps it takes at once, and the first atom
that fits them and the machine's features is taken. Adding an instruction is adding a record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...errors import UnsupportedError
from ...ir.types import DType, bf16, f32, f64, i8, i32, u8
from ..description import ProductAtom
from .types import suffix, vector

if TYPE_CHECKING:
    from .render_emit import Writer

#: (writer, type of the accumulator in registers, lanes, acc, a, b) -> the new accumulator
Emit = Callable[["Writer", str, int, str, str, str], str]


@dataclass(frozen=True, slots=True)
class Atom:
    """acc[lane] = `semantics`, of Scheduled IR's scalar functions over acc, a, b.

    With `group` 1 the operands of other element types are converted to the accumulator's when they are loaded, and
    `takes` is asked for (acc, acc, acc). With more, a and b are words of `group` elements (a0, a1, ... in order of k)
    and arrive as integers of the accumulator's width. `needs`: features of the machine; `bits`: vector widths that the
    instruction has, empty for any. `rate`: products per cycle relative to f32 multiply-adds."""

    name: str
    semantics: str
    takes: Callable[[DType, DType, DType], bool]
    needs: frozenset[str]
    emit: Emit
    group: int = 1
    bits: tuple[int, ...] = ()
    rate: float = 1.0

    def fits(self, acc: DType, a: DType, b: DType, group: int, lanes: int, features: frozenset[str]) -> bool:
        if group != self.group or not self.needs <= features or (self.bits and lanes * acc.bits not in self.bits):
            return False
        return self.takes(acc, a, b) if group > 1 else self.takes(acc, acc, acc)


def _fused(w: Writer, ty: str, n: int, acc: str, a: str, b: str) -> str:
    full = vector(ty, n)
    return w.call(full, f"llvm.fma.{suffix(ty, n)}", [(full, a), (full, b), (full, acc)])


def _separate(w: Writer, ty: str, n: int, acc: str, a: str, b: str) -> str:
    full = vector(ty, n)
    return w.op(f"fadd {full} {acc}, {w.op(f'fmul {full} {a}, {b}')}")


def _integers(w: Writer, ty: str, n: int, acc: str, a: str, b: str) -> str:
    full = vector(ty, n)
    return w.op(f"add {full} {acc}, {w.op(f'mul {full} {a}, {b}')}")


def _elements(w: Writer, text: str, n: int, element: str, group: int) -> str:
    """Words as the vector of their elements that an intrinsic asks for."""
    return w.op(f"bitcast {vector('i32', n)} {text} to <{n * group} x {element}>")


def _bf16_pairs(w: Writer, ty: str, n: int, acc: str, a: str, b: str) -> str:
    pairs = f"<{2 * n} x bfloat>"
    x, y = _elements(w, a, n, "bfloat", 2), _elements(w, b, n, "bfloat", 2)
    full = vector(ty, n)
    return w.call(full, f"llvm.x86.avx512bf16.dpbf16ps.{32 * n}", [(full, acc), (pairs, x), (pairs, y)])


def _unsigned_by_signed(w: Writer, ty: str, n: int, acc: str, a: str, b: str) -> str:
    quads = f"<{4 * n} x i8>"
    x, y = _elements(w, a, n, "i8", 4), _elements(w, b, n, "i8", 4)
    full = vector(ty, n)
    return w.call(full, f"llvm.x86.avx512.vpdpbusd.{32 * n}", [(full, acc), (quads, x), (quads, y)])


def _signed_by_unsigned(w: Writer, ty: str, n: int, acc: str, a: str, b: str) -> str:
    return _unsigned_by_signed(w, ty, n, acc, b, a)


def _only(*types: DType) -> Callable[[DType, DType, DType], bool]:
    return lambda acc, a, b: (acc, a, b) == types


_FOUR = "add(acc, add(add(mul(a0, b0), mul(a1, b1)), add(mul(a2, b2), mul(a3, b3))))"
_WIDE, _NARROW = (512,), (128, 256)
_VNNI, _VEX_VNNI, _BF16 = frozenset({"avx512vnni"}), frozenset({"avxvnni"}), frozenset({"avx512bf16"})

ATOMS: tuple[Atom, ...] = (
    Atom("pairs of bf16", "fma(a1, b1, fma(a0, b0, acc))", _only(f32, bf16, bf16), _BF16, _bf16_pairs, 2, _WIDE, 2.0),
    Atom("quads u8 x s8", _FOUR, _only(i32, u8, i8), _VNNI, _unsigned_by_signed, 4, _WIDE, 4.0),
    Atom("quads s8 x u8", _FOUR, _only(i32, i8, u8), _VNNI, _signed_by_unsigned, 4, _WIDE, 4.0),
    Atom("narrow quads u8 x s8", _FOUR, _only(i32, u8, i8), _VEX_VNNI, _unsigned_by_signed, 4, _NARROW, 4.0),
    Atom("narrow quads s8 x u8", _FOUR, _only(i32, i8, u8), _VEX_VNNI, _signed_by_unsigned, 4, _NARROW, 4.0),
    Atom("fused multiply-add", "fma(a, b, acc)", lambda d, *_: d in (f32, f64), frozenset({"fma"}), _fused),
    Atom("multiply, add", "add(acc, mul(a, b))", lambda d, *_: d in (f32, f64), frozenset(), _separate),
    Atom("integer multiply, add", "add(acc, mul(a, b))", lambda d, *_: d.is_int, frozenset(), _integers),
)


def choose(acc: DType, a: DType, b: DType, group: int, lanes: int, features: frozenset[str]) -> Atom:
    """The best atom for these element types on a machine with these features."""
    for atom in ATOMS:
        if atom.fits(acc, a, b, group, lanes, features):
            return atom
    if group > 1:
        raise UnsupportedError(f"no instruction here takes {group} products of {a} and {b} at once into {acc}")
    raise UnsupportedError(f"no instruction accumulates products in {acc}",
                           hint="accumulate in f32, f64 or an integer")


def products(features: frozenset[str], vector_bits: int) -> tuple[ProductAtom, ...]:
    """What schedules may ask of such a machine, in full vectors."""
    kinds = [(acc, a, b) for acc, a, b in ((f32, bf16, bf16), *((i32, x, y) for x in (u8, i8) for y in (u8, i8)))]
    found: list[ProductAtom] = []
    for acc, a, b in kinds:
        for atom in ATOMS:
            if atom.group > 1 and atom.fits(acc, a, b, atom.group, vector_bits // acc.bits, features):
                found.append(ProductAtom(a.name, b.name, acc.name, atom.group, atom.rate))
                break
    return tuple(found)
