"""The thread pool's native half, as LLVM IR: the worker loop, the step interpreter and the barrier.

A *job* is a table of steps which every thread walks by itself (SPMD), meeting the others where a step says so; nothing
of Python runs between steps. Publishing a job is one atomic store of the job word, which holds a sequence number and
the number of threads taking part, so that a worker reads both at once: a worker that sits a job out may be late, and
must not mistake the next job for this one.

The functions:

    tw_worker(pool, tid)                              loop of a worker; returns when the pool is shut down
    tw_run(pool, steps, nsteps, nthreads, stamps)     publishes a job, takes part as thread 0, returns when it is done
    tw_run_single(steps, nsteps, workspace, stamps)   the same steps on the calling thread alone; needs no pool
    tw_clock() -> i64                                 the tick counter that stamps are taken from
    tw_nothing(args, tid, nthreads, workspace)        a kernel that does nothing, for measuring
"""

from __future__ import annotations

from string import Template

from ...errors import UnsupportedError

# The pool's memory, in bytes from its start. What different threads write lies 128 bytes apart: processors fetch
# cache lines in pairs.
JOB_WORD = 0  # i32: sequence number << THREAD_BITS | threads taking part; also the futex workers sleep on
SLEEPERS = 128  # i32: workers asleep, or about to be
ARRIVED = 256  # i32: threads that have reached the current barrier
PASSED = 384  # i32: barriers passed so far
JOB_STEPS = 512  # ptr
JOB_NSTEPS = 520  # i64
SHUTDOWN = 640  # i32: workers leave when it is set
WAIT_TICKS = 648  # i64: how long an idle worker spins before it sleeps
BARRIER_SPINS = 656  # i64: pauses at a barrier before a thread offers its core to others
SYSCALL = 664  # ptr: libc's syscall
YIELD = 672  # ptr: libc's sched_yield
FUTEX = 680  # i64: the system call's number
WORKSPACES = 768  # ptr per thread
THREAD_BITS = 12
MAX_THREADS = (1 << THREAD_BITS) - 1
POOL_BYTES = WORKSPACES + 8 * (MAX_THREADS + 1)

# A step: eight 64-bit words.
STEP_WORDS = 8
STEP_FN, STEP_ARGS, STEP_KIND, STEP_TARGET, STEP_FLAGS = range(5)
CALL_ALL = 0  # fn(args, tid, nthreads, workspace) on every thread
CALL_ONE = 1  # fn(args, 0, 1, workspace) on thread 0
JUMP_IF_ZERO = 2  # to step `target` when the byte at `args` is zero
JUMP = 3  # to step `target`
BARRIER_AFTER = 1  # flag: all threads meet after the step (after the byte is read, for a jump)

FUNCTIONS = ("tw_worker", "tw_run", "tw_run_single", "tw_clock", "tw_nothing")

_FUTEX_NUMBERS = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "loongarch64": 98}
_FUTEX_WAIT_PRIVATE = 128
_FUTEX_WAKE_PRIVATE = 129
_PAUSE = {  # "I am spinning", per architecture: declaration, call
    "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)", "call void @llvm.aarch64.hint(i32 1)"),
    "riscv64": ("declare void @llvm.riscv.pause()", "call void @llvm.riscv.pause()"),
    "loongarch64": ("", ""),
}
# On Arm and RISC-V the cycle counter is closed to programs, and the steady counter is the one that may be read.
_CLOCK = {"x86_64": "readcyclecounter", "loongarch64": "readcyclecounter"}


def futex_number(arch: str) -> int:
    _check(arch)
    return _FUTEX_NUMBERS[arch]


def architecture(triple: str) -> str:
    arch = triple.partition("-")[0]
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(arch, arch)


def _check(arch: str) -> None:
    if arch not in _FUTEX_NUMBERS:
        raise UnsupportedError(f"the thread pool does not know the architecture '{arch}'", hint="set_threads(1) works")


