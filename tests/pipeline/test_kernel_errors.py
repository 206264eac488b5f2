"""Wrong calls: one clear sentence of an error of Tilewright's own, naming what does not fit, and nothing has run."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import tilewright as tw
from tests.pipeline.support import check_case
from tilewright import errors

M, N, K = tw.dims("M N K")


@tw.kernel
def product(x: tw.Tensor[M, K], w: tw.Tensor[K, N], bias: tw.Tensor[N, tw.f32], a: tw.f32 = 1.0, twice: bool = False):
    out = tw.empty((M, N), x.dtype)
    for i, j in tw.tiles(M, N):
        t = tw.dot(x[i, :], w[:, j]) * a + bias[j]
        out[i, j] = t * 2 if twice else t
    return out


@tw.kernel
def fixed(x: tw.Tensor[M, 4], n: int, kind: str = "a"):
    out = tw.empty((M, n), x.dtype)
    for i in tw.tiles(M):
        out[i, :] = x[i, :n]
    return out


@tw.kernel
def halves(x: tw.Tensor[2 * N], y: tw.Tensor[N]):
    out = tw.empty_like(y)
    for i in tw.tiles(N):
        out[i] = x[i] + x[i + N] + y[i]
    return out


def f(*shape, dtype=np.float32):
    return np.ones(shape, dtype)


CALLS = {
    "rank": (product, (f(3), f(4, 5), f(5)), {}, errors.ShapeError, ("'x' has rank 1", "rank 2")),
    "rank of a scalar": (product, (f(3, 4), f(), f(5)), {}, errors.ShapeError, ("'w' has rank 0",)),
    "dims differ": (product, (f(3, 4), f(5, 6), f(6)), {}, errors.ShapeError,
                    ("dim K is 4", "axis 1 of 'x'", "5 by axis 0 of 'w'")),
    "dims differ later": (product, (f(3, 4), f(4, 6), f(7)), {}, errors.ShapeError,
                          ("dim N is 6", "axis 1 of 'w'", "7 by axis 0 of 'bias'")),
    "element type": (product, (f(3, 4), f(4, 5), f(5, dtype=np.float64)), {}, errors.DTypeError,
                     ("'bias' holds f64", "f32")),
    "element types of a product": (product, (f(3, 4), f(4, 5, dtype=np.float64), f(5)), {}, errors.DTypeError,
                                   ("f32", "f64")),
    "no such element type": (product, (f(3, 4, dtype=np.complex64), f(4, 5), f(5)), {}, errors.DTypeError,
                             ("'x'", "complex64")),
    "objects": (product, (np.array([[None]]), f(4, 5), f(5)), {}, errors.DTypeError, ("'x'", "object")),
    "other byte order": (halves, (f(4, dtype=">c8"), f(2)), {}, errors.DTypeError, ("'x'",)),
    "a list": (product, ([[1.0]], f(4, 5), f(5)), {}, errors.ArgumentError, ("'x' is a tensor", "list", "numpy.array")),
    "a number for a tensor": (product, (3.0, f(4, 5), f(5)), {}, errors.ArgumentError, ("'x' is a tensor", "float")),
    "nothing for a tensor": (product, (None, f(4, 5), f(5)), {}, errors.ArgumentError, ("'x' is a tensor", "NoneType")),
    "a text for a scalar": (product, (f(3, 4), f(4, 5), f(5), "2"), {}, errors.DTypeError,
                            ("'a' is a scalar of type f32", "'2'")),
    "an array for a scalar": (product, (f(3, 4), f(4, 5), f(5), f(2)), {}, errors.DTypeError,
                              ("'a' is a scalar of type f32",)),
    "a static value of another type": (product, (f(3, 4), f(4, 5), f(5), 1.0, 3.5), {}, errors.ArgumentError,
                                       ("'twice'", "bool", "float")),
    "unknown static": (product, (f(3, 4), f(4, 5), f(5)), {"thrice": True}, errors.ArgumentError,
                       ("no parameter 'thrice'", "twice")),
    "missing": (product, (f(3, 4), f(4, 5)), {}, errors.ArgumentError, ("no value for parameter 'bias'",)),
    "too many": (product, (f(3, 4), f(4, 5), f(5), 1.0, True, 7), {}, errors.ArgumentError,
                 ("takes 5 arguments, not 6",)),
    "given twice": (product, (f(3, 4), f(4, 5), f(5)), {"x": f(3, 4)}, errors.ArgumentError, ("'x' is given twice",)),
    "a fixed dim": (fixed, (f(3, 5), 2), {}, errors.ShapeError, ("axis 1 of 'x'", "size 5", "4")),
    "an odd size": (halves, (f(5), f(2)), {}, errors.ShapeError, ("axis 0 of 'x'", "5")),
    "unlike halves": (halves, (f(6), f(2)), {}, errors.ShapeError, ("axis 0 of 'x'", "6", "4")),
    "a text kind": (fixed, (f(3, 4), 2, 3), {}, errors.ArgumentError, ("'kind'", "str", "int")),
}


@pytest.mark.parametrize("name", CALLS)
def test_wrong_calls(name):
    kernel, args, options, kind, wanted = CALLS[name]
    with pytest.raises(kind) as caught:
        kernel(*args, **options)
    text = str(caught.value)
    assert all(w in text for w in wanted), text
    assert "Traceback" not in text and "\n\n" not in text
    assert re.search(r"test_kernel_errors\.py:\d+", text), f"no place in: {text}"


def test_a_right_call_after_wrong_ones():
    for kernel, args, options, _, _ in CALLS.values():
        with pytest.raises(errors.TilewrightError):
            kernel(*args, **options)
    assert np.allclose(product(f(3, 4), f(4, 5), f(5), twice=True), 10.0)
    assert np.allclose(halves(f(4), f(2)), 3.0)


def test_scalars_out_of_range():
    @tw.kernel
    def shift(x: tw.Tensor[N], by: tw.i8):
        out = tw.empty_like(x)
        for i in tw.tiles(N):
            out[i] = x[i] + by.to(x.dtype)
        return out

    assert np.allclose(shift(f(3), 127), 128.0)
    for value in (128, -129, 1.5, math.nan, True, None, 2**70):
        with pytest.raises((errors.ArgumentError, errors.DTypeError), match="'by'"):
            shift(f(3), value)


def test_torch_and_numpy_together():
    torch = pytest.importorskip("torch")
    mixed = product(torch.ones(3, 4), f(4, 5), f(5))
    assert isinstance(mixed, torch.Tensor) and torch.allclose(mixed, torch.full((3, 5), 5.0))
    other = product(f(3, 4), torch.ones(4, 5), torch.ones(5))
    assert isinstance(other, np.ndarray) and np.allclose(other, 5.0)
    with pytest.raises(errors.TilewrightError, match="'x'"):
        product(torch.ones(3, 4, dtype=torch.complex64), f(4, 5), f(5))
    with pytest.raises(errors.TilewrightError, match="'x'"):
        product(torch.ones(3, 4, device="meta"), f(4, 5), f(5))
    with pytest.raises(errors.ShapeError, match="dim K"):
        product(torch.ones(3, 4), f(5, 5), f(5))


def test_illegal_schedules_are_refused_before_compiling():
    from dataclasses import replace

    from tests.generators import Case
    from tilewright.passes.lower import lower
    from tilewright.schedule.facts import Facts, Layout
    from tilewright.schedule.first import first_schedule
    from tilewright.targets.llvm.description import host_description

    args = (f(3, 4), f(4, 5), f(5), 1.0)
    kernel = product.tile_ir(*args)
    target = host_description()
    facts = Facts((("M", 3), ("K", 4), ("N", 5)), frozenset(),
                  tuple((p.name, Layout.row_major(p.rank)) for p in kernel.tensors))
    good = first_schedule(kernel, facts, target)
    (plan,) = good.dots
    wrong = {
        "tile size": replace(good, tiles=(("i", 0), ("j", 4))),
        "no tile size": replace(good, tiles=(("i", 4),)),
        "register": replace(good, dots=(replace(plan, rows=40, cols=64),)),
        "bits": replace(good, vector_bits=target.vector_bits * 2),
        "at least 1": replace(good, dots=(replace(plan, depth=0),)),
        "product": replace(good, dots=()),
    }
    for words, schedule in wrong.items():
        with pytest.raises(errors.ScheduleError, match=words):
            lower(kernel, schedule, facts, target)
    case = Case(kernel, {"M": 3, "K": 4, "N": 5}, dict(zip(("x", "w", "bias"), args)), {"a": 1.0})
    check_case(case, 1, [target])
