"""The static memory plan: where each intermediate lies in one arena, so that values never alive together share bytes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
ALIGN = 64


@dataclass(frozen=True, slots=True)
class Interval(Generic[K]):
    """A buffer and the steps during which it must keep its contents (both ends included)."""

    key: K
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class MemoryPlan(Generic[K]):
    """`lower_bound` is the most bytes alive at one step: no plan can need less."""

    offsets: dict[K, int]
    nbytes: int
    lower_bound: int


def plan(intervals: Sequence[Interval[K]]) -> MemoryPlan[K]:
    """Largest first, each at the lowest offset that is free during its life (greedy by size)."""
    placed: list[tuple[Interval[K], int, int]] = []
    offsets: dict[K, int] = {}
    total = 0
    for iv in sorted(intervals, key=lambda i: (-i.nbytes, i.first)):
        size = -(-max(1, iv.nbytes) // ALIGN) * ALIGN
        taken = sorted((o, s) for other, o, s in placed if other.first <= iv.last and iv.first <= other.last)
        at = 0
        for start, length in taken:
            if start - at >= size:
                break
            at = max(at, start + length)
        placed.append((iv, at, size))
        offsets[iv.key] = at
        total = max(total, at + size)
    return MemoryPlan(offsets, total, _lower_bound(intervals))


def _lower_bound(intervals: Sequence[Interval[K]]) -> int:
    change: dict[int, int] = {}
    for iv in intervals:
        size = -(-max(1, iv.nbytes) // ALIGN) * ALIGN
        change[iv.first] = change.get(iv.first, 0) + size
        change[iv.last + 1] = change.get(iv.last + 1, 0) - size
    alive = most = 0
    for step in sorted(change):
        alive += change[step]
        most = max(most, alive)
    return most
