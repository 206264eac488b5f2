"""The spec table: every op of the Graph IR. One row says operands, attributes, type rule, NumPy reference and, for a
composite, its decomposition. Rows live in the `spec_*` files by kind; `input` and `constant` are made by `core`."""

from __future__ import annotations

from . import spec_dynamic, spec_elementwise, spec_nn, spec_recurrent, spec_reduce, spec_shape, spec_winograd
from .op_spec import SPECS, OpSpec

__all__ = ["SPECS", "OpSpec", "families", "kept", "spec_of"]

families = (spec_elementwise, spec_shape, spec_reduce, spec_nn, spec_winograd, spec_recurrent, spec_dynamic)


def spec_of(op: str) -> OpSpec:
    return SPECS[op]


def kept(*composites: str) -> frozenset[str]:
    """Every primitive, and the composites named: the ops a target says it runs."""
    return frozenset(n for n, s in SPECS.items() if not s.composite and not s.dynamic) | frozenset(composites)
