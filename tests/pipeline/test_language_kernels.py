"""Kernels of the language as users call them: every construct, over awkward shapes, layouts and element types.

Each call runs on one thread and on two, which must agree to the last bit, into poisoned results; values are compared
with float64 NumPy (design, section 9).
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from examples import kernels as examples
from tests.pipeline.support import TOLERANCE, error

A, B, C, M, N, K = tw.dims("A B C M N K")
rng = np.random.default_rng(17)
F32 = np.dtype(np.float32)
BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = (np.dtype(np.float64), F32, np.dtype(np.float16), BF16)
INTS = tuple(np.dtype(n) for n in ("int8", "uint8", "int16", "int32", "int64"))


def values(shape, dtype=F32, low=-9, high=10):
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(max(low, np.iinfo(dtype).min), high, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def call(kernel, *args, **options):
    """The results as a tuple; those of kernels with some work to do are the same on one thread and on two."""
    made = []
    for threads in (1, 2) if sum(np.size(a) for a in args) > 4000 else (1,):
        tw.set_threads(threads)
        out = kernel(*args, **options)
        made.append(out if isinstance(out, tuple) else (out,))
    for a, b in zip(made[0], made[-1]):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes(), "two threads give another result than one"
    return made[0]


def close(got, want, tolerance=None):
    got, want = np.asarray(got), np.asarray(want)
    with np.errstate(all="ignore"):
        e = error(got, want.astype(got.dtype if got.dtype.kind in "biu" else np.float64))
    assert e <= (tolerance or TOLERANCE.get(got.dtype.name, 0.0)), f"relative error {e:.3g}"


def wide(x):
    return x.astype(np.float64) if x.dtype.kind not in "biu" else x.astype(np.int64)


def layouts(x):
    """The same values, laid out in every way a caller may have."""
    yield x
    yield np.asfortranarray(x)
    yield np.ascontiguousarray(x[::-1])[::-1]
    yield np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    wider = np.zeros((*x.shape[:-1], 2 * x.shape[-1] + 3), x.dtype)
    wider[..., 1:1 + 2 * x.shape[-1]:2] = x
    yield wider[..., 1:1 + 2 * x.shape[-1]:2]


SHAPES = [(0, 5), (5, 0), (1, 1), (1, 7), (7, 1), (3, 64), (13, 17), (64, 65), (257, 129)]


# ---------------------------------------------------------------------------------------------- elementwise


@tw.kernel
def functions(x: tw.Tensor[M, N], y: tw.Tensor[M, N]):
    a, b, c, d = tw.empty_like(x), tw.empty_like(x), tw.empty_like(x), tw.empty_like(x)
    e, f, g, h = tw.empty_like(x), tw.empty_like(x), tw.empty_like(x), tw.empty_like(x)
    for i, j in tw.tiles(M, N):
        s, t = x[i, j], y[i, j]
        a[i, j] = tw.exp(s) + tw.exp2(s) - tw.expm1(t) + tw.tanh(s) * tw.sigmoid(t)
        b[i, j] = tw.log(tw.abs(s) + 1) + tw.log2(tw.square(t) + 1) + tw.log1p(tw.abs(t)) + tw.sqrt(tw.abs(s))
        c[i, j] = tw.sin(s) + tw.cos(t) + tw.atan(s) + tw.erf(t) + tw.sinh(s) + tw.cosh(t)
        d[i, j] = tw.floor(s) + tw.ceil(t) + tw.round(s * 4) + tw.trunc(t * 3) + tw.sign(s)
        e[i, j] = tw.gelu(s) + tw.silu(t) + tw.relu(s) + tw.softplus(t) + tw.mish(s) + tw.elu(t) + tw.hard_swish(s)
        f[i, j] = tw.where(s > t, s, -t) + tw.maximum(s, t) * tw.minimum(s, 0.5) + tw.fma(s, t, s)
        g[i, j] = s / (tw.abs(t) + 0.5) + tw.rsqrt(tw.square(s) + 1) + tw.recip(tw.abs(t) + 1) + tw.clip(s, -1, 1)
        h[i, j] = tw.atan2(s, t) + tw.pow(tw.abs(s) + 0.1, t) + tw.asin(tw.clip(s, -1, 1)) + tw.acos(tw.clip(t, -1, 1))
    return a, b, c, d, e, f, g, h


def functions_reference(s, t):
    sig, erf = lambda v: 1 / (1 + np.exp(-v)), np.vectorize(math.erf, otypes=[np.float64])
    soft = lambda v: np.logaddexp(0, v)  # noqa: E731
    return (
        np.exp(s) + np.exp2(s) - np.expm1(t) + np.tanh(s) * sig(t),
        np.log(abs(s) + 1) + np.log2(t * t + 1) + np.log1p(abs(t)) + np.sqrt(abs(s)),
        np.sin(s) + np.cos(t) + np.arctan(s) + erf(t) + np.sinh(s) + np.cosh(t),
        np.floor(s) + np.ceil(t) + np.round(s * 4) + np.trunc(t * 3) + np.sign(s),
        s * (1 + erf(s / math.sqrt(2))) / 2 + t * sig(t) + np.maximum(s, 0) + soft(t) + s * np.tanh(soft(s))
        + np.where(t > 0, t, np.expm1(t)) + s * np.clip(s / 6 + 0.5, 0, 1),
        np.where(s > t, s, -t) + np.maximum(s, t) * np.minimum(s, 0.5) + s * t + s,
        s / (abs(t) + 0.5) + 1 / np.sqrt(s * s + 1) + 1 / (abs(t) + 1) + np.clip(s, -1, 1),
        np.arctan2(s, t) + (abs(s) + 0.1) ** t + np.arcsin(np.clip(s, -1, 1)) + np.arccos(np.clip(t, -1, 1)),
    )


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_scalar_functions(dtype):
    for shape in ((0, 5), (13, 17), (257, 129)) if dtype == F32 else ((33, 65),):
        x, y = values(shape, dtype), values(shape, dtype)
        if dtype.itemsize == 2:  # where the rounded sum and the exact one are on two sides of a jump, both are right
            x, y = ((np.round(v.astype(np.float32) * 4) / 4).astype(dtype) for v in (x, y))
        several = 4 * TOLERANCE[dtype.name] if dtype.itemsize == 2 else None  # every step of a sum rounds
        for got, want in zip(call(functions, x, y), functions_reference(wide(x), wide(y))):
            close(got, want, several)


@tw.kernel
def integer_functions(x: tw.Tensor[M, N], y: tw.Tensor[M, N]):
    a, b, c, d = tw.empty_like(x), tw.empty_like(x), tw.empty_like(x), tw.empty((M, N), tw.bool_)
    for i, j in tw.tiles(M, N):
        s, t = x[i, j], y[i, j]
        a[i, j] = s * t - s + t // 3
        b[i, j] = s // t + s % t
        c[i, j] = (s & t) ^ (s | ~t) + tw.maximum(s, t) - min(s, t)
        d[i, j] = ((s < t) | (s == t)) & (s != 0)
    return a, b, c, d


@pytest.mark.parametrize("dtype", INTS, ids=str)
def test_integers_wrap_and_divide_as_python_does(dtype):
    info = np.iinfo(dtype)
    for shape in ((1, 1), (13, 17), (64, 65)):
        x = rng.integers(info.min, info.max, shape, dtype, endpoint=True)
        y = np.where(rng.random(shape) < 0.5, values(shape, dtype), x[::-1]).astype(dtype)
        a, b, c, d = call(integer_functions, x, y)
        with np.errstate(all="ignore"):
            s = np.where(y == 0, 1, y).astype(dtype)
            assert np.array_equal(a, (x * y - x + y // dtype.type(3)).astype(dtype))
            quotient = np.where(y == 0, 0, x // s).astype(dtype) + np.where(y == 0, 0, x % s).astype(dtype)
            assert np.array_equal(b, quotient.astype(dtype))
            assert np.array_equal(c, ((x & y) ^ ((x | ~y) + np.maximum(x, y) - np.minimum(x, y))).astype(dtype))
            assert np.array_equal(d, ((x < y) | (x == y)) & (x != 0))


@tw.kernel
def blend(x: tw.Tensor[M, N], bias: tw.Tensor[N], column: tw.Tensor[M], a: tw.f32):
    out = tw.empty((M, N), x.dtype)
    for i, j in tw.tiles(M, N):
        out[i, j] = (x[i, j].to(tw.f32) * a + bias[j].to(tw.f32) - column[i][:, None].to(tw.f32)).to(x.dtype)
    return out


@pytest.mark.parametrize("shape", SHAPES)
def test_every_layout_reads_the_same(shape):
    x, bias, column = values(shape), values(shape[1:]), values(shape[:1])
    want = wide(x) * 1.5 + wide(bias) - wide(column)[:, None]
    for view in layouts(x):
        close(*call(blend, view, bias, column, 1.5), want)
    one = values((1, 1))
    spread = np.broadcast_to(one, shape)
    row = np.broadcast_to(values((1,)), shape[1:])
    close(*call(blend, spread, row, column, 1.5), wide(spread) * 1.5 + wide(row) - wide(column)[:, None])


def test_torch_tensors_in_any_layout():
    torch = pytest.importorskip("torch")
    for shape in SHAPES:
        x, bias, column = values(shape), values(shape[1:]), values(shape[:1])
        want = wide(x) * 0.5 + wide(bias) - wide(column)[:, None]
        for t in (torch.from_numpy(x), torch.from_numpy(np.ascontiguousarray(x.T)).T):
            out = blend(t, torch.from_numpy(bias), torch.from_numpy(column), 0.5)
            assert isinstance(out, torch.Tensor)
            close(out.numpy(), want)
        half = torch.from_numpy(x).to(torch.bfloat16)
        out = blend(half, torch.from_numpy(bias).to(torch.bfloat16), torch.from_numpy(column).to(torch.bfloat16), 0.5)
        assert out.dtype == torch.bfloat16
        close(out.float().numpy(), want, 2e-2)


def test_one_code_for_all_sizes_of_a_bucket():
    @tw.kernel
    def sums(x: tw.Tensor[M, N], w: tw.Tensor[N, K]):
        out, total = tw.empty((M, K), x.dtype), tw.empty((M,), x.dtype)
        for i, k in tw.tiles(M, K):
            out[i, k] = tw.dot(x[i, :], w[:, k])
        for i in tw.tiles(M):
            total[i] = x[i, :].sum(1)
        return out, total

    tw.set_threads(1)
    for m in (5, 6, 7, 8):
        for n in (33, 47, 64):
            for k in (17, 31, 32):
                x, w = values((m, n)), values((n, k))
                out, total = sums(x, w)
                close(out, wide(x) @ wide(w))
                close(total, wide(x).sum(1))
    assert len(sums._calls._compiled) == 1


# ---------------------------------------------------------------------------------------------- reductions


@tw.kernel
def reductions(x: tw.Tensor[A, B, C]):
    s0, s1, s2 = tw.empty((B, C), x.dtype), tw.empty((A, C), x.dtype), tw.empty((A, B), x.dtype)
    m0, m1, m2 = tw.empty((B, C), x.dtype), tw.empty((A, C), x.dtype), tw.empty((A, B), x.dtype)
    i0, i1, i2 = tw.empty((B, C), tw.i64), tw.empty((A, C), tw.i64), tw.empty((A, B), tw.i64)
    for b, c in tw.tiles(B, C):
        t = x[:, b, c]
        s0[b, c], m0[b, c], i0[b, c] = t.sum(0).to(x.dtype), t.max(0), t.argmax(0)
    for a, c in tw.tiles(A, C):
        t = x[a, :, c]
        s1[a, c], m1[a, c], i1[a, c] = t.sum(1).to(x.dtype), t.min(1), t.argmin(1)
    for a, b in tw.tiles(A, B):
        t = x[a, b, :]
        s2[a, b], m2[a, b], i2[a, b] = t.sum(2).to(x.dtype), t.max(2), t.argmax(2)
    return s0, s1, s2, m0, m1, m2, i0, i1, i2


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS], ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (2, 40, 33)], ids=str)
def test_reductions_of_every_axis(shape, dtype):
    x = values(shape, dtype)
    w = wide(x)
    got = call(reductions, x)
    for axis in range(3):
        close(got[axis], w.sum(axis))
        extreme, place = (w.min, w.argmin) if axis == 1 else (w.max, w.argmax)
        close(got[3 + axis], extreme(axis))
        assert np.array_equal(got[6 + axis], place(axis))


@tw.kernel
def folds(x: tw.Tensor[M, N]):
    total, times, mean = tw.empty((M,), tw.f32), tw.empty((M,), tw.f32), tw.empty((M,), tw.f32)
    some, every = tw.empty((M,), tw.bool_), tw.empty((M,), tw.bool_)
    for i in tw.tiles(M):
        t = x[i, :]
        total[i], times[i], mean[i] = t.sum(1), tw.prod(t, 1), t.mean(1)
        some[i], every[i] = (t > 1).any(1), (t < 1).all(1)
    return total, times, mean, some, every


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (5, 1), (4, 16), (7, 61), (300, 200)], ids=str)
def test_folds_and_folds_over_nothing(shape):
    x = values(shape)
    w = wide(x)
    total, times, mean, some, every = call(folds, x)
    close(total, w.sum(1))
    close(times, w.prod(1), 2e-5)
    with np.errstate(all="ignore"):
        close(mean, w.sum(1) / np.float64(shape[1]))
    assert np.array_equal(some, (x > 1).any(1)) and np.array_equal(every, (x < 1).all(1))


def test_nan_and_infinities_propagate():
    x = values((9, 37))
    x[0, 5], x[1, 36], x[2, 0], x[3, 7], x[4, 3:5] = math.nan, math.nan, math.inf, -math.inf, (math.inf, -math.inf)
    total, _, mean, some, every = call(folds, x)
    with np.errstate(all="ignore"):
        close(total, wide(x).sum(1))
        close(mean, wide(x).mean(1))
    _, _, s2, _, m1, m2, _, i1, i2 = call(reductions, x[None])
    close(m1, wide(x)[None].min(1)), close(m2, wide(x)[None].max(2)), close(s2, wide(x)[None].sum(2))
    assert np.array_equal(i1, x[None].argmin(1)) and np.array_equal(i2, x[None].argmax(2))
    for got, want in zip(call(examples.softmax, x), [examples.ref_softmax(wide(x))]):
        assert np.isnan(got[[0, 1, 2, 4]]).all() and np.isfinite(got[5:]).all()
        close(got[5:], want[5:])


@tw.kernel
def running(x: tw.Tensor[M, N]):
    rows, back, columns = tw.empty_like(x), tw.empty_like(x), tw.empty_like(x)
    for i in tw.tiles(M):
        rows[i, :] = tw.cumsum(x[i, :], 1).to(x.dtype)
        back[i, :] = tw.cumsum(x[i, :], 1, reverse=True, exclusive=True).to(x.dtype)
    for j in tw.tiles(N):
        columns[:, j] = tw.cumprod(x[:, j], 0).to(x.dtype)
    return rows, back, columns


@pytest.mark.parametrize("dtype", [F32, FLOATS[0], INTS[3], INTS[0]], ids=str)
def test_running_sums_and_products(dtype):
    for shape in ((0, 3), (3, 0), (1, 1), (5, 33), (33, 5), (70, 90)):
        x = values(shape, dtype, -2, 3) if dtype.kind == "i" else (1 + values(shape, dtype) / 8)
        w = wide(x)
        rows, back, columns = call(running, x)
        close(rows, w.cumsum(1))
        close(back, w[:, ::-1].cumsum(1)[:, ::-1] - w)
        close(columns, w.cumprod(0), 2e-5 if dtype.kind == "f" else None)


# ---------------------------------------------------------------------------------------------- products


@tw.kernel
def whole(x: tw.Tensor[M, K], w: tw.Tensor[K, N]):
    """The product with all of K at once, in the accumulator's type."""
    small = x.dtype == tw.f32 or x.dtype == tw.f16 or x.dtype == tw.bf16
    wide = x.dtype == tw.f64 or x.dtype == tw.i64
    out = tw.empty((M, N), x.dtype if wide else tw.f32 if small else tw.i32)
    for i, j in tw.tiles(M, N):
        out[i, j] = tw.dot(x[i, :], w[:, j])
    return out


