"""What a scheduled program does, counted: operations, bytes moved, register blocks. Nothing is run.

Counts are of the program as it is scheduled, so work that a schedule repeats is counted as often as it is done. Trip
counts are exact. Where the bounds inside a loop depend on its variable (the last tile is smaller, or the ranges form a
triangle), up to `SAMPLES` trips are counted one by one; of a longer loop, that many evenly spaced ones stand for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ..errors import UnsupportedError
from ..evidence import Evidence
from ..ir.scheduled.core import (
    Acc,
    Alloc,
    Buffer,
    Expr,
    For,
    If,
    IntLike,
    Let,
    Micro,
    ParFor,
    Program,
    Scatter,
    Stmt,
    Store,
    Update,
    Var,
    walk,
)
from ..ir.scheduled.integers import evaluate
from ..ir.scheduled.printer import statement_text

SAMPLES = 9
HOW = "tilewright.passes.cost.count(program, dims)"

#: One instruction or two on any machine worth the name.
_ARITHMETIC = frozenset({"add", "sub", "mul", "neg", "abs", "max", "min", "square", "floor", "ceil", "round", "rint",
                         "trunc", "sign", "recip", "div", "sqrt", "rsqrt"})
#: Polynomials: many instructions each, counted apart.
_FUNCTIONS = frozenset({"exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan", "asin", "acos", "atan",
                        "sinh", "cosh", "tanh", "erf", "sigmoid", "pow", "atan2", "fmod", "mod", "floordiv", "tdiv"})


@dataclass(frozen=True, slots=True)
class Cost:
    """`flops`: floating-point additions, multiplications and the like (a fused multiply-add is two), those of register
    blocks included; `int_ops`: multiply-adds of integer register blocks, times two; `functions`: exp, tanh and such;
    `read` and `written`: bytes of tensor arguments that instructions load and store; `scratch`: bytes to and from a
    thread's own memory; `tensors`: bytes of all arguments, what must move at least once when nothing is cached."""

    flops: float = 0.0
    int_ops: float = 0.0
    functions: float = 0.0
    read: float = 0.0
    written: float = 0.0
    scratch: float = 0.0
    tensors: float = 0.0

    def plus(self, other: Cost, times: float = 1.0) -> Cost:
        return Cost(*(getattr(self, f.name) + times * getattr(other, f.name) for f in fields(Cost)))

    @property
    def intensity(self) -> float:
        """Operations per byte of the arguments."""
        return (self.flops + self.int_ops) / self.tensors if self.tensors else 0.0

    def evidence(self) -> dict[str, Evidence]:
        """Every count, labelled as what it is: an estimate."""
        units = {"flops": "flop", "int_ops": "op", "functions": "call"}
        return {f.name: Evidence(getattr(self, f.name), units.get(f.name, "B"), "estimated", HOW) for f in fields(Cost)}


def count(program: Program, dims: Mapping[str, int], scalars: Mapping[str, Any] | None = None) -> Cost:
    """The cost of one call with these dims."""
    counter = _Counter(dims, scalars or {})
    total = counter.block(program.body)
    size = 0
    for b in program.buffers:
        elements = 1
        for n in b.shape:
            elements *= counter.known(n, f"the shape of '{b.name}'")
        size += elements * b.dtype.itemsize
    return total.plus(Cost(tensors=size))


