"""Admin commands to a mongod: what it is, and how its replica set is made and changed.

This module owns pymongo for the role. Its errors become Silent (the server does not answer) or
Unavailable (it answers, but cannot do this now) here, once.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from pymongo import MongoClient, errors
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError

from oj.child import Silent
from oj.errors import Unavailable
from oj.mongodb.plan import Member
from oj.redact import redact, say
from oj.settings import parse_address

# Long, because a hung mongod is killed for its silence, and a busy machine is no reason for that.
TIMEOUT_S = 5.0
SELECTION_TIMEOUT_S = 3.0  # there is one server to select, and it is here or not
WRITE_TIMEOUT_S = 5.0
VISIT_S = 1.0
CURRENT_S = 10.0  # a member that lags less has caught up; without load, one note in 10 s is written

# pymongo 4 renamed it; it is a ConnectionFailure, though the server has answered.
_NotPrimary = getattr(errors, "NotPrimaryError", None) or errors.NotMasterError
_NOT_YET_INITIALIZED = 94
_ALREADY_INITIALIZED = 23
# How long an elected node may look for what others have and it has not. It also asks the lost one,
# which does not answer, so that all of this is spent; what a majority has, it has already.
_CATCH_UP_MS = 200
_STATES = {
    0: "starting",
    1: "primary",
    2: "secondary",
    3: "recovering",
    5: "syncing",
    6: "unknown",
    8: "down",
    9: "rolling back",
    10: "removed",
}


@dataclass(frozen=True)
class Election:
    """How fast a lost primary is noticed."""

    timeout_s: float
    heartbeat_s: float


@dataclass(frozen=True)
class SetMember:
    """A member as another one sees it."""

    host: str
    state: str  # one of _STATES
    healthy: bool  # it answers
    lag_s: float | None  # behind the newest that any member has; None when that is not known
    newest: str = ""  # what tells the newest write that it has from others
    votes: bool = False
    name: str = ""

    @property
    def up(self) -> bool:
        return self.healthy and self.state in ("primary", "secondary")


@dataclass(frozen=True)
class State:
    """A node as it sees itself, and the others as it sees them."""

    word: str  # 'uninitialised', or one of _STATES
    members: tuple[SetMember, ...] = ()
    me: str = ""  # the own host, as the configuration has it
    progress: str = ""  # of an initial sync
    source: str = ""  # the host that it copies from

    @property
    def primary(self) -> str:
        """Its host, or nothing."""
        return next((m.host for m in self.members if m.state == "primary" and m.healthy), "")

    @property
    def up(self) -> frozenset[str]:
        return frozenset(member.host for member in self.members if member.up)

    @property
    def current(self) -> frozenset[str]:
        """Who is up and has caught up."""
        return frozenset(
            m.host for m in self.members if m.up and m.lag_s is not None and m.lag_s <= CURRENT_S
        )

    def demand_service(self) -> None:
        """Raises Unavailable unless it is primary, or secondary to a primary that it knows."""
        if self.word not in ("primary", "secondary"):
            raise Unavailable(f"this node is {self.word}{self.progress and ': ' + self.progress}")
        if not self.primary:
            raise Unavailable("the replica set has no primary")


class Node:
    """One mongod, spoken to directly, whatever its state."""

    def __init__(
        self, address: tuple[str, int], replica_set: str, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._address = address
        self._replica_set = replica_set
        self._timeout_s = timeout_s
        # Two clients: what only asks shall notice a hung server soon, what changes may take longer.
        self._client = connect(address, timeout_s)
        self._changer = connect(address, timeout_s + WRITE_TIMEOUT_S)

    def close(self) -> None:
        try:
            self.knock()
        except Silent:
            return  # pymongo would look for the server to end its sessions there
        self._client.close()
        self._changer.close()

    def knock(self) -> None:
        """Raises Silent at once while nobody listens; pymongo would wait for its time-out."""
        try:
            socket.create_connection(self._address, self._timeout_s).close()
        except OSError as error:
            raise Silent(f"mongod does not listen: {error.strerror or error}") from error

    def state(self) -> State:
        """Asked of the node itself: works in every state."""
        self.knock()
        with translated():
            self._client.admin.command("ping")
        return self.glance()

    def glance(self) -> State:
        """The same by a single call, which takes its time while nobody listens."""
        with translated():
            try:
                status = self._client.admin.command("replSetGetStatus", initialSync=1)
            except OperationFailure as error:
                if error.code == _NOT_YET_INITIALIZED:
                    return State("uninitialised")
                if self._config() is None:
                    raise
                return State("removed")
        return State(
            word=_word(status["myState"]),
            members=read_status(status),
            me=next((m["name"] for m in status["members"] if m.get("self")), ""),
            progress=describe_sync(status.get("initialSyncStatus")),
            source=status.get("syncSourceHost", ""),
        )

    def process(self) -> str:
        """What tells this very process from every other mongod."""
        with translated():
            hello = self._client.admin.command("hello")
        return str(hello.get("topologyVersion", {}).get("processId", ""))

    def set_id(self) -> str:
        """What tells this replica set from others of the same name; nothing without one."""
        with translated():
            config = self._config()
        return str(config["settings"].get("replicaSetId", "")) if config else ""

    def initiate(self, host: str, election: Election) -> None:
        """Makes a replica set of this node alone; no harm if it has one already."""
        config = {
            "_id": self._replica_set,
            "members": [{"_id": 0, "host": host}],
            "settings": settings_document(election),
        }
        with translated():
            try:
                self._changer.admin.command("replSetInitiate", config)
            except OperationFailure as error:
                if error.code != _ALREADY_INITIALIZED:
                    raise

    def hosts(self) -> tuple[str, ...]:
        """The hosts in the configuration that this node has; none when it has none."""
        with translated():
            config = self._config()
        return tuple(member["host"] for member in config["members"]) if config else ()

    def members(self) -> tuple[Member, ...]:
        with translated():
            config = self._config()
        if config is None:
            return ()
        return tuple(
            Member(member["_id"], member["host"], bool(member.get("votes", 1)))
            for member in config["members"]
        )

    def change(self, members: tuple[Member, ...]) -> None:
        """Gives the set this list of members; fails if another change came between."""
        with translated():
            config = self._config()
            if config is None:
                raise Unavailable("the replica set is not initialised")
            known = {member["_id"]: member for member in config["members"]}
            config["version"] += 1
            config["members"] = [
                {
                    **known.get(member.id, {"_id": member.id}),
                    "host": member.host,
                    "votes": int(member.votes),
                    # MongoDB wants priority 0 of those without a vote.
                    "priority": int(member.votes),
                }
                for member in members
            ]
            self._changer.admin.command("replSetReconfig", config, maxTimeMS=5000)

    def force_alone(self, host: str) -> None:
        """Makes this node the only member, at this address, whatever the others say.

        For when there are none, or none any more. Forced, because there is no primary to do it.
        """
        with translated():
            config = self._config()
            if config is None:
                raise Unavailable("the replica set is not initialised")
            known = {member["host"]: member["_id"] for member in config["members"]}
            number = known.get(host, max(known.values()) + 1)
            config["version"] += 1
            config["members"] = [{"_id": number, "host": host, "votes": 1, "priority": 1}]
            self._changer.admin.command("replSetReconfig", config, force=True)

    def step_down(self, aside_s: int, catch_up_s: int = 2) -> None:
        """Hands the primary's part to a member that has caught up; Unavailable if there is none."""
        with translated():
            self._changer.admin.command(
                "replSetStepDown", aside_s, secondaryCatchUpPeriodSecs=catch_up_s
            )

    def copy_from(self, host: str) -> None:
        """Has this node, a secondary, copy from there, even if it has just failed to."""
        with translated():
            self._changer.admin.command("replSetSyncFrom", host)

    def tune(self, election: Election) -> bool:
        """Gives the set the configured election times; whether it had others."""
        wanted = settings_document(election)
        with translated():
            config = self._config()
            if config is None or wanted.items() <= config["settings"].items():
                return False
            config["version"] += 1
            config["settings"].update(wanted)
            self._changer.admin.command("replSetReconfig", config, maxTimeMS=5000)
        return True

    def write(self) -> None:
        """A write to the oplog that a majority has on disk when this returns; primary only."""
        with translated():
            answer = self._changer.admin.command(
                "appendOplogNote",
                data={"oj": "check"},
                writeConcern={"w": "majority", "j": True, "wtimeout": int(WRITE_TIMEOUT_S * 1000)},
            )
        if "writeConcernError" in answer:
            raise Unavailable("no majority of the replica set confirms a write")

    def _config(self) -> dict[str, Any] | None:
        try:
            config: dict[str, Any] = self._client.admin.command("replSetGetConfig")["config"]
        except OperationFailure as error:
            if error.code == _NOT_YET_INITIALIZED:
                return None
            raise
        return config


