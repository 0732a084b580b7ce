"""Finds a judicator and calls it: deadlines, fail-over, typed errors, blobs.

`Judicators` knows the addresses and may be shared by threads: each call has a
connection to itself while it lasts, the one that was used last if that is free,
so that a gateway of 300 threads has as many connections as calls at one time.
`channel()` gives a further connection to whoever needs its own, such as an
executor that parks one report and sends others.

Every call may be repeated, so a lost connection, a hung judicator or an
Unavailable moves the call to the next judicator until its deadline; `report`
alone is tried once, because its sender has a newer report by then. What the
wire throws becomes Rejected, Missing, Oversized or Unavailable here and
nowhere else.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from thrift.Thrift import TApplicationException

from oj.calls import TIMEOUT_S, Calls
from oj.clock import Deadline, backoff
from oj.errors import Missing, Oversized, Rejected, Unavailable, UnknownCall
from oj.link import (
    ALONE_PROBE_S,
    BROKEN,
    CONNECT_S,
    PARKED_QUIET_S,
    PROBE_S,
    QUIET_S,
    Address,
    Link,
    connect,
)
from oj.rpc import ttypes as rpc

DEAD_S = 5.0  # how long one that failed is tried last
LOOK_S = 1.0  # the shortest time between two looks into etcd
LEARN_S = 30.0  # the shortest time between two looks at a judicator's list of its peers


class NobodyListens(Unavailable):
    """Every judicator that is known would be on this machine, and none of them is up."""


class Places:
    """The known addresses, best first. Shared by threads."""

    def __init__(
        self, given: Iterable[Address], find: Callable[[], Collection[Address]] | None, learn: bool
    ) -> None:
        self._lock = threading.Lock()
        self._given = list(dict.fromkeys(given))
        self._found: list[Address] = []
        self._find = find
        self._failed: dict[Address, float] = {}
        self._hung: dict[Address, float] = {}
        self._best: Address | None = None
        self._next_look = 0.0
        self._next_learn = 0.0 if learn else float("inf")
        self.hopeless: Callable[[], bool] = bool

    def ranked(self, avoid: Collection[Address] = ()) -> list[Address]:
        """All of them: the one that works, those as configured, those found, the dead."""
        if self._should_look():
            if self._known():
                # Beside the calls: etcd may be slow for the same reason, and one of them may be
                # back before it answers.
                threading.Thread(target=self._look, name="look", daemon=True).start()
            else:
                self._look()
        known = self._known()
        dead = self._dead()

        def rank(address: Address) -> tuple[bool, float, bool]:
            return (address in avoid, dead.get(address, 0.0), address != self._best)

        return sorted(known, key=rank)

    @property
    def alone(self) -> bool:
        """Whether there is nobody to go to but the one in use."""
        return len(self._known()) < 2

    def _known(self) -> list[Address]:
        with self._lock:
            return list(dict.fromkeys([*self._given, *self._found]))

    def _dead(self) -> dict[Address, float]:
        """Those that failed lately, and when."""
        since_s = time.monotonic() - DEAD_S
        with self._lock:
            return {address: at_s for address, at_s in self._failed.items() if at_s > since_s}

    def _should_look(self) -> bool:
        # Etcd is asked when it matters: nothing is known, or everything has failed.
        if not self._find or set(self._known()) - self._dead().keys():
            return False
        with self._lock:
            if time.monotonic() < self._next_look:
                return False
            self._next_look = time.monotonic() + LOOK_S
            return True

    def _look(self) -> None:
        assert self._find
        try:
            found = list(self._find())
        except Unavailable:
            return
        random.shuffle(found)  # clients spread over the judicators
        with self._lock:
            self._found = found

    def works(self, address: Address) -> None:
        with self._lock:
            self._best = address
            self._failed.pop(address, None)
            if time.monotonic() < self._next_learn:
                return
            self._next_learn = time.monotonic() + LEARN_S
        threading.Thread(target=self._learn, args=(address,), name="learn", daemon=True).start()

    def fails(self, names: Iterable[Address], *, hangs: bool = False) -> None:
        now = dict.fromkeys(names, time.monotonic())
        with self._lock:
            self._failed.update(now)
            if hangs:
                self._hung.update(now)

    def hung_since(self, names: Iterable[Address], then_s: float) -> bool:
        """Whether one of these kept somebody waiting after that moment."""
        return any(self._hung.get(name, 0.0) > then_s for name in names)

    def _learn(self, address: Address) -> None:
        """Asks a judicator for its peers, to have where to go when it dies."""
        try:
            link = connect([address], Deadline(CONNECT_S), lambda *_: None)
            try:
                link.deadline = Deadline(TIMEOUT_S)
                peers = [_split(peer.address) for peer in link.call("judicators")]
            finally:
                link.close()
        except (*BROKEN, ValueError):
            return
        with self._lock:
            self._found = list(dict.fromkeys([*peers, *self._found]))


def _split(text: str) -> Address:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


class Channel(Calls):
    """One connection, to one judicator at a time. Not for several threads at once."""

    def __init__(self, places: Places, timeout_s: float) -> None:
        self._places = places
        self._timeout_s = timeout_s
        self._link: Link | None = None
        self._next: Address | None = None

    @property
    def called_away(self) -> bool:
        """Whether a call of it was ended by `join`, and none has begun since."""
        return self._next is not None

    def join(self, other: Channel) -> None:
        """Goes to the judicator that another channel is connected to, and ends a call that waits
        elsewhere; for another thread than the one that calls."""
        mine, link = self._link, other._link
        if mine and link and mine.names.isdisjoint(link.names):
            self._next = link.address
            mine.interrupt()

    def leave_hung(self) -> None:
        """Ends a call that waits for a judicator that has kept another one waiting meanwhile; for
        another thread than the one that calls."""
        link = self._link
        if link and self._places.hung_since(link.names, link.answered_s):
            link.interrupt()

    @property
    def address(self) -> Address | None:
        """The judicator it is connected to."""
        return self._link.address if self._link else None

    def close(self) -> None:
        if self._link:
            self._link.close()
            self._link = None

    def _call(
        self,
        method: str,
        *arguments: Any,
        deadline: Deadline | None = None,
        wait_s: float = 0.0,
        once: bool = False,
    ) -> Any:
        # Nobody waits longer for a judicator to come back than for an answer, even in a
        # call that is meant to wait; whoever gave a deadline gets all of it.
        given = give_up = deadline
        deadline = deadline or Deadline(wait_s + self._timeout_s)
        pauses = backoff(0.02, 0.2)
        asked: set[Address] = set()  # in this round
        while True:
            began_s = time.monotonic()
            link: Link | None = None
            try:
                link = self._find_sound() or self._open(asked, deadline)
                asked |= link.names
                link.deadline = Deadline(deadline.cap(wait_s + self._timeout_s))
                link.quiet_s = PARKED_QUIET_S if wait_s > QUIET_S else QUIET_S
                link.patience_s = ALONE_PROBE_S if self._places.alone else PROBE_S
                return self._try(link, method, arguments)
            except Unavailable as error:
                if once or (isinstance(error, NobodyListens) and self._places.hopeless()):
                    raise
                # Every other one is asked at once; then it is time for a pause.
                pause_s = 0.0
                if asked.issuperset(self._places.ranked()):
                    asked.clear()
                    pause_s = max(next(pauses), (error.retry_ms or 0) / 1000)
                if link is not None and link.lived_s > began_s:
                    give_up = given  # this one was there, and is lost only now
                give_up = give_up or Deadline(self._timeout_s)
                if min(deadline.left_s, give_up.left_s) <= pause_s:
                    raise Unavailable(f"no judicator answered in time ({error.message})") from None
                time.sleep(pause_s)

    def _find_sound(self) -> Link | None:
        """The connection that there is. One to a judicator that has kept another call waiting since
        is not tried: each would take as long to find out, and a gateway has many of them."""
        if self._link and self._places.hung_since(self._link.names, self._link.answered_s):
            self.close()
        return self._link

    def _open(self, asked: set[Address], deadline: Deadline) -> Link:
        problems = []
        absent = []

        def note(address: Address, error: OSError) -> None:
            asked.add(address)
            if isinstance(error, ConnectionRefusedError) and _is_here(address):
                absent.append(address)
            self._places.fails([address])
            problems.append(f"{_show(address)}: {error.strerror or error}")

        addresses = self._places.ranked(avoid=asked)
        wanted, self._next = self._next, None
        if wanted:
            addresses = [wanted, *(address for address in addresses if address != wanted)]
        if not addresses:
            raise Unavailable("no judicator is known")
        try:
            self._link = connect(addresses, Deadline(deadline.cap(CONNECT_S)), note)
        except OSError:
            why = "; ".join(dict.fromkeys(problems)) or "cannot connect"
            if set(absent) >= set(addresses):
                raise NobodyListens(why) from None
            raise Unavailable(why) from None
        return self._link

    def _try(self, link: Link, method: str, arguments: tuple[Any, ...]) -> Any:
        where = _show(link.address)
        try:
            answer = link.call(method, *arguments)
        except rpc.InvalidRequest as error:
            raise Rejected(error.message, error.field) from None
        except rpc.NotFound as error:
            raise Missing(error.message, error.id) from None
        except rpc.TooLarge as error:
            raise Oversized(error.message, error.limit_bytes or 0, error.field) from None
        except rpc.Unavailable as error:
            self._places.fails(link.names)
            self.close()
            raise Unavailable(f"{where}: {error.message}", error.retry_ms) from None
        except TApplicationException as error:
            self.close()
            if error.type == TApplicationException.UNKNOWN_METHOD:
                raise UnknownCall(f"{where} does not know the call {method}") from None
            self._places.fails(link.names)
            raise Unavailable(f"{where}: {error}") from None
        except BROKEN as error:
            self.close()
            # One that closed an idle connection may be alive, restarted: ask it again first.
            hangs = isinstance(error, TimeoutError)
            if not link.used or hangs:
                self._places.fails(link.names, hangs=hangs)
            raise Unavailable(f"{where}: {getattr(error, 'strerror', None) or error}") from None
        except BaseException:
            # Half a call is in the connection: an answer would reach the wrong caller.
            self.close()
            raise
        link.answered_s = time.monotonic()
        if not link.used:
            link.used = True
            self._places.works(link.address)
        return answer


def _is_here(address: Address) -> bool:
    """Whether it can only be on this machine."""
    host = address[0]
    return host in ("localhost", "::1") or host.startswith("127.")


def _show(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Judicators(Calls):
    """The judicators of a cluster: given by address, found through etcd, or both.

    `learn`: ask a judicator that answers for its peers, to know more addresses.
    `hopeless`: asked when nobody listens at any of the addresses, all of which are on this machine,
    and there is no etcd to ask; true if no judicator is about to come up, so that no wait helps.
    """

    def __init__(
        self,
        addresses: Iterable[Address] = (),
        etcd: Iterable[Address] | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        learn: bool = True,
        prefix: str = "/oj/",
        hopeless: Callable[[], bool] = bool,
    ) -> None:
        etcd = list(etcd or ())
        find = (lambda: _find_in_etcd(etcd, prefix)) if etcd else None
        self._places = Places(addresses, find, learn)
        if find is None:
            self._places.hopeless = hopeless
        self._timeout_s = timeout_s
        self._idle: list[Channel] = []  # what was used last comes last

    def channel(self, timeout_s: float | None = None) -> Channel:
        """A connection of one's own."""
        return Channel(self._places, timeout_s or self._timeout_s)

    @property
    def address(self) -> Address | None:
        """The judicator that the last call to end was connected to."""
        return self._idle[-1].address if self._idle else None

    def close(self) -> None:
        """Closes the connections that no call is using."""
        while self._idle:
            with contextlib.suppress(IndexError):  # another thread was faster
                self._idle.pop().close()

    def _call(
        self,
        method: str,
        *arguments: Any,
        deadline: Deadline | None = None,
        wait_s: float = 0.0,
        once: bool = False,
    ) -> Any:
        try:
            channel = self._idle.pop()
        except IndexError:
            channel = self.channel()
        try:
            return channel._call(method, *arguments, deadline=deadline, wait_s=wait_s, once=once)
        finally:
            self._idle.append(channel)


def _find_in_etcd(endpoints: Sequence[Address], prefix: str) -> list[Address]:
    from oj.registry import Registry  # slow to import: grpc

    with Registry(endpoints, prefix) as registry:
        return [_split(address) for address in registry.judicators().values()]