@tw.kernel
def looped(x: tw.Tensor[M, K], w: tw.Tensor[K, N], c: tw.Tensor[M, N]):
    """c + x @ w, tile by tile."""
    out = tw.empty_like(c)
    for i, j in tw.tiles(M, N):
        acc = c[i, j]
        for k in tw.tiles(K):
            acc = tw.dot(x[i, k], w[k, j], acc=acc)
        out[i, j] = acc
    return out


@tw.kernel
def byte_products(x: tw.Tensor[M, K], w: tw.Tensor[K, N]):
    """x @ w in i32, tile by tile."""
    out = tw.empty((M, N), tw.i32)
    for i, j in tw.tiles(M, N):
        acc = tw.zeros((i, j), tw.i32)
        for k in tw.tiles(K):
            acc += tw.dot(x[i, k], w[k, j])
        out[i, j] = acc
    return out


PRODUCTS = [(0, 5, 3), (5, 0, 3), (1, 1, 1), (1, 300, 70), (7, 13, 17), (33, 65, 129), (150, 260, 190)]


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS], ids=str)
def test_products(dtype):
    for m, k, n in PRODUCTS if dtype == F32 else PRODUCTS[4:]:
        x, w = values((m, k), dtype), values((k, n), dtype)
        close(*call(whole, x, w), wide(x) @ wide(w), TOLERANCE["float32"] if dtype.itemsize == 2 else None)
        wanted = {"float64": "float64", "int64": "int64"}.get(dtype.name, "float32" if dtype in FLOATS else "int32")
        c = values((m, n), np.dtype(wanted))
        close(*call(looped, x, w, c), wide(c) + wide(x) @ wide(w))


