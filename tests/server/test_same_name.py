"""Several processes under one executor's name: who is given tasks, and who is told what."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import loopback
import servers
from executors import Caller, FakeExecutor, JudicatorUnderTest
from oj import model
from oj.client import Judicators
from oj.clock import Deadline
from oj.judicator.report import Facts, Report
from oj.rpc.ttypes import Verdict
from test_judicator_wakes import Desk

MakeExecutor = Callable[..., FakeExecutor]
MakeTask = Callable[..., Any]
GET_ALL = 7
GONE_S = 30.0  # a process that is gone is known to be within about eight


class Ask:
    """Reports of an executor that is refused, every second, until it is not."""

    def __init__(self, executor: FakeExecutor) -> None:
        self._executor = executor

    def __call__(self) -> Any:
        reply = self._executor.report()
        if reply.holder is not None:
            time.sleep(1.0)
            return None
        return reply


def info_of(caller: Caller, name: str) -> Any:
    return next(one for one in caller.executors() if one.name == name)


@pytest.fixture
def same(executor: MakeExecutor, judicator: JudicatorUnderTest) -> Iterator[Callable[..., Any]]:
    """Makes another process under an executor's name; it has not reported."""
    made: list[FakeExecutor] = []

    def make(of: FakeExecutor, installation: str, port: int = judicator.port) -> FakeExecutor:
        languages = tuple(of.facts.languages)
        made.append(FakeExecutor(port, of.name, languages, installation=installation))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_another_machine_is_refused_told_and_shown_and_disturbs_nobody(
    caller: Caller,
    judicator: JudicatorUnderTest,
    executor: MakeExecutor,
    same: Callable[..., Any],
    task: MakeTask,
) -> None:
    first = executor(installation="a")
    task_id = caller.add(task())
    (assigned,) = first.take()
    other = same(first, "b")
    waiting = caller.add(task())
    reply = other.report(vacant=2, executing=[other.executing(assigned)])
    assert not reply.assign and [ref.id for ref in reply.cancel] == [task_id]
    assert (reply.holder.incarnation, reply.holder.address) == (first.incarnation, "127.0.0.1")
    info = info_of(caller, first.name)
    assert info.incarnation == first.incarnation and info.facts.slots == 2
    [rival] = info.rivals
    assert (rival.incarnation, rival.address) == (other.incarnation, "127.0.0.1")
    said = f"executor {first.name} runs twice"
    servers.wait_until(lambda: any(said in one for one in caller.cluster().troubles))
    # However long and often it asks, also while the first has nothing to say but its parked report.
    with ThreadPoolExecutor(1) as pool:
        listed = [first.executing(assigned)]
        parked = pool.submit(lambda: first.report(executing=listed, wait_ms=20_000))
        for _ in range(4):
            assert other.report(vacant=2).holder
            time.sleep(1.0)
        # It was asked to report, long before its time is up.
        reply = parked.result(10)
    assert not reply.cancel and reply.holder is None
    assert judicator.daemon.log().count(said) == 1, "once is enough"
    reply = first.report(vacant=1, complete=[first.completed(assigned)])
    assert [given.id for given in reply.assign] == [waiting] and reply.holder is None
    assert caller.get(task_id, 0).verdict == Verdict.ACCEPTED
    first.report(complete=[first.completed(reply.assign[0])])
    assert caller.get(waiting, GET_ALL).attempts[0].ended is None


def test_it_comes_in_by_itself_once_the_first_is_gone(
    caller: Caller, executor: MakeExecutor, same: Callable[..., Any], task: MakeTask
) -> None:
    first = executor(installation="a")
    first.report(wait_ms=1)  # its next may come as late as that and the grace
    lost = caller.add(task())
    (assigned,) = first.take()
    other = same(first, "b")
    assert other.report().holder
    seen_ms = info_of(caller, first.name).report_time
    reply = servers.wait_until(Ask(other), GONE_S)
    assert reply.want_facts, "those that are stored are the first one's"
    other.report(facts=other.facts)
    (again,) = other.take(wait_ms=5000)
    assert (again.id, again.attempt) == (lost, 2)
    # The one that was replaced is no sign of life, and what it has is not wanted.
    reply = first.report(complete=[first.completed(assigned)])
    assert reply.holder.incarnation == other.incarnation
    other.report(executing=[other.executing(again)])
    newest_ms = info_of(caller, first.name).report_time
    assert newest_ms >= seen_ms
    for _ in range(3):
        assert first.report(vacant=2).holder and not first.report(vacant=2).assign
    assert info_of(caller, first.name).report_time == newest_ms
    other.report(complete=[other.completed(again)])
    assert caller.get(lost, 0).attempt == 2
    # And so it is in turn.
    servers.wait_until(Ask(first), GONE_S)
    assert info_of(caller, first.name).incarnation == first.incarnation


