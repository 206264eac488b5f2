"""Runs Tile IR in NumPy: the oracle that every schedule and every backend is compared with.

Tiles are real: loops run over tiles of the sizes given, and a tile at the edge is simply smaller, so the interpreter
also shows that a kernel's result does not depend on tile sizes or on the order of the parallel grid.

A node is evaluated once per value of the loop variables it depends on: `_Run.memos` holds one memo per open scope, and
a node's value is kept in the innermost scope that binds one of its free variables.

A store or scatter whose index lies outside the tensor writes nothing. Outputs start poisoned (`accumulate` outputs
start from zero), so an element that no tile writes is noticed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..errors import ArgumentError, ShapeError, VerifyError
from ..ir.tile.core import Axis, Full, Kernel, Node, Static, TensorParam, TileOf
from . import scalar

Array: TypeAlias = scalar.Array
Variable: TypeAlias = Axis | Node

#: Elements of one tile over all its axes when the caller does not choose: large enough for NumPy to work in bulk.
_DEFAULT_TILE_ELEMENTS = 1 << 18


@dataclass(frozen=True, slots=True)
class _Bound:
    """What a loop gives its axis: the first coordinate, and how many are valid (1 for 'single' and 'range')."""

    start: int
    valid: int


def run(
    kernel: Kernel,
    arrays: Mapping[str, Any],
    scalars: Mapping[str, Any] | None = None,
    dims: Mapping[str, int] | None = None,
    tile_sizes: Mapping[str, int] | None = None,
    seed: int | None = None,
) -> dict[str, Array]:
    """The kernel's outputs by name. `dims` not given follow from the arrays; `tile_sizes` maps names of axes to sizes;
    `seed` shuffles the order of the parallel grid."""
    machine = _Run(kernel, dict(scalars or {}), dict(dims or {}), dict(tile_sizes or {}), seed)
    machine.bind_arrays(arrays)
    for effect in kernel.effects:
        machine.effect(effect)
    return {p.name: machine.tensors[p.name] for p in kernel.outputs}


def infer_dims(kernel: Kernel, arrays: Mapping[str, Any], dims: Mapping[str, int] | None = None) -> dict[str, int]:
    """The value of every dim symbol that names an axis of an input; two positions that disagree are an error."""
    found = dict(dims or {})
    origin = {name: "the caller" for name in found}
    for p in kernel.inputs:
        if p.name not in arrays:
            raise ArgumentError(f"kernel '{kernel.name}' got no array for its input '{p.name}'")
        shape = np.shape(arrays[p.name])
        if len(shape) != p.rank:
            raise ShapeError(f"'{p.name}' of kernel '{kernel.name}' has rank {p.rank}, not {len(shape)}")
        for axis, (node, size) in enumerate(zip(p.dims, shape)):
            if node.op != "dim":
                continue
            name, here = node.attr("name"), f"axis {axis} of '{p.name}'"
            if found.setdefault(name, size) != size:
                raise ShapeError(f"dim {name} is {found[name]} by {origin[name]} but {size} by {here}")
            origin.setdefault(name, here)
    return found


def has_effects(node: Node) -> bool:
    """A loop or if that stores or scatters: it must stand in the list of effects of its region."""
    return any(node.attr(key) for key in ("effects", "then_effects", "else_effects"))


class _Run:
    def __init__(
        self, kernel: Kernel, scalars: dict[str, Any], dims: dict[str, int], tile_sizes: dict[str, int],
        seed: int | None,
    ) -> None:
        self.kernel, self.scalars, self.dims, self.tile_sizes = kernel, scalars, dims, tile_sizes
        self.order = random.Random(seed) if seed is not None else None
        self.tensors: dict[str, Array] = {}
        self.written: frozenset[str] = frozenset(p.name for p in kernel.outputs)
        self.memos: list[dict[Node, Any]] = [{}]
        self.level: dict[Variable, int] = {}
        self.bound: dict[Axis, _Bound] = {}
        self.carried: dict[Node, Array] = {}
        self.default_tile = _default_tile(kernel)

    # ------------------------------------------------------------------------------------------ arguments

    def bind_arrays(self, arrays: Mapping[str, Any]) -> None:
        self.dims = infer_dims(self.kernel, arrays, self.dims)
        for s in self.kernel.scalars:
            if s.name not in self.scalars:
                raise ArgumentError(f"kernel '{self.kernel.name}' got no value for its scalar '{s.name}'")
        for p in self.kernel.tensors:
            shape = tuple(self.integer(d) for d in p.dims)
            if p.role == "in":
                array = np.asarray(arrays[p.name])
                if array.shape != shape:
                    raise ShapeError(f"'{p.name}' has shape {array.shape}, the kernel says {shape}")
                if array.dtype != p.dtype.numpy:
                    raise ArgumentError(f"'{p.name}' has element type {array.dtype}, the kernel says {p.dtype}")
                self.tensors[p.name] = array
            else:
                start = 0 if p.role == "accumulate" else scalar.poison(p.dtype)
                self.tensors[p.name] = np.full(shape, start, p.dtype.numpy)

    # ------------------------------------------------------------------------------------------ values

    def integer(self, node: Node) -> int:
        return int(self.value(node))

    def size(self, extent: Any) -> int:
        match extent:
            case Static(size):
                return size
            case Full(node):
                return self.integer(node)
            case TileOf(axis):
                return self._bound_of(axis).valid
        raise VerifyError(f"{extent!r} is no extent")

    def _bound_of(self, axis: Axis) -> _Bound:
        if axis not in self.bound:
            raise VerifyError(f"axis {axis.name} is used outside the loop that makes it")
        return self.bound[axis]

    def _memo(self, node: Node) -> dict[Node, Any]:
        innermost = 0
        for variable in node.free:
            if variable not in self.level:
                raise VerifyError(f"{node!r} depends on {_name(variable)}, which no enclosing loop binds")
            innermost = max(innermost, self.level[variable])
        return self.memos[innermost]

    def value(self, root: Node) -> Any:
        """The node's array (for loop and if: the tuple of results). A stack of its own, so depth is not limited."""
        stack = [root]
        while stack:
            node = stack[-1]
            memo = self._memo(node)
            if node in memo:
                stack.pop()
                continue
            missing = [a for a in node.args if a not in self._memo(a)]
            if missing:
                stack.extend(missing)
                continue
            memo[node] = self._evaluate(node)
            stack.pop()
        return self._memo(root)[root]

    def _evaluate(self, node: Node) -> Any:
        if has_effects(node):
            raise VerifyError(f"the results of {node!r}, which has effects, are used before it is run as an effect")
        handler = _HANDLERS.get(node.op)
        if handler is None:
            raise VerifyError(f"'{node.op}' is not a value of Tile IR")
        return handler(self, node, *(self._memo(a)[a] for a in node.args))

    def _scope(self, variables: Sequence[Variable]) -> int:
        """Opens a scope that binds these variables; returns its level."""
        self.memos.append({})
        for v in variables:
            self.level[v] = len(self.memos) - 1
        return len(self.memos) - 1

    def _leave(self, variables: Sequence[Variable]) -> None:
        self.memos.pop()
        for v in variables:
            del self.level[v]
            self.bound.pop(v, None)  # type: ignore[arg-type]
            self.carried.pop(v, None)  # type: ignore[arg-type]

    # ------------------------------------------------------------------------------------------ loops and effects

    def _steps(self, axis: Axis, start: int = 0, stop: int | None = None) -> Iterator[_Bound]:
        extent = self.integer(axis.extent)
        start, stop = max(start, 0), extent if stop is None else min(stop, extent)
        step = 1
        if axis.kind == "tile":
            step = self.tile_sizes.get(axis.name, self.default_tile)
            if step < 1:
                raise ArgumentError(f"tile size of axis {axis.name} is {step}, must be at least 1")
        for first in range(start, stop, step):
            yield _Bound(first, min(step, stop - first))

    def effect(self, node: Node) -> None:
        match node.op:
            case "store":
                self._store(node)
            case "scatter":
                self._scatter(node)
            case "par":
                self._par(node)
            case "loop" | "if":
                # Run now even when it depends on no loop variable: a scatter counts once per iteration.
                args = [self.value(a) for a in node.args]
                run = self.loop if node.op == "loop" else self.branch
                self._memo(node)[node] = run(node, *args)
            case _:
                raise VerifyError(f"'{node.op}' is not an effect of Tile IR")

    def _par(self, node: Node) -> None:
        axes: tuple[Axis, ...] = node.attr("axes")
        grid: list[tuple[_Bound, ...]] = [()]
        for axis in axes:
            steps = list(self._steps(axis))
            grid = [(*g, s) for g in grid for s in steps]
        if self.order is not None:
            self.order.shuffle(grid)
        level = self._scope(axes)
        for bounds in grid:
            self.memos[level].clear()
            self.bound.update(zip(axes, bounds))
            for effect in node.attr("effects"):
                self.effect(effect)
        self._leave(axes)

    def loop(self, node: Node, *inits: Array) -> tuple[Array, ...]:
        axis, params = node.attr("axis"), tuple(node.attr("params"))
        start, stop = (self._limit(node.attr(k)) for k in ("start", "stop"))
        steps = list(self._steps(axis, start or 0, stop))
        state: tuple[Array, ...] = inits
        variables = (axis, *params)
        level = self._scope(variables)
        for bound in steps:
            self.memos[level].clear()
            self.bound[axis] = bound
            self.carried.update(zip(params, state))
            for effect in node.attr("effects"):
                self.effect(effect)
            state = tuple(self.value(y) for y in node.attr("yields"))
        self._leave(variables)
        return state

    def _limit(self, value: Any) -> int | None:
        return self.integer(value) if isinstance(value, Node) else value

    def branch(self, node: Node, cond: Array) -> tuple[Array, ...]:
        side = "then" if bool(cond) else "else"
        for effect in node.attr(f"{side}_effects"):
            self.effect(effect)
        return tuple(self.value(y) for y in node.attr(f"{side}_yields"))

    # ------------------------------------------------------------------------------------------ memory

    def param(self, name: str) -> TensorParam:
        for p in self.kernel.tensors:
            if p.name == name:
                return p
        raise VerifyError(f"kernel '{self.kernel.name}' has no tensor '{name}'")

    def load(self, node: Node, *index: Array) -> Array:
        name = node.attr("tensor")
        param = self.param(name)
        if name in self.written:
            raise VerifyError(f"a load from '{name}', which is an output: outputs are write-only")
        tensor = self.tensors[name]
        fill = scalar.cast(np.asarray(node.attr("fill", 0)), param.dtype)
        grid, inside = _grid(tensor.shape, index)
        if tensor.size == 0:
            shape = np.broadcast_shapes(*(g.shape for g in grid)) if grid else ()
            return np.full(shape, fill, tensor.dtype)
        found = np.asarray(tensor[tuple(grid)]) if grid else np.asarray(tensor).copy()
        return found if inside is None else np.where(inside, found, fill).astype(tensor.dtype, copy=False)

    def _target(self, node: Node) -> tuple[Array, tuple[Array, ...], Array]:
        """Tensor, flat index per axis of the elements inside it, and their values."""
        name = node.attr("tensor")
        if name not in self.written:
            raise VerifyError(f"a {node.op} to '{name}', which is an input: inputs are read-only")
        tensor = self.tensors[name]
        *index, value = (self.value(a) for a in node.args)
        if value.dtype != tensor.dtype:
            raise VerifyError(f"a {node.op} of {value.dtype} to '{name}', which holds {tensor.dtype}")
        grid, inside = _grid(tensor.shape, index, clip=False)
        shape = np.broadcast_shapes(*(g.shape for g in grid)) if grid else ()
        keep = np.broadcast_to(True if inside is None else inside, shape)
        value = np.broadcast_to(value, shape)
        return tensor, tuple(np.broadcast_to(g, shape)[keep] for g in grid), value[keep]

    def _store(self, node: Node) -> None:
        tensor, index, value = self._target(node)
        if index:
            tensor[index] = value
        else:
            tensor[()] = value[0]

    def _scatter(self, node: Node) -> None:
        tensor, index, value = self._target(node)
        monoid = node.attr("monoid")
        if not index:
            tensor[()] = scalar.combine(monoid, tensor, value[0])
            return
        flat = np.ravel_multi_index(index, tensor.shape) if value.size else np.zeros(0, np.int64)
        # Equal targets are folded first, so that each is combined once with the old content.
        places, group = np.unique(flat, return_inverse=True)
        order = np.argsort(group, kind="stable")
        ends = np.searchsorted(group[order], np.arange(len(places)), side="right")
        begin = 0
        for place, end in zip(places, ends):
            where = np.unravel_index(place, tensor.shape)
            old = np.asarray(tensor[where]).reshape(1)
            tensor[where] = scalar.fold(monoid, np.concatenate([old, value[order[begin:end]]]), 0)
            begin = int(end)


