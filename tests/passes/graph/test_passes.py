"""The graph passes: each keeps results on random graphs, and collapses the patterns that models really have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.ir.graph.graphs import random_graph
from tests.ir.graph.samples import MAKERS, close, draw, graph_of
from tilewright.errors import ArgumentError, ShapeError
from tilewright.interp.graph import run, run_all
from tilewright.ir.graph import build as b
from tilewright.ir.graph.core import Graph, Value
from tilewright.ir.graph.dims import symbol
from tilewright.ir.graph.spec import SPECS
from tilewright.ir.graph.verify import verify
from tilewright.ir.types import f16, f32, i8, i32, i64
from tilewright.passes.graph.canonicalise import canonicalise
from tilewright.passes.graph.canonicalise_dynamic import canonicalise_dynamic
from tilewright.passes.graph.channels_last import channels_last
from tilewright.passes.graph.decompose import decompose
from tilewright.passes.graph.fold_batchnorm import fold_batchnorm
from tilewright.passes.graph.fold_constants import fold_constants
from tilewright.passes.graph.pipeline import KEEP, optimise, simplify
from tilewright.passes.graph.recognise import recognise
from tilewright.passes.graph.simplify_matmul import simplify_matmul
from tilewright.passes.graph.specialise import specialise

N = symbol("N", 1)
PASSES: dict[str, Callable[[Graph], Graph]] = {
    "fold_constants": fold_constants,
    "canonicalise": canonicalise,
    "canonicalise_dynamic": canonicalise_dynamic,
    "recognise": recognise,
    "fold_batchnorm": fold_batchnorm,
    "channels_last": channels_last,
    "decompose": decompose,
    "simplify_matmul": lambda g: simplify_matmul(channels_last(g)),
    "optimise": optimise,
    "optimise_first": lambda g: optimise(g, layout="first"),
}
SEEDS = range(50)


def check(graph: Graph, after: Graph, feed: dict[str, Any], rel: float = 2e-4) -> None:
    verify(after)
    assert after.output_names == graph.output_names
    want, got = run(graph, feed), run(after, feed)
    for name in want:
        assert got[name].dtype == want[name].dtype
        assert close(got[name], want[name], rel), name


@pytest.mark.parametrize("name", PASSES)
def test_a_pass_keeps_results(name: str) -> None:
    for seed in SEEDS:
        graph, _, feed = random_graph(seed)
        check(graph, PASSES[name](graph), feed)


def test_specialising_keeps_results_and_leaves_nothing_dynamic() -> None:
    for seed in SEEDS:
        graph, dims, feed = random_graph(seed)
        bindings = {k: v for k, v in dims.items() if any(str(d) == k for x in graph.inputs for d in x.shape)}
        bound = specialise(graph, bindings)
        assert all(v.type.is_static for n in bound.nodes for v in n.outputs)
        check(graph, bound, feed)
        final = optimise(graph, {"x": feed["x"].shape, "z": feed["z"].shape})
        check(graph, final, feed)
        only_what_targets_run(final)


def only_what_targets_run(graph: Graph) -> None:
    for node in graph.nodes:
        if node.op in ("input", "constant"):
            continue
        spec = SPECS[node.op]
        assert not spec.dynamic and (not spec.composite or node.op in KEEP), node
        assert node.op not in ("shape_of", "size_of", "if_"), node


@pytest.mark.parametrize("op", sorted(MAKERS))
def test_every_op_survives_the_pipeline(op: str) -> None:
    for seed in range(6):
        graph, feed = graph_of(draw(op, seed))
        after = optimise(graph)
        only_what_targets_run(after)
        if op == "quantize":
            continue
        check(graph, after, feed, 1e-4)


@pytest.mark.parametrize("op", ["conv", "conv_transpose", "max_pool", "avg_pool"])
def test_channels_last_of_every_window(op: str) -> None:
    for seed in range(20):
        sample = draw(op, seed)
        graph, feed = graph_of(sample)
        after = channels_last(graph)
        assert all(n.attr("layout") == "last" for n in after.nodes if n.op == op)
        check(graph, after, feed, 1e-5)


# patterns


def x(*shape: Any, dtype: Any = f32, name: str = "x") -> Value:
    return b.input(name, dtype, shape)


def graph(*outputs: Value) -> Graph:
    inputs: dict[Value, None] = {}
    for n in Graph("", [], outputs, [str(i) for i in range(len(outputs))]).nodes:
        if n.op == "input":
            inputs[n.out()] = None
    return Graph("g", list(inputs), outputs, [f"y{i}" for i in range(len(outputs))])


def ops(g: Graph) -> list[str]:
    return [n.op for n in g.nodes if n.op not in ("input", "constant")]


A = x(2, 3, 8)


def _layer_norm(a: Value) -> Value:
    centred = b.sub(a, b.reduce_mean(a, [-1]))
    deviation = b.sqrt(b.add(b.reduce_mean(b.pow(centred, 2.0), [-1]), 1e-5))
    scale, bias = b.const(np.linspace(0.5, 2, 8, dtype=np.float32)), b.const(np.ones(8, np.float32))
    return b.add(b.mul(b.div(centred, deviation), scale), bias)


def _layer_norm_apart(a: Value) -> Value:
    """As exporters write it: two separate subtractions, reciprocal of the root."""
    top = b.sub(a, b.reduce_mean(a, [2]))
    var = b.reduce_mean(b.mul(b.sub(a, b.reduce_mean(a, [2])), b.sub(a, b.reduce_mean(a, [2]))), [2])
    return b.mul(top, b.reciprocal(b.sqrt(b.add(1e-6, var))))


def _softmax(a: Value) -> Value:
    e = b.exp(b.sub(a, b.reduce_max(a, [1])))
    return b.div(e, b.reduce_sum(e, [1]))


PATTERNS: dict[str, tuple[Callable[[Value], Value], str]] = {
    "hard_swish by clip": (lambda a: b.div(b.mul(a, b.clip(b.add(a, 3.0), 0.0, 6.0)), 6.0), "hard_swish"),
    "hard_swish by relu6": (lambda a: b.mul(b.mul(b.min(b.relu(b.add(3.0, a)), 6.0), 1 / 6), a), "hard_swish"),
    "hard_swish by hard_sigmoid": (lambda a: b.mul(b.hard_sigmoid(a, 1 / 6, 0.5), a), "hard_swish"),
    "gelu by erf": (lambda a: b.mul(b.mul(a, b.add(b.erf(b.div(a, 2**0.5)), 1.0)), 0.5), "gelu"),
    "gelu, halves first": (lambda a: b.mul(b.mul(0.5, a), b.add(1.0, b.erf(b.mul(a, 0.5**0.5)))), "gelu"),
    "gelu by tanh": (
        lambda a: b.mul(
            b.mul(a, 0.5),
            b.add(b.tanh(b.mul(b.add(a, b.mul(b.pow(a, 3.0), 0.044715)), (2 / np.pi) ** 0.5)), 1.0),
        ),
        "gelu",
    ),
    "silu": (lambda a: b.mul(b.sigmoid(a), a), "silu"),
    "layer_norm": (_layer_norm, "layer_norm"),
    "layer_norm apart": (_layer_norm_apart, "layer_norm"),
    "rms_norm": (lambda a: b.mul(a, b.rsqrt(b.add(b.reduce_mean(b.mul(a, a), [-1]), 1e-5))), "rms_norm"),
    "softmax": (_softmax, "softmax"),
}


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns_are_recognised(name: str) -> None:
    build, op = PATTERNS[name]
    g = graph(build(A))
    found = recognise(simplify(g))
    assert ops(found) == [op]
    check(g, found, {"x": np.random.default_rng(0).normal(size=(2, 3, 8)).astype(np.float32)})


def test_what_only_looks_like_a_pattern_is_left() -> None:
    other = x(2, 3, 8, name="other")
    for y in (
        b.mul(b.sigmoid(A), other),
        b.mul(b.mul(A, 0.5), b.add(b.erf(A), 1.0)),
        b.div(b.mul(A, b.clip(b.add(A, 3.0), 0.0, 5.0)), 6.0),
        b.mul(A, b.rsqrt(b.add(b.reduce_mean(b.mul(A, A), [1]), 1e-5))),
    ):
        assert not set(ops(recognise(simplify(graph(y))))) & {"silu", "gelu", "hard_swish", "rms_norm"}


IDENTITIES: dict[str, tuple[Callable[[Value], Value], list[str]]] = {
    "pow 2": (lambda a: b.pow(a, 2.0), ["mul"]),
    "pow .5": (lambda a: b.pow(b.abs(a), 0.5), ["abs", "sqrt"]),
    "mul by 1": (lambda a: b.mul(a, 1.0), []),
    "div by 4": (lambda a: b.div(a, 4.0), ["mul"]),
    "div by 3": (lambda a: b.div(a, 3.0), ["div"]),
    "neg neg": (lambda a: b.neg(b.neg(a)), []),
    "reshape twice": (lambda a: b.reshape(b.reshape(a, (6, 8)), (3, 16)), ["reshape"]),
    "reshape back": (lambda a: b.reshape(b.reshape(a, (6, 8)), (2, 3, 8)), []),
    "transpose back": (lambda a: b.transpose(b.transpose(a, (2, 0, 1)), (1, 2, 0)), []),
    "whole slice": (lambda a: b.slice_axis(a, 1, 0, 99), []),
    "slice twice": (lambda a: b.slice_axis(b.slice_axis(a, 2, 1, 7), 2, 2, 4), ["slice"]),
    "no pad": (lambda a: b.pad(a, (0, 0, 0), (0, 0, 0)), []),
    "concat of one": (lambda a: b.concat([a], 0), []),
    "concat of concats": (lambda a: b.concat([b.concat([a, a], 1), a], 1), ["concat"]),
    "broadcast operand": (
        lambda a: b.add(a, b.broadcast(b.exp(b.slice_axis(a, 2, 0, 1)), (2, 3, 8))),
        ["slice", "exp", "add"],
    ),
    "tile by 1": (lambda a: b.tile(a, (1, 1, 1)), []),
    "gather of a run": (lambda a: b.gather(a, b.const([1, 2]), 1), ["slice"]),
    "gather of one": (lambda a: b.gather(a, b.const(-1), 2), ["slice", "reshape"]),
    "reduce of nothing": (lambda a: b.reduce_sum(a, []), []),
    "cast there and back": (lambda a: b.cast(b.cast(b.cast(a, f16), f32), f16), ["cast"]),
    "1 / sqrt": (lambda a: b.div(b.const(1.0, f32), b.sqrt(b.abs(a))), ["abs", "rsqrt"]),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identities(name: str) -> None:
    build, want = IDENTITIES[name]
    g = graph(build(A))
    after = simplify(g)
    assert ops(after) == want
    check(g, after, {"x": np.random.default_rng(0).normal(size=(2, 3, 8)).astype(np.float32)}, 1e-6)


def test_casts_that_lose_something_stay() -> None:
    for inner in (f16, i8):
        assert len(ops(simplify(graph(b.cast(b.cast(A, inner), f32))))) == 2
    small = x(4, dtype=i8)
    assert len(ops(simplify(graph(b.cast(b.cast(small, i32), f32))))) == 1
    assert ops(simplify(graph(b.cast(b.cast(x(4, dtype=i64), i32), i64)))) == ["cast", "cast"]


# batch norm


def _const(*shape: int, seed: int = 0) -> Value:
    return b.const(np.random.default_rng(seed).uniform(0.5, 1.5, shape).astype(np.float32))


def _bn(y: Value, c: int) -> Value:
    return b.batch_norm(y, _const(c), _const(c, seed=1), _const(c, seed=2), _const(c, seed=3))


def test_batch_norm_folds_into_what_feeds_it() -> None:
    image = x(2, 4, 6, 6)
    cases = {
        "conv": _bn(b.conv(image, _const(6, 4, 3, 3)), 6),
        "grouped": _bn(b.conv(image, _const(6, 2, 3, 3), _const(6), groups=2), 6),
        "transposed": _bn(b.conv_transpose(image, _const(4, 3, 2, 2), strides=(2, 2), groups=2), 6),
        "mul and add": b.add(b.mul(b.conv(image, _const(6, 4, 1, 1)), _const(6, 1, 1)), _const(1, 6, 1, 1)),
        "add alone": b.add(_const(6, 1, 1), b.conv(image, _const(6, 4, 1, 1))),
        "sub and div": b.div(b.sub(b.conv(image, _const(6, 4, 1, 1)), 0.5), _const(6, 1, 1)),
    }
    feed = {"x": np.random.default_rng(5).normal(size=(2, 4, 6, 6)).astype(np.float32)}
    for name, y in cases.items():
        g = graph(y)
        after = fold_batchnorm(g)
        assert ops(after) in (["conv"], ["conv_transpose"]), name
        check(g, after, feed, 1e-5)
        last = fold_batchnorm(channels_last(g))
        assert set(ops(last)) <= {"transpose", "conv", "conv_transpose"}, name
        check(g, last, feed, 1e-5)


def test_scales_fold_into_a_product_with_constants() -> None:
    rows = x(5, 4)
    g = graph(b.mul(b.add(b.matmul(rows, _const(4, 6)), _const(6)), _const(6, seed=1)))
    after = fold_batchnorm(g)
    assert ops(after) == ["matmul", "add"]
    check(g, after, {"x": np.ones((5, 4), np.float32)}, 1e-6)


def test_a_convolution_read_twice_keeps_its_weights() -> None:
    y = b.conv(x(2, 4, 6, 6), _const(6, 4, 1, 1))
    after = fold_batchnorm(graph(b.mul(y, _const(6, 1, 1)), b.relu(y)))
    assert ops(after).count("conv") == 1 and "mul" in ops(after)


# layout


def test_a_residual_network_moves_to_channels_last_with_two_transposes() -> None:
    image = x(2, 4, 8, 8)
    y = b.relu(b.conv(image, _const(8, 4, 3, 3), _const(8), pads_lo=(1, 1), pads_hi=(1, 1)))
    z = b.add(y, b.mul(b.conv(y, _const(8, 8, 1, 1)), _const(8, 1, 1)))
    z = b.concat([b.pad(z, (0, 0, 1, 1), (0, 0, 1, 1)), b.pad(y, (0, 0, 1, 1), (0, 0, 1, 1))], 1)
    z = b.max_pool(b.clip(z, 0.0, 6.0), (2, 2), (2, 2))
    gate = b.sigmoid(b.reduce_mean(z, [2, 3]))
    z = b.mul(z, b.unsqueeze(gate, [2, 3]))
    g = graph(z, b.reduce_mean(z, [2, 3], keepdims=False))
    after = simplify(channels_last(g))
    assert ops(after).count("transpose") == 2
    check(g, after, {"x": np.random.default_rng(5).normal(size=(2, 4, 8, 8)).astype(np.float32)}, 1e-5)


def test_transposes_around_a_channels_last_model_cancel() -> None:
    image = x(N, 8, 8, 4)
    y = b.conv(b.transpose(image, (0, 3, 1, 2)), _const(8, 4, 3, 3))
    after = simplify(channels_last(graph(b.transpose(b.relu(y), (0, 2, 3, 1)))))
    assert ops(after) == ["conv", "relu"]


def test_pointwise_convolutions_become_products() -> None:
    y = b.conv(x(2, 5, 5, 4), _const(1, 1, 4, 6), _const(6), layout="last")
    g = graph(y)
    after = simplify_matmul(g)
    assert ops(after) == ["reshape", "reshape", "matmul", "add", "reshape"]
    check(g, after, {"x": np.ones((2, 5, 5, 4), np.float32)}, 1e-6)


# constants, branches, specialisation


def _branches(a: Value) -> tuple[Graph, Graph]:
    inner = b.input("inner", f32, a.shape)
    return Graph("t", [inner], [b.relu(inner)], ["r"]), Graph("e", [inner], [b.neg(inner)], ["r"])


def test_decided_branches_are_inlined() -> None:
    a = x(N, 3)
    condition = b.eq(b.gather(b.shape_of(a), b.const(0)), 4)
    (y,) = b.if_(condition, [a], *_branches(a))
    g = graph(y)
    assert "if_" in ops(simplify(g))
    for n, want in ((4, ["max"]), (5, ["neg"])):
        after = optimise(g, {"N": n})
        assert ops(after) == want
        check(g, after, {"x": np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)})
    by_axis = b.eq(b.gather(b.shape_of(a), b.const(1)), 3)
    (y,) = b.if_(by_axis, [a], *_branches(a))
    assert ops(simplify(graph(y))) == ["relu"]


def test_undecided_branches_are_rewritten_inside() -> None:
    a, c = x(N, 3), b.input("c", b.const(True).dtype, ())
    inner = b.input("inner", f32, a.shape)
    then = Graph("t", [inner], [b.mul(b.relu(inner), 1.0)], ["r"])
    other = Graph("e", [inner], [b.dyn_reshape(inner, b.const([-1, 3]))], ["r"])
    (y,) = b.if_(c, [a], then, other)
    g = graph(y)
    after = optimise(g, {"N": 2})
    (node,) = [n for n in after.nodes if n.op == "if_"]
    assert ops(node.attr("then_branch")) == ["max"] and ops(node.attr("else_branch")) == []
    for flag in (True, False):
        check(g, after, {"x": np.ones((2, 3), np.float32), "c": np.array(flag)})


def test_large_results_are_not_folded() -> None:
    big = b.broadcast(b.const(1.0), (1024, 1024))
    assert ops(fold_constants(graph(big))) == ["broadcast"]
    assert ops(fold_constants(graph(b.exp(b.const(np.zeros(64, np.float32)))), limit=16)) == ["exp"]


def test_symbolic_batch_needs_no_dynamic_op() -> None:
    a = x(N, 3, 4, 4)
    shape = b.shape_of(a)
    flat = b.dyn_reshape(a, b.concat([b.slice_axis(shape, 0, 0, 1), b.const([-1])], 0))
    tiled = b.dyn_broadcast(b.const(np.ones((1, 48), np.float32)), b.shape_of(flat))
    g = graph(b.add(flat, tiled), b.dyn_slice(flat, b.const([-2]), b.const([2**63 - 1]), b.const([1])))
    after = optimise(g)
    only_what_targets_run(after)
    for n in (1, 3):
        check(g, after, {"x": np.ones((n, 3, 4, 4), np.float32)})


def test_specialise_refuses_what_does_not_fit() -> None:
    a, c = x(symbol("B", 1, 8), 3), x(symbol("B", 1, 8), name="c")
    g = graph(b.add(b.reduce_sum(a, [1], False), c))
    assert specialise(g, {"B": 2}).inputs[0].shape == (2, 3)
    assert specialise(g, {"x": (2, 3)}).inputs[1].shape == (2,)
    for bad, error in (
        ({"K": 2}, ArgumentError),
        ({"q": (2,)}, ArgumentError),
        ({"x": (2, 4)}, ShapeError),
        ({"x": (2,)}, ShapeError),
        ({"x": (2, 3), "c": (3,)}, ShapeError),
        ({"B": 9}, ShapeError),
    ):
        with pytest.raises(error):
            specialise(g, bad)  # type: ignore[arg-type]


def test_names_of_values_survive() -> None:
    for seed in range(5):
        g, _, feed = random_graph(seed)
        after = optimise(g)
        before, now = run_all(g, feed), run_all(after, feed)
        named = {name: v for v, name in g.value_names.items()}
        for v, name in after.value_names.items():
            if v in now and named[name] in before and now[v].shape == before[named[name]].shape:
                assert close(now[v], before[named[name]], 2e-4), (seed, name)
