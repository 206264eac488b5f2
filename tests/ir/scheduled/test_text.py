"""Scheduled IR as text: what is printed reads back to an equal program; broken text is refused with a position."""

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.generators import cases, generate
from tests.mutate import mutate
from tests.pipeline import program_of
from tilewright.errors import ParseError, TilewrightError
from tilewright.ir.scheduled import core as s
from tilewright.ir.scheduled.parser import parse_program
from tilewright.ir.scheduled.printer import program_text, statement_text
from tilewright.ir.types import ALL_DTYPES, bool_, f32, i64

EVERYTHING = """program everything
buffer x: f32 arg (@M, @K) strides (stride(x, 0), 1)
buffer out: f32 arg (@M) strides (1)
outputs out
dims M, K
strides x[0]
scalar alpha: f32
note tiles = "8 by 8"
par i.0 < @M {
  alloc tmp: f32 local (8, @K) strides (@K, 1)
  let t.1: f32 = mul($alpha, x[i.0, 0])
  acc argmax last v.2: f32 = -inf:f32, at.3: i64 = 0
  for k.4 in 0 .. @K vector width 8 inflight 2 {
    update v.2 = x[i.0, k.4], at.3 = k.4
    store tmp[0, k.4] = x[i.0, add(k.4, 1) if lt(add(k.4, 1), @K) else 0.0:f32] if lt(k.4, 8)
  }
  for j.5 in 0 .. 8 unroll step 2 {
    if lt(j.5, at.3) {
      scatter sum out[i.0] = t.1
    } else {
      store out[i.0] = cast(j.5, f32) if true
    }
  }
  micro tmp[0; @K, 1] = x[mul(i.0, 2); 4, 1] * x[0; 8, 1] depth @K rows 2 cols 8 width 4 valid 7 init prefetch 3
  alloc h: bf16 local (64) strides (1)
  micro tmp[0; 8, 1] = h[0; 4, 1] * h[0; 16, 1] depth @K rows 2 cols 8 width 4 group 2 bias x[i.0; 0, 1]
}
"""


def test_golden():
    program = parse_program(EVERYTHING)
    assert program_text(program) == EVERYTHING
    loop = program.body[0].body[3]
    assert isinstance(loop, s.For) and (loop.kind, loop.width, loop.unroll) == ("vector", 8, 2)
    assert program.notes == (("tiles", "8 by 8"),)


@settings(max_examples=80, deadline=None)
@given(cases(ALL_DTYPES, smooth=False), st.integers(0, 9))
def test_round_trip(case, seed):
    program = program_of(case, seed)
    text = program_text(program)
    assert parse_program(text) == program and program_text(parse_program(text)) == text


def let(value):
    out = s.dense("out", f32, "arg", (s.dim("M"),))
    body = s.ParFor((), (), (s.Let(s.fresh("v", value.dtype), value),))
    return s.Program("p", (out,), ("out",), ("M",), (), (), (body,))


@pytest.mark.parametrize("value", [-0.0, math.inf, -math.inf, 5e-324, 1e300, 0.1, 1e16])
def test_float_constants_keep_their_bits(value):
    program = let(s.const(value, f32))
    assert parse_program(program_text(program)) == program


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_constants_of_every_type(dtype):
    program = let(s.const(1, dtype))
    assert parse_program(program_text(program)) == program


def test_shared_and_deep_expressions_stay_small():
    e = s.dim("M")
    for _ in range(2000):
        e = s.expr("mul", i64, e, e)
    program = let(e)
    text = program_text(program)
    assert len(text) < 100_000 and max(map(len, text.splitlines())) < 400
    assert parse_program(text) == program


def test_statement_text_is_one_line():
    out = s.dense("out", f32, "arg", (4,))
    loop = s.For(s.Var("i", i64, 3), s.const(0), s.const(4), (s.Store(out, (s.const(0),), s.const(1.0, f32)),))
    assert statement_text(loop) == "for i.3 in 0 .. 4 {"
    assert statement_text(loop.body[0]) == "store out[0] = 1.0:f32"


def test_odd_names():
    x = s.dense("a tensor.3", f32, "arg", (s.dim("a dim"),))
    v = s.Var("if", bool_, 7)
    body = (s.Let(v, s.const(True, bool_)), s.If(s.var(v), (s.Store(x, (s.const(0),), s.const(1.0, f32)),)))
    program = s.Program("a program", (x,), ("a tensor.3",), ("a dim",), (), (), (s.ParFor((), (), body),))
    assert parse_program(program_text(program)) == program


@pytest.mark.parametrize(("old", "new", "message"), [
    ("program every", "progam every", "line 1, column 1: expected 'program'"),
    ("let t.1", "lett t.1", "line 11, column 3: there is no statement 'lett'"),
    ("mul($alpha", "mull($alpha", "line 11, column 18: there is no function 'mull'"),
    ("mul($alpha, ", "mul($alpha, 1.0:f32, ", "mul takes 2 operands, not 3"),
    ("$alpha", "$beta", "there is no scalar 'beta'"),
    ("update v.2", "update v.9", r"variable v\.9 is not declared"),
    ("for j.5", "for k.4", r"variable k\.4 is declared twice"),
    ("store tmp[0", "store tmq[0", "there is no buffer 'tmq'"),
    ("  micro", "  !", "expected a name"),
    ("M, K\n", "M, K K\n", "expected the end of the line, found 'K'"),
    ("lt(j.5, at.3)", "lt(!3, at.3)", "!3 is not defined for this statement"),
    ("-inf:f32", "-inf:i32", "expected an integer for i32"),
    ("mul(i.0, 2)", "neg(" * 200, "nested too deeply"),
    ("depth @K", "depth", "line 24, column 65: expected a variable such as i.0, found 'rows'"),
])
def test_errors_name_the_place(old, new, message):
    assert old in EVERYTHING
    with pytest.raises(ParseError, match=message):
        parse_program(EVERYTHING.replace(old, new, 1))


@settings(max_examples=300, deadline=None)
@given(st.randoms(use_true_random=False))
def test_mutated_text_never_crashes(r):
    source = EVERYTHING if r.random() < 0.5 else program_text(program_of(generate(r, ALL_DTYPES), r.random()))
    try:
        program = parse_program(mutate(r, source))
    except TilewrightError:
        return
    assert parse_program(program_text(program)) == program


def test_the_generator_reaches_what_the_printer_writes():
    """The round-trip test is worth something only if lowered programs use the statements there are."""
    text = "".join(program_text(program_of(generate(random.Random(n), ALL_DTYPES), n)) for n in range(40))
    for word in ("vector", "micro", "alloc", "acc", "update", "scatter", "if ", "store", " if "):
        assert word in text, word
