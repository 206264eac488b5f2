"""What the ONNX tests share: one-op models, running them here and in onnxruntime, comparing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tilewright.frontends.onnx import load
from tilewright.interp import graph as oracle
from tilewright.ir.graph.core import Graph

Array = np.ndarray[Any, Any]


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    opset: int = 17,
    constants: Mapping[str, Array] | None = None,
    dims: Mapping[str, Sequence[Any]] | None = None,
    **more: Any,
) -> onnx.ModelProto:
    """A model whose inputs have the types of the arrays (and the declared `dims`, where given)."""
    infos = [
        helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), list((dims or {}).get(k, v.shape)))
        for k, v in inputs.items()
    ]
    results = [helper.make_empty_tensor_value_info(o) for o in outputs]
    held = [numpy_helper.from_array(v, k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(list(nodes), "g", infos, results, held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8, **more)


def reference(proto: onnx.ModelProto | str, feeds: Mapping[str, Array]) -> list[Any]:
    """onnxruntime's results, without its graph optimisations."""
    ort = pytest.importorskip("onnxruntime")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    source = proto if isinstance(proto, str) else proto.SerializeToString()
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def evaluate(proto: Any, feeds: Mapping[str, Array], **options: Any) -> list[Array]:
    """The imported graph, run by the oracle."""
    return run(load(proto, **options), feeds)


def run(graph: Graph, feeds: Mapping[str, Array]) -> list[Array]:
    """The oracle's results, in order; feeds that the graph has no input for are left out."""
    found = oracle.run(graph, {k: feeds[k] for k in graph.input_names})
    return [found[name] for name in graph.output_names]


def assert_close(got: Array, want: Array, tolerance: float, what: str = "") -> None:
    """Same type and shape, and a small relative Frobenius error; NaN and infinities in the same places."""
    assert got.shape == want.shape, f"{what}: shape {got.shape}, wanted {want.shape}"
    assert got.dtype == want.dtype, f"{what}: {got.dtype}, wanted {want.dtype}"
    if want.dtype.kind in "iub":
        assert np.array_equal(got, want), f"{what}: {got} != {want}"
        return
    a, b = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(b)
    assert np.array_equal(finite, np.isfinite(a)), f"{what}: infinities or NaN differ"
    assert np.array_equal(a[~finite], b[~finite], equal_nan=True), f"{what}: infinities or NaN differ"
    error = float(np.linalg.norm(a[finite] - b[finite])) / max(float(np.linalg.norm(b[finite])), 1e-12)
    assert error <= tolerance, f"{what}: relative error {error:.2e}"


FLOAT = TensorProto.FLOAT
