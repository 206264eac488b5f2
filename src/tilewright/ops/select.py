"""Picking and placing elements by index: top-k and scatters; and powers of integers, a loop over an exponent's bits."""

from __future__ import annotations

import tilewright as tw

A, R, P, C, I, N = tw.dims("A R P C I N")


@tw.kernel
def topk(x: tw.Tensor[A, R], k: int, largest: bool, worst: tw.static[object]):
    """The k greatest (or least) of each row, best first, equal ones in order, and where they are. NaN is greatest.
    `worst`: the value of x's type that loses against every other."""
    values = tw.empty((A, k), x.dtype)
    places = tw.empty((A, k), tw.i64)
    for a in tw.indices(A):
        row = x[a, :]
        at = tw.arange(R)
        left = at >= 0
        for r in tw.indices(k):
            if largest:
                best = tw.max(tw.where(left, row, worst), axis=0)
                same = (row == best) | ((row != row) & (best != best))
                place = tw.min(tw.where(left & same, at, R), axis=0)
            else:
                best = tw.min(tw.where(left & (row == row), row, worst), axis=0)
                found = tw.min(tw.where(left & (row == best), at, R), axis=0)
                rest = tw.min(tw.where(left, at, R), axis=0)  # once only NaN are left
                place = tw.where(found < R, found, rest)
            values[a, r] = x[a, place]
            places[a, r] = place
            left = left & (at != place)
    return values, places


@tw.kernel
def scatter_rows(x: tw.Tensor[P, C], index: tw.Tensor[I], update: tw.Tensor[I, C]):
    """x, with row index[i] replaced by update[i]; of several that meet in a row, the last stays. A negative index
    counts from the end."""
    out = tw.empty((P, C), x.dtype)
    for p, c in tw.tiles(P, C):
        out[p, c] = x[p, c]
    for c in tw.tiles(C):
        for i in range(I):
            at = index[i].to(tw.i64)
            out[tw.where(at < 0, at + P, at), c] = update[i, c]
    return out


@tw.kernel
def scatter_rows_add(x: tw.Tensor[P, C], index: tw.Tensor[I], update: tw.Tensor[I, C]):
    """x, with update[i] added to row index[i], in order: the result does not depend on the number of threads.
    (Lowering of the other reductions changes the monoid.)"""
    out = tw.zeros((P, C), x.dtype)
    for p, c in tw.tiles(P, C):
        out[p, c] = x[p, c]
    for c in tw.tiles(C):
        for i in range(I):
            at = index[i].to(tw.i64)
            tw.scatter_add(out, tw.where(at < 0, at + P, at), c, update[i, c])
    return out


@tw.kernel
def power(x: tw.Tensor[N], y: tw.Tensor[N], bits: int, signed: bool):
    """x to the power y, of integers, wrapping; below 0 the inverse, which is 0 except for 1 and -1."""
    out = tw.empty((N,), x.dtype)
    for i in tw.tiles(N):
        base = x[i]
        left = y[i]
        product = tw.full((i,), 1, x.dtype)
        for _ in tw.indices(bits):
            product = tw.where((left & 1) == 1, product * base, product)
            base = base * base
            left = left >> 1
        if signed:
            odd = (y[i] & 1) == 1
            inverse = tw.where(x[i] == 1, 1, tw.where(x[i] == -1, tw.where(odd, x[i], x[i] * x[i]), 0))
            product = tw.where(y[i] < 0, inverse, product)
        out[i] = product
    return out
