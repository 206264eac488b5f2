"""The most this machine was seen to do: arithmetic per element type, and memory bandwidth.

Data sheets lie about clocks, virtual machines about everything, so "fraction of peak" is always taken of what small
native kernels reached here a moment ago: chains of independent multiply-adds that never leave the registers, and
passes over a buffer far larger than the caches. The best of a few short runs counts, for a peak is an upper bound.
Results are kept in the cache directory, per machine, and measured again on request.
"""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..evidence import Evidence
from .cache import default_root
from .machine import Machine, host

_HOW = "tilewright doctor --refresh"
_CHAINS = 12  # more than latency x issue width of any core we know, and few enough for sixteen registers
_FORMAT = 1
_REPEATS = 8
_SLICE_SECONDS = 0.03

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class Peaks:
    """Measured peaks by name: `f32`, `f64`, `bf16`, `f16`, `i8` (operations, a multiply-add counts two), `read` and
    `copy` (bytes moved; a copy moves each byte twice). `single` is of one thread, `all` of `threads` threads."""

    fingerprint: str
    threads: int
    single: dict[str, Evidence]
    all: dict[str, Evidence]

    def get(self, name: str, threads: int | None = None) -> Evidence | None:
        """The peak for a number of threads. Between one and all it is interpolated, and labelled as an estimate."""
        one, every = self.single.get(name), self.all.get(name)
        if one is None or every is None or threads is None or threads >= self.threads:
            return every
        if threads <= 1:
            return one
        share = (threads - 1) / (self.threads - 1)
        value = one.value + (every.value - one.value) * share
        return Evidence(value, one.unit, "estimated", f"interpolated to {threads} threads from {_HOW}")

    def to_json(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "fingerprint": self.fingerprint,
            "threads": self.threads,
            "single": {k: v.to_json() for k, v in self.single.items()},
            "all": {k: v.to_json() for k, v in self.all.items()},
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Peaks:
        tables = [{str(k): Evidence(**v) for k, v in data[name].items()} for name in ("single", "all")]
        return cls(str(data["fingerprint"]), int(data["threads"]), tables[0], tables[1])


_known: Peaks | None = None
_lock = threading.Lock()


def peaks(refresh: bool = False, progress: Progress | None = None) -> Peaks:
    """This machine's peaks: from memory, else from the cache directory, else measured now (a few seconds).
    `progress(what, done, total)` is called before each measurement."""
    global _known
    with _lock:
        if _known is None and not refresh:
            _known = _load(host())
        if _known is None or refresh:
            _known = measure(host(), progress)
            _store(_known)
        return _known


def known() -> Peaks | None:
    """The peaks if they were measured before; never measures."""
    return _known or _load(host())


def measure(machine: Machine, progress: Progress | None = None) -> Peaks:
    kernels = _arithmetic(machine)
    names = [k.name for k in kernels] + ["read", "copy"]
    threads = max(1, machine.usable_physical_cores)
    module = _compile("\n".join([*(k.text for k in kernels), _memory_text(machine.vector_bits)]), machine)
    buffers = _Buffers(machine, threads)
    tables: tuple[dict[str, Evidence], dict[str, Evidence]] = ({}, {})
    steps = [(name, table, count) for name in names for table, count in zip(tables, (1, threads))]
    by_name = {k.name: k for k in kernels}
    for index, (name, table, count) in enumerate(steps):
        if progress is not None:
            progress(name, index, len(steps))
        if count == 1 and table is tables[1]:
            table[name] = tables[0][name]
        elif name in by_name:
            rate = _arithmetic_rate(module, by_name[name], count)
            table[name] = Evidence(rate / 1e9, "GOP/s" if name == "i8" else "GFLOP/s", "measured", _HOW)
        else:
            table[name] = Evidence(_memory_rate(module, name, buffers, count) / 1e9, "GB/s", "measured", _HOW)
    if progress is not None:
        progress("done", len(steps), len(steps))
    return Peaks(machine.fingerprint, threads, *tables)


# ---------------------------------------------------------------- kernels, as LLVM IR


@dataclass(frozen=True, slots=True)
class _Kernel:
    name: str
    text: str
    ops_per_iteration: int


def _arithmetic(machine: Machine) -> list[_Kernel]:
    """The kernels this machine has instructions for. AMX is not among them: its tiles need set-up of their own."""
    bits = machine.vector_bits
    fma = machine.has("fma") or not machine.triple.startswith("x86_64")
    kernels = [_fma_kernel("f32", "float", bits // 32, fused=fma), _fma_kernel("f64", "double", bits // 64, fused=fma)]
    if machine.has("avx512fp16"):
        kernels.append(_fma_kernel("f16", "half", 32, fused=True))
    elif machine.has("fullfp16"):
        kernels.append(_fma_kernel("f16", "half", 8, fused=True))
    if machine.has("avx512bf16"):
        wide = ("<16 x float>", "<32 x bfloat>", "<32 x bfloat>")
        kernels.append(_dot_kernel("bf16", "llvm.x86.avx512bf16.dpbf16ps.512", wide, 64))
    if machine.has("avx512vnni"):
        kernels.append(_dot_kernel("i8", "llvm.x86.avx512.vpdpbusd.512", ("<16 x i32>", "<64 x i8>", "<64 x i8>"), 128))
    elif machine.has("avxvnni"):
        kernels.append(_dot_kernel("i8", "llvm.x86.avx512.vpdpbusd.256", ("<8 x i32>", "<32 x i8>", "<32 x i8>"), 64))
    elif machine.has("dotprod"):
        narrow = ("<4 x i32>", "<16 x i8>", "<16 x i8>")
        kernels.append(_dot_kernel("i8", "llvm.aarch64.neon.sdot.v4i32.v16i8", narrow, 32))
    return kernels


def _fma_kernel(name: str, element: str, lanes: int, *, fused: bool) -> _Kernel:
    vector = f"<{lanes} x {element}>"
    letters = {"float": "f32", "double": "f64", "half": "f16"}[element]
    call = f"llvm.{'fma' if fused else 'fmuladd'}.v{lanes}{letters}"
    step = f"call {vector} @{call}({vector} %x, {vector} %y, {vector} {{acc}})"
    declare = f"declare {vector} @{call}({vector}, {vector}, {vector})"
    return _Kernel(name, declare + "\n" + _chain_text(name, (vector, vector, vector), step), 2 * lanes * _CHAINS)


def _dot_kernel(name: str, intrinsic: str, types: tuple[str, str, str], ops: int) -> _Kernel:
    acc, left, right = types
    step = f"call {acc} @{intrinsic}({acc} {{acc}}, {left} %x, {right} %y)"
    declare = f"declare {acc} @{intrinsic}({acc}, {left}, {right})"
    return _Kernel(name, declare + "\n" + _chain_text(name, types, step), ops * _CHAINS)


def _chain_text(name: str, types: tuple[str, str, str], step: str) -> str:
    """A loop over independent chains of one instruction. Operands come from memory and results go there, so that
    nothing can be computed ahead or left out."""
    acc, left, right = types
    chains = range(_CHAINS)
    phis = "\n".join(f"  %a{i} = phi {acc} [ %s{i}, %entry ], [ %n{i}, %loop ]" for i in chains)
    steps = "\n".join(f"  %n{i} = " + step.format(acc=f"%a{i}") for i in chains)
    starts = "\n".join(
        f"  %q{i} = getelementptr {acc}, ptr %out, i64 {i}\n  %s{i} = load {acc}, ptr %q{i}, align 8" for i in chains
    )
    stores = "\n".join(f"  store {acc} %n{i}, ptr %q{i}, align 8" for i in chains)
    return f"""
define void @peak_{name}(ptr %in, ptr %out, i64 %count) {{
entry:
  %x = load {left}, ptr %in, align 8
  %p = getelementptr {left}, ptr %in, i64 1
  %y = load {right}, ptr %p, align 8
{starts}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{phis}
{steps}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %exit
exit:
{stores}
  ret void
}}
"""


def _memory_text(bits: int) -> str:
    """`peak_read(from, to, bytes)` adds up what it reads; `peak_copy` writes past the caches, as a fast copy does."""
    lanes, unroll = bits // 64, 8
    vector, width = f"<{lanes} x i64>", bits // 8
    phis = "\n".join(f"  %a{j} = phi {vector} [ zeroinitializer, %entry ], [ %n{j}, %loop ]" for j in range(unroll))
    loads = "\n".join(
        f"  %o{j} = add i64 %i, {j * width}\n  %p{j} = getelementptr i8, ptr %from, i64 %o{j}\n"
        f"  %v{j} = load {vector}, ptr %p{j}, align {width}"
        for j in range(unroll)
    )
    adds = "\n".join(f"  %n{j} = add {vector} %a{j}, %v{j}" for j in range(unroll))
    sums = "\n".join(f"  %t{j} = add {vector} %{'n0' if j == 1 else f't{j - 1}'}, %n{j}" for j in range(1, unroll))
    writes = "\n".join(
        f"  %w{j} = getelementptr i8, ptr %to, i64 %o{j}\n"
        f"  store {vector} %v{j}, ptr %w{j}, align {width}, !nontemporal !0"
        for j in range(unroll)
    )
    loop = f"""  %next = add i64 %i, {unroll * width}
  %more = icmp ult i64 %next, %bytes
  br i1 %more, label %loop, label %exit"""
    head = "ptr %from, ptr %to, i64 %bytes) {\nentry:\n  br label %loop\nloop:"
    index = "  %i = phi i64 [ 0, %entry ], [ %next, %loop ]"
    return f"""
define void @peak_read({head}
{index}
{phis}
{loads}
{adds}
{loop}
exit:
{sums}
  store {vector} %t{unroll - 1}, ptr %to, align 8
  ret void
}}
define void @peak_copy({head}
{index}
{loads}
{writes}
{loop}
exit:
  ret void
}}
!0 = !{{i32 1}}
"""


# ---------------------------------------------------------------- running them


class _Module:
    """Compiled kernels; keeps the engine alive as long as their addresses are used."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def function(self, name: str) -> Callable[[int, int, int], None]:
        # ctypes lets go of Python's lock during the call: threads run truly at once.
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)
        return kind(self._engine.get_function_address(name))


def _compile(text: str, machine: Machine) -> _Module:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(text)
    module.verify()
    target = llvm.Target.from_triple(machine.triple)
    settings = {"cpu": machine.llvm_cpu, "features": machine.feature_string, "opt": 2}
    engine = llvm.create_mcjit_compiler(module, target.create_target_machine(**settings))
    engine.finalize_object()
    return _Module(engine)


def _run_threads(jobs: list[Callable[[], None]]) -> float:
    """Seconds from when all threads stand ready until the last has finished."""
    if len(jobs) == 1:
        start = time.perf_counter()
        jobs[0]()
        return time.perf_counter() - start
    barrier = threading.Barrier(len(jobs))
    spans: list[tuple[float, float]] = []

    def work(job: Callable[[], None]) -> None:
        barrier.wait()
        start = time.perf_counter()
        job()
        spans.append((start, time.perf_counter()))

    threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return max(end for _, end in spans) - min(start for start, _ in spans)


def _arithmetic_rate(module: _Module, kernel: _Kernel, threads: int) -> float:
    """Operations per second over all threads."""
    function = module.function(f"peak_{kernel.name}")
    areas = [_operands(kernel.name) for _ in range(threads)]
    outs = [np.zeros(64 * (_CHAINS + 2), np.uint8) for _ in range(threads)]

    def jobs(count: int) -> list[Callable[[], None]]:
        return [
            lambda i=i: function(areas[i].ctypes.data, outs[i].ctypes.data, count)  # type: ignore[misc]
            for i in range(threads)
        ]

    count = 1 << 12
    while (seconds := _run_threads(jobs(count)[:1])) < _SLICE_SECONDS / 8:
        count *= 4
    count = max(1, int(count * _SLICE_SECONDS / seconds))
    best = min(_run_threads(jobs(count)) for _ in range(_REPEATS))
    return kernel.ops_per_iteration * count * threads / best


def _operands(name: str) -> np.ndarray[Any, Any]:
    """Two vectors of ordinary numbers: multiplying zeros draws less power, and some chips would clock higher."""
    rng = np.random.default_rng(5)
    if name == "i8":
        return rng.integers(-128, 128, 128, np.int8)
    import ml_dtypes  # takes up to half a second to import, which most runs need not pay

    kinds: dict[str, Any] = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
    return rng.uniform(-1, 1, 64).astype(kinds[name])


class _Buffers:
    """Two areas well beyond the last cache, aligned to pages, written once so that the memory exists."""

    def __init__(self, machine: Machine, threads: int) -> None:
        size = min(max(4 * machine.l3_bytes, 64 << 20), 256 << 20)
        self.bytes_per_thread = size // threads // 4096 * 4096
        self.total = self.bytes_per_thread * threads
        self.source, self._keep_source = self._aligned()
        self.target, self._keep_target = self._aligned()

    def _aligned(self) -> tuple[int, np.ndarray[Any, Any]]:
        area = np.ones(self.total + 4096, np.uint8)
        return (area.ctypes.data + 4095) // 4096 * 4096, area


def _memory_rate(module: _Module, name: str, buffers: _Buffers, threads: int) -> float:
    """Bytes per second over all threads; a copy counts both the bytes read and those written."""
    function = module.function(f"peak_{name}")
    part = buffers.total // threads // 4096 * 4096

    def jobs() -> list[Callable[[], None]]:
        return [
            lambda at=i * part: function(buffers.source + at, buffers.target + at, part)  # type: ignore[misc]
            for i in range(threads)
        ]

    best = min(_run_threads(jobs()) for _ in range(_REPEATS))
    return (2 if name == "copy" else 1) * part * threads / best


# ---------------------------------------------------------------- kept on disk


def _file(fingerprint: str) -> str:
    return os.path.join(default_root(), f"peaks-{fingerprint}.json")


def _load(machine: Machine) -> Peaks | None:
    try:
        with open(_file(machine.fingerprint), encoding="utf-8") as file:
            data = json.load(file)
        if data["format"] != _FORMAT or data["fingerprint"] != machine.fingerprint:
            return None
        return Peaks.from_json(data)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # not there, or damaged: measuring again is the cure


def _store(found: Peaks) -> None:
    """Written whole or not at all; where it cannot be written, the next process measures again."""
    path = _file(found.fingerprint)
    tmp = f"{path}.{os.getpid()}.tmp"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(tmp, "w", encoding="utf-8") as file:
            json.dump(found.to_json(), file, indent=1)
        os.replace(tmp, path)
    except OSError:
        try:
            os.unlink(tmp)
        except OSError:
            pass
