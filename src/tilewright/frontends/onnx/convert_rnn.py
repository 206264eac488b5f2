"""Recurrent operators: LSTM, GRU and RNN. The Graph IR's ops have ONNX's gate order and layouts."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir.graph.core import Value
from .registry import Context, Results, op
from .tensors import Refusal

_DIRECTIONS = ("forward", "reverse", "bidirectional")
_ACTIVATIONS = ("Sigmoid", "Tanh", "Relu", "Softplus", "Softsign")


def _attrs(c: Context, recurrent: Value) -> dict[str, Any]:
    direction = c.str_("direction", "forward")
    if direction not in _DIRECTIONS:
        raise Refusal(f"direction must be one of {', '.join(_DIRECTIONS)}, not '{direction}'")
    c.only("clip", 0.0)
    for what, v in (("the data", c.x(0)), ("the weights", c.x(1)), ("the recurrent weights", recurrent)):
        if v.type.rank != 3:
            raise Refusal(f"{what} must have rank 3, not {v.type.rank}")
    hidden = recurrent.shape[-1]
    declared = c.attr("hidden_size")
    size = c.static_dims([hidden], "the hidden size")[0] if declared is None else int(declared)
    names = [a.decode("utf-8", "replace") if isinstance(a, bytes) else a for a in c.given("activations", ())]
    canonical = {a.lower(): a for a in _ACTIVATIONS}
    for name in names:
        if name.lower() not in canonical:
            raise Refusal(f"the activation '{name}' is not supported, only {', '.join(_ACTIVATIONS)}")
    c.ignore("activation_alpha", "activation_beta")  # none of these activations has a parameter
    return {
        "hidden": size, "direction": direction, "time_first": not c.int_("layout", 0),
        "activations": tuple(n.lower() for n in names),
    }  # fmt: skip


def _full_length(c: Context, index: int, time_first: bool) -> None:
    """Sequence lengths are taken when they say that every sequence is whole."""
    lengths = c.opt(index)
    if lengths is None:
        return
    known, steps = c.known_ints(lengths), c.x().shape[0 if time_first else 1]
    if known is None or any(n != steps for n in known):
        raise Refusal("sequences of different lengths are not supported", f"sequence_lens: {lengths.type}")


def _recurrent(name: str, target: str, states: int) -> None:
    @op(name)
    def convert(c: Context) -> Results:
        attrs = _attrs(c, c.x(2))
        _full_length(c, 4, attrs["time_first"])
        if target == "gru":
            attrs["linear_before_reset"] = bool(c.int_("linear_before_reset", 0))
        if target == "lstm":
            c.only("input_forget", 0)
            peepholes = c.opt(7)
            if peepholes is not None and not (peepholes.is_constant and not np.any(peepholes.constant)):
                raise Refusal("peepholes are not supported", f"P: {peepholes.type}")
        initial = [c.opt(5 + i) for i in range(states)]
        return c.node(target, c.x(0), c.x(1), c.x(2), c.opt(3), *initial, **attrs).outputs


_recurrent("LSTM", "lstm", 2)
_recurrent("GRU", "gru", 1)
_recurrent("RNN", "rnn", 1)
