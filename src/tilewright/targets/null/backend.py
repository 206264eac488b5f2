"""The kernel backend that estimates: an artifact is the program and what it would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...errors import UnsupportedError
from ...evidence import Evidence
from ...ir.scheduled.core import Program
from ...ir.scheduled.printer import program_text
from ...ir.scheduled.verify import verify
from ...ir.types import ALL_DTYPES
from ...passes.cost import Cost, count
from ..description import TargetDescription


@dataclass(frozen=True, slots=True)
class Artifact:
    """A verified program and its text."""

    name: str
    program: Program
    text: str
    target: TargetDescription

    def cost(self, dims: Mapping[str, int], scalars: Mapping[str, Any] | None = None) -> Cost:
        """What one call with these dims does."""
        return count(self.program, dims, scalars)


def describe(like: TargetDescription | None = None) -> TargetDescription:
    """A machine to plan for: `like`'s numbers under another name, or those of a common desktop core."""
    if like is not None:
        return replace(like, name=f"null ({like.name})", family="null")
    return TargetDescription(
        name="null", family="null", vector_bits=256, vector_registers=16, masked=False, cores=4, l1=32 << 10,
        l2=512 << 10, l3=8 << 20, dtypes=tuple(d.name for d in ALL_DTYPES))


def supports(program: Program, target: TargetDescription) -> str | None:
    """Why no estimate can be made; None when it can. Any valid program on any description can be estimated."""
    return None


def render(program: Program, target: TargetDescription, threads: int = 1) -> Artifact:
    """The program, verified, with its text."""
    return Artifact(program.name, verify(program), program_text(program), target)


def estimate(artifact: Artifact, dims: Mapping[str, int], scalars: Mapping[str, Any] | None = None) -> dict[
        str, Evidence]:
    """Operations and bytes of one call, each with its provenance."""
    return artifact.cost(dims, scalars).evidence()


def launch(*args: Any, **kwargs: Any) -> None:
    """There is nothing to launch on."""
    raise UnsupportedError("the null target runs nothing", hint="use estimate(artifact, dims), or the target 'interp'")
