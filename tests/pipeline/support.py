"""Random legal schedules, and one case through every stage of the pipeline."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tests.generators import Case
from tests.targets.llvm.render_support import execute
from tilewright.interp import scheduled as scheduled_oracle
from tilewright.interp import tile as tile_oracle
from tilewright.ir.scheduled.core import Program
from tilewright.ir.scheduled.verify import verify as verify_program
from tilewright.ir.tile import core as t
from tilewright.ir.tile.rewrite import bind_dims, evaluate, rebuild
from tilewright.ir.tile.verify import verify as verify_kernel
from tilewright.passes.expand_math import expand
from tilewright.passes.lower import lower
from tilewright.passes.pack import pack
from tilewright.passes.simplify_expr import simplify
from tilewright.schedule.facts import Facts, Layout
from tilewright.schedule.first import first_schedule, panel_group
from tilewright.schedule.products import product_atom
from tilewright.schedule.schedule import DotPlan, Schedule, check
from tilewright.schedule.walk import dots_of, nodes_of
from tilewright.targets.description import TargetDescription

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]

#: relative Frobenius error against a float64 reference, by element type
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}
ROUNDING = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}


def facts_of(case: Case, r: random.Random, threads: int = 2) -> Facts:
    """What a caller knows. Some dims are built into the code; the others' sizes only guide the schedule, and are often
    not those of the call. Arrays that are not row-major have strides known or read at run time."""
    names = sorted(case.dims)
    static = frozenset(n for n in names if r.random() < 0.3)
    sizes = tuple((n, case.dims[n] if n in static or r.random() < 0.5 else r.choice((1, 4, 16, 64))) for n in names)
    layouts = tuple((p.name, _layout(case.arrays.get(p.name), p.rank)) for p in case.kernel.tensors)
    return Facts(sizes, static, layouts, threads)


def _layout(array: Array | None, rank: int) -> Layout:
    if array is None or array.flags.c_contiguous:
        return Layout.row_major(rank)
    steps = [n // array.itemsize for n in array.strides]
    return Layout(tuple(n if n in (0, 1) else None for n in steps))


def laid_out(r: random.Random, array: Array) -> Array:
    """The same values, often with gaps, backwards or transposed in memory."""
    kind = r.random()
    if array.ndim == 0 or array.size == 0 or kind < 0.6:
        return array
    if kind < 0.7:
        return np.asfortranarray(array)
    if kind < 0.85:
        return np.ascontiguousarray(array[..., ::-1])[..., ::-1]
    wider = np.full((*array.shape[:-1], array.shape[-1] + 3), array.flat[0], array.dtype)
    wider[..., 1:-2] = array
    return wider[..., 1:-2]


def axes_of(kernel: t.Kernel) -> list[t.Axis]:
    found: dict[str, t.Axis] = {}
    for n in nodes_of(kernel):
        for a in n.attr("axes", ()) if n.op == "par" else [n.attr("axis")] if n.op == "loop" else []:
            found[a.name] = a
    return list(found.values())


def random_schedule(r: random.Random, kernel: t.Kernel, target: TargetDescription) -> Schedule:
    """Any legal schedule: tiles of every size, register blocks, operands read in place or staged, narrow vectors."""
    tiles = tuple(sorted((a.name, r.choice((1, 2, 3, 4, 7, 8, 16, 21, 40))) for a in axes_of(kernel)
                         if a.kind == "tile"))
    plans = tuple(_random_plan(r, d, target) for d in dots_of(nodes_of(kernel)))
    bits = r.choice([b for b in (64, 128, 256, 512) if b <= target.vector_bits])
    made = Schedule(tiles, plans, bits if not plans else target.vector_bits, r.choice((1, 2, 4)), r.choice((1, 2)))
    check(made, target)
    return made


def _random_plan(r: random.Random, d: t.Node, target: TargetDescription) -> DotPlan:
    lanes = target.lanes(max(32, d.dtype.bits))
    vectors = r.choice((1, 2, 3))
    most = max(1, (target.vector_registers - 2 - vectors) // vectors)
    while vectors > 1 and target.lanes(32) != lanes and vectors * lanes // target.lanes(32) > 8:
        vectors -= 1
    group, depth = random_group(r, d, target), r.choice((1, 3, 8, 24, 256))
    return DotPlan(r.randint(1, min(most, 6)), vectors * lanes, r.choice(("direct", "staged")),
                   r.choice(("direct", "staged")), -(-depth // group) * group, group, r.choice((0, 0, 4)))


def random_group(r: random.Random, d: t.Node, target: TargetDescription) -> int:
    atom = product_atom(d.args[1].dtype, d.args[2].dtype, d.dtype, target)
    return 1 if atom is None else r.choice((1, atom.group))


def compile_case(case: Case, schedule: Schedule, facts: Facts, target: TargetDescription) -> Program:
    return verify_program(lower(case.kernel, schedule, facts, target))


def run_native(program: Program, case: Case, target: TargetDescription, threads: int = 1,
               simpler: bool = False) -> dict[str, Array]:
    """Poisoned outputs with guarded margins, written by machine code; `simpler`: of simplified expressions."""
    ready = expand(program, target)
    if simpler:
        ready = simplify(ready)
    arrays: dict[str, Array] = dict(case.arrays)
    raws = {}
    for p in case.kernel.outputs:
        shape = shape_of(p, case.dims)
        count = int(np.prod(shape)) * p.dtype.itemsize
        raws[p.name] = np.full(count + 512, 0xFF if p.dtype.is_float else 0x7B, np.uint8)
        arrays[p.name] = raws[p.name][256:256 + count].view(p.dtype.numpy).reshape(shape)
    execute(ready, target, arrays, case.dims, case.scalars, threads)
    for name, raw in raws.items():
        fill = 0xFF if arrays[name].dtype.kind not in "biu" else 0x7B
        assert (raw[:256] == fill).all() and (raw[-256:] == fill).all(), f"wrote outside '{name}'"
    return {p.name: arrays[p.name] for p in case.kernel.outputs}


def shape_of(p: t.TensorParam, dims: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(evaluate(d, dims) for d in p.dims)


def reference(case: Case, tiles: Mapping[str, int] | None = None, seed: int | None = None) -> dict[str, Array]:
    return tile_oracle.run(case.kernel, case.arrays, case.scalars, case.dims, tiles, seed)


def error(got: Array, want: Array) -> float:
    """Relative Frobenius error; infinite where NaN or infinities differ, or exact types differ at all. The reference of
    floats may be float64 whatever they are."""
    assert got.shape == want.shape, f"{got.shape} for {want.shape}"
    assert got.dtype == want.dtype or want.dtype == np.float64, f"{got.dtype} for {want.dtype}"
    if got.dtype.kind in "biu":
        return 0.0 if np.array_equal(got, want) else np.inf
    a, b = got.astype(np.float64), want.astype(np.float64)
    fine = np.isfinite(b)
    if not np.array_equal(a[~fine], b[~fine], equal_nan=True) or not np.isfinite(a[fine]).all():
        return np.inf
    scale = max(1e-30, np.abs(b[fine]).max(initial=0.0))
    return float(np.linalg.norm((a[fine] - b[fine]) / scale) / max(np.linalg.norm(b[fine] / scale), 1e-30))


def sensitivity(case: Case, want: Arrays) -> dict[str, float]:
    """How far the oracle's own results move when its inputs and constants move by one rounding: a kernel may cancel."""
    out = dict.fromkeys(want, 0.0)
    for seed in (1, 2):
        rng = np.random.default_rng(seed)
        moved = {}
        for n, a in case.arrays.items():
            eps = ROUNDING.get(a.dtype.name, 0.0)
            moved[n] = (a.astype(np.float64) * (1 + eps * rng.choice((-1, 1), a.shape))).astype(a.dtype) if eps else a
        sign = float(rng.choice((-1, 1)))
        kernel = rebuild(case.kernel, lambda n, args, sign=sign: _moved_constant(n, sign))
        for n, a in reference(dataclasses.replace(case, kernel=kernel, arrays=moved)).items():
            out[n] = max(out[n], error(a, want[n]))
    return out


