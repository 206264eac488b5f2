"""What every command prints through: tables for people, JSON for machines, progress only on a terminal."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from ..evidence import Evidence

_PIPE_COLUMNS = 120  # of a file or pipe, which has no width of its own


def _console(stream: Any, **how: Any) -> Console:
    known = stream.isatty() or "COLUMNS" in os.environ
    return Console(width=None if known else _PIPE_COLUMNS, **how)


out = _console(sys.stdout)
err = _console(sys.stderr, stderr=True)


class Step(Protocol):
    def __call__(self, what: str, done: int, total: int) -> None: ...


def print_json(data: Any) -> None:
    """Exactly one JSON document on standard output. JSON has no NaN and no infinity: they become strings."""
    sys.stdout.write(json.dumps(_finite(data), indent=2, allow_nan=False) + "\n")


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {str(k): _finite(v) for k, v in data.items()}
    if isinstance(data, (list, tuple)):
        return [_finite(v) for v in data]
    if isinstance(data, float):
        return data if math.isfinite(data) else str(data)
    if data is None or isinstance(data, (str, int)):
        return data
    return _finite(_plain(data))


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if hasattr(value, "tolist"):
        return value.tolist()
    return str(value)


def table(title: str, *columns: str, numbers: tuple[str, ...] = ()) -> Table:
    """A plain table; columns named in `numbers` are set flush right."""
    made = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=None, pad_edge=False)
    for column in columns:
        number = column in numbers
        made.add_column(column, justify="right" if number else "left", overflow="fold", no_wrap=number)
    return made


def note(text: str) -> None:
    """One line beside the answer, on standard error."""
    err.print(f"note: {escape(text)}", style="dim", highlight=False, soft_wrap=True)


def evidence(value: Evidence | None) -> str:
    """A number with where it came from, or a dash when nobody measured it."""
    return escape(str(value)) if value is not None else "-"


def time(value: Evidence | None) -> str:
    """Milliseconds with where they came from; small ones as microseconds."""
    if value is None or value.value >= 0.1:
        return evidence(value)
    return escape(f"{value.value * 1e3:.3g} us [{value.provenance}]")


def size(count: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.2f} GiB"


@contextmanager
def progress(title: str) -> Iterator[Step]:
    """A bar on standard error, only when a person is looking; yields what moves it."""
    if not err.is_terminal:
        yield lambda what, done, total: None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True) as bar:
        task = bar.add_task(title, total=None)

        def step(what: str, done: int, total: int) -> None:
            bar.update(task, description=f"{title}: {escape(what)}", completed=done, total=total)

        yield step


@contextmanager
def working(title: str) -> Iterator[None]:
    """For work whose length is not known: a spinner on a terminal."""
    if not err.is_terminal:
        yield
        return
    with err.status(title):
        yield
