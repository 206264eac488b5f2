"""Panels: the packed layout of a product's second operand.

An array [..., K, N] becomes [..., ceil(N / cols), K, cols]: for each panel of `cols` columns, all K rows one after the
other, so that a register block reads it with one forward stream. The last panel is filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def packed_strides(shape: Sequence[int], cols: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape, strides in elements) of the packed form of an array of this shape."""
    *outer, k, n = shape
    packed = (*outer, -(-n // cols), k, cols)
    strides, step = [], 1
    for size in reversed(packed):
        strides.append(step)
        step *= size
    return packed, tuple(reversed(strides))


def pack(array: np.ndarray[Any, Any], cols: int) -> np.ndarray[Any, Any]:
    """The packed copy of [..., K, N]."""
    *outer, k, n = array.shape
    panels = -(-n // cols)
    padded = np.zeros((*outer, k, panels * cols), array.dtype)
    padded[..., :n] = array
    split = padded.reshape(*outer, k, panels, cols)
    return np.ascontiguousarray(np.moveaxis(split, -2, -3))
