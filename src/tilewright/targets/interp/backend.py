"""The kernel backend of the interpreter: an artifact is the verified text of the program."""

from __future__ import annotations

from dataclasses import dataclass

from ...errors import UnsupportedError
from ...ir.scheduled.core import Program
from ...ir.scheduled.printer import program_text
from ...ir.scheduled.verify import verify
from ...ir.types import ALL_DTYPES
from ..description import ProductAtom, TargetDescription

FAMILY = "interp"


@dataclass(frozen=True, slots=True)
class Artifact:
    """A program as text: it can be kept, compared and read by people. `threads`: how many the work is shared among."""

    name: str
    text: str
    threads: int


def describe() -> TargetDescription:
    """A small machine with every element type. Vectors and caches are small, so that partial vectors, edge tiles and
    several panels occur at sizes the interpreter can run in reasonable time."""
    return TargetDescription(
        name="interp", family=FAMILY, vector_bits=256, vector_registers=16, masked=False, cores=2, l1=16 << 10,
        l2=128 << 10, l3=1 << 20, dtypes=tuple(d.name for d in ALL_DTYPES),
        products=(ProductAtom("bf16", "bf16", "f32", 2, 2.0), ProductAtom("u8", "i8", "i32", 4, 4.0)))


def supports(program: Program, target: TargetDescription) -> str | None:
    """Why the program cannot run on the target; None when it can."""
    if target.family != FAMILY:
        return f"'{target.name}' is a target of the family '{target.family}', not the interpreter"
    return None


def render(program: Program, target: TargetDescription, threads: int = 1) -> Artifact:
    """The program, verified, as text."""
    reason = supports(program, target)
    if reason is not None:
        raise UnsupportedError(f"kernel '{program.name}' cannot be interpreted: {reason}")
    return Artifact(program.name, program_text(verify(program)), threads)
