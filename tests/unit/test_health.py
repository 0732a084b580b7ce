"""When a neighbour counts as away: by its own silence, not by ours."""

from __future__ import annotations

import threading
import time

import pytest

from oj.errors import Unavailable
from oj.judicator import health
from oj.judicator.health import Pulse
from servers import wait_until


def test_who_is_not_asked_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "EVERY_S", 600.0)  # as if this process stood still between two
    monkeypatch.setattr(health, "SILENT_S", 0.01)
    with Pulse("the database", lambda: None, lambda _: None) as pulse:
        time.sleep(0.1)
        pulse.check()


def test_a_question_without_an_answer_counts_before_it_has_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(health, "EVERY_S", 0.001)
    monkeypatch.setattr(health, "SILENT_S", 0.1)
    answer = threading.Event()

    def ask() -> None:
        answer.wait(60)

    with Pulse("the database", ask, lambda _: None) as pulse:
        wait_until(lambda: not pulse.answers, 30, "silence")
        with pytest.raises(Unavailable, match="the database has not answered for 0 s"):
            pulse.check()
        answer.set()
        wait_until(lambda: pulse.answers, 30, "an answer")


def test_a_failure_counts_at_once_and_an_answer_undoes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "EVERY_S", 0.001)
    monkeypatch.setattr(health, "AWAY_EVERY_S", 0.001)
    away = threading.Event()
    away.set()
    changes: list[bool] = []

    def ask() -> None:
        if away.is_set():
            raise Unavailable("nobody there")

    with Pulse("etcd", ask, changes.append) as pulse:
        wait_until(lambda: not pulse.answers, 30, "a failure")
        with pytest.raises(Unavailable, match="nobody there"):
            pulse.check()
        away.clear()
        wait_until(lambda: pulse.answers and changes == [False, True], 30, "an answer")
