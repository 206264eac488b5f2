"""Evaluates the expressions of a kernel's syntax tree to values (see `values`)."""

from __future__ import annotations

import ast
import difflib
import inspect
import types
from collections.abc import Callable
from functools import cache
from typing import Any

from ..errors import LanguageError
from ..ir.tile import build
from ..ir.tile.core import Node, const_value
from ..ir.types import DType
from . import advice, elementwise, making, operators, reductions
from .context import Context
from .dims import Dim
from .indexing import load_tile, tile_part
from .intrinsics import INTRINSICS, METHODS
from .source import dotted
from .values import Helper, Index, InTensor, Intrinsic, Method, OutTensor, describe

HANDLERS = elementwise.HANDLERS
assert reductions and making  # they register their handlers
_STATIC_BUILTINS: dict[Any, str] = {len: "len", int: "int", float: "float", bool: "bool"}


def evaluate(ctx: Context, node: ast.expr) -> Any:
    visit = _VISIT.get(type(node))
    if visit is None:
        what, hint = advice.construct(node)
        ctx.fail(f"{what} is not part of the kernel language", node, hint)
    return visit(ctx, node)


def _constant(ctx: Context, node: ast.Constant) -> Any:
    if isinstance(node.value, bytes | complex):
        ctx.fail(f"{type(node.value).__name__} values are not part of the kernel language", node)
    return node.value


def _name(ctx: Context, node: ast.Name) -> Any:
    frame = ctx.frame
    if node.id in frame.env:
        return frame.env[node.id]
    if node.id in frame.gone:
        what, line = frame.gone[node.id]
        ctx.fail(f"'{node.id}' is assigned only inside the {what} at line {line}", node,
                 f"give it a value before the {what}" + (": it is then carried on" if what == "loop" else ""))
    if node.id in frame.source.captured:
        return outside(ctx, node.id, frame.source.captured[node.id], node)
    ctx.fail(f"'{node.id}' is used before it has a value", node)


def outside(ctx: Context, name: str, value: Any, node: ast.expr) -> Any:
    """A value from outside the kernel: constants, dims, dtypes, helpers and the language's own functions."""
    if isinstance(value, Dim):
        ctx.loc = ctx.place(node)
        return operators.plain(ctx.size(value))
    if isinstance(value, bool | int | float | str | DType | Intrinsic | Helper | types.ModuleType | type | None):
        return value
    if isinstance(value, tuple) and all(isinstance(v, bool | int | float | str | DType) for v in value):
        return value
    if isinstance(value, types.BuiltinFunctionType):
        return value
    if isinstance(value, types.FunctionType):
        ctx.fail(f"'{name}' is an ordinary Python function", node, "decorate it with @tw.fn so that it can be inlined")
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        ctx.fail(f"'{name}' is an array from outside the kernel", node, "pass it as a parameter")
    ctx.fail(f"'{name}' is {describe(value)} from outside the kernel", node,
             "kernels see numbers, bools, strings, tuples of them, dtypes, dims and @tw.fn helpers from outside")


def _attribute(ctx: Context, node: ast.Attribute) -> Any:
    frame = ctx.frame
    name = dotted(node)
    if name is not None and name in frame.source.captured and name.split(".")[0] not in frame.env:
        return outside(ctx, name, frame.source.captured[name], node)
    value = evaluate(ctx, node.value)
    ctx.loc = ctx.place(node)
    match value, node.attr:
        case types.ModuleType(), _:
            near = difflib.get_close_matches(node.attr, dir(value), 1)
            ctx.fail(f"module {value.__name__} has no '{node.attr}'", node,
                     f"did you mean {value.__name__}.{near[0]}?" if near else None)
        case (InTensor() | OutTensor()), "shape":
            return tuple(operators.plain(ctx.size(d)) for d in value.param.dims)
        case (InTensor() | OutTensor()), "dtype":
            return value.param.dtype
        case (InTensor() | OutTensor()), "ndim":
            return value.param.rank
        case Index(axis=axis), "index" if axis is not None:
            return value.node
        case Index(), "size":
            ctx.fail("the size of a tile belongs to the schedule", node, "write kernels that do not depend on it")
        case Node(), "dtype":
            return value.dtype
        case Node(), "shape":
            return value.shape
        case Node(), "ndim":
            return len(value.shape)
        case Node(), "T":
            return build.transpose(value, tuple(reversed(range(len(value.shape)))), ctx.loc)
        case Node(), "to":
            return Method(INTRINSICS["cast"], value)
        case (int() | float()), "to":
            return Method(INTRINSICS["cast"], value)
        case Node(), _ if node.attr in METHODS:
            return Method(INTRINSICS[node.attr], value)
        case InTensor(), _:
            ctx.fail(f"the tensor '{value.param.name}' has no '{node.attr}' in kernels", node,
                     "load a tile first: x[i, j] has .T, .sum(...), .to(...)")
        case _:
            ctx.fail(f"{describe(value)} has no '{node.attr}' in kernels", node,
                     "write .to(dtype)" if node.attr == "astype" else None)


