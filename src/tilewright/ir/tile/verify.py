"""The rules of Tile IR, checked: a VerifyError names the kernel, the broken rule and the node.

Everything that makes or rewrites Tile IR may rely on what is checked here, so no pass checks it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeAlias

from ...errors import VerifyError
from ..types import DType, bool_, f32, i64, u32
from .build import _count, same_shape
from .core import (
    FLOAT_ONLY,
    MONOIDS,
    SCALAR_FNS,
    Axis,
    Kernel,
    Node,
    Shape,
    Static,
    TensorParam,
    TileOf,
    TileType,
)
from .printer import node_text
from .rewrite import walk

#: op -> (number of operands, None where it varies; the attributes it has, sorted)
FORM: Mapping[str, tuple[int | None, tuple[str, ...]]] = {
    "const": (0, ("value",)), "dim": (0, ("name",)), "param": (0, ("name",)), "pos": (0, ("axis",)),
    "index": (0, ("axis",)), "iota": (0, ("extent",)), "map": (None, ("fn",)), "cast": (1, ("dtype",)),
    "broadcast": (1, ("dims", "shape")), "transpose": (1, ("perm",)), "reshape": (1, ("shape",)),
    "slice": (1, ("sizes", "starts", "steps")), "load": (None, ("fill", "tensor")), "dot": (3, ()),
    "fold": (1, ("axis", "monoid")), "argfold": (1, ("axis", "kind", "last")),
    "scan": (1, ("axis", "exclusive", "monoid", "reverse")), "rng": (2, ("kind",)),
    "loop": (None, ("axis", "effects", "params", "start", "stop", "yields")),
    "if": (1, ("else_effects", "else_yields", "then_effects", "then_yields")),
    "result": (1, ("index",)), "carried": (0, ("name", "uid")),
    "store": (None, ("tensor",)), "scatter": (None, ("deterministic", "monoid", "tensor")),
    "par": (0, ("axes", "effects")),
}
STRUCTURES = frozenset({"loop", "if"})
EFFECTS = frozenset({"store", "scatter", "par"})
_BITS_FNS = frozenset({"and", "or", "xor", "not"})
_NUMBER_FNS = frozenset({"add", "sub", "mul", "floordiv", "mod", "tdiv", "neg", "abs", "sign", "square"})

Rule: TypeAlias = Callable[["_Verifier", Node], None]


def verify(kernel: Kernel) -> Kernel:
    """The kernel itself, when it keeps every rule."""
    _Verifier(kernel).run()
    return kernel


def effects_of(n: Node) -> tuple[Node, ...]:
    """The effects in a node's own regions."""
    return tuple(e for key in ("effects", "then_effects", "else_effects") for e in n.attr(key, ()))


