"""The registry in etcd: keys under one prefix, leases, and the election of a leader.

Every call has a deadline and fails as `Unavailable`. A Registry goes on by itself when etcd was
away: it connects again, and its leases are kept or granted again with their keys.

Theory of operation. A Lease has one thread, which grants it and then reads the answers of one
LeaseKeepAlive stream for as long as that lasts; gRPC's own thread for the stream runs the generator
that sends the requests. (The library's Lease.refresh opens a stream per refresh, which etcd's gRPC
proxy cancels before it answers.) An Election has a Lease and one thread that campaigns.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, cast

from oj.clock import backoff
from oj.errors import Unavailable
from oj.etcdwire import Connection, Entry, KeepAlive, LeaseGone

log = logging.getLogger("oj.registry")

PREFIX = "/oj/"
JUDICATORS = "judicator/service/"
RENEW_AT_LEAST_EVERY_S = 5.0
CAMPAIGN_EVERY_S = 0.5

Address = tuple[str, int]
Answer = TypeVar("Answer")


class Registry:
    """Keys under `prefix`, at whichever of the endpoints answers."""

    def __init__(
        self, endpoints: Address | Sequence[Address], prefix: str = PREFIX, timeout_s: float = 3.0
    ) -> None:
        one = isinstance(endpoints[0], str)
        pairs = [cast(Address, endpoints)] if one else cast(Sequence[Address], endpoints)
        self._addresses = [format_address(*pair) for pair in pairs]
        self._prefix = prefix if prefix.endswith("/") else prefix + "/"
        self.timeout_s = timeout_s
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._closed = False
        self._leases: list[Lease] = []

    # Keys

    def get(self, key: str) -> str | None:
        entry = self.get_entry(key)
        return entry.value if entry else None

    def get_entry(self, key: str) -> Entry | None:
        name = self._name(key)
        return self._call(lambda c: c.range(name, timeout_s=self.timeout_s)).get(name)

    def get_prefix(self, key: str) -> dict[str, str]:
        """Every key that begins so, without that beginning, with its value; a consistent read."""
        start = self._name(key)
        end = start[:-1] + bytes([start[-1] + 1])
        found = self._call(lambda c: c.range(start, end, timeout_s=self.timeout_s))
        return {name[len(start) :].decode(): entry.value for name, entry in found.items()}

    def put(self, key: str, value: str, lease_id: int = 0) -> None:
        name = self._name(key)
        self._call(lambda c: c.put(name, value, lease_id, timeout_s=self.timeout_s))

    def delete(self, key: str) -> bool:
        name = self._name(key)
        return self._call(lambda c: c.delete(name, timeout_s=self.timeout_s))

    def put_if_absent(self, key: str, value: str, lease_id: int = 0) -> tuple[bool, Entry]:
        """Whether this call made the key, and what stands there now.

        When a connection breaks at the wrong moment, a key that this call made may be reported as
        one found: compare the value.
        """
        name = self._name(key)
        while True:
            won, entry = self._call(
                lambda c: c.put_if(name, None, value, lease_id, timeout_s=self.timeout_s)
            )
            if entry is not None:
                return won, entry

    def replace(self, key: str, old: Entry, value: str) -> bool:
        """Puts a value unless the key has changed since `old` was read."""
        name, lease_id = self._name(key), old.lease_id
        return self._call(lambda c: c.put_if(name, old, value, lease_id, timeout_s=self.timeout_s))[
            0
        ]

    def delete_if_unchanged(self, key: str, old: Entry) -> bool:
        name = self._name(key)
        return self._call(lambda c: c.delete_if(name, old, timeout_s=self.timeout_s))

    def ping(self) -> None:
        """A read that a majority of the members has to confirm."""
        self.get_entry("ping")

    # What the daemons look for

    def judicators(self) -> dict[str, str]:
        """The judicators that are alive: name -> HOST:PORT."""
        return self.get_prefix(JUDICATORS)

    def register(self, key: str, value: str, ttl_s: float) -> Lease:
        """Keeps a key alive from now on; it goes when closed, or when we have been gone `ttl_s`.

        Returns at once: when etcd is away, the key appears once it is back.
        """
        return self.register_all({key: value}, ttl_s)

    def register_all(self, keys: Mapping[str, str], ttl_s: float) -> Lease:
        """The same for several: they appear in this order, and go at once."""
        return Lease(self, ttl_s, keys).start()

    def hurry(self, timeout_s: float) -> None:
        """Gives all calls from now on this time: there is no more."""
        self.timeout_s = min(self.timeout_s, timeout_s)

    def close(self) -> None:
        """Ends what was registered here, then the connection."""
        for lease in list(self._leases):
            lease.close()
        with self._lock:
            self._closed = True
            connection, self._connection = self._connection, None
        if connection:
            connection.close()

    def __enter__(self) -> Registry:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The way to etcd

    def connection(self) -> Connection:
        with self._lock:
            if self._closed:
                raise Unavailable("the registry is closed")
            if self._connection is None:
                self._connection = Connection(self._addresses[0])
            return self._connection

    def turn_away(self, connection: Connection) -> None:
        """Goes on to the next endpoint, when the one in use failed."""
        with self._lock:
            if self._connection is not connection:
                return  # someone else has turned away already
            # gRPC mends broken connections, but cannot tell a silent one from a slow server.
            if len(self._addresses) == 1 and connection.failures < 3:
                return
            self._addresses.append(self._addresses.pop(0))
            self._connection = None
        connection.close()

    def _call(self, ask: Callable[[Connection], Answer]) -> Answer:
        problem: Unavailable | None = None
        for _ in range(len(self._addresses)):
            connection = self.connection()
            try:
                return ask(connection)
            except Unavailable as error:
                problem = error
                self.turn_away(connection)
        assert problem is not None
        raise problem

    def _name(self, key: str) -> bytes:
        return (self._prefix + key).encode()

    # For leases alone

    def grant(self, ttl_s: float) -> tuple[int, float]:
        return self._call(lambda c: c.grant(round(ttl_s), timeout_s=self.timeout_s))

    def revoke(self, lease_id: int) -> None:
        with contextlib.suppress(LeaseGone):
            self._call(lambda c: c.revoke(lease_id, timeout_s=self.timeout_s))

    def adopt(self, lease: Lease) -> None:
        self._leases.append(lease)

    def forget(self, lease: Lease) -> None:
        with contextlib.suppress(ValueError):
            self._leases.remove(lease)


class Lease:
    """A lease that is kept until closed, with the keys that live by it."""

    def __init__(
        self, registry: Registry, ttl_s: float, keys: Mapping[str, str] | None = None
    ) -> None:
        self._registry = registry
        self._ttl_s = max(2.0, ttl_s)  # etcd grants nothing shorter
        self._interval_s = min(self._ttl_s / 3, RENEW_AT_LEAST_EVERY_S)
        self._keys = dict(keys or {})
        self._what = ", ".join(self._keys) or "an election"
        self._lock = threading.Lock()
        self._id = 0
        self._valid_until_s = 0.0
        self._stop = threading.Event()
        self._held = threading.Event()
        self._stream: KeepAlive | None = None
        self._thread = threading.Thread(target=self._run, name="lease", daemon=True)

    def start(self) -> Lease:
        self._registry.adopt(self)
        self._thread.start()
        return self

    @property
    def id(self) -> int:
        """The lease's number; changes when the lease was lost and granted again, 0 before."""
        return self._id

    @property
    def valid(self) -> bool:
        """Whether etcd cannot have let it run out yet: counted from before the last request."""
        return self._id != 0 and time.monotonic() < self._valid_until_s

    def wait(self, timeout_s: float) -> bool:
        """Waits until its keys stand in etcd for the first time."""
        return self._held.wait(timeout_s)

    def close(self, revoke: bool = True) -> None:
        """Stops keeping it. Revoked, its keys go now; else they outlive us by the lease's time."""
        if self._stop.is_set():
            return
        self._stop.set()
        with self._lock:
            if self._stream:
                self._stream.end()
        self._thread.join(2 * self._registry.timeout_s)
        self._registry.forget(self)
        if revoke and self._id:
            try:
                self._registry.revoke(self._id)
            except Unavailable as error:
                log.warning("the lease of %s is left to run out: %s", self._what, error)
        self._id = 0

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        pauses = backoff(0.1, 1.0)
        complained = False
        while not self._stop.is_set():
            try:
                if not self._id:
                    self._grant()
                if self._keep():
                    pauses, complained = backoff(0.1, 1.0), False
            except LeaseGone:
                log.warning("the lease of %s has run out; taking a new one", self._what)
                self._id = 0
                continue
            except Unavailable as error:
                if not complained:
                    complained = True
                    log.warning("cannot keep the lease of %s: %s", self._what, error)
            self._stop.wait(next(pauses))

    def _grant(self) -> None:
        asked_s = time.monotonic()
        lease_id, ttl_s = self._registry.grant(self._ttl_s)
        for key, value in self._keys.items():
            self._registry.put(key, value, lease_id)
        self._valid_until_s = asked_s + ttl_s
        self._id = lease_id
        self._held.set()
        log.info("holding a lease of %g s for %s", ttl_s, self._what)

    def _keep(self) -> bool:
        """Reads one stream's answers until it breaks; whether there were any.

        Raises LeaseGone when etcd says that it has dropped the lease.
        """
        connection = self._registry.connection()
        stream = KeepAlive(connection, self._id, self._interval_s)
        with self._lock:
            if self._stop.is_set():
                return False
            self._stream = stream
        try:
            for sent_s, ttl_s in stream.answers():
                if ttl_s <= 0:
                    raise LeaseGone
                self._valid_until_s = sent_s + ttl_s
                connection.failures = 0
        except Unavailable:
            if not self._stop.is_set():
                self._registry.turn_away(connection)
                if not stream.answered:
                    raise
        finally:
            stream.end()
        return stream.answered


