"""A schedule: every decision about how a kernel runs, as data. Serialises to one line of JSON.

Knobs and what they cost are checked by `check` before anything is compiled: an illegal schedule is refused, with a
reason.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

from ..errors import ScheduleError
from ..targets.description import TargetDescription

Source = Literal["direct", "staged", "packed"]


@dataclass(frozen=True, slots=True)
class DotPlan:
    """How one matrix product runs. `rows` x `cols` is the register block. `a`: 'direct' reads the operand where it lies
    if its layout and bounds allow, 'staged' copies it to scratch first. `b`: the same (staged into panels of `cols`),
    or 'packed': the argument already comes in panels (see passes/pack.py). `depth` is the most steps of the inner
    dimension between two visits of the accumulators' memory. `group`: how many steps an instruction takes at once (the
    target's `products`); operands are then staged or packed for it, and `depth` is a multiple of it. `prefetch`: how
    many steps ahead of their use rows of b are fetched into the nearest cache (0: left to the machine)."""

    rows: int
    cols: int
    a: Source = "staged"
    b: Source = "staged"
    depth: int = 256
    group: int = 1
    prefetch: int = 0


@dataclass(frozen=True, slots=True)
class Schedule:
    """`tiles`: size of every tile axis, by name. `dots`: one plan per matrix product, in program order. `lanes`: vector
    width of everything else, in bits. `threads`: how many take part (1: the caller alone)."""

    tiles: tuple[tuple[str, int], ...]
    dots: tuple[DotPlan, ...] = ()
    vector_bits: int = 512
    unroll: int = 4
    threads: int = 1

    def tile(self, axis: str) -> int:
        for name, size in self.tiles:
            if name == axis:
                return size
        raise ScheduleError(f"the schedule has no tile size for axis '{axis}'")

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> Schedule:
        try:
            raw: dict[str, Any] = json.loads(text)
            return Schedule(
                tiles=tuple((str(n), int(s)) for n, s in raw["tiles"]),
                dots=tuple(DotPlan(**d) for d in raw["dots"]),
                vector_bits=int(raw["vector_bits"]),
                unroll=int(raw["unroll"]),
                threads=int(raw["threads"]),
            )
        except (ValueError, KeyError, TypeError) as e:
            raise ScheduleError(f"not a schedule: {e}", hint="a schedule is the line that explain() prints") from e


def check(schedule: Schedule, target: TargetDescription) -> None:
    """Raises ScheduleError with the first knob that this target cannot do."""
    for name, size in schedule.tiles:
        if size < 1:
            raise ScheduleError(f"tile size of axis '{name}' is {size}; it must be at least 1")
    if schedule.vector_bits > target.vector_bits:
        raise ScheduleError(f"vectors of {schedule.vector_bits} bits on a target of {target.vector_bits}")
    for i, d in enumerate(schedule.dots):
        lanes = target.lanes(32)
        if d.rows < 1 or d.cols < 1 or d.depth < 1:
            raise ScheduleError(f"product {i}: rows, cols and depth must be at least 1")
        if d.group != 1 and (d.depth % d.group or d.group not in {p.group for p in target.products}):
            raise ScheduleError(f"product {i}: {target.name} cannot take {d.group} of {d.depth} steps at once")
        if d.prefetch < 0:
            raise ScheduleError(f"product {i}: prefetch is {d.prefetch}; it must be at least 0")
        used = d.rows * -(-d.cols // lanes) + -(-d.cols // lanes) + 1
        if used > target.vector_registers:
            raise ScheduleError(
                f"product {i}: a {d.rows} x {d.cols} register block needs {used} vector registers; "
                f"{target.name} has {target.vector_registers}"
            )
