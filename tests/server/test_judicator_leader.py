"""At most one leader acts: the fence in the database, and judicators that are paused."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import servers
from executors import FakeExecutor, JudicatorUnderTest
from oj.errors import Unavailable
from oj.judicator.store.leadership import Deposed, Leadership, Reign
from oj.rpc import ttypes as rpc
from oj.rpc.ttypes import Status

StartJudicator = Callable[..., JudicatorUnderTest]
MakeTask = Callable[..., Any]
SHORT_LEASE = "[tasks]\nlease = 2s\n"


class Candidate:
    """One judicator's view of the fence, and something to act on."""

    def __init__(self, database: Any, name: str) -> None:
        self.acts = database.acts
        self.leader = database.leader
        self._leadership = Leadership(database, name)
        self.begin = self._leadership.begin
        self.acting = self._leadership.acting

    def act(self, reign: Reign, name: str) -> None:
        with self.acting(reign) as session:
            self.acts.insert_one({"_id": name}, session=session)

    def count(self) -> int:
        return int(self.acts.count_documents({}))


@pytest.fixture
def pair(make_client: Callable[[], Any], database_name: str) -> tuple[Candidate, Candidate]:
    """An old leader and a new one."""
    old, new = (Candidate(make_client()[database_name], name) for name in ("old", "new"))
    old.acts.insert_one({"_id": "first"})
    return old, new


def test_a_leader_acts_until_a_later_one_arrives(pair: tuple[Candidate, Candidate]) -> None:
    old, new = pair
    old.begin(Reign("era", 10))
    old.act(Reign("era", 10), "a")
    new.begin(Reign("era", 20))
    with pytest.raises(Deposed):
        old.act(Reign("era", 10), "b")
    with pytest.raises(Deposed):
        old.begin(Reign("era", 10))
    new.act(Reign("era", 20), "c")
    assert {document["_id"] for document in old.acts.find()} == {"first", "a", "c"}


def test_a_leader_may_begin_again_when_the_answer_was_lost(
    pair: tuple[Candidate, Candidate],
) -> None:
    old, _ = pair
    for _ in range(2):
        old.begin(Reign("era", 10))
    old.act(Reign("era", 10), "a")


def test_a_new_etcd_counts_its_revisions_anew(pair: tuple[Candidate, Candidate]) -> None:
    old, new = pair
    old.begin(Reign("the old etcd", 1000))
    new.begin(Reign("the new etcd", 3))
    new.act(Reign("the new etcd", 3), "a")
    with pytest.raises(Deposed):
        old.act(Reign("the old etcd", 1000), "b")


def test_an_act_that_its_leader_left_half_done_is_undone_by_the_next(
    pair: tuple[Candidate, Candidate],
) -> None:
    old, new = pair
    old.begin(Reign("era", 10))
    begun, go_on = threading.Event(), threading.Event()
    errors: list[Exception] = []

    def be_paused() -> None:
        try:
            with old.acting(Reign("era", 10)) as session:
                old.acts.insert_one({"_id": "half"}, session=session)
                # As if it had been stopped just before the commit, holding the fence's lock.
                old.leader.update_one({"_id": "leader"}, {"$inc": {"n": 1}}, session=session)
                begun.set()
                go_on.wait(60)
        except (Unavailable, Deposed) as error:
            errors.append(error)

    thread = threading.Thread(target=be_paused)
    thread.start()
    assert begun.wait(60)
    started_s = time.monotonic()
    new.begin(Reign("era", 20))
    assert time.monotonic() - started_s < 30  # not the minute that a transaction may last
    new.act(Reign("era", 20), "new")
    go_on.set()
    thread.join(60)
    assert errors and old.acts.find_one({"_id": "half"}) is None
    with pytest.raises(Deposed):
        old.act(Reign("era", 10), "b")


def test_acts_and_arrivals_at_the_same_time_come_one_after_the_other(
    pair: tuple[Candidate, Candidate],
) -> None:
    """No act is found after the arrival of a later leader, whatever the order of writes."""
    old, new = pair
    deposed = threading.Event()

    def act_on() -> None:
        number = 0
        while not deposed.is_set():
            number += 1
            try:
                old.act(Reign("era", 10), f"old-{number}")
            except Deposed:
                deposed.set()
            except Unavailable:
                pass  # both wrote at once

    old.begin(Reign("era", 10))
    thread = threading.Thread(target=act_on)
    thread.start()
    servers.wait_until(lambda: old.count() > 20, 60, "acts")

    def arrive() -> bool:
        try:
            new.begin(Reign("era", 20))
        except Unavailable:
            return False  # both wrote at once; a leader tries again
        return True

    servers.wait_until(arrive, 60, "the new leader has begun")
    at_arrival = old.count()
    thread.join(60)
    assert deposed.is_set()
    assert old.count() == at_arrival


def test_a_paused_leader_does_nothing_when_it_comes_back(
    start_judicator: StartJudicator, task: MakeTask, language: str
) -> None:
    one = start_judicator(name="j1", settings=SHORT_LEASE)
    two = start_judicator(name="j2", database=one.database, prefix=one.prefix, settings=SHORT_LEASE)
    servers.wait_until(lambda: "sweeping under fence" in one.daemon.log(), 60, "j1 leads")
    caller = two.call()
    ex = FakeExecutor(two.port, "ex", (language,))
    ex.report()
    ids = [caller.add(task()) for _ in range(3)]
    one.daemon.pause()
    try:
        assert len(ex.take(3)) == 3
        servers.wait_until(
            lambda: all(caller.get(i, 0).status == Status.RETRYING for i in ids), 60, "j2 sweeps"
        )
        before = len(one.daemon.log())
    finally:
        one.daemon.resume()
    assert "sweeping under fence" in two.daemon.log()
    # It serves again, and knows by now that it does not lead.
    servers.wait_until(lambda: _leader(one) == "j2", 60, "j1 knows")
    servers.wait_until(lambda: "following" in one.daemon.log()[before:], 60, "j1 follows")
    assert "is to be retried" not in one.daemon.log()
    fences = [
        int(found)
        for judicator in (one, two)
        for found in re.findall(r"sweeping under fence (\d+)", judicator.daemon.log())
    ]
    assert fences == sorted(set(fences)) and len(fences) == 2
    # Exactly one attempt of each was ended.
    assert [(i.attempt, len(i.attempts)) for i in (caller.get(i, 7) for i in ids)] == [(1, 1)] * 3
    ex.close()


def test_leadership_is_handed_over_on_stop(start_judicator: StartJudicator) -> None:
    # A busy etcd may once be told too late; one that is never told shows each time.
    assert any(hands_over(start_judicator) for _ in range(3))


def hands_over(start_judicator: StartJudicator) -> bool:
    one = start_judicator(name="j1")
    servers.wait_until(lambda: "sweeping under fence" in one.daemon.log(), 60, "j1 leads")
    two = start_judicator(name="j2", database=one.database, prefix=one.prefix)
    assert _leader(two) == "j1"
    assert one.daemon.stop() == 0
    # At once: its lease of 5 s need not run out.
    at_once = _leader(two) != "j1"
    servers.wait_until(lambda: _leader(two) == "j2", 60, "j2 leads")
    return at_once


def _leader(judicator: JudicatorUnderTest) -> str | None:
    try:
        return next((j.name for j in judicator.call().judicators() if j.leader), None)
    except rpc.Unavailable:
        return None  # just resumed: it has not asked etcd yet
