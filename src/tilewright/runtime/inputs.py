"""A model's inputs: binding a call's arguments to them, with every mistake named at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ArgumentError, DTypeError, ShapeError, TilewrightError
from ..ir.graph.core import TensorType, Value
from ..ir.graph.dims import evaluate, symbols
from ..ir.types import from_numpy
from . import arrays

Array = np.ndarray[Any, Any]
Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What a model takes, in order."""

    names: tuple[str, ...]
    types: tuple[TensorType, ...]

    @staticmethod
    def of(names: Sequence[str], values: Sequence[Value]) -> Inputs:
        return Inputs(tuple(names), tuple(v.type for v in values))

    def __str__(self) -> str:
        return ", ".join(f"{n}: {t}" for n, t in zip(self.names, self.types, strict=True))

    @property
    def static_shapes(self) -> Shapes | None:
        """The shapes, when no dim is free."""
        return tuple(t.static_shape for t in self.types) if all(t.is_static for t in self.types) else None

    # ------------------------------------------------------------------ arguments

    def bind(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[list[Array], str]:
        """Dense arrays in order, and what kind of arrays the results should be ('numpy' or 'torch')."""
        problems: list[TilewrightError] = []
        if len(args) > len(self.names):
            problems.append(ArgumentError(
                f"the model has {len(self.names)} inputs ({', '.join(self.names)}), but {len(args)} were given"))
        values: dict[str, Any] = dict(zip(self.names, args, strict=False))
        for name, x in named.items():
            if name not in self.names:
                problems.append(ArgumentError(f"the model has no input '{name}' (it has: {', '.join(self.names)})"))
            elif name in values:
                problems.append(ArgumentError(f"input '{name}' is given twice"))
            values[name] = x
        missing = [n for n in self.names if n not in values]
        if missing:
            problems.append(ArgumentError(f"no value for input {', '.join(repr(m) for m in missing)}"))
        found: list[Array] = []
        for name, type_ in zip(self.names, self.types, strict=True):
            if name in values:
                try:
                    found.append(_array(name, type_, values[name]))
                except TilewrightError as e:
                    problems.append(e)
        if not problems:
            self._dims(tuple(a.shape for a in found), problems)
        _raise(problems)
        return found, "torch" if any(arrays.is_torch(x) for x in values.values()) else "numpy"

    def by_name(self, given: Any) -> dict[str, Any]:
        """Inputs as a dict: what is not one is told so, before Python complains of something else."""
        if not isinstance(given, Mapping):
            raise ArgumentError(f"the inputs are a dict of arrays by name, not {type(given).__name__}",
                                hint=f"the model has: {', '.join(self.names)}")
        return dict(given)

    def shapes(self, given: Mapping[str, Sequence[int]]) -> Shapes:
        """Shapes by name, checked, in order."""
        problems: list[TilewrightError] = [
            ArgumentError(f"the model has no input '{n}' (it has: {', '.join(self.names)})")
            for n in given if n not in self.names]
        missing = [n for n in self.names if n not in given]
        if missing:
            problems.append(ArgumentError(f"no shape for input {', '.join(repr(m) for m in missing)}"))
        for name, type_ in zip(self.names, self.types, strict=True):
            if name in given:
                try:
                    _check_shape(name, type_, tuple(given[name]))
                except TilewrightError as e:
                    problems.append(e)
        _raise(problems)
        shapes = tuple(tuple(given[n]) for n in self.names)
        self.dims(shapes)
        return shapes

    def dims(self, shapes: Shapes) -> dict[str, int]:
        """The value of every named dim; one name with two values is a mistake."""
        problems: list[TilewrightError] = []
        found = self._dims(shapes, problems)
        _raise(problems)
        return found

    def _dims(self, shapes: Shapes, problems: list[TilewrightError]) -> dict[str, int]:
        from ..interp.graph import learn

        found: dict[str, int] = {}
        for name, type_, shape in zip(self.names, self.types, shapes, strict=True):
            for axis, (want, got) in enumerate(zip(type_.shape, shape, strict=True)):
                if isinstance(want, int):
                    continue
                learn(want, got, found)
                if symbols(want) <= found.keys() and (size := evaluate(want, found)) != got:
                    problems.append(ShapeError(f"input '{name}' must be {type_}: axis {axis} is {got}, but {want} is "
                                               f"{size} by the inputs before it"))
        return found


def _array(name: str, type_: TensorType, x: Any) -> Array:
    array = arrays.to_numpy(x, f"input '{name}'")
    if array is None:
        array = np.asarray(x)
        if array.ndim == 0 and type_.rank == 0 and array.dtype.kind in "bif":
            array = _number(name, type_, array)
    if array.dtype != type_.dtype.numpy:
        got = from_numpy(array.dtype) or array.dtype
        raise DTypeError(f"input '{name}' must be {type_.dtype}, not {got}",
                         hint=f"cast it first, to {type_.dtype.numpy}")
    _check_shape(name, type_, array.shape)
    return np.ascontiguousarray(array) if array.ndim else array.reshape(())


def _number(name: str, type_: TensorType, array: Array) -> Array:
    """A Python number for an input of rank 0."""
    out = array.astype(type_.dtype.numpy)
    if array.dtype.kind != "f" and out != array or array.dtype.kind == "f" and not type_.dtype.is_float:
        raise DTypeError(f"input '{name}' is {type_}, which {array.item()!r} is not")
    return out


def _check_shape(name: str, type_: TensorType, shape: tuple[int, ...]) -> None:
    if len(shape) != type_.rank:
        raise ShapeError(f"input '{name}' must be {type_}: an array of shape {shape} has another rank")
    for axis, (want, got) in enumerate(zip(type_.shape, shape, strict=True)):
        if isinstance(want, int) and want != got:
            raise ShapeError(f"input '{name}' must be {type_}: axis {axis} is {got}, not {want}")


def _raise(problems: Sequence[TilewrightError]) -> None:
    """One mistake is raised as it is, several as one error that lists them."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        listed = "\n".join(f"  - {p.message}" for p in problems)
        raise ArgumentError(f"the inputs do not fit the model: {len(problems)} problems\n{listed}")
