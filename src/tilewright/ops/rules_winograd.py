"""The transforms around Winograd's products as calls of library kernels."""

from __future__ import annotations

from ..ir.graph.core import Node
from .call import Call, Operands, operand, rule


@rule("winograd_input")
def _winograd_input(ctx: Operands, n: Node) -> Call:
    from . import winograd

    x = operand(n, 0)
    (tiles_h, tiles_w), (pad_h, pad_w) = n.attr("tiles"), n.attr("pads")
    return Call(winograd.winograd_input, {"x": ctx.shaped(x, x.type.static_shape)}, n.types[0].static_shape,
                {"tiles_h": tiles_h, "tiles_w": tiles_w, "pad_h": pad_h, "pad_w": pad_w})


@rule("winograd_output")
def _winograd_output(ctx: Operands, n: Node) -> Call:
    from . import winograd

    m = operand(n, 0)
    p, q = n.attr("size")
    static = {"tiles_h": -(-p // 4), "tiles_w": -(-q // 4), "p_size": p, "q_size": q}
    return Call(winograd.winograd_output, {"m": ctx.shaped(m, m.type.static_shape)}, n.types[0].static_shape, static)
