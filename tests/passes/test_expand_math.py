"""The maths expansions against float64, over all exponents, at special values, products contracted or not."""

from __future__ import annotations

import importlib.util
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from tilewright.errors import UnsupportedError
from tilewright.interp import scalar
from tilewright.interp.scheduled import run
from tilewright.ir.scheduled.core import Expr, For, ParFor, Program, Store, const, dense, dim, expr, fresh, var
from tilewright.ir.scheduled.parser import parse_program
from tilewright.ir.scheduled.printer import program_text
from tilewright.ir.scheduled.verify import verify
from tilewright.ir.types import DType, bf16, bool_, f16, f32, f64, i8, i32, i64, u8
from tilewright.passes import math_constants
from tilewright.passes.expand_math import expand, expand_expr
from tilewright.targets.description import TargetDescription
from tilewright.targets.llvm import backend, driver
from tilewright.targets.llvm.description import LEVELS, describe


def _load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


support = _load("expand_support")

PRIMITIVES = frozenset(
    "const var add sub mul div fma neg abs sqrt floor ceil trunc rint max min where eq ne lt le gt ge and or xor not "
    "shl shr lshr cast bitcast".split()
)
TARGET = TargetDescription("test", "llvm", 256, 16, False, 1, 1 << 15, 1 << 20, 1 << 22)

#: Largest errors in ulp that are allowed: with products contracted into sums, and not.
UNARY = {
    "exp": (1.6, 2.0), "exp2": (1.0, 1.5), "expm1": (1.6, 2.0), "log": (1.0, 1.2), "log2": (1.2, 2.0),
    "log1p": (1.6, 1.6), "sigmoid": (2.5, 2.5), "sinh": (2.0, 2.0), "cosh": (1.6, 1.8), "tanh": (2.6, 2.6),
    "erf": (2.4, 2.7), "sin": (1.8, 1.8), "cos": (1.8, 1.8), "tan": (3.9, 3.9), "asin": (2.0, 2.0),
    "acos": (1.5, 1.5), "atan": (1.5, 1.8), "sqrt": (0.5, 0.5), "rsqrt": (1.5, 1.5), "recip": (0.5, 0.5),
}
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1.1754942e-38,
     1.1754944e-38, -1.1754944e-38, 3.4028235e38, -3.4028235e38, 88.72283, 88.72284, 89.4, -87.33655, -103.27892,
     -103.97, -104.5, 127.99999, 128.0, -126.0, -149.0, -150.5, 1.0000001, 0.99999994,
     -0.99999994, 2.0**24], np.float32)


def samples(fn: str, scale: int = 1) -> Any:
    rng = np.random.default_rng(len(fn))
    ranges = [rng.uniform(-r, r, 30000 * scale).astype(np.float32) for r in (1.5, 12.0, 110.0, 1e5)]
    x = np.concatenate([support.all_exponents(60 * scale, rng), *ranges, SPECIAL])
    return x[~(np.abs(x) >= 2.0**23)] if fn in ("sin", "cos", "tan") else x


def unary(fn: str, dtype: DType = f32) -> tuple[Any, Expr]:
    v = fresh("x", dtype)
    return v, expand_expr(expr(fn, bool_ if fn in ("isnan", "isinf") else dtype, var(v)))


def measure(fn: str, scale: int) -> list[tuple[float, float]]:
    """The largest error in ulp and where it is, with products contracted into sums and not."""
    v, e = unary(fn)
    x = samples(fn, scale)
    exact = scalar.apply(fn, x.astype(np.float64))
    worst = []
    for fused in (True, False):
        errors = support.ulps(support.evaluate(e, {v: x}, fused), exact)
        worst.append((float(errors.max()), float(x[np.argmax(errors)])))
    return worst


@pytest.mark.parametrize("fn", UNARY)
def test_error(fn: str) -> None:
    assert {o.op for o in support.subexpressions(unary(fn)[1])} <= PRIMITIVES
    for (error, at), bar in zip(measure(fn, 1), UNARY[fn]):
        assert error <= bar, f"{fn}({at!r}) is wrong by {error} ulp"


