"""The driver of the LLVM family: memory, loading and launching, in this process.

Memory is the process's own, so copying in and out is a plain copy, and a launch has finished when it returns.
"""

from __future__ import annotations

import ctypes
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import ArgumentError, UnsupportedError
from ...ir.types import DType
from ...runtime import arrays, sizes
from . import pool, pool_ir
from .backend import Artifact

_KERNEL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
_FORMATS = {
    "f64": "d", "f32": "f", "f16": "e", "i8": "b", "i16": "h", "i32": "i", "i64": "q", "u8": "B", "u16": "H",
    "u32": "I", "u64": "Q", "bool": "?",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Allocation:
    """Memory for kernels; `memory` is None once it is freed."""

    address: int
    nbytes: int
    memory: list[Any]


@dataclass(frozen=True, slots=True)
class Launch:
    """A launch that was made: when it began and ended, and how many threads it had."""

    started_ns: int
    ended_ns: int
    threads: int


class Executable:
    """Loaded code. `direct` calls one phase on the calling thread; `run` runs all of them."""

    __slots__ = ("artifact", "module", "direct", "only", "_addresses", "_steps", "_table", "_size")

    def __init__(self, artifact: Artifact) -> None:
        from . import jit

        self.artifact = artifact
        self.module = jit.load(artifact.code, artifact.functions)
        self._addresses = tuple(self.module.address(f) for f in artifact.functions)
        self.direct = tuple(_KERNEL(a) for a in self._addresses)
        self.only = self.direct[0] if len(self.direct) == 1 else None
        words = len(artifact.buffers) + len(artifact.dims) + len(artifact.strides) + len(artifact.scalars)
        self._table = 8 * pool_ir.STEP_WORDS * len(self.direct)
        self._size = self._table + 8 * max(1, words)
        self._steps = struct.Struct(f"<{pool_ir.STEP_WORDS * len(self.direct)}q")

    def run(self, block: bytes, threads: int, workspace: int) -> int:
        """Runs all phases on up to `threads` threads; how many there were. `block` holds the argument words."""
        if threads > 1:
            memory = ctypes.create_string_buffer(self._size)
            start = ctypes.addressof(memory)
            self._write_steps(memory, start + self._table)
            ctypes.memmove(start + self._table, block, len(block))
            return pool.launch(start, len(self.direct), threads, workspace)
        scratch = pool.own_workspace(workspace) if workspace else None
        for call in self.direct:
            call(block, 0, 1, scratch)
        return 1

    def steps(self, args: int) -> list[tuple[int, int, int, int, int]]:
        """The phases as rows of a step table (a job may hold several executables'); `args`: their block's address."""
        return [(a, args, pool_ir.CALL_ALL, 0, pool_ir.BARRIER_AFTER) for a in self._addresses]

    def _write_steps(self, memory: Any, args: int) -> None:
        padding = (0,) * (pool_ir.STEP_WORDS - 5)
        self._steps.pack_into(memory, 0, *(word for row in self.steps(args) for word in (*row, *padding)))


# ---------------------------------------------------------------------------------------------- memory


def alloc(nbytes: int) -> Allocation:
    """Memory at a multiple of 64 bytes; contents undefined."""
    if nbytes < 0:
        raise ArgumentError(f"cannot allocate {nbytes} bytes")
    try:
        memory = np.empty(nbytes + arrays.ALIGNMENT, np.uint8)
    except MemoryError as error:
        raise UnsupportedError(f"there is no memory for {nbytes} bytes") from error
    base = arrays.numpy_pointer(memory)
    return Allocation(base + (-base & (arrays.ALIGNMENT - 1)), nbytes, [memory])


def free(allocation: Allocation) -> None:
    """Gives the memory back. Freeing twice is an error of the caller's."""
    if not allocation.memory:
        raise ArgumentError("this memory was freed before")
    allocation.memory.clear()


def copy_in(allocation: Allocation, array: np.ndarray[Any, Any]) -> None:
    """Writes the array's elements in row-major order."""
    view = _view(allocation, array.nbytes)
    view[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def copy_out(allocation: Allocation, array: np.ndarray[Any, Any]) -> None:
    """Fills the array from the memory's elements in row-major order."""
    view = _view(allocation, array.nbytes)
    array[...] = view.view(array.dtype).reshape(array.shape)


def _view(allocation: Allocation, nbytes: int) -> np.ndarray[Any, Any]:
    if not allocation.memory:
        raise ArgumentError("this memory was freed")
    if nbytes > allocation.nbytes:
        raise ArgumentError(f"{nbytes} bytes do not fit an allocation of {allocation.nbytes}")
    start = allocation.address - arrays.numpy_pointer(allocation.memory[0])
    view: np.ndarray[Any, Any] = allocation.memory[0][start : start + nbytes]
    return view


# ---------------------------------------------------------------------------------------------- code


def load(artifact: Artifact) -> Executable:
    return Executable(artifact)


def launch(
    executable: Executable,
    pointers: Mapping[str, int | Allocation],
    dims: Mapping[str, int],
    strides: Mapping[tuple[str, int], int] | None = None,
    scalars: Mapping[str, Any] | None = None,
    threads: int | None = None,
) -> Launch:
    """Runs the code on these arguments, all by name, and waits for it."""
    a = executable.artifact
    strides, scalars = strides or {}, scalars or {}
    words = [p.address if isinstance(p := pointers[b], Allocation) else p for b in a.buffers]
    words += [dims[d] for d in a.dims] + [strides[s] for s in a.strides]
    block = pack_words(words) + b"".join(pack_scalar(scalars[n], d) for n, d in a.scalars)
    names = {**dims, **{sizes.stride_name(*k): v for k, v in strides.items()}}
    workspace = sizes.evaluate(a.workspace, names)
    start = time.perf_counter_ns()
    used = executable.run(block, a.threads if threads is None else threads, workspace)
    return Launch(start, time.perf_counter_ns(), used)


def synchronize() -> None:
    """Waits for all launches: on a CPU they have ended by the time they return."""


def elapsed(launched: Launch) -> float:
    """Seconds from the beginning of a launch to its end."""
    return (launched.ended_ns - launched.started_ns) / 1e9


def pack_words(words: Sequence[int]) -> bytes:
    return struct.pack(f"<{len(words)}q", *words)


def pack_scalar(value: Any, dtype: DType) -> bytes:
    """One word of the argument block: the value's bits in the low bytes."""
    if dtype.name in _FORMATS:
        try:
            return struct.pack("<" + _FORMATS[dtype.name], value).ljust(8, b"\0")
        except OverflowError:  # a float too large for its type is infinite
            pass
    with np.errstate(over="ignore"):
        return np.asarray(value, dtype.numpy).tobytes().ljust(8, b"\0")