def module(triple: str) -> str:
    """The LLVM IR of the pool for an architecture (Linux)."""
    arch = architecture(triple)
    _check(arch)
    declare_pause, pause = _PAUSE[arch]
    clock = _CLOCK.get(arch, "readsteadycounter")
    names = {
        "declare_pause": declare_pause, "pause": pause, "clock": clock,
        "SLEEPERS": SLEEPERS, "ARRIVED": ARRIVED, "PASSED": PASSED, "JOB_STEPS": JOB_STEPS, "JOB_NSTEPS": JOB_NSTEPS,
        "SHUTDOWN": SHUTDOWN, "WAIT_TICKS": WAIT_TICKS, "BARRIER_SPINS": BARRIER_SPINS, "SYSCALL": SYSCALL,
        "YIELD": YIELD, "FUTEX": FUTEX, "WORKSPACES": WORKSPACES, "THREAD_BITS": THREAD_BITS,
        "MAX_THREADS": MAX_THREADS,
        "FUTEX_WAIT": _FUTEX_WAIT_PRIVATE, "FUTEX_WAKE": _FUTEX_WAKE_PRIVATE,
        "STEP_BYTES": 8 * STEP_WORDS, "ARGS": 8 * STEP_ARGS, "KIND": 8 * STEP_KIND, "TARGET": 8 * STEP_TARGET,
        "FLAGS": 8 * STEP_FLAGS,
        "CALL_ALL": CALL_ALL, "CALL_ONE": CALL_ONE, "JUMP_IF_ZERO": JUMP_IF_ZERO, "JUMP": JUMP,
    }  # fmt: skip
    return Template(_BARRIER + _STEPS + _RUN + _WORKER).substitute(names)


# The barrier: the last to arrive resets the count and moves the number of barriers passed, which the others watch.
# A thread that has not met anyone for long gives its core away: there may be fewer cores than threads.
_BARRIER = """
$declare_pause
declare i64 @llvm.$clock()

define i64 @tw_clock() {
  %ticks = call i64 @llvm.$clock()
  ret i64 %ticks
}

define void @tw_nothing(ptr %args, i64 %tid, i64 %nthreads, ptr %workspace) {
  ret void
}

define internal void @barrier(ptr %pool, i32 %threads) {
entry:
  %arrived.at = getelementptr i8, ptr %pool, i64 $ARRIVED
  %passed.at = getelementptr i8, ptr %pool, i64 $PASSED
  %before = load atomic i32, ptr %passed.at acquire, align 4
  %others = atomicrmw add ptr %arrived.at, i32 1 acq_rel
  %rest = sub i32 %threads, 1
  %last = icmp eq i32 %others, %rest
  br i1 %last, label %release, label %prepare
release:
  store atomic i32 0, ptr %arrived.at monotonic, align 4
  %after = add i32 %before, 1
  store atomic i32 %after, ptr %passed.at release, align 4
  ret void
prepare:
  %limit.at = getelementptr i8, ptr %pool, i64 $BARRIER_SPINS
  %limit = load i64, ptr %limit.at
  br label %spin
spin:
  %count = phi i64 [ 0, %prepare ], [ %next, %again ]
  %now = load atomic i32, ptr %passed.at acquire, align 4
  %met = icmp ne i32 %now, %before
  br i1 %met, label %done, label %wait
wait:
  $pause
  %next = add i64 %count, 1
  %long = icmp ugt i64 %next, %limit
  br i1 %long, label %offer, label %again
offer:
  %yield.at = getelementptr i8, ptr %pool, i64 $YIELD
  %yield = load ptr, ptr %yield.at
  %ignored = call i32 %yield()
  br label %again
again:
  br label %spin
done:
  ret void
}
"""

