"""Rewriting the expressions of a scheduled program: every statement is rebuilt, every shared expression once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ..ir.scheduled.core import (
    Acc,
    Alloc,
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
    expr,
)

#: From an expression whose operands are already rewritten to what stands in its place.
Rule = Callable[[Expr], Expr]


class Rewriter:
    """Applies a rule bottom-up. Without recursion: expanded maths makes deep expressions."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule
        self.done: dict[Expr, Expr] = {}

    def expr(self, root: Expr) -> Expr:
        stack = [root]
        while stack:
            e = stack[-1]
            if e in self.done:
                stack.pop()
                continue
            waiting = [a for a in e.args if a not in self.done]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            stack.pop()
            args = tuple(self.done[a] for a in e.args)
            same = args == e.args
            self.done[e] = self.rule(e if same else expr(e.op, e.dtype, *args, attr=e.attr))
        return self.done[root]


def map_program(program: Program, change: Callable[[Expr], Expr]) -> Program:
    return replace(program, body=map_block(program.body, change))


def map_block(stmts: Sequence[Stmt], change: Callable[[Expr], Expr]) -> tuple[Stmt, ...]:
    return tuple(_map_statement(s, change) for s in stmts)


def _optional(e: Expr | None, change: Callable[[Expr], Expr]) -> Expr | None:
    return None if e is None else change(e)


def _operand(o: Operand, change: Callable[[Expr], Expr]) -> Operand:
    def number(x: IntLike) -> IntLike:
        return change(x) if isinstance(x, Expr) else x

    return Operand(o.buffer, change(o.offset), number(o.row), number(o.col))


def _map_statement(s: Stmt, change: Callable[[Expr], Expr]) -> Stmt:
    def each(xs: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(map(change, xs))

    match s:
        case Let():
            return replace(s, value=change(s.value))
        case Store() | Scatter():
            return replace(s, index=each(s.index), value=change(s.value), mask=_optional(s.mask, change))
        case Acc():
            return replace(s, inits=each(s.inits))
        case Update():
            return replace(s, values=each(s.values))
        case For():
            return replace(s, start=change(s.start), stop=change(s.stop), body=map_block(s.body, change))
        case If():
            return replace(s, cond=change(s.cond), then=map_block(s.then, change), orelse=map_block(s.orelse, change))
        case Alloc():
            return s
        case Micro():
            return replace(s, acc=_operand(s.acc, change), a=_operand(s.a, change), b=_operand(s.b, change),
                           depth=change(s.depth), cols_valid=_optional(s.cols_valid, change),
                           bias=None if s.bias is None else _operand(s.bias, change))
        case ParFor():
            return replace(s, extents=each(s.extents), body=map_block(s.body, change))
