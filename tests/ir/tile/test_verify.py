"""Every rule of Tile IR has a kernel that breaks it."""

import random

import pytest

from tests.generators import generate
from tilewright.errors import VerifyError
from tilewright.ir.tile import core as t
from tilewright.ir.tile.core import (
    Axis,
    Full,
    Kernel,
    ScalarParam,
    Static,
    TensorParam,
    TileOf,
    TileType,
    const,
    dim,
    make,
)
from tilewright.ir.tile.verify import FORM, RULES, verify
from tilewright.ir.types import ALL_DTYPES, bool_, f32, i32, i64, u32

M, N = dim("M"), dim("N")
I, J = Axis("i", M), Axis("j", N)
X, Y = TensorParam("x", f32, (M, N)), TensorParam("y", f32, (M, N), "out")
H = TensorParam("h", f32, (N,), "accumulate")
IJ = (TileOf(I), TileOf(J))
INDEX_I = make("index", (), TileType(i64, (TileOf(I),)), axis=I)
INDEX_J = make("index", (), TileType(i64, (TileOf(J),)), axis=J)
LOAD = make("load", (INDEX_I, INDEX_J), TileType(f32, IJ), tensor="x", fill=0.0)
ROW = make("fold", (LOAD,), TileType(f32, (TileOf(I),)), axis=1, monoid="sum")
ONE = const(1.0, f32)


def store(value, *index, tensor="y"):
    return make("store", (*(index or (INDEX_I, INDEX_J)), value), None, tensor=tensor)


def par(*effects, axes=(I, J)):
    return make("par", (), None, axes=axes, effects=effects)


PARAMS = (X, ScalarParam("a", f32), Y, H)


def check(*effects, params=PARAMS, axes=(I, J)):
    return verify(Kernel("k", params, (par(*effects, axes=axes),)))


def node(op, args, element, extents=IJ, **attrs):
    return make(op, args, TileType(element, extents), **attrs)


def loop(**changes):
    c = t.carried(LOAD.type, "c")
    attrs = dict(axis=Axis("k", N, "range"), params=(c,), yields=(c,), effects=(), start=None, stop=None)
    return make("loop", (LOAD,), None, **{**attrs, **changes})


def result(of, index=0):
    return make("result", (of,), LOAD.type, index=index)


def test_the_base_is_valid():
    check(store(LOAD), make("scatter", (INDEX_J, node("fold", (LOAD,), f32, IJ[1:], axis=0, monoid="sum")), None,
                            tensor="h", monoid="sum", deterministic=True), store(result(loop())))


def test_generated_kernels_are_valid():
    for seed in range(100):
        verify(generate(random.Random(seed), ALL_DTYPES, smooth=False).kernel)


def test_every_op_has_a_rule():
    assert set(FORM) == set(RULES)


WIDE = Axis("i", N)
CARRIED = t.carried(LOAD.type, "loose")
STATIC = node("broadcast", (ONE,), f32, (Static(6),), shape=(Static(6),), dims=())

