"""Callers' arrays as the machine sees them, and new arrays for results.

NumPy arrays, torch tensors and anything that speaks the array interface or DLPack are taken without a copy; arrays
whose elements are not aligned or are byte-swapped are copied. torch is never imported here: whoever hands us a tensor
has imported it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np

from ..errors import ArgumentError, DTypeError
from ..ir.types import ALL_DTYPES, DType, from_numpy
from . import blocks

ALIGNMENT = 64  # bytes; of every array made here
_CPU_DEVICES = (1, 3, 11, 13)  # DLPack's numbers of memory that the CPU reads: plain, pinned by CUDA or ROCm, managed


@dataclass(frozen=True, slots=True)
class ArrayInfo:
    """An array: element type, shape, strides in elements (zero and negative ones too), address of element [0, 0, ...].
    `owner` keeps the memory alive; `kind` is what results should be: 'numpy' or 'torch'."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    pointer: int
    kind: str = "numpy"
    owner: Any = field(default=None, compare=False, repr=False)
    copied: bool = False


# ---------------------------------------------------------------------------------------------- reading


def inspect(value: Any, name: str = "argument") -> ArrayInfo | None:
    """What `value` is, or None when it is no array at all. Raises when it is one that cannot be used."""
    if isinstance(value, np.ndarray):
        return _from_numpy(value, name, value)
    if is_torch(value):
        return _from_torch(value, name)
    if isinstance(value, np.generic):
        return None  # a scalar: NumPy's float32(1) is a number to us
    if hasattr(value, "__array_interface__"):
        return _from_numpy(np.asarray(value), name, value)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _from_dlpack(value, name)
    return None