def _binop(ctx: Context, node: ast.BinOp) -> Any:
    if type(node.op) not in operators.BINARY:
        what, hint = advice.construct(node.op)
        ctx.fail(f"{what} is not part of the kernel language", node, hint)
    a, b = evaluate(ctx, node.left), evaluate(ctx, node.right)
    ctx.loc = ctx.place(node)
    return operators.binary(ctx, type(node.op), a, b)


def _unaryop(ctx: Context, node: ast.UnaryOp) -> Any:
    value = evaluate(ctx, node.operand)
    ctx.loc = ctx.place(node)
    return operators.unary(ctx, node.op, value)


def _boolop(ctx: Context, node: ast.BoolOp) -> Any:
    stop = isinstance(node.op, ast.Or)
    out: Any = None
    for part in node.values:
        value = evaluate(ctx, part)
        if isinstance(value, Node) and value.shape:
            word, sign = ("or", "|") if stop else ("and", "&")
            ctx.fail(f"'{word}' is for single values, and this is {describe(value)}", part, f"write {sign} on tiles")
        ctx.loc = ctx.place(node)
        value = operators.condition(ctx, value, part)
        if isinstance(value, bool):
            if value is stop:
                return stop
            continue
        out = value if out is None else build.map("or" if stop else "and", out, value, loc=ctx.loc)
    return (not stop) if out is None else out


def _compare(ctx: Context, node: ast.Compare) -> Any:
    left = evaluate(ctx, node.left)
    out: Any = None
    for op, right_node in zip(node.ops, node.comparators, strict=True):
        right = evaluate(ctx, right_node)
        ctx.loc = ctx.place(node)
        if isinstance(op, ast.Is | ast.IsNot) and (left is None or right is None):
            part: Any = (left is right) == isinstance(op, ast.Is)
        elif type(op) not in operators.COMPARE:
            what, hint = advice.construct(op if not isinstance(op, ast.IsNot) else ast.Is())
            ctx.fail(f"'{what}' is not part of the kernel language", node, hint)
        else:
            part = operators.compare(ctx, type(op), left, right)
        if out is None or out is True:
            out = part
        elif out is not False:
            out = operators.binary(ctx, ast.BitAnd, out, part)
        left = right
    return out


def _ifexp(ctx: Context, node: ast.IfExp) -> Any:
    test = evaluate(ctx, node.test)
    ctx.loc = ctx.place(node)
    cond = operators.condition(ctx, test, node.test)
    if isinstance(cond, bool):
        return evaluate(ctx, node.body if cond else node.orelse)
    a, b = evaluate(ctx, node.body), evaluate(ctx, node.orelse)
    ctx.loc = ctx.place(node)
    return HANDLERS["where"](ctx, cond, a, b)


def _tuple(ctx: Context, node: ast.Tuple) -> Any:
    out: list[Any] = []
    for e in node.elts:
        if isinstance(e, ast.Starred):
            value = evaluate(ctx, e.value)
            if not isinstance(value, tuple):
                ctx.fail(f"* needs a tuple, not {describe(value)}", e)
            out.extend(value)
        else:
            out.append(evaluate(ctx, e))
    return tuple(out)


def _slice(ctx: Context, node: ast.Slice) -> Any:
    return slice(*(None if e is None else evaluate(ctx, e) for e in (node.lower, node.upper, node.step)))


def _subscript(ctx: Context, node: ast.Subscript) -> Any:
    value = evaluate(ctx, node.value)
    index = evaluate(ctx, node.slice)
    ctx.loc = ctx.place(node)
    match value:
        case InTensor():
            return load_tile(ctx, value, index)
        case OutTensor():
            ctx.fail(f"the output '{value.name}' cannot be read", node,
                     "outputs are write-only: keep the value in a variable, or store to a second output")
        case Node():
            return tile_part(ctx, value, index)
        case Index():
            ctx.fail("a loop variable has no parts", node, "its coordinates are a tile: i.index[:, None]")
        case tuple() | str():
            if isinstance(index, Node):
                index = ctx.as_int(index, "the position in a tuple", node.slice)
            return operators.static(ctx, "[]", lambda a, b: a[b], value, index)
        case _:
            ctx.fail(f"{describe(value)} cannot be indexed", node)


