"""From a source (path, bytes, ModelProto) to a parsed ModelProto that is whole and of a known version."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from ...errors import MissingExtraError, ModelError
from . import wire

if TYPE_CHECKING:
    import onnx

Source: TypeAlias = "str | os.PathLike[str] | bytes | bytearray | memoryview | onnx.ModelProto"

MIN_OPSET, MAX_OPSET = 7, 28
MIN_IR, MAX_IR = 3, 14
#: protobuf itself cannot hold more than this in one message
MAX_BYTES = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed model: `folder` is where external data may lie (None when the model did not come from a path)."""

    proto: onnx.ModelProto
    name: str
    folder: Path | None
    opsets: dict[str, int]


def import_onnx() -> Any:
    """The `onnx` package, imported on first use."""
    try:
        import onnx
    except ImportError:
        raise MissingExtraError("onnx", "onnx", "Reading an ONNX model") from None
    return onnx


def read(source: Source) -> Document:
    onnx = import_onnx()
    if isinstance(source, onnx.ModelProto):
        name = str(source.graph.name or "model")
        check_text(source, name)
        return Document(source, name, None, _versions(source, name))
    folder: Path | None = None
    if isinstance(source, (bytes, bytearray, memoryview)):
        data, name = bytes(source), "model"
    elif isinstance(source, (str, os.PathLike)):
        path = Path(source)
        data, name, folder = read_file(path), path.name, path.resolve().parent
    else:
        raise ModelError(
            f"a model is a path, bytes or an onnx.ModelProto, not {type(source).__name__}",
        )
    proto = _parse(data, name, onnx)
    check_text(proto, name)
    return Document(proto, name, folder, _versions(proto, name))


def read_file(path: Path) -> bytes:
    """A regular file's bytes, or a clear error."""
    try:
        info = os.stat(path)
        if not stat.S_ISREG(info.st_mode):
            raise ModelError(f"'{path}' is not a file")
        if info.st_size > MAX_BYTES:
            raise ModelError(
                f"'{path}' has {info.st_size} bytes; one protobuf file holds at most {MAX_BYTES}",
                hint="save the model with external data",
            )
        return path.read_bytes()
    except FileNotFoundError:
        raise ModelError(f"there is no file '{path}'") from None
    except (OSError, ValueError) as e:
        raise ModelError(f"'{path}' cannot be read: {e}") from None


def _parse(data: bytes, name: str, onnx: Any) -> onnx.ModelProto:
    if not data:
        raise ModelError(f"'{name}' is empty")
    fault = wire.scan(data)
    if fault is not None:
        if fault.truncated:
            raise ModelError(f"'{name}' is cut short: {fault.reason}", hint="fetch or export the file again")
        raise ModelError(f"'{name}' is not an ONNX model: {fault.reason}")
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except (DecodeError, ValueError, RecursionError) as e:
        raise ModelError(f"'{name}' is a damaged ONNX file: {e}", hint="fetch or export the file again") from None
    return proto


def _versions(proto: onnx.ModelProto, name: str) -> dict[str, int]:
    """The opset of each domain ('' is ONNX's own), checked."""
    if not proto.HasField("graph"):
        raise ModelError(f"'{name}' has no graph")
    if not MIN_IR <= proto.ir_version <= MAX_IR:
        raise ModelError(
            f"'{name}' has ONNX IR version {proto.ir_version}; versions {MIN_IR} to {MAX_IR} are supported",
        )
    opsets: dict[str, int] = {}
    for entry in proto.opset_import:
        domain = "" if entry.domain == "ai.onnx" else entry.domain
        opsets[domain] = max(opsets.get(domain, 0), entry.version)
    if not opsets:
        raise ModelError(f"'{name}' imports no operator set", hint="the file may be cut short: export it again")
    if "" in opsets and not MIN_OPSET <= opsets[""] <= _newest():
        raise ModelError(
            f"'{name}' uses ONNX opset {opsets['']}; opsets {MIN_OPSET} to {_newest()} are supported",
            hint="convert it with onnx.version_converter, or export it with another opset",
        )
    return opsets


def check_text(proto: onnx.ModelProto, name: str) -> None:
    """Protobuf gives text that is not UTF-8 as bytes: refused once here, so that names are text everywhere else."""
    graphs = [proto.graph]
    nodes = [*(n for f in proto.functions for n in f.node)]
    texts: list[object] = [o.domain for o in proto.opset_import]
    for f in proto.functions:
        texts += [f.name, f.domain, *f.input, *f.output, *f.attribute, *(a.name for a in f.attribute_proto)]
        texts += [o.domain for o in f.opset_import]
    while graphs or nodes:
        if graphs:
            g = graphs.pop()
            texts += [g.name, *(v.name for v in [*g.input, *g.output])]
            texts += [d.dim_param for v in g.input for d in v.type.tensor_type.shape.dim]
            texts += [t.name for t in [*g.initializer, *(s.values for s in g.sparse_initializer)]]
            texts += [x for t in g.initializer for e in t.external_data for x in (e.key, e.value)]
            nodes += g.node
        while nodes:
            n = nodes.pop()
            texts += [n.name, n.op_type, n.domain, *n.input, *n.output]
            for a in n.attribute:
                texts += [a.name, a.ref_attr_name]
                graphs += [a.g, *a.graphs] if a.type in (5, 10) else []
                texts += [x for e in a.t.external_data for x in (e.key, e.value)] if a.type == 4 else []
    bad = next((t for t in texts if not isinstance(t, str)), None)
    if bad is not None:
        raise ModelError(f"'{name}' is a damaged ONNX file: a name in it is not text ({bad!r:.60})")


def _newest() -> int:
    return min(MAX_OPSET, int(import_onnx().defs.onnx_opset_version()))
