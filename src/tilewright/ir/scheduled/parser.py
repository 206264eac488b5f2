"""Reads the text of `printer.py` back: recursive descent, every mistake a ParseError with line and column."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..text import Cursor
from ..tile.core import SCALAR_FNS
from ..types import DType, bool_, i64
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
    const,
    dim,
    expr,
    stride,
    var,
)
from .verify import MACHINE_FNS, verify

T = TypeVar("T")


def parse_program(text: str) -> Program:
    """The program a text describes, verified."""
    program = _Parser(text).program()
    verify(program)
    return program


class _Parser:
    def __init__(self, text: str) -> None:
        self.c = Cursor(text)
        self.buffers: dict[str, Buffer] = {}
        self.vars: dict[tuple[str, int], Var] = {}
        self.scalars: dict[str, DType] = {}
        self.named: dict[int, Expr] = {}

    # ------------------------------------------------------------------ the program

    def program(self) -> Program:
        c = self.c
        c.skip_newlines()
        c.expect("program")
        name = c.name()
        c.end_line()
        buffers: list[Buffer] = []
        outputs: list[str] = []
        dims: list[str] = []
        strides: list[tuple[str, int]] = []
        notes: list[tuple[str, str]] = []
        while True:
            if c.accept("buffer"):
                buffers.append(self.declare())
            elif c.accept("outputs"):
                outputs = self.several(c.name)
            elif c.accept("dims"):
                dims = self.several(c.name)
            elif c.accept("strides"):
                strides = self.several(self.stride_name)
            elif c.accept("scalar"):
                scalar = c.name()
                c.expect(":")
                self.scalars[scalar] = c.dtype()
            elif c.accept("note"):
                key = c.name()
                c.expect("=")
                notes.append((key, c.name()))
            else:
                break
            c.end_line()
        body = self.block("")
        return Program(name, tuple(buffers), tuple(outputs), tuple(dims), tuple(strides), tuple(self.scalars.items()),
                       body, tuple(notes))

    def stride_name(self) -> tuple[str, int]:
        name = self.c.name()
        self.c.expect("[")
        axis = self.c.natural()
        self.c.expect("]")
        return name, axis

    def several(self, item: Callable[[], T]) -> list[T]:
        out = [item()]
        while self.c.accept(","):
            out.append(item())
        return out

    def declare(self) -> Buffer:
        """`x: f32 arg (8, @N) strides (@N, 1)`"""
        c = self.c
        name = c.name()
        c.expect(":")
        dtype, space = c.dtype(), c.name()
        shape = self.integers()
        c.expect("strides")
        buffer = Buffer(name, dtype, space, shape, self.integers())
        self.buffers[name] = buffer
        return buffer

    def integers(self) -> tuple[IntLike, ...]:
        self.c.expect("(")
        if self.c.accept(")"):
            return ()
        out = self.several(self.int_like)
        self.c.expect(")")
        return tuple(out)

    def int_like(self) -> IntLike:
        """A plain number stays a number."""
        e = self.expr()
        return int(e.attr) if e.op == "const" and e.dtype == i64 else e

    # ------------------------------------------------------------------ statements

    def block(self, end: str) -> tuple[Stmt, ...]:
        c = self.c
        c.enter()
        out: list[Stmt] = []
        c.skip_newlines()
        while not (c.peek(end) if end else c.token.kind == "end"):
            if c.accept("with"):
                self.define()
            else:
                out.append(self.statement())
                self.named.clear()
            if not c.peek("}"):
                c.end_line()
        c.leave()
        return tuple(out)

    def define(self) -> None:
        """`with !0 = expr`: a name for the next statement."""
        c = self.c
        c.expect("!")
        number = c.natural()
        c.expect("=")
        self.named[number] = self.expr()

    def statement(self) -> Stmt:
        c = self.c
        at = c.token
        reader = _READERS.get(c.name())
        if reader is None:
            c.fail(f"there is no statement '{at.text}'", at)
        return reader(self)

    def braces(self) -> tuple[Stmt, ...]:
        self.c.expect("{")
        # What a `with` line names ends where the statement's head ends.
        self.named.clear()
        body = self.block("}")
        self.c.expect("}")
        return body

    def let(self) -> Stmt:
        v = self.new_var(typed=True)
        self.c.expect("=")
        return Let(v, self.expr())

    def store(self) -> Stmt:
        buffer, index = self.place()
        self.c.expect("=")
        return Store(buffer, index, self.expr(), self.mask())

    def scatter(self) -> Stmt:
        monoid = self.c.name()
        buffer, index = self.place()
        self.c.expect("=")
        return Scatter(buffer, index, self.expr(), monoid, self.mask())

    def acc(self) -> Stmt:
        c = self.c
        monoid = c.name()
        last = c.token.text == "last" and not c.peek(":", 1) and c.accept("last")
        parts = self.several(lambda: self.bind(True))
        return Acc(tuple(v for v, _ in parts), tuple(e for _, e in parts), monoid, last)

    def update(self) -> Stmt:
        parts = self.several(lambda: self.bind(False))
        return Update(tuple(v for v, _ in parts), tuple(e for _, e in parts))

    def bind(self, declare: bool) -> tuple[Var, Expr]:
        v = self.new_var(typed=True) if declare else self.known_var()
        self.c.expect("=")
        return v, self.expr()

    def loop(self) -> Stmt:
        c = self.c
        v = self.new_var()
        c.expect("in")
        start = self.expr()
        c.expect("..")
        stop = self.expr()
        kind = "serial"
        for word in ("unroll", "vector"):
            if c.accept(word):
                kind = word
        facts = {word: c.natural() if c.accept(word) else 1 for word in ("step", "width", "inflight")}
        return For(v, start, stop, self.braces(), kind, facts["step"], facts["width"], facts["inflight"])

    def branch(self) -> Stmt:
        cond = self.expr()
        then = self.braces()
        return If(cond, then, self.braces() if self.c.accept("else") else ())

    def alloc(self) -> Stmt:
        return Alloc(self.declare())

    def micro(self) -> Stmt:
        c = self.c
        acc = self.operand()
        c.expect("=")
        a = self.operand()
        c.expect("*")
        b = self.operand()
        c.expect("depth")
        depth = self.expr()
        sizes = []
        for word in ("rows", "cols", "width"):
            c.expect(word)
            sizes.append(c.natural())
        valid = self.expr() if c.accept("valid") else None
        init = c.accept("init")
        prefetch = c.natural() if c.accept("prefetch") else 0
        group = c.natural() if c.accept("group") else 1
        bias = self.operand() if c.accept("bias") else None
        return Micro(acc, a, b, depth, sizes[0], sizes[1], sizes[2], init, valid, prefetch, group, bias)

    def par(self) -> Stmt:
        c = self.c
        parts: list[tuple[Var, Expr]] = []
        while not c.peek("{"):
            if parts:
                c.expect(",")
            v = self.new_var()
            c.expect("<")
            parts.append((v, self.expr()))
        return ParFor(tuple(v for v, _ in parts), tuple(e for _, e in parts), self.braces())

    # ------------------------------------------------------------------ names

    def var_name(self) -> tuple[str, int]:
        """`name.uid`; a plain name and its number are one token."""
        c = self.c
        at = c.token
        name = c.name()
        if at.kind == "string":
            c.expect(".")
            return name, c.natural()
        head, dot, uid = name.rpartition(".")
        if not dot or not uid.isdecimal() or len(uid) > 18:
            c.fail(f"expected a variable such as i.0, found '{at.text}'", at)
        return head, int(uid)

    def new_var(self, typed: bool = False) -> Var:
        at = self.c.token
        key = self.var_name()
        dtype = i64
        if typed:
            self.c.expect(":")
            dtype = self.c.dtype()
        if key in self.vars:
            self.c.fail(f"variable {key[0]}.{key[1]} is declared twice", at)
        self.vars[key] = Var(key[0], dtype, key[1])
        return self.vars[key]

    def known_var(self) -> Var:
        at = self.c.token
        key = self.var_name()
        if key not in self.vars:
            self.c.fail(f"variable {key[0]}.{key[1]} is not declared", at)
        return self.vars[key]

    def buffer(self) -> Buffer:
        at = self.c.token
        name = self.c.name()
        if name not in self.buffers:
            self.c.fail(f"there is no buffer '{name}'", at)
        return self.buffers[name]

    def place(self) -> tuple[Buffer, tuple[Expr, ...]]:
        buffer = self.buffer()
        return buffer, self.exprs("[", "]")

    def operand(self) -> Operand:
        c = self.c
        buffer = self.buffer()
        c.expect("[")
        offset = self.expr()
        c.expect(";")
        row = self.int_like()
        c.expect(",")
        col = self.int_like()
        c.expect("]")
        return Operand(buffer, offset, row, col)

    def mask(self) -> Expr | None:
        return self.expr() if self.c.accept("if") else None

    # ------------------------------------------------------------------ expressions

    def exprs(self, opening: str, closing: str) -> tuple[Expr, ...]:
        self.c.expect(opening)
        if self.c.accept(closing):
            return ()
        out = self.several(self.expr)
        self.c.expect(closing)
        return tuple(out)

    def expr(self) -> Expr:
        self.c.enter()
        out = self._expr()
        self.c.leave()
        return out

    def _expr(self) -> Expr:
        c = self.c
        at = c.token
        if c.accept("!"):
            number = c.natural()
            if number not in self.named:
                c.fail(f"!{number} is not defined for this statement", at)
            return self.named[number]
        if c.accept("@"):
            return dim(c.name())
        if c.accept("$"):
            name = c.name()
            if name not in self.scalars:
                c.fail(f"there is no scalar '{name}'", at)
            return expr("param", self.scalars[name], attr=name)
        if at.kind in ("int", "float") or at.text in ("-", "true", "false") or (
                at.text in ("inf", "nan") and c.peek(":", 1)):
            return self.constant()
        if c.token.kind in ("name", "string") and c.peek("[", 1):
            return self.load()
        if at.kind == "name" and c.peek("(", 1):
            return self.call()
        return var(self.known_var())

    def constant(self) -> Expr:
        c = self.c
        at = c.at
        value = c.number()
        dtype = bool_ if isinstance(value, bool) else i64
        if c.accept(":"):
            dtype = c.dtype()
        after, c.at = c.at, at
        value = c.constant(dtype)
        c.at = after
        return const(value, dtype)

    def load(self) -> Expr:
        c = self.c
        buffer = self.buffer()
        c.expect("[")
        index: list[Expr] = [] if c.peek("]") or c.peek("if") else self.several(self.expr)
        if c.accept("if"):
            cond = self.expr()
            c.expect("else")
            other = self.expr()
            c.expect("]")
            return buffer.load_if(cond, other, *index)
        c.expect("]")
        return buffer.load(*index)

    def call(self) -> Expr:
        c = self.c
        at = c.next()
        fn = at.text
        if fn == "stride":
            c.expect("(")
            name = c.name()
            c.expect(",")
            axis = c.natural()
            c.expect(")")
            return stride(name, axis)
        if fn in ("cast", "bitcast"):
            c.expect("(")
            x = self.expr()
            c.expect(",")
            dtype = c.dtype()
            c.expect(")")
            return expr(fn, dtype, x)
        form = SCALAR_FNS.get(fn) or MACHINE_FNS.get(fn)
        if form is None:
            c.fail(f"there is no function '{fn}'", at)
        args = self.exprs("(", ")")
        if len(args) != form[0]:
            c.fail(f"{fn} takes {form[0]} operands, not {len(args)}", at)
        return expr(fn, bool_ if form[1] == "bool" else args[-1].dtype, *args)


_READERS: dict[str, Callable[[_Parser], Stmt]] = {
    "let": _Parser.let, "store": _Parser.store, "scatter": _Parser.scatter, "acc": _Parser.acc,
    "update": _Parser.update, "for": _Parser.loop, "if": _Parser.branch, "alloc": _Parser.alloc,
    "micro": _Parser.micro, "par": _Parser.par,
}
