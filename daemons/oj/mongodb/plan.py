"""Which change a replica set needs next: a pure function of what is registered and what is.

The primary asks it in every cycle and carries out the one change that comes back; then the next
cycle looks at the set anew. So a primary that dies half-way leaves nothing to repair, and its
successor goes on from what it finds.

Rules, each an invariant of the tests:
- One change at a time, and at most one vote more or less with each.
- After the change a majority of the voters is up: a change never takes the set's own majority away.
- A new member comes without a vote, and gets one when it has caught up; at most seven have one.
- The primary that asks is never removed. If it is not wanted itself, nobody is removed: then the
  registry has forgotten, and not the nodes gone.

Every member votes, also when that makes an even number: four bear the loss of one as three do, and
two of none, but with each vote one copy more is on disk when a write is confirmed. Were only one of
two to vote, its disk alone would hold what was confirmed last.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

MOST_VOTERS = 7  # MongoDB's own limits
MOST_MEMBERS = 50
MOST_ID = 255


@dataclass(frozen=True)
class Member:
    """One entry of the replica set's configuration."""

    id: int
    host: str
    votes: bool


@dataclass(frozen=True)
class Change:
    """The members as they shall be next, and why, for the log."""

    members: tuple[Member, ...]
    reason: str


def next_change(
    members: Collection[Member],
    wanted: Collection[str],
    up: Collection[str],
    current: Collection[str],
    me: str,
) -> Change | None:
    """What to change next, or None when all is as it shall be (or nothing may be done now).

    All but `members` are hosts: who shall be a member, who is primary or secondary now, who of
    those has caught up, and the primary that asks.
    """
    now = tuple(members)
    for change in (
        *_removals(now, wanted, up, me),
        *_promotions(now, wanted, current),
        *_additions(now, wanted),
    ):
        if keeps_majority(change.members, up):
            return change
    return None


def keeps_majority(members: Collection[Member], up: Collection[str]) -> bool:
    """Whether more than half of the voters are up."""
    voters = [member for member in members if member.votes]
    return 2 * sum(member.host in up for member in voters) > len(voters)


def _removals(
    now: tuple[Member, ...], wanted: Collection[str], up: Collection[str], me: str
) -> list[Change]:
    if me not in wanted:
        return []
    gone = [member for member in now if member.host not in wanted and member.host != me]
    # First who is down anyway, then who has no vote: each makes the rest safer.
    gone.sort(key=lambda member: (member.host in up, member.votes, member.id))
    return [
        Change(
            tuple(member for member in now if member is not leaver),
            f"{leaver.host} is no longer registered: removed",
        )
        for leaver in gone
    ]


def _promotions(
    now: tuple[Member, ...], wanted: Collection[str], current: Collection[str]
) -> list[Change]:
    if sum(member.votes for member in now) >= MOST_VOTERS:
        return []
    return [
        Change(
            tuple(replace(member, votes=True) if member is candidate else member for member in now),
            f"{candidate.host} has caught up: it votes",
        )
        for candidate in sorted(now, key=lambda member: member.id)
        if not candidate.votes and candidate.host in current and candidate.host in wanted
    ]


def _additions(now: tuple[Member, ...], wanted: Collection[str]) -> list[Change]:
    if len(now) >= MOST_MEMBERS:
        return []
    hosts = {member.host for member in now}
    return [
        Change(
            (*now, Member(free_id(now), host, votes=False)),
            f"{host} is registered: added without a vote",
        )
        for host in sorted(set(wanted) - hosts)
    ]


def free_id(members: Collection[Member]) -> int:
    """One that was not used lately: members keep what they know of each other by it."""
    used = {member.id for member in members}
    after = max(used, default=-1) + 1
    if after <= MOST_ID:
        return after
    return next(number for number in range(MOST_ID + 1) if number not in used)
