"""A member's way from its start to a running etcd: look, decide, do, and look again.

`decisions` has the rules; here are the eyes and the hands. Everything before etcd runs happens in
`prepare`, which ends with etcd's command line. What is left to do when it runs (a learner to be
promoted, an address that has changed) is in `settle`, a part of the check that READY waits for.
"""

from __future__ import annotations

import contextlib
import logging
import re
import time
import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import assert_never
from urllib.parse import urlsplit

from oj import service
from oj.child import ReadLine
from oj.errors import Rejected, Unavailable
from oj.etcd import argv, decisions, membership
from oj.etcd.datadir import DataDirectory, Known, is_full, others, read_origin
from oj.etcd.discovery import Lobby, Names, ask_clients
from oj.etcdmessages import Member, MemberStatus
from oj.etcdwire import Connection
from oj.loopback_guard import describe, describe_moved, find_others, leave_word
from oj.own_addresses import is_own
from oj.settings import parse_address

log = logging.getLogger("oj.etcd")

# As etcd says that it will never serve with this data again.
REMOVED = "permanently removed from the cluster"
UNREADABLE = re.compile(
    r"\b(?:wal|walpb|snap): [a-z ]+|invalid database|cannot use none as id|raft log corrupted"
)
PAUSE_S = 1.0
# Members call one that is silent ten times a second.
LISTEN_S = 2.0
LISTEN_STEPS = 20
LOCAL_ONLY = ("127.0.0.1", "::1", "localhost")  # no other node can know us there
CALL_S = 4.0


