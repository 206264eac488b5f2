"""Formats are told apart by content."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests import modelzoo
from tilewright.errors import ModelError
from tilewright.frontends import detect, load_graph


@pytest.mark.models
@pytest.mark.parametrize("name", modelzoo.NAMES)
def test_onnx_files(name: str, tmp_path: Path) -> None:
    try:
        file = modelzoo.path(name)
    except modelzoo.ModelMissing as e:
        pytest.skip(str(e))
    assert detect(file) == detect(str(file)) == detect(file.read_bytes()) == "onnx"
    renamed = tmp_path / "model.tflite"
    renamed.write_bytes(file.read_bytes())
    assert detect(renamed) == "onnx"


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"PK\x03\x04rest", "zip"),
        (b"\x80\x02}q", "pickle"),
        (b"\x1c\x00\x00\x00TFL3....", "TensorFlow Lite"),
        (b"ML\xefR....", "MLIR"),
        (b"GGUF....", "GGUF"),
        (b"<html>not found", "markup"),
        (b'{"a": 1}', "JSON"),
        (b"\x40\x00\x00\x00\x00\x00\x00\x00{}", "safetensors"),
        (b"version https://git-lfs.github.com/spec/v1\n", "LFS"),
        (b"\xff" * 64, "unknown"),
        (b"hello world", "unknown"),
        (b"", "empty"),
    ],
)
def test_other_files(data: bytes, word: str) -> None:
    with pytest.raises(ModelError) as caught:
        load_graph(data)
    assert word in str(caught.value)


def test_no_such_file(tmp_path: Path) -> None:
    for source in (tmp_path / "none.onnx", tmp_path, "a\0b", 3, None):
        with pytest.raises(ModelError):
            detect(source)


def test_onnx_is_imported_on_first_use() -> None:
    code = (
        "import sys, tilewright.frontends, tilewright.frontends.onnx; "
        "from tilewright.frontends.onnx import reader, registry; "
        "assert 'onnx' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2] / "src")
