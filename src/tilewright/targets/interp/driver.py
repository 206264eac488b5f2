"""The driver of the interpreter: memory is NumPy's, a launch has finished when it returns."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ArgumentError, UnsupportedError
from ...interp import scheduled
from ...ir.scheduled.core import Buffer, IntLike, Program
from ...ir.scheduled.integers import evaluate
from ...ir.scheduled.parser import parse_program
from .backend import Artifact


@dataclass(slots=True)
class Allocation:
    """Memory for kernels; `memory` is None once it is freed."""

    nbytes: int
    memory: np.ndarray[Any, np.dtype[np.uint8]] | None

    def bytes(self) -> np.ndarray[Any, np.dtype[np.uint8]]:
        if self.memory is None:
            raise ArgumentError("this memory was freed")
        return self.memory


@dataclass(frozen=True, slots=True)
class Executable:
    """A program ready to run."""

    artifact: Artifact
    program: Program


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch that was made: when it began and ended, and among how many threads it was shared."""

    started_ns: int
    ended_ns: int
    threads: int


def alloc(nbytes: int) -> Allocation:
    """Memory whose content is poisoned: every byte is 0xFF, which is NaN in all float types."""
    if nbytes < 0:
        raise ArgumentError(f"cannot allocate {nbytes} bytes")
    try:
        return Allocation(nbytes, np.full(nbytes, 0xFF, np.uint8))
    except MemoryError as error:
        raise UnsupportedError(f"there is no memory for {nbytes} bytes") from error


def free(allocation: Allocation) -> None:
    """Gives the memory back. Freeing twice is an error of the caller's."""
    allocation.bytes()
    allocation.memory = None


def copy_in(allocation: Allocation, array: np.ndarray[Any, Any]) -> None:
    """Writes the array's elements in row-major order."""
    _front(allocation, array.nbytes)[:] = np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


def copy_out(allocation: Allocation, array: np.ndarray[Any, Any]) -> None:
    """Fills the array from the memory's elements in row-major order."""
    array[...] = _front(allocation, array.nbytes).copy().view(array.dtype).reshape(array.shape)


def _front(allocation: Allocation, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    memory = allocation.bytes()
    if nbytes > allocation.nbytes:
        raise ArgumentError(f"{nbytes} bytes do not fit an allocation of {allocation.nbytes}")
    return memory[:nbytes]


def load(artifact: Artifact) -> Executable:
    return Executable(artifact, parse_program(artifact.text))


def launch(
    executable: Executable,
    pointers: Mapping[str, Allocation],
    dims: Mapping[str, int],
    strides: Mapping[tuple[str, int], int] | None = None,
    scalars: Mapping[str, Any] | None = None,
    threads: int | None = None,
) -> Launch:
    """Runs the program on these arguments, all by name, and waits for it."""
    program = executable.program
    missing = [b.name for b in program.buffers if b.name not in pointers]
    if missing:
        raise ArgumentError(f"kernel '{program.name}' got no memory for {', '.join(missing)}")
    arrays = {b.name: _array(b, pointers[b.name], dims, strides or {}) for b in program.buffers}
    count = executable.artifact.threads if threads is None else threads
    start = time.perf_counter_ns()
    scheduled.run(program, arrays, dims, scalars, count)
    return Launch(start, time.perf_counter_ns(), count)


def _array(
    b: Buffer, allocation: Allocation, dims: Mapping[str, int], strides: Mapping[tuple[str, int], int],
) -> np.ndarray[Any, Any]:
    """The memory as the program sees it."""

    def number(x: IntLike) -> int:
        found = evaluate(x, dims, strides=strides)
        if found is None:
            raise ArgumentError(f"the shape or strides of '{b.name}' need a dim or stride that was not given")
        return found

    shape, steps = tuple(map(number, b.shape)), tuple(map(number, b.strides))
    if any(s < 0 for s in steps):
        raise ArgumentError(f"'{b.name}' has a negative stride, which starts before its memory")
    used = (1 + sum((n - 1) * s for n, s in zip(shape, steps))) * b.dtype.itemsize if all(shape) else 0
    flat = _front(allocation, used).view(b.dtype.numpy)
    return np.lib.stride_tricks.as_strided(flat, shape, tuple(s * b.dtype.itemsize for s in steps))


def synchronize() -> None:
    """Waits for all launches: here they have ended by the time they return."""


def elapsed(launched: Launch) -> float:
    """Seconds from the beginning of a launch to its end."""
    return (launched.ended_ns - launched.started_ns) / 1e9
