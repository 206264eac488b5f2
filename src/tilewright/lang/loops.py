"""Loops. At the top level `tiles` and `indices` make an unordered `par`, and perfectly nested ones merge into it;
inside they are ordered, and names that live across turns become carried values. `range` over a known count unrolls."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import DTypeError, ShapeError
from ..ir.tile import build, rewrite
from ..ir.tile.core import Axis, Node
from ..ir.types import i64
from . import operators
from .context import Context, is_size
from .dims import Dim
from .expressions import arguments, evaluate
from .liveness import assigned, live_before
from .statements import NOTHING, bind, flush_fills, run_block
from .values import Index, InTensor, Intrinsic, OutTensor, describe

UNROLL = 16
_HEAVY = ("loop", "fold", "argfold", "scan", "dot", "if")


def run_for(ctx: Context, s: ast.For, live: set[str]) -> Any:
    if s.orelse:
        ctx.fail("for ... else is not part of the kernel language", s.orelse[0], "put the statements after the loop")
    kind = grid_kind(ctx, s)
    if kind is not None:
        if ctx.at_top:
            _par(ctx, s, live)
        else:
            axes = _grid_axes(ctx, s, kind)
            _ordered(ctx, s, axes, lambda: _bind_axes(ctx, s, axes), live)
        return NOTHING
    return _range_or_tuple(ctx, s, live)


def grid_kind(ctx: Context, s: ast.For) -> str | None:
    """'tile' for tw.tiles, 'single' for tw.indices, None for anything else."""
    if not isinstance(s.iter, ast.Call) or not isinstance(s.iter.func, ast.Attribute | ast.Name):
        return None
    function = evaluate(ctx, s.iter.func)
    if isinstance(function, Intrinsic):
        return {"tiles": "tile", "indices": "single"}.get(function.__name__)
    return None


def _grid_axes(ctx: Context, s: ast.For, kind: str) -> list[Axis]:
    assert isinstance(s.iter, ast.Call)
    sizes, named = arguments(ctx, s.iter)
    ctx.loc = ctx.place(s.iter)
    word = "tiles" if kind == "tile" else "indices"
    if named:
        ctx.fail(f"tw.{word} takes dims only", s.iter, "tile sizes and order belong to the schedule")
    names = _target_names(ctx, s, len(sizes))
    axes = []
    for name, size in zip(names, sizes, strict=True):
        if isinstance(size, Dim):
            size = ctx.size(size)
        if isinstance(size, InTensor | OutTensor):
            ctx.fail(f"tw.{word} over {describe(size)}", s.iter, f"write tw.{word}(*{size.param.name}.shape)")
        if isinstance(size, bool) or not (isinstance(size, int) or isinstance(size, Node) and is_size(size)):
            ctx.fail(f"tw.{word} over {describe(size)}", s.iter, "loop over dims, ints or arithmetic on them")
        if isinstance(size, int) and size < 0:
            raise ShapeError(f"tw.{word} over a negative size: {size}", loc=ctx.loc)
        axes.append(ctx.axis(name, operators.tile(ctx, size, i64), kind))
    return axes


def _target_names(ctx: Context, s: ast.For, count: int) -> list[str]:
    match s.target:
        case ast.Name():
            return [s.target.id] if count == 1 and not _starred(s) else [f"{s.target.id}{k}" for k in range(count)]
        case ast.Tuple() if all(isinstance(e, ast.Name) for e in s.target.elts):
            names = [e.id for e in s.target.elts if isinstance(e, ast.Name)]
            if len(names) != count:
                ctx.fail(f"{len(names)} loop variables for {count} dims", s.target)
            return names
        case _:
            ctx.fail("loop variables must be names", s.target)


def _starred(s: ast.For) -> bool:
    return isinstance(s.iter, ast.Call) and any(isinstance(a, ast.Starred) for a in s.iter.args)


def _bind_axes(ctx: Context, s: ast.For, axes: Sequence[Axis]) -> None:
    loc = ctx.place(s.target)
    values = tuple(Index(build.index(a, loc), a) if a.kind == "tile" else build.pos(a, loc) for a in axes)
    if isinstance(s.target, ast.Name):
        single = len(axes) == 1 and not _starred(s)
        ctx.env[s.target.id] = values[0] if single else values
        ctx.frame.loop_variables.add(s.target.id)
        return
    assert isinstance(s.target, ast.Tuple)
    for t, v in zip(s.target.elts, values, strict=True):
        assert isinstance(t, ast.Name)
        ctx.env[t.id] = v
        ctx.frame.loop_variables.add(t.id)


# ---------------------------------------------------------------------------------------------- unordered


def _par(ctx: Context, s: ast.For, live: set[str]) -> None:
    flush_fills(ctx)
    frame = ctx.frame
    outer, variables = dict(frame.env), set(frame.loop_variables)
    loc = ctx.place(s)
    axes: list[Axis] = []
    with ctx.region("par") as effects:
        current = s
        while True:
            _refuse_carried(ctx, current, live, outer)
            found = _grid_axes(ctx, current, grid_kind(ctx, current) or "tile")
            axes += found
            _bind_axes(ctx, current, found)
            inner = _merge(ctx, current, live)
            if inner is None:
                break
            current = inner
    frame.env, frame.loop_variables = outer, variables
    _forget(ctx, s)
    if not effects:
        ctx.fail("this loop stores nothing", s, "store a result: out[i, j] = ...")
    ctx.effects.append(build.par(axes, effects, loc))


def _refuse_carried(ctx: Context, s: ast.For, live: set[str], outer: dict[str, Any]) -> None:
    names = carried_names(s, live, outer)
    if names:
        ctx.fail(f"'{names[0]}' would be carried from turn to turn, and loops at the top level are unordered", s,
                 "give it its value inside the loop, or reduce over an inner loop")


def _merge(ctx: Context, s: ast.For, live: set[str]) -> ast.For | None:
    """Runs the loop's body, or what stands before its last statement when that is a loop which joins this grid."""
    last = s.body[-1]
    before = s.body[:-1]
    joins = (isinstance(last, ast.For) and not last.orelse and grid_kind(ctx, last) is not None
             and all(isinstance(b, ast.Assign) and not _stores(b) or _is_text(b) for b in before))
    if not joins:
        run_block(ctx, s.body, live)
        return None
    assert isinstance(last, ast.For)
    run_block(ctx, before, live_before([last], live))
    names = assigned(before)
    made = [v for name in names if isinstance(v := ctx.env.get(name), Node)]
    heavy = any(n.op in _HEAVY for n in rewrite.walk(made))
    if heavy or carried_names(last, live, ctx.env):
        run_for(ctx, last, live)
        return None
    return last


