"""Three judicators over a replica set of three: members that are killed, stopped, and lost."""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pymongo
import pytest
from pymongo.errors import PyMongoError

import servers
from executors import Caller, FakeExecutor, JudicatorUnderTest, make_task
from oj import model
from oj.client import Judicators
from oj.clock import Deadline
from oj.errors import Unavailable
from oj.rpc import ttypes as rpc
from oj.rpc.ttypes import Status

NOTHING = model.Task(execute=model.Step(("/bin/true",)))


class ReplicaSet:
    """Three mongods, named `oj`, that elect as fast as oj-mongodb lets them."""

    def __init__(self) -> None:
        self.directory = servers.make_directory()
        self.ports = [servers.free_port() for _ in range(3)]
        self.addresses = [f"127.0.0.1:{port}" for port in self.ports]
        self.processes: dict[str, servers.Process] = {}
        for address in self.addresses:
            self.start(address)
        client = self._ask(self.addresses[0], 60_000)
        members = [{"_id": i, "host": address} for i, address in enumerate(self.addresses)]
        settings = {
            "electionTimeoutMillis": 2000,
            "heartbeatIntervalMillis": 500,
            "heartbeatTimeoutSecs": 2,
        }
        config = {"_id": "oj", "members": members, "settings": settings}
        client.admin.command("replSetInitiate", config)
        client.close()
        self.wait_whole()

    def start(self, address: str) -> None:
        port = address.rpartition(":")[2]
        data = self.directory / port
        data.mkdir(exist_ok=True)
        self.processes[address] = servers.Process(
            [
                servers.find_mongod(),
                "--replSet=oj",
                f"--dbpath={data}",
                "--bind_ip=127.0.0.1",
                f"--port={port}",
                "--nounixsocket",
                "--wiredTigerCacheSizeGB=0.25",
                "--oplogSize=64",
                "--setParameter=diagnosticDataCollectionEnabled=false",
            ],
            self.directory / f"{port}.log",
        )
        servers.wait_until(lambda: servers.accepts(int(port)), 60, f"mongod at {address}")

    def _ask(self, address: str, timeout_ms: int = 1000) -> Any:
        host, _, port = address.rpartition(":")
        return pymongo.MongoClient(
            host, int(port), directConnection=True, serverSelectionTimeoutMS=timeout_ms
        )

    def states(self) -> dict[str, int]:
        for address, process in self.processes.items():
            if not process.alive:
                continue
            client = self._ask(address)
            with contextlib.suppress(PyMongoError):
                status = client.admin.command("replSetGetStatus")
                return {member["name"]: member["state"] for member in status["members"]}
            client.close()
        return {}

    def wait_whole(self) -> None:
        servers.wait_until(
            lambda: sorted(self.states().values()) == [1, 2, 2], 60, "a whole replica set"
        )

    def primary(self) -> str:
        return servers.wait_until(
            lambda: next((a for a, state in self.states().items() if state == 1), None), 60
        )

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


@pytest.fixture(scope="module")
def replicas() -> Iterator[ReplicaSet]:
    whole = ReplicaSet()
    yield whole
    whole.close()


@pytest.fixture(scope="module")
def three(etcd: servers.Etcd, replicas: ReplicaSet) -> Iterator[list[JudicatorUnderTest]]:
    started: list[JudicatorUnderTest] = []
    for number in range(3):
        shared = {"database": started[0].database, "prefix": started[0].prefix} if started else {}
        seeds = ", ".join(replicas.addresses)
        started.append(
            JudicatorUnderTest(etcd.address, seeds, name=f"j{number + 1}", wait=False, **shared)
        )
    for one in started:
        one.daemon.wait_ready()
    yield started
    for one in started:
        one.close()


