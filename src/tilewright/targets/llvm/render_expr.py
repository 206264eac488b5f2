"""Expressions. One that depends on the vector variable gets a value per lane; any other is computed once, a scalar."""

from __future__ import annotations

from ...errors import VerifyError
from ...ir.scheduled.core import Expr, expr_text
from ...ir.types import DType, i64
from . import render_memory, render_scalar
from .render_casts import bitcast, convert
from .render_emit import Value
from .render_state import Group, State
from .types import constant, literal, register_type, vector


def evaluate(w: State, e: Expr, group: Group) -> Value:
    """The value of `e` for the lanes of `group`; kind 's' when all lanes agree."""
    if e.op == "const":
        return Value("s", literal(e.attr, e.dtype), e.dtype)
    home = group if w.is_varying(e) else w.common
    known = home.memo.get(e) or home.now.get(e)
    if known is not None:
        return known
    value = _compute(w, e, home)
    if w.facts(e).volatile:
        home.now[e] = value
    else:
        w.remember(home, e, value)
    return value


def scalar(w: State, e: Expr) -> str:
    """The value of an expression that must not differ between lanes."""
    value = evaluate(w, e, w.common)
    if value.kind != "s":
        raise VerifyError(f"{expr_text(e)} differs between the lanes of a vector loop where one value is needed")
    return value.text


def lanes_of(w: State, value: Value) -> str:
    """The value with one element per lane (or the scalar itself outside vector loops)."""
    n = w.lanes
    if n == 1 or value.kind == "v":
        return value.text
    ty = register_type(value.dtype)
    key = ("lanes", value.kind, value.text, value.step, ty)
    known = w.common.memo.get(key)
    if known is not None:
        return known.text
    text = w.splat(ty, value.text, n)
    if value.kind == "l":
        full = vector(ty, n)
        offsets = w.iota("i64", n)
        if value.step != "1":
            step = constant(value.step)
            if step is not None:
                offsets = "<" + ", ".join(f"i64 {i * step}" for i in range(n)) + ">"
            else:
                offsets = w.op(f"mul {full} {w.splat(ty, value.step, n)}, {offsets}")
        text = w.op(f"add {full} {text}, {offsets}")
    w.remember(w.common, key, Value("v", text, value.dtype))
    return text


def _compute(w: State, e: Expr, group: Group) -> Value:
    match e.op:
        case "var":
            return _variable(w, e, group)
        case "dim" | "stride" | "param":
            return Value("s", w.names[e.op, e.attr], e.dtype)
        case "load":
            return render_memory.load(w, e.attr, e.args, None, None, group)
        case "load_if":
            return render_memory.load(w, e.attr, e.args[2:], e.args[0], e.args[1], group)
        case "where":
            return _where(w, e, group)
    args = [evaluate(w, a, group) for a in e.args]
    if e.op in ("add", "sub", "mul", "neg") and e.dtype == i64:
        linear = _linear(w, e.op, args)
        if linear is not None:
            return linear
    flat = all(a.kind == "s" for a in args)
    n = 1 if flat else w.lanes
    texts = [a.text if flat else lanes_of(w, a) for a in args]
    source: DType = args[0].dtype
    if e.op == "cast":
        if source == e.dtype:
            return args[0]
        text = convert(w, texts[0], source, e.dtype, n)
    elif e.op == "bitcast":
        text = bitcast(w, texts[0], source, e.dtype, n)
    else:
        text = render_scalar.emit(w, e.op, source, n, texts)
    return Value("s" if flat else "v", text, e.dtype)


def _variable(w: State, e: Expr, group: Group) -> Value:
    state = w.accs.get(e.attr)
    if state is None:
        raise VerifyError(f"variable {e.attr} is read where it has no value")
    which = state.acc.vars.index(e.attr)
    slots = state.slots[w.groups.index(group) if state.lanes > 1 else 0]
    full = vector(register_type(e.dtype), state.lanes)
    return Value("v" if state.lanes > 1 else "s", w.op(f"load {full}, ptr {slots[which]}"), e.dtype)


def _where(w: State, e: Expr, group: Group) -> Value:
    condition, a, b = (evaluate(w, x, group) for x in e.args)
    ty = register_type(e.dtype)
    if condition.kind == "s":
        if condition.text in ("true", "false"):
            return a if condition.text == "true" else b
        flat = a.kind == b.kind == "s"
        n = 1 if flat else w.lanes
        x, y = (v.text if flat else lanes_of(w, v) for v in (a, b))
        full = vector(ty, n)
        return Value("s" if flat else "v", w.op(f"select i1 {condition.text}, {full} {x}, {full} {y}"), e.dtype)
    return Value("v", w.select(ty, w.lanes, condition.text, lanes_of(w, a), lanes_of(w, b)), e.dtype)


# ---------------------------------------------------------------------------------------------- i64, kept symbolic


def _linear(w: State, op: str, args: list[Value]) -> Value | None:
    """Sums and products of the lane number with scalars stay a base and a step; None when they do not."""
    if any(a.kind == "v" for a in args):
        return None
    if op == "neg":
        return scale(w, args[0], Value("s", "-1", i64))
    if op == "mul":
        return scale(w, *args)
    return plus(w, args[0], args[1] if op == "add" else scale(w, args[1], Value("s", "-1", i64)) or args[1])


def plus(w: State, a: Value, b: Value) -> Value | None:
    if a.kind == "v" or b.kind == "v":
        return None
    return _make(w.iadd(a.text, b.text), w.iadd(a.step, b.step))


def scale(w: State, a: Value, b: Value) -> Value | None:
    if a.kind == "l" and b.kind == "s":
        return _make(w.imul(a.text, b.text), w.imul(a.step, b.text))
    if a.kind == "s" and b.kind in "sl":
        return _make(w.imul(a.text, b.text), w.imul(b.step, a.text) if b.kind == "l" else "0")
    return None


def _make(base: str, step: str) -> Value:
    return Value("s", base, i64) if step == "0" else Value("l", base, i64, step)
