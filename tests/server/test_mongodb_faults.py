"""Three nodes of oj-mongodb that lose data, leave, are cut off and come back; real mongods."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.errors import AutoReconnect, PyMongoError

import servers
from oj.judicator.store.lines import Hangup
from oj.mongodb import data, roster
from oj.mongodb.replicaset import Node as Mongod
from oj.mongodb.replicaset import read_members
from oj.registry import Registry
from oj.settings import parse_address
from servers import wait_until

LONG_S = 120  # for what takes a few seconds on an idle machine
DISK = "1200m"  # for data twice, as one is set aside; mongod needs about 300M when it is new
LOOK_MS = 2000  # for one look of many


class Node:
    """One node, to be started more than once."""

    def __init__(self, name: str, directory: Path, etcd: str) -> None:
        self.name, self.etcd = name, etcd
        self.data = directory / name
        self.address = f"127.0.0.1:{servers.free_port()}"
        self.daemon: servers.Daemon | None = None
        self.program = servers.find_mongod()

    def start(self) -> servers.Daemon:
        if self.daemon is not None:
            self.daemon.close()
        self.daemon = servers.start_daemon(
            "mongodb",
            f"name = {self.name}\ndata = {self.data}\nlisten = {self.address}\n"
            f"etcd = {self.etcd}\nprefix = /oj/\n"
            f"[mongod]\nprogram = {self.program}\noplog = 64M\n",
            wait=False,
            watchdog_s=2,
        )
        return self.daemon

    @property
    def running(self) -> servers.Daemon:
        assert self.daemon is not None
        return self.daemon

    @property
    def alive(self) -> bool:
        return self.daemon is not None and self.daemon.alive

    def kill(self) -> None:
        """The daemon and its mongod, as a power cut would."""
        mongods = self.running.children()
        self.running.kill()
        wait_until(
            lambda: not any(Path(f"/proc/{pid}").exists() for pid in mongods), LONG_S, "the end"
        )

    @contextlib.contextmanager
    def admin(self, patience_ms: int = 30_000) -> Iterator[Any]:
        client: Any = pymongo.MongoClient(
            *parse_address(self.address),
            directConnection=True,
            serverSelectionTimeoutMS=patience_ms,
        )
        try:
            yield client.admin
        finally:
            client.close()

    def is_primary(self) -> bool:
        """By its own word, now."""
        with self.admin(LOOK_MS) as admin:
            try:
                return bool(admin.command("hello")["isWritablePrimary"])
            except PyMongoError:
                return False

    def step_down(self, **options: Any) -> bool:
        """For a minute; False when it was not primary any more."""
        with self.admin() as admin:
            try:
                admin.command("replSetStepDown", 60, **options)
            except AutoReconnect:  # as the driver calls it, too, when it is not primary
                return False
        return True


class Trio:
    """Three nodes with an etcd of their own."""

    def __init__(self, directory: Path) -> None:
        self.etcd = servers.Etcd(directory / "etcd").start()
        self.registry = Registry(parse_address(self.etcd.address), "/oj/")
        self.nodes = [Node(f"n{number}", directory, self.etcd.address) for number in (1, 2, 3)]

    def close(self) -> None:
        for node in self.nodes:
            if node.daemon is not None:
                node.daemon.close()
        self.registry.close()
        self.etcd.close()

    def things(self, *nodes: Node) -> Any:
        hosts = ",".join(node.address for node in nodes or self.nodes)
        client: Any = pymongo.MongoClient(
            f"mongodb://{hosts}/?replicaSet=oj&w=majority&journal=true",
            serverSelectionTimeoutMS=60000,
        )
        return client.oj.things

    def primary(self) -> Node | None:
        for node in self.nodes:
            if node.alive and "primary of oj" in node.running.status:
                return node
        return None

    def find_primary(self) -> Node:
        def acting() -> Node | None:
            # A status may be half a second old, and a stall of a second elects another.
            found = self.primary()
            return found if found and found.is_primary() else None

        return wait_until(acting, LONG_S, "a primary")

    def others(self, node: Node) -> list[Node]:
        return [other for other in self.nodes if other is not node]

    def revive(self) -> None:
        """What systemd does."""
        for node in self.nodes:
            if not node.alive and not data.has_left(node.data):
                node.start()

    def is_whole(self) -> bool:
        """Whether all three serve and vote, by a configuration that a majority has on disk."""
        self.revive()
        primary = self.primary()
        if primary is None or not all(node.running.ready.is_set() for node in self.nodes):
            return False
        with primary.admin(LOOK_MS) as admin:
            try:
                status = admin.command("replSetGetStatus")
                answer = admin.command("replSetGetConfig", commitmentStatus=True)
            except PyMongoError:
                return False
        # One that was primary before may still be undoing what only it had written.
        if sorted(member["state"] for member in status["members"]) != [1, 2, 2]:
            return False
        voters = {member["host"] for member in answer["config"]["members"] if member["votes"]}
        return voters == {n.address for n in self.nodes} and bool(answer["commitmentStatus"])

    def make_whole(self) -> None:
        try:
            wait_until(self.is_whole, LONG_S, "the whole set")
        except AssertionError as error:
            told = {n.name: n.daemon.statuses[-5:] if n.daemon else None for n in self.nodes}
            raise AssertionError(f"{error}: {told}") from None

    def set_id(self) -> str:
        record = roster.read_record(self.registry)
        return record.id if record else ""


@pytest.fixture(scope="module")
def kept() -> Iterator[Trio]:
    directory = servers.make_directory()
    trio = Trio(directory)
    small = trio.nodes[2].data
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "small", small], check=True)
    try:
        yield trio
    finally:
        trio.close()
        subprocess.run(["umount", "--lazy", small], check=True)
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def trio(kept: Trio) -> Trio:
    kept.make_whole()
    return kept


def wipe(node: Node) -> None:
    for entry in node.data.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def test_a_stopped_primary_hands_over(trio: Trio) -> None:
    things = trio.things()
    things.insert_one({"_id": "before the stop"})
    for _ in range(3):
        primary = trio.find_primary()
        assert primary.running.stop(60) == 0
        said = primary.running.log()
        if "handed over" in said or "could not hand over" in said:
            break
        trio.make_whole()  # a stall has elected another just before the stop
    assert "handed over to another member" in said
    things.insert_one({"_id": "after the stop"})
    assert things.count_documents({"_id": {"$in": ["before the stop", "after the stop"]}}) == 2


def test_a_call_to_a_primary_that_fell_silent_ends_when_there_is_another(trio: Trio) -> None:
    hosts = ",".join(node.address for node in trio.nodes)
    client: Any = pymongo.MongoClient(
        f"mongodb://{hosts}/?replicaSet=oj",
        serverSelectionTimeoutMS=60_000,
        socketTimeoutMS=600_000,
        heartbeatFrequencyMS=1000,
        retryReads=False,
        event_listeners=[Hangup()],
    )
    client.admin.command("ping")
    # The one that this client asks, whoever it was a moment ago.
    asked = wait_until(lambda: client.primary, LONG_S, "a primary")
    primary = next(node for node in trio.nodes if parse_address(node.address) == asked)
    ended: list[Exception] = []

    def call() -> None:
        try:
            client.admin.command("ping")
        except AutoReconnect as error:
            ended.append(error)

    stopped = [primary.running.pid, *primary.running.children()]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    try:
        waiting = threading.Thread(target=call, daemon=True)
        waiting.start()
        waiting.join(60)
        assert ended
        client.admin.command("ping")
        found = wait_until(lambda: client.primary, LONG_S, "a primary")
        assert found != parse_address(primary.address)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        client.close()


def test_a_new_primary_that_failed_a_call_is_still_copied_from(trio: Trio, directory: Path) -> None:
    # Two looks of a mongod at its new source fail. It refuses that one for 10 s then, and with it
    # the majority is gone: all copy from the primary.
    wrapper = directory / "mongod"
    wrapper.write_text(
        f'#!/bin/sh\nexec {servers.find_mongod()} "$@" --setParameter=enableTestCommands=1\n'
    )
    wrapper.chmod(0o755)
    try:
        for node in trio.nodes:
            node.running.stop(60)
            node.program = str(wrapper)
            trio.make_whole()

        def step_down() -> bool:
            """Whether the primary was still the one whose successors were prepared."""
            primary = trio.find_primary()
            for node in trio.others(primary):
                with node.admin() as admin:
                    admin.command(
                        "configureFailPoint",
                        "failCommand",
                        mode={"times": 2},
                        data={
                            "failCommands": ["find"],
                            "errorCode": 6,
                            "failInternalCommands": True,
                            "namespace": "local.oplog.rs",
                        },
                    )
            return primary.step_down()

        def count() -> list[int]:
            return [node.running.log().count("asks for the primary") for node in trio.nodes]

        before = count()

        def since() -> list[int]:
            return [now - then for now, then in zip(count(), before, strict=True)]

        wait_until(step_down, LONG_S, "a primary that steps down")
        trio.things().insert_one({"_id": "with a source"})
        wait_until(lambda: any(since()), 60, "a question for the primary")
        asked = since()
        assert max(asked) < 5, f"asked in vain: {asked}"  # within 10 s it would be seven times
    finally:
        for node in trio.nodes:
            node.program = servers.find_mongod()
            node.running.stop(60)


def test_members_are_told_with_name_state_votes_and_lag(trio: Trio) -> None:
    trio.things().insert_one({})
    registered = roster.read_registered(trio.registry)

    def told() -> list[Any]:
        members = read_members(registered, "oj", timeout_s=5)
        states = sorted(member.state for member in members)
        settled = states == ["primary", "secondary", "secondary"] and all(
            member.lag_s is not None and member.lag_s < 10 for member in members
        )
        return list(members) if settled else []

    members = wait_until(told, LONG_S, "a primary and two secondaries without lag")
    assert {member.name for member in members} == {"n1", "n2", "n3"}
    assert all(member.votes and member.healthy and member.up for member in members)


def test_a_voter_that_lost_its_data_comes_back_as_a_new_member(trio: Trio) -> None:
    """The primary: it holds the newest, and what it confirmed must not be voted away."""
    things, lost, made = trio.things(), trio.find_primary(), trio.set_id()
    things.insert_one({"_id": "before the loss"})
    lost.kill()
    wipe(lost)
    trio.make_whole()
    assert trio.set_id() == made
    assert any("the data of this node is gone" in text for text in lost.running.statuses)
    assert things.find_one({"_id": "before the loss"})


def test_the_maker_of_the_set_makes_no_second_one_when_all_is_forgotten(trio: Trio) -> None:
    made = trio.set_id()
    for node in trio.nodes:
        node.kill()
        roster.deregister(trio.registry, node.name)  # as if all had been away for very long
    maker = next(n for n in trio.nodes if n.name == trio.registry.get(roster.INIT))
    wipe(maker)
    maker.start().wait_status("the data of this node is gone, and the replica set has no primary")
    trio.make_whole()
    assert trio.set_id() == made


def test_a_living_node_that_is_taken_off_the_list_comes_back_by_itself(trio: Trio) -> None:
    node = trio.others(trio.find_primary())[0]
    assert roster.deregister(trio.registry, node.name)
    wait_until(lambda: node.name in roster.read_registered(trio.registry), LONG_S, "its key")


def test_a_second_node_of_the_same_name_is_not_let_in(trio: Trio, directory: Path) -> None:
    before = roster.read_registered(trio.registry)
    twin = Node("n2", directory, trio.etcd.address)
    daemon = twin.start()
    try:
        daemon.wait_status("waiting: the name n2 is taken by the node at", LONG_S)
        assert roster.read_registered(trio.registry) == before
    finally:
        daemon.close()


def test_a_primary_that_leaves_steps_down_is_removed_and_stays_away(trio: Trio) -> None:
    leaver = trio.find_primary()
    hosts = {node.name: node.address for node in trio.others(leaver)}
    data.mark_left(leaver.data)
    roster.deregister(trio.registry, leaver.name)

    def removed() -> bool:
        members = read_members(hosts, "oj")
        return len(members) == 2 and any(member.state == "primary" for member in members)

    wait_until(removed, LONG_S, "its removal")
    assert leaver.running.stop(60) == 0
    assert leaver.start().wait(60) == 78
    leaver.running.wait_status("this node has left the cluster")
    assert leaver.name not in roster.read_registered(trio.registry)
    (leaver.data / data.LEFT).unlink()  # as `oj setup` does
    trio.make_whole()


def test_a_changed_address_is_followed(trio: Trio) -> None:
    mover = trio.others(trio.find_primary())[0]
    mover.running.stop(60)
    mover.address = f"127.0.0.1:{servers.free_port()}"
    trio.make_whole()
    record = roster.read_record(trio.registry)
    assert record is not None
    assert record.members == {node.name: node.address for node in trio.nodes}


def test_a_primary_without_room_hands_over_and_comes_back_when_there_is_some(trio: Trio) -> None:
    node = trio.nodes[2]
    if trio.find_primary() is not node:
        for other in trio.nodes[:2]:
            with other.admin() as admin, contextlib.suppress(PyMongoError):
                admin.command("replSetFreeze", 60)  # the primary refuses

        def make_way() -> bool:
            found = trio.find_primary()
            return found is node or found.step_down(secondaryCatchUpPeriodSecs=10)

        wait_until(make_way, LONG_S, "a primary that steps down")
        wait_until(lambda: trio.primary() is node, LONG_S, "n3 as primary")
        for other in trio.nodes[:2]:
            with other.admin() as admin:
                admin.command("replSetFreeze", 0)
    ballast = node.data / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(1 << 20))
    wait_until(lambda: trio.primary() in trio.nodes[:2], LONG_S, "another primary")
    trio.things().insert_one({"_id": "with one full disk", "text": "x" * (1 << 20)})
    if node.alive:
        node.kill()
    node.start().wait_status("waiting: no room: .* are free in ", LONG_S)
    assert not node.running.children()
    ballast.unlink()
    trio.make_whole()


def test_recovered_by_force_from_one_that_was_behind_the_others_give_up_their_writes(
    trio: Trio,
) -> None:
    things = trio.things()
    things.delete_many({})
    things.insert_one({"_id": "all have it"})
    survivor = trio.others(trio.find_primary())[0]

    def has_it() -> bool:
        with survivor.admin() as admin:
            found = admin.client.oj.things.with_options(
                read_preference=pymongo.ReadPreference.SECONDARY_PREFERRED
            )
            return bool(found.count_documents({"_id": "all have it"}))

    wait_until(has_it, LONG_S, "the write at the survivor")
    survivor.kill()
    lost = trio.others(survivor)
    trio.things(*lost).insert_one({"_id": "the lost have it"})
    for node in lost:
        node.running.stop(60)
    survivor.start().wait_status("waiting: the replica set has no primary", LONG_S)
    mongod = Mongod(parse_address(survivor.address), "oj")
    mongod.force_alone(survivor.address)
    mongod.close()
    survivor.running.wait_ready(LONG_S)
    trio.things(survivor).insert_one({"_id": "the survivor has it"})

    trio.make_whole()
    found = {thing["_id"] for thing in trio.things().find()}
    assert found == {"all have it", "the survivor has it"}
    # What was given up is still there, for an operator who wants to look at it.
    assert all([*node.data.glob("set-aside-*"), *node.data.glob("rollback")] for node in lost)
