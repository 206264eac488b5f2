"""Reductions, arg-reductions, running sums, softmax and its kin."""

from __future__ import annotations

from ...ir.graph.core import Value
from ...ir.graph.dims import product
from ...ir.types import f64, i64, u8
from .registry import Context, Results, op
from .tensors import Refusal

_KINDS = {
    "ReduceSum": "sum", "ReduceMax": "max", "ReduceMin": "min", "ReduceProd": "prod", "ReduceMean": "mean",
    "ReduceL1": "l1", "ReduceL2": "l2", "ReduceLogSumExp": "logsumexp", "ReduceLogSum": "log_sum",
    "ReduceSumSquare": "sum_square",
}  # fmt: skip


def _reduction(name: str) -> None:
    @op(name)
    def convert(c: Context) -> Results:
        c.ignore("axes", "noop_with_empty_axes")
        axes = c.opt(1)
        keep = bool(c.int_("keepdims", 1))
        x = c.x()
        if axes is not None and c.known_ints(axes) is None:
            return _unknown_axes(c, _KINDS[name], x, c.vector(axes), keep)
        else:
            listed = c.known_ints(axes) if axes is not None else c.ints("axes") or []
        assert listed is not None
        if not listed and not c.int_("noop_with_empty_axes", 0):
            listed = list(range(x.type.rank))
        if x.type.rank == 0 and all(a in (0, -1) for a in listed):
            listed = []  # a scalar is its own reduction
        return reduce(c, _KINDS[name], x, sorted({c.axis(a, x.type.rank) for a in listed}), keep)


for _name in _KINDS:
    _reduction(_name)


def reduce(c: Context, kind: str, x: Value, axes: list[int], keep: bool) -> Value:
    """One reduction over known axes (none of them: only what the op does to each element)."""
    if not axes and kind in ("sum", "max", "min", "prod", "mean"):
        return x
    if x.type.rank == 0 or not axes:
        x = c.make("reshape", x, shape=(*x.shape, 1))
        axes, keep = [x.type.rank - 1], False
    attrs = {"axes": tuple(axes), "keepdims": keep}
    if x.dtype.is_bool:
        return c.cast(c.make(f"reduce_{kind}", c.cast(x, u8), **attrs), x.dtype)
    if x.dtype.is_int and kind in ("l2", "logsumexp", "log_sum"):
        return c.cast(reduce(c, kind, c.cast(x, f64), axes, keep), x.dtype)
    if kind == "log_sum":
        return c.make("log", c.make("reduce_sum", x, **attrs))
    if kind == "sum_square":
        return c.make("reduce_sum", c.make("mul", x, x), **attrs)
    if x.dtype.is_int and kind == "l1":
        return c.make("reduce_sum", c.make("abs", x), **attrs)
    if x.dtype.is_int and kind == "mean":
        count = c.static_dims([product(tuple(x.shape[a] for a in axes))], "the extent of an integer mean")[0]
        return c.make("div", c.make("reduce_sum", x, **attrs), c.scalar(count, x))
    return c.make(f"reduce_{kind}", x, **attrs)


def _unknown_axes(c: Context, kind: str, x: Value, axes: Value, keep: bool) -> Value:
    attrs = {"keepdims": keep, "noop_with_empty_axes": bool(c.int_("noop_with_empty_axes", 0))}
    if kind == "log_sum":
        return c.make("log", c.make("dyn_reduce", x, axes, kind="sum", **attrs))
    if kind == "sum_square":
        return c.make("dyn_reduce", c.make("mul", x, x), axes, kind="sum", **attrs)
    return c.make("dyn_reduce", x, axes, kind=kind, **attrs)


def _arg(name: str, target: str) -> None:
    @op(name)
    def convert(c: Context) -> Results:
        x = c.x()
        axis, keep, last = c.int_("axis", 0), bool(c.int_("keepdims", 1)), bool(c.int_("select_last_index", 0))
        return c.make(target, x, axis=c.axis(axis, x.type.rank), keepdims=keep, last=last)


_arg("ArgMax", "argmax")
_arg("ArgMin", "argmin")


