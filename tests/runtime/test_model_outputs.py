"""Outputs that share memory inside a model are still arrays of their own outside."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import tilewright as tw


def test_outputs_that_are_views_of_one_value() -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Reshape", ["a", "flat"], ["b"]),
        helper.make_node("Transpose", ["a"], ["c"], perm=[1, 0]),
        helper.make_node("Identity", ["x"], ["d"]),
    ]
    shapes = {"a": [2, 3], "b": [6], "c": [3, 2], "d": [2, 3]}
    graph = helper.make_graph(
        nodes, "views", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()],
        [helper.make_tensor("flat", TensorProto.INT64, [1], [6])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    x = np.arange(6, dtype=np.float32).reshape(2, 3) / 7
    a, b, c, d = tw.load(model).compile("cpu")(x)
    want = np.exp(x.astype(np.float64))
    for got, expected in ((a, want), (b, want.reshape(6)), (c, want.T), (d, x)):
        assert got.shape == expected.shape
        assert np.allclose(got, expected, rtol=1e-6)
    a[...] = 0
    assert (b != 0).all() and (c != 0).all()
    d[...] = 0
    assert x.any()


@pytest.mark.parametrize("count", [1, 2])
def test_kept_intermediates_are_those_of_a_plain_run(count: int) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Reshape", ["r", "flat"], ["f"]),
             helper.make_node("Neg", ["f"], ["y"])]
    graph = helper.make_graph(
        nodes, "chain", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 5])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [20])],
        [helper.make_tensor("flat", TensorProto.INT64, [1], [20])],
    )  # fmt: skip
    model = tw.load(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    x = np.random.default_rng(0).standard_normal((4, 5), dtype=np.float32)
    found = model.compile("cpu", threads=count, keep_intermediates=True).intermediates({"x": x})
    assert np.array_equal(found["r"], np.maximum(x, 0))
    assert np.array_equal(found["f"], np.maximum(x, 0).reshape(20))
    assert np.array_equal(found["y"], model.compile("cpu", threads=count)(x))
