"""Views against NumPy: a view reads the elements that NumPy's own reshaping and slicing would."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest

from tilewright.ir.graph import build as b
from tilewright.ir.types import f32
from tilewright.ops.view import View, collapse


def read(view: View, data: np.ndarray) -> np.ndarray:
    flat = data.reshape(-1)
    grid = np.indices(view.shape)
    at = view.offset + sum((g * s for g, s in zip(grid, view.strides, strict=True)), np.zeros(view.shape, int))
    return flat[at]


def step(rng: random.Random, view: View, array: np.ndarray) -> tuple[View, np.ndarray]:
    """One random change of a view, and the same of an array."""
    match rng.randrange(4):
        case 0:
            perm = rng.sample(range(array.ndim), array.ndim)
            return view.transpose(perm), array.transpose(perm)
        case 1:
            shape = (rng.choice([1, 2]), *array.shape) if array.ndim < 5 else array.shape
            return view.broadcast(shape), np.broadcast_to(array, shape)
        case 2:
            starts, sizes, steps = [], [], []
            for n in array.shape:
                start = rng.randrange(n)
                down = rng.random() < 0.3
                starts.append(start)
                steps.append(-1 if down else rng.choice([1, 2]))
                room = start + 1 if down else -(-(n - start) // steps[-1])
                sizes.append(rng.randint(1, room))
            index = tuple(np.arange(s) * k + a for a, s, k in zip(starts, sizes, steps, strict=True))
            return view.slice(starts, sizes, steps), array[np.ix_(*index)]
        case _:
            factors = list(array.shape) or [1]
            k = rng.randrange(len(factors))
            if rng.random() < 0.5 and k + 1 < len(factors):
                factors[k:k + 2] = [factors[k] * factors[k + 1]]
            else:
                cut = next((d for d in (2, 3) if factors[k] % d == 0), 1)
                factors[k:k + 1] = [cut, factors[k] // cut]
            found = view.reshape(factors)
            return (view, array) if found is None else (found, array.reshape(factors))


@pytest.mark.parametrize("seed", range(60))
def test_views_read_what_numpy_reads(seed: int) -> None:
    rng = random.Random(seed)
    shape = tuple(rng.choice([1, 2, 3, 4, 6]) for _ in range(rng.randint(1, 4)))
    data = np.arange(prod(shape), dtype=np.float32).reshape(shape)
    view, array = View.whole(b.input("x", f32, shape)), data
    for _ in range(6):
        view, array = step(rng, view, array)
        assert view.shape == array.shape
        np.testing.assert_array_equal(read(view, data), array)
        (small,) = collapse([view])
        np.testing.assert_array_equal(read(small, data).reshape(-1), array.reshape(-1))


def test_a_transposed_view_is_no_flat_one() -> None:
    view = View.whole(b.input("x", f32, (3, 4))).transpose((1, 0))
    assert view.reshape((12,)) is None and not view.dense
    assert view.reshape((4, 3, 1)) is not None


def test_collapsing_keeps_only_what_differs() -> None:
    x = View.whole(b.input("x", f32, (2, 3, 4, 5)))
    bias = View.whole(b.input("b", f32, (5,))).broadcast((2, 3, 4, 5))
    assert [v.shape for v in collapse([x, bias])] == [(24, 5), (24, 5)]
    assert [v.shape for v in collapse([x, x])] == [(120,), (120,)]
