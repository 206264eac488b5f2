"""What compiled code takes and makes, as plain data: the compile cache keeps it beside the code, so that a kernel found
there is called without being parsed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, DTypeError, ShapeError
from ..ir.types import BY_NAME, DType, Loc
from . import sizes

if TYPE_CHECKING:
    from ..ir.tile.core import Kernel


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor that the kernel makes."""

    name: str
    dtype: DType
    dims: tuple[sizes.Size, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(sizes.text(d) for d in self.dims)}]"

    def shape(self, values: Mapping[str, int], loc: Loc | None = None) -> tuple[int, ...]:
        """Its shape for these values of the dims."""
        known = ", ".join(f"{k} = {v}" for k, v in values.items())
        try:
            shape = tuple(sizes.evaluate(d, values) for d in self.dims)
        except KeyError as error:
            raise ShapeError(
                f"the shape of the output ({self}) needs {error.args[0]}, which no argument determines ({known})",
                loc=loc,
            ) from None
        except ZeroDivisionError:
            raise ShapeError(f"the shape of the output ({self}) divides by zero ({known})", loc=loc) from None
        if any(n < 0 for n in shape):
            raise ShapeError(f"the output ({self}) would have the shape {shape} ({known})", loc=loc)
        return shape

    def meta(self) -> list[Any]:
        return [self.name, self.dtype.name, list(self.dims)]

    @staticmethod
    def from_meta(meta: list[Any]) -> Output:
        return Output(meta[0], BY_NAME[meta[1]], tuple(meta[2]))


def outputs_of(kernel: Kernel) -> tuple[Output, ...]:
    return tuple(Output(p.name, p.dtype, tuple(sizes.of_node(d) for d in p.dims)) for p in kernel.outputs)


def check_scalar(value: Any, dtype: DType, name: str, loc: Loc | None = None) -> Any:
    """A Python number (or NumPy's) as a value of the parameter's type."""
    if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, bool):
        fits = dtype.is_bool
    elif isinstance(value, int):
        fits = dtype.is_int or dtype.is_float
    else:
        fits = dtype.is_float and (isinstance(value, float) or type(value).__name__ == "bfloat16")
    if not fits:
        raise DTypeError(f"'{name}' is a scalar of type {dtype}, which {value!r} is not", loc=loc)
    if dtype.is_int:
        low = -(1 << dtype.bits - 1) if dtype.kind == "i" else 0
        if not low <= value < low + (1 << dtype.bits):
            raise ArgumentError(f"'{name}' is a scalar of type {dtype}, which cannot hold {value}", loc=loc)
    return float(value) if dtype.is_float else value
