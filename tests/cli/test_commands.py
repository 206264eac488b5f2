"""`run`, `inspect` and `explain` on a small model and on kernels: what they print, save and return."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.cli.test_main import call
from tilewright.runtime.model import Net

ROOT = Path(__file__).resolve().parents[2]
KERNELS = str(ROOT / "examples" / "kernels.py")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))


def save(path: Path, shape: list[int | str]) -> Path:
    """y = relu(x) + bias"""
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"], "relu"), helper.make_node("Add", ["r", "bias"], ["y"], "sum")],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
        [helper.make_tensor("bias", TensorProto.FLOAT, [3], [0.0, 1.0, 2.0])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.float32))
    return save(tmp_path / "tiny.onnx", [2, 3])


@pytest.fixture
def free(tmp_path: Path) -> Path:
    return save(tmp_path / "free.onnx", ["rows", 3])


def make_wrong(monkeypatch: pytest.MonkeyPatch, fault: float) -> None:
    """Nets compute what they should, and something on top."""
    right = Net.__call__

    def wrong(self: Net, *args: Any, **named: Any) -> Any:
        return right(self, *args, **named) + np.float32(fault)

    monkeypatch.setattr(Net, "__call__", wrong)


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
    make_wrong(monkeypatch, 0.5)
    args = ("run", str(model), "--random", "--against", "onnxruntime")
    assert call(*args) == 1
    assert "verdict: different" in capsys.readouterr().out
    make_wrong(monkeypatch, np.inf)
    assert call(*args, "--json") == 1
    data = json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert data["parity"][0]["error"] == "inf" and data["parity"][0]["largest"] == "inf"
    assert data["outputs"]["y"]["max"] == "inf"


def test_run_needs_inputs(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", str(model)) == 2
    text = capsys.readouterr().err
    assert "no data for the input 'x'" in text and "x: f32[2, 3]" in text
    assert call("run", str(model), "--random", "--against", "abacus") == 2
    assert "'abacus'" in capsys.readouterr().err


def test_run_profile(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", str(model), "--random", "--profile") == 0
    text = capsys.readouterr().out
    assert "[measured]" in text and "relu" in text
    assert call("run", str(model), "--random", "--profile", "--json") == 0
    regions = json.loads(capsys.readouterr().out)["report"]["regions"]
    assert all(r["milliseconds"]["provenance"] == "measured" for r in regions)


def test_free_dims(free: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Data decides, then --dim; else 1, and that is said."""
    np.save(tmp_path / "x.npy", np.ones((5, 3), np.float32))
    assert call("run", str(free), "-i", str(tmp_path / "x.npy")) == 0
    captured = capsys.readouterr()
    assert "5x3" in captured.out and captured.err == ""
    assert call("run", str(free), "--random", "--dim", "rows=4") == 0
    captured = capsys.readouterr()
    assert "4x3" in captured.out and captured.err == ""
    assert call("run", str(free), "--random") == 0
    captured = capsys.readouterr()
    assert "1x3" in captured.out and "note: taken as 1: the free dim 'rows'" in captured.err
    assert call("run", str(free), "-i", str(tmp_path / "x.npy"), "--dim", "rows=4") == 2
    assert "axis 0 is 5, not 4" in capsys.readouterr().err
    assert call("run", str(free), "--random", "--dim", "columns=4") == 2
    assert "columns" in capsys.readouterr().err


def test_fixed_inputs(free: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("run", str(free), "--random", "--fix", "x=often") == 2
    assert "--fix INPUT=NUMBER" in capsys.readouterr().err
    assert call("run", str(free), "--random", "--fix", "nobody=1") == 2
    assert "nobody" in capsys.readouterr().err


def test_wrong_data(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 4), np.float32))
    assert call("run", str(model), "-i", str(tmp_path / "x.npy")) == 2
    assert "input 'x' must be f32[2, 3]: axis 1 is 4, not 3" in capsys.readouterr().err
    np.save(tmp_path / "x.npy", np.ones((2, 3), np.complex64))
    assert call("run", str(model), "-i", str(tmp_path / "x.npy")) == 2
    assert "the file holds complex64" in capsys.readouterr().err


def test_broken_model(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "half.onnx").write_bytes(model.read_bytes()[:40])
    for name in ("half.onnx", "x.npy"):
        for command in ("run", "inspect", "explain"):
            assert call(command, str(tmp_path / name)) == 2
            assert capsys.readouterr().err.startswith("error: ")


def test_inspect(model: Path, free: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("inspect", str(model)) == 0
    text = capsys.readouterr().out
    for part in ("f32[2, 3]", "relu", "3 parameters", "memory plan", "weights"):
        assert part in text
    assert call("inspect", str(model), "--json", "--graph-only") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["ops"] == {"add": 1, "relu": 1} and data["parameters"] == 3 and data["report"] is None
    assert call("inspect", str(free), "--json") == 0
    captured = capsys.readouterr()
    assert len(json.loads(captured.out)["report"]["regions"]) == 1 and "'rows'" in captured.err


def test_explain_model(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("explain", str(model)) == 0
    text = capsys.readouterr().out
    assert "== Graph IR as loaded ==" in text and "== Regions" in text
    assert call("explain", str(model), "--passes") == 0
    text = capsys.readouterr().out
    assert "== Graph IR after specialise ==" in text and "== Graph IR after fold_batchnorm ==\n(no change)" in text
    assert call("explain", str(model), "--region", "0", "--llvm", "--asm") == 0
    text = capsys.readouterr().out
    for part in ("Tile IR", "Schedule for", "Scheduled IR", "LLVM IR", "Assembly"):
        assert f"== {part}" in text
    assert call("explain", str(model), "--region", "7") == 2
    assert "0 to 0" in capsys.readouterr().err
    assert call("explain", str(model), "--llvm") == 2
    assert "--region" in capsys.readouterr().err


def test_explain_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("explain", f"{KERNELS}:softmax", "--arg", "f32[4,8]") == 0
    text = capsys.readouterr().out
    assert "== Tile IR ==" in text and "x: f32[4, 8]" in text and "Assembly" not in text
    conv = ("explain", f"{KERNELS}:conv2d", "-a", "f32[1,5,5,2]", "-a", "f32[3,3,2,4]")
    assert call(*conv, "-a", "stride=2", "-a", "pad=1", "--llvm", "--asm") == 0
    text = capsys.readouterr().out
    assert "stride = 2" in text and "== LLVM IR ==" in text and "== Assembly ==" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("triple", "--arg", "f32[4,8]"), "kernels in it: linear_relu"),
        (("softmax",), "--arg"),
        (("softmax", "--arg", "f99[4,8]"), "not an element type"),
        (("softmax", "--arg", "f32[4]"), "rank 1"),
        (("softmax", "--arg", "f32[4,8]", "--region", "0"), "for models"),
        (("conv2d", "-a", "stride=1", "-a", "3"), "by name last"),
    ],
)
def test_explain_kernel_mistakes(args: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("explain", f"{KERNELS}:{args[0]}", *args[1:]) == 2
    assert message in capsys.readouterr().err


def test_a_kernel_file_with_an_error_in_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The person's own file fails: their line is shown, and it is not called a fault of ours."""
    (tmp_path / "mine.py").write_text("import math\nmath.no_such_name\n")
    assert call("explain", f"{tmp_path}/mine.py:f", "-a", "f32[4]") == 2
    text = capsys.readouterr().err
    assert "mine.py" in text and "AttributeError" in text and "line 2" in text and "internal" not in text