class Adder(threading.Thread):
    """Adds task after task, as a client does, and notes what it was told and when."""

    def __init__(self, three: list[JudicatorUnderTest]) -> None:
        super().__init__(daemon=True)
        self._places = [("127.0.0.1", one.port) for one in three]
        self._over = threading.Event()
        self.added: list[str] = []
        self.times: list[float] = []
        self.start()

    def run(self) -> None:
        with Judicators(self._places, learn=False, timeout_s=60) as client:
            while not self._over.is_set():
                self.added.append(client.add(NOTHING))
                self.times.append(time.monotonic())

    def longest_gap_s(self) -> float:
        return max(b - a for a, b in zip(self.times, self.times[1:], strict=False))

    def finish(self) -> list[str]:
        self._over.set()
        self.join(90)
        assert not self.is_alive()
        return self.added


def drain(three: list[JudicatorUnderTest]) -> list[str]:
    """Takes and finishes all that waits; the ids, each as often as it was handed out."""
    callers = [one.call() for one in three]
    servers.wait_until(lambda: not any(_refuses(one, "ping") for one in callers), 60, "recovery")
    ex = FakeExecutor(three[-1].port, "drainer")
    taken: list[str] = []

    def report(**what: Any) -> Any:
        """Again when it is refused, as executors do."""

        def attempt() -> Any:
            with contextlib.suppress(rpc.Unavailable):
                return ex.report(facts=ex.facts, **what)
            return None

        return servers.wait_until(attempt, 60, "an answer")

    report()
    while found := report(vacant=500).assign:
        report(complete=[ex.completed(one) for one in found])
        taken += [one.id for one in found]
    ex.close()
    return taken


def tell_stories(three: list[JudicatorUnderTest], ids: list[str]) -> str:
    """What the journals say of these tasks."""
    return "\n".join(
        f"{one.name}: {line}"
        for one in three
        for line in one.daemon.log().splitlines()
        if any(task_id in line for task_id in ids)
    )


def test_news_travels_between_three_judicators(three: list[JudicatorUnderTest]) -> None:
    a, b, c = three
    ex = FakeExecutor(b.port, "parked")
    ex.report()
    adding, waiting = a.call(), c.call()
    with ThreadPoolExecutor(2) as pool:
        for _ in range(3):
            answer = pool.submit(ex.report, vacant=1, wait_ms=50_000)
            task_id = adding.add(make_task())
            (assigned,) = answer.result(60).assign
            assert assigned.id == task_id
            news = pool.submit(waiting.wait, task_id, None, 50_000, 2, -1, timeout_s=60)
            ex.report(complete=[ex.completed(assigned)])
            assert news.result(60).result is not None
        # A cancel at the first for who works at the second.
        task_id = adding.add(make_task())
        (assigned,) = ex.take()
        answer = pool.submit(ex.hear_cancel, assigned, 50_000)
        assert adding.cancel(task_id)
        assert answer.result(40) == [task_id]  # not at the end of a report's wait
    ex.close()


def test_a_killed_primary_costs_clients_seconds_and_no_task(
    three: list[JudicatorUnderTest], replicas: ReplicaSet, capsys: pytest.CaptureFixture[str]
) -> None:
    drain(three)
    adder = Adder(three)
    servers.wait_until(lambda: len(adder.added) > 50, 60, "tasks")
    old = replicas.primary()
    replicas.processes[old].kill()
    before = len(adder.added)
    servers.wait_until(lambda: len(adder.added) > before + 50, 60, "tasks after the election")
    added = adder.finish()
    with capsys.disabled():
        print(f"\nprimary killed: writes again after {adder.longest_gap_s():.2f} s")
    assert adder.longest_gap_s() < 20  # 3 s, and what a busy machine adds
    replicas.start(old)
    replicas.wait_whole()
    taken = drain(three)
    odd = set(taken) ^ set(added)
    assert not odd, tell_stories(three, sorted(odd))
    assert len(taken) == len(added)
    # The change stream has gone on: a task added here wakes who is parked there.
    ex = FakeExecutor(three[1].port, "later")
    ex.report()
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(ex.report, vacant=1, wait_ms=50_000)
        task_id = three[0].call().add(make_task())
        (assigned,) = answer.result(60).assign
        assert assigned.id == task_id
    ex.report(complete=[ex.completed(assigned)])
    ex.close()


