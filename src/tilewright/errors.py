"""Every error a user can meet. One class per kind of mistake; each message is one clear sentence,
the place it happened (the user's line with a caret, or the model's node), and what to do instead."""

from __future__ import annotations

import linecache
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .ir.types import Loc


class TilewrightError(Exception):
    """Base of all errors raised on purpose. `hint` says what to do; `loc` is where it happened."""

    def __init__(self, message: str, *, loc: Loc | None = None, hint: str | None = None) -> None:
        self.message = message
        self.loc = loc
        self.hint = hint
        super().__init__(self.render())

    def render(self) -> str:
        parts = [self.message]
        if self.loc is not None:
            parts.append(render_loc(self.loc))
        if self.hint:
            parts.append(f"  hint: {self.hint}")
        return "\n".join(parts)


def render_loc(loc: Loc) -> str:
    """`file:line:col`, the source line and a caret under it; then the call stack of inlined helpers."""
    lines = [f"  at {loc.file}:{loc.line}" + (f":{loc.col + 1}" if loc.col >= 0 else "")]
    text = linecache.getline(loc.file, loc.line).rstrip("\n") if loc.line > 0 else ""
    if text:
        width = max(1, (loc.end_col - loc.col) if loc.end_col > loc.col >= 0 else 1)
        lines.append(f"    {text}")
        if loc.col >= 0:
            lines.append("    " + " " * loc.col + "^" * min(width, max(1, len(text) - loc.col)))
    if loc.inlined_at is not None:
        lines.append("  inlined")
        lines.append(render_loc(loc.inlined_at))
    return "\n".join(lines)


class LanguageError(TilewrightError):
    """A Python construct the kernel language does not have, or one used wrongly."""


class ShapeError(TilewrightError):
    """Shapes, ranks or dims that do not fit together; both positions are named."""


class DTypeError(TilewrightError):
    """Element types that do not fit together (there is no implicit promotion)."""


class ArgumentError(TilewrightError):
    """A kernel or model was called with arguments it cannot take."""


class ScheduleError(TilewrightError):
    """A schedule that is not legal for this program or this machine."""


class UnsupportedError(TilewrightError):
    """A target, dtype or op that this build cannot do; the message says why and what can."""


class VerifyError(TilewrightError):
    """An IR that breaks its own rules: a fault of a pass, named with the node."""


class ParseError(TilewrightError):
    """IR text that cannot be read back; names line and column."""


class CacheError(TilewrightError):
    """The compile cache cannot be used (permissions, full disk)."""


class MissingExtraError(TilewrightError):
    """An optional dependency is not installed; names the extra to install."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package '{package}', which is not installed",
            hint=f"pip install 'tilewright[{extra}]'",
        )


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with a model: which node, which op, why."""

    node: str
    op: str
    reason: str
    detail: str = ""

    def __str__(self) -> str:
        extra = f" ({self.detail})" if self.detail else ""
        return f"node '{self.node}' [{self.op}]{extra}: {self.reason}"


class ModelError(TilewrightError):
    """A model file that is broken, hostile or uses what is not supported; lists every problem at once."""

    def __init__(self, message: str, problems: Sequence[Problem] = (), *, hint: str | None = None) -> None:
        self.problems = tuple(problems)
        text = message
        if self.problems:
            text += "\n" + "\n".join(f"  - {p}" for p in self.problems)
        super().__init__(text, hint=hint)
