"""Executors that are stopped, drained, killed, cut off: no result is lost, no task is stuck."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import loopback
import servers
from oj.calls import GET_ALL
from oj.client import Judicators
from oj.clock import Deadline
from oj.errors import Rejected
from oj.executor.configuration import read_memory_bytes
from oj.executor.overcommit import reserve_bytes
from oj.model import Data, File, Limits, Status, Step, Task, Verdict

LONG = Limits(wall_ms=100_000)


@pytest.fixture
def few_languages(tmp_path: Path) -> Path:
    """Only bash, so that executors start fast."""
    directory = tmp_path / "languages.d"
    directory.mkdir()
    (directory / "bash.conf").write_text((loopback.LANGUAGES / "bash.conf").read_text())
    return directory


@pytest.fixture
def fresh(
    etcd: servers.Etcd, mongod: servers.Mongod, few_languages: Path
) -> Iterator[loopback.Cluster]:
    """One judicator and one executor to break."""
    loopback.prepare()
    with loopback.Cluster(etcd, mongod) as cluster:
        cluster.start(executors=0)
        cluster.add_executor(languages=few_languages)
        yield cluster


@pytest.fixture
def client(fresh: loopback.Cluster) -> Iterator[Judicators]:
    with Judicators(fresh.addresses) as judicators:
        yield judicators


def shell(script: str, **more: object) -> Task:
    return Task(execute=Step(("/bin/bash", "-c", script), LONG), **more)  # type: ignore[arg-type]


PATIENT = "[tasks]\nlease = 1m\n"  # for a judicator that waits for who takes long to come back


def start_again(daemon: servers.Daemon, more: str = "", **options: object) -> servers.Daemon:
    """The same configuration, with more, and state; the caller ends it."""
    text = daemon.config_path.read_text() + more
    return servers.start_daemon(daemon.role, text, daemon.directory, **options)  # type: ignore[arg-type]


def asleep(sleep_s: int) -> list[int]:
    """The programs `sleep` that take so long."""
    found = []
    for pid in programs():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_bytes() == f"sleep\0{sleep_s}\0".encode():
                found.append(pid)
    return found


def wait_asleep(sleep_s: int) -> None:
    """A judicator calls a task running as soon as it has handed it out; this one does run."""
    servers.wait_until(lambda: asleep(sleep_s), 10, "the program to sleep")


def wait_running_in(executor: servers.Daemon, count: int) -> None:
    executor.wait_status(rf"^\d+ slots, {count} running")


def let_go(sleep_s: int) -> None:
    """Ends such a `sleep`; its program goes on."""
    for pid in asleep(sleep_s):
        os.kill(pid, signal.SIGKILL)


def kept(executor: servers.Daemon) -> list[Path]:
    found = []
    for path in (executor.directory / "state" / "results").iterdir():
        with contextlib.suppress(FileNotFoundError):  # delivered meanwhile
            if path.stat().st_size:
                found.append(path)
    return found


def test_a_result_is_kept_while_no_judicator_answers_and_delivered_later(
    fresh: loopback.Cluster, client: Judicators, tmp_path: Path
) -> None:
    executor, judicator = fresh.executors[0], fresh.judicators[0]
    task_id = client.add(shell("sleep 100; echo done"))
    wait_asleep(100)
    judicator.kill()
    let_go(100)
    servers.wait_until(lambda: kept(executor), 10, "the result to be kept")
    executor.wait_status("degraded")
    with start_again(judicator, PATIENT):
        info = client.wait_done(task_id, GET_ALL, Deadline(20))
        assert (info.verdict, info.attempt) == (Verdict.ACCEPTED, 1)
        assert info.result and info.result.tests[0].outcome.stdout == b"done\n"
        servers.wait_until(lambda: not kept(executor), 5, "the kept result to go")
        executor.wait_status(r"^\d+ slots")


def test_a_killed_executor_delivers_what_it_kept_and_what_it_ran_is_run_again(
    fresh: loopback.Cluster, client: Judicators, tmp_path: Path
) -> None:
    executor, judicator = fresh.executors[0], fresh.judicators[0]
    short = client.add(shell("sleep 100; echo short"))
    long = client.add(shell("sleep 200; echo long"))
    wait_asleep(100)
    wait_asleep(200)
    judicator.kill()
    let_go(100)
    servers.wait_until(lambda: kept(executor), 10, "the short result to be kept")
    executor.kill()
    servers.wait_until(lambda: not asleep(200), 5, "what it ran to end")
    with start_again(judicator, PATIENT), start_again(executor) as restarted:
        info = client.wait_done(short, GET_ALL, Deadline(20))
        assert (info.verdict, info.attempt) == (Verdict.ACCEPTED, 1)
        assert info.result and info.result.tests[0].outcome.stdout == b"short\n"
        wait_asleep(200)
        let_go(200)
        info = client.wait_done(long, GET_ALL, Deadline(30))
        assert (info.verdict, info.attempt) == (Verdict.ACCEPTED, 2)
        servers.wait_until(lambda: not kept(restarted), 5, "the kept result to go")
        assert "1 results of an earlier process" in restarted.log()
        trees = restarted.directory / "run" / "tasks"
        servers.wait_until(lambda: not list(trees.iterdir()), 5, "the tasks' files to go")


def test_the_sandbox_of_a_killed_executor_ends_with_everything_in_it(
    fresh: loopback.Cluster, client: Judicators
) -> None:
    executor = fresh.executors[0]
    client.add(shell("(setsid sleep 100 &); sleep 100"))
    wait_running_in(executor, 1)
    boxes = executor.children()
    assert boxes
    executor.kill()

    def gone() -> bool:
        return not any(Path(f"/proc/{pid}").exists() for pid in boxes) and not programs()

    servers.wait_until(gone, 5, "oj-box and its programs to end")


def programs() -> list[int]:
    """What runs in the sandboxes of the first two executors."""
    users = range(loopback.FIRST_UID, loopback.FIRST_UID + 2 * loopback.USERS)
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if entry.stat().st_uid in users:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_an_executor_whose_sandbox_died_gives_its_tasks_back_and_leaves(
    fresh: loopback.Cluster, client: Judicators
) -> None:
    executor = fresh.executors[0]
    task_id = client.add(shell("sleep 100"))
    wait_running_in(executor, 1)
    for pid in executor.children():
        os.kill(pid, signal.SIGKILL)
    assert executor.wait(20) == 1
    info = client.get(task_id, GET_ALL)
    assert info.status is Status.RETRYING
    assert "sandbox" in info.attempts[-1].ended or "stopping" in info.attempts[-1].ended
    client.cancel(task_id)


def test_a_stopped_executor_gives_running_tasks_back_at_once(
    fresh: loopback.Cluster, client: Judicators, few_languages: Path
) -> None:
    executor = fresh.executors[0]
    task_id = client.add(shell("sleep 100"))
    wait_running_in(executor, 1)
    other = fresh.add_executor(languages=few_languages)
    begun_s = time.monotonic()
    assert executor.stop() == 0
    assert time.monotonic() - begun_s < 5

    def moved() -> bool:
        info = client.get(task_id)
        return info.executor == "executor-2" and info.attempt == 2

    servers.wait_until(moved, 3, "the task to run elsewhere")
    client.cancel(task_id)
    wait_running_in(other, 0)


def test_an_executor_is_not_drained_before_its_last_result_is_delivered(
    fresh: loopback.Cluster, client: Judicators
) -> None:
    """`oj leave` waits for that word, and the node's way to the judicators ends then."""
    executor, judicator = fresh.executors[0], fresh.judicators[0]
    task_id = client.add(shell("sleep 100; true"))
    wait_asleep(100)
    executor.send(signal.SIGUSR1)
    executor.wait_status("draining")
    judicator.kill()
    let_go(100)
    servers.wait_until(lambda: kept(executor), 10, "the result to be kept")
    executor.wait_status("degraded")
    assert not [status for status in executor.statuses if "drained" in status]
    with start_again(judicator, PATIENT):
        executor.wait_status("drained, takes no tasks")
        assert client.get(task_id).verdict is Verdict.ACCEPTED


