"""Real models from installed packages against onnxruntime: several shapes each, their memory, their inner tensors."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tests import modelzoo
from tilewright.certify.compare import relative_error

pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.models
Array = np.ndarray[Any, Any]
TOLERANCE = 1e-3

#: other shapes than the package's own: what to make of its inputs
BATCHES: dict[str, dict[str, int]] = {  # axis of the batch in each input
    "opennsfw": {"input:0": 0}, "magika": {"bytes": 0}, "silero-vad": {"input": 0, "state": 1},
    "silero-vad-ifless": {"input": 0, "state": 1}, "rapidocr-det": {"x": 0}, "rapidocr-rec": {"x": 0},
    "rapidocr-cls": {"x": 0}, "basic-pitch": {"serving_default_input_2:0": 0}, "efficientnet-lite0": {"x": 0},
    "minilm": {"input_ids": 0, "attention_mask": 0, "token_type_ids": 0},
}  # fmt: skip
IMAGES: dict[str, list[tuple[int, int, int, int]]] = {
    "rapidocr-det": [(1, 3, 96, 160), (2, 3, 64, 64)],
    "rapidocr-rec": [(1, 3, 48, 137), (3, 3, 48, 320)],
    "rapidocr-cls": [(2, 3, 48, 192)],
}


def file_of(name: str) -> Path:
    try:
        return modelzoo.path(name)
    except modelzoo.ModelMissing as e:
        pytest.skip(str(e))


@lru_cache(maxsize=1)  # the tests of one model follow each other
def loaded(name: str) -> tuple[Any, Any, Any]:
    from tilewright.certify.onnxruntime_peer import OnnxRuntime

    file = file_of(name)
    model = tw.load(str(file))
    return model, model.compile("cpu", threads=2), OnnxRuntime(file, 2)


def check(name: str, feed: dict[str, Array]) -> None:
    model, net, peer = loaded(name)
    got = net(**feed)
    want = peer.run(feed)
    for output, value in zip(model.output_names, got if isinstance(got, tuple) else (got,), strict=True):
        error = relative_error(value, want[output])
        assert error < TOLERANCE, f"{name}: {output} differs by {error:.3g}"


def batch_of(feed: dict[str, Array], axes: dict[str, int], count: int) -> dict[str, Array]:
    """`count` different samples made from one."""
    rng = np.random.default_rng(count)
    out = dict(feed)
    for key, axis in axes.items():
        x = np.repeat(feed[key], count, axis)
        out[key] = x + (0.05 * np.std(x) * rng.standard_normal(x.shape)).astype(x.dtype) if x.dtype.kind == "f" else x
    return out


@pytest.mark.parametrize("name", modelzoo.NAMES)
def test_on_its_packages_own_inputs(name: str) -> None:
    file_of(name)
    check(name, modelzoo.inputs(name))
    memory = loaded(name)[1].report().memory
    assert memory.arena_bytes <= 1.1 * memory.lower_bound_bytes


@pytest.mark.parametrize("name", [n for n in modelzoo.NAMES if n in BATCHES])
def test_batches(name: str) -> None:
    file_of(name)
    model = loaded(name)[0]
    first = next(iter(BATCHES[name]))
    if isinstance(dict(zip(model.inputs.names, model.inputs.types, strict=True))[first].shape[0], int):
        pytest.skip("the model fixes its batch")
    for count in (3, 4):
        feed = modelzoo.inputs(name)
        if name.startswith("rapidocr-det"):
            feed["x"] = feed["x"][:, :, :96, :128]
        check(name, batch_of(feed, BATCHES[name], count))


@pytest.mark.parametrize("name", sorted(IMAGES))
def test_other_image_sizes(name: str) -> None:
    file_of(name)
    image = modelzoo.photograph("page")[:160]  # printed text: on noise every output is near zero, where onnxruntime's
    for count, _, height, width in IMAGES[name]:  # sigmoid has few right digits
        x = modelzoo.resize(image, height, width).astype(np.float32).transpose(2, 0, 1)[None] / 127.5 - 1
        check(name, batch_of({"x": np.ascontiguousarray(x)}, {"x": 0}, count))


@pytest.mark.parametrize("file", ["silero_vad.onnx", "silero_vad_16k_op15.onnx"])
def test_models_whose_form_depends_on_the_shapes(file: str) -> None:
    """Their If has branches of different rank; in the first one `sr` chooses between two networks besides."""
    from tilewright.certify.onnxruntime_peer import OnnxRuntime

    path = file_of("silero-vad").parent / file
    model = tw.load(str(path))
    net = model.compile("cpu")
    peer = OnnxRuntime(path, 1)
    wide = modelzoo.inputs("silero-vad")
    feeds = [wide, batch_of(wide, BATCHES["silero-vad"], 2)]
    if file == "silero_vad.onnx":
        narrow = np.ascontiguousarray(wide["input"][:, :288])
        feeds.append({"input": narrow, "state": wide["state"], "sr": np.array(8000, np.int64)})
    for feed in [*feeds, *feeds]:
        want = peer.run(feed)
        for name, value in zip(model.output_names, net(**feed), strict=True):
            assert relative_error(value, want[name]) < TOLERANCE


@pytest.mark.parametrize("name", ["magika", "silero-vad", "rapidocr-cls"])
def test_intermediate_tensors(name: str) -> None:
    from tilewright.certify.onnxruntime_peer import OnnxRuntime

    file = file_of(name)
    feed = modelzoo.inputs(name)
    net = tw.load(str(file)).compile("cpu", keep_intermediates=True)
    got = net.intermediates(feed)
    want = OnnxRuntime(file, 1, intermediates=True).run(feed)
    shared = set(got) & set(want)
    assert len(shared) > 20
    for tensor in shared:
        if got[tensor].dtype.kind == "f":
            assert relative_error(got[tensor], want[tensor]) < TOLERANCE, tensor
        else:
            assert np.array_equal(got[tensor], want[tensor]), tensor


def test_a_batch_of_like_size_compiles_nothing() -> None:
    from tilewright.runtime import native

    feed = modelzoo.inputs("magika") if file_of("magika") else {}
    net = tw.load(str(file_of("magika"))).compile("cpu", threads=1)
    net(**batch_of(feed, BATCHES["magika"], 7))
    before = set(native._compiled)
    net(**batch_of(feed, BATCHES["magika"], 6))
    made = len(set(native._compiled) - before)
    assert made <= 2, f"{made} kernels were made anew"
