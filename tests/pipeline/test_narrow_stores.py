"""Masked stores of narrow elements touch their lanes alone, whatever LLVM finds out about the mask."""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.llvm.render_support import AVAILABLE, execute
from tilewright.ir.scheduled import core as s
from tilewright.ir.types import bf16, bool_, f16, f32, i8, i16, i32
from tilewright.passes.expand_math import expand
from tilewright.targets.llvm.description import describe


@pytest.mark.parametrize("narrow, wide", [(bf16, f32), (f16, f32), (i16, i32), (i8, i32)], ids=str)
@pytest.mark.parametrize("folded", [False, True], ids=["known", "found by LLVM"])
def test_tails_of_one_lane(narrow, wide, folded):
    x, out, v = s.dense("x", wide, "arg", (64,)), s.dense("out", narrow, "arg", (96,)), s.fresh("v")
    value = s.expr("cast", narrow, s.expr("add", wide, x.load(s.var(v)), s.const(1, wide)))
    for width in (4, 8, 16):
        for count in (width + 1, width + 2, 2 * width - 1):
            stop = s.imin(s.const(count), s.dim("N")) if folded else s.const(count)
            loop: s.Stmt = s.For(v, s.const(0), stop, (s.Store(out, (s.var(v),), value),), "vector", 1, width, 1)
            if folded:
                loop = s.If(s.expr("eq", bool_, s.dim("N"), s.const(count)), (loop,))
            program = s.Program("p", (x, out), ("out",), ("N",), (), (), (s.ParFor((), (), (loop,)),))
            for level in AVAILABLE:
                got = np.full(96, 77).astype(narrow.numpy)
                data = np.arange(64).astype(wide.numpy)
                target = describe(level)
                execute(expand(program, target), target, {"x": data, "out": got}, {"N": count})
                want = np.full(96, 77).astype(narrow.numpy)
                want[:count] = (data[:count] + 1).astype(narrow.numpy)
                assert np.array_equal(got, want), f"{level}, {count} elements in vectors of {width}"
