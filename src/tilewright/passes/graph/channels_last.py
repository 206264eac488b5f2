"""Move convolutional networks to channels-last, where a vector of channels is contiguous.

One walk over the graph. A value that a convolution or a pool made is *held* in its channels-last form; ops that do not
mind the order of axes (elementwise, concat, pad, slice, reductions ...) work on the held form with their axes renamed,
so a transpose is written only where an op needs the original order, and weights are transposed as constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...ir.graph import build as b
from ...ir.graph.core import ArrayRef, Graph, Node, Value, constant
from ...ir.graph.spec import SPECS
from .rewrite import regraph

WINDOWED = frozenset({"conv", "conv_transpose", "max_pool", "avg_pool"})
LAYOUT_ONLY = frozenset({"global_avg_pool", "global_max_pool", "batch_norm"})
#: list attributes with one entry per axis
PER_AXIS = {
    "slice": ("starts", "stops", "steps"),
    "pad": ("lo", "hi"),
    "tile": ("repeats",),
    "resize": ("scales", "sizes"),
}
ONE_AXIS = frozenset({"concat", "split", "softmax", "log_softmax", "cumsum", "topk", "lp_norm"})


def to_last(rank: int) -> tuple[int, ...]:
    return (0, *range(2, rank), 1)


def to_first(rank: int) -> tuple[int, ...]:
    return (0, rank - 1, *range(1, rank - 1))


def channels_last(graph: Graph) -> Graph:
    """The same graph with convolutions and pools in layout "last"; its inputs and outputs keep their order."""
    return _Walk(graph).run()


class _Walk:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        #: old value -> its new value in the original order, where it has one
        self.plain: dict[Value, Value] = {}
        #: old value -> its new value in channels-last order
        self.held: dict[Value, Value] = {}

    def run(self) -> Graph:
        for v in self.graph.inputs:
            self.plain[v] = v
        for node in self.graph.nodes:
            if node.op in ("input", "constant"):
                self.plain[node.out()] = node.out()
                continue
            with b.location(node.loc, node.name):
                self._visit(node)
        outputs = [self.first(v) for v in self.graph.outputs]
        table = self.plain | {v: new for v, new in self.held.items() if v not in self.plain}
        return regraph(self.graph, self.graph.inputs, outputs, table)

    # the two forms of a value ----------------------------------------------------------------------------------------

    def first(self, v: Value) -> Value:
        if v not in self.plain:
            self.plain[v] = transposed(self.held[v], to_first(v.type.rank))
        return self.plain[v]

    def last(self, v: Value) -> Value:
        return self.held[v] if v in self.held else transposed(self.plain[v], to_last(v.type.rank))

    def _first_of(self, node: Node) -> list[Value | None]:
        return [None if v is None else self.first(v) for v in node.inputs]

    # ops

    def _visit(self, node: Node) -> None:
        layout = node.attr("layout")
        if (node.op in WINDOWED or node.op in LAYOUT_ONLY) and layout == "first" and node.types[0].rank >= 3:
            self._windowed(node)
        elif any(v in self.held for v in node.inputs if v is not None) and self._carried(node):
            return
        else:
            self._as_it_is(node)

    def _as_it_is(self, node: Node) -> None:
        attrs: dict[str, Any] = {key: channels_last(value) for key, value in node.attrs if isinstance(value, Graph)}
        self._plain_results(node, b.rebuild(node, self._first_of(node), **attrs).outputs)

    def _plain_results(self, node: Node, values: Sequence[Value]) -> None:
        for old, new in zip(node.outputs, values, strict=True):
            self.plain[old] = new

    def _hold(self, node: Node, values: Sequence[Value]) -> bool:
        for old, new in zip(node.outputs, values, strict=True):
            self.held[old] = new
        return True

    def _windowed(self, node: Node) -> None:
        inputs = self._first_of(node)
        x = node.inputs[0]
        assert x is not None
        if node.op == "batch_norm" and x not in self.held:
            return self._as_it_is(node)
        inputs[0] = self.last(x)
        if node.op in ("conv", "conv_transpose"):
            w = inputs[1]
            assert w is not None
            inputs[1] = transposed(w, (*range(2, w.type.rank), 1, 0))
        self._hold(node, b.rebuild(node, inputs, layout="last").outputs)

    def _carried(self, node: Node) -> bool:
        """Try to work on held operands; False where the op needs the original order."""
        rule = self._special().get(node.op)
        if rule is not None:
            return rule(node)
        rank = node.types[0].rank
        if SPECS[node.op].elementwise and node.op not in ("quantize", "dequantize"):
            return self._elementwise(node, rank)
        ranks = {v.type.rank for v in node.inputs if v is not None}
        if ranks != {rank}:
            return False
        inputs = [None if v is None else self.last(v) for v in node.inputs]
        if node.op in ONE_AXIS:
            place = to_last(rank).index(node.attr("axis"))
            return self._hold(node, b.rebuild(node, inputs, axis=place).outputs)
        if node.op in PER_AXIS:
            changed = {
                k: tuple(node.attr(k)[p] for p in to_last(rank)) for k in PER_AXIS[node.op] if node.attr(k) is not None
            }
            return self._hold(node, b.rebuild(node, inputs, **changed).outputs)
        return False

    def _special(self) -> dict[str, Callable[[Node], bool]]:
        reductions = {n: self._reduction for n in SPECS if n.startswith("reduce_")}
        return reductions | {
            "argmax": self._arg,
            "argmin": self._arg,
            "transpose": self._transpose,
            "reshape": self._reshape,
            "shape_of": lambda node: False,
            "gather": self._gather,
        }

    def _elementwise(self, node: Node, rank: int) -> bool:
        if not any(v in self.held and v.type.rank == rank for v in node.inputs if v is not None):
            return False
        inputs: list[Value | None] = []
        for v in node.inputs:
            if v is None or v.type.rank == 0:
                inputs.append(None if v is None else self.first(v))
            elif v.type.rank == rank:
                inputs.append(self.last(v))
            else:
                wide = widened(self.first(v), rank)
                inputs.append(transposed(wide, to_last(rank)))
        return self._hold(node, b.rebuild(node, inputs).outputs)

    def _reduction(self, node: Node) -> bool:
        x = node.inputs[0]
        assert x is not None
        return self._reduced(node, x, node.attr("axes"), lambda new, axes: b.rebuild(node, [new], axes=axes))

    def _arg(self, node: Node) -> bool:
        x = node.inputs[0]
        assert x is not None
        return self._reduced(node, x, (node.attr("axis"),), lambda new, axes: b.rebuild(node, [new], axis=axes[0]))

    def _reduced(
        self, node: Node, x: Value, axes: Sequence[int], again: Callable[[Value, tuple[int, ...]], Node]
    ) -> bool:
        order = to_last(x.type.rank)
        out = again(self.last(x), tuple(sorted(order.index(a) for a in axes))).out()
        if node.attr("keepdims"):
            return self._hold(node, [out])
        left = [p for p in order if p not in axes]
        self._plain_results(node, [transposed(out, [left.index(p) for p in sorted(left)])])
        return True

    def _transpose(self, node: Node) -> bool:
        x = node.inputs[0]
        assert x is not None
        order = to_last(x.type.rank)
        perm = [order.index(p) for p in node.attr("perm")]
        self._plain_results(node, [transposed(self.last(x), perm)])
        return True

    def _reshape(self, node: Node) -> bool:
        """Without a transpose where only axes of extent 1 are out of order."""
        x = node.inputs[0]
        assert x is not None
        moved = [p for p in to_last(x.type.rank) if x.shape[p] != 1]
        if moved != sorted(moved):
            return False
        self._plain_results(node, [b.reshape(self.last(x), node.attr("shape"))])
        return True

    def _gather(self, node: Node) -> bool:
        x, index = node.inputs
        assert x is not None and index is not None
        if x not in self.held or index.type.rank != 1:
            return False
        place = to_last(x.type.rank).index(node.attr("axis"))
        return self._hold(node, b.rebuild(node, [self.last(x), self.first(index)], axis=place).outputs)


def widened(x: Value, rank: int) -> Value:
    """x with axes of extent 1 in front; a constant at once."""
    shape = (1,) * (rank - x.type.rank) + x.shape
    return constant(x.constant.reshape(shape)) if x.is_constant else b.reshape(x, shape)


def transposed(x: Value, perm: Sequence[int]) -> Value:
    """x transposed; a constant at once, and two transposes as one."""
    perm = tuple(perm)
    if perm == tuple(range(len(perm))):
        return x
    if x.is_constant:
        return constant(ArrayRef(np.array(np.transpose(x.constant, perm), order="C"), own=True))
    if x.node.op == "transpose":
        source, first = x.node.inputs[0], x.node.attr("perm")
        assert source is not None
        return transposed(source, [first[p] for p in perm])
    if x.node.op == "reshape" or all(d == 1 for d in x.shape):
        moved = [p for p in perm if x.shape[p] != 1]
        if moved == sorted(moved):
            return b.reshape(x, [x.shape[p] for p in perm])
    return b.transpose(x, perm)
