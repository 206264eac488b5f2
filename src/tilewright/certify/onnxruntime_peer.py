"""onnxruntime as the reference for ONNX models: the same file, the same threads, and on request every tensor inside."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any

import numpy as np

from ..errors import ArgumentError, MissingExtraError

Array = np.ndarray[Any, Any]


class OnnxRuntime:
    """A session with a fixed number of threads. With `intermediates`, every tensor that the model's top-level nodes
    write becomes an output of a copy of the model. `fixed` gives inputs a value that every run has."""

    def __init__(
        self,
        path: str | PathLike[str],
        threads: int,
        *,
        intermediates: bool = False,
        fixed: Mapping[str, Any] | None = None,
    ) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingExtraError("onnxruntime", "bench", "comparing with onnxruntime") from error
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        model = with_all_outputs(path) if intermediates else str(path)
        try:
            self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # its own exception classes are private and differ between versions
            raise ArgumentError(f"onnxruntime cannot load {path}: {_first_line(error)}") from error
        self.version: str = onnxruntime.__version__
        self.threads = threads
        self._fixed = {n: np.asarray(v, self._element_type(n)) for n, v in (fixed or {}).items()}
        self.output_names = [o.name for o in self._session.get_outputs()]

    def _element_type(self, name: str) -> Any:
        """Of an input, as NumPy has it; its own choice for a name that the model does not have (running tells)."""
        kinds = {i.name: i.type for i in self._session.get_inputs()}
        kind = kinds.get(name, "").removeprefix("tensor(").removesuffix(")")
        return {"float": "float32", "double": "float64"}.get(kind, kind) or None

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        try:
            return dict(zip(self.output_names, self._session.run(None, {**self._fixed, **inputs})))
        except Exception as error:
            raise ArgumentError(f"onnxruntime cannot run the model: {_first_line(error)}") from error


def with_all_outputs(path: str | PathLike[str]) -> bytes:
    """The model with every value its top-level nodes write added to its outputs."""
    import onnx

    model = onnx.load(path)
    present = {o.name for o in model.graph.output}
    for node in model.graph.node:
        for name in node.output:
            if name and name not in present:
                present.add(name)
                model.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    return bytes(model.SerializeToString())


def _first_line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
