"""The error measure: what counts as equal, and what never does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tilewright.certify.compare import compare, relative_error, worst


def test_relative_error_is_relative() -> None:
    want = np.random.default_rng(0).standard_normal(1000)
    for scale in (1e-300, 1e-30, 1.0, 1e30, 1e300):
        assert relative_error(want * scale * (1 + 1e-6), want * scale) == pytest.approx(1e-6, rel=1e-3)


def test_special_values() -> None:
    nan, inf = math.nan, math.inf
    assert relative_error([nan, inf, -inf, 1], [nan, inf, -inf, 1]) == 0
    for got, want in [
        ([inf], [-inf]),
        ([nan], [1.0]),
        ([1.0], [nan]),
        ([inf], [1.0]),
        ([1.0, 2], [1.0]),
        ([nan], [inf]),
    ]:
        assert relative_error(got, want) == math.inf


def test_edges() -> None:
    assert relative_error(np.zeros((0, 3)), np.zeros((0, 3))) == 0
    assert relative_error(np.zeros(3), np.zeros(3)) == 0
    assert relative_error(np.ones(3), np.zeros(3)) > 0.5
    assert relative_error(np.float32(2), np.float32(2)) == 0
    assert relative_error(np.array([True, False]), np.array([True, False])) == 0
    assert relative_error(np.array([True, True]), np.array([True, False])) > 0.5


def test_one_wrong_element_of_many_shows() -> None:
    want = np.ones(1_000_000, np.float32)
    got = want.copy()
    got[7] = 3
    assert relative_error(got, want) == pytest.approx(2e-3, rel=1e-3)


def test_compare_keeps_the_references_order() -> None:
    one = np.ones(2)
    found = compare({"b": one, "a": one * 1.1, "ours only": one}, {"a": one, "b": one, "theirs only": one}, 1e-3)
    assert [(p.name, p.ok) for p in found] == [("a", False), ("b", True)]
    bad = worst(found)
    assert bad is not None and bad.name == "a"
    assert worst([]) is None
