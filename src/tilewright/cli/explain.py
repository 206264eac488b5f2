"""`tilewright explain`: a kernel or a model at every level between source and machine code."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

from ..errors import ArgumentError
from ..runtime.machine import host
from . import show
from .inputs import parse_typed_shape, random_array
from .run import _load


def explain(
    what: str = typer.Argument(..., help="FILE.py:KERNEL, or an ONNX file."),
    arg: list[str] = typer.Option([], "--arg", "-a", help="For a kernel: TYPE[DIMS] of each argument, in order."),
    passes: bool = typer.Option(False, "--passes", help="Show the IR before and after every pass that changed it."),
    threads: int = typer.Option(0, min=0, help="Threads to compile for (default: one per physical core)."),
) -> None:
    """Show what becomes of a kernel or a model: Tile IR, the schedule, the generated code.

    Examples:

      tilewright explain examples/kernels.py:softmax --arg 'f32[4096,1024]'

      tilewright explain kernels.py:linear_relu -a 'f32[64,256]' -a 'f32[256,128]' -a 'f32[128]' --passes

      tilewright explain model.onnx --passes
    """
    file, colon, name = what.rpartition(":")
    if colon and file.endswith(".py"):
        kernel = _find_kernel(Path(file), name)
        shapes = [parse_typed_shape(spec) for spec in arg]
        arrays = [random_array(dtype, shape, str(index)) for index, (_, dtype, shape) in enumerate(shapes)]
        if not arrays:
            raise ArgumentError(
                f"'{name}' needs arguments to be explained for", hint="give --arg 'f32[4096,1024]' for each"
            )
        _print(kernel.explain(*arrays, passes=passes))
        return
    if what.endswith(".py"):
        raise ArgumentError(f"which kernel of '{what}'?", hint=f"write {what}:NAME")
    if arg:
        raise ArgumentError("--arg is for kernels; a model knows its own inputs")
    net = _load(Path(what)).compile("cpu", threads=threads or host().usable_physical_cores)
    _print(net.explain(passes=passes))


def _print(text: Any) -> None:
    if text is not None:
        show.out.print(str(text), markup=False, highlight=False, soft_wrap=True)


def _find_kernel(path: Path, name: str) -> Any:
    if not path.is_file():
        raise ArgumentError(f"there is no file '{path}'")
    module = _import_file(path)
    found = getattr(module, name, None)
    if not _is_kernel(found):
        kernels = ", ".join(n for n, v in vars(module).items() if _is_kernel(v)) or "none"
        raise ArgumentError(f"'{path}' has no kernel '{name}'", hint=f"kernels in it: {kernels}")
    return found


def _is_kernel(value: Any) -> bool:
    return hasattr(value, "explain") and not isinstance(value, type)


def _import_file(path: Path) -> ModuleType:
    """Run a Python file as a module of its own, so that `main()` guards in it stay quiet."""
    spec = importlib.util.spec_from_file_location(f"tilewright_explain_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module
