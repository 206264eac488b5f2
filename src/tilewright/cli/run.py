"""`tilewright run`: a model on this machine, next to a reference when asked, with times when asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import typer
from rich.markup import escape

from ..certify.compare import Parity, compare, worst
from ..errors import ArgumentError, UnsupportedError
from ..evidence import Evidence
from ..profile.timing import Timing, interleave
from ..runtime.machine import host
from ..runtime.threads import MAX_THREADS
from . import reports, show
from .inputs import ImageOptions, Wanted, collect, random_inputs, wanted_of
from .loading import compile_model, load, parse_fixed, tell_free

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class _Result:
    """All that a run found out; printed or written as JSON at the end."""

    model: str
    threads: int
    outputs: dict[str, Array]
    peer_name: str | None = None
    parity: list[Parity] | None = None
    latency: dict[str, Evidence] | None = None
    report: Any = None

    @property
    def ok(self) -> bool:
        return all(p.ok for p in self.parity or [])

    def to_json(self) -> dict[str, Any]:
        return {
            "model": self.model,
            "threads": self.threads,
            "outputs": {
                n: {"dtype": str(a.dtype), "shape": list(a.shape), **_summary(a)} for n, a in self.outputs.items()
            },
            "against": self.peer_name,
            "parity": [p.to_json() for p in self.parity] if self.parity is not None else None,
            "ok": self.ok,
            "latency": {n: e.to_json() for n, e in self.latency.items()} if self.latency else None,
            "report": self.report.to_json() if self.report is not None else None,
        }


def run(
    model: Path = typer.Argument(..., help="An ONNX file."),
    input: list[str] = typer.Option([], "--input", "-i", help="NAME=FILE or FILE: .npy, .npz or an image. May repeat."),
    random: bool = typer.Option(False, "--random", help="Random data for inputs that were not given."),
    dim: list[str] = typer.Option([], "--dim", help="NAME=NUMBER: fixes a free dim of the inputs."),
    fix: list[str] = typer.Option([], "--fix", help="NAME=NUMBER: makes an input this constant."),
    mean: str = typer.Option("0", help="For images: subtracted from the 0..255 values; one number or one per channel."),
    scale: float = typer.Option(1.0, help="For images: multiplied in after the mean."),
    bgr: bool = typer.Option(False, "--bgr", help="For images: the model takes blue first."),
    against: str = typer.Option("", help="Compare every output with this peer (onnxruntime), and time it too."),
    tolerance: float = typer.Option(1e-3, help="The relative error that still counts as equal."),
    repeat: int = typer.Option(0, min=0, help="Time this many runs; ours and the peer's take turns."),
    threads: int = typer.Option(0, min=0, max=MAX_THREADS, help="Threads, for ours and the peer (default: physical)."),
    dtype: str = typer.Option("", help="bf16 or f16: mixed precision, sums in f32 (allow for it with --tolerance)."),
    profile: bool = typer.Option(False, "--profile", help="Time every region, with its fraction of the measured peak."),
    save: Path | None = typer.Option(None, help="Write the outputs to this .npz file."),
    json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Compile a model for this machine and run it.

    Examples:

      tilewright run classifier.onnx --input photo.png --mean 104,117,123 --bgr

      tilewright run model.onnx -i tokens=ids.npy -i mask=mask.npy --save out.npz

      tilewright run model.onnx --random --dim batch=8 --against onnxruntime --repeat 50

    With --against, the exit code is 1 when an output differs by more than the tolerance.
    """
    if against not in ("", "onnxruntime"):
        raise UnsupportedError(f"'{against}' is not a peer that a model can be run against", hint="use onnxruntime")
    count = threads or host().usable_physical_cores
    loaded = load(model, dim, fix)
    wanted = wanted_of(loaded)
    image = ImageOptions(_numbers(mean), scale, bgr)
    arrays = _random(input, wanted, image) if random else collect(input, wanted, image)
    net = compile_model(loaded, count, {name: a.shape for name, a in arrays.items()}, dtype or None)
    result = _Result(str(model), count, named_outputs(loaded, net(**arrays)))
    peer = _attach_peer(result, model, arrays, against, tolerance, parse_fixed(fix)) if against else None
    if repeat:
        result.latency = _time(net, peer, arrays, repeat, count)
    if profile:
        result.report = net.profile(arrays)
    if save is not None:
        _save(save, result.outputs)
    if json:
        show.print_json(result.to_json())
    else:
        _print(result)
    if not result.ok:
        raise typer.Exit(1)


