"""Scheduled program -> LLVM IR text.

Every top-level `ParFor` becomes two functions. `NAME_p(args, tid, nthreads, workspace)` is what the runtime calls: it
reads the argument block. It calls the body with every buffer as a parameter of its own that aliases no other, which is
the plainest way to tell LLVM so: outputs and workspace are never read or written through another name.

The text is written directly: building it through an object model costs more than the rest of the compilation.
"""

from __future__ import annotations

import re

from ...errors import VerifyError
from ...ir.scheduled.core import ParFor, Program, lift, var
from ...ir.types import DType, i64
from ..description import TargetDescription
from . import render_expr
from .render_emit import Module, Value
from .render_loops import block
from .render_state import State
from .render_workspace import Slots, slots_of, workspace_bytes
from .types import memory_type, register_type

__all__ = ["phase_names", "render", "workspace_bytes"]


def phase_names(program: Program) -> tuple[str, ...]:
    """The functions of a program, in the order they run; all threads meet between two of them."""
    return tuple(f"{program.name}_{p}" for p in range(len(program.body)))


def render(program: Program, description: TargetDescription) -> str:
    """LLVM IR of all phases."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.]*", program.name):
        raise VerifyError(f"'{program.name}' cannot name a function")
    module = Module(description)
    functions: list[str] = []
    for name, phase in zip(phase_names(program), program.body, strict=True):
        if not isinstance(phase, ParFor):
            raise VerifyError(f"a program's top level holds parallel loops, not {type(phase).__name__}")
        functions.extend(_Phase(module, program, phase, name).text())
    width = description.vector_bits
    attributes = f'attributes #0 = {{ nounwind "prefer-vector-width"="{width}" "min-legal-vector-width"="{width}" }}'
    parts = [f'target triple = "{description.triple}"', *module.helpers.values(), *functions]
    return "\n\n".join([*parts, "\n".join(module.declarations.values()), attributes]) + "\n"


class _Phase:
    """One parallel loop: its entry point and its body."""

    def __init__(self, module: Module, program: Program, phase: ParFor, name: str) -> None:
        self.module, self.program, self.phase, self.name = module, program, phase, name
        self.slots: Slots = slots_of(phase)
        self.scalars: list[tuple[str, object, DType]] = [("dim", d, i64) for d in program.dims]
        self.scalars += [("stride", s, i64) for s in program.strides]
        self.scalars += [("param", n, d) for n, d in program.scalars]

    def text(self) -> list[str]:
        parameters = [f"ptr noalias %b{k}" for k in range(len(self.program.buffers))]
        parameters += [f"ptr noalias align 64 %w{k}" for k in range(len(self.slots.sizes))]
        parameters += [f"{register_type(d)} %x{k}" for k, (_, _, d) in enumerate(self.scalars)]
        parameters += ["i64 %tid", "i64 %nthreads"]
        body = self._body()
        inner = f"define internal void @{self.name}.body({', '.join(parameters)}) noinline #0 {{\n{body}\n}}"
        return [inner, self._entry(parameters)]

    # -- the entry point

    def _entry(self, parameters: list[str]) -> str:
        w = State(self.module, self.program)
        w.start("entry")
        for k in range(len(self.program.buffers)):
            w.line(f"%b{k} = load ptr, ptr {w.gep('i64', '%args', str(k))}, align 8")
        for k, (kind, name, dtype) in enumerate(self.scalars):
            place = w.gep("i64", "%args", str(k + len(self.program.buffers)))
            memory = memory_type(dtype)
            if dtype.is_bool:
                byte = w.op(f"load i8, ptr {place}, align 8")
                w.line(f"%x{k} = icmp ne i8 {byte}, 0")
            else:
                w.line(f"%x{k} = load {memory}, ptr {place}, align 8")
            w.names[kind, name] = f"%x{k}"
        for k, offset in enumerate(self.slots.offsets()):
            at = render_expr.scalar(w, lift(offset))
            w.line(f"%w{k} = getelementptr i8, ptr %workspace, i64 {at}")
        arguments = ", ".join(p.replace("noalias ", "") for p in parameters)
        w.line(f"call void @{self.name}.body({arguments})")
        w.line("ret void")
        head = f"define void @{self.name}(ptr %args, i64 %tid, i64 %nthreads, ptr %workspace) #0 {{"
        return head + "\n" + "\n".join(w.lines) + "\n}"

    # -- the body

    def _body(self) -> str:
        w = State(self.module, self.program)
        w.start("entry")
        head = len(w.lines)
        for k, buffer in enumerate(self.program.buffers):
            w.base[buffer] = f"%b{k}"
        for buffer, slot in self.slots.of.items():
            w.base[buffer] = f"%w{slot}"
        for k, (kind, name, _) in enumerate(self.scalars):
            w.names[kind, name] = f"%x{k}"
        self._share(w)
        w.line("ret void")
        w.lines[head:head] = w.entry
        return "\n".join(w.lines)

    def _share(self, w: State) -> None:
        """This thread's part of the flattened grid: total * tid // nthreads up to total * (tid + 1) // nthreads."""
        extents = [render_expr.scalar(w, e) for e in self.phase.extents]
        total = "1"
        for e in extents:
            total = w.imul(total, e)
        first = w.op(f"sdiv i64 {w.imul(total, '%tid')}, %nthreads")
        last = w.op(f"sdiv i64 {w.imul(total, w.iadd('%tid', '1'))}, %nthreads")
        loop, after = w.label("grid"), w.label("done")
        some = w.label("some")
        w.branch(w.op(f"icmp slt i64 {first}, {last}"), some, after)
        w.start(some)
        starts: list[str] = []
        rest = first
        for e in reversed(extents):  # the only divisions: the loop then counts
            starts.insert(0, w.op(f"urem i64 {rest}, {e}"))
            rest = w.op(f"udiv i64 {rest}, {e}")
        w.jump(loop)
        w.start(loop)
        slot = len(w.lines)
        position, names = w.name(), [w.name() for _ in extents]
        with w.scope():
            for v, name in zip(self.phase.vars, names, strict=True):
                w.remember(w.common, var(v), Value("s", name, i64))
            block(w, self.phase.body)
        following = w.op(f"add nuw i64 {position}, 1")
        nexts = self._count(w, names, extents)
        phis = [(position, first, following), *zip(names, starts, nexts, strict=True)]
        w.lines[slot:slot] = [f"  {p} = phi i64 [ {a}, %{some} ], [ {b}, %{w.block} ]" for p, a, b in phis]
        w.branch(w.op(f"icmp slt i64 {following}, {last}"), loop, after)
        w.start(after)

    def _count(self, w: State, names: list[str], extents: list[str]) -> list[str]:
        """The indices of the next grid position: the last one counts, the others carry."""
        nexts: list[str] = []
        carry = "true"
        for k in reversed(range(len(names))):
            step = "1" if carry == "true" else w.op(f"zext i1 {carry} to i64")
            moved = w.op(f"add i64 {names[k]}, {step}")
            wraps = w.op(f"icmp eq i64 {moved}, {extents[k]}")
            nexts.insert(0, w.op(f"select i1 {wraps}, i64 0, i64 {moved}") if k else moved)
            carry = wraps
        return nexts

