"""Who has an executor's name, where several processes report under it. Pure.

One process at a time has a name. Another one that reports under it is a rival: it is told so, is
given nothing, and keeps asking. `decide` takes one report of a process that is not known as the
one that has the name, and says who has it now:

- A process of the same installation is a restart, and has the name at once. Unless it was copied:
  the one that had the name shows that it lives by reporting again after it has read that it was
  replaced, and then has the name back. Whoever was there first stays. From then on what comes from
  the copy's address is taken for the copy, started anew, for as long as it keeps coming.
- Any other has the name once the one that has it is silent. It need not wait for as long as that
  one's parked report may: judicators make it report again while there is a rival, and if it does
  not within `PATIENCE_MS`, in which its leases run out as well, it is gone.

Where an installation is not known, because the executor is older than this, the newest process has
the name at once and keeps it, as it was then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from oj.incarnation import installation_of

PAST_KEPT = 16
RIVALS_KEPT = 8
GRACE_MS = 10_000  # after the end of a report's wait its executor counts as silent
PATIENCE_MS = 8_000  # how long one that is asked to report may be silent; see above
# Rivals ask every two seconds. One that did not for so long begins anew, so that an outage of the
# judicators does not count against the one that has the name.
ASKING_MS = 5_000
SHOWN_MS = 8_000  # for how long a rival that asks no more is shown
KEPT_MS = 60_000  # for how long it is known from where it asked: copies that end are started anew
GIVE_BACK_MS = 60_000  # how long one that was replaced by a restart may show that it lives
REPLACED_KEPT = 8


@dataclass(frozen=True)
class Rival:
    """A process that reports under a name that another one has."""

    incarnation: str
    address: str = ""
    since_ms: int = 0
    last_ms: int = 0
    number: int = 0  # of its first report since then
    copy: bool = False  # it, or one before it at its address, has passed for a restart and was none

    def asks(self, now_ms: int) -> bool:
        return 0 <= now_ms - self.last_ms <= ASKING_MS


@dataclass(frozen=True)
class Replaced:
    """A process that a restart took the name from while it was not silent."""

    incarnation: str
    at_ms: int


@dataclass(frozen=True)
class Tenancy:
    """What is stored of a name's processes."""

    incarnation: str
    address: str = ""
    reported_ms: int = 0
    wait_s: float = 0.0
    past: tuple[str, ...] = ()  # those that had the name before, and never free anything again
    replaced: tuple[Replaced, ...] = ()  # which of these may still live, the first one first
    rivals: tuple[Rival, ...] = ()


@dataclass(frozen=True)
class Claim:
    """What a report says of its process."""

    incarnation: str
    address: str = ""
    number: int = 0
    settled: int = 0


def decide(known: Tenancy, claim: Claim, now_ms: int) -> Tenancy:
    """Who has the name after this report; the reporter has it if the incarnation is its own."""
    if known.incarnation == claim.incarnation:
        return replace(known, address=claim.address)
    asked = next((r for r in known.rivals if r.incarnation == claim.incarnation), None)
    if asked is not None and not asked.asks(now_ms):
        asked = None
    if _is_silent(known, now_ms) or (asked and _is_gone(known, asked, now_ms)):
        return _take_over(known, claim)
    replaced = _find_replaced(known, now_ms)
    if claim.incarnation in (*known.past, *(one.incarnation for one in replaced)):
        lives = asked is not None and claim.settled >= asked.number
        if lives and claim.incarnation in (one.incarnation for one in replaced):
            return _give_back(known, claim, now_ms)
    elif _is_restart(known, claim, now_ms):
        taken = _take_over(known, claim)
        if not installation_of(known.incarnation):
            return taken
        replaced = (*replaced, Replaced(known.incarnation, now_ms))
        return replace(taken, replaced=replaced[:REPLACED_KEPT])
    return _note_rival(known, claim, asked, now_ms)


def _is_silent(known: Tenancy, now_ms: int) -> bool:
    return now_ms - known.reported_ms > known.wait_s * 1000 + GRACE_MS


def _is_gone(known: Tenancy, asked: Rival, now_ms: int) -> bool:
    return now_ms - max(known.reported_ms, asked.since_ms) >= PATIENCE_MS


def _is_restart(known: Tenancy, claim: Claim, now_ms: int) -> bool:
    before, now = installation_of(known.incarnation), installation_of(claim.incarnation)
    if before and now and before != now:
        return False
    # From where a rival has asked: the copy, started anew, not the one that has the name. Where
    # both have one address, only a proven copy counts: what ended there asks late.
    return not any(
        rival.copy or claim.address != known.address
        for rival in _find_at(known, claim.address, now_ms)
    )


def _find_at(known: Tenancy, address: str, now_ms: int) -> list[Rival]:
    """The rivals that have asked from an address lately."""
    return [r for r in known.rivals if r.address == address and 0 <= now_ms - r.last_ms <= KEPT_MS]


def _find_replaced(known: Tenancy, now_ms: int) -> tuple[Replaced, ...]:
    return tuple(r for r in known.replaced if now_ms - r.at_ms <= GIVE_BACK_MS)


def _give_back(known: Tenancy, claim: Claim, now_ms: int) -> Tenancy:
    """To one that was replaced and lives: what replaced it is a copy."""
    copy = Rival(known.incarnation, known.address, since_ms=now_ms, last_ms=now_ms, copy=True)
    taken = _take_over(known, claim)
    before = [one.incarnation for one in known.replaced].index(claim.incarnation)
    return replace(
        taken, rivals=_add_rival(taken.rivals, copy, now_ms), replaced=known.replaced[:before]
    )


def _take_over(known: Tenancy, claim: Claim) -> Tenancy:
    past = [p for p in (*known.past, known.incarnation) if p not in ("", claim.incarnation)]
    return Tenancy(
        incarnation=claim.incarnation,
        address=claim.address,
        past=tuple(dict.fromkeys(past))[-PAST_KEPT:],
        rivals=tuple(r for r in known.rivals if r.incarnation != claim.incarnation),
    )


def _note_rival(known: Tenancy, claim: Claim, asked: Rival | None, now_ms: int) -> Tenancy:
    if asked is None:
        asked = Rival(claim.incarnation, since_ms=now_ms, number=claim.number)
    ours = installation_of(claim.incarnation)
    copy = asked.copy or any(
        rival.copy and installation_of(rival.incarnation) == ours
        for rival in _find_at(known, claim.address, now_ms)
    )
    noted = replace(asked, address=claim.address, last_ms=now_ms, copy=copy)
    return replace(known, rivals=_add_rival(known.rivals, noted, now_ms))


def _add_rival(known: tuple[Rival, ...], rival: Rival, now_ms: int) -> tuple[Rival, ...]:
    others = [
        other
        for other in known
        if other.incarnation != rival.incarnation and 0 <= now_ms - other.last_ms <= KEPT_MS
    ]
    return (*others[-(RIVALS_KEPT - 1) :], rival)
