"""Which names a loop must carry: a name lives when a later statement may read its value before it is set again."""

from __future__ import annotations

import ast
from collections.abc import Sequence


def assigned(stmts: Sequence[ast.stmt]) -> set[str]:
    """Names that the statements bind, loop variables included."""
    return {n.id for s in stmts for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def reads(node: ast.AST | None) -> set[str]:
    if node is None:
        return set()
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def live_before(stmts: Sequence[ast.stmt], after: set[str]) -> set[str]:
    """Names whose value on entry to the statements may still be read, there or `after` them."""
    live = set(after)
    for s in reversed(stmts):
        live = _step(s, live)
    return live


def live_after_each(stmts: Sequence[ast.stmt], after: set[str]) -> list[set[str]]:
    """Per statement, the names alive after it."""
    out = [after]
    for s in reversed(stmts[1:]):
        out.append(_step(s, out[-1]))
    return out[::-1]


def _step(s: ast.stmt, live: set[str]) -> set[str]:
    match s:
        case ast.Assign() | ast.AnnAssign():
            targets = s.targets if isinstance(s, ast.Assign) else [s.target]
            bound = set().union(*(assigned([ast.Expr(t)]) for t in targets))
            return (live - bound) | reads(s.value) | set().union(*(reads(t) for t in targets))
        case ast.AugAssign():
            return live | reads(s.value) | reads(s.target) | assigned([ast.Expr(s.target)])
        case ast.If():
            return reads(s.test) | live_before(s.body, live) | live_before(s.orelse, live)
        case ast.For():
            variables = assigned([ast.Expr(s.target)])
            once = live_before(s.body, live) - variables
            again = live_before(s.body, live | once) - variables  # the back edge: what the next turn reads
            return live | again | reads(s.iter)
        case _:
            return live | reads(s)
