"""The rules of Scheduled IR, checked: a VerifyError names the program, the broken rule and the statement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

from ...errors import VerifyError
from ..tile.core import FLOAT_ONLY, SCALAR_FNS
from ..types import DType, bool_, i64
from .core import (
    Acc,
    Alloc,
    Buffer,
    Expr,
    For,
    If,
    IntLike,
    Let,
    Micro,
    Operand,
    ParFor,
    Program,
    Scatter,
    Stmt,
    Store,
    Update,
    Var,
)
from .printer import statement_text

#: What passes/expand_math.py adds to SCALAR_FNS: (number of operands, result).
MACHINE_FNS: Mapping[str, tuple[int, str]] = {"rint": (1, "same"), "lshr": (2, "same")}
SPACES = ("arg", "local", "stack")
_FLOAT_ONLY = FLOAT_ONLY | {"rint"}
_INT_ONLY = frozenset({"shl", "shr", "lshr"})
_BITS_FNS = frozenset({"and", "or", "xor", "not"})
_ACC_ONE = ("sum", "prod", "max", "min", "any", "all", "none")


def verify(program: Program) -> Program:
    """The program itself, when it keeps every rule."""
    _Verifier(program).run()
    return program


class _Verifier:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.scalars = dict(program.scalars)
        self.strides = set(program.strides)
        self.buffers: dict[str, Buffer] = {}
        self.vars: set[Var] = set()
        self.ever: set[Var] = set()
        self.accs: dict[Var, Acc] = {}
        self.checked: set[Expr] = set()
        self.at: Stmt | None = None
        self.in_vector = False

    def fail(self, why: str) -> NoReturn:
        at = "" if self.at is None else f"\n  in: {statement_text(self.at)}"
        raise VerifyError(f"program '{self.program.name}': {why}{at}")

    def need(self, holds: object, why: str) -> None:
        if not holds:
            self.fail(why)

    # ------------------------------------------------------------------ the whole

    def run(self) -> None:
        p = self.program
        for names, what in (([b.name for b in p.buffers], "buffer"), (list(p.dims), "dim"),
                            ([n for n, _ in p.scalars], "scalar")):
            for n in names:
                self.need(names.count(n) == 1, f"{what} '{n}' is declared twice")
        for b in p.buffers:
            self.need(b.space == "arg", f"argument '{b.name}' is in space '{b.space}'")
            self.buffers[b.name] = b
        for b in p.buffers:
            self.buffer(b)
        for o in p.outputs:
            self.need(o in self.buffers, f"output '{o}' is no buffer")
        for tensor, axis in p.strides:
            ok = tensor in self.buffers and 0 <= axis < len(self.buffers[tensor].strides)
            self.need(ok, f"there is no axis {axis} of '{tensor}' to take a stride of")
        for s in p.body:
            self.at = s
            self.need(isinstance(s, ParFor), "only parallel loops stand at the top level")
        self.block(p.body, top=True)

    def buffer(self, b: Buffer) -> None:
        self.need(b.space in SPACES, f"buffer '{b.name}' is in no space '{b.space}'")
        rank = len(b.shape)
        self.need(len(b.strides) == rank, f"buffer '{b.name}' has {rank} axes and {len(b.strides)} strides")
        for x in (*b.shape, *b.strides):
            self.int_like(x)

    # ------------------------------------------------------------------ expressions

    def int_like(self, x: IntLike) -> None:
        if isinstance(x, Expr):
            self.expr(x, i64)

    def expr(self, root: Expr, want: DType | None = None) -> None:
        """Every subexpression once while the names it uses are in scope."""
        stack = [root]
        while stack:
            e = stack.pop()
            if e in self.checked:
                continue
            self.checked.add(e)
            self.one(e)
            stack.extend(e.args)
        self.need(want is None or root.dtype == want, f"{root.dtype} where {want} is needed")

    def one(self, e: Expr) -> None:
        match e.op:
            case "const":
                self.constant(e)
            case "var":
                self.need(e.attr in self.vars, f"variable {e.attr} has no value here")
                self.need(e.dtype == e.attr.dtype, f"variable {e.attr} read as {e.dtype}")
            case "dim":
                self.need(e.attr in self.program.dims, f"there is no dim '{e.attr}'")
                self.need(e.dtype == i64, "a dim that is not i64")
            case "param":
                self.need(self.scalars.get(e.attr) == e.dtype, f"there is no {e.dtype} scalar '{e.attr}'")
            case "stride":
                self.need(e.attr in self.strides, f"stride {e.attr} is not passed to the program")
            case "load":
                self.access(e.attr, e.args)
                self.need(e.dtype == e.attr.dtype, "a load of another element type than the buffer's")
            case "load_if":
                self.need(len(e.args) >= 2 and e.args[0].dtype.is_bool, "a guarded load without a bool guard")
                self.access(e.attr, e.args[2:])
                self.need(e.dtype == e.attr.dtype == e.args[1].dtype, "a guarded load of different element types")
            case "cast":
                self.need(len(e.args) == 1, "a cast of several values")
            case "bitcast":
                self.need(len(e.args) == 1 and e.args[0].dtype.bits == e.dtype.bits, "a bitcast to another width")
            case _:
                self.function(e)

    def constant(self, e: Expr) -> None:
        v, d = e.attr, e.dtype
        if d.is_float:
            ok = isinstance(v, float)
        elif d.is_bool:
            ok = isinstance(v, bool)
        else:
            low = -(1 << (d.bits - 1)) if d.kind == "i" else 0
            ok = type(v) is int and low <= v < low + (1 << d.bits)
        self.need(ok, f"{v!r} is no {d}")

    def function(self, e: Expr) -> None:
        form = SCALAR_FNS.get(e.op) or MACHINE_FNS.get(e.op)
        if form is None:
            self.fail(f"there is no function '{e.op}'")
        self.need(len(e.args) == form[0], f"{e.op} with {len(e.args)} operands")
        values = e.args
        if e.op == "where":
            self.need(e.args[0].dtype.is_bool, "the condition of where is not bool")
            values = e.args[1:]
        d = values[0].dtype
        self.need(all(v.dtype == d for v in values), f"{e.op} of {', '.join(str(v.dtype) for v in values)}")
        self.need(d.is_float or e.op not in _FLOAT_ONLY, f"{e.op} of {d}: it is for floats")
        self.need(d.is_int or e.op not in _INT_ONLY, f"{e.op} of {d}: it is for integers")
        self.need(not d.is_float or e.op not in _BITS_FNS, f"{e.op} of {d}: it is not for floats")
        want = bool_ if form[1] == "bool" else d
        self.need(e.dtype == want, f"{e.op} of {d} gives {want}, not {e.dtype}")

    # ------------------------------------------------------------------ memory

    def known(self, b: Buffer) -> None:
        found = self.buffers.get(b.name)
        self.need(found is not None, f"buffer '{b.name}' does not exist here")
        self.need(found == b, f"buffer '{b.name}' is used with another shape or type than it was declared with")

    def access(self, b: Buffer, index: Sequence[Expr]) -> None:
        self.known(b)
        self.need(len(index) == len(b.shape), f"{len(index)} indices for buffer '{b.name}' of rank {len(b.shape)}")
        for i in index:
            self.need(i.dtype == i64, f"an index of '{b.name}' is {i.dtype}, not i64")

    def write(self, s: Store | Scatter) -> None:
        b = s.buffer
        self.access(b, s.index)
        self.need(b.space != "arg" or b.name in self.program.outputs, f"'{b.name}' is an input: inputs are read-only")
        for i in s.index:
            self.expr(i, i64)
        wide = isinstance(s, Store) and s.value.dtype.kind == "u" and s.value.dtype.bits > b.dtype.bits
        if wide:
            several = not b.dtype.is_bool and bool(b.strides) and b.strides[-1] == 1
            self.need(several, f"a value of {s.value.dtype} does not cover neighbouring elements of '{b.name}'")
        self.expr(s.value, None if wide else b.dtype)
        if s.mask is not None:
            self.expr(s.mask, bool_)

    def operand(self, o: Operand) -> None:
        self.known(o.buffer)
        self.expr(o.offset, i64)
        self.int_like(o.row)
        self.int_like(o.col)

    # ------------------------------------------------------------------ statements

    def block(self, body: Sequence[Stmt], top: bool = False) -> None:
        """Names declared in a block end with it."""
        before = set(self.vars), dict(self.buffers)
        for s in body:
            self.at = s
            self.need(top or not isinstance(s, ParFor), "a parallel loop inside another statement")
            self.statement(s)
        self.vars, self.buffers = before
        self.checked.clear()

    def define(self, v: Var) -> None:
        self.need(v not in self.ever, f"variable {v} is defined twice")
        self.ever.add(v)
        self.vars.add(v)

    def statement(self, s: Stmt) -> None:
        match s:
            case Let():
                self.expr(s.value, s.var.dtype)
                self.define(s.var)
            case Store():
                self.write(s)
            case Scatter():
                self.need(s.monoid in _ACC_ONE[:-1], f"there is no scatter by '{s.monoid}'")
                self.write(s)
            case Acc():
                self.acc(s)
            case Update():
                self.update(s)
            case For():
                self.loop(s)
            case If():
                self.expr(s.cond, bool_)
                self.block(s.then)
                self.block(s.orelse)
            case Alloc():
                self.alloc(s.buffer)
            case Micro():
                self.micro(s)
            case ParFor():
                self.need(len(s.vars) == len(s.extents), "variables and extents differ in number")
                for e in s.extents:
                    self.expr(e, i64)
                self.enter(s.vars, s.body)

    def enter(self, variables: Sequence[Var], body: Sequence[Stmt]) -> None:
        before = set(self.vars)
        for v in variables:
            self.need(v.dtype == i64, f"loop variable {v} is not i64")
            self.define(v)
        self.block(body)
        self.vars = before

    def acc(self, s: Acc) -> None:
        pair = s.monoid in ("argmax", "argmin")
        self.need(pair or s.monoid in _ACC_ONE, f"there is no monoid '{s.monoid}'")
        self.need(len(s.vars) == len(s.inits) == (2 if pair else 1), "the wrong number of variables for the monoid")
        self.need(not pair or s.vars[1].dtype == i64, "the position of an argmax or argmin is i64")
        for v, init in zip(s.vars, s.inits):
            self.expr(init, v.dtype)
            self.define(v)
            self.accs[v] = s

    def update(self, s: Update) -> None:
        acc = self.accs.get(s.vars[0]) if s.vars else None
        if acc is None or acc.vars != s.vars:
            self.fail("an update of what is not, as it stands, one accumulator")
        self.need(set(s.vars) <= self.vars, "the accumulator does not exist here")
        self.need(len(s.values) == len(s.vars), "values and variables differ in number")
        for v, x in zip(s.vars, s.values):
            self.expr(x, v.dtype)

    def loop(self, s: For) -> None:
        self.need(s.kind in ("serial", "unroll", "vector"), f"there is no loop of kind '{s.kind}'")
        self.need(s.step >= 1 and s.width >= 1 and s.unroll >= 1, "step, width and inflight are at least 1")
        self.need(s.kind != "vector" or s.step == 1, "a vector loop has step 1")
        self.expr(s.start, i64)
        self.expr(s.stop, i64)
        outer, self.in_vector = self.in_vector, self.in_vector or s.kind == "vector"
        self.enter((s.var,), s.body)
        self.in_vector = outer

    def alloc(self, b: Buffer) -> None:
        self.need(b.space in ("local", "stack"), f"buffer '{b.name}' cannot be made in space '{b.space}'")
        self.need(b.name not in self.buffers, f"buffer '{b.name}' exists already")
        self.need(not self.in_vector, f"buffer '{b.name}' is made inside a vector loop")
        self.buffer(b)
        self.buffers[b.name] = b

    def micro(self, s: Micro) -> None:
        self.need(not self.in_vector, "a register block inside a vector loop")
        self.need(s.rows >= 1 and s.cols >= 1 and s.width >= 1, "rows, cols and width are at least 1")
        self.need(s.cols % s.width == 0, f"cols {s.cols} is no multiple of width {s.width}")
        for o in (s.acc, s.a, s.b):
            self.operand(o)
        self.need(s.acc.col == 1 and s.b.col == 1, "columns must be unit-stride in b and acc")
        acc, a, b = (o.buffer.dtype for o in (s.acc, s.a, s.b))
        self.need(acc.is_float == a.is_float == b.is_float, f"a register block of {a} and {b} into {acc}")
        self.need(s.group >= 1, "a group has at least one step")
        if s.group > 1:
            self.need(s.a.col == 1, "the steps of a group must be unit-stride in a")
            same = a.bits == b.bits and acc.bits == s.group * a.bits
            self.need(same, f"groups of {s.group} steps of {a} and {b} do not fill the lanes of {acc}")
            odd = s.depth.op == "const" and s.depth.attr % s.group
            self.need(not odd, f"the depth is no multiple of the group of {s.group} steps")
        if s.bias is not None:
            self.operand(s.bias)
            self.need(s.bias.buffer.dtype == acc and s.bias.col == 1, f"a bias is a unit-stride row of {acc}")
        writable = s.acc.buffer.space != "arg" or s.acc.buffer.name in self.program.outputs
        self.need(writable, f"'{s.acc.buffer.name}' is an input: inputs are read-only")
        self.expr(s.depth, i64)
        if s.cols_valid is not None:
            self.expr(s.cols_valid, i64)
