"""Bind input dims to integers, and work out every type again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import ArgumentError, ShapeError
from ...ir.graph.core import Graph, TensorType, graph_input
from ...ir.graph.dims import Dim, DimExpr, Symbol, substitute, symbols
from .rewrite import sweep


def specialise(graph: Graph, bindings: Mapping[str, int | Sequence[int]]) -> Graph:
    """`bindings` maps a symbol to its value, or an input's name to its shape."""
    dims: dict[str, Dim] = {}
    known = {s for v in graph.inputs for d in v.shape for s in symbols(d)}
    for name, given in bindings.items():
        if isinstance(given, int):
            if name not in known:
                raise ArgumentError(
                    f"graph '{graph.name}' has no dim '{name}' (it has: {', '.join(sorted(known)) or 'none'})"
                )
            _bind(dims, name, given, f"dim '{name}'")
            continue
        value = next((v for v in graph.inputs if v.node.attr("name") == name), None)
        if value is None:
            raise ArgumentError(f"graph '{graph.name}' has no input '{name}' (it has: {', '.join(graph.input_names)})")
        if len(given) != value.type.rank:
            raise ShapeError(f"input '{name}' is {value.type}: the shape {list(given)} has another rank")
        for axis, (d, n) in enumerate(zip(value.shape, given, strict=True)):
            where = f"axis {axis} of input '{name}' ({value.type})"
            if isinstance(d, int):
                if d != n:
                    raise ShapeError(f"{where} is {d}, not {n}")
                continue
            only = d.terms[0][0] if len(d.terms) == 1 else None
            if isinstance(only, Symbol) and (n - d.const) % d.terms[0][1] == 0:
                _bind(dims, only.name, (n - d.const) // d.terms[0][1], where, only)
            elif substitute(d, dims) != n:
                raise ShapeError(f"{where} cannot be {n}")
    inputs = []
    for v in graph.inputs:
        shape = tuple(substitute(d, dims) for d in v.shape)
        for d in v.shape:
            _check(d, dims, str(v.node.attr("name")))
        inputs.append(graph_input(str(v.node.attr("name")), TensorType(v.dtype, shape), loc=v.node.loc))
    return sweep(graph, lambda node, uses: None, inputs=inputs, dims=dims)


def _bind(dims: dict[str, Dim], name: str, value: int, where: str, symbol: Symbol | None = None) -> None:
    if dims.setdefault(name, value) != value:
        raise ShapeError(f"{where} makes {name} = {value}, but it is {dims[name]} elsewhere")


def _check(d: Dim, dims: Mapping[str, Dim], name: str) -> None:
    if not isinstance(d, DimExpr):
        return
    for atom, _ in d.terms:
        value: Any = dims.get(atom.name) if isinstance(atom, Symbol) else None
        if isinstance(atom, Symbol) and isinstance(value, int):
            if value < atom.lo or (atom.hi is not None and value > atom.hi) or value % atom.multiple:
                allowed = f"at least {atom.lo}" if atom.hi is None else f"from {atom.lo} to {atom.hi}"
                allowed += f", a multiple of {atom.multiple}" if atom.multiple > 1 else ""
                hint = f"for an empty axis, load the model with dims={{'{atom.name}': 0}}" if value == 0 else ""
                message = f"{atom.name} = {value} (input '{name}') is outside the bounds of that dim ({allowed})"
                raise ShapeError(message, hint=hint)
