"""Matrix products."""

from __future__ import annotations

import tilewright as tw

B, M, N, K = tw.dims("B M N K")


@tw.kernel
def matmul(x: tw.Tensor[M, K], w: tw.Tensor[K, N]):
    """out = x @ w."""
    out = tw.empty((M, N), x.dtype)
    for i, j in tw.tiles(M, N):
        acc = tw.dot(x[i, :], w[:, j])
        out[i, j] = acc.to(out.dtype)
    return out


@tw.kernel
def batched_matmul(x: tw.Tensor[B, M, K], w: tw.Tensor[B, K, N]):
    """out[b] = x[b] @ w[b]."""
    out = tw.empty((B, M, N), x.dtype)
    for b in tw.indices(B):
        for i, j in tw.tiles(M, N):
            acc = tw.dot(x[b, i, :], w[b, :, j])
            out[b, i, j] = acc.to(out.dtype)
    return out
