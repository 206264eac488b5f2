"""Algebraic simplification of scheduled expressions, without changing a result (contraction apart, see below).

* Constants are folded by the oracle's own rules: integers and booleans always, floats for the operations that IEEE
  rounds correctly, so that machines agree to the last bit; a NaN is left to the machine.
* Neutral and absorbing operands go: for floats only where the result is the same for NaN, infinities and signed zeros
  (x * 1 and x - 0 go, x + 0 stays: it turns -0 into +0).
* Chains of casts lose the steps that cannot change the value.
* i64 sums get one canonical form, a sum of products with constant factors, ordered by when the program first names
  their parts: equal addresses become one expression, whichever way they were written. Arithmetic wraps, and these are
  identities of wrapping arithmetic, so i64 data may go through as well. Divisions and comparisons are not moved: that
  would need to know that nothing wraps.
* With `contract=True`, a float product that only a sum or a difference uses becomes an `fma`, which rounds once instead
  of twice: the one change of results in here, allowed by the language. It is for targets with such an instruction
  that do not contract by themselves; the LLVM family does.
"""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from ..interp import scalar
from ..ir.scheduled import core
from ..ir.scheduled.core import Expr, Program, const, expr
from ..ir.types import DType, bool_, f32, f64, i64
from .rebuild import Rewriter, map_program

#: Float operations that every machine rounds alike.
_ROUNDED_ALIKE = frozenset({
    "add", "sub", "mul", "div", "sqrt", "neg", "abs", "floor", "ceil", "trunc", "rint", "round", "max", "min",
    "eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf", "where", "cast", "bitcast",
})  # fmt: skip
_LEAVES = frozenset({"const", "var", "dim", "stride", "param", "load", "load_if"})
_COMMUTES = frozenset({"add", "mul", "and", "or", "xor", "max", "min", "eq", "ne"})
#: Comparisons of integers and their opposites.
_OPPOSITE = {"eq": "ne", "ne": "eq", "lt": "ge", "ge": "lt", "gt": "le", "le": "gt"}
_MOST_TERMS = 16

#: A sum: from a product of atoms (in order) to its constant factor; the empty product is the constant term.
Sum = dict[tuple[Expr, ...], int]


def simplify(program: Program, *, contract: bool = False) -> Program:
    return map_program(program, Simplifier(contract).expr)


def simplify_expr(e: Expr, *, contract: bool = False) -> Expr:
    return Simplifier(contract).expr(e)


class Simplifier:
    """Simplifies the expressions of one program; equal addresses in different statements become one expression."""

    def __init__(self, contract: bool = False) -> None:
        self.contract = contract
        self.rewriter = Rewriter(self._one)
        self.serial: dict[Expr, int] = {}
        self.sums: dict[Expr, Sum] = {}

    def expr(self, e: Expr) -> Expr:
        out = self.rewriter.expr(e)
        return contracted(out) if self.contract else out

    def _one(self, e: Expr) -> Expr:
        """An expression whose operands are simplified."""
        if e.op in _LEAVES:
            return _load_with_known_guard(e)
        folded = fold(e)
        if folded is not None:
            return folded
        if e.dtype == i64 and e.op in ("add", "sub", "mul", "neg"):
            return self._linear(e)
        for rule in (_neutral, _logic, _choice, _conversion):
            out = rule(e)
            if out is not None:
                return out if out.op in _LEAVES or out in e.args else self._one(out)
        return e

    # ------------------------------------------------------------------------------------------ i64 sums

    def _linear(self, e: Expr) -> Expr:
        parts = [self._sum_of(a) for a in e.args]
        match e.op:
            case "add":
                total = _combine(parts[0], parts[1], 1)
            case "sub":
                total = _combine(parts[0], parts[1], -1)
            case "neg":
                total = _combine({}, parts[0], -1)
            case _:
                product = self._product(*parts)
                if product is None:
                    a, b = sorted(e.args, key=self._order)
                    e = expr("mul", i64, a, b)
                    self.sums[e] = {(e,): 1}
                    self._order(e)
                    return e
                total = product
        out = self._written(total)
        self.sums[out] = total
        return out

    def _sum_of(self, e: Expr) -> Sum:
        found = self.sums.get(e)
        if found is None:
            if e.op == "const":
                found = {(): e.attr} if e.attr else {}
            else:
                self._order(e)
                found = {(e,): 1}
            self.sums[e] = found
        return found

    def _order(self, e: Expr) -> int:
        return self.serial.setdefault(e, len(self.serial))

    def _product(self, a: Sum, b: Sum) -> Sum | None:
        """The product multiplied out; None where both sides have several terms, or the result would have too many."""
        if len(a) > 1 and len(b) > 1 or max(len(a), len(b)) > _MOST_TERMS:
            return None
        out: Sum = {}
        for x, c in a.items():
            for y, d in b.items():
                key = tuple(sorted((*x, *y), key=self._order))
                out[key] = _wrap(out.get(key, 0) + c * d)
        return {k: v for k, v in out.items() if v}

    def _written(self, total: Sum) -> Expr:
        terms = sorted((k for k in total if k), key=lambda k: (max(map(self._order, k)), [self._order(x) for x in k]))
        out: Expr | None = None
        # A difference needs something to take from: begin with a positive term if there is one.
        terms.sort(key=lambda k: total[k] < 0)
        for k in terms:
            factor = total[k]
            atoms = k[0]
            for x in k[1:]:
                atoms = expr("mul", i64, atoms, x)
            if out is not None and factor < 0 and factor != -(2**63):
                out = expr("sub", i64, out, core.mul(atoms, -factor))
            else:
                term = core.mul(atoms, factor)
                out = term if out is None else expr("add", i64, out, term)
        constant = total.get((), 0)
        if out is None:
            return const(constant)
        return expr("add", i64, out, const(constant)) if constant else out


