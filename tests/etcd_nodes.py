"""Nodes with an oj-etcd each, on loopback addresses of their own."""

from __future__ import annotations

from pathlib import Path

import servers
from oj.errors import Unavailable
from oj.etcd import argv, membership
from oj.registry import Registry
from servers import wait_until

STARTS = 4


class Node:
    """One node at 127.0.0.N, with the ports that all of a test's nodes share."""

    def __init__(self, nodes: Nodes, number: int) -> None:
        self.nodes, self.name = nodes, f"n{number}"
        self.host = f"127.0.0.{number + 1}"
        self.data = nodes.directory / self.name
        self.endpoint = (self.host, nodes.client_port)
        self.client = f"{self.host}:{nodes.client_port}"
        self.peer = f"{self.host}:{nodes.peer_port}"
        self.cluster = self.top = ""
        self.daemon: servers.Daemon | None = None

    @property
    def config(self) -> str:
        return (
            f"{self.top}name = {self.name}\ndata = {self.data}\nclient = {self.client}\n"
            f"peer = {self.peer}\n[cluster]\n{self.cluster}\n"
        )

    def settings(self) -> argv.Settings:
        path = self.nodes.directory / f"{self.name}.conf"
        path.write_text(self.config)
        return argv.load(path)

    def start(self, wait: bool = True) -> servers.Daemon:
        """Started and, as the unit would have it, started again when it ends with 1."""
        for _ in range(STARTS):
            self.daemon = servers.Daemon("etcd", self.config, watchdog_s=4)
            self.nodes.started.append(self.daemon)
            if not wait:
                break
            servers.wait_until(lambda: not self.daemon.alive or self.daemon.ready.is_set(), 90)
            if self.daemon.alive or self.daemon.popen.returncode != 1:
                break
        if wait:
            self.daemon.wait_ready(90)
        return self.daemon

    def kill(self) -> None:
        """The daemon and its etcd, as a power cut would."""
        assert self.daemon is not None
        etcds = self.daemon.children()
        self.daemon.kill()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in etcds), 30, "the end")

    def members(self) -> dict[str, membership.MemberHealth]:
        try:
            return {member.name: member for member in membership.list_members([self.endpoint])}
        except Unavailable:
            return {}

    def lists(self, *names: str) -> bool:
        """Whether it lists exactly these, all of them voters that are well."""
        members = self.members()
        return set(members) == set(names) and all(
            member.healthy and not member.learner for member in members.values()
        )

    def wait_lists(self, *names: str) -> None:
        servers.wait_until(lambda: self.lists(*names), 60, f"the members {' '.join(names)}")

    def member(self, name: str) -> membership.MemberHealth:
        """One that it lists; a slow answer is none, so it is asked again."""
        return servers.wait_until(lambda: self.members().get(name), 60, f"the member {name}")

    def write(self, key: str, value: str) -> None:
        """Repeated, because an election may be under way."""

        def written() -> bool:
            with Registry(self.endpoint, timeout_s=3) as registry:
                try:
                    registry.put(key, value)
                except Unavailable:
                    return False
            return True

        servers.wait_until(written, 60, f"{key} to be written")

    def wait_value(self, key: str, value: str) -> None:
        servers.wait_until(lambda: self.read(key) == value, 60, f"{key} to be {value}")

    def read(self, key: str) -> str | None:
        with Registry(self.endpoint, timeout_s=2) as registry:
            try:
                return registry.get(key)
            except Unavailable:
                return None


class Nodes:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.client_port, self.peer_port = servers.free_port(), servers.free_port()
        self.started: list[servers.Daemon] = []

    def make(self, number: int, join: Node | None = None) -> Node:
        node = Node(self, number)
        if join:
            node.cluster = f"join = {join.client}"
        return node

    def close(self) -> None:
        for daemon in reversed(self.started):
            daemon.close()

    def start_three(self) -> list[Node]:
        """Three voting members; n2 and n3 have joined at the same time."""
        n1 = self.make(1)
        n1.start()
        n2, n3 = self.make(2, join=n1), self.make(3, join=n1)
        joining = [n2.start(wait=False), n3.start(wait=False)]
        for daemon in joining:
            daemon.wait_ready(120)
        return [n1, n2, n3]
