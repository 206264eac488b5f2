"""Matrix products as calls of library kernels."""

from __future__ import annotations

from math import prod

import numpy as np

from ..ir.graph.core import Node
from .call import Call, Operands, operand, rule, sums, weights


@rule("matmul")
def _matmul(ctx: Operands, n: Node) -> Call:
    from . import matmul

    a, b = operand(n, 0), operand(n, 1)
    sa, sb = a.type.static_shape, b.type.static_shape
    sa = (1, *sa) if len(sa) == 1 else sa
    sb = (*sb, 1) if len(sb) == 1 else sb
    m, k, cols = sa[-2], sa[-1], sb[-1]
    if prod(sb[:-2]) == 1:
        rows = prod(sa[:-1])
        return Call(matmul.matmul, {"x": ctx.shaped(a, (rows, k)), "w": weights(ctx, b, (k, cols))}, (rows, cols),
                    sums(n), packable="w")
    lead = np.broadcast_shapes(sa[:-2], sb[:-2])
    batch = prod(lead)
    data = ctx.constant(b)
    if data is not None and sb[:-2] == lead:
        rows = ctx.reshaped(ctx.shaped(a, sa).broadcast((*lead, m, k)), (batch, m, k))
        return Call(matmul.batched_matmul, {"x": rows, "w": data.reshape((batch, k, cols))}, (batch, m, cols), sums(n),
                    packable="w")
    x, w = ctx.shaped(a, sa).broadcast((*lead, m, k)), ctx.shaped(b, sb).broadcast((*lead, k, cols))
    tensors = {"x": ctx.reshaped(x, (batch, m, k)), "w": ctx.reshaped(w, (batch, k, cols))}
    return Call(matmul.batched_matmul, {**tensors}, (batch, m, cols), sums(n))
