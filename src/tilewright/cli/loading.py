"""From a file named on the command line to a compiled model: dims that were fixed, dims that are free, and progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import ArgumentError, ModelError
from . import show
from .inputs import Wanted, parse_dims, wanted_of


def load(path: Path, dims: Sequence[str] = (), fix: Sequence[str] = ()) -> Any:
    """The model, with `--dim NAME=NUMBER` and `--fix NAME=NUMBER` applied."""
    if not path.is_file():
        raise ArgumentError(f"there is no model file '{path}'")
    import tilewright as tw

    with show.working(f"loading {path.name}"):
        try:
            return tw.load(str(path), dims=parse_dims(dims) or None, fixed=parse_fixed(fix) or None)
        except ModelError as error:
            if "dims=" in error.message and error.hint is None:
                error.hint = "on the command line: --dim NAME=NUMBER for a dim, --fix NAME=NUMBER for an input"
            raise


def compile_model(loaded: Any, threads: int, shapes: Mapping[str, Sequence[int]] | None = None,
                  dtype: str | None = None) -> Any:
    """Compiled, with a bar that counts kernels. `shapes` of the inputs: needed when the model leaves some free.
    `dtype`: bf16 or f16 for mixed precision."""
    with show.progress("compiling") as step:

        def progress(done: int, total: int) -> None:
            step(f"{done} of {total} kernels", done, total)

        net = loaded.compile("cpu", threads=threads, dtype=dtype, progress=progress)
        if shapes is not None:
            net.prepare(shapes, progress)
        return net


def assumed_shapes(loaded: Any) -> dict[str, tuple[int, ...]]:
    """The shapes of the inputs where nobody gave data: a free dim is taken as 1, and that is said."""
    wanted = wanted_of(loaded)
    tell_free(wanted)
    return {w.name: tuple(d if isinstance(d, int) else 1 for d in w.shape) for w in wanted}


def graph_of(loaded: Any, shapes: Mapping[str, Sequence[int]] | None = None) -> Any:
    """The graph; of a model that has none before its shapes are known, the one for these shapes."""
    try:
        return loaded.graph
    except ArgumentError:
        if shapes is None:
            shapes = assumed_shapes(loaded)
        return loaded.graph_for(loaded.inputs.shapes(shapes))


def tell_free(wanted: Sequence[Wanted]) -> None:
    """Name the dims that are about to be taken as 1."""
    free = dict.fromkeys(d for w in wanted for d in w.shape if not isinstance(d, int))
    if free:
        names = ", ".join(f"'{d}'" for d in free)
        show.note(f"taken as 1: the free dim{'s' if len(free) > 1 else ''} {names} (--dim NAME=NUMBER sets one)")


def parse_fixed(specs: Sequence[str]) -> dict[str, Any]:
    """`--fix sr=16000` options: an input that becomes a constant."""
    found: dict[str, Any] = {}
    for spec in specs:
        name, _, text = spec.rpartition("=")
        value = _number(text)
        if not name or value is None:
            raise ArgumentError(f"'{spec}' fixes nothing", hint="write --fix INPUT=NUMBER, for example --fix sr=16000")
        found[name] = value
    return found


def _number(text: str) -> int | float | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None