class Joining:
    """One node's membership, from nothing or from its data."""

    def __init__(self, daemon: service.Service, settings: argv.Settings) -> None:
        self._daemon, self._settings = daemon, settings
        self._directory = DataDirectory(settings.data)
        self._own = (argv.join_address(*settings.local), argv.client_address(settings))
        self._silent_since: dict[int, float] = {}
        self._via: str | None = None
        self._names = Names(settings.discover, settings.client[1], settings.peer[0])
        self._lobby = Lobby(settings)

    def prepare(self) -> list[str] | None:
        """etcd's command line, when its time has come; None when stopped before."""
        with contextlib.closing(self._lobby):
            while not self._daemon.stop.is_set():
                self._daemon.extend_start()
                try:
                    seen = self._look()
                    if self._daemon.stop.is_set():
                        break
                    command = self._take(decisions.decide(seen))
                except Unavailable as error:
                    self._daemon.status(f"waiting: {error.message}")
                    command = None
                if command:
                    return command
                self._daemon.stop.wait(PAUSE_S)
        return None

    def settle(self, connection: Connection, status: MemberStatus) -> list[Member]:
        """The members, when this one is what it is to be; raises Unavailable before.

        Called for a member that answers; a learner first, which answers next to nothing.
        """
        if status.learner:
            self._promote(status.id)
        members = connection.members(timeout_s=CALL_S)
        if not self._directory.has_data:
            self._give_up(status, members)
        for member in members:
            if member.id == status.id:
                self._update(connection, member, members)
        self._remember(status, members)
        return members

    def note(self, read_line: ReadLine) -> ReadLine:
        """Reads etcd's lines, for those that tell that it will never serve with its data again."""

        def read(line: str) -> tuple[int, str]:
            level, text = read_line(line)
            said = read_verdict(level, text)
            if said and not is_full(self._settings.data):
                with contextlib.suppress(Unavailable):
                    self._directory.mark(self._directory.unusable, said)
            return level, text

        return read

    def explain(self, how: str) -> str:
        """Why etcd has ended, as far as this node can tell."""
        unusable = self._directory.read_unusable()
        if unusable:
            return f"{how}: {unusable}"
        if is_full(self._settings.data):
            return f"{how}: the disk of {self._settings.data} is full; make room there"
        return how

    def find_missing(self) -> str:
        """Which other members have to run before this one can serve; empty if enough of them do."""
        known = self._directory.read_known()
        names = (
            known.names if len(known.names) == len(known.clients) else ("",) * len(known.clients)
        )
        called = {
            address: name or address for address, name in zip(known.clients, names, strict=True)
        }
        up = membership.ask_each(known.clients, lambda c: c.status(timeout_s=membership.ASK_S))
        down = set(called.values()) - {called[address] for address in up}
        return say_missing(len(set(called.values())) + 1, down)

    # Looking

    def _look(self) -> decisions.Seen:
        settings, directory = self._settings, self._directory
        known = self._read_known()
        sources = self._sources(known)
        has_data = directory.has_data
        displaced = has_data and not is_own(parse_address(self._own[1])[0])
        if displaced:
            # Nobody answers there, unless all of this machine's disk is a copy of another's.
            sources = (*sources, self._own[1])
        seen = decisions.Seen(
            name=settings.name,
            peer_url=argv.peer_url(settings),
            has_data=has_data,
            own_id=known.member_id,
            own_cluster_id=known.cluster_id,
            displaced=displaced,
            unusable=directory.read_unusable(),
            left=directory.left.exists(),
            unreachable=self._find_unreachable(known),
            recover=directory.recover.exists(),
            may_initialise=settings.init,
            knew_others=bool(known.clients),
            sources=sources,
        )
        if (seen.left or seen.unreachable) and not seen.recover:
            return seen
        if not has_data:
            seen = self._listen(seen)
        if seen.sources:
            seen = self._ask(seen)
        if settings.discover and not (has_data or seen.answering or seen.may_initialise):
            meeting = self._lobby.meet(self._names.find(), settings.expect)
            seen = replace(seen, meeting=meeting)
        return seen

    def _read_known(self) -> Known:
        """With the numbers in etcd's own log, where our file is not there to tell them."""
        known = self._directory.read_known()
        if known.member_id or not self._directory.has_data:
            return known
        with contextlib.suppress(OSError):
            if origin := read_origin(self._settings.data):
                return replace(known, cluster_id=origin.cluster_id, member_id=origin.member_id)
        return known

    def _ask(self, seen: decisions.Seen) -> decisions.Seen:
        """Whoever may know the cluster."""
        found = membership.look(
            seen.sources,
            # Who is only slow must not be taken for lost.
            timeout_s=membership.RECOVER_ASK_S if seen.recover else membership.ASK_S,
            confirm_s=None if seen.has_data else membership.CONFIRM_S,
        )
        if seen.has_data and found.answering and not seen.recover and not lists_us(found, seen):
            # Before data is set aside, a majority has to say so.
            found = membership.look(seen.sources)
        self._via = found.via
        return replace(seen, answering=found.answering, cluster=self._time_silence(found.cluster))

    def _listen(self, seen: decisions.Seen) -> decisions.Seen:
        """Opens the lobby for a node without data, and asks who called there, too."""
        if self._settings.peer[0] in LOCAL_ONLY:
            return seen
        self._lobby.open()
        if seen.may_initialise and not self._lobby.members and not seen.sources:
            self._daemon.status("seeing whether a cluster calls this node")
            # In steps: a machine that stands still must not spend all of it at once.
            for _ in range(LISTEN_STEPS):
                if self._daemon.stop.wait(LISTEN_S / LISTEN_STEPS) or self._lobby.members:
                    break
        callers = tuple(sorted(self._lobby.members))
        clients = [client for caller in callers for client in ask_clients(caller)]
        sources = others([*seen.sources, *self._lobby.callers, *clients], self._own)
        return replace(seen, callers=callers, sources=sources)

    def _find_unreachable(self, known: Known) -> str:
        """Why the others of this node's cluster would look for it on their own machines.

        Looked at before etcd runs, which publishes its client address by itself.
        """
        settings = self._settings
        members = [*known.clients, *(argv.join_address(*address) for address in settings.join)]
        # Nobody looks for a node without data, whatever it once was.
        before = known.own_address if self._directory.has_data else ""
        return self._describe_misleading(
            argv.peer_address(settings), members, before
        ) or self._describe_misleading(argv.client_address(settings), members)

    def _describe_misleading(self, own: str, members: Iterable[str], before: str = "") -> str:
        """Why others must not be told this address; `before`: the one that they know.

        An address of before is reason enough. Executors and gateways elsewhere, which no list of
        members has, would wait for this judicator there, and nobody would tell why.
        """
        host = parse_address(own)[0]
        known_name = self._directory.read_known().own_name
        name = known_name if known_name != self._settings.name else ""
        if hosts := find_others(host, members):
            return describe("etcd.conf", own, hosts, name)
        for moved in find_others(host, filter(None, [before])):
            return describe_moved("etcd.conf", own, moved, name)
        return ""

    def _sources(self, known: Known) -> tuple[str, ...]:
        configured = [argv.join_address(*address) for address in self._settings.join]
        return others([*configured, *self._names.find(), *known.clients], self._own)

    def _time_silence(self, cluster: decisions.ClusterSeen | None) -> decisions.ClusterSeen | None:
        """For how long each member has been silent while we looked."""
        if cluster is None:
            return None
        now_s = time.monotonic()
        silent = {member.id for member in cluster.members if not member.healthy}
        self._silent_since = {
            member_id: self._silent_since.get(member_id, now_s) for member_id in silent
        }
        members = tuple(
            replace(member, silent_s=now_s - self._silent_since.get(member.id, now_s))
            for member in cluster.members
        )
        return replace(cluster, members=members)

    # Doing

    def _take(self, step: decisions.Step) -> list[str] | None:
        """Does one step; etcd's command line when that is the next thing to do."""
        daemon, settings = self._daemon, self._settings
        match step:
            case decisions.Start():
                daemon.status(f"member {settings.name}: starting again on {settings.data}")
                return argv.member_command(settings)
            case decisions.Initialise():
                daemon.status(f"member {settings.name}: making a new cluster in {settings.data}")
                return argv.initial_command(settings, uuid.uuid4().hex)
            case decisions.Recover():
                log.warning("making a new cluster of this member alone, with its data")
                daemon.status(f"member {settings.name}: recovering as the only member")
                return [*argv.member_command(settings), "--force-new-cluster"]
            case decisions.Add():
                return self._add()
            case decisions.Remove():
                log.warning("removing the entry of %s: %s", step.member.called, step.why)
                daemon.status(f"removing the entry of {step.member.called}: {step.why}")
                # First: after a crash, nothing else may tell that there is a cluster to join.
                self._write_known(0, 0, step.rest)
                with membership.connect(self._member()) as connection:
                    connection.remove_member(step.member.id, timeout_s=membership.CHANGE_S)
            case decisions.SetAside():
                target = self._directory.set_aside()
                log.warning("%s; its data is in %s from now on", step.why, target)
                daemon.status(f"{step.why}; joining anew")
            case decisions.Wait():
                daemon.status(f"waiting: {step.why}")
            case decisions.Refuse():
                self._refuse(step.why)
            case _:
                assert_never(step)
        return None

    def _add(self) -> list[str]:
        settings = self._settings
        with membership.connect(self._member()) as connection:
            cluster_id, _ = connection.members_of(timeout_s=membership.ASK_S)
            added, members = connection.add_learner(
                argv.peer_url(settings), timeout_s=membership.CHANGE_S
            )
        # Before etcd has data: from then on these are who can be asked about this member.
        self._write_known(cluster_id, added.id, members)
        voters = sum(not member.learner for member in members)
        sentence = f"joining as a learner of {voters} {'member' if voters == 1 else 'members'}"
        log.info("%s, via %s", sentence, self._via)
        self._daemon.status(sentence)
        # One that was never started has no name, but etcd goes by the addresses.
        named = [
            (member.name or f"{member.id:x}", peer)
            for member in members
            for peer in member.peer_urls
        ]
        return argv.joining_command(settings, named)

    def _refuse(self, why: str) -> None:
        # Once: the operator asked for it, and has to ask again when it could not be.
        self._directory.recover.unlink(missing_ok=True)
        log.error("%s", why)
        self._daemon.status(why)
        leave_word(why)
        raise SystemExit(service.EXIT_CONFIG)

    def _member(self) -> str:
        if self._via is None:
            raise Unavailable("no member answers")
        return self._via

    def _promote(self, own_id: int) -> None:
        """Asks the others, because a learner answers next to nothing."""
        self._daemon.extend_start()
        found = membership.look(self._sources(self._directory.read_known()))
        if found.cluster is None or found.via is None:
            raise Unavailable("learner, and no member with a majority answers")
        with membership.connect(found.via) as connection:
            try:
                connection.promote(own_id, timeout_s=CALL_S)
            except Unavailable as error:
                raise Unavailable(f"learner, catching up ({error.message})") from error
        log.info("promoted to a voting member")

    def _give_up(self, status: MemberStatus, members: list[Member]) -> None:
        """The data was deleted under a running etcd, which will fail sooner or later.

        As long as it runs it counts: so it takes itself out before it ends, and joins anew.
        """
        why = f"the data in {self._settings.data} is gone"
        log.error("%s; joining anew", why)
        try:
            self._write_known(status.cluster_id, status.id, members)
            if len(members) > 1:
                membership.remove_by_id(self._own[:1], status.id)
        except (Unavailable, Rejected) as error:
            log.warning("%s", error.message)
        self._daemon.fail(why)
        raise Unavailable(why)

    def _update(self, connection: Connection, member: Member, members: Sequence[Member]) -> None:
        peer_url = argv.peer_url(self._settings)
        if member.peer_urls != (peer_url,):
            # What was known before etcd ran may have been nothing, if our notes are gone or old.
            own = argv.peer_address(self._settings)
            rest = [one for one in members if one.id != member.id]
            listed = [urlsplit(url).netloc for one in rest for url in one.peer_urls]
            before = urlsplit(next(iter(member.peer_urls), "")).netloc
            if misleading := self._describe_misleading(own, listed, before):
                self._refuse(misleading)
            log.info("peer address changes from %s to %s", ", ".join(member.peer_urls), peer_url)
            connection.update_member(member.id, peer_url, timeout_s=membership.CHANGE_S)

    def _remember(self, status: MemberStatus, members: list[Member]) -> None:
        """What the next start needs; and what this one has done is done."""
        for marker in (self._directory.recover, self._directory.unusable):
            marker.unlink(missing_ok=True)
        self._write_known(status.cluster_id, status.id, members)

    def _write_known(
        self, cluster_id: int, member_id: int, members: Sequence[Member | decisions.MemberSeen]
    ) -> None:
        names = {
            address: member.name
            for member in members
            if member.id != member_id and not member.learner
            for address in membership.client_addresses(member)
        }
        clients = others(sorted(names), self._own)
        called = tuple(names[address] for address in clients)
        own_address = argv.peer_address(self._settings)
        known = Known(cluster_id, member_id, clients, called, self._settings.name, own_address)
        if known != self._directory.read_known():
            self._directory.write_known(known)


def lists_us(found: membership.Look, seen: decisions.Seen) -> bool:
    """Whether a member lists the one that our data is of; it may be wrong, but not against us."""
    if found.cluster is None or seen.unusable:
        return False
    return any(member.id == seen.own_id for member in found.cluster.members)


def say_missing(members: int, down: Collection[str]) -> str:
    """What a member needs of the others, if too few of them answer."""
    needed = members // 2 + 1
    if members - len(down) >= needed:
        return ""
    verb = "does" if len(down) == 1 else "do"
    return (
        f"{needed} of {members} members must run; {', '.join(sorted(down))} {verb} not answer; "
        f"start oj-etcd there"
    )


def read_verdict(level: int, text: str) -> str:
    """What a line says of the data, if it is that it is of no use."""
    if REMOVED in text:
        return REMOVED
    # Go writes the last words of a panic past the log.
    if level >= logging.CRITICAL or text.startswith("panic:"):
        found = UNREADABLE.search(text)
        return found[0].strip() if found else ""
    return ""