def _name(variable: Variable) -> str:
    return f"axis {variable.name}" if isinstance(variable, Axis) else "a carried value"


def _default_tile(kernel: Kernel) -> int:
    """One size for every axis whose names were not given, so that a tile over all of them stays small."""
    axes = 1
    for effect in kernel.effects:
        tiled = [a for a in effect.attr("axes", ()) if a.kind == "tile"]
        axes = max(axes, len(tiled) + 1)
    return max(8, min(128, round(_DEFAULT_TILE_ELEMENTS ** (1 / axes))))


def _grid(shape: Sequence[int], index: Sequence[Array], clip: bool = True) -> tuple[list[Array], Array | None]:
    """Index tiles, one per axis, shaped so that they broadcast to the concatenation of their shapes; and where they
    lie inside the tensor (None: everywhere)."""
    if len(index) != len(shape):
        raise VerifyError(f"{len(index)} indices for a tensor of rank {len(shape)}")
    rank = sum(i.ndim for i in index)
    grid: list[Array] = []
    inside: Array | None = None
    axis = 0
    for size, raw in zip(shape, index):
        i = np.asarray(raw, dtype=np.int64)
        i = i.reshape((1,) * axis + i.shape + (1,) * (rank - axis - i.ndim))
        axis += np.ndim(raw)
        if i.size and (int(i.min()) < 0 or int(i.max()) >= size):
            ok = (i >= 0) & (i < size)
            inside = ok if inside is None else inside & ok
            if clip:
                i = np.clip(i, 0, max(size - 1, 0))
        grid.append(i)
    return grid, inside


