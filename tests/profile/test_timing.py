"""Turns are taken fairly; no time is asserted."""

from __future__ import annotations

import time

from tilewright.profile.timing import Timing, interleave


def test_every_function_gets_the_same_turns() -> None:
    calls = {"a": 0, "b": 0}

    def run(name: str) -> None:
        calls[name] += 1
        time.sleep(0.002)

    found = interleave({"a": lambda: run("a"), "b": lambda: run("b")}, rounds=4)
    assert {name: len(t.samples) for name, t in found.items()} == {"a": 4, "b": 4}
    for count in calls.values():
        assert count >= 2 + 4 * 2  # warm-up, then at least one uncounted call and a counted one each turn
    assert all(s > 0 for t in found.values() for s in t.samples)


def test_a_short_budget_still_gives_enough_samples() -> None:
    found = interleave({"a": lambda: None}, seconds=0.0, min_rounds=3)
    assert len(found["a"].samples) == 3


def test_statistics() -> None:
    t = Timing((1.0, 2.0, 3.0, 4.0, 100.0))
    assert t.median == 3.0
    assert t.spread > 0
    assert Timing((1.0,)).spread == 0.0
