"""The LLVM family's backend and driver: a scheduled program made by hand, rendered, loaded and launched."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from tilewright import errors
from tilewright.ir import types
from tilewright.ir.scheduled import core as s
from tilewright.runtime import sizes
from tilewright.targets.llvm import backend, driver


def program(dtype: types.DType = types.f32) -> s.Program:
    """out = reversed(x * a), row by row, through a row of scratch memory; x's rows have a stride of their own."""
    n, m = s.dim("N"), s.dim("M")
    x = s.Buffer("x", dtype, "arg", (m, n), (s.stride("x", 0), 1))
    out = s.dense("out", dtype, "arg", (m, n))
    row = s.dense("row", dtype, "local", (n,))
    i, j, k = s.fresh("i"), s.fresh("j"), s.fresh("k")
    scaled = s.expr("mul", dtype, x.load(s.var(i), s.var(j)), s.expr("param", dtype, attr="a"))
    back = row.load(s.sub(s.sub(n, 1), s.var(k)))
    body = (
        s.Alloc(row),
        s.For(j, s.const(0), n, (s.Store(row, (s.var(j),), scaled),)),
        s.For(k, s.const(0), n, (s.Store(out, (s.var(i), s.var(k)), back),)),
    )
    grid = s.ParFor((i,), (m,), body)
    return s.Program("rev", (x, out), ("out",), ("M", "N"), (("x", 0),), (("a", dtype),), (grid,))


@pytest.mark.parametrize("dtype", [types.f32, types.f64, types.bf16, types.i16], ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_render_load_launch(dtype: types.DType, threads: int) -> None:
    artifact = backend.render(program(dtype), backend.describe(), threads)
    assert artifact.functions == ("rev_0",) and artifact.threads == threads
    assert sizes.evaluate(artifact.workspace, {"N": 100}) >= 100 * dtype.itemsize
    again = backend.Artifact.from_meta(json.loads(json.dumps(artifact.meta())), artifact.code)
    assert again == artifact
    code = driver.load(again)
    wide = np.arange(300).reshape(3, 100).astype(dtype.numpy)
    source, result = driver.alloc(wide.nbytes), driver.alloc(3 * 90 * dtype.itemsize)
    assert source.address % 64 == result.address % 64 == 0
    driver.copy_in(source, wide)
    made = driver.launch(
        code, {"x": source, "out": result}, {"M": 3, "N": 90}, {("x", 0): 100}, {"a": 2}, threads=threads
    )
    driver.synchronize()
    out = np.zeros((3, 90), dtype.numpy)
    driver.copy_out(result, out)
    assert np.array_equal(out, (wide[:, :90] * dtype.numpy.type(2))[:, ::-1])
    assert 0 < driver.elapsed(made) < 60 and made.threads <= threads
    driver.free(source)
    with pytest.raises(errors.ArgumentError, match="freed"):
        driver.free(source)
    with pytest.raises(errors.ArgumentError, match="freed"):
        driver.copy_in(source, wide)
    with pytest.raises(errors.ArgumentError, match="do not fit"):
        driver.copy_in(result, wide)


def test_what_cannot_be_compiled_says_why() -> None:
    target = backend.describe()
    assert backend.supports(program(), target) is None
    other = dataclasses.replace(target, family="triton", name="a GPU")
    assert "not of the LLVM family" in (backend.supports(program(), other) or "")
    narrow = dataclasses.replace(target, dtypes=("f32",), name="narrow")
    assert backend.supports(program(types.f64), narrow) == "'narrow' has no element type f64"
    with pytest.raises(errors.UnsupportedError, match="kernel 'rev' cannot be compiled: 'narrow' has no"):
        backend.render(program(types.f64), narrow)
    loose = dataclasses.replace(program(), body=program().body[0].body[:1])  # type: ignore[union-attr]
    assert "outside its parallel loops" in (backend.supports(loose, target) or "")
