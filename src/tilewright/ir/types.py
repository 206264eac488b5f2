"""What all levels share: element types and source locations. Imports nothing of ours."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class DType:
    """An element type. `kind`: 'f' float, 'i' signed, 'u' unsigned, 'b' bool; `bits` is the storage width."""

    name: str
    kind: str
    bits: int

    @property
    def itemsize(self) -> int:
        return max(1, self.bits // 8)

    @property
    def numpy(self) -> np.dtype[Any]:
        return _NUMPY[self.name] if self.name != "bf16" else _numpy_bf16()

    @property
    def is_float(self) -> bool:
        return self.kind == "f"

    @property
    def is_int(self) -> bool:
        return self.kind in "iu"

    @property
    def is_bool(self) -> bool:
        return self.kind == "b"

    def __repr__(self) -> str:
        return self.name


f64 = DType("f64", "f", 64)
f32 = DType("f32", "f", 32)
f16 = DType("f16", "f", 16)
bf16 = DType("bf16", "f", 16)
i8 = DType("i8", "i", 8)
i16 = DType("i16", "i", 16)
i32 = DType("i32", "i", 32)
i64 = DType("i64", "i", 64)
u8 = DType("u8", "u", 8)
u16 = DType("u16", "u", 16)
u32 = DType("u32", "u", 32)
u64 = DType("u64", "u", 64)
bool_ = DType("bool", "b", 8)

ALL_DTYPES: tuple[DType, ...] = (f64, f32, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool_)
BY_NAME: dict[str, DType] = {d.name: d for d in ALL_DTYPES}

_NUMPY: dict[str, np.dtype[Any]] = {
    "f64": np.dtype(np.float64), "f32": np.dtype(np.float32), "f16": np.dtype(np.float16),
    "i8": np.dtype(np.int8), "i16": np.dtype(np.int16), "i32": np.dtype(np.int32), "i64": np.dtype(np.int64),
    "u8": np.dtype(np.uint8), "u16": np.dtype(np.uint16), "u32": np.dtype(np.uint32), "u64": np.dtype(np.uint64),
    "bool": np.dtype(np.bool_),
}
_FROM_NUMPY: dict[np.dtype[Any], DType] = {v: BY_NAME[k] for k, v in _NUMPY.items()}


@lru_cache(maxsize=1)
def _numpy_bf16() -> np.dtype[Any]:
    import ml_dtypes  # some versions take half a second to import, which only users of bf16 should pay

    found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return found


def from_numpy(dtype: Any) -> DType | None:
    """The DType of a NumPy dtype, or None when Tilewright has no such element type."""
    wanted = np.dtype(dtype)
    found = _FROM_NUMPY.get(wanted)
    if found is None and wanted.name == "bfloat16" and wanted == _numpy_bf16():
        return bf16
    return found


def accumulator(dtype: DType) -> DType:
    """The type sums and products of `dtype` are kept in: f32 for f16/bf16/f32, f64 for f64, i32 for small
    integers, i64 for i64 and u64, u32 for u32."""
    if dtype.is_float:
        return f64 if dtype.bits == 64 else f32
    if dtype.bits == 64:
        return dtype
    return u32 if dtype == u32 else i32


@dataclass(frozen=True, slots=True)
class Loc:
    """Where a node came from: a line of the user's source (`col` counts from 0, -1 when unknown), or a model's
    node (`file` then names the model and the node, `line` 0). `inlined_at` is the call of an inlined helper."""

    file: str
    line: int = 0
    col: int = -1
    end_col: int = -1
    inlined_at: Loc | None = field(default=None)

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file