def connect(address: tuple[str, int], timeout_s: float) -> Any:
    return MongoClient(
        *address,
        directConnection=True,
        appname="oj-mongodb",
        maxPoolSize=4,
        serverSelectionTimeoutMS=int(SELECTION_TIMEOUT_S * 1000),
        connectTimeoutMS=int(TIMEOUT_S * 1000),
        socketTimeoutMS=int(timeout_s * 1000),
    )


@contextmanager
def visit(host: str, replica_set: str, timeout_s: float = VISIT_S) -> Iterator[Node]:
    """The mongod at HOST:PORT of another node, for a short question."""
    node = Node(parse_address(host), replica_set, timeout_s)
    try:
        yield node
    finally:
        node.close()


def read_members(
    hosts: Mapping[str, str] | Iterable[str], replica_set: str, timeout_s: float = VISIT_S
) -> list[SetMember]:
    """The members as the primary sees them, or else as the first that answers does.

    `hosts` are HOST:PORT of some members, or names of nodes with them, which names the members.
    """
    names = {host: name for name, host in hosts.items()} if isinstance(hosts, Mapping) else {}
    best: list[SetMember] = []
    for host in names or hosts:
        try:
            with visit(host, replica_set, timeout_s) as node:
                state = node.state()
                votes = {member.host for member in node.members() if member.votes}
        except (Silent, Unavailable):
            continue
        if state.members and (state.word == "primary" or not best):
            best = [
                replace(member, votes=member.host in votes, name=names.get(member.host, ""))
                for member in state.members
            ]
        if state.word == "primary":
            break
    return best