def test_integer_products_wrap():
    x = rng.integers(-(2**31), 2**31, (9, 40), np.int32)
    w = rng.integers(-(2**31), 2**31, (40, 21), np.int32)
    with np.errstate(all="ignore"):
        assert np.array_equal(*call(whole, x, w), x @ w)


def test_products_of_any_layout():
    m, k, n = 33, 47, 70
    x, w = values((m, k)), values((k, n))
    want = wide(x) @ wide(w)
    for a, b in zip(layouts(x), reversed(list(layouts(w)))):
        close(*call(whole, a, b), want)
        close(*call(looped, a, b, np.zeros((m, n), np.float32)), want)
    row, column = np.broadcast_to(x[:1], (m, k)), np.broadcast_to(w[:, :1], (k, n))
    close(*call(whole, row, column), wide(row) @ wide(column))


@tw.kernel
def vectors(x: tw.Tensor[B, M, K], w: tw.Tensor[K, N], v: tw.Tensor[K]):
    out, vec, row = tw.empty((B, M, N), tw.f32), tw.empty((B, M), tw.f32), tw.empty((N,), tw.f32)
    for b, i in tw.tiles(B, M):
        out[b, i, :] = tw.dot(x[b, i, :], w[:, :])
        vec[b, i] = tw.dot(x[b, i, :], v[:])
    for j in tw.tiles(N):
        row[j] = tw.dot(v[:], w[:, j])
    return out, vec, row


