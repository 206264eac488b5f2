"""Tile IR: loops end where everything that is left is masked out. Causal attention does half its work this way.

A loop over tiles of j whose body chooses by `where(i >= j, x, c)` is *dead* from the first j on that no i of the tile
reaches: every choice falls on c. Where a dead turn provably leaves every carried value as it was, the loop's `stop` is
set to that j. Proof: the body is rewritten with c in place of the choices and simplified by identities of arithmetic;
each value yielded must come out as the carried value itself.

The identities of online softmax need its running maximum `top` to be finite: exp(-inf - top) = 0, exp(top - top) = 1.
They are used where `top` starts from -inf and becomes max(top, max of the scores) each turn, and where every other
carried value takes in exp(scores - top) and itself by functions that hand NaN on. Then, once a turn was made, a row
whose maximum is not finite has NaN in all its other values already (some score was NaN or infinite, or all were -inf,
and exp(score - top) was NaN), and a dead turn would keep it. Hence at least one turn is always made.

Two things differ from running the dead turns: a weight of exactly zero is not multiplied with masked values, so NaN and
infinities there do not reach the result, and a carried -0 stays -0 instead of becoming +0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ..ir.tile import build
from ..ir.tile.core import Axis, Kernel, Node, Static, TileOf, const, make
from ..ir.tile.rewrite import Rebuilder, walk
from ..ir.types import i64

#: comparisons as `small <= big`: (which operand is small, whether equality is excluded)
_ORDER = {"le": (0, False), "lt": (0, True), "ge": (1, False), "gt": (1, True)}
_STRICT_MAPS = frozenset({"add", "sub", "mul", "div", "neg", "max", "min", "fma"})
_RESHAPING = ("broadcast", "transpose", "reshape", "cast")


def cut_dead_ranges(kernel: Kernel) -> Kernel:
    """The kernel with every loop ending before the turns that provably change nothing."""
    done: set[Node] = set()
    while True:
        loops = [n for n in walk(kernel.effects) if n.op == "loop" and n not in done]
        found = next(((n, shorter) for n in loops if (shorter := _cut(n)) is not None), None)
        if found is None:
            return kernel
        loop, shorter = found
        done.add(shorter)
        kernel = Rebuilder(None, {loop: shorter}).kernel(kernel)


def _cut(loop: Node) -> Node | None:
    """The loop with a `stop`, where there is a bound that proves itself."""
    axis: Axis = loop.attr("axis")
    if loop.attr("effects") or loop.attr("stop") is not None or axis.kind != "tile":
        return None
    body = list(walk(loop.attr("yields")))
    choices = [n for n in body if n.op == "map" and n.attr("fn") == "where" and axis in n.args[0].free]
    for test in dict.fromkeys(c for n in choices for c in _conjuncts(n.args[0])):
        bound = _bound(test, axis, frozenset((axis, *loop.attr("params"))))
        if bound is None:
            continue
        dead = frozenset(n for n in choices if test in _conjuncts(n.args[0]))
        if _Proof(loop, dead).holds():
            stop = build.imax(bound, const(1, i64))
            return make("loop", loop.args, None, loop.loc, **{**dict(loop.attrs), "stop": stop})
    return None


# ---------------------------------------------------------------------------------------------- bounds


def _conjuncts(cond: Node) -> Iterator[Node]:
    """Comparisons that all hold where `cond` does."""
    cond = _peel(cond, ("broadcast",))
    if cond.op == "map" and cond.attr("fn") == "and" and cond.dtype.is_bool:
        yield from _conjuncts(cond.args[0])
        yield from _conjuncts(cond.args[1])
    elif cond.op == "map" and cond.attr("fn") in _ORDER and cond.args[0].dtype == i64:
        yield cond


def _bound(test: Node, axis: Axis, own: frozenset[Axis | Node]) -> Node | None:
    """The first coordinate of `axis` from which on the comparison holds nowhere in the tile; None when unknown."""
    which, strict = _ORDER[test.attr("fn")]
    small, big = (_peel(test.args[k], ("broadcast",)) for k in (which, 1 - which))
    if big.free & own:
        return None
    if small.op == "map" and small.attr("fn") in ("add", "sub"):  # j + c <= big
        j, c = (_peel(a, ("broadcast",)) for a in small.args)
        if j.op != "index" and small.attr("fn") == "add":
            j, c = c, j
        if c.shape or c.free & own:
            return None
        shift = build.splat(c, big.shape)
        big, small = build.map("sub" if small.attr("fn") == "add" else "add", big, shift), j
    if small.op != "index" or small.attr("axis") is not axis:
        return None
    for _ in big.shape:
        big = build.fold(big, 0, "max")
    return big if strict else build.iadd(big, const(1, i64))


def _peel(n: Node, ops: Sequence[str]) -> Node:
    while n.op in ops:
        n = n.args[0]
    return n


# ---------------------------------------------------------------------------------------------- the proof


class _Proof:
    """Whether a turn in which all `dead` choices fall on their last operand changes no carried value."""

    def __init__(self, loop: Node, dead: frozenset[Node]) -> None:
        self.loop, self.dead = loop, dead
        self.axis: Axis = loop.attr("axis")
        self.params: tuple[Node, ...] = loop.attr("params")
        self.yields: tuple[Node, ...] = loop.attr("yields")
        self.finite: set[Node] = set()  # carried values that the identities need to be finite

    def holds(self) -> bool:
        rewritten = Rebuilder(self._simplify, {p: p for p in self.params})
        if any(rewritten(y) is not p for y, p in zip(self.yields, self.params, strict=True)):
            return False
        return not self.finite or (len(self.finite) == 1 and self._online_softmax(next(iter(self.finite))))

    # ------------------------------------------------------------------ identities

    def _simplify(self, n: Node, args: tuple[Node, ...]) -> Node | None:
        if n in self.dead:
            return args[2]
        match n.op:
            case "map":
                return self._map(n, args)
            case "fold":
                value = _splat(args[0])
                extent = args[0].shape[n.attr("axis")]
                some = extent == TileOf(self.axis) or (isinstance(extent, Static) and extent.size > 0)
                if (n.attr("monoid") == "sum" and value == 0) or (
                        n.attr("monoid") in ("max", "min") and value is not None and some):
                    return build.full(n.shape, value, n.dtype)
            case "dot" if _splat(args[1]) == 0 and _is_weight(n.args[1]):
                return args[0]
        return None

    def _map(self, n: Node, args: tuple[Node, ...]) -> Node | None:
        fn, values = n.attr("fn"), [_splat(a) for a in args]
        if not n.dtype.is_float:
            return None
        neutral = {"max": -math.inf, "min": math.inf, "add": 0.0, "mul": 1.0}.get(fn)
        if neutral is not None:
            if values[1] == neutral:
                return args[0]
            return args[1] if values[0] == neutral else None
        if fn == "sub" and args[0] is args[1] and self._assume_finite(args[0]):
            return build.full(n.shape, 0.0, n.dtype)
        if fn == "sub" and values[0] == -math.inf and self._assume_finite(args[1]):
            return build.full(n.shape, -math.inf, n.dtype)
        if fn in ("exp", "exp2") and values[0] in (-math.inf, 0.0):
            return build.full(n.shape, 1.0 if values[0] == 0.0 else 0.0, n.dtype)
        return None

    def _assume_finite(self, x: Node) -> bool:
        x = _peel(x, ("broadcast",))
        if x not in self.params or not x.dtype.is_float:
            return False
        self.finite.add(x)
        return True

    # ------------------------------------------------------------------ rows whose maximum is not finite

    def _online_softmax(self, top: Node) -> bool:
        """Whether values are NaN already where `top` is not finite (see the head of this file)."""
        k = self.params.index(top)
        high = self.yields[k]
        if _splat(self.loop.args[k]) != -math.inf or high.op != "map" or high.attr("fn") != "max":
            return False
        folds = [a for a in high.args if a is not top]
        if top not in high.args or len(folds) != 1 or folds[0].op != "fold" or folds[0].attr("monoid") != "max":
            return False
        scores, axis = folds[0].args[0], folds[0].attr("axis")
        if scores.shape[axis] != TileOf(self.axis):
            return False
        others = [(p, y) for p, y in zip(self.params, self.yields, strict=True) if p is not top]
        weights = [n for _, y in others for n in walk((y,)) if _is_exp_of(n, scores, high, axis)]
        return all(_hands_on(y, p) and any(self._takes_in(y, w, axis) for w in weights) for p, y in others)

    def _takes_in(self, n: Node, weight: Node, axis: int) -> bool:
        """Whether NaN anywhere in a row of `weight` makes the row of `n` NaN: it is summed over the loop's axis."""
        if n.op == "fold" and n.attr("monoid") == "sum" and n.attr("axis") == axis and _float(n.args[0]) is weight:
            return True
        if n.op == "dot":
            last = axis == len(weight.shape) - 1
            return (last and _float(n.args[1]) is weight) or self._takes_in(n.args[0], weight, axis)
        return any(self._takes_in(a, weight, axis) for a in _strict_operands(n))


