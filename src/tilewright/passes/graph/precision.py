"""A graph in mixed precision: tensors in memory and operands of products in a 16-bit float, arithmetic in f32.

Every f32 value has two forms: *high*, as it is computed, and *low*, rounded to the 16-bit type. Products, pools,
reductions, softmax, norms and everything that only moves elements read low forms (their kernels sum in f32) and give
low results. Elementwise work reads high forms and gives a high one; where it has more than one reader, or one that is
not elementwise, what is kept is the low form, and readers get it widened. Inputs and outputs keep their types.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ...ir.graph import build as b
from ...ir.graph.core import Graph, Node, Value
from ...ir.graph.make import rebuild
from ...ir.graph.spec import SPECS
from ...ir.types import DType, f16, f32

#: ops that sum or branch in a way that a 16-bit operand would spoil or cannot pass through
IN_F32 = frozenset({"cumsum", "reduce_prod", "topk", "if_", "winograd_input", "winograd_output"})
#: sums that leave the range of f16 where their terms do not (bf16 has the range of f32)
SUMS = frozenset({"reduce_sum", "reduce_mean"})


def to_precision(graph: Graph, dtype: DType) -> Graph:
    """`dtype`: f16 or bf16. The graph must be in primitives and kept composites."""
    return _Mixed(graph, dtype).run()


@dataclass(slots=True)
class _Mixed:
    graph: Graph
    dtype: DType
    high: dict[Value, Value] = field(default_factory=dict)
    low: dict[Value, Value] = field(default_factory=dict)
    other: dict[Value, Value] = field(default_factory=dict)

    def run(self) -> Graph:
        users = self.graph.users()
        outputs = set(self.graph.outputs)
        in_f32 = IN_F32 | SUMS if self.dtype is f16 else IN_F32
        for n in self.graph.nodes:
            if n.op in ("input", "constant"):
                self.leaf(n)
            elif SPECS[n.op].elementwise or n.op in in_f32:
                readers = [u for v in n.outputs for u in users.get(v, ())]
                kept = len(readers) > 1 or any(not SPECS[u.op].elementwise for u in readers)
                self.in_f32(n, kept and not any(v in outputs for v in n.outputs) and n.op not in in_f32)
            else:
                self.in_low(n)
        results = [self.form(v, True) for v in self.graph.outputs]
        return Graph(self.graph.name, self.graph.inputs, results, self.graph.output_names)

    def form(self, v: Value, high: bool) -> Value:
        if v.dtype is not f32:
            return self.other[v]
        if high:
            if v not in self.high:
                self.high[v] = b.cast(self.low[v], f32)
            return self.high[v]
        if v not in self.low:
            self.low[v] = b.cast(self.high[v], self.dtype)
        return self.low[v]

    def leaf(self, n: Node) -> None:
        (self.high if n.types[0].dtype is f32 else self.other)[n.out()] = n.out()

    def in_f32(self, n: Node, keep_low: bool) -> None:
        branches = {k: to_precision(g, self.dtype) for k, g in n.attrs if isinstance(g, Graph)}
        made = rebuild(n, [None if v is None else self.form(v, True) for v in n.inputs], **branches)
        for v, new in zip(n.outputs, made.outputs, strict=True):
            if v.dtype is not f32:
                self.other[v] = new
            elif keep_low:
                self.low[v] = b.cast(new, self.dtype)
            else:
                self.high[v] = new

    def in_low(self, n: Node) -> None:
        made = rebuild(n, [None if v is None else self.form(v, False) for v in n.inputs])
        for v, new in zip(n.outputs, made.outputs, strict=True):
            table = self.other if v.dtype is not f32 else self.low if new.dtype is self.dtype else self.high
            table[v] = new
