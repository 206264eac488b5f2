"""The names users write as `tw.<name>` inside kernels. Their meaning is in `elementwise`, `reductions` and `making`."""

from __future__ import annotations

from .values import Intrinsic

_UNARY = {
    "exp": "e to the x", "exp2": "2 to the x", "expm1": "exp(x) - 1, exact near 0", "log": "natural logarithm",
    "log2": "logarithm to base 2", "log1p": "log(1 + x), exact near 0", "sqrt": "square root",
    "rsqrt": "1 / sqrt(x)", "recip": "1 / x", "sin": "sine", "cos": "cosine", "tan": "tangent", "asin": "arc sine",
    "acos": "arc cosine", "atan": "arc tangent", "sinh": "hyperbolic sine", "cosh": "hyperbolic cosine",
    "tanh": "hyperbolic tangent", "erf": "error function", "sigmoid": "1 / (1 + exp(-x))",
    "floor": "round down", "ceil": "round up", "round": "round half to even", "trunc": "round toward zero",
    "isnan": "is NaN (bool)", "isinf": "is infinite (bool)", "abs": "absolute value", "sign": "-1, 0 or 1",
    "square": "x * x", "neg": "-x",
    "relu": "max(x, 0)", "relu6": "min(max(x, 0), 6)", "gelu": "x * Phi(x), by erf", "gelu_tanh": "GELU by tanh",
    "silu": "x * sigmoid(x)", "softplus": "log(1 + exp(x)), without overflow", "softsign": "x / (1 + |x|)",
    "mish": "x * tanh(softplus(x))", "hard_sigmoid": "clip(x / 6 + 1/2, 0, 1)", "hard_swish": "x * hard_sigmoid(x)",
    "logical_not": "not x, for bool", "isfinite": "neither NaN nor infinite (bool)",
}
_BINARY = {
    "maximum": "larger of two, NaN wins", "minimum": "smaller of two, NaN wins", "atan2": "angle of (x, y)",
    "pow": "x to the y", "fmod": "remainder with the sign of x", "tdiv": "integer quotient rounded toward zero",
    "floordiv": "quotient rounded down", "mod": "remainder with the sign of y",
}
_OTHER = {
    "where": "where(cond, a, b): a where cond, else b", "fma": "fma(a, b, c): a * b + c, rounded once",
    "clip": "clip(x, low, high)", "leaky_relu": "leaky_relu(x, alpha=0.01)", "elu": "elu(x, alpha=1.0)",
    "cast": "cast(x, dtype): saturates from float to int",
    "sum": "sum(x, axis=None, keepdims=False, dtype=None)", "prod": "prod(x, axis=None, keepdims=False, dtype=None)",
    "max": "max(x, axis=None, keepdims=False): NaN wins", "min": "min(x, axis=None, keepdims=False): NaN wins",
    "mean": "mean(x, axis=None, keepdims=False, dtype=None)", "any": "any(x, axis=None, keepdims=False)",
    "all": "all(x, axis=None, keepdims=False)", "argmax": "argmax(x, axis, keepdims=False) -> i64",
    "argmin": "argmin(x, axis, keepdims=False) -> i64",
    "cumsum": "cumsum(x, axis, reverse=False, exclusive=False)",
    "cumprod": "cumprod(x, axis, reverse=False, exclusive=False)",
    "empty": "empty(shape, dtype): a new output tensor", "zeros": "zeros(shape, dtype): a tile, or an output tensor",
    "full": "full(shape, value, dtype): a tile, or an output tensor",
    "empty_like": "empty_like(x): an output with x's shape and dtype", "zeros_like": "zeros_like(x)",
    "arange": "arange(n): 0, 1, ... as an i64 tile",
    "dot": "dot(a, b, acc=None, dtype=None): matrix product; accumulates f32 (f64 for f64, i32 for small ints)",
    "transpose": "transpose(x, *axes)", "reshape": "reshape(x, shape)", "broadcast_to": "broadcast_to(x, shape)",
    "load": "load(x, *index, fill=0): a tile that reads `fill` outside the tensor",
    "scatter_add": "scatter_add(out, *index, value, deterministic=True)",
    "random_bits": "random_bits(seed, counter) -> u32", "random_uniform": "random_uniform(seed, counter) -> f32",
    "tiles": "tiles(M, N): loop over tiles of dims", "indices": "indices(B, P): loop over single positions",
}

UNARY = frozenset(_UNARY)
INTRINSICS: dict[str, Intrinsic] = {k: Intrinsic(k, v) for k, v in {**_UNARY, **_BINARY, **_OTHER}.items()}

#: Methods of tiles: x.sum(1) is tw.sum(x, 1).
METHODS = frozenset({
    "sum", "prod", "max", "min", "mean", "any", "all", "argmax", "argmin", "cumsum", "cumprod", "transpose", "reshape",
    "abs", "exp", "sqrt",
})
