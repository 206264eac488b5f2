"""A function's source as a syntax tree with places, the outside values it uses, and a key that names its meaning."""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import textwrap
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import LanguageError
from ..ir.types import DType, Loc
from .dims import Dim

_MISSING = object()
_sources: weakref.WeakKeyDictionary[Callable[..., Any], Source] = weakref.WeakKeyDictionary()


@dataclass(slots=True)
class Source:
    fn: Callable[..., Any]
    name: str
    file: str
    tree: ast.FunctionDef
    first_line: int  # of the parsed text, counted from 0
    indent: int  # columns that dedenting took away
    lines: list[str]
    captured: dict[str, Any] = field(default_factory=dict)  # outside values by (dotted) name, as of the first use
    _key: str = ""

    def loc(self, node: ast.AST, inlined_at: Loc | None = None) -> Loc:
        line = getattr(node, "lineno", 0)
        start, end = getattr(node, "col_offset", -1), getattr(node, "end_col_offset", -1)
        if getattr(node, "end_lineno", line) != line:
            end = -1
        text = self.lines[line - 1] if 0 < line <= len(self.lines) else ""
        if not text.isascii():  # the tree counts bytes
            raw = text.encode()
            start, end = len(raw[:start].decode()), len(raw[:end].decode()) if end >= 0 else -1
        shift = self.indent
        return Loc(self.file, line + self.first_line, start + shift, end + shift if end >= 0 else -1, inlined_at)

    @property
    def key(self) -> str:
        """Hash of what the function means: its tree without places, and the values and helpers it uses."""
        if not self._key:
            self._key = _key(self, set())
        return self._key


def source_of(fn: Callable[..., Any]) -> Source:
    """The source of a function, read once per function object."""
    found = _sources.get(fn)
    if found is None:
        found = _sources[fn] = _read(fn)
    return found


def source_key(fn: Callable[..., Any]) -> str:
    return source_of(fn).key


def _read(fn: Callable[..., Any]) -> Source:
    if not isinstance(fn, types.FunctionType):
        raise LanguageError(f"a kernel is made from a function, not from {type(fn).__name__}")
    if fn.__name__ == "<lambda>":
        raise LanguageError("a lambda cannot be a kernel or helper", hint="write it as a def",
                            loc=Loc(fn.__code__.co_filename, fn.__code__.co_firstlineno))
    try:
        raw, line = inspect.getsourcelines(fn)
    except (OSError, TypeError):
        raise LanguageError(
            f"the source of '{fn.__name__}' cannot be read: kernels are parsed from their source",
            hint="define it in a file or a notebook cell") from None
    text = textwrap.dedent("".join(raw))
    try:
        tree = ast.parse(text).body[0]
    except SyntaxError as e:
        raise LanguageError(f"the source of '{fn.__name__}' cannot be parsed: {e.msg}") from None
    file = inspect.getsourcefile(fn) or fn.__code__.co_filename
    lines = text.splitlines()
    first = next((k for k, x in enumerate(lines) if x.strip()), 0)
    indent = len(raw[first].rstrip("\n")) - len(lines[first])
    if not isinstance(tree, ast.FunctionDef):
        raise LanguageError(f"'{fn.__name__}' is not an ordinary function", loc=Loc(file, line),
                            hint="a kernel is a plain def: no async, no class")
    source = Source(fn, fn.__name__, file, tree, max(line, 1) - 1, indent, lines)
    source.captured = _capture(fn, tree)
    return source


def _capture(fn: types.FunctionType, tree: ast.FunctionDef) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for free, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
        try:
            cells[free] = cell.cell_contents
        except ValueError:  # a name that the enclosing function has not bound yet
            continue
    out: dict[str, Any] = {}
    for statement in tree.body:
        for node in ast.walk(statement):
            found = _dotted(node)
            if found is None or found in out:
                continue
            name: str = found
            first, *rest = name.split(".")
            value = cells.get(first, fn.__globals__.get(first, getattr(builtins, first, _MISSING)))
            for attribute in rest:
                if not isinstance(value, types.ModuleType):
                    value = _MISSING
                    break
                value = getattr(value, attribute, _MISSING)
            if value is not _MISSING:
                out[name] = value
    return out


def _dotted(node: ast.AST) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return None if base is None else f"{base}.{node.attr}"
    return None


dotted = _dotted


def _key(source: Source, seen: set[int]) -> str:
    seen.add(id(source.fn))
    h = hashlib.sha256(source.name.encode())  # the name is in the symbols of the code
    tree = source.tree
    parts = [ast.dump(tree.args, include_attributes=False), *(ast.dump(s, include_attributes=False) for s in tree.body)]
    h.update("\n".join(parts).encode())
    for note in source.fn.__annotations__.items():
        h.update(repr(note).encode())
    h.update(repr((source.fn.__defaults__, source.fn.__kwdefaults__)).encode())
    for name, value in sorted(source.captured.items()):
        h.update(f"{name}={_value_key(value, seen)};".encode())
    return h.hexdigest()


def _value_key(value: Any, seen: set[int]) -> str:
    inner = getattr(value, "helper_of", None)
    if inner is not None:
        return "recursive" if id(inner) in seen else _key(source_of(inner), seen)
    if isinstance(value, bool | int | float | str | DType | Dim | tuple | None):
        return f"{type(value).__name__}:{value!r}"
    return getattr(value, "__name__", type(value).__name__)
