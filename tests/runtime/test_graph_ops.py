"""Every op of the Graph IR, compiled for the CPU, against the oracle: all element types it has, odd shapes, and graphs
whose outputs are inputs, constants, views and each other."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from tests.ir.graph.samples import MAKERS, Sample, draw, graph_of
from tilewright.errors import DTypeError, ModelError, TilewrightError
from tilewright.interp import graph as oracle
from tilewright.ir.graph import build as b
from tilewright.ir.graph.core import Graph, Value
from tilewright.ir.graph.spec import SPECS
from tilewright.ir.types import ALL_DTYPES, BY_NAME, DType, bf16, bool_, f16, f32, f64, from_numpy, i8, i32, i64, u8
from tilewright.runtime.model import Model

Array = np.ndarray[Any, Any]
TOLERANCE = {f64: 1e-11, f32: 2e-5, f16: 8e-3, bf16: 4e-2}
#: results that jump where an operand crosses a bound: a last bit of difference is a whole step
JUMPING = {"quantize"}


def run(graph: Graph, feed: Mapping[str, Array], **options: Any) -> dict[str, Array]:
    got = Model(graph).compile("cpu", **options)(**feed)
    return dict(zip(graph.output_names, got if isinstance(got, tuple) else (got,), strict=True))


def differences(got: Array, want: Array, jumping: bool = False) -> str:
    """What is wrong with `got`; nothing when it agrees."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{got.shape} for {want.dtype}{want.shape}"
    dtype = from_numpy(want.dtype)
    assert dtype is not None
    if not dtype.is_float:
        if jumping:
            return "" if np.abs(got.astype(np.int64) - want.astype(np.int64)).max(initial=0) <= 1 else "over a step"
        return "" if np.array_equal(got, want) else f"{int((got != want).sum())} of {want.size} elements differ"
    x, y = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(x) & np.isfinite(y)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return "NaN or infinity differs"
    error = float(np.linalg.norm(x[finite] - y[finite]))
    allowed = TOLERANCE[dtype] * float(np.linalg.norm(y[finite])) + 1e-30
    return "" if error <= allowed else f"error {error:.3g}, allowed {allowed:.3g}"


def check(graph: Graph, feed: Mapping[str, Array], note: str = "", **options: Any) -> None:
    want = oracle.run(graph, feed)
    got = run(graph, feed, **options)
    for name, expected in want.items():
        wrong = differences(got[name], expected, graph.name in JUMPING)
        assert not wrong, f"{graph.name} {note} {name}: {wrong}"


def check_sample(sample: Sample, note: str) -> None:
    graph, feed = graph_of(sample)
    check(graph, feed, note)


# ---------------------------------------------------------------------------------------------- random samples

#: composites whose decomposition is for floats, though their type rule lets more through
FLOATS_ONLY = {"prelu", "dyn_reduce"}


@pytest.mark.parametrize("op", sorted(MAKERS))
def test_every_op_of_every_type(op: str) -> None:
    seen = 0
    for dtype in ALL_DTYPES:
        if op in FLOATS_ONLY and not dtype.is_float:
            continue
        for k in range(5 if dtype is f32 else 1):
            seed = zlib.crc32(f"{op} {dtype} {k}".encode())
            try:
                sample = draw(op, seed, dtype)
                graph_of(sample)
            except (DTypeError, OverflowError, np.exceptions.DTypePromotionError):
                continue  # the op does not have this type
            check_sample(sample, f"of {dtype}, seed {seed}")
            seen += 1
    assert seen >= 4


# ---------------------------------------------------------------------------------------------- elementwise, by hand

SHAPES = [
    ((), ()), ((0,), (1,)), ((1,), (7,)), ((7, 13), (7, 13)), ((7, 13), (13,)), ((7, 1), (1, 13)), ((3, 0, 5), (1, 5)),
    ((2, 1, 5, 1), (3, 1, 7)), ((131,), ()),
]  # fmt: skip
BINARY = [n for n, s in SPECS.items() if s.elementwise and len(s.operands) == 2 and not s.composite]
UNARY = [n for n, s in SPECS.items() if s.elementwise and len(s.operands) == 1 and not s.composite and n != "cast"]


