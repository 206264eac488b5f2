"""What a compiled model says of itself: regions, memory, and the numbers' origin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..evidence import Evidence


@dataclass(frozen=True, slots=True)
class RegionReport:
    """One fused kernel: the graph nodes it computes, its library kernel, and what was measured of it."""

    name: str
    kernel: str
    nodes: tuple[str, ...]
    schedule: str
    operations: Evidence
    milliseconds: Evidence | None = None
    fraction_of_peak: Evidence | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "kernel": self.kernel, "nodes": list(self.nodes), "schedule": self.schedule,
            "operations": self.operations.to_json(),
            "milliseconds": self.milliseconds.to_json() if self.milliseconds else None,
            "fraction_of_peak": self.fraction_of_peak.to_json() if self.fraction_of_peak else None,
        }


@dataclass(frozen=True, slots=True)
class MemoryReport:
    """Bytes of one run: the arena of intermediates, the least that any plan could need, and the constants."""

    arena_bytes: int
    lower_bound_bytes: int
    weights_bytes: int


@dataclass(frozen=True, slots=True)
class Report:
    target: str
    threads: int
    regions: tuple[RegionReport, ...]
    memory: MemoryReport

    def to_json(self) -> dict[str, Any]:
        m = self.memory
        return {
            "target": self.target, "threads": self.threads, "regions": [r.to_json() for r in self.regions],
            "memory": {"arena_bytes": m.arena_bytes, "lower_bound_bytes": m.lower_bound_bytes,
                       "weights_bytes": m.weights_bytes},
        }
