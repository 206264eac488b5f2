"""ModelProto -> Graph: scopes of names, one node at a time, every problem collected.

A value that could not be made is *poisoned*: nodes that need it are still checked against their schema, so that one
load reports every unsupported op of a model, but they cause no follow-up problems of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ...errors import ModelError, Problem, TilewrightError
from ...ir.graph.core import Graph, TensorType, Value, constant, graph_input
from ...ir.graph.dims import Dim, symbol
from ...ir.graph.make import location
from ...ir.types import Loc
from ..deferred import NeedsShapes
from . import structure
from .reader import Document, import_onnx
from .registry import Context, Missing, Poisoned, handler
from .tensors import MAX_RANK, Refusal, decode, decode_sparse, dtype_of

if TYPE_CHECKING:
    import onnx

#: nodes that inlining functions may add (a few functions that call each other can stand for billions of nodes)
MAX_INLINED = 200_000
#: the bound of a symbolic dim; exporters write 10**9 and more for "to the end", which then needs no clamping
MAX_EXTENT = 10**9 - 1


POISON = Poisoned()
Entry: TypeAlias = "Value | Missing | Poisoned"


@dataclass(slots=True)
class Scope:
    """Names of one graph. With `captures` set, values of the graphs around it become inputs of this one."""

    parent: Scope | None = None
    names: dict[str, Entry] = field(default_factory=dict)
    captures: dict[Value, Value] | None = None
    label: str = ""

    def visible(self, name: str) -> bool:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return True
            scope = scope.parent
        return False

    def lookup(self, name: str) -> Entry | None:
        found = self.names.get(name)
        if found is None and self.parent is not None:
            found = self.parent.lookup(name)
            if isinstance(found, Value) and self.captures is not None and not found.is_constant:
                found = self._capture(found, name)
        return found

    def _capture(self, outer: Value, name: str) -> Value:
        assert self.captures is not None
        if outer not in self.captures:
            self.captures[outer] = graph_input(f"{self.label}/{name}", outer.type)
        return self.captures[outer]


@dataclass(slots=True)
class Branch:
    """A subgraph built as a graph of its own: outputs, their names, and outer value -> its input here."""

    outputs: list[Value | Poisoned]
    names: list[str]
    captures: dict[Value, Value]


class Importer:
    def __init__(self, document: Document, dims: dict[str, int], fixed: dict[str, np.ndarray[Any, Any]]) -> None:
        self.document = document
        self.fixed = fixed
        self.onnx = import_onnx()
        self.bound = dims
        self.used_dims: set[str] = set()
        self.problems: list[Problem] = []
        self.open_questions: set[Problem] = set()
        self.value_names: dict[Value, str] = {}
        self.inlined = 0
        self.functions = {(f.domain, f.name): f for f in document.proto.functions}
        self.calling: list[tuple[str, str]] = []
        self.opsets = document.opsets

    @property
    def folder(self) -> Path | None:
        return self.document.folder

    # ---- the model

    def run(self) -> Graph:
        proto = self.document.proto.graph
        if structure.depth(proto) > structure.MAX_DEPTH:
            raise ModelError(f"'{self.document.name}' nests subgraphs deeper than {structure.MAX_DEPTH} levels")
        scope = Scope()
        inputs = self.inputs(proto, scope)
        self.body(proto, scope, "graph")
        outputs = self.outputs(proto, scope, "graph")
        for kind, given, known in (
            ("has a dim named", set(self.bound), self.used_dims),
            ("is named", set(self.fixed), {i.name for i in proto.input}),
        ):
            for name in sorted(given - known):
                has = f" (there is: {', '.join(sorted(known)[:8])})" if known else ""
                self.problem("graph", "input", f"no input {kind} '{name}'{has}")
        for name in structure.repeated(o.name for o in proto.output):
            self.problem("graph", "output", f"the output '{name}' is listed twice")
        if not proto.output:
            self.problem("graph", "output", "the graph has no outputs")
        if self.problems:
            self.fail(inputs)
        values = [v for v in outputs if isinstance(v, Value)]
        return Graph(proto.name or self.document.name, inputs, values, [o.name for o in proto.output], self.value_names)

    def fail(self, inputs: Sequence[Value]) -> None:
        unique = list(dict.fromkeys(self.problems))
        count = "one problem" if len(unique) == 1 else f"{len(unique)} problems"
        message = f"'{self.document.name}' cannot be loaded: {count}"
        if self.open_questions.issuperset(unique) and not all(v.type.is_static for v in inputs):
            proto = self.document.proto.graph
            names = [str(v.node.attr("name")) for v in inputs]
            raise NeedsShapes(message, unique, proto.name or self.document.name, inputs, names,
                              [o.name for o in proto.output])
        raise ModelError(message, unique)

    def problem(self, node: str, op: str, reason: str, detail: str = "") -> None:
        self.problems.append(Problem(node, op, reason, detail))

    def inputs(self, proto: onnx.GraphProto, scope: Scope) -> list[Value]:
        given = {t.name for t in proto.initializer} | {t.values.name for t in proto.sparse_initializer}
        out = []
        for info in proto.input:
            if info.name in given:
                continue
            try:
                type_ = self.input_type(info)
                if info.name in self.fixed:
                    scope.names[info.name] = self.fixed_input(info.name, type_)
                    continue
                v = graph_input(info.name, type_)
            except Refusal as r:
                self.problem(info.name, "input", r.reason, r.detail)
                scope.names[info.name] = POISON
                continue
            scope.names[info.name] = v
            self.value_names[v] = info.name
            out.append(v)
        return out

    def fixed_input(self, name: str, declared: TensorType) -> Value:
        """An input whose value the caller gave: a constant from here on."""
        v = constant(self.fixed[name].astype(declared.dtype.numpy), name=name)
        fits = v.type.rank == declared.rank and all(
            a == b or not isinstance(b, int) for a, b in zip(v.shape, declared.shape, strict=False)
        )
        if not fits:
            raise Refusal("the value it is fixed to does not fit", f"{v.type} for {declared}")
        self.value_names.setdefault(v, name)
        return v

    def input_type(self, info: onnx.ValueInfoProto) -> TensorType:
        kind = info.type.WhichOneof("value")
        if kind != "tensor_type":
            raise Refusal(f"its type is {str(kind or 'missing').removesuffix('_type')}, only tensors are supported")
        t = info.type.tensor_type
        dtype = dtype_of(t.elem_type)
        if not t.HasField("shape"):
            raise Refusal("its rank is not declared", f"{dtype.name}")
        if len(t.shape.dim) > MAX_RANK:
            raise Refusal(f"its rank {len(t.shape.dim)} is beyond the limit of {MAX_RANK}")
        return TensorType(dtype, tuple(self.input_dim(info.name, i, d) for i, d in enumerate(t.shape.dim)))

    def input_dim(self, name: str, axis: int, d: Any) -> Dim:
        if d.WhichOneof("value") == "dim_value" and d.dim_value >= 0:
            return int(d.dim_value)
        named = any(ch.isalnum() for ch in d.dim_param)  # some exporters write '?' for a dim without a name
        label = d.dim_param if named else f"{name}.{axis}"
        self.used_dims.add(label)
        return self.bound[label] if label in self.bound else symbol(label, lo=1, hi=MAX_EXTENT)

    def outputs(self, proto: onnx.GraphProto, scope: Scope, where: str) -> list[Value | Poisoned]:
        """The graph's results; one that cannot be had is a problem, unless its node was one already."""
        out: list[Value | Poisoned] = []
        for info in proto.output:
            entry = scope.lookup(info.name)
            if isinstance(entry, Missing):
                self.problem(where, "output", f"the output '{info.name}' cannot be had: {entry.reason}")
            elif entry is None:
                self.problem(where, "output", f"the output '{info.name}' is not defined anywhere")
            out.append(entry if isinstance(entry, Value) else POISON)
        return out

    # ---- a graph

    def body(self, proto: onnx.GraphProto, scope: Scope, where: str) -> None:
        for t in proto.initializer:
            self.initializer(t.name, lambda t=t: decode(t, self.folder), scope)
        for s in proto.sparse_initializer:
            self.initializer(s.values.name, lambda s=s: decode_sparse(s, self.folder), scope)
        nodes = list(proto.node)
        for i in structure.order(proto, scope.visible, self.problems, where):
            self.convert(nodes[i], structure.node_name(nodes[i], i), scope)
        self.poison_rest(nodes, scope)

    def poison_rest(self, nodes: Sequence[onnx.NodeProto], scope: Scope) -> None:
        """Nodes in a cycle were never converted; check what can be checked, and silence their users."""
        for i, n in enumerate(nodes):
            if any(o and o not in scope.names for o in n.output):
                self.check_only(n, structure.node_name(n, i))
            for o in n.output:
                scope.names.setdefault(o, POISON)

    def initializer(self, name: str, read: Any, scope: Scope) -> None:
        try:
            v = constant(read(), name=name)
        except Refusal as r:
            self.problem(name, "initialiser", r.reason, r.detail)
            scope.names[name] = POISON
            return
        scope.names[name] = v
        self.value_names.setdefault(v, name)

    # ---- a node

    def convert(self, node: onnx.NodeProto, name: str, scope: Scope) -> None:
        self.inlined += bool(self.calling)
        if self.inlined > MAX_INLINED:
            raise ModelError(f"'{self.document.name}' grows by over {MAX_INLINED} nodes when functions are inlined")
        loc = Loc(f"{self.document.name}:{name}")
        before = len(self.problems)
        try:
            with location(loc, name):
                results = self.results(node, name, scope)
        except Refusal as r:
            self.problem(name, node.op_type, r.reason, r.detail or self.operands(node, scope))
            if r.until_shapes:
                self.open_questions.add(self.problems[-1])
            results = None
        except TilewrightError as e:
            if isinstance(e, ModelError):
                raise
            self.problem(name, node.op_type, e.message, self.operands(node, scope))
            results = None
        except (RecursionError, MemoryError, ArithmeticError, LookupError, TypeError, ValueError, AssertionError) as e:
            reason = f"cannot be converted ({type(e).__name__}: {e})"
            self.problem(name, node.op_type, reason, self.operands(node, scope))
            results = None
        if results is None or len(self.problems) > before:
            results = [POISON] * len(node.output)
        self.bind(node, results, scope)

    def bind(self, node: onnx.NodeProto, results: Sequence[Entry], scope: Scope) -> None:
        for i, o in enumerate(node.output):
            if not o:
                continue
            entry = results[i] if i < len(results) else Missing(f"{node.op_type} does not give output {i}")
            if isinstance(entry, Value) and entry.type.rank > MAX_RANK:
                self.problem(node.name, node.op_type, f"its result has rank {entry.type.rank}, over {MAX_RANK}")
                entry = POISON
            scope.names.setdefault(o, entry)
            if isinstance(entry, Value):
                self.value_names.setdefault(entry, o)

    def operands(self, node: onnx.NodeProto, scope: Scope) -> str:
        """Types of a node's operands, for a message."""
        shown = []
        for x in node.input[:8]:
            entry = scope.lookup(x) if x else None
            shown.append(f"{x}: {entry.type}" if isinstance(entry, Value) else f"{x}: unknown" if x else "absent")
        return ", ".join(shown)

    def results(self, node: onnx.NodeProto, name: str, scope: Scope) -> Sequence[Entry] | None:
        domain = "" if node.domain == "ai.onnx" else node.domain
        local = self.functions.get((node.domain, node.op_type)) or self.functions.get((domain, node.op_type))
        schema = None if local is not None else self.schema(domain, node.op_type)
        if schema is not None:
            self.check(node, schema)
        ins = self.entries(node, scope)
        if ins is None:
            self.check_subgraphs(node)
            return None
        if local is not None:
            return self.call(node, local, ins)
        fn = handler(node.op_type, schema.since_version) if schema is not None else None
        if fn is None or schema is None:
            return self.call_schema_function(node, schema, domain, ins)
        c = Context(
            node, tuple(ins), schema.since_version, self.attributes(node), self.defaults(schema), name,
            lambda t: decode(t, self.folder), lambda t: decode_sparse(t, self.folder), self, scope,
        )  # fmt: skip
        made = fn(c)
        unread = sorted(set(c.attributes) - c.read)
        if unread:
            raise Refusal(f"attribute '{unread[0]}' is not supported here (value {str(c.attributes[unread[0]])[:60]})")
        listed = [made] if isinstance(made, Value) else list(made)
        absent = f"{node.op_type} does not give output"
        return [v if v is not None else Missing(f"{absent} {i}") for i, v in enumerate(listed)]

    def entries(self, node: onnx.NodeProto, scope: Scope) -> list[Value | None] | None:
        """The node's operands, or None when one of them is poisoned."""
        out: list[Value | None] = []
        for x in node.input:
            entry = scope.lookup(x) if x else None
            if isinstance(entry, Missing):
                raise Refusal(f"its operand '{x}' cannot be had: {entry.reason}")
            if isinstance(entry, Poisoned) or (x and entry is None):
                return None
            out.append(entry if isinstance(entry, Value) else None)
        return out

    # ---- schema

    def schema(self, domain: str, op_type: str) -> Any:
        if domain not in ("",):
            raise Refusal(f"operators of the domain '{domain}' are not supported")
        if "" not in self.opsets:
            raise Refusal("the model does not import ONNX's own operator set")
        try:
            schema = self.onnx.defs.get_schema(op_type, self.opsets[""], "")
        except (self.onnx.defs.SchemaError, TypeError):
            raise Refusal(f"there is no such operator in ONNX opset {self.opsets['']}") from None
        if schema.deprecated:
            raise Refusal(f"the operator is deprecated in ONNX opset {self.opsets['']}")
        if handler(op_type, schema.since_version) is None and not (
            schema.has_function or schema.has_context_dependent_function
        ):
            raise Refusal(f"the operator (version {schema.since_version}) is not supported")
        return schema

    def check(self, node: onnx.NodeProto, schema: Any) -> None:
        """Arity and attributes against ONNX's schema."""
        n = len(node.input)
        if not schema.min_input <= n <= schema.max_input:
            raise Refusal(f"it has {n} operands; ONNX allows {schema.min_input} to {schema.max_input}")
        if not schema.min_output <= len(node.output) <= schema.max_output:
            raise Refusal(f"it has {len(node.output)} outputs; ONNX allows {schema.min_output} to {schema.max_output}")
        seen = set[str]()
        for a in node.attribute:
            known = schema.attributes.get(a.name)
            if known is None:
                names = ", ".join(sorted(schema.attributes)) or "none"
                raise Refusal(f"attribute '{a.name}' is unknown (version {schema.since_version} has: {names})")
            if a.ref_attr_name:
                raise Refusal(f"attribute '{a.name}' refers to a function's parameter, outside any function")
            if a.type != known.type.value:
                raise Refusal(f"attribute '{a.name}' must be of type {known.type.name}")
            if a.name in seen:
                raise Refusal(f"attribute '{a.name}' is given twice")
            seen.add(a.name)
        for key, known in schema.attributes.items():
            if known.required and key not in seen:
                raise Refusal(f"attribute '{key}' is required")

    def check_only(self, node: onnx.NodeProto, name: str) -> None:
        """Everything about a node that can be said without its operands."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        try:
            if (node.domain, node.op_type) not in self.functions:
                self.check(node, self.schema(domain, node.op_type))
        except Refusal as r:
            self.problem(name, node.op_type, r.reason, r.detail)
        self.check_subgraphs(node)

    def check_subgraphs(self, node: onnx.NodeProto) -> None:
        for g in structure.subgraphs(node):
            for i, n in enumerate(g.node):
                self.check_only(n, structure.node_name(n, i))

    def attributes(self, node: onnx.NodeProto) -> dict[str, Any]:
        return {a.name: self.onnx.helper.get_attribute_value(a) for a in node.attribute}

    def defaults(self, schema: Any) -> dict[str, Any]:
        out = {}
        for key, a in schema.attributes.items():
            if a.default_value is not None and a.default_value.type:
                out[key] = self.onnx.helper.get_attribute_value(a.default_value)
        return out

    # ---- subgraphs and functions

    def inline(self, proto: onnx.GraphProto, scope: Scope, name: str) -> list[Value | Poisoned]:
        """A subgraph whose condition is known: its nodes become part of this graph."""
        inner = Scope(scope)
        self.body(proto, inner, name)
        return self.outputs(proto, inner, name)

    def branch(self, proto: onnx.GraphProto, scope: Scope, label: str) -> Branch:
        """A subgraph whose condition is known only when the model runs."""
        captures: dict[Value, Value] = {}
        inner = Scope(scope, captures=captures, label=label)
        self.body(proto, inner, label)
        return Branch(self.outputs(proto, inner, label), [o.name for o in proto.output], captures)

    def call(self, node: onnx.NodeProto, fn: onnx.FunctionProto, ins: Sequence[Value | None]) -> list[Entry] | None:
        """A function of the model (or of ONNX's schema), inlined."""
        key = (fn.domain, fn.name)
        if key in self.calling or len(self.calling) >= structure.MAX_DEPTH:
            raise Refusal(f"the function '{fn.name}' calls itself, or functions are nested too deeply")
        if len(ins) > len(fn.input) or len(node.output) > len(fn.output):
            raise Refusal(f"the function '{fn.name}' takes {len(fn.input)} operands and gives {len(fn.output)} results")
        scope = Scope()
        padded = [*ins, *[None] * (len(fn.input) - len(ins))]
        for name, v in zip(fn.input, padded, strict=True):
            if v is not None:
                scope.names[name] = v
        absent = {name for name, v in zip(fn.input, padded, strict=True) if v is None}
        nodes = self.function_body(node, fn, absent)
        saved, before = self.opsets, len(self.problems)
        self.opsets = {("" if o.domain == "ai.onnx" else o.domain): o.version for o in fn.opset_import} or saved
        self.calling.append(key)
        try:
            for i in structure.order_nodes(nodes, list(scope.names), [], lambda _: False, self.problems, fn.name):
                self.convert(nodes[i], f"{structure.node_name(node, 0)}/{structure.node_name(nodes[i], i)}", scope)
        finally:
            self.opsets = saved
            self.calling.pop()
        if len(self.problems) > before:
            return None
        return [scope.lookup(o) or Missing(f"the function '{fn.name}' does not define '{o}'") for o in fn.output]

    def function_body(self, node: onnx.NodeProto, fn: onnx.FunctionProto, absent: set[str]) -> list[onnx.NodeProto]:
        """Copies of a function's nodes with its attribute parameters filled in and absent operands dropped."""
        given = {a.name: a for a in fn.attribute_proto} | {a.name: a for a in node.attribute}
        out = []
        for n in fn.node:
            copy = self.onnx.NodeProto()
            copy.CopyFrom(n)
            _bind_attributes(copy, given)
            for i, x in enumerate(copy.input):
                if x in absent:
                    copy.input[i] = ""
            out.append(copy)
        return out

    def call_schema_function(
        self, node: onnx.NodeProto, schema: Any, domain: str, ins: Sequence[Value | None]
    ) -> list[Entry] | None:
        """An operator that ONNX itself defines by a function of simpler ones."""
        if schema is None:
            raise Refusal(f"operators of the domain '{domain}' are not supported")
        body = None
        if schema.has_function:
            text = schema.get_function_with_opset_version(schema.since_version)
            body = self.onnx.FunctionProto.FromString(text) if text else schema.function_body
        elif schema.has_context_dependent_function:
            types = [self.type_proto(v) for v in ins]
            text = schema.get_context_dependent_function_with_opset_version(
                max(schema.context_dependent_function_opset_versions), node.SerializeToString(), types
            )
            body = self.onnx.FunctionProto.FromString(text)
        if body is None or not body.node:
            raise Refusal(f"the operator (version {schema.since_version}) is not supported")
        copy = self.onnx.NodeProto()
        copy.CopyFrom(node)
        have = {a.name for a in node.attribute}
        for key, a in schema.attributes.items():
            if key not in have and a.default_value is not None and a.default_value.type:
                copy.attribute.add().CopyFrom(a.default_value)
        return self.call(copy, body, ins)

    def type_proto(self, v: Value | None) -> bytes:
        proto = self.onnx.TypeProto()
        if v is not None:
            proto.tensor_type.elem_type = self.onnx.helper.np_dtype_to_tensor_dtype(np.dtype(v.dtype.numpy))
            proto.tensor_type.shape.SetInParent()
            for d in v.shape:
                dim = proto.tensor_type.shape.dim.add()
                if isinstance(d, int):
                    dim.dim_value = d
        return bytes(proto.SerializeToString())


def _bind_attributes(node: onnx.NodeProto, given: dict[str, onnx.AttributeProto]) -> None:
    """Replace references to a function's attribute parameters, in subgraphs too; absent ones disappear."""
    kept = []
    for a in node.attribute:
        if a.ref_attr_name:
            if a.ref_attr_name not in given:
                continue
            name = a.name
            a.CopyFrom(given[a.ref_attr_name])
            a.name = name
        kept.append(a)
    if len(kept) < len(node.attribute):
        copies = [type(a).FromString(a.SerializeToString()) for a in kept]
        del node.attribute[:]
        node.attribute.extend(copies)
    for g in structure.subgraphs(node):
        for n in g.node:
            _bind_attributes(n, given)

