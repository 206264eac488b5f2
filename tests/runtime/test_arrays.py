"""Reading callers' arrays without copies, and making new ones."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tilewright import errors
from tilewright.ir import types
from tilewright.runtime import arrays, blocks


def seen(value: Any) -> arrays.ArrayInfo:
    info = arrays.inspect(value)
    assert info is not None
    return info


@pytest.mark.parametrize("dtype", types.ALL_DTYPES, ids=str)
def test_numpy_without_a_copy(dtype: types.DType) -> None:
    a = np.zeros((3, 5), dtype.numpy)
    info = seen(a)
    assert (info.dtype, info.shape, info.strides, info.kind) == (dtype, (3, 5), (5, 1), "numpy")
    assert info.pointer == a.__array_interface__["data"][0] and not info.copied


def test_numpy_views() -> None:
    a = np.arange(60, dtype=np.int32).reshape(3, 4, 5)
    cases = {
        (20, 5, -1): a[:, :, ::-1], (1, 5, 20): a.T, (40, 5, 2): a[::2, :, ::2], (-20, -5, 1): a[::-1, ::-1],
    }  # fmt: skip
    for strides, view in cases.items():
        info = seen(view)
        assert info.strides == strides and info.shape == view.shape and not info.copied
        assert info.pointer == view.__array_interface__["data"][0]
    assert seen(np.broadcast_to(a[0, 0], (7, 5))).strides == (0, 1)
    assert seen(a[1:1]).shape == (0, 4, 5)
    assert seen(np.zeros(())).shape == ()


def test_read_only_input_is_fine() -> None:
    a = np.zeros(8, np.float32)
    a.flags.writeable = False
    assert not seen(a).copied
    assert not seen(np.frombuffer(b"\0" * 16, np.float32)).copied


def test_misaligned_and_byte_swapped_arrays_are_copied() -> None:
    raw = np.zeros(41, np.uint8)
    raw[1:] = np.arange(10, dtype=np.float32).view(np.uint8)
    odd = raw[1:].view(np.float32)
    info = seen(odd)
    assert info.copied and info.pointer % 4 == 0 and info.owner[-1].tolist() == list(range(10))
    swapped = np.arange(6, dtype=">i4")
    info = seen(swapped)
    assert info.copied and info.dtype == types.i32 and info.owner[-1].tolist() == list(range(6))
    record = np.zeros(4, np.dtype([("a", "u1"), ("b", "<f4")]))
    record["b"] = [1, 2, 3, 4]
    info = seen(record["b"])
    assert info.copied and info.strides == (1,) and info.owner[-1].tolist() == [1, 2, 3, 4]
    packed = np.zeros(4, np.dtype([("b", "<f4"), ("a", "<f4"), ("c", "<f4")]))
    assert seen(packed["b"]).strides == (3,) and not seen(packed["b"]).copied


@pytest.mark.parametrize("dtype", ["c8", "O", "S3", "M8[s]", "g"])
def test_unknown_element_types_are_refused(dtype: str) -> None:
    with pytest.raises(errors.DTypeError, match="'x' has elements of type"):
        arrays.inspect(np.zeros(3, dtype), "x")


def test_what_is_no_array() -> None:
    for value in (1, 2.0, True, None, "text", [1, 2], (1, 2), np.float32(3), object()):
        assert arrays.inspect(value) is None


class Interface:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.__array_interface__ = array.__array_interface__


class DLPack:
    def __init__(self, array: np.ndarray, device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **kw: Any) -> Any:
        return self.array.__dlpack__(**kw)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


def test_the_array_interface_and_dlpack() -> None:
    a = np.arange(12, dtype=np.float32).reshape(3, 4)[:, ::2]
    for wrapped in (Interface(a), DLPack(a)):
        info = seen(wrapped)
        assert info.pointer == a.__array_interface__["data"][0] and info.strides == (4, 2) and info.kind == "numpy"
    with pytest.raises(errors.ArgumentError, match="another device"):
        arrays.inspect(DLPack(a, (2, 0)), "x")


@pytest.mark.parametrize("dtype", types.ALL_DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (3, 5), (1000, 7)])
def test_new_arrays_are_aligned(dtype: types.DType, shape: tuple[int, ...]) -> None:
    a = arrays.empty(shape, dtype)
    assert a.shape == shape and a.dtype == dtype.numpy and a.flags.c_contiguous and a.flags.writeable
    assert arrays.numpy_pointer(a) % 64 == 0
    z = arrays.maker(shape, dtype, zero=True)()
    assert not np.asarray(z, np.float64).any()


def test_large_results_use_memory_again() -> None:
    blocks.trim()
    first = arrays.empty((3, 1 << 20), types.f32)
    first[:] = 1
    view = first[1, 5:]
    at = arrays.numpy_pointer(first)
    assert at % (2 << 20) == 0 and first.flags.writeable
    del first
    assert blocks.kept_bytes() == 0  # the view still needs it
    other = arrays.empty((3, 1 << 20), types.f32)
    other[:] = 2
    assert (view == 1).all()
    del view
    assert blocks.kept_bytes() == 12 << 20
    assert arrays.numpy_pointer(arrays.empty((12 << 20,), types.i8)) == at
    for _ in range(3):
        arrays.empty((300 << 20,), types.u8)
    many = [arrays.empty((300 << 20,), types.u8) for _ in range(3)]
    del many
    assert blocks.kept_bytes() <= blocks.KEEP_BYTES
    blocks.trim()
    assert blocks.kept_bytes() == 0 and (other == 2).all()


# ---------------------------------------------------------------------------------------------- torch

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("dtype", types.ALL_DTYPES, ids=str)
def test_torch_without_a_copy(dtype: types.DType) -> None:
    t = arrays.empty((4, 6), dtype, "torch")
    assert isinstance(t, torch.Tensor) and t.data_ptr() % 64 == 0
    info = seen(t[1:, ::2])
    assert (info.dtype, info.shape, info.strides, info.kind) == (dtype, (3, 3), (6, 2), "torch")
    assert info.pointer == t.data_ptr() + 6 * dtype.itemsize
    back = arrays.to_numpy(t)
    assert back is not None and back.dtype == dtype.numpy and arrays.numpy_pointer(back) == t.data_ptr()
    assert arrays.from_numpy_array(back, "torch").data_ptr() == t.data_ptr()


def test_large_torch_results_use_memory_again() -> None:
    blocks.trim()
    t = arrays.empty((5, 1 << 20), types.bf16, "torch")
    assert t.dtype == torch.bfloat16 and t.shape == (5, 1 << 20) and t.is_contiguous()
    part = t.T[3]
    del t
    assert blocks.kept_bytes() == 0
    del part
    assert blocks.kept_bytes() == 10 << 20
    blocks.trim()


def test_torch_tensors_that_cannot_be_used() -> None:
    with pytest.raises(errors.DTypeError, match="complex64"):
        arrays.inspect(torch.zeros(2, dtype=torch.complex64), "x")
    with pytest.raises(errors.ArgumentError, match="meta"):
        arrays.inspect(torch.zeros(2, device="meta"), "x")
    with pytest.raises(errors.ArgumentError, match="to_dense"):
        arrays.inspect(torch.zeros(2, 2).to_sparse(), "x")
    needs = torch.zeros(2, requires_grad=True)
    with pytest.raises(errors.ArgumentError, match="requires a gradient"):
        arrays.inspect(needs, "x")
    with torch.no_grad():
        assert seen(needs).pointer == needs.data_ptr()


def test_torch_is_not_imported() -> None:
    code = "import sys, numpy; from tilewright.runtime.arrays import inspect; inspect(numpy.zeros(3)); inspect([1])"
    subprocess.run(
        [sys.executable, "-c", code + "; sys.exit('torch' in sys.modules)"],
        check=True, env={"PYTHONPATH": ":".join(sys.path)}, timeout=60,
    )  # fmt: skip


def test_a_masked_array_is_refused() -> None:
    with pytest.raises(errors.ArgumentError, match="'x' is a masked array"):
        arrays.inspect(np.ma.array([1.0, 2.0], mask=[False, True]), "x")
