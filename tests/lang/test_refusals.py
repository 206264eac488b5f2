"""What the language refuses: each with its class, the line and caret it points at, and what it advises."""

import numpy as np
import pytest

import tilewright as tw
from tests.lang.support import parse
from tilewright.errors import ArgumentError, DTypeError, LanguageError, ShapeError, TilewrightError

M, N, K = tw.dims("M N K")
X = np.zeros((5, 7), np.float32)
TABLE = [1, 2]


def plain(x):
    return x


@tw.fn
def endless(x):
    return endless(x)


@tw.fn
def wrong(t):
    return t + tw.zeros((3, 3), tw.f32)


HEAD = """
@tw.kernel
def k(x: tw.Tensor[M, N], y: tw.Tensor[N, M], flag: tw.i32, mode: int = 1):
    out = tw.empty_like(x)
    for i, j in tw.tiles(M, N):
        t = x[i, j]
{body}
        out[i, j] = t
    return out
"""

# body of the loop, class, text of the message, text under the caret, part of the hint
IN_LOOP = [
    ("while True:\n    pass", LanguageError, "while is not part", "while True:", "tw.tiles"),
    ("t = [1, 2]", LanguageError, "a list is not part", "[1, 2]", "tuple"),
    ("t = t @ t", LanguageError, "@ is not part", "t @ t", "tw.dot"),
    ("t = f'{t}'", LanguageError, "an f-string", "f'{t}'", "text"),
    ("t = lambda: t", LanguageError, "lambda", "lambda: t", "@tw.fn"),
    ("t = [a for a in (1, 2)]", LanguageError, "list comprehension", "[a for a in (1, 2)]", "for loop"),
    ("import os", LanguageError, "import", "import os", "top of the file"),
    ("try:\n    pass\nfinally:\n    pass", LanguageError, "try", "try:", "tw.where"),
    ("break", LanguageError, "break", "break", "mask"),
    ("def g():\n    pass", LanguageError, "nested def", "def g():", "@tw.fn"),
    ("(t := 1)", LanguageError, "walrus", "t := 1", "own line"),
    ("print(t)", LanguageError, "'print'", "print(t)", "return what you want to see"),
    ("t = sum(t)", LanguageError, "'sum'", "sum(t)", "tw.sum"),
    ("t = plain(t)", LanguageError, "ordinary Python function", "plain", "@tw.fn"),
    ("t = TABLE[0]", LanguageError, "from outside the kernel", "TABLE", "numbers"),
    ("t = X[0]", LanguageError, "is an array from outside", "X", "parameter"),
    ("t = nothing + 1", LanguageError, "'nothing' is used before", "nothing", ""),
    ("t = endless(t)", LanguageError, "calls itself", "endless(x)", "recursion"),
    ("t + 1", LanguageError, "not used", "t + 1", "assign it"),
    ("i = 1", LanguageError, "'i' is a loop variable", "i", "another name"),
    ("x = t", LanguageError, "'x' is a tensor", "x", "another name"),
    ("x[i, j] = t", LanguageError, "is an input and cannot be written", "x[i, j]", "empty_like"),
    ("t = out[i, j]", LanguageError, "cannot be read", "out[i, j]", "write-only"),
    ("out[i, j] += t", LanguageError, "cannot be read", "out[i, j] += t", "scatter_add"),
    ("t[0] = 1", LanguageError, "immutable", "t[0]", "new tile"),
    ("t = x + 1", LanguageError, "without an index", "x + 1", "x[i, j]"),
    ("if t > 0:\n    t = t", LanguageError, "no single truth value", "t > 0", "tw.where"),
    ("if flag:\n    t = t", LanguageError, "used as a condition", "flag", "!= 0"),
    ("t = t and t", LanguageError, "'and' is for single values", "t", "&"),
    ("t = x[i]", ShapeError, "has 2 dims and is indexed with 1", "x[i]", "x[i, :]"),
    ("t = x[-1, j]", LanguageError, "negative", "x[-1, j]", "x.shape[0] - 1"),
    ("t = x[i, i]", ShapeError, "axis i indexes two dims", "x[i, i]", "tw.indices"),
    ("t = x[i, :] + y[j, :]", ShapeError, "tile (i, :N) does not fit tile (j, :M)", "x[i, :] + y[j, :]", ""),
    ("t = t + x[i, :].sum(1)", ShapeError, "does not fit", "t + x[i, :].sum(1)", "[:, None]"),
    ("t = tw.dot(t, t)", ShapeError, "must be the first axis of the second", "tw.dot(t, t)", ""),
    ("t = t + t.to(tw.f16)", DTypeError, "different element types", "t + t.to(tw.f16)", ".to(tw.f32)"),
    ("t = t.to(tw.f16)\nout[i, j] = t", DTypeError, "'out' holds f32", "out[i, j]", ".to(out.dtype)"),
    ("t = t & 1", DTypeError, "for bool and integers", "t & 1", ""),
    ("t = flag + 1.5", DTypeError, "1.5 does not mix with i32", "flag + 1.5", "cast"),
    ("t = flag / flag", DTypeError, "'/' is for floats", "flag / flag", "//"),
    ("t = tw.exp(flag)", DTypeError, "exp is for floats", "tw.exp(flag)", "cast"),
    ("t = tw.exp(t, t)", LanguageError, "tw.exp: too many positional", "tw.exp(t, t)", "e to the x"),
    ("t = t.mean(1)", ShapeError, "belongs to the schedule", "t.mean(1)", "x[i, :]"),
    ("t = t.argmax(1)", ShapeError, "depend on the schedule", "t.argmax(1)", "x[i, :]"),
    ("t = t.sum(2)", ShapeError, "axis 2 does not exist", "t.sum(2)", ""),
    ("t = t.reshape(3)", ShapeError, "belongs to the schedule", "t.reshape(3)", "static"),
    ("t = t.nope", LanguageError, "has no 'nope'", "t.nope", ""),
    ("t = i.size", LanguageError, "belongs to the schedule", "i.size", ""),
    ("t = tw.empty((M,), tw.f32)", LanguageError, "stands before the loops", "tw.empty((M,), tw.f32)", "tw.zeros"),
    ("t = tw.zeros((i, j))", LanguageError, "no dtype", "tw.zeros((i, j))", "tw.f32"),
    ("for r in range(flag):\n    t = t", LanguageError, "known at compile time", "range(flag)", ""),
    ("for r in x:\n    t = t", LanguageError, "a for over the tensor 'x'", "x", "tw.tiles(*x.shape)"),
    ("for m in tw.tiles(M):\n    t = t.to(tw.f16)", DTypeError, "'t' is a f32 tile (i, j) before", "for m",
     ".to(tw.f32)"),
    ("for m in tw.tiles(M):\n    z = t\nt = z", LanguageError, "only inside the loop", "z", "carried"),
    ("if flag > 0:\n    z = t\nt = z", LanguageError, "only inside the branch", "z", "before"),
    ("if flag > 0:\n    t = t.sum(1)", ShapeError, "in one branch", "if flag > 0:", "same type"),
    ("return t", LanguageError, "inside a loop", "return t", "last statement"),
    ("assert mode == 2, 'mode must be 2'", ShapeError, "mode must be 2", "assert mode == 2, 'mode must be 2'", ""),
    ("t: int = 1", LanguageError, "annotations on local names", "t: int = 1", ".to(dtype)"),
    ("a, b = t", LanguageError, "1 value for 2 names", "a, b", ""),
    ("t = i + t", LanguageError, "a tile index meets", "i + t", "i.index"),
    ("t = mode.foo", LanguageError, "has no 'foo'", "mode.foo", ""),
    ("t = tw.nothing(t)", LanguageError, "has no 'nothing'", "tw.nothing", ""),
    ("tw.scatter_add(out, i, j, t)", LanguageError, "does not start from zero", "tw.scatter_add(out, i, j, t)",
     "tw.zeros"),
    ("t = tw.tiles(M)", LanguageError, "stands outside a for", "tw.tiles(M)", "for i in"),
]


