"""Read the text form of a graph (see `printer`). Nodes are made through the spec table, so text that is well formed but
does not type is refused as well. Every refusal is a ParseError with line and column."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import numpy as np

from ...errors import ParseError, TilewrightError
from ..types import BY_NAME, DType, Loc
from .core import ArrayRef, Graph, Node, TensorType, Value, constant, graph_input
from .dims import Dim, DimExpr, dim_broadcast, dim_max, dim_min, floordiv, mod, symbol
from .make import make

Array: TypeAlias = np.ndarray[Any, Any]
MAX_DEPTH = 64
MAX_TERMS = 512
_TOKEN = re.compile(
    r"""(?P<space>[ \t\r\n]+)|(?P<string>"(?:[^"\\\n]|\\.)*")|(?P<quoted>`(?:[^`\\\n]|\\.)*`)
    |(?P<digest>@[0-9a-f]{32})|(?P<hex>0x[0-9a-f]+)
    |(?P<float>[0-9]+(?:\.[0-9]+(?:e[+-]?[0-9]+)?|e[+-]?[0-9]+))|(?P<int>[0-9]+)
    |(?P<word>[A-Za-z_][A-Za-z0-9_.]*)|(?P<value>%[0-9]+)
    |(?P<sign>\.\.|//|[=:,\[\]{}()+\-*%\#])""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    at: int


def parse(text: str, constants: Mapping[str, Array] | None = None) -> Graph:
    """The graph of a text. `constants` has the data of large constants by digest."""
    parser = _Parser(text, constants or {})
    graph = parser.graph()
    parser.expect_kind("end")
    return graph


class _Parser:
    def __init__(self, text: str, constants: Mapping[str, Array]) -> None:
        self.text = text
        self.constants = constants
        self.tokens = self._lex()
        self.at = 0
        self.depth = 0

    # tokens

    def _lex(self) -> list[Token]:
        out, at = [], 0
        while at < len(self.text):
            m = _TOKEN.match(self.text, at)
            if m is None:
                self.fail(f"no word of the language starts with {self.text[at]!r}", at)
            kind = m.lastgroup or ""
            if kind != "space":
                out.append(Token(kind, m.group(), at))
            at = m.end()
        out.append(Token("end", "", len(self.text)))
        return out

    def fail(self, message: str, at: int | None = None) -> NoReturn:
        place = self.tokens[self.at].at if at is None else at
        line = self.text.count("\n", 0, place) + 1
        column = place - (self.text.rfind("\n", 0, place) + 1) + 1
        raise ParseError(f"line {line}, column {column}: {message}")

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def next(self) -> Token:
        t = self.tokens[self.at]
        self.at = min(self.at + 1, len(self.tokens) - 1)
        return t

    def expect(self, text: str) -> Token:
        if self.token.text != text:
            self.fail(f"expected '{text}', found '{self.token.text or 'the end'}'")
        return self.next()

    def expect_kind(self, kind: str) -> Token:
        if self.token.kind != kind:
            self.fail(f"expected {kind}, found '{self.token.text or 'the end'}'")
        return self.next()

    def take(self, text: str) -> bool:
        if self.token.text == text and self.token.kind in ("word", "sign"):
            self.next()
            return True
        return False

    def string(self) -> str:
        t = self.expect_kind("string")
        try:
            value = json.loads(t.text)
        except ValueError as e:
            self.fail(f"the string is not well formed: {e}", t.at)
        return str(value)

    def integer(self) -> int:
        negative = self.take("-")
        t = self.expect_kind("int")
        if len(t.text) > 40:
            self.fail("the number is too long", t.at)
        return -int(t.text) if negative else int(t.text)

    # graphs

    def graph(self) -> Graph:
        self.enter()
        self.expect("graph")
        name = self.string()
        scope = _Scope()
        if self.take("symbols"):
            self._declare(scope)
            while self.take(","):
                self._declare(scope)
        inputs: list[Value] = []
        while self.take("input"):
            inputs.append(self._input(scope))
        while self.token.kind == "value":
            self._node(scope)
        outputs: list[Value] = []
        names: list[str] = []
        while self.take("output"):
            names.append(self.string())
            self.expect("=")
            outputs.append(self._value(scope))
        called: dict[Value, str] = {}
        while self.take("called"):
            text = self.string()
            self.expect("=")
            called[self._value(scope)] = text
        self.expect("end")
        self.depth -= 1
        if len(set(names)) != len(names):
            self.fail("two outputs have one name")
        return Graph(name, inputs, outputs, names, called)

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail("nested too deeply")

    def _declare(self, scope: _Scope) -> None:
        at = self.token.at
        name = self._symbol_name()
        if name in scope.symbols:
            self.fail(f"the symbol '{name}' is declared twice", at)
        self.expect(":")
        lo = self.integer()
        self.expect("..")
        hi = self.integer() if self.token.kind == "int" else None
        multiple = self.integer() if self.take("%") else 1
        if multiple < 1 or (hi is not None and hi < lo):
            self.fail(f"the bounds of '{name}' are empty", at)
        scope.symbols[name] = symbol(name, lo, hi, multiple)

    def _symbol_name(self) -> str:
        t = self.next()
        if t.kind == "quoted":
            try:
                return str(json.loads('"' + t.text[1:-1] + '"'))
            except ValueError as e:
                self.fail(f"the symbol is not well formed: {e}", t.at)
        if t.kind != "word":
            self.fail(f"expected a symbol, found '{t.text or 'the end'}'", t.at)
        return t.text

    def _input(self, scope: _Scope) -> Value:
        t = self.expect_kind("value")
        name = self.string()
        self.expect(":")
        v = graph_input(name, self._type(scope), loc=self._loc() if self.take("at") else None)
        self._define(scope, t, v.node)
        return v

    def _define(self, scope: _Scope, t: Token, node: Node) -> None:
        if t.text in scope.nodes:
            self.fail(f"{t.text} is defined twice", t.at)
        scope.nodes[t.text] = node

    def _node(self, scope: _Scope) -> None:
        head = self.next()
        results = self.integer() if self.take(":") else 1
        self.expect("=")
        op = self.expect_kind("word")
        if op.text == "constant":
            self._define(scope, head, self._constant(scope))
            return
        inputs: list[Value | None] = []
        while self.token.kind == "value" or self.token.text == "_":
            if self.take("_"):
                inputs.append(None)
            else:
                inputs.append(self._value(scope))
        attrs: dict[str, Any] = {}
        if self.take("{"):
            self._attr(scope, attrs)
            while self.take(","):
                self._attr(scope, attrs)
            self.expect("}")
        self.expect(":")
        types = [self._type(scope)]
        while self.take(","):
            types.append(self._type(scope))
        name = self.string() if self.take("name") else ""
        loc = self._loc() if self.take("at") else None
        try:
            node = make(op.text, *inputs, loc=loc, name=name, **attrs)
        except TilewrightError as e:
            self.fail(e.message, op.at)
        except (ValueError, ArithmeticError, IndexError, TypeError, AssertionError, MemoryError) as e:
            self.fail(f"'{op.text}' does not fit its operands: {e}", op.at)
        if len(node.types) != results or node.types != tuple(types):
            self.fail(f"the results of '{op.text}' are {', '.join(map(str, node.types))}", op.at)
        self._define(scope, head, node)

    def _value(self, scope: _Scope) -> Value:
        t = self.expect_kind("value")
        node = scope.nodes.get(t.text)
        if node is None:
            self.fail(f"{t.text} is not defined", t.at)
        index = self.integer() if self.take("#") else 0
        if not 0 <= index < len(node.types):
            self.fail(f"{t.text} has {len(node.types)} result(s)", t.at)
        return node.out(index)

    def _loc(self, depth: int = 0) -> Loc:
        if depth > MAX_DEPTH:
            self.fail("nested too deeply")
        file = self.string()
        line, col, end = self.integer(), self.integer(), self.integer()
        return Loc(file, line, col, end, self._loc(depth + 1) if self.take("from") else None)

    # constants and attributes

    def _constant(self, scope: _Scope) -> Node:
        t = self._type(scope)
        at = self.token.at
        if self.token.kind == "digest":
            digest = self.next().text[1:]
            data = self.constants.get(digest)
            if data is None:
                self.fail(f"the constant @{digest} is not in the side table", at)
            ref = ArrayRef(data)
            if ref.digest != digest or ref.array.shape != t.shape or ref.array.dtype != t.dtype.numpy:
                self.fail(f"the data of constant @{digest} is not what its digest and type {t} say", at)
        else:
            self.expect("[")
            elements: list[Any] = []
            while self.token.text != "]":
                if elements:
                    self.expect(",")
                elements.append(self._element(t.dtype))
            self.expect("]")
            if not t.is_static or math.prod(t.static_shape) != len(elements):
                self.fail(f"{len(elements)} elements are not {t}", at)
            ref = ArrayRef(np.array(elements, dtype=t.dtype.numpy).reshape(t.static_shape), own=True)
        name = self.string() if self.take("name") else ""
        return constant(ref, loc=self._loc() if self.take("at") else None, name=name).node

    def _element(self, dtype: DType) -> Any:
        at = self.token.at
        if dtype.is_bool:
            if self.token.text not in ("true", "false"):
                self.fail("expected true or false")
            return self.next().text == "true"
        if dtype.is_float:
            if self.token.kind == "hex":
                bits = int(self.next().text[:40], 16)
                if bits >= 1 << (8 * dtype.itemsize):
                    self.fail(f"the bits do not fit {dtype}", at)
                return np.array(bits, dtype=f"u{dtype.itemsize}").view(dtype.numpy)[()]
            return self._number()
        value = self.integer()
        info = np.iinfo(dtype.numpy)
        if not info.min <= value <= info.max:
            self.fail(f"{value} does not fit {dtype}", at)
        return value

    def _number(self) -> float:
        negative = self.take("-")
        t = self.next()
        if t.kind in ("float", "int") or t.text in ("inf", "nan"):
            return -float(t.text) if negative else float(t.text)
        self.fail(f"expected a number, found '{t.text or 'the end'}'", t.at)

    def _attr(self, scope: _Scope, attrs: dict[str, Any]) -> None:
        key = self.expect_kind("word")
        if key.text in attrs or key.text in ("op", "loc", "name"):
            self.fail(f"the attribute '{key.text}' cannot be given here", key.at)
        self.expect("=")
        attrs[key.text] = self._attr_value(scope)

    def _attr_value(self, scope: _Scope) -> Any:
        t = self.token
        if t.kind == "string":
            return self.string()
        if t.text == "graph" and t.kind == "word":
            return self.graph()
        if self.take("none"):
            return None
        if t.kind == "word" and t.text in ("true", "false"):
            return self.next().text == "true"
        if t.kind == "word" and t.text in BY_NAME:
            return BY_NAME[self.next().text]
        if self.take("["):
            self.enter()
            items: list[Any] = []
            while self.token.text != "]":
                if items:
                    self.expect(",")
                items.append(self._attr_value(scope))
            self.expect("]")
            self.depth -= 1
            return tuple(items)
        ahead = self.tokens[min(self.at + (t.text == "-"), len(self.tokens) - 1)]
        if ahead.kind == "float" or (ahead.kind == "word" and ahead.text in ("inf", "nan")):
            return self._number()
        return self._dim(scope)

    # types and dims

    def _type(self, scope: _Scope) -> TensorType:
        t = self.expect_kind("word")
        if t.text not in BY_NAME:
            self.fail(f"'{t.text}' is not an element type", t.at)
        self.expect("[")
        shape: list[Dim] = []
        while self.token.text != "]":
            if shape:
                self.expect(",")
            at = self.token.at
            shape.append(self._dim(scope))
            if isinstance(shape[-1], int) and shape[-1] < 0:
                self.fail("an extent may not be negative", at)
        self.expect("]")
        if len(shape) > MAX_DEPTH:
            self.fail("too many axes", t.at)
        return TensorType(BY_NAME[t.text], tuple(shape))

    def _dim(self, scope: _Scope) -> Dim:
        self.enter()
        at = self.token.at
        try:
            total = self._term(scope)
            while self.token.text in ("+", "-") and self.token.kind == "sign":
                total = total + self._term(scope) if self.next().text == "+" else total - self._term(scope)
        except ZeroDivisionError:
            self.fail("a dim divides by zero", at)
        self._check_size(total, at)
        self.depth -= 1
        return total

    def _term(self, scope: _Scope) -> Dim:
        at = self.token.at
        value = self._factor(scope)
        while self.token.text in ("*", "//", "%") and self.token.kind == "sign":
            sign = self.next().text
            other = self._factor(scope)
            value = value * other if sign == "*" else floordiv(value, other) if sign == "//" else mod(value, other)
            self._check_size(value, at)
        return value

    def _check_size(self, d: Dim, at: int) -> None:
        if isinstance(d, DimExpr):
            if len(d.terms) > MAX_TERMS:
                self.fail("the dim is too large an expression", at)
        elif abs(d) >= 1 << 127:
            self.fail("the dim is too large", at)

    def _factor(self, scope: _Scope) -> Dim:
        t = self.token
        if self.take("-"):
            self.enter()
            value = self._factor(scope) * -1
            self.depth -= 1
            return value
        if t.kind == "int":
            return self.integer()
        if self.take("("):
            value = self._dim(scope)
            self.expect(")")
            return value
        if t.kind == "word" and t.text in ("max", "min", "broadcast"):
            self.next()
            self.expect("(")
            a = self._dim(scope)
            self.expect(",")
            b = self._dim(scope)
            self.expect(")")
            fit = dim_broadcast(a, b) if t.text == "broadcast" else (dim_max if t.text == "max" else dim_min)(a, b)
            if fit is None:
                self.fail(f"extents {a} and {b} cannot be broadcast together", t.at)
            return fit
        name = self._symbol_name()
        if name not in scope.symbols:
            self.fail(f"the symbol '{name}' is not declared", t.at)
        return scope.symbols[name]


class _Scope:
    def __init__(self) -> None:
        self.symbols: dict[str, DimExpr] = {}
        self.nodes: dict[str, Node] = {}
