"""Kernels against torch: matrix products, rows, convolution, attention; and what a call and a compile cost."""

from __future__ import annotations

import importlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .harness import REDUCED, TOLERANCE, Array, Case, Options, Prepared, Row, random, row, to_torch

_SQUARE = (512, 1024, 2048)
_ODD = ((1000, 777, 1333), (513, 511, 1025), (97, 2053, 331), (1536, 96, 384))
_SKINNY_ROWS = (1, 2, 4, 8, 16, 32)
_ROWS = 4096
_WIDTHS = (1024, 2048, 4096, 8192)
#: (height and width, channels, filters, kernel, stride, pad): the convolutions of a ResNet-50
_CONVOLUTIONS = (
    (224, 3, 64, 7, 2, 3),
    (56, 64, 64, 3, 1, 1),
    (56, 256, 64, 1, 1, 0),
    (28, 128, 128, 3, 1, 1),
    (14, 256, 512, 1, 2, 0),
)
#: (query heads, key heads, positions, head size)
_ATTENTION = ((12, 12, 2048, 64), (16, 4, 1024, 64), (8, 2, 2048, 128))
_COLD_BAR_MS, _CACHED_BAR_MS = 400.0, 5.0

TorchFunction = Callable[..., Any]


def cases(options: Options) -> list[Case]:
    found = [_matmul(s, s, s, quick=s == 1024) for s in _SQUARE]
    found += [_matmul(*shape, quick=shape[0] == 1000) for shape in _ODD]
    found += [
        _matmul(m, size, size, quick=m in (1, 16) and size == 2048) for size in (2048, 4096) for m in _SKINNY_ROWS
    ]
    found += [_linear(1024, 1024, 1024, quick=True), _linear(16, 4096, 1024)]
    for make in (_softmax, _layer_norm, _gelu):
        found += [make(width, quick=width == 1024) for width in _WIDTHS]
    found += [_conv2d(*shape, quick=index == 1) for index, shape in enumerate(_CONVOLUTIONS)]
    found += [_attention(*shape, quick=index == 1) for index, shape in enumerate(_ATTENTION)]
    return [*found, _warm_call(), *_first_calls()]


def _kernel(name: str, module: str = "examples.kernels") -> Any:
    return getattr(importlib.import_module(module), name)


def _prepare(options: Options, ours: Any, peer: TorchFunction, arrays: tuple[Array, ...], **how: Any) -> Prepared:
    """The kernel on the arrays, and torch on the same memory (eager, and compiled when asked)."""
    import tilewright as tw

    tw.set_threads(options.threads)
    peers = {name: _torch(name, peer, arrays, options) for name in options.peers if name.startswith("torch")}
    return Prepared(lambda: ours(*arrays), peers, tolerance=TOLERANCE[options.dtype], **how)


def _torch(name: str, function: TorchFunction, arrays: tuple[Array, ...], options: Options) -> Callable[[], Any]:
    import torch

    torch.set_num_threads(options.threads)
    tensors = [to_torch(a) for a in arrays]
    run = torch.compile(function) if name == "torch.compile" else function

    def call() -> Any:
        with torch.inference_mode():
            return run(*tensors)

    return call


# ---------------------------------------------------------------- matrix products


def _matmul(m: int, n: int, k: int, quick: bool = False) -> Case:
    def prepare(o: Options) -> Prepared:
        import torch

        x, w = random((m, k), o.dtype, "x"), random((k, n), o.dtype, "w", k**-0.5)
        ours = _kernel("matmul", "benchmarks.extra_kernels")
        return _prepare(o, ours, torch.mm, (x, w), reference=lambda: _wide(x) @ _wide(w))

    return Case(f"matmul {m}x{n}x{k}", prepare, quick=quick)


def _linear(m: int, n: int, k: int, quick: bool = False) -> Case:
    def prepare(o: Options) -> Prepared:
        import torch

        x, w, b = random((m, k), o.dtype, "x"), random((k, n), o.dtype, "w", k**-0.5), random((n,), o.dtype, "b")
        return _prepare(
            o, _kernel("linear_relu"), lambda x, w, b: torch.relu(torch.addmm(b, x, w)), (x, w, b),
            reference=lambda: np.maximum(_wide(x) @ _wide(w) + _wide(b), 0),
        )  # fmt: skip

    return Case(f"linear_relu {m}x{n}x{k}", prepare, quick=quick)


def _wide(array: Array) -> Array:
    return array.astype(np.float64)


