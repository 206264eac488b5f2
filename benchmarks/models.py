"""Whole models against onnxruntime, on real inputs; onnxruntime is the reference for accuracy too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests import modelzoo
from tilewright.certify.compare import relative_error
from tilewright.certify.onnxruntime_peer import OnnxRuntime
from tilewright.cli.run import named_outputs

from .harness import Case, Options, Prepared

_TOLERANCE = 1e-3
_QUICK = ("opennsfw", "magika")


def cases(options: Options) -> list[Case]:
    return [_model(name) for name in modelzoo.NAMES]


def _model(name: str) -> Case:
    def prepare(o: Options) -> Prepared:
        import tilewright as tw

        path, arrays = modelzoo.path(name), modelzoo.inputs(name)
        loaded = tw.load(str(path))
        net = loaded.compile("cpu", threads=o.threads)
        peer = OnnxRuntime(path, o.threads)
        ours = lambda: net(**arrays)  # noqa: E731

        def check(got: Any, want: Mapping[str, np.ndarray[Any, Any]]) -> float:
            outputs = got if isinstance(got, dict) else named_outputs(loaded, got)
            return max(relative_error(outputs[key], value) for key, value in want.items())

        peers = {"onnxruntime": lambda: peer.run(arrays)} if "onnxruntime" in o.peers else {}
        return Prepared(ours, peers, lambda: peer.run(arrays), _TOLERANCE, check)

    return Case(f"{name} b1", prepare, quick=name in _QUICK, dtypes=("f32",))
