"""Every op of the spec table: its type rule against what its reference makes, its decomposition against its reference,
its behaviour in half precision, and its rule under symbolic extents."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ir.graph.samples import MAKERS, as_f64, close, draw, graph_of, type_of
from tilewright.errors import TilewrightError
from tilewright.interp.graph import run
from tilewright.ir.graph import build as b
from tilewright.ir.graph.core import Graph, TensorType, graph_input
from tilewright.ir.graph.dims import evaluate, symbol, symbols
from tilewright.ir.graph.spec import SPECS
from tilewright.ir.graph.verify import verify
from tilewright.ir.types import bf16, f16, f32, f64, from_numpy
from tilewright.passes.graph.decompose import decompose
from tilewright.passes.graph.pipeline import simplify
from tilewright.passes.graph.specialise import specialise

OPS = sorted(set(SPECS) - {"if_"})
COMPOSITES = sorted(n for n, s in SPECS.items() if s.composite)
SEEDS = range(12)
#: elements where a small difference of the operand makes a large one of the result
JUMPING = {"quantize", "sign", "isnan", "isinf"}


def test_the_table_is_whole() -> None:
    assert len(SPECS) >= 80
    assert set(MAKERS) == set(OPS)
    for name, spec in SPECS.items():
        assert spec.doc, name
        assert spec.composite == (spec.decompose is not None), name


@pytest.mark.parametrize("op", OPS)
def test_type_rule_and_reference_agree(op: str) -> None:
    for seed in SEEDS:
        sample = draw(op, seed)
        graph, feed = graph_of(sample)
        verify(graph)
        results = run(graph, feed)  # the interpreter compares results with types
        for v, a in zip(graph.outputs, results.values(), strict=True):
            assert v.type == type_of(a), (seed, sample)


@pytest.mark.parametrize("op", OPS)
def test_type_rule_under_symbols(op: str) -> None:
    """Extents of the inputs as symbols: the result's dims, evaluated, are those of the concrete result."""
    for seed in SEEDS:
        sample = draw(op, seed, zero=False)
        graph, feed = graph_of(sample)
        want = list(run(graph, feed).values())
        bindings: dict[str, int] = {}
        inputs = []
        for v in graph.inputs:
            name = str(v.node.attr("name"))
            shape = []
            for axis, n in enumerate(v.shape):
                assert isinstance(n, int)
                keep = n == 1 or axis > 0 or op in ("reshape", "broadcast", "split", "resize")
                if not keep:
                    bindings[f"{name}_{axis}"] = n
                shape.append(n if keep else symbol(f"{name}_{axis}", 1))
            inputs.append(graph_input(name, TensorType(v.dtype, tuple(shape))))
        table = dict(zip(graph.inputs, inputs, strict=True))
        node = graph.outputs[0].node if graph.outputs else None
        if node is None:
            continue
        try:
            again = b.rebuild(node, [None if v is None else table.get(v, v) for v in node.inputs])
        except TilewrightError:
            continue  # an extent that must be static, or one that two operands share
        for t, a in zip(again.types, want, strict=True):
            for d, n in zip(t.shape, a.shape, strict=True):
                if symbols(d) <= bindings.keys():
                    assert evaluate(d, bindings) == n, (seed, sample, t, a.shape)


@pytest.mark.parametrize("op", COMPOSITES)
def test_decomposition(op: str) -> None:
    for seed in SEEDS:
        sample = as_f64(draw(op, seed))
        graph, feed = graph_of(sample)
        plain = decompose(graph)
        verify(plain)
        assert not any(n.op in SPECS and SPECS[n.op].composite for n in plain.nodes), op
        assert [v.type for v in plain.outputs] == [v.type for v in graph.outputs]
        want, got = run(graph, feed), run(plain, feed)
        for name in want:
            if op == "quantize":
                assert np.abs(want[name].astype(int) - got[name].astype(int)).max(initial=0) <= 1
            else:
                assert close(got[name], want[name], 1e-10), (seed, sample)


@pytest.mark.parametrize("dtype", [f16, bf16], ids=str)
@pytest.mark.parametrize("op", COMPOSITES)
def test_decomposition_in_half_precision(op: str, dtype: object) -> None:
    for seed in range(4):
        sample = draw(op, seed, dtype, zero=False)  # type: ignore[arg-type]
        graph, feed = graph_of(sample)
        want, got = run(graph, feed), run(graph, feed, decomposed=True)
        if op in JUMPING:
            continue
        for name in want:
            assert got[name].dtype == want[name].dtype
            assert close(got[name], want[name], 2e-3 if dtype == f16 else 1.2e-2), (seed, sample)