def _stores(s: ast.Assign) -> bool:
    return any(isinstance(n, ast.Subscript) for t in s.targets for n in ast.walk(t))


def _is_text(s: ast.stmt) -> bool:
    return isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)


# ---------------------------------------------------------------------------------------------- ordered


def carried_names(s: ast.For, live: set[str], env: dict[str, Any]) -> list[str]:
    """Names with a value before the loop that it changes for a later turn or for what follows."""
    variables = {n.id for n in ast.walk(s.target) if isinstance(n, ast.Name)}
    entry = live_before(s.body, live)
    alive = live_before(s.body, live | entry) | live
    values = {n for n, v in env.items() if not isinstance(v, InTensor | OutTensor)}  # assigning those is refused later
    return sorted((assigned(s.body) - variables) & alive & values)


def _ordered(ctx: Context, s: ast.For, axes: Sequence[Axis], bind_axes: Callable[[], None], live: set[str]) -> None:
    frame = ctx.frame
    names = carried_names(s, live, frame.env)
    variables = set(frame.loop_variables)
    inside = live_before(s.body, live) | live | set(names)

    def body() -> None:
        bind_axes()
        if run_block(ctx, s.body, inside) is not NOTHING:
            ctx.fail("return stands inside a loop", s, "return once, as the last statement")

    _give_types(ctx, s, names, body)
    before = set(frame.env)
    _nest(ctx, s, axes, names, body, live)
    frame.loop_variables = variables
    for name in set(frame.env) - before:
        del frame.env[name]
    _forget(ctx, s)


def _nest(ctx: Context, s: ast.For, axes: Sequence[Axis], names: list[str], body: Callable[[], None],
          live: set[str]) -> None:
    env = ctx.frame.env
    if not axes:
        body()
        return
    inits = [env[n] for n in names]
    params = [build.carried(init.type, n) for n, init in zip(names, inits, strict=True)]
    env.update(zip(names, params, strict=True))
    with ctx.region("loop") as effects:
        _nest(ctx, s, axes[1:], names, body, live)
    yields = [_yielded(ctx, s, n, env[n], p) for n, p in zip(names, params, strict=True)]
    if not names and not effects and not live & assigned(s.body):
        ctx.fail("this loop changes nothing", s, "assign a name that has a value before the loop, or store a result")
    node = build.loop(axes[0], inits, params, yields, effects, loc=ctx.place(s))
    for k, n in enumerate(names):
        env[n] = build.result(node, k)
    if effects:
        ctx.effects.append(node)


