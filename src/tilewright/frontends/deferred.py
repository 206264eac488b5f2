"""Models that can only be imported once the shapes of their inputs are known."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ModelError, Problem
from ..ir.graph.core import Value


class NeedsShapes(ModelError):
    """Raised by an import whose only problems are questions that the shapes of the inputs may answer. `inputs` are the
    model's, their free dims as symbols; the same import with `dims` bound may succeed."""

    def __init__(self, message: str, problems: Sequence[Problem], name: str, inputs: Sequence[Value],
                 input_names: Sequence[str], output_names: Sequence[str]) -> None:
        super().__init__(message, list(problems))
        self.name = name
        self.inputs = tuple(inputs)
        self.input_names = tuple(input_names)
        self.output_names = tuple(output_names)
