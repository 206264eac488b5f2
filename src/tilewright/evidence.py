"""One type for every number shown to a person or a machine: the value and where it came from (design section 6)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

Provenance = Literal["measured", "simulated", "compiled", "estimated"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """`value` in `unit`; `how` is the command or method that reproduces it."""

    value: float
    unit: str
    provenance: Provenance
    how: str

    def __str__(self) -> str:
        return f"{self.value:.4g} {self.unit} [{self.provenance}]"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
