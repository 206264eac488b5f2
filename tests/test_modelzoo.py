"""The zoo itself: every file is found without importing its package, and its inputs make the model say something."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from tests import modelzoo

ort = pytest.importorskip("onnxruntime")
pytestmark = pytest.mark.models


def reference(name: str) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(modelzoo.path(name), options, providers=["CPUExecutionProvider"])
    arrays = modelzoo.inputs(name)
    assert {i.name for i in session.get_inputs()} == set(arrays)
    return session.run(None, arrays)


@pytest.mark.parametrize("name", modelzoo.NAMES)
def test_model_runs_on_its_inputs(name: str) -> None:
    for output in reference(name):
        assert np.isfinite(output).all()
        assert output.size == 1 or output.std() > 0


@pytest.mark.parametrize("name", modelzoo.NAMES)
def test_inputs_are_the_same_each_time(name: str) -> None:
    first, second = modelzoo.inputs(name), modelzoo.inputs(name)
    assert all(np.array_equal(first[k], second[k]) for k in first)


def test_packages_are_not_imported() -> None:
    for package, _ in (modelzoo.FILES | modelzoo.WEIGHTS).values():
        assert package not in sys.modules


def read_line(scores: np.ndarray) -> str:
    """Best letter of each column; repeats and blanks (letter 0) fall away, as the network was trained to have it."""
    import onnx

    properties = {p.key: p.value for p in onnx.load(modelzoo.path("rapidocr-rec")).metadata_props}
    letters = ["", *properties["character"].splitlines(), " "]
    best = scores.argmax(-1)
    kept = [i for k, i in enumerate(best) if k == 0 or best[k - 1] != i]
    return "".join(letters[i] for i in kept)


def test_inputs_mean_something_to_the_models() -> None:
    (verdict,) = reference("opennsfw")
    assert verdict[0, 0] > 0.5  # the astronaut is safe for work
    (page,) = reference("rapidocr-det")
    assert page.max() > 0.6  # some text was found
    assert "markers" in read_line(reference("rapidocr-rec")[0][0])
    assert reference("silero-vad-sequence")[0].max() > 0.5  # a voice was heard
    assert reference("silero-vad")[0].max() > 0.5
    assert reference("basic-pitch")[0].max() > 0.3  # a note was heard
    assert reference("efficientnet-lite0")[0].argmax() == 285  # chelsea is an Egyptian cat, says ImageNet


def test_word_pieces_are_the_longest_known() -> None:
    vocabulary = ["[CLS]", "[SEP]", "tile", "til", "##s", "##writer", "."]
    assert modelzoo.word_pieces("Tiles. Tilewriter", vocabulary) == [0, 2, 4, 6, 2, 5, 1]