@pytest.mark.parametrize("fn", UNARY)
def test_special_values(fn: str) -> None:
    """Zeros keep their sign, infinities and NaN come out as NumPy's, and what is exact is exact."""
    v, e = unary(fn)
    x = SPECIAL[np.isfinite(SPECIAL)] if fn in ("sin", "cos", "tan") else SPECIAL
    got, exact = support.evaluate(e, {v: x}), scalar.apply(fn, x)
    zero = exact == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(exact[zero]))
    for mask in (zero, np.isnan(exact), np.isinf(exact)):
        np.testing.assert_array_equal(got[mask], exact[mask])
    assert not np.isnan(got[~np.isnan(exact)]).any()


def test_bounds() -> None:
    x = np.concatenate([samples("tanh"), np.linspace(3, 10, 20001, dtype=np.float32)])
    for fn, low, high in (("tanh", -1, 1), ("erf", -1, 1), ("sigmoid", 0, 1)):
        v, e = unary(fn)
        y = support.evaluate(e, {v: x[~np.isnan(x)]})
        assert y.min() >= low and y.max() <= high


def test_exact_results() -> None:
    v, e = unary("exp2")
    n = np.arange(-149, 128).astype(np.float32)
    np.testing.assert_array_equal(support.evaluate(e, {v: n}), np.ldexp(np.float32(1), n.astype(int)))
    v, e = unary("log2")
    np.testing.assert_array_equal(support.evaluate(e, {v: np.ldexp(np.float32(1), n.astype(int))}), n)


def test_exp_of_every_float_near_the_ends() -> None:
    v, e = unary("exp")
    for middle in (88.722839, -87.336548, -103.5, 0.0):
        bits = np.array(middle, np.float32).view(np.int32) + np.arange(-20000, 20000, dtype=np.int32)
        x = bits.view(np.float32)
        x = x[np.isfinite(x)]
        with np.errstate(all="ignore"):
            assert support.ulps(support.evaluate(e, {v: x}), np.exp(x.astype(np.float64))).max() <= 1.6


@pytest.mark.parametrize("fn", ["sin", "cos", "tan"])
def test_large_angles(fn: str) -> None:
    """Right to the last bits up to 1e15 with a fused multiply-add; within [-1, 1] for every finite argument."""
    v, e = unary(fn)
    rng = np.random.default_rng(0)
    x = np.exp(rng.uniform(np.log(1e5), np.log(1e15), 50000)).astype(np.float32)
    assert support.ulps(support.evaluate(e, {v: x}), scalar.apply(fn, x.astype(np.float64))).max() <= UNARY[fn][0]
    plain = support.evaluate(e, {v: x[x < 1e7]}, fused=False)
    assert support.ulps(plain, scalar.apply(fn, x[x < 1e7].astype(np.float64))).max() <= UNARY[fn][1]
    huge = np.array([1e16, -1e20, 1e30, 3.4e38], np.float32)
    for fused in (True, False):
        y = support.evaluate(e, {v: huge}, fused)
        assert np.isfinite(y).all() and (fn == "tan" or np.abs(y).max() <= 1)
    assert np.isnan(support.evaluate(e, {v: np.array([np.inf, -np.inf, np.nan], np.float32)})).all()


def elementwise(fn: str, lanes: int) -> Program:
    n = dim("n")
    x, y = dense("x", f32, "arg", (n,)), dense("y", f32, "arg", (n,))
    i, p = fresh("i"), fresh("p")
    loop = For(i, const(0), n, (Store(y, (var(i),), expr(fn, f32, x.load(var(i)))),), "vector", width=lanes, unroll=2)
    return Program("k", (x, y), ("y",), ("n",), (), (), (ParFor((p,), (const(1),), (loop,)),))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("fn", UNARY)
def test_error_of_machine_code(fn: str, level: str) -> None:
    try:
        target = describe(level)
    except UnsupportedError as error:
        pytest.skip(str(error))
    code = driver.load(backend.render(elementwise(fn, target.lanes(32)), target))
    x = samples(fn)
    if fn in ("sin", "cos", "tan") and level != "sse4.2":
        x = np.concatenate([x, np.exp(np.linspace(11, 34.5, 10000)).astype(np.float32)])
    y = np.empty_like(x)
    driver.launch(code, {"x": x.ctypes.data, "y": y.ctypes.data}, {"n": x.size})
    errors = support.ulps(y, scalar.apply(fn, x.astype(np.float64)))
    assert errors.max() <= UNARY[fn][level == "sse4.2"], f"{fn}({x[np.argmax(errors)]!r})"