# One thread's walk through the steps. Thread 0 of a job with stamps adds the ticks of each step (its barrier included)
# and 1 to the step's pair of counters. The walk ends with all threads having met, once.
_STEPS = """
define internal void @walk(ptr %pool, ptr %steps, i64 %nsteps, i64 %tid, i64 %nthreads, ptr %workspace, ptr %stamps) {
entry:
  %several = icmp ugt i64 %nthreads, 1
  %threads = trunc i64 %nthreads to i32
  %first = icmp eq i64 %tid, 0
  %timed = icmp ne ptr %stamps, null
  br label %head
head:
  %pc = phi i64 [ 0, %entry ], [ %next, %advance ]
  %met = phi i1 [ false, %entry ], [ %meets, %advance ]
  %more = icmp ult i64 %pc, %nsteps
  br i1 %more, label %fetch, label %finish
fetch:
  %offset = mul i64 %pc, $STEP_BYTES
  %step = getelementptr i8, ptr %steps, i64 %offset
  %fn = load ptr, ptr %step
  %args.at = getelementptr i8, ptr %step, i64 $ARGS
  %args = load ptr, ptr %args.at
  %kind.at = getelementptr i8, ptr %step, i64 $KIND
  %kind = load i64, ptr %kind.at
  %target.at = getelementptr i8, ptr %step, i64 $TARGET
  %flags.at = getelementptr i8, ptr %step, i64 $FLAGS
  %flags = load i64, ptr %flags.at
  %meets = trunc i64 %flags to i1
  %following = add i64 %pc, 1
  br i1 %timed, label %begin, label %dispatch
begin:
  %began = call i64 @llvm.$clock()
  br label %dispatch
dispatch:
  %start = phi i64 [ 0, %fetch ], [ %began, %begin ]
  switch i64 %kind, label %sync [ i64 $CALL_ALL, label %all
                                  i64 $CALL_ONE, label %one
                                  i64 $JUMP_IF_ZERO, label %test
                                  i64 $JUMP, label %jump ]
all:
  call void %fn(ptr %args, i64 %tid, i64 %nthreads, ptr %workspace)
  br label %sync
one:
  br i1 %first, label %alone, label %sync
alone:
  call void %fn(ptr %args, i64 0, i64 1, ptr %workspace)
  br label %sync
test:
  %byte = load i8, ptr %args
  %zero = icmp eq i8 %byte, 0
  br i1 %zero, label %jump, label %sync
jump:
  %target = load i64, ptr %target.at
  br label %sync
sync:
  %next = phi i64 [ %following, %dispatch ], [ %following, %all ], [ %following, %one ], [ %following, %alone ],
                  [ %following, %test ], [ %target, %jump ]
  %wait = and i1 %meets, %several
  br i1 %wait, label %meet, label %timing
meet:
  call void @barrier(ptr %pool, i32 %threads)
  br label %timing
timing:
  br i1 %timed, label %stamp, label %advance
stamp:
  %ended = call i64 @llvm.$clock()
  %spent = sub i64 %ended, %start
  %pair = mul i64 %pc, 16
  %ticks.at = getelementptr i8, ptr %stamps, i64 %pair
  %count.at = getelementptr i8, ptr %ticks.at, i64 8
  %ticks = load i64, ptr %ticks.at
  %count = load i64, ptr %count.at
  %ticks.new = add i64 %ticks, %spent
  %count.new = add i64 %count, 1
  store i64 %ticks.new, ptr %ticks.at
  store i64 %count.new, ptr %count.at
  br label %advance
advance:
  br label %head
finish:
  %unmet = xor i1 %met, true
  %last = and i1 %unmet, %several
  br i1 %last, label %end, label %done
end:
  call void @barrier(ptr %pool, i32 %threads)
  br label %done
done:
  ret void
}
"""

# Publishing stores the word and then looks for sleepers, both sequentially consistent; a worker counts itself as a
# sleeper and then looks at the word: one of the two always sees the other, so no wake-up is lost.
_RUN = """
define void @tw_run(ptr %pool, ptr %steps, i64 %nsteps, i64 %nthreads, ptr %stamps) {
entry:
  %several = icmp ugt i64 %nthreads, 1
  br i1 %several, label %publish, label %work
publish:
  %steps.at = getelementptr i8, ptr %pool, i64 $JOB_STEPS
  %nsteps.at = getelementptr i8, ptr %pool, i64 $JOB_NSTEPS
  store ptr %steps, ptr %steps.at
  store i64 %nsteps, ptr %nsteps.at
  %threads = trunc i64 %nthreads to i32
  %old = load atomic i32, ptr %pool monotonic, align 4
  %sequence.old = lshr i32 %old, $THREAD_BITS
  %sequence = add i32 %sequence.old, 1
  %shifted = shl i32 %sequence, $THREAD_BITS
  %word = or i32 %shifted, %threads
  store atomic i32 %word, ptr %pool seq_cst, align 4
  %sleepers.at = getelementptr i8, ptr %pool, i64 $SLEEPERS
  %sleepers = load atomic i32, ptr %sleepers.at seq_cst, align 4
  %asleep = icmp ne i32 %sleepers, 0
  br i1 %asleep, label %wake, label %work
wake:
  %syscall.at = getelementptr i8, ptr %pool, i64 $SYSCALL
  %syscall = load ptr, ptr %syscall.at
  %futex.at = getelementptr i8, ptr %pool, i64 $FUTEX
  %futex = load i64, ptr %futex.at
  %woken = call i64 (i64, ...) %syscall(i64 %futex, ptr %pool, i32 $FUTEX_WAKE, i32 2147483647)
  br label %work
work:
  %workspace.at = getelementptr i8, ptr %pool, i64 $WORKSPACES
  %workspace = load ptr, ptr %workspace.at
  call void @walk(ptr %pool, ptr %steps, i64 %nsteps, i64 0, i64 %nthreads, ptr %workspace, ptr %stamps)
  ret void
}

define void @tw_run_single(ptr %steps, i64 %nsteps, ptr %workspace, ptr %stamps) {
  call void @walk(ptr null, ptr %steps, i64 %nsteps, i64 0, i64 1, ptr %workspace, ptr %stamps)
  ret void
}
"""

