"""What `--input` and `--arg` accept, and how they refuse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tilewright.cli.inputs import (
    ImageOptions,
    Wanted,
    collect,
    parse_dims,
    parse_typed_shape,
    random_inputs,
)
from tilewright.errors import ArgumentError
from tilewright.ir.types import bf16, f32, i32, i64

X = Wanted("input:0", f32, ("batch", 4))
IDS = Wanted("ids", i64, (3,))
PLAIN = ImageOptions()


def save(path: Path, array: np.ndarray) -> str:
    np.save(path, array)
    return str(path)


def test_by_name_and_by_position(tmp_path: Path) -> None:
    x, ids = np.ones((2, 4), np.float32), np.arange(3)
    fx, fi = save(tmp_path / "x=1.npy", x), save(tmp_path / "i.npy", ids)
    for specs in ([f"input:0={fx}", f"ids={fi}"], [fx, fi], [f"ids={fi}", fx]):
        found = collect(specs, [X, IDS], PLAIN)
        assert np.array_equal(found["input:0"], x) and np.array_equal(found["ids"], ids)


def test_npz_gives_all_at_once(tmp_path: Path) -> None:
    np.savez(tmp_path / "all.npz", **{"input:0": np.ones((1, 4)), "ids": np.arange(3, dtype=np.int32), "other": 1})
    found = collect([str(tmp_path / "all.npz")], [X, IDS], PLAIN)
    assert found["input:0"].dtype == np.float32 and found["ids"].dtype == np.int64


def test_refusals(tmp_path: Path) -> None:
    good = save(tmp_path / "x.npy", np.ones((1, 4), np.float32))
    big = save(tmp_path / "big.npy", np.array([1 << 40] * 3))
    (tmp_path / "broken.npy").write_bytes(b"\x93NUMPY\x01\x00 not really")
    (tmp_path / "note.txt").write_text("hello")
    pickled = tmp_path / "pickled.npy"
    np.save(pickled, np.array([{}], dtype=object), allow_pickle=True)
    cases = [
        ([], "no data for the input 'input:0'"),
        ([good, good], "too many"),
        ([f"input:0={good}", f"input:0={good}"], "given twice"),
        ([f"y={good}"], "no input 'y'"),
        (["nowhere.npy"], "no file"),
        ([str(tmp_path / "broken.npy")], "not a NumPy file"),
        ([str(pickled)], "not a NumPy file"),
        ([str(tmp_path / "note.txt")], "cannot be read"),
    ]
    for specs, message in cases:
        with pytest.raises(ArgumentError, match=message):
            collect(specs, [X], PLAIN)
    with pytest.raises(ArgumentError, match="the file holds float32"):
        collect([good], [IDS], PLAIN)
    with pytest.raises(ArgumentError, match="the file holds int64"):
        collect([big], [Wanted("n", i32, (3,))], PLAIN)


@pytest.mark.parametrize(
    "shape", [("N", 6, 8, 3), ("N", 3, 6, 8), (6, 8, 3), (1, 1, 6, 8), (1, 6, 8, 1), (1, "H", "W", 3)]
)
def test_images_fit_the_layout(tmp_path: Path, shape: tuple[int | str, ...]) -> None:
    image = pytest.importorskip("PIL.Image")
    pixels = np.zeros((12, 16, 3), np.uint8)
    pixels[..., 0] = 200
    image.fromarray(pixels).save(tmp_path / "red.png")
    wanted = Wanted("x", f32, shape)
    got = collect([str(tmp_path / "red.png")], [wanted], ImageOptions(mean=(100.0,), scale=0.5, bgr=False))["x"]
    assert got.dtype == np.float32 and got.flags.c_contiguous
    named = {"N": 1, "H": 12, "W": 16}
    assert got.shape == tuple(d if isinstance(d, int) else named[d] for d in shape)
    if 3 in shape:
        first = np.moveaxis(got, shape.index(3), -1)[..., 0]
        assert np.allclose(first, 50.0)
        swapped = collect([str(tmp_path / "red.png")], [wanted], ImageOptions(mean=(100.0,), scale=0.5, bgr=True))["x"]
        assert np.allclose(np.moveaxis(swapped, shape.index(3), -1)[..., 2], 50.0)
    with pytest.raises(ArgumentError, match="--mean gives 2 numbers"):
        collect([str(tmp_path / "red.png")], [wanted], ImageOptions(mean=(1.0, 2.0)))


def test_image_for_what_is_no_picture(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    (tmp_path / "fake.png").write_bytes(b"no picture")
    with pytest.raises(ArgumentError, match="not a picture"):
        collect([str(tmp_path / "fake.png")], [X], PLAIN)
    with pytest.raises(ArgumentError, match="not an image"):
        collect([str(tmp_path / "fake.png")], [Wanted("x", f32, (1, 3, 4, 4))], PLAIN)


def test_random_inputs_repeat_themselves() -> None:
    first, again = random_inputs([X, IDS], {"batch": 5}), random_inputs([X, IDS], {"batch": 5})
    assert first["input:0"].shape == (5, 4) and first["ids"].dtype == np.int64
    assert all(np.array_equal(first[k], again[k]) for k in first)
    assert random_inputs([X], {})["input:0"].shape == (1, 4)
    given = {"ids": np.zeros(3, np.int64)}
    assert random_inputs([X, IDS], {}, given)["ids"] is given["ids"]


def test_dims_and_shapes() -> None:
    assert parse_dims(["a=3", "b=0"]) == {"a": 3, "b": 0}
    assert parse_typed_shape("f32[4096, 1024]") == (None, f32, (4096, 1024))
    assert parse_typed_shape("x=bf16[]") == ("x", bf16, ())
    for bad in ("f32", "f99[1]", "f32[a]", "[3]", "f32[1,2"):
        with pytest.raises(ArgumentError):
            parse_typed_shape(bad)
    with pytest.raises(ArgumentError, match="--dim"):
        parse_dims(["a=x"])