BAD_VALUES = {
    "there is no op 'mapp'": node("mapp", (LOAD,), f32),
    "'add' with 1 operands": node("map", (LOAD,), f32, fn="add"),
    "'nope' with 1 operands": node("map", (LOAD,), f32, fn="nope"),
    "has attributes": node("map", (LOAD,), f32, fn="neg", extra=1),
    "with type None": make("map", (LOAD,), None, fn="neg"),
    "takes the value of a 'loop'": node("map", (loop(),), f32, fn="neg"),
    "operands of other shapes": node("map", (LOAD, ROW), f32, fn="add"),
    "operands of different element types": node(
        "map", (LOAD, node("cast", (LOAD,), i32, dtype=i32)), f32, fn="add"),
    "the condition is not bool": node("map", (LOAD, LOAD, LOAD), f32, fn="where"),
    "exp is for floats": node("map", (node("cast", (LOAD,), i32, dtype=i32),), i32, fn="exp"),
    "and is not for floats": node("map", (LOAD, LOAD), f32, fn="and"),
    "add is not for bool": node("map", (node("cast", (LOAD,), bool_, dtype=bool_),) * 2, bool_, fn="add"),
    "the type should be bool": node("map", (LOAD, LOAD), f32, fn="lt"),
    "the type should be i32": node("cast", (LOAD,), f32, dtype=i32),
    "the shape attribute is not": node("broadcast", (ONE,), f32, shape=(), dims=()),
    "dims do not place": node("broadcast", (ROW,), f32, shape=IJ, dims=()),
    "dims leave": node("broadcast", (ROW,), f32, shape=IJ, dims=(2,)),
    "axis of i becomes j": node("broadcast", (ROW,), f32, shape=IJ, dims=(1,)),
    "perm is no order": node("transpose", (LOAD,), f32, perm=(0, 0)),
    "a tile axis is reshaped": node("reshape", (LOAD,), f32, shape=IJ),
    "another number of elements": node("reshape", (STATIC,), f32, (Static(7),), shape=(Static(7),)),
    "only static axes are cut": node("slice", (LOAD,), f32, starts=(0, 0), sizes=(1, 1), steps=(1, 1)),
    "elements outside the axis": node("slice", (STATIC,), f32, (Static(2),), starts=(5,), sizes=(2,), steps=(1,)),
    "there is no tensor 'z'": node("load", (INDEX_I,), f32, IJ[:1], tensor="z", fill=0.0),
    "'x' has 2 dims": node("load", (INDEX_I,), f32, IJ[:1], tensor="x", fill=0.0),
    "an index that is not i64": node("load", (ROW, INDEX_J), f32, tensor="x", fill=0.0),
    "indexes two dims": node("load", (INDEX_I, INDEX_I), f32, (IJ[0], IJ[0]), tensor="x", fill=0.0),
    "a load from 'y', which is an output": node("load", (INDEX_I, INDEX_J), f32, tensor="y", fill=0.0),
    "0 is no f32": node("load", (INDEX_I, INDEX_J), f32, tensor="x", fill=0),
    "operands are not": node("dot", (LOAD, LOAD, LOAD), f32),
    "the operand has no such axis": node("fold", (LOAD,), f32, IJ[:1], axis=2, monoid="sum"),
    "there is no monoid": node("fold", (LOAD,), f32, IJ[:1], axis=1, monoid="mean"),
    "any of f32": node("fold", (LOAD,), f32, IJ[:1], axis=1, monoid="any"),
    "neither argmax nor argmin": node("argfold", (LOAD,), i64, IJ[:1], axis=1, kind="max", last=False),
    "no such scan": node("scan", (LOAD,), f32, axis=1, monoid="any", reverse=False, exclusive=False),
    "seed and counter are not i64": node("rng", (ONE, INDEX_I), u32, IJ[:1], kind="u32"),
    "there are 1 results": result(loop(), 1),
    "neither loop nor if": result(LOAD),
    "yields and yields differ|inits, carried values and yields differ": result(loop(yields=(CARRIED, CARRIED))),
    "is yielded as another type": result(loop(yields=(ROW,))),
    "as a carried value": result(loop(params=(LOAD,), yields=(LOAD,))),
    "two axes are called 'i'": node("index", (), i64, (TileOf(WIDE),), axis=WIDE),
    "limit that is no i64 scalar": result(loop(stop=INDEX_I)),
    "carried 'loose' is used outside": CARRIED,
    "a tile axis has no single position": make("pos", (), TileType(i64), axis=I),
    "iota over a tile axis": node("iota", (), i64, IJ[:1], extent=IJ[0]),
    "there is no scalar parameter 'b'": make("param", (), TileType(f32), name="b"),
    "the type should be f32": make("param", (), TileType(i32), name="a"),
}


@pytest.mark.parametrize("message", BAD_VALUES)
def test_bad_values(message):
    bad = BAD_VALUES[message]
    # Wrapped so that the bad node is what is reported, whatever its type.
    if bad.type is not None and (bad.dtype, bad.shape) == (f32, IJ):
        effect = store(bad)
    else:
        yields = (bad,)
        effect = store(result(make("if", (const(True, bool_),), None, then_yields=(LOAD, *yields),
                                   then_effects=(), else_yields=(LOAD, *yields), else_effects=())))
    with pytest.raises(VerifyError, match=message):
        check(effect)


