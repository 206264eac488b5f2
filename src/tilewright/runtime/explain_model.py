"""A model at every level, as text: its graph, the graph after each pass, its regions, one region in machine code."""

from __future__ import annotations

from dataclasses import replace

from ..errors import ArgumentError
from ..ir.graph.core import Graph
from .explain import schedule_text
from .native import Native, Ready
from .stages import stages


def explain_model(source: Graph, native: Native, *, passes: bool = False, region: int | None = None,
                  llvm: bool = False, assembly: bool = False) -> str:
    """Without `region`: the graphs and the list of regions. With it: everything about that one."""
    ready = native.in_order()
    if region is not None or llvm or assembly:
        parts = _region(native, ready, region, llvm, assembly)
    else:
        parts = [*_graphs(source, native, passes), (f"Regions for {native.target.name}", _regions(ready))]
    return "\n\n".join(f"== {title} ==\n{text.rstrip()}" for title, text in parts) + "\n"


def _graphs(source: Graph, native: Native, passes: bool) -> list[tuple[str, str]]:
    from ..ir.graph.printer import print_graph
    from .model import prepare

    parts = [("Graph IR as loaded", print_graph(source))]
    before = [source]

    def watch(name: str, after: Graph) -> None:
        if after == before[0]:
            parts.append((f"Graph IR after {name}", "(no change)"))
        else:
            parts.append((f"Graph IR after {name}", print_graph(after)))
        before[0] = after

    if passes:
        prepare(source, {n: v.type.static_shape for n, v in zip(native.graph.input_names, native.graph.inputs,
                                                               strict=True)}, watch)
    else:
        parts.append(("Graph IR after all passes", print_graph(native.graph)))
    return parts


def _regions(ready: list[Ready]) -> str:
    lines = []
    for k, r in enumerate(ready):
        shape = "x".join(str(n) for n in r.bindings[-1].shape)
        lines.append(f"{k:4}  {r.launch.kernel.name:16} {r.launch.region:28} -> {shape:20} {_first(r)}".rstrip())
    return "\n".join(lines) + "\n\nOne of them at every level: region=NUMBER (on the command line --region NUMBER)"


def _first(r: Ready) -> str:
    return next((n.name for n in r.launch.nodes if n.name), "")


def _region(native: Native, ready: list[Ready], region: int | None, llvm: bool, assembly: bool
            ) -> list[tuple[str, str]]:
    from ..ir.scheduled.printer import program_text
    from ..ir.tile.printer import kernel_text
    from ..schedule.schedule import Schedule
    from ..targets.llvm import backend

    if region is None or not 0 <= region < len(ready):
        raise ArgumentError(f"which region? the model has 0 to {len(ready) - 1}", hint="give region=NUMBER")
    r = ready[region]
    at = replace(stages(r.launch.kernel, r.launch.facts, native.target), schedule=Schedule.from_json(r.schedule))
    program = at.program()
    nodes = "\n".join(f"{n.op:16} {n.name or '-':40} {n.types[0]}" for n in r.launch.nodes)
    parts = [
        (f"Region {region}: {r.launch.region}", nodes or "(a copy)"),
        ("Tile IR", kernel_text(at.kernel)),
        (f"Schedule for {native.target.name}", schedule_text(r.schedule)),
        ("Scheduled IR", program_text(program)),
    ]
    if llvm or assembly:
        expanded = backend.expanded(program, native.target)
        if llvm:
            parts.append(("LLVM IR", backend.llvm_ir(expanded, native.target)))
        if assembly:
            parts.append(("Assembly", backend.assembly(expanded, native.target)))
    return parts
