"""Tables that more than one command prints: parity, latency, regions, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from ..certify.compare import Parity
from ..evidence import Evidence
from . import show


def parity_table(title: str, found: Sequence[Parity]) -> Table:
    table = show.table(
        title, "tensor", "shape", "relative error", "tolerance", "largest difference", "",
        numbers=("relative error", "tolerance", "largest difference"),
    )  # fmt: skip
    for p in found:
        mark = "[green]equal[/]" if p.ok else "[red]differs[/]"
        table.add_row(
            escape(p.name), "x".join(map(str, p.shape)) or "scalar", f"{p.error:.2e}", f"{p.tolerance:.0e}",
            f"{p.largest:.2e}", mark,
        )  # fmt: skip
    return table


def verdict(found: Sequence[Parity], worst: Parity | None) -> str:
    bad = [p for p in found if not p.ok]
    if worst is None:
        return "verdict: nothing to compare"
    if not bad:
        most = f"{worst.error:.2e} ({escape(worst.name)})"
        count = f"{len(found)} tensor{'s' if len(found) > 1 else ''}"
        return f"verdict: [green]equal[/], {count}, worst relative error {most}"
    first = bad[0]
    return (
        f"verdict: [red]different[/], {len(bad)} of {len(found)} tensors; "
        f"the first is {escape(first.name)} with a relative error of {first.error:.2e} "
        f"(no element is off by more than {first.largest:.2e})"
    )


def latency_table(latency: Mapping[str, Evidence]) -> Table:
    table = show.table("latency", "who", "median", "relative", numbers=("median", "relative"))
    ours = latency["tilewright"].value
    for name, value in latency.items():
        table.add_row(name, show.time(value), f"{value.value / ours:.2f}x of ours" if name != "tilewright" else "")
    return table


def regions_table(regions: Sequence[Any], title: str = "regions") -> Table:
    """`regions` as a report has them, in the order they run. Times and shares only where they were measured."""
    timed = [r.milliseconds.value for r in regions if r.milliseconds is not None]
    columns = ("#", "region", "at node", "kernel", *(("time", "of peak") if timed else ()))
    table = show.table(title, *columns, numbers=("#", "time", "of peak"))
    for r in regions:
        cells = [str(r.number), escape(str(r.name)), escape(_node(r)), escape(str(r.kernel))]
        if timed:
            share = r.fraction_of_peak
            percent = "-" if share is None else f"{share.value:.1%} [dim]{escape(f'[{share.provenance}]')}[/]"
            cells += [show.time(r.milliseconds), percent]
        table.add_row(*cells)
    if timed:
        table.caption = f"{sum(timed):.4g} ms in {len(timed)} regions"
        table.caption_justify = "left"
    return table


def _node(region: Any) -> str:
    """The first node of a region, and how many more it has."""
    if not region.nodes:
        return "-"
    more = len(set(region.nodes)) - 1
    return f"{region.nodes[0]}{f' +{more}' if more else ''}"


def slowest(regions: Sequence[Any], count: int) -> list[Any]:
    timed = [r for r in regions if r.milliseconds is not None]
    return sorted(timed, key=lambda r: -r.milliseconds.value)[:count]


def memory_table(memory: Any) -> Table:
    table = show.table("memory plan", "what", "bytes", numbers=("bytes",))
    table.add_row("weights", show.size(memory.weights_bytes))
    table.add_row("intermediate tensors (one arena, reused)", show.size(memory.arena_bytes))
    table.add_row("the least any plan could need", show.size(memory.lower_bound_bytes))
    return table
