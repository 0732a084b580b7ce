"""The store against a real mongod: fences, races and clocks, below the protocol."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from oj.judicator.report import Facts, Finished, Judged
from oj.judicator.store.adding import NewTasks
from oj.judicator.store.counts import Counts
from oj.judicator.store.documents import Claimed, NewTask, Record
from oj.judicator.store.ids import IdMaker
from oj.judicator.store.roster import Roster
from oj.judicator.store.shares import Shares
from oj.judicator.store.tasks import TaskStore
from oj.judicator.tenancy import Claim
from oj.model import Status, Verdict

ACCEPTED = Judged(Status.SUCCESS, Verdict.ACCEPTED, 1.0, "", 1, b"result")
IDS = IdMaker()


@pytest.fixture
def database(mongo: Any, database_name: str) -> Any:
    return mongo[database_name]


@pytest.fixture
def store(database: Any) -> TaskStore:
    one = TaskStore(database, "j1")
    one.make_indexes()
    one.adding = NewTasks(database, "j1")  # type: ignore[attr-defined]
    return one


def add(store: Any, **fields: Any) -> str:
    values: dict[str, Any] = {
        "id": IDS.make(),
        "user": "ann",
        "language": "c",
        "priority": 0,
        "tags": frozenset(),
        "key": None,
        "tests_total": 1,
        "share": 1,
        "body": b"task",
    }
    return str(store.adding.add(NewTask(**{**values, **fields})))


def claim(store: TaskStore, executor: str = "ex", count: int = 1) -> list[Claimed]:
    return store.claim(store.waiting_query(["c", ""], executor), executor, "i1", 1, count)


def finish(
    store: TaskStore, task_id: str, executor: str, incarnation: str, attempt: int
) -> Record | None:
    return store.finish(executor, Finished(task_id, attempt, incarnation, ACCEPTED))


@pytest.mark.parametrize(
    "wrong", [{"executor": "other"}, {"incarnation": "i2"}, {"attempt": 2}, {"attempt": 0}]
)
def test_a_result_needs_executor_incarnation_and_attempt(
    store: TaskStore, wrong: dict[str, Any]
) -> None:
    task_id = add(store)
    (claimed,) = claim(store)
    right = {"executor": "ex", "incarnation": "i1", "attempt": claimed.attempt}
    assert finish(store, task_id, **{**right, **wrong}) is None
    (held,) = store.find_held("ex")
    for change in (
        store.retry(replace(held, **wrong), "why", avoid=False, same_lease=False),
        store.give_up(replace(held, **wrong), "why", "why", same_lease=False),
    ):
        assert change is None
    record = finish(store, task_id, **right)
    assert record is not None and record.verdict == Verdict.ACCEPTED
    assert finish(store, task_id, **right) is None
    assert store.find_held("ex") == []


def test_of_many_results_at_once_those_in_other_hands_are_told_apart(store: TaskStore) -> None:
    ids = [add(store, share=n) for n in range(6)]
    for claimed in claim(store, count=6):
        assert claimed.attempt == 1
    store.cancel(ids[1])
    results = [
        Finished(ids[0], 1, "i1", ACCEPTED),
        Finished(ids[1], 1, "i1", ACCEPTED),
        Finished(ids[2], 2, "i1", ACCEPTED),
        Finished(ids[3], 1, "i0", ACCEPTED),
        Finished(ids[4], 1, "i1", ACCEPTED),
        Finished(str(IDS.make()), 1, "i1", ACCEPTED),
    ]
    expected = [True, False, False, False, True, False]
    assert store.finish_many("ex", results) == expected
    assert store.finish_many("ex", results) == [False] * 6
    assert store.finish_many("ex", [Finished(i, 1, "i1", ACCEPTED) for i in ids[2:4]]) == [True] * 2
    assert [h.id for h in store.find_held("ex")] == [ids[5]]


def test_the_sweep_does_not_take_away_what_was_renewed_since_it_looked(store: TaskStore) -> None:
    task_id = add(store)
    claim(store)
    time.sleep(0.02)
    (expired,) = store.find_expired(0.01, 10)
    assert store.find_expired(5.0, 10) == []
    store.renew("ex", "i1", [task_id])
    assert store.retry(expired, "late", avoid=False, same_lease=True) is None
    (held,) = store.find_held("ex")
    assert store.retry(held, "late", avoid=False, same_lease=True) is not None


def test_a_clock_that_was_set_back_does_not_make_leases_and_executors_last(
    store: TaskStore, database: Any
) -> None:
    add(store)
    claim(store)
    roster = Roster(database)
    roster.make_indexes()
    roster.enter("dead", Claim("i"), 0.0)
    assert store.mend_leases(8.0) == 0 and roster.mend_times(8.0) == 0
    ten_minutes = [{"$set": {"lt": {"$add": ["$lt", 600_000]}, "t": {"$add": ["$t", 600_000]}}}]
    database.tasks.update_many({}, ten_minutes)
    database.executors.update_many({}, ten_minutes)
    time.sleep(0.02)
    assert store.find_expired(0.01, 10) == [] and roster.find_silent(0.01) == []
    assert store.mend_leases(8.0) == 1 and roster.mend_times(8.0) == 1
    time.sleep(0.02)
    assert len(store.find_expired(0.01, 10)) == 1 and roster.find_silent(0.01) == ["dead"]


def test_claims_of_many_judicators_never_overlap(store: TaskStore, database: Any) -> None:
    stores = [TaskStore(database, f"j{i}") for i in range(10)]
    stores[0].make_indexes()
    ids = [add(store, share=n) for n in range(200)]
    barrier = threading.Barrier(10)

    def take(number: int) -> list[str]:
        barrier.wait()
        mine: list[str] = []
        for count in (1, 4, 1, 7, 1, 7, 2, 5, 7, 7, 7):
            mine += [c.id for c in claim(stores[number], f"ex-{number}", count)]
        return mine

    with ThreadPoolExecutor(10) as pool:
        claimed = [task_id for mine in pool.map(take, range(10)) for task_id in mine]
    assert len(claimed) == len(set(claimed))
    while more := claim(stores[0], "last", 50):
        claimed += [c.id for c in more]
    assert sorted(claimed) == sorted(ids)


def test_a_cancelled_task_cannot_be_claimed_or_finished(store: TaskStore) -> None:
    waiting, in_hand = add(store, share=2), add(store, share=1)
    (claimed,) = claim(store)
    assert claimed.id == in_hand
    assert store.cancel(waiting)[0] and store.cancel(in_hand)[0]
    assert not store.cancel(in_hand)[0]
    assert claim(store) == []
    assert finish(store, in_hand, "ex", "i1", 1) is None
    assert store.cancel(str(IDS.make())) == (False, None)


def test_the_history_of_attempts_is_bounded(store: TaskStore) -> None:
    task_id = add(store)
    for number in range(1, 26):
        (claimed,) = claim(store)
        assert claimed.attempt == number
        (held,) = store.find_held("ex")
        store.retry(held, "x" * 2000, avoid=False, same_lease=False)
    record = store.get(task_id, body=False, result=False, ended=True)
    assert record is not None
    assert [entry["n"] for entry in record.ended] == list(range(6, 26))
    assert all(len(entry["w"]) == 500 for entry in record.ended)


def test_an_incarnation_that_was_replaced_stays_out_while_another_lives(database: Any) -> None:
    roster = Roster(database)
    roster.make_indexes()
    facts = Facts({"c++.20": "12.2", "$x": "1"}, slots=3)
    executor, current = roster.enter("ex", Claim("i1"), 5.0, facts)
    assert current and executor.facts == facts
    assert roster.enter("ex", Claim("i1"), 5.0)[1]
    executor, current = roster.enter("ex", Claim("i2"), 5.0)
    # What the other told of itself says nothing of this one.
    assert current and executor.incarnation == "i2" and executor.facts is None
    roster.describe("ex", "i2", facts)
    executor, current = roster.enter("ex", Claim("i1"), 5.0, Facts())
    assert not current and executor.incarnation == "i2" and executor.facts == facts
    assert roster.touch("ex", "i2", 1.0, "") and not roster.touch("ex", "i1", 1.0, "")
    for number in range(40):
        assert roster.enter("ex", Claim(f"n{number}"), 5.0)[1]
    assert not roster.enter("ex", Claim("n38"), 5.0)[1]


def test_facts_that_a_newer_judicator_stored_are_passed_over(database: Any) -> None:
    roster = Roster(database)
    roster.enter("ex", Claim("i"), 1.0, Facts({"c": "1"}, slots=2))
    database.executors.update_one({"_id": "ex"}, {"$set": {"f.mood": "merry"}})
    [found] = roster.read_all(1.0)
    assert found.facts == Facts({"c": "1"}, slots=2)


def test_silent_executors_are_forgotten_but_not_drained_ones(database: Any) -> None:
    roster = Roster(database)
    roster.make_indexes()
    for name in ("a", "b"):
        roster.enter(name, Claim("i"), 0.0)
    assert roster.drain("b", True) and not roster.drain("nobody", True)
    time.sleep(0.05)
    assert [e.silent for e in roster.read_all(0.01)] == [True, True]
    assert [e.silent for e in roster.read_all(60)] == [False, False]
    assert roster.find_silent(60) == []
    assert roster.find_silent(0.01) == ["a"]
    with database.client.start_session() as session, session.start_transaction():
        assert not roster.remove_silent("a", 60, session)  # it reported meanwhile
        assert not roster.remove_silent("b", 0.01, session)
        assert roster.remove_silent("a", 0.01, session)
    assert [e.name for e in roster.read_all(1)] == ["b"]


def test_shares_start_at_the_clock_of_what_was_handed_out(database: Any) -> None:
    shares = Shares(database)
    shares.make_indexes()
    assert shares.take("ann", 0, "c", 10) == 1
    assert shares.take("ann", 0, "c", 10) == 11
    assert shares.take("bob", 0, "c") == 1
    shares.handed_out(0, "c", 9)
    shares.handed_out(0, "c", 0)  # a retried task turns no clock
    assert shares.take("cem", 0, "c") == 10
    assert shares.take("cem", 5, "c") == 1  # another priority, another line
    # A language that nobody has used yet begins where the others are.
    assert shares.take("cem", 0, "java") == 10
    # Another judicator learns the clock.
    shares.exchange()
    other = Shares(database)
    other.exchange()
    assert other.take("dan", 0, "c") == 10


def test_numbers_taken_ahead_are_used_once_and_thrown_away_when_passed(database: Any) -> None:
    here, there = Shares(database), Shares(database)
    taken = [shares.take("ann", 0, "c") for _ in range(40) for shares in (here, there)]
    assert len(set(taken)) == len(taken)
    assert max(taken) < 200
    here.handed_out(0, "c", 1000)
    assert here.take("ann", 0, "c") == 1001


def test_counts_of_all_judicators_add_up_and_writing_them_twice_does_no_harm(
    database: Any,
) -> None:
    here, there = Counts(database, "j1"), Counts(database, "j2")
    here.ended(Status.SUCCESS, Verdict.ACCEPTED)
    there.ended(Status.CANCELLED, None)
    for counts in (here, there, here):
        counts._changed = True  # as after a write whose answer was lost
        counts.flush()
    expected = ({Status.SUCCESS: 1, Status.CANCELLED: 1}, {Verdict.ACCEPTED: 1})
    assert here.ended_so_far() == there.ended_so_far() == expected
    again = Counts(database, "j1")  # restarted
    again.ended(Status.SUCCESS, Verdict.ACCEPTED)
    assert again.ended_so_far()[0][Status.SUCCESS] == 2


def test_counts_that_a_crash_lost_are_made_good(store: TaskStore, database: Any) -> None:
    for number in range(5):
        add(store, share=number)
    for claimed in claim(store, count=3):
        finish(store, claimed.id, "ex", "i1", 1)
    counts = Counts(database, "j1")  # nobody told it of those
    counts.ended(Status.CANCELLED, None)
    assert counts.ended_so_far() == ({Status.CANCELLED: 1}, {})
    found = counts.count_all()
    assert found is not None
    found.subtract(counts.stored())
    with database.client.start_session() as session, session.start_transaction():
        counts.make_good(found, session)
    assert counts.ended_so_far() == ({Status.SUCCESS: 3}, {Verdict.ACCEPTED: 3})
    assert counts.count_all(most=4) is None
    unfinished, oldest_ms = counts.unfinished()
    assert unfinished[Status.PENDING] == 2 and oldest_ms is not None
    counts.recount()
    assert Counts(database).ended_so_far() == ({Status.SUCCESS: 3}, {Verdict.ACCEPTED: 3})