def test_products_with_leading_axes_and_vectors():
    for b, m, k, n in ((1, 1, 1, 1), (3, 7, 13, 5), (2, 40, 33, 65)):
        x, w, v = values((b, m, k)), values((k, n)), values((k,))
        out, vec, row = call(vectors, x, w, v)
        close(out, wide(x) @ wide(w)), close(vec, wide(x) @ wide(v)), close(row, wide(v) @ wide(w))


def test_the_examples():
    for m, k, n in PRODUCTS:
        x, w, b = values((m, k)), values((k, n)), values((n,))
        close(*call(examples.linear_relu, x, w, b), examples.ref_linear_relu(wide(x), wide(w), wide(b)))
    for shape in ((0, 4), (1, 1), (7, 13), (130, 517)):
        x, w, b = values(shape), values(shape[1:]), values(shape[1:])
        close(*call(examples.softmax, x), examples.ref_softmax(wide(x)))
        close(*call(examples.layer_norm, x, w, b), examples.ref_layer_norm(wide(x), wide(w), wide(b)))
    for shape in ((), (5,), (2, 3, 7), (2, 1, 3, 5)):
        x = values(shape)
        erf = np.vectorize(math.erf, otypes=[np.float64])
        close(*call(examples.gelu, x), wide(x) * (1 + erf(wide(x) / math.sqrt(2))) / 2)


