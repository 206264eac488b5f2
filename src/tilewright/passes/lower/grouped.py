"""Operands of products that take several neighbouring steps of the inner dimension at once.

Operand a keeps its elements as they are, side by side; operand b becomes words: for each group of steps, one word per
column, made with integer operations on whole vectors. Both are filled up with zeros to whole groups.

Bytes multiply as unsigned by signed or the reverse. Where both have the same signedness, a is staged with its top bit
turned, which moves its values by 128, and every column of the result is set right by 128 times the sum of b's column:
one more register block, of one row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...errors import ScheduleError
from ...ir.scheduled import core as s
from ...ir.tile import core as t
from ...ir.types import DType, bool_, i8, u8, u16, u32
from ...schedule.products import product_atom
from ...schedule.schedule import DotPlan
from .context import Context

Emit = list[s.Stmt]
Panel = Callable[[s.Expr], s.Operand]


@dataclass(frozen=True, slots=True)
class Grouping:
    """How a product's operands are staged: `size` steps at a time, a as elements of `a`; `turned`: with its top bit
    turned, so that the sums need setting right."""

    size: int
    a: DType
    turned: bool


def grouping(ctx: Context, n: t.Node, plan: DotPlan) -> Grouping:
    left, right = n.args[1].dtype, n.args[2].dtype
    if plan.group == 1:
        return Grouping(1, n.dtype, False)
    atom = product_atom(left, right, n.dtype, ctx.target)
    if atom is None or atom.group != plan.group:
        raise ScheduleError(
            f"{ctx.target.name} cannot take {plan.group} products of {left} and {right} at once into {n.dtype}"
        )
    turned = atom.a != left.name
    return Grouping(plan.group, (u8 if left is i8 else i8) if turned else left, turned)


def turn(e: s.Expr, to: DType) -> s.Expr:
    """A byte with its top bit turned, read as the other signedness: its value moved by 128."""
    bits = s.expr("xor", u8, _bits(e, u8), s.const(0x80, u8))
    return bits if to is u8 else s.expr("bitcast", i8, bits)


def _bits(e: s.Expr, word: DType) -> s.Expr:
    return e if e.dtype is word else s.expr("bitcast", word, e)


def whole(depth: s.Expr, group: int) -> s.Expr:
    """`depth` in whole groups."""
    return depth if is_multiple(depth, group) else s.mul(s.ceildiv(depth, group), group)


def is_multiple(e: s.Expr, by: int) -> bool:
    """Whether an integer expression is certainly a multiple."""
    match e.op:
        case "const":
            return int(e.attr) % by == 0
        case "mul":
            return any(is_multiple(x, by) for x in e.args)
        case "add" | "sub" | "min" | "max":
            return all(is_multiple(x, by) for x in e.args)
        case _:
            return by == 1


# ---------------------------------------------------------------------------------------------- operand a


def fill_up(buffer: s.Buffer, row: s.Expr, depth: s.Expr, group: int) -> Emit:
    """Zeros behind the `depth` elements of a row, up to whole groups."""
    if is_multiple(depth, group):
        return []
    k = s.fresh("pad")
    store = s.Store(buffer, (row, s.var(k)), s.const(0, buffer.dtype))
    return [s.For(k, depth, whole(depth, group), (store,))]


# ---------------------------------------------------------------------------------------------- operand b


def stage_words(ctx: Context, n: t.Node, plan: DotPlan, element: Callable[[s.Expr, s.Expr], s.Expr], depth: s.Expr,
                depth_cap: int, along_k: bool) -> tuple[Panel, Emit]:
    """Panels of words. `element(k, c)`: the element of b; `along_k`: those of one column are neighbours in memory."""
    g, b = plan.group, n.args[2]
    width, cap = ctx.extent(n.shape[-1]), ctx.cap(n.shape[-1])
    count = -(-cap // plan.cols) if isinstance(cap, int) else s.ceildiv(cap, plan.cols)
    groups = -(-depth_cap // g)
    size = groups * plan.cols * g + 3 * 64 // b.dtype.itemsize  # equal steps of two panels: not in the same cache set
    buffer = s.Buffer(f"panels.{s.fresh('panels').uid}", b.dtype, "local", (count, groups, plan.cols, g),
                      (size, plan.cols * g, g, 1))
    lanes = min(max(1, ctx.schedule.vector_bits // 32), plan.cols)

    def row(p: s.Expr, columns: s.Expr, at: s.Expr, steps: int) -> s.For:
        c = s.fresh("c")
        column = s.add(s.mul(p, plan.cols), s.var(c))
        parts = [element(s.add(s.mul(at, g), j), column) for j in range(steps)]
        store = s.Store(buffer, (p, at, s.var(c), s.const(0)), _word(parts))
        if along_k:  # neighbouring elements are loaded as one word, column by column
            return s.For(c, s.const(0), columns, (store,))
        return s.For(c, s.const(0), columns, (store,), "vector", 1, lanes, plan.cols // lanes)

    def rows(at: s.Expr, steps: int) -> tuple[s.Stmt, ...]:
        """Some steps of all panels: memory is read along its rows, as far as the tile goes."""
        return tuple(each_panel(width, plan.cols, lambda p, columns: [row(p, columns, at, steps)]))

    q, full = s.fresh("q"), s.floordiv(depth, g)
    stage: Emit = [s.Alloc(buffer), s.For(q, s.const(0), full, rows(s.var(q), g))]
    left = s.const(0) if is_multiple(depth, g) else s.mod(depth, g)
    for steps in range(1, g):
        if left.op != "const":
            stage.append(s.If(s.expr("eq", bool_, left, s.const(steps)), rows(full, steps)))
        elif int(left.attr) == steps:
            stage += rows(full, steps)
    return (lambda p: s.Operand(buffer, s.mul(p, size), plan.cols * g)), stage


def each_panel(width: s.Expr, cols: int, panel: Callable[[s.Expr, s.Expr], Emit]) -> Emit:
    """panel(number, columns) for the whole panels, whose size is then a number in the code, and for what is left."""
    p = s.fresh("panel")
    full, left = s.floordiv(width, cols), s.mod(width, cols)
    out: Emit = []
    if not (full.op == "const" and full.attr == 0):
        out.append(s.For(p, s.const(0), full, tuple(panel(s.var(p), s.const(cols)))))
    if left.op != "const":
        out.append(s.If(s.expr("gt", bool_, left, s.const(0)), tuple(panel(full, left))))
    elif left.attr:
        out += panel(full, left)
    return out


def _word(parts: list[s.Expr]) -> s.Expr:
    """The bits of elements side by side, the first ones lowest."""
    narrow = u16 if parts[0].dtype.bits == 16 else u8
    word: s.Expr | None = None
    for j, part in enumerate(parts):
        bits = s.expr("cast", u32, _bits(part, narrow))
        if j:
            bits = s.expr("shl", u32, bits, s.const(narrow.bits * j, u32))
        word = bits if word is None else s.expr("or", u32, word, bits)
    assert word is not None
    return word


# ---------------------------------------------------------------------------------------------- setting sums right


def correction(plan: DotPlan, acc: DType, a: DType, panels: Panel, depth: s.Expr, depth_cap: int,
               lanes: int) -> tuple[Emit, Callable[[s.Expr], Emit], s.Operand]:
    """For an operand a that was staged turned: what runs once, what runs for each panel, and the row to add then."""
    g = plan.group
    ones = s.dense(f"ones.{s.fresh('ones').uid}", a, "local", (-(-depth_cap // g) * g,))
    sums = s.dense(f"sums.{s.fresh('sums').uid}", acc, "local", (plan.cols,))
    k = s.fresh("k")
    fill = s.Store(ones, (s.var(k),), s.const(128 if a is u8 else -128, a))
    once: Emit = [s.Alloc(ones), s.Alloc(sums),
                  s.For(k, s.const(0), whole(depth, g), (fill,), "vector", 1, 4 * lanes)]
    row = s.Operand(sums, s.const(0), plan.cols)

    def each(panel: s.Expr) -> Emit:
        c = s.fresh("c")
        total = s.Micro(row, s.Operand(ones, s.const(0), 0), panels(panel), depth, 1, plan.cols, lanes, True, group=g)
        negated = s.Store(sums, (s.var(c),), s.expr("neg", acc, sums.load(s.var(c))))
        return [total, s.For(c, s.const(0), s.const(plan.cols), (negated,), "vector", 1, lanes)]

    return once, each, row
