"""What is told of the cluster: executors, judicators and statistics."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from oj.judicator.store.counts import Counts
from oj.judicator.store.roster import Executor, Roster
from oj.model import WAITING, Status, Verdict
from oj.registry import Registry

ROSTER_KEPT_S = 0.5
LEADER_KEY = "judicator/leader"
PREFIX = "judicator/"
SERVICE_PREFIX = PREFIX + "service/"
# What a judicator does that those before it did not, and others must know of: words.
ABLE_PREFIX = PREFIX + "able/"
KEEPS_BLOBS = "keeps-blobs"  # its adds take the mark of an unused blob away
GRACE_S = 10.0


@dataclass(frozen=True)
class Stats:
    by_status: dict[Status, int]
    by_verdict: dict[Verdict, int]
    queue: int
    oldest_pending_ms: int | None
    executors: int
    slots: int
    executing: int


class Cluster:
    """Looks around, and remembers what it saw for a second."""

    def __init__(self, registry: Registry, roster: Roster, counts: Counts) -> None:
        self._registry = registry
        self._roster = roster
        self._counts = counts
        self._lock = threading.Lock()
        self._executors: list[Executor] = []
        self._executors_until_s = 0.0

    def executors(self) -> list[Executor]:
        return self._roster.read_all(GRACE_S)

    def drained(self) -> set[str]:
        return self._roster.find_drained()

    def contested(self) -> set[str]:
        return self._roster.find_contested()

    def executors_lately(self) -> list[Executor]:
        """As they were a moment ago."""
        with self._lock:
            now_s = time.monotonic()
            if now_s >= self._executors_until_s:
                self._executors = self.executors()
                self._executors_until_s = now_s + ROSTER_KEPT_S
            return self._executors

    def find_careless(self) -> set[str]:
        """Judicators that add tasks without taking the marks of their blobs away."""
        found = self._registry.get_prefix(PREFIX)
        service, able = SERVICE_PREFIX.removeprefix(PREFIX), ABLE_PREFIX.removeprefix(PREFIX)
        serving = {key.removeprefix(service) for key in found if key.startswith(service)}
        return {name for name in serving if KEEPS_BLOBS not in found.get(able + name, "").split()}

    def judicators(self) -> list[tuple[str, str, bool]]:
        """Name, address, and whether it leads."""
        leader = self._registry.get(LEADER_KEY)
        return [
            (name, address, name == leader)
            for name, address in sorted(self._registry.judicators().items())
        ]

    def stats(self) -> Stats:
        by_status, by_verdict = self._counts.ended_so_far()
        unfinished, oldest_ms = self._counts.unfinished()
        executors = [e for e in self.executors_lately() if not e.silent]
        age_ms = None if oldest_ms is None else max(0, int(time.time() * 1000) - oldest_ms)
        return Stats(
            by_status={**by_status, **unfinished},
            by_verdict=by_verdict,
            queue=sum(unfinished[status] for status in WAITING),
            oldest_pending_ms=age_ms,
            executors=len(executors),
            slots=sum(e.facts.slots for e in executors if e.facts),
            executing=sum(e.executing for e in executors),
        )
