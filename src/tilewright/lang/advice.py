"""What to say to Python that the kernel language does not have: construct -> (its name, what to write instead)."""

from __future__ import annotations

import ast

CONSTRUCTS: dict[type[ast.AST], tuple[str, str]] = {
    ast.While: ("while", "loop over tw.tiles(...), tw.indices(...) or range(...) with a known number of turns"),
    ast.Try: ("try", "kernels raise nothing: guard with tw.where or if"),
    ast.Raise: ("raise", "check arguments before the call, or write assert on static facts"),
    ast.With: ("with", "tiles need no resources to be opened; remove it"),
    ast.Delete: ("del", "values need no clean-up; remove it"),
    ast.Global: ("global", "return results as tensors"),
    ast.Nonlocal: ("nonlocal", "return results as tensors"),
    ast.Import: ("import", "import at the top of the file"),
    ast.ImportFrom: ("import", "import at the top of the file"),
    ast.FunctionDef: ("a nested def", "move it out of the kernel and decorate it with @tw.fn"),
    ast.AsyncFunctionDef: ("async def", "kernels are plain functions"),
    ast.ClassDef: ("class", "move it out of the kernel"),
    ast.Lambda: ("lambda", "write a function decorated with @tw.fn"),
    ast.ListComp: ("a list comprehension", "write a for loop, or elementwise operations on tiles"),
    ast.SetComp: ("a set comprehension", "write a for loop, or elementwise operations on tiles"),
    ast.DictComp: ("a dict comprehension", "write a for loop, or elementwise operations on tiles"),
    ast.GeneratorExp: ("a generator", "write a for loop, or a reduction such as tw.sum"),
    ast.List: ("a list", "use a tuple for static values, a tile for numbers"),
    ast.Set: ("a set", "use a tuple for static values"),
    ast.Dict: ("a dict", "use names or a tuple"),
    ast.JoinedStr: ("an f-string", "kernels make no text; print around the call"),
    ast.Yield: ("yield", "store results into an output tensor"),
    ast.YieldFrom: ("yield from", "store results into an output tensor"),
    ast.Await: ("await", "kernels are plain functions"),
    ast.AsyncFor: ("async for", "write a plain for"),
    ast.AsyncWith: ("async with", "remove it"),
    ast.NamedExpr: ("the walrus :=", "assign on its own line"),
    ast.Match: ("match", "write if / elif on static values"),
    ast.Break: ("break", "loops run to their end: mask with tw.where, or shorten the loop's range"),
    ast.Continue: ("continue", "loops run every turn: put the rest under if, or mask with tw.where"),
    ast.Starred: ("a starred value", "write the values out; tw.tiles(*x.shape) and x[*idx] are the exceptions"),
    ast.MatMult: ("@", "write tw.dot(a, b): it says what it accumulates in"),
    ast.Is: ("is", "compare values with ==; 'is None' works on static parameters"),
    ast.In: ("in", "compare values one by one"),
    ast.NotIn: ("not in", "compare values one by one"),
}

BUILTINS: dict[str, str] = {
    "print": "kernels print nothing: return what you want to see, or run kernel.reference(...)",
    "sum": "write tw.sum(x, axis)",
    "any": "write tw.any(x, axis)",
    "all": "write tw.all(x, axis)",
    "round": "write tw.round(x)",
    "pow": "write x ** y",
    "enumerate": "loop over tw.tiles or range; positions are the loop variables",
    "zip": "loop over tw.tiles or range and index both",
    "reversed": "write range(n - 1, -1, -1)",
    "map": "apply operators to whole tiles",
    "list": "use a tuple for static values, a tile for numbers",
    "sorted": "sorting is not part of the kernel language",
    "open": "kernels read and write tensors only",
    "isinstance": "types are known when the kernel is parsed: compare x.dtype with a dtype",
    "divmod": "write // and %",
}


def construct(node: ast.AST) -> tuple[str, str]:
    """The name of a refused construct and the advice that goes with it."""
    known = CONSTRUCTS.get(type(node))
    if known is not None:
        return known
    return type(node).__name__, "the kernel language has assignments, for, if, return, expressions on tiles and tw.*"
