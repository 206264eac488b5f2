"""References against torch in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ir.graph.samples import close, draw, graph_of
from tilewright.interp.graph import run
from tilewright.ir.graph.op_spec import REQUIRED
from tilewright.ir.graph.spec import SPECS
from tilewright.ir.types import f64

torch = pytest.importorskip("torch")
F = torch.nn.functional
SEEDS = range(25)


def filled(op: str, attrs: dict[str, Any]) -> dict[str, Any]:
    return {k: a.default for k, a in SPECS[op].attrs.items() if a.default is not REQUIRED} | attrs


def reference(sample: Any) -> np.ndarray[Any, Any]:
    return next(iter(run(*graph_of(sample)).values()))


def first(x: Any, layout: str) -> Any:
    return x if layout == "first" else torch.movedim(x, -1, 1)


def back(x: Any, layout: str) -> Any:
    return x if layout == "first" else torch.movedim(x, 1, -1)


def tensors(sample: Any) -> list[Any]:
    return [None if a is None else torch.from_numpy(np.array(a)) for a in sample.arrays]


UNARY = {
    "gelu": lambda x, a: F.gelu(x, approximate=a["approximate"]),
    "silu": lambda x, a: F.silu(x),
    "mish": lambda x, a: F.mish(x),
    "softplus": lambda x, a: F.softplus(x, threshold=1000),
    "softsign": lambda x, a: F.softsign(x),
    "elu": lambda x, a: F.elu(x, a["alpha"]),
    "selu": lambda x, a: F.selu(x),
    "leaky_relu": lambda x, a: F.leaky_relu(x, a["alpha"]),
    "hard_swish": lambda x, a: F.hardswish(x),
    "erf": lambda x, a: torch.erf(x),
    "sigmoid": lambda x, a: torch.sigmoid(x),
    "round": lambda x, a: torch.round(x),
    "softmax": lambda x, a: torch.softmax(x, a["axis"]),
    "log_softmax": lambda x, a: torch.log_softmax(x, a["axis"]),
}


@pytest.mark.parametrize("op", sorted(UNARY))
def test_unary(op: str) -> None:
    for seed in SEEDS:
        s = draw(op, seed, f64)
        assert close(reference(s), UNARY[op](tensors(s)[0], filled(op, s.attrs)).numpy(), 1e-12), (seed, s)


def test_conv() -> None:
    for seed in SEEDS:
        s = draw("conv", seed, f64)
        a, (x, w, bias) = s.attrs, tensors(s)
        x = first(x, a["layout"])
        w = w if a["layout"] == "first" else torch.movedim(w, (-1, -2), (0, 1))
        n = x.ndim - 2
        pads = [p for i in reversed(range(n)) for p in (a["pads_lo"][i], a["pads_hi"][i])]
        y = [F.conv1d, F.conv2d, F.conv3d][n - 1](F.pad(x, pads), w, bias, a["strides"], 0, a["dilations"], a["groups"])
        assert close(reference(s), back(y, a["layout"]).numpy(), 1e-12), (seed, s)


def test_conv_transpose() -> None:
    for seed in SEEDS:
        s = draw("conv_transpose", seed, f64)
        a, (x, w, bias) = s.attrs, tensors(s)
        x = first(x, a["layout"])
        w = w if a["layout"] == "first" else torch.movedim(w, (-1, -2), (0, 1))
        n = x.ndim - 2
        if any(o >= max(t, d) for o, t, d in zip(a["output_padding"], a["strides"], a["dilations"], strict=True)):
            continue
        fn = [F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d][n - 1]
        y = fn(x, w, bias, a["strides"], 0, a["output_padding"], a["groups"], a["dilations"])
        cut = [slice(None), slice(None)]
        cut += [slice(lo, d - hi) for lo, hi, d in zip(a["pads_lo"], a["pads_hi"], y.shape[2:], strict=True)]
        assert close(reference(s), back(y[tuple(cut)], a["layout"]).numpy(), 1e-12), (seed, s)


@pytest.mark.parametrize("op", ["max_pool", "avg_pool"])
def test_pool(op: str) -> None:
    compared = 0
    for seed in range(60):
        s = draw(op, seed, f64)
        a = s.attrs
        x = first(tensors(s)[0], a["layout"])
        if a["pads_lo"] != a["pads_hi"] or x.numel() == 0:
            continue
        n = x.ndim - 2
        if op == "max_pool":
            fn = [F.max_pool1d, F.max_pool2d, F.max_pool3d][n - 1]
            y = fn(x, a["kernel"], a["strides"], a["pads_lo"], a["dilations"], a["ceil"])
        else:
            fn = [F.avg_pool1d, F.avg_pool2d, F.avg_pool3d][n - 1]
            y = fn(x, a["kernel"], a["strides"], a["pads_lo"], a["ceil"], a["count_include_pad"])
        compared += 1
        assert close(reference(s), back(y, a["layout"]).numpy(), 1e-12), (seed, s)
    assert compared > 10


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_resize(mode: str) -> None:
    rng = np.random.default_rng(0)
    names = {"nearest": "nearest", "linear": "bilinear", "cubic": "bicubic"}
    for h, w, oh, ow in ((4, 5, 8, 10), (7, 3, 5, 9), (6, 6, 3, 3), (5, 4, 1, 7)):
        x = rng.normal(size=(2, 3, h, w))
        for corners in (False, True) if mode != "nearest" else (None,):
            y = F.interpolate(torch.from_numpy(x), size=(oh, ow), mode=names[mode], align_corners=corners).numpy()
            coordinate = {None: "asymmetric", False: "half_pixel", True: "align_corners"}[corners]
            attrs = filled(
                "resize",
                {"sizes": (2, 3, oh, ow), "mode": mode, "coordinate_mode": coordinate, "nearest_mode": "floor"},
            )
            if mode == "linear" and not corners and 1 in (oh, ow):
                attrs["coordinate_mode"] = "half_pixel"
            assert close(SPECS["resize"].evaluate([x], attrs)[0], y, 1e-12), (h, w, oh, ow, corners)


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm", "batch_norm", "group_norm", "instance_norm"])
def test_normalisations(op: str) -> None:
    for seed in SEEDS:
        s = draw(op, seed, f64, zero=False)
        a, (x, *rest) = filled(op, s.attrs), tensors(s)
        shape = list(x.shape[a["axis"] :]) if "axis" in a else []
        if op == "layer_norm":
            y = F.layer_norm(x, shape, *rest, a["epsilon"])
        elif op == "rms_norm":
            y = F.rms_norm(x, shape, *rest, a["epsilon"])
        elif op == "batch_norm":
            scale, bias, mean, var = rest
            x = first(x, a["layout"])
            y = back(F.batch_norm(x, mean, var, scale, bias, False, 0.1, a["epsilon"]), a["layout"])
        else:
            if x.ndim < 3 or x[0, 0].numel() == 1:
                continue  # torch refuses to normalise one number
            y = F.group_norm(x, a.get("num_groups", x.shape[1]), *rest, a["epsilon"])
        assert close(reference(s), y.numpy(), 1e-10), (seed, s)


def test_attention() -> None:
    for seed in SEEDS:
        s = draw("attention", seed, f64)
        a, (q, k, v, mask) = filled("attention", s.attrs), tensors(s)
        if a["causal"] and q.shape[2] != k.shape[2]:
            continue
        if a["causal"]:
            seen = torch.tril(torch.ones(q.shape[2], k.shape[2], dtype=torch.bool))
            low = torch.where(seen, 0.0, -torch.inf).to(torch.float64)
            mask = (
                low
                if mask is None
                else (torch.where(mask, low, -torch.inf) if mask.dtype == torch.bool else mask + low)
            )
        y = F.scaled_dot_product_attention(q, k, v, mask, scale=a["scale"], enable_gqa=True)
        assert close(reference(s), y.numpy(), 1e-12), (seed, s)


@pytest.mark.parametrize("op", ["lstm", "gru", "rnn"])
def test_recurrent(op: str) -> None:
    """torch orders gates differently (lstm i f g o, gru r z n, the latter linear before reset)."""
    order = {"lstm": [0, 2, 3, 1], "gru": [1, 0, 2], "rnn": [0]}[op]
    for seed in SEEDS:
        s = draw(op, seed, f64, zero=False)
        a, (x, w, r, bias, *state) = s.attrs, s.arrays
        if a["direction"] == "reverse" or not a["time_first"] or (op == "gru" and not a["linear_before_reset"]):
            continue
        assert x is not None and w is not None and r is not None
        h, k = a["hidden"], w.shape[0]
        net = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU, "rnn": torch.nn.RNN}[op](
            x.shape[2], h, bidirectional=k == 2, dtype=torch.float64
        )
        pick = np.concatenate([np.arange(g * h, (g + 1) * h) for g in order])
        gates = len(order) * h
        bias = np.zeros((k, 2 * gates)) if bias is None else bias
        with torch.no_grad():
            for d in range(k):
                tail = "_l0" + ("_reverse" if d else "")
                for name, value in (
                    ("weight_ih", w[d][pick]),
                    ("weight_hh", r[d][pick]),
                    ("bias_ih", bias[d, :gates][pick]),
                    ("bias_hh", bias[d, gates:][pick]),
                ):
                    getattr(net, name + tail).copy_(torch.from_numpy(value))
            start = [
                torch.zeros(k, x.shape[1], h, dtype=torch.float64) if t is None else torch.from_numpy(t) for t in state
            ]
            y, _ = net(torch.from_numpy(x), tuple(start) if op == "lstm" else start[0])
        want = y.numpy().reshape(*x.shape[:2], k, h).transpose(0, 2, 1, 3)
        assert close(reference(s), want, 1e-12), (seed, s)


def test_scatter_and_topk() -> None:
    for seed in SEEDS:
        s = draw("topk", seed, f64)
        a, (x,) = filled("topk", s.attrs), tensors(s)
        y, _ = torch.topk(x, a["k"], a["axis"], a["largest"])
        assert close(reference(s), y.numpy(), 0), (seed, s)
        s = draw("cumsum", seed, f64)
        if not s.attrs["exclusive"] and not s.attrs["reverse"]:
            assert close(reference(s), torch.cumsum(tensors(s)[0], s.attrs["axis"]).numpy(), 1e-12)
        s = draw("scatter_elements", seed, f64)
        name = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}.get(s.attrs["reduction"])
        x, index, update = tensors(s)
        index = torch.where(index < 0, index + x.shape[s.attrs["axis"]], index)
        args = (s.attrs["axis"], index, update)
        y = x.scatter_reduce(*args, name) if name else x.scatter(*args)
        assert close(reference(s), y.numpy(), 1e-12), (seed, s)
