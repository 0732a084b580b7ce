"""Two machines: a judicator with an executor, and a second executor that is lost."""

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
    wait_for("both executors are there", lambda: len(executors(node)) == 2, 30)
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
    wait_for("both executors are there", lambda: len(executors(node)) == 2, 30)
    ids = node.add(16, sleep_s=5)
    wait_for("e2 has some", lambda: in_hand(node, "e2"), 20)
    e2.power_off_hard()
    results = node.settle(ids, timeout_s=120)
    assert_accepted(results, ids)
    retried = [r for r in results.values() if r["attempt"] > 1]
    assert retried and all(r["executor"] == "j1" for r in retried)
    wait_for("the lost one is shown as silent", lambda: len(executors(node)) == 1, 60)
