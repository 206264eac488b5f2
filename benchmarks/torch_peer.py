"""torch as a peer for ONNX files of convolutional networks: the file's nodes in turn, on torch's functions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import Tensor, nn
from torch.nn import functional as F

_TYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


class OnnxModule(nn.Module):
    """One input, one output. A node this does not know is refused when the module is made."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        graph = onnx.load(path).graph
        self.constants = nn.ParameterDict()
        for t in graph.initializer:
            self.constants[t.name] = nn.Parameter(torch.from_numpy(onnx.numpy_helper.to_array(t).copy()), False)
        unknown = {n.op_type for n in graph.node} - set(_OPS)
        if unknown:
            raise NotImplementedError(f"torch as a peer has no {', '.join(sorted(unknown))}")
        self.steps = [
            (_OPS[n.op_type], tuple(n.input), n.output[0],
             {a.name: onnx.helper.get_attribute_value(a) for a in n.attribute})
            for n in graph.node
        ]  # fmt: skip
        self.source, self.result = graph.input[0].name, graph.output[0].name

    def forward(self, x: Tensor) -> Tensor:
        values = {self.source: x}
        for run, inputs, output, attributes in self.steps:
            values[output] = run(*(values[i] if i in values else self.constants[i] for i in inputs), **attributes)
        return values[self.result]


def _conv(x: Tensor, w: Tensor, bias: Tensor | None = None, strides: Any = (1, 1), pads: Any = (0,) * 4) -> Tensor:
    return F.conv2d(x, w, bias, tuple(strides), (pads[0], pads[1]))


def _max_pool(x: Tensor, kernel_shape: Any, strides: Any, pads: Any) -> Tensor:
    return F.max_pool2d(x, tuple(kernel_shape), tuple(strides), (pads[0], pads[1]))


_OPS: dict[str, Callable[..., Tensor]] = {
    "Conv": _conv,
    "Relu": torch.relu,
    "Add": torch.add,
    "MaxPool": _max_pool,
    "GlobalAveragePool": lambda x: x.mean((2, 3), keepdim=True),
    "Flatten": lambda x: x.flatten(1),
    "Gemm": lambda x, w, bias: torch.addmm(bias, x, w),
}


def torch_peer(path: Path, array: np.ndarray[Any, Any], dtype: str, threads: int, compiled: bool) -> Callable[[], Any]:
    """Channels last, which torch is fastest with; compiled with its weights frozen into the code. Takes and gives f32
    like the others: conversions are part of the work."""
    torch.set_num_threads(threads)
    kind = _TYPES[dtype]
    module: Any = OnnxModule(path).eval().to(kind).to(memory_format=torch.channels_last)
    if compiled:
        module = torch.compile(module, options={"freezing": True})
    x = torch.from_numpy(array)

    def run() -> Any:
        with torch.inference_mode():
            return [module(x.to(kind, memory_format=torch.channels_last)).float().numpy()]

    run()
    return run
