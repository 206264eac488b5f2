"""Register blocks that take several steps at once: every atom the machine has, against the interpreter."""

from __future__ import annotations

import dataclasses
from itertools import product

import numpy as np
import pytest

from tilewright.ir.scheduled.core import Buffer, Micro, Operand, ParFor, Program, const, dim, floordiv, fresh, stride
from tilewright.ir.types import DType, bf16, f32, i8, i32, u8
from tilewright.passes.pack import pack
from tilewright.targets.description import TargetDescription
from tilewright.targets.llvm import atoms, jit
from tilewright.targets.llvm.description import describe, features_of, host_description, host_level
from tilewright.targets.llvm.render import render

from .render_support import check

K = dim("K")
PAIRS, QUADS = (f32, bf16, bf16, 2), ((i32, u8, i8, 4), (i32, i8, u8, 4))


def narrow() -> TargetDescription:
    """A machine with 256-bit vectors and the dot products of that width."""
    base = describe("avx2")
    features = base.features + ",+avxvnni"
    on = frozenset(f[1:] for f in features.split(",") if f.startswith("+"))
    return dataclasses.replace(base, name="x86_64-avx2-vnni", features=features, products=atoms.products(on, 256))


def machines(feature: str) -> list[TargetDescription]:
    """Descriptions of this machine that have the feature, or the reason why there are none."""
    host = host_description()
    found = [host] if feature in features_of(host) else []
    if feature == "avx512vnni" and "avxvnni" in features_of(host) and host_level() != "sse4.2":
        found.append(narrow())
    if not found:
        pytest.skip(f"this machine has no {feature}")
    return found


def block(rows: int, cols: int, width: int, types: tuple[DType, DType, DType, int], *, init: bool, valid: bool,
          bias: bool, prefetch: int = 0) -> Program:
    acc, a, b, group = types
    x = Buffer("x", a, "arg", (const(rows), K), (stride("x", 0), 1))
    w = Buffer("w", b, "arg", (floordiv(K, group), const(cols * group)), (cols * group, 1))
    more = Buffer("more", acc, "arg", (const(cols),), (1,))
    o = Buffer("o", acc, "arg", (const(rows), const(cols + 3)), (cols + 3, 1))
    zero = const(0)
    micro = Micro(Operand(o, zero, cols + 3), Operand(x, zero, stride("x", 0)), Operand(w, zero, cols * group), K, rows,
                  cols, width, init, dim("V") if valid else None, prefetch, group,
                  Operand(more, zero, 0) if bias else None)
    p = fresh("p")
    body = (ParFor((p,), (const(1),), (micro,)),)
    return Program("groups", (x, w, more, o), ("o",), ("K", "V"), (("x", 0),), (), body)


