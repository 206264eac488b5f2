"""Casts, scalar functions, and the forms a load or a store can take."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.ir.scheduled.core import Buffer, Let, Store, add, const, dense, dim, expr, fresh, mul, stride, sub, var
from tilewright.ir.tile.core import FLOAT_ONLY, SCALAR_FNS
from tilewright.ir.types import ALL_DTYPES, DType, bf16, bool_, f16, f32, f64, i8, i32, i64, u8, u32

from .render_support import check, tiled, values

N = dim("N")
SIZES = (0, 1, 7, 16, 100, 117, 403)


def _unary(name: str, source: DType, target: DType, make, **options):
    x, o, i = dense("x", source, "arg", (N,)), dense("o", target, "arg", (N,)), fresh("i")
    return tiled(name, (x, o), ("o",), i, (Store(o, (var(i),), make(x.load(var(i)))),), **options)


@pytest.mark.parametrize("n", SIZES)
def test_vector_add_writes_exactly_its_elements(n: int) -> None:
    x, y, o = (dense(k, f32, "arg", (N,)) for k in "xyo")
    i = fresh("i")
    body = (Store(o, (var(i),), expr("add", f32, x.load(var(i)), y.load(var(i)))),)
    program = tiled("vadd", (x, y, o), ("o",), i, body)
    a, b = values(f32, n, 1), values(f32, n, 2)
    out = check(program, {"x": a, "y": b, "o": np.zeros(n, "f")}, {"N": n})["o"]
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(out, a + b)


@pytest.mark.parametrize("source", ALL_DTYPES, ids=str)
def test_cast_to_every_type(source: DType) -> None:
    x, i, n = dense("x", source, "arg", (N,)), fresh("i"), 237
    outs = tuple(dense(f"o{k}", d, "arg", (N,)) for k, d in enumerate(ALL_DTYPES))
    body = tuple(Store(o, (var(i),), expr("cast", o.dtype, x.load(var(i)))) for o in outs)
    program = tiled("casts", (x, *outs), tuple(o.name for o in outs), i, body)
    arrays = {"x": values(source, n), **{o.name: np.zeros(n, o.dtype.numpy) for o in outs}}
    check(program, arrays, {"N": n})


def test_all_f16_and_bf16_bit_patterns_survive_f32() -> None:
    bits = np.arange(65536, dtype=np.uint16)
    for d in (f16, bf16):
        program = _unary("wide", d, f32, lambda x: expr("cast", f32, x), tile=4096)
        check(program, {"x": bits.view(d.numpy), "o": np.zeros(65536, "f")}, {"N": 65536})


def test_rounding_to_16_bits_at_every_boundary() -> None:
    """Each f32 halfway between two neighbours, and just beside it."""
    for d in (f16, bf16):
        every = np.arange(0, 0x7C00 if d == f16 else 0x7F80, dtype=np.uint16).view(d.numpy).astype(np.float64)
        middle = ((every[:-1] + every[1:]) / 2).astype(np.float32)
        x = np.concatenate(
            [middle, np.nextafter(middle, np.float32(0)), np.nextafter(middle, np.float32(np.inf)), -middle]
        )
        program = _unary("narrow", f32, d, lambda x, d=d: expr("cast", d, x), tile=8192)
        check(program, {"x": x, "o": np.zeros(x.size, d.numpy)}, {"N": x.size})


_TRANSCENDENTAL = {
    "exp",
    "exp2",
    "expm1",
    "log",
    "log2",
    "log1p",
    "rsqrt",
    "recip",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "erf",
    "sigmoid",
    "pow",
    "atan2",
    "fma",
}


_TOLERANCE = {16: 1e-2, 32: 2e-7, 64: 1e-14}


def _functions(dtype: DType) -> list[str]:
    out = []
    for fn in (*SCALAR_FNS, "lshr", "rint"):
        if dtype.is_float and fn in ("and", "or", "xor", "not", "shl", "shr", "lshr"):
            continue
        if not dtype.is_float and (fn in FLOAT_ONLY or fn in ("fmod", "rint")) and fn != "fma":
            continue
        if dtype.is_bool and fn not in (
            "and",
            "or",
            "xor",
            "not",
            "max",
            "min",
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "where",
        ):
            continue
        out.append(fn)
    return out


@pytest.mark.parametrize("dtype", (f32, f64, f16, bf16, i32, i8, u8, u32, i64, bool_), ids=str)
def test_every_scalar_function(dtype: DType) -> None:
    n, i = 173, fresh("i")
    x, y, z = (dense(k, dtype, "arg", (N,)) for k in "xyz")
    a, b, c = (t.load(var(i)) for t in (x, y, z))
    exact, close = {}, {}
    for fn in _functions(dtype):
        count, kind = SCALAR_FNS.get(fn, (2 if fn == "lshr" else 1, "same"))
        result = bool_ if kind == "bool" else dtype
        operands = (expr("lt", bool_, a, b), b, c) if fn == "where" else (a, b, c)[:count]
        o = dense(f"o_{fn}", result, "arg", (N,))
        loose = fn in _TRANSCENDENTAL and fn != "fma"
        (close if loose or fn in ("floordiv", "mod") and dtype.is_float else exact)[o] = Store(
            o, (var(i),), expr(fn, result, *operands)
        )
    data = {k: values(dtype, n, s) for s, k in enumerate("xyz")}
    for outs, how in ((exact, True), (close, False)):
        if outs:
            program = tiled("fns", (x, y, z, *outs), tuple(o.name for o in outs), i, tuple(outs.values()))
            arrays = {**data, **{o.name: np.zeros(n, o.dtype.numpy) for o in outs}}
            check(program, arrays, {"N": n}, exact=how, elementwise=not how, tolerance=_TOLERANCE.get(dtype.bits, 0.0))


@pytest.mark.parametrize("divisor", (1, 3, 8, -5, 0, -1))
def test_division_by_numbers(divisor: int) -> None:
    for fn in ("floordiv", "mod", "tdiv"):
        program = _unary("divide", i32, i32, lambda x, fn=fn: expr(fn, i32, x, const(divisor, i32)))
        check(program, {"x": values(i32, 99), "o": np.zeros(99, np.int32)}, {"N": 99})


def test_strided_reversed_broadcast_and_scalar_arguments() -> None:
    n, i = 131, fresh("i")
    x = Buffer("x", f32, "arg", (N,), (stride("x", 0),))
    r = Buffer("r", f32, "arg", (N,), (-1,))
    c = Buffer("c", f32, "arg", (N,), (0,))
    s = expr("param", f32, attr="s")
    o = dense("o", f32, "arg", (N,))
    total = x.load(var(i))
    for part in (r.load(var(i)), c.load(var(i)), s):
        total = expr("add", f32, total, part)
    program = tiled(
        "strided", (x, r, c, o), ("o",), i, (Store(o, (var(i),), total),), scalars=(("s", f32),), strides=(("x", 0),)
    )
    data = np.random.default_rng(0).standard_normal((n, 3)).astype("f")
    for x_array in (data[:, 1], data[::-1, 2]):
        arrays = {
            "x": x_array,
            "r": data[:, 0].copy()[::-1],
            "c": np.broadcast_to(data[:1, 0], (n,)),
            "o": np.zeros(n, "f"),
        }
        check(program, arrays, {"N": n}, {"s": 2.5})


def test_store_with_steps_masks_and_gather_by_index() -> None:
    n, i = 77, fresh("i")
    x, k = dense("x", f32, "arg", (N,)), dense("k", i32, "arg", (N,))
    o, q = dense("o", f32, "arg", (mul(N, 3),)), dense("q", f32, "arg", (N,))
    where = expr("cast", i64, k.load(var(i)))
    keep = expr("gt", bool_, x.load(var(i)), const(0.0, f32))
    even = expr("eq", bool_, expr("mod", i64, var(i), const(2)), const(0))
    inside = expr("lt", bool_, where, N)
    body = (
        Let(v := fresh("v", f32), x.load_if(inside, const(-7.0, f32), where)),
        Store(o, (add(mul(var(i), 3), 1),), expr("add", f32, var(v), x.load(var(i))), keep),
        Store(q, (sub(sub(N, 1), var(i)),), x.load(var(i)), even),
    )
    program = tiled("forms", (x, k, o, q), ("o", "q"), i, body)
    rng = np.random.default_rng(3)
    arrays = {
        "x": rng.standard_normal(n).astype("f"),
        "k": rng.integers(0, 2 * n, n).astype(np.int32),
        "o": np.zeros(3 * n, "f"),
        "q": np.zeros(n, "f"),
    }
    check(program, arrays, {"N": n})


@pytest.mark.parametrize("dtype", (f32, i8, bool_, bf16), ids=str)
def test_a_guard_keeps_loads_inside_the_array(dtype: DType) -> None:
    """A row of a padded convolution: neighbours outside are zero and are not touched."""
    n, i = 61, fresh("i")
    x, o = dense("x", dtype, "arg", (N,)), dense("o", dtype, "arg", (N,))
    at = sub(var(i), 20)
    inside = expr("and", bool_, expr("ge", bool_, at, const(0)), expr("lt", bool_, at, N))
    program = tiled("pad", (x, o), ("o",), i, (Store(o, (var(i),), x.load_if(inside, const(0, dtype), at)),), width=32)
    check(program, {"x": values(dtype, n), "o": np.zeros(n, dtype.numpy)}, {"N": n})
