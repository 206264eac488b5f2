"""Conversions between element types, on any number of lanes, in register form (f16 and bf16 are 16 bits)."""

from __future__ import annotations

from ...ir.types import DType, bf16, f16, f32, f64
from .render_emit import Writer
from .types import float_literal, is_small_float, literal, register_type, splat_literal, suffix, vector


def convert(w: Writer, text: str, source: DType, target: DType, n: int) -> str:
    """`text` as `target`: floats round to nearest even, float -> int saturates (NaN is 0), int -> int wraps."""
    if source == target:
        return text
    if target.is_bool:
        return _to_bool(w, text, source, n)
    if is_small_float(source):
        wide = _widen(w, text, source, n)
        return convert(w, wide, f32, target, n)
    if is_small_float(target):
        return _to_small(w, text, source, target, n)
    a, b = register_type(source), register_type(target)
    va, vb = vector(a, n), vector(b, n)
    if source.is_float and target.is_float:
        return w.op(f"{'fpext' if target.bits > source.bits else 'fptrunc'} {va} {text} to {vb}")
    if source.is_float:
        stem = "fptosi.sat" if target.kind == "i" else "fptoui.sat"
        return w.call(vb, f"llvm.{stem}.{suffix(b, n)}.{suffix(a, n)}", [(va, text)])
    if target.is_float:
        return w.op(f"{'sitofp' if source.kind == 'i' else 'uitofp'} {va} {text} to {vb}")
    if a == b:
        return text
    if source.is_bool or target.bits > source.bits:
        return w.op(f"{'sext' if source.kind == 'i' else 'zext'} {va} {text} to {vb}")
    return w.op(f"trunc {va} {text} to {vb}")


def _to_bool(w: Writer, text: str, source: DType, n: int) -> str:
    if is_small_float(source):  # anything but the two zeros; shifting drops the sign
        doubled = w.op(f"shl {vector('i16', n)} {text}, {splat_literal('i16', '1', n)}")
        return w.compare("ne", "i16", n, doubled, splat_literal("i16", "0", n))
    ty = register_type(source)
    return w.compare("une" if source.is_float else "ne", ty, n, text, splat_literal(ty, literal(0, source), n))


def bitcast(w: Writer, text: str, source: DType, target: DType, n: int) -> str:
    a, b = vector(register_type(source), n), vector(register_type(target), n)
    return text if a == b else w.op(f"bitcast {a} {text} to {b}")


# ---------------------------------------------------------------------------------------------- 16-bit floats


class _Bits:
    """Integer arithmetic on the bits of `n` floats: keeps the emulations below readable."""

    def __init__(self, w: Writer, n: int) -> None:
        self.w, self.n = w, n
        self.i32, self.f32, self.i16 = vector("i32", n), vector("float", n), vector("i16", n)

    def k(self, value: int) -> str:
        return splat_literal("i32", str(value - (1 << 32) if value >= 1 << 31 else value), self.n)

    def of(self, text: str) -> str:
        return self.w.op(f"bitcast {self.f32} {text} to {self.i32}")

    def as_float(self, text: str) -> str:
        return self.w.op(f"bitcast {self.i32} {text} to {self.f32}")

    def do(self, op: str, a: str, b: str | int) -> str:
        return self.w.op(f"{op} {self.i32} {a}, {self.k(b) if isinstance(b, int) else b}")

    def test(self, predicate: str, a: str, b: int) -> str:
        return self.w.compare(predicate, "i32", self.n, a, self.k(b))

    def pick(self, condition: str, a: str, b: str) -> str:
        return self.w.select("i32", self.n, condition, a, b)

    def low(self, text: str) -> str:
        return self.w.op(f"trunc {self.i32} {text} to {self.i16}")


