"""Which grouped multiply-add of a target serves a matrix product."""

from __future__ import annotations

from ..ir.types import DType
from ..targets.description import ProductAtom, TargetDescription


def product_atom(a: DType, b: DType, acc: DType, target: TargetDescription) -> ProductAtom | None:
    """The atom for these element types; for bytes also one that takes a with the other signedness, because lowering can
    turn a's top bit and set the sums right."""
    found: ProductAtom | None = None
    for atom in target.products:
        if atom.acc != acc.name or atom.b != b.name:
            continue
        if atom.a == a.name:
            return atom
        if found is None and {atom.a, a.name} == {"i8", "u8"}:
            found = atom
    return found
