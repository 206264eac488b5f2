"""From a call's arguments to compiled code: the specialisation key, the pipeline, the compile cache.

Code is made for what the key says (element types, ranks, layout classes, the rough size of every dim, static values)
and reads everything else at run time: it is right for every call with this key, and its schedule fits them about.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .arrays import ArrayInfo
from .results import Output, outputs_of

if TYPE_CHECKING:
    from ..ir.scheduled.core import Program
    from ..ir.tile.core import Kernel
    from ..schedule.facts import Facts, Layout
    from ..schedule.schedule import Schedule
    from ..targets.description import TargetDescription
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
        tuple((n, type(v).__name__, repr(v)) for n, v in static.items()),
        threads,
    )


# ---------------------------------------------------------------------------------------------- the pipeline


@dataclass(frozen=True, slots=True)
class Stages:
    """A kernel at every level."""

    kernel: Kernel
    facts: Facts
    target: TargetDescription
    schedule: Schedule
    program: Program


def parse(fn: Callable[..., Any], spec: Mapping[str, Any]) -> Kernel:
    from ..lang.parse import parse_kernel

    return parse_kernel(fn, spec)


def build(fn: Callable[..., Any], spec: Mapping[str, Any], key: Specialisation) -> Stages:
    """Tile IR -> schedule -> Scheduled IR."""
    from ..passes.lower import lower
    from ..schedule.first import first_schedule
    from ..targets.llvm import backend

    kernel = parse(fn, spec)
    target = backend.describe()
    facts = _facts(kernel, key)
    schedule = first_schedule(kernel, facts, target)
    return Stages(kernel, facts, target, schedule, lower(kernel, schedule, facts, target))


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
    """Code in this process, what it makes, and its schedule as a line of JSON."""

    executable: Executable
    outputs: tuple[Output, ...]
    schedule: str


def compiled(fn: Callable[..., Any], spec: Mapping[str, Any], key: Specialisation) -> Compiled:
    """From the compile cache, or made now."""
    from ..lang.source import source_key
    from ..targets.llvm import backend, driver
    from .cache import CompileCache

    cache = _cache(CompileCache)
    name = cache.key("kernel", source_key(fn), key, backend.describe())
    entry = cache.get(name)
    if entry is not None:
        artifact = backend.Artifact.from_meta(entry.meta["artifact"], entry.payload)
        outputs = tuple(Output.from_meta(o) for o in entry.meta["outputs"])
        return Compiled(driver.load(artifact), outputs, entry.meta["schedule"])
    stages = build(fn, spec, key)
    artifact = backend.render(stages.program, stages.target, stages.schedule.threads)
    outputs, schedule = outputs_of(stages.kernel), stages.schedule.to_json()
    cache.put(
        name,
        artifact.code,
        {"artifact": artifact.meta(), "outputs": [o.meta() for o in outputs], "schedule": schedule},
    )
    return Compiled(driver.load(artifact), outputs, schedule)


_caches: dict[str, Any] = {}


def _cache(make: Callable[[], Any]) -> Any:
    """One cache object per directory: it looks at its directory once."""
    from .cache import default_root

    root = str(default_root())
    if root not in _caches:
        _caches[root] = make()
    return _caches[root]
