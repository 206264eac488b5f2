"""One operator at a time against onnxruntime: old and new meanings, every attribute, several opsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import AttributeProto, helper

from tests.frontends.onnx.helpers import Array, assert_close, evaluate, model, reference

RNG = np.random.default_rng(20)


def f(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> Array:
    return (RNG.random(shape) + 0.1).astype(np.float32)


def whole(*shape: int, lo: int = -9, hi: int = 9, dtype: Any = np.int64) -> Array:
    return RNG.integers(lo, hi, shape).astype(dtype)


def i64(*values: Any) -> Array:
    return np.array(values, np.int64)


def scalar(value: Any, dtype: Any = np.float32) -> Array:
    return np.array(value, dtype)


@dataclass
class Case:
    """`inputs` are fed; an input listed in `constants` (by position) is an initialiser. None is an absent operand."""

    op: str
    inputs: Sequence[Array | None]
    attrs: dict[str, Any] = field(default_factory=dict)
    opsets: Sequence[int] = (17,)
    outputs: int = 1
    constants: Sequence[int] = ()
    tolerance: float = 2e-5


UNARY = ["Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "Identity", "LeakyRelu", "Neg",
         "Relu", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Tan", "Tanh", "Atan", "Sinh", "Cosh",
         "Asinh", "IsNaN"]  # fmt: skip
NEWER = {"Erf": 9, "Sign": 9, "IsNaN": 9, "Sinh": 9, "Cosh": 9, "Asinh": 9}
BINARY = ["Add", "Sub", "Mul", "Div", "Pow", "PRelu"]

CASES: list[Case] = [
    *(Case(u, [f(3, 5)], opsets=[o for o in (7, 9, 13, 18, 21) if o >= NEWER.get(u, 7)]) for u in UNARY),
    *(Case(u, [positive(4, 3)], opsets=(7, 13)) for u in ("Log", "Sqrt", "Reciprocal")),
    *(Case(u, [positive(4, 3) * np.float32(0.8)], opsets=(7, 13)) for u in ("Asin", "Acos")),
    Case("Atanh", [positive(4, 3) * np.float32(0.8)], opsets=(9, 17)),
    Case("Acosh", [positive(4, 3) + np.float32(1)], opsets=(9, 17)),
    Case("Round", [np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.4], np.float32)], opsets=(11, 17)),
    *(Case(b, [positive(2, 3, 4), positive(3, 1)], opsets=(7, 13)) for b in BINARY),
    *(Case(b, [whole(4, 5), whole(4, 5, lo=1)], opsets=(7, 14)) for b in ("Add", "Sub", "Mul", "Div")),
    *(Case(b, [whole(4, 5, lo=-3, hi=3), whole(4, 5, lo=-3, hi=3)], opsets=(11, 16))
      for b in ("Equal", "Less", "Greater")),
    *(Case(b, [f(4, 5), f(5)], opsets=(12, 16)) for b in ("LessOrEqual", "GreaterOrEqual")),
    *(Case(b, [f(4, 5) > 0, f(5) > 0], opsets=(7, 17)) for b in ("And", "Or", "Xor")),
    Case("Not", [f(3) > 0], opsets=(7,)),
    Case("Pow", [f(3, 4), whole(3, 4, lo=0, hi=4)], opsets=(12, 15)),
    Case("Pow", [whole(3, 4, lo=0, hi=6), np.full((3, 4), 0.5, np.float32)], opsets=(13,)),
    Case("Pow", [whole(3, 4, lo=-3, hi=4, dtype=np.int32), whole(4, lo=0, hi=4)], opsets=(13,)),
    Case("Mod", [whole(20), np.where(whole(20) >= 0, 3, -4)], opsets=(10, 13)),
    Case("Mod", [f(20) * 5, np.full(20, -1.5, np.float32)], {"fmod": 1}, (10, 13)),
    Case("Mod", [whole(20), np.full(20, -4)], {"fmod": 1}, (13,)),
    Case("BitShift", [whole(9, lo=0, hi=9, dtype=np.uint32), whole(9, lo=0, hi=9, dtype=np.uint32)],
         {"direction": "LEFT"}, (11,)),
    *(Case(b, [f(2, 3), f(3), f(2, 1)], opsets=(8, 13)) for b in ("Sum", "Max", "Min", "Mean")),
    Case("Where", [f(3, 1) > 0, f(3, 4), f(4)], opsets=(9, 16)),
    Case("IsInf", [np.array([1, np.inf, -np.inf, np.nan], np.float32)], {"detect_negative": 0}, (10,)),
    Case("Cast", [np.array([-2.7, 0.0, 3.9], np.float32)], {"to": 7}, (9, 13)),
    Case("Cast", [np.array([-2.7, 0.0, 3.9], np.float32)], {"to": 9}, (9,)),
    Case("Cast", [f(9)], {"to": 10}, (9, 19)),
    Case("Clip", [f(3, 4)], {"min": -0.5, "max": 0.25}, (7, 10)),
    Case("Clip", [f(3, 4)], {"max": 0.25}, (7,)),
    Case("Clip", [f(3, 4), scalar(-0.5), scalar(0.5)], opsets=(11, 13), constants=(1, 2)),
    Case("Clip", [f(3, 4), None, scalar(0.5)], opsets=(12,)),
    Case("Gelu", [f(3, 4)], {"approximate": "tanh"}, (20,)),
    Case("Celu", [f(3, 4)], {"alpha": 2.0}, (12,)),
    Case("Shrink", [f(3, 4)], {"lambd": 0.4, "bias": 0.2}, (9,)),
    Case("ThresholdedRelu", [f(3, 4)], {"alpha": 0.3}, (10,)),
    Case("HardSwish", [f(3, 4) * 4], opsets=(14,)),
    Case("Mish", [f(3, 4)], opsets=(18,)),
    # reductions: axes as an attribute, then as an operand
    *(Case(r, [positive(2, 3, 4)], {"axes": [0, 2], "keepdims": k}, (7, 11)) for k in (0, 1)
      for r in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
                "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare")),
    *(Case(r, [positive(2, 3, 4), i64(-1)], {"keepdims": k}, (18,), constants=(1,)) for k in (0, 1)
      for r in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
                "ReduceLogSumExp", "ReduceSumSquare")),
    Case("ReduceSum", [f(2, 3, 4), i64(1)], {"keepdims": 0}, (13,), constants=(1,)),
    Case("ReduceSum", [f(2, 3, 4), i64(1)], {"keepdims": 1}, (13,)),
    Case("ReduceSum", [f(2, 3, 4)], {"noop_with_empty_axes": 1}, (13,)),
    Case("ReduceSum", [f(2, 3, 4), i64()], {"noop_with_empty_axes": 1}, (13,), constants=(1,)),
    Case("ReduceMean", [f(2, 3, 4)], {}, (7, 13, 18)),
    Case("ReduceMax", [whole(3, 4, dtype=np.int32)], {"axes": [1]}, (12,)),
    *(Case(a, [whole(3, 6, lo=0, hi=3).astype(np.float32)], {"axis": 1, "keepdims": 0}, (7, 13))
      for a in ("ArgMax", "ArgMin")),
    Case("ArgMax", [whole(3, 6, lo=0, hi=3).astype(np.float32)], {"axis": -1, "select_last_index": 1}, (12,)),
    Case("CumSum", [f(3, 5), scalar(1, np.int64)], {"exclusive": 1, "reverse": 1}, (11, 14), constants=(1,)),
    Case("TopK", [f(3, 6)], {"k": 2}, (7,), 2),
    Case("TopK", [f(3, 6), i64(2)], {"axis": 0, "largest": 0}, (11,), 2, (1,)),
    Case("TopK", [f(3, 6), i64(2)], {}, (11,), 2),
    *(Case(s, [f(2, 3, 4, 2)], {"axis": a}, (7, 11, 13))
      for s in ("Softmax", "LogSoftmax", "Hardmax") for a in (1, 2, 3)),
    Case("Softmax", [f(2, 3)], {}, (7, 13)),
    # convolution and pools
    Case("Conv", [f(2, 4, 9, 8), f(6, 2, 3, 3), f(6)], {"group": 2, "strides": [2, 1], "pads": [1, 0, 2, 1],
         "dilations": [1, 2]}, (7, 11)),
    *(Case("Conv", [f(1, 2, 7, 8), f(3, 2, 3, 2)], {"auto_pad": p, "strides": [2, 3]}, (11,))
      for p in ("SAME_UPPER", "SAME_LOWER", "VALID")),
    Case("Conv", [f(1, 2, 11), f(3, 2, 4)], {"pads": [1, 2]}, (11,)),
    Case("Conv", [f(1, 2, 5, 6, 7), f(3, 2, 2, 3, 2)], {"strides": [1, 2, 1]}, (11,)),
    Case("ConvTranspose", [f(1, 4, 5, 6), f(4, 3, 3, 3), f(3)], {"strides": [2, 3], "pads": [1, 0, 0, 1],
         "output_padding": [1, 0]}, (7, 11)),
    Case("ConvTranspose", [f(1, 4, 5, 6), f(4, 2, 3, 3)], {"group": 2, "dilations": [2, 1]}, (11,)),
    Case("ConvTranspose", [f(1, 2, 5, 5), f(2, 3, 3, 3)], {"strides": [2, 2], "output_shape": [10, 9]}, (11,)),
    Case("ConvTranspose", [f(1, 2, 5, 5), f(2, 3, 3, 3)], {"strides": [2, 2], "auto_pad": "SAME_UPPER"}, (11,)),
    Case("ConvTranspose", [f(1, 2, 7), f(2, 3, 4)], {"strides": [3]}, (11,)),
    Case("MaxPool", [f(1, 2, 9, 8)], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}, (8, 10, 12)),
    Case("MaxPool", [f(1, 2, 9, 8)], {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1, "dilations": [2, 1]},
         (10, 12)),
    *(Case("MaxPool", [f(1, 2, 9, 8)], {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": p}, (8, 12))
      for p in ("SAME_UPPER", "SAME_LOWER", "VALID")),
    *(Case("AveragePool", [f(1, 2, 9, 8)], {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1],
           "count_include_pad": c}, (7, 11)) for c in (0, 1)),
    Case("AveragePool", [f(1, 2, 9, 8)], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}, (19,)),
    Case("AveragePool", [f(1, 2, 9)], {"kernel_shape": [4], "auto_pad": "SAME_UPPER", "strides": [2]}, (11,)),
    Case("LpPool", [f(1, 2, 9, 8)], {"kernel_shape": [3, 2], "p": 3}, (11,)),
    *(Case(g, [f(2, 3, 4, 5)], {}, (7, 13)) for g in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")),
    # products
    Case("MatMul", [f(2, 1, 3, 4), f(5, 4, 2)], opsets=(9, 13)),
    Case("MatMul", [f(4), f(4, 3)], opsets=(9,)),
    Case("MatMul", [whole(3, 4, dtype=np.int32), whole(4, 2, dtype=np.int32)], opsets=(13,)),
    Case("Gemm", [f(4, 3), f(5, 4), f(5)], {"alpha": 0.5, "beta": 2.0, "transA": 1, "transB": 1}, (7, 11, 13)),
    Case("Gemm", [f(3, 4), f(4, 5)], {}, (11,)),
    Case("Einsum", [f(2, 3, 4), f(2, 4, 5)], {"equation": "bij, bjk -> bik"}, (12,)),
    Case("Einsum", [f(3, 3)], {"equation": "ii->i"}, (12,)),
    # normalisation
    Case("BatchNormalization", [f(2, 3, 4, 5), f(3), f(3), f(3), positive(3)], {"epsilon": 1e-3}, (7, 9, 14, 15)),
    Case("InstanceNormalization", [f(2, 3, 4, 5), f(3), f(3)], {"epsilon": 1e-3}, (7,)),
    Case("LayerNormalization", [f(2, 3, 4, 5), f(4, 5), f(4, 5)], {"axis": -2}, (17,), 3),
    Case("LayerNormalization", [f(2, 3, 4), f(4)], {}, (17,)),
    Case("GroupNormalization", [f(2, 6, 4, 5), f(6), f(6)], {"num_groups": 3}, (21,)),
    Case("LpNormalization", [f(3, 4)], {"p": 1, "axis": 0}, (7,)),
    Case("LRN", [f(2, 7, 3, 3)], {"size": 3, "alpha": 0.5, "beta": 0.6, "bias": 1.5}, (7, 13)),
    Case("Dropout", [f(3, 4)], {"ratio": 0.4}, (7, 10)),
    Case("Dropout", [f(3, 4), scalar(0.4), scalar(False, np.bool_)], {}, (12, 13), 2, (1, 2)),
    # shapes
    Case("Reshape", [f(2, 3, 4), i64(0, -1)], {}, (7, 14), 1, (1,)),
    Case("Reshape", [f(2, 3, 4), i64(4, 6)], {}, (7,)),
    *(Case("Flatten", [f(2, 3, 4)], {"axis": a}, (11,)) for a in (0, 1, 3, -1)),
    Case("Transpose", [f(2, 3, 4)], {}, (7,)),
    Case("Transpose", [f(2, 3, 4)], {"perm": [1, 2, 0]}, (13,)),
    Case("Squeeze", [f(1, 3, 1)], {"axes": [0, -1]}, (11,)),
    Case("Squeeze", [f(1, 3, 1)], {}, (7, 13)),
    Case("Squeeze", [f(1, 3, 1), i64(2)], {}, (13,), 1, (1,)),
    Case("Unsqueeze", [f(3, 4)], {"axes": [0, 3]}, (7, 11)),
    Case("Unsqueeze", [f(3, 4), i64(-1, 0)], {}, (13,), 1, (1,)),
    Case("Expand", [f(3, 1), i64(2, 1, 4)], {}, (8,), 1, (1,)),
    Case("Expand", [f(3, 1), i64(2, 1, 4)], {}, (13,)),
    Case("Shape", [f(3, 1, 2)], {"start": -2}, (15,)),
    Case("Shape", [f(3, 1, 2)], {}, (7,)),
    Case("Size", [f(3, 1, 2)], {}, (7,)),
    Case("Concat", [f(2, 3), f(2, 1), f(2, 4)], {"axis": -1}, (11, 13)),
    Case("Slice", [f(6, 7)], {"starts": [1, -5], "ends": [100, -1]}, (7,)),
    Case("Slice", [f(6, 7)], {"starts": [2], "ends": [4], "axes": [1]}, (7,)),
    Case("Slice", [f(6, 7), i64(-1, 1), i64(-100, 6), i64(1, 0), i64(-2, 3)], {}, (10, 13), 1, (1, 2, 3, 4)),
    Case("Slice", [f(6, 7), i64(1), i64(6), i64(-1)], {}, (13,)),
    Case("Split", [f(6, 4)], {"axis": 0, "split": [1, 5]}, (7, 11), 2),
    Case("Split", [f(6, 4)], {"axis": 1}, (7, 13), 2),
    Case("Split", [f(6, 4), i64(2, 4)], {}, (13,), 2, (1,)),
    Case("Split", [f(7, 4)], {"num_outputs": 3}, (18,), 3),
    Case("Tile", [f(2, 3), i64(2, 3)], {}, (7, 13), 1, (1,)),
    *(Case("Pad", [f(4, 5)], {"mode": m, "pads": [1, 2, 0, 3], "value": 0.5}, (7,))
      for m in ("constant", "reflect", "edge")),
    *(Case("Pad", [f(4, 5), i64(1, 2, 0, 3)], {"mode": m}, (13,), 1, (1,)) for m in ("constant", "reflect", "edge")),
    Case("Pad", [f(4, 5), i64(1, -2, 0, 3), scalar(1.5)], {}, (13,), 1, (1,)),
    Case("Pad", [f(4, 5), i64(1, 3), scalar(1.5), i64(-1)], {}, (18,), 1, (1, 3)),
    Case("Pad", [f(4, 5), i64(1, 2, 0, 3)], {"mode": "wrap"}, (19,), 1, (1,)),
    # gather and scatter
    Case("Gather", [f(4, 5, 6), i64(3, -1, 0)], {"axis": 1}, (7, 13)),
    Case("Gather", [f(4, 5), scalar(-2, np.int32)], {}, (11,)),
    Case("GatherElements", [f(3, 4), whole(3, 2, lo=-4, hi=4)], {"axis": 1}, (11, 13)),
    Case("GatherND", [f(3, 4, 5), whole(2, 2, lo=0, hi=3)], {}, (11,)),
    Case("GatherND", [f(2, 4, 5), whole(2, 1, lo=0, hi=3)], {"batch_dims": 1}, (12,)),
    Case("Scatter", [f(3, 4), i64([0, 2]), f(1, 2)], {"axis": 1}, (9,)),
    Case("ScatterElements", [f(3, 4), i64([0, -1]), f(1, 2)], {"axis": 1}, (11,)),
    *(Case("ScatterElements", [f(3, 4), i64([1, 1]), f(1, 2)], {"axis": 1, "reduction": r}, (18,))
      for r in ("add", "mul", "max", "min")),
    Case("ScatterND", [f(4, 3), i64([2], [0]), f(2, 3)], {}, (11, 13)),
    Case("ScatterND", [f(4, 3), i64([2], [2]), f(2, 3)], {"reduction": "add"}, (16,)),
    Case("Compress", [f(4, 3), np.array([True, False, True])], {"axis": 0}, (11,), 1, (1,)),
    Case("ReverseSequence", [f(4, 3, 2), i64(4, 2, 1)], {"time_axis": 0, "batch_axis": 1}, (10,)),
    # filled
    Case("ConstantOfShape", [i64(2, 3)], {"value": helper.make_tensor("v", 7, [1], [5])}, (9,), 1, (0,)),
    Case("ConstantOfShape", [i64(2, 3)], {}, (9,)),
    Case("Range", [scalar(1), scalar(7), scalar(1.5)], {}, (11,)),
    Case("Range", [scalar(9, np.int64), scalar(1, np.int64), scalar(-3, np.int64)], {}, (11,), 1, (0, 1, 2)),
    Case("EyeLike", [f(3, 4)], {"k": 1, "dtype": 7}, (9,)),
    Case("OneHot", [whole(2, 3, lo=-3, hi=5), i64(4), f(2)], {"axis": 1}, (9, 11), 1, (1,)),
    *(Case("Trilu", [f(2, 4, 5), scalar(k, np.int64)], {"upper": u}, (14,), 1, (1,))
      for u in (0, 1) for k in (-1, 0, 2)),
    *(Case("DepthToSpace", [f(1, 8, 2, 3)], {"blocksize": 2, "mode": m}, (11, 13)) for m in ("DCR", "CRD")),
    Case("SpaceToDepth", [f(1, 2, 4, 6)], {"blocksize": 2}, (7, 13)),
    # resize
    Case("Upsample", [f(1, 2, 3, 4)], {"scales": [1.0, 1.0, 2.0, 3.0]}, (7, 8)),
    *(Case("Upsample", [f(1, 2, 3, 4), np.array([1, 1, 2, 3], np.float32)], {"mode": m}, (9,), 1, (1,))
      for m in ("nearest", "linear")),
    Case("Resize", [f(1, 2, 3, 4), np.array([1, 1, 2, 1.5], np.float32)], {"mode": "linear"}, (10,), 1, (1,)),
    *(Case("Resize", [f(1, 2, 5, 6), None, np.array([1, 1, s, 1.7], np.float32)],
           {"mode": m, "coordinate_transformation_mode": t}, (13,), 1, (2,))
      for m in ("nearest", "linear", "cubic") for t in ("half_pixel", "asymmetric", "pytorch_half_pixel")
      for s in (0.6, 2.0)),
    *(Case("Resize", [f(1, 2, 5, 6), None, None, i64(1, 2, 8, 4)],
           {"mode": m, "coordinate_transformation_mode": "align_corners"}, (13, 19), 1, (3,))
      for m in ("nearest", "linear", "cubic")),
    *(Case("Resize", [f(1, 1, 5, 6), None, np.array([1, 1, 1.6, 0.75], np.float32)],
           {"mode": "nearest", "nearest_mode": n}, (13,), 1, (2,))
      for n in ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")),
    # recurrent
    *(Case("LSTM", [f(5, 2, 3), f(d, 16, 3), f(d, 16, 4), f(d, 32), None, f(d, 2, 4), f(d, 2, 4)],
           {"hidden_size": 4, "direction": n}, (7, 14), 3)
      for d, n in ((1, "forward"), (1, "reverse"), (2, "bidirectional"))),
    Case("LSTM", [f(5, 2, 3), f(1, 16, 3), f(1, 16, 4), f(1, 32), np.array([5, 5], np.int32)],
         {"hidden_size": 4, "activations": ["Sigmoid", "Relu", "Softsign"]}, (7,), 3, (4,)),
    *(Case("GRU", [f(5, 2, 3), f(d, 12, 3), f(d, 12, 4), f(d, 24), None, f(d, 2, 4)],
           {"hidden_size": 4, "direction": n, "linear_before_reset": b}, (7, 14), 2)
      for d, n in ((1, "reverse"), (2, "bidirectional")) for b in (0, 1)),
    Case("RNN", [f(5, 2, 3), f(2, 4, 3), f(2, 4, 4)], {"hidden_size": 4, "direction": "bidirectional"}, (7, 14), 2),
    # quantisation
    Case("QuantizeLinear", [f(3, 4) * 40, scalar(0.3), scalar(7, np.uint8)], {}, (10, 13)),
    Case("QuantizeLinear", [f(3, 4) * 40, positive(4), whole(4, dtype=np.int8)], {"axis": 1}, (13,)),
    Case("DequantizeLinear", [whole(3, 4, dtype=np.int8), positive(3), whole(3, dtype=np.int8)], {"axis": 0}, (13,)),
    Case("MatMulInteger", [whole(3, 4, lo=0, dtype=np.uint8), whole(4, 2, lo=0, dtype=np.uint8), scalar(3, np.uint8),
         scalar(2, np.uint8)], {}, (10,)),
    Case("DynamicQuantizeLinear", [f(3, 4)], {}, (11,), 3),
]  # fmt: skip


def build(case: Case, opset: int) -> tuple[Any, dict[str, Array]]:
    names = [f"i{k}" if x is not None else "" for k, x in enumerate(case.inputs)]
    feeds = {names[k]: x for k, x in enumerate(case.inputs) if x is not None and k not in case.constants}
    held = {names[k]: case.inputs[k] for k in case.constants}
    outputs = [f"o{k}" for k in range(case.outputs)]
    node = helper.make_node(case.op, names, outputs, "the node", **case.attrs)
    return model([node], feeds, outputs, opset, held), feeds  # type: ignore[arg-type]


def label(case: Case, opset: int) -> str:
    attrs = ",".join(f"{k}={v}" if not hasattr(v, "dims") else k for k, v in case.attrs.items())
    return f"{case.op}-{opset}-{attrs}".replace(" ", "")


@pytest.mark.parametrize(("case", "opset"), [pytest.param(c, o, id=label(c, o)) for c in CASES for o in c.opsets])
def test_against_onnxruntime(case: Case, opset: int) -> None:
    proto, feeds = build(case, opset)
    wanted = reference(proto, feeds)
    for k, (got, want) in enumerate(zip(evaluate(proto, feeds), wanted, strict=True)):
        assert_close(got, np.asarray(want), case.tolerance, f"output {k}")


def test_constant_forms() -> None:
    forms: list[dict[str, Any]] = [
        {"value_float": 1.5}, {"value_floats": [1.0, 2.5]}, {"value_int": 3}, {"value_ints": [4, 5]},
        {"value": helper.make_tensor("t", 10, [2], np.array([1, 2], np.float16))},
        {"value": helper.make_tensor("t", 9, [2], [True, False])},
    ]  # fmt: skip
    nodes = [helper.make_node("Constant", [], [f"o{k}"], **form) for k, form in enumerate(forms)]
    proto = model(nodes, {}, [f"o{k}" for k in range(len(nodes))], 13)
    for got, want in zip(evaluate(proto, {}), reference(proto, {}), strict=True):
        assert_close(got, want, 0)


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_constants_become_dense(indices: Any) -> None:
    flat = np.array(indices, np.int64)
    values = helper.make_tensor("v", 1, [2], [7.0, 8.0])
    sparse = helper.make_sparse_tensor(values, helper.make_tensor("i", 7, flat.shape, flat.reshape(-1)), [2, 3])
    (got,) = evaluate(model([helper.make_node("Constant", [], ["o"], sparse_value=sparse)], {}, ["o"], 13), {})
    assert_close(got, np.array([[0, 7, 0], [0, 0, 8]], np.float32), 0)


def branches(then: Sequence[Any], other: Sequence[Any]) -> dict[str, Any]:
    made = []
    for label_, (nodes, outputs) in (("then", then), ("else", other)):
        infos = [helper.make_tensor_value_info(o, 1, None) for o in outputs]
        made.append(helper.make_graph(list(nodes), label_, [], infos))
    return {"then_branch": made[0], "else_branch": made[1]}


def test_if_captures_values_of_the_outer_graphs() -> None:
    inner = branches(
        ([helper.make_node("Mul", ["x", "two"], ["a"])], ["a"]), ([helper.make_node("Neg", ["y"], ["b"])], ["b"])
    )
    outer = branches(
        ([helper.make_node("Sub", ["x", "y"], ["s"])], ["s"]),
        ([helper.make_node("If", ["q"], ["r"], **inner)], ["r"]),
    )
    nodes = [helper.make_node("Exp", ["x"], ["y"]), helper.make_node("If", ["p"], ["z"], **outer)]
    for p in (False, True):
        for q in (False, True):
            feeds = {"x": f(2, 3), "p": np.array([p]), "q": np.array(q)}
            proto = model(nodes, feeds, ["z"], 13, {"two": scalar(2)})
            for got, want in zip(evaluate(proto, feeds), reference(proto, feeds), strict=True):
                assert_close(got, want, 1e-5)


def test_model_functions_are_inlined() -> None:
    """A function with an attribute parameter, an operand left out, and another function inside."""
    ops = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    leaky = helper.make_node("LeakyRelu", ["v"], ["w"])
    leaky.attribute.add(name="alpha", type=AttributeProto.FLOAT, ref_attr_name="slope")
    inner = helper.make_function("mine", "Inner", ["v"], ["w"], [leaky], ops, ["slope"])
    call = helper.make_node("Inner", ["s"], ["t"], domain="mine", slope=0.25)
    outer = helper.make_function(
        "mine", "Outer", ["a", "lo"], ["t"], [helper.make_node("Clip", ["a", "lo"], ["s"]), call], ops
    )
    nodes = [helper.make_node("Outer", i, o, domain="mine") for i, o in ((["x"], ["y"]), (["y", "m"], ["z"]))]
    feeds = {"x": f(4, 5)}
    proto = model(nodes, feeds, ["z"], 17, {"m": scalar(-0.1)}, functions=[inner, outer])
    proto.opset_import.append(helper.make_opsetid("mine", 1))
    for got, want in zip(evaluate(proto, feeds), reference(proto, feeds), strict=True):
        assert_close(got, want, 1e-6)


def test_nodes_may_come_in_any_order() -> None:
    nodes = [helper.make_node("Neg", ["b"], ["c"]), helper.make_node("Exp", ["a"], ["b"])]
    feeds = {"a": f(3)}
    (got,) = evaluate(model(nodes, feeds, ["c"]), feeds)
    assert_close(got, -np.exp(feeds["a"]), 1e-6)


def test_shapes_computed_under_a_symbolic_batch() -> None:
    """Reshape to a shape computed from the operand's own keeps the batch symbol."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    feeds = {"x": f(5, 2, 3)}
    proto = model(nodes, feeds, ["y"], 13, {"zero": i64(0), "rest": i64(-1)}, {"x": ["batch", 2, 3]})
    from tilewright.frontends.onnx import load

    graph = load(proto)
    assert str(graph.outputs[0].type) == "f32[batch, 6]"
    (got,) = evaluate(proto, feeds)
    assert_close(got, feeds["x"].reshape(5, 6), 0)
