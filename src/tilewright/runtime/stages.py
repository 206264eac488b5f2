"""The one way from Tile IR to a program for a target: passes on Tile IR, a schedule, lowering.

Kernel calls and the regions of models both go through here; `explain` prints what it gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..ir.scheduled.core import Program
    from ..ir.tile.core import Kernel
    from ..schedule.facts import Facts
    from ..schedule.schedule import Schedule
    from ..targets.description import TargetDescription


@dataclass(frozen=True, slots=True)
class Stages:
    """A kernel as it is scheduled, and all that its program follows from."""

    kernel: Kernel
    facts: Facts
    target: TargetDescription
    schedule: Schedule

    def program(self) -> Program:
        """Scheduled IR; lowered anew each time."""
        from ..passes.lower import lower

        return lower(self.kernel, self.schedule, self.facts, self.target)


def stages(kernel: Kernel, facts: Facts, target: TargetDescription, packed: dict[str, int] | None = None) -> Stages:
    """`packed`: tensors that arrive in panels of so many columns."""
    from ..passes.split_loops import cut_dead_ranges
    from ..schedule.first import first_schedule

    kernel = cut_dead_ranges(kernel)
    return Stages(kernel, facts, target, first_schedule(kernel, facts, target, packed))
