"""Convolutions, channels last: x [B, H, W, C], w [R, S, C, F], out [B, P, Q, F]. Reads outside the image are zero.

One- and three-dimensional ones are brought to this form by lowering (a dim of one, or a loop of planes).
"""

from __future__ import annotations

import tilewright as tw

B, H, W, C, R, S, F, K, WC, SC = tw.dims("B H W C R S F K WC SC")


@tw.kernel
def conv2d(x: tw.Tensor[B, H, W, C], w: tw.Tensor[R, S, C, F], p_size: int, q_size: int, stride_h: int = 1,
           stride_w: int = 1, pad_h: int = 0, pad_w: int = 0, dilation_h: int = 1, dilation_w: int = 1):
    """out[b, p, q, f] = sum over r, s, c of x[b, p*stride + r*dilation - pad, ...] * w[r, s, c, f]."""
    out = tw.empty((B, p_size, q_size, F), x.dtype)
    for n, p in tw.indices(B, p_size):
        for q, f in tw.tiles(q_size, F):
            acc = tw.zeros((q, f), tw.f32)
            for r in range(R):
                for s in range(S):
                    acc += tw.dot(x[n, p * stride_h + r * dilation_h - pad_h,
                                    q * stride_w + s * dilation_w - pad_w, :], w[r, s, :, f])
            out[n, p, q, f] = acc.to(out.dtype)
    return out


@tw.kernel
def conv2d_grouped(x: tw.Tensor[B, H, W, C], w: tw.Tensor[R, S, K, F], groups: int, p_size: int, q_size: int,
                   stride_h: int = 1, stride_w: int = 1, pad_h: int = 0, pad_w: int = 0, dilation_h: int = 1,
                   dilation_w: int = 1):
    """Like conv2d within each of `groups` equal shares of the channels."""
    out = tw.empty((B, p_size, q_size, F), x.dtype)
    for n, g, p in tw.indices(B, groups, p_size):
        for q, f in tw.tiles(q_size, F // groups):
            acc = tw.zeros((q, f), tw.f32)
            for r in range(R):
                for s in range(S):
                    for c in tw.tiles(K):
                        acc += tw.dot(x[n, p * stride_h + r * dilation_h - pad_h,
                                        q * stride_w + s * dilation_w - pad_w, g * K + c],
                                      w[r, s, c, g * (F // groups) + f])
            out[n, p, q, g * (F // groups) + f] = acc.to(out.dtype)
    return out


@tw.kernel
def conv2d_narrow(x: tw.Tensor[B, H, WC], w: tw.Tensor[R, SC, F], p_size: int, q_size: int, channels: int,
                  stride_h: int = 1, stride_w: int = 1, pad_h: int = 0, pad_w: int = 0):
    """For few channels: pixels of a row and their channels are one axis, so that a window of a row is one stretch of it
    and the product's inner dimension is S * C instead of C."""
    out = tw.empty((B, p_size, q_size, F), x.dtype)
    for n, p in tw.indices(B, p_size):
        for q, f in tw.tiles(q_size, F):
            acc = tw.zeros((q, f), tw.f32)
            for r in range(R):
                for k in tw.tiles(SC):
                    acc += tw.dot(x[n, p * stride_h + r - pad_h, q * (stride_w * channels) + k - pad_w * channels],
                                  w[r, k, f])
            out[n, p, q, f] = acc.to(out.dtype)
    return out


@tw.kernel
def conv2d_depthwise(x: tw.Tensor[B, H, W, C], w: tw.Tensor[R, S, C], p_size: int, q_size: int, stride_h: int = 1,
                     stride_w: int = 1, pad_h: int = 0, pad_w: int = 0, dilation_h: int = 1, dilation_w: int = 1):
    """out[b, p, q, c] = sum over r, s of x[b, p.., q.., c] * w[r, s, c]."""
    out = tw.empty((B, p_size, q_size, C), x.dtype)
    for n, p in tw.indices(B, p_size):
        for q, c in tw.tiles(q_size, C):
            acc = tw.zeros((q, c), tw.f32)
            for r in range(R):
                for s in range(S):
                    pixel = x[n, p * stride_h + r * dilation_h - pad_h, q * stride_w + s * dilation_w - pad_w, c]
                    acc += pixel.to(tw.f32) * w[r, s, c].to(tw.f32)
            out[n, p, q, c] = acc.to(out.dtype)
    return out


@tw.kernel
def conv2d_transposed(x: tw.Tensor[B, H, W, C], w: tw.Tensor[R, S, C, F], p_size: int, q_size: int, stride_h: int = 1,
                      stride_w: int = 1, pad_h: int = 0, pad_w: int = 0):
    """The stride is as long as the window (no overlap): every output pixel sees one input pixel."""
    out = tw.empty((B, p_size, stride_w, q_size, F), x.dtype)
    for n, p, s in tw.indices(B, p_size, stride_w):
        for q, f in tw.tiles(q_size, F):
            acc = tw.dot(x[n, p // stride_h, q, :], w[p % stride_h, s, :, f])
            out[n, p, s, q, f] = acc.to(out.dtype)
    return out
