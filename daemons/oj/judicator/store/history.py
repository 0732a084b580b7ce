"""What happened minute by minute, for charts.

    minutes: _id minutes since 1970, n added, s {status: n}, v {verdict: n},
             w {step: n} and j {step: n}: histograms of waiting and judging, x when it may go

Tasks that were added and ended here gather in memory. Once a second the times of
those that ended are looked up, by id in one query, and all is added to the
database. A judicator that is killed loses that second's: charts are no accounts.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from bson import ObjectId
from pymongo import ASCENDING, IndexModel, UpdateOne
from pymongo.database import Database

from oj.clock import utc_now
from oj.judicator.store.database import QUICK, at_the_edge, to_ms
from oj.judicator.store.ids import time_ms_of
from oj.model import Status, Verdict

MINUTE_MS = 60_000
STEPS = 24  # HISTOGRAM_STEPS of the IDL
KEPT = timedelta(days=30)
MOST_MINUTES = 1440
MOST_GATHERED = 20_000


@dataclass(frozen=True)
class Minute:
    time_ms: int
    added: int
    ended: dict[Status, int]
    verdicts: dict[Verdict, int]
    waiting: tuple[int, ...]
    judging: tuple[int, ...]


def step_of(duration_ms: int) -> int:
    """Where a duration belongs in a histogram: entry i has those below 2^i ms."""
    return min(max(duration_ms, 0).bit_length(), STEPS - 1)


class History:
    def __init__(self, database: Database[Any]) -> None:
        self._tasks = database.get_collection("tasks")
        self._minutes = database.get_collection("minutes", write_concern=QUICK)
        self._lock = threading.Lock()
        self._added: Counter[int] = Counter()
        self._ended: list[str] = []

    @at_the_edge
    def make_indexes(self) -> None:
        self._minutes.create_indexes(
            [IndexModel([("x", ASCENDING)], name="expiry", expireAfterSeconds=0)]
        )

    def added(self, task_id: str) -> None:
        with self._lock:
            self._added[time_ms_of(ObjectId(task_id)) // MINUTE_MS] += 1

    def ended(self, task_id: str) -> None:
        with self._lock:
            if len(self._ended) < MOST_GATHERED:
                self._ended.append(task_id)

    @at_the_edge
    def flush(self) -> None:
        with self._lock:
            added, self._added = self._added, Counter()
            ended, self._ended = self._ended, []
        if not added and not ended:
            return
        increments: dict[int, Counter[str]] = defaultdict(Counter)
        for minute, count in added.items():
            increments[minute]["n"] += count
        if ended:
            query = {"_id": {"$in": [ObjectId(task_id) for task_id in ended]}}
            for document in self._tasks.find(query, {"s": 1, "v": 1, "ct": 1, "rt": 1}):
                _count(document, increments)
        expires = utc_now() + KEPT
        self._minutes.bulk_write(
            [
                UpdateOne(
                    {"_id": minute},
                    {"$inc": dict(counts), "$setOnInsert": {"x": expires}},
                    upsert=True,
                )
                for minute, counts in increments.items()
            ],
            ordered=False,
        )

    @at_the_edge
    def read(self, since_ms: int) -> list[Minute]:
        self.flush()
        newest = self._minutes.find(
            {"_id": {"$gte": since_ms // MINUTE_MS}}, sort=[("_id", -1)], limit=MOST_MINUTES
        )
        return [_to_minute(document) for document in reversed(list(newest))]


def _count(document: Any, increments: dict[int, Counter[str]]) -> None:
    ended_ms = to_ms(document.get("rt"))
    if ended_ms is None:
        return
    counts = increments[ended_ms // MINUTE_MS]
    counts[f"s.{document['s']}"] += 1
    if document.get("v") is not None:
        counts[f"v.{document['v']}"] += 1
    started_ms = to_ms(document.get("ct"))
    if started_ms is not None:
        counts[f"w.{step_of(started_ms - time_ms_of(document['_id']))}"] += 1
        counts[f"j.{step_of(ended_ms - started_ms)}"] += 1


def _to_minute(document: Any) -> Minute:
    def histogram(key: str) -> tuple[int, ...]:
        counts = document.get(key, {})
        return tuple(counts.get(str(step), 0) for step in range(STEPS))

    return Minute(
        time_ms=document["_id"] * MINUTE_MS,
        added=document.get("n", 0),
        ended={Status(int(key)): n for key, n in document.get("s", {}).items()},
        verdicts={Verdict(int(key)): n for key, n in document.get("v", {}).items()},
        waiting=histogram("w"),
        judging=histogram("j"),
    )
