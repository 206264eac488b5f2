"""Random Tile IR kernels that are valid by construction, with arguments for them: for testing printers, verifiers,
interpreters and the whole pipeline against one another.

`generate(random.Random(seed))` gives a `Case`; `cases()` is a hypothesis strategy of the same. With `smooth` (the
default) no function jumps, so that two ways of rounding a sum cannot make results differ by more than rounding does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tilewright.ir.tile import build as b
from tilewright.ir.tile.core import (
    Axis,
    Kernel,
    Node,
    ScalarParam,
    Shape,
    TensorParam,
    TileOf,
    const,
    dim,
)
from tilewright.ir.tile.verify import verify
from tilewright.ir.types import DType, accumulator, f32, i64

UNARY = ("neg", "abs", "tanh", "sigmoid", "square", "sin", "erf")
UNARY_JUMPING = ("floor", "round", "sign", "trunc")
UNARY_INT = ("neg", "abs", "square", "not")
BINARY = ("add", "sub", "mul", "max", "min")
BINARY_INT = ("add", "sub", "mul", "max", "min", "and", "or", "xor", "floordiv", "mod", "shr", "shl")
SIZES = (0, 1, 2, 3, 5, 7, 8, 13, 16, 17, 31, 33)


@dataclass(frozen=True)
class Case:
    kernel: Kernel
    dims: dict[str, int]
    arrays: dict[str, np.ndarray[Any, Any]]
    scalars: dict[str, Any]


def cases(dtypes: Sequence[DType] = (f32,), smooth: bool = True, zero: bool = True) -> st.SearchStrategy[Case]:
    """Cases whose structure hypothesis can shrink."""
    return st.randoms(use_true_random=False).map(lambda r: generate(r, dtypes, smooth, zero))


def generate(r: random.Random, dtypes: Sequence[DType] = (f32,), smooth: bool = True, zero: bool = True) -> Case:
    """One random kernel over one of `dtypes`; `zero`: dims may be 0."""
    g = _Generator(r, r.choice(list(dtypes)), smooth, zero)
    kernel = g.kernel()
    verify(kernel)
    return Case(kernel, g.dims, arguments(kernel, g.dims, r.randrange(1 << 30)), {"alpha": 0.75} if g.scalar else {})


def arguments(kernel: Kernel, dims: dict[str, int], seed: int) -> dict[str, np.ndarray[Any, Any]]:
    """Random inputs of moderate size: products and sums of them stay far from overflow."""
    rng = np.random.default_rng(seed)
    out = {}
    for p in kernel.inputs:
        shape = tuple(int(d.attr("value")) if d.op == "const" else dims[d.attr("name")] for d in p.dims)
        if p.dtype.is_float:
            out[p.name] = rng.standard_normal(shape).astype(p.dtype.numpy)
        elif p.dtype.is_bool:
            out[p.name] = rng.random(shape) < 0.5
        else:
            low = -9 if p.dtype.kind == "i" else 0
            out[p.name] = rng.integers(low, 10, shape).astype(p.dtype.numpy)
    return out


class _Generator:
    def __init__(self, r: random.Random, dtype: DType, smooth: bool, zero: bool) -> None:
        self.r, self.dtype, self.smooth = r, dtype, smooth
        sizes = SIZES if zero else SIZES[1:]
        self.dims = {n: r.choice(sizes) for n in ("M", "N", "K")}
        self.nodes = {n: dim(n) if r.random() < 0.7 else const(self.dims[n], i64) for n in self.dims}
        self.params: dict[str, TensorParam] = {}
        self.scalar: ScalarParam | None = None
        self.i = Axis("i", self.nodes["M"], r.choice(("tile", "tile", "single")))
        self.j = Axis("j", self.nodes["N"])
        self.loops = 0

    def kernel(self) -> Kernel:
        effects = []
        outputs = []
        shape: Shape = self.domain()
        values = [self.leaf(shape) for _ in range(self.r.randint(1, 3))]
        for _ in range(self.r.randint(0, 8)):
            values.append(self.step(values, shape))
        index = self.row_index(), b.index(self.j)
        for k in range(self.r.randint(1, 2)):
            value = values[-1 - k] if k < len(values) else values[0]
            out = TensorParam(f"out{k}", value.dtype, (self.nodes["M"], self.nodes["N"]), "out")
            outputs.append(out)
            effects.append(b.store(out, index, value))
        if self.r.random() < 0.3:
            total = TensorParam("total", values[0].dtype, (self.nodes["N"],), "accumulate")
            if not total.dtype.is_bool:
                outputs.append(total)
                value = values[0] if self.i.kind == "single" else b.fold(values[0], 0, "sum")
                effects.append(b.scatter(total, (index[1],), value))
        scalars = [self.scalar] if self.scalar else []
        return b.kernel("generated", [*self.params.values(), *scalars, *outputs], [b.par((self.i, self.j), effects)])

    # ------------------------------------------------------------------ leaves

    def domain(self) -> Shape:
        return (TileOf(self.j),) if self.i.kind == "single" else (TileOf(self.i), TileOf(self.j))

    def row_index(self) -> Node:
        return b.pos(self.i) if self.i.kind == "single" else b.index(self.i)

    def input(self, name: str, *dims: str, dtype: DType | None = None) -> TensorParam:
        p = TensorParam(name, dtype or self.dtype, tuple(self.nodes[d] for d in dims))
        return self.params.setdefault(name, p)

    def shifted(self, index: Node) -> Node:
        """Sometimes an affine index that leaves the tensor."""
        if self.r.random() < 0.75:
            return index
        return b.elementwise("add", index, const(self.r.choice((-2, -1, 1, 3)), i64))

    def leaf(self, shape: Shape) -> Node:
        row, col = self.row_index(), b.index(self.j)
        makers: list[Callable[[], Node]] = [
            lambda: b.load(self.input(self.r.choice(("x", "y")), "M", "N"), (self.shifted(row), self.shifted(col))),
            lambda: b.broadcast_to(b.load(self.input("bias", "N"), (col,)), shape),
            lambda: b.full(shape, self.r.choice((0, 1, 2, 3)), self.dtype),
        ]
        if not self.dtype.is_bool:
            makers.append(lambda: self.dot(shape))
            makers.append(lambda: self.row_fold(shape))
            makers.append(lambda: self.running(shape))
        if self.dtype == f32:
            makers.append(lambda: b.splat(self.alpha(), shape))
        return self.r.choice(makers)()

    def alpha(self) -> Node:
        self.scalar = ScalarParam("alpha", f32)
        return b.param(self.scalar)

    def dot(self, shape: Shape) -> Node:
        """x[i, k] @ w[k, j], by a loop over tiles of k or over all of k at once."""
        acc_type = accumulator(self.dtype)
        x, w = self.input("a", "M", "K"), self.input("w", "K", "N")
        zero = b.full(shape, 0, acc_type)
        if self.r.random() < 0.3:
            every = b.iota(b.extent_of(self.nodes["K"]))
            out = b.dot(zero, b.load(x, (self.row_index(), every)), b.load(w, (every, b.index(self.j))))
        else:
            k = self.axis("tile")
            c = b.carried(zero.type, "acc")
            product = b.dot(c, b.load(x, (self.row_index(), b.index(k))), b.load(w, (b.index(k), b.index(self.j))))
            out = b.result(b.loop(k, [zero], [c], [product]), 0)
        return b.cast(out, self.dtype)

    def axis(self, kind: str) -> Axis:
        self.loops += 1
        return Axis(f"k{self.loops}", self.nodes["K"], kind)

    def row_fold(self, shape: Shape) -> Node:
        """A reduction of a whole row, repeated over the columns."""
        every = b.iota(b.extent_of(self.nodes["K"]))
        x = b.load(self.input("a", "M", "K"), (self.row_index(), every))
        axis = len(x.shape) - 1
        kind = self.r.choice(("sum", "max", "min", "scan") if self.smooth else ("sum", "max", "min", "scan", "arg"))
        if kind == "arg":
            row = b.cast(b.argfold(x, axis, self.r.choice(("argmax", "argmin")), self.r.random() < 0.5), self.dtype)
        elif kind == "scan":
            row = b.fold(b.scan(x, axis, "sum", self.r.random() < 0.5, self.r.random() < 0.5), axis, "sum")
        else:
            row = b.fold(x, axis, kind)
        if kind in ("max", "min"):
            # Over nothing these give an infinity or an extreme; keep later arithmetic tame.
            row = b.map("max", b.map("min", row, const(9, self.dtype)), const(0, self.dtype))
        return b.broadcast(row, shape, tuple(range(len(row.shape))))

    def running(self, shape: Shape) -> Node:
        """A loop over single positions with two carried values."""
        k = self.axis("range")
        zero, one = b.full(shape, 0, self.dtype), b.full(shape, 1, self.dtype)
        c, d = b.carried(zero.type, "sum"), b.carried(zero.type, "top")
        column = b.broadcast_to(b.load(self.input("w", "K", "N"), (b.pos(k), b.index(self.j))), shape)
        stop = b.imin(self.nodes["K"], const(3, i64)) if self.r.random() < 0.4 else None
        loop = b.loop(k, [zero, one], [c, d], [b.map("add", c, column), b.map("max", d, column)], stop=stop)
        return b.result(loop, self.r.randint(0, 1))

    # ------------------------------------------------------------------ steps

    def step(self, values: list[Node], shape: Shape) -> Node:
        r = self.r
        x, y = r.choice(values), r.choice(values)
        kind = r.random()
        if kind < 0.35:
            return b.map(r.choice(self.unary(x)), x)
        if kind < 0.75:
            return b.map(r.choice(self.binary(x)), x, y)
        if kind < 0.85 and not self.smooth:
            return b.map("where", b.map(r.choice(("lt", "ge", "eq", "ne")), x, y), x, y)
        if kind < 0.92:
            # The comparison of coordinates is exact, so this choice never jumps.
            col = b.broadcast_to(b.index(self.j), shape)
            return b.map("where", b.map("lt", col, b.full(shape, r.randint(0, 20), i64)), x, y)
        if x.dtype == f32 and self.dtype == f32:
            cond = b.map("lt", self.alpha(), const(r.choice((0.5, 1.0)), f32))
            return b.result(b.if_(cond, [x], [b.map("neg", y)]), 0)
        return self.leaf(shape)

    def unary(self, x: Node) -> Sequence[str]:
        if x.dtype.is_float:
            return UNARY if self.smooth else (*UNARY, *UNARY_JUMPING)
        return ("not",) if x.dtype.is_bool else UNARY_INT

    def binary(self, x: Node) -> Sequence[str]:
        if x.dtype.is_float:
            return BINARY if self.smooth else (*BINARY, "floordiv", "mod")
        return ("and", "or", "xor", "max", "min") if x.dtype.is_bool else BINARY_INT
