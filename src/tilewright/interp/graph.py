"""The oracle for the Graph IR: every op through its NumPy reference (or its decomposition)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..errors import ArgumentError, TilewrightError, VerifyError
from ..ir.graph.core import Graph, Node, TensorType, Value
from ..ir.graph.dims import Dim, DimExpr, Symbol, evaluate, symbols
from ..ir.graph.spec import SPECS

Array: TypeAlias = np.ndarray[Any, Any]


def run(graph: Graph, inputs: Mapping[str, Any], *, decomposed: bool = False) -> dict[str, Array]:
    """The outputs by name. `decomposed` runs composites through their decompositions instead of their references."""
    if decomposed:
        from ..passes.graph.decompose import decompose

        graph = decompose(graph, keep=frozenset())
    values = _evaluate(graph, _bind(graph, inputs), keep=False)
    return {name: values[v] for name, v in zip(graph.output_names, graph.outputs, strict=True)}


def run_all(graph: Graph, inputs: Mapping[str, Any]) -> dict[Value, Array]:
    """Every value of the graph (those of branches not included)."""
    return _evaluate(graph, _bind(graph, inputs), keep=True)


def _bind(graph: Graph, inputs: Mapping[str, Any]) -> list[Array]:
    missing = [n for n in graph.input_names if n not in inputs]
    extra = [n for n in inputs if n not in graph.input_names]
    if missing or extra:
        raise ArgumentError(
            f"graph '{graph.name}' takes the inputs {', '.join(graph.input_names) or 'none'}"
            + (f"; missing: {', '.join(missing)}" if missing else "")
            + (f"; not known: {', '.join(extra)}" if extra else "")
        )
    return [np.asarray(inputs[n]) for n in graph.input_names]


def bind_symbols(type: TensorType, array: Array, bindings: dict[str, int], what: str) -> None:
    """Match an array against a type: check dtype, rank and extents, and learn symbols that are not bound yet."""
    if array.dtype != type.dtype.numpy:
        raise ArgumentError(f"{what} must be {type}, but has element type {array.dtype}")
    if array.ndim != type.rank:
        raise ArgumentError(f"{what} must be {type}, but has shape {list(array.shape)}")
    for axis, (d, n) in enumerate(zip(type.shape, array.shape, strict=True)):
        learn(d, n, bindings)
        if isinstance(d, DimExpr) and not symbols(d) <= bindings.keys():
            continue
        want = evaluate(d, bindings)
        if want != n:
            raise ArgumentError(f"{what} must be {type}, but has shape {list(array.shape)}: axis {axis} is {want}")
    for d in type.shape:
        _check_bounds(d, bindings, what)


def learn(d: Dim, n: int, bindings: dict[str, int]) -> None:
    """Solve `d == n` for the one symbol of `d` that is not bound, where it stands alone with a coefficient."""
    if isinstance(d, int):
        return
    loose = [(a, c) for a, c in d.terms if isinstance(a, Symbol) and a.name not in bindings]
    rest = [(a, c) for a, c in d.terms if not (isinstance(a, Symbol) and a.name not in bindings)]
    if len(loose) != 1 or (rest and not symbols(DimExpr(tuple(rest), 0)) <= bindings.keys()):
        return
    (atom, coefficient), known = loose[0], evaluate(DimExpr(tuple(rest), d.const), bindings)
    if (n - known) % coefficient == 0:
        assert isinstance(atom, Symbol)
        bindings[atom.name] = (n - known) // coefficient


def _check_bounds(d: Dim, bindings: Mapping[str, int], what: str) -> None:
    if isinstance(d, int):
        return
    for a, _ in d.terms:
        if isinstance(a, Symbol) and a.name in bindings:
            n = bindings[a.name]
            if n < a.lo or (a.hi is not None and n > a.hi) or n % a.multiple:
                top = "" if a.hi is None else f", at most {a.hi}"
                step = "" if a.multiple == 1 else f", a multiple of {a.multiple}"
                raise ArgumentError(f"{what}: {a.name} = {n} is out of bounds (at least {a.lo}{top}{step})")


def concrete(attr: Any, bindings: Mapping[str, int]) -> Any:
    """An attribute with its dims evaluated."""
    if isinstance(attr, DimExpr):
        return evaluate(attr, bindings)
    return tuple(concrete(a, bindings) for a in attr) if isinstance(attr, tuple) else attr


def _evaluate(
    graph: Graph, inputs: Sequence[Array], *, keep: bool, outer: Mapping[str, int] | None = None
) -> dict[Value, Array]:
    bindings: dict[str, int] = dict(outer or {})
    values: dict[Value, Array] = {}
    for v, a in zip(graph.inputs, inputs, strict=True):
        bind_symbols(v.type, a, bindings, f"input '{v.node.attr('name')}'")
        values[v] = a
    left: dict[Value, int] = {}
    for n in graph.nodes:
        for used in n.inputs:
            if used is not None:
                left[used] = left.get(used, 0) + 1
    for v in graph.outputs:
        left[v] = left.get(v, 0) + 1
    for node in graph.nodes:
        if node.op == "input":
            if node.out() not in values:
                raise VerifyError(f"graph '{graph.name}' reads input '{node.attr('name')}', which it does not list")
            continue
        operands = [None if v is None else values[v] for v in node.inputs]
        for i, result in enumerate(evaluate_node(node, operands, bindings)):
            try:
                bind_symbols(node.types[i], result, bindings, f"result {i} of '{node.op}' (node '{node.name}')")
            except ArgumentError as e:
                raise VerifyError(e.message, loc=node.loc) from None
            values[node.out(i)] = result
        if keep:
            continue
        for used in node.inputs:
            if used is not None:
                left[used] -= 1
                if left[used] == 0:
                    values.pop(used, None)
    return values


def evaluate_node(node: Node, operands: Sequence[Array | None], bindings: Mapping[str, int]) -> tuple[Array, ...]:
    """The results of one node on concrete operands."""
    if node.op == "constant":
        return (node.out().constant,)
    if node.op == "if_":
        condition = operands[0]
        assert condition is not None
        branch: Graph = node.attr("then_branch" if bool(condition.reshape(-1)[0]) else "else_branch")
        values = _evaluate(branch, [a for a in operands[1:] if a is not None], keep=False, outer=bindings)
        return tuple(values[v] for v in branch.outputs)
    attrs = {k: concrete(a, bindings) for k, a in node.attrs}
    try:
        return SPECS[node.op].evaluate(operands, attrs)
    except TilewrightError:
        raise
    except (ValueError, IndexError, ZeroDivisionError, OverflowError) as e:
        raise ArgumentError(f"'{node.op}' (node '{node.name}') cannot be evaluated: {e}", loc=node.loc) from e
