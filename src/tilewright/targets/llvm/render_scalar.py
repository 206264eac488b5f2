"""Scalar functions on operands in register form, one lane or many. The meaning of each is interp/scalar.py's."""

from __future__ import annotations

from collections.abc import Callable

from ...errors import UnsupportedError
from ...ir.types import DType, f32, f64
from .render_casts import convert
from .render_emit import Writer
from .types import constant, float_literal, is_small_float, literal, register_type, splat_literal, vector

Emit = Callable[[Writer, DType, int, list[str]], str]

#: Functions of the C library, which have the same names there.
_LIBM = frozenset({
    "exp", "exp2", "expm1", "log", "log2", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "erf", "pow", "atan2", "fmod",
})  # fmt: skip
_PURE = "nounwind willreturn memory(none)"
COMPARISONS = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge"}


def emit(w: Writer, fn: str, dtype: DType, n: int, args: list[str]) -> str:
    """`fn` of operands that all have type `dtype` (the operands' type, not the result's)."""
    if is_small_float(dtype) and fn not in ("neg", "abs"):
        wide = [convert(w, a, dtype, f32, n) for a in args]
        out = emit(w, fn, f32, n, wide)
        return out if fn in COMPARISONS or fn in ("isnan", "isinf") else convert(w, out, f32, dtype, n)
    table = _FLOAT if dtype.is_float else _BOOL if dtype.is_bool else _INT
    if fn in COMPARISONS:
        return _compare(w, fn, dtype, n, args)
    found = table.get(fn)
    if found is not None:
        return found(w, dtype, n, args)
    if dtype.is_float and fn in _LIBM:
        return libm(w, fn, dtype, n, args)
    raise UnsupportedError(f"the LLVM target has no code for '{fn}' of {dtype}")


def _compare(w: Writer, fn: str, dtype: DType, n: int, args: list[str]) -> str:
    if dtype.is_float:
        predicate = "une" if fn == "ne" else "o" + fn
    elif fn in ("eq", "ne"):
        predicate = fn
    else:
        predicate = ("s" if dtype.kind == "i" else "u") + fn
    return w.compare(predicate, register_type(dtype), n, args[0], args[1])


def libm(w: Writer, fn: str, dtype: DType, n: int, args: list[str]) -> str:
    """The C library's double-precision function, lane by lane: exact enough for every type, and slow."""
    wide = [convert(w, a, dtype, f64, n) for a in args]
    out = "poison"
    for lane in range(n):
        operands = [("double", w.extract("double", a, n, lane)) for a in wide]
        out = w.insert("double", out, w.call("double", fn, operands, _PURE), n, lane)
    return convert(w, out, f64, dtype, n)


# ---------------------------------------------------------------------------------------------- builders of table rows


def _plain(op: str) -> Emit:
    def row(w: Writer, d: DType, n: int, args: list[str]) -> str:
        return w.op(f"{op} {vector(register_type(d), n)} {', '.join(args)}")

    return row


def _intrinsic(stem: str) -> Emit:
    def row(w: Writer, d: DType, n: int, args: list[str]) -> str:
        return w.intrinsic(stem, register_type(d), n, *args)

    return row


def _signed(signed: Emit, unsigned: Emit) -> Emit:
    return lambda w, d, n, args: (signed if d.kind == "i" else unsigned)(w, d, n, args)


def _first(w: Writer, d: DType, n: int, args: list[str]) -> str:
    return args[0]


def _k(d: DType, n: int, value: float) -> str:
    return splat_literal(register_type(d), literal(value, d), n)


# ---------------------------------------------------------------------------------------------- floats


def _extreme(predicate: str) -> Emit:
    """max / min where NaN wins. An accumulator belongs in the first operand: its chain is two instructions then."""

    def row(w: Writer, d: DType, n: int, args: list[str]) -> str:
        ty, (a, b) = register_type(d), args
        best = w.select(ty, n, w.compare(predicate, ty, n, b, a), b, a)  # `a` when one is NaN
        return w.select(ty, n, w.compare("uno", ty, n, b, b), b, best)

    return row


def _fma(w: Writer, d: DType, n: int, args: list[str]) -> str:
    """One rounding, also where the machine has no such instruction: f32 through f64, f64 by the C library."""
    if w.module.has_fma:
        return w.intrinsic("fma", register_type(d), n, *args)
    if d == f64:
        return libm(w, "fma", d, n, args)
    double = vector("double", n)
    a, b, c = (convert(w, x, d, f64, n) for x in args)
    return convert(w, w.op(f"fadd {double} {w.op(f'fmul {double} {a}, {b}')}, {c}"), f64, d, n)


