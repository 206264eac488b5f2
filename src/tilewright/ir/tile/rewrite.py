"""Walking and rebuilding Tile IR: one pass over the shared graph, regions included, each node once.

Rebuilding goes through `build` for whatever can simplify (integer scalars, casts, broadcasts, maps of constants), so
that putting numbers in place of symbols also folds the arithmetic on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...errors import ShapeError
from ..types import i64
from . import build
from .core import (
    Axis,
    Extent,
    Full,
    Kernel,
    Node,
    ScalarParam,
    Shape,
    Static,
    TensorParam,
    TileOf,
    TileType,
    const,
    const_value,
    make,
    scalar_text,
)

REGIONS = ("yields", "effects", "params", "then_yields", "then_effects", "else_yields", "else_effects")

def children(n: Node) -> Iterator[Node]:
    """Operands, then whatever the node's attributes and type hold: regions, sizes of extents, extents of axes."""
    yield from n.args
    for key, value in n.attrs:
        if key in ("start", "stop") and value is not None:
            yield value
        elif key in REGIONS:
            yield from value
        elif key == "axis" and isinstance(value, Axis):
            yield value.extent
        elif key == "axes":
            for axis in value:
                yield axis.extent
    if n.type is not None:
        for e in n.type.shape:
            if isinstance(e, Full):
                yield e.size


def walk(roots: Sequence[Node]) -> Iterator[Node]:
    """Every node reachable from the roots, once, operands and regions before their users."""
    seen: set[Node] = set()
    stack: list[tuple[Node, Iterator[Node]]] = []
    for root in roots:
        if root in seen:
            continue
        seen.add(root)
        stack.append((root, children(root)))
        while stack:
            node, rest = stack[-1]
            child = next((c for c in rest if c not in seen), None)
            if child is None:
                stack.pop()
                yield node
            else:
                seen.add(child)
                stack.append((child, children(child)))


def users(kernel: Kernel) -> dict[Node, list[Node]]:
    """Who uses each node: as operand, in a region, or as a size; in the order they are evaluated."""
    out: dict[Node, list[Node]] = {}
    for n in walk(kernel.effects):
        out.setdefault(n, [])
        for c in dict.fromkeys(children(n)):
            out.setdefault(c, []).append(n)
    return out


def axes(kernel: Kernel) -> tuple[Axis, ...]:
    """Every axis of the kernel, outer before inner."""
    found: dict[Axis, None] = {}

    def visit(effects_or_values: Sequence[Node], seen: set[Node]) -> None:
        for n in effects_or_values:
            if n in seen:
                continue
            seen.add(n)
            if n.op == "par":
                found.update(dict.fromkeys(n.attr("axes")))
            elif n.op == "loop":
                found.setdefault(n.attr("axis"))
            visit(tuple(children(n)), seen)

    visit(kernel.effects, set())
    return tuple(found)


def innermost(n: Node, order: Sequence[Axis]) -> Axis | None:
    """Of the axes in `order` (outer first), the innermost one that the node depends on: where it must be evaluated."""
    return next((a for a in reversed(order) if a in n.free), None)


