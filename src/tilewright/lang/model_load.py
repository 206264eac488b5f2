"""`tw.load` means two things: in a kernel a tile that reads a chosen value outside the tensor, elsewhere a model."""

from __future__ import annotations

from typing import Any

from .intrinsics import INTRINSICS
from .values import Intrinsic


class Load(Intrinsic):
    # A slot of its own: the class would hide the one it inherits.
    __slots__ = ("__doc__",)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from ..runtime.model import load as load_model

        return load_model(*args, **kwargs)

    def __repr__(self) -> str:
        return "<tilewright.load>"


load = Load("load", f"In a kernel: {INTRINSICS['load'].__doc__}. Anywhere else: reads a model.")
