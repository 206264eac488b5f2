"""Facts about the machine at hand that schedules, cache keys and reports are computed from.

Facts are read from the system, never measured (measuring is `runtime/peaks.py`). Everything has a sane answer on a
system that does not say: a schedule made from a typical cache size is still a good schedule.
"""

from __future__ import annotations

import math
import os
import platform
import sys
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any

#: (name shown, LLVM feature that decides), from least to most able
_X86_LEVELS = (
    ("sse4.2", "sse4.2"), ("avx", "avx"), ("f16c", "f16c"), ("fma", "fma"), ("avx2", "avx2"), ("avxvnni", "avxvnni"),
    ("avx512", "avx512f"), ("avx512vl", "avx512vl"), ("avx512vnni", "avx512vnni"), ("avx512bf16", "avx512bf16"),
    ("avx512fp16", "avx512fp16"), ("amx-bf16", "amx-bf16"), ("amx-int8", "amx-int8"), ("avx10.2", "avx10.2"),
)  # fmt: skip
_ARM_LEVELS = (
    ("neon", "neon"), ("fp16", "fullfp16"), ("dotprod", "dotprod"), ("i8mm", "i8mm"), ("bf16", "bf16"),
    ("sve", "sve"), ("sve2", "sve2"), ("sme", "sme"),
)  # fmt: skip
_OTHER_LEVELS = (("rvv", "v"), ("zvfh", "zvfh"), ("lsx", "lsx"), ("lasx", "lasx"), ("vsx", "vsx"))
_DEFAULT_CACHES = {"l1d": 32 << 10, "l2": 1 << 20, "l3": 8 << 20}


@dataclass(frozen=True, slots=True)
class Machine:
    """The host. Cache sizes are of one cache; `l2_sharers` and `l3_sharers` say how many logical cores share it."""

    cpu: str  # the name it is sold under
    triple: str
    llvm_cpu: str
    features: tuple[tuple[str, bool], ...]  # LLVM's feature names, sorted; hashable, unlike a dict
    isa: tuple[str, ...]
    vector_bits: int
    logical_cores: int
    physical_cores: int
    usable_cores: int  # what affinity and a container's quota leave to this process
    usable_physical_cores: int  # the same without second hardware threads: the default number of threads
    l1d_bytes: int
    l2_bytes: int
    l3_bytes: int
    l2_sharers: int
    l3_sharers: int

    @property
    def l3_bytes_per_core(self) -> int:
        return self.l3_bytes // max(1, self.l3_sharers)

    def has(self, feature: str) -> bool:
        """Whether LLVM reports this feature for the host."""
        return dict(self.features).get(feature, False)

    @property
    def feature_string(self) -> str:
        """The features as LLVM's target machine takes them: `+avx2,-avx512f,...`."""
        return ",".join(("+" if on else "-") + name for name, on in self.features)

    @property
    def fingerprint(self) -> str:
        """Changes when measured figures may no longer hold."""
        facts = (self.cpu, self.triple, self.llvm_cpu, self.features, self.usable_cores, self.l3_bytes)
        return sha256(repr(facts).encode()).hexdigest()[:16]

    def __str__(self) -> str:
        level = self.isa[-1] if self.isa else "baseline"
        return f"{self.cpu}, {self.usable_cores} of {self.logical_cores} cores, {self.vector_bits}-bit ({level})"

    def to_json(self) -> dict[str, Any]:
        facts = asdict(self)
        facts["features"] = [name for name, on in self.features if on]
        facts["isa"] = list(self.isa)
        return facts


@lru_cache(maxsize=1)
def host() -> Machine:
    """The machine this process runs on; read once."""
    import llvmlite.binding as llvm

    features = _features(llvm)
    on = {name for name, enabled in features if enabled}
    topology = _Topology.read()
    caches = _caches()
    return Machine(
        cpu=_cpu_name(),
        triple=llvm.get_process_triple(),
        llvm_cpu=llvm.get_host_cpu_name(),
        features=features,
        isa=_isa(on),
        vector_bits=_vector_bits(on),
        logical_cores=topology.logical,
        physical_cores=topology.physical,
        usable_cores=topology.usable,
        usable_physical_cores=topology.usable_physical,
        l1d_bytes=caches["l1d"][0],
        l2_bytes=caches["l2"][0],
        l3_bytes=caches["l3"][0],
        l2_sharers=caches["l2"][1],
        l3_sharers=caches["l3"][1],
    )