class Rebuilder:
    """Rebuilds nodes bottom-up. `fn(node, args)` may return a replacement built from the new operands, or None to
    rebuild the node as it was. Leaves given in `known` are replaced outright."""

    def __init__(self, fn: Callable[[Node, tuple[Node, ...]], Node | None] | None = None,
                 known: Mapping[Node, Node] | None = None) -> None:
        self.fn = fn
        self.memo: dict[Node, Node] = dict(known or {})
        self.axes: dict[Axis, Axis] = {}

    def __call__(self, n: Node) -> Node:
        found = self.memo.get(n)
        if found is None:
            for m in walk_new(n, self.memo):
                self.memo[m] = self._rebuild(m)
            found = self.memo[n]
        return found

    def axis(self, a: Axis) -> Axis:
        if a not in self.axes:
            extent = self(a.extent)
            self.axes[a] = a if extent is a.extent else replace(a, extent=extent)
        return self.axes[a]

    def extent(self, e: Extent) -> Extent:
        if isinstance(e, TileOf):
            return TileOf(self.axis(e.axis))
        return build.extent_of(self(e.size)) if isinstance(e, Full) else e

    def shape(self, shape: Shape) -> Shape:
        return tuple(self.extent(e) for e in shape)

    def _value(self, x: Any) -> Any:
        match x:
            case Node():
                return self(x)
            case Axis():
                return self.axis(x)
            case Static() | Full() | TileOf():
                return self.extent(x)
            case tuple():
                return tuple(self._value(i) for i in x)
            case _:
                return x

    def _rebuild(self, n: Node) -> Node:
        args = tuple(self.memo[a] for a in n.args)
        if self.fn is not None and (replaced := self.fn(n, args)) is not None:
            return replaced
        attrs = {k: self._value(v) for k, v in n.attrs}
        match n.op:
            case "map":
                return build.map(attrs["fn"], *args, loc=n.loc)
            case "cast":
                return build.cast(args[0], attrs["dtype"], n.loc)
            case "broadcast":
                return build.broadcast(args[0], attrs["shape"], attrs["dims"], n.loc)
            case "reshape":
                return build.reshape(args[0], attrs["shape"], n.loc)
            case "transpose":
                return build.transpose(args[0], attrs["perm"], n.loc)
            case "iota":
                return build.iota(attrs["extent"], n.loc)
            case "result":
                return build.result(args[0], attrs["index"])
            case _:
                kind = None if n.type is None else TileType(n.type.dtype, self.shape(n.type.shape))
                return make(n.op, args, kind, n.loc, **attrs)

    def kernel(self, k: Kernel) -> Kernel:
        effects = tuple(self(e) for e in k.effects)
        params: list[TensorParam | ScalarParam] = []
        for p in k.params:
            params.append(replace(p, dims=tuple(self(d) for d in p.dims)) if isinstance(p, TensorParam) else p)
        return replace(k, params=tuple(params), effects=effects)


def walk_new(root: Node, known: Mapping[Node, Node]) -> Iterator[Node]:
    """The nodes below root (and root) that are not yet known, operands and regions first."""
    stack: list[tuple[Node, Iterator[Node]]] = [(root, children(root))]
    seen = {root}
    while stack:
        node, rest = stack[-1]
        child = next((c for c in rest if c not in seen and c not in known), None)
        if child is None:
            stack.pop()
            yield node
        else:
            seen.add(child)
            stack.append((child, children(child)))


def rebuild(kernel: Kernel, fn: Callable[[Node, tuple[Node, ...]], Node | None]) -> Kernel:
    """The kernel with fn applied to every node once, operands before users; see `Rebuilder`."""
    return Rebuilder(fn).kernel(kernel)


def substitute(n: Node, known: Mapping[Node, Node]) -> Node:
    """The node with some nodes below it replaced."""
    return Rebuilder(None, known)(n)


def bind_dims(kernel: Kernel, values: Mapping[str, int]) -> Kernel:
    """Puts numbers in place of dim symbols everywhere: operands, extents, axes and parameters."""
    if not values:
        return kernel

    def bind(n: Node, args: tuple[Node, ...]) -> Node | None:
        if n.op == "dim" and n.attr("name") in values:
            return const(values[n.attr("name")], i64)
        return None

    return rebuild(kernel, bind)


def dim_names(kernel: Kernel) -> tuple[str, ...]:
    """Dim symbols in the order of the parameters, then those that only the body names."""
    roots = [d for p in kernel.tensors for d in p.dims]
    found = [n.attr("name") for n in walk((*roots, *kernel.effects)) if n.op == "dim"]
    return tuple(dict.fromkeys(found))


def evaluate(n: Node, dims: Mapping[str, int]) -> int:
    """The value of an integer scalar made of constants and dims."""
    known = {m: const(dims[m.attr("name")], i64) for m in walk((n,)) if m.op == "dim" and m.attr("name") in dims}
    value = const_value(substitute(n, known))
    if value is None:
        raise ShapeError(f"{scalar_text(n)} is not known from the dims {dict(dims)}", loc=n.loc)
    return int(value)
