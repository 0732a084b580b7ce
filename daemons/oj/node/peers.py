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
from oj.node.plan import ETCD_PORT, JUDICATOR_PORT, Address, Peers, show_address
from oj.registry import Registry
from oj.settings import is_loopback, parse_address

ASK_S = 3.0
PAUSE_S = 0.5
DATABASES = "mongodb/member/"


@dataclass(frozen=True)
class Cluster:
    """What the members say of themselves and of who is registered."""

    id: int
    asked: str  # the host that was asked, as it was named
    members: tuple[Member, ...]
    databases: dict[str, str]  # name -> HOST:PORT, as the next
    judicators: dict[str, str]
    problem: str = ""  # why nobody could tell of those two: there is no majority

    @property
    def endpoints(self) -> list[str]:
        """Client addresses of the members that have started, by name."""
        named = sorted(self.members, key=lambda member: member.name)
        return [found for member in named if (found := client_address(member))]

    def addresses(self) -> dict[str, tuple[str, str]]:
        """HOST:PORT for clients and for peers of each member that has started, by name."""
        return {
            member.name: (address, urlsplit(member.peer_urls[0]).netloc)
            for member in self.members
            if (address := client_address(member)) and member.peer_urls
        }

    def holder_of(self, name: str) -> str | None:
        """The host of the member of this name."""
        for member in self.members:
            if member.name == name:
                return urlsplit(member.peer_urls[0]).hostname if member.peer_urls else ""
        return None

    def member_of(self, origin: Origin | None) -> Member | None:
        """The member that data is of, if it is still listed."""
        if origin is None or origin.cluster_id != self.id:
            return None
        return next((m for m in self.members if m.id == origin.member_id), None)

    def owns(self, origin: Origin | None, names: Iterable[str]) -> bool:
        """Whether data is that of the member of one of these names."""
        member = self.member_of(origin)
        return member is not None and member.name in names

    def find_loopback(self, names: Iterable[str]) -> str:
        """A member, of another name than these, whom others are told to find at a loopback address:
        what others should know of it; nothing when there is none."""
        if is_loopback(self.asked):
            return ""
        for member in self.members:
            address = client_address(member)
            if not address or member.name in names or not is_loopback(parse_address(address)[0]):
                continue
            via = next(
                (m.name for m in self.members if m.name and m.id != member.id and m.client_urls), ""
            )
            join = f" --join {via}" if via else ""
            return (
                f"the etcd of {member.name} tells others to find it at {address}: "
                f"run 'oj setup judicator{join}' on {member.name} first"
            )
        return ""

    def without(self, host: str, name: str = "") -> Peers:
        """All of it but what is on this host; nor what this node of this name may have told of
        itself when its files had no address for others."""
        mine = canonical(host) if host else ""

        def others(addresses: Iterable[tuple[str, str]]) -> tuple[str, ...]:
            found = []
            for owner, address in sorted(addresses):
                there = canonical(parse_address(address)[0])
                if there != mine and not (mine and owner == name and is_loopback(there)):
                    found.append(address)
            return tuple(found)

        etcd = others((m.name, a) for m in self.members if (a := client_address(m)))
        judicators = others(self.judicators.items())
        if not judicators:  # none runs just now: there is one beside each member
            found = (parse_address(address)[0] for address in etcd)
            judicators = tuple(show_address(host, JUDICATOR_PORT) for host in found)
        return Peers(etcd, others(self.databases.items()), judicators)


def runs(member: Member, timeout_s: float) -> bool:
    """Whether a member answers, as itself, where the cluster has it."""
    address = client_address(member)
    if not address:
        return False
    connection = Connection(address)
    try:
        return connection.status(timeout_s=timeout_s).id == member.id
    except Unavailable:
        return False
    finally:
        connection.close()


def client_address(member: Member) -> str:
    """HOST:PORT for clients; nothing of a member that has not started yet."""
    for url in member.client_urls:
        parts = urlsplit(url)
        if parts.hostname:
            return show_address(parts.hostname, parts.port or ETCD_PORT)
    return ""


def find(hosts: Sequence[Address], timeout_s: float, ask_s: float = ASK_S) -> Cluster:
    """Asks the first of these that answers; Unavailable when none does in time.

    One whose cluster has no majority knows its members nevertheless; that is an answer when there
    is no better one in time.
    """
    end_s = time.monotonic() + timeout_s
    while True:
        problems = []
        partial: Cluster | None = None
        for host, port in hosts:
            try:
                found = _ask(host, port, ask_s)
                if not found.problem:
                    return found
                partial = partial or found
            except Unavailable as error:
                problems.append(error.message)
        if time.monotonic() > end_s:
            if partial:
                return partial
            raise Unavailable("; ".join(problems))
        time.sleep(PAUSE_S)
        # Each is asked once as long as it takes, and not again beyond the end.
        ask_s = min(ask_s, max(PAUSE_S, end_s - time.monotonic()))


def _ask(host: str, port: int, timeout_s: float) -> Cluster:
    connection = Connection(show_address(host, port))
    try:
        members = connection.members(timeout_s=timeout_s)
        status = connection.status(timeout_s=timeout_s)
    finally:
        connection.close()
    judicators, databases, problem = {}, {}, ""
    try:
        with Registry((host, port), timeout_s=timeout_s) as registry:
            judicators = registry.judicators()
            databases = registry.get_prefix(DATABASES)
    except Unavailable as error:
        problem = error.message
    if not any(member.id == status.id for member in members):
        if problem:
            raise Unavailable(problem)
        return _ask_behind(host, judicators, timeout_s)
    return Cluster(status.cluster_id, host, tuple(members), databases, judicators, problem)


def _ask_behind(host: str, judicators: dict[str, str], timeout_s: float) -> Cluster:
    """A proxy knows no members, but who is registered with them."""
    for address in judicators.values():
        beside = parse_address(address)[0]
        if beside != host:
            return _ask(beside, ETCD_PORT, timeout_s)
    raise Rejected(f"{host} is no judicator: its etcd only passes on to others; name a judicator")