# ---------------------------------------------------------------------------------------------- one handler per op


def _const(run: _Run, node: Node) -> Array:
    return np.asarray(node.attr("value"), dtype=node.dtype.numpy)


def _dim(run: _Run, node: Node) -> Array:
    name = node.attr("name")
    if name not in run.dims:
        raise ArgumentError(f"dim {name} of kernel '{run.kernel.name}' has no value")
    return np.asarray(run.dims[name], dtype=np.int64)


def _param(run: _Run, node: Node) -> Array:
    return np.asarray(run.scalars[node.attr("name")]).astype(node.dtype.numpy)


def _pos(run: _Run, node: Node) -> Array:
    return np.asarray(run._bound_of(node.attr("axis")).start, dtype=np.int64)


def _index(run: _Run, node: Node) -> Array:
    bound = run._bound_of(node.attr("axis"))
    return np.arange(bound.start, bound.start + bound.valid, dtype=np.int64)


def _iota(run: _Run, node: Node) -> Array:
    return np.arange(run.size(node.shape[0]), dtype=np.int64)


def _map(run: _Run, node: Node, *args: Array) -> Array:
    return scalar.apply(node.attr("fn"), *args)


def _cast(run: _Run, node: Node, x: Array) -> Array:
    return scalar.cast(x, node.dtype)


