"""Recurrent layers (ONNX's meaning of them): lstm, gru, rnn.

x is [T, N, I] (`time_first`) or [N, T, I]; w [D, gates*H, I], r [D, gates*H, H], b [D, 2*gates*H] (input biases, then
recurrent ones), initial states [D, N, H] ([N, D, H] unless time_first). D is 2 for `bidirectional`. Results: every
state [T, D, N, H] ([N, T, D, H]), and the last states in the layout of the initial ones. Gates: lstm i, o, f, c;
gru z, r, h.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .core import TensorType
from .dims import Dim, differ
from .op_spec import Array, Attrs, Reference, Site, define
from .spec_elementwise import sigmoid, softplus

GATES = {"lstm": 4, "gru": 3, "rnn": 1}
DEFAULT_ACTIVATIONS = {"lstm": ("sigmoid", "tanh", "tanh"), "gru": ("sigmoid", "tanh"), "rnn": ("tanh",)}
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "sigmoid": sigmoid,
    "tanh": np.tanh,
    "relu": lambda x: np.asarray(np.maximum(x, 0)),
    "softplus": softplus,
    "softsign": lambda x: np.asarray(x / (1 + np.abs(x))),
}


def _fill(op: str) -> Callable[[Sequence[TensorType | None], dict[str, Any]], dict[str, Any]]:
    def fill(types: Sequence[TensorType | None], attrs: dict[str, Any]) -> dict[str, Any]:
        directions = 2 if attrs["direction"] == "bidirectional" else 1
        return attrs | {"activations": tuple(attrs["activations"]) or DEFAULT_ACTIVATIONS[op] * directions}

    return fill


def _infer(site: Site) -> tuple[TensorType, ...]:
    gates, hidden, a = GATES[site.op], site.attrs["hidden"], site.attrs
    dtype = site.same_dtype()
    site.need_kind(0, "f", "a floating-point operand")
    x = site.need_rank(0, 3)
    time, batch = x.shape[:2] if a["time_first"] else x.shape[1::-1]
    d = 2 if a["direction"] == "bidirectional" else 1
    state: tuple[Dim, ...] = (d, batch, hidden) if a["time_first"] else (batch, d, hidden)
    wanted: list[tuple[int, tuple[Dim, ...]]] = [
        (1, (d, gates * hidden, x.shape[2])),
        (2, (d, gates * hidden, hidden)),
        (3, (d, 2 * gates * hidden)),
        (4, state),
    ]
    if site.op == "lstm":
        wanted.append((5, state))
    for index, shape in wanted:
        t = site.optional(index)
        if t is not None and (t.rank != len(shape) or any(differ(p, q) for p, q in zip(t.shape, shape, strict=True))):
            site.shape_error(f"{site.operand(index)} must have shape [{', '.join(map(str, shape))}]")
    names = a["activations"]
    if len(names) != len(DEFAULT_ACTIVATIONS[site.op]) * d or any(n not in ACTIVATIONS for n in names):
        site.argument_error(
            f"activations {names} must be {len(DEFAULT_ACTIVATIONS[site.op]) * d} of {', '.join(ACTIVATIONS)}"
        )
    every: tuple[Dim, ...] = (time, d, batch, hidden) if a["time_first"] else (batch, time, d, hidden)
    last = TensorType(dtype, state)
    return (TensorType(dtype, every), last, last) if site.op == "lstm" else (TensorType(dtype, every), last)


def _lstm_step(x: Array, h: Array, c: Array, w: Array, r: Array, b: Array, act: Any, _: Attrs) -> tuple[Array, Array]:
    i, o, f, g = np.split(x @ w.T + h @ r.T + b[: w.shape[0]] + b[w.shape[0] :], 4, axis=-1)
    c = act[0](f) * c + act[0](i) * act[1](g)
    return act[0](o) * act[2](c), c


def _gru_step(x: Array, h: Array, c: Array, w: Array, r: Array, b: Array, act: Any, a: Attrs) -> tuple[Array, Array]:
    n = h.shape[-1]
    xs, bias = x @ w.T + b[: 3 * n], b[3 * n :]
    rec = h @ r[: 2 * n].T + bias[: 2 * n]
    z, reset = act[0](xs[:, :n] + rec[:, :n]), act[0](xs[:, n : 2 * n] + rec[:, n:])
    if a["linear_before_reset"]:
        new = act[1](xs[:, 2 * n :] + reset * (h @ r[2 * n :].T + bias[2 * n :]))
    else:
        new = act[1](xs[:, 2 * n :] + (reset * h) @ r[2 * n :].T + bias[2 * n :])
    return (1 - z) * new + z * h, c


def _rnn_step(x: Array, h: Array, c: Array, w: Array, r: Array, b: Array, act: Any, _: Attrs) -> tuple[Array, Array]:
    return act[0](x @ w.T + h @ r.T + b[: w.shape[0]] + b[w.shape[0] :]), c


_STEP: dict[str, Callable[..., tuple[Array, Array]]] = {"lstm": _lstm_step, "gru": _gru_step, "rnn": _rnn_step}


def _reference(op: str) -> Reference:
    def reference(xs: Sequence[Any], a: Attrs) -> tuple[Array, ...]:
        x, w, r, b, h0, c0 = [*xs, None, None, None][:6]
        if not a["time_first"]:
            x = np.swapaxes(x, 0, 1)
            h0, c0 = (None if s is None else np.swapaxes(s, 0, 1) for s in (h0, c0))
        steps, n, d, hidden = x.shape[0], x.shape[1], w.shape[0], a["hidden"]
        b = np.zeros((d, 2 * w.shape[1]), x.dtype) if b is None else b
        h0 = np.zeros((d, n, hidden), x.dtype) if h0 is None else h0
        c0 = np.zeros((d, n, hidden), x.dtype) if c0 is None else c0
        every = np.zeros((steps, d, n, hidden), x.dtype)
        last_h, last_c = np.array(h0), np.array(c0)
        per = len(DEFAULT_ACTIVATIONS[op])
        for k in range(d):
            act = [ACTIVATIONS[name] for name in a["activations"][k * per : (k + 1) * per]]
            backwards = a["direction"] == "reverse" or k == 1
            for t in reversed(range(steps)) if backwards else range(steps):
                last_h[k], last_c[k] = _STEP[op](x[t], last_h[k], last_c[k], w[k], r[k], b[k], act, a)
                every[t, k] = last_h[k]
        if not a["time_first"]:
            every = every.transpose(2, 0, 1, 3)
            last_h, last_c = np.swapaxes(last_h, 0, 1), np.swapaxes(last_c, 0, 1)
        return (every, last_h, last_c) if op == "lstm" else (every, last_h)

    return reference


_ATTRS = "hidden:int direction:forward|reverse|bidirectional=forward time_first:bool=True activations:strs=()"
for _op, _operands, _extra, _doc in (
    ("lstm", "x w r b? h0? c0?", "", "long short-term memory: every state, the last state, the last cell"),
    ("gru", "x w r b? h0?", " linear_before_reset:bool=False", "gated recurrent unit: every state, the last state"),
    ("rnn", "x w r b? h0?", "", "plain recurrence: every state, the last state"),
):
    define(
        _op,
        _operands,
        _ATTRS + _extra,
        infer=_infer,
        reference=_reference(_op),
        doc=_doc,
        composite=True,
        normalise=_fill(_op),
    )
