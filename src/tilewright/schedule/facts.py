"""What is known of a kernel's arguments when its code is made: the specialisation key.

Everything that is not in here is read at run time, so the same code serves every other value of it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layout:
    """Strides of a tensor argument, per axis: an int is known (in elements: 1 unit stride, 0 broadcast), None is read
    at run time. `dense` means row-major without gaps: the strides then follow from the dims."""

    strides: tuple[int | None, ...]
    dense: bool = False

    @staticmethod
    def row_major(rank: int) -> Layout:
        return Layout((*(None,) * (rank - 1), 1) if rank else (), dense=True)


@dataclass(frozen=True, slots=True)
class Facts:
    """`sizes`: representative value of every dim symbol (for sizing the schedule, never for correctness);
    `static`: dims whose value may be baked into the code; `layouts`: per tensor parameter, in order of the kernel's
    tensors (outputs too); `threads`: how many threads the schedule should feed."""

    sizes: tuple[tuple[str, int], ...]
    static: frozenset[str]
    layouts: tuple[tuple[str, Layout], ...]
    threads: int = 1

    def size(self, name: str) -> int:
        return dict(self.sizes)[name]

    def layout(self, name: str) -> Layout:
        return dict(self.layouts)[name]
