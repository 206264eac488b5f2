"""Panels: the packed layout of a product's second operand.

An array [..., K, N] becomes [ceil(N / cols), (...) * ceil(K / group), cols * group]: for each panel of `cols` columns
all rows one after the other, leading axes included, so that a register block reads it with one forward stream and a
chain of products over neighbouring slices (the taps of a convolution) is one longer product. With `group` > 1 so many
rows are interleaved, column by column. The last panel, and the last group of every slice, are filled up with zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np


def packed_strides(shape: Sequence[int], cols: int, group: int = 1) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(shape, strides in elements) of the packed form of an array of this shape."""
    rows, line = prod(shape[:-2]) * -(-shape[-2] // group), cols * group
    return (-(-shape[-1] // cols), rows, line), (rows * line, line, 1)


def pack(array: np.ndarray[Any, Any], cols: int, group: int = 1) -> np.ndarray[Any, Any]:
    """The packed copy of [..., K, N]."""
    *lead, k, n = array.shape
    groups, panels, slices = -(-k // group), -(-n // cols), prod(lead)
    padded = np.zeros((slices, groups * group, panels * cols), array.dtype)
    padded[:, :k, :n] = array.reshape(slices, k, n)
    parts = padded.reshape(slices * groups, group, panels, cols)
    return np.ascontiguousarray(parts.transpose(2, 0, 3, 1)).reshape(panels, slices * groups, cols * group)
