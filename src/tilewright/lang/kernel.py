"""`@tw.kernel`: a function of the kernel language as something to call, and to look into."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, overload

from ..errors import LanguageError

if TYPE_CHECKING:
    from ..ir.tile.core import Kernel as TileKernel
    from ..runtime.dispatch import Dispatcher
    from ..runtime.specialise import Compiled


class Kernel:
    """A kernel. Call it with NumPy arrays, torch tensors or anything that speaks DLPack; results are of the same kind.

    Nothing is parsed or compiled before the first call; each new combination of element types, layouts and rough sizes
    is compiled once, and kept on disk."""

    def __init__(self, fn: Callable[..., Any], static: str = "") -> None:
        if not callable(fn):
            raise LanguageError(f"@tw.kernel decorates a function, not {fn!r}")
        functools.update_wrapper(self, fn)
        self.fn = fn
        self._static = frozenset(static.replace(",", " ").split())
        self._calls: Dispatcher | None = None

    @property
    def name(self) -> str:
        return str(getattr(self.fn, "__name__", "kernel"))

    def __repr__(self) -> str:
        return f"<tilewright kernel {self.name}>"

    def __reduce__(self) -> str:
        return str(getattr(self.fn, "__qualname__", self.name))  # pickled by name, as functions are

    def _dispatcher(self) -> Dispatcher:
        from ..runtime.dispatch import Dispatcher

        self._calls = calls = Dispatcher(self.fn, self._static)
        return calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self._calls or self._dispatcher())(args, kwargs)

    def __get__(self, instance: object, owner: type | None = None) -> Kernel:
        return self  # a kernel in a class is no method

    def tile_ir(self, *args: Any, **kwargs: Any) -> TileKernel:
        """The kernel in Tile IR, for arguments like these."""
        calls = self._calls or self._dispatcher()
        return calls.tile_ir(calls.read(args, kwargs))

    def compile(self, *args: Any, **kwargs: Any) -> Compiled:
        """Compiles for arguments like these, without running anything."""
        calls = self._calls or self._dispatcher()
        return calls.compiled(calls.read(args, kwargs))

    def reference(self, *args: Any, **kwargs: Any) -> Any:
        """What the kernel means: the results as the interpreter of Tile IR computes them, slowly."""
        calls = self._calls or self._dispatcher()
        return calls.reference(calls.read(args, kwargs))

    def explain(
        self, *args: Any, passes: bool = False, assembly: bool = False, llvm: bool = False, **kwargs: Any
    ) -> str:
        """The kernel at every level for arguments like these, as text: Tile IR, the schedule, Scheduled IR. `llvm` adds
        the LLVM IR, `assembly` the machine code, `passes` the program before and after each pass."""
        from ..runtime.explain import explain

        calls = self._calls or self._dispatcher()
        return explain(calls, calls.read(args, kwargs), passes=passes, assembly=assembly, llvm=llvm)


@overload
def kernel(fn: Callable[..., Any], /) -> Kernel: ...
@overload
def kernel(*, static: str = "") -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(fn: Callable[..., Any] | None = None, /, *, static: str = "") -> Any:
    """Makes a kernel of a function. `static`: names of dims (parted by spaces) whose exact sizes may be built into the
    code, which is then compiled for each of them: for small dims that hardly change, such as the width of a head."""
    if fn is None:
        return lambda function: Kernel(function, static)
    return Kernel(fn, static)