def _float_sign(w: Writer, d: DType, n: int, args: list[str]) -> str:
    ty, x = register_type(d), args[0]
    zero, one = _k(d, n, 0.0), _k(d, n, 1.0)
    signed = w.intrinsic("copysign", ty, n, one, x)
    return w.select(ty, n, w.compare("one", ty, n, x, zero), signed, x)  # zeros and NaN stay


def _rsqrt(w: Writer, d: DType, n: int, args: list[str]) -> str:
    return _recip(w, d, n, [w.intrinsic("sqrt", register_type(d), n, args[0])])


def _recip(w: Writer, d: DType, n: int, args: list[str]) -> str:
    return w.op(f"fdiv {vector(register_type(d), n)} {_k(d, n, 1.0)}, {args[0]}")


def _sigmoid(w: Writer, d: DType, n: int, args: list[str]) -> str:
    full, one = vector(register_type(d), n), _k(d, n, 1.0)
    grown = libm(w, "exp", d, n, [w.op(f"fneg {full} {args[0]}")])
    return w.op(f"fdiv {full} {one}, {w.op(f'fadd {full} {one}, {grown}')}")


def _isinf(w: Writer, d: DType, n: int, args: list[str]) -> str:
    ty = register_type(d)
    inf = splat_literal(ty, float_literal(float("inf"), d.bits), n)
    return w.compare("oeq", ty, n, w.intrinsic("fabs", ty, n, args[0]), inf)


def _isnan(w: Writer, d: DType, n: int, args: list[str]) -> str:
    return w.compare("uno", register_type(d), n, args[0], args[0])


def _float_tdiv(w: Writer, d: DType, n: int, args: list[str]) -> str:
    ty = register_type(d)
    return w.intrinsic("trunc", ty, n, w.op(f"fdiv {vector(ty, n)} {args[0]}, {args[1]}"))


def _float_divmod(w: Writer, d: DType, n: int, args: list[str]) -> tuple[str, str]:
    """fmod's remainder moved to the divisor's sign, and the quotient that belongs to it before rounding."""
    ty, full, (a, b), zero = register_type(d), vector(register_type(d), n), args, _k(d, n, 0.0)
    rest = libm(w, "fmod", d, n, [a, b])
    quotient = w.op(f"fdiv {full} {w.op(f'fsub {full} {a}, {rest}')}, {b}")
    differs = w.op(f"xor {vector('i1', n)} {w.compare('olt', ty, n, rest, zero)}, {w.compare('olt', ty, n, b, zero)}")
    fix = w.op(f"and {vector('i1', n)} {differs}, {w.compare('une', ty, n, rest, zero)}")
    moved = w.select(ty, n, fix, w.op(f"fadd {full} {rest}, {b}"), rest)
    smaller = w.select(ty, n, fix, w.op(f"fsub {full} {quotient}, {_k(d, n, 1.0)}"), quotient)
    signed_zero = w.intrinsic("copysign", ty, n, zero, b)
    return smaller, w.select(ty, n, w.compare("oeq", ty, n, moved, zero), signed_zero, moved)


def _float_mod(w: Writer, d: DType, n: int, args: list[str]) -> str:
    return _float_divmod(w, d, n, args)[1]


def _float_floordiv(w: Writer, d: DType, n: int, args: list[str]) -> str:
    ty, full = register_type(d), vector(register_type(d), n)
    quotient, _ = _float_divmod(w, d, n, args)
    whole = w.intrinsic("floor", ty, n, quotient)
    short = w.compare("ogt", ty, n, w.op(f"fsub {full} {quotient}, {whole}"), _k(d, n, 0.5))
    whole = w.select(ty, n, short, w.op(f"fadd {full} {whole}, {_k(d, n, 1.0)}"), whole)
    plain = w.op(f"fdiv {full} {args[0]}, {args[1]}")
    zero = _k(d, n, 0.0)
    whole = w.select(ty, n, w.compare("oeq", ty, n, whole, zero), w.intrinsic("copysign", ty, n, zero, plain), whole)
    return w.select(ty, n, w.compare("oeq", ty, n, args[1], zero), plain, whole)