def make(tmp_path, source):
    """Defines the kernel in a file, so that its source can be read."""
    import linecache

    path = tmp_path / "kernel_under_test.py"
    path.write_text(source)
    linecache.checkcache(str(path))
    names = dict(globals())
    exec(compile(source, str(path), "exec"), names)
    return names["k"].fn


@pytest.mark.parametrize("body,kind,text,caret,hint", IN_LOOP, ids=[c[0].split("\n")[0] for c in IN_LOOP])
def test_refused_in_a_loop(tmp_path, body, kind, text, caret, hint):
    indented = "\n".join("        " + line for line in body.split("\n"))
    fn = make(tmp_path, HEAD.format(body=indented))
    with pytest.raises(kind) as caught:
        parse(fn, X, X.T.copy(), np.int32(1))
    message = str(caught.value)
    assert text in caught.value.message
    assert hint in (caught.value.hint or "")
    lines = message.split("\n")
    at = next(n for n, line in enumerate(lines) if line.strip() and set(line.strip()) == {"^"})
    start = lines[at].index("^")
    under = lines[at - 1][start: start + len(lines[at].strip())]
    assert under == caret or (under and caret.startswith(under[:1]) and caret in lines[at - 1]), (under, caret)


def refused(kind, fn, *args, **options):
    with pytest.raises(kind) as caught:
        parse(fn, *args, **options)
    return str(caught.value)


