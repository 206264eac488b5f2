"""The passes of the Graph IR, in order.

Two jobs need no pass: common subexpressions are one node by construction (nodes are interned), and dead code is
whatever the outputs do not reach. Every pass is Graph -> Graph and keeps the meaning of every value it does not remove.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

from ...ir.graph.core import Graph
from .canonicalise import canonical_rule
from .canonicalise_dynamic import dynamic_rule
from .channels_last import channels_last
from .decompose import decompose
from .fold_batchnorm import fold_batchnorm
from .fold_constants import fold_constants
from .recognise import recognise
from .rewrite import rewrite
from .specialise import specialise

Pass: TypeAlias = Callable[[Graph], Graph]
#: composites that every target has a kernel for
KEEP: frozenset[str] = frozenset({"softmax", "log_softmax", "layer_norm"})


def simplify(graph: Graph) -> Graph:
    """dyn_* forms to static ones, constants folded, one spelling for each computation; to a fixed point."""
    while True:
        after = fold_constants(graph)
        after = rewrite(after, dynamic_rule)
        after = rewrite(after, canonical_rule)
        if after == graph:
            return after
        graph = after


def passes(keep: Collection[str] = KEEP, *, layout: str = "last") -> list[tuple[str, Pass]]:
    """The pipeline as names and functions."""
    steps: list[tuple[str, Pass]] = [
        ("simplify", simplify),
        ("recognise", recognise),
        ("fold_batchnorm", fold_batchnorm),
    ]
    if layout == "last":
        steps.append(("channels_last", channels_last))
    return [
        *steps,
        ("decompose", lambda g: decompose(g, keep)),
        ("simplify", simplify),
    ]


def optimise(
    graph: Graph,
    bindings: Mapping[str, int | Sequence[int]] | None = None,
    *,
    keep: Collection[str] = KEEP,
    layout: str = "last",
    watch: Callable[[str, Graph], None] | None = None,
) -> Graph:
    """Run the pipeline. `bindings` are given to `specialise` first; `watch` sees the graph after every pass."""
    steps = passes(keep, layout=layout)
    if bindings:
        steps.insert(0, ("specialise", lambda g: specialise(g, bindings)))
    for name, step in steps:
        graph = step(graph)
        if watch is not None:
            watch(name, graph)
    return graph
