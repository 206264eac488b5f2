"""How a benchmark is run: same inputs, same threads, in turn, and only results that were checked count.

A case prepares our function, the peers' functions on the same data, and a float64 reference. A result that is off by
more than the dtype's tolerance (docs/performance.md) is a failure, not a figure: no row is written for it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

import ml_dtypes
import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from tilewright.certify.compare import relative_error
from tilewright.profile.timing import Timing, interleave
from tilewright.runtime.machine import host

Array = np.ndarray[Any, Any]

TOLERANCE = {"f64": 1e-12, "f32": 1e-5, "f16": 2e-3, "bf16": 1e-2}
NUMPY = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
#: what kernels that accumulate in f32 are measured with
REDUCED = ("f32", "f16", "bf16")
_UNITS = {"s": 1.0, "ms": 1e3, "us": 1e6}


@dataclass(frozen=True, slots=True)
class Options:
    dtype: str = "f32"
    threads: int = 1
    peers: tuple[str, ...] = ()
    seconds: float = 2.0
    quick: bool = False


@dataclass(slots=True)
class Prepared:
    """A case with its data made. `peers` holds only those asked for and installed. A `reference` gives what both
    must have computed; None when nothing is computed, or when `check` compares in its own way."""

    ours: Callable[[], Any]
    peers: dict[str, Callable[[], Any]] = field(default_factory=dict)
    reference: Callable[[], Any] | None = None
    tolerance: float = 1e-5
    check: Callable[[Any, Any], float] = relative_error


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    prepare: Callable[[Options], Prepared | list[Row]]
    unit: str = "ms"
    quick: bool = False  # part of a `--quick` run
    dtypes: tuple[str, ...] = REDUCED


@dataclass(frozen=True, slots=True)
class Row:
    """One line of JSON. `ratio` is the peer's time over ours: above 1 means we are faster."""

    case: str
    dtype: str
    threads: int
    ours: float
    peer: float | None
    peer_name: str | None
    unit: str
    ratio: float | None
    provenance: str
    machine: str


class WrongResult(Exception):
    """Somebody computed something else than the reference; says who and by how much."""


def row(
    case: str, options: Options, ours: float, peer: float | None, peer_name: str | None, unit: str,
    provenance: str = "measured",
) -> Row:  # fmt: skip
    ratio = None if peer is None else round(peer / ours, 4)
    return Row(
        case,
        options.dtype,
        options.threads,
        _short(ours),
        _short(peer),
        peer_name,
        unit,
        ratio,
        provenance,
        str(host()),
    )


def _short(value: float | None) -> Any:
    return None if value is None else float(f"{value:.6g}")


def run_case(case: Case, options: Options) -> list[Row]:
    """Prepare, check, time in turn, check again; one row per peer (one without a peer when there is none)."""
    prepared = case.prepare(options)
    if isinstance(prepared, list):
        return prepared
    functions = {"ours": prepared.ours, **prepared.peers}
    want = prepared.reference() if prepared.reference is not None else None
    _check_all(functions, want, prepared)
    timings = interleave(functions, seconds=options.seconds)
    _check_all({"ours": prepared.ours}, want, prepared)
    return _rows(case, options, timings)


def _check_all(functions: dict[str, Callable[[], Any]], want: Any, prepared: Prepared) -> None:
    for name, run in functions.items():
        got = run()
        if want is None:
            continue
        error = prepared.check(to_numpy(got), want)
        if not error <= prepared.tolerance:  # also when it is NaN
            raise WrongResult(f"{name}: relative error {error:.2e}, allowed {prepared.tolerance:.0e}")


def _rows(case: Case, options: Options, timings: dict[str, Timing]) -> list[Row]:
    scale = _UNITS[case.unit]
    ours = timings["ours"].median * scale
    peers = [(name, t.median * scale) for name, t in timings.items() if name != "ours"]
    return [row(case.name, options, ours, peer, name, case.unit) for name, peer in peers or [(None, None)]]


# ---------------------------------------------------------------- data


