"""How often one client may do what: counts per minute, shared by all processes of this gateway.

Under uWSGI the counts lie in its cache, which every process sees; elsewhere (a plain WSGI server)
in this process. A count belongs to a minute by its key, so that nothing has to be reset.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict

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


def too_many(what: str) -> Problem:
    return Problem(429, what, headers={"Retry-After": str(left_s())})


class Streams:
    """Event streams at one time, which hold a thread each: of one client, and of all."""

    def __init__(self, of_one: int, of_all: int) -> None:
        self._of_one, self._of_all = of_one, of_all
        self._lock = threading.Lock()
        self._open: dict[str, int] = {}
        self._total = 0

    def enter(self, client: str) -> None:
        with self._lock:
            if self._total >= self._of_all:
                raise Problem(503, "too many event streams are open", headers={"Retry-After": "5"})
            if self._open.get(client, 0) >= self._of_one:
                raise too_many(f"you have {self._of_one} event streams open already")
            self._open[client] = self._open.get(client, 0) + 1
            self._total += 1

    def leave(self, client: str) -> None:
        with self._lock:
            self._total -= 1
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]

    @property
    def total(self) -> int:
        return self._total