def test_a_drained_executor_finishes_what_it_runs_and_takes_no_more(
    fresh: loopback.Cluster, client: Judicators
) -> None:
    executor = fresh.executors[0]
    running = client.add(shell("sleep 100; true"))
    wait_asleep(100)
    executor.send(signal.SIGUSR1)
    executor.wait_status("draining")
    servers.wait_until(
        lambda: client.executors()[0].facts.state == "draining", 10, "the judicator to know"
    )
    waiting = client.add(shell("true"))
    let_go(100)
    info = client.wait_done(running, deadline=Deadline(20))
    assert (info.verdict, info.attempt) == (Verdict.ACCEPTED, 1)
    executor.wait_status("drained, takes no tasks")
    assert client.get(waiting).status is Status.PENDING
    (known,) = client.executors()
    assert known.facts is not None and known.facts.state == "draining"
    assert executor.stop() == 0


def test_an_operator_drains_an_executor_and_takes_it_back(
    fresh: loopback.Cluster, client: Judicators
) -> None:
    client.drain("executor-1", True)
    fresh.executors[0].wait_status("drained by an operator")
    task_id = client.add(shell("true"))
    assert client.get(task_id).status is Status.PENDING
    client.drain("executor-1", False)
    assert client.wait_done(task_id, deadline=Deadline(10)).verdict is Verdict.ACCEPTED


