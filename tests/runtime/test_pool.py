"""The thread pool: steps, barriers, several callers at once, fork, exit, and fewer cores than threads."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from tilewright import errors
from tilewright.runtime import threads as setting
from tilewright.targets.llvm import jit, pool
from tilewright.targets.llvm import pool_ir as ir
from tilewright.targets.llvm.description import host_description

KERNELS = """
; args: { ptr counters }: counters[tid] += 1
define void @count(ptr %args, i64 %tid, i64 %n, ptr %ws) {
  %counters = load ptr, ptr %args
  %at = getelementptr i64, ptr %counters, i64 %tid
  %old = load i64, ptr %at
  %new = add i64 %old, 1
  store i64 %new, ptr %at
  ret void
}
; args: { ptr counters, ptr errors }: every thread checks that all counters are equal
define void @agree(ptr %args, i64 %tid, i64 %n, ptr %ws) {
entry:
  %counters = load ptr, ptr %args
  %errors.at = getelementptr ptr, ptr %args, i64 1
  %errors = load ptr, ptr %errors.at
  %mine.at = getelementptr i64, ptr %counters, i64 %tid
  %mine = load i64, ptr %mine.at
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %cont ]
  %at = getelementptr i64, ptr %counters, i64 %i
  %other = load i64, ptr %at
  %same = icmp eq i64 %other, %mine
  br i1 %same, label %cont, label %bad
bad:
  %ignored = atomicrmw add ptr %errors, i64 1 monotonic
  br label %cont
