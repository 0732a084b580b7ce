"""The streams' way through what happens, with judicators made by hand: no cluster is that busy."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pytest

import servers
from oj.gateway.events_api import _Reader
from oj.gateway.hub import KEPT, Hub
from oj.model import Status
from oj.rpc import ttypes as rpc

OURS = "a" * 24


class Judicators:
    """Tells what it is given; counts who asks for what the hub does not keep."""

    def __init__(self) -> None:
        self.asked = 0
        self._given: queue.Queue[rpc.Events] = queue.Queue()
        self._number = 0

    def channel(self) -> Feed:
        return Feed(self._given)

    def events(self, cursor: str, wait_s: float, limit: int) -> rpc.Events:
        self.asked += 1
        return rpc.Events(events=[], cursor=cursor)

    def tell(self, *tasks: str) -> str:
        """One event of each task; the cursor of the last."""
        events = []
        for task in tasks:
            self._number += 1
            cursor = f"{self._number:08}"
            events.append(rpc.TaskEvent(cursor=cursor, id=task, status=int(Status.RUNNING)))
        self._given.put(rpc.Events(events=events, cursor=f"{self._number:08}"))
        return f"{self._number:08}"


class Feed:
    def __init__(self, given: queue.Queue[rpc.Events]) -> None:
        self._given = given

    def events(self, cursor: str, wait_s: float, limit: int) -> rpc.Events:
        return self._given.get()


@pytest.fixture
def judicators() -> Judicators:
    made = Judicators()
    made.tell("b" * 24)
    return made


@pytest.fixture
def hub(judicators: Judicators) -> Any:
    made: Any = Hub(judicators)  # type: ignore[arg-type]
    assert made.latest
    return made


def wait_for(hub: Any, cursor: str) -> None:
    servers.wait_until(lambda: hub.latest == cursor, what=f"the hub at {cursor}")


def test_a_watcher_of_one_task_does_not_read_over_what_others_did(
    hub: Any, judicators: Judicators
) -> None:
    bell: threading.Event = hub.watch(OURS)
    reader = _Reader(hub, hub.latest)
    for _ in range(3):
        wait_for(hub, judicators.tell(*["c" * 24] * KEPT))
        reader.skip(bell)
    assert reader.next() == [] and judicators.asked == 0
    judicators.tell("c" * 24, OURS)
    assert bell.wait(30)
    assert [happening.task for happening in reader.next()] == ["c" * 24, OURS]
    assert judicators.asked == 0


def test_a_watcher_of_one_task_skips_nothing_of_it(hub: Any, judicators: Judicators) -> None:
    bell: threading.Event = hub.watch(OURS)
    reader = _Reader(hub, hub.latest)
    wait_for(hub, judicators.tell(OURS, "c" * 24))
    reader.skip(bell)
    assert OURS in [happening.task for happening in reader.next()]
