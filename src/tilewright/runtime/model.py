"""Models: `tw.load(file)`, `model.compile(target)`, `net(inputs)`.

A model whose input shapes are all known is compiled at once. One with free dims is compiled for each set of shapes as
they come; kernels that several shapes share, and kernels compiled before, are taken from the cache.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import ArgumentError, ModelError, UnsupportedError
from ..evidence import Evidence
from ..ir.graph.core import Graph
from ..ir.types import BY_NAME, DType
from . import threads as thread_setting
from .inputs import Array, Inputs, Shapes
from .native import Constants, Native
from .plan import make_plan
from .report import Report

Progress = Callable[[int, int], None]
_MOST_SHAPES = 16


def load(source: Any, *, dims: Mapping[str, int] | None = None, fixed: Mapping[str, Any] | None = None) -> Model:
    """A model from a path, bytes or an onnx ModelProto. `dims` binds named dims of its inputs, `fixed` gives inputs a
    constant value. A model whose form depends on the shapes of its inputs is read for each set of shapes that comes.
    Raises ModelError with every problem found."""
    from ..frontends import load_graph
    from ..frontends.deferred import NeedsShapes

    def read(more_dims: Mapping[str, int], more_fixed: Mapping[str, Any]) -> Graph:
        return load_graph(source, dims={**(dims or {}), **more_dims}, fixed={**(fixed or {}), **more_fixed})

    try:
        return Model(read({}, {}))
    except NeedsShapes as e:
        return Model(Deferred(e.name, Inputs.of(e.input_names, e.inputs), e.output_names, read))


@dataclass(frozen=True, slots=True)
class Deferred:
    """A model that is read once the dims of its inputs are known; `read` takes dims, and values of inputs to fix."""

    name: str
    inputs: Inputs
    output_names: tuple[str, ...]
    read: Callable[[Mapping[str, int], Mapping[str, Any]], Graph]


class Model:
    """A graph, ready to be compiled for a target. `inputs`, `input_names`, `output_names`: what it takes and gives."""

    def __init__(self, source: Graph | Deferred) -> None:
        self._source = source
        self.name = source.name
        self.output_names = tuple(source.output_names)
        self.inputs = source.inputs if isinstance(source, Deferred) else Inputs.of(source.input_names, source.inputs)

    def __repr__(self) -> str:
        return f"<tilewright model {self.name} ({self.inputs})>"

    @property
    def input_names(self) -> tuple[str, ...]:
        return self.inputs.names

    @property
    def graph(self) -> Graph:
        """The Graph IR. Some models have none before the shapes of their inputs are known."""
        if isinstance(self._source, Deferred):
            raise ArgumentError(f"the graph of '{self.name}' depends on the shapes of its inputs ({self.inputs})",
                                hint="load it with dims={...}, or call the compiled model")
        return self._source

    def graph_for(self, shapes: Shapes, fixed: Mapping[str, Any] | None = None) -> Graph:
        """The Graph IR for these shapes of the inputs (its dims may still be symbols). `fixed` inputs are constants."""
        if isinstance(self._source, Deferred):
            return self._source.read(self.inputs.dims(shapes), fixed or {})
        return self._source

    @property
    def switches(self) -> tuple[str, ...]:
        """Inputs whose value may have to be known before the graph is: single integers and bools of a model that could
        not be read when it was loaded."""
        if not isinstance(self._source, Deferred):
            return ()
        return tuple(n for n, t in zip(self.inputs.names, self.inputs.types, strict=True)
                     if t.rank == 0 and not t.dtype.is_float)

    def compile(self, target: str = "cpu", *, dtype: str | None = None, threads: int | None = None,
                keep_intermediates: bool = False, progress: Progress | None = None) -> Net:
        """`threads`: default `tw.threads()`. `keep_intermediates`: every tensor the model names can be asked for.
        `dtype`: "bf16" or "f16" keeps the model's f32 tensors and weights in that type, and multiplies in it; sums, and
        whatever is computed element by element, stay in f32. Inputs and outputs keep their types."""
        if target != "cpu":
            raise UnsupportedError(f"there is no target '{target}' in this build", hint="the target 'cpu' runs here")
        if dtype not in (None, "f32", "bf16", "f16"):
            raise UnsupportedError(f"a model cannot be compiled for dtype '{dtype}'", hint="bf16, f16 or f32 (default)")
        if threads is not None:
            thread_setting.checked(threads, "compile(threads=)")
        low = BY_NAME[dtype] if dtype in ("bf16", "f16") else None
        return Net(self, threads, keep_intermediates, progress, low)


class Net:
    """A compiled model. Call it with arrays in the model's input order, or by name. Threads may call it at once: calls
    take turns."""

    def __init__(self, model: Model, count: int | None, keep: bool, progress: Progress | None = None,
                 low: DType | None = None) -> None:
        self.model = model
        self.threads = count or thread_setting.threads()
        self._keep, self._low = keep, low
        self._lock = threading.Lock()
        self._by_shape: OrderedDict[tuple[Shapes, tuple[Any, ...]], _Ready] = OrderedDict()
        self._switches: tuple[str, ...] = ()  # inputs whose values the graph is made for, besides the shapes
        self._constants: Constants = {}
        self._latest: _Ready | None = None
        shapes = model.inputs.static_shapes
        if shapes is not None:
            self._at(shapes, progress)

    # ------------------------------------------------------------------ per shapes

    def _at(self, shapes: Shapes, progress: Progress | None = None, fixed: Mapping[str, Any] | None = None) -> _Ready:
        key = (shapes, tuple((fixed or {}).values()))
        with self._lock:
            found = self._by_shape.get(key)
            if found is None:
                found = self._by_shape[key] = self._build(shapes, progress, fixed or {})
                while len(self._by_shape) > _MOST_SHAPES:
                    self._by_shape.popitem(last=False)
            else:
                self._by_shape.move_to_end(key)
            self._latest = found
            return found

    def _build(self, shapes: Shapes, progress: Progress | None, fixed: Mapping[str, Any]) -> _Ready:
        from ..targets.llvm.description import host_description

        source = self.model.graph_for(shapes, fixed)
        if self._keep:
            source = with_intermediates(source)
        by_name = dict(zip(self.model.input_names, shapes, strict=True))
        graph = prepare(source, {n: by_name[n] for n in source.input_names}, low=self._low)
        made = make_plan(graph, self.threads, images=self._images(shapes))
        return _Ready(source, Native(graph, made, host_description(), self.threads, progress, self._constants))

    def _images(self, shapes: Shapes) -> int:
        """The outermost extent of the first input whose outermost dim is free."""
        for t, shape in zip(self.model.inputs.types, shapes, strict=True):
            if t.rank and not isinstance(t.shape[0], int):
                return max(1, shape[0])
        return 1

    def _for(self, given: Sequence[Array]) -> tuple[_Ready, list[Array]]:
        """The code for these inputs, and those of them that it takes. Where shapes alone do not decide what the graph
        is (an input chooses among branches that do not all suit the shapes), the values of such inputs do."""
        by_name = dict(zip(self.model.input_names, given, strict=True))
        shapes = tuple(a.shape for a in given)
        try:
            ready = self._at(shapes, fixed={n: by_name[n].item() for n in self._switches})
        except ModelError:
            if self._switches or not self.model.switches:
                raise
            ready = self._at(shapes, fixed={n: by_name[n].item() for n in self.model.switches})
            self._switches = self.model.switches
        return ready, [by_name[n] for n in ready.source.input_names]

    # ------------------------------------------------------------------ calls

    def __call__(self, *args: Any, **named: Any) -> Any:
        given, kind = self.model.inputs.bind(args, named)
        ready, given = self._for(given)
        results = ready.native.run(given, kind)[: len(self.model.output_names)]
        return results[0] if len(results) == 1 else tuple(results)

    def intermediates(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Every named tensor of the model for these inputs, by the model's names."""
        if not self._keep:
            raise ArgumentError("this net was not compiled to keep its intermediate tensors",
                                hint="model.compile(..., keep_intermediates=True)")
        given, kind = self.model.inputs.bind((), self.model.inputs.by_name(inputs))
        ready, given = self._for(given)
        return dict(zip(ready.source.output_names, ready.native.run(given, kind), strict=True))

    def prepare(self, shapes: Mapping[str, Sequence[int]], progress: Progress | None = None) -> None:
        """Compiles for these shapes of the inputs without running anything. `progress(done, total)` counts kernels."""
        self._at(self.model.inputs.shapes(shapes), progress)

    # ------------------------------------------------------------------ reports

    def explain(self, *, passes: bool = False, region: int | None = None, llvm: bool = False,
                assembly: bool = False) -> str:
        """The model at every level, for the shapes that ran last: the graph (`passes`: after each pass that changed
        it) and its regions; of one `region` also Tile IR, the schedule, Scheduled IR, and LLVM IR and assembly."""
        from .explain_model import explain_model

        ready = self._ready()
        return explain_model(ready.source, ready.native, passes=passes, region=region, llvm=llvm, assembly=assembly)

    def report(self) -> Report:
        """Regions, memory plan and schedules, of the shapes that ran last."""
        return self._ready().native.report()

    def profile(self, inputs: Mapping[str, Any], repeat: int = 20) -> Report:
        """The report with measured times per region (thread 0, mean of `repeat` runs)."""
        from .peaks import peaks

        given, _ = self.model.inputs.bind((), self.model.inputs.by_name(inputs))
        ready, given = self._for(given)
        native = ready.native
        seconds = native.profile(given, repeat)
        peak = peaks().get("f32", self.threads)
        scale = Evidence(peak.value * _unit(peak.unit), "operations/s", peak.provenance, peak.how) if peak else None
        return native.report(seconds, scale, f"net.profile(inputs, repeat={repeat})")

    def _ready(self) -> _Ready:
        if self._latest is None:
            raise ArgumentError(f"the model's shapes are not known yet ({self.model.inputs})",
                                hint="call the net once, or load the model with dims={...}")
        return self._latest


