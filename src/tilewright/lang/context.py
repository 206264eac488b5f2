"""The state of parsing one kernel: frames of names, open regions, outputs, pinned dims, the current place."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ..errors import LanguageError
from ..ir.tile import build, rewrite
from ..ir.tile.core import Axis, Node, const_value
from ..ir.types import Loc, i64
from .dims import Dim
from .source import Source
from .values import OutTensor


class Repin(Exception):
    """Dims were needed as numbers: parse again with these pinned."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names


@dataclass(slots=True)
class Frame:
    """One function being read: the kernel, or a helper inlined into it."""

    source: Source
    env: dict[str, Any]
    inlined_at: Loc | None = None
    depth: int = 0  # regions open when the function was entered
    loop_variables: set[str] = field(default_factory=set)
    gone: dict[str, tuple[str, int]] = field(default_factory=dict)  # names bound in one branch or loop only: what, line


class Context:
    def __init__(self, frame: Frame, dim_values: Mapping[str, int], pinned: frozenset[str]) -> None:
        self.frames = [frame]
        self.dim_values = dim_values
        self.pinned = pinned
        self.known = {build.dim(n): build.const(dim_values[n], i64) for n in pinned}
        self.sizes: dict[Node, Node] = {}
        self.effects: list[Node] = []
        self.regions: list[str] = []  # kinds of the regions we are in: par | loop | if | range
        self.axis_names: dict[str, int] = {}
        self.outputs: list[OutTensor] = []
        self.pending_fills: list[tuple[OutTensor, Node]] = []
        self.loc = frame.source.loc(frame.source.tree)

    # ------------------------------------------------------------------------------------------ places and errors

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    @property
    def env(self) -> dict[str, Any]:
        return self.frames[-1].env

    def place(self, node: ast.AST) -> Loc:
        frame = self.frames[-1]
        return frame.source.loc(node, frame.inlined_at)

    def fail(self, message: str, node: ast.AST | None = None, hint: str | None = None) -> NoReturn:
        raise LanguageError(message, loc=self.place(node) if node is not None else self.loc, hint=hint)

    @property
    def at_top(self) -> bool:
        return not self.regions

    # ------------------------------------------------------------------------------------------ dims

    def size(self, value: Dim | Node) -> Node:
        """A dim as it stands in this parse: pinned names are numbers."""
        node = value.node if isinstance(value, Dim) else value
        if node not in self.sizes:
            self.sizes[node] = self._size(node)
        return self.sizes[node]

    def _size(self, node: Node) -> Node:
        for d in rewrite.walk((node,)):
            if d.op == "dim" and d.attr("name") not in self.dim_values:
                self.fail(f"dim {d.attr('name')} is not a dim of this kernel's parameters",
                          hint="name it in the signature, or read x.shape[axis]")
        return rewrite.substitute(node, self.known) if self.known else node

    def as_int(self, value: Any, what: str, node: ast.AST | None = None) -> int:
        """A number known while parsing; dims needed for it are pinned."""
        if isinstance(value, bool) or not isinstance(value, int | Node):
            self.fail(f"{what} must be a whole number known at compile time, not {value!r}", node)
        if isinstance(value, int):
            return value
        found = const_value(value)
        if found is not None and value.dtype.is_int:
            return int(found)
        self.pin(value, what, node)
        raise AssertionError("pin never returns")

    def pin(self, value: Node, what: str, node: ast.AST | None = None) -> NoReturn:
        names = frozenset(n.attr("name") for n in rewrite.walk((value,)) if n.op == "dim")
        if not names - self.pinned or not is_size(value):
            self.fail(f"{what} must be known at compile time", node, "use literals, static parameters or dims here")
        raise Repin(names)

    # ------------------------------------------------------------------------------------------ regions and axes

    @contextmanager
    def region(self, kind: str) -> Iterator[list[Node]]:
        """Collects the effects of a region."""
        outer, self.effects = self.effects, []
        self.regions.append(kind)
        try:
            yield self.effects
        finally:
            self.effects = outer
            self.regions.pop()

    def axis(self, name: str, extent: Node, kind: str) -> Axis:
        count = self.axis_names.get(name, 0)
        self.axis_names[name] = count + 1
        if count:
            return self.axis(f"{name}_{count}", extent, kind)
        return Axis(name, extent, kind)

    def trial(self, body: Callable[[], None]) -> None:
        """Runs body for what it binds, then forgets its effects and axis names (the frame's names are the caller's)."""
        axes, written = dict(self.axis_names), [o.written for o in self.outputs]
        with self.region("loop"):
            body()
        self.axis_names = axes
        for o, w in zip(self.outputs, written, strict=True):
            o.written = w


def is_size(n: Node) -> bool:
    """Made of dims and numbers only, so that it takes the other operand's element type as a Python number would."""
    if n.shape or n.free:
        return False
    if n.op in ("dim", "const"):
        return True
    return n.op in ("map", "cast") and all(is_size(a) for a in n.args)


def has_dim(n: Node) -> bool:
    return n.op == "dim" or any(has_dim(a) for a in n.args)
