"""Supervision of a foreign process, with small programs in the server's place."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from oj.child import LONGEST_LINE_BYTES, LONGEST_TEXT, MOST_LINES_PER_S, Child, Silent
from oj.errors import Unavailable
from servers import PYTHON, TREE, Process, wait_until


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2]
    except FileNotFoundError:
        return True
    return state.startswith(("Z", "X"))


def test_its_output_becomes_log_lines_that_are_cut_and_levelled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    code = f"""
print("first")
print("W second")
print("x" * {LONGEST_TEXT * 2})
print("y" * {LONGEST_LINE_BYTES * 3})
print("last, without an end", end="")
"""

    def read_line(line: str) -> tuple[int, str]:
        return (logging.WARNING if line.startswith("W") else logging.INFO), line

    child = Child("thing", python(code), read_line=read_line).start()
    assert child.exited.wait(30)
    child.stop(1)
    lines = [(r.levelno, r.getMessage()) for r in caplog.records if r.name == "oj.child.thing"]
    assert (logging.INFO, "first") in lines
    assert (logging.WARNING, "W second") in lines
    assert (logging.INFO, "x" * LONGEST_TEXT + "…") in lines
    assert sum(text.startswith("y") for _, text in lines) == 1
    assert (logging.INFO, "last, without an end") in lines


def test_a_flood_of_lines_is_bounded_and_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    count = MOST_LINES_PER_S * 20
    child = Child("thing", python(f"for i in range({count}): print('line', i)")).start()
    assert child.exited.wait(20)
    child.stop(1)
    lines = [r.getMessage() for r in caplog.records if r.getMessage().startswith("line")]
    assert MOST_LINES_PER_S <= len(lines) < count
    assert any("left out" in r.getMessage() for r in caplog.records)


def test_it_gets_none_of_what_systemd_gave_us(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    for key in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "JOURNAL_STREAM", "LISTEN_FDS"):
        monkeypatch.setenv(key, "secret")
    monkeypatch.setenv("KEPT", "kept")
    child = Child("thing", ["/usr/bin/env"]).start()
    assert child.exited.wait(30)
    child.stop(1)
    text = "\n".join(r.getMessage() for r in caplog.records)
    assert "KEPT=kept" in text
    assert "secret" not in text


def test_an_end_of_its_own_is_told_with_its_last_words(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    told: list[str] = []
    child = Child(
        "thing",
        python("print('why'); raise SystemExit(3)"),
        read_line=lambda line: (logging.DEBUG, line),
        on_exit=told.append,
    ).start()
    wait_until(lambda: told, what="the news")
    assert told == ["thing ended with status 3"]
    assert "before its end: why" in [r.getMessage() for r in caplog.records]
    child.stop(1)
    assert told == ["thing ended with status 3"]


def test_a_kill_from_outside_is_told_by_its_signal() -> None:
    told: list[str] = []
    child = Child("thing", ["sleep", "60"], on_exit=told.append).start()
    os.kill(child.pid, signal.SIGKILL)
    wait_until(lambda: told, what="the news")
    assert told == ["thing was killed by SIGKILL"]


def test_stopping_is_no_news_and_leaves_nothing() -> None:
    told: list[str] = []
    with Child("thing", ["sleep", "60"], on_exit=told.append) as child:
        assert child.alive
        pid = child.pid
    assert gone(pid)
    assert told == []


def test_one_that_ignores_the_stop_is_killed_in_time_with_what_it_started(tmp_path: Path) -> None:
    code = f"""
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
kid = subprocess.Popen(["sleep", "60"])
open({str(tmp_path / "kid")!r}, "w").write(str(kid.pid))
os.rename({str(tmp_path / "kid")!r}, {str(tmp_path / "pid")!r})
time.sleep(60)
"""
    child = Child("thing", python(code)).start()
    wait_until((tmp_path / "pid").exists, what="the grandchild")
    started = time.monotonic()
    child.stop(0.3)
    assert 0.3 <= time.monotonic() - started < 10
    assert gone(child.pid)
    grandchild = int((tmp_path / "pid").read_text())
    wait_until(lambda: gone(grandchild), what="the end of the grandchild")


def test_it_dies_with_the_daemon_however_that_ends(tmp_path: Path) -> None:
    code = f"""
import time
from oj.child import Child
child = Child("thing", ["sleep", "60"]).start()
open({str(tmp_path / "child")!r}, "w").write(str(child.pid))
time.sleep(60)
"""
    environment = {**os.environ, "PYTHONPATH": str(TREE / "daemons")}
    with Process([PYTHON, "-c", code], tmp_path / "log", environment) as daemon:
        pid = wait_until(
            lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text(),
            what="the child",
        )
        comm = Path(f"/proc/{pid}/comm")
        wait_until(lambda: comm.read_text().strip() == "sleep", what="setpriv to be past")
        daemon.kill()
        wait_until(lambda: gone(int(pid)), 5, "the end of the child")


def test_it_does_not_even_begin_when_the_daemon_is_gone(tmp_path: Path) -> None:
    mark = tmp_path / "began"
    child = Child("late", ["touch", str(mark)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "getpid", lambda: 2**22)  # nobody's: as seen after the parent's death
        child.start()
    assert child.exited.wait(60)
    assert not mark.exists()


def test_a_program_that_does_not_exist_is_said_so() -> None:
    with pytest.raises(Unavailable, match="no program /nonexistent"):
        Child("thing", ["/nonexistent"]).start()


def test_a_server_that_is_silent_three_times_in_a_row_is_killed() -> None:
    told: list[str] = []
    answers = iter(["silent", "good", "silent", "silent", "away", "silent", "silent", "silent"])

    def check() -> str:
        answer = next(answers)
        if answer == "silent":
            raise Silent("no answer")
        if answer == "away":
            raise Unavailable("a neighbour is away")
        return answer

    child = Child("thing", ["sleep", "60"], on_exit=told.append).start()
    guarded = child.guard(check)
    for _ in range(7):
        with contextlib.suppress(Silent, Unavailable):
            assert guarded() == "good"
        assert child.alive
    with pytest.raises(Silent):
        guarded()
    wait_until(lambda: told, what="its end")
    child.stop(1)


def test_a_stop_before_the_start_is_nothing() -> None:
    Child("thing", ["sleep", "60"]).stop(1)