@pytest.mark.parametrize("stride, pad", [(1, 0), (1, 1), (2, 1), (3, 2)])
def test_convolutions(stride, pad):
    for b, h, w, c, f, r in ((2, 9, 8, 16, 33, 3), (1, 6, 6, 5, 1, 1)) if pad else ((1, 12, 31, 7, 20, 2),):
        x, k = values((b, h, w, c)), values((r, r, c, f))
        close(*call(examples.conv2d, x, k, stride, pad), examples.ref_conv2d(wide(x), wide(k), stride, pad))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", [F32, BF16, FLOATS[2]], ids=str)
def test_attention(causal, dtype):
    small = ((1, 1, 1, 1, 4), (4, 2, 13, 29, 8), (6, 2, 65, 65, 16))
    for h, g, s, t, d in (*small, (2, 1, 130, 300, 33), (8, 2, 300, 300, 64)) if dtype == F32 else small[1:2]:
        q, k, v = values((h, s, d), dtype), values((g, t, d), dtype), values((g, t, d), dtype)
        close(*call(examples.attention, q, k, v, causal), examples.ref_attention(wide(q), wide(k), wide(v), causal),
              None if dtype == F32 else 1.5 * TOLERANCE[dtype.name])


@pytest.mark.parametrize("heads, groups", [(4, 3), (2, 4), (3, 2), (4, 0)])
def test_attention_refuses_heads_that_cannot_be_shared(heads, groups):
    """They would read key heads which do not exist, and those read zero. A call that fits comes first, so that code
    made for one number of heads is not taken for another."""
    q, k = values((heads, 5, 8)), values((groups, 7, 8))
    call(examples.attention, values((4, 5, 8)), values((2, 7, 8)), values((2, 7, 8)))
    with pytest.raises(tw.errors.ShapeError, match="not a multiple of the number of key heads"):
        examples.attention(q, k, k)