_FLOAT: dict[str, Emit] = {
    "add": _plain("fadd contract"), "sub": _plain("fsub contract"), "mul": _plain("fmul contract"),
    "div": _plain("fdiv"), "fma": _fma, "max": _extreme("ogt"), "min": _extreme("olt"),
    "sqrt": _intrinsic("sqrt"), "floor": _intrinsic("floor"), "ceil": _intrinsic("ceil"), "trunc": _intrinsic("trunc"),
    "rint": _intrinsic("roundeven"), "round": _intrinsic("roundeven"), "sign": _float_sign,
    "square": lambda w, d, n, a: _plain("fmul contract")(w, d, n, [a[0], a[0]]),
    "recip": _recip, "rsqrt": _rsqrt, "sigmoid": _sigmoid, "isnan": _isnan, "isinf": _isinf,
    "tdiv": _float_tdiv, "mod": _float_mod, "floordiv": _float_floordiv,
}  # fmt: skip


def _float_neg(w: Writer, d: DType, n: int, args: list[str]) -> str:
    if is_small_float(d):
        return w.op(f"xor {vector('i16', n)} {args[0]}, {splat_literal('i16', '-32768', n)}")
    return w.op(f"fneg {vector(register_type(d), n)} {args[0]}")


def _float_abs(w: Writer, d: DType, n: int, args: list[str]) -> str:
    if is_small_float(d):
        return w.op(f"and {vector('i16', n)} {args[0]}, {splat_literal('i16', '32767', n)}")
    return w.intrinsic("fabs", register_type(d), n, args[0])


_FLOAT["neg"], _FLOAT["abs"] = _float_neg, _float_abs


# ---------------------------------------------------------------------------------------------- integers


def _divisor(d: DType, n: int, text: str) -> int | None:
    """The divisor when it is a literal (of every lane)."""
    if n > 1 and text.startswith("splat"):
        text = text.removeprefix(f"splat ({register_type(d)} ").removesuffix(")")
    return constant(text) if not text.startswith(("splat", "<", "poison")) else None


def _divide(w: Writer, d: DType, n: int, args: list[str]) -> tuple[str, str]:
    """Quotient and remainder towards zero; by 0: 0 and 0; by -1: the negation and 0. Nothing traps."""
    ty, full, (a, b) = register_type(d), vector(register_type(d), n), args
    signed = d.kind == "i"
    known = _divisor(d, n, b)
    if known is not None and known not in (0, -1):
        quotient = w.op(f"{'sdiv' if signed else 'udiv'} {full} {a}, {b}")
        return quotient, w.op(f"sub {full} {a}, {w.op(f'mul {full} {quotient}, {b}')}")
    one, zero = _k(d, n, 1), _k(d, n, 0)
    none = w.compare("eq", ty, n, b, zero)
    safe = w.select(ty, n, none, one, b)
    if signed:
        minus = w.compare("eq", ty, n, b, _k(d, n, -1))
        safe = w.select(ty, n, minus, one, safe)
    quotient = w.op(f"{'sdiv' if signed else 'udiv'} {full} {a}, {safe}")
    rest = w.op(f"sub {full} {a}, {w.op(f'mul {full} {quotient}, {safe}')}")
    if signed:
        quotient = w.select(ty, n, minus, w.op(f"sub {full} {zero}, {a}"), quotient)
    return w.select(ty, n, none, zero, quotient), rest


def _needs_floor(w: Writer, d: DType, n: int, rest: str, b: str) -> str:
    """Lanes whose remainder is not 0 and has not the divisor's sign."""
    ty, full, zero = register_type(d), vector(register_type(d), n), _k(d, n, 0)
    differs = w.compare("slt", ty, n, w.op(f"xor {full} {rest}, {b}"), zero)
    return w.op(f"and {vector('i1', n)} {differs}, {w.compare('ne', ty, n, rest, zero)}")


def _power_of_two(d: DType, n: int, text: str) -> int | None:
    known = _divisor(d, n, text)
    return known.bit_length() - 1 if known is not None and known > 0 and known & (known - 1) == 0 else None


def _floordiv(w: Writer, d: DType, n: int, args: list[str]) -> str:
    full = vector(register_type(d), n)
    shift = _power_of_two(d, n, args[1])
    if shift is not None:
        return w.op(f"{'ashr' if d.kind == 'i' else 'lshr'} {full} {args[0]}, {_k(d, n, shift)}")
    quotient, rest = _divide(w, d, n, args)
    if d.kind == "u":
        return quotient
    fix = w.op(f"sext {vector('i1', n)} {_needs_floor(w, d, n, rest, args[1])} to {full}")
    return w.op(f"add {full} {quotient}, {fix}")


