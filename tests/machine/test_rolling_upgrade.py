"""Nodes of different versions serve together, and are upgraded one after the other under load."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from bed import Bed, Machine, Repository
from bed.machine import Disk
from node import Node, assert_accepted, wait_for
from test_two_executors import edit, executors

UPGRADE = "apt-get -q -y dist-upgrade"


@pytest.fixture(scope="module")
def trio(cluster_bed: Bed, installed: Disk) -> Iterator[tuple[Node, Machine, Machine]]:
    """r1 with everything, and r2 and r3 with only an executor that reports to r1."""
    r1, *others = cluster_bed.boot("r1", "r2", "r3", disk=installed)
    node = Node(r1)
    edit(r1, "judicator", "listen", "0.0.0.0:7500")
    r1.run("systemctl restart oj-judicator", timeout_s=120)
    node.start()
    for machine in others:
        machine.run("systemctl stop 'oj-*'; systemctl mask --now oj-judicator oj-mongodb oj-etcd")
        edit(machine, "executor", "judicators", f"{r1.address}:7500")
        machine.run("systemctl start oj-executor", timeout_s=120)
    wait_for("all executors are there", lambda: len(executors(node)) == 3, 60)
    yield node, others[0], others[1]
    for machine in (r1, *others):
        machine.power_off_hard()


def versions(node: Node) -> dict[str, str]:
    """What the executors that are in service tell of themselves."""
    return {str(e["name"]): str(e["version"]) for e in executors(node) if e["state"] == "ok"}


def judge_some(node: Node, expected: dict[str, str]) -> None:
    """In this mixture of versions, every executor judges."""
    wait_for("the executors are there", lambda: versions(node) == expected, 90)
    judged: set[object] = set()
    for _ in range(3):  # one that stands still for as long as a batch takes gets none of it
        ids = node.add(24, sleep_s=0.5)
        results = node.settle(ids, timeout_s=180)
        assert_accepted(results, ids)
        judged |= {result["executor"] for result in results.values()}
        if judged == set(expected):
            break
    assert judged == set(expected)


def test_nodes_are_upgraded_one_after_the_other_and_no_task_is_lost(
    trio: tuple[Node, Machine, Machine], newer: Repository
) -> None:
    node, r2, r3 = trio
    old = node.version_of("oj-judicator")
    new = f"{old}+newer"
    for machine in (node.machine, r2, r3):
        machine.add_repository(newer)
    steady = node.machine.start(["/root/load.py", "steady", "/root/steady"])

    # A new executor with an old judicator.
    r2.run(UPGRADE, timeout_s=300)
    judge_some(node, {"r1": old, "r2": new, "r3": old})

    # A new judicator with an old executor.
    node.machine.run(UPGRADE, timeout_s=300)
    judge_some(node, {"r1": new, "r2": new, "r3": old})
    status = json.loads(node.oj("status", "--wait", "90s", "--json", timeout_s=120).stdout)
    assert (status["version"], status["degraded"]) == (new, [])
    shown = node.oj("status").stdout
    assert "VERSION" in shown and old in {line.split()[-1] for line in shown.splitlines() if line}

    # The last one first finishes what it runs.
    node.oj("drain", "r3")
    wait_for(
        "r3 has nothing in hand",
        lambda: [e for e in executors(node) if e["name"] == "r3" and not e["executing"]],
        60,
    )
    r3.run(UPGRADE, timeout_s=300)
    node.oj("drain", "r3", "--off")
    judge_some(node, {"r1": new, "r2": new, "r3": new})

    node.machine.run("touch /root/steady.stop")
    _, complaints = steady.communicate(timeout=120)
    assert (steady.returncode, complaints.decode()) == (0, "")
    ids = node.machine.get("/root/steady").decode().split()
    assert len(ids) > 50
    assert_accepted(node.settle(ids), ids)
    recorded = node.recorded()
    assert [task for task in ids if recorded[task] != 1] == []
