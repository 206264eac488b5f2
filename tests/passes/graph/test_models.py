"""The pipeline on real models: only what targets run is left, and the outputs stay what they were."""

from __future__ import annotations

import pytest

from tests import modelzoo
from tests.ir.graph.samples import close
from tests.passes.graph.test_passes import only_what_targets_run
from tilewright.frontends.onnx import load
from tilewright.interp.graph import run
from tilewright.ir.graph.parser import parse
from tilewright.ir.graph.printer import print_graph
from tilewright.ir.graph.verify import verify
from tilewright.passes.graph.pipeline import optimise

pytestmark = pytest.mark.models
#: dims that decide the rank of a branch's result
DIMS = {"silero-vad": {"sequence": 576}}


@pytest.mark.parametrize("name", modelzoo.NAMES)
def test_pipeline(name: str) -> None:
    try:
        file = modelzoo.path(name)
    except modelzoo.ModelMissing as e:
        pytest.skip(str(e))
    feeds = modelzoo.inputs(name)
    graph = load(file, dims=DIMS.get(name, {}), fixed={"sr": feeds["sr"]} if "sr" in feeds else None)
    feeds = {k: v for k, v in feeds.items() if k in graph.input_names}
    constants: dict = {}
    assert parse(print_graph(graph, constants), constants) == graph
    after = optimise(graph, {k: v.shape for k, v in feeds.items()})
    verify(after)
    only_what_targets_run(after)
    want, got = run(graph, feeds), run(after, feeds)
    for key in want:
        assert close(got[key], want[key], 1e-4), key
