"""The sandbox against real, partly hostile programs: what runs, what is limited, what is left.

Needs root, as oj-box does. Programs are written in C or shell and compiled in the sandbox itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hostile import leftovers
from oj.executor import boxwire
from oj.executor.sandbox import (
    Cancellation,
    LimitHit,
    RunCancelled,
    RunLimits,
    RunRequest,
    RunUnclear,
    Sandbox,
    SandboxFailure,
)
from servers import assert_within, wait_until

TREE = Path(__file__).resolve().parents[2]
MIB = 1 << 20
# Own users for each test run: two on one machine must not count each other's processes.
FIRST_UID = 100_000 + os.getpid() % 30_000 * 500
LIMITS = RunLimits(
    cpu_ms=10_000,  # plenty, for slow and crowded machines, where time is not the point
    wall_ms=60_000,
    memory_bytes=64 * MIB,
    output_bytes=MIB,
    processes=16,
    disk_bytes=8 * MIB,
)
PATHS = {"PATH": "/usr/bin:/bin"}
# In a machine without hardware support everything takes longer; it is only to be right there.
SLOW = 20 if os.environ.get("OJ_SLOW") else 1


@dataclass(frozen=True)
class Ended:
    """A Usage whose outputs have been read and closed."""

    exit_code: int | None
    signal: int | None
    limit_hit: LimitHit
    cpu_us: int
    wall_us: int
    memory_bytes: int
    processes: int
    stdout: bytes
    stderr: bytes
    cut: tuple[bool, bool]
    exec_error: int


class Runner:
    """Runs commands in one slot with one directory."""

    def __init__(self, sandbox: Sandbox, directory: Path, slot: int = 0) -> None:
        self.sandbox = sandbox
        self.directory = directory
        self.slot = slot

    def __call__(
        self,
        *argv: str,
        cancellation: Cancellation | None = None,
        limits: RunLimits = LIMITS,
        **changes: object,
    ) -> Ended:
        request = RunRequest(argv, str(self.directory), limits, env=PATHS)
        request = replace(request, **changes)  # type: ignore[arg-type]
        with self.sandbox.run(self.slot, request, cancellation) as usage:
            return Ended(
                usage.exit_code,
                usage.signal,
                usage.limit_hit,
                usage.cpu_us,
                usage.wall_us,
                usage.memory_bytes,
                usage.processes,
                usage.stdout.read(),
                usage.stderr.read(),
                (usage.stdout.cut, usage.stderr.cut),
                usage.exec_error,
            )

    def sh(self, script: str, **changes: object) -> Ended:
        return self("/bin/sh", "-c", script, **changes)  # type: ignore[arg-type]

    def compile(self, source: str) -> Ended:
        (self.directory / "main.c").write_text(textwrap.dedent(source))
        generous = replace(LIMITS, cpu_ms=60_000, wall_ms=120_000, memory_bytes=512 * MIB)
        done = self(
            "gcc", "-O1", "-w", "-pthread", "-o", "main", "main.c", writable=True, limits=generous
        )
        assert done.exit_code == 0, done.stderr.decode()
        return done

    def c(self, source: str, **changes: object) -> Ended:
        """Compiles and runs a C program."""
        self.compile(source)
        return self("./main", **changes)  # type: ignore[arg-type]


def make_memory_cgroup(name: str, memory_bytes: int) -> Path:
    """Below the root, which may hold processes and children on v2, too."""
    v1 = Path("/sys/fs/cgroup/memory")
    made = (v1 if v1.is_dir() else Path("/sys/fs/cgroup")) / name
    made.mkdir()
    limit = "memory.limit_in_bytes" if v1.is_dir() else "memory.max"
    (made / limit).write_text(str(memory_bytes))
    return made


def remove_cgroup(path: Path) -> bool:
    """Whether it is gone, with what is below it."""
    with contextlib.suppress(OSError):
        for below in sorted(path.rglob("*/"), reverse=True):
            if below.is_dir():
                below.rmdir()
        path.rmdir()
    return not path.exists()


@pytest.fixture(scope="module")
def box_path() -> str:
    if "OJ_BOX" in os.environ:
        return os.environ["OJ_BOX"]
    subprocess.run(["make", "-s", "-C", TREE / "daemons" / "box", "all", "dynamic"], check=True)
    return str(TREE / "build" / "box" / "oj-box")


@pytest.fixture(scope="module")
def sandbox(box_path: str) -> Iterator[Sandbox]:
    with Sandbox.start(box_path, slots=2, first_uid=FIRST_UID) as started:
        yield started


@pytest.fixture
def run(sandbox: Sandbox, tmp_path: Path) -> Iterator[Runner]:
    yield Runner(sandbox, open_directory(tmp_path / "tree"))
    sandbox.forget(0)


def open_directory(path: Path) -> Path:
    """A directory as the executor makes it: open, below one that is closed."""
    path.mkdir()
    path.chmod(0o777)
    return path


def processes_of(first_uid: int, slots: int) -> list[str]:
    """The living processes of the slots' users."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid in range(first_uid, first_uid + slots):
                found.append(entry.name)
    return found


def cgroups(pid: int) -> set[str]:
    """The cgroups that the oj-box with this pid made, those of its runs included.

    os.walk, because others make and remove cgroups while we look."""
    return {path for path, _, _ in os.walk("/sys/fs/cgroup") if f"/oj-box.{pid}." in path}


def cpu_s(first_uid: int, slots: int) -> float:
    """What the living processes of the slots' users have used."""
    ticks = 0
    for pid in processes_of(first_uid, slots):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def wait_for_init(run: Runner) -> tuple[int, int]:
    """Slot 0, once it is idle, and the init that waits in it."""
    slot = children(run.sandbox._process.pid)[0]
    wait_until(lambda: leftovers.is_idle(slot), what="the slot to be idle", timeout_s=60)
    return slot, children(slot)[0]


@contextlib.contextmanager
def held_open() -> Iterator[int]:
    """An input that ends when this does, however long a busy machine takes for what is between."""
    reading, writing = os.pipe()
    try:
        yield reading
    finally:
        os.close(writing)
        os.close(reading)


# ---- what a program gets ---------------------------------------------------------------------


@pytest.mark.parametrize("code", [0, 1, 42, 255])
def test_exit_codes_come_back(run: Runner, code: int) -> None:
    ended = run.sh(f"exit {code}")
    assert (ended.exit_code, ended.signal, ended.limit_hit) == (code, None, LimitHit.NONE)


@pytest.mark.parametrize("number", [signal.SIGABRT, signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM])
def test_signals_come_back_and_are_not_limits(run: Runner, number: signal.Signals) -> None:
    ended = run.sh(f"kill -{int(number)} $$")
    assert (ended.exit_code, ended.signal, ended.limit_hit) == (None, number, LimitHit.NONE)


def test_input_arguments_environment_and_both_outputs_are_connected(
    run: Runner, tmp_path: Path
) -> None:
    (tmp_path / "input").write_bytes(b"one\ntwo\n")
    ended = run.sh(
        'cat; echo "$0 $A $(env | grep -c .)" >&2; pwd',
        stdin=str(tmp_path / "input"),
        env={"A": "b c", "PATH": "/usr/bin"},
    )
    assert ended.stdout == b"one\ntwo\n/box\n"
    assert ended.stderr.startswith(b"/bin/sh b c ")


def test_input_may_be_a_descriptor_and_is_empty_without_one(run: Runner, tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"from a descriptor")
    with path.open("rb") as file:
        assert run("cat", stdin=file.fileno()).stdout == b"from a descriptor"
    assert run("cat").stdout == b""


@pytest.mark.parametrize(
    ("command", "code", "words"),
    [
        ("./nothing", 127, b"No such file"),
        ("nothing", 127, b"No such file"),
        ("/etc/passwd", 126, b"Permission denied"),
    ],
)
def test_a_command_that_cannot_be_executed_ends_as_in_a_shell(
    run: Runner, command: str, code: int, words: bytes
) -> None:
    ended = run(command)
    assert (ended.exit_code, ended.limit_hit) == (code, LimitHit.NONE)
    assert words in ended.stderr
    assert words.decode() in os.strerror(ended.exec_error)


@pytest.mark.parametrize("code", [126, 127])
def test_a_program_that_ends_as_if_it_were_missing_was_executed(run: Runner, code: int) -> None:
    ended = run.sh(f"echo 'oj-box: cannot execute gcc: No such file' >&2; exit {code}")
    assert (ended.exit_code, ended.exec_error) == (code, 0)


def test_it_runs_as_the_slots_user_without_privileges(run: Runner) -> None:
    ended = run.sh("id -u; id -G; grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; hostname")
    lines = ended.stdout.decode().split("\n")
    assert lines[:2] == [str(FIRST_UID), str(FIRST_UID)]
    facts = dict(line.split(":\t") for line in lines[2:9])
    assert {value for name, value in facts.items() if name.startswith("Cap")} == {"0" * 16}
    assert facts["NoNewPrivs"] == "1"
    assert facts["Seccomp"] == "2"
    assert "box" in lines


def test_only_the_standard_descriptors_are_open(run: Runner) -> None:
    ended = run("ls", "/proc/self/fd")
    assert ended.stdout.split() == [b"0", b"1", b"2", b"3"]  # 3 is the listing itself


# ---- limits ----------------------------------------------------------------------------------


def burn_300_ms(run: Runner, script: str) -> int:
    """How far beyond its cpu limit it got, in microseconds, at best: on a crowded machine oj-box
    may wait its turn before it can look."""
    beyond = []
    for _ in range(3):
        ended = run.sh(script, limits=replace(LIMITS, cpu_ms=300))
        assert (ended.limit_hit, ended.signal) == (LimitHit.CPU, signal.SIGKILL)
        assert ended.cpu_us >= 300_000
        beyond.append(ended.cpu_us - 300_000)
    return min(beyond)


