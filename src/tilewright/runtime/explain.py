"""A kernel at every level, as text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .dispatch import Call, Dispatcher


def explain(
    calls: Dispatcher, call: Call, *, passes: bool = False, assembly: bool = False, llvm: bool = False
) -> str:
    """Tile IR, the schedule and Scheduled IR of a kernel for this call; on request the program after each pass, LLVM IR
    and assembly."""
    from ..ir.scheduled.printer import program_text
    from ..ir.tile.printer import kernel_text
    from ..targets.llvm import backend

    stages = calls.stages(call)
    key = calls.key(call)
    arguments = [f"{n}: {i.dtype}{list(i.shape)} strides {list(i.strides)}" for n, i in call.infos.items()]
    arguments += [f"{n} = {v!r}" for n, v in {**call.scalars, **call.static}.items()]
    sizes = [f"{n} = {call.dims[n]} (scheduled for {size})" for n, size in key.dims]
    program = stages.program()
    ready = backend.expanded(program, stages.target)
    parts = [("Arguments", "\n".join(arguments + sizes))]
    if passes:
        parts.append(("Tile IR as parsed", kernel_text(calls.tile_ir(call))))
    parts += [
        ("Tile IR" + (" after cut_dead_ranges" if passes else ""), kernel_text(stages.kernel)),
        (f"Schedule for {stages.target.name}", schedule_text(stages.schedule.to_json())),
        ("Scheduled IR", program_text(program)),
    ]
    if passes:
        parts.append(("Scheduled IR after expand_math", program_text(ready)))
    if llvm or passes:
        parts.append(("LLVM IR", backend.llvm_ir(ready, stages.target)))
    if assembly:
        parts.append(("Assembly", backend.assembly(ready, stages.target)))
    return "\n\n".join(f"== {title} ==\n{text.rstrip()}" for title, text in parts) + "\n"


def schedule_text(line: str) -> str:
    """The schedule's line of JSON, and below it the tile sizes as people read them."""
    raw = json.loads(line)
    tiles = ", ".join(f"{n} by {s}" for n, s in raw.get("tiles", []))
    lines = [line, f"tiles: {tiles or 'none'}", f"threads: {raw.get('threads', 1)}"]
    for i, d in enumerate(raw.get("dots", [])):
        lines.append(f"product {i}: " + ", ".join(f"{k} {v}" for k, v in d.items()))
    return "\n".join(lines)
