"""The first schedule: computed from shapes and the machine's sizes, in well under a millisecond, without a search.

Matrix products: the register block fills the vector registers; the inner dimension is cut so that a panel of b stays in
the nearest cache; the tile of rows and columns so that both staged operands and the accumulators share the second one.
Everything else: the innermost tile is a few thousand elements, rows that are folded whole are taken one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir.tile import core as t
from ..targets.description import TargetDescription
from .facts import Facts
from .products import product_atom
from .schedule import DotPlan, Schedule
from .walk import dots_of, in_order, nodes_of, size_of

#: steps of the inner dimension between two visits of the accumulators' memory: one at a time, and in groups
_DEPTH, _GROUPED_DEPTH = 512, 1024
#: rows of a tile, about; making words of b for grouped products takes longer than copying it, so more rows share them
_ROWS, _GROUPED_TILE = 192, 600
#: with no more products per element of b than this, making words of it costs more than it saves
_GROUPED_FROM = 12

#: below this many scalar operations (some ten microseconds of work) a second thread brings little, and costs much where
#: other programs keep it from its core
SMALL_WORK = 200_000


@dataclass(slots=True)
class _Sizes:
    facts: Facts

    def of(self, n: t.Node) -> int:
        return size_of(n, dict(self.facts.sizes))

    def extent(self, e: t.Extent) -> int:
        match e:
            case t.Static(size):
                return size
            case t.Full(size):
                return self.of(size)
            case t.TileOf(axis):
                return self.of(axis.extent)
        raise AssertionError(e)


def first_schedule(kernel: t.Kernel, facts: Facts, target: TargetDescription,
                   packed: dict[str, int] | None = None) -> Schedule:
    """`packed`: tensors that arrive in panels of so many columns (passes/pack.py)."""
    sizes = _Sizes(facts)
    nodes = nodes_of(kernel)
    dots = dots_of(nodes)
    tiles: dict[str, int] = {}
    grid = [a for e in kernel.effects for a in e.attr("axes")]
    work = _work(nodes, sizes)
    threads = 1 if work < SMALL_WORK or in_order(nodes) else facts.threads
    plans: list[DotPlan] = []
    for d in dots:
        plans.append(_plan_dot(d, sizes, target, packed or {}))
        _dot_tiles(d, plans[-1], tiles, sizes, target, grid, threads)
    folded = any(n.op in ("fold", "argfold", "scan", "loop") for n in nodes)
    _grid_tiles(kernel, grid, tiles, sizes, target, folded, threads)
    for n in nodes:
        if n.op == "loop" and n.attr("axis").kind == "tile":
            tiles.setdefault(n.attr("axis").name, min(1024, max(1, sizes.of(n.attr("axis").extent))))
    return Schedule(tuple(sorted(tiles.items())), tuple(plans), target.vector_bits, 4, threads)


def panel_width(columns: int, kernel: t.Kernel, facts: Facts, target: TargetDescription) -> int:
    """How many columns the panels of a packed operand should have."""
    sizes = _Sizes(facts)
    (d, *_) = dots_of(nodes_of(kernel))
    rows = 1
    for e in d.shape[:-1]:
        rows *= max(1, sizes.extent(e))
    lanes = target.lanes(max(32, d.dtype.bits))
    return register_block(rows, columns, lanes, target)[1] * lanes


def panel_group(kernel: t.Kernel, target: TargetDescription) -> int:
    """How many rows the panels of a packed operand should interleave."""
    (d, *_) = dots_of(nodes_of(kernel))
    atom = product_atom(d.args[1].dtype, d.args[2].dtype, d.dtype, target)
    return 1 if atom is None else atom.group


def _work(nodes: list[t.Node], sizes: _Sizes) -> int:
    """Scalar operations, roughly: the largest domain walked, weighed by what is done there."""
    most = 0
    for n in nodes:
        if n.type is None:
            continue
        count = 1
        seen: set[t.Axis] = set()
        for e in n.shape:
            count *= max(1, sizes.extent(e))
            if isinstance(e, t.TileOf):
                seen.add(e.axis)
        for v in n.free:
            if isinstance(v, t.Axis) and v not in seen and v.kind != "tile":
                count *= max(1, sizes.of(v.extent))
        if n.op == "dot":
            count *= max(1, sizes.extent(n.args[1].shape[-1])) // 4 + 1
        elif n.op == "map" and n.attr("fn") in ("exp", "log", "tanh", "erf", "sigmoid", "sin", "cos", "pow"):
            count *= 4
        most = max(most, count)
    return most


# ---------------------------------------------------------------------------------------------- matrix products


def _plan_dot(d: t.Node, sizes: _Sizes, target: TargetDescription, packed: dict[str, int]) -> DotPlan:
    lanes = target.lanes(max(32, d.dtype.bits))
    rows_total = 1
    for e in d.shape[:-1]:
        rows_total *= max(1, sizes.extent(e))
    cols_total = sizes.extent(d.shape[-1])
    depth_total = sizes.extent(d.args[1].shape[-1])
    tensor = str(d.args[2].attr("tensor")) if d.args[2].op == "load" else ""
    rows, vectors = register_block(rows_total, cols_total, lanes, target, packed.get(tensor, 0) // lanes)
    atom = product_atom(d.args[1].dtype, d.args[2].dtype, d.dtype, target)
    group = 1 if atom is None else atom.group
    if tensor not in packed and rows_total * group <= _GROUPED_FROM:
        group = 1
    depth = _even(depth_total, _DEPTH if group == 1 else _GROUPED_DEPTH)
    if tensor in packed:
        return DotPlan(rows, vectors * lanes, "direct", "packed", depth, group)
    if group > 1 or rows_total > 4 * rows:
        return DotPlan(rows, vectors * lanes, "direct", "staged", depth, group)
    # b is read once or twice, from far: walk its rows nearly in memory order, and visit the accumulators more often
    return DotPlan(rows, vectors * lanes, "direct", "direct", _even(depth_total, 16 if rows_total <= 4 else 64))


def register_block(height: int, width: int, lanes: int, target: TargetDescription, vectors: int = 0) -> tuple[int, int]:
    """(rows, vectors per row) that cover `height` x `width` results at the least cost; `vectors` fixes the second."""
    found: list[tuple[float, int, int]] = []
    for v in [vectors] if vectors else (1, 2, 3, 4, 8):
        if not vectors and v > 1 and (v > -(-width // lanes) or 2 * v + 1 > target.vector_registers):
            continue
        most = max(1, (target.vector_registers - 2 - v) // v)
        panels = -(-width // (v * lanes))
        for r in range(1, min(most, max(1, height)) + 1):
            full, left = divmod(height, r)
            cost = full * _block_cost(r, v) + (_block_cost(left, v) if left else 0.0)
            found.append((cost * panels, -r * v, r))
    _, size, rows = min(found)
    return rows, -size // rows


def _block_cost(rows: int, vectors: int) -> float:
    """Cycles per step of the inner dimension: two products a cycle, at least a product's latency, two loads a cycle
    (each vector of b, one element of a per row), a little for the block's own set-up, and for loads in the way of
    products."""
    return max(rows * vectors / 2, 4.0, (rows + vectors) / 2) + 1.0 + 0.05 * (rows + vectors)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def round_up(a: int, to: int) -> int:
    return ceil_div(a, to) * to


def _even(total: int, most: int) -> int:
    """A part size of at most `most` that cuts `total` into equal parts, in steps of eight."""
    parts = max(1, -(-total // most))
    return min(most, round_up(ceil_div(max(1, total), parts), 8))


def _dot_tiles(d: t.Node, plan: DotPlan, tiles: dict[str, int], sizes: _Sizes, target: TargetDescription,
               grid: list[t.Axis], threads: int) -> None:
    rows = [e.axis for e in d.shape[:-1] if isinstance(e, t.TileOf)]
    cols = [e.axis for e in d.shape[-1:] if isinstance(e, t.TileOf)]
    inner = [e.axis for e in d.args[1].shape[-1:] if isinstance(e, t.TileOf)]
    budget = max(target.l2 * 5 // 8, 64 * 1024)
    staged_a, staged_b, sums = (d.args[k].dtype.itemsize if plan.group > 1 else d.dtype.itemsize for k in (1, 2, 0))
    for a in inner:
        tiles.setdefault(a.name, min(plan.depth, max(1, sizes.of(a.extent))) if a not in cols else plan.depth)
    height, most = 1, _ROWS if plan.group == 1 else _GROUPED_TILE
    for a in reversed(rows):  # the inner row axes whole if they fit, the outer ones as far as there is room
        total = max(1, sizes.of(a.extent))
        shares = threads if sizes.extent(d.shape[-1]) < threads * plan.cols else 1
        size = _row_tile(total, plan.rows, most) if height == 1 else _outer_tile(total, height, shares)
        tiles.setdefault(a.name, size)
        height *= tiles[a.name]
    for a in cols:
        total = sizes.of(a.extent)
        depth = plan.depth
        limit = max(plan.cols, (budget - height * depth * staged_a) // (height * sums + depth * staged_b))
        if plan.group > 1:  # a is copied once for each tile of columns; rows stream through the caches well
            limit = max(limit, 512)
        if a in grid:
            others = 1
            for g in grid:
                if g.name != a.name:
                    others *= ceil_div(max(1, sizes.of(g.extent)), tiles.get(g.name, 1))
            limit = min(limit, max(512, plan.cols) if plan.b == "staged" else 1024)
            tiles.setdefault(a.name, _col_tile(total, plan.cols, limit, others, threads))
        else:
            tiles.setdefault(a.name, min(max(plan.cols, limit // plan.cols * plan.cols), 256))


def _row_tile(total: int, rows: int, most: int) -> int:
    """Whole register blocks, at most about `most` rows, all tiles alike."""
    most = max(rows, most // rows * rows)
    parts = max(1, -(-total // most))
    return min(round_up(ceil_div(total, parts), rows), total) if total > rows else max(1, total)


def _outer_tile(total: int, height: int, shares: int) -> int:
    """How many stretches of `height` rows to take at once: near 192 rows, tiles alike, at least `shares` of them."""
    most = max(1, _ROWS // height)
    parts = max(ceil_div(total, most), min(total, shares))
    return ceil_div(total, parts)


def _col_tile(total: int, cols: int, limit: int, others: int, threads: int) -> int:
    """Whole panels; at least one tile per thread, and an even number of tasks or many."""
    limit = max(cols, limit // cols * cols)
    parts = max(1, -(-total // limit))
    if threads > 1 and others * parts < 8 * threads:
        while (others * parts) % threads and parts * cols < total:
            parts += 1
    return max(cols, round_up(ceil_div(total, parts), cols))


# ---------------------------------------------------------------------------------------------- everything else


def _grid_tiles(kernel: t.Kernel, grid: list[t.Axis], tiles: dict[str, int], sizes: _Sizes, target: TargetDescription,
                folded: bool, threads: int) -> None:
    for par in kernel.effects:
        axes = [a for a in par.attr("axes") if a.kind == "tile" and a.name not in tiles]
        if not axes:
            continue
        innermost = _innermost(par)
        budget = 16384
        for a in sorted(axes, key=lambda a: (a != innermost, -axes.index(a))):
            total = max(1, sizes.of(a.extent))
            if a == innermost:
                size = min(total, 256 if folded else 8192)
                budget //= max(1, size)
            elif folded:
                size = 1
            else:
                size = max(1, min(total, budget))
                budget //= size
            if threads > 1 and len(axes) == 1:
                size = max(1, min(size, -(-total // threads)))
                size = -(-size // 16) * 16 if size > 16 else size
            tiles[a.name] = size


def _innermost(par: t.Node) -> t.Axis | None:
    """The axis that the last axis of what is stored runs over, when that is a tile of the grid."""
    for e in par.attr("effects"):
        if e.op in ("store", "scatter") and e.args[-1].shape:
            last = e.args[-1].shape[-1]
            return last.axis if isinstance(last, t.TileOf) and last.axis in par.attr("axes") else None
    return None