@dataclass(frozen=True, slots=True)
class _Ready:
    """A net for one set of shapes: the graph it was made from, and its code."""

    source: Graph
    native: Native


def with_intermediates(graph: Graph) -> Graph:
    """The graph with every value that the model names as a further output."""
    nodes, outputs = set(graph.nodes), set(graph.outputs)
    extra = {v: n for v, n in graph.value_names.items()
             if v not in outputs and not v.is_constant and v.node.op != "input" and v.node in nodes}
    return Graph(graph.name, graph.inputs, (*graph.outputs, *extra), (*graph.output_names, *extra.values()),
                 graph.value_names)


def _unit(unit: str) -> float:
    return {"GFLOP/s": 1e9, "TFLOP/s": 1e12, "FLOP/s": 1.0}.get(unit, 1e9)


def prepare(graph: Graph, shapes: Mapping[str, Sequence[int]],
            watch: Callable[[str, Graph], None] | None = None, low: DType | None = None) -> Graph:
    """The graph with known shapes, in the form that regions are cut from. `watch` sees it after every pass. `low`: the
    16-bit float of a mixed-precision graph."""
    from ..ops.rules import KEPT
    from ..passes.graph.check_static import check_static
    from ..passes.graph.for_kernels import for_kernels
    from ..passes.graph.pipeline import optimise, simplify
    from ..passes.graph.precision import to_precision
    from ..passes.graph.winograd import winograd

    graph = optimise(graph, shapes, keep=KEPT, watch=watch)
    check_static(graph)
    steps: list[tuple[str, Callable[[Graph], Graph]]] = [("for_kernels", for_kernels), ("simplify", simplify)]
    if low is None:
        steps.insert(0, ("winograd", winograd))
    else:
        steps += [("to_precision", lambda g: to_precision(g, low)), ("simplify", simplify)]
    for name, step in steps:
        graph = step(graph)
        if watch is not None:
            watch(name, graph)
    return graph
