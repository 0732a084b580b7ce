"""Wake-ups that come between a look and the wait for one: none may be lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from oj.judicator.broker import Added, Broker
from oj.judicator.report import Facts, InHand, Report
from oj.judicator.reports import Reports
from oj.judicator.settings import Rules
from oj.judicator.store.adding import NewTasks
from oj.judicator.store.counts import Counts
from oj.judicator.store.history import History
from oj.judicator.store.roster import Roster
from oj.judicator.store.shares import Shares
from oj.judicator.store.tasks import TaskStore
from oj.judicator.waiting import Parked, ParkedReports
from oj.model import Task

WAIT_S = 50.0


class Interrupted(ParkedReports):
    """Something happens just before a report is parked, when nobody can be woken yet."""

    def __init__(self) -> None:
        super().__init__()
        self.first: Callable[[], Any] = lambda: None

    def park(self, parked: Parked) -> None:
        first, self.first = self.first, lambda: None
        first()
        super().park(parked)


class Desk:
    """A judicator's rules over a real database, without its server."""

    def __init__(self, database: Any, incarnation: str = "i") -> None:
        store, roster, shares = TaskStore(database, "j"), Roster(database), Shares(database)
        for part in (store, roster, shares):
            part.make_indexes()
        self.broker = Broker(
            NewTasks(database, "j"),
            store,
            shares,
            roster,
            Counts(database, "j"),
            History(database),
            Rules(),
        )
        self.parked = Interrupted()
        self.broker.parked = self.parked
        self.roster = roster
        self.reports = Reports(self.broker, store, roster, shares)
        self._incarnation = incarnation
        self._number = 0

    def add(self) -> str:
        return self.broker.add(Added(Task(language="c"), b"task"))

    def report(self, **fields: Any) -> Any:
        self._number += 1
        facts = Facts({"c": "1"}, 2) if self._number == 1 else None
        fields |= {"number": self._number, "settled": self._number - 1, "facts": facts}
        return self.reports.report(Report("ex", self._incarnation, **fields))


@pytest.fixture
def desk(mongo: Any, database_name: str) -> Desk:
    one = Desk(mongo[database_name])
    one.report()
    return one


def took_s(begun_s: float) -> float:
    return time.monotonic() - begun_s


def test_a_cancel_between_the_look_and_the_parking_is_told_at_once(desk: Desk) -> None:
    task_id = desk.add()
    (assigned,) = desk.report(vacant=1).assign
    assert assigned.id == task_id
    desk.parked.first = lambda: desk.broker.cancel(task_id)
    begun_s = time.monotonic()
    reply = desk.report(in_hand=(InHand(task_id, 1),), wait_s=WAIT_S)
    assert [ref.id for ref in reply.cancel] == [task_id]
    assert took_s(begun_s) < WAIT_S / 2


def test_a_drain_between_the_look_and_the_parking_is_told_at_once(desk: Desk) -> None:
    desk.parked.first = lambda: desk.reports.drain("ex", True)
    begun_s = time.monotonic()
    assert desk.report(vacant=1, wait_s=WAIT_S).drained
    assert took_s(begun_s) < WAIT_S / 2


def test_a_task_added_between_the_look_and_the_parking_is_handed_out_at_once(desk: Desk) -> None:
    added: list[str] = []
    desk.parked.first = lambda: added.append(desk.add())
    begun_s = time.monotonic()
    reply = desk.report(vacant=1, wait_s=WAIT_S)
    assert [one.id for one in reply.assign] == added
    assert took_s(begun_s) < WAIT_S / 2
