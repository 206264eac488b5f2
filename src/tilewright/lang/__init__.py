"""The kernel language: what kernels are written with, and the parser from Python's syntax tree to Tile IR.

`dims`, `values`, `intrinsics` hold the names users write; `source`, `signature` read a function; `parse` is the entry,
with `statements`, `loops`, `expressions` walking the tree and `operators`, `elementwise`, `reductions`, `making`,
`indexing` giving meaning to what they find.
"""

from __future__ import annotations

from typing import Any

from .dims import Dim, Tensor, dims, static
from .intrinsics import INTRINSICS
from .values import fn

__all__ = ["Dim", "Tensor", "dims", "fn", "static", *INTRINSICS]


def __getattr__(name: str) -> Any:
    if name in INTRINSICS:
        return INTRINSICS[name]
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
