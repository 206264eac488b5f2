"""Pooling, channels last: x [B, H, W, C] -> [B, P, Q, C]."""

from __future__ import annotations

import tilewright as tw

B, H, W, C, P, Q = tw.dims("B H W C P Q")


@tw.kernel
def max_pool(x: tw.Tensor[B, H, W, C], p_size: int, q_size: int, kernel_h: int, kernel_w: int, stride_h: int,
             stride_w: int, pad_h: int, pad_w: int, dilation_h: int, dilation_w: int, lowest: float):
    """The largest of each window; positions outside the image do not count."""
    out = tw.empty((B, p_size, q_size, C), x.dtype)
    for n, p in tw.indices(B, p_size):
        for q, c in tw.tiles(q_size, C):
            best = tw.full((q, c), lowest, x.dtype)
            for r in range(kernel_h):
                for s in range(kernel_w):
                    best = tw.maximum(best, tw.load(x, n, p * stride_h + r * dilation_h - pad_h,
                                                    q * stride_w + s * dilation_w - pad_w, c, fill=lowest))
            out[n, p, q, c] = best
    return out


@tw.kernel
def avg_pool(x: tw.Tensor[B, H, W, C], count: tw.Tensor[P, Q], p_size: int, q_size: int, kernel_h: int, kernel_w: int,
             stride_h: int, stride_w: int, pad_h: int, pad_w: int):
    """The mean of each window; `count` [P, Q] is how many positions each window divides by."""
    out = tw.empty((B, p_size, q_size, C), x.dtype)
    for n, p in tw.indices(B, p_size):
        for q, c in tw.tiles(q_size, C):
            total = tw.zeros((q, c), tw.f32)
            for r in range(kernel_h):
                for s in range(kernel_w):
                    total += x[n, p * stride_h + r - pad_h, q * stride_w + s - pad_w, c].to(tw.f32)
            out[n, p, q, c] = (total / count[p, q][:, None]).to(out.dtype)
    return out
