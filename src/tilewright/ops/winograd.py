"""Winograd's F(4x4, 3x3): a 3x3 convolution of stride 1 in 36 products of [tiles, C] x [C, F] instead of 144.

Source: A. Lavin, S. Gray, "Fast algorithms for convolutional neural networks", CVPR 2016. Each tile of 4x4 outputs
needs 6x6 inputs d and computes A^T [(G w G^T) * (B^T d B)] A, where * is elementwise and summed over channels.
"""

from __future__ import annotations

import tilewright as tw

B, H, W, C, T, F = tw.dims("B H W C T F")


@tw.fn
def before(a, b, c, d, e, f):
    """B^T applied to six values."""
    p, q, r, s = d - 4.0 * b, e - 4.0 * c, e - c, 2.0 * (d - b)
    return 4.0 * a - 5.0 * c + e, p + q, q - p, r + s, r - s, 4.0 * b - 5.0 * d + f


@tw.fn
def after(a, b, c, d, e, f):
    """A^T applied to six values."""
    p, q, r, s = b + c, b - c, d + e, d - e
    return a + p + r, q + 2.0 * s, p + 4.0 * r, q + 8.0 * s + f


@tw.fn
def line(x, n, row, col, c):
    """Six neighbours of a row of pixels, transformed."""
    return before(x[n, row, col, c], x[n, row, col + 1, c], x[n, row, col + 2, c], x[n, row, col + 3, c],
                  x[n, row, col + 4, c], x[n, row, col + 5, c])


@tw.kernel
def winograd_input(x: tw.Tensor[B, H, W, C], tiles_h: int, tiles_w: int, pad_h: int, pad_w: int):
    """B^T d B of every tile: out [36, B * tiles_h * tiles_w, C]. Pixels outside the image are zero."""
    out = tw.empty((36, B * tiles_h * tiles_w, C), x.dtype)
    for n, p, q in tw.indices(B, tiles_h, tiles_w):
        for c in tw.tiles(C):
            row, col = p * 4 - pad_h, q * 4 - pad_w
            r0, r1, r2 = line(x, n, row, col, c), line(x, n, row + 1, col, c), line(x, n, row + 2, col, c)
            r3, r4, r5 = line(x, n, row + 3, col, c), line(x, n, row + 4, col, c), line(x, n, row + 5, col, c)
            t = (n * tiles_h + p) * tiles_w + q
            for j in range(6):
                v = before(r0[j], r1[j], r2[j], r3[j], r4[j], r5[j])
                for i in range(6):
                    out[i * 6 + j, t, c] = v[i]
    return out


@tw.fn
def products(m, i, t, f):
    """Row i of a tile's 6x6 products, transformed to four."""
    return after(m[i * 6, t, f], m[i * 6 + 1, t, f], m[i * 6 + 2, t, f], m[i * 6 + 3, t, f], m[i * 6 + 4, t, f],
                 m[i * 6 + 5, t, f])


@tw.kernel
def winograd_output(m: tw.Tensor[36, T, F], tiles_h: int, tiles_w: int, p_size: int, q_size: int):
    """A^T m A of every tile, as pixels: out [images, p_size, q_size, F]. What lies past the image is dropped."""
    images = T // (tiles_h * tiles_w)
    out = tw.empty((images, p_size, q_size, F), m.dtype)
    for n, p, q in tw.indices(images, tiles_h, tiles_w):
        for f in tw.tiles(F):
            t = (n * tiles_h + p) * tiles_w + q
            r0, r1, r2 = products(m, 0, t, f), products(m, 1, t, f), products(m, 2, t, f)
            r3, r4, r5 = products(m, 3, t, f), products(m, 4, t, f), products(m, 5, t, f)
            for j in range(4):
                v = after(r0[j], r1[j], r2[j], r3[j], r4[j], r5[j])
                for i in range(4):
                    out[n, p * 4 + i, q * 4 + j, f] = v[i]
    return out
