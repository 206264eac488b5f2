"""Random kernels with random schedules: the oracle, the interpreter of Scheduled IR and machine code say the same.

Every case is checked for valid Tile IR, run in the oracle with several tilings and a shuffled grid, lowered with the
first computed schedule and with random legal ones, verified, interpreted, compiled and run into poisoned memory with
guarded margins, by one to three threads' shares.
"""

from __future__ import annotations

import random

import pytest

from tests.generators import generate
from tests.pipeline.support import check_case
from tilewright.ir import types
from tilewright.targets.interp import describe as interp
from tilewright.targets.llvm.description import LEVELS, describe, host_description, host_level

FLOATS = (types.f32, types.f64, types.f16, types.bf16)
INTEGERS = tuple(d for d in types.ALL_DTYPES if not d.is_float)
LOWER = [describe(level) for level in LEVELS[: LEVELS.index(host_level())]]


def case_of(seed: int):
    return generate(random.Random(seed), FLOATS if seed % 3 else INTEGERS)


@pytest.mark.parametrize("block", range(8))
def test_on_this_machine(block):
    for seed in range(10 * block, 10 * block + 10):
        check_case(case_of(seed), seed, [host_description()])


@pytest.mark.parametrize("block", range(4))
def test_on_lower_vector_levels(block):
    for seed in range(1000 + 6 * block, 1000 + 6 * block + 6):
        check_case(case_of(seed), seed, LOWER, schedules=0 if seed % 2 else 1)


@pytest.mark.parametrize("block", range(4))
def test_with_many_schedules_in_the_interpreter(block):
    for seed in range(2000 + 8 * block, 2000 + 8 * block + 8):
        check_case(case_of(seed), seed, [interp()], schedules=4)


#: cases that once failed, with what was wrong
FOUND = {
    8: "an accumulator's rows were too short for whole panels of another product's width",
    72: "a vector accumulator had no room for the rest of its last panel",
    403: "the first schedule of a product over nothing had no depth",
    2006: "the first schedule asked for more vector registers than the machine has",
    2024: "a masked 16-bit store of one lane wrote two elements",
    2205: "the edge of a register block used an address computed in its other branch",
    2372: "sums of 16-bit floats were rounded at every step",
    5193: "the simplifier took the absolute value of a negated unsigned number for that of the number",
}


@pytest.mark.parametrize("seed", FOUND)
def test_what_once_failed(seed):
    check_case(case_of(seed), seed, [*LOWER, host_description()], schedules=3)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(40))
def test_sweep(block):
    for seed in range(10_000 + 50 * block, 10_050 + 50 * block):
        check_case(case_of(seed), seed, [*LOWER, interp(), host_description()], schedules=2)
