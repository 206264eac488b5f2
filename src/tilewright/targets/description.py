"""What the shared passes and schedules know of a machine: numbers and capabilities, no names of instructions."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TargetDescription:
    """Sizes in bytes, per core unless said. `vector_bits` is the width of a vector register, `vector_registers` their
    number; `masked` says that partial vectors load and store without a penalty. `triple`, `cpu` and `features` are
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

    def lanes(self, bits: int) -> int:
        """Elements of this many bits in one vector register."""
        return max(1, self.vector_bits // bits)
