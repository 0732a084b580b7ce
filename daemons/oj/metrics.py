"""A daemon's numbers for Prometheus, on a port of their own.

Counting needs nothing and costs a dictionary's increment, so the code counts whether anybody asks
or not. Only telling needs Debian's python3-prometheus-client: without it there is a line in the log
and no port. A port that is taken is a warning, too: no daemon fails for its numbers.

Who asks is served by one thread, one after the other; a client that is slow keeps only other
clients of this port waiting.
"""

from __future__ import annotations

import bisect
import contextlib
import http.server
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from oj import __version__

Address = tuple[str, int]

SLOW_S = 5.0  # a client gets so long to say what it wants, and to take the answer
BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 30.0)

log = logging.getLogger("oj.metrics")


class Count:
    """Something that only grows, by the words of one label or without one."""

    def __init__(self, name: str, text: str, label: str = "", words: Iterable[str] = ()) -> None:
        """`words` are there from the start, with 0: what has not happened yet is seen as such."""
        self.name, self.text, self.label = name, text, label
        self._lock = threading.Lock()
        self._values: dict[str, int] = dict.fromkeys(words if label else ("",), 0)

    def add(self, word: str = "", many: int = 1) -> None:
        with self._lock:
            self._values[word] = self._values.get(word, 0) + many

    def read(self) -> dict[str, int]:
        with self._lock:
            return dict(self._values)


class Timing:
    """How long something took, by the words of one label or without one."""

    def __init__(self, name: str, text: str, label: str = "") -> None:
        self.name, self.text, self.label = name, text, label
        self._lock = threading.Lock()
        self._steps: dict[str, list[int]] = {}
        self._sums_s: dict[str, float] = {}

    def note(self, seconds: float, word: str = "") -> None:
        step = bisect.bisect_left(BUCKETS_S, seconds)
        with self._lock:
            steps = self._steps.get(word)
            if steps is None:
                steps = self._steps[word] = [0] * (len(BUCKETS_S) + 1)
                self._sums_s[word] = 0.0
            steps[step] += 1
            self._sums_s[word] += seconds

    @contextlib.contextmanager
    def time(self, word: str = "") -> Iterator[None]:
        begun_s = time.monotonic()
        try:
            yield
        finally:
            self.note(time.monotonic() - begun_s, word)

    def read(self) -> dict[str, tuple[list[int], float]]:
        with self._lock:
            return {word: (list(steps), self._sums_s[word]) for word, steps in self._steps.items()}


@dataclass(frozen=True)
class Reading:
    """Something as it is now."""

    name: str
    text: str
    value: float
    label: str = ""
    word: str = ""


Look = Callable[[], Iterable[Reading]]


@contextlib.contextmanager
def served(
    role: str, address: Address | None, numbers: Sequence[Count | Timing], look: Look
) -> Iterator[None]:
    """Tells the numbers at http://ADDRESS/metrics meanwhile; without an address, to nobody."""
    server = _open(role, address, numbers, look) if address else None
    if server is None:
        yield
        return
    threading.Thread(target=server.serve, name="metrics", daemon=True).start()
    try:
        yield
    finally:
        server.stop()


def _open(
    role: str, address: Address, numbers: Sequence[Count | Timing], look: Look
) -> _Server | None:
    try:
        from prometheus_client import CollectorRegistry
    except ImportError:
        log.info("no metrics: python3-prometheus-client is not installed")
        return None
    registry = CollectorRegistry()
    collector: Any = _Collector(role, numbers, look)
    registry.register(collector)
    try:
        return _Server(address, registry)
    except OSError as error:
        log.warning("no metrics: %s:%d: %s", *address, error.strerror or error)
        return None


class _Collector:
    """The Prometheus library's view of our numbers."""

    def __init__(self, role: str, numbers: Sequence[Count | Timing], look: Look) -> None:
        self._role, self._numbers, self._look = role, numbers, look

    def describe(self) -> list[Any]:
        return []  # else the library would look now, when nothing is there yet

    def collect(self) -> Iterator[Any]:
        from prometheus_client import core

        info = core.GaugeMetricFamily("oj_info", "Version", labels=["role", "version"])
        info.add_metric([self._role, __version__], 1)
        yield info
        for one in self._numbers:
            labels = [one.label] if one.label else []
            if isinstance(one, Count):
                count = core.CounterMetricFamily(one.name, one.text, labels=labels)
                for word, value in one.read().items():
                    count.add_metric([word] if labels else [], value)
                yield count
            else:
                timing = core.HistogramMetricFamily(one.name, one.text, labels=labels)
                for word, (steps, sum_s) in one.read().items():
                    timing.add_metric([word] if labels else [], _add_up(steps), sum_s)
                yield timing
        gauges: dict[str, Any] = {}
        for reading in self._look():
            labels = [reading.label] if reading.label else []
            gauge = gauges.get(reading.name)
            if gauge is None:
                gauge = core.GaugeMetricFamily(reading.name, reading.text, labels=labels)
                gauges[reading.name] = gauge
            gauge.add_metric([reading.word] if labels else [], reading.value)
        yield from gauges.values()


def _add_up(steps: Sequence[int]) -> list[tuple[str, float]]:
    """Prometheus's buckets, each of which holds those below it as well."""
    total, buckets = 0, []
    for bound, count in zip([*map(str, BUCKETS_S), "+Inf"], steps, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets


class _Server(http.server.HTTPServer):
    def __init__(self, address: Address, registry: Any) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.registry = registry
        self._stopping = False
        super().__init__(address, _Handler)

    def serve(self) -> None:
        # Not serve_forever, which wakes up twice a second to see whether it shall end.
        while not self._stopping:
            self.handle_request()
        self.server_close()

    def stop(self) -> None:
        """Does not wait for whoever is being answered."""
        self._stopping = True
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)  # wakes who waits for a client

    def server_bind(self) -> None:
        # Without the base class's question to DNS for a name that nobody uses.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a client of the metrics went away")


class _Handler(http.server.BaseHTTPRequestHandler):
    timeout = SLOW_S
    server_version, sys_version = "oj", ""

    def do_GET(self) -> None:
        from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

        if self.path.partition("?")[0] != "/metrics":
            self.send_error(404)
            return
        try:
            text = generate_latest(self.server.registry)  # type: ignore[attr-defined]
        except Exception:
            log.exception("the numbers cannot be told")
            self.send_error(500)
            return
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE_LATEST)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        pass  # one line in the journal for each scrape would be all that is in it
