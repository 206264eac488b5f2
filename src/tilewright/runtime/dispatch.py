"""Calls of kernels: arguments in, plan looked up, one native call, results out.

A *plan* is everything that a call with these exact shapes, strides and static values needs: the code, the words of the
argument block that do not change, how results are made. The first call with new shapes makes one (and compiles, if the
specialisation is new as well); the calls after it only collect addresses.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import ArgumentError, TilewrightError
from ..ir.types import Loc
from . import arrays, sizes, specialise
from . import threads as setting
from .arrays import ArrayInfo, numpy_pointer
from .results import check_scalar
from .specialise import Compiled, Family, Specialisation, Stages

if TYPE_CHECKING:
    from ..ir.tile.core import Kernel as TileKernel
    from ..lang.signature import Parameter, Signature

_MAX_PLANS = 2048
_compiling = threading.RLock()  # one kernel is made at a time: whoever needs the same one waits and finds it
_torch_types: set[type] = set()  # torch's own tensor classes, once a caller has shown one


class Call:
    """One call's arguments, read: arrays, static values, scalars, and what shapes make of the dims."""

    __slots__ = ("infos", "static", "scalars", "dims", "spec")

    def __init__(self, signature: Signature, args: Sequence[Any]) -> None:
        from ..lang.signature import ScalarSpec, TensorSpec, bind, check_spec

        self.infos: dict[str, ArrayInfo] = {}
        self.static: dict[str, Any] = {}
        self.scalars: dict[str, Any] = {}
        self.spec: dict[str, Any] = {}
        for p, value in zip(signature.params, args, strict=True):
            if p.kind == "tensor":
                info = _inspect(value, p)
                if info is None:
                    raise _no_array(signature, p, value)
                self.infos[p.name] = info
                self.spec[p.name] = TensorSpec(info.dtype, info.shape)
            elif p.kind == "scalar":
                self.scalars[p.name] = check_scalar(value, p.annotation, p.name, p.loc)
                self.spec[p.name] = ScalarSpec(p.annotation)
            else:
                self.static[p.name] = self.spec[p.name] = value
        check_spec(signature, self.spec)
        self.dims = bind(signature, self.spec).values

    @property
    def kind(self) -> str:
        """What results are: like the first tensor."""
        return next((i.kind for i in self.infos.values()), "numpy")

    @property
    def family(self) -> Family:
        """What the meaning of the source depends on besides the sizes of dims."""
        tensors = tuple((n, i.dtype.name, len(i.shape)) for n, i in self.infos.items())
        return tensors, specialise.static_key(self.static)

    @property
    def copied(self) -> bool:
        return any(i.copied for i in self.infos.values())


def _inspect(value: Any, p: Parameter) -> ArrayInfo | None:
    try:
        return arrays.inspect(value, p.name)
    except TilewrightError as error:
        raise type(error)(error.message, loc=error.loc or p.loc, hint=error.hint) from None


def _no_array(signature: Signature, p: Parameter, value: Any) -> ArgumentError:
    hint = "pass a NumPy array, a torch tensor, or anything with DLPack"
    if isinstance(value, list | tuple):
        hint = f"write numpy.array({p.name}) with the element type you mean"
    return ArgumentError(
        f"{signature.name}: '{p.name}' is a tensor {p.annotation}, not a {type(value).__name__}", loc=p.loc, hint=hint
    )


class Plan:
    """A prepared call."""

    __slots__ = ("run", "mask", "compiled")

    def __init__(self, code: Compiled, call: Call, loc: Loc | None) -> None:
        self.compiled = code
        self.mask = max((i.dtype.itemsize for i in call.infos.values()), default=1) - 1
        self.run = _runner(code, call, loc)


