"""How often one client may do what: counts per minute, shared by all processes of this gateway.

Under uWSGI the counts lie in its cache, which every process sees; elsewhere (a plain WSGI server)
in this process. A count belongs to a minute by its key, so that nothing has to be reset.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator

from oj.gateway.ini import CACHE, CACHED_KEY_BYTES
from oj.gateway.problems import Problem

try:
    import uwsgi  # type: ignore[import-untyped]  # there is one only inside uWSGI
except ImportError:
    uwsgi = None

WINDOW_S = 60
_KEPT = 10_000


class Counters:
    """Counts by kind and client within the present minute."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: OrderedDict[str, int] = OrderedDict()

    def add(self, kind: str, client: str, amount: int = 1) -> int:
        """The count after adding."""
        key = self._key(kind, client)
        if uwsgi is not None:
            uwsgi.cache_inc(key, amount, 2 * WINDOW_S, CACHE)
            return int(uwsgi.cache_num(key, CACHE) or 0)
        with self._lock:
            self._counts[key] = self._counts.get(key, 0) + amount
            if len(self._counts) > _KEPT:
                self._counts.popitem(last=False)
            return self._counts[key]

    def get(self, kind: str, client: str) -> int:
        key = self._key(kind, client)
        if uwsgi is not None:
            return int(uwsgi.cache_num(key, CACHE) or 0)
        with self._lock:
            return self._counts.get(key, 0)

    def flag(self, name: str, lasts_s: int) -> None:
        """Makes something known to every process for a while."""
        if uwsgi is not None:
            uwsgi.cache_update(f"flag:{name}"[:CACHED_KEY_BYTES], b"1", lasts_s, CACHE)

    def flagged(self, name: str) -> bool:
        key = f"flag:{name}"[:CACHED_KEY_BYTES]
        return uwsgi is not None and bool(uwsgi.cache_exists(key, CACHE))

    def _key(self, kind: str, client: str) -> str:
        # Clients' names may be long; the cache's keys may not.
        name = hashlib.blake2s(client.encode(), digest_size=12).hexdigest()
        return f"{kind}:{int(time.time()) // WINDOW_S}:{name}"


def left_s() -> int:
    """Until the next minute begins."""
    return WINDOW_S - int(time.time()) % WINDOW_S


def too_many(what: str, retry_s: int | None = None) -> Problem:
    wait_s = left_s() if retry_s is None else retry_s
    return Problem(429, what, headers={"Retry-After": str(wait_s)})


