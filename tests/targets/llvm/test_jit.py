"""From IR text to callable code."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest

from tilewright.errors import UnsupportedError, VerifyError
from tilewright.targets.llvm import jit
from tilewright.targets.llvm.description import LEVELS, describe, features_of, host_description, host_level

ADD = """
define void @add(ptr %p, i64 %n) nounwind {{
  %x = load <16 x float>, ptr %p, align 4
  %y = fadd <16 x float> %x, splat (float {value})
  store <16 x float> %y, ptr %p, align 4
  ret void
}}
"""


def call(module: jit.LoadedModule, name: str, array: np.ndarray) -> None:
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)(module.address(name))(array.ctypes.data, array.size)


def test_code_runs_at_every_level_the_machine_has() -> None:
    for level in LEVELS[: LEVELS.index(host_level()) + 1]:
        target = describe(level)
        x = np.arange(16, dtype="f")
        call(jit.load(jit.to_object(ADD.format(value="1.0"), target), ["add"]), "add", x)
        np.testing.assert_array_equal(x, np.arange(1, 17))


def test_levels_use_their_own_registers_and_no_others() -> None:
    text = ADD.format(value="1.0")
    assert "%ymm" not in jit.assembly(text, describe("sse4.2"))
    if host_level() == "avx512":
        assert "%zmm" in jit.assembly(text, describe("avx512"))
        assert "%zmm" in jit.assembly(text, host_description())
        assert "%zmm" not in jit.assembly(text, describe("avx2"))


def test_the_description_of_the_host() -> None:
    host = host_description()
    bits, registers = {"sse4.2": (128, 16), "avx2": (256, 16), "avx512": (512, 32)}[host_level()]
    assert (host.vector_bits, host.vector_registers, host.family) == (bits, registers, "llvm")
    assert host.masked == (host_level() == "avx512")
    assert "sse4.2" in features_of(host)
    assert host.l1 and host.l2 and host.l3 and host.cores
    assert hash(host) == hash(host_description())
    with pytest.raises(UnsupportedError, match="unknown x86-64 level"):
        describe("avx3")


def test_modules_with_the_same_names_live_side_by_side() -> None:
    target = host_description()
    one, two = (jit.load(jit.to_object(ADD.format(value=v), target), ["add"]) for v in ("1.0", "2.0"))
    x = np.zeros(16, "f")
    call(one, "add", x)
    call(two, "add", x)
    assert (x == 3).all()
    del one
    call(two, "add", x)
    assert (x == 5).all()


def test_a_mistake_is_shown_with_its_line() -> None:
    text = "define void @f(ptr %p) {\n  %x = load float, ptr %p\n  %y = fadd double %x, 1.0\n  ret void\n}\n"
    with pytest.raises(VerifyError, match=r"line 3\)") as caught:
        jit.to_object(text, host_description())
    assert "fadd double %x" in str(caught.value)


def test_what_cannot_be_linked_is_an_error() -> None:
    target = host_description()
    text = "declare void @tw_no_such_one()\ndefine void @f() {\n  call void @tw_no_such_one()\n  ret void\n}\n"
    with pytest.raises(VerifyError, match="cannot be loaded"):
        jit.load(jit.to_object(text, target), ["f"])
    with pytest.raises(VerifyError, match="cannot be loaded"):
        jit.load(jit.to_object(ADD.format(value="1.0"), target), ["no_such_name"])
    with pytest.raises(VerifyError, match="cannot be loaded"):
        jit.load(b"not an object", ["f"])


def test_many_threads_compile_and_load_at_once() -> None:
    target, failures = host_description(), []

    def work(value: int) -> None:
        try:
            for _ in range(5):
                x = np.zeros(16, "f")
                call(jit.load(jit.to_object(ADD.format(value=f"{value}.0"), target), ["add"]), "add", x)
                assert (x == value).all()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 7)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures
