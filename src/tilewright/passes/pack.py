"""Panels: the packed layout of a product's second operand.

An array [..., K, N] becomes [ceil(N / cols), (...) * K, cols]: for each panel of `cols` columns all rows one after the
other, leading axes included, so that a register block reads it with one forward stream and a chain of products over
neighbouring slices (the taps of a convolution) is one longer product. The last panel is filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np


def packed_strides(shape: Sequence[int], cols: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape, strides in elements) of the packed form of an array of this shape."""
    rows = prod(shape[:-1])
    return (-(-shape[-1] // cols), rows, cols), (rows * cols, cols, 1)


def pack(array: np.ndarray[Any, Any], cols: int) -> np.ndarray[Any, Any]:
    """The packed copy of [..., K, N]."""
    n = array.shape[-1]
    rows, panels = prod(array.shape[:-1]), -(-n // cols)
    padded = np.zeros((rows, panels * cols), array.dtype)
    padded[:, :n] = array.reshape(rows, n)
    return np.ascontiguousarray(np.moveaxis(padded.reshape(rows, panels, cols), 1, 0))
