"""A backup of one machine, taken under load, on another one that has never judged anything."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from bed import Bed
from bed.machine import Disk
from node import Node, assert_accepted

LARGE = "7 8\n" * 50_000


@pytest.fixture(scope="module")
def old_and_new(cluster_bed: Bed, installed: Disk) -> Iterator[tuple[Node, Node]]:
    machines = cluster_bed.boot("b1", "b2", disk=installed)
    old, new = (Node(machine) for machine in machines)
    for node in (old, new):
        node.start()
    yield old, new
    for machine in machines:
        machine.power_off_hard()


def test_a_backup_is_restored_on_another_machine_and_judged_to_the_end(
    old_and_new: tuple[Node, Node],
) -> None:
    old, new = old_and_new
    assert new.oj("search").stdout == "no such tasks\n"
    old.machine.put(LARGE, "/root/large.in")
    words = ("submit", "--command", "/usr/bin/wc -l", "--input", "/root/large.in", "--wait")
    large = json.loads(old.oj(*words, "--json").stdout)
    ended = old.add(40)
    assert_accepted(old.settle(ended), ended)
    before = {task: old.get(task) for task in [large["id"], *ended]}
    unfinished = old.add(30, sleep_s=1)

    steady = old.machine.start(["/root/load.py", "steady", "/root/steady"])
    said = json.loads(old.oj("backup", "/root/backup", "--json").stdout)
    old.machine.run("touch /root/steady.stop")
    steady.communicate(timeout=120)
    assert said["unfinished"] > 0 and said["sections"]["blobs"]["count"] == 1

    new.machine.put(old.machine.get("/root/backup"), "/root/backup")
    assert new.oj("backup", "--verify", "/root/backup").stdout.startswith("whole: ")
    restored = json.loads(new.oj("restore", "/root/backup", "--json", timeout_s=120).stdout)
    assert restored["tasks"] == said["sections"]["tasks"]["count"]
    assert {task: new.get(task) for task in before} == before
    results = new.settle(unfinished, timeout_s=180)
    assert_accepted(results, unfinished)
    # The blob is there: this sends nothing but its digest.
    new.machine.put(LARGE, "/root/large.in")
    assert json.loads(new.oj(*words, "--json").stdout)["verdict"] == "accepted"
    refused = new.oj("restore", "/root/backup", check=False)
    assert refused.rc == 2 and "not empty" in refused.stderr