def _widen(w: Writer, text: str, source: DType, n: int) -> str:
    """f16 or bf16 -> f32, exact."""
    bits = _Bits(w, n)
    if source == f16 and w.module.has_f16c:
        half = w.op(f"bitcast {bits.i16} {text} to {vector('half', n)}")
        return w.op(f"fpext {vector('half', n)} {half} to {bits.f32}")
    wide = w.op(f"zext {bits.i16} {text} to {bits.i32}")
    if source == bf16:
        return bits.as_float(bits.do("shl", wide, 16))
    sign = bits.do("shl", bits.do("and", wide, 0x8000), 16)
    magnitude = bits.do("shl", bits.do("and", wide, 0x7FFF), 13)
    # Read as f32 the exponent is 112 too small; the multiplication also makes subnormals normal.
    scale = splat_literal("float", float_literal(2.0**112, 32), n)
    finite = bits.of(w.op(f"fmul {bits.f32} {bits.as_float(magnitude)}, {scale}"))
    special = bits.do("or", magnitude, 0x7F800000)
    value = bits.pick(bits.test("uge", magnitude, 0x7C00 << 13), special, finite)
    return bits.as_float(bits.do("or", value, sign))


def _to_small(w: Writer, text: str, source: DType, target: DType, n: int) -> str:
    if source == f64:
        return _narrow(w, _round_to_odd(w, text, n), target, n)
    return _narrow(w, text if source == f32 else convert(w, text, source, f32, n), target, n)


def _narrow(w: Writer, text: str, target: DType, n: int) -> str:
    """f32 -> f16 or bf16, to nearest even."""
    bits = _Bits(w, n)
    if target == f16:
        if w.module.has_f16c:
            half = w.op(f"fptrunc {bits.f32} {text} to {vector('half', n)}")
            return w.op(f"bitcast {vector('half', n)} {half} to {bits.i16}")
        return bits.low(_narrow_f16(w, bits, text))
    raw = bits.of(text)
    odd = bits.do("and", bits.do("lshr", raw, 16), 1)
    rounded = bits.do("lshr", bits.do("add", bits.do("add", raw, 0x7FFF), odd), 16)
    quiet = bits.do("or", bits.do("lshr", raw, 16), 0x40)  # adding could turn a NaN into infinity
    return bits.low(bits.pick(w.compare("uno", "float", n, text, text), quiet, rounded))


def _narrow_f16(w: Writer, bits: _Bits, text: str) -> str:
    raw = bits.of(text)
    sign = bits.do("and", raw, 0x80000000)
    magnitude = bits.do("xor", raw, sign)
    # Subnormal results: adding 0.5 lets the f32 adder round at the right bit.
    half = splat_literal("float", float_literal(0.5, 32), bits.n)
    tiny = bits.do("sub", bits.of(w.op(f"fadd {bits.f32} {bits.as_float(magnitude)}, {half}")), 0x3F000000)
    odd = bits.do("and", bits.do("lshr", magnitude, 13), 1)
    rebased = bits.do("add", bits.do("add", magnitude, 0xC8000FFF), odd)  # exponent bias 127 -> 15, round half up
    normal = bits.do("lshr", rebased, 13)
    nan = bits.test("ugt", magnitude, 0x7F800000)
    payload = bits.do("or", bits.do("and", bits.do("lshr", magnitude, 13), 0x3FF), 0x7E00)
    huge = bits.pick(nan, payload, bits.k(0x7C00))
    value = bits.pick(bits.test("ult", magnitude, 0x38800000), tiny, normal)
    value = bits.pick(bits.test("uge", magnitude, 0x47800000), huge, value)
    return bits.do("or", value, bits.do("lshr", sign, 16))


def _round_to_odd(w: Writer, text: str, n: int) -> str:
    """f64 -> f32 such that a second rounding to 16 bits gives what one rounding would have given."""
    bits, double = _Bits(w, n), vector("double", n)
    near = w.op(f"fptrunc {double} {text} to {bits.f32}")
    back = w.op(f"fpext {bits.f32} {near} to {double}")
    inexact = w.compare("one", "double", n, back, text)
    away = w.compare("ogt", "double", n, w.intrinsic("fabs", "double", n, back), w.intrinsic("fabs", "double", n, text))
    step = w.op(f"zext {vector('i1', n)} {away} to {bits.i32}")
    raw = bits.of(near)
    sticky = bits.do("or", bits.do("sub", raw, step), 1)
    return bits.as_float(bits.pick(inexact, sticky, raw))