class _Verifier:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.tensors: dict[str, TensorParam] = {p.name: p for p in kernel.tensors}
        self.axes: dict[str, Axis] = {}
        self.owner: dict[Node, Node] = {}

    def fail(self, why: str, n: Node | None = None) -> NoReturn:
        at = "" if n is None else f"\n  in: {node_text(n)}"
        raise VerifyError(f"kernel '{self.kernel.name}': {why}{at}", loc=None if n is None else n.loc)

    def need(self, holds: object, why: str, n: Node) -> None:
        if not holds:
            self.fail(why, n)

    # ------------------------------------------------------------------ the whole

    def run(self) -> None:
        self.params()
        roots = self.kernel.effects
        for e in roots:
            if e.op != "par":
                self.fail(f"only par stands at the top level, not '{e.op}'")
        nodes = list(walk(roots))
        for n in nodes:
            self.form(n)
        for n in nodes:
            RULES[n.op](self, n)
        self.effect_lists(nodes)
        for e in roots:
            loose = sorted({v.name if isinstance(v, Axis) else f"carried {v.attr('name')!r}" for v in e.free})
            if loose:
                self.fail(f"{', '.join(loose)} is used outside the loop that makes it", e)

    def params(self) -> None:
        names = [p.name for p in self.kernel.params]
        for name in names:
            if names.count(name) > 1:
                self.fail(f"parameter '{name}' is declared twice")
        for p in self.kernel.tensors:
            if p.role not in ("in", "out", "accumulate"):
                self.fail(f"parameter '{p.name}' has no role '{p.role}'")
            for n in walk(p.dims):
                self.form(n)
                if n.op not in ("const", "dim", "map") or n.type != TileType(i64):
                    self.fail(f"a dim of '{p.name}' is no expression of dims", n)
                RULES[n.op](self, n)

    def form(self, n: Node) -> None:
        """Number of operands, names of attributes, and who has a type; the messages cannot show the node yet."""
        if n.op not in FORM:
            self.fail(f"there is no op '{n.op}'")
        count, attrs = FORM[n.op]
        if n.op == "map":
            fn = n.attr("fn")
            count = SCALAR_FNS[fn][0] if fn in SCALAR_FNS else -1
        if count is not None and len(n.args) != count:
            self.fail(f"'{n.attr('fn', n.op)}' with {len(n.args)} operands")
        if tuple(k for k, _ in n.attrs) != attrs:
            self.fail(f"'{n.op}' has attributes {[k for k, _ in n.attrs]}, not {list(attrs)}")
        if n.op in ("store", "scatter") and not n.args:
            self.fail(f"'{n.op}' without a value")
        if (n.type is None) != (n.op in EFFECTS or n.op in STRUCTURES):
            self.fail(f"'{n.op}' with type {n.type}")
        for a in n.args:
            if a.type is None and not (n.op == "result" and a.op in STRUCTURES):
                self.fail(f"'{n.op}' takes the value of a '{a.op}', which has none")
        for a in (n.attr("axis"), *n.attr("axes", ())):
            if isinstance(a, Axis):
                self.axis(a)

    def axis(self, a: Axis) -> None:
        if self.axes.setdefault(a.name, a) != a:
            self.fail(f"two axes are called '{a.name}'")
        if a.kind not in ("tile", "single", "range"):
            self.fail(f"axis '{a.name}' has no kind '{a.kind}'")
        if a.extent.type != TileType(i64):
            self.fail(f"the extent of axis '{a.name}' is no i64 scalar")

    def effect_lists(self, nodes: Sequence[Node]) -> None:
        listed: set[Node] = set()
        for n in nodes:
            for e in effects_of(n):
                if e.op not in ("store", "scatter") and not (e.op in STRUCTURES and effects_of(e)):
                    self.fail(f"'{e.op}' stands in a list of effects", n)
                listed.add(e)
        for n in nodes:
            if n.op in ("store", "scatter") or (n.op in STRUCTURES and effects_of(n)):
                self.need(n in listed, "an effect that is in no list of effects", n)

    # ------------------------------------------------------------------ parts of rules

    def is_type(self, n: Node, dtype: DType, shape: Shape = ()) -> None:
        if n.dtype != dtype or not same_shape(n.shape, shape):
            self.fail(f"the type should be {TileType(dtype, shape)}", n)

    def same(self, a: Node, b: Node, why: str, n: Node) -> None:
        self.need(a.dtype == b.dtype and same_shape(a.shape, b.shape), why, n)

    def axis_in(self, n: Node) -> int:
        axis = n.attr("axis")
        self.need(type(axis) is int and 0 <= axis < len(n.args[0].shape), "the operand has no such axis", n)
        return int(axis)

    def place(self, n: Node, index: Sequence[Node]) -> tuple[TensorParam, Shape]:
        """Tensor and shape that index tiles address."""
        p = self.tensors.get(n.attr("tensor"))
        if p is None:
            self.fail(f"there is no tensor '{n.attr('tensor')}'", n)
        self.need(len(index) == p.rank, f"'{p.name}' has {p.rank} dims", n)
        for i in index:
            self.need(i.dtype == i64, "an index that is not i64", n)
        shape = tuple(e for i in index for e in i.shape)
        tiles = [e for e in shape if isinstance(e, TileOf)]
        self.need(len(set(tiles)) == len(tiles), "one tile axis indexes two dims", n)
        return p, shape

    def matches(self, n: Node, value: Any, dtype: DType) -> None:
        """A Python number is what `dtype` holds."""
        if dtype.is_float:
            ok = isinstance(value, float)
        elif dtype.is_bool:
            ok = isinstance(value, bool)
        else:
            low = -(1 << (dtype.bits - 1)) if dtype.kind == "i" else 0
            ok = type(value) is int and low <= value < low + (1 << dtype.bits)
        self.need(ok, f"{value!r} is no {dtype}", n)


