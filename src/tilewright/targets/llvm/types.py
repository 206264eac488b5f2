"""Element types as LLVM sees them. In registers f16 and bf16 are their 16 bits (i16): no target then needs run-time
support for them; in memory a bool is one byte, in registers one bit."""

from __future__ import annotations

import struct

import numpy as np

from ...ir.types import DType, bf16, f16

_REGISTER = {
    "f64": "double", "f32": "float", "f16": "i16", "bf16": "i16", "bool": "i1",
    "i8": "i8", "i16": "i16", "i32": "i32", "i64": "i64", "u8": "i8", "u16": "i16", "u32": "i32", "u64": "i64",
}  # fmt: skip
#: how overloaded intrinsics spell a type
_SUFFIX = {"double": "f64", "float": "f32", "half": "f16"}


def register_type(dtype: DType) -> str:
    return _REGISTER[dtype.name]


def memory_type(dtype: DType) -> str:
    return "i8" if dtype.is_bool else _REGISTER[dtype.name]


def is_small_float(dtype: DType) -> bool:
    """f16 and bf16: arithmetic on them goes through f32."""
    return dtype in (f16, bf16)


def vector(ty: str, lanes: int) -> str:
    return ty if lanes == 1 else f"<{lanes} x {ty}>"


def suffix(ty: str, lanes: int = 1) -> str:
    """The part of an intrinsic's name that stands for the type: f32, v16f32."""
    name = _SUFFIX.get(ty, ty)
    return name if lanes == 1 else f"v{lanes}{name}"


def splat_literal(ty: str, literal: str, lanes: int) -> str:
    return literal if lanes == 1 else f"splat ({ty} {literal})"


def literal(value: int | float | bool, dtype: DType) -> str:
    """A constant in its register form."""
    if dtype.is_bool:
        return "true" if value else "false"
    if is_small_float(dtype):
        with np.errstate(over="ignore"):
            return str(int(np.array(value, np.float64).astype(dtype.numpy).view(np.int16)))
    if dtype.is_float:
        return float_literal(float(value), dtype.bits)
    return str(wrap(int(value), dtype.bits))


def float_literal(value: float, bits: int) -> str:
    """LLVM writes both float and double as the bits of a double."""
    if bits == 32:
        with np.errstate(over="ignore"):
            value = float(np.float32(value))
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def wrap(value: int, bits: int) -> int:
    """The signed number with the same low bits."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def constant(text: str) -> int | None:
    """The integer an operand's text is, when it is a literal."""
    return int(text) if text[0] in "-0123456789" and not text.startswith("0x") else None
