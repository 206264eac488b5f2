"""What the renderer of one function knows while it walks the statements: lanes, known values, memory, accumulators."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from ...errors import VerifyError
from ...ir.scheduled.core import Acc, Buffer, Expr, Program, Stmt, Var, walk
from .render_emit import Module, Value, Writer


@dataclass(slots=True, eq=False)
class Group:
    """One group of lanes of the vector loop being rendered (or the one scalar 'lane' outside any)."""

    memo: dict[object, Value] = field(default_factory=dict)
    now: dict[Expr, Value] = field(default_factory=dict)  # values that the next statement may change
    tail: str | None = None  # mask of the lanes that exist, None: all
    condition: str | None = None  # mask of the enclosing conditions, None: all


@dataclass(slots=True, eq=False)
class AccState:
    """Memory of one accumulator declaration: per group, one slot per variable, `lanes` wide."""

    acc: Acc
    slots: list[list[str]]
    lanes: int


@dataclass(frozen=True, slots=True)
class Facts:
    """What can be said of an expression once and for all."""

    variables: frozenset[Var]
    volatile: bool  # reads memory that may change, or an accumulator: never kept across statements


class State(Writer):
    """A function body being written."""

    def __init__(self, module: Module, program: Program) -> None:
        super().__init__(module)
        self.program = program
        self.lanes = 1
        self.common = Group()
        self.groups: list[Group] = [self.common]
        self.varying: set[Var] = set()
        self.base: dict[Buffer, str] = {}  # address of every buffer that exists
        self.names: dict[tuple[str, object], str] = {}  # dims, strides and params as registers
        self.accs: dict[Var, AccState] = {}
        self.accumulators = {v for s in walk(program.body) if isinstance(s, Acc) for v in s.vars}
        self.outputs = set(program.outputs)
        self.facts_of: dict[Expr, Facts] = {}
        self.trail: list[tuple[dict[object, Value], object]] = []

    # -- facts

    def facts(self, e: Expr) -> Facts:
        found = self.facts_of.get(e)
        if found is None:
            found = self.facts_of[e] = self._facts(e)
        return found

    def _facts(self, e: Expr) -> Facts:
        if e.op == "var":
            return Facts(frozenset((e.attr,)), e.attr in self.accumulators)
        parts = [self.facts(a) for a in e.args]
        volatile = any(p.volatile for p in parts)
        if e.op in ("load", "load_if"):
            volatile |= e.attr.space != "arg" or e.attr.name in self.outputs
        return Facts(frozenset().union(*(p.variables for p in parts)), volatile)

    def is_varying(self, e: Expr) -> bool:
        return bool(self.varying) and not self.varying.isdisjoint(self.facts(e).variables)

    # -- known values

    def remember(self, group: Group, key: object, value: Value) -> None:
        group.memo[key] = value
        self.trail.append((group.memo, key))

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Values computed inside are forgotten after it: their block does not dominate what follows."""
        mark = len(self.trail)
        yield
        for memo, key in reversed(self.trail[mark:]):
            memo.pop(key, None)
        del self.trail[mark:]

    def forget_volatile(self) -> None:
        """Called between statements."""
        self.common.now.clear()
        for group in self.groups:
            group.now.clear()

    # -- masks

    def mask_of(self, group: Group) -> str | None:
        return self.both(self.lanes, group.tail, group.condition)

    def address_of(self, buffer: Buffer) -> str:
        found = self.base.get(buffer)
        if found is None:
            raise VerifyError(f"buffer '{buffer.name}' is used before it exists")
        return found


def declared(body: Sequence[Stmt]) -> set[Var]:
    """Accumulators declared anywhere inside."""
    return {v for s in walk(body) if isinstance(s, Acc) for v in s.vars}
