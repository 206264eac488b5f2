"""Memory of large results, used again when they are gone.

A fresh large array is paid for twice: once by whoever writes it and once by the system, which hands it over page by
page and clears each. So a block comes back here when the last array that looks into it has died, and the next result
of its size gets it. Blocks use huge pages where the system has them.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from typing import Any

import numpy as np

FROM_BYTES = 4 << 20  # smaller arrays are the C library's business, which keeps their memory itself
KEEP_BYTES = 512 << 20  # most that waits here for its next use
_PAGE = 2 << 20

_lock = threading.RLock()  # an array may die, and come back here, while its thread is in here already
_free: list[tuple[int, mmap.mmap]] = []  # size and memory, the longest unused first


def take(nbytes: int) -> np.ndarray[Any, Any]:
    """At least `nbytes` bytes at a multiple of 2 MiB; contents undefined. Views keep the block alive."""
    size = -(-nbytes // _PAGE) * _PAGE
    memory = _reuse(size) or _reserve(size)
    whole = np.frombuffer(memory, np.uint8)
    start = -int(whole.__array_interface__["data"][0]) % _PAGE
    block = np.frombuffer(memory, np.uint8, size, start)
    weakref.finalize(block, _give_back, size, memory).atexit = False
    return block


def kept_bytes() -> int:
    """What waits to be used again."""
    with _lock:
        return sum(size for size, _ in _free)


def trim() -> None:
    """Gives all that waits back to the system."""
    with _lock:
        _free.clear()


def _reuse(size: int) -> mmap.mmap | None:
    with _lock:
        for k in range(len(_free) - 1, -1, -1):
            if _free[k][0] == size:
                return _free.pop(k)[1]
    return None


def _reserve(size: int) -> mmap.mmap:
    try:
        memory = mmap.mmap(-1, size + _PAGE)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"there is no memory for an array of {size} bytes: {error}") from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:
            pass  # only advice: a kernel without huge pages says no
    return memory


def _give_back(size: int, memory: mmap.mmap) -> None:
    with _lock:
        _free.append((size, memory))
        total = sum(s for s, _ in _free)
        while total > KEEP_BYTES:
            total -= _free.pop(0)[0]


def _renew_lock() -> None:
    """A forked child may have inherited the lock from a thread that it does not have."""
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
