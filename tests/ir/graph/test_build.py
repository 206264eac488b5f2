"""Building nodes: interning, types under symbols, and errors that say what does not fit."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.errors import ArgumentError, DTypeError, ShapeError, UnsupportedError, VerifyError
from tilewright.interp.graph import run
from tilewright.ir.graph import build as b
from tilewright.ir.graph.core import ArrayRef, Graph, TensorType, Value, intern_node
from tilewright.ir.graph.dims import dim_max, evaluate, floordiv, substitute, symbol
from tilewright.ir.graph.shape_values import known_dims
from tilewright.ir.graph.verify import verify
from tilewright.ir.types import Loc, f16, f32, i32, i64

N, M = symbol("N", 1), symbol("M", 1)


def x(*shape: object, dtype: object = f32, name: str = "x") -> Value:
    return b.input(name, dtype, shape)  # type: ignore[arg-type]


def test_equal_nodes_are_one_node() -> None:
    a = x(N, 4)
    assert b.add(a, a).node is b.add(a, a).node
    assert b.softmax(a, -1).node is b.softmax(a, 1).node
    assert b.const(1.0).node is b.const(1.0).node
    assert b.const(0.0).node is not b.const(-0.0).node
    assert b.add(a, a).node.digest == b.add(a, a).node.digest


def test_constants_do_not_alias_the_callers_array() -> None:
    data = np.zeros(3, np.float32)
    c = b.const(data)
    data[0] = 1
    assert c.constant.tolist() == [0, 0, 0]
    assert data.flags.writeable and not c.constant.flags.writeable
    assert ArrayRef(np.asfortranarray(np.arange(6).reshape(2, 3))) == ArrayRef(np.arange(6).reshape(2, 3))


@pytest.mark.parametrize(
    ("build", "error", "says"),
    [
        (lambda: b.add(x(2, 3), x(4, name="y")), ShapeError, ["f32[2, 3]", "f32[4]"]),
        (lambda: b.add(x(2), x(2, dtype=f16, name="y")), DTypeError, ["f32[2]", "f16[2]", "cast"]),
        (lambda: b.matmul(x(2, 3), x(4, 5, name="y")), ShapeError, ["f32[2, 3]", "f32[4, 5]", "3 and 4"]),
        (lambda: b.reshape(x(N, 4), (N, 5)), ShapeError, ["f32[N, 4]", "[N, 5]"]),
        (lambda: b.concat([x(2, 3), x(3, 3, name="y")], 1), ShapeError, ["axis 0"]),
        (lambda: b.conv(x(1, 3, 8, 8), x(4, 2, 3, 3, name="w")), ShapeError, ["f32[4, 2, 3, 3]", "3 channels"]),
        (lambda: b.conv(x(1, 3, 2, 2), x(4, 3, 3, 3, name="w")), ShapeError, ["does not fit"]),
        (lambda: b.softmax(x(2, 3), 2), ArgumentError, ["axis", "rank 2"]),
        (lambda: b.make("softmax", x(2), foo=1), ArgumentError, ["foo", "axis"]),
        (lambda: b.make("add", x(2)), ArgumentError, ["'b'"]),
        (lambda: b.make("iota", shape=(2,)), ArgumentError, ["dtype"]),
        (lambda: b.make("fft", x(2)), UnsupportedError, ["fft"]),
        (lambda: b.exp(x(2, dtype=i32)), DTypeError, ["i32[2]"]),
        (lambda: b.gather(x(2), x(2, name="i")), DTypeError, ["integer"]),
        (lambda: b.slice(x(4), [0], [9]), ArgumentError, ["clamped"]),
        (lambda: b.einsum("ij,jk->il", x(2, 3), x(3, 4, name="y")), ArgumentError, ["letter"]),
        (lambda: b.dyn_squeeze(x(2, 1), b.const([0])), ShapeError, ["axis 0"]),
        (lambda: b.dyn_reshape(x(4), b.const([-1, 3])), ShapeError, ["4 elements"]),
    ],
)
def test_errors_say_what_does_not_fit(build: object, error: type[Exception], says: list[str]) -> None:
    with pytest.raises(error) as e:
        build()  # type: ignore[operator]
    for word in says:
        assert word in str(e.value)


def test_errors_carry_the_location() -> None:
    with b.location(Loc("model.onnx:conv1"), "conv1"), pytest.raises(ShapeError) as e:
        b.add(x(2), x(3, name="y"))
    assert "model.onnx:conv1" in str(e.value) and "node 'conv1'" in str(e.value)


def test_shapes_computed_by_the_model_are_followed() -> None:
    a = x(N, 3, 4, M)
    shape = b.shape_of(a)
    lead = b.slice_axis(shape, 0, 0, 1)
    y = b.dyn_reshape(a, b.concat([lead, b.const([-1])], 0))
    assert y.shape == (N, M * 12)
    twice = b.mul(b.gather(shape, b.const(3)), 2)
    assert known_dims(twice).item() == M * 2  # type: ignore[union-attr]
    assert b.dyn_broadcast(x(1, 3, name="y"), b.dyn_unsqueeze(twice, b.const([0]))).type.rank == 2
    assert known_dims(b.eq(b.gather(shape, b.const(1)), 3)).item() is True  # type: ignore[union-attr]
    assert known_dims(b.eq(b.gather(shape, b.const(0)), 3)) is None


def test_unknown_extents_are_symbols_of_the_node() -> None:
    a, s = x(6), x(2, dtype=i64, name="s")
    y = b.dyn_reshape(a, s)
    assert y.shape == b.dyn_reshape(a, s).shape
    assert y.shape[0] != y.shape[1]
    g = Graph("g", [a, s], [b.mul(y, y)], ["y"])
    verify(g)
    assert run(g, {"x": np.arange(6, dtype=np.float32), "s": np.array([2, -1])})["y"].shape == (2, 3)


def test_dims_keep_one_form() -> None:
    assert (N + 1) * (N - 1) == N * N - 1
    assert floordiv(N * M * 6, M * 2) == N * 3
    assert N * M == M * N and N - N == 0
    assert dim_max(N - 1, 0) == N - 1
    assert symbol("K", 0, 64, 8) % 4 == 0
    assert substitute(floordiv(N + 3, 2), {"N": 5}) == 4
    assert evaluate(dim_max(N, M), {"N": 2, "M": 7}) == 7
    both = b.add(x(N), x(M, name="y")).shape[0]
    for n, m, want in ((1, 5, 5), (5, 1, 5), (1, 0, 0), (4, 4, 4)):
        assert evaluate(both, {"N": n, "M": m}) == want


def test_verify_finds_a_wrong_type() -> None:
    a = x(2)
    wrong = intern_node("exp", [a], {}, [TensorType(f32, (3,))]).out()
    with pytest.raises(VerifyError, match="exp"):
        verify(Graph("g", [a], [wrong], ["y"]))
    with pytest.raises(VerifyError, match="does not list"):
        verify(Graph("g", [], [b.exp(a)], ["y"]))
    with pytest.raises(VerifyError, match="one name"):
        verify(Graph("g", [a], [a, a], ["y", "y"]))


def test_the_interpreter_refuses_wrong_inputs() -> None:
    a = b.input("x", f32, (symbol("B", 1, 8, 2), 3))
    g = Graph("g", [a], [b.neg(a)], ["y"])
    ok = np.zeros((2, 3), np.float32)
    assert run(g, {"x": ok})["y"].shape == (2, 3)
    for bad in (
        {},
        {"x": ok, "z": ok},
        {"x": ok.astype(np.float64)},
        {"x": ok[0]},
        {"x": np.zeros((2, 4), np.float32)},
        {"x": np.zeros((3, 3), np.float32)},
        {"x": np.zeros((10, 3), np.float32)},
    ):
        with pytest.raises(ArgumentError):
            run(g, bad)
