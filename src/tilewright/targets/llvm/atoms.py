"""The instructions that multiply and accumulate, one record each: what it computes, on what, and the code for it.

A register block names no instruction: it says the element types, and the first atom that fits them and the machine's
features is taken. Adding an instruction is adding a record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...errors import UnsupportedError
from ...ir.types import DType, f32, f64
from .render_emit import Writer
from .types import suffix, vector

#: (writer, type in registers, lanes, acc, a, b) -> the new accumulator
Emit = Callable[[Writer, str, int, str, str, str], str]


@dataclass(frozen=True, slots=True)
class Atom:
    """acc[lane] = acc[lane] + a[lane] * b[lane] in `semantics` (of Scheduled IR's scalar functions, over acc, a, b).
    Operands of other element types are converted to `dtype` when they are loaded. `needs`: features of the machine."""

    name: str
    semantics: str
    takes: Callable[[DType], bool]
    needs: frozenset[str]
    emit: Emit


def _fused(w: Writer, ty: str, n: int, acc: str, a: str, b: str) -> str:
    full = vector(ty, n)
    return w.call(full, f"llvm.fma.{suffix(ty, n)}", [(full, a), (full, b), (full, acc)])


def _separate(w: Writer, ty: str, n: int, acc: str, a: str, b: str) -> str:
    full = vector(ty, n)
    return w.op(f"fadd {full} {acc}, {w.op(f'fmul {full} {a}, {b}')}")


def _integers(w: Writer, ty: str, n: int, acc: str, a: str, b: str) -> str:
    full = vector(ty, n)
    return w.op(f"add {full} {acc}, {w.op(f'mul {full} {a}, {b}')}")


ATOMS: tuple[Atom, ...] = (
    Atom("fused multiply-add", "fma(a, b, acc)", lambda d: d in (f32, f64), frozenset({"fma"}), _fused),
    Atom("multiply, add", "add(acc, mul(a, b))", lambda d: d in (f32, f64), frozenset(), _separate),
    Atom("integer multiply, add", "add(acc, mul(a, b))", lambda d: d.is_int, frozenset(), _integers),
)


def multiply_add(dtype: DType, features: frozenset[str]) -> Atom:
    """The best atom that accumulates in `dtype` on a machine with these features."""
    for atom in ATOMS:
        if atom.takes(dtype) and atom.needs <= features:
            return atom
    raise UnsupportedError(
        f"no instruction accumulates products in {dtype}", hint="accumulate in f32, f64 or an integer"
    )
