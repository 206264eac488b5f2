"""The rules a graph keeps. A pass that breaks one has a fault; the error names the node."""

from __future__ import annotations

from typing import Any, NoReturn

from ...errors import TilewrightError, VerifyError
from .core import Graph, Node
from .dims import Dim, DimExpr, Symbol
from .make import make
from .spec import SPECS


def verify(graph: Graph) -> None:
    """Raise VerifyError unless every node is what the spec table allows and the graph is closed."""
    _check_interface(graph)
    listed = set(graph.inputs)
    symbols: dict[str, Symbol] = {}
    for node in graph.nodes:
        for t in node.types:
            for d in t.shape:
                _check_symbols(d, symbols, node)
        if node.op == "input":
            if node.out() not in listed:
                _fail(node, f"reads input '{node.attr('name')}', which graph '{graph.name}' does not list")
        elif node.op == "constant":
            value = node.attr("value")
            t = node.types[0]
            if value is None or value.array.shape != t.shape or value.array.dtype != t.dtype.numpy:
                _fail(node, f"holds data that is not {t}")
        else:
            _check_node(node)


def _check_interface(graph: Graph) -> None:
    names = graph.input_names
    if any(v.node.op != "input" for v in graph.inputs):
        raise VerifyError(f"graph '{graph.name}' lists an input that is not an input node")
    for what, found in (("inputs", names), ("outputs", graph.output_names)):
        if len(set(found)) != len(found):
            raise VerifyError(f"graph '{graph.name}' has two {what} of one name: {', '.join(found)}")
    if len(graph.outputs) != len(graph.output_names):
        raise VerifyError(f"graph '{graph.name}' has {len(graph.outputs)} outputs, but {len(graph.output_names)} names")


def _check_node(node: Node) -> None:
    if node.op not in SPECS:
        _fail(node, "is not an op of the Graph IR")
    for i, v in enumerate(node.inputs):
        if v is not None and not 0 <= v.index < len(v.node.types):
            _fail(node, f"operand {i} is result {v.index} of '{v.node.op}', which has {len(v.node.types)}")
    for _, value in node.attrs:
        if isinstance(value, Graph):
            verify(value)
    attrs: dict[str, Any] = dict(node.attrs)
    try:
        again = make(node.op, *node.inputs, loc=node.loc, name=node.name, **attrs)
    except TilewrightError as e:
        raise VerifyError(f"node '{node.name}': {e.message}", loc=node.loc) from None
    if again.types != node.types:
        _fail(node, f"has results {_types(node)}, but its type rule says {_types(again)}")
    if again.attrs != node.attrs:
        _fail(node, "has attributes that are not in their canonical form")


def _types(node: Node) -> str:
    return ", ".join(map(str, node.types))


def _check_symbols(d: Dim, seen: dict[str, Symbol], node: Node) -> None:
    for symbol in symbols_of(d):
        if seen.setdefault(symbol.name, symbol) != symbol:
            _fail(node, f"uses the dim '{symbol.name}' with other bounds than a node before it")


def symbols_of(d: Dim) -> list[Symbol]:
    """The symbols of a dim, with their bounds."""
    if not isinstance(d, DimExpr):
        return []
    out: list[Symbol] = []
    for atom, _ in d.terms:
        out += [atom] if isinstance(atom, Symbol) else symbols_of(atom.a) + symbols_of(atom.b)
    return out


def _fail(node: Node, message: str) -> NoReturn:
    raise VerifyError(f"'{node.op}' (node '{node.name}') {message}", loc=node.loc)
