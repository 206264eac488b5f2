"""The outermost layer of a protobuf file, read without a protobuf library.

It answers two questions before anything is parsed: is this plausibly an ONNX model, and is all of it there? A
`ModelProto` has no magic number, but its top-level fields are few and their wire types are fixed, and each nested
message declares its length, so a file that was cut short says by how much.
"""

from __future__ import annotations

from dataclasses import dataclass

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5

#: ModelProto: field number -> (name, wire type)
MODEL_FIELDS: dict[int, tuple[str, int]] = {
    1: ("ir_version", _VARINT),
    2: ("producer_name", _LENGTH),
    3: ("producer_version", _LENGTH),
    4: ("domain", _LENGTH),
    5: ("model_version", _VARINT),
    6: ("doc_string", _LENGTH),
    7: ("graph", _LENGTH),
    8: ("opset_import", _LENGTH),
    14: ("metadata_props", _LENGTH),
    20: ("training_info", _LENGTH),
    25: ("functions", _LENGTH),
    26: ("configuration", _LENGTH),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """Why the bytes are not a whole ModelProto. `truncated` tells a short file from a foreign one."""

    reason: str
    truncated: bool = False


def _varint(data: memoryview, at: int) -> tuple[int, int] | Fault:
    value = shift = 0
    while True:
        if at >= len(data):
            return Fault(f"the file ends inside a number at byte {at}", truncated=True)
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            return Fault(f"a number at byte {at} is longer than 64 bits")


def _skip(data: memoryview, at: int, kind: int, what: str) -> int | Fault:
    """The position after a field's payload."""
    if kind == _VARINT:
        read = _varint(data, at)
        return read if isinstance(read, Fault) else read[1]
    if kind == _LENGTH:
        read = _varint(data, at)
        if isinstance(read, Fault):
            return read
        size, at = read
        if size > len(data) - at:
            return Fault(f"{what} declares {size} bytes, but only {len(data) - at} follow", truncated=True)
        return at + size
    size = 8 if kind == _FIXED64 else 4
    if size > len(data) - at:
        return Fault(f"the file ends inside {what}", truncated=True)
    return at + size


def scan(data: bytes | memoryview) -> Fault | None:
    """None when `data` is a well-formed sequence of ModelProto fields which holds a graph."""
    view = memoryview(data)
    at, seen = 0, set[int]()
    while at < len(view):
        read = _varint(view, at)
        if isinstance(read, Fault):
            return read
        tag, after = read
        number, kind = tag >> 3, tag & 7
        name, expected = MODEL_FIELDS.get(number, (f"field {number}", kind))
        if number == 0 or kind not in (_VARINT, _FIXED64, _LENGTH, _FIXED32) or kind != expected:
            return Fault(f"byte {at} does not start a field of an ONNX model")
        if not seen and number not in MODEL_FIELDS:
            return Fault("the first bytes are not those of an ONNX model")
        moved = _skip(view, after, kind, f"'{name}'")
        if isinstance(moved, Fault):
            return moved
        seen.add(number)
        at = moved
    if 7 not in seen:
        return Fault("there is no graph in it", truncated=bool(seen))
    return None


def sniff(head: bytes, size: int) -> bool:
    """Whether a file of `size` bytes that starts with `head` may be an ONNX model (reads the first field only)."""
    view = memoryview(head)
    read = _varint(view, 0)
    if isinstance(read, Fault):
        return False
    tag, at = read
    number, kind = tag >> 3, tag & 7
    if number not in MODEL_FIELDS or MODEL_FIELDS[number][1] != kind:
        return False
    value = _varint(view, at)
    if isinstance(value, Fault):
        return False
    return 0 < value[0] < 1000 if number == 1 else value[0] <= size