def test_a_busy_loop_ends_at_its_cpu_limit(run: Runner) -> None:
    assert burn_300_ms(run, "while :; do :; done") < 100_000 * SLOW


def test_cpu_time_of_children_counts(run: Runner) -> None:
    script = "(while :; do :; done) & (while :; do :; done) & wait"
    assert burn_300_ms(run, script) < 150_000 * SLOW


def test_a_sleeper_ends_at_its_wall_limit_and_uses_no_cpu(run: Runner) -> None:
    def sleep() -> float:
        ended = run("sleep", "60", limits=replace(LIMITS, wall_ms=300))
        assert ended.limit_hit is LimitHit.WALL
        assert ended.wall_us >= 300_000
        assert ended.cpu_us < 100_000 * SLOW
        return ended.wall_us / 1e6

    assert_within(0.3 + 1.2 * SLOW, sleep)


def test_a_memory_bomb_is_killed_by_its_memory_limit(run: Runner) -> None:
    ended = run.c(
        """
        #include <stdlib.h>
        #include <string.h>
        int main(void) { for (;;) memset(malloc(1 << 20), 1, 1 << 20); }
        """
    )
    assert (ended.limit_hit, ended.signal) == (LimitHit.MEMORY, signal.SIGKILL)


@pytest.mark.parametrize("memory_bytes", [1, 4096, 65536, 262144, 524288])
def test_hardly_any_memory_is_still_a_memory_limit(run: Runner, memory_bytes: int) -> None:
    ended = run.sh(
        "x=aaaaaaaa; while :; do x=$x$x; done", limits=replace(LIMITS, memory_bytes=memory_bytes)
    )
    assert ended.limit_hit is LimitHit.MEMORY


def test_memory_is_measured_sanely(run: Runner) -> None:
    run.compile(
        """
        #include <stdlib.h>
        #include <string.h>
        char *volatile kept;
        int main(int n, char **v) { size_t m = atol(v[1]) << 20;
                                    kept = malloc(m); memset(kept, 1, m); return 0; }
        """
    )
    small = run("./main", "1")
    large = run("./main", "40")
    assert small.memory_bytes < 3 * MIB
    assert 40 * MIB <= large.memory_bytes < 43 * MIB


def test_a_run_ends_as_a_whole_when_one_of_its_processes_is_killed_for_memory(run: Runner) -> None:
    start = time.monotonic()
    ended = run.sh("(x=aaaaaaaa; while :; do x=$x$x; done); echo survived; sleep 60", cwd="/tmp")
    assert (ended.limit_hit, ended.signal) == (LimitHit.MEMORY, signal.SIGKILL)
    assert time.monotonic() - start < 10 * SLOW
    assert not processes_of(FIRST_UID, 2)


def test_being_killed_for_the_machines_memory_is_no_memory_limit(
    box_path: str, tmp_path: Path
) -> None:
    """The cgroup above has less than the run may use, as a machine that is short of memory."""
    hungry = "head -c 100M /dev/zero | tail -n 1"  # which keeps all of that one line
    environment = {**os.environ, "OJ_BOX_SCOPE": "1"}  # not in one that systemd makes

    def run_within(memory: str) -> subprocess.CompletedProcess[bytes]:
        # Each in one of its own: on v2 oj-box makes it one that nobody else can enter.
        above = make_memory_cgroup(f"oj-test-short.{os.getpid()}.{memory}", 48 * MIB)
        words = (
            f"echo $$ >{above}/cgroup.procs && exec {box_path} run --dir {tmp_path} --time 20s"
            f" --memory {memory} -- sh -c '{hungry}' >/dev/null"
        )
        try:
            return subprocess.run(
                ["sh", "-c", words], capture_output=True, timeout=120, env=environment, check=False
            )
        finally:
            wait_until(lambda: remove_cgroup(above), what="an empty cgroup", timeout_s=60)

    modest, short = run_within("24M"), run_within("256M")
    assert b"limit=memory" in modest.stderr
    assert short.returncode == 125
    assert b"this machine has too little" in short.stderr


def test_failing_with_all_memory_used_is_a_memory_limit_and_succeeding_is_not(run: Runner) -> None:
    """A runtime that turns a refused allocation into an exit code ends so: at the limit."""
    run.compile(
        """
        #include <stdlib.h>
        #include <string.h>
        #include <sys/mman.h>
        int main(int n, char **v) { size_t m = atol(v[1]) << 10;
            void *p = mmap(0, m, 3, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            memset(p, 1, m); return atoi(v[2]); }
        """
    )
    limits = replace(LIMITS, memory_bytes=16 * MIB)
    assert run("./main", "14336", "1", limits=limits).limit_hit is LimitHit.NONE
    for kib in range(14336, 16384, 64):
        failed = run("./main", str(kib), "1", limits=limits)
        if failed.limit_hit is LimitHit.MEMORY:
            break
    assert (failed.exit_code, failed.signal) == (1, None)
    assert failed.memory_bytes <= limits.memory_bytes
    fine = run("./main", str(kib), "0", limits=limits)
    assert (fine.exit_code, fine.limit_hit) == (0, LimitHit.NONE)


def test_reading_more_than_fits_into_memory_is_no_memory_limit(run: Runner, tmp_path: Path) -> None:
    data = open_directory(tmp_path / "data")
    with (data / "large").open("wb") as file:
        file.write(b"x" * (24 * MIB))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    ended = run.sh(
        "wc -c large; exit 1", data=str(data), limits=replace(LIMITS, memory_bytes=12 * MIB)
    )
    assert (ended.exit_code, ended.limit_hit) == (1, LimitHit.NONE)
    assert ended.stdout.startswith(b"25165824")


def test_memory_of_files_in_tmp_counts(run: Runner) -> None:
    ended = run.sh(
        "cat /dev/zero >/tmp/a", limits=replace(LIMITS, memory_bytes=8 * MIB, disk_bytes=64 * MIB)
    )
    assert ended.limit_hit is LimitHit.MEMORY


def test_a_deep_stack_is_bounded_by_the_memory_limit_only(run: Runner) -> None:
    run.compile(
        """
        #include <stdlib.h>
        static int down(int n) { volatile char a[65536];
                                 for (int i = 0; i < 65536; i += 4096) a[i] = 1;
                                 return n ? down(n - 1) + a[0] : 0; }
        int main(int n, char **v) { return down(atoi(v[1])) < 0; }
        """
    )
    assert run("./main", "640").exit_code == 0  # 40 MiB
    assert run("./main", "6400").limit_hit is LimitHit.MEMORY


@pytest.mark.parametrize(("stream", "cut"), [(1, (True, False)), (2, (False, True))])
def test_a_flood_is_stopped_at_the_output_limit(
    run: Runner, stream: int, cut: tuple[bool, bool]
) -> None:
    ended = run.sh(f"cat /dev/zero >&{stream}", limits=replace(LIMITS, output_bytes=100_000))
    assert ended.limit_hit is LimitHit.OUTPUT
    assert ended.cut == cut
    assert len((ended.stdout, ended.stderr)[stream - 1]) == 100_000


def test_output_of_exactly_the_limit_is_whole_and_no_hit(run: Runner) -> None:
    limits = replace(LIMITS, output_bytes=300_000)
    exact = run("head", "-c", "300000", "/dev/zero", limits=limits)
    assert (exact.exit_code, exact.limit_hit, exact.cut) == (0, LimitHit.NONE, (False, False))
    assert len(exact.stdout) == 300_000
    more = run("head", "-c", "300001", "/dev/zero", limits=limits)
    assert (more.limit_hit, more.cut, len(more.stdout)) == (LimitHit.OUTPUT, (True, False), 300_000)


def test_large_output_comes_whole_and_costs_the_program_no_memory(run: Runner) -> None:
    limits = replace(LIMITS, output_bytes=64 * MIB, memory_bytes=16 * MIB, cpu_ms=60_000)
    ended = run("head", "-c", str(48 * MIB), "/dev/zero", limits=limits)
    assert (ended.exit_code, len(ended.stdout)) == (0, 48 * MIB)


def test_closed_output_streams_do_not_hurt(run: Runner) -> None:
    ended = run.sh("exec >&- 2>&-; sleep 0.2; exit 5")
    assert (ended.exit_code, ended.limit_hit) == (5, LimitHit.NONE)
    assert ended.cpu_us < 100_000 * SLOW


@pytest.mark.parametrize(
    "source",
    [
        "int main(void) { for (;;) if (fork() < 0) return 1; }",
        "int main(void) { for (;;) { setsid(); if (fork() < 0) return 1; } }",
        """void *stay(void *x) { pause(); return x; }
        int main(void) { pthread_t t; for (;;) if (pthread_create(&t, 0, stay, 0)) return 1; }""",
    ],
    ids=["fork", "setsid", "threads"],
)
def test_bombs_of_processes_and_threads_stay_within_their_limit(run: Runner, source: str) -> None:
    ended = run.c("#include <unistd.h>\n#include <pthread.h>\n" + source)
    assert ended.limit_hit is LimitHit.PROCESSES
    assert ended.processes <= LIMITS.processes
    assert not processes_of(FIRST_UID, 2)


@pytest.mark.parametrize("place", ["/box", "/tmp", "/dev/shm"])
def test_files_are_bounded_by_the_disk_limit(run: Runner, place: str) -> None:
    ended = run.sh(f"for i in 1 2 3 4 5; do head -c 3000000 /dev/zero >{place}/$i || exit 1; done")
    assert ended.limit_hit is LimitHit.DISK


def test_one_file_larger_than_the_disk_limit_is_stopped(run: Runner) -> None:
    ended = run.sh("exec head -c 100000000 /dev/zero >a")
    assert ended.limit_hit is LimitHit.DISK


