"""Write a kernel or bring a model once, and run it at hardware speed, with evidence for every number.

Kernels      kernel, fn                   decorators: a kernel, and a helper that kernels may call
             dims, Tensor, Dim, static    what stands in a kernel's signature
             f32, f16, bf16, i8 ...       element types (DType)
             tiles, dot, exp, sum ...     the language inside kernels: docs/language.md, or help(tilewright.dot)
Models       load                         load("model.onnx").compile("cpu")(x)
Settings     threads, set_threads         how many threads kernels run on
Errors       errors                       every error raised on purpose is an errors.TilewrightError

On the command line: tilewright --help. Names are loaded when they are first used, so that importing the package costs
next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ._version import __version__

if TYPE_CHECKING:  # what type checkers and editors see of the names below
    from . import errors as errors
    from .ir.types import DType, bf16, bool_, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
    from .lang import Dim, Tensor, dims, fn, static
    from .lang.kernel import Kernel, kernel
    from .lang.model_load import load
    from .runtime.threads import set_threads, threads

#: name -> (module, name in it)
_HOME = {
    "load": ("lang.model_load", "load"),
    "set_threads": ("runtime.threads", "set_threads"),
    "threads": ("runtime.threads", "threads"),
    "kernel": ("lang.kernel", "kernel"),
    "Kernel": ("lang.kernel", "Kernel"),
    "errors": ("errors", ""),
    "DType": ("ir.types", "DType"),
    **{n: ("ir.types", n) for n in (
        "f64", "f32", "f16", "bf16", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "bool_")},
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module 'tilewright' has no attribute '{name}'")
    if name in _HOME:
        module, inner = _HOME[name]
        found = importlib.import_module(f"{__name__}.{module}")
        value = getattr(found, inner) if inner else found
    else:
        language = importlib.import_module(f"{__name__}.lang")
        if name not in language.__all__:
            raise AttributeError(f"module 'tilewright' has no attribute '{name}'")
        value = getattr(language, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    language = importlib.import_module(f"{__name__}.lang")
    return sorted({*_HOME, *language.__all__, "__version__"})


__all__ = [
    "DType", "Dim", "Kernel", "Tensor", "__version__", "bf16", "bool_", "dims", "errors", "f16", "f32", "f64", "fn",
    "i8", "i16", "i32", "i64", "kernel", "load", "set_threads", "static", "threads", "u8", "u16", "u32", "u64",
]  # fmt: skip
