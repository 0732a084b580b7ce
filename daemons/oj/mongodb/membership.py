"""A node's place in the replica set, by what etcd says and what mongod is.

`enter` is tried again and again until this node serves, `check` runs ever after. Both look at
everything anew, so a crash between two steps heals by itself:

- One node wins the key mongodb/init, for good, and makes the set. If it dies between winning and
  making, it finds its own name there when it returns, and no set: it makes it then.
- Every node registers under mongodb/member/NAME, with a lease as long as the grace time, which is
  not revoked on a stop: a reboot is not a departure. A living node whose key was deleted puts it
  there again, unless it has left (`oj leave`).
- The primary keeps a record of the members in mongodb/set, compares members with registrations,
  and takes one step of the plan in each check.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Container, Iterable, Mapping

from oj.child import Silent
from oj.errors import Unavailable
from oj.mongodb import data, roster
from oj.mongodb.argv import Settings
from oj.mongodb.plan import next_change
from oj.mongodb.replicaset import Election, Node, State, visit
from oj.registry import Lease, Registry

log = logging.getLogger("oj.mongodb")

WRITE_EVERY_S = 10.0  # the check's write goes to the disk of a majority
# So long must the registration of a member that is up be missing before it is removed: when etcd
# has lost its data, all of them are for a moment.
MISSED_AFTER_S = 10.0
ASIDE_S = 60  # for how long a primary that leaves or stops does not stand for election


class Membership:
    def __init__(self, settings: Settings, node: Node, registry: Registry) -> None:
        self._settings = settings
        self._node = node
        self._registry = registry
        self._election = Election(settings.election_s, settings.heartbeat_s)
        self._lease: Lease | None = None
        self._written_s = 0.0
        self._missed: dict[str, float] = {}  # hosts whose registration is missing, since when
        self._first_seen: dict[str, str] = {}  # what members without a vote had at first
        self.progress = ""  # of an initial sync, as it was seen last

    def enter(self) -> str:
        """The sentence about a node that serves; raises Unavailable with what is waited for."""
        state = self._node.state()
        self.progress = state.progress
        problem, _ = self._try_registration()
        if problem and state.word in ("uninitialised", "removed"):
            raise Unavailable(problem)
        if state.word == "uninitialised":
            self._make_or_wait()
            state = self._node.state()
        elif state.word == "removed" or self._is_alone_elsewhere(state):
            self._move_or_wait()
            state = self._node.state()
        state.demand_service()
        if state.word == "primary":
            self._node.write()
            self._written_s = time.monotonic()
            if self._node.tune(self._election):
                log.info("the replica set has the configured election times now")
        return self._describe(state) + (f", but {problem}" if problem else "")

    def check(self) -> str:
        """The sentence for STATUS=; Unavailable when degraded, Silent when mongod is."""
        state = self._node.state()
        self.progress = state.progress
        problem, etcd = self._try_registration()
        state.demand_service()
        if state.word == "primary":
            if data.is_scant(self._settings.data) and len(state.current) > 1:
                self._node.step_down(ASIDE_S)
                data.demand_room(self._settings.data)
            if time.monotonic() - self._written_s > WRITE_EVERY_S:
                self._node.write()
                self._written_s = time.monotonic()
        try:
            if state.word == "primary" and etcd:
                self._reconcile(state)
            data.demand_room(self._settings.data)
        except Unavailable as error:
            problem = problem or error.message
        if problem:
            raise Unavailable(f"{self._describe(state)}, but {problem}")
        return self._describe(state)

    def hand_over(self) -> None:
        """Lets another member be primary, before a stop.

        mongod does the same when it is told to stop, but waits for nobody to catch up, and without
        a successor the others only notice by its silence.
        """
        try:
            state = self._node.state()
            if state.word == "primary" and len(state.current) > 1:
                self._node.step_down(ASIDE_S)
                log.info("handed over to another member")
        except (Silent, Unavailable) as error:
            log.warning("could not hand over: %s", error)

    def close(self) -> None:
        if self._lease is not None:
            self._lease.close(revoke=False)

    # Registration

    def _try_registration(self) -> tuple[str, bool]:
        """What is wrong with this node's registration, and whether etcd answers."""
        try:
            return self._stay_registered(), True
        except Unavailable as error:
            return error.message, False

    def _stay_registered(self) -> str:
        """Sees to this node's key in etcd; what is wrong with that, or nothing.

        Raises Unavailable when etcd is away.
        """
        if data.has_left(self._settings.data):
            if self._lease is not None:
                self._lease.close()
                self._lease = None
            return "this node has left the cluster: stop oj-mongodb"
        key, me = roster.MEMBERS + self._settings.name, self._settings.advertise
        found = self._registry.get(key)
        if found not in (None, me) and self._answers_elsewhere(found):
            return f"the name {self._settings.name} is taken by the node at {found}"
        if self._lease is None:
            roster.demand_address(self._registry, self._settings.name, me)
            self._lease = self._registry.register(key, me, self._settings.grace_s)
        elif found != me and self._lease.valid:
            log.warning("was off the list of members: registered again")
            self._registry.put(key, me, self._lease.id)
        return ""

    def _answers_elsewhere(self, host: str) -> bool:
        """Whether a mongod that is not ours is there: then two nodes have the same name."""
        try:
            with visit(host, self._settings.replica_set) as other:
                return other.process() != self._node.process()
        except (Silent, Unavailable):
            return False

    # A node that is in no set

    def _make_or_wait(self) -> None:
        name = self._settings.name
        record = roster.read_record(self._registry)
        if record is not None and not record.is_only(name):
            others = ", ".join(sorted(set(record.members) - {name}))
            raise Unavailable(f"the replica set of {others} has yet to take this node in")
        won, entry = self._registry.put_if_absent(roster.INIT, name)
        if won:
            log.info("won the right to make the replica set")
        if entry.value != name:
            raise Unavailable(
                f"{entry.value} has yet to make the replica set and take this node in"
            )
        self._refuse_beside_another_set()
        if record is not None:
            log.error("the data of this node, the only member, is gone: making a new replica set")
        self._node.initiate(self._settings.advertise, self._election)
        self._write_record({name: self._settings.advertise})
        log.info(
            "made the replica set %s at %s", self._settings.replica_set, self._settings.advertise
        )

    def _refuse_beside_another_set(self, own_names: Container[str] = ()) -> None:
        """What etcd has forgotten, the nodes may know."""
        for name, host in roster.read_registered(self._registry).items():
            if name == self._settings.name or name in own_names:
                continue
            try:
                with visit(host, self._settings.replica_set) as other:
                    has_set = bool(other.hosts())
            except (Silent, Unavailable):
                has_set = True  # until it says that it has none
            if has_set:
                raise Unavailable(f"the set of {name} at {host} has yet to take this node in")

    def _is_alone_elsewhere(self, state: State) -> bool:
        """Whether a set of one node still has the address of before, though mongod listens there.

        So it is when a node that was alone on loopback gets an address for others.
        """
        return len(state.members) == 1 and state.me not in ("", self._settings.advertise)

    def _move_or_wait(self) -> None:
        """This node's address is not in its own configuration any more.

        For a set of one node the address was changed in the conf file, and perhaps the name with
        it, and the set follows. In any larger one the primary takes this node in by its
        registration, or has removed it.
        """
        hosts = self._node.hosts()
        name, me = self._settings.name, self._settings.advertise
        record = roster.read_record(self._registry)
        before = self._find_name_before(record)
        alone = record is None or record.is_only(name) or before
        if len(hosts) != 1 or hosts[0] == me or not alone:
            raise Unavailable("the replica set has yet to take this node in")
        if self._registry.get(roster.INIT) not in (None, name, before):
            raise Unavailable(f"the replica set of {hosts[0]} has yet to take this node in")
        self._refuse_beside_another_set([before])
        self._node.force_alone(me)
        if before:
            self._registry.put(roster.INIT, name)
            self._registry.delete(roster.MEMBERS + before)
            self._write_record({name: me})
            log.info("the node %s is called %s now", before, name)
        log.info("moved the replica set from %s to %s", hosts[0], me)

    def _find_name_before(self, record: roster.Record | None) -> str:
        """The name that this node had as the only member of its set; nothing if it was this one,
        or if a node of that name runs: then the data here is a copy of that one's."""
        if record is None or len(record.members) != 1 or record.id != self._node.set_id():
            return ""
        ((before, host),) = record.members.items()
        if before == self._settings.name or self._answers_elsewhere(host):
            return ""
        return before

    # The primary

    def _reconcile(self, state: State) -> None:
        registered = roster.read_registered(self._registry)
        self._keep_record(registered)
        if data.has_left(self._settings.data) or state.me != self._settings.advertise:
            # It leaves, or has another address now: the next primary takes the old one out.
            if len(state.current) > 1:
                self._node.step_down(ASIDE_S)
            return
        members = self._node.members()
        wanted = set(registered.values()) | self._missed_lately(state.up - set(registered.values()))
        voters = {member.host for member in members if member.votes}
        followers = state.current & (voters | self._find_followers(state, voters))
        change = next_change(members, wanted, state.up, followers, self._settings.advertise)
        if change:
            log.info("replica set: %s", change.reason)
            self._node.change(change.members)
            self._keep_record(registered)

    def _find_followers(self, state: State, voters: set[str]) -> set[str]:
        """Those without a vote that have taken over a write since they were seen first.

        After a recovery by force, a node may return with writes that nobody else has. It is up,
        and seems to be ahead, until it has undone them, which it may not survive.
        """
        seen = {m.host: m.newest for m in state.members if m.up and m.host not in voters}
        self._first_seen = {host: self._first_seen.get(host, now) for host, now in seen.items()}
        waiting = {host for host, now in seen.items() if self._first_seen[host] == now}
        if waiting:
            self._node.write()
        return set(seen) - waiting

    def _missed_lately(self, missing: Iterable[str]) -> set[str]:
        """Those whose registration has not been missing for long."""
        now_s = time.monotonic()
        self._missed = {host: self._missed.get(host, now_s) for host in missing}
        return {host for host, since_s in self._missed.items() if now_s - since_s < MISSED_AFTER_S}

    def _keep_record(self, registered: Mapping[str, str]) -> None:
        """Sees to it that etcd has the members; refuses to act beside another set."""
        before = roster.read_record(self._registry)
        if before is None:
            self._registry.put_if_absent(roster.INIT, self._settings.name)
        elif before.id != self._node.set_id() and not before.is_only(self._settings.name):
            others = ", ".join(sorted(before.members))
            raise Unavailable(
                f"etcd knows another replica set, of {others}; stop one of the two and set its "
                f"data aside"
            )
        members = roster.name_hosts(
            self._node.hosts(), registered, before.members if before else {}
        )
        if before is None or before.members != members or before.id != self._node.set_id():
            self._write_record(members)

    def _write_record(self, members: Mapping[str, str]) -> None:
        roster.write_record(self._registry, roster.Record(self._node.set_id(), members))

    def _describe(self, state: State) -> str:
        count = len(self._node.hosts())
        plural = "member" if count == 1 else "members"
        return f"{state.word} of {self._settings.replica_set}, {count} {plural}"