def _yielded(ctx: Context, s: ast.For, name: str, value: Any, param: Node) -> Node:
    ctx.loc = ctx.place(s)
    new = operators.tile(ctx, value, param.dtype)
    if new.dtype == param.dtype and build.same_shape(new.shape, param.shape):
        return new
    error = DTypeError if new.dtype != param.dtype else ShapeError
    hint = f"give it the type {build.shape_text(new.shape)} before the loop, e.g. tw.full(shape, value, tw.{new.dtype})"
    raise error(f"'{name}' is {describe(param)} before the loop and {describe(new)} after a turn", loc=ctx.place(s),
                hint=f"write .to(tw.{param.dtype}) on the new value" if error is DTypeError else hint)


def _give_types(ctx: Context, s: ast.For, names: list[str], body: Callable[[], None]) -> None:
    """Carried values are tiles: Python numbers among them take the type that the loop's body gives them."""
    frame = ctx.frame
    loose = []
    for n in names:
        value = frame.env[n]
        if isinstance(value, Node) and not operators.weak(value):
            continue
        if not operators.weak(value):
            ctx.fail(f"'{n}' is {describe(value)} and cannot change in a loop", s, "only tiles and numbers can")
        loose.append(n)
    if not loose:
        return
    saved, variables = frame.env, set(frame.loop_variables)
    frame.env = dict(saved)
    ctx.trial(body)
    after, frame.env, frame.loop_variables = frame.env, saved, variables
    ctx.loc = ctx.place(s)
    for n in loose:
        new = after.get(n)
        dtype = new.dtype if isinstance(new, Node) else operators.default_dtype(new)
        if isinstance(saved[n], float) and not dtype.is_float:
            dtype = operators.default_dtype(saved[n])
        frame.env[n] = operators.tile(ctx, saved[n], dtype)


def _forget(ctx: Context, s: ast.For) -> None:
    line = ctx.place(s).line
    for name in assigned([s]):
        if name not in ctx.env:
            ctx.frame.gone.setdefault(name, ("loop", line))


# ---------------------------------------------------------------------------------------------- range and tuples


def _range_or_tuple(ctx: Context, s: ast.For, live: set[str]) -> Any:
    span: Sequence[Any] | None = None
    if isinstance(s.iter, ast.Call) and isinstance(s.iter.func, ast.Name) and evaluate(ctx, s.iter.func) is range:
        args, named = arguments(ctx, s.iter)
        ctx.loc = ctx.place(s.iter)
        span = range(*(ctx.as_int(a, "an argument of range", s.iter) for a in args))
    else:
        value = evaluate(ctx, s.iter)
        if isinstance(value, tuple):
            span = value
        elif isinstance(value, InTensor):
            ctx.fail(f"a for over the tensor '{value.param.name}'", s.iter,
                     f"write tw.tiles(*{value.param.name}.shape)")
        else:
            ctx.fail(f"a for over {describe(value)}", s.iter, "loop over tw.tiles(...), tw.indices(...) or range(n)")
    if isinstance(span, range) and len(span) > UNROLL:
        _counted(ctx, s, span, live)
        return NOTHING
    inside = live_before(s.body, live) | live
    for item in span:
        bind(ctx, s.target, item)
        if run_block(ctx, s.body, inside) is not NOTHING:
            ctx.fail("return stands inside a loop", s, "return once, as the last statement")
    return NOTHING


def _counted(ctx: Context, s: ast.For, span: range, live: set[str]) -> None:
    if ctx.at_top:
        ctx.fail(f"a range of {len(span)} turns stands at the top level", s, "write tw.tiles or tw.indices there")
    if not isinstance(s.target, ast.Name):
        ctx.fail("loop variables must be names", s.target)
    name = s.target.id
    axis = ctx.axis(name, build.const(len(span), i64), "range")

    def bind_axis() -> None:
        place = build.imul(build.pos(axis, ctx.place(s.target)), build.const(span.step, i64))
        ctx.env[name] = build.iadd(place, build.const(span.start, i64))
        ctx.frame.loop_variables.add(name)

    _ordered(ctx, s, [axis], bind_axis, live)