# ---------------------------------------------------------------------------------------------- calls


@cache
def _signature(name: str) -> inspect.Signature:
    parameters = list(inspect.signature(HANDLERS[name]).parameters.values())[1:]
    return inspect.Signature([p.replace(annotation=inspect.Parameter.empty) for p in parameters])


def arguments(ctx: Context, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
    args = list(_tuple(ctx, ast.Tuple(node.args, ast.Load())))
    named: dict[str, Any] = {}
    for k in node.keywords:
        if k.arg is None:
            ctx.fail("** is not part of the kernel language", node, "write the arguments out")
        named[k.arg] = evaluate(ctx, k.value)
    return args, named


def _call(ctx: Context, node: ast.Call) -> Any:
    function = evaluate(ctx, node.func)
    args, named = arguments(ctx, node)
    ctx.loc = ctx.place(node)
    match function:
        case Method():
            return intrinsic(ctx, function.intrinsic, [function.of, *args], named)
        case Intrinsic():
            return intrinsic(ctx, function, args, named)
        case Helper():
            from .statements import inline

            return inline(ctx, function, args, named, node)
        case _:
            return _builtin(ctx, function, args, named, node)


def intrinsic(ctx: Context, f: Intrinsic, args: list[Any], named: dict[str, Any]) -> Any:
    name = f.__name__
    if name in ("tiles", "indices"):
        ctx.fail(f"tw.{name} stands outside a for", hint=f"write for i in tw.{name}(...):")
    loc = ctx.loc
    handler: Callable[..., Any] = HANDLERS[name]
    try:
        _signature(name).bind(*args, **named)
    except TypeError as e:
        ctx.fail(f"tw.{name}: {e}", hint=f"{f.__doc__}")
    try:
        return handler(ctx, *args, **named)
    finally:
        ctx.loc = loc


def _builtin(ctx: Context, function: Any, args: list[Any], named: dict[str, Any], node: ast.Call) -> Any:
    name = getattr(function, "__name__", "")
    if function is abs and len(args) == 1:
        return abs(args[0]) if operators.is_static(args[0]) else operators.apply(ctx, "abs", args[0])
    if function in (min, max) and args:
        if len(args) == 1 and isinstance(args[0], tuple):
            args = list(args[0])
        if all(operators.is_static(a) for a in args):
            return operators.static(ctx, name, function, *args)
        if len(args) == 1:
            ctx.fail(f"{name} of one tile", node, f"write tw.{name}(x, axis)")
        out = args[0]
        for a in args[1:]:
            out = operators.apply(ctx, name, out, a)
        return out
    if function in _STATIC_BUILTINS and len(args) == 1:
        if operators.is_static(args[0]) or isinstance(args[0], tuple):
            return operators.static(ctx, name, function, *args)
        if isinstance(args[0], Node) and function is int and const_value(args[0]) is None:
            return ctx.as_int(args[0], "int(...)", node)
        ctx.fail(f"{name}(...) of {describe(args[0])}", node, "cast tiles with .to(tw.f32)")
    if getattr(function, "__module__", "") == "math":
        if all(isinstance(a, bool | int | float) for a in args):
            return operators.static(ctx, f"math.{name}", function, *args)
        ctx.fail(f"math.{name} works on numbers known at compile time", node, f"write tw.{name}(x) on tiles and dims")
    if function is range:
        ctx.fail("range stands outside a for", node, "write for r in range(n):")
    if isinstance(function, Node | Index | InTensor | OutTensor):
        ctx.fail(f"{describe(function)} is not a function", node, "index with [...]")
    what = f"'{name}'" if name else describe(function)
    ctx.fail(f"{what} is not part of the kernel language", node, advice.BUILTINS.get(name, "see tw.* for what is"))


def _starred(ctx: Context, node: ast.Starred) -> Any:
    what, hint = advice.construct(node)
    raise LanguageError(f"{what} is not part of the kernel language", loc=ctx.place(node), hint=hint)


_VISIT: dict[type[ast.expr], Callable[[Context, Any], Any]] = {
    ast.Constant: _constant, ast.Name: _name, ast.Attribute: _attribute, ast.BinOp: _binop, ast.UnaryOp: _unaryop,
    ast.BoolOp: _boolop, ast.Compare: _compare, ast.IfExp: _ifexp, ast.Tuple: _tuple, ast.Slice: _slice,
    ast.Subscript: _subscript, ast.Call: _call, ast.Starred: _starred,
}