def _combine(a: Sum, b: Sum, sign: int) -> Sum:
    out = dict(a)
    for k, v in b.items():
        out[k] = _wrap(out.get(k, 0) + sign * v)
    return {k: v for k, v in out.items() if v}


def _wrap(n: int) -> int:
    return (n + 2**63) % 2**64 - 2**63


# ---------------------------------------------------------------------------------------------- constants


def fold(e: Expr) -> Expr | None:
    """The value of an operation on constants, where every machine gives the same one."""
    if not e.args or any(a.op != "const" for a in e.args):
        return None
    if (e.dtype.is_float or any(a.dtype.is_float for a in e.args)) and e.op not in _ROUNDED_ALIKE:
        return None
    if e.op in ("max", "min") and all(a.attr == 0 for a in e.args):  # the sign of zero is the machine's choice
        return None
    values = [np.asarray(a.attr).astype(a.dtype.numpy) for a in e.args]
    try:
        if e.op == "cast":
            out = scalar.cast(values[0], e.dtype)
        elif e.op == "bitcast":
            out = scalar.bitcast(values[0], e.dtype)
        else:
            out = scalar.apply(e.op, *values)
    except ValueError:  # the oracle has no meaning for it: left for the target to refuse
        return None
    value = out.item() if not e.dtype.is_float else float(out)
    return None if isinstance(value, float) and math.isnan(value) else const(value, e.dtype)


def _value(e: Expr) -> int | float | bool | None:
    return e.attr if e.op == "const" else None


def _is(e: Expr, value: float) -> bool:
    """Whether e is this constant; the sign of zero counts."""
    return e.op == "const" and e.attr == value and math.copysign(1.0, e.attr) == math.copysign(1.0, value)


# ---------------------------------------------------------------------------------------------- rules


def _load_with_known_guard(e: Expr) -> Expr:
    if e.op == "load_if" and (guard := _value(e.args[0])) is not None:
        return expr("load", e.dtype, *e.args[2:], attr=e.attr) if guard else e.args[1]
    return e


def _neutral(e: Expr) -> Expr | None:
    """Operands that change nothing, or decide everything."""
    if e.op in ("neg", "abs", "not") and e.args[0].op in ("neg", "abs", "not"):
        return _twice(e, e.args[0])
    if len(e.args) != 2 or e.dtype.is_bool:
        return None
    a, b = e.args
    if e.op in _COMMUTES and a.op == "const":
        a, b = b, a
    rule = _neutral_float if e.dtype.is_float else _neutral_int
    return rule(e.op, a, b)


def _twice(e: Expr, inner: Expr) -> Expr | None:
    x = inner.args[0]
    if e.op == inner.op:
        return inner if e.op == "abs" else x
    if e.op == "abs" and inner.op == "neg" and e.dtype.kind != "u":  # unsigned: abs(-x) is -x, which wraps
        return expr("abs", e.dtype, x)
    return None


def _neutral_float(op: str, a: Expr, b: Expr) -> Expr | None:
    if op in ("max", "min") and a is b:
        return a
    if op in ("mul", "div") and _is(b, 1.0) or op == "add" and _is(b, -0.0) or op == "sub" and _is(b, 0.0):
        return a
    if op in ("mul", "div") and _is(b, -1.0):
        return expr("neg", a.dtype, a)
    return None


def _neutral_int(op: str, a: Expr, b: Expr) -> Expr | None:
    if a is b:
        if op in ("sub", "xor"):
            return const(0, a.dtype)
        if op in ("max", "min", "and", "or"):
            return a
    n = _value(b)
    if n is None:
        return None
    ones = -1 if b.dtype.kind == "i" else (1 << b.dtype.bits) - 1
    if n == 0 and op in ("add", "sub", "or", "xor", "shl", "shr", "lshr") or n == ones and op == "and":
        return a
    if n == 1 and op in ("mul", "floordiv", "tdiv"):
        return a
    if n == 0 and op in ("mul", "and", "floordiv", "tdiv", "mod") or n == 1 and op == "mod":
        return const(0, a.dtype)
    return b if n == ones and op == "or" else None


