"""From a generated case to a scheduled program, as the runtime does it."""

from __future__ import annotations

import random
from typing import Any

from tests.generators import Case
from tilewright.ir.scheduled.core import Program
from tilewright.ir.tile.rewrite import dim_names
from tilewright.passes.lower import lower
from tilewright.schedule.facts import Facts, Layout
from tilewright.schedule.first import first_schedule
from tilewright.targets.description import TargetDescription
from tilewright.targets.interp import describe


def facts_of(case: Case, r: random.Random, threads: int = 2) -> Facts:
    """What a caller with row-major arrays knows; some dims are baked in."""
    static = frozenset(n for n in case.dims if r.random() < 0.3)
    layouts = tuple((p.name, Layout.row_major(p.rank)) for p in case.kernel.tensors)
    return Facts(tuple((n, case.dims[n]) for n in dim_names(case.kernel)), static, layouts, threads)


def program_of(case: Case, seed: Any = 0, target: TargetDescription | None = None) -> Program:
    """The case's program by the first computed schedule."""
    target = target or describe()
    facts = facts_of(case, random.Random(seed))
    return lower(case.kernel, first_schedule(case.kernel, facts, target), facts, target)
