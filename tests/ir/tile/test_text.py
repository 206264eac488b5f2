"""Tile IR as text: what is printed is read back to the same kernel, and broken text is refused with a position."""

import random
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.generators import cases, generate
from tests.mutate import mutate
from tilewright.errors import ParseError, TilewrightError
from tilewright.interp import tile
from tilewright.ir.tile import build as b
from tilewright.ir.tile.core import Axis, ScalarParam, TensorParam, TileOf, const, dim
from tilewright.ir.tile.parser import parse_kernel
from tilewright.ir.tile.printer import kernel_text
from tilewright.ir.types import ALL_DTYPES, f32, i64

LINEAR = """kernel linear
in x: f32(M, K)
in w: f32(K, 8)
scalar alpha: f32
out y: f32(M, 8)

%0: f32 = const 0.0
%1: f32 = param alpha
par i < M, j < 8 {
  %2: i64(i) = index i
  %3: i64(j) = index j
  %4: f32(i, j) = broadcast(%0) at ()
  %5 = loop k < K carry %6 acc: f32(i, j) = %4 {
    %7: i64(k) = index k
    %8: f32(i, k) = load x[%2, %7] fill 0.0
    %9: f32(k, j) = load w[%7, %3] fill 0.0
    %10: f32(i, j) = dot(%6, %8, %9)
    yield %10
  }
  %11: f32(i, j) = result(%5, 0)
  %12: f32(i, j) = broadcast(%1) at ()
  %13: f32(i, j) = mul(%11, %12)
  store y[%2, %3] = %13
}
"""


def test_golden():
    M, K = dim("M"), dim("K")
    x, w = TensorParam("x", f32, (M, K)), TensorParam("w", f32, (K, const(8, i64)))
    y, alpha = TensorParam("y", f32, (M, const(8, i64)), "out"), ScalarParam("alpha", f32)
    i, j, k = Axis("i", M), Axis("j", const(8, i64)), Axis("k", K)
    zero = b.full((TileOf(i), TileOf(j)), 0.0, f32)
    c = b.carried(zero.type, "acc")
    dot = b.dot(c, b.load(x, (b.index(i), b.index(k))), b.load(w, (b.index(k), b.index(j))))
    value = b.map("mul", b.result(b.loop(k, [zero], [c], [dot]), 0), b.param(alpha))
    kernel = b.kernel("linear", [x, w, alpha, y], [b.par((i, j), [b.store(y, (b.index(i), b.index(j)), value)])])
    assert kernel_text(kernel) == LINEAR
    assert kernel_text(parse_kernel(LINEAR)) == LINEAR


@settings(max_examples=150, deadline=None)
@given(cases(ALL_DTYPES, smooth=False))
def test_round_trip(case):
    text = kernel_text(case.kernel)
    again = parse_kernel(text)
    assert kernel_text(again) == text
    assert again.params == case.kernel.params
    for name, want in tile.run(case.kernel, case.arrays, case.scalars, case.dims).items():
        got = tile.run(again, case.arrays, case.scalars, case.dims)[name]
        assert np.array_equal(got.view(np.uint8), want.view(np.uint8))


def test_pure_parts_are_the_same_nodes():
    """Kernels without carried values are read back to the very nodes they were printed from."""
    found = 0
    for seed in range(200):
        kernel = generate(random.Random(seed), ALL_DTYPES).kernel
        text = kernel_text(kernel)
        if "carry" not in text:
            found += 1
            assert parse_kernel(text).effects == kernel.effects
    assert found > 20


def test_a_split_loop_prints_and_reads_back():
    """Two loops over one axis: each writes what depends on the axis inside its own body."""
    M = dim("M")
    x, y = TensorParam("x", f32, (M,)), TensorParam("y", f32, (M,), "out")
    i, k = Axis("i", M, "single"), Axis("k", M)
    zero = const(0.0, f32)
    halves = []
    for limits in ({"stop": b.pos(i)}, {"start": b.pos(i)}):
        c = b.carried(zero.type, "c")
        part = b.map("add", c, b.fold(b.load(x, (b.index(k),)), 0, "sum"))
        halves.append(b.result(b.loop(k, [zero], [c], [part], **limits), 0))
    kernel = b.kernel("split", [x, y], [b.par((i,), [b.store(y, (b.pos(i),), b.map("sub", *halves))])])
    text = kernel_text(kernel)
    assert "loop k < M to pos(i)" in text and "loop k < M from pos(i)" in text
    assert len(re.findall(r"= index k", text)) == 2
    assert kernel_text(parse_kernel(text)) == text


def test_odd_names():
    M = dim("a dim")
    x, y = TensorParam('te"nsor', f32, (M,)), TensorParam("in", f32, (M,), "out")
    i = Axis("pos", M)
    kernel = b.kernel("a kernel", [x, y], [b.par((i,), [b.store(y, (b.index(i),), b.load(x, (b.index(i),)))])])
    text = kernel_text(kernel)
    assert parse_kernel(text).params == kernel.params and kernel_text(parse_kernel(text)) == text


@pytest.mark.parametrize(("old", "new", "message"), [
    ("kernel linear", "kernal linear", r"line 1, column 1: expected 'kernel', found 'kernal'"),
    ("dot(%6", "dot(%60", r"line 17, column 26: %60 is not defined here"),
    ("dot(%6", "dott(%6", r"line 17, column 22: there is no op 'dott'"),
    ("load x", "load z", r"line 15, column 26: there is no tensor 'z'"),
    ("mul(%11", "mul(%10", r"%10 is not defined here"),
    ("yield %10\n", "yield %10, %9\n", "carries 1 values and yields 2"),
    ("index i\n", "index q\n", "there is no axis 'q'"),
    ("const 0.0", "const 0", "expected a number with a point for f32"),
    ("const 0.0", "const ?", r"line 7, column 17: unexpected character '\?'"),
    ("in w: f32", "in x: f32", "parameter 'x' is declared twice"),
    ("%3: i64(j)", "%2: i64(j)", "%2 is defined twice"),
    ("M, K)", f"M, {'(' * 500}K)", "nested too deeply"),
    ("(M, 8)\n", f"(M, {'9' * 5000})\n", "too many digits"),
    ("(M, 8)\n", f"(M, {'9' * 30})\n", "does not fit in i64"),
])
def test_errors_name_the_place(old, new, message):
    assert old in LINEAR
    with pytest.raises(ParseError, match=message):
        parse_kernel(LINEAR.replace(old, new, 1))


@settings(max_examples=400, deadline=None)
@given(st.randoms(use_true_random=False))
def test_mutated_text_never_crashes(r):
    text = mutate(r, kernel_text(generate(r, ALL_DTYPES, smooth=False).kernel))
    try:
        again = kernel_text(parse_kernel(text))
    except TilewrightError:
        return
    assert kernel_text(parse_kernel(again)) == again, "what is accepted is a kernel, and prints"
