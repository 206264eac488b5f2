"""How many threads kernels run on: `threads()`, `set_threads(n)` and the variable TILEWRIGHT_THREADS.

Only the number lives here (importing it costs nothing); the threads themselves are `targets/llvm/pool.py`.
"""

from __future__ import annotations

import os

from ..errors import ArgumentError

VARIABLE = "TILEWRIGHT_THREADS"
MAX_THREADS = 4095  # as many as a job word can count (targets/llvm/pool_ir.py)

_chosen: int | None = None  # by set_threads
_default: int | None = None  # from the environment or the machine; looked up once


def threads() -> int:
    """The number of threads a kernel may use. Results never depend on it."""
    return _chosen if _chosen is not None else _find_default()


def set_threads(n: int | None) -> None:
    """Use `n` threads from the next call on; None goes back to the default (one per physical core)."""
    global _chosen
    _chosen = None if n is None else checked(n, "set_threads")


def usable_cores() -> int:
    """Cores that this process may use right now (affinity may change while it runs)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _find_default() -> int:
    global _default
    if _default is None:
        text = os.environ.get(VARIABLE, "").strip()
        if text:
            _default = checked(int(text) if text.isdecimal() else text, VARIABLE)
        else:
            from . import machine

            _default = max(1, min(machine.host().usable_physical_cores, usable_cores(), MAX_THREADS))
    return _default


def checked(n: object, source: str) -> int:
    if not isinstance(n, int) or isinstance(n, bool) or not 1 <= n <= MAX_THREADS:
        raise ArgumentError(f"{source}: the number of threads is from 1 to {MAX_THREADS}, not {n!r}")
    return n


def _forget_default() -> None:
    """A forked process may be pinned elsewhere."""
    global _default
    _default = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_default)
