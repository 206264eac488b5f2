"""Whole models against onnxruntime (and `--peer onnxruntime,openvino`), on real inputs; onnxruntime is the reference
for accuracy too. ResNet-50 has seeded weights and random images, and torch and torch.compile as further peers.

Two kinds of rows compare ours with ours: `two threads over one`, and `static memory`, whose bar is 1.1 times the
most bytes that are alive at once."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests import modelzoo
from tilewright.certify.compare import relative_error
from tilewright.certify.onnxruntime_peer import OnnxRuntime
from tilewright.cli.run import named_outputs

from .harness import Array, Case, Options, Prepared, Row, row
from .resnet50 import write

#: relative, per output; what mixed precision costs depends on the model
_TOLERANCE = {"f32": 1e-3, "bf16": 0.2, "f16": 0.2}
_QUICK = ("opennsfw", "magika")
_ALL_PEERS = ("onnxruntime", "openvino", "torch", "torch.compile")


@dataclass(frozen=True, slots=True)
class Source:
    """A model: `make` gives its file and arrays for its inputs."""

    name: str
    make: Callable[[], tuple[Path, dict[str, Array]]]
    quick: bool = False
    peers: tuple[str, ...] = _ALL_PEERS[:2]


def cases(options: Options) -> list[Case]:
    real = [Source(f"{name} b1", partial(_packaged, name), name in _QUICK) for name in modelzoo.NAMES]
    resnets = [Source(f"resnet50 b{batch}", partial(_resnet50, batch), peers=_ALL_PEERS) for batch in (1, 16)]
    sources = real + resnets
    return [*map(_model, sources), *map(_threads, resnets), *map(_memory, sources)]


def _packaged(name: str) -> tuple[Path, dict[str, Array]]:
    return modelzoo.path(name), modelzoo.inputs(name)


def _resnet50(batch: int) -> tuple[Path, dict[str, Array]]:
    path = write(Path(tempfile.mkdtemp(prefix="tilewright-")) / "resnet50.onnx", batch)
    return path, {"x": np.random.default_rng(1).standard_normal((batch, 3, 224, 224), dtype=np.float32)}


def _compile(path: Path, dtype: str, threads: int) -> tuple[Any, Any]:
    import tilewright as tw

    loaded = tw.load(str(path))
    return loaded, loaded.compile("cpu", threads=threads, dtype=None if dtype == "f32" else dtype)


def _model(source: Source) -> Case:
    """In f32, or in mixed precision (OpenVINO in its own); onnxruntime always computes in f32, and is the reference."""

    def prepare(o: Options) -> Prepared:
        path, arrays = source.make()
        loaded, net = _compile(path, o.dtype, o.threads)
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
        for name in ("torch", "torch.compile"):
            if name in o.peers and name in source.peers:
                peers[name] = _torch(path, arrays, o, name == "torch.compile")
        return Prepared(ours, peers, lambda: peer.run(arrays), _TOLERANCE[o.dtype], check)

    return Case(source.name, prepare, quick=source.quick, dtypes=tuple(_TOLERANCE))


def _threads(source: Source) -> Case:
    """What the second thread brings: the time of one thread over the time of two."""

    def prepare(o: Options) -> Prepared:
        path, arrays = source.make()
        one, two = (_compile(path, o.dtype, threads)[1] for threads in (1, 2))
        return Prepared(
            lambda: two(**arrays), {"one thread": lambda: one(**arrays)}, lambda: one(**arrays), _TOLERANCE[o.dtype]
        )

    return Case(f"two threads over one {source.name}", prepare, dtypes=tuple(_TOLERANCE))


def _memory(source: Source) -> Case:
    """Bytes of the arena of intermediates, against 1.1 times the least that any plan could need."""

    def prepare(o: Options) -> list[Row]:
        path, arrays = source.make()
        net = _compile(path, o.dtype, o.threads)[1]
        net(**arrays)  # decides the shapes
        memory = net.report().memory
        bound = 1.1 * memory.lower_bound_bytes / 1e6
        return [row(f"static memory {source.name}", o, memory.arena_bytes / 1e6, bound, "bar", "MB", "compiled")]

    return Case(f"static memory {source.name}", prepare, quick=source.quick, dtypes=tuple(_TOLERANCE))


def _openvino(path: Path, arrays: Mapping[str, Array], o: Options) -> Callable[[], Any]:
    """OpenVINO in the precision asked for, with as many threads."""
    import openvino

    hints = {"INFERENCE_NUM_THREADS": o.threads, "INFERENCE_PRECISION_HINT": o.dtype}
    request = openvino.Core().compile_model(str(path), "CPU", hints).create_infer_request()
    return lambda: [np.array(v) for v in request.infer(dict(arrays)).values()]


def _torch(path: Path, arrays: Mapping[str, Array], o: Options, compiled: bool) -> Callable[[], Any]:
    from .torch_peer import torch_peer

    (array,) = arrays.values()
    return torch_peer(path, array, o.dtype, o.threads, compiled)
