"""Judicators, their neighbours and executors that go away at the wrong moment."""

from __future__ import annotations

import contextlib
import math
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from thrift.Thrift import TException

import servers
from executors import Caller, FakeExecutor, JudicatorUnderTest, make_task
from oj.rpc import ttypes as rpc
from oj.rpc.ttypes import Status, Verdict
from test_metrics import wait_for

StartJudicator = Callable[..., JudicatorUnderTest]
MakeTask = Callable[..., Any]
GET_ALL = 7
SHORT_LEASE = "[tasks]\nlease = 4s\n"


@pytest.fixture
def own_mongod() -> Iterator[servers.Mongod]:
    server = servers.Mongod()
    yield server.start()
    server.close()


@pytest.fixture
def own_etcd() -> Iterator[servers.Etcd]:
    server = servers.Etcd()
    yield server.start()
    server.close()


def make_executor(judicator: JudicatorUnderTest, name: str, language: str) -> FakeExecutor:
    ex = FakeExecutor(judicator.port, name, (language,))
    ex.report()
    return ex


def test_a_task_of_a_silent_executor_goes_to_another(
    start_judicator: StartJudicator, task: MakeTask, language: str
) -> None:
    judicator = start_judicator(settings=SHORT_LEASE)
    caller = judicator.call()
    dead, other = (make_executor(judicator, name, language) for name in ("dead", "other"))
    task_id = caller.add(task())
    begun = time.monotonic()
    (old,) = dead.take()
    (new,) = other.take(wait_ms=20_000)
    assert (new.id, new.attempt) == (task_id, 2)
    assert 3.9 < time.monotonic() - begun < 15
    # The dead one comes back: told to stop, and its result is not wanted.
    reply = dead.report(executing=[dead.executing(old)])
    assert [(r.id, r.attempt) for r in reply.cancel] == [(task_id, 1)]
    dead.report(complete=[dead.completed(old)])
    assert caller.get(task_id, 0).status == Status.COMPILING
    other.report(complete=[other.completed(new)])
    info = caller.get(task_id, GET_ALL)
    assert info.executor == "other"
    assert "nothing heard" in info.attempts[0].ended


def test_renewed_leases_hold_as_long_as_the_executor_reports(
    start_judicator: StartJudicator, task: MakeTask, language: str
) -> None:
    judicator = start_judicator(settings="[tasks]\nlease = 10s\n")
    caller = judicator.call()
    ex = make_executor(judicator, "ex", language)
    task_id = caller.add(task())
    (assigned,) = ex.take()
    end = time.monotonic() + 14
    while time.monotonic() < end:
        reply = ex.report(executing=[ex.executing(assigned)], wait_ms=600)
        assert not reply.cancel and reply.lease_ms == 10_000
    info = caller.get(task_id, 0)
    assert (info.status, info.attempt) == (Status.RUNNING, 1)


def test_work_added_at_one_judicator_wakes_an_executor_parked_at_another(
    start_judicator: StartJudicator, task: MakeTask, language: str
) -> None:
    one = start_judicator(name="j1")
    two = start_judicator(name="j2", database=one.database, prefix=one.prefix)
    ex = make_executor(two, "ex", language)
    caller = one.call()

    def wake(pool: ThreadPoolExecutor) -> float:
        delays = []
        for _ in range(5):
            answer = pool.submit(ex.report, vacant=1, wait_ms=15_000)
            time.sleep(0.2)
            begun = time.monotonic()
            task_id = caller.add(task())
            (assigned,) = answer.result(20).assign
            delays.append(time.monotonic() - begun)
            assert assigned.id == task_id
            # And who waits at the first for what happens at the second hears of it.
            waiting = pool.submit(caller.wait, task_id, Status.COMPILING, 15_000, 2, -1)
            time.sleep(0.1)
            begun = time.monotonic()
            ex.report(complete=[ex.completed(assigned)])
            assert waiting.result(20).result.verdict == Verdict.ACCEPTED
            delays.append(time.monotonic() - begun)
        return sorted(delays)[5]

    with ThreadPoolExecutor(1) as pool:
        servers.assert_within(0.3, lambda: wake(pool))


