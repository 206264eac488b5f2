"""The static memory plan: where each intermediate lies in one arena; values never alive together share bytes."""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
ALIGN = 64
_TRIES = 1000
_WORK = 4_000_000  # tries times the square of buffers: about half a second


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


@dataclass(frozen=True, slots=True)
class _Layout(Generic[K]):
    order: tuple[Interval[K], ...]
    high: frozenset[K]
    offsets: dict[K, int]
    nbytes: int


def plan(intervals: Sequence[Interval[K]]) -> MemoryPlan[K]:
    """Buffers one by one at the lowest offset that is free during their life, in the best of a few orders. Where none
    reaches the lower bound, small changes are tried (the same ones every time): another order, or a buffer at the upper
    end of the bound instead, so that those between two large ones stay in one piece."""
    bound = _lower_bound(intervals)
    best: _Layout[K] | None = None
    for order in _orders(intervals):
        found = _place(order, frozenset(), bound)
        best = found if best is None or found.nbytes < best.nbytes else best
        if best.nbytes <= bound:
            break
    assert best is not None
    rnd = random.Random(0)
    for _ in range(min(_TRIES, _WORK // max(1, len(intervals)) ** 2) if len(intervals) > 1 else 0):
        if best.nbytes <= bound:
            break
        found = _changed(best, bound, rnd)
        best = found if found.nbytes <= best.nbytes else best
    return MemoryPlan(best.offsets, best.nbytes, bound)


def _changed(layout: _Layout[K], bound: int, rnd: random.Random) -> _Layout[K]:
    order, high = list(layout.order), layout.high
    if rnd.random() < 0.5:
        order.insert(rnd.randrange(len(order)), order.pop(rnd.randrange(len(order))))
    else:
        high = high ^ {rnd.choice(order).key}
    return _place(order, high, bound)


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


def _place(order: Sequence[Interval[K]], high: frozenset[K], bound: int) -> _Layout[K]:
    """Each at its lowest free offset; those in `high` at the highest that ends below the bound, where there is one."""
    placed: list[tuple[Interval[K], int, int]] = []
    offsets: dict[K, int] = {}
    total = 0
    for iv in order:
        size = _rounded(iv)
        taken = sorted((o, s) for other, o, s in placed if other.first <= iv.last and iv.first <= other.last)
        at, gaps = 0, []
        for start, length in taken:
            if start - at >= size:
                gaps.append((at, start))
            at = max(at, start + length)
        gaps.append((at, max(bound, at + size)))
        ends = [end for _, end in gaps if end <= bound] if iv.key in high else []
        at = ends[-1] - size if ends else gaps[0][0]
        placed.append((iv, at, size))
        offsets[iv.key] = at
        total = max(total, at + size)
    return _Layout(tuple(order), high, offsets, total)


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
