"""The static memory plan: where each intermediate lies in one arena; values never alive together share bytes."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
ALIGN = 64
_TRIES = 200


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
    """Each buffer at the lowest offset that is free during its life, taken in the best of a few orders; where none
    reaches the lower bound, small changes of the best order are tried (the same ones every time)."""
    bound = _lower_bound(intervals)
    best = _place(sorted(intervals, key=lambda i: (-i.nbytes, i.first)))
    order = list(intervals)
    for candidate in _orders(intervals):
        if best.nbytes <= bound:
            return best
        found = _place(candidate)
        if found.nbytes < best.nbytes:
            best, order = found, candidate
    if len(order) < 2:
        return best
    rnd = random.Random(0)
    for _ in range(_TRIES if len(order) < 500 else 0):
        if best.nbytes <= bound:
            break
        changed = list(order)
        changed.insert(rnd.randrange(len(order)), changed.pop(rnd.randrange(len(order))))
        found = _place(changed)
        if found.nbytes <= best.nbytes:
            best, order = found, changed
    return best


def _orders(intervals: Sequence[Interval[K]]) -> Iterator[list[Interval[K]]]:
    change: dict[int, int] = {}
    for iv in intervals:
        change[iv.first] = change.get(iv.first, 0) + _rounded(iv)
        change[iv.last + 1] = change.get(iv.last + 1, 0) - _rounded(iv)
    alive, level = {}, 0
    for step in sorted(change):
        level += change[step]
        alive[step] = level

    def crowd(iv: Interval[K]) -> int:
        return max(n for step, n in alive.items() if iv.first <= step <= iv.last)

    yield sorted(intervals, key=lambda i: (-i.nbytes, i.first))
    yield sorted(intervals, key=lambda i: (-crowd(i), i.first - i.last, -i.nbytes))
    yield sorted(intervals, key=lambda i: -i.nbytes * (i.last - i.first + 1))
    yield sorted(intervals, key=lambda i: (-i.last, -i.nbytes))
    yield sorted(intervals, key=lambda i: (i.first, -i.nbytes))


def _rounded(iv: Interval[K]) -> int:
    return -(-max(1, iv.nbytes) // ALIGN) * ALIGN


def _place(order: Sequence[Interval[K]]) -> MemoryPlan[K]:
    placed: list[tuple[Interval[K], int, int]] = []
    offsets: dict[K, int] = {}
    total = 0
    for iv in order:
        size = _rounded(iv)
        taken = sorted((o, s) for other, o, s in placed if other.first <= iv.last and iv.first <= other.last)
        at = 0
        for start, length in taken:
            if start - at >= size:
                break
            at = max(at, start + length)
        placed.append((iv, at, size))
        offsets[iv.key] = at
        total = max(total, at + size)
    return MemoryPlan(offsets, total, _lower_bound(order))


def _lower_bound(intervals: Sequence[Interval[K]]) -> int:
    change: dict[int, int] = {}
    for iv in intervals:
        size = _rounded(iv)
        change[iv.first] = change.get(iv.first, 0) + size
        change[iv.last + 1] = change.get(iv.last + 1, 0) - size
    alive = most = 0
    for step in sorted(change):
        alive += change[step]
        most = max(most, alive)
    return most