# ---------------------------------------------------------------- rows


def _softmax(width: int, quick: bool = False) -> Case:
    def prepare(o: Options) -> Prepared:
        import torch

        x = random((_ROWS, width), o.dtype, "x", 3.0)
        peer = lambda x: torch.softmax(x, -1)  # noqa: E731
        return _prepare(o, _kernel("softmax"), peer, (x,), reference=lambda: _softmax_rows(_wide(x)))

    return Case(f"softmax {_ROWS}x{width}", prepare, quick=quick)


def _softmax_rows(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def _layer_norm(width: int, quick: bool = False) -> Case:
    def prepare(o: Options) -> Prepared:
        import torch

        x, g, b = (random(s, o.dtype, n) for s, n in (((_ROWS, width), "x"), ((width,), "g"), ((width,), "b")))

        def reference() -> Array:
            wide = _wide(x)
            centred = wide - wide.mean(-1, keepdims=True)
            return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * _wide(g) + _wide(b)

        peer = lambda x, g, b: torch.nn.functional.layer_norm(x, (width,), g, b, 1e-5)  # noqa: E731
        return _prepare(o, _kernel("layer_norm"), peer, (x, g, b), reference=reference)

    return Case(f"layer_norm {_ROWS}x{width}", prepare, quick=quick)


def _gelu(width: int, quick: bool = False) -> Case:
    def prepare(o: Options) -> Prepared:
        import torch
        from scipy.special import erf

        x = random((_ROWS, width), o.dtype, "x", 2.0)
        reference = lambda: 0.5 * _wide(x) * (1 + erf(_wide(x) / np.sqrt(2)))  # noqa: E731
        return _prepare(o, _kernel("gelu"), torch.nn.functional.gelu, (x,), reference=reference)

    return Case(f"gelu {_ROWS}x{width}", prepare, quick=quick, dtypes=(*REDUCED, "f64"))


# ---------------------------------------------------------------- convolution and attention


def _conv2d(size: int, channels: int, filters: int, kernel: int, stride: int, pad: int, quick: bool = False) -> Case:
    def prepare(o: Options) -> Prepared:
        import torch

        x = random((1, size, size, channels), o.dtype, "x")
        w = random((kernel, kernel, channels, filters), o.dtype, "w", (kernel * kernel * channels) ** -0.5)
        conv = _kernel("conv2d")
        # torch gets the layout it likes: its own weight order, channels last, prepared ahead.
        weight = to_torch(w).permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)

        def peer(x: Any, _: Any) -> Any:
            out = torch.nn.functional.conv2d(x.permute(0, 3, 1, 2), weight, None, stride, pad)
            return out.permute(0, 2, 3, 1)

        return _prepare(
            o, lambda x, w: conv(x, w, stride, pad), peer, (x, w),
            reference=lambda: _conv_reference(_wide(x), _wide(w), stride, pad),
        )  # fmt: skip

    return Case(f"conv2d {size}x{size} {channels}->{filters} k{kernel} s{stride}", prepare, quick=quick)


