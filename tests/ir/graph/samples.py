"""Random applications of every op of the spec table, with arrays for them: `draw(op, r)`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir.graph import build as b
from tilewright.ir.graph.core import Graph, TensorType, Value, graph_input
from tilewright.ir.graph.spec import SPECS
from tilewright.ir.types import BY_NAME, DType, bool_, f32, f64, from_numpy, i8, i32, i64, u8

Array = np.ndarray[Any, Any]
EXTENTS = (0, 1, 1, 2, 3, 4, 5)


@dataclass
class Sample:
    op: str
    arrays: list[Array | None]
    attrs: dict[str, Any]
    #: operands which must be constants for the type to be known
    constant: tuple[int, ...] = ()


class Draw:
    """Random shapes and arrays from one seed; `zero` allows empty extents."""

    def __init__(self, seed: int, dtype: DType = f32, zero: bool = True) -> None:
        self.r = random.Random(seed)
        self.np = np.random.default_rng(seed)
        self.dtype = dtype
        self.zero = zero

    def extent(self, least: int = 0) -> int:
        return max(least if self.zero else max(least, 1), self.r.choice(EXTENTS))

    def shape(self, lo: int = 0, hi: int = 4, least: int = 0) -> tuple[int, ...]:
        return tuple(self.extent(least) for _ in range(self.r.randint(lo, hi)))

    def array(self, shape: Any, dtype: DType | None = None) -> Array:
        dtype = dtype or self.dtype
        if dtype.is_bool:
            return self.np.integers(0, 2, shape).astype(np.bool_)
        if dtype.is_float:
            return np.asarray(self.np.normal(size=shape)).astype(dtype.numpy)
        return self.np.integers(0 if dtype.kind == "u" else -20, 20, shape).astype(dtype.numpy)

    def positive(self, shape: Any) -> Array:
        return np.asarray(self.np.uniform(0.5, 2.0, size=shape)).astype(self.dtype.numpy)

    def broadcastable(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        out = tuple(1 if self.r.random() < 0.3 else d for d in shape)
        return out[self.r.randint(0, len(shape)) :] if self.r.random() < 0.4 else out

    def axes(self, rank: int) -> tuple[int, ...]:
        return tuple(a for a in range(rank) if self.r.random() < 0.5)


Maker = Callable[[Draw], Sample]
MAKERS: dict[str, Maker] = {}


def maker(*ops: str) -> Callable[[Callable[[Draw, str], Sample]], None]:
    def attach(fn: Callable[[Draw, str], Sample]) -> None:
        for op in ops:
            MAKERS[op] = lambda d, op=op: fn(d, op)  # type: ignore[misc]

    return attach


FLOAT_UNARY = (
    "exp log log1p expm1 sqrt rsqrt reciprocal sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh erf sigmoid "
    "floor ceil round trunc isnan isinf leaky_relu elu selu hard_sigmoid hard_swish softplus softsign mish silu "
    "gelu neg abs sign relu"
).split()


@maker(*FLOAT_UNARY)
def _(d: Draw, op: str) -> Sample:
    return Sample(op, [d.array(d.shape())], {"approximate": d.r.choice(["none", "tanh"])} if op == "gelu" else {})


@maker("logical_not", "bitwise_not")
def _(d: Draw, op: str) -> Sample:
    return Sample(op, [d.array(d.shape(), bool_ if op == "logical_not" else i32)], {})


@maker(
    "add",
    "sub",
    "mul",
    "div",
    "floordiv",
    "mod",
    "fmod",
    "pow",
    "max",
    "min",
    "atan2",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
)
def _(d: Draw, op: str) -> Sample:
    shape = d.shape()
    other = d.positive if op == "pow" else d.array
    return Sample(op, [other(shape), d.array(d.broadcastable(shape))], {})


@maker("and", "or", "xor", "shl", "shr")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape()
    dtype = d.r.choice([i32, u8] if op in ("shl", "shr") else [bool_, i32, u8])
    y = d.array(d.broadcastable(shape), dtype)
    return Sample(op, [d.array(shape, dtype), np.abs(y) % 8 if not dtype.is_bool else y], {})


@maker("where")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape()
    return Sample(op, [d.array(d.broadcastable(shape), bool_), d.array(shape), d.array(d.broadcastable(shape))], {})


@maker("cast")
def _(d: Draw, op: str) -> Sample:
    source, target = (BY_NAME[d.r.choice(sorted(BY_NAME))] for _ in range(2))
    return Sample(op, [d.array(d.shape(), source)], {"dtype": target})


@maker("prelu")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape(1)
    return Sample(op, [d.array(shape), d.array(d.broadcastable(shape))], {})


@maker("clip")
def _(d: Draw, op: str) -> Sample:
    return Sample(
        op, [d.array(d.shape()), d.r.choice([None, d.array(()) - 1]), d.r.choice([None, d.array(()) + 1])], {}
    )


@maker("quantize", "dequantize")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape(2, 4, 1)
    axis, per_axis = d.r.randrange(len(shape)), d.r.random() < 0.5
    p = (shape[axis],) if per_axis else ()
    dtype = d.r.choice([i8, u8])
    zero = d.r.choice([None, d.array(p, dtype)])
    if op == "quantize":
        return Sample(op, [d.array(shape), d.positive(p), zero], {"axis": axis, "dtype": dtype})
    return Sample(op, [d.array(shape, dtype), d.positive(p), zero], {"axis": axis})


@maker("reshape")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape()
    flat = [int(np.prod(shape))]
    return Sample(op, [d.array(shape)], {"shape": tuple(d.r.choice([flat, [1, *shape], [*reversed(shape)]]))})


@maker("transpose")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape()
    return Sample(op, [d.array(shape)], {"perm": tuple(d.r.sample(range(len(shape)), len(shape)))})


@maker("broadcast")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape()
    return Sample(op, [d.array(d.broadcastable(shape))], {"shape": shape})


@maker("slice")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape()
    starts, stops, steps = [], [], []
    for n in shape:
        step = d.r.choice([1, 1, 2, 3, -1, -2]) if n else 1
        a, c = sorted((d.r.randint(0, n), d.r.randint(0, n)))
        starts.append(a if step > 0 else max(c - 1, 0))
        stops.append(c if step > 0 else a - 1)
        steps.append(step)
    return Sample(op, [d.array(shape)], {"starts": tuple(starts), "stops": tuple(stops), "steps": tuple(steps)})


@maker("pad")
def _(d: Draw, op: str) -> Sample:
    mode = d.r.choice(["constant", "reflect", "edge"])
    shape = d.shape(1, 3, 0 if mode == "constant" else 3)
    lo, hi = (tuple(d.r.randint(0, 2) for _ in shape) for _ in range(2))
    return Sample(op, [d.array(shape)], {"lo": lo, "hi": hi, "mode": mode, "value": 1.5})


@maker("concat", "split")
def _(d: Draw, op: str) -> Sample:
    shape = list(d.shape(1))
    axis, sizes = d.r.randrange(len(shape)), [d.extent() for _ in range(d.r.randint(1, 3))]
    if op == "split":
        shape[axis] = sum(sizes)
        return Sample(op, [d.array(shape)], {"axis": axis, "sizes": tuple(sizes)})
    return Sample(op, [d.array([*shape[:axis], n, *shape[axis + 1 :]]) for n in sizes], {"axis": axis})


@maker("tile")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape()
    return Sample(op, [d.array(shape)], {"repeats": tuple(d.r.randint(0, 3) for _ in shape)})


def _index(d: Draw, shape: Any, extent: int) -> Array:
    return d.np.integers(-extent, extent, shape).astype(d.r.choice([i32, i64]).numpy)


@maker("gather")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape(1, 3, 1)
    axis = d.r.randrange(len(shape))
    return Sample(op, [d.array(shape), _index(d, d.shape(0, 2), shape[axis])], {"axis": axis})


@maker("gather_elements", "scatter_elements")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape(1, 3, 1)
    axis = d.r.randrange(len(shape))
    picked = tuple(d.r.randint(1, n) for n in shape)
    if op == "gather_elements":
        return Sample(op, [d.array(shape), _index(d, picked, shape[axis])], {"axis": axis})
    index = np.stack(
        [d.np.permutation(shape[axis])[: picked[axis]] for _ in range(int(np.prod(picked)) // picked[axis])]
    )
    index = np.moveaxis(index.reshape([*picked[:axis], *picked[axis + 1 :], picked[axis]]), -1, axis)
    return Sample(op, [d.array(shape), index, d.array(picked)], {"axis": axis, "reduction": _reduction(d)})


def _reduction(d: Draw) -> str:
    return d.r.choice(["none", "add", "mul", "max", "min"])


@maker("gather_nd", "scatter_nd")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape(2, 4, 1)
    batch = d.r.randint(0, 1) if op == "gather_nd" else 0
    depth = d.r.randint(1, len(shape) - batch)
    lead = (*shape[:batch], *d.shape(0, 2, 1))
    index = np.stack([_index(d, lead, n).astype(np.int64) for n in shape[batch : batch + depth]], axis=-1)
    if op == "gather_nd":
        return Sample(op, [d.array(shape), index], {"batch_dims": batch})
    return Sample(
        op, [d.array(shape), index, d.array((*lead, *shape[depth:]))], {"reduction": d.r.choice(["add", "max"])}
    )


@maker("iota")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape(1)
    return Sample(op, [], {"shape": shape, "axis": d.r.randrange(len(shape)), "dtype": d.r.choice([i32, i64, f32])})


@maker("one_hot")
def _(d: Draw, op: str) -> Sample:
    index = d.np.integers(-4, 5, d.shape(0, 3)).astype(np.int64)
    return Sample(op, [index, d.array((2,))], {"depth": 4, "axis": d.r.randint(-index.ndim - 1, index.ndim)})


@maker("trilu")
def _(d: Draw, op: str) -> Sample:
    return Sample(op, [d.array(d.shape(2))], {"upper": d.r.random() < 0.5, "k": d.r.randint(-3, 3)})


@maker("space_to_depth", "depth_to_space")
def _(d: Draw, op: str) -> Sample:
    n, c, h, w, k = d.extent(), d.extent(), d.extent(), d.extent(), d.r.randint(1, 3)
    if op == "space_to_depth":
        return Sample(op, [d.array((n, c, h * k, w * k))], {"block": k})
    return Sample(op, [d.array((n, c * k * k, h, w))], {"block": k, "mode": d.r.choice(["dcr", "crd"])})


REDUCTIONS = [n for n in SPECS if n.startswith("reduce_")]


@maker(*REDUCTIONS)
def _(d: Draw, op: str) -> Sample:
    shape = d.shape()
    return Sample(op, [d.array(shape)], {"axes": d.axes(len(shape)), "keepdims": d.r.random() < 0.5})


@maker("argmax", "argmin")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape(1, 4, 1)
    x = np.round(d.array(shape)) if d.dtype.is_float else d.array(shape)
    attrs = {"axis": d.r.randrange(len(shape)), "keepdims": d.r.random() < 0.5, "last": d.r.random() < 0.5}
    return Sample(op, [x.astype(d.dtype.numpy)], attrs)


@maker("cumsum")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape(1)
    attrs = {"axis": d.r.randrange(len(shape)), "exclusive": d.r.random() < 0.5, "reverse": d.r.random() < 0.5}
    return Sample(op, [d.array(shape)], attrs)


@maker("topk")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape(1, 3, 1)
    axis = d.r.randrange(len(shape))
    return Sample(op, [d.array(shape)], {"k": d.r.randint(0, shape[axis]), "axis": axis, "largest": d.r.random() < 0.5})


@maker("softmax", "log_softmax", "lp_norm")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape(1)
    attrs: dict[str, Any] = {"axis": d.r.randrange(len(shape))}
    return Sample(op, [d.array(shape)], attrs | ({"p": d.r.choice([1, 2])} if op == "lp_norm" else {}))


@maker("layer_norm", "rms_norm")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape(1, 4, 1)
    axis = d.r.randrange(len(shape))
    arrays = [d.array(shape), d.r.choice([None, d.array(shape[axis:])])]
    if op == "layer_norm":
        arrays.append(d.r.choice([None, d.array(shape[axis:])]))
    return Sample(op, arrays, {"axis": axis, "epsilon": 1e-3})


@maker("batch_norm", "instance_norm", "group_norm")
def _(d: Draw, op: str) -> Sample:
    c, shape = d.r.choice([1, 2, 4]), list(d.shape(2, 4, 1))
    shape[1] = c
    if op == "batch_norm":
        layout = d.r.choice(["first", "last"])
        if layout == "last":
            shape[1], shape[-1] = shape[-1], c
        return Sample(op, [d.array(shape), d.array(c), d.array(c), d.array(c), d.positive(c)], {"layout": layout})
    arrays = [d.array(shape), *(d.r.choice([None, d.array(c)]) for _ in range(2))]
    return Sample(op, arrays, {"num_groups": d.r.choice([1, c])} if op == "group_norm" else {})


@maker("matmul")
def _(d: Draw, op: str) -> Sample:
    n, k, m, batch = d.extent(), d.extent(), d.extent(), d.shape(0, 2)
    a = d.r.choice([(k,), (n, k), (*batch, n, k)])
    c = d.r.choice([(k,), (k, m), (*d.broadcastable(batch), k, m)])
    return Sample(op, [d.array(a), d.array(c)], {})


@maker("gemm")
def _(d: Draw, op: str) -> Sample:
    n, k, m = d.extent(), d.extent(), d.extent()
    ta, tb = d.r.random() < 0.5, d.r.random() < 0.5
    c = d.r.choice([None, (m,), (n, m), (n, 1), ()])
    arrays = [d.array((k, n) if ta else (n, k)), d.array((m, k) if tb else (k, m)), None if c is None else d.array(c)]
    return Sample(op, arrays, {"alpha": 0.5, "beta": 2.0, "trans_a": ta, "trans_b": tb})


@maker("linear")
def _(d: Draw, op: str) -> Sample:
    k, m = d.extent(), d.extent()
    return Sample(op, [d.array((*d.shape(0, 2), k)), d.array((m, k)), d.r.choice([None, d.array(m)])], {})


EQUATIONS = (
    "ij,jk->ik",
    "bij,bjk->bik",
    "...ij,jk->...ik",
    "ij->ji",
    "ij->j",
    "i,j->ij",
    "bij,bij->b",
    "bhid,bhjd->bhij",
    "ij,kj",
    "ijk->",
    "ab,bc,cd->ad",
    "abc,cd->adb",
)


@maker("einsum")
def _(d: Draw, op: str) -> Sample:
    equation = d.r.choice(EQUATIONS)
    extents: dict[str, int] = {}
    arrays = []
    for term in equation.split("->")[0].split(","):
        shape = [2] if "..." in term else []
        shape += [extents.setdefault(c, d.extent()) for c in term.replace("...", "")]
        arrays.append(d.array(shape))
    return Sample(op, arrays, {"equation": equation})


def _window(d: Draw, n: int, transposed: bool = False) -> dict[str, Any]:
    return {
        "strides": tuple(d.r.randint(1, 3) for _ in range(n)),
        "dilations": tuple(d.r.randint(1, 2) for _ in range(n)),
        "pads_lo": tuple(d.r.randint(0, 1) for _ in range(n)),
        "pads_hi": tuple(d.r.randint(0, 1) for _ in range(n)),
        "layout": d.r.choice(["first", "last"]),
    }


def _image(d: Draw, c: int, n: int, layout: str, least: int) -> tuple[int, ...]:
    space = [least + d.extent() for _ in range(n)]
    batch = d.extent()
    return (batch, c, *space) if layout == "first" else (batch, *space, c)


@maker("conv", "conv_transpose")
def _(d: Draw, op: str) -> Sample:
    n, groups, per, out = d.r.randint(1, 3), d.r.choice([1, 2, 3]), d.r.randint(1, 2), d.r.randint(1, 2)
    attrs = _window(d, n) | {"groups": groups}
    kernel = tuple(d.r.randint(1, 3) for _ in range(n))
    x = d.array(_image(d, groups * per, n, attrs["layout"], 5))
    first = (groups * out, per) if op == "conv" else (groups * per, out)
    w = d.array((*first, *kernel) if attrs["layout"] == "first" else (*kernel, first[1], first[0]))
    if op == "conv_transpose":
        attrs["output_padding"] = tuple(d.r.randint(0, s - 1) for s in attrs["strides"])
    return Sample(op, [x, w, d.r.choice([None, d.array(groups * out)])], attrs)


@maker("max_pool", "avg_pool")
def _(d: Draw, op: str) -> Sample:
    n = d.r.randint(1, 3)
    attrs = _window(d, n) | {"kernel": tuple(d.r.randint(2, 3) for _ in range(n)), "ceil": d.r.random() < 0.5}
    if op == "avg_pool":
        del attrs["dilations"]
        attrs["count_include_pad"] = d.r.random() < 0.5
    return Sample(op, [d.array(_image(d, d.r.randint(1, 3), n, attrs["layout"], 5))], attrs)


@maker("winograd_input")
def _(d: Draw, op: str) -> Sample:
    tiles, pads = (d.r.randint(1, 3), d.r.randint(1, 2)), (d.r.randint(0, 1), d.r.randint(0, 2))
    size = [max(1, 4 * t + 2 - 2 * p - d.r.randint(0, 3)) for t, p in zip(tiles, pads, strict=True)]
    return Sample(op, [d.array((d.r.randint(1, 2), *size, d.r.randint(1, 5)))], {"tiles": tiles, "pads": pads})


@maker("winograd_output")
def _(d: Draw, op: str) -> Sample:
    batch, size = d.r.randint(1, 2), (d.r.randint(1, 9), d.r.randint(1, 9))
    tiles = batch * -(-size[0] // 4) * -(-size[1] // 4)
    return Sample(op, [d.array((36, tiles, d.r.randint(1, 5)))], {"batch": batch, "size": size})


@maker("global_avg_pool", "global_max_pool")
def _(d: Draw, op: str) -> Sample:
    layout = d.r.choice(["first", "last"])
    return Sample(op, [d.array(_image(d, 3, d.r.randint(1, 3), layout, 1))], {"layout": layout})


@maker("resize")
def _(d: Draw, op: str) -> Sample:
    shape = (d.extent(1), 2, d.extent(1), d.extent(1))
    attrs: dict[str, Any] = {
        "mode": d.r.choice(["nearest", "linear", "cubic"]),
        "coordinate_mode": d.r.choice(["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]),
        "nearest_mode": d.r.choice(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]),
        "exclude_outside": d.r.random() < 0.3,
    }
    if d.r.random() < 0.5:
        attrs["scales"] = (1.0, 1.0, d.r.choice([0.5, 2.0, 1.5]), d.r.choice([1.0, 2.0, 3.0]))
    else:
        attrs["sizes"] = (*shape[:2], d.r.randint(1, 7), d.r.randint(1, 7))
    return Sample(op, [d.array(shape)], attrs)


@maker("attention")
def _(d: Draw, op: str) -> Sample:
    batch, groups, repeat, s, t, depth = (d.r.randint(1, 3) for _ in range(6))
    t = max(s, t)
    q = d.array((batch, groups * repeat, s, depth))
    k, v = d.array((batch, groups, t, depth)), d.array((batch, groups, t, 2))
    mask = d.r.choice([None, d.array((1, groups * repeat, s, t)), d.array((s, t)), np.ones((batch, 1, s, t), np.bool_)])
    return Sample(op, [q, k, v, mask], {"causal": d.r.random() < 0.5, "scale": d.r.choice([None, 0.3])})


@maker("lstm", "gru", "rnn")
def _(d: Draw, op: str) -> Sample:
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[op]
    steps, n, width, h = d.r.randint(1, 3), d.extent(), d.extent(1), d.r.randint(1, 3)
    attrs: dict[str, Any] = {"hidden": h, "time_first": d.r.random() < 0.5}
    attrs["direction"] = d.r.choice(["forward", "reverse", "bidirectional"])
    k = 2 if attrs["direction"] == "bidirectional" else 1
    if op == "gru":
        attrs["linear_before_reset"] = d.r.random() < 0.5
    state = (k, n, h) if attrs["time_first"] else (n, k, h)
    arrays = [d.array((steps, n, width) if attrs["time_first"] else (n, steps, width))]
    arrays += [d.array((k, gates * h, width)), d.array((k, gates * h, h))]
    arrays += [d.r.choice([None, d.array((k, 2 * gates * h))])]
    arrays += [d.r.choice([None, d.array(state)]) for _ in range(2 if op == "lstm" else 1)]
    return Sample(op, arrays, attrs)


@maker("shape_of", "size_of")
def _(d: Draw, op: str) -> Sample:
    return Sample(op, [d.array(d.shape())], {})


def ints(*values: Any) -> Array:
    return np.array(values, dtype=np.int64)


@maker("dyn_reshape")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape(1, 4, 1)
    return Sample(op, [d.array(shape), ints(*d.r.choice([[0, -1], [-1], [*shape, 1], [-1, shape[-1]]]))], {}, (1,))


@maker("dyn_broadcast")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape()
    return Sample(op, [d.array(d.broadcastable(shape)), ints(*d.r.choice([shape, d.broadcastable(shape)]))], {}, (1,))


@maker("dyn_full")
def _(d: Draw, op: str) -> Sample:
    return Sample(op, [ints(*d.shape()), d.array(d.r.choice([(), (1,)]))], {}, (0,))


@maker("dyn_range")
def _(d: Draw, op: str) -> Sample:
    return Sample(
        op,
        [np.array(v, np.int64) for v in (d.r.randint(-5, 5), d.r.randint(-5, 9), d.r.choice([1, 2, -1]))],
        {},
        (0, 1, 2),
    )


@maker("dyn_tile")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape()
    return Sample(op, [d.array(shape), ints(*(d.r.randint(0, 3) for _ in shape))], {}, (1,))


@maker("dyn_slice")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape(1)
    axes = d.r.sample(range(len(shape)), d.r.randint(1, len(shape)))
    far = [-(2**63), 2**63 - 1, *range(-7, 8)]
    starts, ends = (ints(*(d.r.choice(far) for _ in axes)) for _ in range(2))
    steps = ints(*(d.r.choice([1, 1, 2, -1, -2]) for _ in axes))
    return Sample(op, [d.array(shape), starts, ends, ints(*axes), d.r.choice([None, steps])], {}, (1, 2, 3, 4))


@maker("dyn_pad")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape(1, 3, 3)
    pads = ints(*(d.r.randint(-1, 2) for _ in range(2 * len(shape))))
    value = d.r.choice([None, d.array(())])
    return Sample(op, [d.array(shape), pads, value, d.r.choice([None, ints(*range(len(shape)))])], {}, (1, 2, 3))


@maker("dyn_split")
def _(d: Draw, op: str) -> Sample:
    sample = MAKERS["split"](d)
    return Sample(op, [sample.arrays[0], ints(*sample.attrs["sizes"])], {"axis": sample.attrs["axis"]}, (1,))


@maker("dyn_squeeze")
def _(d: Draw, op: str) -> Sample:
    shape = (1, *d.shape(0, 2), 1)
    return Sample(op, [d.array(shape), ints(*d.r.choice([[0], [-1], [0, -1]]))], {}, (1,))


@maker("dyn_unsqueeze")
def _(d: Draw, op: str) -> Sample:
    return Sample(op, [d.array(d.shape(0, 2)), ints(*d.r.choice([[0], [-1], [0, 1], [0, -1]]))], {}, (1,))


@maker("dyn_resize")
def _(d: Draw, op: str) -> Sample:
    sample = MAKERS["resize"](d)
    scales, sizes = sample.attrs.pop("scales", None), sample.attrs.pop("sizes", None)
    arrays = [sample.arrays[0], None, None if scales is None else np.array(scales, np.float32)]
    return Sample(op, [*arrays, None if sizes is None else ints(*sizes)], sample.attrs, (2, 3))


@maker("dyn_topk")
def _(d: Draw, op: str) -> Sample:
    sample = MAKERS["topk"](d)
    return Sample(op, [sample.arrays[0], ints(sample.attrs.pop("k"))], sample.attrs, (1,))


@maker("dyn_reduce")
def _(d: Draw, op: str) -> Sample:
    shape = d.shape()
    attrs = {
        "kind": d.r.choice("sum mean max min prod l1 l2 logsumexp".split()),
        "keepdims": d.r.random() < 0.5,
        "noop_with_empty_axes": d.r.random() < 0.5,
    }
    return Sample(op, [d.array(shape), d.r.choice([None, ints(*d.axes(len(shape)))])], attrs, (1,))


def draw(op: str, seed: int, dtype: DType = f32, zero: bool = True) -> Sample:
    return MAKERS[op](Draw(seed, dtype, zero))


def type_of(a: Array) -> TensorType:
    dtype = from_numpy(a.dtype)
    assert dtype is not None
    return TensorType(dtype, a.shape)


def graph_of(sample: Sample) -> tuple[Graph, dict[str, Array]]:
    """A graph of the one op, and arrays for its inputs."""
    inputs: list[Value] = []
    operands: list[Value | None] = []
    feed: dict[str, Array] = {}
    for i, a in enumerate(sample.arrays):
        if a is None:
            operands.append(None)
        elif i in sample.constant:
            operands.append(b.const(a))
        else:
            inputs.append(graph_input(f"x{i}", type_of(a)))
            feed[f"x{i}"] = a
            operands.append(inputs[-1])
    node = b.make(sample.op, *operands, **sample.attrs)
    return Graph(sample.op, inputs, node.outputs, [f"y{i}" for i in range(len(node.types))]), feed


def as_f64(sample: Sample) -> Sample:
    """The same sample with its floating-point arrays in f64."""
    arrays = [None if a is None else a.astype(np.float64) if from_numpy(a.dtype).is_float else a for a in sample.arrays]  # type: ignore[union-attr]
    return Sample(sample.op, arrays, sample.attrs, sample.constant)


def close(a: Array, c: Array, rel: float) -> bool:
    """Equal where not finite; elsewhere close by relative Frobenius error."""
    if a.shape != c.shape:
        return False
    x, y = (np.asarray(v).astype(np.float64) for v in (a, c))
    finite = np.isfinite(x) & np.isfinite(y)
    if not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return False
    x, y = x[finite], y[finite]
    return float(np.linalg.norm(x - y)) <= rel * float(np.linalg.norm(y)) + 1e-30


__all__ = ["MAKERS", "Draw", "Sample", "as_f64", "close", "draw", "f64", "graph_of", "type_of"]