def test_the_number_of_files_is_bounded(run: Runner) -> None:
    ended = run.c(
        """
        #include <fcntl.h>
        #include <stdio.h>
        #include <unistd.h>
        int main(void) { char n[32]; int i, f;
            for (i = 0; i < 100000; i++) { sprintf(n, "%d", i);
                if ((f = open(n, O_CREAT | O_WRONLY, 0600)) < 0) { perror(n); return 1; }
                close(f); }
            return 0; }
        """,
        limits=replace(LIMITS, memory_bytes=256 * MIB, cpu_ms=60_000),
    )
    assert ended.limit_hit is LimitHit.DISK


@pytest.mark.parametrize("place", ["/box", "/tmp"])
def test_the_number_of_files_may_be_given(run: Runner, place: str) -> None:
    limits = replace(LIMITS, files=10)
    script = f"cd {place}; i=0; while [ $i -lt $0 ]; do : >$i || exit 1; i=$((i + 1)); done"
    exact = run("/bin/sh", "-c", script, "10", limits=limits)
    assert (exact.exit_code, exact.limit_hit) == (0, LimitHit.NONE)
    more = run("/bin/sh", "-c", script, "14", limits=limits)
    assert more.limit_hit is LimitHit.DISK


# ---- memory that no cgroup counts ------------------------------------------------------------

# Each open directory of an overlay has a list of its own as long as something changes in it: half a
# kilobyte for a name, which the kernel counts for nobody. After so many megabytes it waits a while.
LISTINGS = """
    #define _GNU_SOURCE
    #include <dirent.h>
    #include <fcntl.h>
    #include <stdio.h>
    #include <stdlib.h>
    #include <string.h>
    #include <sys/syscall.h>
    #include <sys/wait.h>
    #include <unistd.h>
    static void touch(const char *name) { close(open(name, O_CREAT | O_WRONLY, 0600)); }
    int main(int argc, char **argv)
    {
        enum { FILES = 1000, EACH = 200 };
        static char buffer[65536];
        char name[251];
        int lists = atoi(argv[1]) * 2, processes = 0;
        memset(name, 'a', sizeof name);
        for (int i = 0; i < FILES; i++) {
            sprintf(name + 241, "%09d", i);
            touch(name);
        }
        for (; lists > 0; lists -= EACH, processes++)
            if (fork() == 0) {
                for (int i = 0; i < EACH && i < lists; i++) {
                    touch("x");
                    unlink("x");
                    int list = open(".", O_RDONLY | O_DIRECTORY);
                    while (syscall(SYS_getdents64, list, buffer, sizeof buffer) > 0)
                        ;
                }
                puts("done");
                fflush(stdout);
                usleep(atoi(argv[2]) * 1000);
                return 0;
            }
        while (wait(0) > 0)
            ;
        return 0;
    }
"""


@pytest.mark.alone
def test_memory_that_no_cgroup_counts_ends_a_run_that_takes_more_than_its_limit(
    run: Runner,
) -> None:
    run.compile(LISTINGS)
    limits = replace(LIMITS, memory_bytes=32 * MIB, wall_ms=120_000, cpu_ms=60_000)
    fine = run("./main", "16", "0", limits=limits)
    assert (fine.exit_code, fine.limit_hit) == (0, LimitHit.NONE)
    ended = run("./main", "90", "0", limits=limits)
    assert (ended.exit_code, ended.signal) == (None, signal.SIGKILL)
    assert ended.limit_hit is LimitHit.MEMORY
    assert ended.memory_bytes > limits.memory_bytes


WORK = 1_500_000 if SLOW == 1 else 300_000


@pytest.mark.alone
@pytest.mark.parametrize(
    ("script", "again"),
    [
        (f"i=0; while [ $i -lt {WORK} ]; do i=$((i + 1)); done; cat", True),
        # Who uses no time has not taken anything.
        ("sleep 2; cat", False),
    ],
    ids=["works", "sleeps"],
)
def test_a_neighbour_that_takes_what_nobody_counts_costs_nobody_a_verdict(
    run: Runner, tmp_path: Path, caplog: pytest.LogCaptureFixture, script: str, again: bool
) -> None:
    """It stays within its own limit, which is higher than those of the others."""
    caplog.set_level("INFO", "oj.executor.sandbox")
    hungry = Runner(run.sandbox, open_directory(tmp_path / "hungry"), slot=1)
    hungry.compile(LISTINGS)
    (tmp_path / "input").write_text("read from its start")
    ample = replace(LIMITS, memory_bytes=256 * MIB, wall_ms=240_000, cpu_ms=120_000)
    modest = replace(ample, memory_bytes=8 * MIB)

    def meet() -> None:
        full: list[Ended] = []

        def take() -> None:
            wait_until(lambda: processes_of(FIRST_UID, 1), what="the program", timeout_s=60)
            full.append(hungry("./main", "70", "3000", limits=ample))

        thread = threading.Thread(target=take)
        thread.start()
        with (tmp_path / "input").open("rb") as source:
            ended = run.sh(script, limits=modest, stdin=source.fileno())
        thread.join()
        assert (full[0].exit_code, full[0].limit_hit) == (0, LimitHit.NONE)
        assert (ended.exit_code, ended.limit_hit) == (0, LimitHit.NONE)
        assert ended.stdout == b"read from its start"

    def told() -> bool:
        return any(message.startswith("slot 0: the kernel's") for message in caplog.messages)

    meet()
    for _ in range(10):
        if told() or not again:
            break
        meet()  # the neighbour came too late
    run.sandbox.forget(1)
    assert told() is again


@pytest.mark.alone
def test_who_took_memory_is_not_guessed(run: Runner, tmp_path: Path) -> None:
    """A run that cannot be repeated, because its input is a pipe, is nobody's fault."""
    run.compile(LISTINGS)
    other = Runner(run.sandbox, open_directory(tmp_path / "other"), slot=1)
    with held_open() as stdin:
        thread = threading.Thread(target=lambda: other.sh("cat", stdin=stdin))
        thread.start()
        wait_until(lambda: processes_of(FIRST_UID + 1, 1), what="the other", timeout_s=60)
        with pytest.raises(RunUnclear, match="the input cannot be read again"):
            run("./main", "90", "0", limits=replace(LIMITS, memory_bytes=32 * MIB), stdin=stdin)
    thread.join()
    run.sandbox.forget(1)


