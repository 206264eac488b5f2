"""Matrix products and attention of this machine against torch: products in every element type that has an instruction
of its own, square, odd and skinny; attention in f32 and bf16. `--dtype` picks f32, bf16, f16 or i8 (bytes, whose case
names end in the operands' signs)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .harness import TOLERANCE, Array, Case, Options, Prepared, random, to_torch
from .kernels import attention_case

_SQUARE = (256, 512, 1024, 2048, 4096)
#: rows, columns, inner: odd sizes, few rows, few columns, a short or a long inner dimension
_ODD = (
    (1, 4096, 4096), (2, 4096, 1024), (3, 1000, 2000), (4, 1024, 4096), (8, 2048, 2048), (16, 4096, 1024),
    (24, 1536, 1536), (32, 1024, 1024), (100, 100, 100), (97, 2053, 331), (127, 129, 2049), (255, 1023, 511),
    (513, 511, 1025), (777, 17, 1333), (1000, 777, 1333), (1536, 96, 384), (2047, 65, 1000), (4096, 8, 512),
    (3136, 64, 64), (1024, 1024, 7),
)  # fmt: skip
#: torch has no fast f16 product where the processor has none: it takes minutes beyond this
_F16_LIMIT = 1024
_QUICK = (512, 1024)
#: positions of attention with the heads of a BERT or GPT-2 of base size
_POSITIONS, _HEADS, _HEAD_SIZE = (512, 1024, 2048, 4096), 12, 64


def cases(options: Options) -> list[Case]:
    found = [_matmul(n, n, n, "f32", quick=n in _QUICK) for n in _SQUARE]
    for dtype, most in (("bf16", 4096), ("f16", _F16_LIMIT)):
        found += [_matmul(n, n, n, dtype, quick=n == 512) for n in _SQUARE[1:] if n <= most]
    found += [_bytes(n, kind, quick=n in _QUICK) for kind in ("s8s8", "u8s8") for n in _SQUARE[1:]]
    found += [_matmul(*shape, "f32", quick=shape[0] in (16, 513)) for shape in _ODD]
    return found + [
        attention_case(_HEADS, _HEADS, s, _HEAD_SIZE, causal, quick=s == 512, dtypes=("f32", "bf16"))
        for causal in (False, True)
        for s in _POSITIONS
    ]


def _call(options: Options, function: Callable[..., Any], arrays: tuple[Array, ...]) -> dict[str, Callable[[], Any]]:
    """torch on the same memory, when it is a peer."""
    if "torch" not in options.peers:
        return {}
    import torch

    torch.set_num_threads(options.threads)
    tensors = [to_torch(a) for a in arrays]

    def run() -> Any:
        with torch.inference_mode():
            return function(*tensors)

    return {"torch": run}


def _matmul(m: int, n: int, k: int, dtype: str, quick: bool = False) -> Case:
    def prepare(o: Options) -> Prepared:
        import torch

        import tilewright as tw

        from .extra_kernels import matmul

        tw.set_threads(o.threads)
        x, w = random((m, k), dtype, "x"), random((k, n), dtype, "w", k**-0.5)
        return Prepared(
            lambda: matmul(x, w), _call(o, torch.mm, (x, w)), lambda: x.astype(np.float64) @ w.astype(np.float64),
            TOLERANCE[dtype],
        )  # fmt: skip

    return Case(f"matmul {m}x{n}x{k}", prepare, quick=quick, dtypes=(dtype,))


def _bytes(n: int, kind: str, quick: bool = False) -> Case:
    """Bytes into i32, exactly. torch multiplies signed bytes only; values of u8 stay below 128, so that it is given the
    same numbers."""

    def prepare(o: Options) -> Prepared:
        import torch

        import tilewright as tw

        from .extra_kernels import matmul_int

        tw.set_threads(o.threads)
        rng = np.random.default_rng(n)
        low = -128 if kind == "s8s8" else 0
        x = rng.integers(low, 128, (n, n)).astype(np.int8 if kind == "s8s8" else np.uint8)
        w = rng.integers(-128, 128, (n, n)).astype(np.int8)
        peers = _call(o, torch._int_mm, (x.view(np.int8), w))
        exact = lambda: x.astype(np.float64) @ w.astype(np.float64)  # noqa: E731  sums stay far below 2**53
        return Prepared(lambda: matmul_int(x, w), peers, exact, 0.0)

    return Case(f"matmul {n}x{n}x{n} {kind}", prepare, quick=quick, dtypes=("i8",))
