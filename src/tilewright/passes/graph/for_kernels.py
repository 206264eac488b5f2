"""The form that library kernels want: biases, scales and shifts as separate elementwise nodes (they are fused back as
tails), rows that are worked on along their last axis, gathers and scatters of rows, functions that kernels lack in
terms of those they have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

from ...ir.graph import build as b
from ...ir.graph.core import Graph, Node, Value
from ...ir.graph.make import make
from .for_kernels_index import gather_elements, gather_nd, scatter_elements, scatter_nd
from .for_kernels_math import acosh, asinh, atanh, integer_fmod
from .for_kernels_windows import as_convolution, overlaps, pad_by_gather, split_bias
from .rewrite import Uses, rewrite

Rewrite = Callable[[Node], "Value | Sequence[Value]"]


def for_kernels(graph: Graph) -> Graph:
    return rewrite(graph, _rule)


def _rule(node: Node, _: Uses) -> Sequence[Value] | None:
    change = _change(node)
    if change is None:
        return None
    made = change(node)
    return (made,) if isinstance(made, Value) else made


def _change(node: Node) -> Rewrite | None:
    match node.op:
        case "conv" | "conv_transpose" if len(node.inputs) > 2 and node.inputs[2] is not None:
            return split_bias
        case "layer_norm" if any(v is not None for v in node.inputs[1:]):
            return _split_affine
        case "softmax" | "log_softmax" | "topk" if node.attr("axis") != node.types[0].rank - 1:
            return _last_axis
        case "pad" if node.attr("mode") != "constant":
            return pad_by_gather
        case "conv_transpose" if node.attr("layout") == "last" and overlaps(node):
            return as_convolution
        case "argmax" | "argmin" if node.attr("last"):
            return _from_the_end
        case "reduce_sum" | "reduce_max" | "reduce_min" | "reduce_prod" | "reduce_mean" if not node.attr("axes"):
            return lambda n: _operand(n)
        case "scatter_nd" if _operand(node, 1).type.rank != 2 or _operand(node, 1).shape[-1] != 1:
            return scatter_nd
        case _:
            return _BY_OP.get(node.op) if node.op != "fmod" or _operand(node).dtype.is_int else None


_BY_OP: dict[str, Rewrite] = {
    "asinh": asinh, "acosh": acosh, "atanh": atanh, "fmod": integer_fmod, "gather_elements": gather_elements,
    "gather_nd": gather_nd, "scatter_elements": scatter_elements,
}  # fmt: skip


def _operand(node: Node, index: int = 0) -> Value:
    v = node.inputs[index]
    assert v is not None
    return v


def _split_affine(node: Node) -> Value:
    x, scale, bias = [*node.inputs, None, None][:3]
    y = make("layer_norm", x, loc=node.loc, name=node.name, **dict(node.attrs)).out()
    if scale is not None:
        y = b.mul(y, scale)
    return b.add(y, bias) if bias is not None else y


def _last_axis(node: Node) -> Sequence[Value]:
    x = _operand(node)
    rank, axis = x.type.rank, int(node.attr("axis"))
    perm = (*(k for k in range(rank) if k != axis), axis)
    back = tuple(perm.index(k) for k in range(rank))
    moved = make(node.op, b.transpose(x, perm), loc=node.loc, name=node.name, **{**dict(node.attrs), "axis": rank - 1})
    return [b.transpose(v, back) for v in moved.outputs]


def _from_the_end(node: Node) -> Value:
    """The last of equal elements is the first when the axis is walked backwards."""
    x, axis = _operand(node), int(node.attr("axis"))
    shape = x.type.static_shape
    assert prod(shape) == 0 or shape[axis] > 0
    turned = b.slice(x, tuple(n - 1 if k == axis else 0 for k, n in enumerate(shape)),
                     tuple(-1 if k == axis else n for k, n in enumerate(shape)),
                     tuple(-1 if k == axis else 1 for k in range(len(shape))))
    at = make(node.op, turned, loc=node.loc, name=node.name, **{**dict(node.attrs), "last": False}).out()
    return b.sub(shape[axis] - 1, at)