def numbers(dtype: DType, shape: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    info = np.iinfo(dtype.numpy)
    return rng.integers(info.min, info.max, shape, dtype.numpy, endpoint=True)


def trial(types: tuple[DType, DType, DType, int], targets: list[TargetDescription], rows: int, vectors: int) -> None:
    acc, a, b, group = types
    for target, (init, bias, valid) in product(targets, product((False, True), repeat=3)):
        width = target.lanes(32)
        cols = vectors * width
        program = block(rows, cols, width, types, init=init, valid=valid, bias=bias, prefetch=2 if bias else 0)
        for depth in (0, group, 5 * group, 9 * group):
            words = np.zeros((0, cols * group), b.numpy)
            if depth:
                words = pack(numbers(b, (depth, cols), 2), cols, group)[0]
            arrays = {"x": numbers(a, (rows, depth), 1), "w": words,
                      "more": numbers(acc, (cols,), 4), "o": numbers(acc, (rows, cols + 3), 3)}
            for most in (cols, cols - 3) if valid else (cols,):
                check(program, arrays, {"K": depth, "V": most}, exact=False, tolerance=1e-6, targets=[target])


@pytest.mark.parametrize("rows, vectors", ((1, 1), (4, 3), (6, 4)))
def test_pairs_of_bf16(rows: int, vectors: int) -> None:
    trial(PAIRS, machines("avx512bf16"), rows, vectors)


@pytest.mark.parametrize("types", QUADS, ids=("u8 x s8", "s8 x u8"))
@pytest.mark.parametrize("rows, vectors", ((1, 1), (4, 2)))
def test_quads_of_bytes(types: tuple[DType, DType, DType, int], rows: int, vectors: int) -> None:
    trial(types, machines("avx512vnni"), rows, vectors)


def test_bytes_at_the_ends_of_their_range_do_not_saturate() -> None:
    for target in machines("avx512vnni"):
        width = target.lanes(32)
        program = block(2, width, width, QUADS[0], init=True, valid=False, bias=False)
        for low in (-128, 127):
            arrays = {"x": np.full((2, 64), 255, np.uint8), "w": np.full((16, width * 4), low, np.int8),
                      "more": np.zeros(width, np.int32), "o": np.zeros((2, width + 3), np.int32)}
            got = check(program, arrays, {"K": 64, "V": width}, targets=[target])["o"]
            assert (got[:, :width] == 64 * 255 * low).all()


def test_infinities_and_nan_pass_through() -> None:
    (target,) = machines("avx512bf16")
    program = block(3, 16, 16, PAIRS, init=True, valid=False, bias=False)
    x, w = numbers(bf16, (3, 8), 1), numbers(bf16, (8, 16), 2)
    x[0, 3], x[1, 2], w[5, 7] = np.inf, np.nan, -np.inf
    arrays = {"x": x, "w": pack(w, 16, 2)[0], "more": np.zeros(16, "f"), "o": np.zeros((3, 19), "f")}
    check(program, arrays, {"K": 8, "V": 16}, exact=False, tolerance=1e-6, targets=[target])


@pytest.mark.parametrize("atom", [a for a in atoms.ATOMS if a.group > 1], ids=lambda a: a.name)
def test_every_atom_compiles_for_a_machine_that_has_it(atom: atoms.Atom) -> None:
    """To one instruction per product of a vector, whatever this machine can run."""
    types = next((acc, a, b, atom.group) for acc, a, b in ((f32, bf16, bf16), (i32, u8, i8), (i32, i8, u8))
                 if atom.takes(acc, a, b))
    level, bits = ("avx512", 512) if 512 in atom.bits else ("avx2", 256)
    base = host_description()
    needed = ",".join(f"+{f}" for f in sorted(atom.needs))
    features = {"avx512": "+avx512f,+avx512bw,+avx512dq,+avx512vl,+avx512cd", "avx2": ""}[level]
    target = dataclasses.replace(base, vector_bits=bits, masked=level == "avx512", cpu="x86-64-v3",
                                 features=",".join(f for f in ("+avx2,+fma,+f16c", features, needed) if f))
    width = bits // 32
    text = jit.assembly(render(block(4, 2 * width, width, types, init=False, valid=False, bias=True), target), target)
    name = "vdpbf16ps" if types[0] is f32 else "vpdpbusd"
    assert text.count(name) >= 8


def test_a_description_offers_what_its_features_give() -> None:
    wide = atoms.products(frozenset({"avx512vnni", "avx512bf16"}), 512)
    assert [(p.a, p.b, p.acc, p.group) for p in wide] == [
        ("bf16", "bf16", "f32", 2), ("u8", "i8", "i32", 4), ("i8", "u8", "i32", 4)]
    assert not atoms.products(frozenset({"avx512vnni", "avx512bf16"}), 256)
    assert [p.group for p in atoms.products(frozenset({"avxvnni"}), 256)] == [4, 4]
    for level in ("sse4.2", "avx2", "avx512")[: ("sse4.2", "avx2", "avx512").index(host_level()) + 1]:
        assert describe(level).products == ()
