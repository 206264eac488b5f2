"""Moving elements: whole copies (which elementwise regions grow on) and gathering rows."""

from __future__ import annotations

import tilewright as tw

B, N, C, I = tw.dims("B N C I")


@tw.kernel
def copy(x: tw.Tensor):
    """out = x, any rank; transposes, slices and broadcasts come as strides of x."""
    out = tw.empty(x.shape, x.dtype)
    for i in tw.tiles(*x.shape):
        out[i] = x[i]
    return out


@tw.kernel
def gather_rows(x: tw.Tensor[B, N, C], index: tw.Tensor[I]):
    """out[b, i, c] = x[b, index[i], c]; a negative index counts from the end."""
    out = tw.empty((B, I, C), x.dtype)
    for b in tw.indices(B):
        for i, c in tw.tiles(I, C):
            at = index[i].to(tw.i64)
            out[b, i, c] = x[b, tw.where(at < 0, at + N, at), c]
    return out
