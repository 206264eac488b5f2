"""Dims: an int, or an expression over named symbols (with bounds and divisibility).

Expressions are kept in a small normal form: a sum of integer multiples of atoms, plus an integer. An atom is a
symbol, a product of atoms, or a floor division / remainder / max / min / broadcast of expressions that did not
simplify. Sums are multiplied out, so polynomials of symbols that are equal compare equal; anything that simplifies to
an integer *is* a Python int.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from ...errors import ShapeError

Dim: TypeAlias = "int | DimExpr"


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
    """floordiv | mod | max | min | mul | broadcast of two dims that have no simpler form. `broadcast(a, b)` is the
    extent of two broadcast axes: b where a is 1, else a."""

    op: str
    a: Dim
    b: Dim

    def __str__(self) -> str:
        if self.op in ("max", "min", "broadcast"):
            return f"{self.op}({self.a}, {self.b})"
        sign = {"floordiv": "//", "mod": "%", "mul": "*"}[self.op]
        return f"({self.a} {sign} {self.b})"


Atom: TypeAlias = Symbol | Compound


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
        terms = [(_monomial(_factors(a) + _factors(b)), c * d) for a, c in self.terms for b, d in other.terms]
        terms += [(a, c * other.const) for a, c in self.terms] + [(b, d * self.const) for b, d in other.terms]
        return _linear(terms, self.const * other.const)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floordiv(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return mod(self, other)

    def __rmod__(self, other: Dim) -> Dim:
        return mod(other, self)

    def __str__(self) -> str:
        parts = [str(a) if c == 1 else f"{c}*{a}" for a, c in self.terms]
        if self.const:
            parts.append(str(self.const))
        text = " + ".join(parts).replace("+ -", "- ")
        return text if len(parts) == 1 else f"({text})"


def _terms(d: Dim) -> list[tuple[Atom, int]]:
    return [] if isinstance(d, int) else list(d.terms)


def _const(d: Dim) -> int:
    return d if isinstance(d, int) else d.const


def _linear(terms: Sequence[tuple[Atom, int]], const: int) -> Dim:
    table: dict[Atom, int] = {}
    for a, c in terms:
        table[a] = table.get(a, 0) + c
    kept = tuple(sorted(((a, c) for a, c in table.items() if c), key=lambda t: str(t[0])))
    return DimExpr(kept, const) if kept else const


def _atom(a: Atom) -> Dim:
    return DimExpr(((a, 1),), 0)


def _factors(a: Atom) -> list[Atom]:
    """The atoms whose product `a` is."""
    if isinstance(a, Compound) and a.op == "mul":
        return [f for side in (a.a, a.b) if isinstance(side, DimExpr) for t, _ in side.terms for f in _factors(t)]
    return [a]


def _monomial(factors: list[Atom]) -> Atom:
    """The product of atoms as one atom, the same whatever their order."""
    first, *rest = sorted(factors, key=str)
    for f in rest:
        first = Compound("mul", _atom(first), _atom(f))
    return first


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
    exact = _divide_exactly(a, b)
    return _atom(Compound("floordiv", a, b)) if exact is None else exact


def _divide_exactly(a: Dim, b: Dim) -> Dim | None:
    """a / b where b is one product of atoms which divides every term of a."""
    if not isinstance(a, DimExpr) or not isinstance(b, DimExpr) or len(b.terms) != 1 or a.const or b.const:
        return None
    (divisor, by), total = b.terms[0], []
    for atom, c in a.terms:
        left = _factors(atom)
        for f in _factors(divisor):
            if f not in left:
                return None
            left.remove(f)
        if c % by:
            return None
        total.append((left, c // by))
    out: Dim = 0
    for left, c in total:
        out = out + (_atom(_monomial(left)) * c if left else c)
    return out


def mod(a: Dim, b: Dim) -> Dim:
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if b == 1 or a == b:
        return 0
    if isinstance(a, DimExpr) and isinstance(b, int) and b > 0:
        if all(c * (t.multiple if isinstance(t, Symbol) else 1) % b == 0 for t, c in a.terms):
            return a.const % b
    return _atom(Compound("mod", a, b))


def dim_max(a: Dim, b: Dim) -> Dim:
    order = compare(a, b)
    if order is not None:
        return a if order >= 0 else b
    return _atom(Compound("max", *sorted((a, b), key=str)))


def dim_min(a: Dim, b: Dim) -> Dim:
    order = compare(a, b)
    if order is not None:
        return a if order <= 0 else b
    return _atom(Compound("min", *sorted((a, b), key=str)))


def dim_broadcast(a: Dim, b: Dim) -> Dim | None:
    """The extent of two axes broadcast together; None when they certainly do not fit. A symbol against an int other
    than 1 is taken to fit, since it must when the program runs."""
    if a == b or b == 1:
        return a
    if a == 1:
        return b
    if isinstance(a, int):
        return None if isinstance(b, int) or (differ(a, b) and differ(b, 1)) else a
    if isinstance(b, int):
        return None if differ(a, b) and differ(a, 1) else b
    return _atom(Compound("broadcast", *sorted((a, b), key=str)))


def bounds(d: Dim) -> tuple[int | None, int | None]:
    """The least and the greatest value a dim can have, where known."""
    if isinstance(d, int):
        return d, d
    low: int | None = d.const
    high: int | None = d.const
    for a, c in d.terms:
        lo, hi = _atom_bounds(a)
        if c < 0:
            lo, hi = hi, lo
        low = None if low is None or lo is None else low + c * lo
        high = None if high is None or hi is None else high + c * hi
    return low, high


def _atom_bounds(a: Atom) -> tuple[int | None, int | None]:
    if isinstance(a, Symbol):
        return a.lo, a.hi
    (alo, ahi), (blo, bhi) = bounds(a.a), bounds(a.b)
    match a.op:
        case "mul" if alo is not None and blo is not None and alo >= 0 and blo >= 0:
            return alo * blo, None if ahi is None or bhi is None else ahi * bhi
        case "floordiv" if isinstance(a.b, int) and a.b > 0:
            return None if alo is None else alo // a.b, None if ahi is None else ahi // a.b
        case "mod" if blo is not None and blo > 0:
            return 0, None if bhi is None else bhi - 1
        case "max":
            lows = [x for x in (alo, blo) if x is not None]
            return max(lows, default=None), None if ahi is None or bhi is None else max(ahi, bhi)
        case "min":
            highs = [x for x in (ahi, bhi) if x is not None]
            return None if alo is None or blo is None else min(alo, blo), min(highs, default=None)
        case "broadcast":
            return 0, None
        case _:
            return None, None


def compare(a: Dim, b: Dim) -> int | None:
    """-1, 0 or 1 where a < b, a == b or a > b whatever the symbols are (0 also stands for `<=` proven both ways);
    None when it depends. `a <= b` counts as -1 and `a >= b` as 1."""
    if a == b:
        return 0
    low, high = bounds(a - b)
    if low is not None and low >= 0:
        return 1
    if high is not None and high <= 0:
        return -1
    return None


def differ(a: Dim, b: Dim) -> bool:
    """Whether two dims are certainly different."""
    if a == b:
        return False
    low, high = bounds(a - b)
    return (low is not None and low > 0) or (high is not None and high < 0)


def product(dims: Iterable[Dim]) -> Dim:
    n: Dim = 1
    for d in dims:
        n = n * d
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
        case "broadcast":
            return y if x == 1 else x
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
                    v = mod(x, y)
                case "mul":
                    v = x * y
                case "max":
                    v = dim_max(x, y)
                case "broadcast":
                    fit = dim_broadcast(x, y)
                    if fit is None:
                        raise ShapeError(f"extents {x} and {y} of two broadcast axes do not fit")
                    v = fit
                case _:
                    v = dim_min(x, y)
        total = total + v * c
    return total
