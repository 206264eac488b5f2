"""Reductions over the middle axis of [A, R, B] (lowering brings any set of axes to this form), softmax and norms."""

from __future__ import annotations

import tilewright as tw

A, R, B = tw.dims("A R B")


@tw.kernel
def reduce_inner(x: tw.Tensor[A, R], kind: str):
    """Folds each row."""
    out = tw.empty((A,), x.dtype)
    for a in tw.tiles(A):
        row = x[a, :]
        if kind == "sum":
            out[a] = tw.sum(row, axis=1).to(out.dtype)
        elif kind == "mean":
            out[a] = tw.mean(row, axis=1)
        elif kind == "max":
            out[a] = tw.max(row, axis=1)
        elif kind == "min":
            out[a] = tw.min(row, axis=1)
        else:
            out[a] = tw.prod(row, axis=1).to(out.dtype)
    return out


@tw.kernel
def reduce_middle(x: tw.Tensor[A, R, B], kind: str):
    """Folds the middle axis."""
    out = tw.empty((A, B), x.dtype)
    for a in tw.indices(A):
        for b in tw.tiles(B):
            part = x[a, :, b]
            if kind == "sum":
                out[a, b] = tw.sum(part, axis=0).to(out.dtype)
            elif kind == "mean":
                out[a, b] = tw.mean(part, axis=0)
            elif kind == "max":
                out[a, b] = tw.max(part, axis=0)
            elif kind == "min":
                out[a, b] = tw.min(part, axis=0)
            else:
                out[a, b] = tw.prod(part, axis=0).to(out.dtype)
    return out


@tw.kernel
def arg_middle(x: tw.Tensor[A, R, B], largest: bool):
    """Where the extreme of the middle axis is (the first of equals), as i64."""
    out = tw.empty((A, B), tw.i64)
    for a in tw.indices(A):
        for b in tw.tiles(B):
            if largest:
                out[a, b] = tw.argmax(x[a, :, b], axis=0)
            else:
                out[a, b] = tw.argmin(x[a, :, b], axis=0)
    return out


@tw.kernel
def cumsum_middle(x: tw.Tensor[A, R, B], exclusive: bool, reverse: bool):
    """Running sums along the middle axis."""
    out = tw.empty((A, R, B), x.dtype)
    for a in tw.indices(A):
        for b in tw.tiles(B):
            out[a, :, b] = tw.cumsum(x[a, :, b], axis=0, exclusive=exclusive, reverse=reverse).to(out.dtype)
    return out


@tw.kernel
def softmax(x: tw.Tensor[A, R], acc: tw.DType):
    """exp(x) / sum(exp(x)) of each row, shifted by the row's maximum; computed in `acc`."""
    out = tw.empty((A, R), x.dtype)
    for a in tw.tiles(A):
        row = x[a, :].to(acc)
        e = tw.exp(row - tw.max(row, axis=1)[:, None])
        out[a, :] = (e / tw.sum(e, axis=1)[:, None]).to(out.dtype)
    return out


@tw.kernel
def log_softmax(x: tw.Tensor[A, R], acc: tw.DType):
    """x - log(sum(exp(x))) of each row."""
    out = tw.empty((A, R), x.dtype)
    for a in tw.tiles(A):
        row = x[a, :].to(acc)
        shifted = row - tw.max(row, axis=1)[:, None]
        out[a, :] = (shifted - tw.log(tw.sum(tw.exp(shifted), axis=1))[:, None]).to(out.dtype)
    return out


@tw.kernel
def layer_norm(x: tw.Tensor[A, R], epsilon: float, acc: tw.DType):
    """(x - mean) / sqrt(variance + epsilon) of each row; scale and shift are fused behind it."""
    out = tw.empty((A, R), x.dtype)
    for a in tw.tiles(A):
        row = x[a, :].to(acc)
        d = row - tw.mean(row, axis=1)[:, None]
        out[a, :] = (d * tw.rsqrt(tw.mean(d * d, axis=1) + epsilon)[:, None]).to(out.dtype)
    return out
