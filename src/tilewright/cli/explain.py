"""`tilewright explain`: a kernel or a model at every level between source and machine code."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import typer

from ..errors import ArgumentError, TilewrightError
from ..runtime.machine import host
from ..runtime.threads import MAX_THREADS
from . import show
from .inputs import parse_kernel_args
from .loading import assumed_shapes, compile_model, load


def explain(
    what: str = typer.Argument(..., help="FILE.py:KERNEL, or an ONNX file."),
    arg: list[str] = typer.Option(
        [], "--arg", "-a", help="For a kernel: TYPE[DIMS] of each array, or a number; in order, or NAME=..."
    ),
    dim: list[str] = typer.Option([], "--dim", help="For a model: NAME=NUMBER fixes a free dim of the inputs."),
    fix: list[str] = typer.Option([], "--fix", help="For a model: NAME=NUMBER makes an input this constant."),
    passes: bool = typer.Option(False, "--passes", help="Show the IR after every pass."),
    region: int = typer.Option(-1, "--region", help="For a model: only this region, at every level."),
    llvm: bool = typer.Option(False, "--llvm", help="Show the LLVM IR."),
    assembly: bool = typer.Option(False, "--asm", help="Show the machine code."),
    threads: int = typer.Option(0, min=0, max=MAX_THREADS, help="Threads to compile for (default: physical cores)."),
) -> None:
    """Show what becomes of a kernel or a model at every level.

    A kernel: Tile IR, the schedule, Scheduled IR. A model: Graph IR and the regions it is cut into.

    Examples:

      tilewright explain examples/kernels.py:softmax --arg 'f32[4096,1024]'

      tilewright explain examples/kernels.py:conv2d -a 'f32[1,56,56,64]' -a 'f32[3,3,64,64]' -a stride=1 -a pad=1 --asm

      tilewright explain model.onnx --passes

      tilewright explain model.onnx --region 3 --llvm
    """
    file, colon, name = what.rpartition(":")
    count = threads or host().usable_physical_cores
    if colon and file.endswith(".py"):
        kernel = _find_kernel(Path(file), name)
        if dim or fix or region >= 0:
            raise ArgumentError("--dim, --fix and --region are for models; a kernel's sizes come with --arg")
        if not arg:
            raise ArgumentError(
                f"'{name}' needs arguments to be explained for", hint="give --arg 'f32[4096,1024]' for each"
            )
        import tilewright as tw

        tw.set_threads(count)
        args, named = parse_kernel_args(arg)
        _print(kernel.explain(*args, **named, passes=passes, llvm=llvm, assembly=assembly))
        return
    if what.endswith(".py"):
        raise ArgumentError(f"which kernel of '{what}'?", hint=f"write {what}:NAME")
    if arg:
        raise ArgumentError("--arg is for kernels; a model knows its own inputs")
    if (llvm or assembly) and region < 0:
        raise ArgumentError("of a model, --llvm and --asm show one region", hint="add --region NUMBER")
    loaded = load(Path(what), dim, fix)
    net = compile_model(loaded, count, assumed_shapes(loaded))
    only = region if region >= 0 else None
    _print(net.explain(passes=passes, region=only, llvm=llvm, assembly=assembly))


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
    except TilewrightError:
        raise
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
        where = f", line {frames[-1].lineno}" if frames else ""
        what = f"{type(error).__name__}: {error}"
        raise ArgumentError(f"'{path}' cannot be imported: {what}{where}") from error
    finally:
        sys.path.pop(0)
    return module