def _moved_constant(n: t.Node, sign: float) -> t.Node | None:
    value = t.const_value(n)
    if not isinstance(value, float) or value == 0 or not np.isfinite(value):
        return None
    return t.const(value * (1 + sign * ROUNDING[np.dtype(n.dtype.numpy).name]), n.dtype)


def agree(got: Arrays, want: Arrays, slack: Mapping[str, float], what: str) -> None:
    for name, w in want.items():
        e = error(got[name], w)
        allowed = max(TOLERANCE.get(w.dtype.name, 0.0), 8 * slack.get(name, 0.0))
        assert e <= allowed, f"{what}: '{name}' differs by {e:.3g}, allowed {allowed:.3g}"


def check_case(case: Case, seed: int, targets: Sequence[TargetDescription], schedules: int = 1,
               native: bool = True) -> None:
    """The case through the oracle with several tilings, then every target with the first and random schedules."""
    r = random.Random(seed)
    case = dataclasses.replace(case, arrays={n: laid_out(r, a) for n, a in case.arrays.items()})
    verify_kernel(case.kernel)
    want = reference(case)
    slack = sensitivity(case, want)
    sizes = {a.name: r.choice((1, 2, 5, 16)) for a in axes_of(case.kernel)}
    agree(reference(case, sizes, seed), want, slack, f"the oracle with tiles {sizes}")
    for target in targets:
        facts = facts_of(case, r)
        wanted = [first_schedule(case.kernel, facts, target)]
        wanted += [random_schedule(r, case.kernel, target) for _ in range(schedules)]
        for schedule in wanted:
            what = f"{target.name}, {schedule.to_json()}, {facts.sizes}, static {sorted(facts.static)}"
            program = compile_case(case, schedule, facts, target)
            threads = r.choice((1, 2, 3))
            made = scheduled_oracle.run(program, case.arrays, case.dims, case.scalars, threads)
            agree(made, want, slack, f"interpreted: {what}")
            if native and target.family == "llvm":
                simpler = r.random() < 0.3
                agree(run_native(program, case, target, threads, simpler), want, slack, f"native, {simpler}: {what}")


