"""Timing that is fair to both sides: in turn, on the same data, warm, and the median of many.

Two programs timed one after the other see different clocks, temperatures and neighbours. So they take turns, and the
order swaps each round. Thread pools keep spinning after a call (onnxruntime's for some 25 ms, torch's for some 5 ms)
and would take a core from whoever comes next: a turn begins only when the process has gone quiet. Then come a few
calls that are not counted, which bring back the caches and the threads that went to sleep.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_QUIET_WINDOW = 0.005  # longer than a scheduler tick, by which a running thread's time is accounted
_QUIET_SHARE = 0.1
_QUIET_LIMIT = 0.1
_WARM_SECONDS = 0.002
_TURN_SECONDS = 0.001
_MAX_CALLS = 2000


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds per call: one figure per turn."""

    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def spread(self) -> float:
        """Half the distance between the quartiles, relative to the median: how far to trust the third digit."""
        if len(self.samples) < 4:
            return 0.0
        low, _, high = statistics.quantiles(self.samples, n=4)
        return (high - low) / 2 / self.median


def interleave(
    functions: Mapping[str, Callable[[], Any]],
    *,
    seconds: float = 2.0,
    rounds: int | None = None,
    min_rounds: int = 5,
    max_rounds: int = 200,
) -> dict[str, Timing]:
    """Time each function in turn, for about `seconds` in all or for a fixed number of `rounds`."""
    calls = {name: _calls_per_turn(run) for name, run in functions.items()}
    samples: dict[str, list[float]] = {name: [] for name in functions}
    names = list(functions)
    least, most = (rounds, rounds) if rounds is not None else (min_rounds, max_rounds)
    deadline = time.perf_counter() + seconds
    done = 0
    while done < most and (done < least or time.perf_counter() < deadline):
        for name in names if done % 2 == 0 else reversed(names):
            samples[name].append(_turn(functions[name], calls[name], pause=len(names) > 1))
        done += 1
    return {name: Timing(tuple(s)) for name, s in samples.items()}


def _calls_per_turn(run: Callable[[], Any]) -> int:
    """Warm up, and find how many calls make a turn long enough for the clock."""
    run()
    start = time.perf_counter()
    run()
    once = time.perf_counter() - start
    if once >= _TURN_SECONDS:
        return 1
    for _ in range(10):  # very short calls need more warming than two
        run()
    start = time.perf_counter()
    for _ in range(10):
        run()
    once = max((time.perf_counter() - start) / 10, 1e-8)
    return max(1, min(_MAX_CALLS, int(_TURN_SECONDS / once)))


def _turn(run: Callable[[], Any], calls: int, *, pause: bool) -> float:
    if pause:
        _wait_until_quiet()
    warm = time.perf_counter() + _WARM_SECONDS
    run()
    while time.perf_counter() < warm:
        run()
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - start) / calls


def _wait_until_quiet() -> None:
    """Sleep until no thread of this process has used the processor for two windows (or one that always does is
    taken as it is)."""
    deadline = time.perf_counter() + _QUIET_LIMIT
    quiet = 0
    while quiet < 2 and time.perf_counter() < deadline:
        used = time.process_time()
        time.sleep(_QUIET_WINDOW)
        quiet = quiet + 1 if time.process_time() - used < _QUIET_WINDOW * _QUIET_SHARE else 0
