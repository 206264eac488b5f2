"""From a graph with known shapes to a list of kernel launches over buffers: fusion, kernels, views, and who owns what.

Every launch is one kernel in Tile IR with its facts, bound to views of buffers. Nothing is compiled here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ModelError, Problem, TilewrightError, UnsupportedError
from ..ir.graph.core import Graph, Node, Value
from ..ir.tile import core as t
from ..ir.tile.rewrite import walk
from ..ops import rules
from ..ops.view import View, collapse, row_major
from ..passes.epilogue import fuse_tail, scalar_function
from ..passes.graph.clusters import LEAVES, VIEWS, Region, clusters
from ..schedule.facts import Facts, Layout
from .specialise import bucket

if TYPE_CHECKING:
    from ..lang.parse import ParsedKernel

Array = np.ndarray[Any, Any]


@dataclass(slots=True)
class Launch:
    """One kernel call. `bindings`: per tensor of the kernel, in order, a view of a value's buffer or a constant array.
    `packable`: the tensor that may be packed into panels at load time. `region`: what it computes, for reports.
    `dims`: dims that the code reads at run time, and their values."""

    kernel: t.Kernel
    facts: Facts
    bindings: list[View | Array]
    region: str
    nodes: tuple[Node, ...]
    packable: str | None = None
    dims: tuple[tuple[str, int], ...] = ()


def strides_of(b: View | Array) -> tuple[int, ...]:
    return b.strides if isinstance(b, View) else row_major(b.shape)


@dataclass(slots=True)
class Branch:
    """if_: runs one of two lists of launches, by the byte where the condition lies."""

    cond: View
    then: list[Launch | Branch]
    orelse: list[Launch | Branch]


Step = Launch | Branch


@dataclass(slots=True)
class Plan:
    """`buffers`: every value that owns memory; `outputs`: a dense view of each graph output."""

    steps: list[Step]
    buffers: dict[Value, int] = field(default_factory=dict)
    outputs: list[View] = field(default_factory=list)
    regions: list[Region] = field(default_factory=list)


def make_plan(graph: Graph, threads: int, keep: frozenset[Value] = frozenset(), images: int = 1) -> Plan:
    """Every problem of the graph is found before any is reported. `keep`: values that must own memory (not fused).
    `images`: the batch, where it may change between calls: code is then made for batches about as large."""
    planner = _Planner(threads, images)
    planner.graph(graph, keep)
    if planner.problems:
        raise ModelError(f"model '{graph.name}' cannot be compiled for this target", planner.problems)
    return planner.plan


class _Planner:
    def __init__(self, threads: int, images: int) -> None:
        self.threads = threads
        self.images = images
        self.plan = Plan([])
        self.steps = self.plan.steps
        self.views: dict[Value, View] = {}
        self.copies: dict[View, View] = {}
        self.slices: dict[Value, tuple[Node, int]] = {}  # values that only a concat reads, and where they go in it
        self.problems: list[Problem] = []

    # ------------------------------------------------------------------ the graph

    def graph(self, graph: Graph, keep: frozenset[Value]) -> None:
        for v in graph.inputs:
            self.views[v] = View.whole(v)
        self.body(graph, keep)
        if not self.problems:
            for k, v in enumerate(graph.outputs):  # one by one: each looks at what those before it took
                self.plan.outputs.append(self.output(v, k, graph))

    def body(self, graph: Graph, keep: frozenset[Value] = frozenset()) -> None:
        regions = clusters(graph, rules.FUSABLE, keep)
        self.plan.regions += regions
        by_root = {r.root.node: r for r in regions}
        inside = {n for r in regions for n in r.nodes}
        self.slices |= _slices(graph, by_root, keep)
        for n in graph.nodes:
            try:
                if n.op in LEAVES:
                    if n.op == "constant":
                        self.views[n.out()] = View.whole(n.out())
                elif n in by_root:
                    self.region(by_root[n])
                elif n.op in VIEWS and n not in inside:
                    self.views[n.out()] = self.view_of(n)
            except TilewrightError as e:
                self.problems.append(_problem(n, e))
                for v in n.outputs:  # so that the rest can be checked too
                    self.views.setdefault(v, View.whole(v))

    def output(self, v: Value, position: int, graph: Graph) -> View:
        """A dense buffer of the output's own: not an input, a constant, or another output's."""
        view = self.views[v]
        taken = {o.base for o in self.plan.outputs} | set(graph.inputs)
        whole = view.dense and view.offset == 0 and view.size == prod(view.base.type.static_shape)
        if not whole or view.base in taken or view.base.is_constant or view.base.dtype is not v.dtype:
            return self.copy(view, f"output {position}")
        return view

    def view_of(self, n: Node) -> View:
        x = n.inputs[0]
        assert x is not None
        shape = n.types[0].static_shape
        match n.op:
            case "reshape":
                return self.shaped(x, shape)
            case "transpose":
                return self.view(x).transpose(n.attr("perm"))
            case "broadcast":
                return self.view(x).broadcast(shape)
            case _:
                return self.view(x).slice(n.attr("starts"), shape, n.attr("steps"))

    # ------------------------------------------------------------------ what rules ask

    def view(self, value: Value) -> View:
        return self.views[value]

    def constant(self, value: Value) -> Array | None:
        return value.constant if value.is_constant else None

    def shaped(self, value: Value, shape: tuple[int, ...]) -> View:
        view = self.view(value)
        found = view.reshape(shape)
        if found is not None:
            return found
        return self.copied(view).reshaped(shape)

    def reshaped(self, view: View, shape: tuple[int, ...]) -> View:
        found = view.reshape(shape)
        return found if found is not None else self.copied(view).reshaped(shape)

    def copied(self, view: View) -> View:
        """A dense copy of a view, made once."""
        if view not in self.copies:
            self.copies[view] = self.copy(view, "copy")
        return self.copies[view]

    # ------------------------------------------------------------------ buffers and copies

    def buffer(self, value: Value) -> View:
        """New memory for a value."""
        view = View.whole(value)
        self.plan.buffers[value] = view.size * value.dtype.itemsize
        return view

    def target(self, value: Value) -> View:
        """Where to write a value: new memory, or its part of the concat that is its only reader."""
        if value not in self.slices:
            return self.buffer(value)
        n, start = self.slices[value]
        whole = self.views.get(n.out())
        if whole is None:
            whole = self.views[n.out()] = self.target(n.out())
        axis = int(n.attr("axis"))
        starts = tuple(start if k == axis else 0 for k in range(n.types[0].rank))
        return whole.slice(starts, value.type.static_shape, (1,) * len(starts))

    def copy(self, source: View, label: str) -> View:
        """A dense copy of a view, in memory of its own."""
        from ..ir.graph.core import TensorType, intern_node

        type_ = TensorType(source.base.dtype, source.shape)
        fresh = intern_node("copy", (source.base,), {"uid": len(self.plan.buffers), "label": label}, (type_,)).out()
        target = self.buffer(fresh)
        self.launch_elementwise([], {}, [source], target, label, ())
        return target

    # ------------------------------------------------------------------ regions

    def region(self, r: Region) -> None:
        n = r.anchor
        if n is None:
            self.elementwise(r, self.target(r.root))
        elif n.op in SPECIAL:
            SPECIAL[n.op](self, n)
            return
        elif n.op not in rules.RULES:
            raise UnsupportedError(f"the CPU target has no kernel for '{n.op}'", loc=n.loc)
        else:
            self.anchored(r, rules.RULES[n.op](self, n))
        self.views[r.root] = self.views.get(r.root) or View.whole(r.root)

    def elementwise(self, r: Region, target: View) -> None:
        operands = self.operands(r, None, lambda v: v)
        assert operands is not None
        places, numbers = operands
        views = list(dict.fromkeys(places.values()))
        shape = r.root.type.static_shape
        self.views[r.root] = target
        self.launch_elementwise(r.body, {k: views.index(v) for k, v in places.items()}, views,
                                View(target.base, shape, target.strides, target.offset), r.name, tuple(r.nodes),
                                numbers)

    def operands(self, r: Region, head: Value | None, arrange: Any
                 ) -> tuple[dict[tuple[Node, int], View], dict[tuple[Node, int], int | float | bool]] | None:
        """For each operand that comes from outside: its view in the kernel's output dims, or its number. None when an
        operand cannot be seen in those dims."""
        made = {v for n in r.body for v in n.outputs}
        places: dict[tuple[Node, int], View] = {}
        numbers: dict[tuple[Node, int], int | float | bool] = {}
        shape = r.root.type.static_shape
        for n in r.body:
            if n.op not in ("reshape", "cast") and scalar_function(n) is None:
                raise UnsupportedError(f"the CPU target has no scalar function for '{n.op}'", loc=n.loc)
            for k, v in enumerate(n.inputs):
                if v is None or v in made or v == head:
                    continue
                if v.is_constant and v.constant.size == 1:
                    numbers[n, k] = v.constant.reshape(()).item()
                    continue
                seen = self.view(v)
                if n.op != "reshape":
                    seen = seen.broadcast(n.types[0].static_shape)
                arranged = arrange(self.reshaped(seen, shape))
                if arranged is None:
                    return None
                places[n, k] = arranged
        return places, numbers

    def launch_elementwise(self, body: Sequence[Node], which: dict[tuple[Node, int], int], views: list[View],
                           target: View, name: str, nodes: tuple[Node, ...],
                           numbers: dict[tuple[Node, int], int | float | bool] | None = None) -> None:
        """A copy of one operand, with the region's body as its tail."""
        from ..ops import copy

        if not views:
            raise UnsupportedError("a region without operands (it should have been folded)")
        *sources, out = collapse([*views, target])
        head = max(range(len(sources)), key=lambda k: (sum(1 for s in sources[k].strides if s), -k))
        kernel, dims = _parse(copy.copy, {"x": sources[head]}, {}, self.images)
        tails = {k: f"t{k}" for k in range(len(sources)) if k != head}
        heads = frozenset(key for key, k in which.items() if k == head)
        if body:
            kernel = fuse_tail(kernel, body, heads, {key: tails[k] for key, k in which.items() if k != head},
                               {tails[k]: views[k].base.dtype for k in tails}, numbers or {}, body[-1].out())
        bindings = [sources[head], *(sources[k] for k in tails), out]
        self.add(kernel, bindings, name, nodes, dims)

    def anchored(self, r: Region, call: rules.Call) -> None:
        n = r.anchor
        assert n is not None
        found = self.operands(r, n.out(), call.arranged) if r.body else ({}, {})
        if found is None:  # the tail does not fit this kernel's dims: two kernels instead
            self.anchored(Region(n.out(), [], n), call)
            self.elementwise(Region(r.root, r.body), self.buffer(r.root))
            return
        places, numbers = found
        root = r.root
        outs = [self.result(v, n, call) for v in (n.outputs if root.node is n else (root,))]
        views = {k: v for k, v in call.tensors.items()}
        kernel, dims = _parse(call.kernel, views, call.static, self.images)
        if call.change is not None:
            kernel = call.change(kernel)
        extra = list(dict.fromkeys(places.values()))
        if r.body:
            first = {(u, k) for u in r.body for k, v in enumerate(u.inputs) if v == n.out()}
            names = {v: f"t{k}" for k, v in enumerate(extra)}
            kernel = fuse_tail(kernel, r.body, frozenset(first), {key: names[v] for key, v in places.items()},
                               {names[v]: v.base.dtype for v in extra}, numbers, root)
        self.add(kernel, [*views.values(), *extra, *outs], r.name, tuple(r.nodes), dims,
                 call.packable)

    def result(self, v: Value, n: Node, call: rules.Call) -> View:
        """The place of a kernel's result `v`, as its output dims see it."""
        shape = n.types[0].static_shape
        if v in self.slices:
            place = self.target(v)
            seen = place.reshape(shape)
            out = call.arranged(seen) if seen is not None else None
            if out is not None:
                self.views[v] = place
                return out
        place = self.views[v] = self.buffer(v)
        out = call.arranged(place.reshaped(shape))
        assert out is not None
        return out

    def add(self, kernel: t.Kernel, bindings: Sequence[View | Array], name: str, nodes: tuple[Node, ...],
            dims: tuple[tuple[str, int], ...] = (), packable: str | None = None) -> None:
        free = frozenset(d for d, _ in dims)
        layouts = [(p.name, _layout(p, strides_of(b), free)) for p, b in zip(kernel.tensors, bindings, strict=True)]
        if packable is not None and isinstance(bindings[[p.name for p in kernel.tensors].index(packable)], View):
            packable = None
        facts = Facts(tuple((d, self.like(n)) for d, n in dims), frozenset(), tuple(layouts), self.threads)
        self.steps.append(Launch(kernel, facts, list(bindings), name, nodes, packable, dims))

    def like(self, size: int) -> int:
        """What a schedule is made for: as much per image, for the largest batch that shares this one's code."""
        return size // self.images * bucket(self.images) if size % self.images == 0 else bucket(size)


