"""Real models: imported, run by the oracle and compared with onnxruntime, every tensor of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests import modelzoo
from tests.frontends.onnx.helpers import assert_close, reference, run
from tilewright.errors import ModelError
from tilewright.frontends import load_graph
from tilewright.frontends.onnx import load
from tilewright.ir.graph.core import Graph

pytestmark = pytest.mark.models


def zoo(name: str) -> str:
    try:
        return str(modelzoo.path(name))
    except modelzoo.ModelMissing as e:
        pytest.skip(str(e))


def silero(file: str) -> str:
    return zoo("silero-vad").replace("silero_vad_16k_op15.onnx", file)


@pytest.mark.parametrize("name", modelzoo.NAMES)
def test_outputs(name: str) -> None:
    file, feeds = zoo(name), modelzoo.inputs(name)
    graph = load(file, dims=modelzoo.DIMS.get(name, {}))
    for got, want, label in zip(run(graph, feeds), reference(file, feeds), graph.output_names, strict=True):
        assert_close(got, want, 1e-3, label)


@pytest.mark.parametrize("name", ["magika", "rapidocr-cls", "silero-vad", "silero-vad-sequence", "basic-pitch"])
def test_every_tensor(name: str) -> None:
    """Each named value of the graph against the tensor of that name in onnxruntime."""
    file, feeds = zoo(name), modelzoo.inputs(name)
    graph = load(file, dims=modelzoo.DIMS.get(name, {}))
    proto = onnx.load(file)
    top = {o for n in proto.graph.node for o in n.output if n.op_type != "Constant"}
    watched = {v: n for v, n in graph.value_names.items() if n in top and v in set(_values(graph))}
    assert len(watched) > 20
    del proto.graph.output[:]
    proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(n) for n in watched.values())
    wide = Graph("all", graph.inputs, list(watched), list(watched.values()))
    for got, want, label in zip(run(wide, feeds), reference(proto, feeds), watched.values(), strict=True):
        assert_close(got, np.asarray(want), 1e-3, label)


def _values(graph: Graph) -> list[object]:
    return [v for n in graph.nodes if n.op not in ("constant", "input") for v in n.outputs]


@pytest.mark.parametrize(
    ("name", "input_name", "batch"), [("opennsfw", "input:0", 2), ("magika", "bytes", 3), ("rapidocr-cls", "x", 2)]
)
def test_symbolic_batch(name: str, input_name: str, batch: int) -> None:
    file = zoo(name)
    one = modelzoo.inputs(name)[input_name]
    many = np.concatenate([one, *[np.roll(one, 7 * i, axis=1) for i in range(1, batch)]])
    graph = load(file)
    assert not isinstance(graph.inputs[0].shape[0], int)
    for got, want in zip(run(graph, {input_name: many}), reference(file, {input_name: many}), strict=True):
        assert_close(got, want, 1e-3)


def test_silero_whole_model_with_a_fixed_rate() -> None:
    """The file for both sampling rates: one branch of an If on `sr`, each with its own frame length."""
    file, feeds = silero("silero_vad.onnx"), modelzoo.inputs("silero-vad")
    graph = load(file, dims={"input.1": 576}, fixed={"sr": 16000})
    assert graph.input_names == ("input", "state")
    got = run(graph, {k: v for k, v in feeds.items() if k != "sr"})
    for a, b in zip(got, reference(file, feeds), strict=True):
        assert_close(a, b, 1e-3)


def test_silero_half() -> None:
    file, feeds = silero("silero_vad_half.onnx"), modelzoo.inputs("silero-vad")
    del feeds["sr"]
    graph = load(file, dims={"sequence": 576})
    for a, b in zip(run(graph, feeds), reference(file, feeds), strict=True):
        assert_close(a, b, 1e-2)


def test_a_rank_that_depends_on_a_dim_says_what_to_do() -> None:
    with pytest.raises(ModelError) as caught:
        load(zoo("silero-vad"))
    assert [p.op for p in caught.value.problems] == ["If"]
    assert "dims=" in str(caught.value)


def test_unknown_names_to_fix() -> None:
    with pytest.raises(ModelError) as caught:
        load(zoo("magika"), dims={"nope": 3}, fixed={"nobody": 1})
    assert len(caught.value.problems) == 2


def test_names_and_places_are_kept() -> None:
    graph = load_graph(zoo("opennsfw"))
    assert graph.input_names == ("input:0",) and graph.output_names == ("outputs",)
    convolutions = [n for n in graph.nodes if n.op == "conv"]
    assert len(convolutions) == 53
    names = {n.name for n in onnx.load(zoo("opennsfw")).graph.node}
    for n in convolutions:
        assert n.name in names
        assert n.loc is not None and n.loc.file == f"open-nsfw.onnx:{n.name}"
        assert graph.value_names[n.out()]
