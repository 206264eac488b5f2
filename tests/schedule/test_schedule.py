"""Schedules as data: they survive their text form, illegal ones are refused, computed ones are legal everywhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import ScheduleError
from tilewright.ir.tile import build as b
from tilewright.ir.tile import core as t
from tilewright.ir.types import f32
from tilewright.schedule.facts import Facts, Layout
from tilewright.schedule.first import first_schedule, register_block
from tilewright.schedule.schedule import DotPlan, Schedule, check
from tilewright.targets.llvm.description import describe

LEVELS = ("sse4.2", "avx2", "avx512")


def product(m: int, n: int, k: int) -> tuple[t.Kernel, Facts]:
    dims = tuple(t.dim(x) for x in "MNK")
    rows, cols, depth = dims
    x = t.TensorParam("x", f32, (rows, depth))
    w = t.TensorParam("w", f32, (depth, cols))
    out = t.TensorParam("out", f32, (rows, cols), "out")
    i, j, axis = t.Axis("i", rows), t.Axis("j", cols), t.Axis("k", depth)
    shape = (t.TileOf(i), t.TileOf(j))
    acc = t.carried(t.TileType(f32, shape), "acc")
    dot = b.dot(acc, b.load(x, [b.index(i), b.index(axis)]), b.load(w, [b.index(axis), b.index(j)]))
    loop = b.loop(axis, [b.full(shape, 0.0, f32)], [acc], [dot])
    par = b.par([i, j], [b.store(out, [b.index(i), b.index(j)], b.result(loop, 0))])
    kernel = b.kernel("product", [x, w, out], [par])
    layouts = tuple((p.name, Layout.row_major(2)) for p in (x, w, out))
    facts = Facts((("M", m), ("N", n), ("K", k)), frozenset(), layouts, 2)
    return kernel, facts


plans = st.builds(
    DotPlan, st.integers(1, 16), st.integers(1, 64), st.sampled_from(["direct", "staged"]),
    st.sampled_from(["direct", "staged", "packed"]), st.integers(1, 512),
)
schedules = st.builds(
    Schedule, st.lists(st.tuples(st.text("ijk_1", min_size=1), st.integers(1, 4096)), max_size=4).map(tuple),
    st.lists(plans, max_size=3).map(tuple), st.sampled_from([128, 256, 512]), st.integers(1, 8), st.integers(1, 64),
)


@given(schedules)
def test_a_schedule_is_one_line_of_json(schedule: Schedule) -> None:
    text = schedule.to_json()
    assert "\n" not in text
    assert Schedule.from_json(text) == schedule


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"tiles": 3}', '{"tiles": [], "dots": [{}], "vector_bits": 1}'])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ScheduleError, match="not a schedule"):
        Schedule.from_json(text)


def test_illegal_schedules_are_refused_with_the_knob() -> None:
    target = describe("avx2")
    with pytest.raises(ScheduleError, match="tile size of axis 'i' is 0"):
        check(Schedule((("i", 0),)), target)
    with pytest.raises(ScheduleError, match="vectors of 512 bits on a target of 256"):
        check(Schedule((), vector_bits=512), target)
    with pytest.raises(ScheduleError, match="needs .* vector registers"):
        check(Schedule((), (DotPlan(12, 32),), vector_bits=256), target)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 2048, 2048), (7, 33, 5), (32, 4096, 64), (1000, 777, 1333)])
def test_computed_schedules_are_legal(level: str, sizes: tuple[int, int, int]) -> None:
    kernel, facts = product(*sizes)
    target = describe(level)
    schedule = first_schedule(kernel, facts, target)
    check(schedule, target)
    assert {name for name, _ in schedule.tiles} == {"i", "j", "k"}


@given(st.integers(1, 5000), st.integers(1, 5000), st.sampled_from(LEVELS))
def test_register_blocks_fit_the_registers(height: int, width: int, level: str) -> None:
    target = describe(level)
    rows, vectors = register_block(height, width, target.lanes(32), target)
    assert 1 <= rows <= height and vectors >= 1
    assert rows * vectors + vectors + 1 <= target.vector_registers
