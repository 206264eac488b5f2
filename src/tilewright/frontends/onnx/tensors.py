"""TensorProto -> NumPy, trusting nothing: dims, element type and byte counts must agree before memory is taken."""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import numpy as np

from ...ir.types import (
    DType,
    bf16,
    bool_,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)

if TYPE_CHECKING:
    import onnx

MAX_RANK = 64
#: a sparse tensor may declare far more elements than it stores; beyond this it is refused
MAX_DENSE_ELEMENTS = 1 << 24

#: TensorProto.DataType -> element type
DTYPES: dict[int, DType] = {
    1: f32, 2: u8, 3: i8, 4: u16, 5: i16, 6: i32, 7: i64, 9: bool_, 10: f16, 11: f64, 12: u32, 13: u64, 16: bf16,
}  # fmt: skip

_DTYPE_NAMES = {
    0: "undefined", 8: "string", 14: "complex64", 15: "complex128", 17: "float8e4m3fn", 18: "float8e4m3fnuz",
    19: "float8e5m2", 20: "float8e5m2fnuz", 21: "uint4", 22: "int4", 23: "float4e2m1", 24: "float8e8m0",
    25: "uint2", 26: "int2",
}  # fmt: skip


class Refusal(Exception):
    """Something in a model that cannot be taken; the importer turns it into a `Problem` of the node at hand.
    `until_shapes`: knowing the shapes of the model's inputs may answer it."""

    def __init__(self, reason: str, detail: str = "", until_shapes: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail
        self.until_shapes = until_shapes


def dtype_of(code: int) -> DType:
    found = DTYPES.get(code)
    if found is None:
        name = _DTYPE_NAMES.get(code, f"number {code}")
        known = ", ".join(d.name for d in DTYPES.values())
        raise Refusal(f"element type {name} is not supported", f"supported: {known}")
    return found


def checked_shape(dims: Any) -> tuple[tuple[int, ...], int]:
    """The dims of a tensor, and how many elements they make."""
    shape = tuple(int(d) for d in dims)
    if len(shape) > MAX_RANK:
        raise Refusal(f"a tensor of rank {len(shape)} is beyond the limit of {MAX_RANK}")
    if any(d < 0 for d in shape):
        raise Refusal(f"a tensor declares a negative dim: {list(shape)}")
    if math.prod(max(d, 1) for d in shape) >= 1 << 59:
        raise Refusal(f"a tensor declares an impossible size: {list(shape)}")
    return shape, math.prod(shape)


def decode(tensor: onnx.TensorProto, folder: Path | None) -> np.ndarray[Any, Any]:
    """The tensor's data; external data is looked up inside `folder` only."""
    dtype = dtype_of(tensor.data_type)
    shape, count = checked_shape(tensor.dims)
    if tensor.HasField("segment"):
        raise Refusal("a tensor split into segments is not supported")
    wanted = count * dtype.itemsize
    if tensor.data_location == 1:  # EXTERNAL
        raw: Any = _external(tensor, folder, wanted)
    elif tensor.HasField("raw_data"):
        raw = tensor.raw_data
        if len(raw) != wanted:
            raise Refusal(
                f"the tensor '{tensor.name}' declares {wanted} bytes but holds {len(raw)}",
                f"{dtype.name}{list(shape)}",
            )
    else:
        return _typed(tensor, dtype, shape, count)
    little = dtype.numpy.newbyteorder("<") if dtype.itemsize > 1 and dtype.name != "bf16" else dtype.numpy
    data: np.ndarray[Any, Any] = np.frombuffer(raw, np.uint8 if dtype.is_bool else little, count)
    data = data != 0 if dtype.is_bool else data.astype(dtype.numpy, copy=False)
    return data.reshape(shape)


def _typed(tensor: onnx.TensorProto, dtype: DType, shape: tuple[int, ...], count: int) -> np.ndarray[Any, Any]:
    """Data kept in one of the repeated fields (float_data, int32_data, ...)."""
    field: Any
    store: Any
    match dtype.name:
        case "f32":
            field, store = tensor.float_data, np.dtype(np.float32)
        case "f64":
            field, store = tensor.double_data, np.dtype(np.float64)
        case "i64":
            field, store = tensor.int64_data, np.dtype(np.int64)
        case "u32" | "u64":
            field, store = tensor.uint64_data, np.dtype(np.uint64)
        case _:
            field, store = tensor.int32_data, np.dtype(np.int32)
    if len(field) != count:
        raise Refusal(
            f"the tensor '{tensor.name}' declares {count} elements but holds {len(field)}",
            f"{dtype.name}{list(shape)}",
        )
    data = np.array(field, dtype=store)
    if dtype.name in ("f16", "bf16"):
        return data.astype(np.uint16).view(dtype.numpy).reshape(shape)
    return data.astype(dtype.numpy).reshape(shape)


def _external(tensor: onnx.TensorProto, folder: Path | None, wanted: int) -> bytes:
    """Bytes of a tensor kept in a file beside the model: opened only when it lies inside the model's folder."""
    info = {e.key: e.value for e in tensor.external_data}
    location = info.get("location", "")
    if folder is None:
        raise Refusal(f"the tensor '{tensor.name}' is in the file '{location}', but the model was not given as a path")
    path = inside(folder, location)
    offset, length = _number(info, "offset", 0), _number(info, "length", wanted)
    if length != wanted:
        raise Refusal(f"the tensor '{tensor.name}' needs {wanted} bytes, but its external data declares {length}")
    try:
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        with os.fdopen(os.open(path, flags), "rb") as f:
            info_now = os.fstat(f.fileno())
            if not stat.S_ISREG(info_now.st_mode):
                raise Refusal(f"external data '{location}' is not a regular file")
            if offset + length > info_now.st_size:
                raise Refusal(
                    f"external data '{location}' has {info_now.st_size} bytes; "
                    f"the tensor '{tensor.name}' wants {length} from {offset}"
                )
            f.seek(offset)
            data = f.read(length)
    except OSError as e:
        raise Refusal(f"external data '{location}' cannot be read: {e.strerror or e}") from None
    if len(data) != length:
        raise Refusal(f"external data '{location}' changed while it was read")
    return data


def inside(folder: Path, location: str) -> Path:
    """`folder / location`, refused unless it stays inside the folder by name and by what is on the disk."""
    parts = PurePosixPath(location).parts
    bad = not location or "\\" in location or ":" in location or "\0" in location
    if bad or location.startswith("/") or ".." in parts or not parts:
        raise Refusal(f"external data path '{location}' leaves the model's folder", "only names inside it are opened")
    path = folder
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise Refusal(f"external data path '{location}' goes through a symbolic link")
    if not path.is_file():
        raise Refusal(f"external data file '{location}' is missing from the model's folder")
    return path


def _number(info: dict[str, str], key: str, default: int) -> int:
    text = info.get(key, "")
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise Refusal(f"external data has a bad {key}: '{text[:40]}'")
    return int(text)


def decode_sparse(sparse: onnx.SparseTensorProto, folder: Path | None) -> np.ndarray[Any, Any]:
    """A sparse constant as a dense array (bounded in size)."""
    shape, count = checked_shape(sparse.dims)
    if count > MAX_DENSE_ELEMENTS:
        raise Refusal(f"a sparse tensor of {count} elements is too large to be made dense", f"{list(shape)}")
    values, indices = decode(sparse.values, folder), decode(sparse.indices, folder)
    out = np.zeros(count, values.dtype)
    if indices.ndim == 2 and indices.shape[1] == len(shape):
        if indices.size and ((indices < 0).any() or (indices >= np.array(shape)).any()):
            raise Refusal("a sparse tensor has an index out of range")
        indices = np.ravel_multi_index(tuple(indices.T), shape) if len(shape) else indices[:, 0]
    fits = indices.ndim == 1 and len(indices) == values.size
    if not fits or (indices.size and not 0 <= indices.min() <= indices.max() < count):
        raise Refusal("a sparse tensor's indices do not fit its values")
    out[indices] = values.reshape(-1)
    return out.reshape(shape)
