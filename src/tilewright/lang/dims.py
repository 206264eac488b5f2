"""What stands in a kernel's signature: named dims, tensors, compile-time values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import LanguageError
from ..ir.tile import build
from ..ir.tile.core import Node, scalar_text
from ..ir.types import DType, i64


@dataclass(frozen=True, slots=True, eq=False)
class Dim:
    """A named dim or arithmetic on dims; `node` is its i64 scalar of Tile IR."""

    node: Node

    def __add__(self, other: Dim | int) -> Dim:
        return Dim(build.iadd(self.node, _node(other)))

    def __radd__(self, other: int) -> Dim:
        return Dim(build.iadd(_node(other), self.node))

    def __sub__(self, other: Dim | int) -> Dim:
        return Dim(build.isub(self.node, _node(other)))

    def __rsub__(self, other: int) -> Dim:
        return Dim(build.isub(_node(other), self.node))

    def __mul__(self, other: Dim | int) -> Dim:
        return Dim(build.imul(self.node, _node(other)))

    def __rmul__(self, other: int) -> Dim:
        return Dim(build.imul(_node(other), self.node))

    def __floordiv__(self, other: Dim | int) -> Dim:
        return Dim(build.ifloordiv(self.node, _node(other)))

    def __mod__(self, other: Dim | int) -> Dim:
        return Dim(build.imod(self.node, _node(other)))

    def __repr__(self) -> str:
        return scalar_text(self.node)


def _node(x: Dim | int) -> Node:
    if isinstance(x, Dim):
        return x.node
    if isinstance(x, int) and not isinstance(x, bool):
        return build.const(x, i64)
    raise LanguageError(f"arithmetic on dims takes dims and ints, not {x!r}")


def dims(names: str) -> Any:
    """`M, N = dims("M N")`: named dims, in order; one name gives the dim itself."""
    words = names.replace(",", " ").split()
    for w in words:
        if not w.isidentifier():
            raise LanguageError(f"'{w}' is no name for a dim", hint='write names parted by spaces: dims("M N K")')
    if not words:
        raise LanguageError("dims needs at least one name", hint='write dims("M N K")')
    made = tuple(Dim(build.dim(w)) for w in words)
    return made[0] if len(made) == 1 else made


@dataclass(frozen=True, slots=True)
class TensorAnnotation:
    """`Tensor[M, ..., K, f32]`: dims before and after the ellipsis (None: any rank without dims), and the dtype."""

    before: tuple[Node, ...] = ()
    after: tuple[Node, ...] = ()
    any_rank: bool = True
    dtype: DType | None = None

    def __str__(self) -> str:
        items = [scalar_text(n) for n in self.before] + ["..."] * self.any_rank + [scalar_text(n) for n in self.after]
        return f"Tensor[{', '.join(items + ([str(self.dtype)] if self.dtype else []))}]"


class Tensor:
    """Annotation of a tensor parameter: `Tensor[M, K]`, `Tensor[..., K]`, `Tensor[M, 3, tw.f32]`, or bare `Tensor`."""

    def __class_getitem__(cls, items: Any) -> Any:
        before: list[Node] = []
        after: list[Node] = []
        dtype: DType | None = None
        any_rank = False
        for item in items if isinstance(items, tuple) else (items,):
            if isinstance(item, DType):
                dtype = item
            elif item is Ellipsis and not any_rank:
                any_rank = True
            elif isinstance(item, Dim | int) and not isinstance(item, bool):
                (after if any_rank else before).append(_node(item))
            else:
                raise LanguageError(
                    f"Tensor[...] takes dims, ints, one '...' and a dtype, not {item!r}",
                    hint='name dims first: M, K = tw.dims("M K")')
        return TensorAnnotation(tuple(before), tuple(after), any_rank, dtype)


@dataclass(frozen=True, slots=True)
class StaticAnnotation:
    type: type


class static:
    """Annotation of a compile-time parameter: `stride: static[int]` (plain int, float, bool, str mean the same)."""

    def __class_getitem__(cls, item: type) -> Any:
        return StaticAnnotation(item)
