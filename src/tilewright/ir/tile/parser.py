"""Reads the text of `printer.py` back: recursive descent over tokens, every mistake a ParseError with line and column.

Nodes are made as they are written (`core.make`), so pure parts become the very nodes they were printed from; the
verifier then judges the whole. Names (`%n`) are visible to the end of the block that defines them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..text import Cursor
from ..types import i64
from .core import (
    MONOIDS,
    SCALAR_FNS,
    Axis,
    Extent,
    Full,
    Kernel,
    Node,
    ScalarParam,
    Shape,
    Static,
    TensorParam,
    TileOf,
    TileType,
    carried,
    const,
    make,
)
from .core import dim as dim_node
from .verify import verify

_INFIX = {"+": "add", "-": "sub", "*": "mul", "//": "floordiv", "%": "mod"}
_SIZE_FNS = ("min", "max")
ROLES = ("in", "out", "accumulate")

Reader: TypeAlias = Callable[["_Parser", TileType], Node]


def parse_kernel(text: str) -> Kernel:
    """The kernel a text describes, verified."""
    kernel = _Parser(text).kernel()
    verify(kernel)
    return kernel


class _Parser:
    def __init__(self, text: str) -> None:
        self.c = Cursor(text)
        self.scopes: list[dict[int, Node]] = [{}]
        self.axes: dict[str, Axis] = {}
        self.scalars: dict[str, ScalarParam] = {}
        self.tensors: dict[str, TensorParam] = {}

    # ------------------------------------------------------------------ the kernel

    def kernel(self) -> Kernel:
        c = self.c
        c.skip_newlines()
        c.expect("kernel")
        name = c.name()
        c.end_line()
        params: list[TensorParam | ScalarParam] = []
        while c.token.kind == "name" and c.token.text in (*ROLES, "scalar"):
            at = c.token
            p = self.param()
            if p.name in self.tensors or p.name in self.scalars:
                c.fail(f"parameter '{p.name}' is declared twice", at)
            params.append(p)
            if isinstance(p, TensorParam):
                self.tensors[p.name] = p
            else:
                self.scalars[p.name] = p
            c.end_line()
        effects, yields = self.block("")
        if yields:
            c.fail("a yield outside a loop or if")
        return Kernel(name, tuple(params), tuple(effects))

    def param(self) -> TensorParam | ScalarParam:
        c = self.c
        role, name = c.next().text, c.name()
        c.expect(":")
        dtype = c.dtype()
        if role == "scalar":
            return ScalarParam(name, dtype)
        dims: list[Node] = []
        c.expect("(")
        while not c.accept(")"):
            if dims:
                c.expect(",")
            dims.append(self.size())
        return TensorParam(name, dtype, tuple(dims), role)

    # ------------------------------------------------------------------ blocks and statements

    def block(self, end: str) -> tuple[list[Node], list[Node]]:
        """Lines up to `end` ('}' or the end of the text, neither consumed): effects and yielded values."""
        c = self.c
        c.enter()
        self.scopes.append({})
        effects: list[Node] = []
        yields: list[Node] = []
        c.skip_newlines()
        while not (c.peek(end) if end else c.token.kind == "end"):
            if yields:
                c.fail("a yield must be the last line of its block")
            if c.accept("yield"):
                yields = self.values()
            else:
                effect = self.statement()
                if effect is not None:
                    effects.append(effect)
            if not c.peek("}"):
                c.end_line()
        self.scopes.pop()
        c.leave()
        return effects, yields

    def statement(self) -> Node | None:
        """One line (or a whole loop or if); returns it when it is an effect."""
        c = self.c
        if c.accept("par"):
            return self.par()
        if c.accept("store"):
            return self.write("store")
        if c.accept("scatter"):
            return self.write("scatter")
        number = self.new_value()
        if c.accept("="):
            if c.accept("loop"):
                node = self.loop()
            elif c.accept("if"):
                node = self.branch()
            else:
                c.fail(f"expected loop or if, found {c.found()}")
            self.scopes[-1][number] = node
            return node if any(node.attr(k) for k in ("effects", "then_effects", "else_effects")) else None
        c.expect(":")
        kind = self.type()
        c.expect("=")
        self.scopes[-1][number] = self.value(kind)
        return None

    def par(self) -> Node:
        axes: list[Axis] = []
        while not self.c.peek("{"):
            if axes:
                self.c.expect(",")
            axes.append(self.axis())
        effects, yields = self.braces()
        if yields:
            self.c.fail("par yields nothing")
        return make("par", (), None, axes=tuple(axes), effects=tuple(effects))

    def axis(self) -> Axis:
        c = self.c
        kind = "tile"
        if c.token.text in ("single", "range") and not c.peek("<", 1):
            kind = c.next().text
        at = c.token
        name = c.name()
        c.expect("<")
        axis = Axis(name, self.size(), kind)
        if self.axes.setdefault(name, axis) != axis:
            c.fail(f"axis '{name}' is already another axis", at)
        return axis

    def braces(self) -> tuple[list[Node], list[Node]]:
        self.c.expect("{")
        out = self.block("}")
        self.c.expect("}")
        return out

    def loop(self) -> Node:
        c = self.c
        axis = self.axis()
        start = self.size() if c.accept("from") else None
        stop = self.size() if c.accept("to") else None
        inits: list[Node] = []
        params: list[Node] = []
        self.scopes.append({})
        if c.accept("carry"):
            while not params or c.accept(","):
                number = self.new_value()
                name = c.name()
                c.expect(":")
                param = carried(self.type(), name)
                c.expect("=")
                inits.append(self.ref())
                params.append(param)
                self.scopes[-1][number] = param
        at = c.token
        effects, yields = self.braces()
        self.scopes.pop()
        if len(yields) != len(params):
            c.fail(f"the loop carries {len(params)} values and yields {len(yields)}", at)
        return make("loop", inits, None, axis=axis, params=tuple(params), yields=tuple(yields), effects=tuple(effects),
                    start=start, stop=stop)

    def branch(self) -> Node:
        cond = self.ref()
        then_effects, then_yields = self.braces()
        self.c.expect("else")
        else_effects, else_yields = self.braces()
        return make("if", (cond,), None, then_yields=tuple(then_yields), then_effects=tuple(then_effects),
                    else_yields=tuple(else_yields), else_effects=tuple(else_effects))

    def write(self, op: str) -> Node:
        c = self.c
        monoid = self.choice(MONOIDS) if op == "scatter" else ""
        tensor = self.tensor()
        index = self.values("[", "]")
        c.expect("=")
        args = (*index, self.ref())
        if op == "store":
            return make("store", args, None, tensor=tensor)
        return make("scatter", args, None, tensor=tensor, monoid=monoid, deterministic=c.accept("deterministic"))

    # ------------------------------------------------------------------ names, types and sizes

    def new_value(self) -> int:
        c = self.c
        at = c.token
        number = self.number()
        if any(number in s for s in self.scopes):
            c.fail(f"%{number} is defined twice", at)
        return number

    def number(self) -> int:
        c = self.c
        if c.token.kind != "value" or len(c.token.text) > 12:
            c.fail(f"expected a value such as %0, found {c.found()}")
        return int(c.next().text[1:])

    def ref(self) -> Node:
        at = self.c.token
        number = self.number()
        for scope in reversed(self.scopes):
            if number in scope:
                return scope[number]
        self.c.fail(f"%{number} is not defined here", at)

    def values(self, opening: str = "", closing: str = "") -> list[Node]:
        """References separated by commas; with brackets, possibly none."""
        c = self.c
        if opening:
            c.expect(opening)
            if c.accept(closing):
                return []
        out = [self.ref()]
        while c.accept(","):
            out.append(self.ref())
        if closing:
            c.expect(closing)
        return out

    def tensor(self) -> str:
        at = self.c.token
        name = self.c.name()
        if name not in self.tensors:
            self.c.fail(f"there is no tensor '{name}'", at)
        return name

    def known_axis(self) -> Axis:
        at = self.c.token
        name = self.c.name()
        if name not in self.axes:
            self.c.fail(f"there is no axis '{name}'", at)
        return self.axes[name]

    def choice(self, options: tuple[str, ...]) -> str:
        at = self.c.token
        name = self.c.name()
        if name not in options:
            self.c.fail(f"expected one of {', '.join(options)}, found '{name}'", at)
        return name

    def type(self) -> TileType:
        dtype = self.c.dtype()
        return TileType(dtype, self.shape() if self.c.peek("(") else ())

    def shape(self) -> Shape:
        out: list[Extent] = []
        self.c.expect("(")
        while not self.c.accept(")"):
            if out:
                self.c.expect(",")
            out.append(self.extent())
        return tuple(out)

    def extent(self) -> Extent:
        c = self.c
        if c.accept(":"):
            return Full(self.size())
        if c.token.kind == "int":
            return Static(c.natural())
        return TileOf(self.known_axis())

    def size(self) -> Node:
        """An integer scalar: a number, a dim, a scalar parameter, a position, arithmetic on them, or a %n."""
        c = self.c
        if c.token.kind == "value":
            return self.ref()
        if c.token.kind == "int" or c.peek("-"):
            return const(c.constant(i64), i64)
        c.enter()
        if c.token.text in _SIZE_FNS and c.peek("(", 1):
            fn = c.next().text
            c.expect("(")
            a = self.size()
            c.expect(",")
            b = self.size()
            c.expect(")")
            out = make("map", (a, b), TileType(i64), fn=fn)
        elif c.accept("("):
            a = self.size()
            sign = c.next()
            if sign.text not in _INFIX:
                c.fail(f"expected + - * // or %, found '{sign.text}'", sign)
            b = self.size()
            c.expect(")")
            out = make("map", (a, b), TileType(i64), fn=_INFIX[sign.text])
        else:
            out = self.named_size()
        c.leave()
        return out

    def named_size(self) -> Node:
        """`pos(axis)`, `param(name)`, or the name of a dim."""
        c = self.c
        op = c.token.text if c.token.text in ("pos", "param") and c.peek("(", 1) else ""
        if not op:
            return dim_node(c.name())
        c.next()
        c.expect("(")
        node = make(op, (), TileType(i64), axis=self.known_axis()) if op == "pos" else self.scalar()
        c.expect(")")
        return node

    def scalar(self) -> Node:
        at = self.c.token
        name = self.c.name()
        if name not in self.scalars:
            self.c.fail(f"there is no scalar parameter '{name}'", at)
        return make("param", (), TileType(self.scalars[name].dtype), name=name)

    # ------------------------------------------------------------------ values

    def value(self, kind: TileType) -> Node:
        c = self.c
        at = c.token
        op = c.name()
        reader = READERS.get(op)
        if reader is not None:
            return reader(self, kind)
        if op not in SCALAR_FNS:
            c.fail(f"there is no op '{op}'", at)
        args = self.values("(", ")")
        return make("map", args, kind, fn=op)

    def integers(self, word: str, none: bool = False) -> tuple[int | None, ...]:
        c = self.c
        c.expect(word)
        c.expect("(")
        out: list[int | None] = []
        while not c.accept(")"):
            if out:
                c.expect(",")
            out.append(None if none and c.accept("none") else c.integer())
        return tuple(out)

    def axis_number(self) -> int:
        self.c.expect("axis")
        return self.c.natural()


def _const(p: _Parser, t: TileType) -> Node:
    return make("const", (), t, value=p.c.constant(t.dtype))


def _dim(p: _Parser, t: TileType) -> Node:
    return make("dim", (), t, name=p.c.name())


def _param(p: _Parser, t: TileType) -> Node:
    return make("param", (), t, name=p.c.name())


def _pos(p: _Parser, t: TileType) -> Node:
    return make("pos", (), t, axis=p.known_axis())


def _index(p: _Parser, t: TileType) -> Node:
    return make("index", (), t, axis=p.known_axis())


def _iota(p: _Parser, t: TileType) -> Node:
    if len(t.shape) != 1:
        p.c.fail("iota has one axis")
    return make("iota", (), t, extent=t.shape[0])


def _cast(p: _Parser, t: TileType) -> Node:
    return make("cast", p.values("(", ")"), t, dtype=t.dtype)


def _broadcast(p: _Parser, t: TileType) -> Node:
    return make("broadcast", p.values("(", ")"), t, shape=t.shape, dims=p.integers("at"))


def _transpose(p: _Parser, t: TileType) -> Node:
    return make("transpose", p.values("(", ")"), t, perm=p.integers("perm"))


def _reshape(p: _Parser, t: TileType) -> Node:
    return make("reshape", p.values("(", ")"), t, shape=t.shape)


def _slice(p: _Parser, t: TileType) -> Node:
    args = p.values("(", ")")
    starts, sizes, steps = p.integers("starts"), p.integers("sizes", none=True), p.integers("steps")
    return make("slice", args, t, starts=starts, sizes=sizes, steps=steps)


def _load(p: _Parser, t: TileType) -> Node:
    tensor = p.tensor()
    index = p.values("[", "]")
    p.c.expect("fill")
    return make("load", index, t, tensor=tensor, fill=p.c.constant(t.dtype))


def _dot(p: _Parser, t: TileType) -> Node:
    return make("dot", p.values("(", ")"), t)


def _fold(p: _Parser, t: TileType) -> Node:
    monoid = p.choice(MONOIDS)
    return make("fold", p.values("(", ")"), t, monoid=monoid, axis=p.axis_number())


def _argfold(p: _Parser, t: TileType) -> Node:
    kind = p.choice(("argmax", "argmin"))
    return make("argfold", p.values("(", ")"), t, kind=kind, axis=p.axis_number(), last=p.c.accept("last"))


def _scan(p: _Parser, t: TileType) -> Node:
    monoid = p.choice(MONOIDS)
    args, axis = p.values("(", ")"), p.axis_number()
    return make("scan", args, t, monoid=monoid, axis=axis, reverse=p.c.accept("reverse"),
                exclusive=p.c.accept("exclusive"))


def _rng(p: _Parser, t: TileType) -> Node:
    kind = p.choice(("u32", "uniform"))
    return make("rng", p.values("(", ")"), t, kind=kind)


def _result(p: _Parser, t: TileType) -> Node:
    p.c.expect("(")
    structure = p.ref()
    p.c.expect(",")
    index = p.c.natural()
    p.c.expect(")")
    return make("result", (structure,), t, index=index)


READERS: dict[str, Reader] = {
    "const": _const, "dim": _dim, "param": _param, "pos": _pos, "index": _index, "iota": _iota, "cast": _cast,
    "broadcast": _broadcast, "transpose": _transpose, "reshape": _reshape, "slice": _slice, "load": _load, "dot": _dot,
    "fold": _fold, "argfold": _argfold, "scan": _scan, "rng": _rng, "result": _result,
}