@pytest.mark.alone
@pytest.mark.parametrize("name", ["huge-pages-freed", "threads-come-and-go"])
def test_what_the_kernel_is_only_about_to_free_is_nobodys_memory(
    run: Runner, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level("INFO", "oj.executor.sandbox")
    hostile = TREE / "tests" / "hostile"
    (run.directory / "hostile.h").write_text((hostile / "hostile.h").read_text())
    run.compile((hostile / name / "main.c").read_text())
    # Not near the limit of what is counted, which grows by stacks that are not free yet.
    limits = replace(LIMITS, memory_bytes=64 * MIB, processes=100)
    for _ in range(10):
        ended = run("./main", limits=limits)
        assert (ended.exit_code, ended.limit_hit) == (0, LimitHit.NONE)
    # Once may be for a daemon of this machine.
    assert len([m for m in caplog.messages if m.startswith("slot 0: the kernel's")]) < 2


# ---- cores ----------------------------------------------------------------------------------


def test_slots_get_a_core_each_where_there_is_one_more(box_path: str, tmp_path: Path) -> None:
    cores = len(os.sched_getaffinity(0))
    assert cores > 1, "this test needs two cores"
    tree = open_directory(tmp_path / "tree")
    with Sandbox.start(box_path, slots=1, first_uid=FIRST_UID + 400, pin=True) as one:
        assert Runner(one, tree)("nproc").stdout == b"1\n"
    with Sandbox.start(box_path, slots=cores, first_uid=FIRST_UID + 400, pin=True) as full:
        assert Runner(full, tree)("nproc").stdout == b"%d\n" % cores


def test_no_program_gets_ahead_of_others_by_priority_or_place(run: Runner) -> None:
    ended = run.c(
        """
        #define _GNU_SOURCE
        #include <errno.h>
        #include <sched.h>
        #include <stdio.h>
        #include <sys/resource.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        int main(void) {
            struct sched_param p = {.sched_priority = 1}; cpu_set_t c; CPU_ZERO(&c); CPU_SET(0, &c);
            if (sched_setscheduler(0, SCHED_FIFO, &p) != -1) puts("SCHED_FIFO");
            if (sched_setscheduler(0, SCHED_RR, &p) != -1) puts("SCHED_RR");
            if (setpriority(PRIO_PROCESS, 0, -5) != -1) puts("setpriority");
            if (sched_setaffinity(0, sizeof c, &c) != -1 || errno != EPERM) puts("affinity");
            struct rlimit l = {.rlim_cur = 10, .rlim_max = 10};
            if (prlimit(0, RLIMIT_RTPRIO, &l, 0) != -1) puts("RLIMIT_RTPRIO");
            l.rlim_cur = l.rlim_max = 1 << 20;
            if (prlimit(0, RLIMIT_NOFILE, &l, 0) != -1) puts("RLIMIT_NOFILE");
            if (prlimit(1, RLIMIT_NOFILE, 0, &l) != -1) puts("prlimit of init");
            unsigned char told[56]; /* from 24 on, the time of a turn: not init's */
            if (syscall(SYS_sched_getattr, 0, told, sizeof told, 0) == -1 ||
                *(unsigned long long *)(told + 24) == 100000) puts("turns");
            return 0; }
        """
    )
    assert (ended.stdout, ended.exit_code) == (b"", 0)


# ---- walls -----------------------------------------------------------------------------------


def test_a_program_of_many_processes_leaves_the_other_slots_their_share(
    run: Runner, tmp_path: Path
) -> None:
    greedy = "for i in $(seq 60); do setsid sh -c 'while :; do :; done' & done; wait"
    ample = replace(LIMITS, memory_bytes=256 * MIB, processes=64, cpu_ms=600_000, wall_ms=300_000)
    modest = Runner(run.sandbox, open_directory(tmp_path / "modest"), slot=1)
    cancellation = Cancellation()

    def burn() -> None:
        with pytest.raises(RunCancelled):
            run.sh(greedy, limits=ample, cancellation=cancellation)

    def measure() -> float:
        before_s = cpu_s(FIRST_UID, 1)
        turns = 500_000 if SLOW == 1 else 50_000
        ended = modest.sh(f"i=0; while [ $i -lt {turns} ]; do i=$((i + 1)); done", limits=ample)
        greedy_s = cpu_s(FIRST_UID, 1) - before_s
        assert ended.exit_code == 0
        return ended.cpu_us / (ended.cpu_us + greedy_s * 1e6)

    # Of what both got; by processes it would be a 61st, by slots half of it, or all of one core.
    least = min(0.12, 0.5 / len(os.sched_getaffinity(0)))
    shares: list[float] = []
    thread = threading.Thread(target=burn)
    thread.start()
    try:
        wait_until(lambda: len(processes_of(FIRST_UID, 1)) > 60, what="all of them", timeout_s=60)
        # At best: the greedy use the time, too, in which a busy machine starts and ends the other.
        while len(shares) < 3 and max(shares, default=0.0) <= least:
            shares.append(measure())
    finally:
        cancellation.cancel()
        thread.join()
        run.sandbox.forget(1)
    assert max(shares) > least, shares


def test_it_cannot_write_outside_its_own_places(run: Runner) -> None:
    ended = run.sh(
        "for d in / /usr /usr/bin /etc /dev /proc /bin /.oj; do touch $d/x 2>/dev/null && echo $d;"
        " done; for d in /box /tmp /dev/shm; do touch $d/x || echo $d; done"
    )
    assert ended.stdout == b""


def test_it_sees_neither_the_hosts_processes_nor_its_files(run: Runner, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    secret.chmod(0o644)
    ended = run.sh(
        f"set -- /proc/[0-9]*; echo $#; ls -d /root /home /var /sys /run {secret} 2>/dev/null;"
        " cat /proc/1/environ 2>/dev/null; ls /.oj 2>/dev/null; ls /"
    )
    lines = ended.stdout.decode().split()
    assert int(lines[0]) <= 2
    assert lines[1:] == ["bin", "box", "dev", "etc", "lib", *lines[6:]]
    assert set(lines[6:]) <= {"lib32", "lib64", "libx32", "proc", "sbin", "tmp", "usr", "var"}


def test_proc_tells_neither_cgroups_nor_mounts_nor_the_task(run: Runner, tmp_path: Path) -> None:
    data = open_directory(tmp_path / "data")
    (data / "test").write_text("x")
    assert run.sh("echo made >made", writable=True).exit_code == 0
    ended = run.sh("cat /proc/self/cgroup", data=str(data))
    assert {line.split(":", 2)[2] for line in ended.stdout.decode().splitlines()} == {"/"}
    ended = run.sh(
        "cd /proc/self; cat mountinfo mounts mountstats; cat cpuset >&2; cat /box/made",
        data=str(data),
    )
    assert (ended.exit_code, ended.stdout) == (0, b"made\n")
    assert set(ended.stderr) <= set(b"/.\n")  # on v2 it may be that of a cgroup above: ..
    everything = run.sh(
        "find /proc -maxdepth 4 -type f -exec cat {} + 2>/dev/null | tr '\\0' '\\n'", data=str(data)
    ).stdout
    assert b"oj-box" not in everything
    assert str(tmp_path).encode() not in everything


def test_the_input_has_no_path_and_nobody_sees_that_it_was_read(
    run: Runner, tmp_path: Path
) -> None:
    path = tmp_path / "secret-name"
    path.write_bytes(b"skipped, read")
    path.chmod(0o644)
    os.utime(path, ns=(10**18, 2 * 10**18))  # so that reading it would be noted
    with path.open("rb", buffering=0) as source:
        source.seek(9)
        ended = run.sh("readlink /proc/self/fd/0; cat; cat /dev/stdin >&2", stdin=source.fileno())
    assert (ended.stdout, ended.stderr) == (b"/\nread", b"skipped, read")
    assert path.stat().st_atime_ns == 10**18


def test_nothing_in_proc_can_be_set(run: Runner) -> None:
    ended = run.c(
        """
        #include <fcntl.h>
        #include <stdio.h>
        #include <unistd.h>
        int main(void) {
            const char *names[] = {"loginuid", "oom_score_adj", "comm", "autogroup", "mem",
                                   "coredump_filter", "timerslack_ns", "setgroups", "uid_map"};
            char path[64];
            for (int i = 0; i < 9; i++) {
                sprintf(path, "/proc/self/%s", names[i]);
                if (open(path, O_WRONLY) >= 0) puts(names[i]);
            }
            return 0; }
        """
    )
    assert (ended.stdout, ended.exit_code) == (b"", 0)


def test_there_is_no_network(run: Runner) -> None:
    ended = run.c(
        """
        #include <errno.h>
        #include <stdio.h>
        #include <sys/socket.h>
        int main(void) {
            int pair[2];
            for (int family = -1; family < 64; family++)
                for (int type = 0; type < 8; type++)
                    if (family != AF_UNIX && (socket(family, type, 0) >= 0 || errno != EAFNOSUPPORT
                        || socketpair(family, type, 0, pair) == 0 || errno != EAFNOSUPPORT))
                        printf("family %d type %d\\n", family, type);
            printf("%d\\n", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
            return 0; }
        """
    )
    assert ended.stdout == b"0\n"


def test_calls_that_reach_for_the_kernel_are_refused(run: Runner) -> None:
    ended = run.c(
        """
        #define _GNU_SOURCE
        #include <errno.h>
        #include <fcntl.h>
        #include <linux/sockios.h>
        #include <sched.h>
        #include <stdio.h>
        #include <sys/ioctl.h>
        #include <sys/mman.h>
        #include <sys/mount.h>
        #include <sys/personality.h>
        #include <sys/prctl.h>
        #include <sys/ptrace.h>
        #include <sys/socket.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        #define REFUSED(call) do { errno = 0; if ((call) != -1 || errno != EPERM) \\
                                   printf("%s: %d\\n", #call, errno); } while (0)
        int main(void) {
            REFUSED(mount("x", "/tmp", "tmpfs", 0, ""));
            REFUSED(unshare(CLONE_NEWUSER));
            REFUSED(syscall(SYS_clone, CLONE_NEWUSER | 17, 0, 0, 0, 0));
            REFUSED(setns(0, 0));
            REFUSED(ptrace(PTRACE_TRACEME, 0, 0, 0));
            REFUSED(syscall(SYS_keyctl, 0, -3, 0));
            REFUSED(syscall(SYS_add_key, "user", "a", "b", 1, -3));
            REFUSED(syscall(SYS_bpf, 0, 0, 0));
            REFUSED(syscall(SYS_perf_event_open, 0, 0, -1, -1, 0));
            REFUSED(syscall(SYS_userfaultfd, 0));
            REFUSED(syscall(SYS_io_uring_setup, 1, 0));
            REFUSED(syscall(SYS_kexec_load, 0, 0, 0, 0));
            REFUSED(syscall(SYS_init_module, 0, 0, ""));
            REFUSED(syscall(SYS_process_vm_readv, 1, 0, 0, 0, 0, 0));
            REFUSED(syscall(SYS_open_by_handle_at, 0, 0, 0));
            REFUSED(personality(ADDR_NO_RANDOMIZE));
            REFUSED(chroot("/tmp"));
            REFUSED(syscall(SYS_pivot_root, "/tmp", "/tmp"));
            REFUSED(syscall(SYS_request_key, "user", "a", 0, 0));
            REFUSED(syscall(SYS_io_uring_enter, 0, 0, 0, 0, 0, 0));
            REFUSED(syscall(SYS_io_uring_register, 0, 0, 0, 0));
            REFUSED(syscall(SYS_process_vm_writev, 1, 0, 0, 0, 0, 0));
            REFUSED(syscall(SYS_io_setup, 1, 0));
            REFUSED(ioctl(0, TIOCSTI, "x"));
            int sock = socket(AF_UNIX, SOCK_STREAM, 0);
            long space[64] = {0};
            REFUSED(ioctl(sock, SIOCGIFBR, space));
            REFUSED(ioctl(sock, SIOCSIFBR, space));
            REFUSED(ioctl(sock, SIOCBRADDBR, space));
            REFUSED(ioctl(sock, SIOCBRDELBR, space));
            REFUSED(ioctl(sock, SIOCGIFVLAN, space));
            REFUSED(ioctl(sock, SIOCSIFVLAN, space));
            REFUSED(fcntl(open("/usr", O_RDONLY), F_NOTIFY, DN_ACCESS));
            REFUSED(prctl(62, 1, 0, 0, 0)); /* PR_SCHED_CORE */
            if (mmap(0, 2 << 20, 3, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0) != MAP_FAILED
                || errno != ENOMEM) puts("MAP_HUGETLB");
            if (memfd_create("x", MFD_HUGETLB) != -1 || errno != ENOMEM) puts("MFD_HUGETLB");
            if (syscall(SYS_clone3, 0, 0) != -1 || errno != ENOSYS) puts("clone3");
            return 0; }
        """
    )
    assert (ended.stdout, ended.exit_code) == (b"", 0)


def test_attributes_and_hints_that_stay_in_the_kernel_are_refused(run: Runner) -> None:
    """Access lists are memory that counts for nobody; hints stay with files of the system."""
    ended = run.c(
        """
        #define _GNU_SOURCE
        #include <errno.h>
        #include <fcntl.h>
        #include <stdint.h>
        #include <stdio.h>
        #include <sys/syscall.h>
        #include <sys/xattr.h>
        #include <unistd.h>
        #define REFUSED(call, with) do { errno = 0; if ((call) != -1 || errno != (with)) \\
                                         printf("%s: %d\\n", #call, errno); } while (0)
        int main(void) {
            int own = open("own", O_CREAT | O_RDWR, 0600), other = open("/usr/bin/env", O_RDONLY);
            const char *n = "system.posix_acl_access", *u = "user.x";
            struct { uint64_t value; uint32_t size, flags; } how = {(uintptr_t)"v", 1, 0};
            REFUSED(setxattr("own", n, "v", 1, 0), EOPNOTSUPP);
            REFUSED(setxattr("own", u, "v", 1, 0), EOPNOTSUPP);
            REFUSED(lsetxattr("own", n, "v", 1, 0), EOPNOTSUPP);
            REFUSED(fsetxattr(own, n, "v", 1, 0), EOPNOTSUPP);
            REFUSED(syscall(463, AT_FDCWD, "own", 0, u, &how, sizeof how), EOPNOTSUPP);
            uint64_t hint = 3;
            for (int request = 1035; request <= 1038; request++) {
                REFUSED(fcntl(own, request, &hint), EPERM);
                REFUSED(fcntl(other, request, &hint), EPERM);
            }
            REFUSED(fcntl(own, F_SETLEASE, F_WRLCK), EPERM);
            return 0; }
        """
    )
    assert (ended.stdout, ended.exit_code) == (b"", 0)


def test_numbers_that_the_kernel_reads_half_are_read_half_by_the_filter(run: Runner) -> None:
    ended = run.c(
        """
        #define _GNU_SOURCE
        #include <errno.h>
        #include <fcntl.h>
        #include <linux/filter.h>
        #include <linux/sockios.h>
        #include <stdint.h>
        #include <stdio.h>
        #include <sys/ioctl.h>
        #include <sys/prctl.h>
        #include <sys/socket.h>
        #include <sys/syscall.h>
        #include <unistd.h>
        #define REFUSED(call) do { errno = 0; if ((call) != -1 || errno != EPERM) \\
                                   printf("bit %d, %s: %d\\n", bit, #call, errno); } while (0)
        int main(void) {
            struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
            struct sock_filter code = {BPF_RET | BPF_K, 0, 0, 0x7fff0000};
            struct sock_fprog program = {1, &code};
            uint64_t hint = 3;
            long space[64] = {0};
            int own = open("own", O_CREAT | O_RDWR, 0600), other = open("own", O_RDWR);
            int sock = socket(AF_UNIX, SOCK_STREAM, 0), usr = open("/usr", O_RDONLY);
            for (int bit = 32; bit < 64; bit++) {
                long high = (long)(1UL << bit);
                REFUSED(syscall(SYS_fcntl, own, high + 1036, &hint));
                REFUSED(syscall(SYS_fcntl, usr, high + F_NOTIFY, DN_ACCESS));
                REFUSED(syscall(SYS_ioctl, 0, high + TIOCSTI, "x"));
                REFUSED(syscall(SYS_ioctl, sock, high + SIOCGIFBR, space));
                REFUSED(syscall(SYS_prctl, high + 62, 1, 0, 0, 0));
                REFUSED(syscall(SYS_prctl, high + PR_SET_SECCOMP, 2, &program, 0, 0));
                REFUSED(syscall(SYS_setsockopt, sock, SOL_SOCKET, high + SO_ATTACH_FILTER, &program,
                                sizeof program));
                if (syscall(SYS_fcntl, own, high + F_OFD_SETLK, &lock) ||
                    syscall(SYS_fcntl, other, high + F_OFD_SETLK, &lock))
                    printf("bit %d, a lock\\n", bit);
                if (syscall(SYS_fadvise64, -1, 0, 0, high + POSIX_FADV_DONTNEED))
                    printf("bit %d, fadvise64\\n", bit);
            }
            return 0; }
        """
    )
    assert (ended.stdout, ended.exit_code) == (b"", 0)


def test_locks_succeed_without_a_lock(run: Runner) -> None:
    """As go build and SQLite take them. The kernel would count the memory of locks for nobody."""
    ended = run.c(
        """
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <stdio.h>
        #include <sys/file.h>
        #include <sys/wait.h>
        #include <unistd.h>
        int main(void) {
            int a = open("own", O_CREAT | O_RDWR, 0600), b = open("own", O_RDWR);
            struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
            int requests[] = {F_SETLK, F_SETLKW, F_OFD_SETLK, F_OFD_SETLKW};
            for (int i = 0; i < 4; i++)
                if (fcntl(a, requests[i], &lock) || fcntl(b, requests[i], &lock))
                    printf("request %d\\n", requests[i]);
            if (lockf(a, F_TLOCK, 0)) puts("lockf");
            fflush(stdout);
            if (fork() == 0) {
                if (fcntl(b, F_GETLK, &lock) || lock.l_type != F_UNLCK) puts("a lock was made");
                if (flock(b, LOCK_EX | LOCK_NB) || flock(a, LOCK_EX | LOCK_NB)) puts("flock");
                return 0;
            }
            wait(0);
            return 0; }
        """
    )
    assert (ended.stdout, ended.exit_code) == (b"", 0)


def test_a_run_has_few_descriptors_and_a_compiler_more(run: Runner) -> None:
    script = "ulimit -Hn; ulimit -Sn"
    assert run.sh(script).stdout == b"256\n256\n"
    assert run.sh(script, writable=True).stdout == b"512\n512\n"


def test_standard_streams_can_be_opened_by_name(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b"given\n")
    (tmp_path / "input").chmod(0o644)
    ended = run.sh(
        "cat /dev/stdin; echo one >/dev/stdout; echo two >/dev/fd/1; echo three >/proc/self/fd/1;"
        " echo four >>/dev/stdout; echo five >/dev/stderr; echo six >/dev/fd/2",
        stdin=str(tmp_path / "input"),
    )
    assert ended.stdout == b"given\none\ntwo\nthree\nfour\n"
    assert ended.stderr == b"five\nsix\n"
    assert run.sh("cat /dev/stdin; exec >/dev/null; echo lost").stdout == b""


def test_what_was_written_cannot_be_read_back_nor_the_input_changed(
    run: Runner, tmp_path: Path
) -> None:
    source = tmp_path / "input"
    source.write_bytes(b"given")
    source.chmod(0o644)
    ended = run.c(
        """
        #include <fcntl.h>
        #include <stdio.h>
        #include <sys/stat.h>
        #include <unistd.h>
        int main(void) {
            const char *streams[] = {"/dev/stdout", "/dev/stderr"};
            for (int i = 0; i < 2; i++) {
                if (open(streams[i], O_RDONLY | O_NONBLOCK) >= 0) puts("read");
                if (open(streams[i], O_RDWR) >= 0) puts("read and write");
                if (!fchmod(i + 1, 0666) || !chmod(streams[i], 0666)) puts("chmod");
                if (!fchown(i + 1, getuid(), getgid())) puts("chown");
            }
            if (open("/dev/stdin", O_WRONLY) >= 0 || open("/dev/stdin", O_RDWR) >= 0) puts("write");
            if (!fchmod(0, 0666) || !ftruncate(0, 0) || !truncate("/dev/stdin", 0)) puts("change");
            return 0; }
        """,
        stdin=str(source),
    )
    assert (ended.stdout, ended.exit_code) == (b"", 0)
    assert source.read_bytes() == b"given"


def test_system_calls_of_another_abi_kill(run: Runner) -> None:
    ended = run.c(
        'int main(void) { int r; __asm__("int $0x80" : "=a"(r) : "a"(20)); return r < 0; }'
    )
    assert ended.signal == signal.SIGSYS


# ---- trees, layers, data ---------------------------------------------------------------------


def test_what_compile_leaves_is_what_runs_and_no_run_can_change_it(run: Runner) -> None:
    (run.directory / "source").write_text("as given")
    assert run.sh("echo made >made; mkdir sub; echo deep >sub/file; rm source", writable=True)
    for _ in range(2):
        ended = run.sh("cat made sub/file; ls; echo spoilt >made; rm -r sub; touch new")
        assert ended.stdout == b"made\ndeep\nmade\nsub\n"
    assert (run.directory / "source").read_text() == "as given"
    assert [path.name for path in run.directory.iterdir()] == ["source"]


def test_what_compile_leaves_counts_for_the_memory_of_runs(run: Runner) -> None:
    ample = replace(LIMITS, memory_bytes=256 * MIB, disk_bytes=64 * MIB)
    small = replace(LIMITS, memory_bytes=32 * MIB)
    script = "head -c 24M /dev/zero >{}; touch made"

    def spend(mib: int) -> Ended:
        return run.sh(f"cat made; head -c {mib}M /dev/zero | tail -n 1 >/dev/null", limits=small)

    run.sh(script.format("/tmp/table"), writable=True, limits=ample)
    assert spend(12).limit_hit is LimitHit.NONE
    run.sh(script.format("table"), writable=True, limits=ample)
    small_one = spend(1)
    assert (small_one.exit_code, small_one.limit_hit) == (0, LimitHit.NONE)
    assert 25 * MIB < small_one.memory_bytes < 32 * MIB
    assert spend(12).limit_hit is LimitHit.MEMORY
    run.sh(script.format("table"), writable=True, limits=ample)
    assert run.sh("exit 0", limits=replace(small, memory_bytes=20 * MIB)).limit_hit is (
        LimitHit.MEMORY
    )
    many = "i=0; while [ $i -lt 4000 ]; do : >$i; i=$((i + 1)); done"
    run.sh(many, writable=True, limits=ample)
    assert run.sh("exit 0", limits=small).memory_bytes > 4 * MIB


def test_a_failed_compile_leaves_nothing(run: Runner) -> None:
    run.sh("echo a >a; exit 1", writable=True)
    assert run.sh("ls").stdout == b""
    run.sh("echo a >a", writable=True)
    run.sh("echo b >b; ls >&2", writable=True)  # starts from the tree, not from the last layer
    assert run.sh("ls").stdout == b"b\n"


def break_box(box_path: str, directory: Path, statements: str) -> str:
    """An oj-box whose own calls of syscall(number, a, b...) begin with these statements."""
    source = """
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <errno.h>
        #include <string.h>
        #include <sys/syscall.h>
        long syscall(long number, long a, long b, long c, long d, long e, long f)
        {
            %s
            long (*next)(long, ...) = dlsym(RTLD_NEXT, "syscall");
            return next(number, a, b, c, d, e, f);
        }
    """
    dynamic = Path(box_path).with_name("oj-box-dynamic")
    code, library, broken = (directory / name for name in ("break.c", "break.so", "oj-box"))
    code.write_text(source % statements)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, code], check=True)
    broken.write_text(f'#!/bin/sh\nLD_PRELOAD={library} exec {dynamic} "$@"\n')
    broken.chmod(0o755)
    return str(broken)