def named_outputs(model: Any, returned: Any) -> dict[str, Array]:
    """A compiled model returns an array for one output and a tuple for several."""
    values = returned if isinstance(returned, tuple) else (returned,)
    return {name: np.asarray(value) for name, value in zip(model.output_names, values)}


def _random(specs: list[str], wanted: list[Wanted], image: ImageOptions) -> dict[str, Array]:
    """With `--random`, inputs may be missing: those given are read, the others are made."""
    given: dict[str, Array] = {}
    if specs:
        named = {s.partition("=")[0] for s in specs}
        given = collect(specs, [w for w in wanted if w.name in named] or wanted[: len(specs)], image)
    tell_free([w for w in wanted if w.name not in given])
    return random_inputs(wanted, {}, given)


def _numbers(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise ArgumentError(f"'{text}' is not a mean", hint="write --mean 127.5 or --mean 104,117,123") from None


def _attach_peer(
    result: _Result, model: Path, arrays: dict[str, Array], against: str, tolerance: float, fixed: dict[str, Any]
) -> Any:
    from ..certify.onnxruntime_peer import OnnxRuntime

    with show.working(f"loading the model in {against}"):
        peer = OnnxRuntime(model, result.threads, fixed=fixed)
    result.peer_name = f"{against} {peer.version}"
    result.parity = compare(result.outputs, peer.run(arrays), tolerance)
    return peer


def _time(net: Any, peer: Any, arrays: dict[str, Array], rounds: int, threads: int) -> dict[str, Evidence]:
    functions = {"tilewright": lambda: net(**arrays)}
    if peer is not None:
        functions["onnxruntime"] = lambda: peer.run(arrays)
    with show.working(f"timing {rounds} rounds"):
        found: dict[str, Timing] = interleave(functions, rounds=rounds)
    how = f"median of {rounds} turns, {threads} threads, ours and the peer in turn"
    return {name: Evidence(t.median * 1e3, "ms", "measured", how) for name, t in found.items()}


def _save(path: Path, outputs: dict[str, Array]) -> None:
    try:
        with path.open("wb") as file:
            np.savez(file, **outputs)  # type: ignore[arg-type]
    except OSError as error:
        raise ArgumentError(f"the outputs cannot be written to '{path}': {error.strerror or error}") from error


def _summary(array: Array) -> dict[str, float]:
    if array.size == 0:
        return {}
    wide = array.astype(np.float64)
    return {"min": float(wide.min()), "mean": float(wide.mean()), "max": float(wide.max())}


def _print(result: _Result) -> None:
    columns = ("output", "type", "shape", "min", "mean", "max", "first values")
    table = show.table(f"{result.model}, {result.threads} threads", *columns, numbers=("min", "mean", "max"))
    for name, array in result.outputs.items():
        figures = [f"{v:.5g}" for v in _summary(array).values()] or ["-"] * 3
        first = " ".join(f"{v:.5g}" for v in array.reshape(-1)[:4].astype(np.float64))
        table.add_row(escape(name), str(array.dtype), "x".join(map(str, array.shape)) or "scalar", *figures, first)
    show.out.print(table)
    if result.parity is not None:
        show.out.print("", reports.parity_table(f"against {result.peer_name}", result.parity), sep="\n")
        show.out.print(reports.verdict(result.parity, worst(result.parity)), highlight=False, soft_wrap=True)
    if result.latency:
        show.out.print("", reports.latency_table(result.latency), sep="\n")
    if result.report is not None:
        show.out.print("", reports.regions_table(result.report.regions), sep="\n")
