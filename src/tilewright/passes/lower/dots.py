"""Matrix products: operands read where they lie or staged into scratch, then register blocks over rows and panels.

For every chunk of the inner dimension: stage b into panels (columns of the register block side by side), stage a as
rows, and run `Micro` for each panel and row block. Rows that do not fill a block get blocks of their own size, so
nothing outside the valid extent of `a` is read; the accumulators' memory is padded to whole panels instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...errors import ScheduleError
from ...ir.scheduled import core as s
from ...ir.tile import core as t
from ...ir.types import DType, bool_
from ...schedule.schedule import DotPlan
from . import affine
from .context import Context, Index
from .grouped import Grouping, correction, each_panel, fill_up, grouping, is_multiple, stage_words, turn, whole

Emit = list[s.Stmt]
Block = Callable[[s.Expr, int, s.Expr, "s.Expr | None"], s.Micro]
_CHAIN_DEPTH = 512


@dataclass(frozen=True, slots=True)
class Matrix:
    """Element (r, c) at flat offset `offset + r * row + c * col`."""

    buffer: s.Buffer
    offset: s.Expr
    row: s.Expr
    col: s.Expr

    def at(self, r: s.Expr, c: s.Expr) -> s.Operand:
        offset = s.add(s.add(self.offset, s.mul(r, self.row)), s.mul(c, self.col))
        return s.Operand(self.buffer, offset, _int(self.row), _int(self.col))


def _int(e: s.Expr) -> s.IntLike:
    return int(e.attr) if e.op == "const" else e


def matrix(ctx: Context, node: t.Node, lead: Index, acc_bits: int) -> Matrix | None:
    """The last two axes of a value as memory, when every element of it is one plain load with affine addresses."""
    r, c = s.fresh("r"), s.fresh("c")
    e = ctx.elem(node, (*lead, s.var(r), s.var(c)))
    while e.op == "cast" and e.dtype.bits == acc_bits and e.args[0].dtype.kind == e.dtype.kind \
            and e.args[0].dtype.bits <= acc_bits:
        e = e.args[0]
    if e.op != "load":
        return None
    offset = affine.flat(e.attr, e.args)
    row, col = affine.coefficient(offset, r), affine.coefficient(offset, c)
    if row is None or col is None or affine.depends(row, c) or affine.depends(col, r):
        return None
    zero = {r: s.const(0), c: s.const(0)}
    return Matrix(e.attr, affine.substitute(offset, zero), row, col)


def emit_dot(ctx: Context, n: t.Node, plan: DotPlan, dest: s.Buffer, init: bool) -> Emit:
    """acc += a @ b into `dest`; `init`: the accumulator starts from zero and has not been written."""
    acc, a, b = n.args
    depth, depth_cap = ctx.extent(a.shape[-1]), ctx.cap(a.shape[-1])
    at_once = isinstance(depth_cap, int) and depth_cap <= plan.depth
    out: Emit = []
    if init and not at_once:
        out += zero(ctx, n, dest)
        init = False
    if at_once:
        assert isinstance(depth_cap, int)
        return out + _chunk(ctx, n, plan, dest, init, s.const(0), depth, depth_cap)
    chunk = s.fresh("kc")
    start = s.mul(s.var(chunk), plan.depth)
    size = s.imin(s.const(plan.depth), s.sub(depth, start))
    body = _chunk(ctx, n, plan, dest, init, start, size, plan.depth)
    out.append(s.For(chunk, s.const(0), s.ceildiv(depth, plan.depth), tuple(body)))
    return out


def emit_chain(ctx: Context, dots: Sequence[t.Node], plan: DotPlan, dest: s.Buffer, init: bool) -> Emit:
    """Products that add into each other and whose packed operands follow each other in memory: rows of all of them are
    staged side by side, and each group of them is one longer product, its sums in registers throughout."""
    out: Emit = []
    for group in chain_groups(ctx, dots, plan):
        depths = [int(ctx.extent(d.args[1].shape[-1]).attr) for d in group]
        if len(group) == 1:
            out += emit_dot(ctx, group[0], plan, dest, init)
        else:
            n = group[0]
            panels = _packed(ctx, n.args[2], plan, s.const(0))
            segments = list(zip([d.args[1] for d in group], depths, strict=True))
            how = grouping(ctx, n, plan)
            rows_of, stage = _stage_rows(ctx, how, segments, n.args[1].shape[:-1], ())
            height = _product(ctx, n.shape[:-1])
            out += stage + _sums(ctx, n, plan, how, dest, s.const(0), rows_of, panels, s.const(sum(depths)),
                                 sum(depths), init, height, True)
        init = False
    return out


def chain_groups(ctx: Context, dots: Sequence[t.Node], plan: DotPlan) -> list[list[t.Node]]:
    """Stretches of a chain that are neighbours in the packed operand, in equal parts about as deep as the plan's."""
    runs: list[list[t.Node]] = [[dots[0]]]
    for before, d in zip(dots, dots[1:], strict=False):
        depth = int(ctx.extent(before.args[1].shape[-1]).attr)
        place = packed_place(ctx, before.args[2], s.const(0), plan.group)
        follows = packed_place(ctx, d.args[2], s.const(0), plan.group) == (s.add(place[0], depth), place[1])
        if follows:
            runs[-1].append(d)
        else:
            runs.append([d])
    out: list[list[t.Node]] = []
    for run in runs:
        each = max(1, int(ctx.extent(run[0].args[1].shape[-1]).attr))
        parts = max(1, -(-len(run) * each // max(plan.depth, _CHAIN_DEPTH)))
        size = -(-len(run) // parts)
        out += [run[k:k + size] for k in range(0, len(run), size)]
    return out


def chains(ctx: Context) -> list[list[t.Node]]:
    """The chains of a kernel: products of packed operands, each the only user of the one before, of known depth, whose
    row axes are staged as one."""
    plans = dict(zip(ctx.analysis.dots, ctx.schedule.dots, strict=True))
    following: dict[t.Node, t.Node] = {}
    for d in ctx.analysis.dots:
        before = d.args[0]
        if before.op == "dot" and ctx.analysis.users[before] == [d] and plans[before] == plans[d]:
            following[before] = d
    out: list[list[t.Node]] = []
    for d in ctx.analysis.dots:
        if d in following and d not in following.values():
            chain = [d]
            while chain[-1] in following:
                chain.append(following[chain[-1]])
            if all(_chainable(ctx, x, plans[x]) for x in chain):
                out.append(chain)
    return out


def _chainable(ctx: Context, d: t.Node, plan: DotPlan) -> bool:
    k = d.args[1].shape[-1]
    known = isinstance(k, t.Static) or (isinstance(k, t.Full) and ctx.scalar(k.size).op == "const")
    return plan.b == "packed" and d.args[2].op == "load" and known and len(d.shape) > 1


def zero(ctx: Context, n: t.Node, dest: s.Buffer) -> Emit:
    """Fills the valid part of an accumulator with zeros."""
    axes = [(s.fresh("z"), ctx.extent(e)) for e in n.shape]
    stmts: Emit = [s.Store(dest, tuple(s.var(v) for v, _ in axes) or (s.const(0),), s.const(0, dest.dtype))]
    for k, (v, extent) in reversed(list(enumerate(axes))):
        last = k == len(axes) - 1
        stmts = [s.For(v, s.const(0), extent, tuple(stmts), "vector" if last else "serial", 1,
                       _lanes(ctx, dest.dtype.bits) if last else 1)]
    return stmts


def _lanes(ctx: Context, bits: int) -> int:
    return max(1, ctx.schedule.vector_bits // bits)


def _chunk(ctx: Context, n: t.Node, plan: DotPlan, dest: s.Buffer, init: bool, k0: s.Expr, depth: s.Expr,
           depth_cap: int) -> Emit:
    _, a, b = n.args
    how = grouping(ctx, n, plan)
    panels, padded, out = _panels(ctx, n, b, plan, k0, depth, depth_cap)
    merged = _merges(ctx, n)
    lead_axes = [] if merged else [(s.fresh("o"), ctx.extent(e)) for e in n.shape[:-2]]
    lead = tuple(s.var(v) for v, _ in lead_axes)
    if merged:
        rows_of, body = _stage_rows(ctx, how, [(a, depth_cap)], a.shape[:-1], (), k0, depth)
        height = _product(ctx, n.shape[:-1])
    else:
        rows_of, body = _rows(ctx, n, how, a, plan, lead, k0, depth, depth_cap)
        height = ctx.extent(n.shape[-2]) if len(n.shape) > 1 else s.const(1)
    first: s.Expr = s.const(0)
    for at, step in zip(lead, dest.strides, strict=False):
        first = s.add(first, s.mul(at, step))
    body = body + _sums(ctx, n, plan, how, dest, first, rows_of, panels, whole(depth, how.size), depth_cap, init,
                        height, padded)
    for v, extent in reversed(lead_axes):
        body = [s.For(v, s.const(0), extent, tuple(body))]
    return out + body


def _product(ctx: Context, shape: t.Shape) -> s.Expr:
    total: s.Expr = s.const(1)
    for e in shape:
        total = s.mul(total, ctx.extent(e))
    return total


def _sums(ctx: Context, n: t.Node, plan: DotPlan, how: Grouping, dest: s.Buffer, first: s.Expr,
          rows_of: Callable[[s.Expr], s.Operand], panels: Callable[[s.Expr], s.Operand], depth: s.Expr, depth_cap: int,
          init: bool, height: s.Expr, padded: bool) -> Emit:
    """The register blocks of staged operands, over all of the result."""
    width = ctx.extent(n.shape[-1])
    if not how.turned:
        block = _block_of(ctx, plan, dest, first, rows_of, panels, depth, init, None)
        return _blocks(plan, height, width, padded, block)
    lanes = min(_lanes(ctx, dest.dtype.bits), plan.cols)
    once, each, bias = correction(plan, dest.dtype, how.a, panels, depth, depth_cap, lanes)
    block = _block_of(ctx, plan, dest, first, rows_of, panels, depth, init, bias)
    return once + _blocks(plan, height, width, padded, block, each)


def _block_of(ctx: Context, plan: DotPlan, dest: s.Buffer, first: s.Expr, rows_of: Callable[[s.Expr], s.Operand],
              panels: Callable[[s.Expr], s.Operand], depth: s.Expr, init: bool, bias: s.Operand | None) -> Block:
    """What makes the register block at a row and a panel; `first` is where the accumulators begin."""
    pitch = dest.strides[-2] if len(dest.strides) > 1 else 0
    lanes = min(_lanes(ctx, dest.dtype.bits), plan.cols)

    def block(r0: s.Expr, rows: int, panel: s.Expr, valid: s.Expr | None) -> s.Micro:
        offset = s.add(first, s.add(s.mul(r0, pitch), s.mul(panel, plan.cols)))
        target = s.Operand(dest, offset, pitch)
        return s.Micro(target, rows_of(r0), panels(panel), depth, rows, plan.cols, lanes, init, valid, plan.prefetch,
                       plan.group, bias)

    return block


def _merges(ctx: Context, n: t.Node) -> bool:
    """Whether several row axes can be walked as one: staged side by side, with the inner ones always full."""
    if len(n.shape) < 3:
        return False
    for e in n.shape[1:-1]:
        extent = ctx.extent(e)
        if extent.op != "const" or int(extent.attr) != ctx.cap(e):
            return False
    return isinstance(ctx.cap(n.shape[0]), int)


def _blocks(plan: DotPlan, height: s.Expr, width: s.Expr, padded: bool, block: Block,
            each: Callable[[s.Expr], Emit] | None = None) -> Emit:
    """Panels outside, row blocks inside (the panel of b stays in the nearest cache). `each`: runs first for a panel."""
    panel = s.fresh("panel")
    if padded:
        count = s.ceildiv(width, plan.cols)
        before = [] if each is None else each(s.var(panel))
        return [s.For(panel, s.const(0), count, (*before, *_row_blocks(plan, height, s.var(panel), None, block)))]
    full = s.floordiv(width, plan.cols)
    out: Emit = []
    if not (full.op == "const" and full.attr == 0):
        out.append(s.For(panel, s.const(0), full, tuple(_row_blocks(plan, height, s.var(panel), None, block))))
    left = s.mod(width, plan.cols)
    if left.op == "const":
        if left.attr:
            out += _row_blocks(plan, height, full, left, block)
        return out
    some = s.expr("gt", bool_, left, s.const(0))
    return [*out, s.If(some, tuple(_row_blocks(plan, height, full, left, block)))]


def _row_blocks(plan: DotPlan, height: s.Expr, panel: s.Expr, valid: s.Expr | None, block: Block) -> Emit:
    full = s.floordiv(height, plan.rows)
    out: Emit = []
    if not (full.op == "const" and full.attr == 0):
        i = s.fresh("rows")
        out.append(s.For(i, s.const(0), full, (block(s.mul(s.var(i), plan.rows), plan.rows, panel, valid),)))
    left = s.mod(height, plan.rows)
    start = s.mul(full, plan.rows)
    if left.op == "const":
        if left.attr:
            out.append(block(start, int(left.attr), panel, valid))
        return out
    # two small blocks, each in a loop, cover what is left: more sizes would be faster there, but cost as much code as
    # the whole of the block that does the work
    for size in (4, 1) if plan.rows > 4 else (1,):
        i = s.fresh("rows")
        count = s.floordiv(left, size)
        out.append(s.For(i, s.const(0), count, (block(s.add(start, s.mul(s.var(i), size)), size, panel, valid),)))
        start, left = s.add(start, s.mul(count, size)), s.mod(left, size)
    return out


# ---------------------------------------------------------------------------------------------- operands


def _rows(ctx: Context, n: t.Node, how: Grouping, a: t.Node, plan: DotPlan, lead: Index, k0: s.Expr, depth: s.Expr,
          depth_cap: int) -> tuple[Callable[[s.Expr], s.Operand], Emit]:
    """Operand a: (row -> its place), and what must run first."""
    flat_row = len(a.shape) == 1  # a vector times a matrix: one row
    node_lead = () if flat_row else lead
    found = None if flat_row else matrix(ctx, a, node_lead, n.dtype.bits)
    if flat_row:
        found = _vector(ctx, a, n.dtype.bits)
    if found is not None and (plan.a == "direct" or found.buffer.space != "arg") and _readable(found, how, depth):
        direct = found
        return (lambda r0: direct.at(r0, k0)), []
    return _stage_rows(ctx, how, [(a, depth_cap)], a.shape[-2:-1], node_lead, k0, depth)


def _readable(found: Matrix, how: Grouping, depth: s.Expr) -> bool:
    """Whether register blocks can take operand a from where it lies: in whole groups of neighbours."""
    if how.size == 1:
        return True
    neighbours = found.col.op == "const" and found.col.attr == 1
    return neighbours and found.buffer.dtype is how.a and is_multiple(depth, how.size)


def _stage_rows(ctx: Context, how: Grouping, segments: Sequence[tuple[t.Node, int]], axes: t.Shape, lead: Index,
                k0: s.Expr | None = None, depth: s.Expr | None = None) -> tuple[Callable[[s.Expr], s.Operand], Emit]:
    """Copies rows to scratch, one behind the other: those of `axes` (all axes but the inner one that are not in
    `lead`), walked in order. `segments`: operands (value, most steps) whose inner dimensions stand side by side in a
    row; a single one may start at `k0` and have `depth` steps."""
    deep = -(-sum(d for _, d in segments) // how.size) * how.size
    line = 64 // how.a.itemsize
    pitch = -(-deep // line) * line
    if pitch * how.a.itemsize % 512 == 0:
        pitch += line
    cap: s.IntLike = 1
    row: s.Expr = s.const(0)
    walked = [(s.fresh("r"), ctx.extent(e)) for e in axes]
    for (v, _), e in zip(walked, axes, strict=True):
        size = ctx.cap(e)
        cap = cap * size if isinstance(cap, int) and isinstance(size, int) else s.mul(cap, size)
        row = s.add(s.mul(row, size), s.var(v))
    buffer = s.Buffer(f"rows.{s.fresh('rows').uid}", how.a, "local", (cap, deep), (pitch, 1))
    copies: Emit = []
    at = 0
    for a, most in segments:
        k = s.fresh("k")
        step = s.var(k) if k0 is None else s.add(k0, s.var(k))
        value = ctx.elem(a, (*lead, *(s.var(v) for v, _ in walked), step))
        value = turn(value, how.a) if how.turned else _convert(value, how.a)
        store = s.Store(buffer, (row, s.add(s.var(k), at)), value)
        count = s.const(most) if depth is None else depth
        copies.append(s.For(k, s.const(0), count, (store,), "vector", 1, _lanes(ctx, how.a.bits)))
        if how.size > 1 and len(segments) == 1:  # several are whole groups each
            copies += fill_up(buffer, row, count, how.size)
        at += most
    for v, extent in reversed(walked):
        copies = [s.For(v, s.const(0), extent, tuple(copies))]
    return (lambda r0: s.Operand(buffer, s.mul(r0, pitch), pitch)), [s.Alloc(buffer), *copies]


def _vector(ctx: Context, a: t.Node, bits: int) -> Matrix | None:
    k = s.fresh("k")
    e = ctx.elem(a, (s.var(k),))
    if e.op != "load" or e.dtype.bits != bits:
        return None
    offset = affine.flat(e.attr, e.args)
    c = affine.coefficient(offset, k)
    return None if c is None else Matrix(e.attr, affine.substitute(offset, {k: s.const(0)}), s.const(0), c)


def _convert(e: s.Expr, to: DType) -> s.Expr:
    return e if e.dtype is to else s.expr("cast", to, e)


def _panels(ctx: Context, n: t.Node, b: t.Node, plan: DotPlan, k0: s.Expr, depth: s.Expr,
            depth_cap: int) -> tuple[Callable[[s.Expr], s.Operand], bool, Emit]:
    """Operand b: (panel -> its place), whether panels are whole (padded), and what must run first."""
    if plan.b == "packed":
        return _packed(ctx, b, plan, k0), True, []
    found = matrix(ctx, b, (), n.dtype.bits)
    unit = found is not None and found.col.op == "const" and found.col.attr == 1
    along_k = found is not None and not unit and found.row.op == "const" and found.row.attr == 1
    if plan.group > 1:
        words, stage = stage_words(ctx, n, plan, lambda k, c: ctx.elem(b, (s.add(k0, k), c)), depth, depth_cap, along_k)
        return words, True, stage
    if found is not None and unit and (plan.b == "direct" or found.buffer.space != "arg"):
        direct = found
        return (lambda p: direct.at(k0, s.mul(p, plan.cols))), False, []
    width, cap = ctx.extent(n.shape[-1]), ctx.cap(n.shape[-1])
    count = -(-cap // plan.cols) if isinstance(cap, int) else s.ceildiv(cap, plan.cols)
    buffer = s.dense(f"panels.{s.fresh('panels').uid}", n.dtype, "local", (count, depth_cap, plan.cols))
    lanes = _lanes(ctx, n.dtype.bits)

    def panel(p: s.Expr, columns: s.Expr) -> Emit:
        k, c = s.fresh("k"), s.fresh("c")
        value = _convert(ctx.elem(b, (s.add(k0, s.var(k)), s.add(s.mul(p, plan.cols), s.var(c)))), n.dtype)
        store = s.Store(buffer, (p, s.var(k), s.var(c)), value)
        if along_k:  # a transposed operand: read it along its own rows
            return [s.For(c, s.const(0), columns, (s.For(k, s.const(0), depth, (store,), "vector", 1, lanes),))]
        several = max(1, plan.cols // lanes)
        across = s.For(c, s.const(0), columns, (store,), "vector", 1, lanes, several)
        return [s.For(k, s.const(0), depth, (across,))]

    stage = [s.Alloc(buffer), *each_panel(width, plan.cols, panel)]
    size = depth_cap * plan.cols
    return (lambda p: s.Operand(buffer, s.mul(p, size), plan.cols)), True, stage


def _packed(ctx: Context, b: t.Node, plan: DotPlan, k0: s.Expr) -> Callable[[s.Expr], s.Operand]:
    buffer = ctx.args[b.attr("tensor")]
    row, column = packed_place(ctx, b, k0, plan.group)
    first, row = exact_division(column, plan.cols), exact_division(row, plan.group)
    pitch = plan.cols * plan.group
    return lambda panel: s.Operand(buffer, affine.flat(buffer, (s.add(first, panel), row, s.const(0))), pitch)


def packed_place(ctx: Context, b: t.Node, k0: s.Expr, group: int) -> tuple[s.Expr, s.Expr]:
    """(row among all rows of the panel, column) where a packed operand's tile starts; the rows of each leading index
    are filled up to whole groups."""
    if b.op != "load":
        raise ScheduleError("only a product's plainly loaded operand can come packed")
    *outer, row, column = ctx.coordinates(b.args, (k0, s.const(0)))
    sizes = [ctx.scalar(d) for d in ctx.kernel.tensor(b.attr("tensor")).dims]
    sizes[-2] = whole(sizes[-2], group)
    flat: s.Expr = s.const(0)
    for i, n in zip((*outer, row), sizes[:-1], strict=True):
        flat = s.add(s.mul(flat, n), i)
    return flat, column


def exact_division(e: s.Expr, by: int) -> s.Expr:
    """e / by for an offset known to be a multiple of it."""
    if by == 1:
        return e
    if e.op == "const" and int(e.attr) % by == 0:
        return s.const(int(e.attr) // by)
    if e.op == "mul" and e.args[1].op == "const" and int(e.args[1].attr) % by == 0:
        return s.mul(e.args[0], int(e.args[1].attr) // by)
    if e.op == "add":
        return s.add(exact_division(e.args[0], by), exact_division(e.args[1], by))
    raise ScheduleError(f"a packed operand's tile must start at a multiple of {by} columns, or rows of a group")