def test_cancel_at_one_judicator_reaches_an_executor_parked_at_another(
    start_judicator: StartJudicator, task: MakeTask, language: str
) -> None:
    one = start_judicator(name="j1")
    two = start_judicator(name="j2", database=one.database, prefix=one.prefix)
    ex = make_executor(two, "ex", language)
    caller = one.call()

    def cancel(pool: ThreadPoolExecutor) -> float:
        task_id = caller.add(task())
        (assigned,) = ex.take()
        answer = pool.submit(ex.hear_cancel, assigned, 50_000)
        time.sleep(0.3)
        begun = time.monotonic()
        caller.cancel(task_id)
        assert answer.result(40) == [task_id]  # not at the end of a report's wait
        return time.monotonic() - begun

    with ThreadPoolExecutor(1) as pool:
        servers.assert_within(1, lambda: cancel(pool))
    caller.drain("ex", True)
    servers.wait_until(lambda: ex.report().drained, 5)


def test_another_judicator_takes_over_the_sweeps(
    start_judicator: StartJudicator, task: MakeTask, language: str
) -> None:
    one = start_judicator(name="j1", settings=SHORT_LEASE)
    two = start_judicator(name="j2", database=one.database, prefix=one.prefix, settings=SHORT_LEASE)
    servers.wait_until(lambda: _leader(two) == "j1", 10)
    ex = make_executor(two, "ex", language)
    task_id = two.call().add(task())
    ex.take()
    one.daemon.kill()
    servers.wait_until(lambda: _leader(two) == "j2", 20, "j2 leads")
    servers.wait_until(lambda: two.call().get(task_id, 0).status == Status.RETRYING, 10)


def _leader(judicator: JudicatorUnderTest) -> str | None:
    return next((j.name for j in judicator.call().judicators() if j.leader), None)


def test_nothing_acknowledged_is_lost_when_mongod_is_killed(
    start_judicator: StartJudicator, own_mongod: servers.Mongod
) -> None:
    judicator = start_judicator(mongod_address=own_mongod.address)
    acknowledged: list[str] = []
    refused: list[Exception] = []
    stop = threading.Event()

    def add(number: int) -> None:
        caller = judicator.call()
        count = 0
        while not stop.is_set():
            count += 1
            key = f"{number}-{count}"
            while True:
                try:
                    task_id = caller.add(make_task(user="ann", key=key))
                except rpc.Unavailable as error:
                    refused.append(error)
                    time.sleep(0.05)
                    continue
                acknowledged.append(task_id)
                break

    with ThreadPoolExecutor(4) as pool:
        adders = [pool.submit(add, number) for number in range(4)]
        servers.wait_until(lambda: len(acknowledged) > 100, 20)
        own_mongod.kill()
        servers.wait_until(lambda: refused, 10, "an add that was refused")
        own_mongod.start()
        before = len(acknowledged)
        servers.wait_until(lambda: len(acknowledged) > before + 100, 20, "adds go on")
        stop.set()
        for adder in adders:
            adder.result(20)
    assert len(set(acknowledged)) == len(acknowledged)
    ex = FakeExecutor(judicator.port)
    claimed = []
    while found := ex.report(vacant=1000, number=ex.number + 1).assign:
        ex.number += 1
        ex.report(complete=[ex.completed(a) for a in found])
        claimed += [a.id for a in found]
    assert sorted(claimed) == sorted(acknowledged)
    ex.close()