# ---------------------------------------------------------------- instruction set


def _features(llvm: Any) -> tuple[tuple[str, bool], ...]:
    try:
        return tuple(sorted((str(k), bool(v)) for k, v in llvm.get_host_cpu_features().items()))
    except RuntimeError:  # LLVM cannot tell on this system: the baseline of the architecture it is
        return ()


def _arch() -> str:
    name = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(name, name)


def _isa(on: set[str]) -> tuple[str, ...]:
    table = {"x86_64": _X86_LEVELS, "aarch64": _ARM_LEVELS}.get(_arch(), _OTHER_LEVELS)
    return tuple(name for name, feature in table if feature in on)


def _vector_bits(on: set[str]) -> int:
    """The width of the vector registers that ordinary code uses."""
    if "avx512f" in on:
        return 512
    if "avx" in on or "lasx" in on:
        return 256
    return 128


def _cpu_name() -> str:
    """The marketing name. Only the beginning of /proc/cpuinfo is read: it repeats itself for every core."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            text = file.read(4096)
    except OSError:
        text = ""
    for wanted in ("model name", "Model Name", "cpu model", "uarch", "Hardware"):
        for line in text.splitlines():
            name, _, value = line.partition(":")
            if name.strip() == wanted and value.strip():
                return " ".join(value.split())
    return platform.processor() or platform.machine() or "unknown CPU"


# ---------------------------------------------------------------- cores


@dataclass(frozen=True, slots=True)
class _Topology:
    logical: int
    physical: int
    usable: int
    usable_physical: int

    @classmethod
    def read(cls) -> _Topology:
        logical = os.cpu_count() or 1
        allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(logical))
        quota = _cpu_quota()
        usable = max(1, min(len(allowed), quota))
        if _read(Path("/sys/devices/system/cpu/smt/active")) != "1":
            return cls(logical, logical, usable, usable)
        groups = {cpu: _siblings(cpu) for cpu in range(logical)}
        physical = len(set(groups.values()))
        return cls(logical, physical, usable, max(1, min(len({groups.get(c, str(c)) for c in allowed}), quota)))


def _siblings(cpu: int) -> str:
    """A name for the physical core that a logical one belongs to: the list of its hardware threads."""
    return _read(Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")) or str(cpu)


def _cpu_quota() -> int:
    """Whole cores that a container's quota allows (rounded up); very many when there is no quota."""
    quota, _, period = _read(Path("/sys/fs/cgroup/cpu.max")).partition(" ")
    if not quota:
        quota = _read(Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"))
        period = _read(Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us"))
    try:
        share = int(quota) / int(period)
    except (ValueError, ZeroDivisionError):
        return sys.maxsize
    return max(1, math.ceil(share)) if share > 0 else sys.maxsize


# ---------------------------------------------------------------- caches


def _caches() -> dict[str, tuple[int, int]]:
    """Size in bytes and number of logical cores sharing it, of each data cache that core 0 sees."""
    found = {name: (size, 1) for name, size in _DEFAULT_CACHES.items()}
    base = Path("/sys/devices/system/cpu/cpu0/cache")
    for index in range(6):
        folder = base / f"index{index}"
        kind, level = _read(folder / "type"), _read(folder / "level")
        name = "l1d" if level == "1" else f"l{level}"
        size = _parse_size(_read(folder / "size"))
        if kind in ("Data", "Unified") and name in found and size:
            found[name] = (size, _count_cpus(_read(folder / "shared_cpu_list")))
    return found


def _parse_size(text: str) -> int:
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    digits = text.rstrip("KMG")
    return int(digits) * units.get(text[len(digits) :], 1) if digits.isdigit() else 0


def _count_cpus(text: str) -> int:
    """How many cores a list such as `0-3,8-11` names."""
    total = 0
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        total += int(last or first) - int(first) + 1
    return max(1, total)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