def pairs(scale: int = 1) -> tuple[Any, Any]:
    rng = np.random.default_rng(1)
    n = 20000 * scale
    wide = support.all_exponents(60 * scale, rng)
    corner = np.array([0, -0.0, 1, -1, 2, -2, 3, -3, 0.5, -0.5, 1.5, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 3.4e38,
                       -3.4e38, 1e30, 16777216, 16777215, -16777215, 2147483648, 4, 10, 1.0000001], np.float32)
    a, b = (m.ravel() for m in np.meshgrid(corner, corner))
    x = [rng.choice(wide, n), rng.uniform(-10, 10, n), np.abs(rng.choice(wide, n)), rng.integers(-50, 50, n), a,
         rng.uniform(0.9, 1.1, n)]
    y = [rng.choice(wide, n), rng.uniform(-10, 10, n), rng.uniform(-3, 3, n), rng.integers(-20, 20, n), b,
         rng.uniform(-1000, 1000, n)]
    return np.concatenate(x).astype(np.float32), np.concatenate(y).astype(np.float32)


BINARY = {"pow": 0.51, "atan2": 1.6, "fmod": 0.0, "mod": 0.0, "floordiv": 0.0}


@pytest.mark.parametrize("fn", BINARY)
def test_error_of_two_arguments(fn: str) -> None:
    measure_two(fn, 1)


def measure_two(fn: str, scale: int) -> list[float]:
    bar = BINARY[fn]
    v, w = fresh("x", f32), fresh("y", f32)
    e = expand_expr(expr(fn, f32, var(v), var(w)))
    assert {o.op for o in support.subexpressions(e)} <= PRIMITIVES
    x, y = pairs(scale)
    rounded = scalar.apply(fn, x, y)
    exact = scalar.apply(fn, x.astype(np.float64), y.astype(np.float64)) if bar else rounded.astype(np.float64)
    worst = []
    for fused in (True, False):
        got = support.evaluate(e, {v: x, w: y}, fused)
        errors = support.ulps(got, exact)
        worst.append(float(errors.max()))
        i = int(np.argmax(errors))
        assert errors[i] <= bar, f"{fn}({x[i]!r}, {y[i]!r}) = {got[i]!r}, not {rounded[i]!r}"
        zero = rounded == 0
        np.testing.assert_array_equal(np.signbit(got[zero]), np.signbit(rounded[zero]))
    return worst


@pytest.mark.parametrize("y", [0.0, 1.0, 2.0, 3.0, -1.0, 0.5, 7.0, -2.0, math.nan, math.inf])
def test_pow_with_a_constant_exponent(y: float) -> None:
    v = fresh("x", f32)
    e = expand_expr(expr("pow", f32, var(v), const(y, f32)))
    x, _ = pairs()
    got = support.evaluate(e, {v: x})
    exact = np.broadcast_to(scalar.apply("pow", x.astype(np.float64), np.float64(y)), x.shape)
    # x * x * x rounds twice; its intermediate square may be denormal where the cube is zero.
    assert support.ulps(np.broadcast_to(got, x.shape), exact).max() <= (1.5 if y == 3.0 else 0.51)


FLOAT_FNS = ["add", "mul", "div", "exp", "tanh", "abs", "neg", "square", "sign", "isnan", "isinf", "round", "floor",
             "rsqrt", "max", "lt", "where", "fma", "mod"]


@pytest.mark.parametrize("dtype", [f16, bf16, f64], ids=str)
@pytest.mark.parametrize("fn", FLOAT_FNS)
def test_other_float_types(fn: str, dtype: DType) -> None:
    """16-bit types give exactly what the oracle gives, but for functions that are rounded from f32 approximations."""
    arity = {"fma": 3, "where": 3}.get(fn, 2 if fn in ("add", "mul", "div", "max", "lt", "mod") else 1)
    rng = np.random.default_rng(2)
    vs = [fresh("x", bool_ if fn == "where" and i == 0 else dtype) for i in range(arity)]
    arrays = [(rng.random(500) < 0.5) if v.dtype == bool_ else (rng.standard_normal(500) * 3).astype(dtype.numpy)
              for v in vs]
    for a in arrays:
        if a.dtype != bool:
            a[:4] = [0.0, np.inf, -np.inf, np.nan]
    e = expand_expr(expr(fn, bool_ if fn in ("isnan", "isinf", "lt") else dtype, *map(var, vs)))
    got, want = support.evaluate(e, dict(zip(vs, arrays))), scalar.apply(fn, *arrays)
    assert got.dtype == want.dtype
    if fn in ("exp", "tanh", "rsqrt"):
        rtol = {f16: 1e-3, bf16: 8e-3}.get(dtype, 1e-15)
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=rtol)
    else:
        np.testing.assert_array_equal(got, want)