def test_a_task_waits_for_an_executor_that_has_its_language(
    fresh: loopback.Cluster, client: Judicators, tmp_path: Path
) -> None:
    task = Task(language="awk", source=(File("x.awk", Data(b"BEGIN { print 42 }")),))
    try:
        task_id = client.add(task)
    except Rejected:
        task_id = ""  # nobody ever offered it: may be refused, but never handed out
    assert client.wait_done(client.add(shell("true")), deadline=Deadline(10)).done
    if task_id:
        assert client.get(task_id).status is Status.PENDING
    directory = tmp_path / "awk.d"
    directory.mkdir()
    (directory / "awk.conf").write_text((loopback.LANGUAGES / "awk.conf").read_text())
    fresh.add_executor(languages=directory)
    info = client.wait_done(task_id or client.add(task), deadline=Deadline(20))
    assert (info.verdict, info.executor) == (Verdict.ACCEPTED, "executor-2")


def test_two_executors_share_the_work_and_one_that_is_lost_is_replaced(
    fresh: loopback.Cluster, client: Judicators, few_languages: Path
) -> None:
    fresh.add_executor(languages=few_languages)
    ids = client.add_many([shell("sleep 1") for _ in range(16)])

    def both_run() -> bool:
        infos = [client.get(task_id) for task_id in ids]
        running = {info.executor for info in infos if info.status is Status.RUNNING}
        return running == {"executor-1", "executor-2"}

    servers.wait_until(both_run, 10, "both executors to run tasks")
    fresh.executors[0].kill()
    infos = [client.wait_done(task_id, deadline=Deadline(40)) for task_id in ids]
    assert {info.verdict for info in infos} == {Verdict.ACCEPTED}
    assert {info.executor for info in infos} >= {"executor-2"}
    assert max(info.attempt for info in infos) <= 2


def test_kills_of_executor_and_judicator_at_random_moments_lose_nothing(
    fresh: loopback.Cluster, client: Judicators
) -> None:
    executor, judicator = fresh.executors[0], fresh.judicators[0]
    ids = client.add_many([shell("sleep 0.05; echo $RANDOM") for _ in range(120)])
    dice = random.Random(5)
    with contextlib.ExitStack() as running:
        for _ in range(3):
            time.sleep(dice.uniform(0.2, 0.8))
            executor.kill()
            executor = running.enter_context(start_again(executor, wait=False))
            time.sleep(dice.uniform(0.2, 0.8))
            judicator.kill()
            judicator = running.enter_context(start_again(judicator, wait=False))
        infos = [client.wait_done(task_id, deadline=Deadline(60)) for task_id in ids]
        assert {info.verdict for info in infos} == {Verdict.ACCEPTED}
        servers.wait_until(lambda: not kept(executor), 5, "the kept results to go")
        servers.wait_until(lambda: not programs(), 5, "all programs to end")


