"""LLVM IR text -> object bytes -> addresses in this process.

Objects are position-independent and hold nothing of this process, so the compile cache can keep them. They are
linked by LLVM's own linker (JITLink), which puts an object in one block and reaches the C library through stubs: the
small code model is safe then, and constants are addressed without a register.
"""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm

from ...errors import UnsupportedError, VerifyError
from ..description import TargetDescription

_lock = threading.RLock()
_ready = False
_library_numbers = itertools.count()


def _initialise() -> None:
    """LLVM's own registration, once in a process."""
    global _ready
    if not _ready:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        if llvm.llvm_version_info[0] >= 20:
            # From both ends at once, as is LLVM's default, it moves loads so far up that full register blocks spill.
            llvm.set_option("tilewright", "-misched-prera-direction=topdown")
        _ready = True


def target_for(description: TargetDescription, opt: int = 3) -> Any:
    """The LLVM target machine of a description (cached)."""
    with _lock:
        return _target(description.triple, description.cpu, description.features, opt)


@lru_cache(maxsize=32)
def _target(triple: str, cpu: str, features: str, opt: int) -> Any:
    _initialise()
    try:
        target = llvm.Target.from_triple(triple)
    except RuntimeError as error:
        raise UnsupportedError(f"this LLVM cannot make code for '{triple}': {error}") from error
    return target.create_target_machine(cpu=cpu, features=features, opt=opt, reloc="pic", codemodel="small", jit=True)


# ---------------------------------------------------------------------------------------------- compile


def to_object(ir_text: str, description: TargetDescription, opt: int = 1) -> bytes:
    """Verified, optimised and compiled. `opt` is the level of LLVM's function simplification, 0 to 3 (0: none; the code
    generator always optimises). Level 1 promotes, hoists and simplifies; more only took longer where measured."""
    with _lock:
        machine = target_for(description)
        module = _optimised(ir_text, machine, opt)
        return bytes(machine.emit_object(module))


def assembly(ir_text: str, description: TargetDescription, opt: int = 1) -> str:
    """The assembly text that `to_object` would assemble."""
    with _lock:
        machine = target_for(description)
        return str(machine.emit_assembly(_optimised(ir_text, machine, opt)))


def optimised_ir(ir_text: str, description: TargetDescription, opt: int = 1) -> str:
    """The IR after LLVM's passes, for people."""
    with _lock:
        return str(_optimised(ir_text, target_for(description), opt))


def _optimised(ir_text: str, machine: Any, opt: int) -> Any:
    try:
        module = llvm.parse_assembly(ir_text, llvm.create_context())
        module.triple = machine.triple
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        raise VerifyError(_explain(str(error), ir_text)) from error
    if opt:
        options = llvm.create_pipeline_tuning_options(speed_level=opt)
        # The code arrives vectorised and unrolled as its schedule says; LLVM's own choices would only undo that.
        options.loop_vectorization = False
        options.slp_vectorization = False
        options.loop_interleaving = False
        options.loop_unrolling = False
        builder = llvm.create_pass_builder(machine, options)
        passes = builder.getFunctionPassManager()
        for function in module.functions:
            if not function.is_declaration:
                passes.run(function, builder)
    return module


def _explain(error: str, ir_text: str) -> str:
    """LLVM's message with the line of IR it speaks of."""
    found = re.search(r"<string>:(\d+):(\d+): error: (.*)", error)
    if not found:
        return f"the generated LLVM IR is not valid: {error.strip()}"
    number, column, reason = int(found[1]), int(found[2]), found[3]
    lines = ir_text.splitlines()
    line = lines[number - 1] if 0 < number <= len(lines) else ""
    return f"the generated LLVM IR is not valid: {reason} (line {number})\n    {line}\n    {' ' * (column - 1)}^"


# ---------------------------------------------------------------------------------------------- load


class LoadedModule:
    """Code in this process. The addresses are valid as long as this object lives."""

    __slots__ = ("_tracker", "_addresses", "__weakref__")

    def __init__(self, tracker: Any, names: tuple[str, ...]) -> None:
        self._tracker = tracker
        self._addresses = {name: int(tracker[name]) for name in names}

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._addresses)

    def address(self, name: str) -> int:
        return self._addresses[name]


def load(object_bytes: bytes, names: Iterable[str]) -> LoadedModule:
    """Links an object into this process. The C library's maths is all it may call."""
    wanted = tuple(names)
    builder = llvm.JITLibraryBuilder().add_object_img(object_bytes).add_current_process()
    for name in wanted:
        builder.export_symbol(name)
    with _lock:
        number = next(_library_numbers)
        try:
            tracker = builder.link(_linker(), f"tilewright.{number}")
        except RuntimeError as error:
            raise VerifyError(f"compiled code cannot be loaded: {error}") from error
    return LoadedModule(tracker, wanted)


@lru_cache(maxsize=1)
def _linker() -> Any:
    """One linker for the whole process; never disposed of, because loaded code may outlive everything else."""
    _initialise()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=0, reloc="pic", codemodel="small", jit=True)
    return llvm.create_lljit_compiler(machine, use_jit_link=True, suppress_errors=True)