cont:
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
; args: { ptr counters, ptr errors, ptr remaining }: remaining -= 1
define void @countdown(ptr %args, i64 %tid, i64 %n, ptr %ws) {
  %at = getelementptr ptr, ptr %args, i64 2
  %remaining = load ptr, ptr %at
  %old = load i8, ptr %remaining
  %new = sub i8 %old, 1
  store i8 %new, ptr %remaining
  ret void
}
; args: { ptr out }: out[tid] = the workspace's last 8 of 4 MiB (zero at first), then writes there
define void @scratch(ptr %args, i64 %tid, i64 %n, ptr %ws) {
  %out = load ptr, ptr %args
  %at = getelementptr i64, ptr %out, i64 %tid
  %tail = getelementptr i8, ptr %ws, i64 4194296
  %value = load i64, ptr %tail
  store i64 %value, ptr %tail
  %address = ptrtoint ptr %ws to i64
  %odd = and i64 %address, 63
  %sum = add i64 %value, %odd
  store i64 %sum, ptr %at
  ret void
}
"""


@pytest.fixture(scope="module")
def code() -> Iterator[jit.LoadedModule]:
    target = host_description()
    yield jit.load(jit.to_object(KERNELS, target), ("count", "agree", "countdown", "scratch"))


@pytest.fixture(autouse=True)
def restore_threads() -> Iterator[None]:
    yield
    setting.set_threads(None)


class Args:
    """counters (one per thread), errors, a byte that counts down; and the argument block that points to them."""

    def __init__(self, remaining: int = 0) -> None:
        self.counters = np.zeros(64, np.int64)
        self.errors = np.zeros(1, np.int64)
        self.remaining = np.array([remaining], np.uint8)
        self.block = np.array([a.ctypes.data for a in (self.counters, self.errors, self.remaining)], np.int64)
        self.address = self.block.ctypes.data


@pytest.mark.parametrize("n", [2, 3, 7])
def test_thousands_of_barriers_keep_the_threads_in_step(code: jit.LoadedModule, n: int) -> None:
    setting.set_threads(n)
    args = Args()
    pair = [
        (code.address("count"), args.address, ir.CALL_ALL, 0, ir.BARRIER_AFTER),
        (code.address("agree"), args.address, ir.CALL_ALL, 0, ir.BARRIER_AFTER),
    ]
    rounds = 2000 if n == 2 else 200
    steps = pool.Steps(pair * rounds)
    for _ in range(5):
        assert pool.launch(steps.address, steps.count, n) == n
    assert args.errors[0] == 0
    assert args.counters[:n].tolist() == [5 * rounds] * n and not args.counters[n:].any()


def test_the_end_of_a_job_is_a_barrier_even_without_a_flag(code: jit.LoadedModule) -> None:
    setting.set_threads(2)
    args = Args()
    steps = pool.Steps([(code.address("count"), args.address)])
    for i in range(3000):
        pool.launch(steps.address, steps.count, 2)
        assert args.counters[:2].tolist() == [i + 1] * 2


def test_a_loop_and_a_step_on_one_thread(code: jit.LoadedModule) -> None:
    setting.set_threads(2)
    args = Args(remaining=200)
    steps = pool.Steps(
        [
            (0, args.remaining.ctypes.data, ir.JUMP_IF_ZERO, 4, ir.BARRIER_AFTER),
            (code.address("count"), args.address, ir.CALL_ALL, 0, 0),
            (code.address("countdown"), args.address, ir.CALL_ONE, 0, ir.BARRIER_AFTER),
            (0, 0, ir.JUMP, 0, 0),
        ]
    )
    assert pool.launch(steps.address, steps.count, 2) == 2
    assert args.counters[:3].tolist() == [200, 200, 0] and args.remaining[0] == 0
    args.remaining[0] = 3
    assert pool.launch(steps.address, steps.count, 1) == 1
    assert args.counters[:3].tolist() == [203, 200, 0]


def test_jobs_of_changing_numbers_of_threads(code: jit.LoadedModule) -> None:
    setting.set_threads(4)
    args = Args()
    steps = pool.Steps([(code.address("count"), args.address, ir.CALL_ALL, 0, ir.BARRIER_AFTER)] * 2)
    expected = np.zeros(64, np.int64)
    for n in np.random.default_rng(1).integers(1, 5, 400).tolist():
        assert pool.launch(steps.address, steps.count, n) == n
        expected[:n] += 2
    assert np.array_equal(args.counters, expected)


def test_changing_the_setting_replaces_the_pool(code: jit.LoadedModule) -> None:
    args = Args()
    steps = pool.Steps([(code.address("count"), args.address)])
    for n in (2, 5, 3, 1, 2):
        setting.set_threads(n)
        assert pool.launch(steps.address, steps.count, 99) == n
    alive = [t for t in threading.enumerate() if t.name.startswith("tilewright-")]
    assert len(alive) == 1


def test_a_setting_that_changes_during_a_launch_does_not_make_a_job_larger_than_its_pool(
    code: jit.LoadedModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = Args()
    steps = pool.Steps([(code.address("count"), args.address)])
    asked = iter([4, *[2] * 10])  # another Python thread lowers it between two looks
    monkeypatch.setattr(setting, "threads", lambda: next(asked))
    run = pool.Pool.run

    def fits(self: pool.Pool, steps: int, nsteps: int, nthreads: int, *rest: int) -> None:
        assert nthreads <= self.size  # else the job would wait for threads that are not there
        run(self, steps, nsteps, nthreads, *rest)

    monkeypatch.setattr(pool.Pool, "run", fits)
    assert pool.launch(steps.address, steps.count, 99) == 4


def test_scratch_memory_is_aligned_zero_and_grows(code: jit.LoadedModule) -> None:
    setting.set_threads(2)
    for n in (1, 2):
        args = Args()
        args.counters[:] = -1
        steps = pool.Steps([(code.address("scratch"), args.address)])
        pool.launch(steps.address, steps.count, n, workspace=4 << 20)
        assert args.counters[:n].tolist() == [0] * n


def test_stamps_count_ticks_per_step(code: jit.LoadedModule) -> None:
    setting.set_threads(2)
    args = Args(remaining=5)
    steps = pool.Steps(
        [
            (0, args.remaining.ctypes.data, ir.JUMP_IF_ZERO, 3, ir.BARRIER_AFTER),
            (code.address("countdown"), args.address, ir.CALL_ONE, 0, ir.BARRIER_AFTER),
            (0, 0, ir.JUMP, 0, 0),
        ]
    )
    stamps = np.zeros((3, 2), np.int64)
    pool.launch(steps.address, steps.count, 2, stamps=stamps.ctypes.data)
    assert stamps[:, 1].tolist() == [6, 5, 5] and (stamps[:2, 0] > 0).all()
    assert 0.001 < pool.native().ticks_per_ns() < 20


def test_many_python_threads_at_once(code: jit.LoadedModule) -> None:
    setting.set_threads(2)
    used: list[int] = []
    failures: list[str] = []

    def caller() -> None:
        args = Args()
        total = 0
        steps = pool.Steps([(code.address("count"), args.address, ir.CALL_ALL, 0, ir.BARRIER_AFTER)] * 50)
        for _ in range(100):
            n = pool.launch(steps.address, steps.count, 2)
            used.append(n)
            total += 50 * n
        if args.counters.sum() != total:
            failures.append(f"{args.counters.sum()} != {total}")

    callers = [threading.Thread(target=caller) for _ in range(8)]
    for c in callers:
        c.start()
    for c in callers:
        c.join()
    assert not failures and len(used) == 800 and 2 in used


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_gets_its_own_pool(code: jit.LoadedModule) -> None:
    setting.set_threads(2)
    args = Args()
    steps = pool.Steps([(code.address("count"), args.address)])
    assert pool.launch(steps.address, steps.count, 2) == 2
    child = os.fork()
    if child == 0:
        ok = pool.launch(steps.address, steps.count, 2) == 2 and args.counters[:2].tolist() == [2, 2]
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert pool.launch(steps.address, steps.count, 2) == 2 and args.counters[:2].tolist() == [2, 2]


@pytest.mark.parametrize("bad", [0, -1, 5000, True, 2.0, "2"])
def test_a_wrong_number_of_threads_is_refused(bad: object) -> None:
    with pytest.raises(errors.ArgumentError, match="number of threads"):
        setting.set_threads(bad)  # type: ignore[arg-type]


# ---------------------------------------------------------------------------------------------- whole processes

PRELUDE = """
import os, sys, threading, time
{before}
from tilewright.runtime import threads as setting
from tilewright.targets.llvm import pool, pool_ir as ir
setting.set_threads(2)
nothing = pool.native().nothing
steps = pool.Steps([(nothing, 0, ir.CALL_ALL, 0, 1)] * {count})
def go(): return pool.launch(steps.address, steps.count, 2)
"""


def run_process(body: str, before: str = "", count: int = 10, **env: str) -> str:
    source = PRELUDE.format(before=before, count=count) + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **env},
    )  # fmt: skip
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


def test_exit_is_clean_after_use() -> None:
    assert run_process("print(go())") == "2\n"
    assert run_process("print(go()); time.sleep(0.01)") == "2\n"  # the worker sleeps by then


def test_exit_is_clean_with_a_daemon_thread_in_the_pool() -> None:
    body = """
        def forever():
            while True: go()
        threading.Thread(target=forever, daemon=True).start()
        time.sleep(0.2)
        print('end')
    """
    assert run_process(body) == "end\n"


def test_a_launch_while_the_interpreter_ends_runs_alone() -> None:
    assert run_process("import atexit; atexit.register(lambda: print(go()))") == "1\n"
    assert run_process("import atexit; go(); atexit._run_exitfuncs(); print(go())") == "1\n"


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs sched_setaffinity")
@pytest.mark.parametrize("when", ["before", "after"])
def test_two_threads_on_one_core(when: str) -> None:
    pin = "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})"
    measure = "print([go() for _ in range(20)].count(2))"
    if when == "before":
        assert run_process(measure, pin, 20) == "20\n"
    else:
        every = f"for t in os.listdir('/proc/self/task'): {pin.replace('(0, ', '(int(t), ')}"
        assert run_process(f"go()\n{every}\n{measure}", count=20) == "20\n"


def test_the_environment_sets_the_default() -> None:
    assert run_process("setting.set_threads(None); print(setting.threads())", TILEWRIGHT_THREADS="3") == "3\n"
    body = """
        setting.set_threads(None)
        try: setting.threads()
        except Exception as e: print(e)
    """
    assert "TILEWRIGHT_THREADS: the number of threads is from 1" in run_process(body, TILEWRIGHT_THREADS="many")
    assert ctypes.sizeof(ctypes.c_void_p) == 8
