"""Gathers and scatters by elements and by index tuples, as gathers and scatters of rows of a matrix.

A position is an index in range, or one that lies outside however it is read: kernels read zero there and write nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from ...ir.graph import build as b
from ...ir.graph.core import Node, Value
from ...ir.graph.make import make
from ...ir.types import i64


def _rows(parts: Sequence[tuple[Value | None, int, int]], shape: tuple[int, ...]) -> Value:
    """Flat row numbers of `shape`: the sum over axes of index times step. Parts are (indices, None for the position
    along an axis, extent, step); they broadcast to `shape`."""
    count = max(1, prod(n for _, n, _ in parts))
    flat: Value = b.broadcast(b.const(np.zeros((), np.int64)), shape)
    inside: Value | None = None
    for index, extent, step in parts:
        assert index is not None
        at = b.cast(index, i64)
        if index.dtype.kind == "i" and index.node.op != "constant":
            at = b.where(b.lt(at, 0), b.add(at, extent), at)
        elif index.is_constant:
            at = b.const(np.where(index.constant < 0, index.constant.astype(np.int64) + extent, index.constant))
        flat = b.add(flat, b.mul(b.cast(at, i64), step))
        if not _known_inside(index, extent):
            ok = b.and_(b.ge(at, 0), b.lt(at, extent))
            inside = ok if inside is None else b.and_(inside, ok)
    return flat if inside is None else b.where(inside, flat, -1 - count)


def _known_inside(index: Value, extent: int) -> bool:
    if not index.is_constant:
        return False
    data = index.constant
    return data.size == 0 or bool(-extent <= data.min() and data.max() < extent)


def _along(length: int, axis: int, rank: int) -> Value:
    return b.const(np.arange(length, dtype=np.int64).reshape([-1 if k == axis else 1 for k in range(rank)]))


def _operands(node: Node) -> list[Value]:
    found = [v for v in node.inputs if v is not None]
    return found


def _element_rows(node: Node) -> Value:
    """Flat positions in x of the elements that gather_elements and scatter_elements name."""
    x, index = _operands(node)[:2]
    shape, taken, axis = x.type.static_shape, index.type.static_shape, int(node.attr("axis"))
    parts: list[tuple[Value | None, int, int]] = []
    for k, n in enumerate(shape):
        step = prod(shape[k + 1:])
        parts.append((index if k == axis else _along(taken[k], k, len(shape)), n, step))
    return _rows(parts, taken)


def gather_elements(node: Node) -> Value:
    x, index = _operands(node)
    rows = b.reshape(_element_rows(node), (prod(index.type.static_shape),))
    flat = make("gather", b.reshape(x, (prod(x.type.static_shape),)), rows, loc=node.loc, name=node.name, axis=0)
    return b.reshape(flat.out(), index.shape)


def scatter_elements(node: Node) -> Value:
    x, index, update = _operands(node)
    count = prod(index.type.static_shape)
    rows = b.reshape(_element_rows(node), (count, 1))
    flat = make("scatter_nd", b.reshape(x, (prod(x.type.static_shape),)), rows, b.reshape(update, (count,)),
                loc=node.loc, name=node.name, reduction=node.attr("reduction"))
    return b.reshape(flat.out(), x.shape)


def _tuple_rows(x: Value, index: Value, batch: int) -> tuple[Value, tuple[int, ...], int, int]:
    """(row numbers, their shape, how many rows x has, elements per row) for index tuples."""
    shape, lead = x.type.static_shape, index.type.static_shape[:-1]
    depth = index.type.static_shape[-1]
    columns = prod(shape[batch + depth:])
    parts: list[tuple[Value | None, int, int]] = []
    for k in range(batch + depth):
        step = prod(shape[k + 1:batch + depth])
        if k < batch:
            parts.append((_along(lead[k], k, len(lead)), shape[k], step))
            continue
        j = k - batch
        one = b.slice(index, (0,) * len(lead) + (j,), (*lead, j + 1), (1,) * (len(lead) + 1))
        parts.append((b.reshape(one, lead), shape[k], step))
    return _rows(parts, lead), lead, prod(shape[:batch + depth]), columns


def gather_nd(node: Node) -> Value:
    x, index = _operands(node)
    rows, lead, count, columns = _tuple_rows(x, index, int(node.attr("batch_dims")))
    picked = make("gather", b.reshape(x, (count, columns)), b.reshape(rows, (prod(lead),)), loc=node.loc,
                  name=node.name, axis=0)
    return b.reshape(picked.out(), node.types[0].shape)


def scatter_nd(node: Node) -> Value:
    x, index, update = _operands(node)
    rows, lead, count, columns = _tuple_rows(x, index, 0)
    placed = make("scatter_nd", b.reshape(x, (count, columns)), b.reshape(rows, (prod(lead), 1)),
                  b.reshape(update, (prod(lead), columns)), loc=node.loc, name=node.name,
                  reduction=node.attr("reduction"))
    return b.reshape(placed.out(), x.shape)