def test_a_layer_that_cannot_be_kept_is_our_fault_and_not_the_programs(
    box_path: str, tmp_path: Path
) -> None:
    broken = break_box(
        box_path,
        tmp_path,
        """
        if (number == SYS_mount && strcmp((const char *)b, "/.oj/shared/layer") == 0)
            return errno = ENOSPC, -1;
        """,
    )
    with Sandbox.start(broken, slots=1, first_uid=FIRST_UID + 20) as sandbox:
        run = Runner(sandbox, open_directory(tmp_path / "tree"))
        with pytest.raises(SandboxFailure, match="cannot keep what the run left: No space"):
            run.sh("echo made >made", writable=True)
        assert run.sh("exit 3", writable=True).exit_code == 3
        assert run.sh("test ! -e made").exit_code == 0


def test_an_init_that_cannot_get_ready_is_tried_again_when_somebody_asks(
    box_path: str, tmp_path: Path
) -> None:
    broken = break_box(
        box_path,
        tmp_path,
        """
        static int inits; /* they share the slot's memory */
        if (number == SYS_mount && strcmp((const char *)b, "/.oj/run") == 0 && a) {
            inits++;
            if (inits == 2 || inits == 3)
                return errno = ENOSPC, -1;
        }
        """,
    )
    with Sandbox.start(broken, slots=1, first_uid=FIRST_UID + 20) as sandbox:
        run = Runner(sandbox, open_directory(tmp_path / "tree"))
        assert run.sh("exit 1").exit_code == 1
        # The second cannot, and neither can the third, which is made for this request.
        with pytest.raises(SandboxFailure, match=r"cannot mount a tmpfs on /\.oj/run: No space"):
            run.sh("exit 2")
        sandbox.forget(0)
        (tmp_path / "input").write_text("fine")
        assert run.sh("cat", stdin=str(tmp_path / "input")).stdout == b"fine"
        assert run.sh("exit 4").exit_code == 4