def _splat(n: Node) -> float | None:
    """The one value of all elements of a float tile, where it is known now. NaN counts as unknown."""
    n = _peel(n, _RESHAPING)
    if n.op != "const" or not n.dtype.is_float:
        return None
    return None if math.isnan(n.attr("value")) else float(n.attr("value"))


def _is_weight(n: Node) -> bool:
    """Exponentials, as they weigh the values of attention: a zero among them means that the value is not looked at."""
    n = _float(n)
    return n.op == "map" and n.attr("fn") in ("exp", "exp2")


def _float(n: Node) -> Node:
    """What is cast from one float type to another."""
    while n.op == "cast" and n.dtype.is_float and n.args[0].dtype.is_float:
        n = n.args[0]
    return n


def _is_exp_of(n: Node, scores: Node, high: Node, axis: int) -> bool:
    """exp(scores - high), with `high` repeated over `axis`."""
    if n.op != "map" or n.attr("fn") not in ("exp", "exp2"):
        return False
    d = n.args[0]
    if d.op != "map" or d.attr("fn") != "sub" or d.args[0] is not scores or d.args[1].op != "broadcast":
        return False
    rest = tuple(k for k in range(len(scores.shape)) if k != axis)
    return d.args[1].args[0] is high and d.args[1].attr("dims") == rest


def _strict_operands(n: Node) -> Sequence[Node]:
    """Operands whose NaN becomes a NaN of the result, element by element."""
    if n.op == "map" and n.attr("fn") in _STRICT_MAPS:
        return n.args
    floats = n.op == "cast" and n.dtype.is_float and n.args[0].dtype.is_float
    return n.args[:1] if n.op == "broadcast" or floats else ()


def _hands_on(n: Node, param: Node) -> bool:
    """Whether `n` is NaN wherever the carried value is."""
    if n is param:
        return True
    return any(_hands_on(a, param) for a in (n.args[:1] if n.op == "dot" else _strict_operands(n)))