def _logic(e: Expr) -> Expr | None:
    """Booleans: conditions that are known, and negations."""
    if not e.dtype.is_bool:
        return None
    if len(e.args) == 2 and e.args[0] is e.args[1] and not e.args[0].dtype.is_float:
        if e.op in ("eq", "le", "ge"):
            return const(True, bool_)
        if e.op in ("ne", "lt", "gt"):
            return const(False, bool_)
    if e.op in ("and", "or"):
        a, b = e.args
        if a is b:
            return a
        if a.op == "const":
            a, b = b, a
        if (known := _value(b)) is not None:
            return a if bool(known) == (e.op == "and") else b
    if e.op == "not":
        test = e.args[0]
        # !(a < b) of floats is not a >= b: NaN.
        exact = test.op in ("eq", "ne") or test.op in _OPPOSITE and not test.args[0].dtype.is_float
        return expr(_OPPOSITE[test.op], bool_, *test.args) if exact else None
    return None


def _choice(e: Expr) -> Expr | None:
    if e.op != "where":
        return None
    cond, a, b = e.args
    if cond.op == "const":
        return a if cond.attr else b
    if a is b:
        return a
    if cond.op == "not":
        return expr("where", e.dtype, cond.args[0], b, a)
    if e.dtype.is_bool and a.op == b.op == "const":
        return cond if a.attr else expr("not", bool_, cond)
    return None


def _conversion(e: Expr) -> Expr | None:
    if e.op not in ("cast", "bitcast"):
        return None
    inner = e.args[0]
    if inner.dtype == e.dtype:
        return inner
    if inner.op != e.op:
        return None
    source = inner.args[0]
    if e.op == "cast" and not _inner_cast_is_idle(source.dtype, inner.dtype, e.dtype):
        return None
    return source if source.dtype == e.dtype else expr(e.op, e.dtype, source)


def _significand(d: DType) -> int:
    return {"f64": 53, "f32": 24, "f16": 11, "bf16": 8}[d.name]


def _exponents(d: DType) -> int:
    return {"f64": 11, "f32": 8, "f16": 5, "bf16": 8}[d.name]


def keeps_value(source: DType, target: DType) -> bool:
    """Whether every value of `source` is one of `target`, so that the cast changes the type alone."""
    if source == target:
        return True
    if target.is_bool:
        return False
    if source.is_bool:
        return True
    if source.is_float:
        return (target.is_float and _significand(source) <= _significand(target)
                and _exponents(source) <= _exponents(target))
    if target.is_float:
        magnitude = source.bits - (source.kind == "i")
        return magnitude <= _significand(target) and target.name != "f16"
    return source.bits < target.bits and (source.kind == "u" or target.kind == "i")


def _inner_cast_is_idle(source: DType, middle: DType, target: DType) -> bool:
    if source.is_int and middle.is_int and target.is_int and target.bits <= middle.bits:
        return True  # only the last cut of the bits counts
    if not keeps_value(source, middle):
        return False
    # Integers wrap on their way to integers, floats saturate.
    return not (source.is_int and middle.is_float and target.is_int) or keeps_value(source, target)


# ---------------------------------------------------------------------------------------------- contraction


def contracted(root: Expr) -> Expr:
    """a * b + c, a * b - c and c - a * b as one fma, for products of f32 or f64 that nothing else in `root` uses."""
    order = _postorder(root)
    uses = Counter(a for e in order for a in e.args)
    done: dict[Expr, Expr] = {}

    def product(e: Expr) -> bool:
        return e.op == "mul" and uses[e] == 1

    for e in order:
        args = tuple(done[a] for a in e.args)
        if e.op in ("add", "sub") and e.dtype in (f32, f64) and any(map(product, e.args)):
            which = 0 if product(e.args[0]) else 1
            a, b = (done[x] for x in e.args[which].args)
            c = args[1 - which]
            if e.op == "sub":
                a, c = (a, _negated(c)) if which == 0 else (_negated(a), c)
            done[e] = expr("fma", e.dtype, a, b, c)
        else:
            done[e] = e if args == e.args else expr(e.op, e.dtype, *args, attr=e.attr)
    return done[root]


def _negated(e: Expr) -> Expr:
    if e.op == "neg":
        return e.args[0]
    return const(-e.attr, e.dtype) if e.op == "const" else expr("neg", e.dtype, e)


def _postorder(root: Expr) -> list[Expr]:
    out: list[Expr] = []
    seen: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        e, ready = stack.pop()
        if ready:
            out.append(e)
        elif e not in seen:
            seen.add(e)
            stack.append((e, True))
            stack.extend((a, False) for a in reversed(e.args))
    return out