def test_executors_go_to_another_judicator_when_theirs_dies(
    fresh: loopback.Cluster, client: Judicators, few_languages: Path
) -> None:
    fresh.add_judicator()
    fresh.add_executor("both", few_languages)
    fresh.executors[0].stop()
    task_id = client.add(shell("sleep 100; true"))
    wait_asleep(100)
    fresh.judicators[0].kill()
    let_go(100)
    with Judicators(fresh.addresses[1:]) as second:
        info = second.wait_done(task_id, deadline=Deadline(15))
        assert (info.verdict, info.attempt) == (Verdict.ACCEPTED, 1)

        def judge() -> float:
            begun_s = time.monotonic()
            second.wait_done(second.add(shell("true")), deadline=Deadline(15))
            return time.monotonic() - begun_s

        servers.assert_within(2, judge)  # not parked where nobody wakes it, for 20 s


def test_broken_languages_are_named_and_the_others_are_offered(
    fresh: loopback.Cluster, client: Judicators, few_languages: Path
) -> None:
    good = (few_languages / "bash.conf").read_text()
    (few_languages / "broken.conf").write_text("[run\n")
    (few_languages / "wrong.conf").write_text(good.replace("a + b", "a - b"))
    (few_languages / "absent.conf").write_text(good.replace("bash {", "no-such-shell {"))
    executor = fresh.add_executor(languages=few_languages)
    (known,) = [e for e in client.executors() if e.name == "executor-2"]
    assert known.facts is not None and set(known.facts.languages) == {"bash"}
    for words in (
        "language left out: ",
        "broken.conf",
        "language wrong is not offered: its self-test ended with wrong_answer",
        "language absent is not offered: no-such-shell is not installed",
    ):
        assert words in executor.log()


def test_an_executor_that_still_tests_languages_stops_at_once(
    fresh: loopback.Cluster, few_languages: Path
) -> None:
    executor = fresh.executors[0]
    assert executor.stop() == 0
    bash = (few_languages / "bash.conf").read_text()
    slow = bash.replace("read -r", "sleep 100; read -r").replace("[run]", "[run]\nwall = 5m")
    for number in range(5):
        (few_languages / f"slow-{number}.conf").write_text(slow)
    with start_again(executor, wait=False) as restarted:
        restarted.wait_status("testing languages")
        servers.wait_until(lambda: asleep(100), 60, "a self-test to run")
        assert restarted.stop(20) == 0  # within the 20 s that this waits
        assert "slow" not in restarted.log()
        assert asleep(100) == []


def test_a_configuration_with_three_mistakes_names_all_three() -> None:
    text = "slots = many\nkeeep = 64K\n[run]\ncpu = 2 parsecs\n"
    for arguments in (["--check"], []):
        done = servers.run_daemon("executor", text, *arguments)
        assert done.returncode == 78
        for words in ("slots", "keeep: no such setting", "run.cpu", "executor.conf:1"):
            assert words in done.stderr, done.stderr


def test_memory_beyond_the_machines_is_a_warning_of_check_and_of_the_start() -> None:
    text = "user = root\nslots = 2\nbox = /nonexistent\n[most]\nmemory = 1T\n"
    what = r"2 slots of up to 1024\.0 GiB of memory \(most\.memory\) are 2048\.0 GiB, and .*; set "
    done = servers.run_daemon("executor", text, "--check")
    assert done.returncode == 0 and "the configuration is fine" in done.stdout
    assert re.match(rf"warning: {what}most\.memory = \d+M\n\Z", done.stderr), done.stderr
    with servers.Daemon("executor", text) as executor:
        executor.wait_status("cannot run programs safely here")
        assert len(re.findall(rf"WARNING .*executor\.conf: {what}", executor.log())) == 1
    # What nobody has set is told to those who ask, and is no warning.
    total_bytes = read_memory_bytes()
    slots = (total_bytes - reserve_bytes(total_bytes)) >> 30  # a compiler may take 1 GiB
    done = servers.run_daemon("executor", f"user = root\nslots = {slots}\n", "--check")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"note: {slots} slots of up to 4.0 GiB of memory (most.memory)" in done.stdout


def test_the_shipped_configuration_is_fine() -> None:
    text = (servers.TREE / "etc" / "executor.conf").read_text()
    done = servers.run_daemon("executor", text + "\n", "--check")
    if done.returncode:
        # The package makes the user; here it may be missing, and nothing else.
        assert done.stderr.strip().endswith("user: there is no user 'oj-executor'")
        assert len(done.stderr.strip().splitlines()) == 1
