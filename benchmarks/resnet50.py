"""ResNet-50 as an ONNX file: the published structure with seeded weights (no trained ones are to be had offline).

    python -m benchmarks.resnet50 FILE [BATCH]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

#: (blocks, width, stride of the first) of each stage
_STAGES = ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2))


def write(path: Path, batch: int = 1) -> Path:
    """`path` with the model: x [batch, 3, 224, 224] to y [batch, 1000]."""
    import onnx

    made = _Builder()
    x = made.conv("x", 3, 64, 7, 2)
    x = made.node("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for blocks, width, first in _STAGES:
        for k in range(blocks):
            x = made.block(x, channels, width, first if k == 0 else 1)
            channels = 4 * width
    flat = made.node("Flatten", [made.node("GlobalAveragePool", [x])])
    weights = made.constant(made.rng.standard_normal((channels, 1000)) / np.sqrt(channels))
    made.node("Gemm", [flat, weights, made.constant(np.zeros(1000))], output="y")
    h, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = h.make_graph(
        made.nodes, "resnet50", [h.make_tensor_value_info("x", kind, [batch, 3, 224, 224])],
        [h.make_tensor_value_info("y", kind, [batch, 1000])], made.constants,
    )  # fmt: skip
    onnx.save(h.make_model(graph, opset_imports=[h.make_opsetid("", 13)], ir_version=8), str(path))
    return path


class _Builder:
    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, array: np.ndarray[Any, Any]) -> str:
        import onnx

        name = f"w{len(self.constants)}"
        self.constants.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def node(self, op: str, inputs: list[str], output: str = "", **attrs: Any) -> str:
        import onnx

        output = output or f"v{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(op, inputs, [output], **attrs))
        return output

    def conv(self, x: str, channels: int, filters: int, kernel: int, stride: int, relu: bool = True) -> str:
        scale = np.sqrt(2 / (channels * kernel * kernel))
        weights = self.constant(self.rng.standard_normal((filters, channels, kernel, kernel)) * scale)
        bias = self.constant(self.rng.standard_normal(filters) / 10)
        y = self.node("Conv", [x, weights, bias], strides=[stride] * 2, pads=[kernel // 2] * 4)
        return self.node("Relu", [y]) if relu else y

    def block(self, x: str, channels: int, width: int, stride: int) -> str:
        y = self.conv(self.conv(x, channels, width, 1, 1), width, width, 3, stride)
        y = self.conv(y, width, 4 * width, 1, 1, relu=False)
        if channels != 4 * width or stride > 1:
            x = self.conv(x, channels, 4 * width, 1, stride, relu=False)
        return self.node("Relu", [self.node("Add", [y, x])])


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1))
