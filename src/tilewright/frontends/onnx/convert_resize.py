"""Resize and Upsample: from the many ways of giving sizes to the Graph IR's `resize`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ...ir.graph.core import Value
from ...ir.graph.dims import Dim, DimExpr
from .registry import Context, Results, op
from .tensors import Refusal

_COORDINATES = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")
_NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def _build(
    c: Context, x: Value, scales: Value | None, sizes: Value | None, attrs: dict[str, object], axes: Sequence[int]
) -> Value:
    """`scales` or `sizes` for the axes listed; static where they are known."""
    rank = x.type.rank
    if sizes is not None:
        known = c.known(sizes)
        if known is not None:
            full: list[Dim] = list(x.shape)
            for a, d in zip(_fit(axes, known.size), known.flat, strict=True):
                full[a] = d if isinstance(d, DimExpr) else int(d)
            if any(isinstance(d, int) and d < 0 for d in full):
                raise Refusal(f"negative sizes: {full}")
            return c.make("resize", x, scales=None, sizes=tuple(full), **attrs)
    elif scales is not None and scales.is_constant:
        factors = [1.0] * rank
        for a, f in zip(_fit(axes, scales.constant.size), scales.constant.reshape(-1), strict=True):
            factors[a] = float(f)
        if not all(math.isfinite(f) and f > 0 for f in factors):
            raise Refusal(f"scales must be positive: {factors}")
        return c.make("resize", x, scales=tuple(factors), sizes=None, **attrs)
    if list(axes) != list(range(rank)):
        raise Refusal("with axes, sizes and scales must be known when the model is loaded")
    return c.make("dyn_resize", x, None, scales, c.maybe_vector(sizes), **attrs)


def _fit(axes: Sequence[int], count: int) -> Sequence[int]:
    if len(axes) != count:
        raise Refusal(f"{count} sizes or scales do not fit {len(axes)} axes")
    return axes


def _attrs(c: Context, mode: str, coordinates: str, nearest: str, cubic: float, exclude: bool) -> dict[str, object]:
    if mode not in ("nearest", "linear", "cubic"):
        raise Refusal(f"mode '{mode}' is not supported, only nearest, linear and cubic")
    if coordinates not in _COORDINATES:
        known = ", ".join(_COORDINATES)
        raise Refusal(f"coordinate_transformation_mode '{coordinates}' is not supported, only {known}")
    if nearest not in _NEAREST:
        raise Refusal(f"nearest_mode '{nearest}' is unknown")
    return {
        "mode": mode, "coordinate_mode": coordinates, "nearest_mode": nearest, "cubic_coeff_a": cubic,
        "exclude_outside": exclude,
    }  # fmt: skip


def _given(v: Value | None) -> Value | None:
    """An empty tensor stands for an operand that is absent."""
    return None if v is None or v.shape == (0,) else v


@op("Upsample")
def upsample_attribute(c: Context) -> Results:
    scales = c.const([float(s) for s in c.attr("scales", ())])
    return _upsample(c, scales)


@op("Upsample", since=9)
def upsample(c: Context) -> Results:
    return _upsample(c, c.x(1))


def _upsample(c: Context, scales: Value) -> Value:
    mode = c.str_("mode", "nearest")
    attrs = _attrs(c, "linear" if mode == "bilinear" else mode, "asymmetric", "floor", -0.75, False)
    return _build(c, c.x(), scales, None, attrs, range(c.x().type.rank))


@op("Resize")
def resize_10(c: Context) -> Results:
    attrs = _attrs(c, c.str_("mode", "nearest"), "asymmetric", "floor", -0.75, False)
    return _build(c, c.x(), c.x(1), None, attrs, range(c.x().type.rank))


@op("Resize", since=11)
def resize(c: Context) -> Results:
    c.ignore("extrapolation_value")  # used by tf_crop_and_resize only, which is refused
    c.only("antialias", 0)
    x = c.x()
    axes = [c.axis(a, x.type.rank) for a in c.ints("axes") or range(x.type.rank)]
    attrs = _attrs(
        c, c.str_("mode", "nearest"), c.str_("coordinate_transformation_mode", "half_pixel"),
        c.str_("nearest_mode", "round_prefer_floor"), c.float_("cubic_coeff_a", -0.75),
        bool(c.int_("exclude_outside", 0)),
    )  # fmt: skip
    scales, sizes = _given(c.opt(2)), _given(c.opt(3))
    if (scales is None) == (sizes is None):
        raise Refusal("exactly one of scales and sizes must be given")
    policy = c.str_("keep_aspect_ratio_policy", "stretch")
    if policy != "stretch" and sizes is not None:
        scales, sizes = _keep_aspect(c, x, sizes, axes, policy)
    return _build(c, x, scales, sizes, attrs, axes)


def _keep_aspect(
    c: Context, x: Value, sizes: Value, axes: Sequence[int], policy: str
) -> tuple[Value | None, Value | None]:
    """One scale for all axes, the smallest or the largest that the sizes ask for. Extents round to nearest, where a
    scale alone would round down: sizes then say it."""
    if policy not in ("not_larger", "not_smaller"):
        raise Refusal(f"keep_aspect_ratio_policy '{policy}' is unknown")
    wanted = c.known_ints(sizes)
    if wanted is None or len(wanted) != len(axes):
        raise Refusal("the sizes must be known when the model is loaded", f"{sizes.type}")
    extents = c.static_dims([x.shape[a] for a in axes], "an extent under keep_aspect_ratio_policy")
    if 0 in extents:
        raise Refusal("an extent of 0 has no aspect ratio")
    ratios = [w / d for w, d in zip(wanted, extents, strict=True)]
    scale = min(ratios) if policy == "not_larger" else max(ratios)
    nearest = [math.floor(scale * d + 0.5) for d in extents]
    if nearest == [math.floor(scale * d) for d in extents]:
        return c.const([scale] * len(axes)), None
    return None, c.i64(nearest)
