"""python -m benchmarks kernels|cpu|models: measure this machine against the peers (options below)."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

from tilewright.runtime.machine import host

from . import harness

_PEERS = {
    "kernels": ("torch", "torch.compile"),
    "cpu": ("torch",),
    "models": ("onnxruntime", "openvino", "torch", "torch.compile"),
}
_DTYPES = {"cpu": "f32,bf16,f16,i8"}


def main(argv: list[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    needed = "onnxruntime" if args.suite == "models" else "torch"
    if importlib.util.find_spec(needed) is None:
        print(f"the suite '{args.suite}' needs {needed}: pip install 'tilewright[bench]'", file=sys.stderr)
        return 2
    threads = args.threads or host().usable_physical_cores
    peers = tuple(filter(None, (args.peer if args.peer is not None else needed).split(",")))
    unknown = [p for p in peers if p not in _PEERS[args.suite]]
    if unknown:
        print(
            f"no peer {', '.join(unknown)} for '{args.suite}'; there are: {', '.join(_PEERS[args.suite])}",
            file=sys.stderr,
        )
        return 2
    failures = 0
    for index, dtype in enumerate((args.dtype or _DTYPES.get(args.suite, "f32")).split(",")):
        options = harness.Options(dtype, threads, peers, 0.3 if args.quick else args.seconds, args.quick)
        cases = [c for c in _cases(args.suite, options) if _selected(c, args.case, options)]
        if not cases:
            print(f"no case of '{args.suite}' matches", file=sys.stderr)
            return 2
        if args.list:
            print("\n".join(c.name for c in cases))
            continue
        file = Path(args.json) if args.json else None
        if file is not None and index > 0:
            file = file.with_name(f"{file.stem}-{dtype}{file.suffix}")
        title = f"{args.suite} against {harness.peer_versions(peers) or 'nobody'}"
        try:
            failures += harness.run_all(cases, options, file, title)
        except OSError as error:
            print(f"the rows cannot be written to '{file}': {error.strerror or error}", file=sys.stderr)
            return 2
    return 1 if failures else 0


def _cases(suite: str, options: harness.Options) -> list[harness.Case]:
    if suite == "kernels":
        from . import kernels

        return kernels.cases(options)
    if suite == "cpu":
        from . import cpu

        return cpu.cases(options)
    from . import models

    return models.cases(options)


def _selected(case: harness.Case, wanted: str, options: harness.Options) -> bool:
    if options.dtype not in case.dtypes:
        return False
    if wanted:
        return wanted.lower() in case.name.lower()
    return case.quick or not options.quick


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Times ours and the peers in turn on the same data, and checks every result before it counts.",
        epilog="Examples: python -m benchmarks kernels --threads 2 --case softmax; "
        "python -m benchmarks models --json models.jsonl. The exit code is 1 when a case failed.",
    )
    parser.add_argument("suite", choices=["kernels", "cpu", "models"])
    parser.add_argument("--peer", help="names with commas: torch, torch.compile, onnxruntime, openvino; '' for none")
    parser.add_argument("--dtype", help="f32, f16, bf16, f64, i8; with commas (default: f32; for cpu all it has)")
    parser.add_argument("--threads", type=int, default=0, help="for ours and the peers (default: physical cores)")
    parser.add_argument("--json", help="write one line of JSON per row here")
    parser.add_argument("--case", default="", help="only cases with this in their name")
    parser.add_argument("--seconds", type=float, default=2.0, help="time for each case (default: 2)")
    parser.add_argument("--quick", action="store_true", help="fewer cases and less time for each")
    parser.add_argument("--list", action="store_true", help="only list the cases")
    return parser


if __name__ == "__main__":
    sys.exit(main())
