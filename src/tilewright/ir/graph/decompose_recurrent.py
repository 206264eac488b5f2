"""Recurrent layers unrolled over a static number of steps. The products of all inputs are one matmul ahead of time."""

from __future__ import annotations

from collections.abc import Callable

from . import build as b
from .core import Node, Value
from .decompose_elementwise import in_f32, operands
from .op_spec import decomposition
from .spec_recurrent import DEFAULT_ACTIVATIONS, GATES

_ACTIVATIONS: dict[str, Callable[[Value], Value]] = {
    "sigmoid": b.sigmoid,
    "tanh": b.tanh,
    "relu": b.relu,
    "softplus": b.softplus,
    "softsign": b.softsign,
}


def _part(x: Value, axis: int, start: int, stop: int) -> Value:
    return b.slice_axis(x, axis, start, stop)


def _direction(x: Value, k: int) -> Value:
    """Entry k of the leading axis."""
    return b.squeeze(_part(x, 0, k, k + 1), [0])


@decomposition("lstm", "gru", "rnn")
@in_f32
def _(node: Node) -> tuple[Value, ...] | None:
    x, w, r, bias, h0, c0 = operands(node, 6)
    assert x is not None and w is not None and r is not None
    time_first, hidden, gates = node.attr("time_first"), node.attr("hidden"), GATES[node.op]
    if not time_first:
        x = b.transpose(x, (1, 0, 2))
        h0, c0 = (None if s is None else b.transpose(s, (1, 0, 2)) for s in (h0, c0))
    steps, batch, width = x.shape
    directions = w.shape[0]
    if not isinstance(steps, int) or not isinstance(directions, int) or steps == 0:
        return None
    per = len(DEFAULT_ACTIVATIONS[node.op])
    every: list[list[Value]] = []
    last_h, last_c = [], []
    zero = b.broadcast(b.like(x, 0), (batch, hidden))
    for k in range(directions):
        act = [_ACTIVATIONS[a] for a in node.attr("activations")[k * per : (k + 1) * per]]
        wk, rk = b.transpose(_direction(w, k), (1, 0)), b.transpose(_direction(r, k), (1, 0))
        ahead = b.matmul(b.reshape(x, (steps * batch, width)), wk)
        rec_bias = None
        if bias is not None:
            bk = _direction(bias, k)
            ahead = b.add(ahead, _part(bk, 0, 0, gates * hidden))
            rec_bias = _part(bk, 0, gates * hidden, 2 * gates * hidden)
        ahead = b.reshape(ahead, (steps, batch, gates * hidden))
        h = zero if h0 is None else _direction(h0, k)
        c = zero if c0 is None else _direction(c0, k)
        backwards = node.attr("direction") == "reverse" or k == 1
        states: dict[int, Value] = {}
        for t in reversed(range(steps)) if backwards else range(steps):
            h, c = _STEP[node.op](_direction(ahead, t), h, c, rk, rec_bias, act, node)
            states[t] = h
        every.append([states[t] for t in range(steps)])
        last_h.append(h)
        last_c.append(c)
    stacked = [b.concat([b.unsqueeze(d[t], [0, 1]) for d in every], 1) for t in range(steps)]
    out = b.concat(stacked, 0)
    h_out, c_out = (b.concat([b.unsqueeze(s, [0]) for s in states_], 0) for states_ in (last_h, last_c))
    if not time_first:
        out = b.transpose(out, (2, 0, 1, 3))
        h_out, c_out = (b.transpose(s, (1, 0, 2)) for s in (h_out, c_out))
    return (out, h_out, c_out) if node.op == "lstm" else (out, h_out)


def _gate(x: Value, k: int, hidden: int) -> Value:
    return _part(x, 1, k * hidden, (k + 1) * hidden)


def _plus(x: Value, bias: Value | None) -> Value:
    return x if bias is None else b.add(x, bias)


def _lstm(
    x: Value, h: Value, c: Value, r: Value, bias: Value | None, act: list[Callable[[Value], Value]], node: Node
) -> tuple[Value, Value]:
    n = node.attr("hidden")
    total = _plus(b.add(x, b.matmul(h, r)), bias)
    i, o, f, g = (_gate(total, k, n) for k in range(4))
    c = b.add(b.mul(act[0](f), c), b.mul(act[0](i), act[1](g)))
    return b.mul(act[0](o), act[2](c)), c


def _gru(
    x: Value, h: Value, c: Value, r: Value, bias: Value | None, act: list[Callable[[Value], Value]], node: Node
) -> tuple[Value, Value]:
    n = node.attr("hidden")
    two = _plus(b.matmul(h, _part(r, 1, 0, 2 * n)), None if bias is None else _part(bias, 0, 0, 2 * n))
    rc, bc = _part(r, 1, 2 * n, 3 * n), None if bias is None else _part(bias, 0, 2 * n, 3 * n)
    z = act[0](b.add(_gate(x, 0, n), _gate(two, 0, n)))
    reset = act[0](b.add(_gate(x, 1, n), _gate(two, 1, n)))
    if node.attr("linear_before_reset"):
        rec = b.mul(reset, _plus(b.matmul(h, rc), bc))
    else:
        rec = _plus(b.matmul(b.mul(reset, h), rc), bc)
    new = act[1](b.add(_gate(x, 2, n), rec))
    return b.add(b.mul(b.sub(b.like(z, 1), z), new), b.mul(z, h)), c


def _rnn(
    x: Value, h: Value, c: Value, r: Value, bias: Value | None, act: list[Callable[[Value], Value]], node: Node
) -> tuple[Value, Value]:
    return act[0](_plus(b.add(x, b.matmul(h, r)), bias)), c


_STEP = {"lstm": _lstm, "gru": _gru, "rnn": _rnn}