def _runner(code: Compiled, call: Call, loc: Loc | None) -> Callable[[list[int], list[Any]], Any]:
    """A function from the addresses of the inputs and the values of the scalars to the results."""
    from ..targets.llvm import driver, pool

    executable, artifact = code.executable, code.executable.artifact
    kind = call.kind
    makers = [arrays.maker(o.shape(call.dims, loc), o.dtype, kind) for o in code.outputs]
    strides = {sizes.stride_name(n, k): s for n, i in call.infos.items() for k, s in enumerate(i.strides)}
    words = [call.dims[d] for d in artifact.dims] + [strides[sizes.stride_name(*s)] for s in artifact.strides]
    tail = driver.pack_words(words)
    names = [*call.infos, *(o.name for o in code.outputs)]
    order = [names.index(b) for b in artifact.buffers]
    in_order = order == list(range(len(names)))
    pack = struct.Struct(f"<{len(order)}q").pack
    scalars = [(list(call.scalars).index(n), d, n) for n, d in artifact.scalars]
    workspace = sizes.evaluate(artifact.workspace, {**call.dims, **strides})
    threads = artifact.threads
    direct = executable.only if threads == 1 else None
    own_workspace, run, pack_scalar = pool.own_workspace, executable.run, driver.pack_scalar
    address = numpy_pointer if kind == "numpy" else _torch_pointer

    def finish(pointers: list[int], values: list[Any]) -> None:
        block = pack(*pointers) if in_order else pack(*(pointers[i] for i in order))
        block += tail
        for position, dtype, name in scalars:
            block += pack_scalar(check_scalar(values[position], dtype, name, loc), dtype)
        if direct is not None:
            direct(block, 0, 1, own_workspace(workspace) if workspace else None)
        else:
            run(block, threads, workspace)

    if code.single:
        make = makers[0]

        def run_one(pointers: list[int], values: list[Any]) -> Any:
            result = make()
            pointers.append(address(result))
            finish(pointers, values)
            return result

        return run_one

    def run_several(pointers: list[int], values: list[Any]) -> Any:
        results = [m() for m in makers]
        pointers.extend(map(address, results))
        finish(pointers, values)
        return tuple(results)

    return run_several


def _torch_pointer(tensor: Any) -> int:
    return int(tensor.data_ptr())


