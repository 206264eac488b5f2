"""Graphs print and parse back to the same nodes; text that is not a graph is refused with its place."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ir.graph.graphs import random_graph
from tests.ir.graph.samples import MAKERS, draw, graph_of
from tilewright.errors import ParseError
from tilewright.ir.graph import build as b
from tilewright.ir.graph.core import Graph
from tilewright.ir.graph.dims import dim_broadcast, dim_max, dim_min, floordiv, mod, symbol
from tilewright.ir.graph.parser import parse
from tilewright.ir.graph.printer import print_graph
from tilewright.ir.types import Loc, bf16, bool_, f32, i64


def same(graph: Graph) -> None:
    table: dict[str, np.ndarray] = {}
    text = print_graph(graph, table)
    again = parse(text, table)
    assert again == graph and again.name == graph.name
    assert [v.node for v in again.outputs] == [v.node for v in graph.outputs]
    assert print_graph(again, {}) == text


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**9))
def test_round_trip(seed: int) -> None:
    graph, _, _ = random_graph(seed)
    same(graph)


@pytest.mark.parametrize("op", sorted(MAKERS))
def test_round_trip_of_every_op(op: str) -> None:
    for seed in range(4):
        same(graph_of(draw(op, seed))[0])


def _apply(t: tuple) -> object:
    op, x, y = t
    match op:
        case "+":
            return x + y
        case "-":
            return x - y
        case "*":
            return x * y
        case "//":
            return floordiv(x, y if y != 0 else 1)
        case "%":
            return mod(x, y if y != 0 else 1)
        case "max":
            return dim_max(x, y)
        case "min":
            return dim_min(x, y)
        case _:
            fit = dim_broadcast(x, y)
            return x if fit is None else fit


dims = st.recursive(
    st.one_of(
        st.integers(1, 9), st.sampled_from([symbol("N", 1), symbol("M", 0, 64, 8), symbol("max"), symbol('a b`"')])
    ),
    lambda d: st.tuples(st.sampled_from(["+", "-", "*", "//", "%", "max", "min", "bc"]), d, d).map(_apply),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(dims)
def test_round_trip_of_dims(d: object) -> None:
    if isinstance(d, int) and d < 0:
        return
    x = b.input("x", f32, (d, 2))  # type: ignore[arg-type]
    same(Graph("g", [x], [b.neg(x)], ["y"]))


def test_round_trip_of_branches_names_and_constants() -> None:
    x = b.input('odd "name"', f32, (2, symbol("p2o.Dim.0", 1, 32, 2)))
    inner = b.input("captured", f32, x.shape)
    then, other = Graph("then", [inner], [b.relu(inner)], ["r"]), Graph("else", [inner], [b.neg(inner)], ["r"])
    with b.location(Loc("f.py", 3, 4, 9, Loc("g.py", 1)), "node é"):
        (y,) = b.if_(b.input("c", bool_, ()), [x], then, other)
    odd = np.array([np.nan, np.inf, -np.inf, -0.0], np.float32)
    z = b.const(odd)
    weird = b.const(np.array([0x7FC00001], np.uint32).view(np.float32))
    half = b.const(np.array([1.5, -2.25]), bf16)
    flags = b.const(np.array([True, False]))
    big = b.const(np.arange(100, dtype=np.float32))
    outs = [y, z, weird, half, flags, big, b.const(-(2**63)), *b.topk(big, 3)]
    same(Graph("g", [x, b.input("c", bool_, ())], outs, [f"o{i}" for i in range(len(outs))], {y: "tensor y"}))


def test_large_constants_need_their_data() -> None:
    g = Graph("g", [], [b.const(np.arange(100))], ["y"])
    table: dict[str, np.ndarray] = {}
    text = print_graph(g, table)
    with pytest.raises(ParseError, match="side table"):
        parse(text)
    with pytest.raises(ParseError, match="digest"):
        parse(text, {k: v + 1 for k, v in table.items()})


GOOD = print_graph(random_graph(11)[0], TABLE := {})


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", "line 1, column 1"),
        ('graph "g"\ninput %0 "x": f32[2]\n%1 = exp %0 : f32[3]\nend', "line 3, column 6"),
        ('graph "g"\n%1 = exp %0 : f32[3]\nend', "line 2, column 10"),
        ('graph "g"\ninput %0 "x": f32[N]\nend', "line 2, column 19"),
        ('graph "g"\ninput %0 "x": f99[2]\nend', "line 2, column 15"),
        ('graph "g" ? end', "line 1, column 11"),
        ('graph "g"\n%0 = constant f32[2] [1.0]\nend', "line 2"),
        ('graph "g"\nsymbols N: 3..1\nend', "line 2"),
        ('graph "g"\ninput %0 "x": f32[' + "(" * 500 + "1", "nested too deeply"),
        ('graph "g"\ninput %0 "x": f32[1 // 0]\nend', "divides by zero"),
    ],
)
def test_refusals_name_the_place(text: str, place: str) -> None:
    with pytest.raises(ParseError, match=place.replace("(", r"\(")):
        parse(text)


@settings(max_examples=250, deadline=None)
@given(st.integers(0, 10**9))
def test_mutated_text_is_refused_or_parsed(seed: int) -> None:
    r = random.Random(seed)
    text = list(GOOD)
    for _ in range(r.randint(1, 5)):
        at = r.randrange(len(text))
        match r.randrange(4):
            case 0:
                text[at] = ""
            case 1:
                text[at] = r.choice('(){}[]%#=,: 0123456789-abcxyz"`*/@.\\\n')
            case 2:
                end = min(len(text), at + r.randint(1, 40))
                text[at:at] = text[at:end]
            case _:
                text[at : at + r.randint(1, 30)] = []
        text = text or ["g"]
    try:
        parse("".join(text), TABLE)
    except ParseError as e:
        assert "line " in str(e) and "column " in str(e)


def test_i64_shapes_stay_exact() -> None:
    g = Graph("g", [], [b.iota((3,), 0, i64)], ["y"])
    same(g)
