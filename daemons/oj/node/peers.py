"""The cluster that a node joins, as its etcd tells it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from oj.errors import Rejected, Unavailable
from oj.etcdmessages import Member
from oj.etcdwire import Connection
from oj.node.address import canonical
from oj.node.data import Origin
from oj.node.plan import ETCD_PORT, JUDICATOR_PORT, Address, Peers, is_loopback, show_address
from oj.registry import Registry
from oj.settings import parse_address

ASK_S = 3.0
PAUSE_S = 0.5
DATABASES = "mongodb/member/"


@dataclass(frozen=True)
class Cluster:
    """What the members say of themselves and of who is registered."""

    id: int
    members: tuple[Member, ...]
    databases: dict[str, str]  # name -> HOST:PORT, as the next
    judicators: dict[str, str]

    @property
    def endpoints(self) -> list[str]:
        """Client addresses of the members that have started, by name."""
        named = sorted(self.members, key=lambda member: member.name)
        return [found for member in named if (found := client_address(member))]

    def holder_of(self, name: str) -> str | None:
        """The host of the member of this name."""
        for member in self.members:
            if member.name == name:
                return urlsplit(member.peer_urls[0]).hostname if member.peer_urls else ""
        return None

    def owns(self, origin: Origin | None, names: Iterable[str]) -> bool:
        """Whether data is that of the member of one of these names."""
        return (
            origin is not None
            and origin.cluster_id == self.id
            and any(m.id == origin.member_id and m.name in names for m in self.members)
        )

    def without(self, host: str) -> Peers:
        """All of it but what is on this host."""
        mine = canonical(host) if host else ""

        def others(addresses: Iterable[str]) -> tuple[str, ...]:
            return tuple(a for a in addresses if canonical(parse_address(a)[0]) != mine)

        etcd = others(self.endpoints)
        judicators = others(self.judicators[name] for name in sorted(self.judicators))
        if not judicators:  # none runs just now: there is one beside each member
            found = (parse_address(address)[0] for address in etcd)
            judicators = tuple(show_address(host, JUDICATOR_PORT) for host in found)
        databases = others(self.databases[name] for name in sorted(self.databases))
        return Peers(etcd, databases, judicators)


def client_address(member: Member) -> str:
    """HOST:PORT for clients; nothing of a member that has not started yet."""
    for url in member.client_urls:
        parts = urlsplit(url)
        if parts.hostname:
            return show_address(parts.hostname, parts.port or ETCD_PORT)
    return ""


def find(hosts: Sequence[Address], timeout_s: float) -> Cluster:
    """Asks the first of these that answers; Unavailable when none does in time."""
    end_s = time.monotonic() + timeout_s
    while True:
        problems = []
        for host, port in hosts:
            try:
                return _ask(host, port)
            except Unavailable as error:
                problems.append(error.message)
        if time.monotonic() > end_s:
            raise Unavailable("; ".join(problems))
        time.sleep(PAUSE_S)


def _ask(host: str, port: int) -> Cluster:
    connection = Connection(show_address(host, port))
    try:
        members = connection.members(timeout_s=ASK_S)
        status = connection.status(timeout_s=ASK_S)
    finally:
        connection.close()
    with Registry((host, port), timeout_s=ASK_S) as registry:
        judicators = registry.judicators()
        databases = registry.get_prefix(DATABASES)
    if not any(member.id == status.id for member in members):
        return _ask_behind(host, judicators)
    cluster = Cluster(status.cluster_id, tuple(members), databases, judicators)
    for address in cluster.endpoints:
        if is_loopback(parse_address(address)[0]) and not is_loopback(host):
            raise Rejected(
                f"the etcd of {host} tells others to find it at {address}: "
                f"run 'oj setup judicator' on {host} first"
            )
    return cluster


def _ask_behind(host: str, judicators: dict[str, str]) -> Cluster:
    """A proxy knows no members, but who is registered with them."""
    for address in judicators.values():
        beside = parse_address(address)[0]
        if beside != host:
            return _ask(beside, ETCD_PORT)
    raise Rejected(f"{host} is no judicator: its etcd only passes on to others; name a judicator")