def values(rng: np.random.Generator, shape: Any, dtype: DType, small: bool = False) -> Array:
    """Elements over the type's range, the ends and special ones among them."""
    if dtype.is_bool:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype.is_int:
        low, high = int(np.iinfo(dtype.numpy).min), int(np.iinfo(dtype.numpy).max)
        wide = rng.integers(low, high, shape, dtype=dtype.numpy, endpoint=True)
        few = rng.integers(max(low, -9), 9, shape).astype(dtype.numpy)
        picked = np.where(rng.random(shape) < (1.0 if small else 0.6), few, wide)
        return np.asarray(np.where(rng.random(shape) < (0 if small else 0.1), low, picked)).astype(dtype.numpy)
    x = np.asarray(rng.normal(size=shape) * 3)
    for special in (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0):
        x = np.where(rng.random(shape) < 0.04, special, x)
    return np.asarray(x).astype(dtype.numpy)


def has(op: str, dtype: DType, count: int) -> bool:
    try:
        b.make(op, *(b.input(f"x{k}", dtype, (2,)) for k in range(count)))
    except TilewrightError:
        return False
    return True


@pytest.mark.parametrize("op", BINARY)
def test_binary_broadcasts_both_ways(op: str) -> None:
    rng = np.random.default_rng(zlib.crc32(op.encode()))
    for dtype in (d for d in ALL_DTYPES if has(op, d, 2)):
        for k, shapes in enumerate(SHAPES if dtype in (f32, i8, bool_) else SHAPES[3:6]):
            x, y = (values(rng, s, dtype, op in ("pow", "atan2")) for s in (shapes if k % 2 else shapes[::-1]))
            if op in ("shl", "shr"):
                y = (y % dtype.bits).astype(dtype.numpy)
            if op in ("mod", "fmod", "floordiv") and dtype.is_float:
                x, y = (np.where(np.isfinite(v) & (v != 0), v, 1).astype(v.dtype) for v in (x, y))
            check_sample(Sample(op, [x, y], {}), f"of {dtype} {shapes}")


@pytest.mark.parametrize("op", UNARY)
def test_unary_at_special_values(op: str) -> None:
    rng = np.random.default_rng(zlib.crc32(op.encode()))
    for dtype in (d for d in ALL_DTYPES if has(op, d, 1)):
        for shape in ((), (0,), (1,), (7, 13), (257,)):
            x = values(rng, shape, dtype)
            if op in ("sin", "cos", "tan"):
                x = np.where(np.isfinite(x), x, 1).astype(x.dtype)
            check_sample(Sample(op, [x], {}), f"of {dtype} {shape}")


@pytest.mark.parametrize("op", ["asinh", "acosh", "atanh"])
@pytest.mark.parametrize("dtype", [f32, f64], ids=str)
def test_inverse_hyperbolics_over_the_whole_range(op: str, dtype: DType) -> None:
    with np.errstate(all="ignore"):
        x = np.concatenate([10.0 ** np.linspace(-30, 37, 300), 1 + 10.0 ** np.linspace(-7, 0, 50)])
    x = np.concatenate([x, -x]).astype(dtype.numpy)
    got, want = run(*graph_of(Sample(op, [x], {})))["y0"], SPECS[op].evaluate([x.astype(np.float64)], {})[0]
    finite = np.isfinite(want)
    assert np.array_equal(np.isfinite(got), finite)
    relative = np.abs(got[finite] - want[finite]) / np.abs(want[finite])
    assert relative.max() < (4e-7 if dtype is f32 else 1e-14)


@pytest.mark.parametrize("source", ALL_DTYPES, ids=str)
def test_casts_between_all_types(source: DType) -> None:
    rng = np.random.default_rng(source.bits)
    for target in ALL_DTYPES:
        for shape in ((), (33,)):
            check_sample(Sample("cast", [values(rng, shape, source)], {"dtype": target}), f"{source} -> {target}")


@pytest.mark.parametrize("dtype", ALL_DTYPES, ids=str)
def test_where_of_every_type(dtype: DType) -> None:
    rng = np.random.default_rng(dtype.bits)
    for c, x, y in (((5, 1), (1, 7), ()), ((), (3,), (3,)), ((2, 3), (2, 3), (2, 1))):
        check_sample(Sample("where", [values(rng, c, bool_), values(rng, x, dtype), values(rng, y, dtype)], {}), "")