@pytest.mark.parametrize("old_kernel", [False, True])
def test_what_is_mounted_below_a_part_is_never_writable(
    box_path: str, tmp_path: Path, old_kernel: bool
) -> None:
    if old_kernel:
        box_path = break_box(
            box_path, tmp_path, "if (number == SYS_mount_setattr) return errno = ENOSYS, -1;"
        )
    part = Path(tempfile.mkdtemp(prefix="oj-part-", dir="/var/tmp"))  # /tmp is the program's own
    part.chmod(0o755)
    below = open_directory(part / "below")
    tree = open_directory(tmp_path / "tree")
    subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=1777", "test", below], check=True)
    try:
        (below / "file").write_text("shown")
        with Sandbox.start(
            box_path, slots=1, first_uid=FIRST_UID + 21, parts=[str(part)]
        ) as sandbox:
            run = Runner(sandbox, tree)
            assert run.sh(f"test -d {below} && ! touch {below}/x").exit_code == 0
            shown = run.sh(f"cat {below}/file").stdout
            assert shown == (b"" if old_kernel else b"shown")
    finally:
        subprocess.run(["umount", below], check=True)
        below.rmdir()
        part.rmdir()


def test_another_directory_and_forgetting_drop_the_layer(run: Runner, tmp_path: Path) -> None:
    run.sh("echo a >a", writable=True)
    other = Runner(run.sandbox, open_directory(tmp_path / "other"))
    assert other.sh("ls").stdout == b""
    assert run.sh("ls").stdout == b""
    run.sh("echo a >a", writable=True)
    run.sandbox.forget(0)
    assert run.sh("ls").stdout == b""


def test_data_is_laid_over_what_compile_left(run: Runner, tmp_path: Path) -> None:
    data = open_directory(tmp_path / "data")
    (data / "test").write_text("the real one")
    assert run.sh("echo forged >test; echo kept >kept", writable=True).exit_code == 0
    assert run.sh("cat test kept", data=str(data)).stdout == b"the real onekept\n"
    assert run.sh("rm test; ls; echo b >test", data=str(data)).stdout == b"kept\n"
    assert (data / "test").read_text() == "the real one"
    assert run.sh("cat test").stdout == b"forged\n"


def test_runs_and_slots_do_not_see_each_others_files(run: Runner, tmp_path: Path) -> None:
    script = "ls /box /tmp /dev/shm; touch /box/a /tmp/b /dev/shm/c"
    first = run.sh(script)
    assert run.sh(script).stdout == first.stdout
    other = Runner(run.sandbox, run.directory, slot=1)
    assert other.sh(script).stdout == first.stdout
    run.sandbox.forget(1)


def test_sysv_memory_does_not_outlive_its_run(run: Runner) -> None:
    run.compile(
        """
        #include <stdio.h>
        #include <sys/shm.h>
        int main(void) { printf("%d\\n", shmget(77, 4096, 0600) >= 0);
                         return shmget(77, 4096, IPC_CREAT | 0600) < 0; }
        """
    )
    assert [run("./main").stdout for _ in range(2)] == [b"0\n", b"0\n"]


def test_a_run_gets_what_it_asked_for_whatever_the_one_before_was(
    run: Runner, tmp_path: Path
) -> None:
    run.sh("echo made >made", writable=True)
    for _ in range(3):
        assert run.sh("ls; touch a").stdout == b"made\n"
    big = run.sh("df -k /tmp | tail -1", limits=replace(LIMITS, disk_bytes=4 * MIB))
    assert b" 4096 " in big.stdout
    other = Runner(run.sandbox, open_directory(tmp_path / "other"))
    assert other.sh("ls").stdout == b""
    run.sandbox.forget(0)
    assert run.sh("ls").stdout == b""


def test_a_waiting_init_holds_nothing_of_a_forgotten_directory(run: Runner) -> None:
    run.sh("echo made >made", writable=True)
    run.sh("exit 0")
    _, init = wait_for_init(run)
    places = Path(f"/proc/{init}/mountinfo").read_text()
    assert "/.oj/shared/tree" in places
    assert "/.oj/shared/layer" in places
    run.sandbox.forget(0)
    slot, init = wait_for_init(run)
    for pid in (slot, init):
        places = Path(f"/proc/{pid}/mountinfo").read_text()
        assert " /.oj/shared " in places
        assert "/.oj/shared/" not in places
    assert " /.oj/run " in places
    assert children(slot) == [init]


def test_a_waiting_init_holds_no_file_of_the_run_before(run: Runner, tmp_path: Path) -> None:
    source = tmp_path / "input"
    source.write_text("x")
    assert run("cat", stdin=str(source)).stdout == b"x"
    _, init = wait_for_init(run)
    held = [str(link.readlink()) for link in Path(f"/proc/{init}/fd").iterdir()]
    assert [path for path in held if "memfd" in path or path.startswith(str(tmp_path))] == []


