"""Which names a loop must carry: a name lives when a later statement may read its value before it is set again."""

from __future__ import annotations

import ast
from collections.abc import Sequence


def _names(node: ast.AST) -> tuple[frozenset[str], frozenset[str]]:
    """Names read and names bound anywhere below a node; kept on the node, for loops ask again and again."""
    found: tuple[frozenset[str], frozenset[str]] | None = getattr(node, "_tilewright_names", None)
    if found is None:
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
        found = (frozenset(n.id for n in names if isinstance(n.ctx, ast.Load)),
                 frozenset(n.id for n in names if isinstance(n.ctx, ast.Store)))
        node._tilewright_names = found  # type: ignore[attr-defined]
    return found


def reads(node: ast.AST | None) -> frozenset[str]:
    return frozenset() if node is None else _names(node)[0]


def binds(node: ast.AST) -> frozenset[str]:
    return _names(node)[1]


def assigned(stmts: Sequence[ast.stmt]) -> set[str]:
    """Names that the statements bind, loop variables included."""
    return set().union(*(binds(s) for s in stmts))


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
            bound = set().union(*(binds(t) for t in targets))
            return (live - bound) | reads(s.value) | set().union(*(reads(t) for t in targets))
        case ast.AugAssign():
            return live.union(reads(s.value), reads(s.target), binds(s.target))
        case ast.If():
            return live_before(s.body, live) | live_before(s.orelse, live) | reads(s.test)
        case ast.For():
            variables = binds(s.target)
            once = live_before(s.body, live) - variables
            again = live_before(s.body, live | once) - variables  # the back edge: what the next turn reads
            return live | again | reads(s.iter)
        case _:
            return live | reads(s)
