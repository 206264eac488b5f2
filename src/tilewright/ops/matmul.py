"""Matrix products. `acc` is the type of the sums, `kind` that of the result."""

from __future__ import annotations

import tilewright as tw

B, M, N, K = tw.dims("B M N K")


@tw.kernel
def matmul(x: tw.Tensor[M, K], w: tw.Tensor[K, N], acc: tw.DType = tw.f32, kind: tw.DType = tw.f32):
    """out = x @ w."""
    out = tw.empty((M, N), kind)
    for i, j in tw.tiles(M, N):
        total = tw.dot(x[i, :], w[:, j], dtype=acc)
        out[i, j] = total.to(kind)
    return out


@tw.kernel
def batched_matmul(x: tw.Tensor[B, M, K], w: tw.Tensor[B, K, N], acc: tw.DType = tw.f32, kind: tw.DType = tw.f32):
    """out[b] = x[b] @ w[b]."""
    out = tw.empty((B, M, N), kind)
    for b in tw.indices(B):
        for i, j in tw.tiles(M, N):
            total = tw.dot(x[b, i, :], w[b, :, j], dtype=acc)
            out[b, i, j] = total.to(kind)
    return out