def test_a_waiting_init_that_was_killed_is_replaced(run: Runner) -> None:
    run.sh("exit 0")
    _, init = wait_for_init(run)
    os.kill(init, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{init}").exists(), what="its end", timeout_s=60)
    assert wait_for_init(run)[1] != init
    assert run.sh("exit 5").exit_code == 5


def test_an_init_that_is_killed_while_it_runs_something_is_our_failure(run: Runner) -> None:
    slot, init = wait_for_init(run)

    def sleeps() -> bool:
        found = []
        for pid in processes_of(FIRST_UID, 1):
            with contextlib.suppress(OSError):
                found.append(Path(f"/proc/{pid}/comm").read_text())
        return "sleep\n" in found

    def kill() -> None:
        wait_until(sleeps, what="the program", timeout_s=60)
        os.kill(init, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(SandboxFailure, match=r"the run's init died \(status 0x9\)"):
        run.sh("echo made >made; sleep 60", writable=True)
    killer.join()
    assert wait_for_init(run)[0] == slot
    # A compile that was cut off leaves nothing mounted, and the next starts from the beginning.
    assert "/.oj/shared/next" not in Path(f"/proc/{slot}/mountinfo").read_text()
    assert run.sh("ls").stdout == b""


def test_the_network_is_kept_unless_something_is_left_in_it(run: Runner) -> None:
    run.compile(
        """
        #include <string.h>
        #include <sys/socket.h>
        int main(int argc, char **argv)
        {
            int pair[2];
            char space[CMSG_SPACE(sizeof(int))] = {0};
            struct iovec data = {"x", 1};
            struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = space,
                                     .msg_controllen = sizeof space};
            socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
            if (argc == 1)
                return 0;
            struct cmsghdr *head = CMSG_FIRSTHDR(&message);
            head->cmsg_level = SOL_SOCKET;
            head->cmsg_type = SCM_RIGHTS;
            head->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(head), &pair[1], sizeof(int));
            return sendmsg(pair[0], &message, 0) < 0;
        }
        """
    )
    slot, _ = wait_for_init(run)
    network = Path(f"/proc/{slot}/ns/net")
    before = network.readlink()
    for _ in range(20):
        assert run("./main").exit_code == 0
    wait_for_init(run)
    assert network.readlink() == before
    assert run("./main", "leave").exit_code == 0
    _, init = wait_for_init(run)
    after = network.readlink()
    unix = Path(f"/proc/{init}/net/unix").read_text().splitlines()
    assert after == Path(f"/proc/{init}/ns/net").readlink()
    assert len(unix) == 1  # the headings


def test_data_beside_messages_is_bounded(run: Runner) -> None:
    """The kernel counts it for nobody while a call waits for room. Up to 6.7 it has 20 KB for all
    networks; later each has its own bound."""
    ended = run.c(
        """
        #define _GNU_SOURCE
        #include <errno.h>
        #include <stdio.h>
        #include <sys/socket.h>
        #include <unistd.h>
        int main(void) {
            static long space[8192];
            int pair[2];
            struct iovec data = {"x", 1};
            struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = space};
            socketpair(AF_UNIX, SOCK_DGRAM, 0, pair);
            for (int size = 16384; size <= 65536; size += 49152) {
                struct cmsghdr *head = (struct cmsghdr *)space;
                *head = (struct cmsghdr){.cmsg_len = size, .cmsg_level = SOL_SOCKET,
                                         .cmsg_type = 99};
                message.msg_controllen = size;
                sendmsg(pair[0], &message, 0);
                printf("%d %d\\n", size, errno == ENOBUFS);
            }
            return 0; }
        """
    )
    assert ended.stdout == b"16384 0\n65536 1\n"


# ---- signals ---------------------------------------------------------------------------------


def test_signals_to_all_processes_of_the_unit_do_not_end_runs(run: Runner) -> None:
    """As `systemctl kill -s USR1` sends them, to drain the executor."""
    box = run.sandbox._process.pid
    ended: list[Ended] = []
    with held_open() as stdin:
        thread = threading.Thread(
            target=lambda: ended.append(run.sh("cat; echo lived", stdin=stdin))
        )
        thread.start()
        programs = wait_until(lambda: processes_of(FIRST_UID, 1), what="the program", timeout_s=60)
        slots = children(box)
        ours = [box, *slots, *(init for slot in slots for init in children(slot))]
        for pid in (*ours, *map(int, programs)):
            os.kill(pid, signal.SIGUSR1)
        for number in (signal.SIGHUP, signal.SIGUSR2, signal.SIGALRM, signal.SIGRTMIN):
            for pid in ours:
                os.kill(pid, number)
    thread.join(60)
    assert [one.stdout for one in ended] == [b"lived\n"]
    assert run.sh("exit 5").exit_code == 5


def test_programs_start_with_no_signal_blocked_and_only_usr1_ignored(run: Runner) -> None:
    text = run("grep", "-E", "Sig(Blk|Ign)", "/proc/self/status").stdout.decode()
    masks = {name: int(value, 16) for name, value in re.findall(r"(\w+):\s*(\w+)", text)}
    assert masks == {"SigBlk": 0, "SigIgn": 1 << (signal.SIGUSR1 - 1)}


# ---- ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script",
    ["sleep 60 & exit 3", "setsid sh -c 'sleep 60 & sleep 60' & sleep 0.1; exit 3"],
    ids=["child", "daemon"],
)
def test_processes_that_outlive_the_program_are_killed(run: Runner, script: str) -> None:
    start = time.monotonic()
    assert run.sh(script).exit_code == 3
    assert time.monotonic() - start < 5 * SLOW
    assert not processes_of(FIRST_UID, 2)


def test_a_program_that_kills_everything_in_reach_ends_only_itself(run: Runner) -> None:
    ended = run.sh("sleep 60 & kill -9 -1; exit 4")
    assert ended.exit_code in (4, None)
    assert run.sh("exit 6").exit_code == 6


def test_a_stopped_program_ends_at_its_wall_limit(run: Runner) -> None:
    ended = run.sh("kill -STOP $$", limits=replace(LIMITS, wall_ms=300 * SLOW))
    assert ended.limit_hit is LimitHit.WALL
    assert not processes_of(FIRST_UID, 2)


def test_cancel_kills_everything_within_a_second_and_covers_later_runs(run: Runner) -> None:
    def cancel() -> float:
        cancellation = Cancellation()
        outcome: list[BaseException] = []

        def work() -> None:
            try:
                run.sh("setsid sleep 60 & sleep 60", cancellation=cancellation)
            except RunCancelled as error:
                outcome.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        wait_until(
            lambda: len(processes_of(FIRST_UID, 2)) >= 3,
            what="the program's processes",
            timeout_s=10 * SLOW,
        )
        start = time.monotonic()
        cancellation.cancel()
        thread.join(30 * SLOW)
        took_s = time.monotonic() - start
        assert outcome
        assert not processes_of(FIRST_UID, 2)
        with pytest.raises(RunCancelled):
            run.sh("exit 0", cancellation=cancellation)
        assert run.sh("exit 0").exit_code == 0
        return took_s

    assert_within(SLOW, cancel)


def test_a_run_that_may_take_long_in_dying_is_waited_for(run: Runner) -> None:
    large = replace(LIMITS, memory_bytes=2048 * MIB, processes=500)
    waited = threading.Event()
    patience_s: list[float] = []

    def look() -> None:
        while not waited.wait(0.01):
            if timeout_s := run.sandbox._slots[0]._sock.gettimeout():
                patience_s.append(timeout_s - large.wall_ms / 1000)

    watcher = threading.Thread(target=look)
    run.sandbox.forget(0)
    watcher.start()
    try:
        run("/bin/sleep", "0.2", limits=large)
    finally:
        waited.set()
        watcher.join()
    assert patience_s[-1] > large.dying_s > 4 * LIMITS.dying_s
    # Its files are freed after the answer; the next call to the slot waits for that as well.
    run.sandbox.forget(0)
    assert (run.sandbox._slots[0]._sock.gettimeout() or 0) > large.dying_s


def test_two_slots_run_at_the_same_time(run: Runner, tmp_path: Path) -> None:
    other = Runner(run.sandbox, open_directory(tmp_path / "other"), slot=1)
    ended: list[Ended] = []
    with held_open() as stdin:
        threads = [
            threading.Thread(target=lambda one=one: ended.append(one.sh("cat; id -u", stdin=stdin)))
            for one in (run, other)
        ]
        for thread in threads:
            thread.start()
        wait_until(
            lambda: processes_of(FIRST_UID, 1) and processes_of(FIRST_UID + 1, 1),
            what="both at once",
            timeout_s=60,
        )
    for thread in threads:
        thread.join()
    assert {one.stdout for one in ended} == {b"%d\n" % FIRST_UID, b"%d\n" % (FIRST_UID + 1)}
    run.sandbox.forget(1)


def test_many_runs_leave_nothing_more(run: Runner) -> None:
    box = run.sandbox._process.pid

    def count() -> dict[str, int]:
        slots = children(box)
        if not all(map(leftovers.is_idle, slots)):
            return {}
        pids = [box, *slots, *(init for pid in slots for init in children(pid))]
        return {
            "cgroups": len(cgroups(box)),
            "processes": len(pids) + len(processes_of(FIRST_UID, 2)),
            "descriptors": sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids),
            "ours": len(list(Path("/proc/self/fd").iterdir())),
            **{
                f"mounts {place}": len(Path(f"/proc/{pid}/mountinfo").read_text().split("\n"))
                for place, pid in enumerate(pids[1:])
            },
        }

    run.sh("touch made", writable=True)
    run.sh("touch a; sleep 60 &")
    before = wait_until(count, what="the slots to be idle", timeout_s=60)
    runs = 200 if SLOW == 1 else 40
    for _ in range(runs):
        run.sh("touch a; sleep 60 & exit 0")

    def no_more() -> bool:
        now = count()
        return bool(now) and all(now[name] <= before.get(name, 0) for name in now)

    # What a run leaves is removed after its answer: that may take a moment.
    wait_until(no_more, what=f"nothing more than {before}", timeout_s=60)


def test_a_killed_oj_box_fails_waiting_runs_and_its_successor_sweeps(
    box_path: str, tmp_path: Path
) -> None:
    first_uid = FIRST_UID + 100
    sandbox = Sandbox.start(box_path, slots=1, first_uid=first_uid)
    pid = sandbox._process.pid
    run = Runner(sandbox, open_directory(tmp_path / "tree"))
    failure: list[SandboxFailure] = []

    def work() -> None:
        try:
            run.sh("sleep 60")
        except SandboxFailure as error:
            failure.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    wait_until(lambda: processes_of(first_uid, 1), what="the program")
    os.kill(pid, signal.SIGKILL)
    thread.join(5 * SLOW)
    assert failure
    wait_until(lambda: not processes_of(first_uid, 1), timeout_s=SLOW, what="the program's end")
    assert cgroups(pid)  # until the next oj-box sweeps, be it of another test
    assert not sandbox.alive()
    with pytest.raises(SandboxFailure):
        run.sh("exit 0")
    sandbox.close()
    Sandbox.start(box_path, slots=1, first_uid=first_uid).close()
    assert not cgroups(pid)


STARTER = """
import sys
from oj.executor.sandbox import Sandbox
Sandbox.start(sys.argv[1], slots=1, first_uid=int(sys.argv[2])).close()
"""


