"""Regions: what runs in which order, loops and branches with the memory they carry, and the program around them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...errors import ScheduleError, VerifyError
from ...ir.scheduled import core as s
from ...ir.tile import core as t
from ...ir.types import i64
from ...schedule.facts import Facts
from ...schedule.schedule import Schedule, check
from ...schedule.walk import in_order, parts_of, region_roots
from ...targets.description import TargetDescription
from ..pack import packed_strides
from .analysis import EFFECTS, analyse, has_effects
from .context import AxisEnv, Context
from .dots import chains, emit_chain, emit_dot, zero
from .nests import Nest, Piece, emit_nest, emit_scan

Emit = list[s.Stmt]


def lower(kernel: t.Kernel, schedule: Schedule, facts: Facts, target: TargetDescription) -> s.Program:
    """The scheduled program of a kernel. Raises ScheduleError where the schedule does not fit."""
    check(schedule, target)
    ctx = Context(kernel, analyse(kernel), schedule, facts, target)
    if len(schedule.dots) != len(ctx.analysis.dots):
        raise ScheduleError(f"the schedule plans {len(schedule.dots)} matrix products, kernel '{kernel.name}' has "
                            f"{len(ctx.analysis.dots)}")
    packed = _packed_tensors(ctx)
    for p in kernel.tensors:
        ctx.args[p.name] = _argument(ctx, p, packed.get(p.name))
    for chain in chains(ctx):
        ctx.chains[chain[-1]] = chain
        ctx.absorbed |= set(chain[:-1])
    body: Emit = [_clear(ctx, p) for p in kernel.outputs if p.role == "accumulate"]
    body += [_par(ctx, n) for n in kernel.effects]
    dims = tuple(name for name, _ in facts.sizes if name not in facts.static)
    strides = tuple((p.name, k) for p in kernel.tensors if p.name not in packed
                    for k, v in enumerate(facts.layout(p.name).strides)
                    if v is None and not facts.layout(p.name).dense)
    return s.Program(
        name=kernel.name,
        buffers=tuple(ctx.args[p.name] for p in kernel.tensors),
        outputs=tuple(p.name for p in kernel.outputs),
        dims=dims,
        strides=strides,
        scalars=tuple((p.name, p.dtype) for p in kernel.scalars),
        body=tuple(body),
    )


def _packed_tensors(ctx: Context) -> dict[str, tuple[int, int]]:
    """(columns of a panel, steps of a group) of the tensors that come packed."""
    out: dict[str, tuple[int, int]] = {}
    for d, plan in zip(ctx.analysis.dots, ctx.schedule.dots, strict=True):
        if plan.b == "packed":
            out[str(d.args[2].attr("tensor"))] = plan.cols, plan.group
    return out


def _argument(ctx: Context, p: t.TensorParam, panels: tuple[int, int] | None) -> s.Buffer:
    shape = [ctx.scalar(d) for d in p.dims]
    if panels is not None:
        sizes = [int(e.attr) for e in shape]
        packed, steps = packed_strides(sizes, *panels)
        return s.Buffer(p.name, p.dtype, "arg", packed, steps)
    layout = ctx.facts.layout(p.name)
    strides: list[s.IntLike] = []
    if layout.dense:
        step: s.Expr = s.const(1)
        for n in reversed(shape):
            strides.append(int(step.attr) if step.op == "const" else step)
            step = s.mul(n, step)
        strides.reverse()
    else:
        strides = [s.stride(p.name, k) if v is None else v for k, v in enumerate(layout.strides)]
    return s.Buffer(p.name, p.dtype, "arg", tuple(int(e.attr) if e.op == "const" else e for e in shape), tuple(strides))


def _clear(ctx: Context, p: t.TensorParam) -> s.Stmt:
    """An output that scatter adds into starts from zero."""
    vs = [s.fresh("z") for _ in p.dims]
    store: Emit = [s.Store(ctx.args[p.name], tuple(s.var(v) for v in vs), s.const(0, p.dtype))]
    for v, d in list(zip(vs, p.dims, strict=True))[:0:-1]:
        store = [s.For(v, s.const(0), ctx.scalar(d), tuple(store))]
    return s.ParFor(tuple(vs[:1]), tuple(ctx.scalar(d) for d in p.dims[:1]), tuple(store))


# ---------------------------------------------------------------------------------------------- grids and loops


def _tile_env(ctx: Context, axis: t.Axis, v: s.Expr, start: s.Expr | None = None,
              stop: s.Expr | None = None) -> AxisEnv:
    if axis.kind != "tile":
        return AxisEnv(v if start is None else s.add(start, v), s.const(1))
    size = ctx.tile_size(axis)
    extent = ctx.scalar(axis.extent) if stop is None else stop
    base = s.mul(v, size)
    if size == 1:
        return AxisEnv(base if start is None else s.add(start, base), s.const(1))
    if start is not None:
        base = s.add(start, base)
    elif extent.op == "const":
        n = int(extent.attr)
        if size >= n:
            return AxisEnv(s.const(0), s.const(n))
        if n % size == 0:
            return AxisEnv(base, s.const(size))
    return AxisEnv(base, s.imin(s.const(size), s.sub(extent, base)))


def _limits(ctx: Context, n: t.Node) -> tuple[s.Expr | None, s.Expr | None]:
    """First and last position of a loop where they are not the axis's own; positions never leave its extent."""
    start, stop = (ctx.scalar(x) if isinstance(x, t.Node) else None for x in (n.attr("start"), n.attr("stop")))
    if start is not None:
        start = s.imax(start, 0)
        if start.op == "const" and start.attr == 0:
            start = None
    return start, None if stop is None else s.imin(stop, ctx.scalar(n.attr("axis").extent))