class Threads:
    """Threads of this process that may be held for long, by whatever kind of request.

    One client has a third of them at most: the bounds of each kind are together more than that.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.of_one = max(1, most // 3)
        self.held = 0
        self.by_client: dict[str, int] = {}
        self.lock = threading.Lock()

    # With the lock held:

    def has_room(self, client: str) -> bool:
        return self.held < self.most and self.by_client.get(client, 0) < self.of_one

    def hold(self, client: str) -> None:
        self.by_client[client] = self.by_client.get(client, 0) + 1
        self.held += 1

    def let_go(self, client: str) -> None:
        self.held -= 1
        self.by_client[client] -= 1
        if not self.by_client[client]:
            del self.by_client[client]


class Seats:
    """Requests of one kind that hold a thread for long: so many of one client, and of all."""

    def __init__(self, what: str, of_one: int, of_all: int, threads: Threads, retry_s: int) -> None:
        self._what, self._of_one, self._of_all = what, of_one, of_all
        self._threads, self._retry_s = threads, retry_s
        self._open: dict[str, int] = {}
        self._total = 0

    def enter(self, client: str) -> None:
        threads = self._threads
        with threads.lock:
            if self._open.get(client, 0) >= self._of_one:
                raise too_many(f"you have {self._of_one} {self._what} open already", self._retry_s)
            if threads.by_client.get(client, 0) >= threads.of_one:
                raise too_many(
                    f"you have {threads.of_one} event streams, waiting requests and large "
                    "downloads open already",
                    self._retry_s,
                )
            if self._total >= self._of_all or threads.held >= threads.most:
                raise Problem(
                    503,
                    f"too many {self._what} are open",
                    headers={"Retry-After": str(self._retry_s)},
                )
            self._open[client] = self._open.get(client, 0) + 1
            self._total += 1
            threads.hold(client)

    def leave(self, client: str) -> None:
        threads = self._threads
        with threads.lock:
            threads.let_go(client)
            self._total -= 1
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]

    @property
    def total(self) -> int:
        return self._total


class Turns:
    """Work that takes the processor for long: so much of it at one time, of one client.

    Whoever comes meanwhile waits for a turn, with one of the threads that may be held for long.
    """

    def __init__(self, what: str, at_once: int, threads: Threads, wait_s: float) -> None:
        self._what, self._at_once, self._wait_s = what, at_once, wait_s
        self._threads = threads
        self._ended = threading.Condition(threads.lock)
        self._running: dict[str, int] = {}

    @contextlib.contextmanager
    def take(self, client: str) -> Iterator[None]:
        with self._ended:
            if not self._may_run(client):
                self._wait(client)
            self._running[client] = self._running.get(client, 0) + 1
        try:
            yield
        finally:
            with self._ended:
                self._running[client] -= 1
                if not self._running[client]:
                    del self._running[client]
                self._ended.notify_all()

    def _may_run(self, client: str) -> bool:
        return self._running.get(client, 0) < self._at_once

    def _wait(self, client: str) -> None:
        if not self._threads.has_room(client):
            raise too_many(f"too many of your {self._what} wait for each other", 1)
        self._threads.hold(client)
        try:
            if not self._ended.wait_for(lambda: self._may_run(client), self._wait_s):
                raise too_many(f"your other {self._what} take too long", 1)
        finally:
            self._threads.let_go(client)


class Memory:
    """Bytes that requests of this process have in hand: of one client, and of all.

    What a request takes is charged to a Bill, which is paid back when the request ends. A request
    alone is never refused: its bill goes up to what one client may have, and no further. Small
    ones are free, so that they are served while large ones fill the rest; there are at most as
    many of them as threads.
    """

    FREE_BYTES = 256 << 10

    def __init__(self, of_one_bytes: int, of_all_bytes: int) -> None:
        self._of_one, self._of_all = of_one_bytes, of_all_bytes
        self._lock = threading.Lock()
        self._freed = threading.Condition(self._lock)
        self._held: dict[str, int] = {}
        self._total = 0

    def open(self, client: str) -> Bill:
        return Bill(self, client)

    @property
    def total_bytes(self) -> int:
        return self._total

    def change(self, client: str, held: int, wanted: int) -> int:
        """What the bill stands at afterwards; 429 or 503 if there is no more."""
        wanted = 0 if wanted <= self.FREE_BYTES else min(wanted, self._of_one)
        more = wanted - held
        with self._lock:
            if more > 0 and self._held.get(client, 0) + more > self._of_one:
                raise too_many("your other requests fill the memory that you may use", 1)
            if more > 0 and self._total + more > self._of_all:
                raise Problem(
                    503, "large requests fill the gateway's memory", headers={"Retry-After": "2"}
                )
            self._total += more
            self._held[client] = self._held.get(client, 0) + more
            if self._held[client] <= 0:
                del self._held[client]
            if more < 0:
                self._freed.notify_all()
        return wanted

    def held_by(self, client: str) -> int:
        return self._held.get(client, 0)

    def wait_for_less(self, timeout_s: float) -> None:
        """Until somebody gives some back."""
        with self._lock:
            self._freed.wait(timeout_s)


class Bill:
    """What one request has in hand."""

    def __init__(self, memory: Memory, client: str) -> None:
        self.memory, self._client = memory, client
        self._wanted = 0
        self._held = 0

    @property
    def held(self) -> int:
        return self._held

    def add(self, amount_bytes: int) -> None:
        """Takes so much more; less than nothing gives some back."""
        self._held = self.memory.change(self._client, self._held, self._wanted + amount_bytes)
        self._wanted += amount_bytes

    def close(self) -> None:
        self._held = self.memory.change(self._client, self._held, 0)
        self._wanted = 0