def _parse(kernel: Any, tensors: dict[str, View | Array], static: dict[str, Any], images: int
           ) -> tuple[t.Kernel, tuple[tuple[str, int], ...]]:
    """A library kernel for these operands, its dims bound to their numbers. With several images the dim that follows
    their number stays a dim, given here with its value: the code then serves other batches as well."""
    from ..ir.tile.rewrite import bind_dims

    parsed, values = _parsed(kernel.fn, tensors, static)
    free = _free_dim(parsed.kernel, tensors, values, images) if images > 1 else None
    dims = ((free, values.pop(free)),) if free is not None else ()
    key = (id(parsed), tuple(values.items()))  # the entry keeps `parsed`, so that its id stays its own
    if key not in _bound:
        _bound[key] = (parsed, bind_dims(parsed.kernel, values))
        while len(_bound) > _MOST_FAMILIES:
            _bound.pop(next(iter(_bound)))
    return _bound[key][1], dims


def _free_dim(kernel: t.Kernel, tensors: dict[str, View | Array], values: dict[str, int], images: int) -> str | None:
    """The first dim (of the operands, then of the result) that the number of images divides, constants aside. None when
    it lies inside an axis of known length somewhere: kernels write such axes out, and their steps are better known."""
    constants = [d for name, x in tensors.items() if not isinstance(x, View) for d in kernel.tensor(name).dims]
    fixed = _names(constants)
    inside: set[str] = set()
    for p in kernel.tensors:
        for k, d in enumerate(p.dims):
            if d.op == "const" and t.const_value(d) != 1:
                inside |= _names(p.dims[k + 1:])
    for p in (*kernel.inputs, *kernel.outputs):
        for d in p.dims:
            name = str(d.attr("name")) if d.op == "dim" else ""
            if name in values and name not in fixed and values[name] % images == 0 and values[name]:
                return name if name not in inside else None
    return None


