"""The text form of a graph. `parser.parse` reads it back to the same (interned) nodes.

    graph "mlp"
    symbols N: 1..64 % 8
    input %0 "x": f32[N, 16]
    %1 = constant f32[16, 4] @5c1f...
    %2 = matmul %0 %1 {acc = none} : f32[N, 4] name "fc"
    %3:2 = topk %2 {axis = 1, k = 2, largest = true, sorted = true} : f32[N, 2], i64[N, 2]
    output "y" = %3#0
    end

Constants of up to 16 elements are written out (a NaN as the bits of its value); larger ones by digest, their data in a
side table. A symbol whose name is no identifier, or a word of this language, stands in back quotes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import MutableMapping
from typing import Any, TypeAlias

import numpy as np

from ..types import BY_NAME, DType, Loc
from .core import ArrayRef, Graph, Node, TensorType, Value
from .dims import Compound, Dim, DimExpr, Symbol
from .verify import symbols_of

Array: TypeAlias = np.ndarray[Any, Any]
INLINE = 16
WORDS = frozenset({"true", "false", "none", "inf", "nan", "max", "min", "broadcast", "graph", *BY_NAME})
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*\Z")


def print_graph(graph: Graph, constants: MutableMapping[str, Array] | None = None) -> str:
    """The text; the data of large constants goes into `constants` by digest."""
    return _Printer({} if constants is None else constants).graph(graph, "") + "\n"


def dim_text(d: Dim) -> str:
    if isinstance(d, int):
        return str(d)
    parts = []
    for atom, c in d.terms:
        text = _atom_text(atom)
        parts.append(text if c == 1 else f"{c}*{text}")
    if d.const:
        parts.append(str(d.const))
    return " + ".join(parts)


def _atom_text(atom: Symbol | Compound) -> str:
    if isinstance(atom, Symbol):
        return symbol_text(atom.name)
    a, b = dim_text(atom.a), dim_text(atom.b)
    if atom.op in ("max", "min", "broadcast"):
        return f"{atom.op}({a}, {b})"
    sign = {"floordiv": "//", "mod": "%", "mul": "*"}[atom.op]
    return f"(({a}) {sign} ({b}))"


def symbol_text(name: str) -> str:
    if _IDENTIFIER.match(name) and name not in WORDS:
        return name
    return "`" + json.dumps(name)[1:-1].replace("`", "\\u0060") + "`"


def type_text(t: TensorType) -> str:
    return f"{t.dtype}[{', '.join(map(dim_text, t.shape))}]"


def float_text(x: float) -> str:
    return "nan" if math.isnan(x) else "inf" if x == math.inf else "-inf" if x == -math.inf else repr(float(x))


class _Printer:
    def __init__(self, constants: MutableMapping[str, Array]) -> None:
        self.constants = constants

    def graph(self, graph: Graph, indent: str) -> str:
        names: dict[int, str] = {}
        lines = [f"graph {json.dumps(graph.name)}"]
        symbols = sorted(self._symbols(graph).values(), key=lambda s: s.name)
        if symbols:
            lines.append("symbols " + ", ".join(map(self._symbol, symbols)))
        for i, v in enumerate(graph.inputs):
            names[id(v.node)] = f"%{i}"
            lines.append(f"input %{i} {json.dumps(str(v.node.attr('name')))}: {type_text(v.type)}{self._where(v.node)}")
        count = len(graph.inputs)
        for node in graph.nodes:
            if node.op == "input":
                continue
            names[id(node)] = f"%{count}"
            lines.append(self._node(node, names, indent + "  "))
            count += 1
        for name, v in zip(graph.output_names, graph.outputs, strict=True):
            lines.append(f"output {json.dumps(name)} = {self._value(v, names)}")
        for v, name in graph.value_names.items():
            if id(v.node) in names:
                lines.append(f"called {json.dumps(name)} = {self._value(v, names)}")
        lines.append("end")
        return f"\n{indent}".join(lines)

    def _symbols(self, graph: Graph) -> dict[str, Symbol]:
        found: dict[str, Symbol] = {}

        def note(x: Any) -> None:
            if isinstance(x, DimExpr):
                for s in symbols_of(x):
                    found.setdefault(s.name, s)
            elif isinstance(x, tuple):
                for y in x:
                    note(y)

        for v in graph.inputs:
            note(v.shape)
        for node in graph.nodes:
            for t in node.types:
                note(t.shape)
            for _, value in node.attrs:
                note(value)
        return found

    def _symbol(self, s: Symbol) -> str:
        top = "" if s.hi is None else str(s.hi)
        step = "" if s.multiple == 1 else f" % {s.multiple}"
        return f"{symbol_text(s.name)}: {s.lo}..{top}{step}"

    def _value(self, v: Value, names: dict[int, str]) -> str:
        name = names[id(v.node)]
        return name if len(v.node.types) == 1 else f"{name}#{v.index}"

    def _node(self, node: Node, names: dict[int, str], indent: str) -> str:
        head = names[id(node)] + (f":{len(node.types)}" if len(node.types) != 1 else "")
        if node.op == "constant":
            return f"{head} = constant {self._constant(node.attr('value'), node.types[0])}{self._where(node)}"
        operands = "".join(" _" if v is None else f" {self._value(v, names)}" for v in node.inputs)
        attrs = ", ".join(f"{k} = {self._attr(a, indent)}" for k, a in node.attrs)
        block = f" {{{attrs}}}" if attrs else ""
        types = ", ".join(map(type_text, node.types))
        return f"{head} = {node.op}{operands}{block} : {types}{self._where(node)}"

    def _constant(self, ref: ArrayRef, t: TensorType) -> str:
        if ref.array.size > INLINE:
            self.constants[ref.digest] = ref.array
            return f"{type_text(t)} @{ref.digest}"
        return f"{type_text(t)} [{', '.join(element_text(x, t.dtype) for x in ref.array.reshape(-1))}]"

    def _attr(self, x: Any, indent: str) -> str:
        if x is None:
            return "none"
        if isinstance(x, bool):
            return "true" if x else "false"
        if isinstance(x, float):
            return float_text(x)
        if isinstance(x, str):
            return json.dumps(x)
        if isinstance(x, DType):
            return x.name
        if isinstance(x, (int, DimExpr)):
            return dim_text(x)
        if isinstance(x, Graph):
            return self.graph(x, indent)
        assert isinstance(x, tuple), f"an attribute of type {type(x).__name__} has no text"
        return "[" + ", ".join(self._attr(y, indent) for y in x) + "]"

    def _where(self, node: Node) -> str:
        name = f" name {json.dumps(node.name)}" if node.name and node.op != "input" else ""
        return name + (f" at {loc_text(node.loc)}" if node.loc is not None else "")


def loc_text(loc: Loc) -> str:
    inner = "" if loc.inlined_at is None else f" from {loc_text(loc.inlined_at)}"
    return f"{json.dumps(loc.file)} {loc.line} {loc.col} {loc.end_col}{inner}"


def element_text(x: Any, dtype: DType) -> str:
    if dtype.is_bool:
        return "true" if x else "false"
    if not dtype.is_float:
        return str(int(x))
    if math.isnan(float(x)):
        return hex(int(np.asarray(x, dtype.numpy).view(f"u{dtype.itemsize}")))
    return float_text(float(x))
