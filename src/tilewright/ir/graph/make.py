"""`make`: build a node through the spec table - arity, attributes, result types - so that no ill-typed node exists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ...errors import ArgumentError, UnsupportedError
from ..types import Loc
from .core import Node, TensorType, Value, digest_of, intern_node
from .op_spec import REQUIRED, Site, check_attr
from .shape_values import known_dims
from .spec import SPECS

_where: ContextVar[tuple[Loc | None, str]] = ContextVar("graph_location", default=(None, ""))


@contextmanager
def location(loc: Loc | None, name: str = "") -> Iterator[None]:
    """Nodes built inside, unless told otherwise, come from `loc` and carry `name`."""
    token = _where.set((loc, name))
    try:
        yield
    finally:
        _where.reset(token)


def make(op: str, *inputs: Value | None, loc: Loc | None = None, name: str = "", **attrs: Any) -> Node:
    """The node applying `op`; raises ShapeError, DTypeError or ArgumentError when it does not fit together."""
    here = _where.get()
    loc, name = loc or here[0], name or here[1]
    spec = SPECS.get(op)
    if spec is None:
        raise UnsupportedError(f"the Graph IR has no op '{op}'", loc=loc)
    label = f"'{op}'" + (f" (node '{name}')" if name else "")
    ins = list(inputs)
    limit = None if spec.variadic else len(spec.operands)
    if limit is not None and len(ins) > limit:
        raise ArgumentError(
            f"{label} takes at most {limit} operands ({' '.join(spec.operands)}), got {len(ins)}", loc=loc
        )
    if limit is not None:
        ins += [None] * (limit - len(ins))
    for i, v in enumerate(ins):
        if v is not None and not isinstance(v, Value):
            raise ArgumentError(f"{label}: operand {i} must be a value of a graph, not {type(v).__name__}", loc=loc)
        needed = i >= len(spec.operands) or not spec.operands[i].endswith("?")
        if v is None and needed:
            raise ArgumentError(
                f"{label}: operand '{spec.operands[min(i, len(spec.operands) - 1)]}' is missing", loc=loc
            )
    if len(ins) < spec.min_operands:
        raise ArgumentError(f"{label} needs at least {spec.min_operands} operands, got {len(ins)}", loc=loc)

    types = tuple(None if v is None else v.type for v in ins)
    checked = _attributes(op, label, types, attrs, loc)
    site = _site(op, ins, checked, loc, name)
    results = spec.infer(site)
    return intern_node(op, ins, checked, results, loc=loc, name=name)


def site_of(node: Node) -> Site:
    """The site that a node's types were worked out at."""
    return _site(node.op, node.inputs, dict(node.attrs), node.loc, node.name)


def _site(op: str, ins: Sequence[Value | None], attrs: dict[str, Any], loc: Loc | None, name: str) -> Site:
    types = tuple(None if v is None else v.type for v in ins)
    constants = tuple(v.constant if v is not None and v.is_constant else None for v in ins)

    def known(index: int) -> Any:
        v = ins[index] if index < len(ins) else None
        return None if v is None else known_dims(v)

    def fresh_name() -> str:
        return digest_of(op, ins, sorted(attrs.items()))

    return Site(op, SPECS[op].operands, types, attrs, constants, known, fresh_name, loc, name)


def _attributes(
    op: str, label: str, types: Sequence[TensorType | None], attrs: dict[str, Any], loc: Loc | None
) -> dict[str, Any]:
    spec = SPECS[op]
    unknown = [k for k in attrs if k not in spec.attrs]
    if unknown:
        known = ", ".join(spec.attrs) or "none"
        raise ArgumentError(f"{label} has no attribute '{unknown[0]}' (it has: {known})", loc=loc)
    rank = next((t.rank for t in types if t is not None), None)
    given = {k: (attrs[k] if k in attrs else a.default) for k, a in spec.attrs.items()}
    if spec.normalise is not None:
        given = spec.normalise(types, given)
    out = {}
    for key, a in spec.attrs.items():
        if given[key] is REQUIRED:
            raise ArgumentError(f"{label}: attribute '{key}' is required", loc=loc)
        try:
            out[key] = check_attr(key, a, given[key], rank)
        except ValueError as e:
            raise ArgumentError(f"{label}: {e}", loc=loc) from None
    return out


def rebuild(node: Node, inputs: Sequence[Value | None], **changed: Any) -> Node:
    """The same op on other operands (or with some attributes changed), types worked out again."""
    if not changed and tuple(inputs) == node.inputs:
        return node
    if node.op in ("input", "constant"):
        return node
    attrs: dict[str, Any] = dict(node.attrs)
    return make(node.op, *inputs, loc=node.loc, name=node.name, **(attrs | changed))
