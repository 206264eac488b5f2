"""What every command promises: one message and exit code 2 on errors, a traceback only on request, JSON that parses."""

from __future__ import annotations

import json
import signal
import sys
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

import tilewright
from tilewright.cli.main import entry
from tilewright.errors import ModelError, Problem
from tilewright.evidence import Evidence
from tilewright.runtime import peaks as peaks_module
from tilewright.runtime.cache import CompileCache
from tilewright.runtime.machine import host
from tilewright.runtime.peaks import Peaks


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def call(*args: str) -> int:
    with pytest.raises(SystemExit) as stop:
        entry(list(args))
    assert isinstance(stop.value.code, int)
    return stop.value.code


def make_load_raise(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def load(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setitem(vars(tilewright), "load", load)


@pytest.mark.parametrize("command", [(), ("doctor",), ("run",), ("inspect",), ("explain",), ("cache",)])
def test_help_teaches(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*command, "--help") == 0
    text = capsys.readouterr().out
    assert "Usage" in text
    if command != ("cache",):
        assert "Examples:" in text


def test_bare_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert call() == 2
    captured = capsys.readouterr()
    assert "Examples:" in captured.out + captured.err
    assert "error:" not in captured.err


@pytest.mark.parametrize(
    "args",
    [
        ("nonsense",),
        ("run",),
        ("run", "missing.onnx"),
        ("run", "missing.onnx", "--repeat", "often"),
        ("inspect", "missing.onnx"),
        ("explain", "missing.py:f"),
        ("explain", "missing.py"),
        ("explain", "missing.onnx"),
        ("explain", "missing.onnx", "--arg", "f32[1]"),
        ("cache", "burn"),
        ("doctor", "--no-such-option"),
    ],
)
def test_mistakes_give_one_message(args: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert call(*args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert "Traceback" not in captured.err
    assert len(captured.err.strip().splitlines()) <= 2


def test_our_errors_come_with_every_problem(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problems = [Problem("n1", "Foo", "not known"), Problem("n2", "Bar", "rank [3]")]
    make_load_raise(monkeypatch, ModelError("the model cannot be read", problems))
    (tmp_path / "m.onnx").write_bytes(b"")
    assert call("run", str(tmp_path / "m.onnx")) == 2
    text = capsys.readouterr().err
    assert "node 'n1' [Foo]: not known" in text  # square brackets are text, not markup
    assert "rank [3]" in text


def test_internal_errors(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_load_raise(monkeypatch, KeyError("boom"))
    (tmp_path / "m.onnx").write_bytes(b"")
    assert call("run", str(tmp_path / "m.onnx")) == 2
    text = capsys.readouterr().err
    assert text.startswith("internal error (KeyError: 'boom')") and "--debug" in text
    assert len(text.strip().splitlines()) == 1
    assert call("run", str(tmp_path / "m.onnx"), "--debug") == 2
    assert "Traceback" in capsys.readouterr().err


def test_interrupt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_load_raise(monkeypatch, KeyboardInterrupt())
    (tmp_path / "m.onnx").write_bytes(b"")
    assert call("run", str(tmp_path / "m.onnx")) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert call("--version") == 0
    assert capsys.readouterr().out.startswith("tilewright 0.")


# ---------------------------------------------------------------- doctor and cache


@pytest.fixture
def ready_peaks(monkeypatch: pytest.MonkeyPatch) -> Peaks:
    value = Evidence(100.0, "GFLOP/s", "measured", "test")
    found = Peaks(host().fingerprint, 2, {"f32": value}, {"f32": value})
    monkeypatch.setattr(peaks_module, "_known", found)
    return found


def test_doctor(ready_peaks: Peaks, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("doctor") == 0
    text = capsys.readouterr().out
    for part in (host().cpu.split()[0], "L2 cache", "[measured]", "numpy", "compile cache"):
        assert part in text


def test_doctor_json(ready_peaks: Peaks, capsys: pytest.CaptureFixture[str]) -> None:
    assert call("doctor", "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert data["machine"]["usable_cores"] == host().usable_cores
    assert data["peaks"]["single"]["f32"]["provenance"] == "measured"


def test_cache_info_and_clear(capsys: pytest.CaptureFixture[str]) -> None:
    store = CompileCache()
    store.put(store.key("k"), b"code")
    assert call("cache", "info", "--json") == 0
    assert json.loads(capsys.readouterr().out)["entries"] == 1
    assert call("cache", "info") == 0
    assert "entries" in capsys.readouterr().out
    assert call("cache", "clear") == 0
    assert "removed 1 entries" in capsys.readouterr().out
    assert call("cache", "info", "--json") == 0
    assert json.loads(capsys.readouterr().out)["entries"] == 0


def test_cache_of_another_user_is_not_cleared(own_cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own_cache.mkdir()
    own_cache.chmod(0o777)
    assert call("cache", "clear") == 2
    assert "machine code" in capsys.readouterr().err


def test_ctrl_c_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    """Not even when it comes while a weak reference is being cleared, where Python itself would drop it."""
    (tmp_path / "m.onnx").write_bytes(b"")
    # a shell starts background jobs with the signal ignored, and Python leaves it so
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    request.addfinalizer(lambda: signal.signal(signal.SIGINT, before))

    class Something:
        pass

    def load(*_: Any, **__: Any) -> None:
        def clear(_: Any) -> None:
            raise KeyboardInterrupt

        thing = Something()
        watch = weakref.ref(thing, clear)
        del thing
        time.sleep(5)
        assert watch() is None
        pytest.fail("the interrupt was lost")

    monkeypatch.setitem(vars(tilewright), "load", load)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)  # put back when the test ends
    assert call("run", str(tmp_path / "m.onnx")) == 130
    assert capsys.readouterr().err.strip() == "interrupted"
