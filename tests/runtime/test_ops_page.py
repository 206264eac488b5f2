"""docs/ops.md says what the code does: it is written from the tables that lowering uses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewright.errors import ModelError
from tilewright.ir.graph import build as b
from tilewright.ir.graph.core import Graph, Value
from tilewright.ir.graph.spec import SPECS
from tilewright.ir.types import bool_, f32, i64
from tilewright.ops import table
from tilewright.ops.rules import RULES
from tilewright.runtime.model import Model
from tilewright.runtime.plan import SPECIAL

PAGE = Path(__file__).resolve().parents[2] / "docs" / "ops.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == table.markdown(), "run: python -m tilewright.ops.table > docs/ops.md"


def test_the_tables_name_ops_that_exist() -> None:
    assert set(table.NOTES) | set(table.REWRITTEN) | set(RULES) | set(SPECIAL) <= set(SPECS)


def refused(*outputs: Value) -> list[str]:
    inputs = [n.out() for n in Graph("g", [], outputs, [str(k) for k in range(len(outputs))]).nodes if n.op == "input"]
    with pytest.raises(ModelError) as caught:
        Model(Graph("g", inputs, outputs, [str(k) for k in range(len(outputs))])).compile("cpu")
    return [p.reason for p in caught.value.problems]


def test_shapes_that_depend_on_values_are_refused() -> None:
    x, shape, k = b.input("x", f32, (3, 4)), b.input("s", i64, (2,)), b.input("k", i64, (1,))
    reshaped = b.make("dyn_reshape", x, shape).out()
    reasons = refused(b.add(reshaped, 1.0), b.make("dyn_topk", x, k, axis=1).out(0))
    assert len(reasons) == 2  # the add is not to blame
    assert all("values that are known only when the model runs" in r for r in reasons)


def test_branches_of_different_shapes_are_refused() -> None:
    x, p = b.input("x", f32, (3, 4)), b.input("p", bool_, ())
    inner = [b.input(f"{side}/x", f32, (3, 4)) for side in "ab"]
    half = b.slice(inner[0], (0, 0), (2, 4), (1, 1))
    sides = [Graph("a", [inner[0]], [half], ["y"]), Graph("b", [inner[1]], [b.neg(inner[1])], ["y"])]
    (reason,) = refused(b.make("if_", p, x, then_branch=sides[0], else_branch=sides[1]).out())
    assert "branches give results of different shapes" in reason


def test_windows_over_four_axes_are_refused() -> None:
    x = b.input("x", f32, (1, 2, 3, 3, 3, 3))
    w = b.const(np.ones((2, 2, 1, 1, 1, 1), np.float32))
    (reason,) = refused(b.conv(x, w))
    assert "4 spatial axes" in reason
