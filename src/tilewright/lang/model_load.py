"""`tw.load` means two things: in a kernel a tile that reads a chosen value outside the tensor, elsewhere a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .intrinsics import INTRINSICS
from .values import Intrinsic

if TYPE_CHECKING:
    from ..runtime.model import Model

_DOC = """A model from a path, bytes or an onnx ModelProto: `tw.load("model.onnx").compile("cpu")(x)`.

    tw.load(source, *, dims=None, fixed=None) -> Model

    `dims` fixes named dims of the inputs ({"batch": 8}), `fixed` makes inputs constants ({"sr": 16000}). Every problem
    of a file is reported in one ModelError, and nothing of it is run.

    Inside a kernel tw.load is another function: %s.
"""


class Load(Intrinsic):
    # A slot of its own: the class would hide the one it inherits.
    __slots__ = ("__doc__",)

    def __call__(
        self, source: Any, *, dims: Mapping[str, int] | None = None, fixed: Mapping[str, Any] | None = None
    ) -> Model:
        from ..runtime.model import load as load_model

        return load_model(source, dims=dims, fixed=fixed)

    def __repr__(self) -> str:
        return "<tilewright.load>"


load = Load("load", _DOC % INTRINSICS["load"].__doc__)
