"""Views: a value's elements inside someone's buffer. Transposes, slices, broadcasts and most reshapes cost nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..ir.graph.core import Value


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(1, n)
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class View:
    """Element (i, j, ...) of `shape` lies at `offset + sum(i * strides)`, in elements, of the buffer of `base`."""

    base: Value
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0

    @staticmethod
    def whole(value: Value) -> View:
        shape = value.type.static_shape
        return View(value, shape, row_major(shape))

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def dense(self) -> bool:
        """Row-major without gaps (an axis of one may have any stride)."""
        step = 1
        for n, s in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if n != 1 and s != step:
                return self.size == 0
            step *= n
        return True

    def transpose(self, perm: Sequence[int]) -> View:
        return View(self.base, tuple(self.shape[p] for p in perm), tuple(self.strides[p] for p in perm), self.offset)

    def broadcast(self, shape: Sequence[int]) -> View:
        """NumPy's right-aligned broadcasting."""
        extra = len(shape) - len(self.shape)
        strides = [0] * extra + [s if n == m else 0 for n, s, m in
                                 zip(self.shape, self.strides, shape[extra:], strict=True)]
        return View(self.base, tuple(shape), tuple(strides), self.offset)

    def slice(self, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> View:
        offset = self.offset + sum(b * s for b, s in zip(starts, self.strides, strict=True))
        return View(self.base, tuple(sizes), tuple(k * s for k, s in zip(steps, self.strides, strict=True)), offset)

    def reshaped(self, shape: Sequence[int]) -> View:
        """`reshape` of a view that is known to allow it."""
        found = self.reshape(shape)
        assert found is not None, (self, shape)
        return found

    def reshape(self, shape: Sequence[int]) -> View | None:
        """The same elements in another shape, or None when no strides say so."""
        shape = tuple(shape)
        if prod(shape) != self.size:
            return None
        if self.size == 0:
            return View(self.base, shape, row_major(shape), self.offset)
        old = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]
        strides: list[int] = []
        k = 0
        new = list(shape)
        at = 0
        while at < len(new):
            if new[at] == 1:
                strides.append(0)
                at += 1
                continue
            # gather old axes and new axes that cover the same number of elements
            group_old, group_new = [old[k]], [new[at]]
            k, at = k + 1, at + 1
            while prod(n for n, _ in group_old) != prod(group_new):
                if prod(n for n, _ in group_old) < prod(group_new):
                    group_old.append(old[k])
                    k += 1
                else:
                    group_new.append(new[at])
                    at += 1
            for (_, s0), (n1, s1) in zip(group_old, group_old[1:], strict=False):
                if s0 != s1 * n1:
                    return None
            step = group_old[-1][1]
            part = []
            for n in reversed(group_new):
                part.append(step)
                step *= n
            strides += reversed(part)
        return View(self.base, shape, tuple(strides), self.offset)


def collapse(views: Sequence[View]) -> list[View]:
    """The same views with as few axes as all of them allow (neighbouring axes merged, axes of one dropped)."""
    shape = views[0].shape
    keep = [k for k, n in enumerate(shape) if n != 1]
    groups: list[list[int]] = []
    for k in keep:
        if groups and all(v.strides[groups[-1][-1]] == v.strides[k] * shape[k] for v in views):
            groups[-1].append(k)
        else:
            groups.append([k])
    if not groups:
        return [View(v.base, (1,), (1,), v.offset) for v in views]
    out = []
    for v in views:
        out.append(View(v.base, tuple(prod(shape[k] for k in g) for g in groups),
                        tuple(v.strides[g[-1]] for g in groups), v.offset))
    return out
