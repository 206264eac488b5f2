"""Derives every polynomial and split constant of `tilewright.passes.math_constants`, and writes that file.

    python tests/passes/derive_coefficients.py            prints the module
    python tests/passes/derive_coefficients.py --check    compares it with the committed one

Method: weighted least squares on Chebyshev nodes (near-minimax), solved through the normal equations with 60 digits,
so the result does not depend on a linear algebra library. The weight makes the error relative to the *result* of the
function. Coefficients are rounded to the element type one by one, lowest power first; each time the remaining ones are
fitted again, so that they absorb the rounding of those already fixed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import mpmath as mp
import numpy as np

mp.mp.dps = 60
Fn = Callable[[mp.mpf], mp.mpf]


def f32(x: mp.mpf) -> mp.mpf:
    return mp.mpf(float(np.float32(float(x))))


def f64(x: mp.mpf) -> mp.mpf:
    return mp.mpf(float(x))


def nodes(lo: mp.mpf, hi: mp.mpf, n: int = 96) -> list[mp.mpf]:
    return [(lo + hi) / 2 + (hi - lo) / 2 * mp.cos(mp.pi * (2 * k + 1) / (2 * n)) for k in range(n)]


def least_squares(rows: Sequence[Sequence[mp.mpf]], rhs: Sequence[mp.mpf]) -> list[mp.mpf]:
    n = len(rows[0])
    a = mp.matrix(n, n)
    b = mp.matrix(n, 1)
    for i in range(n):
        b[i] = mp.fdot([r[i] for r in rows], rhs)
        for j in range(i + 1):
            a[i, j] = a[j, i] = mp.fdot([r[i] for r in rows], [r[j] for r in rows])
    x = mp.lu_solve(a, b)
    return [x[i] for i in range(n)]


def polynomial(f: Fn, degree: int, lo: float | mp.mpf, hi: float | mp.mpf, weight: Fn,
               rounding: Fn = f32) -> list[mp.mpf]:
    """c[0..degree] with sum c[i] x**i close to f where weight(x) * error counts."""
    xs = nodes(mp.mpf(lo), mp.mpf(hi))
    ws, fs = [weight(x) for x in xs], [f(x) for x in xs]
    done: list[mp.mpf] = []
    while len(done) <= degree:
        rows = [[w * x**k for k in range(len(done), degree + 1)] for x, w in zip(xs, ws)]
        rhs = [w * (y - (mp.polyval(done[::-1], x) if done else 0)) for x, w, y in zip(xs, ws, fs)]
        done.append(rounding(least_squares(rows, rhs)[0]))
    return done


def split(x: mp.mpf, *bits: int, last: Fn = f32) -> list[mp.mpf]:
    """x as a sum of parts with this many significant bits each (so that products with small integers are exact even
    without a fused multiply-add), and a last part that holds the rest."""
    parts = []
    for b in bits:
        e = mp.floor(mp.log(abs(x), 2)) + 1 - b
        part = mp.nint(x / mp.mpf(2) ** e) * mp.mpf(2) ** e
        parts.append(part)
        x -= part
    return [*parts, last(x)]


def one(_: mp.mpf) -> mp.mpf:
    return mp.mpf(1)


def near0(f: Fn, limit: Sequence[float | mp.mpf]) -> Fn:
    """f with its Taylor expansion where the closed form cancels."""
    return lambda x: mp.polyval([mp.mpf(c) for c in reversed(limit)], x) if abs(x) < mp.mpf(10) ** -18 else f(x)


def coefficients() -> dict[str, list[mp.mpf]]:
    ln2, pi = mp.log(2), mp.pi
    out: dict[str, list[mp.mpf]] = {}
    # exp(r) = 1 + r + r^2 EXP(r), |r| <= ln 2: the scale is the square of a power of two
    r = ln2 * mp.mpf("1.001")
    out["EXP"] = polynomial(lambda x: (mp.exp(x) - 1 - x) / x**2, 5, -r, r, lambda x: x**2 / mp.exp(x))
    out["TWO_LN2"] = split(2 * ln2, 15)
    # the same for |r| <= ln 2 / 2, where the scale needs no square
    r = ln2 / 2 * mp.mpf("1.001")
    out["EXP_NARROW"] = polynomial(lambda x: (mp.exp(x) - 1 - x) / x**2, 4, -r, r, lambda x: x**2 / mp.exp(x))
    # expm1(r) = r + r^2 EXPM1(r), |r| <= ln 2 / 2
    r = ln2 / 2 * mp.mpf("1.001")
    out["EXPM1"] = polynomial(lambda x: (mp.expm1(x) - x) / x**2, 4, -r, r, lambda x: x**2 / abs(mp.expm1(x)))
    out["LN2"] = split(ln2, 15)
    # 2^r = 1 + r EXP2(r), |r| <= 1/2
    out["EXP2"] = polynomial(lambda x: (mp.mpf(2) ** x - 1) / x, 5, -0.5005, 0.5005, lambda x: abs(x) / mp.mpf(2) ** x)
    # log(1 + f) = f - f^2/2 + f^3 LOG(f), sqrt(1/2) - 1 <= f <= sqrt(2) - 1
    lo, hi = mp.sqrt(mp.mpf(1) / 2) - 1, mp.sqrt(2) - 1
    out["LOG"] = polynomial(lambda f: (mp.log1p(f) - f + f**2 / 2) / f**3, 7, lo, hi,
                            lambda f: abs(f**3 / mp.log1p(f)))
    out["LOG2E"] = split(1 / ln2, 12)
    # erf(x) = x + x ERF_NEAR(x^2), |x| <= 1;  1 / ERF_FAR(x)^4 = erfc(x), 1 <= x <= 4
    e = near0(lambda u: mp.erf(mp.sqrt(u)) / mp.sqrt(u), [2 / mp.sqrt(pi), -2 / (3 * mp.sqrt(pi))])
    out["ERF_NEAR"] = polynomial(lambda u: e(u) - 1, 7, 0.0, 1.0, lambda u: 1 / e(u))
    far = polynomial(lambda x: mp.erfc(x) ** (-mp.mpf(1) / 4), 8, 1.0, 4.0,
                     lambda x: mp.erfc(x) ** mp.mpf("1.25"))
    out["ERF_FAR"] = far
    # sinh(x) = x + x^3 SINH(x^2), |x| <= 1
    out["SINH"] = polynomial(lambda u: (mp.sinh(mp.sqrt(u)) / mp.sqrt(u) - 1) / u, 3, 0.0, 1.0,
                             lambda u: u * mp.sqrt(u) / mp.sinh(mp.sqrt(u)))
    # sin(r) = r + r^3 SIN(r^2), cos(r) = 1 - r^2/2 + r^4 COS(r^2), |r| <= 0.9 (more than pi/4: see math_trig)
    u = mp.mpf("0.9") ** 2
    out["SIN"] = polynomial(lambda u: (mp.sin(mp.sqrt(u)) / mp.sqrt(u) - 1) / u, 3, 0.0, u, lambda u: u)
    out["COS"] = polynomial(lambda u: (mp.cos(mp.sqrt(u)) - 1 + u / 2) / u**2, 2, 0.0, u,
                            lambda u: u**2 / mp.cos(mp.sqrt(u)))
    out["PI_2_F64"] = split(pi / 2, 30, 30, last=f64)
    # asin(s) = s + s^3 ASIN(s^2), |s| <= 1/2
    out["ASIN"] = polynomial(lambda u: (mp.asin(mp.sqrt(u)) / mp.sqrt(u) - 1) / u, 5, 0.0, 0.25, lambda u: u)
    # atan(z) = z + z^3 ATAN(z^2), |z| <= 1
    out["ATAN"] = polynomial(lambda u: (mp.atan(mp.sqrt(u)) / mp.sqrt(u) - 1) / u, 9, 0.0, 1.0, lambda u: u)
    out["PI_2"] = [f32(pi / 2), f32(pi / 2 - f32(pi / 2))]
    # log2(m) = s LOG2_F64(s^2) with s = (m - 1) / (m + 1);  2^r = EXP2_F64(r), |r| <= 1/2
    hi = ((mp.sqrt(2) - 1) / (mp.sqrt(2) + 1)) ** 2
    out["LOG2_F64"] = polynomial(lambda u: 2 / ln2 * mp.atanh(mp.sqrt(u)) / mp.sqrt(u), 6, 0.0, hi, one, f64)
    out["EXP2_F64"] = polynomial(lambda x: mp.mpf(2) ** x, 8, -0.5, 0.5, one, f64)
    return out


def module_text() -> str:
    lines = ['"""Constants of the maths expansions, made by tests/passes/derive_coefficients.py; lowest power first.',
             "", "The comments of that script say which function each belongs to, on which interval.", '"""', ""]
    for name, values in coefficients().items():
        lines.append(f"{name} = (")
        lines += [f"    {float(v)!r}," for v in values]
        lines.append(")")
    return "\n".join(lines) + "\n"


def main() -> int:
    text = module_text()
    if "--check" not in sys.argv:
        print(text, end="")
        return 0
    path = Path(__file__).parents[2] / "src/tilewright/passes/math_constants.py"
    same = path.read_text() == text
    print(f"{path.name}: {'as derived' if same else 'differs from what this script derives'}")
    return 0 if same else 1


if __name__ == "__main__":
    raise SystemExit(main())
