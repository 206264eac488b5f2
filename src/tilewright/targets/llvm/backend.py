"""The LLVM family as a kernel backend: what it can do, and a scheduled program made into machine code.

An `Artifact` holds everything that is needed to load and call the code, and nothing else: it is what the compile cache
keeps. The IR it came from is not needed any more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...errors import UnsupportedError
from ...ir.scheduled.core import Acc, Alloc, ParFor, Program, walk
from ...ir.types import BY_NAME, DType
from ...runtime import sizes
from ..description import TargetDescription


@dataclass(frozen=True, slots=True)
class Artifact:
    """Object code and how to call it. `functions`: one per phase, in order, with a barrier between two of them.
    `buffers`, `dims`, `strides` and `scalars` are the words of the argument block, in this order. `workspace`: bytes of
    scratch memory per thread. `threads`: how many the work is worth (1: the caller alone)."""

    name: str
    code: bytes
    functions: tuple[str, ...]
    buffers: tuple[str, ...]
    dims: tuple[str, ...]
    strides: tuple[tuple[str, int], ...]
    scalars: tuple[tuple[str, DType], ...]
    workspace: sizes.Size
    threads: int

    def meta(self) -> dict[str, Any]:
        """All but the code, as JSON has it."""
        return {
            "name": self.name, "functions": list(self.functions), "buffers": list(self.buffers),
            "dims": list(self.dims), "strides": [list(s) for s in self.strides],
            "scalars": [[n, d.name] for n, d in self.scalars], "workspace": self.workspace, "threads": self.threads,
        }  # fmt: skip

    @staticmethod
    def from_meta(meta: dict[str, Any], code: bytes) -> Artifact:
        return Artifact(
            meta["name"], code, tuple(meta["functions"]), tuple(meta["buffers"]), tuple(meta["dims"]),
            tuple((n, k) for n, k in meta["strides"]), tuple((n, BY_NAME[d]) for n, d in meta["scalars"]),
            meta["workspace"], meta["threads"],
        )  # fmt: skip


def describe() -> TargetDescription:
    """This machine."""
    from .description import host_description

    return host_description()


def supports(program: Program, target: TargetDescription) -> str | None:
    """Why the program cannot run on the target; None when it can."""
    if target.family != "llvm":
        return f"'{target.name}' is a target of the family '{target.family}', not of the LLVM family"
    used = {b.dtype.name for b in program.buffers} | {d.name for _, d in program.scalars}
    used |= {s.buffer.dtype.name for s in walk(program.body) if isinstance(s, Alloc)}
    used |= {v.dtype.name for s in walk(program.body) if isinstance(s, Acc) for v in s.vars}
    missing = sorted(used - set(target.dtypes)) if target.dtypes else []
    if missing:
        return f"'{target.name}' has no element type {', '.join(missing)}"
    loose = next((s for s in program.body if not isinstance(s, ParFor)), None)
    if loose is not None:
        return f"the program has a {type(loose).__name__} outside its parallel loops"
    return None


def render(program: Program, target: TargetDescription, threads: int = 1) -> Artifact:
    """Machine code for the program. `threads`: how many its schedule feeds."""
    from . import jit
    from .render import phase_names, workspace_bytes

    ready = expanded(program, target)
    return Artifact(
        name=program.name,
        code=jit.to_object(llvm_ir(ready, target), target),
        functions=phase_names(ready),
        buffers=tuple(b.name for b in program.buffers),
        dims=program.dims,
        strides=program.strides,
        scalars=program.scalars,
        workspace=sizes.of_expr(workspace_bytes(ready)),
        threads=threads,
    )


def expanded(program: Program, target: TargetDescription) -> Program:
    """The program with functions that no instruction computes written out. Raises what the target cannot do."""
    from ...passes.expand_math import expand

    reason = supports(program, target)
    if reason is not None:
        raise UnsupportedError(f"kernel '{program.name}' cannot be compiled: {reason}")
    return expand(program, target)


def llvm_ir(ready: Program, target: TargetDescription) -> str:
    """The LLVM IR text of an expanded program."""
    from . import render as renderer

    return renderer.render(ready, target)


def assembly(ready: Program, target: TargetDescription) -> str:
    """The assembly text of an expanded program."""
    from . import jit

    return jit.assembly(llvm_ir(ready, target), target)
