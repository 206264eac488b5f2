"""The register block against NumPy: shapes, element types, edges, strides."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tilewright.errors import UnsupportedError, VerifyError
from tilewright.ir.scheduled.core import (
    Alloc,
    Buffer,
    For,
    Micro,
    Operand,
    ParFor,
    Program,
    Store,
    add,
    const,
    dense,
    dim,
    fresh,
    mul,
    stride,
    var,
)
from tilewright.ir.types import DType, bf16, f16, f32, f64, i8, i32, u8
from tilewright.targets.llvm import jit
from tilewright.targets.llvm.atoms import choose
from tilewright.targets.llvm.description import describe
from tilewright.targets.llvm.render import render

from .render_support import AVAILABLE, TARGETS, check

K = dim("K")


def block(
    rows: int,
    vectors: int,
    width: int,
    acc: DType,
    a: DType,
    b: DType,
    *,
    init: bool,
    valid: bool,
    transposed: bool = False,
    prefetch: int = 0,
) -> Program:
    """o[rows, cols] (+)= a @ b, with rows of o three elements longer than they need be."""
    cols = vectors * width
    p = fresh("p")
    x = Buffer("a", a, "arg", (const(rows), K), (1, rows) if transposed else (stride("a", 0), 1))
    w = Buffer("b", b, "arg", (K, const(cols)), (cols, 1))
    o = Buffer("o", acc, "arg", (const(rows), const(cols + 3)), (cols + 3, 1))
    left = Operand(x, const(0), 1, rows) if transposed else Operand(x, const(0), stride("a", 0), 1)
    micro = Micro(
        Operand(o, const(0), cols + 3),
        left,
        Operand(w, const(0), cols),
        K,
        rows,
        cols,
        width,
        init,
        dim("V") if valid else None,
        prefetch,
    )
    return Program("micro", (x, w, o), ("o",), ("K", "V"), (("a", 0),), (), (ParFor((p,), (const(1),), (micro,)),))


def numbers(dtype: DType, shape: tuple[int, ...], seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    return rng.integers(-100 if dtype.kind == "i" else 0, 100, shape).astype(dtype.numpy)


TYPES = (
    (f32, f32, f32),
    (f64, f64, f64),
    (f32, bf16, bf16),
    (f32, f16, f16),
    (f32, f32, bf16),
    (i32, i8, i8),
    (i32, u8, i8),
)


@pytest.mark.parametrize("acc, a, b", TYPES, ids=lambda d: str(d))
@pytest.mark.parametrize("rows, vectors, width", ((1, 1, 16), (3, 2, 8), (6, 2, 4), (8, 3, 16)))
def test_shapes_and_types(rows: int, vectors: int, width: int, acc: DType, a: DType, b: DType) -> None:
    cols = rows and vectors * width
    for init, transposed in ((True, False), (False, True)):
        program = block(rows, vectors, width, acc, a, b, init=init, valid=False, transposed=transposed)
        for depth in (0, 1, 4, 7, 37):
            left, right = numbers(a, (rows, depth), 1), numbers(b, (depth, cols), 2)
            start = numbers(acc, (rows, cols + 3), 3)
            x = np.asfortranarray(left) if transposed else left
            arrays = {"a": x, "b": right, "o": start}
            out = check(program, arrays, {"K": depth, "V": cols}, exact=False)["o"]
            wanted = left.astype("d") @ right.astype("d") + (0 if init else start[:, :cols].astype("d"))
            np.testing.assert_allclose(out[:, :cols].astype("d"), wanted, rtol=1e-4, atol=1e-4)
            np.testing.assert_array_equal(out[:, cols:], start[:, cols:])


@pytest.mark.parametrize("acc, b", ((f32, f32), (f64, f64), (f32, bf16), (i32, i8)), ids=lambda d: str(d))
def test_columns_beyond_the_edge_are_not_touched(acc: DType, b: DType) -> None:
    program = block(4, 2, 8, acc, b, b, init=False, valid=True)
    for valid in (0, 1, 7, 8, 13, 16, 99):
        arrays = {"a": numbers(b, (4, 11), 1), "b": numbers(b, (11, 16), 2), "o": numbers(acc, (4, 19), 3)}
        check(program, arrays, {"K": 11, "V": valid}, exact=False)


def test_prefetching_changes_nothing() -> None:
    program = block(4, 2, 16, f32, f32, f32, init=True, valid=False, prefetch=8)
    arrays = {"a": numbers(f32, (4, 21), 1), "b": numbers(f32, (21, 32), 2), "o": np.zeros((4, 35), "f")}
    check(program, arrays, {"K": 21, "V": 32}, exact=False)


def test_packed_panels_in_local_memory() -> None:
    """A product of any size: b is packed a panel at a time, rows of a are read where they are."""
    m, n = 24, 64
    a, b = dense("a", f32, "arg", (const(m), K)), dense("b", f32, "arg", (K, const(n)))
    o, panel = dense("o", f32, "arg", (const(m), const(n))), dense("panel", f32, "local", (K, const(32)))
    p, k, c, r = fresh("p"), fresh("k"), fresh("c"), fresh("r")
    first = mul(var(p), 32)
    pack = For(
        k,
        const(0),
        K,
        (
            For(
                c,
                const(0),
                const(32),
                (Store(panel, (var(k), var(c)), b.load(var(k), add(first, var(c)))),),
                kind="vector",
                width=16,
            ),
        ),
    )
    at = mul(var(r), 8)
    rows = For(
        r,
        const(0),
        const(3),
        (
            Micro(
                Operand(o, add(mul(at, n), first), n),
                Operand(a, mul(at, K), K),
                Operand(panel, const(0), 32),
                K,
                8,
                32,
                16,
                True,
            ),
        ),
    )
    program = Program(
        "panels", (a, b, o), ("o",), ("K",), (), (), (ParFor((p,), (const(2),), (Alloc(panel), pack, rows)),)
    )
    for depth in (1, 50):
        arrays = {"a": numbers(f32, (m, depth), 1), "b": numbers(f32, (depth, n), 2), "o": np.zeros((m, n), "f")}
        check(program, arrays, {"K": depth}, exact=False)


def test_accumulators_stay_in_registers() -> None:
    """The k loop of each level's full block: one load per vector of b, nothing on the stack."""
    for level, rows, vectors in (("avx512", 9, 3), ("avx2", 4, 3), ("avx2", 6, 2)):
        if level not in AVAILABLE:
            continue
        target = describe(level)
        width = target.lanes(32)
        program = block(rows, vectors, width, f32, f32, f32, init=False, valid=False)
        blocks = re.split(r"\n(?=\.LBB)", jit.assembly(render(program, target), target))
        loop = max(blocks, key=lambda text: text.count("vfmadd")).split("\n\tj")[0]
        assert loop.count("vfmadd") == 4 * rows * vectors
        assert "rsp" not in loop
        assert len(re.findall(r"\tvmov\w+\s[^\n]*, \d*\(", loop)) == 0  # nothing is stored
        assert len(re.findall(r"\tvmovup\w\s+[-\d]*\(", loop)) <= 4 * vectors


