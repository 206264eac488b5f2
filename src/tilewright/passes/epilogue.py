"""Elementwise tails fused into a kernel: what it stores is first sent through the tail, in registers."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UnsupportedError
from ..ir.graph.core import Node as GraphNode
from ..ir.graph.core import Value
from ..ir.tile import build as b
from ..ir.tile import core as t
from ..ir.tile.rewrite import rebuild
from ..ir.types import DType

Operand = tuple[GraphNode, int]

#: graph ops whose scalar function has another name
RENAMED = {"reciprocal": "recip", "logical_not": "not", "bitwise_not": "not"}


def scalar_function(n: GraphNode) -> str | None:
    """The scalar function of an elementwise graph op; None when there is none."""
    if n.op == "div" and n.inputs[0] is not None and n.inputs[0].dtype.is_int:
        return "tdiv"
    name = RENAMED.get(n.op, n.op)
    return name if name in t.SCALAR_FNS else None


def fuse_tail(kernel: t.Kernel, body: Sequence[GraphNode], heads: frozenset[Operand], tensors: dict[Operand, str],
              dtypes: dict[str, DType], numbers: dict[Operand, int | float | bool], root: Value) -> t.Kernel:
    """`kernel` with what it stores sent through `body` first; the result is `root`. An operand is (node, position):
    `heads` read what the kernel stored before, `tensors` name new parameters of the output's shape (broadcasts come as
    strides of zero), `numbers` are constants; all others were computed by the body itself."""
    (out,) = kernel.outputs
    params = {name: t.TensorParam(name, dtypes[name], out.dims) for name in dtypes}
    new_out = t.TensorParam(out.name, root.dtype, out.dims, "out", out.loc)

    def tail(store: t.Node, args: tuple[t.Node, ...]) -> t.Node:
        *index, value = args
        known: dict[Value, t.Node] = {}

        def operand(n: GraphNode, k: int, v: Value) -> t.Node:
            if (n, k) in heads:
                return value
            if (n, k) in tensors:
                return b.load(params[tensors[n, k]], index)
            if (n, k) in numbers:
                return b.splat(t.const(numbers[n, k], v.dtype), value.shape)
            return known[v]

        for n in body:
            if n.op == "cast" and (n, 0) in heads and _widens_a_sum(value, n):
                known[n.out()] = value.args[0]
                continue
            known[n.out()] = _apply(n, [operand(n, k, v) for k, v in enumerate(n.inputs) if v is not None])
        return b.store(new_out, index, known[root], loc=store.loc)

    def visit(node: t.Node, args: tuple[t.Node, ...]) -> t.Node | None:
        return tail(node, args) if node.op == "store" and node.attr("tensor") == out.name else None

    changed = rebuild(kernel, visit)
    kept = tuple(p for p in kernel.params if p.name != out.name)
    return t.Kernel(kernel.name, (*kept, *params.values(), new_out), changed.effects, kernel.loc)


def _widens_a_sum(value: t.Node, n: GraphNode) -> bool:
    """Whether a kernel rounds its f32 result to 16 bits only for the tail to widen it again: the tail then takes the
    result as it was, which is nearer to the exact one and saves two conversions."""
    wide = n.types[0].dtype
    return (value.op == "cast" and value.dtype.is_float and value.dtype.bits == 16
            and value.args[0].dtype is wide and wide.is_float)


def _apply(n: GraphNode, args: list[t.Node]) -> t.Node:
    if n.op == "reshape":
        return args[0]
    if n.op == "cast":
        return b.cast(args[0], n.types[0].dtype)
    fn = scalar_function(n)
    if fn is None:
        raise UnsupportedError(f"no scalar function for the graph op '{n.op}'", loc=n.loc)
    return b.map(fn, *args)
