"""Nodes that find each other through a name, and proxies that follow the members."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from etcd_nodes import Node, Nodes
from oj.etcd import membership
from servers import wait_until


@pytest.fixture
def nodes(directory: Path) -> Iterator[Nodes]:
    with contextlib.closing(Nodes(directory)) as made:
        yield made


def make_alike(nodes: Nodes, *numbers: int) -> list[Node]:
    """Nodes whose files say the same; addresses stand for names here."""
    made = [nodes.make(number) for number in numbers]
    for node in made:
        node.cluster = f"discover = {' '.join(one.host for one in made)}"
    return made


def test_nodes_that_start_at_once_make_one_cluster(nodes: Nodes) -> None:
    made = make_alike(nodes, 1, 2, 3)
    for daemon in [node.start(wait=False) for node in reversed(made)]:
        daemon.wait_ready(120)
    for node in made:
        node.wait_lists("n1", "n2", "n3")


def test_nobody_makes_a_cluster_while_one_may_have_it_already(nodes: Nodes) -> None:
    n1, n2 = make_alike(nodes, 1, 2)
    first = n1.start(wait=False)
    first.wait_status(f"nothing is heard of {n2.client}")
    assert not first.ready.is_set()
    # A node that knows of no other yet learns of one that calls.
    n2.cluster = f"discover = {n2.host}\nexpect = 2"
    second = n2.start(wait=False)
    for daemon in (first, second):
        daemon.wait_ready(120)
    for node in (n1, n2):
        node.wait_lists("n1", "n2")


def test_a_proxy_follows_the_members_as_they_come_and_go(nodes: Nodes) -> None:
    n1 = nodes.make(1)
    n1.start()
    proxy = nodes.make(9, join=n1)
    # One of the addresses answers: enough.
    proxy.cluster += f", 127.0.0.99:{nodes.client_port}"
    proxy.top = "mode = proxy\n"
    daemon = proxy.start()
    proxy.write("key", "value")
    n2, n3 = nodes.make(2, join=n1), nodes.make(3, join=n1)
    n2.start()
    n3.start()
    daemon.wait_status(f"^proxy, members answer: {n1.client}, {n2.client}, {n3.client}$")
    # The one that it was told of goes for good.
    membership.leave(n1.settings())
    n1.daemon.wait(60)
    daemon.wait_status(f"^proxy, members answer: {n2.client}, {n3.client}$")
    proxy.wait_value("key", "value")
    assert daemon.alive
    assert daemon.stop() == 0
    again = proxy.start()
    again.wait_status(f"{n2.client}, {n3.client}$")


def test_a_proxy_that_is_killed_is_started_again_without_failing(nodes: Nodes) -> None:
    n1 = nodes.make(1)
    n1.start()
    proxy = nodes.make(9, join=n1)
    proxy.top = "mode = proxy\n"
    daemon = proxy.start()
    [etcd] = daemon.children()

    os.kill(etcd, signal.SIGKILL)
    wait_until(lambda: daemon.children() and daemon.children() != [etcd], 60, "another proxy")
    daemon.wait_status("^proxy, members answer")
    assert daemon.alive
