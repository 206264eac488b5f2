"""Trained models that packages carry as bare weights: their published structure in torch, exported to ONNX.

    python -m tests.torchzoo efficientnet-lite0|minilm FILE
"""

from __future__ import annotations

import io
import sys
import warnings
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

#: strides of EfficientNet-lite0's sixteen blocks; all other sizes are read off the weights
_STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)
_HEADS = 12  # of MiniLM; its weights do not say


def export(name: str, weights: Path) -> bytes:
    """The model as an ONNX file, with a free batch (and length)."""
    model, arguments, axes = _MODELS[name](weights)
    stream = io.BytesIO()
    with warnings.catch_warnings(), torch.no_grad():  # the exporter that needs nothing but torch calls itself old
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model.eval(), tuple(arguments.values()), cast(Any, stream), input_names=list(arguments),
            output_names=["y"], dynamic_axes=dict.fromkeys((*arguments, "y"), axes), opset_version=17, dynamo=False,
        )  # fmt: skip
    return stream.getvalue()


# ---------------------------------------------------------------- EfficientNet-lite0


class EfficientNetLite(nn.Module):
    """x [B, 3, 224, 224] to logits [B, 1000]. Tan and Le 2019, without squeeze and excitation, with ReLU6; padded as
    TensorFlow pads, more at the end where a stride leaves an odd number."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.layers = nn.ModuleList([_ConvNorm(weights, "_conv_stem", "_bn0", 2), nn.ReLU6()])
        for k, stride in enumerate(_STRIDES):
            self.layers.append(_Block(weights, f"_blocks.{k}.", stride))
        self.layers += [_ConvNorm(weights, "_conv_head", "_bn1", 1), nn.ReLU6()]
        self.head = nn.Linear(*reversed(weights["_fc.weight"].shape))
        self.head.load_state_dict(_under(weights, "_fc."))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return cast(Tensor, self.head(x.mean((2, 3))))


class _Block(nn.Module):
    def __init__(self, weights: dict[str, Tensor], at: str, stride: int) -> None:
        super().__init__()
        steps: list[nn.Module] = []
        if f"{at}_expand_conv.weight" in weights:
            steps += [_ConvNorm(weights, f"{at}_expand_conv", f"{at}_bn0", 1), nn.ReLU6()]
        steps += [_ConvNorm(weights, f"{at}_depthwise_conv", f"{at}_bn1", stride), nn.ReLU6()]
        steps += [_ConvNorm(weights, f"{at}_project_conv", f"{at}_bn2", 1)]
        self.steps = nn.Sequential(*steps)
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        y = self.steps(x)
        return y + x if self.stride == 1 and y.shape[1] == x.shape[1] else y


class _ConvNorm(nn.Module):
    def __init__(self, weights: dict[str, Tensor], conv: str, norm: str, stride: int) -> None:
        super().__init__()
        filters, channels, kernel, _ = weights[f"{conv}.weight"].shape
        groups = filters if channels == 1 else 1
        both = max(kernel - stride, 0)  # extents here are multiples of their strides
        even = both // 2 if both % 2 == 0 else 0
        self.rest = (0, 0, 0, 0) if even else (both // 2, both - both // 2) * 2
        self.conv = nn.Conv2d(channels * groups, filters, kernel, stride, even, groups=groups, bias=False)
        self.conv.load_state_dict(_under(weights, f"{conv}."))
        self.norm = nn.BatchNorm2d(filters, eps=1e-3)
        self.norm.load_state_dict(_under(weights, f"{norm}."))

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.norm(self.conv(F.pad(x, self.rest) if any(self.rest) else x)))


def _efficientnet(weights: Path) -> tuple[nn.Module, dict[str, Tensor], dict[int, str]]:
    model = EfficientNetLite(torch.load(weights, weights_only=True))
    return model, {"x": torch.zeros(1, 3, 224, 224)}, {0: "batch"}


# ---------------------------------------------------------------- MiniLM


class Bert(nn.Module):
    """Token, mask and type numbers i64 [B, L] to hidden states [B, L, H]. Devlin et al. 2018, sized by its weights."""

    def __init__(self, weights: dict[str, Tensor], heads: int) -> None:
        super().__init__()
        vocabulary, width = weights["embeddings.word_embeddings.weight"].shape
        self.words = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(*weights["embeddings.position_embeddings.weight"].shape)
        self.types = nn.Embedding(*weights["embeddings.token_type_embeddings.weight"].shape)
        for module, name in ((self.words, "word"), (self.places, "position"), (self.types, "token_type")):
            module.load_state_dict(_under(weights, f"embeddings.{name}_embeddings."))
        self.norm = _norm(weights, "embeddings.LayerNorm.")
        count = sum(k.endswith("intermediate.dense.weight") for k in weights)
        self.layers = nn.ModuleList([_Layer(weights, f"encoder.layer.{k}.", heads) for k in range(count)])

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        places = torch.arange(input_ids.shape[1])
        x = self.norm(self.words(input_ids) + self.types(token_type_ids) + self.places(places))
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, mask)
        return cast(Tensor, x)


class _Layer(nn.Module):
    def __init__(self, weights: dict[str, Tensor], at: str, heads: int) -> None:
        super().__init__()
        self.heads = heads
        names = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense")
        self.q, self.k, self.v, self.o = (_linear(weights, f"{at}{name}.") for name in names)
        self.up, self.down = (_linear(weights, f"{at}{name}.dense.") for name in ("intermediate", "output"))
        self.first = _norm(weights, f"{at}attention.output.LayerNorm.")
        self.second = _norm(weights, f"{at}output.LayerNorm.")

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, _ = x.shape
        width = self.q.out_features
        size = width // self.heads
        q, k, v = (part(x).view(batch, length, -1, size).transpose(1, 2) for part in (self.q, self.k, self.v))
        scores = torch.matmul(q, k.transpose(-1, -2)) / size**0.5
        mixed = torch.matmul(torch.softmax(scores + mask, -1), v).transpose(1, 2).reshape(batch, length, width)
        x = self.first(self.o(mixed) + x)
        return cast(Tensor, self.second(self.down(F.gelu(self.up(x))) + x))


def _linear(weights: dict[str, Tensor], at: str) -> nn.Linear:
    made = nn.Linear(*reversed(weights[f"{at}weight"].shape))
    made.load_state_dict(_under(weights, at))
    return made


def _norm(weights: dict[str, Tensor], at: str) -> nn.LayerNorm:
    made = nn.LayerNorm(weights[f"{at}weight"].shape, eps=1e-12)
    made.load_state_dict(_under(weights, at))
    return made


def _under(weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)}


def _minilm(weights: Path) -> tuple[nn.Module, dict[str, Tensor], dict[int, str]]:
    from safetensors.torch import load_file

    tokens = torch.ones(2, 8, dtype=torch.int64)
    names = ("input_ids", "attention_mask", "token_type_ids")
    return Bert(load_file(weights), _HEADS), dict.fromkeys(names, tokens), {0: "batch", 1: "length"}


_MODELS = {"efficientnet-lite0": _efficientnet, "minilm": _minilm}

if __name__ == "__main__":
    from tests import modelzoo

    Path(sys.argv[2]).write_bytes(export(sys.argv[1], modelzoo.weights(sys.argv[1])))