def _trips(ctx: Context, axis: t.Axis, start: s.Expr | None = None, stop: s.Expr | None = None) -> s.Expr:
    extent = ctx.scalar(axis.extent) if stop is None else stop
    if start is not None:
        extent = s.sub(extent, start)
    return s.ceildiv(extent, ctx.tile_size(axis)) if axis.kind == "tile" else extent


def _par(ctx: Context, n: t.Node) -> s.Stmt:
    if n.op != "par":
        raise VerifyError(f"'{n.op}' cannot stand at the top level of a kernel", loc=n.loc)
    axes: tuple[t.Axis, ...] = n.attr("axes")
    vs = [s.fresh(a.name) for a in axes]
    extents = tuple(_trips(ctx, a) for a in axes)
    for a, v, trips in zip(axes, vs, extents, strict=True):
        one = trips.op == "const" and trips.attr == 1
        ctx.axes[a] = _tile_env(ctx, a, s.const(0) if one else s.var(v))
    placed = set(ctx.places)
    ctx.scope |= set(axes)
    body = Region(ctx).run(n.attr("effects"))
    ctx.scope -= set(axes)
    for x in set(ctx.places) - placed:  # scratch memory ends with the grid that it was made in
        del ctx.places[x]
    ctx.forget()
    if in_order(_effects(n)):
        for v, trips in reversed(list(zip(vs, extents, strict=True))):
            body = [s.For(v, s.const(0), trips, tuple(body))]
        return s.ParFor((), (), tuple(body))
    return s.ParFor(tuple(vs), extents, tuple(body))


def _effects(n: t.Node) -> Iterator[t.Node]:
    """Stores and scatters of a region, however deep."""
    for r in region_roots(n):
        if r.op in ("store", "scatter"):
            yield r
        elif has_effects(r):
            yield from _effects(r)