# ---------------------------------------------------------------------------------------------- one rule per op


def _const(v: _Verifier, n: Node) -> None:
    v.matches(n, n.attr("value"), n.dtype)
    v.is_type(n, n.dtype)


def _dim(v: _Verifier, n: Node) -> None:
    v.is_type(n, i64)


def _param(v: _Verifier, n: Node) -> None:
    for p in v.kernel.scalars:
        if p.name == n.attr("name"):
            v.is_type(n, p.dtype)
            return
    v.fail(f"there is no scalar parameter '{n.attr('name')}'", n)


def _pos(v: _Verifier, n: Node) -> None:
    v.need(n.attr("axis").kind != "tile", "a tile axis has no single position", n)
    v.is_type(n, i64)


def _index(v: _Verifier, n: Node) -> None:
    v.need(n.attr("axis").kind == "tile", "only a tile axis has a tile of coordinates", n)
    v.is_type(n, i64, (TileOf(n.attr("axis")),))


def _iota(v: _Verifier, n: Node) -> None:
    v.need(not isinstance(n.attr("extent"), TileOf), "iota over a tile axis (that is index)", n)
    v.is_type(n, i64, (n.attr("extent"),))


def _map(v: _Verifier, n: Node) -> None:
    fn, xs = n.attr("fn"), n.args
    if fn == "where":
        v.need(xs[0].dtype.is_bool, "the condition is not bool", n)
        xs = xs[1:]
    first = xs[0].dtype
    for x in n.args:
        v.need(same_shape(x.shape, n.shape), "operands of other shapes than the result", n)
    v.need(all(x.dtype == first for x in xs), "operands of different element types", n)
    v.need(first.is_float or fn not in FLOAT_ONLY, f"{fn} is for floats", n)
    v.need(not (first.is_float and (fn in _BITS_FNS or fn in ("shl", "shr"))), f"{fn} is not for floats", n)
    v.need(not (first.is_bool and (fn in _NUMBER_FNS or fn in ("shl", "shr"))), f"{fn} is not for bool", n)
    v.is_type(n, bool_ if SCALAR_FNS[fn][1] == "bool" else first, n.shape)


def _cast(v: _Verifier, n: Node) -> None:
    v.is_type(n, n.attr("dtype"), n.args[0].shape)


def _broadcast(v: _Verifier, n: Node) -> None:
    x, dims = n.args[0], n.attr("dims")
    v.need(n.attr("shape") == n.shape, "the shape attribute is not the type's shape", n)
    v.need(len(dims) == len(x.shape) and list(dims) == sorted(set(dims)), "dims do not place every axis, in order", n)
    for d, e in zip(dims, x.shape):
        v.need(0 <= d < len(n.shape), "dims leave the result's axes", n)
        v.need(e == Static(1) or same_shape((e,), (n.shape[d],)), f"axis of {e} becomes {n.shape[d]}", n)
    v.is_type(n, x.dtype, n.shape)


def _transpose(v: _Verifier, n: Node) -> None:
    x, perm = n.args[0], n.attr("perm")
    v.need(sorted(perm) == list(range(len(x.shape))), "perm is no order of the axes", n)
    v.is_type(n, x.dtype, tuple(x.shape[p] for p in perm))