# ---------------------------------------------------------------------------------------------- axes


@pytest.mark.parametrize("op", ["reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_mean"])
def test_reductions_over_any_axes(op: str) -> None:
    rng = np.random.default_rng(5)
    for dtype in (d for d in (f32, f64, f16, i8, u8, i64, bool_) if has_axes(op, d)):
        for shape, axes in (((3, 4, 5), (0, 2)), ((3, 4, 5), ()), ((2, 3, 4, 5), (1, 3)), ((2, 3, 4, 5), (0, 1, 2, 3)),
                            ((3, 0, 5), (1,)), ((3, 0, 5), (0,)), ((37,), (0,)), ((1, 17, 1), (1,)), ((), ())):
            x = values(rng, shape, dtype, small=True)
            x = np.where(np.isfinite(x.astype(np.float64)), x, 1).astype(x.dtype)
            for keepdims in (False, True):
                check_sample(Sample(op, [x], {"axes": axes, "keepdims": keepdims}), f"{dtype} {shape} {axes}")


def has_axes(op: str, dtype: DType) -> bool:
    try:
        b.make(op, b.input("x", dtype, (2,)), axes=(0,))
    except TilewrightError:
        return False
    return True


def test_reductions_and_arguments_carry_nan() -> None:
    x = np.random.default_rng(0).normal(size=(5, 70)).astype(np.float32)
    x[1, 40] = x[3, 0] = x[3, 60] = np.nan
    for op in ("reduce_max", "reduce_min", "reduce_sum"):
        for axes in ((0,), (1,)):
            check_sample(Sample(op, [x], {"axes": axes}), "with NaN")
    for op in ("argmax", "argmin"):
        for last in (False, True):
            check_sample(Sample(op, [x], {"axis": 1, "last": last}), "with NaN")


def test_top_k_orders_nan_infinity_and_equal_values() -> None:
    rng = np.random.default_rng(3)
    for dtype in (f32, f64, f16, bf16, i8, u8, i64):
        x = np.round(values(rng, (4, 23), dtype, small=True).astype(np.float64)).astype(dtype.numpy)
        if dtype.is_float:
            x[0, 3:6] = np.nan
            x[1, 2:9] = -np.inf
            x[2, :] = np.inf
            x[3, 4:] = np.nan
        for largest in (True, False):
            for k in (0, 1, 23):
                attrs = {"k": k, "axis": 1, "largest": largest}
                check_sample(Sample("topk", [x], attrs), f"of {dtype} {attrs}")
        turned = np.ascontiguousarray(x.T)
        check_sample(Sample("topk", [turned], {"k": 5, "axis": 0}), f"of {dtype} along axis 0")


def test_softmax_along_every_axis() -> None:
    x = np.random.default_rng(1).normal(size=(3, 5, 7)).astype(np.float32) * 20
    for axis in range(3):
        for op in ("softmax", "log_softmax"):
            check_sample(Sample(op, [x], {"axis": axis}), f"axis {axis}")


# ---------------------------------------------------------------------------------------------- gather and scatter


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatters_with_repeated_indices_are_ordered(reduction: str) -> None:
    rng = np.random.default_rng(11)
    for dtype in (f32, f64, f16, i8, i64, u8):
        x, update = (values(rng, s, dtype, small=True) for s in ((6, 5), (40, 5)))
        x, update = (np.where(np.isfinite(v.astype(np.float64)), v, 1).astype(v.dtype) for v in (x, update))
        index = rng.integers(-6, 6, (40, 1))
        check_sample(Sample("scatter_nd", [x, index, update], {"reduction": reduction}), f"of {dtype}")
        at = rng.integers(-6, 6, (40, 5))
        tall = np.tile(x, (7, 1))
        at = np.where(at < 0, at + 6, at)
        check_sample(Sample("scatter_elements", [tall, at, update], {"axis": 0, "reduction": reduction}), f"of {dtype}")


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    rng = np.random.default_rng(2)
    x, update = rng.normal(size=(300, 40)).astype(np.float32), rng.normal(size=(5000, 40)).astype(np.float32)
    graph, feed = graph_of(Sample("scatter_nd", [x, rng.integers(0, 300, (5000, 1)), update], {"reduction": "add"}))
    one, four = (run(graph, feed, threads=n)["y0"] for n in (1, 4))
    assert np.array_equal(one, four)


