"""What each op of the Graph IR runs as on the CPU: the text of docs/ops.md.

    PYTHONPATH=src python -m tilewright.ops.table > docs/ops.md
"""

from __future__ import annotations

from ..ir.graph.spec import SPECS
from ..ir.tile import core as t
from ..passes.epilogue import RENAMED
from ..passes.graph.clusters import LEAVES, VIEWS
from ..runtime.plan import SPECIAL
from .rules import KEPT, RULES

#: ops that another pass rewrites before kernels are chosen
REWRITTEN = {
    "asinh": "log1p, sqrt and log",
    "acosh": "log1p, sqrt and log",
    "atanh": "log1p",
    "gather_elements": "row numbers, then gather",
    "gather_nd": "row numbers, then gather",
    "scatter_elements": "row numbers, then scatter_nd",
    "shape_of": "a constant, once shapes are known",
    "size_of": "a constant, once shapes are known",
}
#: what to add where a rule alone does not tell it all
NOTES = {
    "fmod": "of integers: div, mul and sub",
    "pow": "of integers: a loop over the exponent's bits (`select.power`)",
    "conv": "one to three spatial axes; 1x1 as a product, few channels and depthwise apart",
    "conv_transpose": "no overlap: one product per pixel; else as a convolution of the spread input",
    "max_pool": "one to three spatial axes",
    "avg_pool": "one to three spatial axes",
    "argmax": "`last`: the axis walked backwards",
    "argmin": "`last`: the axis walked backwards",
    "topk": "k rounds over each row; other axes are moved to the end",
    "softmax": "other axes are moved to the end",
    "log_softmax": "other axes are moved to the end",
    "gather": "an index out of range reads zero",
    "scatter_nd": "in order, whatever the number of threads; an index out of range writes nothing",
    "reduce_sum": "any set of axes; those apart are brought together by a copy",
    "iota": "a view of one ramp",
    "concat": "producers write straight into their part where nothing else reads them",
    "pad": "reflect and edge: a gather per axis",
    "if_": "a branch of the one native job; both sides are compiled",
    "matmul": "sums in f32 for floats up to 32 bits, f64 for f64, i32 for small integers",
}
REFUSED = """\
What is refused, each with its node and the reason:

- a shape that depends on values known only when the model runs: a `dyn_*` op whose parameters are not constants once
  the inputs' shapes are known, an `if_` whose branches give different shapes (`load(..., fixed=...)` decides it);
- windows over more than three spatial axes;
- `dyn_reduce` by mean, l1, l2 or logsumexp, and `prelu`, of anything but floats.
"""
HEAD = """\
# Ops on the CPU

Written by `python -m tilewright.ops.table`; a test compares it with the code. Every op runs for every element type that
its type rule takes (`tests/runtime/test_graph_ops.py` compiles each of them and compares it with the NumPy oracle).
Elementwise ops have no kernel of their own: they are fused into the kernel before or after them, or into one copy.

"""


def runs_as(op: str) -> str:
    """In a few words."""
    spec = SPECS[op]
    if spec.dynamic:
        return "its static form, once its parameters are constants"
    if op in REWRITTEN:
        return REWRITTEN[op]
    if op in LEAVES:
        return "no work"
    if op in VIEWS:
        return "a view; a copy only where no strides say it"
    if op in SPECIAL:
        return "copies" if op in ("concat", "pad") else "no kernel"
    if spec.composite and op not in KEPT:
        return "its decomposition"
    if spec.elementwise:
        fn = RENAMED.get(op, op)
        assert fn in t.SCALAR_FNS or op == "cast", op
        return "fused, elementwise"
    assert op in RULES, op
    return "a library kernel"


def markdown() -> str:
    rows = [f"| `{op}` | {runs_as(op)} | {NOTES.get(op, '')} |".replace("|  |", "| |") for op in sorted(SPECS)]
    return HEAD + "\n".join(["| Op | Runs as | |", "|---|---|---|", *rows]) + "\n\n" + REFUSED


if __name__ == "__main__":
    print(markdown(), end="")
