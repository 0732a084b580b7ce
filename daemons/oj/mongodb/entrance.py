"""What must be so before mongod may start: a node without data must not vote.

A voter that has lost its data has also lost the writes that it confirmed. Started as it is, mongod
would vote for a member that never had them, and they would be gone although a majority had them. So
such a node takes itself off the list, waits until the primary has removed it, and comes back as a
new one, without a vote until it has caught up. If there is no primary, it waits: another node has
to return, or an operator has to decide.

A set of two is different: the other one has confirmed every write too, and cannot become primary
without this one's vote.

A node that others would look for on their own machines does not enter a set of several; see
`oj.loopback_guard`.

Data from which mongod cannot go on (see `signs`) is set aside first, if there is a primary to copy
from.
"""

from __future__ import annotations

import contextlib
import logging

from oj.clock import utc_now
from oj.errors import Unavailable
from oj.mongodb import data, roster
from oj.mongodb.argv import Settings
from oj.mongodb.replicaset import SetMember, read_members
from oj.registry import Registry

log = logging.getLogger("oj.mongodb")


class Entrance:
    def __init__(self, settings: Settings, registry: Registry) -> None:
        self._settings = settings
        self._registry = registry

    def check(self) -> None:
        """Raises Unavailable with what is waited for while mongod may not start."""
        why = data.why_useless(self._settings.data)
        if why:
            self._set_aside(why)
        # Without etcd it may start: before it is registered, it is asked again.
        with contextlib.suppress(Unavailable):
            roster.demand_address(self._registry, self._settings.name, self._settings.advertise)
        if data.is_empty(self._settings.data):
            self._demand_no_vote()

    def _set_aside(self, why: str) -> None:
        try:
            others = self._others(roster.read_record(self._registry))
        except Unavailable as error:
            log.warning("the data stays, though %s: %s", why, error.message)
            return
        if not has_primary(read_members(others, self._settings.replica_set)):
            log.warning("the data stays, though %s: there is no primary to copy from", why)
            return
        place = data.set_aside(self._settings.data, utc_now())
        log.warning("%s: set the data aside in %s, to copy all from another member", why, place)

    def _demand_no_vote(self) -> None:
        name, me = self._settings.name, self._settings.advertise
        record = roster.read_record(self._registry)
        if record is None or record.is_only(name) or me not in record.members.values():
            return  # this node has never voted, or there is nobody to vote for
        members = read_members(self._others(record), self._settings.replica_set)
        voters = {member.host for member in members if member.votes}
        if has_primary(members):
            if me not in voters:
                return
        elif len(voters) == len(record.members) == 2:
            log.warning("starting without data, because the other member needs this one's vote")
            return
        else:
            raise Unavailable(
                "the data of this node is gone, and the replica set has no primary now "
                "that could take it in again"
            )
        registered = self._registry.get(roster.MEMBERS + name)
        if registered == me:
            log.warning("the data of this node is gone: leaving the set, to come back as a new one")
            roster.deregister(self._registry, name)
        elif registered is not None:
            raise Unavailable(f"the name {name} is taken by the node at {registered}")
        raise Unavailable(
            "the data of this node is gone: the primary has yet to take away its vote"
        )

    def _others(self, record: roster.Record | None) -> dict[str, str]:
        """Who may know the set: name -> host."""
        known = {**(record.members if record else {}), **roster.read_registered(self._registry)}
        return {
            name: host
            for name, host in known.items()
            if name != self._settings.name and host != self._settings.advertise
        }


def has_primary(members: list[SetMember]) -> bool:
    return any(member.state == "primary" and member.healthy for member in members)
