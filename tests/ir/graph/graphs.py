"""Random graphs over f32, with inputs: for round trips and for passes that must keep results."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from tilewright.ir.graph import build as b
from tilewright.ir.graph.core import Graph, Value
from tilewright.ir.graph.dims import DimExpr, symbol
from tilewright.ir.types import Loc, f32

Array = np.ndarray[Any, Any]


def random_graph(seed: int, nodes: int = 14, symbolic: bool = True) -> tuple[Graph, dict[str, int], dict[str, Array]]:
    """A graph, a value for its symbol, and inputs."""
    r, rng = random.Random(seed), np.random.default_rng(seed)
    n = r.choice([1, 2, 3])
    batch: int | DimExpr = symbol("N", 1) if symbolic and r.random() < 0.6 else n
    c, h, w = r.choice([1, 2, 4]), r.choice([4, 5, 8]), r.choice([4, 6])
    x = b.input("x", f32, (batch, c, h, w))
    pool: list[Value] = [x, b.input("z", f32, (batch, c, h, w))]
    inputs = list(pool)

    def const(*shape: int) -> Value:
        return b.const((rng.normal(size=shape) * 0.5).astype(np.float32))

    for i in range(nodes):
        v = r.choice(pool[-4:])
        with b.location(Loc(f"graph {seed}", i + 1), f"n{i}"):
            pool.append(_step(r, v, pool, const))
    outputs = [pool[-1], r.choice(pool)]
    names = {v: f"t{i}" for i, v in enumerate(pool)}
    graph = Graph(f"g{seed}", inputs, outputs, ["a", "b"], names)
    feed = {v: rng.normal(size=(n, c, h, w)).astype(np.float32) for v in ("x", "z")}
    return graph, {"N": n}, feed


def _step(r: random.Random, v: Value, pool: list[Value], const: Any) -> Value:
    rank = v.type.rank
    image = rank == 4 and isinstance(v.shape[1], int) and all(isinstance(d, int) and d >= 3 for d in v.shape[2:])
    choices = [
        "unary",
        "unary",
        "binary",
        "scalar",
        "reduce",
        "softmax",
        "transpose",
        "norm",
        "dynamic",
        "clip",
        "cast",
    ]
    choices += ["conv", "conv", "bn", "pool", "channel", "flat", "resize", "concat", "slice", "pad", "gate"] * (
        2 * image
    )
    match r.choice(choices):
        case "unary":
            return b.make(r.choice(["relu", "tanh", "sigmoid", "neg", "abs", "gelu", "silu"]), v).out()
        case "binary":
            same = [p for p in pool if p.shape == v.shape]
            return b.make(r.choice(["add", "sub", "mul", "max"]), v, r.choice(same)).out()
        case "scalar":
            return r.choice([b.add, b.mul, b.sub, b.div])(v, r.choice([1.0, 2.0, 0.5, 3.0]))
        case "reduce" if rank:
            axes = [a for a in range(1, rank) if r.random() < 0.6]
            return b.make(
                r.choice(["reduce_mean", "reduce_max", "reduce_sum"]), v, axes=tuple(axes), keepdims=r.random() < 0.7
            ).out()
        case "softmax" if rank:
            return b.softmax(v, r.randrange(rank))
        case "transpose" if rank:
            return b.transpose(v, r.sample(range(rank), rank))
        case "norm" if rank and isinstance(v.shape[-1], int):
            d = v.shape[-1]
            return b.layer_norm(v, const(d), const(d), -1)
        case "dynamic" if rank:
            return b.dyn_reshape(b.dyn_unsqueeze(v, b.const([0])), b.shape_of(v))
        case "clip":
            return b.clip(v, -1.0, 1.5)
        case "cast":
            from tilewright.ir.types import f64

            return b.cast(b.cast(v, f64), f32)
        case "conv":
            c, groups = int(v.shape[1]), r.choice([1, int(v.shape[1])])  # type: ignore[call-overload]
            k = r.choice([1, 3])
            out = groups * r.choice([1, 2])
            return b.conv(
                v,
                const(out, c // groups, k, k),
                r.choice([None, const(out)]),
                pads_lo=(k // 2, k // 2),
                pads_hi=(k // 2, k // 2),
                strides=(r.choice([1, 2]), 1),
                groups=groups,
            )
        case "bn":
            c = int(v.shape[1])  # type: ignore[call-overload]
            return b.batch_norm(v, const(c), const(c), const(c), b.const(np.full(c, 0.7, np.float32)))
        case "pool":
            return r.choice([b.max_pool, b.avg_pool])(v, (3, 3), (1, 1), (1, 1), (1, 1))
        case "channel":
            return r.choice([b.add, b.mul])(v, const(int(v.shape[1]), 1, 1))  # type: ignore[call-overload]
        case "flat":
            return b.reshape(v, (v.shape[0], -1))
        case "resize":
            return b.resize(v, scales=(1.0, 1.0, 2.0, 1.0), mode=r.choice(["nearest", "linear"]))
        case "concat":
            return b.concat([v, b.neg(v)], r.choice([1, 2]))
        case "slice":
            return b.slice_axis(v, r.choice([1, 2, 3]), 0, 2)
        case "pad":
            return b.pad(v, (0, 0, 1, 0), (0, 0, 0, 1))
        case "gate":
            return b.mul(v, b.hard_sigmoid(b.global_avg_pool(v)))
        case _:
            return b.tanh(v)