def test_a_restart_has_its_name_at_once(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    first = executor(installation="a")
    lost = caller.add(task())
    first.take()
    again = first.restart()
    reply = again.report(vacant=1)
    assert reply.holder is None and [given.id for given in reply.assign] == [lost]
    assert "restarted" in caller.get(lost, GET_ALL).attempts[0].ended
    assert not info_of(caller, first.name).rivals
    again.close()


def test_of_two_copies_the_first_has_its_name_back_and_nothing_is_judged_twice(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    first = executor(installation="a")
    ids = [caller.add(task()) for _ in range(2)]
    (mine,) = first.take()
    copy = first.restart()
    given = copy.report(vacant=2).assign
    assert {one.id for one in given} == set(ids)
    # The first is told, stops, and asks again.
    reply = first.report(complete=[first.completed(mine)])
    assert reply.holder.incarnation == copy.incarnation and reply.acknowledged
    assert caller.get(mine.id, 0).attempt == 2, "the late result was not recorded"
    reply = servers.wait_until(Ask(first), 10)
    assert reply.want_facts
    first.report(facts=first.facts)
    late = copy.report(complete=[copy.completed(given[0])], executing=[copy.executing(given[1])])
    assert late.holder.incarnation == first.incarnation
    taken = first.take(2, wait_ms=5000) or first.take(2, wait_ms=5000)
    first.report(complete=[first.completed(one) for one in taken])
    for one in ids:
        info = caller.get(one, GET_ALL)
        assert info.verdict == Verdict.ACCEPTED
        assert sum(attempt.ended is None for attempt in info.attempts) == 1
    copy.close()


@pytest.mark.parametrize("ends", [True, False], ids=["ends", "lives"])
def test_a_copy_that_is_started_over_and_over_uses_up_no_attempts(
    ends: bool, caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    """At the address of the first, which is the hardest to tell from restarts."""
    first = executor(installation="a")
    task_id = caller.add(task())
    first.take()
    copies = [first.restart()]
    assert copies[0].report(vacant=1).assign
    if ends:  # before the first has been refused
        copies.append(first.restart())
        assert copies[-1].report(vacant=1).assign
    servers.wait_until(Ask(first), 10)
    first.report(facts=first.facts)
    (given,) = first.take(wait_ms=5000) or first.take(wait_ms=5000)
    for _ in range(4):
        copies.append(first.restart())
        reply = copies[-1].report(vacant=1)
        assert reply.holder.incarnation == first.incarnation and not reply.assign
        assert first.report(executing=[first.executing(given)]).holder is None
    first.report(complete=[first.completed(given)])
    info = caller.get(task_id, GET_ALL)
    assert (info.verdict, info.attempt) == (Verdict.ACCEPTED, given.attempt)
    assert given.attempt == len(copies) - 4 + 2
    for copy in copies:
        copy.close()


class Worker:
    """Reports as an executor does, without end: keeps its slots full and ends nothing."""

    def __init__(self, executor: FakeExecutor, slots: int) -> None:
        self._executor = executor
        self._slots = slots
        self._stop = threading.Event()
        self.hands: dict[str, Any] = {}
        self.refused = 0
        self.reports = 0  # since it was refused last

    def run(self) -> None:
        facts = None
        while not self._stop.is_set():
            listed = [self._executor.executing(one) for one in list(self.hands.values())]
            vacant = self._slots - len(listed)
            reply = self._executor.report(
                executing=listed, vacant=vacant, wait_ms=1000, facts=facts
            )
            facts = self._executor.facts if reply.want_facts else None
            for ref in reply.cancel:
                self.hands.pop(ref.id, None)
            self.hands.update({one.id: one for one in reply.assign})
            self.reports += 1
            if reply.holder is not None:
                self.refused += 1
                self.reports = 0
                self._stop.wait(1.0)

    def stop(self) -> None:
        self._stop.set()


def test_two_copies_at_two_judicators_leave_tasks_their_attempts(
    caller: Caller,
    judicator: JudicatorUnderTest,
    start_judicator: Callable[..., JudicatorUnderTest],
    executor: MakeExecutor,
    same: Callable[..., Any],
    task: MakeTask,
) -> None:
    second = start_judicator(name="j2", database=judicator.database, prefix=judicator.prefix)
    first = executor(installation="a")
    ids = [caller.add(task()) for _ in range(2)]
    workers = [Worker(first, 2), Worker(same(first, "a", second.port), 2)]
    mine, others = workers
    mine.hands = {one.id: one for one in first.take(2)}
    assert set(mine.hands) == set(ids)
    with ThreadPoolExecutor(2) as pool:
        # The judicator of the first has just heard from it, and believes it for two seconds.
        first.report(executing=[first.executing(one) for one in mine.hands.values()])
        running = [pool.submit(one.run) for one in workers]
        try:
            servers.wait_until(
                lambda: (
                    mine.refused
                    and others.refused
                    and mine.reports > 2
                    and set(mine.hands) == set(ids)
                ),
                30,
            )
        finally:
            for one in workers:
                one.stop()
        for future in running:
            future.result(30)
    first.report(complete=[first.completed(one) for one in mine.hands.values()])
    for one in ids:
        info = caller.get(one, GET_ALL)
        assert info.verdict == Verdict.ACCEPTED, [attempt.ended for attempt in info.attempts]
        assert info.attempt <= 4, [attempt.ended for attempt in info.attempts]


def test_one_that_is_removed_from_the_list_makes_room_at_once(
    caller: Caller, executor: MakeExecutor, same: Callable[..., Any]
) -> None:
    first = executor(installation="a")
    other = same(first, "b")
    assert other.report().holder
    caller.forget(first.name)
    assert other.report().holder is None
    assert first.report().holder.incarnation == other.incarnation


def test_the_first_is_known_to_live_whichever_judicator_it_speaks_to(
    caller: Caller,
    judicator: JudicatorUnderTest,
    start_judicator: Callable[..., JudicatorUnderTest],
    executor: MakeExecutor,
    same: Callable[..., Any],
) -> None:
    second = start_judicator(name="j2", database=judicator.database, prefix=judicator.prefix)
    first = executor(installation="a")
    other = same(first, "b", second.port)
    done = time.monotonic() + 12
    with ThreadPoolExecutor(1) as pool:

        def listen() -> int:
            answered = 0
            while time.monotonic() < done:
                answered += first.report(wait_ms=20_000).holder is None
            return answered

        listening = pool.submit(listen)
        while time.monotonic() < done:
            assert other.report().holder, "it came in although the first one lives"
            time.sleep(1.5)
        assert listening.result(30) > 2
    # A restart that speaks to the other judicator is heard of where the old one is parked.
    with ThreadPoolExecutor(1) as pool:
        parked = pool.submit(lambda: first.report(wait_ms=20_000))
        again = FakeExecutor(
            second.port, first.name, tuple(first.facts.languages), installation="a"
        )
        begun = time.monotonic()
        again.report()
        told = parked.result(20)
        assert time.monotonic() - begun < 19
        # It was woken, and its next report is told; or it came in behind the other's. Told twice it
        # would have shown that it lives.
        end = time.monotonic() + 60
        while told.holder is None and time.monotonic() < end:
            told = first.report()
        assert told.holder.incarnation == again.incarnation
        again.close()


@pytest.fixture
def cluster(etcd: servers.Etcd, mongod: servers.Mongod) -> Iterator[loopback.Cluster]:
    loopback.prepare()
    with loopback.Cluster(etcd, mongod) as started:
        yield started.start()


def judge(client: Judicators) -> str:
    """The executor of one small task."""
    task = model.Task(execute=model.Step(("/bin/true",), model.Limits(wall_ms=60_000)))
    info = client.wait_done(client.add(task), deadline=Deadline(120))
    assert info.verdict == model.Verdict.ACCEPTED
    return str(info.executor)


def test_an_address_that_changes_under_a_living_executor_is_noted(
    mongo: Any, database_name: str
) -> None:
    """As by DHCP or a VPN: the same process goes on, at a judicator that knows it."""
    desk = Desk(mongo[database_name], "a.1")

    def listed() -> str:
        (one,) = desk.roster.read_all(10.0)
        return one.address

    for address in ("10.0.0.1", "10.0.0.2", "10.0.0.2", "10.0.0.3"):
        desk.report(address=address)
        assert listed() == address
    # A process that is refused the name says nothing of where its holder is.
    for _ in range(2):
        rival = Report("ex", "b.1", number=1, settled=0, address="10.0.0.9", facts=Facts({}, 1))
        assert desk.reports.report(rival).holder
        assert listed() == "10.0.0.3"
    desk.report(address="10.0.0.3")
    assert listed() == "10.0.0.3"


def test_real_executors_say_so_in_their_status_and_take_turns(cluster: loopback.Cluster) -> None:
    first = cluster.executors[0]
    other = cluster.add_executor("executor-1")
    assert "executor-1 runs twice" in other.wait_status("^degraded: .*takes no tasks")
    assert re.match(r"\d+ slots", first.status)
    log = other.log()
    assert log.count("runs twice") - log.count("ready: executor") == 1, "once is enough"
    with Judicators(cluster.addresses, learn=False) as client:
        assert judge(client) == "executor-1"
        assert "runs twice" in other.status
        # The first gets another name, which is a stop and a start.
        first.stop()
        other.wait_status(r"^\d+ slots")
        assert judge(client) == "executor-1"
        # A copy, with all that is on the machine; it is gone again when the first has shown up.
        copied = cluster.add_executor("executor-1", copy_of=other)
        copied.wait_status("^degraded: executor executor-1 runs twice")
        other.wait_status(r"^\d+ slots")
        assert judge(client) == "executor-1"
        [seen] = [one for one in client.executors() if one.name == "executor-1"]
        assert len(seen.rivals) == 1 and seen.facts and not seen.silent
        other.kill()
        copied.wait_status(r"^\d+ slots")
        assert judge(client) == "executor-1"