def test_indices_outside_read_zero_and_write_nothing() -> None:
    x = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
    index = np.array([0, 4, -5, -1])
    graph, feed = graph_of(Sample("gather", [x, index], {"axis": 0}))
    want = np.stack([x[0], np.zeros(3), np.zeros(3), x[3]])
    assert np.array_equal(run(graph, feed)["y0"], want)
    graph, feed = graph_of(Sample("gather_elements", [x, np.array([[0, 3, 9], [-7, 1, -3]])], {"axis": 1}))
    assert np.array_equal(run(graph, feed)["y0"], [[1, 0, 0], [0, 5, 4]])
    graph, feed = graph_of(Sample("scatter_nd", [x, index[:, None], -np.ones((4, 3), np.float32)], {}))
    want = x.copy()
    want[[0, 3]] = -1
    assert np.array_equal(run(graph, feed)["y0"], want)


# ---------------------------------------------------------------------------------------------- products and windows


@pytest.mark.parametrize("dtype", [d for d in ALL_DTYPES if not d.is_bool], ids=str)
def test_products_of_every_type(dtype: DType) -> None:
    rng = np.random.default_rng(dtype.bits)
    for a, c in (((5, 7), (7, 3)), ((1, 129), (129, 1)), ((7,), (7,)), ((2, 3, 5, 7), (3, 7, 2)), ((3, 0), (0, 4)),
                 ((2, 1, 4, 5), (1, 3, 5, 6)), ((17, 33), (33, 65))):
        x, y = (np.round(values(rng, s, dtype, small=True).astype(np.float64)) for s in (a, c))
        x, y = (np.where(np.isfinite(v), v, 1).astype(dtype.numpy) for v in (x, y))
        check_sample(Sample("matmul", [x, y], {}), f"{a} {c}")


def test_products_with_another_result_type() -> None:
    rng = np.random.default_rng(0)
    for dtype, acc in ((f16, f32), (bf16, f32), (i8, i64), (u8, i32), (f32, f64), (f16, f16)):
        x, y = (values(rng, s, dtype, small=True) for s in ((9, 31), (31, 5)))
        x, y = (np.where(np.isfinite(v.astype(np.float64)), v, 1).astype(dtype.numpy) for v in (x, y))
        check_sample(Sample("matmul", [x, y], {"acc": acc}), f"{dtype} -> {acc}")


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_windows_over_volumes(axes: int) -> None:
    rng = np.random.default_rng(axes)
    for groups, channels, filters in ((1, 3, 4), (2, 4, 6), (4, 4, 4), (4, 4, 8)):
        for dtype, stride, dilation in ((f32, 1, 1), (f32, 2, 1), (f64, 1, 2), (i8, 2, 2)):
            shapes = (2, channels, *(6, 7, 5)[:axes]), (filters, channels // groups, *(3, 2, 3)[:axes])
            x, w = (rng.integers(-9, 9, s).astype(dtype.numpy) for s in shapes)
            attrs = {"strides": (stride,) * axes, "dilations": (dilation,) * axes, "pads_lo": (1,) * axes,
                     "pads_hi": (0,) * axes, "groups": groups}
            check_sample(Sample("conv", [x, w], attrs), f"{dtype} {attrs}")


# ---------------------------------------------------------------------------------------------- whole graphs


def graph(inputs: list[Value], outputs: list[Value]) -> Graph:
    names = [str(v.node.attr("name")) for v in inputs]
    assert names
    return Graph("graph", inputs, outputs, [f"y{k}" for k in range(len(outputs))])


def test_outputs_that_are_inputs_constants_views_and_each_other() -> None:
    x = b.input("x", f32, (3, 4))
    y = b.add(x, 1.0)
    k = b.const(np.arange(6, dtype=np.int64).reshape(2, 3))
    flipped = b.slice(y, (2, 0), (-1, 4), (-1, 1))
    twice = b.broadcast(b.reshape(y, (1, 12)), (2, 12))
    outs = [x, y, y, b.transpose(y, (1, 0)), k, k, flipped, b.reshape(x, (12,)), twice, b.const(np.float32(2.5)),
            b.reshape(y, (12,))]
    check(graph([x], outs), {"x": np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)})


