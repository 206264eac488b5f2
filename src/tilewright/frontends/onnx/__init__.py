"""ONNX models -> Graph IR.

`load` reads a path, bytes or a ModelProto and gives a `Graph` whose values keep the model's tensor names. A model that
cannot be taken raises one `ModelError` listing every problem found. Nothing in a file is trusted, and nothing in it is
executed: sizes are compared with the bytes that are there before memory is taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import ArgumentError
from ...ir.graph.core import Graph


def load(source: Any, *, dims: Mapping[str, int] | None = None, fixed: Mapping[str, Any] | None = None) -> Graph:
    """The graph of an ONNX model. `dims` fixes named dims of its inputs; the others stay symbols (an unnamed dim is
    called `input.axis`). `fixed` gives inputs a value: they become constants, and branches on them are decided."""
    from . import (  # noqa: F401  (each registers its handlers)
        convert_control,
        convert_elementwise,
        convert_nn,
        convert_reduce,
        convert_resize,
        convert_rnn,
        convert_shape,
    )
    from .importer import Importer
    from .reader import read

    bound = dict(dims or {})
    for name, size in bound.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ArgumentError(f"dim '{name}' must be a size, not {size!r}")
    return Importer(read(source), bound, {k: np.asarray(v) for k, v in (fixed or {}).items()}).run()