def test_a_stopped_primary_is_replaced_and_what_it_alone_had_is_nobodys_result(
    three: list[JudicatorUnderTest], replicas: ReplicaSet
) -> None:
    drain(three)
    adder = Adder(three)
    servers.wait_until(lambda: len(adder.added) > 20, 60, "tasks")
    old = replicas.primary()
    replicas.processes[old].pause()
    try:
        before = len(adder.added)
        servers.wait_until(lambda: len(adder.added) > before + 20, 60, "tasks at the new primary")
    finally:
        replicas.processes[old].resume()
    added = adder.finish()
    replicas.wait_whole()
    taken = drain(three)
    odd = set(taken) ^ set(added)
    assert not odd, tell_stories(three, sorted(odd))
    assert len(taken) == len(added)


def test_a_minority_refuses_at_once_and_recovers_by_itself(
    three: list[JudicatorUnderTest], replicas: ReplicaSet
) -> None:
    drain(three)
    judicator = three[0]
    caller = judicator.call()
    task_id = caller.add(make_task())
    done_id = caller.add(make_task())
    assert caller.cancel(done_id)
    primary = replicas.primary()
    others = [address for address in replicas.addresses if address != primary]
    for address in others:
        replicas.processes[address].send(signal.SIGKILL)
    try:
        # Before that, a call may be refused for another reason, and the next be answered.
        servers.wait_until(
            lambda: replicas.states().get(primary, 1) != 1, 60, "the primary steps down"
        )
        servers.wait_until(lambda: _refuses(caller, "stats"), 60, "a refusal")
        begun = time.monotonic()
        for call in (
            lambda: caller.add(make_task()),
            lambda: caller.get(done_id, 7),
            lambda: caller.cancel(task_id),
            lambda: caller.search(rpc.Conditions(), "", 10),
            caller.stats,
            caller.executors,
            lambda: caller.hasBlobs({"0" * 64}),
            lambda: FakeExecutor(judicator.port, "ex").report(vacant=1, wait_ms=20_000),
            lambda: caller.wait(task_id, Status.PENDING, 20_000, 0, -1),
        ):
            with pytest.raises(rpc.Unavailable):
                call()
        took_s = time.monotonic() - begun
        assert took_s < 9, took_s  # each of nine within a second
        seen = caller.cluster()
        assert any("the database" in words for words in seen.troubles), seen.troubles
    finally:
        for address in others:
            replicas.processes[address].wait()
            replicas.start(address)
    replicas.wait_whole()
    servers.wait_until(lambda: not _refuses(caller, "ping"), 60, "recovery")
    assert caller.get(task_id, 0).status == Status.PENDING
    assert caller.get(done_id, 0).status == Status.CANCELLED
    found = drain(three)
    assert found == [task_id], tell_stories(three, found)


def _refuses(caller: Caller, call: str) -> bool:
    try:
        getattr(caller, call)()
    except rpc.Unavailable:
        return True
    return False


def test_an_end_that_only_a_cut_off_primary_has_is_not_told(
    three: list[JudicatorUnderTest], replicas: ReplicaSet
) -> None:
    """The others stand still: the primary writes, nobody confirms it, and for a moment it leads."""
    drain(three)
    caller = three[0].call()
    task_id = caller.add(make_task())
    primary = replicas.primary()
    others = [address for address in replicas.addresses if address != primary]
    for address in others:
        replicas.processes[address].pause()
    try:
        with pytest.raises(rpc.Unavailable):
            caller.cancel(task_id)
        for _ in range(5):
            with contextlib.suppress(rpc.Unavailable):
                assert not caller.get(task_id, 0).done
    finally:
        for address in others:
            replicas.processes[address].resume()
    replicas.wait_whole()
    with Judicators([("127.0.0.1", three[0].port)], learn=False) as client:
        servers.wait_until(lambda: _tries(client.ping), 60, "recovery")
        # It was kept or undone; either way a second cancel leaves it cancelled.
        client.cancel(task_id, Deadline(60))
        assert client.get(task_id, deadline=Deadline(60)).status == model.Status.CANCELLED


def _tries(call: Callable[[], None]) -> bool:
    try:
        call()
    except Unavailable:
        return False
    return True
