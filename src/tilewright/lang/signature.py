"""A kernel's parameters, and what one call binds them to: element types, ranks, dim values, static values."""

from __future__ import annotations

import ast
import inspect
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..errors import ArgumentError, DTypeError, LanguageError, ShapeError
from ..ir.tile import build, rewrite
from ..ir.tile.core import Node, const_value, scalar_text
from ..ir.types import DType, Loc
from .dims import StaticAnnotation, Tensor, TensorAnnotation
from .source import Source, source_of

NO_DEFAULT: Any = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A tensor argument: element type and concrete shape."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)


@dataclass(frozen=True, slots=True)
class ScalarSpec:
    """A scalar read at run time."""

    dtype: DType


Spec: TypeAlias = Mapping[str, Any]  # per parameter: TensorSpec, ScalarSpec, or a static Python value


@dataclass(frozen=True, slots=True)
class Parameter:
    """kind: tensor (annotation: TensorAnnotation) | scalar (a DType) | static (a Python type)."""

    name: str
    kind: str
    annotation: Any
    default: Any
    loc: Loc


@dataclass(frozen=True, slots=True)
class Signature:
    name: str
    params: tuple[Parameter, ...]

    @property
    def tensors(self) -> tuple[Parameter, ...]:
        return tuple(p for p in self.params if p.kind == "tensor")


_signatures: weakref.WeakKeyDictionary[Callable[..., Any], Signature] = weakref.WeakKeyDictionary()


def signature_of(fn: Callable[..., Any]) -> Signature:
    found = _signatures.get(fn)
    if found is None:
        found = _signatures[fn] = _read(source_of(fn))
    return found


def _read(source: Source) -> Signature:
    args = source.tree.args
    for extra in (args.vararg, args.kwarg):
        if extra is not None:
            raise LanguageError(f"'{source.name}' takes a variable number of arguments (*{extra.arg})",
                                loc=source.loc(extra), hint="name every parameter")
    defaults = {k: p.default for k, p in inspect.signature(source.fn).parameters.items()}
    params = []
    for a in (*args.posonlyargs, *args.args, *args.kwonlyargs):
        loc = source.loc(a)
        kind, annotation = _classify(_annotation(source, a, loc), a.arg, loc)
        params.append(Parameter(a.arg, kind, annotation, defaults[a.arg], loc))
    return Signature(source.name, tuple(params))


def _annotation(source: Source, a: ast.arg, loc: Loc) -> Any:
    note = source.fn.__annotations__.get(a.arg, NO_DEFAULT)
    if not isinstance(note, str):
        return note
    names = {**getattr(source.fn, "__globals__", {}), **source.captured}
    try:
        return eval(note, names)  # the user's own annotation, as typing.get_type_hints would
    except Exception as e:
        raise LanguageError(f"the annotation of '{a.arg}' cannot be evaluated: {e}", loc=loc,
                            hint="define its dims at the top of the file, or drop 'from __future__ import annotations'"
                            ) from None


def _classify(note: Any, name: str, loc: Loc) -> tuple[str, Any]:
    if isinstance(note, TensorAnnotation):
        return "tensor", note
    if note is Tensor:
        return "tensor", TensorAnnotation()
    if isinstance(note, DType):
        return "scalar", note
    if isinstance(note, StaticAnnotation):
        return "static", note.type
    if note in (int, float, bool, str, DType):
        return "static", note
    what = "has no annotation" if note is NO_DEFAULT else f"has an annotation that kernels do not know: {note!r}"
    raise LanguageError(
        f"parameter '{name}' {what}", loc=loc,
        hint="write a tensor (x: tw.Tensor[M, N]), a runtime scalar (a: tw.f32) or a compile-time value (stride: int)")


# ---------------------------------------------------------------------------------------------- binding


@dataclass(frozen=True, slots=True)
class Bound:
    """One call's meaning of a signature: symbolic dims of each tensor, and every dim's value."""

    dims: dict[str, tuple[Node, ...]]
    values: dict[str, int]