def _names(dims: Sequence[t.Node]) -> set[str]:
    return {str(n.attr("name")) for n in walk(dims) if n.op == "dim"}


def _layout(p: t.TensorParam, strides: Sequence[int], free: frozenset[str]) -> Layout:
    """Known strides, except those that step over an axis which is not known."""
    inner = [abs(s) for d, s in zip(p.dims, strides, strict=True) if _names([d]) & free]
    limit = min((s for s in inner if s), default=None)
    return Layout(tuple(None if limit is not None and abs(s) > limit else s for s in strides))


#: parsed library kernels by function, element types, ranks and static values; each with the dims that it is only for
_families: dict[Any, list[tuple[dict[str, int], ParsedKernel]]] = {}
#: the same with the numbers of some operands
_bound: dict[Any, tuple[ParsedKernel, t.Kernel]] = {}
_MOST_FAMILIES = 1024


def _parsed(fn: Any, tensors: dict[str, View | Array], static: dict[str, Any]) -> tuple[ParsedKernel, dict[str, int]]:
    """The kernel with its dims as symbols (except those it pins), and the dims of these operands."""
    from ..ir.types import from_numpy
    from ..lang.parse import TensorSpec, parse_kernel
    from ..lang.signature import bind, signature_of
    from .specialise import static_key

    spec: dict[str, Any] = dict(static)
    for name, x in tensors.items():
        d = x.base.dtype if isinstance(x, View) else from_numpy(x.dtype)
        assert d is not None
        spec[name] = TensorSpec(d, tuple(x.shape))
    values = bind(signature_of(fn), spec).values
    family = (fn, tuple((n, spec[n].dtype, spec[n].rank) for n in tensors), static_key(static))
    known = _families.setdefault(family, [])
    for pinned, parsed in known:
        if all(values[n] == size for n, size in pinned.items()):
            return parsed, values
    parsed = parse_kernel(fn, spec)
    known.append(({n: values[n] for n in parsed.pinned}, parsed))
    while len(_families) > _MOST_FAMILIES:
        _families.pop(next(iter(_families)))
    return parsed, values