def test_bad_constants():
    with pytest.raises(VerifyError, match="300 is no i32|1.5 is no i32"):
        check(store(node("broadcast", (make("const", (), TileType(i32), value=1.5),), i32, shape=IJ, dims=())))


def test_bad_effects():
    with pytest.raises(VerifyError, match="'x' is an input"):
        check(store(LOAD, tensor="x"))
    with pytest.raises(VerifyError, match="the type should be f32"):
        check(store(ROW))
    with pytest.raises(VerifyError, match="no accumulate parameter"):
        check(make("scatter", (INDEX_I, INDEX_J, LOAD), None, tensor="y", monoid="sum", deterministic=True))
    with pytest.raises(VerifyError, match="'map' stands in a list of effects"):
        check(node("map", (LOAD,), f32, fn="neg"))
    with pytest.raises(VerifyError, match="'loop' stands in a list of effects"):
        check(loop())
    with pytest.raises(VerifyError, match="par inside another region|'par' stands in a list"):
        check(par(store(LOAD)))
    with pytest.raises(VerifyError, match="in no list of effects"):
        check(store(result(loop(effects=(store(LOAD),)))))


def test_bad_structure():
    with pytest.raises(VerifyError, match="j is used outside"):
        check(store(LOAD), axes=(I,))
    with pytest.raises(VerifyError, match="stands twice"):
        check(store(LOAD), axes=(I, J, J))
    with pytest.raises(VerifyError, match="ordered and cannot run in parallel"):
        check(store(LOAD), axes=(I, J, Axis("r", M, "range")))
    with pytest.raises(VerifyError, match="has no kind"):
        check(store(LOAD), axes=(I, J, Axis("r", M, "odd")))
    with pytest.raises(VerifyError, match="depends on a loop"):
        check(store(LOAD), axes=(I, J, Axis("r", make("pos", (), TileType(i64), axis=Axis("q", M, "single")), "tile")))
    with pytest.raises(VerifyError, match="declared twice"):
        check(store(LOAD), params=(X, X, Y))
    with pytest.raises(VerifyError, match="no role 'inout'"):
        check(store(LOAD), params=(X, TensorParam("y", f32, (M, N), "inout")))
    with pytest.raises(VerifyError, match="only par stands at the top level"):
        verify(Kernel("k", (X, Y), (store(LOAD),)))
    with pytest.raises(VerifyError, match="is no expression of dims"):
        check(store(LOAD), params=(X, TensorParam("y", f32, (M, INDEX_J), "out")))


def test_a_loop_inside_itself():
    k = Axis("k", N, "range")
    outer, inner = t.carried(LOAD.type, "outer"), t.carried(LOAD.type, "inner")
    nested = make("loop", (outer,), None, axis=k, params=(inner,), yields=(inner,), effects=(), start=None, stop=None)
    with pytest.raises(VerifyError, match="a loop over axis 'k' inside a loop over it"):
        check(store(result(loop(axis=k, params=(outer,), yields=(result(nested),)))))


def test_a_shape_that_depends_on_its_own_loop():
    k = Axis("k", N, "range")
    size = make("pos", (), TileType(i64), axis=k)
    zero = node("broadcast", (ONE,), f32, (Full(size),), shape=(Full(size),), dims=())
    c = t.carried(zero.type, "c")
    bad = make("loop", (zero,), None, axis=k, params=(c,), yields=(c,), effects=(), start=None, stop=None)
    total = make("fold", (make("result", (bad,), zero.type, index=0),), TileType(f32), axis=0, monoid="sum")
    with pytest.raises(VerifyError, match="cannot depend on the loop itself"):
        check(store(node("broadcast", (total,), f32, shape=IJ, dims=())))


def test_messages_name_the_node():
    bad = node("map", (LOAD, ROW), f32, fn="add")
    with pytest.raises(VerifyError, match=r"in: f32\(i, j\) = add\(<load f32\(i, j\)>, <fold f32\(i\)>\)"):
        check(store(bad))
