"""The members of a cluster, asked and changed at real members' client ports.

A gRPC proxy shows only itself as a member, so it is no use here. A member's own list may be old
when it is cut off; a list counts as confirmed when the same member has just answered a read that
needs a majority, because it then has applied all that was decided before.

Used by the daemon and by the commands `oj status`, `oj leave`, `oj remove` and `oj recover`.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import urlsplit

from oj.clock import Deadline, backoff
from oj.errors import Missing, Rejected, Unavailable
from oj.etcd.argv import Settings, join_address
from oj.etcd.datadir import DataDirectory
from oj.etcd.decisions import ClusterSeen, MemberSeen, find_hindrance
from oj.etcdmessages import Member, MemberStatus
from oj.etcdwire import Connection

Address = tuple[str, int]
Answer = TypeVar("Answer")
MemberHealth = MemberSeen

PROBE = b"/oj/ping"
ASK_S = 1.0
RECOVER_ASK_S = 5.0
CONFIRM_S = 3.0
CHANGE_S = 8.0  # etcd itself gives a change 7 s
CHANGE_TRIES_S = 30.0  # within 5 s of a start it says 'unhealthy cluster'
HINDERED_LOOKS = 3
AT_ONCE = 16


@dataclass(frozen=True)
class Look:
    """Who answers, and the cluster that they are in if a majority confirmed it."""

    answering: tuple[str, ...]
    cluster: ClusterSeen | None
    via: str | None  # the member that the list is from


@contextlib.contextmanager
def connect(address: str) -> Iterator[Connection]:
    connection = Connection(address)
    try:
        yield connection
    finally:
        connection.close()


def list_members(endpoints: Sequence[Address], timeout_s: float = ASK_S) -> list[MemberHealth]:
    """The members and how they are, within two timeouts, also when there is no majority."""
    found = look([join_address(*pair) for pair in endpoints], timeout_s, confirm_s=None)
    if found.cluster is None:
        raise Unavailable("none of the etcd members answers")
    return list(found.cluster.members)


def remove_member(endpoints: Sequence[Address], name: str) -> None:
    """Takes a member out of the cluster for good, whether it runs or not.

    Raises Missing when there is none of that name, and Rejected when the rest would have no
    majority. A member that was never started has no name: it is known by its host.
    """

    def is_meant(member: MemberSeen) -> bool:
        hosts = [urlsplit(url).hostname for url in member.peer_urls]
        return member.name == name or (not member.name and name in hosts)

    addresses = [join_address(*pair) for pair in endpoints]
    if not _remove(addresses, is_meant):
        raise Missing(f"there is no etcd member {name}")


def remove_by_id(addresses: Sequence[str], member_id: int) -> bool:
    """As remove_member, for one whose number is known; False when it was not there any more."""
    return _remove(addresses, lambda member: member.id == member_id)


def leave(settings: Settings) -> None:
    """Takes this node out of the cluster; its etcd ends and does not join again by itself.

    Raises Rejected when the rest would have no majority; then nothing has changed. A proxy has
    nothing to leave.
    """
    if settings.mode == "proxy":
        return
    directory = DataDirectory(settings.data)
    own = join_address(*settings.local)
    known = directory.read_known()
    own_id = known.member_id
    with contextlib.suppress(Unavailable), connect(own) as connection:
        own_id = connection.status(timeout_s=CONFIRM_S).id
    # Before the removal, at which etcd ends and systemd starts it again.
    directory.mark(directory.left, "oj leave; to come back: oj setup judicator --join HOST")
    try:
        remove_by_id([own, *known.clients], own_id)
    except (Rejected, Unavailable):
        directory.left.unlink(missing_ok=True)
        raise


def force_new_cluster(settings: Settings) -> None:
    """Has the next start of oj-etcd make this node the only member, with the data it has.

    For the survivor of a disaster: the other members must not return with their data. Raises
    Rejected when there is no data, or when another member answers.
    """
    directory = DataDirectory(settings.data)
    if settings.mode == "proxy" or not directory.has_data:
        raise Rejected(f"there is no data of an etcd member in {settings.data}")
    own = join_address(*settings.local)
    # Twice and with patience: who is only slow must not be taken for lost.
    for _ in range(2):
        # As last noted, and as our own etcd lists them if it runs: a note may be a second old.
        known = {*directory.read_known().clients, *list_clients(own)} - {own}
        answering = ask_each(sorted(known), lambda c: c.status(timeout_s=RECOVER_ASK_S))
        if answering:
            raise Rejected(f"{', '.join(answering)} answers: this node is not the only one left")
    directory.mark(directory.recover, "oj recover; consumed by the next start of oj-etcd")


def list_clients(address: str) -> list[str]:
    """The client addresses of all members, by the list of the one at this address; none if it
    does not answer. It need not have a majority."""
    try:
        with connect(address) as connection:
            _, members = connection.members_of(timeout_s=ASK_S)
    except Unavailable:
        return []
    return [client for member in members for client in client_addresses(member)]


def look(
    addresses: Sequence[str], timeout_s: float = ASK_S, confirm_s: float | None = CONFIRM_S
) -> Look:
    """Asks all addresses at once; with confirm_s, no list counts that a majority does not know."""
    statuses = ask_each(addresses, lambda c: c.status(timeout_s=timeout_s))
    # Who leads or follows first: one that is cut off has no leader.
    order = sorted(statuses, key=lambda address: statuses[address].leader_id == 0)
    for address in order:
        with contextlib.suppress(Unavailable), connect(address) as connection:
            if confirm_s is not None:
                connection.range(PROBE, timeout_s=confirm_s)
            cluster_id, members = connection.members_of(timeout_s=timeout_s)
            if all(member.id != statuses[address].id for member in members):
                continue  # a proxy, or one that was just removed
            seen = examine(members, statuses, timeout_s)
            return Look(tuple(order), ClusterSeen(cluster_id, seen), address)
    return Look(tuple(order), None, None)


def examine(
    members: Sequence[Member], statuses: dict[str, MemberStatus], timeout_s: float
) -> tuple[MemberSeen, ...]:
    """The members with how they are; asks those that were not asked yet."""
    by_id = {status.id: status for status in statuses.values()}
    unasked = [
        address
        for member in members
        if member.id not in by_id
        for address in client_addresses(member)
        if address not in statuses
    ]
    for status in ask_each(unasked, lambda c: c.status(timeout_s=timeout_s)).values():
        by_id[status.id] = status
    leaders = {status.leader_id for status in by_id.values()} - {0}
    return tuple(
        MemberSeen(
            id=member.id,
            name=member.name,
            peer_urls=member.peer_urls,
            client_urls=member.client_urls,
            learner=member.learner,
            healthy=is_well(member, by_id.get(member.id), timeout_s),
            leader=member.id in leaders and member.id in by_id,
        )
        for member in members
    )


def is_well(member: Member, status: MemberStatus | None, timeout_s: float) -> bool:
    if status is not None:
        return status.leader_id != 0
    # A learner that has not caught up yet is known by its peer address alone.
    return not member.client_urls and any(
        accepts(urlsplit(url).hostname, urlsplit(url).port, timeout_s) for url in member.peer_urls
    )


def accepts(host: str | None, port: int | None, timeout_s: float) -> bool:
    try:
        socket.create_connection((host or "", port or 0), timeout_s).close()
    except OSError:
        return False
    return True


def client_addresses(member: Member | MemberSeen) -> list[str]:
    return [urlsplit(url).netloc for url in member.client_urls]


def ask_each(addresses: Sequence[str], ask: Callable[[Connection], Answer]) -> dict[str, Answer]:
    """The answers of those that answer, all asked at once."""

    def ask_one(address: str) -> Answer | None:
        try:
            with connect(address) as connection:
                return ask(connection)
        except Unavailable:
            return None

    wanted = list(dict.fromkeys(addresses))
    if not wanted:
        return {}
    with ThreadPoolExecutor(min(len(wanted), AT_ONCE), "ask") as pool:
        answers = list(pool.map(ask_one, wanted))
    return {
        address: answer
        for address, answer in zip(wanted, answers, strict=True)
        if answer is not None
    }


def _remove(addresses: Sequence[str], is_meant: Callable[[MemberSeen], bool]) -> bool:
    """Removes the member that is meant; whether there was one. Safe to call again."""
    deadline = Deadline(CHANGE_TRIES_S)
    asked = False
    hindered = 0  # looks in a row
    for pause_s in backoff(0.2, 2.0):
        found = look(addresses)
        confirmed = found.cluster is not None
        if not confirmed:
            found = look(addresses, confirm_s=None)
        try:
            if found.cluster is None or found.via is None:
                raise Unavailable("no etcd member answers")
            member = next((one for one in found.cluster.members if is_meant(one)), None)
            if member is None and confirmed:
                return asked
            hindrance = find_hindrance(found.cluster.members, member) if member else None
            # Leaders change: one look is no reason to send the operator away.
            hindered = hindered + 1 if hindrance else 0
            if hindered >= HINDERED_LOOKS:
                raise Rejected(f"etcd member {member.called if member else ''} stays: {hindrance}")
            if not confirmed or member is None or hindrance:
                raise Unavailable("no etcd member with a majority answers")
            asked = True
            with connect(_choose(found.cluster, member) or found.via) as connection:
                connection.remove_member(member.id, timeout_s=CHANGE_S)
            return True
        except Unavailable:
            if deadline.left_s < pause_s:
                raise
        time.sleep(pause_s)
    return asked


def _choose(cluster: ClusterSeen, leaving: MemberSeen) -> str | None:
    """A member that stays: one that removes itself may end before it answers."""
    for member in cluster.members:
        if member.healthy and not member.learner and member.id != leaving.id:
            return next(iter(client_addresses(member)), None)
    return None