@op("CumSum")
def cumsum(c: Context) -> Results:
    axis = c.need_int(1, "the axis")
    x = c.x()
    exclusive, reverse = bool(c.int_("exclusive", 0)), bool(c.int_("reverse", 0))
    return c.make("cumsum", x, axis=c.axis(axis, x.type.rank), exclusive=exclusive, reverse=reverse)


@op("TopK")
def topk_attribute(c: Context) -> Results:
    return c.node("topk", c.x(), k=c.int_("k"), axis=_topk_axis(c), largest=True, sorted=True).outputs


@op("TopK", since=10)
def topk(c: Context) -> Results:
    order = {"axis": _topk_axis(c), "largest": bool(c.int_("largest", 1)), "sorted": bool(c.int_("sorted", 1))}
    k = c.known_ints(c.x(1))
    if k is not None and len(k) == 1:
        return c.node("topk", c.x(), k=k[0], **order).outputs
    return c.node("dyn_topk", c.x(), c.cast(c.x(1), i64), **order).outputs


def _topk_axis(c: Context) -> int:
    return c.axis(c.int_("axis", -1), c.x().type.rank)


# softmax: before opset 13 the operand is flattened to a matrix at `axis` --------------------------------------------


def _flattened(c: Context, target: str) -> Value:
    x = c.x()
    rank = x.type.rank
    axis = c.axis(c.int_("axis", 1), rank)
    if axis == rank - 1:
        return c.make(target, x, axis=axis)
    flat = c.make("reshape", x, shape=(*x.shape[:axis], product(x.shape[axis:])))
    return c.make("reshape", c.make(target, flat, axis=axis), shape=x.shape)


def _softmax(name: str, target: str) -> None:
    @op(name)
    def old(c: Context) -> Results:
        return _flattened(c, target)

    @op(name, since=13)
    def new(c: Context) -> Results:
        return c.make(target, c.x(), axis=c.axis(c.int_("axis", -1), c.x().type.rank))


_softmax("Softmax", "softmax")
_softmax("LogSoftmax", "log_softmax")


@op("Hardmax")
def hardmax_flattened(c: Context) -> Results:
    x = c.x()
    axis = c.axis(c.int_("axis", 1), x.type.rank)
    flat = c.make("reshape", x, shape=(*x.shape[:axis], product(x.shape[axis:])))
    return c.make("reshape", _hardmax(c, flat, axis), shape=x.shape)


@op("Hardmax", since=13)
def hardmax(c: Context) -> Results:
    return _hardmax(c, c.x(), c.axis(c.int_("axis", -1), c.x().type.rank))


def _hardmax(c: Context, x: Value, axis: int) -> Value:
    """1 at the first greatest element along the axis, 0 elsewhere."""
    first = c.make("argmax", x, axis=axis, keepdims=True, last=False)
    position = c.make("iota", shape=x.shape, axis=axis, dtype=i64)
    return c.cast(c.make("eq", position, first), x.dtype)


@op("LpNormalization")
def lp_normalization(c: Context) -> Results:
    p = c.int_("p", 2)
    if p not in (1, 2):
        raise Refusal(f"p must be 1 or 2, not {p}")
    x = c.x()
    axis = c.axis(c.int_("axis", -1), x.type.rank)
    norm = reduce(c, f"l{p}", x, [axis], True)
    if c.version >= 22:  # a zero norm gives zero
        safe = c.make("where", c.make("eq", norm, c.scalar(0, x)), c.scalar(1, x), norm)
        return c.make("div", x, safe)
    return c.make("div", x, norm)


@op("GlobalLpPool")
def global_lp_pool(c: Context) -> Results:
    x, p = c.x(), c.int_("p", 2)
    return lp_reduce(c, x, p, list(range(2, x.type.rank)))


def lp_reduce(c: Context, x: Value, p: int, axes: list[int]) -> Value:
    if p in (1, 2):
        return reduce(c, f"l{p}", x, axes, True)
    total = reduce(c, "sum", c.make("pow", c.make("abs", x), c.scalar(p, x)), axes, True)
    return c.make("pow", total, c.scalar(1 / p, x))
