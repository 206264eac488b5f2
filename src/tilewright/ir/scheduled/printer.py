"""Scheduled IR as text that `parser.py` reads back: one statement a line.

Expressions are written as trees. A large one used twice in a statement, or one nested deeply, gets a line of its own
before the statement (`with !0 = ...`), so the text stays proportional to the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..text import name_text, number_text
from ..types import bool_, i64
from .core import (
    Acc,
    Alloc,
    Buffer,
    Expr,
    For,
    If,
    IntLike,
    Let,
    Micro,
    Operand,
    ParFor,
    Program,
    Scatter,
    Stmt,
    Store,
    Update,
    Var,
)

#: A shared expression of at least this many nodes is written once, in a `with` line.
_SHARE_FROM = 12
#: Deepest nesting of one line.
_NEST = 24

LEAVES = frozenset({"const", "var", "dim", "param", "stride"})


def program_text(p: Program) -> str:
    """The whole program."""
    lines = [f"program {name_text(p.name)}"]
    lines += [f"buffer {buffer_text(b)}" for b in p.buffers]
    if p.outputs:
        lines.append("outputs " + ", ".join(map(name_text, p.outputs)))
    if p.dims:
        lines.append("dims " + ", ".join(map(name_text, p.dims)))
    if p.strides:
        lines.append("strides " + ", ".join(f"{name_text(t)}[{axis}]" for t, axis in p.strides))
    lines += [f"scalar {name_text(n)}: {d}" for n, d in p.scalars]
    lines += [f"note {name_text(k)} = {name_text(v)}" for k, v in p.notes]
    _block(p.body, "", lines)
    return "\n".join(lines) + "\n"


def buffer_text(b: Buffer) -> str:
    """`x: f32 arg (8, %N) strides (%N, 1)`; shapes and strides are small expressions, written as trees."""
    w = _Writer(())
    shape, strides = (", ".join(w.text(x) for x in xs) for xs in (b.shape, b.strides))
    return f"{name_text(b.name)}: {b.dtype} {name_text(b.space)} ({shape}) strides ({strides})"


def statement_text(s: Stmt) -> str:
    """One statement (of a loop or branch only its head), for messages."""
    lines = _statement(s, "")
    return "; ".join(line.strip() for line in lines)


def _block(body: Sequence[Stmt], indent: str, lines: list[str]) -> None:
    for s in body:
        lines += _statement(s, indent)
        inner = indent + "  "
        if isinstance(s, For | ParFor):
            _block(s.body, inner, lines)
            lines.append(indent + "}")
        elif isinstance(s, If):
            _block(s.then, inner, lines)
            if s.orelse:
                lines.append(indent + "} else {")
                _block(s.orelse, inner, lines)
            lines.append(indent + "}")


def _statement(s: Stmt, indent: str) -> list[str]:
    w = _Writer(_roots(s))
    line = _HEADS[type(s)](w, s)
    return [indent + x for x in (*w.lines, line)]


def _roots(s: Stmt) -> list[IntLike]:
    """Every expression that stands in the statement itself, in the order it is written."""
    match s:
        case Let():
            return [s.value]
        case Store() | Scatter():
            return [*s.index, s.value, *([] if s.mask is None else [s.mask])]
        case Acc():
            return list(s.inits)
        case Update():
            return list(s.values)
        case For():
            return [s.start, s.stop]
        case If():
            return [s.cond]
        case Micro():
            operands = (s.acc, s.a, s.b, *(() if s.bias is None else (s.bias,)))
            parts = [x for o in operands for x in (o.offset, o.row, o.col)]
            return [*parts, s.depth, *([] if s.cols_valid is None else [s.cols_valid])]
        case ParFor():
            return list(s.extents)
        case _:
            return []


class _Writer:
    """Writes the expressions of one statement; collects its `with` lines."""

    def __init__(self, roots: Sequence[IntLike]) -> None:
        self.lines: list[str] = []
        self.names: dict[Expr, str] = {}
        order, uses = _visit([r for r in roots if isinstance(r, Expr)])
        size: dict[Expr, int] = {}
        depth: dict[Expr, int] = {}
        for e in order:
            # Sizes saturate: a tree can be exponentially larger than the graph it is drawn from.
            size[e] = min(1 << 20, 1 + sum(size[a] for a in e.args))
            depth[e] = 1 + max((depth[a] for a in e.args), default=0)
            if e.op in LEAVES:
                continue
            if (uses[e] > 1 and size[e] >= _SHARE_FROM) or depth[e] >= _NEST:
                text = self.text(e)
                self.names[e] = f"!{len(self.names)}"
                self.lines.append(f"with {self.names[e]} = {text}")
                size[e] = depth[e] = 1

    def text(self, e: IntLike) -> str:
        if isinstance(e, int):
            return str(e)
        if e in self.names:
            return self.names[e]
        match e.op:
            case "const":
                number = number_text(e.attr)
                return number if e.dtype in (i64, bool_) else f"{number}:{e.dtype}"
            case "var":
                return var_text(e.attr)
            case "dim":
                return f"@{name_text(e.attr)}"
            case "param":
                return f"${name_text(e.attr)}"
            case "stride":
                return f"stride({name_text(e.attr[0])}, {e.attr[1]})"
            case "load":
                return f"{name_text(e.attr.name)}[{self.list(e.args)}]"
            case "load_if":
                cond, other, *index = e.args
                return f"{name_text(e.attr.name)}[{self.list(index)} if {self.text(cond)} else {self.text(other)}]"
            case "cast" | "bitcast":
                return f"{e.op}({self.text(e.args[0])}, {e.dtype})"
            case _:
                return f"{e.op}({self.list(e.args)})"

    def list(self, es: Sequence[IntLike]) -> str:
        return ", ".join(map(self.text, es))

    def operand(self, o: Operand) -> str:
        return f"{name_text(o.buffer.name)}[{self.text(o.offset)}; {self.text(o.row)}, {self.text(o.col)}]"

    def mask(self, mask: Expr | None) -> str:
        return "" if mask is None else f" if {self.text(mask)}"

    # one method per statement: its line, for compound ones up to the opening brace

    def let(self, s: Let) -> str:
        return f"let {var_text(s.var)}: {s.var.dtype} = {self.text(s.value)}"

    def store(self, s: Store) -> str:
        return f"store {name_text(s.buffer.name)}[{self.list(s.index)}] = {self.text(s.value)}{self.mask(s.mask)}"

    def scatter(self, s: Scatter) -> str:
        place = f"{name_text(s.buffer.name)}[{self.list(s.index)}]"
        return f"scatter {s.monoid} {place} = {self.text(s.value)}{self.mask(s.mask)}"

    def acc(self, s: Acc) -> str:
        parts = ", ".join(f"{var_text(v)}: {v.dtype} = {self.text(i)}" for v, i in zip(s.vars, s.inits))
        return f"acc {s.monoid}{' last' if s.last else ''} {parts}"

    def update(self, s: Update) -> str:
        return "update " + ", ".join(f"{var_text(v)} = {self.text(x)}" for v, x in zip(s.vars, s.values))

    def loop(self, s: For) -> str:
        head = f"for {var_text(s.var)} in {self.text(s.start)} .. {self.text(s.stop)}"
        facts = [s.kind] if s.kind != "serial" else []
        facts += [f"{k} {n}" for k, n in (("step", s.step), ("width", s.width), ("inflight", s.unroll)) if n != 1]
        return " ".join([head, *facts, "{"])

    def branch(self, s: If) -> str:
        return f"if {self.text(s.cond)} {{"

    def alloc(self, s: Alloc) -> str:
        return f"alloc {buffer_text(s.buffer)}"

    def micro(self, s: Micro) -> str:
        head = f"micro {self.operand(s.acc)} = {self.operand(s.a)} * {self.operand(s.b)}"
        facts = [f"depth {self.text(s.depth)} rows {s.rows} cols {s.cols} width {s.width}"]
        if s.cols_valid is not None:
            facts.append(f"valid {self.text(s.cols_valid)}")
        if s.init:
            facts.append("init")
        if s.prefetch:
            facts.append(f"prefetch {s.prefetch}")
        if s.group != 1:
            facts.append(f"group {s.group}")
        if s.bias is not None:
            facts.append(f"bias {self.operand(s.bias)}")
        return " ".join([head, *facts])

    def par(self, s: ParFor) -> str:
        grid = ", ".join(f"{var_text(v)} < {self.text(e)}" for v, e in zip(s.vars, s.extents))
        return f"par {grid} {{" if grid else "par {"


_HEADS: dict[type, Callable[[_Writer, Any], str]] = {
    Let: _Writer.let, Store: _Writer.store, Scatter: _Writer.scatter, Acc: _Writer.acc, Update: _Writer.update,
    For: _Writer.loop, If: _Writer.branch, Alloc: _Writer.alloc, Micro: _Writer.micro, ParFor: _Writer.par,
}


def var_text(v: Var) -> str:
    return f"{name_text(v.name)}.{v.uid}"


def _visit(roots: Sequence[Expr]) -> tuple[list[Expr], dict[Expr, int]]:
    """Every subexpression, operands first, and how often each is used."""
    uses: dict[Expr, int] = {}
    order: list[Expr] = []
    done: set[Expr] = set()
    for root in roots:
        uses[root] = uses.get(root, 0) + 1
        stack: list[tuple[Expr, bool]] = [(root, False)]
        while stack:
            e, ready = stack.pop()
            if ready:
                order.append(e)
            elif e not in done:
                done.add(e)
                stack.append((e, True))
                for a in reversed(e.args):
                    uses[a] = uses.get(a, 0) + 1
                    stack.append((a, False))
    return order, uses