def test_results_are_not_the_callers_memory() -> None:
    x = b.input("x", f32, (4,))
    net = Model(graph([x], [x, b.reshape(x, (2, 2))])).compile("cpu")
    given = np.arange(4, dtype=np.float32)
    same, square = net(given)
    given[:] = 9
    assert np.array_equal(same, [0, 1, 2, 3]) and np.array_equal(square, [[0, 1], [2, 3]])


def test_a_graph_without_inputs() -> None:
    k = b.const(np.arange(3, dtype=np.float32))
    assert np.array_equal(Model(Graph("fixed", [], [k], ["y"])).compile("cpu")(), [0, 1, 2])


@pytest.mark.parametrize("from_input", [True, False])
def test_branches_at_run_time(from_input: bool) -> None:
    x = b.input("x", f32, (3, 4))
    p = b.input("p", bool_, ()) if from_input else b.input("p", f32, ())
    cond = p if from_input else b.gt(p, 0.5)
    shared = b.transpose(b.mul(x, 2.0), (1, 0))

    def side(name: str, fn: Any) -> Graph:
        inner = [b.input(f"{name}/x", f32, (3, 4)), b.input(f"{name}/s", f32, (4, 3))]
        return Graph(name, inner, fn(*inner), ["a", "b"])

    node = b.make("if_", cond, x, shared,
                  then_branch=side("then", lambda v, s: [b.exp(v), b.reshape(s, (12,))]),
                  else_branch=side("else", lambda v, s: [v, b.add(b.reshape(s, (12,)), 1.0)]))
    outs = [*node.outputs, cond, b.reshape(shared, (12,)), b.neg(node.out(0))]
    g = graph([x, p], outs)
    feed = {"x": np.random.default_rng(1).normal(size=(3, 4)).astype(np.float32)}
    kind = np.bool_ if from_input else np.float32
    for value in (0, 1):
        check(g, feed | {"p": np.asarray(value, kind)}, f"p = {value}", threads=2)


def test_concats_of_everything() -> None:
    x = b.input("x", f32, (2, 3, 5))
    y = b.exp(x)
    inner = b.concat([b.add(x, 1.0), y], axis=2)  # y has another reader
    rows = b.matmul(x, b.const(np.random.default_rng(0).normal(size=(5, 10)).astype(np.float32)))
    outer = b.concat([inner, rows, b.mul(inner, 3.0), x, x], axis=2)
    nested = b.concat([b.concat([b.neg(x), b.sqrt(b.abs(x))], axis=1), b.relu(x)], axis=1)
    empty = b.concat([b.slice(x, (0, 0, 0), (2, 0, 5), (1, 1, 1)), b.mul(x, x)], axis=1)
    g = graph([x], [outer, y, nested, empty, b.reduce_sum(nested, (1,))])
    check(g, {"x": np.random.default_rng(1).normal(size=(2, 3, 5)).astype(np.float32)}, threads=2)


def test_large_iota_is_a_view() -> None:
    ramp = b.make("iota", shape=(300, 200), axis=0, dtype=f32).out()
    x = b.input("x", f32, (300, 200))
    check(graph([x], [b.add(x, ramp), ramp]), {"x": np.ones((300, 200), np.float32)})


def test_every_problem_is_named_at_once() -> None:
    x = b.input("x", f32, (1, 1, 2, 2, 2, 2))
    pooled = [b.make("max_pool", x, kernel=(2, 2, 1, k)).out() for k in (1, 2)]
    with pytest.raises(ModelError) as caught:
        Model(graph([x], pooled)).compile("cpu")
    assert len(caught.value.problems) == 2
    assert all("spatial axes" in p.reason for p in caught.value.problems)


def test_types_by_name() -> None:
    assert {d.name for d in ALL_DTYPES} == set(BY_NAME)