# ---------------------------------------------------------------------------------------------- the rest


@tw.kernel
def gathered(x: tw.Tensor[M, N], rows: tw.Tensor[K, tw.i32]):
    taken, sums, shifted = tw.empty((K, N), x.dtype), tw.zeros((M, N), x.dtype), tw.empty((M, N), x.dtype)
    for k, j in tw.tiles(K, N):
        taken[k, j] = x[rows[k], j]
        tw.scatter_add(sums, rows[k], j, x[rows[k], j])
    for i, j in tw.tiles(M, N):
        shifted[i, j] = x[i + 1, j - 2] + tw.load(x, i - 3, j * 2, fill=0.5)
    return taken, sums, shifted


def test_gathers_scatters_and_indices_outside():
    for m, n, k in ((1, 1, 1), (6, 9, 4), (40, 33, 100), (300, 64, 900)):
        x = values((m, n))
        rows = rng.integers(0, m, (k,)).astype(np.int32)
        taken, sums, shifted = call(gathered, x, rows)
        close(taken, x[rows])
        want = np.zeros((m, n))
        np.add.at(want, rows, wide(x)[rows])
        close(sums, want)
        i, j = np.indices((m, n))

        def at(a, b, fill, m=m, n=n, x=x):
            inside = (a >= 0) & (a < m) & (b >= 0) & (b < n)
            return np.where(inside, wide(x)[a.clip(0, m - 1), b.clip(0, n - 1)], fill)

        close(shifted, at(i + 1, j - 2, 0.0) + at(i - 3, j * 2, 0.5))
    taken, sums, _ = call(gathered, values((5, 7)), np.array([-1, 5, 2**31 - 1, -(2**31)], np.int32))
    assert not taken.any() and not sums.any(), "rows outside the tensor read zero and are not written"


