"""Pooling, channels last: x [B, H, W, C] -> [B, P, Q, C]; volumes are [B, D, H, W, C]."""

from __future__ import annotations

import tilewright as tw

B, D, H, W, C, O, P, Q = tw.dims("B D H W C O P Q")


@tw.kernel
def max_pool(x: tw.Tensor[B, H, W, C], p_size: int, q_size: int, kernel_h: int, kernel_w: int, stride_h: int,
             stride_w: int, pad_h: int, pad_w: int, dilation_h: int, dilation_w: int, lowest: tw.static[object]):
    """The largest of each window; positions outside the image do not count. `lowest`: the least value of x's type."""
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
    """The mean of each window; `count` [P, Q] is how many positions each window divides by, in the type of the sums."""
    out = tw.empty((B, p_size, q_size, C), x.dtype)
    for n, p in tw.indices(B, p_size):
        for q, c in tw.tiles(q_size, C):
            total = tw.zeros((q, c), count.dtype)
            for r in range(kernel_h):
                for s in range(kernel_w):
                    total += x[n, p * stride_h + r - pad_h, q * stride_w + s - pad_w, c].to(count.dtype)
            out[n, p, q, c] = (total / count[p, q][:, None]).to(out.dtype)
    return out


@tw.kernel
def max_pool3d(x: tw.Tensor[B, D, H, W, C], o_size: int, p_size: int, q_size: int, kernel_d: int, kernel_h: int,
               kernel_w: int, stride_d: int, stride_h: int, stride_w: int, pad_d: int, pad_h: int, pad_w: int,
               dilation_d: int, dilation_h: int, dilation_w: int, lowest: tw.static[object]):
    """max_pool of volumes."""
    out = tw.empty((B, o_size, p_size, q_size, C), x.dtype)
    for n, o, p in tw.indices(B, o_size, p_size):
        for q, c in tw.tiles(q_size, C):
            best = tw.full((q, c), lowest, x.dtype)
            for t in range(kernel_d):
                for r in range(kernel_h):
                    for s in range(kernel_w):
                        best = tw.maximum(best, tw.load(x, n, o * stride_d + t * dilation_d - pad_d,
                                                        p * stride_h + r * dilation_h - pad_h,
                                                        q * stride_w + s * dilation_w - pad_w, c, fill=lowest))
            out[n, o, p, q, c] = best
    return out


@tw.kernel
def avg_pool3d(x: tw.Tensor[B, D, H, W, C], count: tw.Tensor[O, P, Q], o_size: int, p_size: int, q_size: int,
               kernel_d: int, kernel_h: int, kernel_w: int, stride_d: int, stride_h: int, stride_w: int, pad_d: int,
               pad_h: int, pad_w: int):
    """avg_pool of volumes."""
    out = tw.empty((B, o_size, p_size, q_size, C), x.dtype)
    for n, o, p in tw.indices(B, o_size, p_size):
        for q, c in tw.tiles(q_size, C):
            total = tw.zeros((q, c), count.dtype)
            for t in range(kernel_d):
                for r in range(kernel_h):
                    for s in range(kernel_w):
                        total += x[n, o * stride_d + t - pad_d, p * stride_h + r - pad_h,
                                   q * stride_w + s - pad_w, c].to(count.dtype)
            out[n, o, p, q, c] = (total / count[o, p, q][:, None]).to(out.dtype)
    return out