def _problem(n: Node, e: TilewrightError) -> Problem:
    shapes = ", ".join(str(v.type) for v in n.inputs if v is not None)
    return Problem(n.name or n.op, n.op, e.message, shapes)


# ---------------------------------------------------------------------------------------------- ops that only move


def _slices(graph: Graph, made: Mapping[Node, Region], keep: frozenset[Value]) -> dict[Value, tuple[Node, int]]:
    """The results of kernels that one operand of one concat reads and nothing else does."""
    users = graph.users()
    kept = keep | set(graph.outputs)
    found: dict[Value, tuple[Node, int]] = {}
    for n in graph.nodes:
        at = 0
        for v in n.inputs if n.op == "concat" else ():
            assert v is not None
            if v.node in made and v not in kept and users[v] == [n] and n.inputs.count(v) == 1 and v.node.op != "if_":
                found[v] = (n, at)
            at += v.type.static_shape[int(n.attr("axis"))]
    return found


def _concat(planner: _Planner, n: Node) -> None:
    axis, out = int(n.attr("axis")), n.out()
    if out not in planner.views:
        planner.views[out] = planner.target(out)
    target = planner.views[out]
    at = 0
    for v in n.inputs:
        assert v is not None
        source = planner.view(v)
        starts = tuple(at if k == axis else 0 for k in range(len(target.shape)))
        part = target.slice(starts, source.shape, (1,) * len(starts))
        at += source.shape[axis]
        if source.size and source != part:
            planner.launch_elementwise([], {}, [source], part, "concat", (n,))


