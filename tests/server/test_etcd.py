"""oj-etcd with a real etcd: it serves when it says so, and comes back on its data."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import servers
from oj.registry import Registry
from servers import wait_until

Start = Callable[..., servers.Daemon]


class Node:
    """The configuration of one node, to be started more than once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = servers.free_port()
        self.address = ("127.0.0.1", self.port)
        self.config = (
            f"name = n1\ndata = {directory}/data\n"
            f"client = 127.0.0.1:{self.port}\npeer = 127.0.0.1:{servers.free_port()}\n"
        )


@pytest.fixture
def node(directory: Path) -> Node:
    return Node(directory)


def test_it_is_ready_only_when_it_serves_and_says_what_it_is(
    node: Node, start_daemon: Start
) -> None:
    daemon = start_daemon("etcd", node.config, watchdog_s=2)
    with Registry(node.address, timeout_s=10) as registry:
        registry.put("key", "value")  # without trying again: ready means serving
    assert "making a new cluster" in daemon.statuses[0]
    daemon.wait_status(r"^member n1, leader n1, 1 member, \d+ kB$")
    wait_until(lambda: daemon.pets > 2, what="food for the watchdog")
    assert daemon.stop() == 0
    assert not servers.accepts(node.port)


def test_started_again_it_keeps_its_keys(node: Node, start_daemon: Start) -> None:
    first = start_daemon("etcd", node.config)
    with Registry(node.address, timeout_s=20) as registry:
        registry.put("key", "value")
    assert first.stop() == 0
    second = start_daemon("etcd", node.config)
    assert "starting again" in second.statuses[0]
    with Registry(node.address, timeout_s=20) as registry:
        assert registry.get("key") == "value"


def test_when_etcd_is_killed_the_daemon_fails_and_the_next_one_has_the_keys(
    node: Node, start_daemon: Start
) -> None:
    daemon = start_daemon("etcd", node.config)
    with Registry(node.address, timeout_s=20) as registry:
        registry.put("key", "value")
        [etcd] = daemon.children()
        os.kill(etcd, signal.SIGKILL)
        assert daemon.wait(30) == 1
        assert "etcd was killed by SIGKILL" in daemon.log()
        start_daemon("etcd", node.config)  # as systemd would
        # The same client goes on by itself.
        assert wait_until(lambda: read(registry, "key"), 10, "the key") == "value"


def test_when_the_daemon_is_killed_its_etcd_dies_and_the_next_one_starts(
    node: Node, start_daemon: Start
) -> None:
    daemon = start_daemon("etcd", node.config)
    [etcd] = daemon.children()
    with Registry(node.address, timeout_s=20) as registry:
        registry.put("key", "value")
    daemon.kill()
    wait_until(lambda: not Path(f"/proc/{etcd}").exists(), 20, "the end of etcd")
    start_daemon("etcd", node.config)
    with Registry(node.address) as registry:
        wait_until(lambda: read(registry, "key") == "value", 20, "the key")


def test_a_hung_etcd_is_killed_and_the_daemon_fails(node: Node, start_daemon: Start) -> None:
    daemon = start_daemon("etcd", node.config, watchdog_s=2)
    [etcd] = daemon.children()
    os.kill(etcd, signal.SIGSTOP)
    assert daemon.wait(60) == 1
    assert not Path(f"/proc/{etcd}").exists()


def test_a_proxy_serves_and_outlives_its_member(
    etcd: servers.Etcd, prefix: str, directory: Path, start_daemon: Start
) -> None:
    member = servers.Etcd(directory / "member").start()
    port = servers.free_port()
    daemon = start_daemon(
        "etcd",
        f"mode = proxy\ndata = {directory}/data\nclient = 127.0.0.1:{port}\n"
        f"[cluster]\njoin = {member.address}\n",
        watchdog_s=1,
    )
    try:
        with Registry(("127.0.0.1", port), prefix, timeout_s=20) as registry:
            registry.put("key", "value")
            member.kill()
            daemon.wait_status("degraded", 15)
            member.start()
            daemon.wait_status("^proxy, members answer", 15)
            assert wait_until(lambda: read(registry, "key"), 10, "the key") == "value"
    finally:
        member.close()


def test_a_proxy_waits_for_its_members_and_says_so(directory: Path, start_daemon: Start) -> None:
    daemon = start_daemon(
        "etcd",
        f"mode = proxy\ndata = {directory}/data\nclient = 127.0.0.1:{servers.free_port()}\n"
        f"[cluster]\njoin = 127.0.0.1:{servers.free_port()}\n",
        wait=False,
    )
    daemon.wait_status("waiting: none of 127.0.0.1:.* answers")
    assert not daemon.ready.is_set()
    assert daemon.stop() == 0


def test_three_mistakes_are_all_told_and_end_with_78() -> None:
    config = "nmae = n1\nclient = here\n[cluster]\njoin = x\n"
    for arguments in (["--check"], []):
        done = servers.run_daemon("etcd", config, *arguments)
        assert done.returncode == 78
        for place in ("etcd.conf:1: nmae", "etcd.conf:2: client", "etcd.conf:4: cluster.join"):
            assert place in done.stderr


def read(registry: Registry, key: str) -> str | None:
    """The value, or None while etcd is away."""
    from oj.errors import Unavailable

    try:
        return registry.get(key)
    except Unavailable:
        return None
