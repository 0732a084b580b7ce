"""Whether the etcd of this node serves: the real check behind READY and the watchdog."""

from __future__ import annotations

import contextlib
import http.client
import logging
from collections.abc import Callable

from oj.child import Silent
from oj.errors import Unavailable
from oj.etcd.membership import PROBE
from oj.etcdmessages import Member, MemberStatus
from oj.etcdwire import Alarm, Connection

# Long, because a hung member is killed for its silence, and a busy machine is no reason for that.
STATUS_TIMEOUT_S = 4.0
READ_TIMEOUT_S = 4.0
MAKE_ROOM_S = 4.0
ROOMY = 0.8  # of the quota: what a file may take for an alarm to be called off

log = logging.getLogger("oj.etcd")


def check_member(
    connection: Connection,
    name: str,
    quota_bytes: int,
    settle: Callable[[Connection, MemberStatus], list[Member]],
) -> str:
    """One sentence about a member that serves; `settle` makes it one that votes.

    Raises Silent when the member itself does not answer, and Unavailable when it does but cannot
    serve: then its neighbours or its operator are needed, and a restart would not help.
    """
    try:
        status = connection.status(timeout_s=STATUS_TIMEOUT_S)
    except Unavailable as error:
        raise Silent(error.message) from error
    if status.learner:
        settle(connection, status)
    try:
        # Linearizable: a leader and a majority have to confirm it.
        connection.range(PROBE, timeout_s=READ_TIMEOUT_S)
    except Unavailable as error:
        raise Unavailable(f"member {name} has no majority: {error.message}") from error
    members = settle(connection, status)
    # Asked through etcd's log, even to look: so it also proves that a write reaches the disk.
    for alarm in connection.alarms(timeout_s=STATUS_TIMEOUT_S):
        what = f"member {name_of(members, alarm.member_id)} has raised {alarm.name}"
        answer_alarm(connection, alarm, what, status, quota_bytes)
    return describe(name, name_of(members, status.leader_id), members, status.db_size_bytes)


def answer_alarm(
    connection: Connection, alarm: Alarm, what: str, status: MemberStatus, quota_bytes: int
) -> None:
    """Makes room in the own file and calls the alarm off; for all else there is the operator.

    While one member's file is too large, the cluster takes no writes. Each member sees to its own.
    """
    if alarm.name != "NOSPACE":
        raise Unavailable(f"{what}; stop it, move its data away, and start it again")
    if alarm.member_id != status.id:
        raise Unavailable(f"{what}: its file has reached the quota; see its status")
    with contextlib.suppress(Unavailable):  # it may have been done just now
        connection.compact(status.revision, timeout_s=MAKE_ROOM_S)
    connection.defragment(timeout_s=MAKE_ROOM_S)
    size_bytes = connection.status(timeout_s=STATUS_TIMEOUT_S).db_size_bytes
    if size_bytes > quota_bytes * ROOMY:
        raise Unavailable(
            f"{what}: its keys take {size_bytes >> 20} of {quota_bytes >> 20} MB; delete what does "
            "not belong there, or raise quota in etcd.conf"
        )
    connection.disarm(alarm, timeout_s=STATUS_TIMEOUT_S)
    log.warning("%s; made room and called it off", what)


def check_proxy(connection: Connection, address: tuple[str, int]) -> str:
    """One sentence about a proxy; Unavailable when no member answers through it.

    Every gRPC call goes on to a member. Only its metrics tell whether the proxy itself is there.
    """
    try:
        connection.range(PROBE, timeout_s=READ_TIMEOUT_S)
    except Unavailable:
        page = http.client.HTTPConnection(*address, timeout=STATUS_TIMEOUT_S)
        try:
            page.request("GET", "/metrics")
            page.getresponse().read()
        except (OSError, http.client.HTTPException) as error:
            raise Silent(f"the proxy does not answer: {error}") from error
        finally:
            page.close()
        raise
    return "proxy, members answer"


def name_of(members: list[Member], member_id: int) -> str:
    names = [member.name or "unnamed" for member in members if member.id == member_id]
    return names[0] if names else "none"


def describe(name: str, leader: str, members: list[Member], size_bytes: int) -> str:
    many = f"{len(members)} {'member' if len(members) == 1 else 'members'}"
    return f"member {name}, leader {leader}, {many}, {size_bytes // 1000} kB"