def _reshape(v: _Verifier, n: Node) -> None:
    x = n.args[0]
    v.need(n.attr("shape") == n.shape, "the shape attribute is not the type's shape", n)
    v.need(not any(isinstance(e, TileOf) for e in (*x.shape, *n.shape)), "a tile axis is reshaped", n)
    v.need(_count(x.shape) is _count(n.shape), "another number of elements", n)
    v.is_type(n, x.dtype, n.shape)


def _slice(v: _Verifier, n: Node) -> None:
    x = n.args[0]
    parts = [n.attr(k) for k in ("starts", "sizes", "steps")]
    v.need(all(len(p) == len(x.shape) for p in parts), "starts, sizes and steps do not cover the axes", n)
    shape = []
    for e, start, size, step in zip(x.shape, *parts):
        if size is None:
            shape.append(e)
            continue
        v.need(isinstance(e, Static) and step and size >= 0, "only static axes are cut, by a step", n)
        if size and isinstance(e, Static):
            v.need(0 <= start < e.size and 0 <= start + (size - 1) * step < e.size, "elements outside the axis", n)
        shape.append(Static(size))
    v.is_type(n, x.dtype, tuple(shape))


def _load(v: _Verifier, n: Node) -> None:
    p, shape = v.place(n, n.args)
    v.need(p.role == "in", f"a load from '{p.name}', which is an output", n)
    v.matches(n, n.attr("fill"), p.dtype)
    v.is_type(n, p.dtype, shape)


def _dot(v: _Verifier, n: Node) -> None:
    acc, a, b = n.args
    v.need(len(a.shape) >= 1 and len(b.shape) == 2 and same_shape(a.shape[-1:], b.shape[:1]),
           "operands are not (.., k) and (k, n)", n)
    small = a.dtype.is_int and b.dtype.is_int and a.dtype.bits == b.dtype.bits == 8
    v.need(a.dtype == b.dtype or small, "operands of different element types", n)
    v.need(not a.dtype.is_bool and a.dtype.is_float == acc.dtype.is_float and acc.dtype.bits >= a.dtype.bits,
           f"{a.dtype} cannot accumulate in {acc.dtype}", n)
    v.need(same_shape(acc.shape, (*a.shape[:-1], b.shape[1])), "the accumulator has another shape", n)
    v.is_type(n, acc.dtype, acc.shape)


def _fold(v: _Verifier, n: Node) -> None:
    x, axis, monoid = n.args[0], v.axis_in(n), n.attr("monoid")
    v.need(monoid in MONOIDS, f"there is no monoid '{monoid}'", n)
    v.need(monoid in ("max", "min") or (monoid in ("any", "all")) == x.dtype.is_bool, f"{monoid} of {x.dtype}", n)
    v.is_type(n, x.dtype, x.shape[:axis] + x.shape[axis + 1:])


def _argfold(v: _Verifier, n: Node) -> None:
    x, axis = n.args[0], v.axis_in(n)
    v.need(n.attr("kind") in ("argmax", "argmin") and isinstance(n.attr("last"), bool), "neither argmax nor argmin", n)
    v.is_type(n, i64, x.shape[:axis] + x.shape[axis + 1:])


def _scan(v: _Verifier, n: Node) -> None:
    x, _ = n.args[0], v.axis_in(n)
    v.need(n.attr("monoid") in ("sum", "prod", "max", "min") and not x.dtype.is_bool, "no such scan", n)
    v.is_type(n, x.dtype, x.shape)


def _rng(v: _Verifier, n: Node) -> None:
    seed, counter = n.args
    v.need(seed.dtype == counter.dtype == i64, "seed and counter are not i64", n)
    v.need(not seed.shape or same_shape(seed.shape, counter.shape), "seed and counter of different shapes", n)
    v.need(n.attr("kind") in ("u32", "uniform"), "no such random kind", n)
    v.is_type(n, u32 if n.attr("kind") == "u32" else f32, counter.shape)


