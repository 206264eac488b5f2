"""The interpreter as a target: describe, render, and its driver from memory to results."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.generators import cases, generate
from tests.pipeline import program_of
from tilewright.errors import ArgumentError, UnsupportedError
from tilewright.interp import tile
from tilewright.ir.types import ALL_DTYPES, f32
from tilewright.targets import interp
from tilewright.targets.interp import driver


def launch(case, seed=0, threads=2):
    """The case's outputs through render, load, memory and launch."""
    program = program_of(case, seed)
    loaded = driver.load(interp.render(program, interp.describe(), threads))
    memory, shapes = {}, {}
    for b in program.buffers:
        reference = case.arrays.get(b.name)
        if reference is None:
            reference = tile.run(case.kernel, case.arrays, case.scalars, case.dims)[b.name]
            memory[b.name] = driver.alloc(reference.nbytes)
        else:
            memory[b.name] = driver.alloc(reference.nbytes)
            driver.copy_in(memory[b.name], reference)
        shapes[b.name] = reference
    launched = driver.launch(loaded, memory, case.dims, scalars=case.scalars)
    driver.synchronize()
    assert driver.elapsed(launched) >= 0 and launched.threads == threads
    out = {}
    for name in program.outputs:
        out[name] = np.empty_like(shapes[name])
        driver.copy_out(memory[name], out[name])
    for allocation in memory.values():
        driver.free(allocation)
    return out


@settings(max_examples=40, deadline=None)
@given(cases([f32], zero=False), st.integers(0, 99))
def test_render_and_launch_agree_with_the_oracle(case, seed):
    for name, got in launch(case, seed).items():
        want = tile.run(case.kernel, case.arrays, case.scalars, case.dims)[name]
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def test_artifacts_are_text_that_reads_back():
    program = program_of(generate(random.Random(5), ALL_DTYPES))
    artifact = interp.render(program, interp.describe())
    assert artifact.text.startswith("program generated\n")
    assert driver.load(artifact).program == program


def test_other_targets_are_refused():
    from tilewright.targets import null

    program = program_of(generate(random.Random(1)))
    with pytest.raises(UnsupportedError, match="is a target of the family 'null', not the interpreter"):
        interp.render(program, null.describe())
    assert interp.supports(program, interp.describe()) is None


def test_memory():
    with pytest.raises(ArgumentError, match="cannot allocate -1 bytes"):
        driver.alloc(-1)
    a = driver.alloc(8)
    x = np.empty(2, np.float32)
    driver.copy_out(a, x)
    assert np.isnan(x).all(), "fresh memory is poisoned"
    driver.copy_in(a, np.asarray([[1, 2]], np.float32).T[::-1])
    driver.copy_out(a, x)
    assert x.tolist() == [2, 1]
    with pytest.raises(ArgumentError, match="12 bytes do not fit an allocation of 8"):
        driver.copy_in(a, np.zeros(3, np.float32))
    driver.free(a)
    for use in (lambda: driver.free(a), lambda: driver.copy_out(a, x)):
        with pytest.raises(ArgumentError, match="this memory was freed"):
            use()


def test_launches_name_what_is_missing():
    case = generate(random.Random(3))
    loaded = driver.load(interp.render(program_of(case), interp.describe()))
    with pytest.raises(ArgumentError, match="got no memory for"):
        driver.launch(loaded, {}, case.dims)
