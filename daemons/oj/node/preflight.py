"""What is tried before a node is changed: ports both ways, clocks, versions, names, room.

A firewall that is closed shows only when daemons wait for each other, and then as a daemon that
waits. So the judicators of the cluster are asked first to connect back to each port on which this
node will listen for others. Nothing runs there yet, so this process listens on them meanwhile, and
says a word of its own to whoever connects: a judicator that has read it has really been here. A
daemon that runs already answers by itself. The other way, this node connects to theirs.

`look` sees, `judge` decides: a pure function, of sentences for people.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import selectors
import shutil
import socket
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from oj import __version__
from oj.clock import Deadline
from oj.errors import Unavailable
from oj.incarnation import find_installation, installation_of
from oj.link import BROKEN, is_unknown_call, open_from
from oj.node.address import canonical, is_own, source_towards
from oj.rpc import ttypes as rpc
from oj.settings import is_loopback, parse_address

ANSWER_S = 7.0  # of a judicator that connects back
REACH_S = 3.0  # two lost packets may be sent again meanwhile
LIST_S = 5.0
AT_ONCE = 16
# Of the clocks' difference. A judicator's database serves leases by its clock, and its watch over
# that takes a step of 5 s for a reason to start anew; certificates and tokens bear a minute.
TOLD_S = 1.0
MEMBER_MOST_S, OTHER_MOST_S = 5.0, 60.0
REPAIR_CLOCK = "timedatectl set-ntp true, or chrony, on both"
MEMBER_DAEMONS = ("etcd", "mongodb", "judicator")

Address = tuple[str, int]
Item = TypeVar("Item")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Port:
    """A port of this node that others connect to."""

    number: int
    what: str
    daemon: str
    needed: bool = True  # by the judicators themselves; else by people only

    def __str__(self) -> str:
        return f"{self.number} ({self.what})"


@dataclass(frozen=True)
class Target:
    """A port of another node that this one connects to."""

    node: str
    address: Address
    what: str


@dataclass(frozen=True)
class Room:
    """A directory that needs room, with others that take theirs from the same file system."""

    path: Path
    least_bytes: int  # for all of them
    beside: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Heard:
    """What one judicator has said of this node."""

    node: str
    problem: str = ""  # it did not answer, and why
    old: bool = False  # it does not know the call
    version: str = ""
    seen_as: str = ""
    behind_s: float = 0.0  # this clock against its one
    closed: tuple[tuple[Port, str], ...] = ()  # with what became of the connection
    strange: tuple[Port, ...] = ()  # something else than this machine has answered


@dataclass(frozen=True)
class Seen:
    """All that is judged."""

    joins: bool
    member: bool
    version: str
    address: str = ""  # by which others reach this node
    executor: str = ""  # its name, where this node becomes one
    heard: tuple[Heard, ...] = ()
    untried: str = ""  # why the ports were not tried
    started: bool = False  # only daemons answer on them; before, trying it answers itself
    taken: tuple[Port, ...] = ()  # another program listens there
    unreached: tuple[tuple[Target, str], ...] = ()
    executors: tuple[str, ...] = ()  # those that live, but for this machine's own
    low: tuple[tuple[Room, int], ...] = ()  # with the bytes that are free


@dataclass(frozen=True)
class Preflight:
    """What to try."""

    joins: bool
    member: bool
    address: str = ""
    source: str = ""  # what of this machine others connect to: an address of its own
    ports: tuple[Port, ...] = ()
    targets: tuple[Target, ...] = ()
    judicators: tuple[tuple[str, Address], ...] = ()
    rooms: tuple[Room, ...] = ()
    held: frozenset[int] = frozenset()  # ports where our own daemons listen already
    executor: str = ""
    installation: Path | None = None  # where its installation is kept

    def look(self, deadline: Deadline, listen: bool = True) -> Seen:
        """Tries it all; `listen`: answer on the ports, as nothing that was started does yet."""
        word = secrets.token_hex(16)
        source, wanted = self.source, self.ports if self.joins else ()
        with contextlib.ExitStack() as stack:
            listeners = Listeners(source, self.ports if listen else (), word)
            stack.enter_context(listeners)
            # As of a translation one to one; nothing can be bound to it.
            foreign = listeners.foreign or (bool(source) and not is_own(source))
            if foreign:
                source, wanted = "", ()
            pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE, "preflight"))
            unreached = pool.submit(_each, self.targets, lambda t: _reach(t, deadline))
            heard = _each(
                self.judicators,
                lambda one: _ask(one, source, wanted, word, listeners, deadline),
            )
            answering = [
                address
                for (_, address), said in zip(self.judicators, heard, strict=True)
                if not said.problem
            ]
            seen_as = {said.seen_as for said in heard if said.seen_as}
            executors = self._list_executors(answering, seen_as, deadline)
            return Seen(
                joins=self.joins,
                member=self.member,
                version=__version__,
                address=self.address,
                executor=self.executor,
                heard=tuple(heard),
                untried=f"{self.address} is no address of this machine" * foreign,
                started=not listen,
                taken=tuple(p for p in listeners.taken if p.number not in self.held),
                unreached=tuple(
                    (target, problem)
                    for target, problem in zip(self.targets, unreached.result(), strict=True)
                    if problem
                ),
                executors=executors,
                low=tuple(
                    (room, free)
                    for room in share_rooms(self.rooms)
                    if (free := _free_bytes(room.path)) < room.least_bytes
                ),
            )

    def _list_executors(
        self, judicators: Sequence[Address], seen_as: Collection[str], deadline: Deadline
    ) -> tuple[str, ...]:
        if not self.executor or not judicators:
            return ()
        from oj.client import Judicators

        with (
            contextlib.suppress(Unavailable),
            Judicators(judicators, timeout_s=LIST_S, learn=False) as client,
        ):
            found = client.executors(Deadline(deadline.cap(LIST_S)))
            own = find_installation(self.installation) if self.installation else ""
            return tuple(
                one.name
                for one in found
                if not one.silent
                and not (
                    own
                    and installation_of(one.incarnation or "") == own
                    and self._is_here(one.address or "", seen_as)
                )
            )
        return ()

    def _is_here(self, address: str, seen_as: Collection[str]) -> bool:
        """Whether reports from there are this machine's: a copy of a machine has its installation,
        too, but not its address."""
        if not address or not seen_as or address in seen_as:
            return True  # or nothing tells the two apart
        if is_loopback(address):
            return self.member  # it speaks to the judicator beside it
        return is_own(address)


# --- looking -----------------------------------------------------------------------------------


class Listeners:
    """Listens on ports of this machine for a moment, and says a word to whoever connects."""

    def __init__(self, address: str, ports: Sequence[Port], word: str) -> None:
        self.listens = bool(ports)
        self.taken: list[Port] = []
        self.foreign = False  # the address is none of this machine's
        self.callers: set[tuple[str, int]] = set()  # who has connected, and to which port
        self._word = word.encode()
        self._sockets: list[socket.socket] = []
        self._open: list[socket.socket] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="listen", daemon=True)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            for port in ports:
                self._listen(family, address, port)
        except BaseException:
            self._close()
            raise

    def _listen(self, family: int, address: str, port: Port) -> None:
        # On this very address, so that a daemon on loopback, as after an installation, is not in
        # the way.
        try:
            sock = socket.create_server((address, port.number), family=family)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                self.taken.append(port)
                return
            if error.errno == errno.EADDRNOTAVAIL:
                self.foreign = True
                return
            raise Unavailable(f"cannot listen on port {port}: {error.strerror or error}") from error
        sock.setblocking(False)
        self._sockets.append(sock)

    def __enter__(self) -> Listeners:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._close()

    def _close(self) -> None:
        for sock in (*self._sockets, *self._open):
            sock.close()

    def _serve(self) -> None:
        with selectors.DefaultSelector() as ready:
            for sock in self._sockets:
                ready.register(sock, selectors.EVENT_READ)
            while not self._end.is_set():
                if not self._sockets:
                    self._end.wait()
                    return
                for key, _ in ready.select(0.05):
                    assert isinstance(key.fileobj, socket.socket)
                    with contextlib.suppress(OSError):
                        self._answer(key.fileobj)

    def _answer(self, listener: socket.socket) -> None:
        sock, peer = listener.accept()
        self._open.append(sock)
        self.callers.add((str(peer[0]), int(listener.getsockname()[1])))
        sock.setblocking(False)
        sock.send(self._word)


def _each(items: Sequence[Item], act: Callable[[Item], Answer]) -> list[Answer]:
    if not items:
        return []
    with ThreadPoolExecutor(min(len(items), AT_ONCE), "preflight") as pool:
        return list(pool.map(act, items))


def _reach(target: Target, deadline: Deadline) -> str:
    """What is in the way to a port of another node; nothing when it is reached.

    From whichever address the kernel takes, as the daemons do it. Unavailable when there was no
    time to find out: that is not the fault of a firewall.
    """
    deadline.check(TRYING)
    try:
        socket.create_connection(target.address, deadline.cap(REACH_S)).close()
    except ConnectionRefusedError:
        return REFUSED
    except TimeoutError:
        deadline.check(TRYING)
        return f"{SILENT} in {REACH_S:g} s"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return ""


REFUSED = "connection refused"
SILENT = "no answer"
# What a connection ends with when something on the way, or here, does not let it pass.
_BLOCKED = tuple(
    os.strerror(code).lower()
    for code in (
        errno.ETIMEDOUT,
        errno.EHOSTUNREACH,
        errno.ENETUNREACH,
        errno.EACCES,
        errno.EPERM,
    )
)
TRYING = "trying the ports, before anything is changed"


def try_ways(targets: Sequence[Target], deadline: Deadline) -> list[tuple[Target, str]]:
    """What is in the way to each, as far as there is time to find out."""

    def reach(target: Target) -> str:
        with contextlib.suppress(Unavailable):
            return _reach(target, deadline)
        return ""

    return list(zip(targets, _each(targets, reach), strict=True))


def ask_how_seen(address: Address, deadline: Deadline) -> str:
    """The address that a judicator sees this machine's connections come from; nothing if it does
    not say."""
    patience = Deadline(deadline.cap(REACH_S))
    with contextlib.suppress(*BROKEN):
        link = open_from("", address, patience)
        try:
            return str(link.call("probe", [], "").address)
        finally:
            link.close()
    return ""


def _ask(
    judicator: tuple[str, Address],
    source: str,
    ports: Sequence[Port],
    word: str,
    listeners: Listeners,
    deadline: Deadline,
) -> Heard:
    name, address = judicator
    patience = Deadline(deadline.cap(ANSWER_S))
    version = ""
    try:
        link = open_from(source, address, patience)
        try:
            version = link.call("version").oj
            while True:
                asked_s = time.time()
                try:
                    told = link.call("probe", [port.number for port in ports], word)
                    break
                except rpc.Unavailable as busy:  # with other nodes
                    pause_s = (busy.retry_ms or 1000) / 1000
                    if patience.left_s < pause_s:
                        raise
                    time.sleep(pause_s)
        finally:
            link.close()
    except BROKEN as error:
        if is_unknown_call(error):
            return Heard(name, old=True, version=version)
        why = getattr(error, "message", None) or getattr(error, "strerror", None) or error
        return Heard(name, problem=str(why))
    there = canonical(address[0])
    by_number = {port.number: port for port in ports}
    closed, strange = [], []
    for one in told.ports:
        port = by_number[one.port]
        if not one.connected:
            closed.append((port, one.problem or "no answer"))
        elif listeners.listens and not (
            # Else this machine's own daemons may be who answers: nobody can tell.
            one.answered or port in listeners.taken or (there, one.port) in listeners.callers
        ):
            strange.append(port)
    return Heard(
        name,
        version=version,
        seen_as=told.address,
        behind_s=told.time / 1000 - asked_s,
        closed=tuple(closed),
        strange=tuple(strange),
    )


def share_rooms(rooms: Sequence[Room]) -> tuple[Room, ...]:
    """One for each file system: what lies together needs room for all of it."""
    shared: dict[int, Room] = {}
    for room in rooms:
        device = _existing(room.path).stat().st_dev
        first = shared.get(device)
        if first is None:
            shared[device] = room
            continue
        sum_bytes = first.least_bytes + room.least_bytes
        shared[device] = Room(first.path, sum_bytes, (*first.beside, room.path))
    return tuple(shared.values())


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _free_bytes(path: Path) -> int:
    return shutil.disk_usage(_existing(path)).free


# --- judging -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Judgement:
    refusals: tuple[str, ...]
    notes: tuple[str, ...]


def judge(seen: Seen) -> Judgement:
    """What must not be, and what is worth a word."""
    refusals: list[str] = []
    notes: list[str] = []
    _judge_ports(seen, refusals, notes)
    _judge_ways(seen, refusals, notes)
    _judge_clocks(seen, refusals, notes)
    _judge_versions(seen, refusals, notes)
    if seen.executor in seen.executors:
        refusals.append(
            f"the cluster has an executor {seen.executor} that lives: give this one another "
            f"--name, or stop that one for good first ('oj leave' there; a machine that is gone: "
            f"'oj remove {seen.executor}' on a judicator), or wait half a minute if it was just "
            "stopped"
        )
    for room, free in seen.low:
        paths = ", ".join(map(str, (room.path, *room.beside)))
        have, need = ("have", "together need") if room.beside else ("has", "needs")
        refusals.append(
            f"{paths} {have} {free >> 20} MB free, and {need} {room.least_bytes >> 20}: make room, "
            "or mount a larger disk there"
        )
    return Judgement(tuple(refusals), tuple(notes))


def _judge_ports(seen: Seen, refusals: list[str], notes: list[str]) -> None:
    for port in seen.taken:
        refusals.append(
            f"port {port} is in use by another program here: 'ss -ltnp sport = :{port.number}' "
            f"names it; stop it, or set another port in /etc/oj/{port.daemon}.conf"
        )
    # One sentence for all judicators that find the same.
    same: dict[tuple[tuple[Port, str], ...], list[str]] = {}
    for one in seen.heard:
        if one.seen_as and seen.address and one.seen_as != canonical(seen.address):
            if not seen.untried:
                notes.append(_describe_elsewhere(seen, one))
            continue  # what it found there says nothing of the address that others are told
        if one.closed:
            same.setdefault(one.closed, []).append(one.node)
        if one.strange:
            refusals.append(
                f"something else than this machine answers {one.node} at {seen.address}, TCP "
                f"{_list(one.strange)}: is that address another machine's? --address names this "
                "one's"
            )
    for closed, nodes in same.items():
        needed = [(port, problem) for port, problem in closed if port.needed]
        if needed:
            refusals.append(_describe_closed(seen, nodes, needed))
        for port, problem in closed:
            if not port.needed:
                notes.append(
                    f"{', '.join(nodes)} cannot connect to TCP {port} of this node ({problem}): "
                    "see that those who shall use it can"
                )
    if seen.untried:
        notes.append(f"whether others reach this node was not tried: {seen.untried}")
    for one in seen.heard:
        if one.old:
            notes.append(
                f"{one.node} runs oj {one.version}, which cannot connect back: whether it reaches "
                "this node was not tried"
            )
    if seen.joins and all(one.problem for one in seen.heard):
        notes.append(
            "no judicator of the cluster answers just now: whether others reach this node, clocks "
            "and names were not looked at"
        )


def _describe_closed(seen: Seen, nodes: Sequence[str], closed: Sequence[tuple[Port, str]]) -> str:
    where = ", ".join(nodes)
    verb = "does" if len(nodes) == 1 else "do"
    at = f" at {seen.address}" if seen.address else ""
    if seen.started and all(problem.lower() == REFUSED for _, problem in closed):
        ports = _list([port for port, _ in closed])
        return f"nothing listens yet where {where} would reach this node{at}, TCP {ports}"
    return (
        f"{where} {verb} not reach this node{at}, TCP {_list_problems(closed)}. A firewall is "
        f"closed, here or on the way: let {where} in to these ports (rules: administrator.md, "
        "'Firewall')"
    )


def _describe_elsewhere(seen: Seen, one: Heard) -> str:
    """What a judicator found that knows this node at another address, as behind a translation."""
    text = (
        f"{one.node} sees this node at {one.seen_as}, not at {seen.address}: the ports were tried "
        "there"
    )
    problems = [*one.closed, *((port, "something else answers") for port in one.strange)]
    if not problems:
        return text
    return (
        f"{text}, TCP {_list_problems(problems)}; see that {one.node} reaches this node at "
        f"{seen.address}"
    )


def _list_problems(found: Sequence[tuple[Port, str]]) -> str:
    return "; ".join(
        f"{_list([port for port, other in found if other == problem])}: {problem}"
        for problem in dict.fromkeys(problem for _, problem in found)
    )


def _judge_ways(seen: Seen, refusals: list[str], notes: list[str]) -> None:
    failing = {target.node for target, _ in seen.unreached}
    # Members need each other; whoever only uses them does with one.
    enough = not seen.member and any(one.node not in failing for one in seen.heard)
    blocked, absent = explain_ways(seen.unreached, seen.address)
    notes += absent
    (notes if enough else refusals).extend(blocked)


def explain_ways(
    tried: Sequence[tuple[Target, str]], own_address: str = ""
) -> tuple[list[str], list[str]]:
    """Sentences about the ways that are blocked, and about ports where nothing listens."""
    blocked, absent = [], []
    for node in dict.fromkeys(target.node for target, _ in tried):
        of_node = [(t, why) for t, why in tried if t.node == node and why]
        absent += [
            f"nothing listens at {_show(target)} just now"
            for target, why in of_node
            if why == REFUSED
        ]
        failed = [(t, why) for t, why in of_node if why != REFUSED]
        closed = [(t, why) for t, why in failed if _is_blocked(why)]
        if closed:
            host = closed[0][0].address[0]
            here = own_address or source_towards(canonical(host))
            who = f"this node {here}" if here else "this node"
            blocked.append(
                f"{_say_unreached(closed)}. A firewall is closed, there or on the way: let {who} "
                f"in to these ports of {node} (rules: administrator.md, 'Firewall')"
            )
        # Such as a name that this machine does not know.
        if others := [(t, why) for t, why in failed if not _is_blocked(why)]:
            blocked.append(_say_unreached(others))
    return blocked, absent


def _is_blocked(problem: str) -> bool:
    return problem.startswith(SILENT) or problem in _BLOCKED


def _say_unreached(found: Sequence[tuple[Target, str]]) -> str:
    """Of ports of one node."""
    first, problem = found[0]
    ports = ", ".join(f"{target.address[1]} ({target.what})" for target, _ in found)
    return f"this node does not reach {first.node} at {first.address[0]}, TCP {ports}: {problem}"


def _show(target: Target) -> str:
    host, port = target.address
    return f"{target.node}, TCP {host}:{port} ({target.what})"


def _judge_clocks(seen: Seen, refusals: list[str], notes: list[str]) -> None:
    for one in seen.heard:
        if one.problem or one.old or abs(one.behind_s) < TOLD_S:
            continue
        most_s = MEMBER_MOST_S if seen.member else OTHER_MOST_S
        way = "behind" if one.behind_s > 0 else "ahead of"
        text = f"the clock of this machine is {abs(one.behind_s):.1f} s {way} {one.node}'s"
        if abs(one.behind_s) >= most_s:
            refusals.append(f"{text}, and {most_s:g} s is the most: {REPAIR_CLOCK}")
        else:
            notes.append(f"{text}: {REPAIR_CLOCK}")


def _judge_versions(seen: Seen, refusals: list[str], notes: list[str]) -> None:
    for version in dict.fromkeys(one.version for one in seen.heard if one.version):
        if version == seen.version:
            continue
        nodes = ", ".join(one.node for one in seen.heard if one.version == version)
        text = f"oj on {nodes} is {version}, and {seen.version} here"
        if _major(version) != _major(seen.version):
            older = "here" if _is_older(seen.version, version) else "there"
            refusals.append(
                f"{text}: only versions with the same first number work together; 'apt upgrade' "
                f"{older} first"
            )
        else:
            notes.append(f"{text}: they work together; 'apt upgrade' where it is older, some time")


def _major(version: str) -> str:
    return version.partition(".")[0]


def _is_older(one: str, other: str) -> bool:
    def number(version: str) -> int:
        major = _major(version)
        return int(major) if major.isdigit() else 0

    return number(one) < number(other)


def describe_ways(trial: Preflight) -> list[str]:
    """Which ports have to be open, in which direction: where to look when nodes wait."""
    told = []
    nodes = ", ".join(name for name, _ in trial.judicators)
    if nodes and (needed := [port for port in trial.ports if port.needed]):
        told.append(f"must be open from {nodes} to this node: TCP {_list(needed)}")
    for node in dict.fromkeys(target.node for target in trial.targets):
        ports = ", ".join(
            f"{target.address[1]} ({target.what})"
            for target in trial.targets
            if target.node == node
        )
        told.append(f"must be open from this node to {node}: TCP {ports}")
    return told


def _list(ports: Sequence[Port]) -> str:
    return ", ".join(map(str, ports))


def find_targets(
    judicators: dict[str, str],
    databases: dict[str, str],
    members: dict[str, tuple[str, str]],
    member: bool,
) -> tuple[Target, ...]:
    """Where this node connects to: of each node whose judicator is registered, and so lives.

    `members`: of etcd, addresses for clients and for peers, by name; HOST:PORT as all of them.
    """
    found = []
    for name in sorted(judicators):
        found.append(Target(name, parse_address(judicators[name]), "judicator"))
        clients, peers = members.get(name, ("", ""))
        if clients:
            found.append(Target(name, parse_address(clients), "etcd, clients"))
        if member and peers:
            found.append(Target(name, parse_address(peers), "etcd, peers"))
        if member and name in databases:
            found.append(Target(name, parse_address(databases[name]), "mongod"))
    return tuple(found)
