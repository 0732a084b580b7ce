"""Real etcd members that join, move, and make room; what breaks is in test_etcd_cluster_faults."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from etcd_nodes import Node, Nodes
from oj.errors import Unavailable
from oj.etcd.datadir import DataDirectory
from oj.etcdwire import Connection
from oj.registry import Registry
from servers import wait_until


@pytest.fixture
def nodes(directory: Path) -> Iterator[Nodes]:
    with contextlib.closing(Nodes(directory)) as made:
        yield made


@pytest.fixture
def three(nodes: Nodes) -> list[Node]:
    return nodes.start_three()


def test_two_that_join_at_once_become_voters_one_after_the_other(three: list[Node]) -> None:
    n1, n2, n3 = three
    for node in three:
        node.wait_lists("n1", "n2", "n3")
    n1.write("key", "value")
    n3.wait_value("key", "value")
    assert any("learner of" in status for status in n2.daemon.statuses)
    # Any one may go.
    n1.kill()
    n2.wait_value("key", "value")


def test_an_address_that_has_changed_is_told_to_the_others(three: list[Node]) -> None:
    n1, _, n3 = three
    n3.daemon.stop()
    n3.peer = n3.peer.replace(n3.host, "127.0.0.40")
    n3.start()
    n1.wait_lists("n1", "n2", "n3")
    told = (f"http://{n3.peer}",)
    wait_until(lambda: n1.member("n3").peer_urls == told, 60, "its new address")


def test_the_only_member_keeps_the_address_at_which_others_look_for_it(nodes: Nodes) -> None:
    n1 = nodes.make(1)
    n1.top = "advertise = 192.0.2.1\n"
    n1.start().stop()
    # Purged and installed again: its files name loopback, and the machine may have another name.
    directory = DataDirectory(n1.data)
    known = directory.read_known()
    assert (known.own_name, known.own_address) == ("n1", f"192.0.2.1:{nodes.peer_port}")
    n1.top, n1.name = "", "vm17"
    said = f"find this node at {n1.peer}, but they know it at 192.0.2.1: was oj purged"
    for note, command, runs in ((known, "judicator --name n1", False), (None, "judicator", True)):
        if note is None:
            directory.known.unlink()  # as earlier versions have not noted it
        daemon = n1.start(wait=False)
        assert daemon.wait(60) == 78
        status = daemon.statuses[-1]
        assert said in status and status.endswith(f"Run: oj setup {command}")
        assert any("starting again" in one for one in daemon.statuses) == runs
    # With its address it goes on, with all that it had.
    n1.top, n1.name = "advertise = 192.0.2.1\n", "n1"
    n1.start()
    assert n1.member("n1").peer_urls == (f"http://192.0.2.1:{nodes.peer_port}",)


def test_a_member_of_several_is_told_whom_to_join_before_etcd_runs(nodes: Nodes) -> None:
    n1 = nodes.make(1)
    n1.top = "advertise = 192.0.2.1\n"
    n1.start().stop()
    directory = DataDirectory(n1.data)
    directory.write_known(replace(directory.read_known(), clients=("192.0.2.2:7501",)))
    n1.top = ""
    daemon = n1.start(wait=False)
    assert daemon.wait(60) == 78
    assert daemon.statuses[-1].endswith("Run: oj setup judicator --join 192.0.2.2")
    assert not any("starting again" in one for one in daemon.statuses)


def test_a_join_that_ended_after_it_was_listed_is_begun_again(nodes: Nodes) -> None:
    n1 = nodes.make(1)
    n1.start()
    n2 = nodes.make(2, join=n1)
    with contextlib.closing(Connection(n1.client)) as connection:
        connection.add_learner(f"http://{n2.peer}", timeout_s=10)
    n2.start()
    n1.wait_lists("n1", "n2")
    # Killed at whatever point it has reached.
    n3 = nodes.make(3, join=n1)
    for _ in range(2):
        daemon = n3.start(wait=False)
        wait_until(
            lambda daemon=daemon: any(
                re.search("joining as a learner|waiting|starting again", status)
                for status in daemon.statuses
            ),
            60,
            "it to be on its way",
        )
        n3.kill()
    n3.start()
    n1.wait_lists("n1", "n2", "n3")


def test_a_file_that_is_full_is_told_and_taken_up_again_when_there_is_room(nodes: Nodes) -> None:
    n1 = nodes.make(1)
    n1.top = "quota = 2M\n"
    daemon = n1.start()
    # Patient, because only a refusal for want of room counts here, not a slow answer.
    with Registry(n1.endpoint, timeout_s=20) as registry:
        # etcd notices some time after the fact.
        names = [f"fill/{number}" for number in range(1000)]
        with pytest.raises(Unavailable, match="space"):
            for name in names:
                registry.put(name, "x" * 60_000)
        daemon.wait_status("NOSPACE: its keys take .* delete")
        for name in names:
            registry.delete(name)
        daemon.wait_status("^member n1, leader n1")
        registry.put("key", "value")
