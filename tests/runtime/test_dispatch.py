"""Calls of kernels: specialisation, plans, the cache on disk, argument kinds, errors, threads."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import textwrap
import threading
import types
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import errors
from tilewright.runtime import arrays, sizes, specialise
from tilewright.runtime.arrays import inspect

M, N = tw.dims("M N")


@tw.kernel
def add(x: tw.Tensor[N], y: tw.Tensor[N]):
    out = tw.empty((N,), x.dtype)
    for i in tw.tiles(N):
        out[i] = x[i] + y[i]
    return out


@tw.kernel
def scale(x: tw.Tensor[M, N], a: tw.f32, twice: bool = False):
    out = tw.empty((M, N), x.dtype)
    for i, j in tw.tiles(M, N):
        if twice:
            out[i, j] = x[i, j] * a * 2.0
        else:
            out[i, j] = x[i, j] * a
    return out


@tw.kernel
def both(x: tw.Tensor[M, N], y: tw.Tensor[M, N]):
    total = tw.empty((M, N), x.dtype)
    larger = tw.empty((M, N), x.dtype)
    for i, j in tw.tiles(M, N):
        total[i, j] = x[i, j] + y[i, j]
        larger[i, j] = tw.maximum(x[i, j], y[i, j])
    return total, larger


@tw.kernel
def rows(x: tw.Tensor[M, N]):
    out = tw.empty((N,), tw.f32)
    for i in tw.tiles(N):
        acc = tw.zeros((i,), tw.f32)
        for r in range(M):  # uses the number: pins M
            acc += x[r, i]
        out[i] = acc
    return out


@pytest.fixture(autouse=True)
def private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    yield
    tw.set_threads(None)


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ---------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("n", [0, 1, 2, 15, 16, 17, 255, 256, 1000, 70_001])
def test_one_kernel_for_every_size(n: int) -> None:
    x, y = random(n), random(n, seed=1)
    result = add(x, y)
    assert type(result) is np.ndarray and result.dtype == np.float32
    assert np.array_equal(result, x + y)


def test_plans_are_used_again_and_results_are_new_arrays() -> None:
    x, y = random(64), random(64, seed=1)
    first, second = add(x, y), add(y, y)
    assert np.array_equal(first, x + y) and np.array_equal(second, y + y)
    assert not np.shares_memory(first, second)


def test_layouts() -> None:
    x, y = random(37, 53), random(37, 53, seed=1)
    views = {
        "transposed": lambda a: a.T, "strided": lambda a: a[::2, ::3], "reversed": lambda a: a[::-1, ::-1],
        "columns": lambda a: a[:, 3:40], "one row": lambda a: a[4:5], "one column": lambda a: a[:, 2:3],
        "broadcast": lambda a: np.broadcast_to(a[0], a.shape), "empty": lambda a: a[:0],
    }  # fmt: skip
    for name, view in views.items():
        for a, b in ((view(x), view(y)), (view(x), view(y).copy()), (view(x).copy(), view(y))):
            total, larger = both(a, b)
            assert np.array_equal(total, a + b) and np.array_equal(larger, np.maximum(a, b)), name


def test_misaligned_swapped_and_read_only_arguments() -> None:
    x, y = random(100), random(100, seed=1)
    expected = x + y
    assert np.array_equal(add(x, y), expected)
    raw = np.zeros(401, np.uint8)
    raw[1:] = x.view(np.uint8)
    assert np.array_equal(add(raw[1:].view(np.float32), y), expected)
    assert np.array_equal(add(x.astype(">f4"), y), expected)
    x.flags.writeable = False
    assert np.array_equal(add(x, y), expected)


def test_scalars_and_static_values() -> None:
    x = random(9, 20)
    for a in (2, 0.5, -1.0, np.float32(3), np.float64(0.25)):
        assert np.array_equal(scale(x, a), x * np.float32(a))
        assert np.array_equal(scale(x, a, True), x * np.float32(a) * 2)
    assert np.array_equal(scale(a=2.0, x=x), x * 2)
    assert np.array_equal(scale(x, twice=True, a=1.0), x * 2)
    assert np.isinf(scale(x, 1e39)).all()


def test_the_reference_agrees() -> None:
    x, y = random(9, 20), random(9, 20, seed=1)
    for made, wanted in zip(both(x, y), both.reference(x, y), strict=True):
        assert np.array_equal(made, wanted)
    assert np.array_equal(scale.reference(x, 2.0), scale(x, 2.0))


def test_explain_shows_every_level() -> None:
    x = random(9, 20)
    text = scale.explain(x, 2.0, llvm=True, assembly=True)
    for title in ("Arguments", "Tile IR", "Schedule for", "Scheduled IR", "LLVM IR", "Assembly"):
        assert f"== {title}" in text
    assert "store" in text and "M = 9 (scheduled for 16)" in text
    assert "after expand_math" in scale.explain(x, 2.0, passes=True)
    assert scale.tile_ir(x, 2.0).name == "scale"


# ---------------------------------------------------------------------------------------------- torch and others


def test_torch_in_torch_out() -> None:
    torch = pytest.importorskip("torch")
    x, y = torch.randn(300), torch.randn(300)
    for _ in range(3):
        result = add(x, y)
        assert isinstance(result, torch.Tensor) and torch.equal(result, x + y)
    assert torch.equal(add(x[::2], y[1::2]), x[::2] + y[1::2])
    half = x.to(torch.bfloat16)
    assert add(half, half).dtype == torch.bfloat16
    assert torch.equal(add(half, half), half + half)
    assert isinstance(add(x.numpy(), y), np.ndarray) and isinstance(add(x, y.numpy()), torch.Tensor)
    parameter = torch.nn.Parameter(x)
    with pytest.raises(errors.ArgumentError, match="requires a gradient"):
        add(parameter, y)
    for _ in range(2):
        with torch.no_grad():
            assert torch.equal(add(parameter, y), x + y)
    with pytest.raises(errors.ArgumentError, match="to_dense"):
        with warnings.catch_warnings(action="ignore"):  # torch calls this layout a beta
            add(torch.eye(3).to_sparse_csr(), y)
    flipped = torch.complex(x, y).conj().imag  # negated when it is read
    assert flipped.is_neg() and torch.equal(add(flipped, x), x - y)
    with pytest.raises(errors.ArgumentError, match="requires a gradient"):
        add(x, parameter)
    assert isinstance(add.reference(x, y), torch.Tensor)


def test_objects_with_an_array_interface() -> None:
    class Wrapped:
        def __init__(self, array: np.ndarray) -> None:
            self.__array_interface__ = array.__array_interface__
            self.keep = array

    x = random(20)
    assert np.array_equal(add(Wrapped(x), Wrapped(x)), x + x)
    assert np.array_equal(add(x.view(np.memmap), x), x + x)


# ---------------------------------------------------------------------------------------------- errors


def fails(kind: type[Exception], *wanted: str) -> Any:
    return pytest.raises(kind, match="(?s)" + ".*".join(wanted))


def test_errors_name_the_parameter_and_its_line() -> None:
    x = random(4, 5)
    with fails(errors.ShapeError, "'x' has rank 2", "test_dispatch.py", "def add"):
        add(x, x)
    with fails(errors.ShapeError, "dim N is 4 by axis 0 of 'x' but 5 by axis 0 of 'y'", "def add"):
        add(x[:, 0], x[0])
    with fails(errors.DTypeError, "x"):
        add(x[0].astype(complex), x[0])
    with fails(errors.ArgumentError, "no value for parameter 'y'"):
        add(x[0])
    with fails(errors.ArgumentError, "takes 2 arguments, not 3"):
        add(x[0], x[0], x[0])
    with fails(errors.ArgumentError, "'x' is given twice"):
        add(x[0], x=x[0])
    with fails(errors.ArgumentError, "no parameter 'z'", "x, y"):
        add(x[0], x[0], z=1)
    with fails(errors.ArgumentError, "'x' is a tensor", "list", r"numpy.array\(x\)"):
        add([1.0], x[0])
    with fails(errors.ArgumentError, "'y' is a tensor", "float"):
        add(x[0], 1.0)
    with fails(errors.DTypeError, "'a' is a scalar of type f32"):
        scale(x, "2")
    with fails(errors.DTypeError, "'a' is a scalar of type f32"):
        scale(x, x)
    with fails(errors.ArgumentError, "'twice' is a compile-time bool"):
        scale(x, 2.0, [1])
    scale(x, 2.0)
    with fails(errors.DTypeError, "'a' is a scalar of type f32"):  # with a plan made, too
        scale(x, "2")


# ---------------------------------------------------------------------------------------------- the cache on disk

SCRIPT = """
import sys, numpy as np
import tilewright as tw
N = tw.dims("N")
@tw.kernel
def add(x: tw.Tensor[N], y: tw.Tensor[N]):
    out = tw.empty((N,), x.dtype)
    for i in tw.tiles(N):
        out[i] = x[i] + y[i]
    return out