def _from_numpy(array: np.ndarray[Any, Any], name: str, owner: Any) -> ArrayInfo:
    _refuse_mask(array, name)
    dtype = from_numpy(array.dtype) if array.dtype.isnative else None
    copied = False
    if dtype is None:
        dtype = from_numpy(array.dtype.newbyteorder("="))
        if dtype is None:
            raise DTypeError(
                f"'{name}' has elements of type {array.dtype}, which kernels do not have",
                hint="the element types are " + ", ".join(d.name for d in ALL_DTYPES),
            )
        array, copied = array.astype(array.dtype.newbyteorder("=")), True
    size = array.itemsize
    if not array.flags.aligned or array.size and any(s % size for s, n in zip(array.strides, array.shape) if n > 1):
        array, copied = array.copy(order="C"), True
    strides = tuple(s // size for s in array.strides)
    return ArrayInfo(dtype, array.shape, strides, numpy_pointer(array), "numpy", (owner, array), copied)


def _refuse_mask(array: np.ndarray[Any, Any], name: str) -> None:
    if type(array) is not np.ndarray and type(array).__name__ == "MaskedArray":
        raise ArgumentError(f"'{name}' is a masked array: its mask would be ignored", hint=f"{name}.filled(value)")


def _from_dlpack(value: Any, name: str) -> ArrayInfo:
    device = value.__dlpack_device__()
    if int(device[0]) not in _CPU_DEVICES:
        raise ArgumentError(f"'{name}' is on another device (DLPack number {int(device[0])}); move it to the CPU first")
    try:
        array = np.from_dlpack(value)
    except (BufferError, RuntimeError) as error:  # a type that NumPy's DLPack does not know, such as bf16
        if not hasattr(value, "__array__"):
            raise ArgumentError(f"'{name}' cannot be read through DLPack: {error}") from error
        array = np.asarray(value)
    return _from_numpy(array, name, value)


def is_torch(value: Any) -> bool:
    """Whether it is a torch tensor (or a subclass's object)."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


@lru_cache(maxsize=1)
def _torch_types() -> tuple[dict[Any, DType], dict[str, Any]]:
    """torch's element types by ours, both ways."""
    torch = sys.modules["torch"]
    names = {
        "f64": "float64", "f32": "float32", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "i16": "int16",
        "i32": "int32", "i64": "int64", "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
        "bool": "bool",
    }  # fmt: skip
    out = {name: getattr(torch, theirs) for name, theirs in names.items() if hasattr(torch, theirs)}
    return {theirs: d for d in ALL_DTYPES if (theirs := out.get(d.name)) is not None}, out


def _from_torch(tensor: Any, name: str) -> ArrayInfo:
    dtype = _torch_types()[0].get(tensor.dtype)
    if dtype is None:
        raise DTypeError(
            f"'{name}' has elements of type {tensor.dtype}, which kernels do not have",
            hint="the element types are " + ", ".join(d.name for d in ALL_DTYPES),
        )
    if tensor.device.type != "cpu":
        raise ArgumentError(f"'{name}' is on the device {tensor.device}; move it to the CPU first: {name}.cpu()")
    torch = sys.modules["torch"]
    if tensor.layout != torch.strided:
        raise ArgumentError(f"'{name}' is a {tensor.layout} tensor; kernels take dense ones: {name}.to_dense()")
    if tensor.requires_grad and torch.is_grad_enabled():
        raise ArgumentError(
            f"'{name}' requires a gradient, and torch does not see into this kernel",
            hint=f"pass {name}.detach(), or call the kernel under torch.no_grad()",
        )
    owner = tensor.resolve_neg()
    pointer = owner.data_ptr()
    copied = owner is not tensor
    if pointer % dtype.itemsize:
        owner = owner.clone(memory_format=torch.contiguous_format)
        pointer, copied = owner.data_ptr(), True
    return ArrayInfo(dtype, tuple(owner.shape), tuple(owner.stride()), pointer, "torch", (tensor, owner), copied)


# ---------------------------------------------------------------------------------------------- addresses


def _slow_pointer(array: np.ndarray[Any, Any]) -> int:
    return int(array.__array_interface__["data"][0])


def _find_numpy_pointer() -> Callable[[Any], int]:
    """An array's address is the first field of NumPy's C structure, right after Python's object header. Reading it
    there takes a tenth of the time of asking; where a check shows that it is not so, we ask."""
    if sys.implementation.name != "cpython":
        return _slow_pointer
    header = object.__basicsize__
    read = ctypes.c_void_p.from_address

    def fast(array: Any) -> int:
        return read(id(array) + header).value or 0

    base = np.zeros((3, 4), np.float32)
    samples = (base, base[1:, ::-1], base[:0], np.zeros((), np.int8), np.frombuffer(b"12345678", np.int64))
    return fast if all(fast(a) == _slow_pointer(a) for a in samples) else _slow_pointer


#: address of a NumPy array's first element
numpy_pointer: Callable[[Any], int] = _find_numpy_pointer()


# ---------------------------------------------------------------------------------------------- making


def empty(shape: tuple[int, ...], dtype: DType, kind: str = "numpy") -> Any:
    """A new row-major array of this kind, its first element at a multiple of 64 bytes; contents undefined."""
    return maker(shape, dtype, kind)()


def maker(shape: tuple[int, ...], dtype: DType, kind: str = "numpy", zero: bool = False) -> Callable[[], Any]:
    """A function that makes new arrays of one shape (the checks are done once)."""
    if any(n < 0 for n in shape):
        raise ArgumentError(f"an array cannot have the shape {shape}")
    of_numpy = dtype.numpy
    nbytes = of_numpy.itemsize
    for n in shape:
        nbytes *= n
    if nbytes >= blocks.FROM_BYTES and not zero:
        take = blocks.take

        def make_large() -> Any:
            return from_numpy_array(np.ndarray(shape, of_numpy, take(nbytes)), kind)

        return make_large
    if kind == "torch":
        torch = sys.modules["torch"]
        theirs = _torch_types()[1].get(dtype.name)
        if theirs is None:
            raise DTypeError(f"this torch has no element type {dtype}")
        make = torch.zeros if zero else torch.empty

        def make_torch() -> Any:
            return make(shape, dtype=theirs)

        return make_torch
    reserve = np.zeros if zero else np.empty
    total, new, u8, pointer = nbytes + ALIGNMENT, np.ndarray, np.dtype(np.uint8), numpy_pointer

    def make_numpy() -> Any:
        memory = reserve(total, u8)
        return new(shape, of_numpy, memory, -pointer(memory) & 63)  # type: ignore[call-overload]

    return make_numpy


def to_numpy(value: Any, name: str = "argument") -> np.ndarray[Any, Any] | None:
    """Any array as a NumPy array (a view where possible; bf16 as ml_dtypes' type); None when it is no array."""
    if isinstance(value, np.ndarray):
        _refuse_mask(value, name)
        return value
    info = inspect(value, name)
    if info is None:
        return None
    owner = info.owner[-1]
    if isinstance(owner, np.ndarray):
        return owner
    if info.dtype.name == "bf16":
        torch = sys.modules["torch"]
        return np.asarray(owner.detach().view(torch.uint16).numpy().view(info.dtype.numpy))
    return np.asarray(owner.detach().numpy())


def from_numpy_array(array: np.ndarray[Any, Any], kind: str) -> Any:
    """A NumPy array as the kind of result the caller gets (without a copy)."""
    if kind != "torch":
        return array
    torch = sys.modules["torch"]
    dtype = from_numpy(array.dtype)
    if dtype is not None and dtype.name == "bf16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)
