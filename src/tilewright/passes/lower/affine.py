"""Affine facts about Scheduled IR index expressions."""

from __future__ import annotations

from ...ir.scheduled import core as s


def depends(e: s.Expr, v: s.Var) -> bool:
    stack, seen = [e], {e}
    while stack:
        x = stack.pop()
        if x.op == "var" and x.attr == v:
            return True
        new = set(x.args) - seen  # shared parts are looked at once
        seen |= new
        stack.extend(new)
    return False


def coefficient(e: s.Expr, v: s.Var) -> s.Expr | None:
    """c such that e = c * v + rest with c and rest free of v; None when e is not affine in v."""
    if e.op == "var":
        return s.const(1 if e.attr == v else 0)
    if not depends(e, v):
        return s.const(0)
    parts = [coefficient(a, v) for a in e.args]
    if any(p is None for p in parts):
        return None
    known = [p for p in parts if p is not None]
    match e.op:
        case "add":
            return s.add(known[0], known[1])
        case "sub":
            return s.sub(known[0], known[1])
        case "mul":
            a, b = e.args
            if depends(a, v) and depends(b, v):
                return None
            return s.mul(known[0], b) if depends(a, v) else s.mul(known[1], a)
        case _:
            return None


def substitute(e: s.Expr, table: dict[s.Var, s.Expr], memo: dict[s.Expr, s.Expr] | None = None) -> s.Expr:
    """`e` with variables replaced; integer sums and products are simplified again."""
    memo = {} if memo is None else memo
    if e in memo:
        return memo[e]
    if e.op == "var":
        out = table.get(e.attr, e)
    elif not e.args:
        out = e
    else:
        args = tuple(substitute(a, table, memo) for a in e.args)
        out = e if args == e.args else s.apply(e.op, e.dtype, *args, attr=e.attr)
    memo[e] = out
    return out


def flat(buffer: s.Buffer, index: tuple[s.Expr, ...]) -> s.Expr:
    """The element offset of an index."""
    total: s.Expr = s.const(0)
    for i, step in zip(index, buffer.strides, strict=True):
        total = s.add(total, s.mul(i, step))
    return total