def test_errors_in_helpers_show_the_call_too():
    def k(x: tw.Tensor[M, N]):
        out = tw.empty_like(x)
        for i, j in tw.tiles(M, N):
            out[i, j] = wrong(x[i, j])
        return out

    message = refused(ShapeError, k, X)
    assert "return t + tw.zeros((3, 3), tw.f32)" in message and "inlined" in message and "wrong(x[i, j])" in message


def test_dims_that_disagree_name_both_places():
    def k(x: tw.Tensor[M, K], w: tw.Tensor[K, N]):
        out = tw.empty((M, N), x.dtype)
        return out

    message = refused(ShapeError, k, X, X)
    assert "dim K is 7 by axis 1 of 'x' but 5 by axis 0 of 'w'" in message
    assert "'x' has rank 1" in refused(ShapeError, k, X[0], X)
    with pytest.raises(ArgumentError):
        parse(k, X)


def test_signatures():
    def untyped(x):
        return x

    def odd(x: list):
        return x

    def half(x: tw.Tensor[M, tw.f16]):
        return x

    def many(*x: tw.Tensor):
        return x

    assert "has no annotation" in refused(LanguageError, untyped, X)
    assert "kernels do not know" in refused(LanguageError, odd, X)
    assert "its signature says f16" in refused(DTypeError, half, X[0])
    assert "variable number" in refused(LanguageError, many)
    assert "a lambda cannot" in refused(LanguageError, lambda x: x)
    with pytest.raises(LanguageError, match="takes dims"):
        tw.Tensor["M"]
    with pytest.raises(LanguageError, match="inside kernels only"):
        tw.exp(1.0)
    with pytest.raises(LanguageError, match="inside kernels only"):
        wrong(1)


def test_what_stands_at_the_top_level():
    def carried(x: tw.Tensor[M]):
        out = tw.empty_like(x)
        s = 0.0
        for i in tw.tiles(M):
            s = s + x[i].sum()
            out[i] = s
        return out

    def stored(x: tw.Tensor[M]):
        out = tw.empty_like(x)
        out[0] = 1.0
        return out

    def unwritten(x: tw.Tensor[M]):
        out = tw.empty_like(x)
        return out

    def unreturned(x: tw.Tensor[M]):
        out, _spare = tw.zeros_like(x), tw.zeros_like(x)
        return out

    def returns_input(x: tw.Tensor[M]):
        return x

    def returns_nothing(x: tw.Tensor[M]):
        out = tw.zeros_like(x)
        out

    def idle(x: tw.Tensor[M]):
        out = tw.zeros_like(x)
        for _i in tw.tiles(M):
            pass
        return out

    def stranger(x: tw.Tensor[M]):
        out = tw.zeros((K,), tw.f32)
        return out

    x = X[0]
    assert "unordered" in refused(LanguageError, carried, x)
    assert "outside every loop" in refused(LanguageError, stored, x)
    assert "never written" in refused(LanguageError, unwritten, x)
    assert "'_spare' is not returned" in refused(LanguageError, unreturned, x)
    assert "returns the tensor 'x'" in refused(LanguageError, returns_input, x)
    assert "stores nothing" in refused(LanguageError, idle, x)
    assert "not a dim of this kernel" in refused(LanguageError, stranger, x)
    assert issubclass(LanguageError, TilewrightError)
    refused(LanguageError, returns_nothing, x)
