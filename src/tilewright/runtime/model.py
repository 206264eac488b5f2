"""Models: `tw.load(file)`, `model.compile(target)`, `net(inputs)`.

A model whose input shapes are all known is compiled at once. One with free dims is compiled for each set of shapes as
they come; kernels that several shapes share, and kernels compiled before, are taken from the cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import ArgumentError, DTypeError, ShapeError, UnsupportedError
from ..evidence import Evidence
from ..ir.graph.core import Graph, Value
from . import arrays, threads
from .native import Native
from .plan import make_plan
from .report import Report

Array = np.ndarray[Any, Any]
Progress = Callable[[int, int], None]
_MOST_SHAPES = 16


def load(source: Any, *, dims: Mapping[str, int] | None = None, fixed: Mapping[str, Any] | None = None) -> Model:
    """A model from a path, bytes or an onnx ModelProto. `dims` binds named dims of its inputs, `fixed` gives inputs a
    constant value. Raises ModelError with every problem found."""
    from ..frontends import load_graph

    return Model(load_graph(source, dims=dims, fixed=fixed))


class Model:
    """A graph, ready to be compiled for a target."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __repr__(self) -> str:
        inputs = ", ".join(f"{n}: {v.type}" for n, v in zip(self.graph.input_names, self.graph.inputs, strict=True))
        return f"<tilewright model {self.graph.name} ({inputs})>"

    def compile(self, target: str = "cpu", *, dtype: str | None = None, threads: int | None = None,
                keep_intermediates: bool = False, progress: Progress | None = None) -> Net:
        """`threads`: default `tw.threads()`. `keep_intermediates`: every tensor the model names can be asked for."""
        if target != "cpu":
            raise UnsupportedError(f"there is no target '{target}' in this build", hint="the target 'cpu' runs here")
        if dtype not in (None, "f32"):
            raise UnsupportedError(f"compiling for dtype '{dtype}' is not supported yet", hint="leave dtype out")
        return Net(self.graph, threads, keep_intermediates, progress)