class Region:
    """The body of a grid, a loop or a branch: work in order, nests fused where they can be."""

    def __init__(self, ctx: Context, owned: Sequence[t.Node] = ()) -> None:
        self.ctx = ctx
        self.out: Emit = []
        self.nest: Nest | None = None
        self.owned: set[t.Node] = set(owned)  # values whose memory may be overwritten in here once nobody reads them

    def run(self, effects: Sequence[t.Node], yields: Sequence[tuple[t.Node, s.Buffer]] = ()) -> Emit:
        for n in self.collect([*effects, *(y for y, _ in yields)]):
            self.item(n)
        self.flush()
        self.write_yields(yields)
        return self.out

    # ------------------------------------------------------------------ order

    def collect(self, roots: Sequence[t.Node]) -> list[t.Node]:
        """What must be given memory or done in here, operands first: all that needs memory, is not placed yet and
        depends on nothing bound further in (so loop-invariant work moves out by itself), and this region's effects."""
        ctx, effects = self.ctx, set(roots)
        done: set[t.Node] = set()
        order: list[t.Node] = []
        stack: list[tuple[t.Node, bool]] = [(r, False) for r in reversed(roots)]
        while stack:
            n, expanded = stack.pop()
            if n in done or n in ctx.places:
                continue
            if not expanded:
                stack.append((n, True))
                for c in reversed(parts_of(n)):
                    stack.append((c, False))
                continue
            done.add(n)
            here = n.free <= ctx.scope
            effect = n.op in EFFECTS or (n.op in ("loop", "if") and has_effects(n))
            if here and n not in ctx.absorbed and (n in effects if effect else ctx.analysis.needs_memory(n)):
                order.append(n)
        return order

    def item(self, n: t.Node) -> None:
        ctx = self.ctx
        if n in ctx.places:
            return
        if n.op in ("fold", "argfold", "store", "scatter") or n in ctx.analysis.kept:
            self.piece(Piece(n))
            return
        self.flush()
        match n.op:
            case "dot":
                self.dot(n)
            case "scan":
                self.give(n, self.allocate(n))
                self.out += emit_scan(ctx, n)
            case "loop":
                self.loop(n)
            case "if":
                self.branch(n)
            case _:
                raise VerifyError(f"no rule to lower '{n.op}'", loc=n.loc)

    def allocate(self, n: t.Node) -> s.Buffer:
        pads = sorted({p.cols for p in self.ctx.schedule.dots}) if n.shape else ()
        buffer = self.ctx.allocate(n.op if n.op != "map" else str(n.attr("fn")), n, pads)
        self.out.append(s.Alloc(buffer))
        return buffer

    def give(self, n: t.Node, buffer: s.Buffer) -> None:
        self.ctx.place(n, buffer)
        self.ctx.forget()
        self.owned.add(n)

    def piece(self, p: Piece) -> None:
        domain = p.source.shape
        nest = self.nest
        if nest is None or not nest.accepts(self.ctx, p):
            self.flush()
            nest = self.nest = Nest(domain)
        if p.node.op not in EFFECTS and p.into is None:
            self.give(p.node, self.allocate(p.node))
        nest.pieces.append(p)

    def flush(self) -> None:
        if self.nest is None:
            return
        nest, self.nest = self.nest, None
        made = {p.node for p in nest.pieces}
        outside = {n for n in made if n in self.ctx.analysis.kept and self._read_elsewhere(n, made)}
        self.out += emit_nest(self.ctx, nest, outside)

    def _read_elsewhere(self, n: t.Node, made: set[t.Node]) -> bool:
        """Whether anything but the nest's own pieces reads a kept value."""
        stack, seen = list(self.ctx.analysis.users.get(n, ())), set()
        while stack:
            u = stack.pop()
            if u in made or u in seen:
                continue
            seen.add(u)
            if self.ctx.analysis.needs_memory(u) or u.op in EFFECTS or u.op in ("loop", "if"):
                return True
            stack.extend(self.ctx.analysis.users.get(u, ()))
        return False

    # ------------------------------------------------------------------ memory that is updated in place

    def take_over(self, value: t.Node, user: t.Node) -> tuple[s.Buffer, bool] | None:
        """Memory that `user` may start from: (buffer, whether `value` must still be computed into it). Possible when
        `value` is a stored value nobody else reads, or an elementwise expression of one that nobody else reads."""
        ctx = self.ctx
        chain, n = value, value
        while True:
            if ctx.analysis.users.get(chain, []) != [user if chain is value else n]:
                return None
            if chain in ctx.places:
                break
            if chain.op not in ("map", "cast") or chain.type is None:
                return None
            inner = [a for a in chain.args if a.shape == value.shape and self._leads_to_owned(a)]
            if len(inner) != 1:
                return None
            n, chain = chain, inner[0]
        buffer = ctx.places[chain]
        if chain not in self.owned or chain.shape != value.shape or buffer.dtype is not value.dtype:
            return None
        return buffer, chain is not value

    def _leads_to_owned(self, n: t.Node) -> bool:
        while n not in self.ctx.places:
            if n.op not in ("map", "cast"):
                return False
            inner = [a for a in n.args if a.shape == n.shape]
            if len(inner) != 1:
                return False
            n = inner[0]
        return n in self.owned

    def store_into(self, value: t.Node, buffer: s.Buffer) -> None:
        self.flush()
        nest = Nest(value.shape, [Piece(value, buffer)])
        self.out += emit_nest(self.ctx, nest, set())

    def start_from(self, value: t.Node, user: t.Node, holder: t.Node) -> s.Buffer:
        """Memory that holds `value` and may be overwritten."""
        found = self.take_over(value, user)
        if found is not None:
            buffer, compute = found
            if compute:
                self.store_into(value, buffer)
            return buffer
        buffer = self.allocate(holder)
        self.store_into(value, buffer)
        return buffer

    # ------------------------------------------------------------------ structured nodes

    def dot(self, n: t.Node) -> None:
        plan = self.ctx.schedule.dots[self.ctx.analysis.dots.index(n)]
        chain = self.ctx.chains.get(n, [n])
        acc = chain[0].args[0]
        init = is_zero(acc)
        buffer = self.allocate(n) if init else self.start_from(acc, chain[0], n)
        if len(chain) > 1:
            self.out += emit_chain(self.ctx, chain, plan, buffer, init)
        else:
            self.out += emit_dot(self.ctx, n, plan, buffer, init)
        self.give(n, buffer)

    def loop(self, n: t.Node) -> None:
        ctx = self.ctx
        axis: t.Axis = n.attr("axis")
        params: tuple[t.Node, ...] = n.attr("params")
        results = {u.attr("index"): u for u in ctx.analysis.users.get(n, ()) if u.op == "result"}
        buffers: list[s.Buffer] = []
        for init, param in zip(n.args, params, strict=True):
            if is_zero(init) and len(param.shape) > 1:
                buffer = self.allocate(param)
                self.out += zero(ctx, param, buffer)
            else:
                buffer = self.start_from(init, n, param)
            buffers.append(buffer)
            ctx.place(param, buffer)
        ctx.forget()
        start, stop = (self.named(x) for x in _limits(ctx, n))
        trips = _trips(ctx, axis, start, stop)
        once = trips.op == "const" and trips.attr == 1
        v = s.fresh(axis.name)
        ctx.axes[axis] = _tile_env(ctx, axis, s.const(0) if once else s.var(v), start, stop)
        inner: set[t.Axis | t.Node] = {axis, *params}
        ctx.scope |= inner
        body = Region(ctx, params).run(n.attr("effects"), tuple(zip(n.attr("yields"), buffers, strict=True)))
        ctx.scope -= inner
        self.out += body if once else [s.For(v, s.const(0), trips, tuple(body))]
        for k, buffer in enumerate(buffers):
            if k in results:
                self.give(results[k], buffer)
        ctx.place(n, buffers[0] if buffers else s.dense("none", i64, "stack", (1,)))

    def named(self, x: s.Expr | None) -> s.Expr | None:
        """A limit of a loop under a name, where it would be read from memory again and again."""
        if x is None or x.op == "const":
            return x
        v = s.fresh("limit")
        self.out.append(s.Let(v, x))
        return s.var(v)

    def write_yields(self, yields: Sequence[tuple[t.Node, s.Buffer]]) -> None:
        """The next trip's carried values, into their memory; a value still read by another one is written later."""
        ctx = self.ctx
        left = [(y, b) for y, b in yields if ctx.places.get(y) != b]
        while left:
            ready = next((k for k, (y, b) in enumerate(left)
                          if not any(b in self._reads(o) for j, (o, _) in enumerate(left) if j != k)
                          and self._same_place(y, b)), None)
            if ready is not None:
                y, b = left.pop(ready)
                self.store_into(y, b)
                continue
            y, b = left.pop(0)  # a cycle: by way of a copy
            copy = self.allocate(y)
            self.store_into(y, copy)
            self.give(y, copy)
            left.append((y, b))

    def _reads(self, n: t.Node) -> set[s.Buffer]:
        stack, seen, found = [n], set(), set()
        while stack:
            x = stack.pop()
            if x in seen:
                continue
            seen.add(x)
            if x in self.ctx.places:
                found.add(self.ctx.places[x])
                continue
            stack.extend(x.args)
        return found

    def _same_place(self, y: t.Node, b: s.Buffer) -> bool:
        """Whether each element of `y` reads `b` at its own place only, so that it may be overwritten as it is read."""
        idx = tuple(s.var(s.fresh("e")) for _ in y.shape)
        own = b.load(*(idx or (s.const(0),)))
        stack, seen = [self.ctx.elem(y, idx)], set()
        while stack:
            e = stack.pop()
            if e in seen:
                continue
            seen.add(e)
            if e.op in ("load", "load_if") and e.attr == b and e is not own:
                return False
            stack.extend(e.args)
        return True

    def branch(self, n: t.Node) -> None:
        ctx = self.ctx
        results = {u.attr("index"): u for u in ctx.analysis.users.get(n, ()) if u.op == "result"}
        buffers = {k: self.allocate(r) for k, r in results.items()}
        sides: list[tuple[s.Stmt, ...]] = []
        for side in ("then", "else"):
            placed = set(ctx.places)
            yields = n.attr(f"{side}_yields")
            body = Region(ctx).run(n.attr(f"{side}_effects"), [(yields[k], b) for k, b in buffers.items()])
            sides.append(tuple(body))
            for x in set(ctx.places) - placed:  # what one side computed does not exist on the other
                del ctx.places[x]
            ctx.forget()
        self.out.append(s.If(ctx.scalar(n.args[0]), *sides))
        for k, b in buffers.items():
            self.give(results[k], b)
        ctx.place(n, s.dense("none", i64, "stack", (1,)))


def is_zero(n: t.Node) -> bool:
    while n.op in ("broadcast", "cast"):
        n = n.args[0]
    return n.op == "const" and n.attr("value") == 0