@tw.kernel
def branches(x: tw.Tensor[M, N], flag: tw.i32, limit: tw.f32):
    out, count = tw.empty_like(x), tw.empty((M,), tw.i64)
    for i in tw.tiles(M):
        t = x[i, :]
        if flag > 2:
            t = tw.cumsum(t, 1)
        elif flag == 2:
            t = t - t.max(1, keepdims=True)
        out[i, :] = t
        count[i] = tw.sum(t > limit, 1).to(tw.i64)
    return out, count


def test_branches_on_scalars():
    for shape in ((1, 1), (7, 13), (70, 40)):
        x = values(shape)
        for flag in (1, 2, 3):
            out, count = call(branches, x, flag, 0.25)
            want = wide(x) if flag == 1 else wide(x) - wide(x).max(1, keepdims=True) if flag == 2 else wide(x).cumsum(1)
            close(out, want)
            assert np.array_equal(count, (out > np.float32(0.25)).sum(1))


@tw.kernel
def statistics(x: tw.Tensor[M, N]):
    """Two grids read one reduction over everything."""
    scaled, total = tw.empty_like(x), tw.empty((M,), x.dtype)
    for i, j in tw.tiles(M, N):
        scaled[i, j] = x[i, j] / x[:, :].max()
    for i in tw.tiles(M):
        total[i] = x[i, :].sum(1) / x[:, :].max()
    return scaled, total


def test_grids_share_no_scratch():
    for shape in ((1, 1), (9, 17), (40, 70)):
        x = values(shape) + 8
        scaled, total = call(statistics, x)
        close(scaled, wide(x) / wide(x).max()), close(total, wide(x).sum(1) / wide(x).max())


@tw.kernel
def noise(x: tw.Tensor[M, N], seed: tw.i64):
    bits, uniform = tw.empty((M, N), tw.u32), tw.empty((M, N), tw.f32)
    for i, j in tw.tiles(M, N):
        at = i.index[:, None] * N + j.index
        bits[i, j] = tw.random_bits(seed, at)
        uniform[i, j] = tw.random_uniform(seed + 1, at)
    return bits, uniform


def test_random_bits_are_the_oracle_s():
    for shape in ((1, 1), (33, 70)):
        for seed in (0, -3, 2**40 + 7):
            x = values(shape)
            for got, want in zip(call(noise, x, seed), noise.reference(x, seed)):
                assert np.array_equal(got, want)
    assert 0 <= got.min() and got.max() < 1 and abs(got.mean() - 0.5) < 0.05


@tw.kernel
def casts(x: tw.Tensor[M]):
    a, b, c, d = tw.empty((M,), tw.i8), tw.empty((M,), tw.u8), tw.empty((M,), tw.i32), tw.empty((M,), tw.f16)
    e, f, g = tw.empty((M,), tw.bf16), tw.empty((M,), tw.bool_), tw.empty((M,), tw.f64)
    for i in tw.tiles(M):
        t = x[i]
        a[i], b[i], c[i], d[i] = t.to(tw.i8), t.to(tw.u8), t.to(tw.i32), t.to(tw.f16)
        e[i], f[i], g[i] = t.to(tw.bf16), t.to(tw.bool_), t.to(tw.f64)
    return a, b, c, d, e, f, g


@pytest.mark.parametrize("dtype", [*FLOATS, *INTS, np.dtype(bool)], ids=str)
def test_casts_between_all_types(dtype):
    for size in (1, 17, 67):
        x = values((size,), dtype, -300, 300) if dtype.kind != "i" or dtype.itemsize > 1 else values((size,), dtype)
        if dtype.kind not in "biu":
            with np.errstate(all="ignore"):
                x = (x.astype(np.float64) * 10.0 ** rng.uniform(-3, 5, size)).astype(dtype)
            x[: min(size, 3)] = np.array([math.nan, math.inf, -math.inf])[: min(size, 3)].astype(dtype)
        for got, want in zip(call(casts, x), casts.reference(x)):
            assert got.dtype == want.dtype
            assert np.array_equal(got.astype(np.float64), want.astype(np.float64), equal_nan=True), got.dtype