def check_spec(signature: Signature, spec: Spec) -> None:
    for p in signature.params:
        if p.name not in spec:
            raise ArgumentError(f"{signature.name}: no value for parameter '{p.name}'", loc=p.loc)
        got = spec[p.name]
        if p.kind == "tensor":
            if not isinstance(got, TensorSpec):
                raise ArgumentError(f"{signature.name}: '{p.name}' is a tensor {p.annotation}, not {got!r}", loc=p.loc)
            if p.annotation.dtype not in (None, got.dtype):
                raise DTypeError(f"{signature.name}: '{p.name}' holds {got.dtype}, its signature says "
                                 f"{p.annotation.dtype}", loc=p.loc)
        elif p.kind == "scalar":
            if not isinstance(got, ScalarSpec) or got.dtype != p.annotation:
                raise ArgumentError(f"{signature.name}: '{p.name}' is a runtime scalar {p.annotation}, not {got!r}",
                                    loc=p.loc)
        elif not (isinstance(got, p.annotation) or (p.annotation is float and isinstance(got, int))):
            raise ArgumentError(f"{signature.name}: '{p.name}' is a compile-time {p.annotation.__name__}, "
                                f"not {type(got).__name__} {got!r}", loc=p.loc)
    extra = sorted(set(spec) - {p.name for p in signature.params})
    if extra:
        raise ArgumentError(f"{signature.name}: there is no parameter '{extra[0]}'")


def tensor_dims(p: Parameter, rank: int) -> tuple[Node, ...]:
    """The symbolic dims of a tensor of this rank; those without a name are called x_0, x_1, ..."""
    note: TensorAnnotation = p.annotation
    named = len(note.before) + len(note.after)
    if rank < named or (rank > named and not note.any_rank):
        raise ShapeError(f"'{p.name}' has rank {rank}, its signature {note} has rank {named}"
                         + (" or more" if note.any_rank else ""), loc=p.loc)
    middle = tuple(build.dim(f"{p.name}_{d}") for d in range(len(note.before), rank - len(note.after)))
    return (*note.before, *middle, *note.after)


def bind(signature: Signature, spec: Spec) -> Bound:
    """Matches shapes with the signature; two positions that disagree about a dim are both named."""
    dims: dict[str, tuple[Node, ...]] = {}
    values: dict[str, int] = {}
    origin: dict[str, str] = {}
    later: list[tuple[Node, int, str, Parameter]] = []
    for p in signature.tensors:
        shape = spec[p.name].shape
        dims[p.name] = tensor_dims(p, len(shape))
        for axis, (node, size) in enumerate(zip(dims[p.name], shape)):
            here = f"axis {axis} of '{p.name}'"
            if node.op == "const":
                if const_value(node) != size:
                    raise ShapeError(f"{signature.name}: {here} has size {size}, its signature says "
                                     f"{const_value(node)}", loc=p.loc)
            elif node.op == "dim":
                name = node.attr("name")
                if values.setdefault(name, size) != size:
                    raise ShapeError(f"{signature.name}: dim {name} is {values[name]} by {origin[name]} "
                                     f"but {size} by {here}", loc=p.loc)
                origin.setdefault(name, here)
            else:
                later.append((node, size, here, p))
    for node, size, here, p in later:
        solve(node, size, values)
        unknown = [n.attr("name") for n in rewrite.walk((node,)) if n.op == "dim" and n.attr("name") not in values]
        if unknown:
            raise ShapeError(f"{signature.name}: {here} is {scalar_text(node)} = {size}, which does not determine "
                             f"{unknown[0]}", loc=p.loc, hint=f"name {unknown[0]} alone on an axis of some argument")
        if (want := rewrite.evaluate(node, values)) != size:
            raise ShapeError(f"{signature.name}: {here} has size {size} but {scalar_text(node)} is {want}", loc=p.loc)
    return Bound(dims, values)


def solve(node: Node, size: int, values: dict[str, int]) -> None:
    """Finds the one unknown dim of a linear expression (H + 2, 2 * H), when there is one and it divides."""
    while node.op == "map":
        fn, (a, b) = node.attr("fn"), node.args
        known = const_value(b)
        if known is None and b.op == "dim" and b.attr("name") in values:
            known = values[b.attr("name")]
        if known is None:
            return
        if fn == "mul" and known and size % int(known) == 0:
            size //= int(known)
        elif fn in ("add", "sub"):
            size += -int(known) if fn == "add" else int(known)
        else:
            return
        node = a
    if node.op == "dim" and size >= 0:
        values.setdefault(node.attr("name"), size)