def test_calls_fail_quickly_and_parked_ones_end_while_mongod_is_away(
    start_judicator: StartJudicator, own_mongod: servers.Mongod
) -> None:
    judicator = start_judicator(mongod_address=own_mongod.address, watchdog_s=4)
    caller, waiting = judicator.call(), judicator.call()
    ex = FakeExecutor(judicator.port)
    ex.report()
    task_id = caller.add(make_task(priority=-1))
    ex.take()
    with ThreadPoolExecutor(5) as pool:
        parked = pool.submit(ex.report, vacant=1, wait_ms=60_000, settled=0)
        waiter = pool.submit(waiting.wait, task_id, Status.COMPILING, 60_000, 0, -1)
        time.sleep(0.5)
        own_mongod.kill()
        begun = time.monotonic()
        asked = [
            pool.submit(judicator.call().add, make_task()),
            pool.submit(judicator.call().get, task_id, 0),
            pool.submit(judicator.call().stats),
        ]
        for future in asked:
            with pytest.raises(rpc.Unavailable):
                future.result(20)
        assert time.monotonic() - begun < 10
        servers.wait_until(lambda: not _answers(caller), 60, "the outage is known")
        for future in (parked, waiter):
            with pytest.raises(rpc.Unavailable):
                future.result(20)
        assert caller.version().oj  # needs nobody
        judicator.daemon.wait_status("degraded", 30)
        own_mongod.start()
        servers.wait_until(lambda: _answers(caller), 60)
        assert caller.get(task_id, 0).attempt >= 1
        ex.close()


def _answers(caller: Caller) -> bool:
    try:
        caller.ping()
    except rpc.Unavailable:
        return False
    return True


def test_serving_goes_on_while_etcd_is_away(
    start_judicator: StartJudicator, own_etcd: servers.Etcd
) -> None:
    judicator = start_judicator(etcd_address=own_etcd.address, watchdog_s=4)
    caller = judicator.call()
    ex = FakeExecutor(judicator.port)
    ex.report()
    own_etcd.kill()
    task_id = caller.add(make_task())
    (assigned,) = ex.take()
    ex.report(complete=[ex.completed(assigned)])
    assert caller.get(task_id, 0).done
    judicator.daemon.wait_status("degraded: etcd", 20)
    pets = judicator.daemon.pets
    servers.wait_until(lambda: judicator.daemon.pets > pets + 1, 10, "the watchdog is fed")
    with pytest.raises(rpc.Unavailable):
        caller.judicators()
    own_etcd.start()
    judicator.daemon.wait_status("executors", 20)
    servers.wait_until(lambda: [j.name for j in caller.judicators()] == ["j1"], 15)
    ex.close()


def test_a_stopping_judicator_answers_whoever_is_parked(
    start_judicator: StartJudicator, etcd: servers.Etcd
) -> None:
    servers.assert_within(5, lambda: stop_with_parked(start_judicator, etcd))


def stop_with_parked(start_judicator: StartJudicator, etcd: servers.Etcd) -> float:
    port = servers.free_port()
    judicator = start_judicator(settings=f"metrics = 127.0.0.1:{port}")
    caller = judicator.call()
    executors = [FakeExecutor(judicator.port, f"ex-{i}") for i in range(20)]
    for ex in executors:
        ex.report()
    task_id = caller.add(make_task(language="c", source=[rpc.File("a", rpc.Data(b""))]))
    executors[0].take()
    with ThreadPoolExecutor(30) as pool:
        parked = [pool.submit(ex.report, vacant=1, wait_ms=60_000, settled=0) for ex in executors]
        waiter = pool.submit(caller.wait, task_id, Status.COMPILING, 60_000, 0, -1)
        wait_for(port, "oj_judicator_parked_executors", len(executors))
        wait_for(port, "oj_judicator_waiters", 1)
        begun = time.monotonic()
        assert judicator.daemon.stop(60) == 0
        took_s = time.monotonic() - begun
        for future in parked:
            assert not future.result(5).assign
        assert waiter.result(5).status == Status.COMPILING
    left = judicator.name in etcd.ctl("get", "--prefix", judicator.prefix, "--keys-only")
    for ex in executors:
        ex.close()
    # A busy etcd may be told too late, and its lease then runs out: that counts as slow.
    return math.inf if left else took_s