def test_one_in_another_pid_namespace_sweeps_what_is_left_and_no_neighbour(
    box_path: str, tmp_path: Path
) -> None:
    first_uid = FIRST_UID + 300

    def start_elsewhere() -> None:
        start = [sys.executable, "-c", STARTER, box_path, str(first_uid + 10)]
        subprocess.run(
            ["unshare", "--pid", "--fork", "--mount-proc", *start],
            env={"PYTHONPATH": str(TREE / "daemons"), "PYTHONDONTWRITEBYTECODE": "1"},
            check=True,
        )

    sandbox = Sandbox.start(box_path, slots=1, first_uid=first_uid)
    pid = sandbox._process.pid
    run = Runner(sandbox, open_directory(tmp_path / "tree"))
    before = cgroups(pid)
    start_elsewhere()
    assert before and cgroups(pid) == before
    assert run.sh("exit 0").exit_code == 0
    os.kill(pid, signal.SIGKILL)
    sandbox.close()
    start_elsewhere()
    assert not cgroups(pid)


CLIENT = """
import os, sys
from oj.executor.sandbox import RunLimits, RunRequest, Sandbox
box, tree, uid = sys.argv[1:]
sandbox = Sandbox.start(box, slots=1, first_uid=int(uid))
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
os.mkdir(tree); os.chmod(tree, 0o777)
with open(tree + "/script", "w") as file:
    file.write("echo made >made; cat made script >/dev/null && exec sleep $1")
os.chmod(tree + "/script", 0o644)
limits = RunLimits(30000, 60000, 1 << 26, 1 << 20, 16, 1 << 23)
with sandbox.run(0, RunRequest(["/bin/sh", "script", "0"], tree, limits, writable=True)) as usage:
    print(usage.exit_code, usage.limit_hit.name, sandbox._process.pid, flush=True)
sandbox.run(0, RunRequest(["/bin/sh", "script", "60"], tree, limits))
"""


def test_an_unprivileged_client_is_served_and_its_death_removes_everything(
    box_path: str, tmp_path: Path
) -> None:
    first_uid = FIRST_UID + 200
    with contextlib.ExitStack() as undo:
        # pytest's own directories are closed to other users
        home = Path(f"/tmp/oj-test-sandbox-{os.getpid()}")
        home.mkdir(mode=0o700)
        undo.callback(home.rmdir)
        os.chown(home, 65534, 65534)
        client = subprocess.Popen(
            [sys.executable, "-c", CLIENT, box_path, str(home / "tree"), str(first_uid)],
            stdout=subprocess.PIPE,
            env={"PYTHONPATH": str(TREE / "daemons"), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        undo.callback(client.wait)
        undo.callback(client.kill)
        assert client.stdout is not None
        exit_code, limit, pid = client.stdout.readline().split()
        assert (exit_code, limit) == (b"0", b"NONE")
        wait_until(lambda: processes_of(first_uid, 1), what="the program")
        client.kill()
        wait_until(lambda: not Path(f"/proc/{int(pid)}").exists(), 5 * SLOW, "the end of oj-box")
        assert not processes_of(first_uid, 1)
        assert not cgroups(int(pid))
        # nothing in the tree belongs to anybody but the client
        assert {entry.stat().st_uid for entry in (home / "tree").iterdir()} == {65534}
        (home / "tree" / "script").unlink()
        (home / "tree").rmdir()


FOREIGN = """
import os, sys
from oj.executor.sandbox import RunLimits, RunRequest, Sandbox, SandboxFailure
box, foreign, own, uid = sys.argv[1:]
limits = RunLimits(30000, 60000, 1 << 26, 1 << 20, 16, 1 << 23)
with Sandbox.start(box, slots=1, first_uid=int(uid)) as sandbox:
    os.chown(own, 65534, 65534)
    os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
    for tree, data in ((own, None), (foreign, None), (own, foreign), (own, None)):
        try:
            sandbox.run(0, RunRequest(["/bin/true"], tree, limits, data=data)).close()
            print("taken")
        except SandboxFailure as error:
            print(error)
    given = os.open(foreign + "/secret", os.O_PATH)
    with sandbox.run(0, RunRequest(["/bin/cat"], own, limits, stdin=given)) as usage:
        print(usage.exit_code, usage.stdout.read())
"""


def test_only_directories_of_the_client_are_taken(box_path: str) -> None:
    """Or an executor that was taken over could show programs whatever it can name."""
    with tempfile.TemporaryDirectory(prefix="oj-foreign-", dir="/tmp") as home:
        Path(home).chmod(0o755)
        foreign, own = (open_directory(Path(home, name)) for name in ("foreign", "own"))
        secret = Path(foreign, "secret")
        secret.write_text("not for the client")
        secret.chmod(0o600)
        done = subprocess.run(
            [sys.executable, "-c", FOREIGN, box_path, foreign, own, str(FIRST_UID + 220)],
            capture_output=True,
            text=True,
            timeout=120,
            env={"PYTHONPATH": str(TREE / "daemons"), "PYTHONDONTWRITEBYTECODE": "1"},
            check=False,
        )
    refused = "request: the directory belongs to user 0, not to the client, who is user 65534"
    unread = "1 b''"  # what the client may name but not read, a program cannot read either
    assert done.stdout.splitlines() == ["taken", refused, refused, "taken", unread], done.stderr


# ---- our faults ------------------------------------------------------------------------------


def test_a_missing_directory_is_our_fault_and_not_the_programs(run: Runner, tmp_path: Path) -> None:
    with pytest.raises(SandboxFailure, match="cannot open the directory"):
        run.sh("exit 0", directory=str(tmp_path / "missing"))
    with pytest.raises(ValueError, match="NUL"):
        run("a\0b")
    with pytest.raises(ValueError, match="longer than"):
        run("echo", "x" * 200_000)
    with pytest.raises(SandboxFailure, match="memory limit is out of range"):
        run.sh("exit 0", limits=replace(LIMITS, memory_bytes=0))
    assert run.sh("exit 0").exit_code == 0


def test_a_slot_refuses_garbage_and_serves_on(run: Runner) -> None:
    raw = run.sandbox._slots[0]._sock
    raw.settimeout(5)
    good = boxwire.pack_run(9, boxwire.RunFlag(0), (1, 1, 4096, 1, 1, 1, 9), "/box", ["a"], {})
    for garbage in (b"x", b"\0" * 500, good, good[:-1], good + b"x", b"y" * 130_000):
        raw.send(garbage)
        answer = boxwire.parse_answer(raw.recv(1000))
        assert answer.kind is boxwire.AnswerKind.FAILED
        assert answer.fault.startswith("request:")
    with Path(os.devnull).open("rb") as file:
        socket.send_fds(raw, [good], [file.fileno()] * 4)
    answer = boxwire.parse_answer(raw.recv(1000))
    assert "not a directory" in answer.fault
    assert run.sh("exit 0").exit_code == 0


def test_a_box_that_cannot_be_started_says_why(box_path: str) -> None:
    with pytest.raises(SandboxFailure, match="cannot start /nowhere"):
        Sandbox.start("/nowhere", slots=1)
    with pytest.raises(SandboxFailure, match="is not a directory"):
        Sandbox.start(box_path, slots=1, first_uid=FIRST_UID + 300, parts=["/etc/passwd"])


# ---- for administrators ----------------------------------------------------------------------


def shell(box_path: str, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [box_path, *arguments], capture_output=True, text=True, timeout=60 * SLOW, **options
    )  # type: ignore[call-overload]


def test_run_mirrors_the_exit_code_and_prints_the_usage(box_path: str, tmp_path: Path) -> None:
    # More than the usual second: an emulated machine counts what its host does meanwhile, too.
    ample = ("--time", "30s", "--wall", "60s", "--dir", str(tmp_path))
    done = shell(box_path, "run", *ample, "--", "sh", "-c", "cat; exit 9", input="hello")
    assert (done.returncode, done.stdout) == (9, "hello")
    assert "exit=9 signal=- limit=none cpu=" in done.stderr
    done = shell(
        box_path,
        "run",
        "--time",
        "200ms",
        "--wall",
        "20s",
        "--json",
        "--",
        "sh",
        "-c",
        "while :; do :; done",
    )
    assert done.returncode == 128 + signal.SIGKILL
    usage = json.loads(done.stderr)
    assert (usage["limit"], usage["exit_code"], usage["signal"]) == ("cpu", None, 9)


def test_check_proves_every_limit(box_path: str) -> None:
    done = shell(box_path, "check")
    assert done.returncode == 0, done.stdout
    assert all(line.startswith("ok ") for line in done.stdout.splitlines())


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--version"], 0, "oj-box 0"),
        (["--help"], 0, "Usage:"),
        ([], 2, "Usage:"),
        (["run", "--time", "soon", "--", "true"], 1, "--time"),
        (["run"], 1, "no command"),
        (["serve"], 2, "Usage:"),
        (["serve", "--socket", "3", "--slots", "0"], 1, "--slots must be from 1"),
    ],
)
def test_the_command_line_explains_itself(
    box_path: str, arguments: list[str], code: int, words: str
) -> None:
    done = shell(box_path, *arguments)
    assert done.returncode == code
    assert words in done.stdout + done.stderr


def test_without_root_it_says_so(box_path: str) -> None:
    def drop() -> None:
        os.setresuid(65534, 65534, 65534)

    copy = Path(f"/tmp/oj-box-{os.getpid()}")
    copy.write_bytes(Path(box_path).read_bytes())
    copy.chmod(0o755)
    try:
        done = shell(str(copy), "run", "--", "true", cwd="/", preexec_fn=drop)
    finally:
        copy.unlink()
    assert (done.returncode, "must be started as root" in done.stderr) == (125, True)
