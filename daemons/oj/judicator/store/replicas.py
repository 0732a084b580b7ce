"""The members of the database's replica set, as the driver and the set know them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pymongo import MongoClient
from pymongo.read_preferences import PrimaryPreferred

from oj.judicator.store.database import at_the_edge
from oj.judicator.troubles import DatabaseMember

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


class Replicas:
    """Asks whoever of the set answers about all of them."""

    def __init__(self, client: MongoClient[Any]) -> None:
        self._admin = client.get_database("admin", read_preference=PrimaryPreferred())

    @at_the_edge
    def look(self) -> list[DatabaseMember]:
        """The members by address; `name` is left to who knows the nodes."""
        where = PrimaryPreferred()
        status = self._admin.command("replSetGetStatus", read_preference=where)
        config = self._admin.command("replSetGetConfig", read_preference=where)["config"]
        votes = {member["host"]: bool(member.get("votes", 1)) for member in config["members"]}
        return read_status(status, votes)


def read_status(status: Any, votes: dict[str, bool]) -> list[DatabaseMember]:
    """The answer to replSetGetStatus as ours."""
    applied = [m["optimeDate"] for m in status["members"] if m["state"] == 1 and "optimeDate" in m]
    return [_read_member(member, votes, applied) for member in status["members"]]


def _read_member(member: Any, votes: dict[str, bool], applied: list[datetime]) -> DatabaseMember:
    state = _STATES.get(member["state"], f"in state {member['state']}")
    up = member["state"] in (1, 2) and member.get("health", 1) == 1
    lag_ms: int | None = None
    if up and applied and "optimeDate" in member:
        lag_ms = max(0, int((applied[0] - member["optimeDate"]).total_seconds() * 1000))
    return DatabaseMember(
        name="",
        address=member["name"],
        state=state,
        healthy=up,
        voter=votes.get(member["name"], True),
        lag_ms=lag_ms,
        message="" if up else member.get("lastHeartbeatMessage", "")[:200],
    )
