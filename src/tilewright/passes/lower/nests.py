"""Loop nests: elementwise values, stores, folds, argfolds and scans, fused where they walk the same domain.

A *nest* visits every element of a domain (a tuple of extents) once. Neighbouring pieces of work with one domain share
a nest unless one needs another's finished fold. Inside, values the nest itself computes are expressions, so a kept
value that only this nest reads never reaches memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ...ir.scheduled import core as s
from ...ir.tile import core as t
from ...ir.types import DType, f32, i64
from . import affine
from .analysis import EFFECTS
from .context import Context, Index


@dataclass(slots=True)
class Piece:
    """One thing a nest produces: the value of `node` into its place, a fold of its operand, or a store of it."""

    node: t.Node
    into: s.Buffer | None = None  # overrides the place of an elementwise value

    @property
    def source(self) -> t.Node:
        return self.node.args[-1] if self.node.op in EFFECTS else \
            self.node.args[0] if self.node.op in ("fold", "argfold") else self.node

    @property
    def reduce(self) -> int | None:
        return int(self.node.attr("axis")) if self.node.op in ("fold", "argfold") else None


@dataclass(slots=True)
class Nest:
    domain: t.Shape
    pieces: list[Piece] = field(default_factory=list)

    @property
    def reduce(self) -> int | None:
        return next((p.reduce for p in self.pieces if p.reduce is not None), None)

    def accepts(self, ctx: Context, piece: Piece) -> bool:
        if piece.source.shape != self.domain:
            return False
        if piece.reduce is not None and self.reduce is not None and piece.reduce != self.reduce:
            return False
        made = {p.node for p in self.pieces}
        folds = {n for n in made if n.op in ("fold", "argfold")}
        overwritten = [p.into for p in self.pieces if p.into is not None]
        needed = placed_operands(ctx, piece.source, made)
        if any(ctx.places.get(n) in overwritten for n in needed) or piece.into is not None:
            return False
        return not (needed & folds)


def placed_operands(ctx: Context, root: t.Node, through: set[t.Node] | None = None) -> set[t.Node]:
    """The values with memory that evaluating `root` reads (not looking past them, except past those in `through`,
    which are reported as well)."""
    seen: set[t.Node] = set()
    found: set[t.Node] = set()
    stack = [root]
    first = True
    while stack:
        n = stack.pop()
        if n in seen:
            continue
        seen.add(n)
        if n in ctx.places and not first:
            found.add(n)
            if not (through and n in through and n.op not in ("fold", "argfold")):
                continue
        first = False
        stack.extend(n.args)
    return found


# ---------------------------------------------------------------------------------------------- emission


@dataclass(slots=True)
class _Axis:
    var: s.Var
    extent: s.Expr
    cap: s.IntLike

    @property
    def trivial(self) -> bool:
        return self.extent.op == "const" and self.extent.attr == 1

    @property
    def index(self) -> s.Expr:
        return s.const(0) if self.trivial else s.var(self.var)


def emit_nest(ctx: Context, nest: Nest, consumers_outside: set[t.Node]) -> list[s.Stmt]:
    """Statements of a nest. `consumers_outside`: kept values that something else reads too."""
    names = "abcdefgh"
    axes = [_Axis(s.fresh(names[k % 8]), ctx.extent(e), ctx.cap(e)) for k, e in enumerate(nest.domain)]
    idx: Index = tuple(a.index for a in axes)
    own = {p.node for p in nest.pieces if p.node in ctx.analysis.kept and p.node in ctx.places and p.into is None}
    ctx.inline |= own
    ctx.forget()
    red = nest.reduce
    vec = choose_vector_axis(ctx, nest, axes, idx)
    body: list[s.Stmt] = []
    accs: list[tuple[s.Acc, Piece]] = []
    for p in nest.pieces:
        if p.reduce is not None:
            acc, update = _accumulate(ctx, p, idx)
            accs.append((acc, p))
            body.append(update)
        elif p.node.op == "store":
            body.append(_store(ctx, p.node, idx))
        elif p.node.op == "scatter":
            body.append(_scatter(ctx, p.node, idx))
        elif p.node not in own or p.node in consumers_outside:
            target = p.into or ctx.places[p.node]
            body.append(s.Store(target, idx or (s.const(0),), ctx.elem(p.node, idx)))
    ctx.inline -= own
    ctx.forget()
    return _wrap(ctx, nest, axes, red, vec, body, accs)


def _wrap(ctx: Context, nest: Nest, axes: list[_Axis], red: int | None, vec: int | None, body: list[s.Stmt],
          accs: list[tuple[s.Acc, Piece]]) -> list[s.Stmt]:
    """Loops around the body: other axes outside, then the vector axis and the folded axis."""
    width = lanes(ctx, nest)
    results: list[s.Stmt] = []
    for acc, p in accs:
        place = ctx.places[p.node]
        where = tuple(a.index for k, a in enumerate(axes) if k != red) or (s.const(0),)
        results.append(s.Store(place, where, converted(s.var(acc.vars[-1]), place.dtype)))
    declare: list[s.Stmt] = [acc for acc, _ in accs]
    stmts = body
    if red is None or red == vec:
        if vec is not None:
            stmts = _loop(axes[vec], stmts, "vector", width, ctx.schedule.unroll if accs else 1)
        elif red is not None:
            stmts = _loop(axes[red], stmts)
        stmts = [*declare, *stmts, *results]
    else:
        stmts = [*declare, *_loop(axes[red], stmts), *results]
        if vec is not None:
            several = 4 if not _is_small(axes[vec], 4 * width) else 1
            stmts = _loop(axes[vec], stmts, "vector", width * several)
    for k in reversed(range(len(axes))):
        if k not in (red, vec):
            stmts = _loop(axes[k], stmts)
    return stmts


def _is_small(a: _Axis, n: int) -> bool:
    return isinstance(a.cap, int) and a.cap < n


def _loop(a: _Axis, body: list[s.Stmt], kind: str = "serial", width: int = 1, unroll: int = 1) -> list[s.Stmt]:
    if a.trivial:
        return body
    return [s.For(a.var, s.const(0), a.extent, tuple(body), kind, 1, width, unroll)]


def lanes(ctx: Context, nest: Nest) -> int:
    """Elements per vector: by the widest element type that the nest computes with (addresses aside)."""
    bits = 8
    stack = [p.source for p in nest.pieces] + [p.node for p in nest.pieces if p.node.op == "argfold"]
    seen: set[t.Node] = set()
    while stack:
        n = stack.pop()
        if n in seen:
            continue
        seen.add(n)
        if n.type is not None and n.dtype is not i64:
            narrow = n.dtype.bits
            if n.dtype.is_float and n.op not in ("load", "cast", "broadcast"):
                narrow = max(narrow, 32)  # 16-bit floats compute in f32
            bits = max(bits, narrow)
        if n.op not in ("load",) and not ctx.is_placed(n):
            stack.extend(n.args)
    if any(p.source.type is not None and p.source.dtype is i64 for p in nest.pieces):
        bits = max(bits, 64)
    return max(1, ctx.schedule.vector_bits // bits)


def choose_vector_axis(ctx: Context, nest: Nest, axes: list[_Axis], idx: Index) -> int | None:
    """The axis along which most memory is touched with unit stride; stores count double. None: nothing to vectorise."""
    score = [0.0] * len(axes)
    for k, a in enumerate(axes):
        if a.trivial or (isinstance(a.cap, int) and a.cap < 2):
            score[k] = -1e9
            continue
        score[k] += 0.25 * k / len(axes)  # later axes win ties
        if isinstance(a.cap, int) and a.cap < 4:
            score[k] -= 4
        for p in nest.pieces:
            if p.node.op == "store":
                tensor = ctx.kernel.tensor(p.node.attr("tensor"))
                coords = ctx.coordinates(p.node.args[:-1], idx)
                score[k] += 2 * _stride_score(affine.flat(ctx.args[tensor.name], coords), a.var)
            elif p.reduce is None and p.node.op != "scatter":
                score[k] += 2.0 if k == len(axes) - 1 else 0.0
            for load in _loads(ctx.elem(p.source, idx)):
                if any(affine.depends(i, a.var) for i in load.args):
                    score[k] += _stride_score(affine.flat(load.attr, _indices(load)), a.var)
    if not axes:
        return None
    best = max(range(len(axes)), key=lambda k: score[k])
    if score[best] < -1e8 or any(p.node.op == "scatter" for p in nest.pieces):
        return None
    return best


def _indices(load: s.Expr) -> Index:
    return load.args[2:] if load.op == "load_if" else load.args


def _loads(e: s.Expr) -> list[s.Expr]:
    found: list[s.Expr] = []
    seen: set[s.Expr] = set()
    stack = [e]
    while stack:
        x = stack.pop()
        if x in seen:
            continue
        seen.add(x)
        if x.op in ("load", "load_if"):
            found.append(x)
        stack.extend(x.args)
    return found


def _stride_score(offset: s.Expr, v: s.Var) -> float:
    c = affine.coefficient(offset, v)
    if c is None:
        return -1.0
    if c.op == "const":
        return 1.0 if c.attr == 1 else 0.5 if c.attr == 0 else -0.5
    return -0.5


# ---------------------------------------------------------------------------------------------- pieces


def identity(monoid: str, d: DType) -> int | float | bool:
    match monoid:
        case "sum" | "any":
            return False if d.is_bool else 0
        case "prod" | "all":
            return True if d.is_bool else 1
        case "max" | "argmax":
            if d.is_float:
                return float("-inf")
            return False if d.is_bool else (0 if d.kind == "u" else -(1 << (d.bits - 1)))
        case _:
            if d.is_float:
                return float("inf")
            return True if d.is_bool else ((1 << d.bits) - 1 if d.kind == "u" else (1 << (d.bits - 1)) - 1)


def running_type(d: DType, monoid: str) -> DType:
    """What a fold keeps its value in: sums and products of 16-bit floats are rounded once, at the end."""
    return f32 if d.is_float and d.bits == 16 and monoid in ("sum", "prod") else d


def converted(e: s.Expr, d: DType) -> s.Expr:
    return e if e.dtype is d else s.expr("cast", d, e)


def _accumulate(ctx: Context, p: Piece, idx: Index) -> tuple[s.Acc, s.Update]:
    n = p.node
    value = ctx.elem(n.args[0], idx)
    if n.op == "fold":
        monoid = n.attr("monoid")
        wide = running_type(n.dtype, monoid)
        v = s.fresh("acc", wide)
        start = s.const(identity(monoid, wide), wide)
        return s.Acc((v,), (start,), monoid), s.Update((v,), (converted(value, wide),))
    kind = n.attr("kind")
    best, where = s.fresh("best", value.dtype), s.fresh("where", i64)
    init = (s.const(identity(kind, value.dtype), value.dtype), s.const(0))
    return (s.Acc((best, where), init, kind, bool(n.attr("last"))),
            s.Update((best, where), (value, idx[int(n.attr("axis"))])))


def _store(ctx: Context, n: t.Node, idx: Index) -> s.Store:
    tensor = ctx.kernel.tensor(n.attr("tensor"))
    coords, mask = _target(ctx, tensor, n.args[:-1], idx)
    return s.Store(ctx.args[tensor.name], coords, ctx.elem(n.args[-1], idx), mask)


def _scatter(ctx: Context, n: t.Node, idx: Index) -> s.Scatter:
    tensor = ctx.kernel.tensor(n.attr("tensor"))
    coords, mask = _target(ctx, tensor, n.args[:-1], idx)
    return s.Scatter(ctx.args[tensor.name], coords, ctx.elem(n.args[-1], idx), n.attr("monoid"), mask)


def _target(ctx: Context, tensor: t.TensorParam, indices: Sequence[t.Node], idx: Index) -> tuple[Index, s.Expr | None]:
    coords = ctx.coordinates(tuple(indices), idx)
    return coords, ctx.guard(tensor, tuple(indices), coords)


def emit_scan(ctx: Context, n: t.Node) -> list[s.Stmt]:
    """Running sums: the scanned axis is walked in order, the others around it."""
    x = n.args[0]
    axis = int(n.attr("axis"))
    axes = [_Axis(s.fresh("s"), ctx.extent(e), ctx.cap(e)) for e in x.shape]
    a = axes[axis]
    position = s.sub(s.sub(a.extent, s.const(1)), s.var(a.var)) if n.attr("reverse") else s.var(a.var)
    idx = tuple(position if k == axis else ax.index for k, ax in enumerate(axes))
    monoid = n.attr("monoid")
    wide = running_type(n.dtype, monoid)
    acc = s.fresh("run", wide)
    update = s.Update((acc,), (converted(ctx.elem(x, idx), wide),))
    store = s.Store(ctx.places[n], idx, converted(s.var(acc), n.dtype))
    inner: list[s.Stmt] = [
        s.Acc((acc,), (s.const(identity(monoid, wide), wide),), monoid),
        s.For(a.var, s.const(0), a.extent, (store, update) if n.attr("exclusive") else (update, store)),
    ]
    last = len(axes) - 1
    for k in reversed(range(len(axes))):
        if k == axis:
            continue
        together = k == last and not _is_small(axes[k], 4)
        width = max(1, ctx.schedule.vector_bits // max(32, n.dtype.bits))
        inner = _loop(axes[k], inner, "vector" if together else "serial", width if together else 1)
    return inner
