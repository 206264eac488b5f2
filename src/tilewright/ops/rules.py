"""From a graph op to a library kernel: which kernel, on which views of which operands, with which static arguments.

A rule answers with a `Call`, or raises UnsupportedError with the reason and what would work. The rules are in the
`rules_*` files by kind; `docs/ops.md` lists what each op runs as.
"""

from __future__ import annotations

from . import rules_axes, rules_moves, rules_products, rules_windows, rules_winograd
from .call import RULES, Call, Operands, Rule

__all__ = ["FUSABLE", "KEPT", "RULES", "Call", "Operands", "Rule"]
assert rules_axes and rules_moves and rules_products and rules_windows and rules_winograd  # they register their rules

#: anchors whose kernel may end in an elementwise tail
FUSABLE = frozenset({
    "matmul", "conv", "conv_transpose", "winograd_output", "max_pool", "avg_pool", "softmax", "log_softmax",
    "layer_norm", "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_mean", "gather",
})
#: composites with a kernel of their own; all others are decomposed
KEPT = frozenset({"softmax", "log_softmax", "layer_norm", "reduce_mean"})
