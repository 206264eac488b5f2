"""Runs the statements of a kernel's syntax tree: assignments, if, inlined helpers. Loops are in `loops`."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import DTypeError, ShapeError
from ..ir.tile import build
from ..ir.tile.core import Node
from . import advice, operators
from .context import Context, Frame
from .expressions import evaluate
from .indexing import stored_index
from .liveness import assigned, live_after_each
from .source import source_of
from .values import Helper, Index, InTensor, OutTensor, describe

NOTHING = object()  # a block ended without return


def run_block(ctx: Context, stmts: Sequence[ast.stmt], live: set[str]) -> Any:
    """Runs statements; `live` are the names that may be read after them. Gives the returned value, or NOTHING."""
    after: list[set[str]] | None = None
    for k, s in enumerate(stmts):
        if isinstance(s, ast.For | ast.If) and after is None:
            after = live_after_each(stmts, live)
        visit = _VISIT.get(type(s))
        if visit is None:
            what, hint = advice.construct(s)
            ctx.fail(f"{what} is not part of the kernel language", s, hint)
        out = visit(ctx, s, after[k] if after is not None else live)
        if out is not NOTHING:
            if k + 1 < len(stmts) and isinstance(s, ast.Return):
                ctx.fail("statements after return are never run", stmts[k + 1])
            return out
    return NOTHING


# ---------------------------------------------------------------------------------------------- assignments


def _assign(ctx: Context, s: ast.Assign, live: set[str]) -> Any:
    value = evaluate(ctx, s.value)
    for target in s.targets:
        bind(ctx, target, value)
    return NOTHING


def _annassign(ctx: Context, s: ast.AnnAssign, live: set[str]) -> Any:
    ctx.fail("annotations on local names are not part of the kernel language", s, "write .to(dtype) on the value")


def bind(ctx: Context, target: ast.expr, value: Any) -> None:
    match target:
        case ast.Name():
            _bind_name(ctx, target, value)
        case ast.Tuple():
            if not isinstance(value, tuple) or len(value) != len(target.elts):
                count = len(value) if isinstance(value, tuple) else 1
                ctx.fail(f"{count} value{'s' * (count != 1)} for {len(target.elts)} names", target)
            for t, v in zip(target.elts, value, strict=True):
                bind(ctx, t, v)
        case ast.Subscript():
            _store(ctx, target, value)
        case ast.Attribute():
            ctx.fail("attributes cannot be assigned in kernels", target, "use a local name")
        case _:
            what, hint = advice.construct(target)
            ctx.fail(f"{what} cannot be assigned", target, hint)


def _bind_name(ctx: Context, target: ast.Name, value: Any) -> None:
    frame = ctx.frame
    if target.id in frame.loop_variables:
        ctx.fail(f"'{target.id}' is a loop variable and cannot be assigned", target, "use another name")
    if isinstance(frame.env.get(target.id), InTensor | OutTensor):
        ctx.fail(f"'{target.id}' is a tensor and cannot be assigned", target,
                 f"store into an output with {target.id}[i, j] = ..., or use another name")
    if value is None:
        ctx.fail("there is no value to assign", target)
    if isinstance(value, OutTensor) and not value.name:
        _name_output(ctx, value, target)
    frame.env[target.id] = value
    frame.gone.pop(target.id, None)


def _name_output(ctx: Context, out: OutTensor, target: ast.Name) -> None:
    taken = {o.name for o in ctx.outputs} | {k for k, v in ctx.frames[0].env.items() if isinstance(v, InTensor)}
    name, k = target.id, 1
    while name in taken:
        name, k = f"{target.id}_{k}", k + 1
    out.name = name
    flush_fills(ctx)


def flush_fills(ctx: Context) -> None:
    """tw.full at the top level: a loop of its own writes the value."""
    named = [fill for fill in ctx.pending_fills if fill[0].name]
    for out, value in named:
        axes = [ctx.axis(f"{out.name}_fill{d}", size, "tile") for d, size in enumerate(out.dims)]
        node = build.store(out.param, [build.index(a) for a in axes], value, out.loc)
        ctx.effects.append(build.par(axes, [node], out.loc))
        out.written = True
    ctx.pending_fills = [fill for fill in ctx.pending_fills if fill not in named]


def _store(ctx: Context, target: ast.Subscript, value: Any) -> None:
    tensor = evaluate(ctx, target.value)
    index = evaluate(ctx, target.slice)
    ctx.loc = ctx.place(target)
    if isinstance(tensor, InTensor):
        ctx.fail(f"'{tensor.param.name}' is an input and cannot be written", target,
                 f"make an output: out = tw.empty_like({tensor.param.name})")
    if isinstance(tensor, Node):
        ctx.fail("tiles are immutable: a part of one cannot be assigned", target,
                 "build a new tile, e.g. tw.where(i.index == 0, a, t)")
    if not isinstance(tensor, OutTensor):
        ctx.fail(f"{describe(tensor)} cannot be assigned by index", target)
    if ctx.at_top:
        ctx.fail("a store stands outside every loop", target, "put it into a loop over tw.tiles or tw.indices")
    places = stored_index(ctx, tensor, index)
    if isinstance(value, Index):
        ctx.fail("a tile index cannot be stored", target, "write i.index.to(...): its coordinates as a tile")
    ctx.effects.append(build.store(tensor.param, places, operators.tile(ctx, value, tensor.dtype), ctx.loc))
    tensor.written = True


def _augassign(ctx: Context, s: ast.AugAssign, live: set[str]) -> Any:
    if isinstance(s.target, ast.Subscript):
        if isinstance(evaluate(ctx, s.target.value), OutTensor):
            ctx.fail("an output cannot be read, so it cannot be updated in place", s,
                     "keep the sum in a variable and store it once, or use tw.scatter_add(out, i, j, value)")
        ctx.fail("only names can be updated in place", s, "build a new value")
    if not isinstance(s.target, ast.Name):
        ctx.fail("only names can be updated in place", s, "use a local name")
    if type(s.op) not in operators.BINARY:
        what, hint = advice.construct(s.op)
        ctx.fail(f"{what} is not part of the kernel language", s, hint)
    before = evaluate(ctx, ast.copy_location(ast.Name(s.target.id, ast.Load()), s.target))
    value = evaluate(ctx, s.value)
    ctx.loc = ctx.place(s)
    bind(ctx, s.target, operators.binary(ctx, type(s.op), before, value))
    return NOTHING


# ---------------------------------------------------------------------------------------------- other statements


def _expr(ctx: Context, s: ast.Expr, live: set[str]) -> Any:
    if isinstance(s.value, ast.Constant) and (isinstance(s.value.value, str) or s.value.value is Ellipsis):
        return NOTHING
    if evaluate(ctx, s.value) is not None:
        ctx.fail("the result of this expression is not used", s, "assign it, or store it into an output")
    return NOTHING


def _pass(ctx: Context, s: ast.Pass, live: set[str]) -> Any:
    return NOTHING


def _assert(ctx: Context, s: ast.Assert, live: set[str]) -> Any:
    value = evaluate(ctx, s.test)
    if isinstance(value, Node) and not value.shape:
        ctx.pin(value, "an assertion", s.test)
    if not operators.is_static(value):
        ctx.fail(f"an assertion on {describe(value)}", s,
                 "assert facts known at compile time: dims, dtypes, static values")
    if not value:
        message = evaluate(ctx, s.msg) if s.msg is not None else "the assertion does not hold"
        raise ShapeError(str(message), loc=ctx.place(s))
    return NOTHING


def _return(ctx: Context, s: ast.Return, live: set[str]) -> Any:
    if len(ctx.regions) > ctx.frame.depth:
        ctx.fail("return stands inside a loop or a runtime if", s, "return once, as the last statement")
    return evaluate(ctx, s.value) if s.value is not None else None


def _if(ctx: Context, s: ast.If, live: set[str]) -> Any:
    test = evaluate(ctx, s.test)
    ctx.loc = ctx.place(s.test)
    cond = operators.condition(ctx, test, s.test)
    if isinstance(cond, Node) and ctx.at_top:
        if not _on_dims(cond):
            ctx.fail("an if on a runtime value stands outside every loop", s.test, "put it into the loop")
        ctx.pin(cond, "an if outside loops", s.test)
    if isinstance(cond, bool):
        return run_block(ctx, s.body if cond else s.orelse, live)
    _runtime_if(ctx, s, cond, live)
    return NOTHING


def _on_dims(n: Node) -> bool:
    return not n.free and n.op in ("dim", "const", "map", "cast") and all(_on_dims(a) for a in n.args)


def _runtime_if(ctx: Context, s: ast.If, cond: Node, live: set[str]) -> None:
    frame = ctx.frame
    before = frame.env  # loops around us hold on to it: branches work on copies
    envs: list[dict[str, Any]] = []
    effects: list[list[Node]] = []
    for branch in (s.body, s.orelse):
        frame.env = dict(before)
        with ctx.region("if") as made:
            if run_block(ctx, branch, live) is not NOTHING:
                ctx.fail("return stands inside a runtime if", s, "return once, as the last statement")
        envs.append(frame.env)
        effects.append(made)
    frame.env = before
    names: list[str] = []
    values: list[tuple[Node, Node]] = []
    for name in sorted(assigned([s])):
        a, b = envs[0].get(name, NOTHING), envs[1].get(name, NOTHING)
        if a is NOTHING or b is NOTHING:
            frame.gone[name] = ("branch of the if", ctx.place(s).line)
            frame.env.pop(name, None)
        elif a is not b and name in live:
            names.append(name)
            values.append(_same_type(ctx, s, name, a, b))
    node = build.if_(cond, [a for a, _ in values], [b for _, b in values],
                     effects[0], effects[1], loc=ctx.place(s))
    for k, name in enumerate(names):
        frame.env[name] = build.result(node, k)
    if effects[0] or effects[1]:
        ctx.effects.append(node)


def _same_type(ctx: Context, s: ast.If, name: str, a: Any, b: Any) -> tuple[Node, Node]:
    ctx.loc = ctx.place(s)
    x, y = operators.tiles(ctx, a, b)
    if x.dtype != y.dtype or not build.same_shape(x.shape, y.shape):
        error = DTypeError if x.dtype != y.dtype else ShapeError
        raise error(f"'{name}' is {describe(x)} in one branch and {describe(y)} in the other", loc=ctx.place(s),
                    hint="both branches must give it the same type")
    return x, y


# ---------------------------------------------------------------------------------------------- helpers


def inline(ctx: Context, helper: Helper, args: list[Any], named: dict[str, Any], node: ast.Call) -> Any:
    """Runs a helper's body in a frame of its own; its errors show the call too."""
    source = source_of(helper.helper_of)
    call = ctx.place(node)
    if any(f.source is source for f in ctx.frames):
        ctx.fail(f"'{helper.__name__}' calls itself", node, "helpers are inlined: write a loop instead of recursion")
    signature = inspect.signature(helper.helper_of)
    try:
        bound = signature.bind(*args, **named)
    except TypeError as e:
        ctx.fail(f"{helper.__name__}: {e}", node)
    bound.apply_defaults()
    ctx.frames.append(Frame(source, dict(bound.arguments), call, depth=len(ctx.regions)))
    value = run_block(ctx, source.tree.body, set())
    ctx.frames.pop()
    ctx.loc = call
    return None if value is NOTHING else value


def _for(ctx: Context, s: ast.For, live: set[str]) -> Any:
    from .loops import run_for

    return run_for(ctx, s, live)


_VISIT: dict[type[ast.stmt], Callable[[Context, Any, set[str]], Any]] = {
    ast.Assign: _assign, ast.AnnAssign: _annassign, ast.AugAssign: _augassign, ast.Expr: _expr, ast.Pass: _pass,
    ast.Assert: _assert, ast.Return: _return, ast.If: _if, ast.For: _for,
}