def _loop(v: _Verifier, n: Node) -> None:
    axis, params, yields = n.attr("axis"), n.attr("params"), n.attr("yields")
    v.need(len(n.args) == len(params) == len(yields), "inits, carried values and yields differ in number", n)
    for init, p, y in zip(n.args, params, yields):
        v.need(p.op == "carried", f"'{p.op}' as a carried value", n)
        if v.owner.setdefault(p, n) is not n:
            v.fail("a carried value belongs to two loops", n)
        v.same(init, p, f"'{p.attr('name')}' starts as another type than it is carried", n)
        v.need(y.type is not None, "yields what is no value", n)
        v.same(p, y, f"'{p.attr('name')}' is yielded as another type than it is carried", n)
    own = frozenset((axis, *params))
    outside = [*n.args, axis.extent]
    for limit in (n.attr("start"), n.attr("stop")):
        if limit is not None:
            v.need(isinstance(limit, Node) and limit.type == TileType(i64), "a limit that is no i64 scalar", n)
            outside.append(limit)
    for x in outside:
        v.need(not x.free & own, "inits, extent and limits cannot depend on the loop itself", n)
    for p in params:
        v.need(axis not in p.free, "a carried value's shape depends on the loop itself", n)
    for inner in walk((*yields, *n.attr("effects"))):
        if inner.op == "loop" and inner.attr("axis") == axis and inner.free & own:
            v.fail(f"a loop over axis '{axis.name}' inside a loop over it", n)


def _if(v: _Verifier, n: Node) -> None:
    v.is_type(n.args[0], bool_)
    then, other = n.attr("then_yields"), n.attr("else_yields")
    v.need(len(then) == len(other), "branches yield different numbers of values", n)
    for a, b in zip(then, other):
        v.need(a.type is not None and b.type is not None, "yields what is no value", n)
        v.same(a, b, "branches yield different types", n)


def _result(v: _Verifier, n: Node) -> None:
    source, index = n.args[0], n.attr("index")
    v.need(source.op in STRUCTURES, "the result of what is neither loop nor if", n)
    yields = source.attr("yields") if source.op == "loop" else source.attr("then_yields")
    v.need(0 <= index < len(yields), f"there are {len(yields)} results", n)
    v.is_type(n, yields[index].dtype, yields[index].shape)


def _carried(v: _Verifier, n: Node) -> None:
    """Belongs to the loop that carries it; used elsewhere, it stays free and is reported at the top."""


def _store(v: _Verifier, n: Node) -> None:
    *index, value = n.args
    p, shape = v.place(n, index)
    v.need(p.role != "in", f"'{p.name}' is an input and cannot be written", n)
    v.is_type(value, p.dtype, shape)


def _scatter(v: _Verifier, n: Node) -> None:
    _store(v, n)
    v.need(v.tensors[n.attr("tensor")].role == "accumulate", "scatter into what is no accumulate parameter", n)
    v.need(n.attr("monoid") in ("sum", "max", "min", "prod"), "no such scatter", n)


def _par(v: _Verifier, n: Node) -> None:
    axes = n.attr("axes")
    v.need(n in v.kernel.effects, "par inside another region", n)
    v.need(len({a.name for a in axes}) == len(axes), "an axis stands twice in one par", n)
    for a in axes:
        v.need(a.kind != "range", f"'{a.name}' is ordered and cannot run in parallel", n)
        v.need(not a.extent.free, f"the extent of '{a.name}' depends on a loop", n)


RULES: Mapping[str, Rule] = {
    "const": _const, "dim": _dim, "param": _param, "pos": _pos, "index": _index, "iota": _iota, "map": _map,
    "cast": _cast, "broadcast": _broadcast, "transpose": _transpose, "reshape": _reshape, "slice": _slice,
    "load": _load, "dot": _dot, "fold": _fold, "argfold": _argfold, "scan": _scan, "rng": _rng, "loop": _loop,
    "if": _if, "result": _result, "carried": _carried, "store": _store, "scatter": _scatter, "par": _par,
}