_WORKER = """
define void @tw_worker(ptr %pool, i64 %tid) {
entry:
  %sleepers.at = getelementptr i8, ptr %pool, i64 $SLEEPERS
  %shutdown.at = getelementptr i8, ptr %pool, i64 $SHUTDOWN
  %limit.at = getelementptr i8, ptr %pool, i64 $WAIT_TICKS
  %steps.at = getelementptr i8, ptr %pool, i64 $JOB_STEPS
  %nsteps.at = getelementptr i8, ptr %pool, i64 $JOB_NSTEPS
  %workspaces = getelementptr i8, ptr %pool, i64 $WORKSPACES
  %workspace.at = getelementptr ptr, ptr %workspaces, i64 %tid
  br label %idle
idle:
  %seen = phi i32 [ 0, %entry ], [ %job, %job.done ]
  %since = call i64 @llvm.$clock()
  %limit = load i64, ptr %limit.at
  br label %spin
spin:
  %word = load atomic i32, ptr %pool acquire, align 4
  %new = icmp ne i32 %word, %seen
  br i1 %new, label %take, label %spin.more
spin.more:
  $pause
  %now = call i64 @llvm.$clock()
  %waited = sub i64 %now, %since
  %tired = icmp ugt i64 %waited, %limit
  br i1 %tired, label %sleep, label %spin
sleep:
  %ignored.in = atomicrmw add ptr %sleepers.at, i32 1 seq_cst
  %word.again = load atomic i32, ptr %pool seq_cst, align 4
  %still = icmp eq i32 %word.again, %seen
  br i1 %still, label %sleep.now, label %awake
sleep.now:
  %syscall.at = getelementptr i8, ptr %pool, i64 $SYSCALL
  %syscall = load ptr, ptr %syscall.at
  %futex.at = getelementptr i8, ptr %pool, i64 $FUTEX
  %futex = load i64, ptr %futex.at
  %woken = call i64 (i64, ...) %syscall(i64 %futex, ptr %pool, i32 $FUTEX_WAIT, i32 %seen, ptr null)
  br label %awake
awake:
  %ignored.out = atomicrmw sub ptr %sleepers.at, i32 1 seq_cst
  %word.woken = load atomic i32, ptr %pool acquire, align 4
  %new.woken = icmp ne i32 %word.woken, %seen
  br i1 %new.woken, label %take, label %sleep
take:
  %job = phi i32 [ %word, %spin ], [ %word.woken, %awake ]
  %shutdown = load atomic i32, ptr %shutdown.at acquire, align 4
  %leave = icmp ne i32 %shutdown, 0
  br i1 %leave, label %exit, label %enter
enter:
  %threads = and i32 %job, $MAX_THREADS
  %nthreads = zext i32 %threads to i64
  %mine = icmp ult i64 %tid, %nthreads
  br i1 %mine, label %work, label %job.done
work:
  %steps = load ptr, ptr %steps.at
  %nsteps = load i64, ptr %nsteps.at
  %workspace = load ptr, ptr %workspace.at
  call void @walk(ptr %pool, ptr %steps, i64 %nsteps, i64 %tid, i64 %nthreads, ptr %workspace, ptr null)
  br label %job.done
job.done:
  br label %idle
exit:
  ret void
}
"""