def random(shape: Sequence[int], dtype: str, name: str, scale: float = 1.0) -> Array:
    """Normal random data; a different stream for every name, the same in every run."""
    seed = [*name.encode(), *shape]
    values = np.random.default_rng(seed).standard_normal(tuple(shape), dtype=np.float32)
    return (values * np.float32(scale)).astype(NUMPY[dtype])


def to_torch(array: Array) -> Any:
    """The same memory as a torch tensor."""
    import torch

    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def to_numpy(value: Any) -> Any:
    """Results as NumPy, whoever computed them (dicts and tuples are left to the case's own check)."""
    if type(value).__module__.partition(".")[0] == "torch":
        return value.detach().double().numpy()
    return value


# ---------------------------------------------------------------- the whole run


def run_all(cases: Iterable[Case], options: Options, json_file: Path | None, title: str) -> int:
    """Run the cases, write each row as soon as it is known, print the table; the number of failures."""
    console = Console()
    busy = _busy()
    table = _table(title, options)
    rows: list[Row] = []
    failures: list[str] = []
    stream = json_file.open("w", encoding="utf-8") if json_file is not None else None
    try:
        for case in cases:
            with console.status(f"{case.name} {options.dtype}"):
                found = _guarded(case, options, failures)
            rows += found
            _write(stream, found)
            for r in found:
                _add(table, r)
    finally:
        if stream is not None:
            stream.close()
    console.print(table)
    _print_means(console, rows)
    if busy:
        console.print(f"[yellow]{busy}[/]", highlight=False)
    for text in failures:
        console.print(f"[red]failed[/] {escape(text)}", highlight=False, soft_wrap=True)
    return len(failures)


def _busy() -> str:
    """What to say of figures taken while others use the processor."""
    try:
        load, cores = os.getloadavg()[0], host().usable_cores
    except OSError:
        return ""
    if load < 0.5 * cores:
        return ""
    return f"the machine was busy before (load {load:.1f} on {cores} cores): do not trust these figures"


def _guarded(case: Case, options: Options, failures: list[str]) -> list[Row]:
    """One case that fails must not hide the others, but it must be seen."""
    try:
        return run_case(case, options)
    except Exception as error:
        text = str(error).splitlines()[0] if str(error) else ""
        failures.append(f"{case.name} {options.dtype}: {type(error).__name__}: {text}")
        return []


def _write(stream: TextIO | None, rows: list[Row]) -> None:
    if stream is not None:
        for r in rows:
            stream.write(json.dumps(asdict(r)) + "\n")
        stream.flush()


def _table(title: str, options: Options) -> Table:
    made = Table(
        title=f"{title}, {options.dtype}, {options.threads} threads", title_justify="left", box=None, pad_edge=False
    )
    made.add_column("case")
    for name in ("ours", "peer"):
        made.add_column(name, justify="right")
    made.add_column("peer name")
    made.add_column("ratio", justify="right")
    return made


def _add(table: Table, r: Row) -> None:
    peer = "-" if r.peer is None else f"{r.peer:.4g} {r.unit}"
    ratio = "-" if r.ratio is None else f"{r.ratio:.2f}"
    colour = "dim" if r.ratio is None else "green" if r.ratio >= 1 else "yellow"
    table.add_row(r.case, f"{r.ours:.4g} {r.unit}", peer, r.peer_name or "-", f"[{colour}]{ratio}[/]")


def _print_means(console: Console, rows: list[Row]) -> None:
    """The geometric mean per peer: ratios multiply. Bars are targets, not peers, so they have none."""
    for name in dict.fromkeys(r.peer_name for r in rows if r.peer_name not in (None, "bar")):
        ratios = [r.ratio for r in rows if r.peer_name == name and r.ratio]
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        console.print(f"geometric mean against {name}: {mean:.3f} over {len(ratios)} cases", highlight=False)
    if rows:
        console.print(f"machine: {rows[0].machine}", highlight=False, markup=False)


def peer_versions(peers: Sequence[str]) -> str:
    """Names with versions for the title, for a figure without its peer's version says little."""
    import importlib.metadata

    def version(name: str) -> str:
        try:
            return f"{name} {importlib.metadata.version(name.partition('.')[0])}"
        except importlib.metadata.PackageNotFoundError:
            return f"{name} (not installed)"

    return ", ".join(map(version, peers))
