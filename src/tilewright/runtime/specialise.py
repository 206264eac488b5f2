"""From a call's arguments to compiled code: the specialisation key, the pipeline, the compile cache.

Code is made for what the key says (element types, ranks, layout classes, the rough size of every dim, static values)
and reads everything else at run time: it is right for every call with this key, and its schedule fits them about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from .arrays import ArrayInfo
from .cache import CompileCache, default_root
from .results import Output, outputs_of
from .stages import Stages, stages

if TYPE_CHECKING:
    from ..ir.tile.core import Kernel
    from ..lang.parse import ParsedKernel
    from ..schedule.facts import Facts, Layout
    from ..targets.llvm.driver import Executable

_FINE_LIMIT = 1024  # below it, dims are told apart by powers of two; above, by powers of four


@dataclass(frozen=True, slots=True)
class Specialisation:
    """`tensors`: (name, dtype, rank, strides that are known, dense); `dims`: (name, representative size);
    `pinned`: dims whose exact value the code may use; `static`: (name, type, value's text) of static parameters."""

    tensors: tuple[tuple[str, str, int, tuple[int | None, ...], bool], ...]
    dims: tuple[tuple[str, int], ...]
    pinned: tuple[str, ...]
    static: tuple[tuple[str, str, str], ...]
    threads: int


def bucket(n: int) -> int:
    """The representative of sizes like this one: the next power of two, then of four."""
    if n <= 1:
        return n
    power = 1 << (n - 1).bit_length()
    if power > _FINE_LIMIT and (power.bit_length() - _FINE_LIMIT.bit_length()) % 2:
        power <<= 1
    return power


def layout_class(info: ArrayInfo) -> tuple[tuple[int | None, ...], bool]:
    """Known strides per axis (1, 0, or None for any other), and whether the array is row-major without gaps."""
    step, dense = 1, True
    for n, stride in zip(reversed(info.shape), reversed(info.strides)):
        if n != 1 and stride != step:
            dense = False
            break
        step *= n
    rank = len(info.shape)
    if dense or 0 in info.shape:
        return ((None,) * (rank - 1) + (1,) if rank else ()), True
    return tuple(s if s in (0, 1) else None for s in info.strides), False


def specialise(
    infos: Mapping[str, ArrayInfo],
    dims: Mapping[str, int],
    static: Mapping[str, Any],
    pinned: frozenset[str],
    threads: int,
) -> Specialisation:
    return Specialisation(
        tuple((n, i.dtype.name, len(i.shape), *layout_class(i)) for n, i in infos.items()),
        tuple((name, n if name in pinned else bucket(n)) for name, n in dims.items()),
        tuple(sorted(pinned & set(dims))),
        static_key(static),
        threads,
    )


def static_key(static: Mapping[str, Any]) -> tuple[tuple[str, str, str], ...]:
    """Texts, because equal values may differ in meaning: 1, 1.0 and True; 0.0 and -0.0."""
    return tuple((n, type(v).__name__, repr(v)) for n, v in static.items())


# ---------------------------------------------------------------------------------------------- the pipeline


def parse(fn: Callable[..., Any], spec: Mapping[str, Any]) -> ParsedKernel:
    from ..lang.parse import parse_kernel

    return parse_kernel(fn, spec)


def build(kernel: Kernel, key: Specialisation) -> Stages:
    """The kernel's schedule and what its program follows from."""
    from ..targets.llvm import backend

    return stages(kernel, _facts(kernel, key), backend.describe())


def _facts(kernel: Kernel, key: Specialisation) -> Facts:
    from ..schedule.facts import Facts, Layout

    given: dict[str, Layout] = {n: Layout(strides, dense) for n, _, _, strides, dense in key.tensors}
    return Facts(
        sizes=key.dims,
        static=frozenset(key.pinned),
        layouts=tuple((p.name, given.get(p.name) or Layout.row_major(p.rank)) for p in kernel.tensors),
        threads=key.threads,
    )


# ---------------------------------------------------------------------------------------------- compiled code


@dataclass(frozen=True, slots=True)
class Compiled:
    """Code in this process, what it makes (`single`: returned alone, not in a tuple), its schedule as JSON."""

    executable: Executable
    outputs: tuple[Output, ...]
    single: bool
    schedule: str


def code_name(fn: Callable[..., Any], key: Specialisation) -> str:
    """The name of the kernel's code in the compile cache."""
    from ..lang.source import source_key
    from ..targets.llvm import backend

    return cache().key("kernel", source_key(fn), key, backend.describe())


def from_cache(name: str) -> Compiled | None:
    from ..targets.llvm import backend, driver

    entry = cache().get(name)
    if entry is None:
        return None
    artifact = backend.Artifact.from_meta(entry.meta["artifact"], entry.payload)
    outputs = tuple(Output.from_meta(o) for o in entry.meta["outputs"])
    return Compiled(driver.load(artifact), outputs, entry.meta["single"], entry.meta["schedule"])


def make(parsed: ParsedKernel, key: Specialisation, name: str) -> Compiled:
    """Compiles, and keeps the code under `name`."""
    from ..targets.llvm import backend, driver

    made = build(parsed.kernel, key)
    artifact = backend.render(made.program(), made.target, made.schedule.threads)
    outputs, schedule = outputs_of(made.kernel), made.schedule.to_json()
    meta = {
        "artifact": artifact.meta(), "outputs": [o.meta() for o in outputs], "single": parsed.single,
        "schedule": schedule,
    }  # fmt: skip
    cache().put(name, artifact.code, meta)
    return Compiled(driver.load(artifact), outputs, parsed.single, schedule)


# ---------------------------------------------------------------------------------------------- pinned dims
# Some kernels use the number of a dim while they are parsed (`for r in range(R)`): such dims are pinned, and parsing
# tells which. Their names are kept per family, so that later calls know their key before parsing. The set of a family
# only grows, and code is only kept under a key in which all that it pins is exact.

#: element types and ranks of the tensors, and static values
Family: TypeAlias = "tuple[tuple[tuple[str, str, int], ...], tuple[tuple[str, str, str], ...]]"


def pinned_before(fn: Callable[..., Any], family: Family) -> frozenset[str]:
    entry = cache().get(_family_name(fn, family))
    return frozenset(entry.meta["pinned"]) if entry else frozenset()


def remember_pinned(fn: Callable[..., Any], family: Family, pinned: frozenset[str]) -> None:
    cache().put(_family_name(fn, family), b"", {"pinned": sorted(pinned)})


def _family_name(fn: Callable[..., Any], family: Family) -> str:
    from ..lang.source import source_key

    return cache().key("pinned", source_key(fn), family)


# ---------------------------------------------------------------------------------------------- the cache

_caches: dict[str, CompileCache] = {}


def cache() -> CompileCache:
    """One object per directory: it looks at its directory once."""
    root = str(default_root())
    if root not in _caches:
        _caches[root] = CompileCache(root)
    return _caches[root]
