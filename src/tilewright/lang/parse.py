"""From a Python function to Tile IR: the entry of the kernel language."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..errors import LanguageError
from ..ir.tile import build
from ..ir.tile.core import Kernel, ScalarParam, TensorParam
from .context import Context, Frame, Repin
from .signature import NO_DEFAULT, Bound, ScalarSpec, Signature, Spec, TensorSpec, bind, check_spec, signature_of
from .source import Source, source_key, source_of
from .statements import NOTHING, flush_fills, run_block
from .values import InTensor, OutTensor, describe

__all__ = ["ParsedKernel", "ScalarSpec", "TensorSpec", "parse_kernel", "signature_of", "source_key"]


@dataclass(frozen=True, slots=True)
class ParsedKernel:
    """The Tile IR of a kernel for one specialisation. `dim_values` are this call's dims; `pinned` those whose number is
    part of the code; `outputs` the returned tensors in order; `single`: returned alone, not as a tuple."""

    kernel: Kernel
    dim_values: dict[str, int]
    pinned: frozenset[str]
    outputs: tuple[TensorParam, ...]
    single: bool


def parse_kernel(fn: Callable[..., Any], spec: Spec) -> ParsedKernel:
    """`spec`: per parameter a TensorSpec, a ScalarSpec or the static Python value (defaults filled in here)."""
    source, signature = source_of(fn), signature_of(fn)
    full = {p.name: p.default for p in signature.params if p.kind == "static" and p.name not in spec}
    for name, value in full.items():
        if value is NO_DEFAULT:
            raise LanguageError(f"{signature.name}: no value for parameter '{name}'", loc=source.loc(source.tree))
    full = {**full, **spec}
    check_spec(signature, full)
    bound = bind(signature, full)
    pinned: frozenset[str] = frozenset()
    while True:
        try:
            return _parse(source, signature, full, bound, pinned)
        except Repin as more:
            pinned |= more.names


def _parse(source: Source, signature: Signature, spec: Spec, bound: Bound, pinned: frozenset[str]) -> ParsedKernel:
    frame = Frame(source, {})
    ctx = Context(frame, bound.values, pinned)
    params: list[TensorParam | ScalarParam] = []
    for p in signature.params:
        if p.kind == "tensor":
            dims = tuple(ctx.size(d) for d in bound.dims[p.name])
            tensor = TensorParam(p.name, spec[p.name].dtype, dims, "in", p.loc)
            params.append(tensor)
            frame.env[p.name] = InTensor(tensor)
        elif p.kind == "scalar":
            scalar = ScalarParam(p.name, p.annotation, p.loc)
            params.append(scalar)
            frame.env[p.name] = build.param(scalar, p.loc)
        else:
            value = spec[p.name]
            frame.env[p.name] = float(value) if p.annotation is float else value
    returned = run_block(ctx, source.tree.body, set())
    outputs = _outputs(ctx, source.tree, returned)
    kernel = build.kernel(signature.name, [*params, *(o.param for o in outputs)], ctx.effects, source.loc(source.tree))
    return ParsedKernel(kernel, dict(bound.values), pinned, kernel.outputs, not isinstance(returned, tuple))


def _outputs(ctx: Context, tree: ast.FunctionDef, returned: Any) -> list[OutTensor]:
    last = tree.body[-1]
    ctx.loc = ctx.place(last)
    if returned is NOTHING or returned is None:
        ctx.fail("the kernel returns nothing", last, "end it with return out, where out = tw.empty(shape, dtype)")
    values = returned if isinstance(returned, tuple) else (returned,)
    for v in values:
        if not isinstance(v, OutTensor):
            ctx.fail(f"the kernel returns {describe(v)}", last,
                     "kernels return output tensors: out = tw.empty(shape, dtype), out[i, j] = value, return out")
    outs: list[OutTensor] = list(values)
    if len({id(o) for o in outs}) != len(outs):
        ctx.fail("the kernel returns one output twice", last)
    for k, o in enumerate(outs):
        if not o.name:
            o.name = "out" if len(outs) == 1 else f"out{k}"
    flush_fills(ctx)
    for o in ctx.outputs:
        if not any(o is v for v in outs):
            raise LanguageError(f"the output '{o.name}' is not returned", loc=o.loc, hint=f"write return ..., {o.name}")
        if not o.written and o.start == "empty":
            raise LanguageError(f"the output '{o.name}' is never written", loc=o.loc,
                                hint=f"store into it: {o.name}[i, j] = value")
    return outs
