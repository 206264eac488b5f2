"""The host CPU as the shared passes see it, and the same host restricted to a lower x86-64 level.

A level is what a large group of processors has in common. The host's own description adds every feature LLVM finds;
`describe(level)` uses the level's features alone, so that what it makes runs on any processor of that level.
"""

from __future__ import annotations

from functools import lru_cache

from ...errors import UnsupportedError
from ...ir.types import ALL_DTYPES
from ...runtime import machine
from ..description import TargetDescription
from . import atoms

LEVELS = ("sse4.2", "avx2", "avx512")

_SSE42 = (
    "64bit", "cmov", "cx8", "cx16", "fxsr", "mmx", "sahf", "popcnt", "sse", "sse2", "sse3", "ssse3", "sse4.1", "sse4.2",
)  # fmt: skip
_AVX2 = (*_SSE42, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
_AVX512 = (*_AVX2, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
_FEATURES = {"sse4.2": _SSE42, "avx2": _AVX2, "avx512": _AVX512}
_CPU = {"sse4.2": "x86-64-v2", "avx2": "x86-64-v3", "avx512": "x86-64-v4"}
#: bits of a vector register, number of registers
_REGISTERS = {"sse4.2": (128, 16), "avx2": (256, 16), "avx512": (512, 32)}
#: Without this LLVM splits 512-bit vectors in two on processors whose clock once dropped for them.
_TUNING = "-prefer-256-bit,-prefer-128-bit"


@lru_cache(maxsize=1)
def host_description() -> TargetDescription:
    """The machine this process runs on, with everything it can do."""
    host = machine.host()
    return _make(host_level(), host.llvm_cpu, f"{host.feature_string},{_TUNING}")


@lru_cache(maxsize=8)
def describe(level: str) -> TargetDescription:
    """This machine, using the features of `level` ('sse4.2', 'avx2' or 'avx512') and no others."""
    if level not in LEVELS:
        raise UnsupportedError(f"unknown x86-64 level '{level}'", hint=f"one of {', '.join(LEVELS)}")
    if LEVELS.index(level) > LEVELS.index(host_level()):
        raise UnsupportedError(f"this machine cannot run {level} code: it has {host_level()}")
    features = ",".join(f"+{f}" for f in _FEATURES[level])
    return _make(level, _CPU[level], f"{features},{_TUNING}")


@lru_cache(maxsize=1)
def host_level() -> str:
    """The highest level all of whose features the host has."""
    host = machine.host()
    if not host.triple.startswith(("x86_64", "amd64")):
        raise UnsupportedError(f"the LLVM target has no description of '{host.triple}' yet", hint="x86-64 works")
    on = {name for name, enabled in host.features if enabled}
    best = [level for level in LEVELS if on.issuperset(set(_FEATURES[level]) - {"64bit", "xsave", "mmx"})]
    if not best:
        raise UnsupportedError("this processor has no SSE4.2, which is the least that generated code needs")
    return best[-1]


@lru_cache(maxsize=64)
def features_of(description: TargetDescription) -> frozenset[str]:
    """The features that are switched on in a description of this family."""
    return frozenset(f[1:] for f in description.features.split(",") if f.startswith("+"))


def _make(level: str, cpu: str, features: str) -> TargetDescription:
    host = machine.host()
    bits, registers = _REGISTERS[level]
    switched_on = frozenset(f[1:] for f in features.split(",") if f.startswith("+"))
    return TargetDescription(
        name=f"x86_64-{level}",
        family="llvm",
        vector_bits=bits,
        vector_registers=registers,
        masked=level == "avx512",
        cores=host.usable_physical_cores,
        l1=host.l1d_bytes,
        l2=host.l2_bytes // max(1, host.l2_sharers),
        l3=host.l3_bytes_per_core,
        triple=host.triple,
        cpu=cpu,
        features=features,
        dtypes=tuple(d.name for d in ALL_DTYPES),
        products=atoms.products(switched_on, bits),
    )
