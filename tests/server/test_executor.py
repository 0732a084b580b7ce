"""What an executor makes of tasks: every verdict, with a real judicator and a real sandbox."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import loopback
import servers
from oj.calls import GET_ALL
from oj.client import Judicators
from oj.clock import Deadline
from oj.model import (
    Compare,
    Data,
    File,
    Limits,
    Result,
    Status,
    Step,
    Task,
    TaskInfo,
    Test,
    Verdict,
)

ADD = b"""
#include <iostream>
int main() { long a, b; std::cin >> a >> b; std::cout << a + b << std::endl; }
"""


@pytest.fixture
def client(cluster: loopback.Cluster) -> Iterator[Judicators]:
    with Judicators(cluster.addresses) as judicators:
        yield judicators


def judge(client: Judicators, task: Task, timeout_s: float = 60) -> tuple[TaskInfo, Result]:
    info = client.wait_done(client.add(task), GET_ALL, Deadline(timeout_s))
    assert info.result is not None
    return info, info.result


def one_test(stdin: bytes = b"", expected: bytes | None = None, **more: object) -> Test:
    answer = None if expected is None else Data(expected)
    return Test(input=Data(stdin), expected=answer, **more)  # type: ignore[arg-type]


def shell(script: str, *tests: Test, **more: object) -> Task:
    limits = more.pop("limits", Limits())
    return Task(execute=Step(("/bin/bash", "-c", script), limits), tests=tests, **more)  # type: ignore[arg-type]


def source(name: str, content: bytes | str) -> tuple[File, ...]:
    return (File(name, Data(content if isinstance(content, bytes) else content.encode())),)


def programs(executor: servers.Daemon) -> set[int]:
    """What runs in the sandbox of this executor: below oj-box, as users of its own."""
    parents: dict[int, int] = {}
    uids: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
                uids[int(entry.name)] = entry.stat().st_uid
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    family = set(executor.children())
    size = 0
    while len(family) > size:
        size = len(family)
        family |= {pid for pid, parent in parents.items() if parent in family}
    return {pid for pid in family if uids.get(pid, 0) >= loopback.FIRST_UID}


def task_trees(daemon: servers.Daemon) -> list[Path]:
    return [
        path
        for place in ("state", "run")
        for path in (daemon.directory / place / "tasks").iterdir()
    ]


def test_a_cpp_program_is_compiled_once_and_judged_on_many_tests(client: Judicators) -> None:
    tests = tuple(one_test(b"%d %d" % (n, 2 * n), b"%d\n" % (3 * n)) for n in range(100))
    info, result = judge(client, Task(language="cpp", source=source("a.cpp", ADD), tests=tests))
    assert (info.status, info.verdict, info.score) == (Status.SUCCESS, Verdict.ACCEPTED, 1.0)
    assert result.compile is not None and result.compile.exit_code == 0
    assert [t.name for t in result.tests] == [str(n) for n in range(1, 101)]
    assert all(t.verdict is Verdict.ACCEPTED and t.outcome.memory_bytes for t in result.tests)
    assert result.tests[7].outcome.stdout == b"21\n"
    assert info.tests_done == info.tests_total == 100


def test_a_wrong_answer_names_the_line_and_the_score_counts_weights(client: Judicators) -> None:
    task = Task(
        language="python",
        source=source("x.py", "a, b = map(int, input().split())\nprint('sum')\nprint(a * b)"),
        tests=(
            one_test(b"2 2", b"sum\n4", weight=1),
            one_test(b"2 3", b"sum\n5", weight=2, name="two"),
            one_test(b"0 0", b"sum\n0", weight=1),
        ),
    )
    info, result = judge(client, task)
    assert (info.status, info.verdict, info.score) == (
        Status.RUN_FAILED,
        Verdict.WRONG_ANSWER,
        0.5,
    )
    assert result.tests[1].message == 'line 2: "6" is wrong'
    assert "two" in info.message
    assert result.compile is None


def test_a_compile_error_keeps_what_the_compiler_said(client: Judicators) -> None:
    task = Task(language="c", source=source("main.c", "int main(void) { return nothing; }"))
    info, result = judge(client, task)
    assert (info.status, info.verdict) == (Status.COMPILE_FAILED, Verdict.COMPILE_ERROR)
    assert result.compile is not None
    assert b"nothing" in result.compile.stderr
    assert b"main.c:1" in result.compile.stderr
    assert result.tests == ()


def test_several_source_files_are_compiled_together(client: Judicators) -> None:
    files = (
        File("main.c", Data(b'#include "lib/f.h"\nint main(void) { return f() - 42; }')),
        File("lib/f.h", Data(b"int f(void);")),
        File("lib/f.c", Data(b"int f(void) { return 42; }")),
    )
    assert judge(client, Task(language="c", source=files))[0].verdict is Verdict.ACCEPTED


@pytest.mark.parametrize(
    ("script", "limits", "verdict"),
    [
        ("exit 3", Limits(), Verdict.RUNTIME_ERROR),
        ("kill -SEGV $$", Limits(), Verdict.RUNTIME_ERROR),
        ("echo 42; exit 1", Limits(), Verdict.RUNTIME_ERROR),
        # A busy machine needs more time by the clock than by the processor, or more of both.
        ("while :; do :; done", Limits(cpu_ms=300, wall_ms=60_000), Verdict.TIME_LIMIT),
        ("sleep 100", Limits(wall_ms=300), Verdict.WALL_LIMIT),
        (
            "x=$(yes | head -c 200M)",
            Limits(cpu_ms=60_000, wall_ms=120_000, memory_bytes=32 << 20),
            Verdict.MEMORY_LIMIT,
        ),
        ("echo 42", Limits(memory_bytes=1), Verdict.MEMORY_LIMIT),
        ("echo 42", Limits(output_bytes=1), Verdict.OUTPUT_LIMIT),
        ("echo 42", Limits(processes=1, disk_bytes=1), Verdict.ACCEPTED),
        ("yes", Limits(output_bytes=100_000), Verdict.OUTPUT_LIMIT),
        ("yes >&2", Limits(output_bytes=100_000), Verdict.OUTPUT_LIMIT),
        ("head -c 20M /dev/zero >file", Limits(disk_bytes=1 << 20), Verdict.OUTPUT_LIMIT),
        ("no-such-program", Limits(), Verdict.RUNTIME_ERROR),
        ("echo 41", Limits(), Verdict.WRONG_ANSWER),
        ("echo 42", Limits(), Verdict.ACCEPTED),
    ],
)
def test_each_way_to_end_has_its_verdict(
    client: Judicators, script: str, limits: Limits, verdict: Verdict
) -> None:
    info, result = judge(client, shell(script, one_test(b"", b"42\n"), limits=limits))
    assert info.verdict is verdict, result
    assert bool(result.tests[0].message) == (verdict is not Verdict.ACCEPTED)


def test_exit_code_signal_and_streams_are_reported(client: Judicators) -> None:
    _, result = judge(client, shell("cat; echo oops >&2; exit 7", one_test(b"in\xff\0")))
    outcome = result.tests[0].outcome
    assert (outcome.exit_code, outcome.signal) == (7, None)
    assert (outcome.stdout, outcome.stderr) == (b"in\xff\0", b"oops\n")
    assert outcome.wall_us > 0
    _, result = judge(client, shell("kill -TERM $$"))
    assert result.tests[0].outcome.signal == 15


def test_what_is_kept_of_the_output_is_bounded_and_flagged_but_all_is_compared(
    client: Judicators,
) -> None:
    right = b"x" * 200_000
    tests = tuple(one_test(b"", right) for _ in range(20))
    info, result = judge(client, shell("head -c 200000 /dev/zero | tr '\\0' x", *tests))
    assert info.verdict is Verdict.ACCEPTED
    sizes = [len(t.outcome.stdout) for t in result.tests]
    assert sizes[0] == 64 << 10 and sum(sizes) == 1 << 20
    assert all(t.outcome.stdout_cut for t in result.tests)


def test_stop_on_failure_skips_the_rest(client: Judicators) -> None:
    tests = [one_test(b"1", b"1"), one_test(b"2", b"x"), one_test(b"3", b"3"), one_test(b"4", b"4")]
    info, result = judge(client, shell("cat", *tests, stop_on_failure=True))
    assert [t.verdict for t in result.tests] == [
        Verdict.ACCEPTED,
        Verdict.WRONG_ANSWER,
        Verdict.SKIPPED,
        Verdict.SKIPPED,
    ]
    assert (info.verdict, info.score) == (Verdict.WRONG_ANSWER, 0.25)


@pytest.mark.parametrize(
    ("how", "output", "verdict"),
    [
        (Compare.EXACT, "1.0 2\n", Verdict.ACCEPTED),
        (Compare.EXACT, "1.0  2\n", Verdict.PRESENTATION_ERROR),
        (Compare.EXACT, "1.0 3\n", Verdict.WRONG_ANSWER),
        (Compare.TOKENS, " 1.0\n2", Verdict.ACCEPTED),
        (Compare.TOKENS, "1.00 2", Verdict.WRONG_ANSWER),
        (Compare.FLOATS, "1.0005 2.0", Verdict.ACCEPTED),
        (Compare.FLOATS, "1.005 2.0", Verdict.WRONG_ANSWER),
    ],
)
def test_output_is_compared_as_the_task_asks(
    client: Judicators, how: Compare, output: str, verdict: Verdict
) -> None:
    task = shell("cat", one_test(output.encode(), b"1.0 2\n"), compare=how, tolerance=1e-3)
    assert judge(client, task)[0].verdict is verdict


def test_a_task_may_bring_its_own_commands(client: Judicators) -> None:
    task = Task(
        source=source("script", "#!/bin/sh\ncat made data.txt\n"),
        compile=Step(("/bin/sh", "-c", "test ! -e data.txt && echo made >made")),
        execute=Step(("./script",)),
        data=(File("data.txt", Data(b"data\n")),),
        tests=(one_test(b"", b"made data"),),
    )
    info, result = judge(client, task)
    assert info.verdict is Verdict.ACCEPTED, result


def test_what_compile_leaves_does_not_change_from_test_to_test(client: Judicators) -> None:
    task = Task(
        source=source("x", ""),
        compile=Step(("/bin/sh", "-c", "echo 0 >count")),
        execute=Step(("/bin/sh", "-c", "cat count; echo 1 >count; echo 1 >new; ls")),
        tests=tuple(one_test(b"", b"0 count new x") for _ in range(3)),
    )
    info, result = judge(client, task)
    assert info.verdict is Verdict.ACCEPTED, result


def test_large_tests_and_files_travel_as_blobs(
    client: Judicators, cluster: loopback.Cluster
) -> None:
    big = os.urandom(100_000).hex().encode()
    task = shell(
        "cat; cat big.txt",
        one_test(big, big + b"\n" + big),
        data=(File("big.txt", Data(b"\n" + big)),),
    )
    for _ in range(2):
        info, result = judge(client, task)
        assert info.verdict is Verdict.ACCEPTED, result.tests[0].message
    assert len(list((cluster.executors[0].directory / "state" / "blobs").iterdir())) >= 3


def test_a_task_that_names_no_program_is_the_programs_fault(client: Judicators) -> None:
    info, result = judge(client, Task(execute=Step(("./not-there",))))
    assert info.verdict is Verdict.RUNTIME_ERROR
    assert result.tests[0].outcome.exit_code == 127
    assert result.tests[0].message == "cannot be executed: No such file or directory"


def test_a_command_longer_than_any_system_takes_is_the_programs_fault(client: Judicators) -> None:
    endless = ("/bin/echo", *["x" * 8000] * 100)
    info, result = judge(client, Task(execute=Step(endless)))
    assert info.verdict is Verdict.RUNTIME_ERROR
    assert "longer than" in result.tests[0].message
    info, _ = judge(client, Task(execute=Step(("/bin/true",)), compile=Step(endless)))
    assert info.verdict is Verdict.COMPILE_ERROR
    assert info.attempt == 1


@pytest.mark.parametrize(
    "task",
    [
        shell("setsid sleep 100 & sleep 100; true", limits=Limits(wall_ms=100_000)),
        Task(
            source=source("x", ""),
            compile=Step(
                ("/bin/bash", "-c", "setsid sleep 100 & sleep 100; true"), Limits(wall_ms=100_000)
            ),
            execute=Step(("/bin/true",)),
        ),
    ],
    ids=["run", "compile"],
)
def test_a_cancel_kills_everything_of_the_task_within_a_second(
    client: Judicators, cluster: loopback.Cluster, task: Task
) -> None:
    executor = cluster.executors[0]

    def cancel() -> float:
        task_id = client.add(task)
        servers.wait_until(lambda: len(programs(executor)) >= 3, 10, "the program and its children")
        begun_s = time.monotonic()
        assert client.cancel(task_id)
        servers.wait_until(lambda: not programs(executor), 2, "the end of all processes")
        took_s = time.monotonic() - begun_s
        assert client.get(task_id).status is Status.CANCELLED
        return took_s

    servers.assert_within(1.0, cancel)
    servers.wait_until(lambda: not task_trees(executor), 2, "the task's files to go")


def test_nothing_is_left_after_tasks(client: Judicators, cluster: loopback.Cluster) -> None:
    executor = cluster.executors[0]
    ids = client.add_many([shell("echo x >file; (sleep 100 &)", one_test(b"x")) for _ in range(10)])
    for task_id in ids:
        assert client.wait_done(task_id, deadline=Deadline(30)).verdict is Verdict.ACCEPTED
    servers.wait_until(lambda: not task_trees(executor), 5, "the tasks' files to go")
    servers.wait_until(lambda: not programs(executor), 5, "the tasks' processes to go")
    results = executor.directory / "state" / "results"
    servers.wait_until(lambda: not list(results.iterdir()), 5, "the kept results to go")


def test_the_executor_is_not_root_and_tells_who_it_is(
    client: Judicators, cluster: loopback.Cluster
) -> None:
    executor = cluster.executors[0]
    text = Path(f"/proc/{executor.pid}/status").read_text()
    uids = next(line for line in text.splitlines() if line.startswith("Uid:")).split()[1:]
    assert len(set(uids)) == 1 and uids[0] != "0"
    (known,) = [e for e in client.executors() if e.name == "executor-1"]
    assert known.facts is not None
    assert {"c", "cpp", "python", "bash"} <= set(known.facts.languages)
    assert known.facts.languages["python"].startswith("Python 3.")
    assert (known.facts.slots, known.facts.state) == (cluster.slots, "ok")
    assert {"kernel", "cores", "memory_bytes", "cgroup"} <= set(known.facts.system)
    executor.wait_status(r"^\d+ slots, \d+ running, .*\d+ judged; languages .*cpp")
