"""What Tilewright is for, in one run: python -m examples.demo (or `make demo`).

A real photograph goes through a real model (open-nsfw, a thin ResNet-50) on this CPU. Every output and every tensor
inside is compared with onnxruntime; then come the latency next to onnxruntime's and the slowest regions with their
fraction of the measured peak. At last an attention kernel, written in the kernel language, is held against float64.
The exit code is 1 when anything differs by more than its tolerance.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

import tilewright as tw
from benchmarks.kernels import attention_reference
from tests import modelzoo
from tilewright.certify.compare import Parity, compare, relative_error, worst
from tilewright.certify.onnxruntime_peer import OnnxRuntime
from tilewright.cli import reports, show
from tilewright.cli.run import named_outputs
from tilewright.evidence import Evidence
from tilewright.profile.timing import interleave
from tilewright.runtime.machine import host
from tilewright.runtime.peaks import peaks

Array = np.ndarray[Any, Any]

TOLERANCE = 1e-3  # of the model's tensors, relative to onnxruntime's: both round in float32, in different orders
ATTENTION_TOLERANCE = 1e-5  # of the float32 kernel, relative to float64
INPUT = "input:0"


def main() -> int:
    threads = host().usable_physical_cores
    heading(f"the machine: {host()}")
    with show.progress("measuring peaks") as step:
        top = peaks(progress=step)
    say(f"peak of f32 multiply-adds, {threads} threads: {top.get('f32', threads)}")

    heading("a photograph through open-nsfw")
    path = modelzoo.path("opennsfw")
    inputs = {INPUT: modelzoo.opennsfw_input(modelzoo.photograph("astronaut"))}
    start = time.perf_counter()
    model = tw.load(str(path))
    net = model.compile("cpu", threads=threads)
    say(f"loaded and compiled in {time.perf_counter() - start:.2f} s")
    outputs = named_outputs(model, net(**inputs))
    classification(outputs)

    heading("every tensor next to onnxruntime's")
    equal = parity(model, path, inputs, outputs, threads)

    heading(f"latency, {threads} threads each, in turn")
    latency(net, OnnxRuntime(path, threads), inputs, threads)

    heading("the slowest five regions")
    report = net.profile(inputs)
    show.out.print(reports.regions_table(reports.slowest(report.regions, 5), title=""))

    heading("flash attention in the kernel language, against float64")
    return 0 if attention() and equal else 1


def classification(outputs: Mapping[str, Array]) -> None:
    """The model's two scores: safe, and not safe for work."""
    safe, unsafe = (float(v) for v in next(iter(outputs.values())).reshape(-1)[:2])
    say(f"safe for work {safe:.4f}, not safe for work {unsafe:.4f}: {'safe' if safe > unsafe else 'not safe'}")


def parity(model: Any, path: Any, inputs: Mapping[str, Array], outputs: Mapping[str, Array], threads: int) -> bool:
    """Compare the outputs of the model as it is run, and then all tensors of one compiled to keep them."""
    peer = OnnxRuntime(path, threads, intermediates=True)
    theirs = peer.run(inputs)
    ours = model.compile("cpu", threads=threads, keep_intermediates=True).intermediates(inputs)
    found = compare(ours, theirs, TOLERANCE)
    final = compare(outputs, theirs, TOLERANCE)
    five = sorted(found, key=lambda p: -p.error)[:5]
    show.out.print(reports.parity_table("outputs", final))
    show.out.print(reports.parity_table(f"intermediate tensors: the five furthest of {len(found)}", five))
    missing = [name for name in theirs if name not in ours and name not in outputs]
    if missing:
        say(f"not compared, {len(missing)} of {len(theirs)} tensors: {', '.join(missing[:5])} ...")
    everything: list[Parity] = [*found, *final]
    show.out.print(reports.verdict(everything, worst(everything)), highlight=False, soft_wrap=True)
    return not missing and all(p.ok for p in everything)


def latency(net: Any, peer: OnnxRuntime, inputs: dict[str, Array], threads: int) -> None:
    with show.working("timing"):
        timings = interleave({"tilewright": lambda: net(**inputs), "onnxruntime": lambda: peer.run(inputs)}, seconds=5)
    how = f"python -m benchmarks models --case opennsfw --threads {threads}"
    found = {name: Evidence(t.median * 1e3, "ms", "measured", how) for name, t in timings.items()}
    show.out.print(reports.latency_table(found))


def attention() -> bool:
    """Causal attention where groups of query heads share a key head."""
    from examples.kernels import attention as kernel

    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((heads, 512, 64), dtype=np.float32) for heads in (8, 2, 2))
    error = relative_error(kernel(q, k, v), attention_reference(q, k, v))
    equal = error <= ATTENTION_TOLERANCE
    say(f"8 query heads, 2 key heads, 512 positions: relative error {error:.2e}, {'equal' if equal else 'DIFFERENT'}")
    return equal


def heading(text: str) -> None:
    show.out.print(f"\n[bold]{text}[/]", highlight=False)


def say(text: str) -> None:
    show.out.print(text, highlight=False, markup=False)


if __name__ == "__main__":
    sys.exit(main())