def _mod(w: Writer, d: DType, n: int, args: list[str]) -> str:
    ty, full = register_type(d), vector(register_type(d), n)
    shift = _power_of_two(d, n, args[1])
    if shift is not None:
        return w.op(f"and {full} {args[0]}, {_k(d, n, (1 << shift) - 1)}")
    _, rest = _divide(w, d, n, args)
    zero = _k(d, n, 0)
    if _divisor(d, n, args[1]) is None:
        rest = w.select(ty, n, w.compare("eq", ty, n, args[1], zero), zero, rest)
    if d.kind == "u":
        return rest
    fix = _needs_floor(w, d, n, rest, args[1])
    return w.select(ty, n, fix, w.op(f"add {full} {rest}, {args[1]}"), rest)


def _shift(op: str) -> Emit:
    def row(w: Writer, d: DType, n: int, args: list[str]) -> str:
        real = "lshr" if op == "lshr" or (op == "shr" and d.kind == "u") else "ashr" if op == "shr" else "shl"
        ty, full = register_type(d), vector(register_type(d), n)
        known = _divisor(d, n, args[1])
        if known is not None and 0 <= known < d.bits:
            return w.op(f"{real} {full} {args[0]}, {args[1]}")
        last = _k(d, n, d.bits - 1)
        amount = w.intrinsic("umin", ty, n, args[1], last)
        out = w.op(f"{real} {full} {args[0]}, {amount}")
        if real == "ashr":
            return out
        return w.select(ty, n, w.compare("ugt", ty, n, args[1], last), _k(d, n, 0), out)

    return row


def _int_sign(w: Writer, d: DType, n: int, args: list[str]) -> str:
    ty, zero = register_type(d), _k(d, n, 0)
    out = w.select(ty, n, w.compare("ne", ty, n, args[0], zero), _k(d, n, 1), zero)
    return out if d.kind == "u" else w.select(ty, n, w.compare("slt", ty, n, args[0], zero), _k(d, n, -1), out)


def _int_abs(w: Writer, d: DType, n: int, args: list[str]) -> str:
    full = vector(register_type(d), n)
    name = f"llvm.abs.{'v' + str(n) if n > 1 else ''}{register_type(d)}"
    return w.call(full, name, [(full, args[0]), ("i1", "false")])


def _int_fma(w: Writer, d: DType, n: int, args: list[str]) -> str:
    full = vector(register_type(d), n)
    return w.op(f"add {full} {w.op(f'mul {full} {args[0]}, {args[1]}')}, {args[2]}")


_INT: dict[str, Emit] = {
    "add": _plain("add"), "sub": _plain("sub"), "mul": _plain("mul"), "fma": _int_fma,
    "and": _plain("and"), "or": _plain("or"), "xor": _plain("xor"),
    "not": lambda w, d, n, a: w.op(f"xor {vector(register_type(d), n)} {a[0]}, {_k(d, n, -1)}"),
    "neg": lambda w, d, n, a: w.op(f"sub {vector(register_type(d), n)} {_k(d, n, 0)}, {a[0]}"),
    "square": lambda w, d, n, a: w.op(f"mul {vector(register_type(d), n)} {a[0]}, {a[0]}"),
    "max": _signed(_intrinsic("smax"), _intrinsic("umax")), "min": _signed(_intrinsic("smin"), _intrinsic("umin")),
    "abs": _signed(_int_abs, _first), "sign": _int_sign,
    "floordiv": _floordiv, "mod": _mod, "tdiv": lambda w, d, n, a: _divide(w, d, n, a)[0],
    "shl": _shift("shl"), "shr": _shift("shr"), "lshr": _shift("lshr"),
    "floor": _first, "ceil": _first, "round": _first, "rint": _first, "trunc": _first,
}  # fmt: skip

_BOOL: dict[str, Emit] = {
    "and": _plain("and"), "or": _plain("or"), "xor": _plain("xor"), "max": _plain("or"), "min": _plain("and"),
    "add": _plain("or"), "mul": _plain("and"),
    "not": lambda w, d, n, a: w.op(f"xor {vector('i1', n)} {a[0]}, {_k(d, n, 1)}"),
}  # fmt: skip