class _Counter:
    def __init__(self, dims: Mapping[str, int], scalars: Mapping[str, Any]) -> None:
        self.dims, self.scalars = dims, scalars
        self.vars: dict[Var, int | None] = {}
        # Keyed by identity: equal statements in different places are looked at again, which does no harm.
        self.costs: dict[int, tuple[Stmt, Cost]] = {}
        self.shaping: dict[tuple[int, Var], bool] = {}

    def value(self, e: IntLike) -> int | None:
        return evaluate(e, self.dims, self.vars, scalars=self.scalars)

    def known(self, e: IntLike, what: str) -> int:
        found = self.value(e)
        if found is None:
            raise UnsupportedError(f"{what} depends on data, so the program's cost cannot be estimated")
        return found

    def block(self, body: Sequence[Stmt]) -> Cost:
        total = Cost()
        for s in body:
            total = total.plus(self.statement(s))
        return total

    def statement(self, s: Stmt) -> Cost:
        match s:
            case For():
                first, stop = (self.known(x, f"a bound of '{statement_text(s)}'") for x in (s.start, s.stop))
                return self.repeat((s.var,), (range(first, stop, s.step),), s.body)
            case ParFor():
                ranges = tuple(range(self.known(e, f"an extent of '{statement_text(s)}'")) for e in s.extents)
                return self.repeat(s.vars, ranges, s.body)
            case If():
                return self.branch(s)
            case Micro():
                return self.micro(s)
            case Let() if s.var.dtype.is_int:
                self.vars[s.var] = self.value(s.value)
        # A plain statement costs the same every time, whatever its variables are.
        cached = self.costs.get(id(s))
        if cached is None:
            cached = self.costs[id(s)] = (s, _plain(s))
        return cached[1]

    def repeat(self, variables: Sequence[Var], ranges: Sequence[range], body: Sequence[Stmt]) -> Cost:
        """A loop nest of a ParFor or For: variables that shape the body are walked through, the others multiply."""
        if not variables:
            return self.block(body)
        v, trips = variables[0], ranges[0]
        if not trips:
            return Cost()
        shapes = self.shaping.get((id(body), v))
        if shapes is None:
            shapes = self.shaping[id(body), v] = _shapes(body, v)
        if not shapes:
            self.vars[v] = trips[0]
            return Cost().plus(self.repeat(variables[1:], ranges[1:], body), len(trips))
        # Full tiles are alike, so the last one is taken apart from the rest.
        rest, weight = _sample(trips[:-1])
        total = Cost()
        for i in rest:
            self.vars[v] = i
            total = total.plus(self.repeat(variables[1:], ranges[1:], body), weight)
        self.vars[v] = trips[-1]
        return total.plus(self.repeat(variables[1:], ranges[1:], body))

    def branch(self, s: If) -> Cost:
        test, cond = _plain(s), self.value(s.cond)
        if cond is not None:
            return test.plus(self.block(s.then if cond else s.orelse))
        then, other = self.block(s.then), self.block(s.orelse)
        # Either side may run: the dearer one bounds the cost.
        return test.plus(max(then, other, key=lambda c: c.flops + c.int_ops + c.read + c.written + c.scratch))

    def micro(self, s: Micro) -> Cost:
        what = f"a size of '{statement_text(s)}'"
        depth = max(0, self.known(s.depth, what))
        cols = s.cols if s.cols_valid is None else max(0, min(s.cols, self.known(s.cols_valid, what)))
        work = 2.0 * s.rows * cols * depth
        block = s.rows * cols * s.acc.buffer.dtype.itemsize
        total = Cost(flops=work) if s.acc.buffer.dtype.is_float else Cost(int_ops=work)
        total = total.plus(_moved(s.a.buffer, s.rows * depth)).plus(_moved(s.b.buffer, cols * depth))
        total = total.plus(_moved(s.acc.buffer, 1, written=True), block / s.acc.buffer.dtype.itemsize)
        if s.bias is not None:
            total = total.plus(_moved(s.bias.buffer, cols))
        return total if s.init else total.plus(_moved(s.acc.buffer, s.rows * cols))


def _sample(trips: range) -> tuple[Sequence[int], float]:
    """At most SAMPLES trips, and how many real ones each stands for."""
    if len(trips) <= SAMPLES:
        return trips, 1.0
    picked = [trips[k * (len(trips) - 1) // (SAMPLES - 1)] for k in range(SAMPLES)]
    return picked, len(trips) / SAMPLES


def _moved(b: Buffer, elements: float, written: bool = False) -> Cost:
    size = elements * b.dtype.itemsize
    if b.space != "arg":
        return Cost(scratch=size)
    return Cost(written=size) if written else Cost(read=size)


def _shapes(body: Sequence[Stmt], v: Var) -> bool:
    """Whether bounds, sizes or conditions in the body depend on the variable, by way of `let` too."""
    tainted = {v}
    for s in walk(body):
        match s:
            case Let():
                if _uses(s.value, tainted):
                    tainted.add(s.var)
            case For():
                if _uses(s.start, tainted) or _uses(s.stop, tainted):
                    return True
            case If():
                if _uses(s.cond, tainted):
                    return True
            case Micro():
                if _uses(s.depth, tainted) or (s.cols_valid is not None and _uses(s.cols_valid, tainted)):
                    return True
            case _:
                pass
    return False


def _uses(e: Expr, variables: set[Var]) -> bool:
    seen: set[Expr] = set()
    stack = [e]
    while stack:
        x = stack.pop()
        if x.op == "var" and x.attr in variables:
            return True
        if x not in seen:
            seen.add(x)
            stack.extend(x.args)
    return False


def _plain(s: Stmt) -> Cost:
    """The expressions of a statement itself; each distinct subexpression is computed once."""
    roots: list[Expr] = []
    total = Cost()
    match s:
        case Let():
            roots = [s.value]
        case Store():
            roots = [*s.index, s.value, *([s.mask] if s.mask is not None else [])]
            total = _moved(s.buffer, max(1, s.value.dtype.bits // s.buffer.dtype.bits), written=True)
        case Scatter():
            roots = [*s.index, s.value, *([s.mask] if s.mask is not None else [])]
            total = _moved(s.buffer, 1, written=True).plus(_moved(s.buffer, 1)).plus(Cost(flops=1.0))
        case Acc():
            roots = list(s.inits)
        case Update():
            roots = list(s.values)
            total = Cost(flops=1.0 if s.values[0].dtype.is_float else 0.0)
        case If():
            roots = [s.cond]
        case Alloc():
            pass
        case _:
            raise UnsupportedError(f"no cost is known for a {type(s).__name__}")
    seen: set[Expr] = set()
    while roots:
        e = roots.pop()
        if e in seen:
            continue
        seen.add(e)
        roots.extend(e.args)
        total = total.plus(_expression(e))
    return total


def _expression(e: Expr) -> Cost:
    if e.op in ("load", "load_if"):
        return _moved(e.attr, 1)
    if not e.dtype.is_float:
        return Cost()
    if e.op in _ARITHMETIC:
        return Cost(flops=1.0)
    if e.op == "fma":
        return Cost(flops=2.0)
    return Cost(functions=1.0) if e.op in _FUNCTIONS else Cost()
