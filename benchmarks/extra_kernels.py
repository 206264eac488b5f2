"""Kernels that only benchmarks need; the others are those of `examples/kernels.py`."""

import tilewright as tw

M, N, K = tw.dims("M N K")


@tw.kernel
def matmul(x: tw.Tensor[M, K], w: tw.Tensor[K, N]):
    out = tw.empty((M, N), x.dtype)
    for i, j in tw.tiles(M, N):
        acc = tw.zeros((i, j), tw.f32)
        for k in tw.tiles(K):
            acc += tw.dot(x[i, k], w[k, j])
        out[i, j] = acc.to(x.dtype)
    return out


@tw.kernel
def vector_add(x: tw.Tensor[N], y: tw.Tensor[N]):
    out = tw.empty_like(x)
    for i in tw.tiles(N):
        out[i] = x[i] + y[i]
    return out


@tw.kernel
def matmul_int(x: tw.Tensor[M, K], w: tw.Tensor[K, N]):
    out = tw.empty((M, N), tw.i32)
    for i, j in tw.tiles(M, N):
        acc = tw.zeros((i, j), tw.i32)
        for k in tw.tiles(K):
            acc += tw.dot(x[i, k], w[k, j])
        out[i, j] = acc
    return out
