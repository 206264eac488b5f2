"""Whole models against onnxruntime (and `--peer onnxruntime,openvino`), on real inputs; onnxruntime is the reference
for accuracy too. ResNet-50 has seeded weights and random images."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests import modelzoo
from tilewright.certify.compare import relative_error
from tilewright.certify.onnxruntime_peer import OnnxRuntime
from tilewright.cli.run import named_outputs

from .harness import Array, Case, Options, Prepared
from .resnet50 import write

#: relative, per output; what mixed precision costs depends on the model
_TOLERANCE = {"f32": 1e-3, "bf16": 0.2, "f16": 0.2}
_QUICK = ("opennsfw", "magika")


def cases(options: Options) -> list[Case]:
    return [_real(name) for name in modelzoo.NAMES] + [_resnet50(1), _resnet50(16)]


def _real(name: str) -> Case:
    return _model(f"{name} b1", lambda: (modelzoo.path(name), modelzoo.inputs(name)), name in _QUICK)


def _resnet50(batch: int) -> Case:
    def made() -> tuple[Path, dict[str, Array]]:
        path = write(Path(tempfile.mkdtemp(prefix="tilewright-")) / "resnet50.onnx", batch)
        return path, {"x": np.random.default_rng(1).standard_normal((batch, 3, 224, 224), dtype=np.float32)}

    return _model(f"resnet50 b{batch}", made, False)


def _model(name: str, source: Callable[[], tuple[Path, dict[str, Array]]], quick: bool) -> Case:
    """In f32, or in mixed precision (OpenVINO in its own); onnxruntime always computes in f32, and is the reference."""

    def prepare(o: Options) -> Prepared:
        import tilewright as tw

        path, arrays = source()
        loaded = tw.load(str(path))
        net = loaded.compile("cpu", threads=o.threads, dtype=None if o.dtype == "f32" else o.dtype)
        peer = OnnxRuntime(path, o.threads)
        ours = lambda: net(**arrays)  # noqa: E731

        def check(got: Any, want: Mapping[str, Array]) -> float:
            if isinstance(got, list):
                outputs: Mapping[str, Any] = dict(zip(want, got, strict=True))
            else:
                outputs = got if isinstance(got, dict) else named_outputs(loaded, got)
            return max(relative_error(outputs[key], value) for key, value in want.items())

        peers: dict[str, Callable[[], Any]] = {}
        if "onnxruntime" in o.peers:
            peers["onnxruntime"] = lambda: peer.run(arrays)
        if "openvino" in o.peers:
            peers["openvino"] = _openvino(path, arrays, o)
        return Prepared(ours, peers, lambda: peer.run(arrays), _TOLERANCE[o.dtype], check)

    return Case(name, prepare, quick=quick, dtypes=tuple(_TOLERANCE))


def _openvino(path: Path, arrays: Mapping[str, Array], o: Options) -> Callable[[], Any]:
    """OpenVINO in the precision asked for, with as many threads."""
    import openvino

    hints = {"INFERENCE_NUM_THREADS": o.threads, "INFERENCE_PRECISION_HINT": o.dtype}
    request = openvino.Core().compile_model(str(path), "CPU", hints).create_infer_request()
    return lambda: [np.array(v) for v in request.infer(dict(arrays)).values()]
