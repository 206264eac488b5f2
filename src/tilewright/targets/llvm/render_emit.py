"""The text of one LLVM function while it is being written: names, entry-block memory, intrinsics, lane helpers."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.types import DType
from ..description import TargetDescription
from .description import features_of
from .types import constant, splat_literal, suffix, vector, wrap


@dataclass(frozen=True, slots=True)
class Value:
    """What an expression became. kind 's': one scalar for all lanes; 'l': base `text` plus lane times `step` (i64
    only), kept symbolic so that addresses stay scalar; 'v': a vector with a value per lane."""

    kind: str
    text: str
    dtype: DType
    step: str = "0"


class Module:
    """What the functions of one module share: declarations and helper functions, each written once."""

    def __init__(self, description: TargetDescription) -> None:
        self.description = description
        self.features = features_of(description)
        self.declarations: dict[str, str] = {}
        self.helpers: dict[str, str] = {}

    def has(self, feature: str) -> bool:
        return feature in self.features

    @property
    def has_f16c(self) -> bool:
        return "f16c" in self.features

    @property
    def has_fma(self) -> bool:
        return "fma" in self.features


class Writer:
    """Instructions, in order. Operands are texts (a name or a literal)."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.lines: list[str] = []
        self.entry: list[str] = []  # allocas: they belong to the entry block, wherever they are asked for
        self.count = 0
        self.block = "entry"

    # -- names and blocks

    def name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def label(self, hint: str) -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def start(self, label: str) -> None:
        self.lines.append(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        self.lines.append(f"  br label %{label}")

    def branch(self, condition: str, yes: str, no: str) -> None:
        self.lines.append(f"  br i1 {condition}, label %{yes}, label %{no}")

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def op(self, text: str) -> str:
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return name

    def alloca(self, ty: str, align: int = 0) -> str:
        name = self.name()
        self.entry.append(f"  {name} = alloca {ty}" + (f", align {align}" if align else ""))
        return name

    # -- calls

    def call(self, result: str, function: str, arguments: list[tuple[str, str]], attributes: str = "") -> str:
        """A call of an intrinsic or a library function, declared on first use. `result` 'void' returns no name."""
        if function not in self.module.declarations:
            types = ", ".join(t for t, _ in arguments)
            self.module.declarations[function] = f"declare {result} @{function}({types}) {attributes}".rstrip()
        text = f"call {result} @{function}({', '.join(f'{t} {v}' for t, v in arguments)})"
        if result == "void":
            self.line(text)
            return ""
        return self.op(text)

    def intrinsic(self, stem: str, ty: str, lanes: int, *operands: str) -> str:
        """llvm.<stem> with one overloaded type, which is also the result's."""
        full = vector(ty, lanes)
        return self.call(full, f"llvm.{stem}.{suffix(ty, lanes)}", [(full, o) for o in operands])

    # -- integers, folded when they are literals

    def iadd(self, a: str, b: str) -> str:
        x, y = constant(a), constant(b)
        if x is not None and y is not None:
            return str(wrap(x + y, 64))
        if x == 0:
            return b
        return a if y == 0 else self.op(f"add i64 {a}, {b}")

    def isub(self, a: str, b: str) -> str:
        x, y = constant(a), constant(b)
        if x is not None and y is not None:
            return str(wrap(x - y, 64))
        return a if y == 0 else self.op(f"sub i64 {a}, {b}")

    def imul(self, a: str, b: str) -> str:
        x, y = constant(a), constant(b)
        if x is not None and y is not None:
            return str(wrap(x * y, 64))
        if x == 0 or y == 0:
            return "0"
        if x == 1:
            return b
        return a if y == 1 else self.op(f"mul i64 {a}, {b}")

    def iless(self, a: str, b: str) -> str:
        x, y = constant(a), constant(b)
        if x is not None and y is not None:
            return "true" if x < y else "false"
        return self.op(f"icmp slt i64 {a}, {b}")

    # -- lanes

    def splat(self, ty: str, text: str, lanes: int) -> str:
        if lanes == 1:
            return text
        if not text.startswith("%"):
            return splat_literal(ty, text, lanes)
        full = vector(ty, lanes)
        one = self.op(f"insertelement {full} poison, {ty} {text}, i64 0")
        return self.op(f"shufflevector {full} {one}, {full} poison, <{lanes} x i32> zeroinitializer")

    def iota(self, ty: str, lanes: int) -> str:
        return "<" + ", ".join(f"{ty} {i}" for i in range(lanes)) + ">"

    def extract(self, ty: str, text: str, lanes: int, lane: int) -> str:
        return text if lanes == 1 else self.op(f"extractelement {vector(ty, lanes)} {text}, i64 {lane}")

    def insert(self, ty: str, into: str, text: str, lanes: int, lane: int) -> str:
        return text if lanes == 1 else self.op(f"insertelement {vector(ty, lanes)} {into}, {ty} {text}, i64 {lane}")

    def select(self, ty: str, lanes: int, condition: str, a: str, b: str) -> str:
        """`condition` has as many lanes as the operands."""
        full = vector(ty, lanes)
        return self.op(f"select {vector('i1', lanes)} {condition}, {full} {a}, {full} {b}")

    def compare(self, predicate: str, ty: str, lanes: int, a: str, b: str) -> str:
        kind = "fcmp" if ty in ("float", "double") else "icmp"
        return self.op(f"{kind} {predicate} {vector(ty, lanes)} {a}, {b}")

    def both(self, lanes: int, a: str | None, b: str | None) -> str | None:
        """The conjunction of two masks, where None is 'all lanes'."""
        if a is None or b is None:
            return b if a is None else a
        return a if a == b else self.op(f"and {vector('i1', lanes)} {a}, {b}")

    def gep(self, ty: str, base: str, offset: str) -> str:
        return base if offset == "0" else self.op(f"getelementptr {ty}, ptr {base}, i64 {offset}")
