"""oj-mongodb with a real mongod and a real etcd."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.errors import PyMongoError

import servers
from faults import clock
from oj.mongodb import roster
from oj.registry import Registry
from oj.settings import parse_address
from servers import wait_until

Start = Callable[..., servers.Daemon]


class Node:
    """The configuration of one node, to be started more than once."""

    def __init__(self, name: str, directory: Path, etcd: str, prefix: str) -> None:
        self.name, self.directory, self.etcd, self.prefix = name, directory, etcd, prefix
        self.data = directory / name
        self.move()

    def move(self) -> None:
        self.port = servers.free_port()
        self.address = f"127.0.0.1:{self.port}"

    @property
    def config(self) -> str:
        return (
            f"name = {self.name}\ndata = {self.data}\n"
            f"listen = {self.address}\netcd = {self.etcd}\nprefix = {self.prefix}\n"
            f"[mongod]\nprogram = {servers.find_mongod()}\noplog = 64M\n"
        )

    def collection(self) -> Any:
        client: Any = pymongo.MongoClient(
            f"mongodb://{self.address}/?replicaSet=oj&w=majority&journal=true",
            serverSelectionTimeoutMS=60_000,
        )
        return client.oj.things


@pytest.fixture
def node(directory: Path, etcd: servers.Etcd, prefix: str) -> Node:
    return Node("n1", directory, etcd.address, prefix)


@pytest.fixture
def registry(etcd: servers.Etcd, prefix: str) -> Iterator[Registry]:
    with Registry(parse_address(etcd.address), prefix) as found:
        yield found


def test_a_first_node_makes_the_set_registers_and_is_primary_when_ready(
    node: Node, registry: Registry, start_daemon: Start
) -> None:
    daemon = start_daemon("mongodb", node.config, watchdog_s=2)
    assert "primary of oj, 1 member" in daemon.status
    daemon.wait_status("^primary of oj, 1 member$")
    things = node.collection()
    things.insert_one({"_id": 1})
    settings = things.database.client.admin.command("replSetGetConfig")["config"]["settings"]
    assert settings["electionTimeoutMillis"] == 1200
    assert settings["heartbeatIntervalMillis"] == 200
    assert settings["chainingAllowed"] is False
    offer = things.database.client.admin.command("isMaster", compression=["zlib", "snappy", "zstd"])
    assert offer["ok"] and "compression" not in offer
    assert registry.get("mongodb/init") == "n1"
    assert registry.get_prefix("mongodb/member/") == {"n1": node.address}
    wait_until(lambda: daemon.pets > 2, what="food for the watchdog")
    assert daemon.stop() == 0
    # A stop is not a departure: the registration outlives it, by the grace time.
    assert registry.get_prefix("mongodb/member/") == {"n1": node.address}
    assert not servers.accepts(node.port)


def test_killed_in_every_way_it_comes_back_with_every_acknowledged_write(
    node: Node, start_daemon: Start
) -> None:
    daemon = start_daemon("mongodb", node.config)
    things = node.collection()
    things.insert_one({"_id": "before mongod is killed"})
    [mongod] = daemon.children()
    os.kill(mongod, signal.SIGKILL)
    assert daemon.wait(30) == 1
    assert "mongod was killed by SIGKILL" in daemon.log()

    daemon = start_daemon("mongodb", node.config)
    things.insert_one({"_id": "before the daemon is killed"})
    [mongod] = daemon.children()
    daemon.kill()
    wait_until(lambda: not Path(f"/proc/{mongod}").exists(), 20, "the end of mongod")

    start_daemon("mongodb", node.config)
    assert {thing["_id"] for thing in things.find()} == {
        "before mongod is killed",
        "before the daemon is killed",
    }


def test_a_crash_between_winning_the_key_and_making_the_set_heals(
    node: Node, registry: Registry, start_daemon: Start
) -> None:
    registry.put("mongodb/init", "n1")  # won in an earlier life, which ended there
    daemon = start_daemon("mongodb", node.config)
    daemon.wait_status("^primary of oj, 1 member$")


def test_it_waits_for_the_node_that_won_and_says_so(
    node: Node, registry: Registry, start_daemon: Start
) -> None:
    registry.put("mongodb/init", "other")
    daemon = start_daemon("mongodb", node.config, wait=False)
    daemon.wait_status("waiting: other has yet to make the replica set")
    assert not daemon.ready.is_set()
    assert daemon.stop() == 0


def test_it_waits_for_etcd_and_serves_on_when_etcd_goes(
    directory: Path, start_daemon: Start
) -> None:
    etcd = servers.Etcd(directory / "etcd")
    node = Node("n1", directory, etcd.address, "/oj/")
    try:
        daemon = start_daemon("mongodb", node.config, wait=False, watchdog_s=1)
        daemon.wait_status("waiting: etcd at .* cannot be reached", 60)
        assert not daemon.ready.is_set()
        etcd.start()
        daemon.wait_ready()
        etcd.kill()
        daemon.wait_status("degraded: primary of oj, 1 member, but etcd")
        node.collection().insert_one({"_id": 1})
        pets = daemon.pets
        wait_until(lambda: daemon.pets > pets + 1, what="food for the watchdog")
        etcd.start()
        daemon.wait_status("^primary of oj, 1 member$")
    finally:
        etcd.close()


def test_a_hung_mongod_is_killed_and_the_daemon_fails(node: Node, start_daemon: Start) -> None:
    daemon = start_daemon("mongodb", node.config, watchdog_s=1)
    [mongod] = daemon.children()
    os.kill(mongod, signal.SIGSTOP)
    assert daemon.wait(60) == 1
    assert not Path(f"/proc/{mongod}").exists()


def test_a_judicator_finds_a_set_of_another_name(node: Node, start_daemon: Start) -> None:
    daemon = start_daemon("mongodb", f"replica_set = contest\n{node.config}")
    daemon.wait_status("^primary of contest, 1 member$")
    judicator = (
        f"name = j1\nlisten = 127.0.0.1:{servers.free_port()}\netcd = {node.etcd}\n"
        f"etcd_prefix = {node.prefix}\nmongodb = {node.address}\n"
        f"state_directory = {node.directory}/j1\nreplica_set = contest\n"
    )
    start_daemon("judicator", judicator).wait_status("leading")


def test_a_set_of_one_node_follows_a_changed_address_and_name(
    node: Node, registry: Registry, start_daemon: Start
) -> None:
    for name in ("n1", "n1", "n2"):
        node.name = name
        daemon = start_daemon("mongodb", node.config)
        node.collection().insert_one({"name": name})
        wait_until(lambda: json.loads(registry.get(roster.SET) or "{}").get("members"), 60, "it")
        assert daemon.stop() == 0
        node.move()
    assert registry.get(roster.INIT) == "n2"
    assert roster.read_registered(registry).keys() == {"n2"}
    record = roster.read_record(registry)
    assert record is not None and record.is_only("n2")
    start_daemon("mongodb", node.config)
    assert node.collection().count_documents({}) == 3


def test_a_copy_of_a_node_under_another_name_does_not_move_the_set(
    node: Node, registry: Registry, start_daemon: Start
) -> None:
    original = start_daemon("mongodb", node.config)
    node.collection().insert_one({"_id": 1})
    assert original.stop() == 0
    copy = Node("n2", node.directory, node.etcd, node.prefix)
    shutil.copytree(node.data, copy.data)
    start_daemon("mongodb", node.config)
    started = start_daemon("mongodb", copy.config, wait=False)
    started.wait_status("the replica set has yet to take this node in")
    assert registry.get(roster.INIT) == "n1"
    assert node.collection().count_documents({}) == 1


def test_registered_nodes_are_taken_in_and_the_set_survives_its_primary(
    directory: Path, etcd: servers.Etcd, prefix: str, start_daemon: Start
) -> None:
    nodes = [Node(f"n{number}", directory, etcd.address, prefix) for number in (1, 2, 3)]
    daemons = [
        start_daemon("mongodb", nodes[0].config, watchdog_s=2),
        *(start_daemon("mongodb", node.config, wait=False) for node in nodes[1:]),
    ]
    things = nodes[0].collection()
    things.insert_one({"_id": 1})
    for daemon in daemons[1:]:
        daemon.wait_ready(60)

    def settled() -> bool:
        """Whether all three vote, by a configuration that a majority has on disk.

        Before that, the death of one could leave two who know of only two votes, theirs and its.
        """
        try:
            answer = things.database.client.admin.command("replSetGetConfig", commitmentStatus=True)
        except PyMongoError:  # an election
            return False
        votes = sum(member["votes"] for member in answer["config"]["members"])
        return votes == 3 and bool(answer["commitmentStatus"])

    wait_until(settled, 60, "three votes")
    daemons[0].kill()
    wait_until(
        lambda: any(daemon.status.startswith("primary of oj") for daemon in daemons[1:]),
        60,
        "another primary",
    )
    again = nodes[1].collection()
    again.insert_one({"_id": 2})
    assert {thing["_id"] for thing in again.find()} == {1, 2}


def test_three_mistakes_are_all_told_and_end_with_78() -> None:
    config = "nmae = n1\nlisten = here\n[mongod]\ncache = lots\n"
    for arguments in (["--check"], []):
        done = servers.run_daemon("mongodb", config, *arguments)
        assert done.returncode == 78
        for place in ("mongodb.conf:1: nmae", "mongodb.conf:2: listen", "mongodb.conf:4: mongod"):
            assert place in done.stderr


def test_a_clock_that_is_set_back_does_not_leave_mongod_without_timers(
    node: Node, directory: Path, start_daemon: Start
) -> None:
    offset = directory / "offset"
    offset.write_bytes(clock.pack(0))
    env = {"LD_PRELOAD": str(clock.build(directory)), "CLOCK_OFFSET": str(offset)}
    daemon = start_daemon("mongodb", node.config, watchdog_s=2, env=env)
    node.collection().insert_one({"_id": 1})

    def set_clock(ahead_s: int) -> None:
        with offset.open("r+b") as file:  # in place: the daemons have it mapped
            file.write(clock.pack(ahead_s))

    set_clock(600)
    fed = daemon.pets
    wait_until(lambda: daemon.pets > fed + 2, what="food for the watchdog")
    assert daemon.alive
    set_clock(0)
    wait_until(lambda: not daemon.alive, what="its end")
    assert "the clock was set back by 600 s" in daemon.log()
    daemon = start_daemon("mongodb", node.config, watchdog_s=2, env=env)
    daemon.wait_status("^primary of oj, 1 member$")
    assert node.collection().find_one({"_id": 1})