class Net:
    """A compiled model. Call it with arrays in the model's input order, or by name."""

    def __init__(self, graph: Graph, count: int | None, keep: bool, progress: Progress | None = None) -> None:
        self.graph = graph
        self.threads = count or threads.threads()
        self._kept: tuple[str, ...] = ()
        if keep:
            graph = self._with_intermediates(graph)
        self._source = graph
        self._by_shape: OrderedDict[tuple[tuple[int, ...], ...], Native] = OrderedDict()
        self._latest: Native | None = None
        if all(v.type.is_static for v in graph.inputs):
            self._native(tuple(v.type.static_shape for v in graph.inputs), progress)

    def _with_intermediates(self, graph: Graph) -> Graph:
        nodes = set(graph.nodes)
        extra = {v: n for v, n in graph.value_names.items()
                 if v not in graph.outputs and not v.is_constant and v.node.op != "input" and v.node in nodes}
        self._kept = tuple(extra.values())
        return Graph(graph.name, graph.inputs, (*graph.outputs, *extra), (*graph.output_names, *self._kept),
                     graph.value_names)

    # ------------------------------------------------------------------ per shapes

    def _native(self, shapes: tuple[tuple[int, ...], ...], progress: Progress | None = None) -> Native:
        found = self._by_shape.get(shapes)
        if found is None:
            found = self._build(shapes, progress)
            self._by_shape[shapes] = found
            while len(self._by_shape) > _MOST_SHAPES:
                self._by_shape.popitem(last=False)
        else:
            self._by_shape.move_to_end(shapes)
        self._latest = found
        return found

    def _build(self, shapes: tuple[tuple[int, ...], ...], progress: Progress | None) -> Native:
        from ..targets.llvm.description import host_description

        graph = prepare(self._source, dict(zip(self._source.input_names, shapes, strict=True)))
        made = make_plan(graph, self.threads)
        return Native(graph, made, host_description(), self.threads, progress)

    # ------------------------------------------------------------------ calls

    def __call__(self, *args: Any, **named: Any) -> Any:
        results = self._call(args, named)[: len(self.graph.outputs)]
        return results[0] if len(results) == 1 else tuple(results)

    def intermediates(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Every named tensor of the model for these inputs, by the model's names."""
        if not self._kept:
            raise ArgumentError("this net was not compiled to keep its intermediate tensors",
                                hint="model.compile(..., keep_intermediates=True)")
        return dict(zip(self._source.output_names, self._call((), dict(inputs)), strict=True))

    def _call(self, args: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        given, kind = self._bind(args, named)
        native = self._native(tuple(a.shape for a in given))
        return native.run(given, kind)

    def _bind(self, args: Sequence[Any], named: Mapping[str, Any]) -> tuple[list[Array], str]:
        names = self.graph.input_names
        if len(args) > len(names):
            raise ArgumentError(f"the model has {len(names)} inputs ({', '.join(names)}), but {len(args)} were given")
        values: dict[str, Any] = dict(zip(names, args, strict=False))
        for name, x in named.items():
            if name not in names:
                raise ArgumentError(f"the model has no input '{name}' (it has: {', '.join(names)})")
            if name in values:
                raise ArgumentError(f"input '{name}' is given twice")
            values[name] = x
        missing = [n for n in names if n not in values]
        if missing:
            raise ArgumentError(f"no value for input {', '.join(repr(m) for m in missing)}")
        kind = "torch" if any(arrays.is_torch(x) for x in values.values()) else "numpy"
        return [self._array(v, n, values[n]) for n, v in zip(names, self.graph.inputs, strict=True)], kind

    def _array(self, spec: Value, name: str, x: Any) -> Array:
        array = arrays.to_numpy(x, f"input '{name}'")
        if array is None:
            array = np.asarray(x)
            if array.ndim == 0 and spec.type.rank == 0 and array.dtype.kind in "bif":
                array = array.astype(spec.dtype.numpy)
        if array.dtype != spec.dtype.numpy:
            raise DTypeError(f"input '{name}' must be {spec.dtype}, not {array.dtype}",
                             hint=f"pass {name}.astype('{spec.dtype.numpy}')")
        _check_shape(spec, name, array.shape)
        return np.ascontiguousarray(array) if array.ndim else array.reshape(())

    def prepare(self, shapes: Mapping[str, Sequence[int]], progress: Progress | None = None) -> None:
        """Compiles for these shapes of the inputs without running anything. `progress(done, total)` counts kernels."""
        missing = [n for n in self.graph.input_names if n not in shapes]
        if missing:
            raise ArgumentError(f"no shape for input {', '.join(repr(m) for m in missing)}")
        for name, value in zip(self.graph.input_names, self.graph.inputs, strict=True):
            _check_shape(value, name, tuple(shapes[name]))
        self._native(tuple(tuple(shapes[n]) for n in self.graph.input_names), progress)

    # ------------------------------------------------------------------ reports

    def explain(self, *, passes: bool = False, region: int | None = None, llvm: bool = False,
                assembly: bool = False) -> str:
        """The model at every level, for the shapes that ran last: the graph (`passes`: after each pass that changed
        it) and its regions; of one `region` also Tile IR, the schedule, Scheduled IR, and LLVM IR and assembly."""
        from .explain_model import explain_model

        return explain_model(self._source, self._ready(), passes=passes, region=region, llvm=llvm, assembly=assembly)

    def report(self) -> Report:
        """Regions, memory plan and schedules, of the shapes that ran last."""
        return self._ready().report()

    def profile(self, inputs: Mapping[str, Any], repeat: int = 20) -> Report:
        """The report with measured times per region (thread 0, mean of `repeat` runs)."""
        from .peaks import peaks

        given, _ = self._bind((), dict(inputs))
        native = self._native(tuple(a.shape for a in given))
        seconds = native.profile(given, repeat)
        peak = peaks().get("f32", self.threads)
        scale = Evidence(peak.value * _unit(peak.unit), "operations/s", peak.provenance, peak.how)
        return native.report(seconds, scale, f"net.profile(inputs, repeat={repeat})")

    def _ready(self) -> Native:
        if self._latest is None:
            free = ", ".join(f"{n}: {v.type}" for n, v in zip(self.graph.input_names, self.graph.inputs, strict=True))
            raise ArgumentError(f"the model's shapes are not known yet ({free})",
                                hint="call the net once, or load the model with dims={...}")
        return self._latest


def _check_shape(spec: Value, name: str, shape: tuple[int, ...]) -> None:
    if len(shape) != spec.type.rank:
        raise ShapeError(f"input '{name}' must be {spec.type}: an array of shape {shape} has another rank")
    for axis, (want, got) in enumerate(zip(spec.shape, shape, strict=True)):
        if isinstance(want, int) and want != got:
            raise ShapeError(f"input '{name}' must be {spec.type}: axis {axis} is {got}, not {want}")


def _unit(unit: str) -> float:
    return {"GFLOP/s": 1e9, "TFLOP/s": 1e12, "FLOP/s": 1.0}.get(unit, 1e9)


def prepare(graph: Graph, shapes: Mapping[str, Sequence[int]],
            watch: Callable[[str, Graph], None] | None = None) -> Graph:
    """The graph with known shapes, in the form that regions are cut from. `watch` sees it after every pass."""
    from ..ops.rules import KEPT
    from ..passes.graph.for_kernels import for_kernels
    from ..passes.graph.pipeline import optimise, simplify
    from ..passes.graph.winograd import winograd

    graph = optimise(graph, shapes, keep=KEPT, watch=watch)
    for name, step in (("winograd", winograd), ("for_kernels", for_kernels), ("simplify", simplify)):
        graph = step(graph)
        if watch is not None:
            watch(name, graph)
    return graph