class Dispatcher:
    """The calls of one kernel. `pinned`: dims whose exact size may be built into the code."""

    def __init__(self, fn: Callable[..., Any], pinned: frozenset[str] = frozenset()) -> None:
        self.fn = fn
        self.pinned = pinned
        self._plans: dict[Any, Plan] = {}
        self._compiled: dict[Specialisation, Compiled] = {}
        self._learnt: dict[Family, frozenset[str]] = {}  # dims that parsing pins
        self._signature: Signature | None = None
        self._kinds: tuple[str, ...] = ()
        self._count = -1

    @property
    def signature(self) -> Signature:
        if self._signature is None:
            from ..lang.signature import signature_of

            found = signature_of(self.fn)
            self._kinds = tuple(p.kind for p in found.params)
            self._signature = found
            self._count = len(self._kinds)
        return self._signature

    @property
    def loc(self) -> Loc | None:
        params = self.signature.params
        return Loc(params[0].loc.file, params[0].loc.line) if params else None

    # ------------------------------------------------------------------ the call

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs or len(args) != self._count:
            args = self.arguments(args, kwargs)
        key: list[Any] = [setting.threads()]
        pointers: list[int] = []
        values: list[Any] = []
        bits = 0
        for kind, a in zip(self._kinds, args):
            if kind == "tensor":
                t = type(a)
                if t is np.ndarray:
                    key += (a.dtype, a.shape, a.strides)
                    at = numpy_pointer(a)
                elif t in _torch_types and _is_plain(a):
                    key += (a.dtype, a.shape, a.stride())
                    at = a.data_ptr()
                else:
                    return self._run(args)
                pointers.append(at)
                bits |= at
            elif kind == "scalar":
                values.append(a)
            else:
                key += (type(a), repr(a))
        plan = self._plans.get(tuple(key))
        if plan is None:
            return self._run(args, tuple(key))
        if bits & plan.mask:  # an address may be misaligned for its elements: read them one by one
            return self._run(args)
        return plan.run(pointers, values)

    def _run(self, args: Sequence[Any], key: Any = None) -> Any:
        """The long way. `key`: where to keep the plan, when calls like this one can use it again."""
        call = Call(self.signature, args)
        plan = Plan(self.compiled(call), call, self.loc)
        if key is not None and not call.copied:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            self._plans[key] = plan
        elif key is None and call.kind == "torch":
            _meet_torch()
        return plan.run([i.pointer for i in call.infos.values()], list(call.scalars.values()))

    def arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """One value per parameter, in order."""
        from ..lang.signature import NO_DEFAULT

        params = self.signature.params
        name = self.signature.name
        if len(args) > len(params):
            raise ArgumentError(f"{name} takes {len(params)} arguments, not {len(args)}", loc=self.loc)
        for given in kwargs:
            if all(p.name != given for p in params):
                known = ", ".join(p.name for p in params)
                raise ArgumentError(f"{name}: there is no parameter '{given}'", loc=self.loc, hint=f"it has {known}")
        out = list(args)
        for p in params[: len(args)]:
            if p.name in kwargs:
                raise ArgumentError(f"{name}: '{p.name}' is given twice", loc=p.loc)
        for p in params[len(args) :]:
            value = kwargs.get(p.name, p.default)
            if value is NO_DEFAULT:
                raise ArgumentError(f"{name}: no value for parameter '{p.name}'", loc=p.loc)
            out.append(value)
        return tuple(out)

    # ------------------------------------------------------------------ the same, in steps

    def read(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Call:
        return Call(self.signature, self.arguments(args, kwargs))

    def key(self, call: Call) -> Specialisation:
        pinned = self.pinned | self._learnt.get(call.family, frozenset())
        return specialise.specialise(call.infos, call.dims, call.static, pinned, setting.threads())

    def compiled(self, call: Call) -> Compiled:
        """The code for calls like this one: in this process, in the cache on disk, or made now."""
        key = self.key(call)
        found = self._compiled.get(key)
        if found is None:
            with _compiling:
                found = self._compiled.get(key) or self._find(call)
        return found

    def _find(self, call: Call) -> Compiled:
        family = call.family
        if family not in self._learnt:
            self._learnt[family] = specialise.pinned_before(self.fn, family)
        key = self.key(call)
        name = specialise.code_name(self.fn, key)
        found = specialise.from_cache(name)
        if found is None:
            parsed = specialise.parse(self.fn, call.spec)
            if self._learn(family, parsed.pinned):
                key = self.key(call)
                name = specialise.code_name(self.fn, key)
            found = specialise.make(parsed, key, name)
        self._compiled[key] = found
        return found

    def _learn(self, family: Family, pinned: frozenset[str]) -> bool:
        """Notes the dims that parsing pinned; whether any of them is news."""
        before = self._learnt.get(family, frozenset())
        if pinned <= before:
            return False
        self._learnt[family] = before | pinned
        specialise.remember_pinned(self.fn, family, before | pinned)
        return True

    def tile_ir(self, call: Call) -> TileKernel:
        return specialise.parse(self.fn, call.spec).kernel

    def stages(self, call: Call) -> Stages:
        parsed = specialise.parse(self.fn, call.spec)
        self._learn(call.family, parsed.pinned)
        return specialise.build(parsed.kernel, self.key(call))

    def reference(self, call: Call) -> Any:
        """The results, by the interpreter of Tile IR."""
        from ..interp import tile as interpreter

        inputs = {n: arrays.to_numpy(i.owner[-1], n) for n, i in call.infos.items()}
        parsed = specialise.parse(self.fn, call.spec)
        made = interpreter.run(parsed.kernel, inputs, call.scalars, call.dims)
        results = tuple(arrays.from_numpy_array(made[p.name], call.kind) for p in parsed.outputs)
        return results[0] if parsed.single else results


def _renew_lock() -> None:
    """A forked child may have inherited the lock from a thread that it does not have."""
    global _compiling
    _compiling = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


def _is_plain(tensor: Any) -> bool:
    """Whether a tensor is strided memory of the CPU that may be read as it is; others go the long way."""
    torch = sys.modules["torch"]
    if tensor.requires_grad and torch.is_grad_enabled():
        return False
    return tensor.layout is torch.strided and tensor.is_cpu and not tensor.is_neg()


def _meet_torch() -> None:
    torch = sys.modules["torch"]
    _torch_types.update((torch.Tensor, torch.nn.Parameter))
