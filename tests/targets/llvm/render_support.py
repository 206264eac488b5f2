"""Runs a Scheduled IR program as machine code, at every level this machine has, and compares with the interpreter."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from tilewright.interp import scheduled as oracle
from tilewright.ir.scheduled.core import Buffer, For, ParFor, Program, Stmt, Var, add, ceildiv, dim, imin, mul, var
from tilewright.ir.types import DType
from tilewright.targets.llvm import jit
from tilewright.targets.llvm.description import LEVELS, describe, host_description, host_level
from tilewright.targets.llvm.render import phase_names, render, workspace_bytes

AVAILABLE = LEVELS[: LEVELS.index(host_level()) + 1]
TARGETS = [describe(level) for level in AVAILABLE] + [host_description()]
Arrays = Mapping[str, Any]


def words(program: Program, arrays: Arrays, dims: Mapping[str, int], scalars: Mapping[str, Any]) -> Any:
    """The argument block of a call."""
    out: list[int] = [arrays[b.name].ctypes.data for b in program.buffers]
    out += [dims[d] for d in program.dims]
    for name, axis in program.strides:
        out.append(arrays[name].strides[axis] // arrays[name].itemsize)
    for name, dtype in program.scalars:
        raw = np.array(scalars[name], dtype.numpy).tobytes()
        out.append(int.from_bytes(raw, "little"))
    return (ctypes.c_uint64 * max(1, len(out)))(*(x % 2**64 for x in out))


@lru_cache(maxsize=256)
def compiled(program: Program, description: Any) -> jit.LoadedModule:
    return jit.load(jit.to_object(render(program, description), description), phase_names(program))


def execute(
    program: Program,
    description: Any,
    arrays: Arrays,
    dims: Mapping[str, int] | None = None,
    scalars: Mapping[str, Any] | None = None,
    threads: int = 1,
) -> None:
    """All phases, the threads' shares one after another, with a poisoned workspace."""
    module = compiled(program, description)
    dims, scalars = dict(dims or {}), dict(scalars or {})
    size = workspace_bytes(program)
    if not isinstance(size, int):
        size = oracle_integer(size, dims)
    scratch = np.full(size + 64, 0xFF, np.uint8)
    aligned = scratch.ctypes.data + -scratch.ctypes.data % 64
    block = words(program, arrays, dims, scalars)
    kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    for name in phase_names(program):
        for thread in range(threads):
            kind(module.address(name))(ctypes.addressof(block), thread, threads, aligned)


def oracle_integer(e: Any, dims: Mapping[str, int]) -> int:
    if e.op == "const":
        return int(e.attr)
    if e.op == "dim":
        return dims[e.attr]
    a, b = (oracle_integer(x, dims) for x in e.args)
    return {"add": a + b, "sub": a - b, "mul": a * b, "max": max(a, b), "min": min(a, b), "floordiv": a // (b or 1)}[
        e.op
    ]


