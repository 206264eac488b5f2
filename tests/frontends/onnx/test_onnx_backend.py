"""The operator cases that come with the `onnx` package: those whose operators are supported must give its results.

A case that is refused is not a failure, but the number that run may not fall below what it was (see `FLOOR`).
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.frontends.onnx.helpers import run
from tilewright.errors import ModelError
from tilewright.frontends.onnx import load

SHARDS = 16
#: cases of onnx 1.23 that ran when this was written; other releases of the package have other cases
FLOOR = {"1.23": 1420}

#: results that differ from the package's on purpose: with align_corners and scales, the extent of the result is a
#: whole number here (as in onnxruntime), while the package's reference divides by a fractional one
DIFFERENT = {
    "test_resize_downsample_scales_linear_align_corners",
    "test_resize_downsample_scales_cubic_align_corners",
}


@functools.cache
def cases() -> list[Any]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sorted(collect_testcases(None), key=lambda c: c.name)


def arrays(items: Any) -> list[Any]:
    return [numpy_helper.to_array(x) if isinstance(x, onnx.TensorProto) else x for x in items]


def imported(case: Any, feeds: dict[str, Any]) -> Any:
    """The case as a graph: as it is, else with its parameters (every input but the first, or all) fixed."""
    try:
        return load(case.model)
    except ModelError:
        pass
    tensors = {k: v for k, v in feeds.items() if isinstance(v, (np.ndarray, np.generic))}
    first = next(iter(tensors), "")
    try:
        return load(case.model, fixed={k: v for k, v in tensors.items() if k != first or k == "cond"})
    except ModelError:
        return None


def outcome(case: Any) -> str:
    """'ran' or 'refused'; an assertion fails where the results differ."""
    given, wanted = (arrays(part) for part in case.data_sets[0])
    held = {t.name for t in case.model.graph.initializer}
    names = [i.name for i in case.model.graph.input if i.name not in held]
    feeds = dict(zip(names, given, strict=False))
    graph = imported(case, feeds)
    if graph is None:
        return "refused"
    results = run(graph, {k: np.asarray(v) for k, v in feeds.items() if not isinstance(v, list)})
    assert len(results) == len(wanted)
    for got, want in zip(results, (np.asarray(w) for w in wanted), strict=True):
        small = want.dtype.itemsize == 2 and want.dtype.kind not in "iu"
        assert got.shape == want.shape and got.dtype == want.dtype, (got.shape, got.dtype, want.shape, want.dtype)
        if want.dtype.kind in "iub":
            np.testing.assert_array_equal(got, want)
        else:
            wide = got.astype(np.float64), want.astype(np.float64)
            np.testing.assert_allclose(*wide, rtol=2e-2 if small else 1e-3, atol=1e-2 if small else 1e-5)
    return "ran"


@pytest.mark.parametrize("shard", range(SHARDS))
def test_node_cases(shard: int, record_property: Any) -> None:
    ran, failed = 0, []
    mine = cases()[shard::SHARDS]
    for case in mine:
        if case.name in DIFFERENT:
            continue
        try:
            ran += outcome(case) == "ran"
        except Exception as e:
            failed.append(f"{case.name}: {type(e).__name__}: {str(e)[:300]}")
    record_property("ran", ran)
    record_property("of", len(mine))
    assert not failed, "\n".join(failed)
    floor = FLOOR.get(".".join(onnx.__version__.split(".")[:2]), 0)
    assert ran >= int(0.9 * floor / SHARDS), f"only {ran} of {len(mine)} cases ran"