def test_stopping_is_bounded_while_neither_etcd_nor_the_database_answers(
    start_judicator: StartJudicator, own_mongod: servers.Mongod, own_etcd: servers.Etcd
) -> None:
    judicator = start_judicator(own_etcd.address, own_mongod.address)
    ex = FakeExecutor(judicator.port)
    ex.report()
    assert own_etcd.process and own_mongod.process
    with ThreadPoolExecutor(1) as pool:
        parked = pool.submit(ex.report, vacant=1, wait_ms=60_000)
        own_etcd.process.pause()
        own_mongod.process.pause()
        try:
            begun = time.monotonic()
            assert judicator.daemon.stop(60) == 0
            # TimeoutStopSec= in the unit is 30 s.
            assert time.monotonic() - begun < 30
        finally:
            own_etcd.process.resume()
            own_mongod.process.resume()
        with contextlib.suppress(rpc.Unavailable, TException, OSError):
            parked.result(60)
    ex.close()


def test_a_killed_judicator_comes_back_to_the_same_tasks(
    start_judicator: StartJudicator, task: MakeTask, language: str
) -> None:
    judicator = start_judicator()
    ex = make_executor(judicator, "ex", language)
    ids = judicator.call().addMany([task() for _ in range(5)])
    assigned = ex.take(2)
    judicator.daemon.kill()
    with pytest.raises((TException, OSError)):
        ex.report()
    judicator.start_again()
    ex.caller = judicator.call()
    reply = ex.report(
        complete=[ex.completed(assigned[0])], executing=[ex.executing(assigned[1])], vacant=1
    )
    assert len(reply.acknowledged) == 1 and not reply.cancel
    assert [(a.id, a.attempt) for a in reply.assign] == [(ids[2], 1)]


def test_ready_only_once_everything_is_there(
    start_judicator: StartJudicator, own_mongod: servers.Mongod, own_etcd: servers.Etcd
) -> None:
    own_mongod.kill()
    judicator = start_judicator(
        etcd_address=own_etcd.address,
        mongod_address=own_mongod.address,
        wait=False,
        watchdog_s=4,
    )
    judicator.daemon.wait_status("waiting for the database", 20)
    own_etcd.kill()
    own_mongod.start()
    judicator.daemon.wait_status("waiting for etcd", 20)
    assert not judicator.daemon.ready.is_set()
    own_etcd.start()
    judicator.daemon.wait_ready(20)
    judicator.daemon.wait_status("leading; 0 executors, 0 pending, 0 running", 20)


def test_three_mistakes_are_all_named() -> None:
    text = "listen = nowhere\nlisten_port = 7\n[tasks]\nmax_attempts = 0\n"
    for arguments in (("--check",), ()):
        done = servers.run_daemon("judicator", text, *arguments)
        assert done.returncode == 78
        for words in ("listen: 'nowhere'", "listen_port: no such", "max_attempts"):
            assert words in done.stderr
    assert "judicator.conf:1:" in done.stderr
    done = servers.run_daemon(
        "judicator", "name = a/b\nmongodb = ,\n[tasks]\nlease = 1s\n", "--check"
    )
    assert done.returncode == 78
    for words in ("name", "mongodb", "tasks.lease"):
        assert words in done.stderr


def test_the_shipped_configuration_is_fine() -> None:
    text = (servers.TREE / "etc" / "judicator.conf").read_text()
    done = servers.run_daemon("judicator", text, "--check")
    assert (done.returncode, done.stderr) == (0, "")


def test_an_assignment_that_could_not_be_sent_goes_to_another_at_once(
    start_judicator: StartJudicator, task: MakeTask, language: str
) -> None:
    judicator = start_judicator()
    caller = judicator.call()
    gone, there = (make_executor(judicator, name, language) for name in ("gone", "there"))
    task_id = caller.add(task())
    # The call arrives, and the connection is reset before the answer can be sent.
    linger = struct.pack("ii", 1, 0)
    gone.caller.socket.handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    judicator.daemon.pause()
    gone.caller.client.send_report(
        gone.name, gone.incarnation, [], [], 1, None, 0, gone.number + 1, gone.number
    )
    gone.caller.close()
    judicator.daemon.resume()
    servers.wait_until(lambda: "hung up before it was told" in judicator.daemon.log(), 60)
    (assigned,) = there.take(wait_ms=10_000)
    assert (assigned.id, assigned.attempt) == (task_id, 2)
