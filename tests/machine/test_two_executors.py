"""A judicator's machine with an executor, and others with executors that are lost, or that go by
each other's names."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from bed import Bed, Machine
from bed.machine import Disk
from node import Node, assert_accepted, wait_for


def edit(machine: Machine, conf: str, key: str, value: str) -> None:
    """Sets a key of a conf file that has it, commented out or not."""
    machine.run(rf"sed -i 's|^#\? *{key} *=.*|{key} = {value}|' /etc/oj/{conf}.conf")
    assert f"\n{key} = {value}\n" in machine.get(f"/etc/oj/{conf}.conf").decode()


@pytest.fixture(scope="module")
def pair(cluster_bed: Bed, installed: Disk) -> Iterator[tuple[Node, Machine]]:
    """j1 with everything, and e2 with only an executor that reports to j1."""
    j1, e2 = cluster_bed.boot("j1", "e2", disk=installed)
    node = Node(j1)
    edit(j1, "judicator", "listen", "0.0.0.0:7500")
    # The units are enabled, so that each machine came up as a cluster of its own.
    j1.run("systemctl restart oj-judicator", timeout_s=120)
    node.start()
    e2.run("systemctl stop 'oj-*'; systemctl mask --now oj-judicator oj-mongodb oj-etcd")
    edit(e2, "executor", "judicators", f"{j1.address}:7500")
    e2.run("systemctl start oj-executor", timeout_s=120)
    wait_for("both executors are there", lambda: len(executors(node)) == 2, 120)
    yield node, e2
    cluster_bed.shut_down()


def executors(node: Node) -> list[dict[str, object]]:
    return [e for e in json.loads(node.oj("executors", "--json").stdout) if not e["silent"]]


def in_hand(node: Node, executor: str) -> dict[str, int]:
    """The unfinished tasks of an executor, with their attempts."""
    words = ("search", "--user", "load", "--limit", "50", "--json")
    tasks = json.loads(node.oj(*words).stdout)["tasks"]
    return {t["id"]: t["attempt"] for t in tasks if not t["done"] and t["executor"] == executor}


def test_a_late_result_of_an_old_attempt_changes_nothing(pair: tuple[Node, Machine]) -> None:
    node, e2 = pair
    ids = node.add(4, sleep_s=6)
    wait_for("e2 has some", lambda: in_hand(node, "e2"), 20)
    # The executor freezes with the tasks in hand, until others have them, and thaws before its
    # watchdog gives up on it: it still believes that they are its own.
    e2.run("systemctl kill -s STOP oj-executor")
    frozen = in_hand(node, "e2")
    assert frozen and set(frozen.values()) == {1}
    wait_for("the leases ran out", lambda: not in_hand(node, "e2"), 30)
    e2.run("systemctl kill -s CONT oj-executor")
    results = node.settle(ids, timeout_s=90)
    assert_accepted(results, ids)
    assert all(results[i]["attempt"] == 2 for i in frozen)
    more = node.add(12, sleep_s=0.3)
    assert_accepted(node.settle(more), more)
    assert node.settle(ids) == results, "a final result changed"
    recorded = node.recorded()
    assert all(recorded[i] == 1 for i in ids)


def test_tasks_of_a_lost_executor_finish_on_the_other(pair: tuple[Node, Machine]) -> None:
    node, e2 = pair
    wait_for("both executors are there", lambda: len(executors(node)) == 2, 120)
    ids = node.add(16, sleep_s=5)
    wait_for("e2 has some", lambda: in_hand(node, "e2"), 20)
    e2.power_off_hard()
    results = node.settle(ids, timeout_s=120)
    assert_accepted(results, ids)
    retried = [r for r in results.values() if r["attempt"] > 1]
    assert retried and all(r["executor"] == "j1" for r in retried)
    wait_for("the lost one is shown as silent", lambda: len(executors(node)) == 1, 60)


def name_of(machine: Machine, name: str) -> None:
    edit(machine, "executor", "name", name)
    machine.run("systemctl restart oj-executor", timeout_s=120)


def serving(node: Node) -> dict[str, object]:
    """The executors by the address that each name is at; nothing while any is contested."""
    found = json.loads(node.oj("executors", "--json").stdout)
    well = all(e["state"] == "ok" and not e["rivals"] and e["languages"] for e in found)
    return {str(e["address"]): e["name"] for e in found} if well else {}


def wait_until_named(node: Node, name: str, first: Machine, second: Machine) -> None:
    """Wherever an administrator may look."""
    said = f"executor {name} runs twice: {first.address} and {second.address}"

    def status() -> str:
        return second.run(["systemctl", "show", "-P", "StatusText", "oj-executor"]).stdout

    servers_know = [
        lambda: said in " ".join(json.loads(node.oj("status", "--json").stdout)["degraded"]),
        lambda: said in node.oj("executors").stdout,
        lambda: said in node.oj("doctor", check=False).stdout,
        lambda: f"executor {name} runs twice: the one at {first.address} has the name" in status(),
    ]
    for number, knows in enumerate(servers_know):
        wait_for(f"{said} ({number})", knows, 120)
    assert "oj setup executor --name" in status()


def test_two_executors_of_one_name_under_load(
    pair: tuple[Node, Machine], cluster_bed: Bed, installed: Disk
) -> None:
    node, e2 = pair
    [e3] = cluster_bed.boot("e3", disk=installed)
    e3.run("systemctl stop 'oj-*'; systemctl mask --now oj-judicator oj-mongodb oj-etcd")
    edit(e3, "executor", "judicators", f"{node.machine.address}:7500")
    if not e2.running:
        e2.boot()
    both = {e2.address, e3.address}
    steady = node.machine.start(["/root/load.py", "steady", "/root/names"])

    # A wrong name: the newcomer is refused, told and named, and the first goes on.
    name_of(e3, "e2")
    wait_until_named(node, "e2", e2, e3)
    # Renamed: both work, with no hand on the first.
    name_of(e3, "e3")
    wait_for("each has a name", lambda: both <= serving(node).keys(), 120)
    assert serving(node)[e2.address] == "e2"
    # Swapped, one after the other.
    name_of(e2, "e3")
    name_of(e3, "e2")
    wait_for("they are swapped", lambda: serving(node).get(e2.address) == "e3", 60)
    wait_for("both serve", lambda: serving(node).get(e3.address) == "e2", 60)
    # Copied, with everything that tells one machine from another but its address.
    e3.run("systemctl stop oj-executor")
    for path in ("/etc/machine-id", "/var/lib/oj/executor/installation"):
        e3.put(e2.get(path), path, owner=e3.run(["stat", "-c", "%U:%G", path]).stdout.strip())
    name_of(e3, "e3")
    wait_until_named(node, "e3", e2, e3)
    # The first loses its power: the copy takes its place, and keeps it when the first is back.
    e2.power_off_hard()
    wait_for("the copy is in", lambda: serving(node).get(e3.address) == "e3", 60)
    e2.boot()
    wait_until_named(node, "e3", e3, e2)
    name_of(e2, "e2")
    wait_for("each has a name", lambda: both <= serving(node).keys(), 60)

    node.machine.run("touch /root/names.stop")
    _, complaints = steady.communicate(timeout=120)
    assert (steady.returncode, complaints.decode()) == (0, "")
    ids = node.machine.run("cat /root/names").stdout.split()
    assert len(ids) > 50
    assert_accepted(node.settle(ids), ids)
    more = node.add(18, sleep_s=1.5)
    results = node.settle(more)
    assert_accepted(results, more)
    assert {r["executor"] for r in results.values()} == {"j1", "e2", "e3"}
    recorded = node.recorded()
    assert {recorded[i] for i in [*ids, *more]} == {1}
