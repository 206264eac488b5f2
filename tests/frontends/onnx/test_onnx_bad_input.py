"""Broken and hostile ONNX files: one clear error each, all problems at once, and nothing read outside the folder."""

from __future__ import annotations

import os
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tests.frontends.onnx.helpers import model, run
from tilewright.errors import ArgumentError, ModelError, TilewrightError
from tilewright.frontends.onnx import load
from tilewright.frontends.onnx.wire import scan

X = {"x": np.zeros((2, 3), np.float32)}


def node(op: str, inputs: list[str], outputs: list[str], name: str = "", **attrs: Any) -> onnx.NodeProto:
    return helper.make_node(op, inputs, outputs, name or f"{op} node", **attrs)


def small() -> onnx.ModelProto:
    w = np.arange(12, dtype=np.float32).reshape(3, 4)
    nodes = [node("MatMul", ["x", "w"], ["m"]), node("Relu", ["m"], ["y"])]
    return model(nodes, X, ["y"], 13, {"w": w})


def failure(source: Any, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        load(source, **options)
    return caught.value


# the file ------------------------------------------------------------------------------------------------------------


def test_truncated_at_every_byte() -> None:
    data = small().SerializeToString()
    assert scan(data) is None
    for cut in range(len(data)):
        with pytest.raises(ModelError):
            load(data[:cut])


def test_truncation_is_named() -> None:
    data = small().SerializeToString()
    assert "cut short" in str(failure(data[: len(data) // 2]))


@pytest.mark.parametrize(
    "data", [b"", b"\0" * 100, b"PK\x03\x04", b"not a model at all", b"\x08", b"\xff" * 300, b"\x0a\x00"]
)
def test_wrong_magic(data: bytes) -> None:
    failure(data)


def test_sources_of_other_kinds(tmp_path: Path) -> None:
    for source in (None, 3, object(), tmp_path, tmp_path / "none.onnx", "bad\0name"):
        failure(source)


def test_path_bytes_and_proto_agree(tmp_path: Path) -> None:
    proto = small()
    file = tmp_path / "m.onnx"
    file.write_bytes(proto.SerializeToString())
    wanted = [str(n) for n in load(proto).nodes]
    for source in (file, str(file), file.read_bytes(), bytearray(file.read_bytes()), memoryview(file.read_bytes())):
        assert [str(n) for n in load(source).nodes] == wanted


@pytest.mark.parametrize(("opset", "ir"), [(6, 8), (1, 8), (9999, 8), (-4, 8), (13, 0), (13, 99)])
def test_versions(opset: int, ir: int) -> None:
    proto = small()
    proto.opset_import[0].version = opset
    proto.ir_version = ir
    assert "supported" in str(failure(proto))


def test_no_graph_no_opset_no_outputs() -> None:
    failure(onnx.ModelProto(ir_version=8))
    proto = small()
    del proto.opset_import[:]
    failure(proto)
    proto = small()
    del proto.graph.output[:]
    failure(proto)


# the graph -----------------------------------------------------------------------------------------------------------


def test_cycle_is_shown() -> None:
    chain = [node("Neg", ["a"], ["b"], "second"), node("Exp", ["b"], ["c"], "third")]
    nodes = [node("Add", ["x", "c"], ["a"], "first"), *chain]
    error = failure(model(nodes, X, ["a"]))
    assert "cycle" in str(error) and all(n in str(error) for n in ("first", "second", "third"))


def test_a_node_that_feeds_itself() -> None:
    assert "cycle" in str(failure(model([node("Neg", ["a"], ["a"])], X, ["a"])))


def test_cycle_through_a_subgraph() -> None:
    branch = helper.make_graph([node("Neg", ["z"], ["b"])], "g", [], [helper.make_tensor_value_info("b", 1, None)])
    choice = node("If", ["p"], ["z"], then_branch=branch, else_branch=branch)
    feeds = {"p": np.array(True)}
    assert "cycle" in str(failure(model([choice], feeds, ["z"])))


def test_names_defined_twice_or_never() -> None:
    nodes = [node("Neg", ["x"], ["a"], "n1"), node("Exp", ["x"], ["a"], "n2"), node("Add", ["a", "ghost"], ["b"], "n3")]
    error = failure(model(nodes, X, ["b", "nowhere"]))
    text = str(error)
    assert "'n2'" in text and "already defined" in text
    assert "'ghost'" in text and "'nowhere'" in text
    proto = small()
    proto.graph.initializer.append(proto.graph.initializer[0])
    assert "twice" in str(failure(proto))
    proto = small()
    proto.graph.output.append(proto.graph.output[0])
    assert "twice" in str(failure(proto))


def test_every_problem_is_reported_at_once() -> None:
    nodes = [
        node("NoSuchOp", ["x"], ["a"], "unknown op"),
        node("NonZero", ["a"], ["b"], "unsupported op behind it"),
        node("Relu", ["b"], ["b2"], "fine, but poisoned"),
        node("Softmax", ["x"], ["c"], "bad attribute", angle=3),
        node("Conv", ["x", "x"], ["d"], "bad rank"),
        node("Add", ["x", "w"], ["e"], "bad shapes"),
        node("Mul", ["x", "k"], ["h"], "bad types"),
        helper.make_node("FancyOp", ["x"], ["f"], "other domain", domain="com.example"),
        node("Reshape", ["x", "bad"], ["g"], "bad target"),
    ]
    held = {"w": np.zeros((4, 5), np.float32), "bad": np.array([7], np.int64), "k": np.zeros(3, np.float64)}
    error = failure(model(nodes, X, ["c"], 13, held))
    found = {p.node: p for p in error.problems}
    assert set(found) == {n.name for n in nodes} - {"fine, but poisoned"}
    assert "f32[2, 3]" in found["bad shapes"].detail and "f32[4, 5]" in found["bad shapes"].detail
    assert "angle" in found["bad attribute"].reason
    assert "com.example" in found["other domain"].reason
    assert found["bad rank"].op == "Conv"
    assert all(str(p) in str(error) for p in error.problems)


def test_problems_inside_subgraphs() -> None:
    result = helper.make_tensor_value_info("b", 1, None)
    branch = helper.make_graph([node("NoSuchOp", ["x"], ["b"], "inner")], "g", [], [result])
    for condition, held in (({"p": np.array(True), **X}, {}), (X, {"p": np.array(True)})):
        choice = node("If", ["p"], ["z"], then_branch=branch, else_branch=branch)
        error = failure(model([choice], condition, ["z"], 13, held))
        assert [p.node for p in error.problems] == ["inner"]


def test_an_output_that_inference_does_not_have() -> None:
    pool = node("MaxPool", ["i"], ["y", "at"], kernel_shape=[2, 2])
    feeds = {"i": np.zeros((1, 1, 4, 4), np.float32)}
    assert "indices" in str(failure(model([pool], feeds, ["y", "at"], 12)))


def test_attributes() -> None:
    def one(op: str, **attrs: Any) -> str:
        return str(failure(model([node(op, ["x"], ["y"], **attrs)], X, ["y"], 13)))

    assert "type" in one("LeakyRelu", alpha="much")
    assert "range" in one("Softmax", axis=5)
    assert "required" in one("Cast")
    assert "perm" in one("Transpose", perm=[0, 0])
    assert "string" in one("Cast", to=TensorProto.STRING)
    twice = node("LeakyRelu", ["x"], ["y"], alpha=1.0)
    twice.attribute.append(twice.attribute[0])
    assert "twice" in str(failure(model([twice], X, ["y"], 13)))
    free = node("LeakyRelu", ["x"], ["y"])
    free.attribute.add(name="alpha", type=AttributeProto.FLOAT, ref_attr_name="slope")
    assert "function" in str(failure(model([free], X, ["y"], 13)))


def test_inputs_that_are_not_tensors() -> None:
    proto = small()
    proto.graph.input[0].type.Clear()
    assert "missing" in str(failure(proto))
    proto = small()
    proto.graph.input[0].type.CopyFrom(helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, [2])))
    assert "sequence" in str(failure(proto))
    proto = small()
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    assert "rank" in str(failure(proto))


# nesting and growth --------------------------------------------------------------------------------------------------


def test_subgraphs_nested_too_deeply() -> None:
    graph = helper.make_graph([node("Neg", ["x"], ["z"])], "g", [], [helper.make_tensor_value_info("z", 1, None)])
    for _ in range(28):
        choice = node("If", ["p"], ["z"], then_branch=graph, else_branch=small().graph)
        graph = helper.make_graph([choice], "g", [], [helper.make_tensor_value_info("z", 1, None)])
    proto = model(list(graph.node), {"p": np.array(True), **X}, ["z"])
    assert "deeper" in str(failure(proto))


def functions(count: int, calls: int) -> onnx.ModelProto:
    """f0 calls f1 twice, f1 calls f2 twice, ...: 2**count nodes out of a few."""
    ops = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    made = []
    for k in range(count):
        op, domain = (f"f{k + 1}", "mine") if k + 1 < count else ("Neg", "")
        body = [helper.make_node(op, [f"t{c}"], [f"t{c + 1}"], domain=domain) for c in range(calls)]
        made.append(helper.make_function("mine", f"f{k}", ["t0"], [f"t{calls}"], body, ops))
    proto = model([helper.make_node("f0", ["x"], ["y"], domain="mine")], X, ["y"], 17, functions=made)
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    return proto


def test_functions_that_explode(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.frontends.onnx import importer

    assert len(load(functions(4, 2)).nodes) == 1 + 16
    monkeypatch.setattr(importer, "MAX_INLINED", 2000)
    assert "inlined" in str(failure(functions(20, 2)))


def test_functions_that_call_themselves() -> None:
    proto = functions(1, 1)
    proto.functions[0].node[0].op_type, proto.functions[0].node[0].domain = "f0", "mine"
    assert "calls itself" in str(failure(proto))


# sizes ---------------------------------------------------------------------------------------------------------------


def peak_of(action: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("dims", [[1 << 40], [1 << 31, 1 << 31], [3, 5], [-1, 12], [1 << 62, 4, 0, 9]])
def test_declared_sizes_must_match_the_data(dims: list[int]) -> None:
    for spelling in ("raw", "typed"):
        proto = small()
        t = proto.graph.initializer[0]
        if spelling == "typed":
            t.float_data.extend(range(12))
            t.ClearField("raw_data")
        del t.dims[:]
        t.dims.extend(dims)
        assert peak_of(lambda proto=proto: failure(proto)) < 32 << 20  # type: ignore[misc]


def test_huge_results_are_only_types() -> None:
    """A few bytes may declare any extent; nothing of that size is made."""
    shape = np.array([1 << 20, 1 << 20, 1 << 10], np.int64)
    nodes = [
        node("ConstantOfShape", ["s"], ["a"]),
        node("Expand", ["x1", "s"], ["b"]),
        node("Range", ["zero", "many", "one"], ["c"]),
        node("Tile", ["v", "many1"], ["d"]),
        node("OneHot", ["c", "many1", "two"], ["e"]),
    ]
    held = {
        "s": shape, "x1": np.zeros(1, np.float32), "zero": np.array(0), "many": np.array(1 << 50), "one": np.array(1),
        "many1": np.array([1 << 50]), "v": np.zeros(2, np.float32), "two": np.zeros(2, np.float32),
    }  # fmt: skip
    proto = model(nodes, {}, ["a", "b", "c", "d", "e"], 13, held)

    def go() -> None:
        try:
            load(proto)
        except TilewrightError:
            pass

    assert peak_of(go) < 32 << 20


def test_sparse_tensors_are_bounded() -> None:
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("v", 1, [1], [1.0]), helper.make_tensor("i", 7, [1], [0]), [1 << 40]
    )
    proto = model([node("Constant", [], ["y"], sparse_value=sparse)], {}, ["y"], 13)
    assert "dense" in str(failure(proto))


def test_ranks_are_bounded() -> None:
    proto = small()
    t = proto.graph.initializer[0]
    del t.dims[:]
    t.dims.extend([1] * 5000 + [12])
    assert "rank" in str(failure(proto))


# external data -------------------------------------------------------------------------------------------------------


def outside(tmp_path: Path, location: str, offset: str = "", length: str = "") -> Path:
    """A model in tmp_path/model whose weights are said to be at `location`."""
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    proto = small()
    t = proto.graph.initializer[0]
    data = t.raw_data
    t.ClearField("raw_data")
    t.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", offset), ("length", length)):
        if value:
            t.external_data.add(key=key, value=value)
    (folder / "weights.bin").write_bytes(b"head" + data)
    (tmp_path / "secret.bin").write_bytes(data)
    file = folder / "m.onnx"
    file.write_bytes(proto.SerializeToString())
    return file


def test_external_data_beside_the_model(tmp_path: Path) -> None:
    file = outside(tmp_path, "weights.bin", "4", "48")
    (got,) = run(load(file), {"x": np.ones((2, 3), np.float32)})
    assert np.array_equal(got, np.ones((2, 3), np.float32) @ np.arange(12, dtype=np.float32).reshape(3, 4))
    assert "not given as a path" in str(failure(file.read_bytes()))
    assert "not given as a path" in str(failure(onnx.load(file, load_external_data=False)))


@pytest.mark.parametrize(
    "location",
    ["../secret.bin", "/etc/passwd", "sub/../../secret.bin", "..", ".", "", "a\0b", "C:\\x", "..\\secret.bin", "file:///x"],
)
def test_paths_that_leave_the_folder(tmp_path: Path, location: str) -> None:
    try:
        file = outside(tmp_path, location)
    except ValueError:
        pytest.skip("protobuf refuses this text")
    error = failure(file)
    assert "folder" in str(error) and len(error.problems) == 1


def test_links_and_special_files_are_refused(tmp_path: Path) -> None:
    file = outside(tmp_path, "link.bin")
    (file.parent / "link.bin").symlink_to(tmp_path / "secret.bin")
    assert "symbolic link" in str(failure(file))
    file = outside(tmp_path, "sub/secret.bin")
    (file.parent / "sub").symlink_to(tmp_path)
    assert "symbolic link" in str(failure(file))
    file = outside(tmp_path, "pipe")
    os.mkfifo(file.parent / "pipe")
    failure(file)
    failure(outside(tmp_path, "missing.bin"))


@pytest.mark.parametrize(
    ("offset", "length"),
    [("5", "48"), ("0", "47"), ("-4", "48"), ("1e3", "48"), ("9" * 30, "48"), ("4", str(1 << 60)), ("\u0664", "48"),
     ("4", "x")],
)
def test_extents_of_external_data(tmp_path: Path, offset: str, length: str) -> None:
    failure(outside(tmp_path, "weights.bin", offset, length))


# options -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [-1, 2.5, "8", True, None])
def test_dims_must_be_sizes(size: Any) -> None:
    with pytest.raises(ArgumentError):
        load(small(), dims={"n": size})


def test_fixed_values_must_fit() -> None:
    assert "does not fit" in str(failure(small(), fixed={"x": np.zeros((3, 3), np.float32)}))


def test_helpers_of_the_onnx_package_are_not_needed_for_names() -> None:
    """A model without any names still says where."""
    proto = small()
    for n in proto.graph.node:
        n.name = ""
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((5, 4), np.float32), "w"))
    (problem,) = failure(proto).problems
    assert problem.node == "m" and problem.op == "MatMul"