def _broadcast(run: _Run, node: Node, x: Array) -> Array:
    dims: tuple[int, ...] = node.attr("dims")
    target = tuple(run.size(e) for e in node.shape)
    lifted = [1] * len(target)
    for axis, to in enumerate(dims):
        lifted[to] = x.shape[axis]
    # The axes of x may arrive in another order than the result's.
    order = sorted(range(len(dims)), key=lambda a: dims[a])
    return np.broadcast_to(x.transpose(order).reshape(lifted), target)


def _transpose(run: _Run, node: Node, x: Array) -> Array:
    return x.transpose(node.attr("perm"))


def _reshape(run: _Run, node: Node, x: Array) -> Array:
    return x.reshape(tuple(run.size(e) for e in node.shape))


def _slice(run: _Run, node: Node, x: Array) -> Array:
    pick = []
    for axis, (start, size, step) in enumerate(zip(node.attr("starts"), node.attr("sizes"), node.attr("steps"))):
        if size is None:
            start, size, step = 0, x.shape[axis], 1
        pick.append(start + step * np.arange(size, dtype=np.int64))
        if size and not (0 <= pick[-1].min() and pick[-1].max() < x.shape[axis]):
            raise VerifyError(f"{node!r} takes elements outside axis {axis} of size {x.shape[axis]}")
    return x[np.ix_(*pick)] if pick else x


def _dot(run: _Run, node: Node, acc: Array, a: Array, b: Array) -> Array:
    return scalar.dot(acc, a, b)


def _fold(run: _Run, node: Node, x: Array) -> Array:
    return scalar.fold(node.attr("monoid"), x, node.attr("axis"))


def _argfold(run: _Run, node: Node, x: Array) -> Array:
    return scalar.argfold(node.attr("kind"), x, node.attr("axis"), node.attr("last", False))


def _scan(run: _Run, node: Node, x: Array) -> Array:
    return scalar.scan(
        node.attr("monoid"), x, node.attr("axis"), node.attr("reverse", False), node.attr("exclusive", False))


def _rng(run: _Run, node: Node, seed: Array, counter: Array) -> Array:
    return scalar.cast(scalar.rng(node.attr("kind"), seed, counter), node.dtype)


def _result(run: _Run, node: Node, results: tuple[Array, ...]) -> Array:
    return results[node.attr("index")]


def _carried(run: _Run, node: Node) -> Array:
    return run.carried[node]


_HANDLERS: dict[str, Callable[..., Any]] = {
    "const": _const, "dim": _dim, "param": _param, "pos": _pos, "index": _index, "iota": _iota, "map": _map,
    "cast": _cast, "broadcast": _broadcast, "transpose": _transpose, "reshape": _reshape, "slice": _slice,
    "load": _Run.load, "dot": _dot, "fold": _fold, "argfold": _argfold, "scan": _scan, "rng": _rng,
    "loop": _Run.loop, "if": _Run.branch, "result": _result, "carried": _carried,
}
