"""Matrix products of every small element type, straight from the language: exact for integers, tight for bf16."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw

M, N, K = tw.dims("M N K")
SHAPES = ((1, 1, 1), (3, 5, 2), (8, 16, 3), (9, 33, 7), (13, 100, 777), (65, 47, 63), (7, 513, 1025), (150, 96, 1029))


@tw.kernel
def to_f32(x: tw.Tensor[M, K], w: tw.Tensor[K, N]):
    out = tw.empty((M, N), tw.f32)
    for i, j in tw.tiles(M, N):
        acc = tw.zeros((i, j), tw.f32)
        for k in tw.tiles(K):
            acc += tw.dot(x[i, k], w[k, j])
        out[i, j] = acc
    return out


@tw.kernel
def to_i32(x: tw.Tensor[M, K], w: tw.Tensor[K, N]):
    out = tw.empty((M, N), tw.i32)
    for i, j in tw.tiles(M, N):
        acc = tw.zeros((i, j), tw.i32)
        for k in tw.tiles(K):
            acc += tw.dot(x[i, k], w[k, j])
        out[i, j] = acc
    return out


@tw.kernel
def by_columns(x: tw.Tensor[M, K], w: tw.Tensor[N, K]):
    """The second operand transposed, and all of K at once."""
    out = tw.empty((M, N), tw.f32)
    for i, j in tw.tiles(M, N):
        out[i, j] = tw.dot(x[i, :], w[j, :].T)
    return out


@tw.kernel
def bytes_by_columns(x: tw.Tensor[M, K], w: tw.Tensor[N, K]):
    out = tw.empty((M, N), tw.i32)
    for i, j in tw.tiles(M, N):
        out[i, j] = tw.dot(x[i, :], w[j, :].T)
    return out


def wide(x):
    return x.astype(np.float64)


def random_bytes(kind, *shape):
    info = np.iinfo(kind)
    return np.random.default_rng(shape[0]).integers(info.min, info.max, shape, kind, endpoint=True)


def off(got, want):
    return float(np.linalg.norm(wide(np.asarray(got)) - want) / np.linalg.norm(want))


@pytest.mark.parametrize("m, n, k", SHAPES)
def test_bf16_accumulates_in_f32(m, n, k):
    rng = np.random.default_rng(m * n * k)
    x, w = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((m, k), (k, n)))
    want = wide(x) @ wide(w)
    assert off(to_f32(x, w), want) < 1e-5
    assert off(by_columns(x, np.ascontiguousarray(w.T)), want) < 1e-5
    full = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    rounded = to_f32(*(a.astype(ml_dtypes.bfloat16) for a in full))
    assert m * n < 20 or off(rounded, full[0] @ full[1]) < 1e-2


@pytest.mark.parametrize("m, n, k", SHAPES)
@pytest.mark.parametrize("kinds", list(product(("int8", "uint8"), repeat=2)), ids="-".join)
def test_bytes_are_exact(kinds, m, n, k):
    x, w = random_bytes(np.dtype(kinds[0]), m, k), random_bytes(np.dtype(kinds[1]), k, n)
    want = x.astype(np.int64) @ w.astype(np.int64)
    np.testing.assert_array_equal(to_i32(x, w), want)
    np.testing.assert_array_equal(bytes_by_columns(x, np.ascontiguousarray(w.T)), want)


def test_operands_need_not_be_dense():
    rng = np.random.default_rng(5)
    x, w = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((40, 90), (90, 50)))
    pairs = [(x[:, ::2], w[::2]), (x[::-1, ::-1], w[::-1]), (np.asfortranarray(x), w), (x, np.asfortranarray(w))]
    for a, b in pairs:
        assert off(to_f32(a, b), wide(a) @ wide(b)) < 1e-5
    a, b = random_bytes(np.dtype("int8"), 40, 91)[:, ::2], random_bytes(np.dtype("int8"), 92, 50)[::2]
    np.testing.assert_array_equal(to_i32(a, b), a.astype(np.int64) @ b.astype(np.int64))


def test_special_values_of_bf16_propagate():
    x, w = np.ones((9, 5), ml_dtypes.bfloat16), np.ones((5, 20), ml_dtypes.bfloat16)
    x[2, 4], x[3, 0], w[1, 7] = np.nan, np.inf, -np.inf
    with np.errstate(invalid="ignore"):
        want = (wide(x) @ wide(w)).astype(np.float32)
    np.testing.assert_array_equal(to_f32(x, w), want)
