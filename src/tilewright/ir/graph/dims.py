"""Dims: an int, or an expression over named symbols (with bounds and divisibility).

Expressions are kept in a small normal form: a sum of integer multiples of atoms, plus an integer. An atom is a
symbol, or a floor division / remainder / max / min / product of expressions that did not simplify. Interned, so that
equal expressions are one object; anything that simplifies to an integer *is* a Python int.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, Union

Dim: TypeAlias = Union[int, "DimExpr"]


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named dim: `lo <= value` (and `<= hi` when known), and a multiple of `multiple`."""

    name: str
    lo: int = 0
    hi: int | None = None
    multiple: int = 1

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Compound:
    """floordiv | mod | max | min | mul of two dims that have no simpler form."""

    op: str
    a: Dim
    b: Dim

    def __str__(self) -> str:
        if self.op in ("max", "min"):
            return f"{self.op}({self.a}, {self.b})"
        sign = {"floordiv": "//", "mod": "%", "mul": "*"}[self.op]
        return f"({self.a} {sign} {self.b})"


Atom: TypeAlias = Union[Symbol, Compound]


@dataclass(frozen=True, slots=True)
class DimExpr:
    """sum(coefficient * atom) + const, with at least one term."""

    terms: tuple[tuple[Atom, int], ...]
    const: int = 0

    def __add__(self, other: Dim) -> Dim:
        return _linear(_terms(self) + _terms(other), self.const + _const(other))

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + (other * -1)

    def __rsub__(self, other: Dim) -> Dim:
        return (self * -1) + other

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, int):
            return _linear([(a, c * other) for a, c in self.terms], self.const * other)
        return _atom(Compound("mul", self, other))

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        if isinstance(other, int) and all(c % other == 0 and _is_integral(a) for a, c in self.terms):
            return self.const % other
        return _atom(Compound("mod", self, other))

    def __str__(self) -> str:
        parts = [str(a) if c == 1 else f"{c}*{a}" for a, c in self.terms]
        if self.const:
            parts.append(str(self.const))
        text = " + ".join(parts).replace("+ -", "- ")
        return text if len(parts) == 1 else f"({text})"


def _is_integral(_: Atom) -> bool:
    return True


def _terms(d: Dim) -> list[tuple[Atom, int]]:
    return [] if isinstance(d, int) else list(d.terms)


def _const(d: Dim) -> int:
    return d if isinstance(d, int) else d.const


def _linear(terms: list[tuple[Atom, int]], const: int) -> Dim:
    table: dict[Atom, int] = {}
    for a, c in terms:
        table[a] = table.get(a, 0) + c
    kept = tuple(sorted(((a, c) for a, c in table.items() if c), key=lambda t: str(t[0])))
    return DimExpr(kept, const) if kept else const


def _atom(a: Atom) -> Dim:
    return DimExpr(((a, 1),), 0)


def symbol(name: str, lo: int = 0, hi: int | None = None, multiple: int = 1) -> DimExpr:
    return DimExpr(((Symbol(name, lo, hi, multiple), 1),), 0)


def floordiv(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if b == 1:
        return a
    if isinstance(b, int) and isinstance(a, DimExpr) and b > 0:
        out = [(t, c // b) for t, c in a.terms if c % b == 0]
        rest = [(t, c) for t, c in a.terms if c % b]
        if not rest:
            return _linear(out, a.const // b)
        if out:
            return _linear(out, 0) + floordiv(_linear(rest, a.const), b)
    if a == b:
        return 1
    return _atom(Compound("floordiv", a, b))


def dim_max(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return max(a, b)
    return a if a == b else _atom(Compound("max", a, b))


def dim_min(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return min(a, b)
    return a if a == b else _atom(Compound("min", a, b))


def product(dims: tuple[Dim, ...]) -> Dim:
    n: Dim = 1
    for d in dims:
        n = n * d if isinstance(n, DimExpr) or isinstance(d, int) else d * n
    return n


def evaluate(d: Dim, bindings: Mapping[str, int]) -> int:
    """The value of a dim with every symbol bound; KeyError names a symbol that is not."""
    if isinstance(d, int):
        return d
    return d.const + sum(c * _evaluate_atom(a, bindings) for a, c in d.terms)


def _evaluate_atom(a: Atom, bindings: Mapping[str, int]) -> int:
    if isinstance(a, Symbol):
        return bindings[a.name]
    x, y = evaluate(a.a, bindings), evaluate(a.b, bindings)
    match a.op:
        case "floordiv":
            return x // y
        case "mod":
            return x % y
        case "mul":
            return x * y
        case "max":
            return max(x, y)
        case _:
            return min(x, y)


def symbols(d: Dim) -> set[str]:
    if isinstance(d, int):
        return set()
    found: set[str] = set()
    for a, _ in d.terms:
        found |= {a.name} if isinstance(a, Symbol) else symbols(a.a) | symbols(a.b)
    return found


def substitute(d: Dim, bindings: Mapping[str, Dim]) -> Dim:
    """`d` with some symbols replaced; simplified again."""
    if isinstance(d, int):
        return d
    total: Dim = d.const
    for a, c in d.terms:
        if isinstance(a, Symbol):
            v: Dim = bindings.get(a.name, _atom(a))
        else:
            x, y = substitute(a.a, bindings), substitute(a.b, bindings)
            match a.op:
                case "floordiv":
                    v = floordiv(x, y)
                case "mod":
                    v = x % y
                case "mul":
                    v = x * y
                case "max":
                    v = dim_max(x, y)
                case _:
                    v = dim_min(x, y)
        total = total + v * c
    return total
