"""The example kernels: right in the oracle, and as short as promised."""

import ast
import inspect
import textwrap

import numpy as np
import pytest

from examples import kernels
from tests.lang.support import outputs, parse
from tilewright.ir.tile.rewrite import bind_dims, dim_names

CASES = list(kernels.cases(np.random.default_rng(1)))


def logical_lines(fn):
    """Statements, the def and its decorators; docstrings do not count."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(fn))).body[0]
    statements = [n for n in ast.walk(tree) if isinstance(n, ast.stmt)]
    texts = [n for n in statements if isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant)]
    return len(statements) - len(texts) + len(tree.decorator_list)


@pytest.mark.parametrize("kernel,reference,arrays,options", CASES, ids=[c[0].__name__ for c in CASES])
@pytest.mark.parametrize("tile", [1, 7, 64])
def test_examples_in_the_oracle(kernel, reference, arrays, options, tile):
    if tile == 1:  # tiny tiles on a corner of the input are enough
        arrays = tuple(a if kernel.__name__ == "conv2d" else a[tuple(slice(0, 6) for _ in a.shape)] for a in arrays)
    if tile == 1 and kernel.__name__ in ("conv2d", "attention"):
        tile = 3
    got = outputs(kernel.fn, *arrays, tile=tile, **options)
    want = reference(*(a.astype(np.float64) for a in arrays), **options)
    assert np.linalg.norm(got - want) <= 1e-5 * np.linalg.norm(want)


def test_lengths():
    counts = {k: logical_lines(getattr(kernels, k).fn) for k in
              ("linear_relu", "conv2d", "softmax", "layer_norm", "attention")}
    assert sum(counts.values()) <= 70, counts
    assert counts["linear_relu"] <= 10 and counts["attention"] <= 25 and counts["layer_norm"] <= 8, counts


def test_dims_bound_to_numbers_disappear():
    kernel, _, arrays, options = CASES[0]
    parsed = parse(kernel.fn, *arrays, **options)
    bound = bind_dims(parsed.kernel, {"K": 70, "N": 33})
    assert dim_names(parsed.kernel) == ("M", "K", "N") and dim_names(bound) == ("M",)
