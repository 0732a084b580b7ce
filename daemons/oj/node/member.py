"""A judicator's part in what is kept by several nodes: etcd's members and the replica set.

Asks the modules of those two roles, which alone know how; used by the commands that take nodes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from oj.errors import Rejected, Unavailable
from oj.etcd import argv as etcd_argv
from oj.etcd import membership
from oj.etcd.datadir import DataDirectory, read_origin
from oj.etcd.decisions import MemberSeen, find_hindrance, say_how_to_join
from oj.mongodb import argv as mongodb_argv
from oj.mongodb import data as mongodb_data
from oj.mongodb import roster
from oj.mongodb.replicaset import SetMember, read_members
from oj.node.files import Files
from oj.node.steps import Tell, wait_for
from oj.registry import Registry
from oj.settings import parse_address

# The primary takes out who has been off the list for 10 s, one at a time.
REMOVED_S = 120.0


@dataclass(frozen=True)
class Member:
    """This node's settings of both, and what can be asked and done with them."""

    etcd: etcd_argv.Settings
    mongodb: mongodb_argv.Settings

    @property
    def name(self) -> str:
        return self.etcd.name

    @property
    def directory(self) -> DataDirectory:
        return DataDirectory(self.etcd.data)

    @property
    def id(self) -> int:
        """Which member of etcd the data here is of, whatever this machine is called; 0: of none."""
        origin = read_origin(self.etcd.data)
        return origin.member_id if origin else 0

    def endpoints(self) -> list[tuple[str, int]]:
        """Where members may answer: here first, then all that this node knows of."""
        known = [parse_address(address) for address in self.directory.read_known().clients]
        return list(dict.fromkeys([self.etcd.local, *known, *self.etcd.join, *self.mongodb.etcd]))

    def registry(self) -> Registry:
        return Registry(self.endpoints(), self.mongodb.prefix)

    # --- etcd ----------------------------------------------------------------------------------

    def members(self) -> list[MemberSeen]:
        return membership.list_members(self.endpoints())

    def remove_member(self, name: str) -> None:
        membership.remove_member(self.endpoints(), name)

    # --- the replica set -----------------------------------------------------------------------

    def databases(self) -> dict[str, str]:
        """All that are registered or were members last: name -> HOST:PORT."""
        with self.registry() as registry:
            record = roster.read_record(registry)
            return {**(record.members if record else {}), **roster.read_registered(registry)}

    def set_members(self, but: str = "") -> list[SetMember]:
        """The replica set as its primary sees it; asked of all but one host."""
        hosts = {name: host for name, host in self.databases().items() if host != but}
        return read_members(hosts, self.mongodb.replica_set)

    def deregister(self, name: str) -> None:
        with self.registry() as registry:
            roster.deregister(registry, name)

    def mark_left(self) -> None:
        """Has oj-mongodb give up its place by itself, and not come back."""
        self.mongodb.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        mongodb_data.mark_left(self.mongodb.data)

    def wait_until_out(self, host: str, tell: Tell) -> None:
        """Waits until the primary has taken a host out of the set."""

        def is_out() -> bool:
            members = self.set_members(but=host)
            if not any(member.state == "primary" for member in members):
                raise Unavailable("the replica set has no primary now")
            return all(member.host != host for member in members)

        wait_for(is_out, REMOVED_S, tell, f"the primary takes {host} out of the replica set")


def load(files: Files) -> Member:
    return Member(etcd_argv.load(files.path("etcd")), mongodb_argv.load(files.path("mongodb")))


def refuse_copy(
    listed: Iterable[MemberSeen], member_id: int, is_here: Callable[[str], bool]
) -> None:
    """Raises Rejected where the member that the data here is of runs on another machine: to leave
    would take that one out. `is_here`: whether a host is this machine."""
    for one in listed:
        host = urlsplit(one.peer_urls[0]).hostname if one.peer_urls else None
        if one.id == member_id and one.healthy and host and not is_here(host):
            raise Rejected(
                f"the data here is a copy of {one.called}'s, which runs at {host} and would be "
                f"taken out of its cluster: {say_how_to_join(one)}"
            )


def refuse_without_members(members: Iterable[MemberSeen], name: str) -> None:
    """Raises Rejected when a node cannot go without taking etcd's majority away."""
    listed = list(members)
    leaving = next((member for member in listed if member.name == name), None)
    hindrance = find_hindrance(listed, leaving) if leaving is not None else None
    if hindrance:
        raise Rejected(
            f"{name} cannot go: of etcd, {hindrance}. Others have to come back first; if they are "
            "lost for good, see 'oj recover'"
        )


def refuse_without_databases(databases: Iterable[SetMember], name: str, host: str) -> None:
    """Raises Rejected when a node cannot go without taking the replica set's majority away."""
    present = list(databases)
    if all(member.host != host for member in present):
        return
    staying = [member for member in present if member.votes and member.host != host]
    up = [member for member in staying if member.up]
    if not staying:
        raise Rejected(
            f"{name} cannot go: no other database has a vote yet; wait until one has caught up"
        )
    if 2 * len(up) <= len(staying):
        raise Rejected(
            f"{name} cannot go: only {len(up)} of the {len(staying)} databases that would stay "
            "are up, which is no majority"
        )
