"""Panels: where each element of a packed operand lies."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.passes.pack import pack, packed_strides


@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (64, 96), (3, 3, 8, 20), (2, 1, 33)])
@pytest.mark.parametrize("cols", [1, 16, 48])
def test_every_element_is_found_in_its_panel(shape: tuple[int, ...], cols: int) -> None:
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    packed = pack(array, cols)
    sizes, strides = packed_strides(shape, cols)
    assert packed.shape == sizes and packed.flags.c_contiguous
    rows = array.reshape(-1, shape[-1])
    flat = packed.reshape(-1)
    for row in range(rows.shape[0]):
        for col in range(rows.shape[1]):
            assert flat[(col // cols) * strides[0] + row * strides[1] + col % cols] == rows[row, col]
    assert not packed.reshape(-1, cols)[:, :].sum() - array.sum() > 1e-3  # the rest is zeros


@pytest.mark.parametrize("shape", [(1, 1), (5, 7), (64, 96), (3, 3, 9, 20), (2, 1, 33)])
@pytest.mark.parametrize("group", [2, 4])
def test_groups_of_rows_are_interleaved_and_filled_up(shape: tuple[int, ...], group: int) -> None:
    array = np.random.default_rng(0).integers(1, 100, shape).astype(np.int8)
    packed = pack(array, 16, group)
    sizes, strides = packed_strides(shape, 16, group)
    assert packed.shape == sizes and packed.flags.c_contiguous
    flat, per_slice = packed.reshape(-1), -(-shape[-2] // group)
    for *lead, k, n in np.ndindex(*shape):
        at = int(np.ravel_multi_index(lead, shape[:-2])) if lead else 0
        line = at * per_slice + k // group
        where = (n // 16) * strides[0] + line * strides[1] + n % 16 * group + k % group
        assert flat[where] == array[(*lead, k, n)]
    assert int(packed.sum(dtype=np.int64)) == int(array.sum(dtype=np.int64))
