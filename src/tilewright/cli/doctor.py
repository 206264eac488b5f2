"""`tilewright doctor`: the machine, what it was measured to reach, and what is installed."""

from __future__ import annotations

import importlib.metadata
import platform
from typing import Any

import typer
from rich.markup import escape

from .._version import __version__
from ..runtime.cache import CompileCache
from ..runtime.machine import Machine, host
from ..runtime.peaks import Peaks, peaks
from . import show

_CORE = ("numpy", "ml-dtypes", "llvmlite", "onnx", "safetensors", "rich", "typer")
_OPTIONAL = ("torch", "onnxruntime", "triton")
_MEANING = {
    "f64": "multiply-add, f64",
    "f32": "multiply-add, f32",
    "f16": "multiply-add, f16",
    "bf16": "dot product, bf16 to f32",
    "i8": "dot product, int8 to int32",
    "read": "memory, read",
    "copy": "memory, read and written",
}


def doctor(
    refresh: bool = typer.Option(False, "--refresh", help="Measure the peaks again (a few seconds)."),
    json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """What this machine can do: instruction sets, caches, cores, measured peaks.

    The peaks are measured the first time and remembered. "Fraction of peak" in every report means of these figures.

    Examples:

      tilewright doctor

      tilewright doctor --refresh --json > machine.json
    """
    with show.progress("measuring") as step:
        measured = peaks(refresh=refresh, progress=step)
    machine = host()
    if json:
        show.print_json(_json(machine, measured))
        return
    show.out.print(_machine_table(machine), "", _peaks_table(measured), "", _software_table(), sep="\n")


def _json(machine: Machine, measured: Peaks) -> dict[str, Any]:
    return {
        "tilewright": __version__,
        "machine": machine.to_json(),
        "peaks": measured.to_json(),
        "packages": {name: _installed(name) for name in _CORE + _OPTIONAL},
        "python": platform.python_version(),
        "cache": CompileCache().info().to_json(),
    }


def _machine_table(m: Machine) -> Any:
    table = show.table("machine", "what", "value")
    table.add_row("processor", escape(m.cpu))
    table.add_row("target", f"{m.triple}, LLVM calls it {m.llvm_cpu}")
    table.add_row("instruction sets", ", ".join(m.isa) or "baseline")
    table.add_row("vector registers", f"{m.vector_bits} bits")
    table.add_row("cores", f"{m.physical_cores} physical, {m.logical_cores} logical, {m.usable_cores} for this process")
    table.add_row("L1 data cache", f"{show.size(m.l1d_bytes)} per core")
    table.add_row("L2 cache", f"{show.size(m.l2_bytes)} for {m.l2_sharers} logical core(s)")
    table.add_row("L3 cache", f"{show.size(m.l3_bytes)} for {m.l3_sharers} logical core(s)")
    return table


def _peaks_table(measured: Peaks) -> Any:
    every = f"{measured.threads} threads"
    table = show.table("peaks", "what", "1 thread", every, numbers=("1 thread", every))
    for name, value in measured.single.items():
        table.add_row(_MEANING.get(name, name), show.evidence(value), show.evidence(measured.all.get(name)))
    table.caption = "again with: tilewright doctor --refresh"
    table.caption_justify = "left"
    return table


def _software_table() -> Any:
    table = show.table("software", "what", "version")
    table.add_row("tilewright", __version__)
    table.add_row("python", platform.python_version())
    for name in _CORE:
        table.add_row(name, _installed(name) or "missing")
    for name in _OPTIONAL:
        table.add_row(f"{name} (optional)", _installed(name) or "not installed")
    cache = CompileCache().info()
    state = f"{cache.entries} entries, {show.size(cache.bytes)}" if cache.usable else f"off: {cache.reason}"
    table.add_row("compile cache", f"{cache.root} ({state})")
    return table


def _installed(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