@pytest.mark.parametrize("op", [op for op in OPS if not op.startswith("dyn_")])
def test_half_precision_is_rounded_once(op: str) -> None:
    """f16 and bf16 results are what f64 gives, rounded."""
    for seed in range(4):
        sample = draw(op, seed, bf16, zero=False)
        exact = as_f64(sample)
        graph, feed = graph_of(sample)
        if op in JUMPING | {"floor", "ceil", "round", "trunc", "floordiv", "mod", "fmod", "cast"}:
            continue
        want = run(*graph_of(exact))
        for name, got in run(graph, feed).items():
            if from_numpy(got.dtype) == bf16:
                assert close(got, want[name], 1e-2), (seed, sample)


@pytest.mark.parametrize("op", sorted(n for n in SPECS if n.startswith("dyn_")))
def test_dynamic_forms_become_static(op: str) -> None:
    for seed in SEEDS:
        sample = draw(op, seed)
        graph, feed = graph_of(sample)
        static = simplify(graph)
        assert not any(n.op.startswith("dyn_") for n in static.nodes), (seed, sample)
        want, got = run(graph, feed), run(static, feed)
        for name in want:
            assert close(got[name], want[name], 1e-6), (seed, sample)


@pytest.mark.parametrize("op", sorted(n for n in SPECS if n.startswith("dyn_")))
def test_dynamic_forms_run_with_unknown_parameters(op: str) -> None:
    """Parameters as inputs: extents are symbols until the program runs."""
    for seed in SEEDS:
        sample = draw(op, seed)
        want = run(*graph_of(sample))
        sample.constant = ()
        try:
            graph, feed = graph_of(sample)
        except TilewrightError as e:
            assert "rank" in str(e) or "axes" in str(e) or "scales" in str(e), e
            continue
        verify(graph)
        got = run(graph, feed)
        for name in want:
            assert np.array_equal(got[name], want[name], equal_nan=got[name].dtype.kind == "f"), (seed, sample)


def test_integers_wrap_and_truncate() -> None:
    def of(op: str, *arrays: object, **attrs: object) -> np.ndarray:
        return SPECS[op].evaluate([np.asarray(a) for a in arrays], attrs)[0]

    i8 = np.int8
    assert of("add", np.array([127], i8), np.array([1], i8)).tolist() == [-128]
    assert of("div", np.array([-7, 7, 7, -128]), np.array([2, -2, 0, -1])).tolist() == [-3, -3, 0, 128]
    assert of("floordiv", np.array([-7, 7]), np.array([2, -2])).tolist() == [-4, -4]
    assert of("mod", np.array([-7, 7]), np.array([2, -3])).tolist() == [1, -2]
    assert of("fmod", np.array([-7, 7]), np.array([2, -3])).tolist() == [-1, 1]
    assert of("pow", np.array([2, -1, 3]), np.array([-1, -3, 2])).tolist() == [0, -1, 9]
    assert of("round", np.array([0.5, 1.5, 2.5, -0.5])).tolist() == [0, 2, 2, 0]
    x = np.array([np.nan, np.inf, -np.inf, 3.9, -3.9, 300.0])
    assert of("cast", x, dtype=__import__("tilewright.ir.types").ir.types.i8).tolist() == [0, 127, -128, 3, -3, 127]


def test_nan_wins() -> None:
    x, y = np.array([np.nan, 1.0]), np.array([0.0, np.nan])
    for op in ("max", "min"):
        assert np.isnan(SPECS[op].evaluate([x, y], {})[0]).all()
    assert np.isnan(SPECS["relu"].evaluate([x], {})[0][0])


def test_f64_stays_f64() -> None:
    x = graph_input("x", TensorType(f64, (3,)))
    g = Graph("g", [x], [b.erf(b.gelu(x))], ["y"])
    assert run(g, {"x": np.zeros(3)})["y"].dtype == np.float64


def test_a_free_extent_may_turn_out_to_be_that_of_a_norms_scale() -> None:
    """A file may leave an extent free that the weights decide; the call's shapes then say whether they fit."""
    x = graph_input("x", TensorType(f32, (symbol("rows", 1), symbol("columns", 1))))
    scale, bias = np.arange(1, 5, dtype=np.float32), np.ones(3, np.float32)
    weight = np.arange(12, dtype=np.float32).reshape(4, 3)
    outputs = b.layer_norm(x, b.constant(scale), None, -1), b.gemm(x, b.constant(weight), b.constant(bias))
    graph = Graph("g", (x,), outputs, ("norm", "product"))
    given = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    norm, product = run(specialise(graph, {"x": (2, 4)}), {"x": given}).values()
    assert norm.shape == (2, 4) and np.allclose(product, given @ weight + bias, atol=1e-5)
    with pytest.raises(TilewrightError, match="must broadcast"):
        specialise(graph, {"x": (2, 1)})


def test_an_empty_axis_that_a_dim_excludes_says_what_to_do() -> None:
    x = graph_input("x", TensorType(f32, (symbol("batch", 1), 4)))
    with pytest.raises(TilewrightError, match=r"batch = 0 .*at least 1(.|\n)*dims=\{'batch': 0\}"):
        specialise(Graph("g", (x,), (b.relu(x),), ("y",)), {"x": (0, 4)})
