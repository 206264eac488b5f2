"""Mutated models: whatever comes in, only a TilewrightError may come out, in bounded time and memory.

Two kinds of damage. Bytes: flips, cuts, splices and repeats of serialised models. Graphs: well-formed protobuf with
names rewired, attributes and dims changed, nodes copied between models.
"""

from __future__ import annotations

import random
import time
import tracemalloc
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.frontends.onnx.helpers import model
from tests.frontends.onnx.test_onnx_ops import CASES, branches, build
from tilewright.errors import ModelError, TilewrightError
from tilewright.frontends import load_graph
from tilewright.frontends.onnx import load

SECONDS = 8.0
ODD_INTS = [0, 1, -1, 2, 3, 7, 255, -128, 1 << 20, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63)]
ODD_FLOATS = [0.0, -1.0, 1e-30, 1e30, float("inf"), float("nan"), 0.5]


def seeds() -> list[onnx.ModelProto]:
    """A model for each operator of the table, and one with a branch and a chain."""
    made = [build(c, c.opsets[-1])[0] for c in {c.op: c for c in CASES}.values()]
    choice = branches(
        ([helper.make_node("Mul", ["x", "y"], ["a"])], ["a"]), ([helper.make_node("Neg", ["y"], ["b"])], ["b"])
    )
    nodes = [
        helper.make_node("Exp", ["x"], ["y"], "e"),
        helper.make_node("If", ["p"], ["z"], "i", **choice),
        helper.make_node("Reshape", ["z", "s"], ["r"], "r"),
        helper.make_node("Softmax", ["r"], ["t"], "t", axis=-1),
    ]
    feeds = {"x": np.zeros((2, 3), np.float32), "p": np.array(True)}
    return [*made, model(nodes, feeds, ["t"], 13, {"s": np.array([3, -1], np.int64)}, {"x": ["n", 3]})]


def attempt(source: Any) -> str:
    """'ok' or 'refused'; anything but a TilewrightError propagates, and so does a problem that hides one."""
    try:
        load(source) if isinstance(source, onnx.ModelProto) else load_graph(source)
    except ModelError as e:
        hidden = [p for p in e.problems if "cannot be converted (" in p.reason]
        assert not hidden, str(hidden[0])
        return "refused"
    except TilewrightError:
        return "refused"
    return "ok"


def damage_bytes(data: bytes, rng: random.Random) -> bytes:
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(out):
                out[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                out[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 3:
                del out[at : at + rng.randrange(1, 9)]
            case 4:
                start = rng.randrange(len(out) + 1)
                out[at:at] = out[start : start + rng.randrange(1, 40)]
            case _:
                out = out[: max(1, len(out) - rng.randrange(1, 20))]
    return bytes(out)


def all_graphs(proto: onnx.ModelProto) -> list[onnx.GraphProto]:
    found = [proto.graph]
    for g in found:
        for n in g.node:
            found.extend(a.g for a in n.attribute if a.type == onnx.AttributeProto.GRAPH)
    return found


def damage_graph(proto: onnx.ModelProto, others: list[onnx.ModelProto], rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 4))):
        g = rng.choice(all_graphs(proto))
        names = ["", *(i.name for i in [*g.input, *g.initializer]), *(o for n in g.node for o in n.output)]
        n = rng.choice(g.node) if g.node else None
        match rng.randrange(9):
            case 0 if n is not None and n.input:
                n.input[rng.randrange(len(n.input))] = rng.choice(names)
            case 1 if n is not None and n.output:
                n.output[rng.randrange(len(n.output))] = rng.choice(names)
            case 2 if n is not None and n.attribute:
                damage_attribute(rng.choice(n.attribute), rng)
            case 3 if n is not None:
                n.op_type = rng.choice(rng.choice(others).graph.node).op_type
            case 4 if g.initializer:
                damage_tensor(rng.choice(g.initializer), rng)
            case 5 if g.input:
                damage_input(rng.choice(g.input), rng)
            case 6:
                g.node.append(rng.choice(rng.choice(others).graph.node))
            case 7 if n is not None:
                if n.input and rng.random() < 0.5:
                    del n.input[-1]
                else:
                    n.input.append(rng.choice(names))
            case _:
                proto.opset_import[0].version = rng.randrange(6, 30)


def damage_attribute(a: onnx.AttributeProto, rng: random.Random) -> None:
    match a.type:
        case onnx.AttributeProto.INT:
            a.i = rng.choice(ODD_INTS)
        case onnx.AttributeProto.FLOAT:
            a.f = rng.choice(ODD_FLOATS)
        case onnx.AttributeProto.INTS:
            match rng.randrange(3):
                case 0 if a.ints:
                    a.ints[rng.randrange(len(a.ints))] = rng.choice(ODD_INTS)
                case 1 if a.ints:
                    del a.ints[-1]
                case _:
                    a.ints.append(rng.choice(ODD_INTS))
        case onnx.AttributeProto.STRING:
            a.s = rng.choice((b"", b"linear", b"constant", b"\xff\xfe", b"a,b->", b"...ij,jk->ik", b"SAME_UPPER"))
        case onnx.AttributeProto.TENSOR:
            damage_tensor(a.t, rng)
        case _:
            a.type = rng.randrange(0, 15)


def damage_tensor(t: onnx.TensorProto, rng: random.Random) -> None:
    match rng.randrange(4):
        case 0 if t.dims:
            t.dims[rng.randrange(len(t.dims))] = rng.choice(ODD_INTS)
        case 1:
            t.data_type = rng.randrange(0, 28)
        case 2 if t.data_type == onnx.TensorProto.INT64 and len(t.raw_data) >= 8:
            values = np.frombuffer(t.raw_data, np.int64).copy()
            values[rng.randrange(len(values))] = rng.choice(ODD_INTS)
            t.raw_data = values.tobytes()
        case _:
            t.dims.append(rng.choice((0, 1, 2)))


def damage_input(info: onnx.ValueInfoProto, rng: random.Random) -> None:
    shape = info.type.tensor_type.shape
    match rng.randrange(4):
        case 0 if shape.dim:
            shape.dim[rng.randrange(len(shape.dim))].dim_value = rng.choice(ODD_INTS)
        case 1 if shape.dim:
            shape.dim[rng.randrange(len(shape.dim))].dim_param = rng.choice(("n", "m", "?", ""))
        case 2:
            shape.dim.add().dim_value = rng.choice((0, 1, 2, 3))
        case _:
            info.type.tensor_type.elem_type = rng.randrange(0, 20)


def campaign(kind: str, seed: int) -> dict[str, int]:
    rng = random.Random(seed)
    protos = seeds()
    raw = [p.SerializeToString() for p in protos]
    counts = {"ok": 0, "refused": 0}
    slowest, end = 0.0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        source: Any
        if kind == "bytes":
            source = damage_bytes(rng.choice(raw), rng)
        else:
            source = onnx.ModelProto.FromString(rng.choice(raw))
            damage_graph(source, protos, rng)
        start = time.monotonic()
        counts[attempt(source)] += 1
        slowest = max(slowest, time.monotonic() - start)
    assert slowest < 5, f"one model took {slowest:.1f} s"
    return counts


@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("kind", ["bytes", "graph"])
def test_only_our_errors_come_out(kind: str, seed: int, record_property: Any) -> None:
    tracemalloc.start()
    try:
        counts = campaign(kind, seed)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    for key, value in counts.items():
        record_property(key, value)
    assert counts["refused"] > 100 and counts["ok"] > 0
    assert peak < 256 << 20