def test_narrow_chains_round_where_the_oracle_does() -> None:
    a, b = fresh("a", bf16), fresh("b", bf16)
    total = expr("add", bf16, expr("mul", bf16, var(a), var(b)), var(b))
    relu = expr("max", bf16, expr("neg", bf16, var(a)), const(0.0, bf16))
    rng = np.random.default_rng(3)
    env = {v: rng.standard_normal(2000).astype(bf16.numpy) for v in (a, b)}
    product = scalar.apply("mul", env[a], env[b])
    np.testing.assert_array_equal(support.evaluate(expand_expr(total), env), scalar.apply("add", product, env[b]))
    wide = expand_expr(expr("exp", bf16, relu))
    # Exact functions pass f32 on: one conversion in, one out, as if relu and exp were one function.
    assert [o.dtype for o in support.subexpressions(wide) if o.op == "cast"] == [bf16, f32]
    casts = [o.op for o in support.subexpressions(expand_expr(total)) if o.op == "cast"]
    assert len(casts) == 5


@pytest.mark.parametrize("dtype", [i8, u8, i32, i64], ids=str)
@pytest.mark.parametrize("fn", ["abs", "sign", "square", "fma", "floor", "neg", "mod"])
def test_integers(fn: str, dtype: DType) -> None:
    arity = {"fma": 3, "mod": 2}.get(fn, 1)
    vs = [fresh("x", dtype) for _ in range(arity)]
    info = np.iinfo(dtype.numpy)
    rng = np.random.default_rng(4)
    arrays = [np.concatenate([rng.integers(info.min, info.max, 200, dtype.numpy, endpoint=True),
                              np.array([info.min, info.max, 0, 1], dtype.numpy)]) for _ in vs]
    e = expand_expr(expr(fn, dtype, *map(var, vs)))
    np.testing.assert_array_equal(support.evaluate(e, dict(zip(vs, arrays))), scalar.apply(fn, *arrays))


def test_a_program_through_the_interpreter() -> None:
    n = dim("n")
    x, y = dense("x", f16, "arg", (n,)), dense("y", f16, "arg", (n,))
    i, p = fresh("i"), fresh("p")
    value = expr("sigmoid", f16, expr("mul", f16, x.load(var(i)), const(2.0, f16)))
    loop = For(i, const(0), n, (Store(y, (var(i),), value),), "vector", width=8)
    before = Program("k", (x, y), ("y",), ("n",), (), (), (ParFor((p,), (const(1),), (loop,)),))
    after = expand(before, TARGET)
    data = {"x": np.linspace(-9, 9, 37).astype(np.float16)}
    want, got = (run(k, dict(data), {"n": 37})["y"] for k in (before, after))
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-3)
    assert after.body != before.body and expand(after, TARGET) == after


def test_constants_are_what_the_derivation_gives() -> None:
    derived = _load("derive_coefficients").coefficients()
    for name, values in derived.items():
        assert getattr(math_constants, name) == tuple(map(float, values)), name


@pytest.mark.parametrize("fn", UNARY)
def test_expanded_programs_verify_print_and_parse(fn: str) -> None:
    program = expand(elementwise(fn, 8), TARGET)
    verify(program)
    text = program_text(program)
    assert program_text(parse_program(text)) == text


def test_f64_functions_stay() -> None:
    v = fresh("x", f64)
    for fn in ("exp", "tanh", "sin", "pow"):
        args = (var(v), var(v)) if fn == "pow" else (var(v),)
        e = expr(fn, f64, *args)
        assert expand_expr(e) is e


def table() -> Iterator[str]:
    """The table in expand_math's docstring, from ten times the samples of the tests."""
    yield "function   contracted   not  operations"
    for fn in (*UNARY, *BINARY):
        errors = [m[0] for m in measure(fn, 10)] if fn in UNARY else measure_two(fn, 10)
        v, w = fresh("x", f32), fresh("y", f32)
        e = expand_expr(expr(fn, f32, *map(var, (v,) if fn in UNARY else (v, w))))
        count = support.operations(e)
        yield f"{fn:10} {errors[0]:10.2f} {errors[1]:5.2f} {count:11}"


if __name__ == "__main__":
    print("\n".join(table()))
