"""`tilewright inspect`: what a model is made of, and what compiling it makes of that."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import typer
from rich.markup import escape

from ..runtime.machine import host
from ..runtime.threads import MAX_THREADS
from . import reports, show
from .loading import assumed_shapes, compile_model, graph_of, load


def inspect(
    model: Path = typer.Argument(..., help="An ONNX file."),
    graph_only: bool = typer.Option(False, "--graph-only", help="Do not compile: no regions and no memory plan."),
    dim: list[str] = typer.Option([], "--dim", help="NAME=NUMBER: fixes a free dim of the inputs."),
    fix: list[str] = typer.Option([], "--fix", help="NAME=NUMBER: makes an input this constant."),
    threads: int = typer.Option(0, min=0, max=MAX_THREADS, help="Threads to compile for (default: physical cores)."),
    json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Inputs, outputs, ops, fused regions and the memory plan of a model.

    Examples:

      tilewright inspect model.onnx

      tilewright inspect detector.onnx --dim batch=1 --dim height=480 --dim width=640

      tilewright inspect model.onnx --graph-only --json
    """
    loaded = load(model, dim, fix)
    shapes = None if graph_only else assumed_shapes(loaded)
    summary = graph_summary(graph_of(loaded, shapes))
    report = None
    if shapes is not None:
        report = compile_model(loaded, threads or host().usable_physical_cores, shapes).report()
    if json:
        show.print_json({"model": str(model), **summary, "report": report.to_json() if report is not None else None})
        return
    _print(summary, report)


def graph_summary(graph: Any) -> dict[str, Any]:
    """The graph in numbers. Constants and inputs are not counted as ops."""
    values = [v for n in graph.nodes for v in n.inputs if v is not None and v.is_constant]
    weights = {id(v.node): v.constant for v in values}
    ops = Counter(n.op for n in graph.nodes if n.op not in ("constant", "input"))
    return {
        "name": graph.name,
        "inputs": [{"name": n, "type": str(v.type)} for n, v in zip(graph.input_names, graph.inputs)],
        "outputs": [{"name": n, "type": str(v.type)} for n, v in zip(graph.output_names, graph.outputs)],
        "ops": dict(ops.most_common()),
        "nodes": sum(ops.values()),
        "parameters": sum(int(a.size) for a in weights.values()),
        "parameter_bytes": sum(int(a.nbytes) for a in weights.values()),
    }


def _print(summary: dict[str, Any], report: Any) -> None:
    table = show.table(f"graph {escape(summary['name'])}", "", "name", "type")
    for kind in ("inputs", "outputs"):
        for item in summary[kind]:
            table.add_row(kind[:-1], escape(item["name"]), escape(item["type"]))
    show.out.print(table, "", sep="\n")
    ops = show.table(f"{summary['nodes']} nodes", "op", "count", numbers=("count",))
    for name, count in summary["ops"].items():
        ops.add_row(name, str(count))
    show.out.print(ops)
    show.out.print(f"{summary['parameters']:,} parameters, {show.size(summary['parameter_bytes'])}", highlight=False)
    if report is not None:
        show.out.print("", reports.regions_table(report.regions), "", reports.memory_table(report.memory), sep="\n")
