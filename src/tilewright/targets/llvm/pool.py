"""The threads that run compiled code, and the memory they work in.

The native half is `pool_ir.py`. A worker is a Python daemon thread that enters the native loop once (which lets go of
the interpreter) and returns from it when the process ends. One job runs on the pool at a time: a Python thread that
finds it taken runs its job by itself, on its own scratch memory, with the same result.
"""

from __future__ import annotations

import atexit
import ctypes
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

from ...errors import UnsupportedError
from ...runtime import threads as setting
from . import pool_ir as ir

_WAIT_NS = 40_000  # an idle worker spins this long: calls that follow each other closely find it awake
_BARRIER_SPINS = 2_000  # pauses; some tens of microseconds
_HUGE = 2 << 20
_WORKSPACE_MIN = 64 << 10


# ---------------------------------------------------------------------------------------------- memory


class Workspace:
    """Scratch memory of one thread: zero when new, page-aligned, grows on demand (and then starts from zero again)."""

    __slots__ = ("address", "size", "_map")

    def __init__(self) -> None:
        self.address = 0
        self.size = 0
        self._map: mmap.mmap | None = None

    def ensure(self, nbytes: int) -> int:
        """The address of at least `nbytes` bytes."""
        if nbytes > self.size or not self.address:
            self._grow(max(nbytes, _WORKSPACE_MIN))
        return self.address

    def _grow(self, nbytes: int) -> None:
        size = max(nbytes, min(2 * self.size, nbytes + (64 << 20)))
        big = size >= _HUGE
        try:
            memory = mmap.mmap(-1, size + (_HUGE if big else 0))
        except (OSError, OverflowError, ValueError) as error:
            raise UnsupportedError(f"cannot reserve {size} bytes of scratch memory for a thread: {error}") from error
        start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        if big and hasattr(mmap, "MADV_HUGEPAGE"):
            start = -(-start // _HUGE) * _HUGE  # huge pages need their own alignment
            try:
                memory.madvise(mmap.MADV_HUGEPAGE)
            except OSError:
                pass  # only advice: a kernel without huge pages says no
        self._map, self.address, self.size = memory, start, size


class _Local(threading.local):
    def __init__(self) -> None:
        self.workspace = Workspace()


_local = _Local()


def own_workspace(nbytes: int) -> int:
    """The address of the calling thread's own scratch memory."""
    return _local.workspace.ensure(nbytes)


# ---------------------------------------------------------------------------------------------- native functions


class _Native:
    """The compiled functions of pool_ir, callable."""

    def __init__(self) -> None:
        from ...runtime.cache import CompileCache
        from . import jit
        from .description import host_description

        target = host_description()
        if not sys.platform.startswith("linux"):
            raise UnsupportedError(f"the thread pool needs Linux, not {sys.platform}", hint="set_threads(1) works")
        text = ir.module(target.triple)
        cache = CompileCache()
        key = cache.key("pool", text, target)
        entry = cache.get(key)
        payload = entry.payload if entry else jit.to_object(text, target)
        if entry is None:
            cache.put(key, payload)
        self.module = jit.load(payload, ir.FUNCTIONS)
        word, pointer = ctypes.c_int64, ctypes.c_void_p
        self.worker = self._function("tw_worker", None, pointer, word)
        self.run = self._function("tw_run", None, pointer, pointer, word, word, pointer)
        self.run_single = self._function("tw_run_single", None, pointer, word, pointer, pointer)
        self.clock = self._function("tw_clock", ctypes.c_uint64)
        self.nothing = self.module.address("tw_nothing")
        self.futex = ir.futex_number(ir.architecture(target.triple))
        self._since = (self.clock(), time.perf_counter_ns())

    def _function(self, name: str, result: Any, *args: Any) -> Callable[..., Any]:
        return ctypes.CFUNCTYPE(result, *args)(self.module.address(name))

    def ticks_per_ns(self, baseline_ns: int = 5_000_000) -> float:
        """The rate of `tw_clock`, over at least `baseline_ns` since it was loaded."""
        missing = self._since[1] + baseline_ns - time.perf_counter_ns()
        if missing > 0:
            time.sleep(missing / 1e9)
        return (self.clock() - self._since[0]) / (time.perf_counter_ns() - self._since[1])


_native_lock = threading.Lock()
_native: _Native | None = None


def native() -> _Native:
    global _native
    if _native is None:
        with _native_lock:
            if _native is None:
                _native = _Native()
    return _native


@lru_cache(maxsize=1)
def _libc_addresses() -> tuple[int, int]:
    libc = _libc()
    return tuple(ctypes.cast(f, ctypes.c_void_p).value or 0 for f in (libc.syscall, libc.sched_yield))  # type: ignore[return-value]


def _current_core() -> int:
    """The core the calling thread is on; below zero where the system does not say."""
    return int(_libc().sched_getcpu()) if hasattr(_libc(), "sched_getcpu") else -1


@lru_cache(maxsize=1)
def _libc() -> Any:
    return ctypes.CDLL(None)


# ---------------------------------------------------------------------------------------------- the pool


class Pool:
    """`size` threads: the caller, which is thread 0, and `size - 1` workers."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._native = native()
        self._memory = mmap.mmap(-1, ir.POOL_BYTES)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._workspaces = [Workspace() for _ in range(size)]
        self._workspace_bytes = 0
        # Spinning helps only a thread that has a core of its own.
        alone = size <= setting.usable_cores()
        syscall, give_way = _libc_addresses()
        self._put(ir.WAIT_TICKS, int(_WAIT_NS * self._native.ticks_per_ns(300_000)) if alone else 0)
        self._put(ir.BARRIER_SPINS, _BARRIER_SPINS if alone else 16)
        self._put(ir.SYSCALL, syscall)
        self._put(ir.YIELD, give_way)
        self._put(ir.FUTEX, self._native.futex)
        self.reserve(0)
        self._workers: list[threading.Thread] = []
        self._callers_core = -1
        self._start()

    def _start(self) -> None:
        for tid in range(1, self.size):
            args = (self.address, tid)
            worker = threading.Thread(target=self._native.worker, args=args, name=f"tilewright-{tid}", daemon=True)
            try:
                worker.start()
            except RuntimeError as error:
                self.close()
                raise UnsupportedError(
                    f"cannot start {self.size - 1} worker threads: {error}", hint="set_threads(n) with a smaller number"
                ) from error
            self._workers.append(worker)

    def reserve(self, nbytes: int) -> None:
        """Give every thread at least `nbytes` of scratch memory. Only between jobs."""
        if nbytes > self._workspace_bytes or not self._workspace_bytes:
            for tid, workspace in enumerate(self._workspaces):
                self._put(ir.WORKSPACES + 8 * tid, workspace.ensure(nbytes))
            self._workspace_bytes = self._workspaces[0].size

    def run(self, steps: int, nsteps: int, nthreads: int, workspace: int = 0, stamps: int = 0) -> None:
        """Runs a table of steps on the first `nthreads` threads; the caller holds the pool's lock."""
        if workspace > self._workspace_bytes:
            self.reserve(workspace)
        if ctypes.c_int32.from_address(self.address + ir.SLEEPERS).value:
            self._leave_room()
        self._native.run(self.address, steps, nsteps, nthreads, stamps)

    def _leave_room(self) -> None:
        """Keeps workers that are about to be woken off the caller's core. Left alone, the system likes to wake a thread
        where its waker runs, and it takes many milliseconds to find out that the two wait for each other."""
        core = _current_core()
        if core == self._callers_core or core < 0:
            return
        self._callers_core = core
        allowed = os.sched_getaffinity(0)
        for worker in self._workers:
            try:
                os.sched_setaffinity(worker.native_id or 0, (allowed - {core}) or allowed)
            except OSError:
                pass  # only a hint: the worker runs wherever the system puts it

    def close(self) -> None:
        """Ends the workers. Only between jobs."""
        ctypes.c_int32.from_address(self.address + ir.SHUTDOWN).value = 1
        word = ctypes.c_uint32.from_address(self.address + ir.JOB_WORD)
        word.value = ((word.value >> ir.THREAD_BITS) + 1 << ir.THREAD_BITS) & 0xFFFFFFFF or 1 << ir.THREAD_BITS
        wake = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_int)(
            _libc_addresses()[0]
        )
        while any(w.is_alive() for w in self._workers):
            # Again and again: a worker may be just about to sleep, and this store is not ordered with its count.
            wake(self._native.futex, self.address, 129, 0x7FFFFFFF)
            for worker in self._workers:
                worker.join(0.001)

    def _put(self, offset: int, value: int) -> None:
        ctypes.c_int64.from_address(self.address + offset).value = value


