"""Turning what a person types after `--input` and `--arg` into arrays."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ArgumentError, MissingExtraError
from ..ir.types import BY_NAME, DType

Array = np.ndarray[Any, Any]
_IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".gif", ".tif", ".tiff"}
_TYPED_SHAPE = re.compile(r"^(?:(?P<name>[^=\[\]]+)=)?(?P<dtype>[a-z][a-z0-9]*)\[(?P<dims>[0-9, ]*)\]$")


@dataclass(frozen=True, slots=True)
class Wanted:
    """One input of a model: a dim is an int, or a symbol's name when it is free."""

    name: str
    dtype: DType
    shape: tuple[int | str, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """How pixels become numbers: (value - mean) * scale, channels as RGB or BGR."""

    mean: tuple[float, ...] = (0.0,)
    scale: float = 1.0
    bgr: bool = False


def wanted_of(model: Any) -> list[Wanted]:
    """The inputs of a model, in order."""
    dims = [tuple(d if isinstance(d, int) else str(d) for d in t.shape) for t in model.inputs.types]
    return [Wanted(n, t.dtype, s) for n, t, s in zip(model.inputs.names, model.inputs.types, dims)]


def collect(specs: Sequence[str], wanted: Sequence[Wanted], image: ImageOptions) -> dict[str, Array]:
    """Arrays for `--input` options. `NAME=FILE`, or only `FILE`, which goes to the next input without one."""
    found: dict[str, Array] = {}
    by_name = {w.name: w for w in wanted}
    for spec in specs:
        name, file = _split(spec, by_name)
        if Path(file).suffix.lower() == ".npz" and name is None:
            found.update(_from_npz(Path(file), by_name))
            continue
        if name is None:
            name = next((w.name for w in wanted if w.name not in found), None)
            if name is None:
                raise ArgumentError(f"'{spec}' is one --input too many", hint=_listing(wanted))
        if name in found:
            raise ArgumentError(f"the input '{name}' is given twice")
        found[name] = _read(Path(file), by_name[name], image)
    missing = [w for w in wanted if w.name not in found]
    if missing:
        names = ", ".join(f"'{w.name}'" for w in missing)
        raise ArgumentError(f"no data for the input {names}", hint=f"{_listing(wanted)}; or --random for random data")
    return found


def random_inputs(
    wanted: Sequence[Wanted], dims: dict[str, int], given: dict[str, Array] | None = None
) -> dict[str, Array]:
    """Random data, the same for the same name and shape. Free dims are 1 unless `--dim` says otherwise."""
    made = dict(given or {})
    for w in wanted:
        if w.name not in made:
            made[w.name] = random_array(
                w.dtype, tuple(d if isinstance(d, int) else dims.get(d, 1) for d in w.shape), w.name
            )
    return made


def random_array(dtype: DType, shape: tuple[int, ...], name: str) -> Array:
    rng = np.random.default_rng(zlib.crc32(f"{name}{shape}".encode()))
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    if dtype.is_bool:
        return rng.integers(0, 2, shape).astype(np.bool_)
    return rng.integers(0, 100, shape).astype(dtype.numpy)


def parse_dims(specs: Sequence[str]) -> dict[str, int]:
    """`--dim batch=4` options."""
    found: dict[str, int] = {}
    for spec in specs:
        name, _, value = spec.partition("=")
        if not name or not value.isdigit():
            raise ArgumentError(f"'{spec}' is not a dim", hint="write --dim NAME=NUMBER, for example --dim batch=4")
        found[name] = int(value)
    return found


def parse_typed_shape(spec: str) -> tuple[str | None, DType, tuple[int, ...]]:
    """`f32[4096,1024]`, with `NAME=` before it when the name matters."""
    match = _TYPED_SHAPE.match(spec.strip())
    if match is None:
        raise ArgumentError(
            f"'{spec}' is not an argument", hint="write TYPE[DIMS], for example f32[4096,1024] or x=i8[64]"
        )
    dtype = BY_NAME.get(match["dtype"])
    if dtype is None:
        raise ArgumentError(f"'{match['dtype']}' is not an element type", hint=f"one of: {', '.join(BY_NAME)}")
    return match["name"], dtype, tuple(int(d) for d in match["dims"].replace(" ", "").split(",") if d)


def parse_kernel_args(specs: Sequence[str]) -> tuple[list[Any], dict[str, Any]]:
    """`--arg` options: arrays of random data for `TYPE[DIMS]`, scalars for numbers, true and false; by position, or by
    name for `NAME=...`."""
    args: list[Any] = []
    named: dict[str, Any] = {}
    for position, spec in enumerate(specs):
        name, equals, text = spec.rpartition("=")
        value = _scalar(text.strip())
        if value is None:
            given, dtype, shape = parse_typed_shape(spec)
            name, value = given or "", random_array(dtype, shape, str(position))
        elif equals and not name:
            raise ArgumentError(f"'{spec}' has no name before '='")
        if name:
            named[name] = value
        elif named:
            raise ArgumentError(f"'{spec}' has no name, but stands behind one that has", hint="give those by name last")
        else:
            args.append(value)
    return args, named


def _scalar(text: str) -> int | float | bool | None:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None


# ---------------------------------------------------------------- files


def _split(spec: str, by_name: dict[str, Wanted]) -> tuple[str | None, str]:
    """Names may hold colons and slashes, and files may hold '=': a known name before some '=' decides."""
    for at, letter in enumerate(spec):
        if letter == "=" and spec[:at] in by_name:
            return spec[:at], spec[at + 1 :]
    if "=" in spec and not Path(spec).exists():
        name = spec.partition("=")[0]
        raise ArgumentError(f"the model has no input '{name}'", hint=_listing(list(by_name.values())))
    return None, spec


def _read(path: Path, wanted: Wanted, image: ImageOptions) -> Array:
    if not path.is_file():
        raise ArgumentError(f"there is no file '{path}' for the input '{wanted.name}'")
    suffix = path.suffix.lower()
    if suffix in _IMAGES:
        return _read_image(path, wanted, image)
    if suffix == ".npy":
        return _cast(_load_numpy(path), wanted)
    if suffix == ".npz":
        return _cast(_from_npz(path, {wanted.name: wanted})[wanted.name], wanted)
    raise ArgumentError(f"'{path}' is of a kind that cannot be read", hint="give a .npy, .npz or image file")


def _load_numpy(path: Path) -> Any:
    try:
        return np.load(path, allow_pickle=False)  # pickles can run code
    except (ValueError, OSError, EOFError) as error:
        detail = "" if "pickle" in str(error) else f": {error}"  # NumPy's advice on pickles is none for here
        raise ArgumentError(f"'{path}' is not a NumPy file of plain numbers{detail}") from error


def _from_npz(path: Path, by_name: dict[str, Wanted]) -> dict[str, Array]:
    if not path.is_file():
        raise ArgumentError(f"there is no file '{path}'")
    archive = _load_numpy(path)
    if not hasattr(archive, "files"):
        raise ArgumentError(f"'{path}' is not a .npz archive")
    with archive:
        found = {name: _cast(archive[name], by_name[name]) for name in archive.files if name in by_name}
    if not found:
        raise ArgumentError(f"'{path}' has none of the model's inputs", hint=_listing(list(by_name.values())))
    return found


def _cast(array: Array, wanted: Wanted) -> Array:
    """Only what loses nothing: float64 files for float models are common, anything else is a mistake to be told."""
    target = wanted.dtype.numpy
    if array.dtype == target:
        return array
    if (
        array.dtype.kind in "iu"
        and wanted.dtype.is_int
        and np.array_equal(array.astype(target).astype(array.dtype), array)
    ):
        return array.astype(target)
    if array.dtype.kind == "f" and wanted.dtype.is_float:
        return array.astype(target)
    raise ArgumentError(f"the input '{wanted.name}' is {wanted.dtype}, the file holds {array.dtype}")


def _read_image(path: Path, wanted: Wanted, options: ImageOptions) -> Array:
    """The picture, resized to the input and laid out as the input asks: channels last, or before height and width."""
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise MissingExtraError("pillow", "demo", "reading an image") from error
    height_at, width_at, channel_at = _image_axes(wanted)
    try:
        with Image.open(path) as picture:
            gray = wanted.shape[channel_at] == 1
            picture = picture.convert("L" if gray else "RGB")
            sizes = (wanted.shape[width_at], wanted.shape[height_at])
            target = tuple(s if isinstance(s, int) else have for s, have in zip(sizes, picture.size))
            pixels = np.asarray(picture.resize((target[0], target[1]), Image.Resampling.BILINEAR))
    except (UnidentifiedImageError, OSError) as error:
        raise ArgumentError(f"'{path}' is not an image that can be read: {error}") from error
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if options.bgr:
        pixels = pixels[:, :, ::-1]
    if wanted.dtype.is_float:
        if len(options.mean) not in (1, pixels.shape[2]):
            raise ArgumentError(f"--mean gives {len(options.mean)} numbers, the input '{wanted.name}' has "
                                f"{pixels.shape[2]} channels", hint="give one number, or one per channel")
        pixels = (pixels.astype(np.float32) - np.asarray(options.mean, np.float32)) * np.float32(options.scale)
    if channel_at != len(wanted.shape) - 1:
        pixels = pixels.transpose(2, 0, 1)
    batch = (1,) * (len(wanted.shape) - 3)
    return np.ascontiguousarray(pixels.reshape(batch + pixels.shape)).astype(wanted.dtype.numpy)


def _image_axes(wanted: Wanted) -> tuple[int, int, int]:
    """Which dims are height, width and channels."""
    rank = len(wanted.shape)
    if rank in (3, 4):
        if wanted.shape[-1] in (1, 3):
            return rank - 3, rank - 2, rank - 1
        if wanted.shape[-3] in (1, 3):
            return rank - 2, rank - 1, rank - 3
    raise ArgumentError(f"the input {wanted} is not a picture with 1 or 3 channels", hint="give a .npy file instead")


def _listing(wanted: Sequence[Wanted]) -> str:
    return "the inputs are " + "; ".join(map(str, wanted))
