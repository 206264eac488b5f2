"""What the printers and parsers of all levels share: tokens with positions, names, numbers."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import NoReturn

from ..errors import ParseError
from .types import BY_NAME, DType

#: Deepest nesting a parser follows; printers never write anything nearly as deep.
MAX_DEPTH = 80
_MAX_DIGITS = 40

_TOKEN = re.compile(
    r"""(?P<space>[ \t]+|\#[^\n]*(?=\n|$))
      |(?P<newline>\n)
      |(?P<string>"(?:[^"\\\n]|\\.)*")
      |(?P<float>\d+(?:\.\d+(?:[eE][+-]?\d+)?|[eE][+-]?\d+))
      |(?P<int>\d+)
      |(?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)
      |(?P<value>%\d+)
      |(?P<punct>\.\.|//|\+=|[-+*/%$@!:;,.=<>(){}\[\]])
    """,
    re.VERBOSE,
)
_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*\Z")


@dataclass(frozen=True, slots=True)
class Token:
    kind: str
    text: str
    line: int
    col: int


def tokenize(text: str) -> list[Token]:
    """Tokens without spaces and comments; newlines are tokens, and the list ends in one of kind 'end'."""
    out: list[Token] = []
    at, line, start = 0, 1, 0
    while at < len(text):
        m = _TOKEN.match(text, at)
        if m is None or m.lastgroup is None:
            raise ParseError(f"line {line}, column {at - start + 1}: unexpected character {text[at]!r}")
        if m.lastgroup != "space":
            out.append(Token(m.lastgroup, m.group(), line, at - start + 1))
        at = m.end()
        if m.lastgroup == "newline":
            line, start = line + 1, at
    out.append(Token("end", "", line, at - start + 1))
    return out


def name_text(name: str, reserved: frozenset[str] = frozenset()) -> str:
    """A name as it is, or quoted when it would not be read back as one."""
    return name if _BARE.match(name) and name not in reserved else json.dumps(name)


def number_text(value: int | float | bool) -> str:
    """Reads back to the same value, float bits included."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


class Cursor:
    """A position in a list of tokens, with the small readers every grammar needs."""

    def __init__(self, text: str) -> None:
        self.tokens = tokenize(text)
        self.at = 0
        self.depth = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def fail(self, message: str, token: Token | None = None) -> NoReturn:
        t = token or self.token
        raise ParseError(f"line {t.line}, column {t.col}: {message}")

    def next(self) -> Token:
        t = self.token
        if t.kind != "end":
            self.at += 1
        return t

    def peek(self, text: str, ahead: int = 0) -> bool:
        """Is the token this name or punctuation mark?"""
        at = self.at + ahead
        return at < len(self.tokens) and self.tokens[at].text == text and self.tokens[at].kind in ("name", "punct")

    def accept(self, text: str) -> bool:
        if self.peek(text):
            self.at += 1
            return True
        return False

    def expect(self, text: str) -> None:
        if not self.accept(text):
            self.fail(f"expected '{text}', found {self.found()}")

    def found(self) -> str:
        t = self.token
        return {"end": "the end of the text", "newline": "the end of the line"}.get(t.kind, f"'{t.text}'")

    def end_line(self) -> None:
        if self.token.kind == "end":
            return
        if self.token.kind != "newline":
            self.fail(f"expected the end of the line, found {self.found()}")
        self.skip_newlines()

    def skip_newlines(self) -> None:
        while self.token.kind == "newline":
            self.at += 1

    def name(self) -> str:
        t = self.token
        if t.kind == "name":
            self.at += 1
            return t.text
        if t.kind == "string":
            self.at += 1
            try:
                value = json.loads(t.text)
            except ValueError:
                self.fail("a broken string", t)
            return str(value)
        self.fail(f"expected a name, found {self.found()}")

    def natural(self) -> int:
        t = self.token
        if t.kind != "int":
            self.fail(f"expected a number, found {self.found()}")
        if len(t.text) > _MAX_DIGITS:
            self.fail("a number with too many digits")
        self.at += 1
        return int(t.text)

    def integer(self) -> int:
        return -self.natural() if self.accept("-") else self.natural()

    def number(self) -> int | float | bool:
        """An int, a float (inf and nan too), true or false."""
        if self.accept("true"):
            return True
        if self.accept("false"):
            return False
        sign = -1 if self.accept("-") else 1
        if self.token.kind == "int":
            return sign * self.natural()
        if self.accept("inf"):
            return sign * float("inf")
        if self.accept("nan"):
            return float("nan")
        if self.token.kind != "float":
            self.fail(f"expected a number, found {self.found()}")
        return sign * float(self.next().text)

    def dtype(self) -> DType:
        t = self.token
        if t.kind != "name" or t.text not in BY_NAME:
            self.fail(f"expected an element type, found {self.found()}")
        self.at += 1
        return BY_NAME[t.text]

    def constant(self, dtype: DType) -> int | float | bool:
        """A number that `dtype` can hold."""
        t = self.token
        value = self.number()
        if dtype.is_bool:
            if not isinstance(value, bool):
                self.fail("expected true or false", t)
        elif dtype.is_int:
            if isinstance(value, bool) or not isinstance(value, int):
                self.fail(f"expected an integer for {dtype}", t)
            low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
            if not low <= value < (1 << (dtype.bits - (dtype.kind == "i"))):
                self.fail(f"{value} does not fit in {dtype}", t)
        elif not isinstance(value, float):
            self.fail(f"expected a number with a point for {dtype}", t)
        return value

    def enter(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail("nested too deeply")

    def leave(self) -> None:
        self.depth -= 1