def _conv_reference(x: Array, w: Array, stride: int, pad: int) -> Array:
    """A sum over the taps of the kernel, each a matrix product over the channels."""
    padded = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    height, width = ((s + 2 * pad - k) // stride + 1 for s, k in zip(x.shape[1:3], w.shape[:2]))
    out = np.zeros((x.shape[0], height, width, w.shape[3]))
    for r in range(w.shape[0]):
        for s in range(w.shape[1]):
            part = padded[:, r : r + height * stride : stride, s : s + width * stride : stride]
            out += part[:, :height, :width] @ w[r, s]
    return out


def _attention(heads: int, groups: int, positions: int, size: int, quick: bool = False) -> Case:
    return attention_case(heads, groups, positions, size, True, quick, REDUCED)


def attention_case(
    heads: int, groups: int, positions: int, size: int, causal: bool, quick: bool, dtypes: tuple[str, ...]
) -> Case:
    """Attention of a batch of one, as many queries as keys; torch gets the same memory, with the batch in front."""

    def prepare(o: Options) -> Prepared:
        import torch

        q, k, v = (random((h, positions, size), o.dtype, n) for h, n in ((heads, "q"), (groups, "k"), (groups, "v")))
        kernel = _kernel("attention")

        def peer(q: Any, k: Any, v: Any) -> Any:
            attention = torch.nn.functional.scaled_dot_product_attention
            return attention(q[None], k[None], v[None], is_causal=causal, enable_gqa=heads != groups)[0]

        return _prepare(
            o, lambda q, k, v: kernel(q, k, v, causal=causal), peer, (q, k, v),
            reference=lambda: attention_reference(q, k, v, causal),
        )  # fmt: skip

    shared = "" if heads == groups else f" G{groups}"
    name = f"attention B1 H{heads}{shared} S{positions} D{size}{' causal' if causal else ''}"
    return Case(name, prepare, quick=quick, dtypes=dtypes)


def attention_reference(q: Array, k: Array, v: Array, causal: bool = True) -> Array:
    """Attention in float64, head by head, so that only one matrix of scores exists at a time."""
    out = np.empty(q.shape, np.float64)
    share = q.shape[0] // k.shape[0]
    hidden = np.triu(np.ones((q.shape[1], q.shape[1]), bool), 1) if causal else None
    for h in range(q.shape[0]):
        scores = _wide(q[h]) @ _wide(k[h // share]).T * q.shape[2] ** -0.5
        if hidden is not None:
            scores[hidden] = -np.inf
        out[h] = _softmax_rows(scores) @ _wide(v[h // share])
    return out


# ---------------------------------------------------------------- latency


def _warm_call() -> Case:
    """What a call costs when the work is nothing: 256 numbers, 1 KiB."""

    def prepare(o: Options) -> Prepared:
        import torch

        x, y = random((256,), o.dtype, "x"), random((256,), o.dtype, "y")
        add = _kernel("vector_add", "benchmarks.extra_kernels")
        return _prepare(o, add, torch.add, (x, y), reference=lambda: _wide(x) + _wide(y))

    return Case("latency warm call vector_add 1 KiB", prepare, unit="us", quick=True, dtypes=("f32",))


#: In a process of its own. `first`: everything a user waits for in a new process; `second`: a kernel after another.
_FIRST_CALLS = """
import json, time
start = time.perf_counter()
import numpy as np
from examples.kernels import layer_norm, linear_relu
x = np.ones((64, 256), np.float32); w = np.ones((256, 128), np.float32); b = np.ones(128, np.float32)
out = linear_relu(x, w, b)
first = time.perf_counter() - start
assert abs(float(out[0, 0]) - 257) < 1e-3
g = np.ones(256, np.float32)
start = time.perf_counter()
out = layer_norm(x, g, g)
second = time.perf_counter() - start
assert abs(float(out[0, 0]) - 1) < 1e-3
print(json.dumps({"first": first * 1e3, "second": second * 1e3}))
"""


def _first_calls() -> list[Case]:
    """First calls of kernels in a fresh process; the peer of a row is the bar it must stay under."""
    return [
        # Importing NumPy and Tilewright, parsing, scheduling, compiling, calling: with nothing in the cache.
        _first_call("latency cold compile linear_relu", "first", True, _COLD_BAR_MS),
        # Reading the source, finding the code on disk, loading it, calling: imports are not in it.
        _first_call("latency disk cache layer_norm", "second", False, _CACHED_BAR_MS),
        # What a user waits for in a second process: the imports too.
        _first_call("latency new process, cached, linear_relu", "first", False, None),
    ]


def _first_call(name: str, which: str, cold: bool, bar: float | None) -> Case:
    def prepare(o: Options) -> list[Row]:
        with tempfile.TemporaryDirectory() as folder:
            _process(folder, "warm")  # bytecode is written, and the cache filled
            caches = [f"cold{index}" if cold else "warm" for index in range(3 if o.quick else 9)]
            figures = [_process(folder, cache)[which] for cache in caches]
        return [row(name, o, statistics.median(figures), bar, "bar" if bar is not None else None, "ms")]

    return Case(name, prepare, quick=True, dtypes=("f32",))


def _process(folder: str, cache: str) -> dict[str, float]:
    """One fresh interpreter. Its bytecode goes into the folder: installed packages have theirs too."""
    root = Path(__file__).resolve().parent.parent
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPATH"] = os.pathsep.join([str(root), str(root / "src"), os.environ.get("PYTHONPATH", "")])
    env["TILEWRIGHT_CACHE_DIR"] = os.path.join(folder, cache)
    env["PYTHONPYCACHEPREFIX"] = os.path.join(folder, "bytecode")
    done = subprocess.run([sys.executable, "-c", _FIRST_CALLS], env=env, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise RuntimeError(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "the process failed")
    found: dict[str, float] = json.loads(done.stdout)
    return found
