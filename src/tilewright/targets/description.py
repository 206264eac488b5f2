"""What the shared passes and schedules know of a machine: numbers and capabilities, no names of instructions."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ProductAtom:
    """A multiply-add over `group` neighbouring steps of the inner dimension at once (ir/scheduled `Micro.group`), by
    the names of its element types. `rate`: products per cycle, relative to those of f32 multiply-adds."""

    a: str
    b: str
    acc: str
    group: int
    rate: float


@dataclass(frozen=True, slots=True)
class TargetDescription:
    """Sizes in bytes, per core unless said. `vector_bits` is the width of a vector register, `vector_registers` their
    number; `masked` says that partial vectors load and store without a penalty. `products`: grouped multiply-adds, the
    best first; those of one step at a time need no mention. `triple`, `cpu` and `features` are
    opaque to everything but the target itself; they are part of cache keys."""

    name: str
    family: str
    vector_bits: int
    vector_registers: int
    masked: bool
    cores: int
    l1: int
    l2: int
    l3: int
    triple: str = ""
    cpu: str = ""
    features: str = ""
    dtypes: tuple[str, ...] = field(default=())
    products: tuple[ProductAtom, ...] = field(default=())

    def lanes(self, bits: int) -> int:
        """Elements of this many bits in one vector register."""
        return max(1, self.vector_bits // bits)
