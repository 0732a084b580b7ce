"""The numbers that daemons tell, from real ones with real work."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import loopback
import servers
from oj.client import Judicators
from oj.clock import Deadline
from oj.errors import Missing
from oj.model import Limits, Status, Step, Task

Start = Callable[..., servers.Daemon]


def ask(port: int) -> dict[str, float]:
    """Every sample, by its name with labels."""
    text = servers.ask_http(port, "/metrics").decode().partition("\r\n\r\n")[2]
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}


def wait_for(port: int, name: str, value: float) -> dict[str, float]:
    found: dict[str, float] = {}

    def has() -> bool:
        found.update(ask(port))
        return found.get(name) == value

    try:
        servers.wait_until(has, 60, f"{name} {value}")
    except AssertionError as error:
        raise AssertionError(f"{error}; it is {found.get(name)}: {sorted(found)}") from None
    return found


@pytest.fixture(scope="module")
def cluster(etcd: servers.Etcd, mongod: servers.Mongod) -> Iterator[loopback.Cluster]:
    loopback.prepare()
    with loopback.Cluster(etcd, mongod) as one:
        one.with_metrics = True
        yield one.start()


def test_a_judicator_and_an_executor_tell_of_the_tasks_they_had(cluster: loopback.Cluster) -> None:
    run = Task(execute=Step(("/bin/true",)), user="ann")
    fail = Task(execute=Step(("/bin/false",)), user="ann")
    slow = Task(execute=Step(("/bin/sleep", "60"), Limits(wall_ms=90_000)), user="ann")
    with Judicators(cluster.addresses) as judicators:
        ids = judicators.add_many([run, run, fail], Deadline(60))
        for task in ids:
            judicators.wait_done(task, deadline=Deadline(60))
        held = judicators.add(slow, Deadline(60))
        with pytest.raises(Missing):
            judicators.get("0" * 24)
        # A result is told before it is counted.
        wait_for(cluster.metrics["executor-1"], "oj_executor_judging_seconds_count", 3)
        servers.wait_until(lambda: judicators.get(held).status == Status.RUNNING, 60, "its start")
        executor = wait_for(cluster.metrics["executor-1"], "oj_executor_slots_busy", 1)
        judicators.cancel(held)
        wait_for(cluster.metrics["executor-1"], "oj_executor_stopped_total", 1)

    assert executor['oj_executor_judged_total{verdict="accepted"}'] == 2
    assert executor['oj_executor_judged_total{verdict="runtime_error"}'] == 1
    assert executor["oj_executor_judging_seconds_count"] == 3
    assert executor["oj_executor_slots"] == cluster.slots
    assert executor["oj_executor_sandbox_failures_total"] == 0
    assert executor["oj_executor_sick"] == 0
    assert executor['oj_executor_language{language="c"}'] == 1

    port = cluster.metrics["judicator-1"]
    told = wait_for(port, "oj_judicator_leader", 1)
    told = wait_for(port, "oj_judicator_change_stream", 1)
    told = wait_for(port, "oj_judicator_database_up", 1)
    told = wait_for(port, "oj_judicator_etcd_up", 1)
    assert told["oj_judicator_added_total"] == 4
    assert told["oj_judicator_claimed_total"] == 4
    assert told['oj_judicator_ended_total{verdict="accepted"}'] == 2
    assert told['oj_judicator_ended_total{verdict="cancelled"}'] == 1
    assert told['oj_judicator_refused_total{why="request"}'] == 1
    assert told['oj_judicator_call_seconds_count{call="addMany"}'] == 1
    assert told['oj_judicator_call_seconds_count{call="report"}'] >= 1
    assert told["oj_judicator_claim_seconds_count"] >= 1
    wait_for(port, "oj_judicator_executors", 1)
    wait_for(port, "oj_judicator_parked_executors", 1)
    # Tasks, users and executors are no labels: however many there are, the page stays as it is.
    assert not any("ann" in name or re.search("[0-9a-f]{24}", name) for name in told)
    assert len(told) < 600


def test_oj_etcd_tells_of_its_member(start_daemon: Start, directory: Path) -> None:
    port = servers.free_port()
    start_daemon(
        "etcd",
        f"metrics = 127.0.0.1:{port}\nname = n1\ndata = {directory / 'etcd'}\n"
        f"client = 127.0.0.1:{servers.free_port()}\npeer = 127.0.0.1:{servers.free_port()}\n",
    )
    told = wait_for(port, "oj_etcd_members", 1)
    assert told["oj_etcd_up"] == told["oj_etcd_leader"] == told["oj_etcd_members"] == 1
    assert told["oj_etcd_learner"] == 0
    assert 0 < told["oj_etcd_size_bytes"] < told["oj_etcd_quota_bytes"]
    assert told["oj_etcd_disk_free_bytes"] > 0


def test_oj_mongodb_tells_of_its_member(
    start_daemon: Start, directory: Path, etcd: servers.Etcd, prefix: str
) -> None:
    port = servers.free_port()
    daemon = start_daemon(
        "mongodb",
        f"metrics = 127.0.0.1:{port}\nname = n1\ndata = {directory / 'mongodb'}\n"
        f"listen = 127.0.0.1:{servers.free_port()}\netcd = {etcd.address}\nprefix = {prefix}\n"
        f"[mongod]\nprogram = {servers.find_mongod()}\noplog = 64M\n",
    )
    told = wait_for(port, "oj_mongodb_primary", 1)
    assert told["oj_mongodb_up"] == told["oj_mongodb_primary"] == 1
    assert told["oj_mongodb_members"] == told["oj_mongodb_members_up"] == 1
    assert told["oj_mongodb_lag_seconds"] == 0
    assert told["oj_mongodb_disk_free_bytes"] > 0
    assert daemon.stop() == 0
    assert not servers.accepts(port)


def test_two_daemons_with_the_same_port_both_serve(
    cluster: loopback.Cluster, start_daemon: Start
) -> None:
    taken = cluster.metrics["judicator-1"]
    config = cluster.judicator_config("judicator-9", servers.free_port())
    config = re.sub(r"(?m)^metrics = .*$", f"metrics = 127.0.0.1:{taken}", config)
    daemon = start_daemon("judicator", config)
    assert f"no metrics: 127.0.0.1:{taken}" in daemon.log()
    daemon.stop()
