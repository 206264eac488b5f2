"""Replaces the functions that no vector unit has by arithmetic that every vector unit has.

`expand` rewrites every expression of a scheduled program:

* f32 transcendental functions become polynomials, selects and integer operations on the bits (math_exp, math_trig,
  math_pow). f64 ones stay, for the target's maths library; only those that are compositions are written out.
* f16 and bf16: each function is computed in f32 and rounded to the type once, as the oracle does. A conversion there
  and back between two functions is dropped only where the inner one is exact in the narrow type (abs, neg, max, min,
  floor ...), because then it changes nothing.
* rsqrt, recip, square, sign, isnan, isinf, round, and the float remainders become primitives.

What is left: add sub mul div fma neg abs sqrt floor ceil trunc rint max min, comparisons, where, bit operations and
shifts, cast, bitcast, integer division, and f64's library functions.

The code needs IEEE arithmetic: a target must not reassociate, and must keep NaN, infinities, signed zeros and
denormals. It may contract a product into a sum, and is faster if it does; the results are good either way.

Largest errors in ulp against float64 over all exponents (denormals too), both signs, products contracted into
sums or not, and the number of operations; special values are exact. Reproduce with
`python tests/passes/test_expand_math.py`. sin, cos and tan: |x| < 2**23 here, see math_trig for what lies beyond.

    function   contracted   not  operations
    exp              1.44  1.73          19
    exp2             0.77  1.07          22
    expm1            1.46  1.57          22
    log              0.82  0.82          33
    log2             0.95  1.91          35
    log1p            1.43  1.41          37
    sigmoid          2.25  2.25          22
    sinh             1.57  1.59          29
    cosh             1.28  1.53          19
    tanh             2.49  2.49          23
    erf              2.24  2.53          28
    sin              1.50  1.50          32
    cos              1.50  1.55          30
    tan              3.31  3.41          32
    asin             1.80  1.82          20
    acos             1.24  1.23          25
    atan             1.31  1.45          21
    sqrt             0.50  0.50           1
    rsqrt            1.47  1.47           2
    recip            0.50  0.50           1
    pow              0.50  0.50          76
    atan2            1.42  1.42          36
    fmod             0.00  0.00          89
    mod              0.00  0.00         104
    floordiv         0.00  0.00         116
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..ir.scheduled.core import Expr, Program, const, expr
from ..ir.types import DType, bf16, f16, f32
from ..targets.description import TargetDescription
from . import math_exp, math_pow, math_trig
from .math_build import add, cast, div, eq, fabs, gt, isnan, lt, mul, sqrt, trunc, where
from .rebuild import Rewriter, map_program

F32_FNS: dict[str, Callable[..., Expr]] = {
    "exp": math_exp.exp, "exp2": math_exp.exp2, "expm1": math_exp.expm1,
    "log": math_exp.log, "log2": math_exp.log2, "log1p": math_exp.log1p,
    "sigmoid": math_exp.sigmoid, "sinh": math_exp.sinh, "cosh": math_exp.cosh, "tanh": math_exp.tanh,
    "erf": math_exp.erf,
    "sin": math_trig.sin, "cos": math_trig.cos, "tan": math_trig.tan,
    "asin": math_trig.asin, "acos": math_trig.acos, "atan": math_trig.atan, "atan2": math_trig.atan2,
    "pow": math_pow.pow, "fmod": math_pow.fmod,
}
#: These read or choose values but compute nothing with them.
_MOVES = frozenset({"const", "var", "dim", "stride", "param", "load", "load_if", "cast", "bitcast", "where"})
#: Of values of a 16-bit float type these give values of that type.
_EXACT = frozenset({"neg", "abs", "max", "min", "floor", "ceil", "trunc", "rint"})


def expand(program: Program, target: TargetDescription) -> Program:
    """The program with only primitive functions. No decision depends on `target` yet: every description says vectors,
    and the expansions are right with and without a fused multiply-add."""
    return map_program(program, Rewriter(expand_one).expr)


def expand_expr(e: Expr) -> Expr:
    return Rewriter(expand_one).expr(e)


def expand_one(e: Expr) -> Expr:
    """One expression whose operands are expanded already."""
    if e.op in _MOVES:
        return e
    operand = e.args[0].dtype
    if operand in (f16, bf16):
        wide = tuple(_widen(a, operand) for a in e.args)
        result = _function(e.op, f32 if e.dtype == operand else e.dtype, wide)
        return cast(result, operand) if e.dtype == operand else result
    return _function(e.op, e.dtype, e.args)


def _widen(a: Expr, narrow: DType) -> Expr:
    """An operand of a 16-bit float type as f32."""
    if a.op == "const":
        return const(float(np.asarray(a.attr, np.float32).astype(narrow.numpy)), f32)
    if a.op == "cast" and a.args[0].dtype == f32 and _representable(a.args[0], narrow):
        return a.args[0]
    return cast(a, f32)


def _representable(e: Expr, narrow: DType) -> bool:
    if e.op == "cast":
        return e.args[0].dtype == narrow
    if e.op == "const":
        return math.isnan(e.attr) or float(np.asarray(e.attr, np.float32).astype(narrow.numpy)) == e.attr
    return e.op in _EXACT and all(_representable(a, narrow) for a in e.args)


def _function(op: str, dtype: DType, args: tuple[Expr, ...]) -> Expr:
    operand = args[0].dtype
    if operand.is_float:
        return _float_function(op, dtype, args)
    match op:
        case "fma":
            return add(mul(args[0], args[1]), args[2])
        case "square":
            return mul(args[0], args[0])
        case "sign" if operand.is_int:
            zero, one = const(0, operand), const(1, operand)
            below = where(lt(args[0], 0), const(-1, operand), zero) if operand.kind == "i" else zero
            return where(gt(args[0], 0), one, below)
        case "floor" | "ceil" | "round" | "rint" | "trunc":
            return args[0]
        case _:
            return expr(op, dtype, *args)


def _float_function(op: str, dtype: DType, args: tuple[Expr, ...]) -> Expr:
    x = args[0]
    match op:
        case "rsqrt":
            return div(1.0, sqrt(x))
        case "recip":
            return div(1.0, x)
        case "square":
            return mul(x, x)
        case "sign":
            return where(gt(x, 0.0), 1.0, where(lt(x, 0.0), -1.0, where(eq(x, 0.0), 0.0, x)))
        case "isnan":
            return isnan(x)
        case "isinf":
            return eq(fabs(x), math.inf)
        case "round":
            return expr("rint", dtype, x)
        case "tdiv":
            return trunc(div(x, args[1]))
        case "mod":
            return math_pow.mod(x, args[1], _fmod(x, args[1]))
        case "floordiv":
            return math_pow.floordiv(x, args[1], _fmod(x, args[1]))
        case "sigmoid" if dtype != f32:
            e = expr("exp", dtype, expr("neg", dtype, fabs(x)))
            return div(where(lt(x, 0.0), e, 1.0), add(e, 1.0))
        case _ if x.dtype == f32 and op in F32_FNS:
            return F32_FNS[op](*args)
        case _:
            return expr(op, dtype, *args)


def _fmod(x: Expr, y: Expr) -> Expr:
    return math_pow.fmod(x, y) if x.dtype == f32 else expr("fmod", x.dtype, x, y)