def read_status(status: Mapping[str, Any]) -> tuple[SetMember, ...]:
    """The members of replSetGetStatus's answer."""
    applied = {
        member["name"]: member["optime"]["ts"].time
        for member in status["members"]
        if member.get("optime", {}).get("ts")  # an arbiter would have none, who is down has 0
    }
    newest = max(applied.values(), default=0)
    return tuple(
        SetMember(
            host=member["name"],
            state=_word(member["state"]),
            healthy=member.get("health", 1) == 1,
            lag_s=newest - applied[member["name"]] if applied.get(member["name"]) else None,
            newest=str(member.get("optime", "")),
        )
        for member in status["members"]
    )


def describe_sync(status: Mapping[str, Any] | None) -> str:
    """How far an initial sync has come."""
    if not status:
        return ""
    total, copied = status.get("approxTotalDataSize", 0), status.get("approxTotalBytesCopied", 0)
    if not total:
        return "it looks for a member to copy from"
    if copied >= total:
        return f"all of {total >> 20} MiB copied, {status.get('appliedOps', 0)} changes since"
    return f"{copied >> 20} of {total >> 20} MiB copied"


def _word(state: int) -> str:
    return _STATES.get(state, f"in state {state}")


def settings_document(election: Election) -> dict[str, int]:
    return {
        "electionTimeoutMillis": round(election.timeout_s * 1000),
        "heartbeatIntervalMillis": round(election.heartbeat_s * 1000),
        "heartbeatTimeoutSecs": max(1, round(election.timeout_s)),
        "catchUpTimeoutMillis": _CATCH_UP_MS,
        # All copy from the primary: the loss of one secondary must not hold up another.
        "chainingAllowed": False,
    }


@contextmanager
def translated() -> Iterator[None]:
    """pymongo's errors as ours."""
    try:
        yield
    except _NotPrimary as error:
        raise Unavailable("this node is not primary") from error
    except ConnectionFailure as error:
        # Without pymongo's description of the topology, which no operator wants to read.
        raise Silent(f"mongod does not answer: {str(error).partition(',')[0]}") from error
    except OperationFailure as error:
        what = redact((error.details or {}).get("errmsg") or str(error))
        raise Unavailable(f"mongod says: {what}") from error
    except PyMongoError as error:
        raise Unavailable(f"mongod: {say(error)}") from error
