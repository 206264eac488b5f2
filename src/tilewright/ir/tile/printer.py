"""Tile IR as text that `parser.py` reads back: one node a line, each in the innermost region it depends on.

    kernel linear
    in x: f32(M, K)
    out y: f32(M, 8)

    %0: f32 = const 0.0
    par i < M, j < 8 {
      %1: f32(i, j) = broadcast(%0) at ()
      %2 = loop k < K carry %3 acc: f32(i, j) = %1 {
        ...
        yield %9
      }
      %10: f32(i, j) = result(%2, 0)
      store y[%11, %12] = %10
    }

A shape lists per axis a number (static), `:size` (the whole of a size) or the name of a tile axis. Sizes are written as
small expressions of dims; a size that is anything else is written as the `%n` that computes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ...errors import VerifyError
from ..text import name_text, number_text
from .core import Axis, Extent, Full, Kernel, Node, Shape, Static, TensorParam, TileOf, TileType
from .rewrite import children, walk

INFIX = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%"}
INLINE_FNS = frozenset({*INFIX, "min", "max"})
#: Largest size expression that is written in place.
_INLINE_NODES = 12
_PLACEHOLDER = re.compile("\x00(\\d+)\x00")


def kernel_text(k: Kernel) -> str:
    """The whole kernel."""
    lines = [f"kernel {name_text(k.name)}"]
    writer = _Writer(k)
    for p in k.params:
        if isinstance(p, TensorParam):
            dims = ", ".join(writer.dim(d) for d in p.dims)
            lines.append(f"{p.role} {name_text(p.name)}: {p.dtype}({dims})")
        else:
            lines.append(f"scalar {name_text(p.name)}: {p.dtype}")
    lines.append("")
    for e in k.effects:
        writer.effect(e, writer.root)
    numbers: dict[str, str] = {}
    body = "\n".join(writer.root.lines)
    body = _PLACEHOLDER.sub(lambda m: "%" + numbers.setdefault(m.group(1), str(len(numbers))), body)
    return "\n".join(lines) + "\n" + (body + "\n" if body else "")


def node_text(n: Node) -> str:
    """One node without what is inside its regions, operands as their op: for messages."""
    short = {a: f"<{a.op} {a.type}>" if a.type is not None else f"<{a.op}>" for a in n.args}

    def ref(x: Node) -> str:
        return short.get(x) or f"<{x.op}>"

    head = _head(n, ref, lambda x: f"<{x.op}>" if _inline_size(x) is None else _size_text(x))
    return head if n.type is None else f"{n.type} = {head}"


@dataclass(slots=True, eq=False)
class _Region:
    parent: _Region | None
    depth: int
    indent: str
    lines: list[str] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)


class _Writer:
    def __init__(self, kernel: Kernel) -> None:
        self.root = _Region(None, 0, "")
        self.names: dict[Node, str] = {}
        self.count = 0
        self.regions: dict[Axis | Node, _Region] = {}
        self.placed: dict[Node, _Region] = {}
        self.needs = _effectful_needs(kernel)

    def dim(self, n: Node) -> str:
        if _inline_size(n, limit=1000) is None:
            raise VerifyError(f"a parameter's dim is no expression of dims: {n!r}")
        return _size_text(n)

    # ------------------------------------------------------------------ where a node stands

    def region_of(self, n: Node) -> _Region:
        found = self.root
        for v in n.free:
            if v not in self.regions:
                raise VerifyError(f"{n!r} uses {v!r} outside the loop that makes it", loc=n.loc)
            found = max(found, self.regions[v], key=lambda r: r.depth)
        for e in self.needs.get(n, ()):
            if e is not n and e in self.placed:
                found = max(found, self.placed[e], key=lambda r: r.depth)
        return found

    def new_name(self, n: Node) -> str:
        self.count += 1
        self.names[n] = f"\x00{self.count}\x00"
        return self.names[n]

    def ref(self, n: Node) -> str:
        return self.names[n]

    def size(self, n: Node) -> str:
        return _size_text(n) if _inline_size(n) is not None else self.names[n]

    def type(self, t: TileType) -> str:
        return str(t.dtype) if not t.shape else f"{t.dtype}({', '.join(self.extent(e) for e in t.shape)})"

    def extent(self, e: Extent) -> str:
        match e:
            case Static(size):
                return str(size)
            case TileOf(axis):
                return name_text(axis.name)
            case Full(size):
                return f":{self.size(size)}"

    # ------------------------------------------------------------------ emission

    def value(self, root: Node) -> None:
        """Writes the node and whatever it needs, each before its first use."""
        stack = [root]
        while stack:
            n = stack[-1]
            missing = [c for c in _before(n) if c not in self.names] if n not in self.names else []
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            if n not in self.names:
                self.line(n, self.region_of(n))

    def line(self, n: Node, region: _Region) -> None:
        self.placed[n] = region
        region.nodes.append(n)
        if n.op in ("loop", "if"):
            self.structure(n, region)
            return
        if n.type is None or n.op == "carried":
            raise VerifyError(f"'{n.op}' is no value, or stands outside its loop", loc=n.loc)
        head = _head(n, self.ref, self.size)
        region.lines.append(f"{region.indent}{self.new_name(n)}: {self.type(n.type)} = {head}")

    def structure(self, n: Node, region: _Region) -> None:
        """A loop or if. Its text is put together last: what it needs from outside is written before it."""
        name = self.new_name(n)
        if n.op == "if":
            then, orelse = (self.branch(n, side, region) for side in ("then", "else"))
            head, inner = _head(n, self.ref, self.size), [*then, region.indent + "} else {", *orelse]
        else:
            params: Sequence[Node] = n.attr("params")
            carry = ", ".join(
                f"{self.new_name(p)} {name_text(p.attr('name') or '')}: {self.type_of(p)} = {self.ref(i)}"
                for p, i in zip(params, n.args))
            head = _head(n, self.ref, self.size) + (f" carry {carry}" if carry else "")
            body = self.open(region, (n.attr("axis"), *params))
            self.body(n.attr("effects"), n.attr("yields"), body)
            self.close(body, (n.attr("axis"), *params))
            inner = body.lines
        region.lines += [f"{region.indent}{name} = {head} {{", *inner, region.indent + "}"]

    def type_of(self, n: Node) -> str:
        assert n.type is not None
        return self.type(n.type)

    def branch(self, n: Node, side: str, region: _Region) -> list[str]:
        inner = self.open(region, ())
        self.body(n.attr(f"{side}_effects"), n.attr(f"{side}_yields"), inner)
        self.close(inner, ())
        return inner.lines

    def body(self, effects: Sequence[Node], yields: Sequence[Node], region: _Region) -> None:
        for e in effects:
            self.effect(e, region)
        for y in yields:
            self.value(y)
        if yields:
            region.lines.append(f"{region.indent}yield {', '.join(map(self.ref, yields))}")

    def open(self, parent: _Region, variables: Sequence[Axis | Node]) -> _Region:
        region = _Region(parent, parent.depth + 1, parent.indent + "  ")
        for v in variables:
            self.regions[v] = region
        return region

    def close(self, region: _Region, variables: Sequence[Axis | Node]) -> None:
        """Names end with their region: a second loop over the same axis writes what it needs again."""
        for v in variables:
            del self.regions[v]
        for n in region.nodes:
            del self.names[n], self.placed[n]

    def effect(self, n: Node, region: _Region) -> None:
        for c in _before(n):
            self.value(c)
        if n.op == "par":
            body = self.open(region, n.attr("axes"))
            self.body(n.attr("effects"), (), body)
            self.close(body, n.attr("axes"))
            region.lines += [f"{region.indent}{_head(n, self.ref, self.size)} {{", *body.lines, region.indent + "}"]
        elif n.op in ("loop", "if"):
            self.line(n, region)
        elif n.op in ("store", "scatter"):
            region.lines.append(region.indent + _head(n, self.ref, self.size))
        else:
            raise VerifyError(f"'{n.op}' is no effect", loc=n.loc)


def _before(n: Node) -> list[Node]:
    """What must be written before the node: operands, and sizes that are not written in place."""
    out = list(n.args)
    sizes = list(_shape_sizes(n.type.shape)) if n.type is not None else []
    if n.op == "loop":
        sizes += [n.attr("axis").extent, *(x for x in (n.attr("start"), n.attr("stop")) if x is not None)]
        for p in n.attr("params"):
            sizes += _shape_sizes(p.shape)
    elif n.op == "par":
        sizes += [a.extent for a in n.attr("axes")]
    return out + [s for s in sizes if _inline_size(s) is None]


def _shape_sizes(shape: Shape) -> list[Node]:
    return [e.size for e in shape if isinstance(e, Full)]


def _inline_size(n: Node, limit: int = _INLINE_NODES) -> int | None:
    """Number of nodes of a size written in place, or None when it is not written so."""
    total, stack = 0, [n]
    while stack:
        x = stack.pop()
        total += 1
        if total > limit or x.type is None or x.shape or str(x.dtype) != "i64":
            return None
        if x.op == "map" and x.attr("fn") in INLINE_FNS:
            stack.extend(x.args)
        elif x.op not in ("const", "dim", "param", "pos"):
            return None
    return total


def _size_text(n: Node) -> str:
    match n.op:
        case "const":
            return str(n.attr("value"))
        case "dim":
            return name_text(n.attr("name"))
        case "param":
            return f"param({name_text(n.attr('name'))})"
        case "pos":
            return f"pos({name_text(n.attr('axis').name)})"
        case _:
            fn, (a, b) = n.attr("fn"), map(_size_text, n.args)
            return f"({a} {INFIX[fn]} {b})" if fn in INFIX else f"{fn}({a}, {b})"


def _effectful_needs(kernel: Kernel) -> dict[Node, frozenset[Node]]:
    """Per node the loops and ifs with effects whose results it uses: it cannot stand before them."""
    needs: dict[Node, frozenset[Node]] = {}
    for n in walk(kernel.effects):
        found: frozenset[Node] = frozenset().union(*(needs.get(c, frozenset()) for c in children(n)))
        effects = [e for key in ("effects", "then_effects", "else_effects") for e in n.attr(key, ())]
        if effects:
            found -= set(effects)
            if n.op in ("loop", "if"):
                found |= {n}
        if found:
            needs[n] = found
    return needs


# ---------------------------------------------------------------------------------------------- the text of one node


def _head(n: Node, ref: Callable[[Node], str], size: Callable[[Node], str]) -> str:
    """The node after its name and type; structured nodes up to their opening brace."""
    args = ", ".join(map(ref, n.args))
    match n.op:
        case "const":
            return f"const {number_text(n.attr('value'))}"
        case "dim" | "param":
            return f"{n.op} {name_text(n.attr('name'))}"
        case "pos" | "index":
            return f"{n.op} {name_text(n.attr('axis').name)}"
        case "iota":
            return "iota"
        case "map":
            return f"{n.attr('fn')}({args})"
        case "broadcast":
            return f"broadcast({args}) at {_tuple(n.attr('dims'))}"
        case "transpose":
            return f"transpose({args}) perm {_tuple(n.attr('perm'))}"
        case "slice":
            return f"slice({args}) " + " ".join(f"{k} {_tuple(n.attr(k))}" for k in ("starts", "sizes", "steps"))
        case "load":
            return f"load {name_text(n.attr('tensor'))}[{args}] fill {number_text(n.attr('fill'))}"
        case "fold":
            return f"fold {n.attr('monoid')}({args}) axis {n.attr('axis')}"
        case "argfold":
            return f"argfold {n.attr('kind')}({args}) axis {n.attr('axis')}" + (" last" if n.attr("last") else "")
        case "scan":
            flags = "".join(f" {k}" for k in ("reverse", "exclusive") if n.attr(k))
            return f"scan {n.attr('monoid')}({args}) axis {n.attr('axis')}{flags}"
        case "rng":
            return f"rng {n.attr('kind')}({args})"
        case "result":
            return f"result({args}, {n.attr('index')})"
        case "store" | "scatter":
            index, value = ", ".join(map(ref, n.args[:-1])), ref(n.args[-1])
            place = f"{name_text(n.attr('tensor'))}[{index}] = {value}"
            if n.op == "store":
                return f"store {place}"
            return f"scatter {n.attr('monoid')} {place}" + (" deterministic" if n.attr("deterministic") else "")
        case "if":
            return f"if {args}"
        case "loop":
            limits = "".join(f" {k} {size(n.attr(a))}" for k, a in (("from", "start"), ("to", "stop"))
                             if n.attr(a) is not None)
            return f"loop {_axis(n.attr('axis'), size)}{limits}"
        case "par":
            return f"par {', '.join(_axis(a, size) for a in n.attr('axes'))}".rstrip()
        case _:
            return f"{n.op}({args})"


def _axis(a: Axis, size: Callable[[Node], str]) -> str:
    kind = "" if a.kind == "tile" else a.kind + " "
    return f"{kind}{name_text(a.name)} < {size(a.extent)}"


def _tuple(xs: Sequence[int | None]) -> str:
    return "(" + ", ".join("none" if x is None else str(x) for x in xs) + ")"
