"""What a name in a kernel can stand for while it is parsed, besides Tile IR nodes and plain Python values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import LanguageError
from ..ir.tile.core import Axis, Node, TensorParam
from ..ir.types import DType, Loc


@dataclass(frozen=True, slots=True, eq=False)
class Index:
    """A tile's coordinates used as an index: a loop variable (`axis`), or affine arithmetic on loop variables, which
    combine outwards: q*6 + k is a tile (q, k)."""

    node: Node
    axis: Axis | None = None


@dataclass(frozen=True, slots=True, eq=False)
class InTensor:
    param: TensorParam


@dataclass(slots=True, eq=False)
class OutTensor:
    """An output; its parameter gets a name when it is assigned. `start`: empty | zeros | full."""

    dtype: DType
    dims: tuple[Node, ...]
    start: str
    loc: Loc
    name: str = ""
    written: bool = False

    @property
    def param(self) -> TensorParam:
        role = "accumulate" if self.start == "zeros" else "out"
        return TensorParam(self.name or "out", self.dtype, self.dims, role, self.loc)


@dataclass(frozen=True, slots=True)
class Method:
    """A tile's method about to be called: x.sum is the intrinsic with x as its first argument."""

    intrinsic: Intrinsic
    of: Any


class Intrinsic:
    """A function of the kernel language. Outside a kernel it says so."""

    def __init__(self, name: str, doc: str) -> None:
        self.__name__ = name
        self.__doc__ = doc

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise LanguageError(f"tw.{self.__name__} works inside kernels only",
                            hint="call it in a function decorated with @tw.kernel or @tw.fn")

    def __repr__(self) -> str:
        return f"<tilewright intrinsic {self.__name__}>"


class Helper:
    """A function decorated with `@fn`: inlined where a kernel calls it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.helper_of = function
        self.__name__ = getattr(function, "__name__", "helper")
        self.__doc__ = function.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise LanguageError(f"'{self.__name__}' is a @tw.fn helper and runs inside kernels only")


def fn(function: Callable[..., Any]) -> Helper:
    """Marks a function as a helper that kernels may call; it is inlined, and errors show both places."""
    return Helper(function)


def describe(x: Any) -> str:
    """How a message names a value."""
    from ..ir.tile.build import tile_text

    match x:
        case Node():
            return f"a {tile_text(x)}"
        case Index():
            return f"the tile index {x.axis}" if x.axis else "a tile index"
        case InTensor():
            return f"the tensor '{x.param.name}'"
        case OutTensor():
            return f"the output '{x.name or 'out'}'"
        case Intrinsic():
            return f"the function tw.{x.__name__}"
        case Helper():
            return f"the helper '{x.__name__}'"
        case _:
            return f"{type(x).__name__} {x!r}" if isinstance(x, int | float | str | bool) else f"a {type(x).__name__}"
