"""Statements and loops.

A vector loop becomes up to three loops: groups of lanes, `unroll` of them at a time; what is left, a group at a time;
and the last, partial group: under a mask where the machine has masks, else one element at a time. The groups of an
unrolled loop run statement by statement side by side, so that what is the same for all of them is computed once and an
inner loop serves them all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...errors import VerifyError
from ...ir.scheduled.core import (
    Acc,
    Alloc,
    For,
    If,
    Let,
    Micro,
    ParFor,
    Scatter,
    Stmt,
    Store,
    Update,
    Var,
    var,
    walk,
)
from ...ir.types import i64
from . import render_acc, render_expr, render_memory, render_micro
from .render_emit import Value
from .render_state import AccState, Group, State, declared
from .types import constant, memory_type


def block(w: State, body: Sequence[Stmt]) -> None:
    with w.scope():
        for s in body:
            w.forget_volatile()
            statement(w, s)
        w.forget_volatile()


def statement(w: State, s: Stmt) -> None:
    match s:
        case Let():
            _let(w, s)
        case Store():
            render_memory.store(w, s)
        case Scatter():
            render_memory.scatter(w, s)
        case Acc():
            render_acc.declare(w, s)
        case Update():
            render_acc.update(w, s)
        case For():
            _for(w, s)
        case If():
            _if(w, s)
        case Alloc():
            _alloc(w, s)
        case Micro():
            render_micro.micro(w, s)
        case ParFor():
            raise VerifyError("a parallel loop inside another statement")


def _let(w: State, s: Let) -> None:
    key = var(s.var)
    if not w.is_varying(s.value):
        w.remember(w.common, key, render_expr.evaluate(w, s.value, w.common))
        return
    w.varying.add(s.var)
    for group in w.groups:
        w.remember(group, key, render_expr.evaluate(w, s.value, group))


def _alloc(w: State, s: Alloc) -> None:
    if s.buffer in w.base:  # a local buffer's place in the workspace was computed before the body began
        return
    size = 1
    for n in s.buffer.shape:
        known = n if isinstance(n, int) else constant(render_expr.scalar(w, n))
        if known is None:
            raise VerifyError(f"stack buffer '{s.buffer.name}' has a size that is not a number")
        size *= known
    w.base[s.buffer] = w.alloca(f"[{max(1, size)} x {memory_type(s.buffer.dtype)}]", align=64)


# ---------------------------------------------------------------------------------------------- scalar control


def counted(w: State, start: str, stop: str, step: int, body: Callable[[str], None]) -> None:
    """for i in range(start, stop, step): body(i)."""
    x, y = constant(start), constant(stop)
    if x is not None and y is not None and len(range(x, y, step)) <= 1:
        if range(x, y, step):
            body(start)
        return
    loop, after = w.label("loop"), w.label("after")
    if x is None or y is None:
        w.branch(w.op(f"icmp {'slt' if step > 0 else 'sgt'} i64 {start}, {stop}"), loop, after)
    else:
        w.jump(loop)
    before, position = w.block, w.name()
    w.start(loop)
    slot = len(w.lines)
    with w.scope():
        body(position)
    following = w.op(f"add nsw i64 {position}, {step}")
    w.lines.insert(slot, f"  {position} = phi i64 [ {start}, %{before} ], [ {following}, %{w.block} ]")
    w.branch(w.op(f"icmp {'slt' if step > 0 else 'sgt'} i64 {following}, {stop}"), loop, after)
    w.start(after)


def _for(w: State, s: For) -> None:
    if s.kind == "vector" and w.lanes == 1 and s.width > 1 and _vectorisable(s):
        vector_loop(w, s)
        return
    start, stop = render_expr.scalar(w, s.start), render_expr.scalar(w, s.stop)
    x, y = constant(start), constant(stop)
    if s.kind == "unroll" and x is not None and y is not None:
        for k in range(x, y, s.step):
            _once(w, s.var, s.body, str(k))
        return
    counted(w, start, stop, s.step, lambda i: _once(w, s.var, s.body, i))


def _once(w: State, v: Var, body: Sequence[Stmt], position: str) -> None:
    with w.scope():
        w.remember(w.common, var(v), Value("s", position, i64))
        block(w, body)


def _if(w: State, s: If) -> None:
    if w.is_varying(s.cond):
        _if_lanes(w, s)
        return
    condition = render_expr.scalar(w, s.cond)
    if condition in ("true", "false"):
        block(w, s.then if condition == "true" else s.orelse)
        return
    yes, no, after = w.label("then"), w.label("else"), w.label("endif")
    w.branch(condition, yes, no if s.orelse else after)
    for label, body in ((yes, s.then), (no, s.orelse)):
        if label == yes or body:
            w.start(label)
            block(w, body)
            w.jump(after)
    w.start(after)


def _if_lanes(w: State, s: If) -> None:
    """Both sides run; stores and updates touch the lanes whose side it is."""
    n = w.lanes
    conditions = [render_expr.lanes_of(w, render_expr.evaluate(w, s.cond, g)) for g in w.groups]
    outer = [g.condition for g in w.groups]
    for body, negate in ((s.then, False), (s.orelse, True)):
        if not body:
            continue
        for group, condition, above in zip(w.groups, conditions, outer, strict=True):
            mine = w.op(f"xor <{n} x i1> {condition}, splat (i1 true)") if negate else condition
            group.condition = w.both(n, above, mine)
        block(w, body)
        for group, above in zip(w.groups, outer, strict=True):
            group.condition = above


# ---------------------------------------------------------------------------------------------- vector loops


def _vectorisable(s: For) -> bool:
    """Whether lanes can run side by side: not when an inner loop's bounds differ between them, or when each needs its
    own memory. Such a loop runs one element at a time, which is always right."""
    varying: set[Var] = {s.var}
    for x in walk(s.body):
        if isinstance(x, Micro | ParFor | Alloc):
            return False
        if isinstance(x, Let) and _reads(x.value, varying):
            varying.add(x.var)
        elif isinstance(x, Acc):
            varying |= set(x.vars)
        elif isinstance(x, For) and (_reads(x.start, varying) or _reads(x.stop, varying)):
            return False
    return True


def _reads(e: object, names: set[Var]) -> bool:
    stack, seen = [e], set()
    while stack:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        if getattr(x, "op", "") == "var" and x.attr in names:  # type: ignore[attr-defined]
            return True
        stack.extend(getattr(x, "args", ()))
    return False


def vector_loop(w: State, s: For) -> None:
    if s.step != 1:
        raise VerifyError(f"a vector loop with step {s.step}")
    start, stop = render_expr.scalar(w, s.start), render_expr.scalar(w, s.stop)
    outer = _outer(w, s)
    # Side by side pays where a chain of updates or an inner loop can overlap; plain bodies overlap by themselves.
    many = s.unroll if outer or any(isinstance(x, For) for x in walk(s.body)) else 1
    x, y = constant(start), constant(stop)
    if x is not None and y is not None:
        many = max(1, min(many, (y - x) // s.width))
    partials = render_acc.open_partials(w, outer, many, s.width)
    _set(w, partials)
    position = start
    if many > 1:
        position = _groups(w, s, position, stop, many)
    if w.module.description.masked:
        if many == 1:
            position = _groups(w, s, position, stop, 1)
        _masked_rest(w, s, position, stop, loop=many > 1)
    else:
        position = _groups(w, s, position, stop, 1)
    render_acc.close_partials(w, outer, partials)
    _set(w, outer)
    if not w.module.description.masked:
        counted(w, position, stop, 1, lambda i: _once(w, s.var, s.body, i))


def _outer(w: State, s: For) -> list[AccState]:
    """Accumulators of outside that the loop updates."""
    inside, found = declared(s.body), dict[int, AccState]()
    for x in walk(s.body):
        if isinstance(x, Update) and x.vars[0] not in inside:
            state = w.accs.get(x.vars[0])
            if state is None:
                raise VerifyError(f"{x.vars[0]} is no accumulator")
            found[id(state)] = state
    return list(found.values())


def _set(w: State, states: Sequence[AccState]) -> None:
    for state in states:
        for v in state.acc.vars:
            w.accs[v] = state
            (w.varying.add if state.lanes > 1 else w.varying.discard)(v)


def _groups(w: State, s: For, start: str, stop: str, many: int) -> str:
    """All full sets of `many` groups; returns the position after them."""
    chunk = s.width * many
    x, y = constant(start), constant(stop)
    if x is not None and y is not None:
        end = str(x + max(0, y - x) // chunk * chunk)
        if end == start:
            return start
    else:
        span = w.isub(stop, start)
        # A negative span must not round up: range(5, 2) is empty.
        whole = w.call("i64", "llvm.smax.i64", [("i64", span), ("i64", "0")])
        rest = w.op(f"urem i64 {whole}, {chunk}")
        end = w.iadd(start, w.op(f"sub i64 {whole}, {rest}"))
    counted(w, start, end, chunk, lambda i: _lanes(w, s, i, [None] * many))
    return end


def _masked_rest(w: State, s: For, start: str, stop: str, loop: bool) -> None:
    """Groups under a mask of the lanes that exist, until `stop` (`loop`: there may be several)."""
    x, y = constant(start), constant(stop)
    if x is not None and y is not None:
        for position in range(x, y, s.width):
            mask = None if y - position >= s.width else _literal_mask(s.width, y - position)
            _lanes(w, s, str(position), [mask])
        return

    def body(position: str) -> None:
        left = w.isub(stop, position)
        if loop:
            left = w.call("i64", "llvm.smin.i64", [("i64", left), ("i64", str(s.width))])
        _lanes(w, s, position, [_mask(w, s.width, left)])

    if loop:
        counted(w, start, stop, s.width, body)
        return
    some, after = w.label("tail"), w.label("after")
    w.branch(w.iless(start, stop), some, after)
    w.start(some)
    with w.scope():
        body(start)
    w.jump(after)
    w.start(after)


def _literal_mask(width: int, count: int) -> str:
    return "<" + ", ".join(f"i1 {'true' if k < count else 'false'}" for k in range(width)) + ">"


def _mask(w: State, width: int, count: str) -> str:
    """The first `count` of the lanes, 1 <= count <= width."""
    if width <= 64 and width >= 8:
        away = w.op(f"sub i64 {width}, {count}")
        short = away if width == 64 else w.op(f"trunc i64 {away} to i{width}")
        bits = w.op(f"lshr i{width} -1, {short}")
        return w.op(f"bitcast i{width} {bits} to <{width} x i1>")
    return w.compare("ult", "i64", width, w.iota("i64", width), w.splat("i64", count, width))


def _lanes(w: State, s: For, position: str, tails: Sequence[str | None]) -> None:
    """The body, for one group of lanes per entry of `tails`."""
    with w.scope():
        w.lanes, w.groups = s.width, [Group(tail=tail) for tail in tails]
        before = set(w.varying)
        w.varying.add(s.var)
        w.forget_volatile()
        for number, group in enumerate(w.groups):
            w.remember(group, var(s.var), Value("l", w.iadd(position, str(number * s.width)), i64, "1"))
        block(w, s.body)
        w.varying = before
        w.lanes, w.groups = 1, [w.common]
        w.forget_volatile()
