"""The model API: how inputs are given, what comes back, what every mistake says, threads, shapes that change."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from tilewright.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from tilewright.interp import graph as oracle
from tilewright.ir.graph import build as b
from tilewright.ir.graph.core import Graph
from tilewright.ir.graph.dims import symbol
from tilewright.ir.types import bf16, f32, i64
from tilewright.runtime import native
from tilewright.runtime.model import Model, Net

Array = np.ndarray[Any, Any]


def two_inputs() -> Graph:
    """scale * (x + y) and the largest of each row of it."""
    n = symbol("n", lo=1, hi=1000)
    x, y, scale = b.input("x", f32, (n, 5)), b.input("y:0", f32, (n, 5)), b.input("scale", i64, ())
    total = b.mul(b.add(x, y), b.cast(scale, f32))
    return Graph("two", [x, y, scale], [total, b.reduce_max(total, (1,), keepdims=False)], ["total", "largest"])


def network(rows: Any = None) -> Graph:
    rng = np.random.default_rng(0)
    n = symbol("batch", lo=1, hi=1000) if rows is None else rows
    x = b.input("x", f32, (n, 3, 12, 12))
    w = b.const(rng.normal(size=(8, 3, 3, 3)).astype(np.float32))
    y = b.relu(b.conv(x, w, pads_lo=(1, 1), pads_hi=(1, 1)))
    y = b.max_pool(y, (2, 2), strides=(2, 2))
    y = b.reshape(y, (n, 8 * 36))
    y = b.softmax(b.matmul(y, b.const(rng.normal(size=(288, 10)).astype(np.float32))))
    return Graph("network", [x], [y], ["y"])


def arrays(n: int = 4, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    x, y = (rng.normal(size=(n, 5)).astype(np.float32) for _ in range(2))
    return {"x": x, "y:0": y, "scale": np.array(3, np.int64)}


@pytest.fixture(scope="module")
def net() -> Net:
    return Model(two_inputs()).compile("cpu")


def same(got: Any, feed: dict[str, Array], graph: Graph) -> None:
    want = oracle.run(graph, feed)
    for value, name in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
        assert np.allclose(np.asarray(value), want[name], rtol=1e-5, atol=1e-6), name


# ---------------------------------------------------------------------------------------------- good calls


def test_positions_and_names(net: Net) -> None:
    feed = arrays()
    for got in (net(*feed.values()), net(**feed), net(feed["x"], **{"y:0": feed["y:0"], "scale": 3}),
                net(feed["x"], feed["y:0"], scale=np.int64(3))):
        assert isinstance(got, tuple) and len(got) == 2
        same(got, feed, two_inputs())


def test_one_output_is_an_array() -> None:
    x = np.random.default_rng(1).normal(size=(2, 3, 12, 12)).astype(np.float32)
    got = Model(network()).compile("cpu")(x)
    assert isinstance(got, np.ndarray)
    same(got, {"x": x}, network())


def test_arrays_that_are_not_dense(net: Net) -> None:
    feed = arrays(6)
    wide = np.zeros((12, 10), np.float32)
    wide[::2, ::-2] = feed["x"]
    x = wide[::2, ::-2]
    assert not x.flags.c_contiguous
    same(net(x, np.asfortranarray(feed["y:0"]), 3), feed, two_inputs())


def test_torch_in_torch_out(net: Net) -> None:
    torch = pytest.importorskip("torch")
    feed = arrays()
    got = net(torch.from_numpy(feed["x"]).t().contiguous().t(), torch.from_numpy(feed["y:0"]), 3)
    assert all(isinstance(y, torch.Tensor) for y in got)
    same(tuple(y.numpy() for y in got), feed, two_inputs())


def test_torch_bf16() -> None:
    torch = pytest.importorskip("torch")
    x = b.input("x", bf16, (7,))
    net = Model(Graph("g", [x], [b.add(x, x)], ["y"])).compile("cpu")
    got = net(torch.arange(7, dtype=torch.bfloat16))
    assert got.dtype == torch.bfloat16
    assert torch.equal(got, torch.arange(7, dtype=torch.bfloat16) * 2)


def test_shapes_change_between_calls() -> None:
    graph = network()
    net = Model(graph).compile("cpu")
    for n in (1, 3, 2, 3, 17, 4, 1, 16):
        x = np.random.default_rng(n).normal(size=(n, 3, 12, 12)).astype(np.float32)
        same(net(x), {"x": x}, graph)


def test_batches_of_like_size_share_code() -> None:
    net = Model(network()).compile("cpu", threads=1)
    net(np.zeros((7, 3, 12, 12), np.float32))
    before = set(native._compiled)
    net(np.zeros((6, 3, 12, 12), np.float32))
    assert set(native._compiled) == before


def test_known_shapes_are_built_in() -> None:
    assert all(not launch.dims for launch in _launches(Model(network(4)).compile("cpu")))
    free = Model(network()).compile("cpu")
    free.prepare({"x": (4, 3, 12, 12)})
    assert all(launch.dims for launch in _launches(free))


def _launches(net: Net) -> list[Any]:
    return [r.launch for r in net._ready().native.in_order()]


def test_threads_share_a_net(net: Net) -> None:
    graph, wrong = two_inputs(), []

    def work(seed: int) -> None:
        for k in range(20):
            feed = arrays(1 + (seed + k) % 5, seed * 100 + k)
            try:
                same(net(**feed), feed, graph)
            except Exception as e:  # an assertion of another thread would be lost
                wrong.append(e)

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert not wrong


def test_intermediates_by_name() -> None:
    x = b.input("x", f32, (3, 4))
    inner = b.exp(x)
    y = b.reduce_sum(b.mul(inner, 2.0), (1,), keepdims=False)
    graph = Graph("g", [x], [y], ["y"], {inner: "inner", x: "x", y: "y"})
    feed = {"x": np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)}
    net = Model(graph).compile("cpu", keep_intermediates=True)
    got = net.intermediates(feed)
    assert set(got) == {"y", "inner"}
    assert np.allclose(got["inner"], np.exp(feed["x"]), rtol=1e-6)
    same(net(**feed), feed, graph)
    with pytest.raises(ArgumentError, match="keep_intermediates=True"):
        Model(graph).compile("cpu").intermediates(feed)


def test_report_needs_shapes(net: Net) -> None:
    fresh = Model(two_inputs()).compile("cpu")
    with pytest.raises(ArgumentError, match="shapes are not known yet"):
        fresh.report()
    fresh.prepare({k: v.shape for k, v in arrays().items()})
    report = fresh.report()
    assert report.regions and report.to_json()["memory"]["arena_bytes"] >= 0


# ---------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize(("change", "error", "says"), [
    ({"x": None}, ArgumentError, "no value for input 'x'"),
    ({"z": np.zeros(1)}, ArgumentError, "no input 'z'"),
    ({"x": np.zeros((4, 5))}, DTypeError, "'x' must be f32, not f64"),
    ({"x": np.zeros((4, 6), np.float32)}, ShapeError, "axis 1 is 6, not 5"),
    ({"x": np.zeros(5, np.float32)}, ShapeError, "another rank"),
    ({"x": np.zeros((3, 5), np.float32)}, ShapeError, "axis 0 is 4, but n is 3"),
    ({"scale": 1.5}, DTypeError, "1.5 is not"),
    ({"x": "text"}, DTypeError, "must be f32"),
])  # fmt: skip
def test_one_mistake_is_its_own_error(net: Net, change: dict[str, Any], error: type[Exception], says: str) -> None:
    feed = {k: v for k, v in {**arrays(), **change}.items() if v is not None}
    with pytest.raises(error, match=says):
        net(**feed)


def test_every_mistake_is_named(net: Net) -> None:
    with pytest.raises(ArgumentError) as caught:
        net(np.zeros((4, 6), np.float32), scale=2.5, extra=1)
    text = caught.value.message
    for part in ("4 problems", "no input 'extra'", "no value for input 'y:0'", "axis 1 is 6", "2.5 is not"):
        assert part in text, text


def test_too_many_and_twice(net: Net) -> None:
    feed = arrays()
    with pytest.raises(ArgumentError, match="3 inputs"):
        net(*feed.values(), 1)
    with pytest.raises(ArgumentError, match="given twice"):
        net(feed["x"], feed["y:0"], 3, x=feed["x"])


def test_targets_and_types_that_are_not_there() -> None:
    with pytest.raises(UnsupportedError, match="no target 'abacus'"):
        Model(two_inputs()).compile("abacus")
    with pytest.raises(UnsupportedError, match="f64"):
        Model(two_inputs()).compile("cpu", dtype="f64")


def test_loading_the_model_module_imports_no_heavy_package() -> None:
    code = "import sys, tilewright.runtime.model; print([m for m in ('onnx', 'torch', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("threads", [-1, 0, 2.5, "2"])
def test_a_number_of_threads_that_is_none(threads: object) -> None:
    with pytest.raises(ArgumentError, match="the number of threads is from 1 to"):
        Model(two_inputs()).compile("cpu", threads=threads)  # type: ignore[arg-type]


def test_a_report_prints_a_line_per_region() -> None:
    net = Model(two_inputs()).compile("cpu")
    net(**arrays())
    report = net.report()
    lines = str(report).splitlines()
    assert [line.split()[0] for line in lines[2:-1]] == [str(k) for k in range(len(report.regions))]
    assert lines[-1].startswith("memory: weights ")
