"""Convolutions, channels last: x [B, H, W, C], w [R, S, C, F], out [B, P, Q, F]. Reads outside the image are zero.

One-dimensional ones are images of height one. `acc` is the type of the sums, `kind` that of the result.
"""

from __future__ import annotations

import tilewright as tw

B, D, H, W, C, T, R, S, F, K, WC, SC = tw.dims("B D H W C T R S F K WC SC")


@tw.kernel
def conv2d(x: tw.Tensor[B, H, W, C], w: tw.Tensor[R, S, C, F], p_size: int, q_size: int, stride_h: int = 1,
           stride_w: int = 1, pad_h: int = 0, pad_w: int = 0, dilation_h: int = 1, dilation_w: int = 1,
           acc: tw.DType = tw.f32, kind: tw.DType = tw.f32):
    """out[b, p, q, f] = sum over r, s, c of x[b, p*stride + r*dilation - pad, ...] * w[r, s, c, f]."""
    out = tw.empty((B, p_size, q_size, F), kind)
    for n in tw.indices(B):
        for p, q, f in tw.tiles(p_size, q_size, F):
            total = tw.zeros((p, q, f), acc)
            for r in range(R):
                for s in range(S):
                    total += tw.dot(x[n, p * stride_h + r * dilation_h - pad_h,
                                      q * stride_w + s * dilation_w - pad_w, :], w[r, s, :, f], dtype=acc)
            out[n, p, q, f] = total.to(kind)
    return out


@tw.kernel
def conv2d_grouped(x: tw.Tensor[B, H, W, C], w: tw.Tensor[R, S, K, F], groups: int, p_size: int, q_size: int,
                   stride_h: int = 1, stride_w: int = 1, pad_h: int = 0, pad_w: int = 0, dilation_h: int = 1,
                   dilation_w: int = 1, acc: tw.DType = tw.f32, kind: tw.DType = tw.f32):
    """Like conv2d within each of `groups` equal shares of the channels."""
    out = tw.empty((B, p_size, q_size, F), kind)
    for n, g, p in tw.indices(B, groups, p_size):
        for q, f in tw.tiles(q_size, F // groups):
            total = tw.zeros((q, f), acc)
            for r in range(R):
                for s in range(S):
                    for c in tw.tiles(K):
                        total += tw.dot(x[n, p * stride_h + r * dilation_h - pad_h,
                                          q * stride_w + s * dilation_w - pad_w, g * K + c],
                                        w[r, s, c, g * (F // groups) + f], dtype=acc)
            out[n, p, q, g * (F // groups) + f] = total.to(kind)
    return out


@tw.kernel
def conv3d(x: tw.Tensor[B, D, H, W, C], w: tw.Tensor[T, R, S, K, F], groups: int, o_size: int, p_size: int,
           q_size: int, stride_d: int = 1, stride_h: int = 1, stride_w: int = 1, pad_d: int = 0, pad_h: int = 0,
           pad_w: int = 0, dilation_d: int = 1, dilation_h: int = 1, dilation_w: int = 1, acc: tw.DType = tw.f32,
           kind: tw.DType = tw.f32):
    """Volumes, with any number of groups."""
    out = tw.empty((B, o_size, p_size, q_size, F), kind)
    for n, g, o, p in tw.indices(B, groups, o_size, p_size):
        for q, f in tw.tiles(q_size, F // groups):
            total = tw.zeros((q, f), acc)
            for t in range(T):
                for r in range(R):
                    for s in range(S):
                        for c in tw.tiles(K):
                            total += tw.dot(x[n, o * stride_d + t * dilation_d - pad_d,
                                              p * stride_h + r * dilation_h - pad_h,
                                              q * stride_w + s * dilation_w - pad_w, g * K + c],
                                            w[t, r, s, c, g * (F // groups) + f], dtype=acc)
            out[n, o, p, q, g * (F // groups) + f] = total.to(kind)
    return out


@tw.kernel
def conv2d_narrow(x: tw.Tensor[B, H, WC], w: tw.Tensor[R, SC, F], p_size: int, q_size: int, channels: int,
                  stride_h: int = 1, stride_w: int = 1, pad_h: int = 0, pad_w: int = 0, acc: tw.DType = tw.f32,
                  kind: tw.DType = tw.f32):
    """For few channels: pixels of a row and their channels are one axis, so that a window of a row is one stretch of it
    and the product's inner dimension is S * C instead of C."""
    out = tw.empty((B, p_size, q_size, F), kind)
    for n in tw.indices(B):
        for p, q, f in tw.tiles(p_size, q_size, F):
            total = tw.zeros((p, q, f), acc)
            window = (q.index * (stride_w * channels) - pad_w * channels)[:, None] + tw.arange(SC)[None, :]
            for r in range(R):
                total += tw.dot(x[n, p * stride_h + r - pad_h, window], w[r, :, f], dtype=acc)
            out[n, p, q, f] = total.to(kind)
    return out


@tw.kernel
def conv2d_depthwise(x: tw.Tensor[B, H, W, C], w: tw.Tensor[R, S, C], p_size: int, q_size: int, stride_h: int = 1,
                     stride_w: int = 1, pad_h: int = 0, pad_w: int = 0, dilation_h: int = 1, dilation_w: int = 1,
                     acc: tw.DType = tw.f32, kind: tw.DType = tw.f32):
    """out[b, p, q, c] = sum over r, s of x[b, p.., q.., c] * w[r, s, c]."""
    out = tw.empty((B, p_size, q_size, C), kind)
    for n, p in tw.indices(B, p_size):
        for q, c in tw.tiles(q_size, C):
            total = tw.zeros((q, c), acc)
            for r in range(R):
                for s in range(S):
                    pixel = x[n, p * stride_h + r * dilation_h - pad_h, q * stride_w + s * dilation_w - pad_w, c]
                    total += pixel.to(acc) * w[r, s, c].to(acc)
            out[n, p, q, c] = total.to(kind)
    return out


@tw.kernel
def conv2d_transposed(x: tw.Tensor[B, H, W, C], w: tw.Tensor[R, S, C, F], p_size: int, q_size: int, stride_h: int = 1,
                      stride_w: int = 1, pad_h: int = 0, pad_w: int = 0, acc: tw.DType = tw.f32,
                      kind: tw.DType = tw.f32):
    """The stride is as long as the window (no overlap): every output pixel sees one input pixel."""
    out = tw.empty((B, p_size, stride_w, q_size, F), kind)
    for n, p, s in tw.indices(B, p_size, stride_w):
        for q, f in tw.tiles(q_size, F):
            total = tw.dot(x[n, p // stride_h, q, :], w[p % stride_h, s, :, f], dtype=acc)
            out[n, p, s, q, f] = total.to(kind)
    return out