def guarded(
    shape: tuple[int, ...], dtype: DType, fill: int = 0x7B
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """An array with a margin around it whose bytes tell whether anything was written outside."""
    margin = 256
    count = int(np.prod(shape)) * dtype.itemsize
    raw = np.full(count + 2 * margin, fill, np.uint8)
    return raw, raw[margin : margin + count].view(dtype.numpy).reshape(shape)


def check(
    program: Program,
    arrays: Arrays,
    dims: Mapping[str, int] | None = None,
    scalars: Mapping[str, Any] | None = None,
    exact: bool = True,
    tolerance: float = 1e-5,
    threads: int = 3,
    targets: Any = None,
    elementwise: bool = False,
) -> dict[str, np.ndarray[Any, Any]]:
    """Every target against the interpreter, whose outputs it returns; outputs in `arrays` are starting values."""
    outputs = {n: arrays[n] for n in program.outputs}
    wanted = oracle.run(program, {k: np.copy(v) if k in outputs else v for k, v in arrays.items()}, dims, scalars)
    for target in targets or TARGETS:
        mine: dict[str, Any] = dict(arrays)
        raws = {}
        for name, start in outputs.items():
            buffer = next(b for b in program.buffers if b.name == name)
            raws[name], mine[name] = guarded(start.shape, buffer.dtype)
            mine[name][...] = start
        execute(program, target, mine, dims, scalars, threads)
        for name, raw in raws.items():
            assert (raw[:256] == 0x7B).all() and (raw[-256:] == 0x7B).all(), f"{target.name} wrote outside {name}"
            compare(mine[name], wanted[name], exact, tolerance, f"{target.name} {name}", elementwise)
    return wanted


def compare(got: Any, want: Any, exact: bool, tolerance: float, what: str, elementwise: bool = False) -> None:
    assert got.dtype == want.dtype and got.shape == want.shape
    if got.dtype.kind in "biu":
        assert np.array_equal(got, want), f"{what}: {got[got != want][:5]} for {want[got != want][:5]}"
        return
    a, b = got.astype(np.float64), want.astype(np.float64)
    if exact or elementwise:
        with np.errstate(all="ignore"):
            near = np.abs(a - b) <= tolerance * np.abs(b) + 1e-300
        same = (a == b) | (np.isnan(a) & np.isnan(b)) | (near & elementwise)
        assert same.all(), f"{what}: {a[~same][:5]} for {b[~same][:5]}"
        return
    assert np.array_equal(np.isnan(a), np.isnan(b)), f"{what}: NaN in other places"
    finite = np.isfinite(b)
    assert np.array_equal(a[~finite & ~np.isnan(b)], b[~finite & ~np.isnan(b)]), f"{what}: infinities differ"
    scale = max(1e-30, np.abs(b[finite]).max(initial=0.0))
    error = np.linalg.norm((a[finite] - b[finite]) / scale) / max(np.linalg.norm(b[finite] / scale), 1e-30)
    assert error <= tolerance, f"{what}: relative error {error:.3g}"


def tiled(
    name: str,
    buffers: tuple[Buffer, ...],
    outputs: tuple[str, ...],
    i: Var,
    body: tuple[Stmt, ...],
    *,
    tile: int = 100,
    width: int = 16,
    unroll: int = 1,
    scalars: tuple[tuple[str, DType], ...] = (),
    strides: tuple[tuple[str, int], ...] = (),
) -> Program:
    """for tiles of [0, N): a vector loop of `i` over `body`."""
    p = Var("p", i.dtype, -1)
    first = mul(var(p), tile)
    loop = For(i, first, imin(dim("N"), add(first, tile)), body, kind="vector", width=width, unroll=unroll)
    return Program(
        name, buffers, outputs, ("N",), strides, scalars, (ParFor((p,), (ceildiv(dim("N"), tile),), (loop,)),)
    )


def values(dtype: DType, n: int, seed: int = 0, special: bool = True) -> np.ndarray[Any, Any]:
    """Random elements of all sizes, with the awkward ones mixed in."""
    rng = np.random.default_rng(seed)
    if dtype.is_bool:
        return rng.random(n) < 0.5
    if dtype.is_int:
        info = np.iinfo(dtype.numpy)
        out = rng.integers(info.min, info.max, n, dtype.numpy, endpoint=True)
        odd = [0, 1, 2, 7, info.max, info.min, info.max - 1] + ([-1, -2, -7] if dtype.kind == "i" else [])
    else:
        out = (rng.standard_normal(n) * 10.0 ** rng.uniform(-6, 6, n)).astype(dtype.numpy)
        odd = [
            0.0,
            -0.0,
            np.inf,
            -np.inf,
            np.nan,
            0.5,
            1.5,
            2.5,
            -2.5,
            1e-7,
            -6e-8,
            65504.0,
            65520.0,
            3e38,
            1e-40,
            2147483648.0,
        ]
    if special:
        places = rng.permutation(n)[: len(odd)]
        with np.errstate(all="ignore"):
            out[places] = np.array(odd[: len(places)]).astype(dtype.numpy)
    return out