def test_wrong_blocks_are_refused() -> None:
    program = block(2, 1, 16, f32, f32, f32, init=True, valid=False)
    micro = program.body[0].body[0]
    x = dense("x", f32, "arg", (K, K))
    for bad in (
        Micro(micro.acc, micro.a, Operand(x, const(0), 1, K), K, 2, 16, 16),
        Micro(micro.acc, micro.a, micro.b, K, 2, 17, 16),
    ):
        p = fresh("p")
        wrong = Program(
            "wrong", (*program.buffers, x), (), ("K",), (("a", 0),), (), (ParFor((p,), (const(1),), (bad,)),)
        )
        with pytest.raises(VerifyError):
            render(wrong, TARGETS[0])


def test_atoms_are_chosen_by_types_and_features() -> None:
    assert choose(f32, bf16, f32, 1, 16, frozenset({"fma"})).semantics == "fma(a, b, acc)"
    assert choose(f32, f32, f32, 1, 16, frozenset()).semantics == "add(acc, mul(a, b))"
    assert choose(i32, i8, u8, 1, 16, frozenset()).name == "integer multiply, add"
    assert choose(f32, bf16, bf16, 2, 16, frozenset({"fma", "avx512bf16"})).name == "pairs of bf16"
    with pytest.raises(UnsupportedError, match="accumulates products in bf16"):
        choose(bf16, bf16, bf16, 1, 16, frozenset())
    with pytest.raises(UnsupportedError, match="takes 4 products of i8 and i8 at once into i32"):
        choose(i32, i8, i8, 4, 16, frozenset({"avx512vnni"}))
