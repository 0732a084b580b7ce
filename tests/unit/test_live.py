"""What the live screen learns, and in which order; drawing it is tried on a real terminal."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from oj import model
from oj.cli import live
from oj.errors import Unavailable
from oj.rpc import ttypes as rpc

ID = "a" * 24


class Cluster:
    """Tells what it is given, and notes in which order it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.status = model.Status.RUNNING  # of the one task, when it is looked for
        self.news: queue.Queue[rpc.Events] = queue.Queue()

    def happenings(self, _cursor: str = "") -> Iterator[rpc.Events]:
        while True:
            news = self.news.get()
            self.asked.append("news")
            yield news

    def search(self, **_: Any) -> tuple[list[model.TaskInfo], str]:
        self.asked.append("search")
        return [model.TaskInfo(ID, self.status, add_time_ms=1)], ""

    def stats(self, _deadline: Any) -> Any:
        raise Unavailable("not asked for here")


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def screen(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(live, "LOOK_S", 0.01)
    one = live._Live(cluster, "here")  # type: ignore[arg-type]
    for work in (one._listen, one._look):
        threading.Thread(target=one._guard, args=(work,), daemon=True).start()
    return one


def wait_for(screen: Any, status: model.Status) -> None:
    end_s = time.monotonic() + 60
    while (moved := screen._picture.tasks.get(ID)) is None or moved.status is not status:
        assert time.monotonic() < end_s and screen._failed is None
        time.sleep(0.01)


def test_tasks_are_looked_for_only_when_their_end_would_be_heard(
    cluster: Cluster, screen: Any
) -> None:
    time.sleep(0.05)
    assert cluster.asked == []
    cluster.news.put(rpc.Events(events=[], cursor="1"))
    wait_for(screen, model.Status.RUNNING)
    assert cluster.asked == ["news", "search"]
    ended = rpc.TaskEvent(
        id=ID, status=int(model.Status.SUCCESS), verdict=int(model.Verdict.ACCEPTED)
    )
    cluster.news.put(rpc.Events(events=[ended], cursor="2"))
    wait_for(screen, model.Status.SUCCESS)
    assert cluster.asked.count("search") == 1


def test_what_was_under_way_before_a_gap_is_looked_for_anew(cluster: Cluster, screen: Any) -> None:
    cluster.news.put(rpc.Events(events=[], cursor="1"))
    wait_for(screen, model.Status.RUNNING)
    cluster.status = model.Status.SUCCESS
    cluster.news.put(rpc.Events(events=[], cursor="9", gap=True))
    wait_for(screen, model.Status.SUCCESS)
