"""How far one result is from another, as one number, and the verdict over many tensors.

The measure is the relative Frobenius error in float64: it does not punish a tiny absolute error near zero, and a single
wrong element of a large tensor still shows. Shapes and the places of NaN and infinity must agree exactly.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def relative_error(got: Any, want: Any) -> float:
    """|got - want| / |want| over all elements; infinite where they cannot be compared at all."""
    a, b = np.asarray(got), np.asarray(want)
    if a.shape != b.shape:
        return math.inf
    a, b = a.astype(np.float64), b.astype(np.float64)
    if a.size == 0:
        return 0.0
    finite = np.isfinite(b)
    if not finite.all():
        # Inf must meet Inf of the same sign, NaN must meet NaN.
        if not np.array_equal(a[~finite], b[~finite], equal_nan=True):
            return math.inf
        a, b = a[finite], b[finite]
    if not np.isfinite(a).all():
        return math.inf
    # Scaled first, so that squares neither overflow nor vanish.
    scale = max(float(np.abs(b).max(initial=0.0)), float(np.abs(a).max(initial=0.0)))
    if scale == 0.0:
        return 0.0
    difference = float(np.linalg.norm((a - b) / scale))
    size = float(np.linalg.norm(b / scale))
    return difference / size if size > 0 else difference


def largest_difference(got: Any, want: Any) -> float:
    """The largest |got - want| of any element; infinite where they cannot be compared."""
    a, b = np.asarray(got), np.asarray(want)
    if a.shape != b.shape:
        return math.inf
    a, b = a.astype(np.float64), b.astype(np.float64)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    if not np.isfinite(a[~same]).all() or not np.isfinite(b[~same]).all():
        return math.inf
    return float(np.abs(a[~same] - b[~same]).max(initial=0.0))


@dataclass(frozen=True, slots=True)
class Parity:
    """One tensor compared: relative error, and the largest difference of any element."""

    name: str
    shape: tuple[int, ...]
    error: float
    tolerance: float
    largest: float = math.nan

    @property
    def ok(self) -> bool:
        return self.error <= self.tolerance

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "shape": list(self.shape), "ok": self.ok}


def compare(ours: Mapping[str, Any], theirs: Mapping[str, Any], tolerance: float) -> list[Parity]:
    """Every tensor of the reference that we have too, in the reference's order."""
    return [
        Parity(
            name, tuple(np.asarray(want).shape), relative_error(ours[name], want), tolerance,
            largest_difference(ours[name], want),
        )  # fmt: skip
        for name, want in theirs.items()
        if name in ours
    ]


def worst(found: list[Parity]) -> Parity | None:
    return max(found, key=lambda p: p.error, default=None)
