"""The null target estimates and runs nothing."""

import random

import pytest

from tests.generators import generate
from tests.pipeline import program_of
from tilewright.errors import UnsupportedError
from tilewright.targets import interp, null
from tilewright.targets.null import backend


def test_estimates_carry_their_provenance():
    case = generate(random.Random(2))
    artifact = null.render(program_of(case, target=null.describe()), null.describe())
    found = null.estimate(artifact, case.dims, case.scalars)
    assert set(found) == {"flops", "int_ops", "functions", "read", "written", "scratch", "tensors"}
    for e in found.values():
        assert e.provenance == "estimated" and e.how and e.value >= 0
    assert "[estimated]" in str(found["flops"])
    assert artifact.text.startswith("program generated\n")


def test_it_can_stand_for_another_machine():
    like = null.describe(interp.describe())
    assert (like.name, like.family, like.l1) == ("null (interp)", "null", interp.describe().l1)


def test_it_runs_nothing():
    with pytest.raises(UnsupportedError, match="the null target runs nothing"):
        backend.launch()