x = np.arange(100, dtype=np.float32)
assert np.array_equal(add(x, x), x + x)
print("parsed" if "tilewright.lang.parse" in sys.modules else "found")
print(*[m for m in ("torch", "onnx", "rich", "typer") if m in sys.modules])
"""


def test_a_second_process_finds_the_code(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    file.write_text(SCRIPT)

    def said() -> str:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, str(file)]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=env, timeout=60).stdout

    assert [said(), said()] == ["parsed\n\n", "found\n\n"]
    for entry in (tmp_path / "cache").iterdir():  # damaged entries are made again
        entry.write_bytes(entry.read_bytes()[:-7])
    assert said() == "parsed\n\n"


# ---------------------------------------------------------------------------------------------- keys


@pytest.mark.parametrize(
    ("n", "representative"),
    [(0, 0), (1, 1), (2, 2), (3, 4), (33, 64), (64, 64), (65, 128), (1000, 1024), (1025, 4096), (4097, 16384)],
)
def test_buckets(n: int, representative: int) -> None:
    assert specialise.bucket(n) == representative


def test_layout_classes() -> None:
    a = np.zeros((4, 5, 6), np.float32)

    def of(view: np.ndarray) -> Any:
        info = inspect(view)
        assert info is not None
        return specialise.layout_class(info)

    assert of(a) == ((None, None, 1), True)
    assert of(a[:2]) == ((None, None, 1), True)
    assert of(a[1:1, :, ::2]) == ((None, None, 1), True)
    assert of(a[:, :, ::2]) == ((None, None, None), False)
    assert of(a.transpose(2, 1, 0)) == ((1, None, None), False)
    assert of(np.broadcast_to(a[0], (3, 5, 6))) == ((0, None, 1), False)
    assert of(np.ones(())) == ((), True)


def test_sizes_are_plain_data() -> None:
    tree = ["add", ["floordiv", "N", 2], ["max", 1, "M"]]
    assert sizes.evaluate(tree, {"N": 9, "M": 0}) == 5
    assert sizes.text(tree) == "((N // 2) + max(1, M))"


def test_one_specialisation_serves_a_bucket() -> None:
    fresh = tw.kernel(add.fn)
    for n in (33, 40, 50, 64):
        fresh(random(n), random(n))
    assert len(fresh._calls._compiled) == 1 and len(fresh._calls._plans) == 4
    pinned = tw.kernel(static="N")(add.fn)
    for n in (33, 40):
        assert np.array_equal(pinned(random(n), random(n)), random(n) * 2)
    assert len(pinned._calls._compiled) == 2


def test_dims_that_parsing_pins_are_exact_in_the_key() -> None:
    for kernel in (tw.kernel(rows.fn), tw.kernel(rows.fn)):  # the second one finds code and pins on disk
        for m in (1, 3, 4, 3, 2):
            x = random(m, 40, seed=m)
            assert np.allclose(kernel(x), x.sum(0), rtol=1e-6)
            assert np.allclose(kernel.reference(x), x.sum(0), rtol=1e-6)
        assert len(kernel._calls._compiled) == 4
        kernel(random(3, 50))
        assert len(kernel._calls._compiled) == 4  # N is not pinned


def test_load_has_two_meanings() -> None:
    @tw.kernel
    def shifted(x: tw.Tensor[N]):
        out = tw.empty((N,), x.dtype)
        for i in tw.tiles(N):
            out[i] = tw.load(x, i - 1, fill=7.0)
        return out

    assert shifted(np.arange(4, dtype=np.float32)).tolist() == [7, 0, 1, 2]
    with pytest.raises(errors.ModelError, match="no file"):
        tw.load("/does/not/exist.onnx")


def test_kernels_are_pickled_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, add.__module__, sys.modules.get(add.__module__) or _this_module())
    assert pickle.loads(pickle.dumps(add)) is add and copy.deepcopy(add) is add


def _this_module() -> Any:
    made = types.ModuleType(add.__module__)
    made.__dict__.update(globals())
    return made


def test_the_public_names() -> None:
    assert {"kernel", "Tensor", "dims", "load", "exp", "f32", "threads", "errors"} <= set(dir(tw))
    for name in dir(tw):
        assert getattr(tw, name) is not None
    with pytest.raises(AttributeError, match="nothing_like_it"):
        tw.nothing_like_it


# ---------------------------------------------------------------------------------------------- threads


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x, y = random(301, 1003), random(301, 1003, seed=1)
    made = []
    for n in (1, 2, 3):
        tw.set_threads(n)
        assert tw.threads() == n
        made.append(both(x, y))
    for total, larger in made:
        assert np.array_equal(total, x + y) and np.array_equal(larger, np.maximum(x, y))


def test_many_python_threads_call_at_once() -> None:
    tw.set_threads(2)
    fresh = tw.kernel(both.fn)
    failures: list[str] = []

    def caller(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(40):
            shape = tuple(rng.integers(1, 400, 2))
            x, y = rng.standard_normal((2, *shape)).astype(np.float32)
            total, larger = fresh(x, y)
            if not (np.array_equal(total, x + y) and np.array_equal(larger, np.maximum(x, y))):
                failures.append(f"{shape}")

    callers = [threading.Thread(target=caller, args=(s,)) for s in range(6)]
    for c in callers:
        c.start()
    for c in callers:
        c.join()
    assert not failures


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_calls_kernels() -> None:
    tw.set_threads(2)
    x = random(400, 500)
    assert np.array_equal(both(x, x)[0], x + x)
    child = os.fork()
    if child == 0:
        y = random(700, 300)
        ok = np.array_equal(both(x, x)[0], x + x) and np.array_equal(both(y, y)[0], y + y)
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_importing_is_light() -> None:
    code = """
        import sys, tilewright as tw
        tw.f32, tw.kernel, tw.errors, tw.set_threads, tw.dims
        heavy = {"torch", "onnx", "rich", "typer", "llvmlite", "onnxruntime"} & set(sys.modules)
        sys.exit(", ".join(heavy) or None)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert arrays.ALIGNMENT == 64