def _pad(planner: _Planner, n: Node) -> None:
    from ..ir.graph.core import constant
    from ..ir.graph.spec_shape import pad_value

    mode = n.attr("mode", "constant")
    if mode != "constant":
        raise UnsupportedError(f"pad with mode '{mode}' has no kernel yet ('constant' has)", loc=n.loc)
    x = n.inputs[0]
    assert x is not None
    source, target = planner.view(x), planner.target(n.out())
    planner.views[n.out()] = target
    fill = constant(np.full((), pad_value(n.attr("value"), x.dtype.numpy), x.dtype.numpy))
    planner.views[fill] = View.whole(fill)
    planner.launch_elementwise([], {}, [planner.view(fill).broadcast(target.shape)], target, "pad", (n,))
    inner = target.slice(n.attr("lo"), source.shape, (1,) * len(source.shape))
    if source.size:
        planner.launch_elementwise([], {}, [source], inner, "pad", (n,))


def _iota(planner: _Planner, n: Node) -> None:
    from ..ir.graph.core import constant

    shape, axis = n.types[0].static_shape, int(n.attr("axis"))
    ramp = constant(np.arange(shape[axis]).astype(n.types[0].dtype.numpy))
    column = View.whole(ramp).reshaped(tuple(d if k == axis else 1 for k, d in enumerate(shape)))
    planner.views[n.out()] = column.broadcast(shape)


def _if(planner: _Planner, n: Node) -> None:
    cond = n.inputs[0]
    assert cond is not None
    condition = planner.copy(planner.view(cond), "condition")  # the byte that threads look at lies in the arena
    targets = [planner.buffer(v) for v in n.outputs]
    sides: list[list[Step]] = []
    outer, copies = planner.steps, planner.copies
    for key in ("then_branch", "else_branch"):
        branch: Graph = n.attr(key)
        planner.steps, planner.copies = [], dict(copies)  # what one side copies does not exist on the other
        for inner, given in zip(branch.inputs, n.inputs[1:], strict=True):
            assert given is not None
            planner.views[inner] = planner.view(given)
        planner.body(branch)
        for v, target in zip(branch.outputs, targets, strict=True):
            source = planner.view(v)
            if source.shape != target.shape:
                raise UnsupportedError("the branches of an if give different shapes", loc=n.loc)
            planner.launch_elementwise([], {}, [source], target, "if", (n,))
        sides.append(planner.steps)
    planner.steps, planner.copies = outer, copies
    planner.views.update(zip(n.outputs, targets, strict=True))
    planner.steps.append(Branch(condition, *sides))


SPECIAL = {"concat": _concat, "pad": _pad, "if_": _if, "iota": _iota}
