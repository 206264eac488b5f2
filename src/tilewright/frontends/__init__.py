"""Front ends: other people's model formats -> Graph IR. A format is recognised by content, never by a file's name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import ModelError
from ..ir.graph.core import Graph

SUPPORTED = ("onnx",)

#: how other formats start: (offset, bytes, what it is)
_OTHERS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"PK\x03\x04", "a zip archive (a PyTorch or NumPy file)"),
    (0, b"\x80\x02", "a Python pickle"),
    (0, b"\x80\x03", "a Python pickle"),
    (0, b"\x80\x04", "a Python pickle"),
    (0, b"\x80\x05", "a Python pickle"),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (0, b"ML\xefR", "MLIR bytecode (StableHLO)"),
    (0, b"\x89HDF\r\n", "an HDF5 file (Keras)"),
    (0, b"GGUF", "a GGUF model"),
    (0, b"\x7fELF", "an executable"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"\x89PNG", "an image"),
    (0, b"\xff\xd8\xff", "an image"),
    (0, b"version https://git-lfs", "a Git LFS pointer (the real file was not fetched)"),
    (0, b"module", "MLIR text"),
    (0, b"<", "a markup file (OpenVINO, or a web page saved in place of the model)"),
    (0, b"{", "a JSON file"),
    (8, b"{", "a safetensors file (weights without a graph)"),
)


def detect(source: Any) -> str:
    """The format of a model: a name from `SUPPORTED`, or a ModelError that says what it is instead."""
    if hasattr(source, "SerializeToString") and hasattr(source, "graph"):
        return "onnx"
    head, size, name = _head(source)
    if not head:
        raise ModelError(f"{name} is empty")
    for offset, magic, what in _OTHERS:
        if head[offset : offset + len(magic)] == magic:
            raise ModelError(f"{name} is {what}, not a model Tilewright can load", hint=_hint())
    from .onnx.wire import sniff

    if sniff(head, size):
        return "onnx"
    raise ModelError(f"{name} is of an unknown format", hint=_hint())


def load_graph(source: Any, *, dims: Mapping[str, int] | None = None, fixed: Mapping[str, Any] | None = None) -> Graph:
    """The Graph of a model in any supported format; `dims` fixes named dims of its inputs, `fixed` whole inputs."""
    detect(source)
    from .onnx import load

    return load(source, dims=dims, fixed=fixed)


def _hint() -> str:
    return f"supported formats: {', '.join(SUPPORTED)}"


def _head(source: Any) -> tuple[bytes, int, str]:
    """The first bytes of a source, its size, and what to call it."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return bytes(source[:64]), len(source), "the model"
    if not isinstance(source, (str, os.PathLike)):
        kind = type(source).__name__
        raise ModelError(f"a model is a path, bytes or an onnx.ModelProto, not {kind}", hint=_hint())
    path = Path(source)
    try:
        if not path.is_file():
            raise ModelError(f"'{path}' is not a file" if path.exists() else f"there is no file '{path}'")
        with path.open("rb") as f:
            return f.read(64), path.stat().st_size, f"'{path}'"
    except (OSError, ValueError) as e:
        raise ModelError(f"'{path}' cannot be read: {e}") from None
