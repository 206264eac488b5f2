"""`run`, `inspect` and `explain` against a stand-in for a compiled model: what they print, save and return.

The stand-in has the interface of a loaded model and computes with NumPy, so these tests say nothing about compiling;
the real thing is tested where it lives.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright
from tests.cli.test_main import call
from tilewright.evidence import Evidence
from tilewright.ir.graph.core import Graph, TensorType, constant, graph_input, intern_node
from tilewright.ir.types import f32

KERNEL_FILE = """
class Kernel:
    def explain(self, *args, passes=False):
        return f"{[a.shape for a in args]} [{passes}]"

double = Kernel()
"""


def measured(value: float, unit: str) -> Evidence:
    return Evidence(value, unit, "measured", "test")


@dataclass
class StandIn:
    """y = x + bias, or wrong by `fault`."""

    fault: float = 0.0

    @property
    def graph(self) -> Graph:
        x = graph_input("x", TensorType(f32, (2, 3)))
        bias = constant(np.arange(3, dtype=np.float32))
        y = intern_node("add", (x, bias), {}, (TensorType(f32, (2, 3)),), name="sum").out()
        return Graph("tiny", [x], [y], ["y"])

    def compile(self, target: str, *, threads: int) -> StandIn:
        assert target == "cpu" and threads >= 1
        return self

    def __call__(self, *, x: np.ndarray) -> np.ndarray:
        return x + np.arange(3, dtype=np.float32) + np.float32(self.fault)

    def report(self) -> Any:
        regions = [
            SimpleNamespace(name=f"region{i}", kernel="map[8]", nodes=i + 1, milliseconds=t, fraction_of_peak=p)
            for i, (t, p) in enumerate([(None, None), (measured(0.5, "ms"), measured(0.25, ""))])
        ]
        memory = SimpleNamespace(arena_bytes=2048, lower_bound_bytes=1024, weights_bytes=12)
        return SimpleNamespace(regions=regions, memory=memory, to_json=lambda: {"regions": len(regions)})

    def profile(self, inputs: dict[str, np.ndarray]) -> Any:
        assert set(inputs) == {"x"}
        return self.report()

    def explain(self, *, passes: bool = False) -> str:
        return f"tile ir [passes={passes}]"


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setitem(vars(tilewright), "load", lambda path: StandIn())
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "bias"], ["y"])],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor("bias", TensorProto.FLOAT, [3], [0.0, 1.0, 2.0])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, tmp_path / "tiny.onnx")
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    return tmp_path / "tiny.onnx"


def test_run_prints_and_saves(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", str(model), "--input", f"x={tmp_path / 'x.npy'}", "--save", str(tmp_path / "out.npz")) == 0
    text = capsys.readouterr().out
    assert "2x3" in text and "float32" in text
    with np.load(tmp_path / "out.npz") as saved:
        assert np.array_equal(saved["y"], [[1, 2, 3], [1, 2, 3]])


def test_run_against_peer(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    args = ("run", str(model), "--random", "--against", "onnxruntime", "--repeat", "3", "--threads", "1")
    assert call(*args) == 0
    text = capsys.readouterr().out
    assert "verdict: equal" in text and "of ours" in text
    assert call(*args, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ok"] and data["parity"][0]["name"] == "y"
    assert set(data["latency"]) == {"tilewright", "onnxruntime"}
    assert data["latency"]["tilewright"]["provenance"] == "measured"


def test_run_that_differs_exits_with_one(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setitem(vars(tilewright), "load", lambda path: StandIn(fault=0.5))
    args = ("run", str(model), "--random", "--against", "onnxruntime")
    assert call(*args) == 1
    assert "verdict: different" in capsys.readouterr().out
    monkeypatch.setitem(vars(tilewright), "load", lambda path: StandIn(fault=np.inf))
    assert call(*args, "--json") == 1
    data = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert data["parity"][0]["error"] == "inf" and data["outputs"]["y"]["max"] == "inf"


def test_run_needs_inputs(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", str(model)) == 2
    text = capsys.readouterr().err
    assert "no data for the input 'x'" in text and "x: f32[2, 3]" in text
    assert call("run", str(model), "--random", "--against", "abacus") == 2
    assert "'abacus'" in capsys.readouterr().err


def test_run_profile(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", str(model), "--random", "--profile") == 0
    text = capsys.readouterr().out
    assert "25%" in text and "map[8]" in text


def test_inspect(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("inspect", str(model)) == 0
    text = capsys.readouterr().out
    for part in ("f32[2, 3]", "add", "3 parameters", "region1", "2.0 KiB"):
        assert part in text
    assert call("inspect", str(model), "--json", "--graph-only") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ops"] == {"add": 1} and data["parameters"] == 3 and data["report"] is None


def test_explain_model(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("explain", str(model), "--passes") == 0
    assert "tile ir [passes=True]" in capsys.readouterr().out


def test_explain_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.py"
    file.write_text(KERNEL_FILE)
    assert call("explain", f"{file}:double", "--arg", "f32[4,8]", "-a", "i32[]") == 0
    assert "[(4, 8), ()] [False]" in capsys.readouterr().out
    assert call("explain", f"{file}:triple", "--arg", "f32[4,8]") == 2
    assert "kernels in it: double" in capsys.readouterr().err
    assert call("explain", f"{file}:double") == 2
    assert "--arg" in capsys.readouterr().err
