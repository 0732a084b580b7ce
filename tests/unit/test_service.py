"""The frame of a daemon, with a real process and a systemd of its own to speak to."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import servers
from servers import wait_until

PROGRAM = """
import os, sys, time
from pathlib import Path
from oj import service
from oj.errors import BadSettings, Unavailable

def load(path):
    text = path.read_text()
    if "mistake" in text:
        raise BadSettings([f"{path}:1: one", f"{path}:2: two"])
    return text

def serve(daemon, what):
    daemon.on_signal(10, lambda: daemon.status("signalled"))
    daemon.status("beginning")
    if what == "crash":
        raise ValueError("a bug")
    if what == "missing":
        raise Unavailable("there is no mongod")
    count = 0
    def check():
        nonlocal count
        count += 1
        if what == "neighbour":
            raise Unavailable("the neighbour is away")
        if what == "broken":
            raise ValueError("the check broke")
        if what == "child" and count == 2:
            daemon.fail("the child ended")
        return f"fine {count}"
    daemon.ready("ready now")
    daemon.supervise(check, 0.05)
    print("unwound", file=sys.stderr)

service.run("etcd", load, serve, "A daemon for tests.")
"""


class Start:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.program = directory / "daemon"
        self.program.write_text(PROGRAM)
        self.started: list[servers.Daemon] = []

    def __call__(self, what: str, *arguments: str) -> servers.Daemon:
        daemon = servers.Daemon(
            "etcd", what, self.directory, arguments=arguments, program=self.program
        )
        self.started.append(daemon)
        return daemon


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    starter = Start(tmp_path)
    yield starter
    for daemon in starter.started:
        daemon.close()


def test_a_daemon_is_ready_tells_its_status_and_feeds_the_watchdog(start: Start) -> None:
    daemon = start("good").wait_ready()
    wait_until(lambda: daemon.pets > 3, what="food for the watchdog")
    assert daemon.statuses[:2] == ["beginning", "ready now"]
    assert daemon.status.startswith("fine ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_unwinds_and_ends_with_zero(start: Start, number: int) -> None:
    daemon = start("good").wait_ready()
    assert daemon.end(number, 20) == 0
    assert daemon.stopping.wait(1)
    assert daemon.log().rstrip().endswith("unwound")


def test_another_signal_runs_its_action(start: Start) -> None:
    daemon = start("good").wait_ready()
    daemon.send(signal.SIGUSR1)
    wait_until(lambda: "signalled" in daemon.statuses, what="the action")


def test_mistakes_end_with_78_and_are_all_told(start: Start) -> None:
    daemon = start("mistake")
    assert daemon.wait(20) == 78
    assert ":1: one" in daemon.log()
    assert ":2: two" in daemon.log()
    wait_until(lambda: daemon.status.startswith("2 mistakes in "), what="the status")
    assert not daemon.ready.is_set()
    check = start("mistake", "--check")
    assert check.wait(20) == 78


def test_check_of_a_good_file_ends_with_zero_and_starts_nothing(start: Start) -> None:
    daemon = start("good", "--check")
    assert daemon.wait(20) == 0
    assert "is fine" in daemon.log()
    assert not daemon.statuses


def test_a_bug_ends_with_a_traceback_and_one(start: Start) -> None:
    daemon = start("crash")
    assert daemon.wait(20) == 1
    assert "ValueError: a bug" in daemon.log()
    wait_until(lambda: daemon.status == "failed: ValueError: a bug", what="the status")


def test_what_is_missing_at_the_start_is_told_without_a_traceback(start: Start) -> None:
    daemon = start("missing")
    assert daemon.wait(20) == 1
    assert "there is no mongod" in daemon.log()
    assert "Traceback" not in daemon.log()
    wait_until(lambda: daemon.status == "there is no mongod", what="the status")


def test_a_failed_child_ends_in_order_with_one_and_no_traceback(start: Start) -> None:
    daemon = start("child")
    assert daemon.wait(20) == 1
    assert "the child ended" in daemon.log()
    assert "Traceback" not in daemon.log()
    assert daemon.log().rstrip().endswith("unwound")


def test_a_neighbour_that_is_away_is_told_and_the_watchdog_fed(start: Start) -> None:
    daemon = start("neighbour").wait_ready()
    daemon.wait_status("degraded: the neighbour is away")
    pets = daemon.pets
    wait_until(lambda: daemon.pets > pets + 3, what="food for the watchdog")


def test_a_check_that_keeps_failing_starves_the_watchdog(start: Start) -> None:
    daemon = start("broken").wait_ready()
    wait_until(lambda: "check failed (5)" in daemon.log(), what="the fifth failure")
    assert daemon.pets == 2
    assert daemon.status == "check failed: the check broke"


def test_version_and_help_need_no_configuration(start: Start) -> None:
    assert start("good", "--version").wait(20) == 0
    assert start("good", "--help").wait(20) == 0