def check_packed(case: Case, seed: int, targets: Sequence[TargetDescription], tensor: str, schedules: int = 2) -> None:
    """The case with one operand of its products in panels, as models keep their weights: all sizes are built in."""
    r = random.Random(seed)
    want = reference(case)
    slack = sensitivity(case, want)
    kernel = bind_dims(case.kernel, case.dims)
    layouts = tuple((p.name, Layout.row_major(p.rank)) for p in kernel.tensors)
    facts = Facts((), frozenset(), layouts, 2)
    for target in targets:
        cols = target.lanes(32) * r.choice((1, 2))
        group = panel_group(kernel, target)
        packed = dataclasses.replace(case, kernel=kernel, dims={}, arrays={
            **case.arrays, tensor: pack(case.arrays[tensor], cols, group)})
        wanted = [first_schedule(kernel, facts, target, {tensor: cols})]
        for _ in range(schedules):
            made = random_schedule(r, kernel, target)
            plans = tuple(dataclasses.replace(d, cols=cols, b="packed", rows=min(d.rows, 4), group=group,
                                              depth=-(-d.depth // group) * group) for d in made.dots)
            dots = dots_of(nodes_of(kernel))
            steps = {e.axis.name: group for d in dots for e in d.args[1].shape[-1:] if isinstance(e, t.TileOf)}
            steps |= {e.axis.name: cols for d in dots for e in d.shape[-1:] if isinstance(e, t.TileOf)}
            tiles = tuple((n, -(-size // steps.get(n, 1)) * steps.get(n, 1)) for n, size in made.tiles)
            wanted.append(dataclasses.replace(made, tiles=tiles, dots=plans))
        for schedule in wanted:
            what = f"{target.name}, packed, {schedule.to_json()}"
            program = compile_case(packed, schedule, facts, target)
            threads = r.choice((1, 3))
            made_here = scheduled_oracle.run(program, packed.arrays, {}, case.scalars, threads)
            agree(made_here, want, slack, f"interpreted: {what}")
            if target.family == "llvm":
                agree(run_native(program, packed, target, threads), want, slack, f"native: {what}")