class Election:
    """Stands for leadership until closed; at most one of all candidates leads.

    `leading` turns false by this process's own clock before etcd can give the lease to another,
    also when the process was paused. `fence` is etcd's revision of the victory: it only grows from
    leader to leader, so writes that carry it can be told from those of an earlier leader.
    """

    def __init__(
        self,
        registry: Registry,
        key: str,
        name: str,
        ttl_s: float = 5.0,
        on_change: Callable[[bool], None] | None = None,
    ) -> None:
        self._registry, self._key, self._name, self._ttl_s = registry, key, name, ttl_s
        self._on_change = on_change
        self._lease = Lease(registry, ttl_s)
        self._held: Entry | None = None
        self._told = False
        self._aside_until_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="election", daemon=True)

    def start(self) -> Election:
        self._lease.start()
        self._thread.start()
        return self

    @property
    def leading(self) -> bool:
        return self.fence != 0

    @property
    def fence(self) -> int:
        """The revision of our victory; 0 when not leading."""
        held = self._held
        if held is None or held.lease_id != self._lease.id or not self._lease.valid:
            return 0
        return held.create_revision

    def leader(self) -> str | None:
        """Who leads, as etcd says now."""
        return self._registry.get(self._key)

    def resign(self) -> None:
        """Lets another lead, and stands aside for one lease's time."""
        self._aside_until_s = time.monotonic() + self._ttl_s
        held, self._held = self._held, None
        if held:
            self._registry.delete_if_unchanged(self._key, held)

    def close(self, revoke: bool = True) -> None:
        """Resigns for good, at once; or, if that is not to be told to etcd, with the lease."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join(2 * self._registry.timeout_s)
        self._held = None
        self._lease.close(revoke)
        self._tell()

    def __enter__(self) -> Election:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._step()
            except (Unavailable, LeaseGone) as error:
                log.debug("election: %r", error)
            except Exception:
                log.exception("election failed; trying again")
            self._stop.wait(CAMPAIGN_EVERY_S)

    def _step(self) -> None:
        lease_id = self._lease.id
        self._tell()
        if not self._lease.valid or time.monotonic() < self._aside_until_s:
            return
        # Read first: a transaction that may write goes to the disk of every member.
        entry = self._registry.get_entry(self._key)
        if entry is None:
            _, entry = self._registry.put_if_absent(self._key, self._name, lease_id)
        # By the lease, not by who won: the answer to a victory may have been lost.
        mine = entry.lease_id == lease_id and time.monotonic() >= self._aside_until_s
        self._held = entry if mine else None
        self._tell()

    def _tell(self) -> None:
        leading = self.leading
        if leading != self._told:
            self._told = leading
            if self._on_change:
                self._on_change(leading)


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
