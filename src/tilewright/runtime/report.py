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
    number: int = 0  # its place in the order of running: what `explain --region` takes

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number, "name": self.name, "kernel": self.kernel, "nodes": list(self.nodes),
            "schedule": self.schedule,
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

    def __str__(self) -> str:
        """What `print` shows: a line per region, then the memory plan."""
        rows = [("", "region", "at node", "kernel", "time", "of peak")]
        for r in self.regions:
            rows.append((str(r.number), r.name, r.nodes[0] if r.nodes else "-", r.kernel,
                         _number(r.milliseconds, "{:.4g} ms"), _number(r.fraction_of_peak, "{:.1%}")))
        timed = any(r.milliseconds is not None for r in self.regions)
        kept = [row if timed else row[:4] for row in rows]
        widths = [max(map(len, column)) for column in zip(*kept, strict=True)]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in kept]
        m = self.memory
        return "\n".join([
            f"{self.target}, {self.threads} threads, {len(self.regions)} regions", *lines,
            f"memory: weights {m.weights_bytes:,} bytes; intermediate tensors {m.arena_bytes:,} bytes, "
            f"the least any plan could need {m.lower_bound_bytes:,}"])

    def to_json(self) -> dict[str, Any]:
        m = self.memory
        return {
            "target": self.target, "threads": self.threads, "regions": [r.to_json() for r in self.regions],
            "memory": {"arena_bytes": m.arena_bytes, "lower_bound_bytes": m.lower_bound_bytes,
                       "weights_bytes": m.weights_bytes},
        }


def _number(e: Evidence | None, form: str) -> str:
    return "-" if e is None else f"{form.format(e.value)} [{e.provenance}]"
