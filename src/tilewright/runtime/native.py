"""A plan made ready to run: compiled kernels, one arena, one block of argument words, one table of steps.

The whole model is one native job: every thread walks the table by itself, and nothing of Python runs between steps.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..evidence import Evidence
from ..ir.graph.core import Graph, Value
from ..ops.view import View
from ..passes.memory_plan import Interval, MemoryPlan, plan
from ..passes.pack import pack
from ..schedule.first import panel_group, panel_width
from ..targets.description import TargetDescription
from . import arrays
from .plan import Branch, Launch, Plan, Step, strides_of
from .report import MemoryReport, RegionReport, Report
from .sizes import evaluate
from .stages import stages

Array = np.ndarray[Any, Any]
#: by the source's place and form: the array, and its address where code reads it
Constants = dict[Any, tuple[Array, int]]
#: operations of a whole model that one thread does before a second one would be awake and in step
SMALL_MODEL = 4e6


@dataclass(slots=True)
class Ready:
    """A launch with its code. `words`: position of its argument block; `row`: its first row in the step table."""

    launch: Launch
    executable: Any
    bindings: list[View | Array]
    schedule: str
    words: int = 0
    rows: tuple[int, int] = (0, 0)


class Native:
    """One model for one set of input shapes."""

    def __init__(self, graph: Graph, made: Plan, target: TargetDescription, threads: int,
                 progress: Callable[[int, int], None] | None = None, constants: Constants | None = None) -> None:
        """`constants`: where constants in the form that code wants are kept; nets share them among their shapes."""
        from ..targets.llvm import pool_ir

        self.graph, self.plan, self.target, self.threads = graph, made, target, threads
        self.lock = threading.Lock()
        self._kinds = pool_ir
        self._constants: Constants = {} if constants is None else constants
        self._used: set[Any] = set()
        launches = list(_launches(made.steps))
        if sum(operations(x) for x in launches) < SMALL_MODEL:
            for x in launches:
                x.facts = replace(x.facts, threads=1)
        self.ready: dict[int, Ready] = {}
        for k, launch in enumerate(launches):
            self.ready[id(launch)] = self._compile(launch)
            if progress is not None:
                progress(k + 1, len(launches))
        self.memory = self._plan_memory(launches)
        self._place(launches)
        self._table()
        if all(r.executable.artifact.threads == 1 for r in self.ready.values()):
            self.threads = 1  # no worker is woken

    # ------------------------------------------------------------------ code

    def _compile(self, launch: Launch) -> Ready:
        packed: dict[str, int] = {}
        bindings = list(launch.bindings)
        names = [p.name for p in launch.kernel.tensors]
        if launch.packable is not None:
            position = names.index(launch.packable)
            data = bindings[position]
            assert isinstance(data, np.ndarray)
            cols = panel_width(data.shape[-1], launch.kernel, launch.facts, self.target)
            packed[launch.packable] = cols
            bindings[position] = self._packed(data, cols, panel_group(launch.kernel, self.target))
        executable, schedule = compile_launch(launch, self.target, packed)
        return Ready(launch, executable, bindings, schedule)

    def _packed(self, data: Array, cols: int, group: int) -> Array:
        owner = data.base if isinstance(data.base, np.ndarray) else data
        key = ("packed", data.ctypes.data, data.shape, data.strides, cols, group)
        if key not in self._constants:
            self._constants[key] = (_aligned(pack(data, cols, group)), 0)
            self._keep(owner)
        self._used.add(key)
        return self._constants[key][0]

    # ------------------------------------------------------------------ memory

    def _plan_memory(self, launches: Sequence[Launch]) -> MemoryPlan[Value]:
        """Lives of buffers, in launch order; outputs and inputs have memory of their own."""
        outside = {v.base for v in self.plan.outputs} | set(self.graph.inputs)
        first: dict[Value, int] = {}
        last: dict[Value, int] = {}
        for k, touched in enumerate(_touched(self.plan.steps)):
            for v in touched:
                if v in self.plan.buffers and v not in outside:
                    first.setdefault(v, k)
                    last[v] = k
        return plan([Interval(v, self.plan.buffers[v], first[v], last[v]) for v in first])

    def _place(self, launches: Sequence[Launch]) -> None:
        from ..targets.llvm.pool import Workspace

        self._arena = Workspace()
        base = self._arena.ensure(max(64, self.memory.nbytes))
        self._addresses: dict[Value, int] = {v: base + o for v, o in self.memory.offsets.items()}
        count = sum(len(r.bindings) + len(r.executable.artifact.dims) + len(r.executable.artifact.strides)
                    for r in self.ready.values())
        self.words = (ctypes.c_int64 * max(1, count))()
        self.start = ctypes.addressof(self.words)
        self._inputs: list[tuple[int, int, int]] = []  # (word, input, byte offset)
        self._outputs: list[tuple[int, int, int]] = []
        at = 0
        for launch in launches:
            ready = self.ready[id(launch)]
            ready.words = at
            for b in ready.bindings:
                self.words[at] = self._pointer(b, at)
                at += 1
            for value in _run_time_values(ready):
                self.words[at] = value
                at += 1
        self._workspace = max((evaluate(self.ready[id(x)].executable.artifact.workspace, dict(x.dims))
                               for x in launches), default=0)

    def _pointer(self, b: View | Array, word: int) -> int:
        if isinstance(b, np.ndarray):
            return self._constant(b)
        offset = b.offset * b.base.dtype.itemsize
        if b.base in self.graph.inputs:
            self._inputs.append((word, self.graph.inputs.index(b.base), offset))
            return 0
        for k, out in enumerate(self.plan.outputs):
            if out.base == b.base:
                self._outputs.append((word, k, offset))
                return 0
        if b.base.is_constant:
            return self._constant(b.base.constant) + offset
        return self._addresses[b.base] + offset

    def _constant(self, data: Array) -> int:
        key = ("raw", data.ctypes.data, data.shape, data.dtype)
        if key not in self._constants:
            copy = data if data.ctypes.data % 64 == 0 and data.flags.c_contiguous else _aligned(data)
            self._constants[key] = (copy, copy.ctypes.data)
            self._keep(data)
        self._used.add(key)
        return self._constants[key][1]

    def _keep(self, data: Array) -> None:
        """The key is an address: the array must live as long as the key."""
        self._constants["keep", id(data)] = (data, 0)

    # ------------------------------------------------------------------ steps

    def _table(self) -> None:
        from ..targets.llvm.pool import Steps

        rows: list[list[int]] = []
        self._emit(self.plan.steps, rows)
        for k, row in enumerate(rows):  # a step of one thread needs no meeting before another of the same thread
            following = rows[k + 1] if k + 1 < len(rows) else None
            if row[2] == self._kinds.CALL_ONE and following is not None and following[2] == self._kinds.CALL_ONE:
                if k + 1 not in self._targets:
                    row[4] = 0
        self.rows = rows
        self.steps = Steps(rows)

    def _emit(self, steps: Sequence[Step], rows: list[list[int]]) -> None:
        kinds = self._kinds
        if not hasattr(self, "_targets"):
            self._targets: set[int] = set()
            self._conds: list[tuple[int, View]] = []
        for step in steps:
            if isinstance(step, Launch):
                ready = self.ready[id(step)]
                begin = len(rows)
                for row in ready.executable.steps(self.start + 8 * ready.words):
                    rows.append(list(row))
                    if ready.executable.artifact.threads == 1:
                        rows[-1][2] = kinds.CALL_ONE
                ready.rows = (begin, len(rows))
                continue
            jump = len(rows)
            rows.append([0, self._cond_address(step.cond), kinds.JUMP_IF_ZERO, 0, kinds.BARRIER_AFTER])
            self._emit(step.then, rows)
            skip = len(rows)
            rows.append([0, 0, kinds.JUMP, 0, 0])
            rows[jump][3] = len(rows)
            self._targets.add(len(rows))
            self._emit(step.orelse, rows)
            rows[skip][3] = len(rows)
            self._targets.add(len(rows))

    def _cond_address(self, cond: View) -> int:
        if cond.base in self.graph.inputs or cond.base not in self._addresses:
            raise AssertionError("a condition lies in the arena")
        return self._addresses[cond.base] + cond.offset

    # ------------------------------------------------------------------ running

    def run(self, inputs: Sequence[Array], kind: str, stamps: int = 0) -> list[Any]:
        """`inputs`: dense arrays of the right types and shapes. Results are new arrays of `kind`."""
        from ..targets.llvm import pool

        results = [arrays.empty(v.shape, v.base.dtype, kind) for v in self.plan.outputs]
        infos = [arrays.inspect(r) for r in results]
        with self.lock:
            words = self.words
            for word, k, offset in self._inputs:
                words[word] = arrays.numpy_pointer(inputs[k]) + offset
            for word, k, offset in self._outputs:
                info = infos[k]
                assert info is not None
                words[word] = info.pointer + offset
            pool.launch(self.steps.address, self.steps.count, self.threads, self._workspace, stamps)
        return results

    def profile(self, inputs: Sequence[Array], repeat: int) -> list[float]:
        """Seconds per row of the step table, the mean of `repeat` runs on thread 0."""
        from ..targets.llvm import pool

        counters = (ctypes.c_int64 * (2 * max(1, self.steps.count)))()
        self.run(inputs, "numpy")
        for _ in range(repeat):
            self.run(inputs, "numpy", ctypes.addressof(counters))
        rate = pool.native().ticks_per_ns() * 1e9
        return [counters[2 * k] / max(1, counters[2 * k + 1]) / rate for k in range(self.steps.count)]

    def in_order(self) -> list[Ready]:
        """Every launch with its code, in the order of the plan."""
        return [self.ready[id(launch)] for launch in _launches(self.plan.steps)]

    def report(self, seconds: Sequence[float] | None = None, peak: Evidence | None = None, how: str = "") -> Report:
        regions = []
        for launch in _launches(self.plan.steps):
            ready = self.ready[id(launch)]
            work = operations(launch)
            entry = RegionReport(
                launch.region, launch.kernel.name, tuple(n.name or n.op for n in launch.nodes), ready.schedule,
                Evidence(work, "operations", "estimated", "counted from the graph: two per multiply-add"),
                number=len(regions))
            if seconds is not None:
                spent = sum(seconds[ready.rows[0]:ready.rows[1]])
                entry = replace(entry, milliseconds=Evidence(spent * 1e3, "ms", "measured", how))
                if peak is not None and spent > 0 and work:
                    share = work / spent / peak.value
                    entry = replace(entry, fraction_of_peak=Evidence(share, "of peak", "measured", how))
            regions.append(entry)
        weights = sum(self._constants[key][0].nbytes for key in self._used)
        memory = MemoryReport(self.memory.nbytes, self.memory.lower_bound, weights)
        return Report(self.target.name, self.threads, tuple(regions), memory)


# ---------------------------------------------------------------------------------------------- helpers


def _launches(steps: Sequence[Step]) -> Iterator[Launch]:
    for step in steps:
        if isinstance(step, Launch):
            yield step
        else:
            yield from _launches(step.then)
            yield from _launches(step.orelse)


def _touched(steps: Sequence[Step]) -> Iterator[list[Value]]:
    for step in steps:
        if isinstance(step, Launch):
            yield [b.base for b in step.bindings if isinstance(b, View)]
        elif isinstance(step, Branch):
            yield [step.cond.base]
            yield from _touched(step.then)
            yield from _touched(step.orelse)


def _run_time_values(ready: Ready) -> list[int]:
    """The dims and strides that the code reads, as its argument words follow each other."""
    dims, artifact = dict(ready.launch.dims), ready.executable.artifact
    bound = dict(zip((p.name for p in ready.launch.kernel.tensors), ready.launch.bindings, strict=True))
    return [*(dims[d] for d in artifact.dims), *(strides_of(bound[name])[axis] for name, axis in artifact.strides)]


def _aligned(data: Array) -> Array:
    out: Array = arrays.empty(data.shape, _dtype(data), "numpy")
    out[...] = data
    return out


def _dtype(data: Array) -> Any:
    from ..ir.types import from_numpy

    return from_numpy(data.dtype)


def operations(launch: Launch) -> float:
    """Arithmetic of a launch: two per multiply-add of its products, one per element of everything else it computes."""
    total = 0.0
    for n in launch.nodes:
        size = float(np.prod(n.types[0].static_shape))
        match n.op:
            case "matmul":
                a = n.inputs[0]
                assert a is not None
                total += 2 * size * a.type.static_shape[-1]
            case "conv" | "conv_transpose":
                w = n.inputs[1]
                assert w is not None
                *window, per_group, _ = w.type.static_shape
                taps = float(np.prod(window)) if n.op == "conv" else 1.0
                total += 2 * size * taps * per_group
            case "reshape" | "transpose" | "slice" | "broadcast" | "concat" | "pad" | "gather":
                pass
            case _:
                total += size
    return total


_compiled: dict[str, tuple[Any, str]] = {}
#: the same by the objects themselves: making a key's text takes longer than all else for code that is there already
_recent: dict[Any, tuple[Any, str]] = {}
_MOST_RECENT = 4096


def compile_launch(launch: Launch, target: TargetDescription, packed: dict[str, int]) -> tuple[Any, str]:
    """(executable, schedule) of a launch: from this process, from the disk cache, or made now."""
    quick = (launch.kernel, launch.facts, tuple(packed.items()), target)
    found = _recent.get(quick)
    if found is None:
        found = _recent[quick] = _compile(launch, target, packed)
        while len(_recent) > _MOST_RECENT:
            _recent.pop(next(iter(_recent)))
    return found


def _compile(launch: Launch, target: TargetDescription, packed: dict[str, int]) -> tuple[Any, str]:
    from ..ir.tile.printer import kernel_text
    from ..targets.llvm import backend, driver
    from .specialise import cache as shared_cache

    at = stages(launch.kernel, launch.facts, target, packed)
    cache, layouts = shared_cache(), launch.facts.layouts
    key = cache.key("launch", kernel_text(at.kernel), at.schedule, layouts, tuple(packed.items()), target)
    found = _compiled.get(key)
    if found is not None:
        return found
    entry = cache.get(key)
    if entry is not None:
        artifact = backend.Artifact.from_meta(entry.meta, entry.payload)
    else:
        artifact = backend.render(at.program(), target, at.schedule.threads)
        cache.put(key, artifact.code, artifact.meta())
    made = (driver.load(artifact), at.schedule.to_json())
    _compiled[key] = made
    return made