_lock = threading.Lock()
_pool: Pool | None = None
_closed = False


def launch(steps: int, nsteps: int, nthreads: int, workspace: int = 0, stamps: int = 0) -> int:
    """Runs the table of `nsteps` steps at address `steps` and waits for its end. `workspace` is what each thread
    needs, in bytes; `stamps` the address of two 64-bit counters per step (ticks, times run) to add to, or 0. Returns
    the number of threads used: 1 while another Python thread has the pool."""
    size = setting.threads()  # once: another Python thread may set it at any time, and a job must fit its pool
    nthreads = min(nthreads, size)
    if nthreads > 1 and _lock.acquire(blocking=False):
        try:
            pool = _pool if _pool is not None and _pool.size == size else _renew(size)
            if pool is not None:
                pool.run(steps, nsteps, nthreads, workspace, stamps)
                return nthreads
        finally:
            _lock.release()
    native().run_single(steps, nsteps, own_workspace(workspace), stamps)
    return 1


def _renew(size: int) -> Pool | None:
    """A pool of `size` threads; None while the interpreter is on its way out, when no thread may be started."""
    global _pool
    if _closed or not threading.main_thread().is_alive():
        return None
    old, _pool = _pool, None
    if old is not None:
        old.close()
    _pool = Pool(size)
    return _pool


def _shut_down() -> None:
    """At exit. A job that still runs (on a daemon thread) keeps the pool; the process ends around it."""
    global _closed, _pool
    if _lock.acquire(timeout=0.5):
        try:
            _closed = True
            old, _pool = _pool, None
            if old is not None:
                old.close()
        finally:
            _lock.release()


def _forget() -> None:
    """In a forked child the workers are gone, and locks may have been held by threads that are gone too."""
    global _lock, _native_lock, _pool
    _lock, _native_lock, _pool = threading.Lock(), threading.Lock(), None


atexit.register(_shut_down)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


# ---------------------------------------------------------------------------------------------- steps


class Steps:
    """A table of steps. The objects that the steps point to are the caller's to keep alive."""

    __slots__ = ("words", "address", "count")

    def __init__(self, rows: Iterable[Sequence[int]]) -> None:
        """Rows are (fn, args, kind, target, flags); the tail may be left out."""
        table = [tuple(row) for row in rows]
        flat = [word for row in table for word in (*row, *(0,) * (ir.STEP_WORDS - len(row)))]
        self.words = (ctypes.c_int64 * max(1, len(flat)))(*flat)
        self.address = ctypes.addressof(self.words)
        self.count = len(table)
