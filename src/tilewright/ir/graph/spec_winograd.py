"""The two halves of Winograd's F(4x4, 3x3) around its products; ops/winograd.py has the kernels and the source.

Primitives rather than composites: a rewrite makes them only for a target that has kernels for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .core import TensorType
from .op_spec import Array, Attrs, Site, define
from .spec_nn import widened

INPUT = np.array([[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0], [0, -2, -1, 2, 1, 0],
                  [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]], np.float64)
WEIGHTS = np.array([[1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6], [1 / 24, 1 / 12, 1 / 6],
                    [1 / 24, -1 / 12, 1 / 6], [0, 0, 1]], np.float64)
OUTPUT = np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], np.float64)


def _input_type(site: Site) -> tuple[TensorType, ...]:
    dtype = site.need_kind(0, "f", "a floating-point operand")
    n, _, _, c = site.need_rank(0, 4).shape
    tiles = site.attrs["tiles"]
    if len(tiles) != 2 or len(site.attrs["pads"]) != 2:
        site.shape_error("tiles and pads must have one entry for the height and one for the width")
    return (TensorType(dtype, (36, n * (tiles[0] * tiles[1]), c)),)


def _input(xs: Sequence[Any], a: Attrs) -> tuple[Array, ...]:
    x = xs[0].astype(widened(xs[0].dtype), copy=False)
    n, h, w, c = x.shape
    (th, tw), (ph, pw) = a["tiles"], a["pads"]
    image = np.zeros((n, max(th * 4 + 2, h + ph), max(tw * 4 + 2, w + pw), c), x.dtype)
    image[:, ph:ph + h, pw:pw + w] = x
    windows = np.lib.stride_tricks.sliding_window_view(image, (6, 6), axis=(1, 2))[:, :th * 4:4, :tw * 4:4]
    done = np.einsum("ir,jq,npocrq->ijnpoc", INPUT, INPUT, windows, optimize=True)
    return (done.reshape(36, n * th * tw, c).astype(xs[0].dtype),)


def _output_type(site: Site) -> tuple[TensorType, ...]:
    dtype = site.need_kind(0, "f", "a floating-point operand")
    products, rows, f = site.need_rank(0, 3).shape
    n, (p, q) = site.attrs["batch"], site.attrs["size"]
    tiles = n * (-(-p // 4)) * (-(-q // 4))
    if products != 36 or (isinstance(rows, int) and rows != tiles):
        site.shape_error(f"{site.operand(0)} must be [36, {tiles}, F]: the products of {tiles} tiles")
    return (TensorType(dtype, (n, p, q, f)),)


def _output(xs: Sequence[Any], a: Attrs) -> tuple[Array, ...]:
    m = xs[0].astype(widened(xs[0].dtype), copy=False)
    n, (p, q) = a["batch"], a["size"]
    th, tw, f = -(-p // 4), -(-q // 4), m.shape[-1]
    done = np.einsum("ir,jq,rqnpof->npiojf", OUTPUT, OUTPUT, m.reshape(6, 6, n, th, tw, f), optimize=True)
    return (done.reshape(n, th * 4, tw * 4, f)[:, :p, :q].astype(xs[0].dtype),)


define("winograd_input", "x", "tiles:ints pads:ints", infer=_input_type, reference=_input,
       doc="B^T d B of every 6x6 window 4 apart: [N, H, W, C] to [36, tiles, C]")
define("winograd_output", "m", "batch:int size:ints", infer=_output_type, reference=_output,
       doc="A^T m A of every tile: [36, tiles, F] to [N, P, Q, F]")
