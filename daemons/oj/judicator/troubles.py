"""What is degraded in the cluster, and what to do about it, in sentences for people.

Pure: a picture of the cluster in, sentences out, the worst first. neighbours.py takes the picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from oj.incarnation import RENAME, say_runs_twice

LAG_MS = 10_000  # a database member this far behind is worth a word
RECOVER = (
    "they are gone for good, go on with one that has its data: `oj recover --only-survivor NAME` "
    "there (see oj(1), and operations.md in /usr/share/doc/python3-oj)"
)


@dataclass(frozen=True)
class EtcdMember:
    name: str
    address: str = ""
    healthy: bool = True
    leader: bool = False
    learner: bool = False
    message: str = ""


@dataclass(frozen=True)
class DatabaseMember:
    name: str
    address: str
    state: str = "secondary"
    healthy: bool = True
    voter: bool = True
    lag_ms: int | None = None
    message: str = ""


@dataclass(frozen=True)
class Judicator:
    name: str
    address: str
    leader: bool = False
    healthy: bool = True
    version: str = ""


@dataclass(frozen=True)
class ExecutorSeen:
    name: str
    silent: bool = False
    drained: bool = False
    state: str = "ok"
    message: str = ""
    address: str = ""
    rivals: Sequence[str] = ()  # from where other processes report under its name

    @property
    def takes_tasks(self) -> bool:
        return not self.silent and not self.drained and self.state == "ok"


@dataclass(frozen=True)
class GatewaySeen:
    name: str
    address: str = ""
    version: str = ""
    silent: bool = False
    report_time_ms: int | None = None
    places: Sequence[str] = ()  # of its processes, if there are several at once


@dataclass(frozen=True)
class Picture:
    """The cluster at one moment. A `problem` says why a part could not be asked."""

    etcd: Sequence[EtcdMember] = ()
    database: Sequence[DatabaseMember] = ()
    judicators: Sequence[Judicator] = ()
    executors: Sequence[ExecutorSeen] | None = field(default=None)  # None: could not be asked
    gateways: Sequence[GatewaySeen] = ()
    leader_known: bool = True  # False: could not be asked who leads
    etcd_problem: str = ""
    database_problem: str = ""


def find_troubles(picture: Picture) -> list[str]:
    """A sentence for each thing that is not as it should be; empty when all is well."""
    lost, worn = _look_at_etcd(picture)
    database_lost, database_worn = _look_at_database(picture)
    return [
        *lost,
        *database_lost,
        *_look_at_judicators(picture, etcd_lost=bool(lost)),
        *worn,
        *database_worn,
        *_look_at_executors(picture),
        *_look_at_gateways(picture),
    ]


def _look_at_etcd(picture: Picture) -> tuple[list[str], list[str]]:
    """What stands still, and what is only worn."""
    voters = [member for member in picture.etcd if not member.learner]
    up = [member for member in voters if member.healthy]
    down = [member for member in voters if not member.healthy]
    lost: list[str] = []
    worn: list[str] = []
    # Each of them says whether it knows a leader; a way to etcd that fails now is less than that.
    if len(up) < _majority(len(voters)):
        why = _because(picture.etcd_problem)
        if up or len(voters) > 1:
            lost.append(
                f"etcd has lost its majority{why}: {len(up)} of {_count(voters, 'member')} "
                f"{'serves' if len(up) == 1 else 'serve'}; nobody leads, and what executors "
                f"lose is not taken back; start oj-etcd on the others ({_names(down)}), or, if "
                + RECOVER
            )
        else:
            lost.append(
                f"etcd does not answer{why}; nobody leads, and what executors lose is not taken "
                f"back; look at `systemctl status oj-etcd` on the judicators' nodes"
            )
        return lost, worn
    for member in down:
        worn.append(
            f"etcd member {member.name} does not answer{_because(member.message)}: "
            f"{_left(len(up), len(voters))}; look at `systemctl status oj-etcd` there, "
            f"or `oj remove {member.name}` if it is gone for good"
        )
    for member in picture.etcd:
        if member.learner:
            worn.append(
                f"etcd member {member.name} is a learner: it has no vote until it has caught up, "
                f"which it does by itself"
                + ("" if member.healthy else "; look at `systemctl status oj-etcd` there")
            )
    if len(voters) == 2 and not down:
        worn.append(
            "etcd has 2 members: without either of them nobody leads; "
            "a third judicator's node would make the loss of one bearable"
        )
    return lost, worn


def _look_at_database(picture: Picture) -> tuple[list[str], list[str]]:
    voters = [member for member in picture.database if member.voter]
    up = [member for member in voters if member.healthy]
    down = [member for member in picture.database if not member.healthy]
    primary = [member for member in picture.database if member.state == "primary"]
    if picture.database_problem:
        return [
            f"the database does not answer{_because(picture.database_problem)}; no task is taken "
            f"in or handed out; look at `systemctl status oj-mongodb` on the judicators' nodes"
        ], []
    if not primary:
        if len(up) >= _majority(len(voters)):
            return [
                f"the database has no primary: {len(up)} of {_count(voters, 'member')} are "
                f"up and elect one within seconds; if that lasts, look at "
                f"`journalctl -u oj-mongodb` there"
            ], []
        which = f" ({_names([m for m in voters if not m.healthy])})"
        return [
            f"the database has lost its majority: {len(up)} of {_count(voters, 'member')} "
            f"{'is' if len(up) == 1 else 'are'} up; no task is taken in or handed out; start "
            f"oj-mongodb on the others{which}, or, if {RECOVER}"
        ], []
    worn = []
    for member in down:
        if member.state in ("syncing", "starting", "recovering", "rolling back"):
            worn.append(
                f"database member {member.name} is {member.state}: "
                f"{_left(len(up), len(voters))} until it is through"
            )
        else:
            worn.append(
                f"database member {member.name} is {member.state}{_because(member.message)}: "
                f"{_left(len(up), len(voters))}; look at `systemctl status oj-mongodb` there, "
                f"or `oj remove {member.name}` if it is gone for good"
            )
    for member in picture.database:
        if member.healthy and (member.lag_ms or 0) > LAG_MS:
            worn.append(
                f"database member {member.name} is {(member.lag_ms or 0) // 1000} s behind the "
                f"primary; look at its disk and its load"
            )
    if len(voters) == 2 and not down:
        worn.append(
            "the database has 2 members: without either of them no task is taken in; "
            "a third judicator's node would make the loss of one bearable"
        )
    return [], worn


def _look_at_judicators(picture: Picture, *, etcd_lost: bool) -> list[str]:
    found = []
    for judicator in picture.judicators:
        if not judicator.healthy:
            found.append(
                f"judicator {judicator.name} does not answer at {judicator.address}; "
                f"look at `systemctl status oj-judicator` there"
            )
    if (
        picture.leader_known
        and not etcd_lost
        and not any(judicator.leader for judicator in picture.judicators)
    ):
        found.append(
            "no judicator leads, so that what executors lose is not taken back; one is elected "
            "within seconds; if that lasts, look at `journalctl -u oj-judicator`"
        )
    return found


def _look_at_executors(picture: Picture) -> list[str]:
    if picture.executors is None:
        return []
    found = []
    if not any(executor.takes_tasks for executor in picture.executors):
        found.append(
            "no executor takes tasks, so that they wait; "
            + (
                "look at `systemctl status oj-executor` on the executors' nodes"
                if picture.executors
                else "set one up with `oj setup executor`"
            )
        )
    for executor in picture.executors:
        if executor.rivals:
            said = say_runs_twice(executor.name, executor.address, executor.rivals)
            found.append(f"{said}; {RENAME}")
        if executor.silent:
            found.append(
                f"executor {executor.name} is silent; look at `systemctl status oj-executor` there"
            )
        elif executor.state not in ("ok", "draining"):
            found.append(
                f"executor {executor.name} is {executor.state}{_because(executor.message)}; "
                f"it takes no tasks until it is mended; run `oj doctor` there"
            )
    return found


def _look_at_gateways(picture: Picture) -> list[str]:
    found = []
    for gateway in picture.gateways:
        if gateway.silent:
            found.append(
                f"gateway {gateway.name} is silent; look at `systemctl status oj-gateway` there, "
                f"or, if it is gone for good, run `oj remove {gateway.name}` on a judicator"
            )
        elif gateway.places:
            found.append(
                f"gateway {gateway.name} runs twice: {' and '.join(sorted(gateway.places))}; "
                "give one of them a name of its own, there: `name` in gateway.conf"
            )
    return found


def _majority(voters: int) -> int:
    return voters // 2 + 1


def _left(up: int, voters: int) -> str:
    words = f"{up} of {voters} {'member' if voters == 1 else 'members'} are left"
    return words + (", and no further one can be spared" if up == _majority(voters) else "")


def _count(members: Sequence[object], word: str) -> str:
    return f"{len(members)} {word}{'' if len(members) == 1 else 's'}"


def _names(members: Sequence[EtcdMember] | Sequence[DatabaseMember]) -> str:
    return ", ".join(member.name for member in members)


def _because(message: str) -> str:
    return f" ({message})" if message else ""
