"""How many tasks ended how: counted when they end, not by looking at them all.

    counts: _id "judicator NAME", s {status: n}, v {verdict: n}: what it has seen end
            _id "ended": the same for what no judicator's own document has

Each judicator counts in memory and writes its totals once a second; writing them twice does no
harm. One that is killed loses that second's. A new leader counts all tasks by index, if they are
not too many for that, and what is missing goes to "ended"; only while no task ends, because of one
that ends just then nobody could say whether it is in a total. Tasks that are not done are counted
by index.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pymongo.client_session import ClientSession
from pymongo.database import Database

from oj.judicator.store.database import DURABLE, QUICK, at_the_edge
from oj.judicator.store.ids import time_ms_of
from oj.model import FINAL, WAITING, Status, Verdict

# A count that took long is kept for this many times as long.
KEEP_FACTOR = 20
KEEP_LEAST_S = 0.5
RECOUNT_MOST = 1_000_000


class Counts:
    """What stats() tells of tasks."""

    def __init__(self, database: Database[Any], judicator: str = "") -> None:
        self._tasks = database.get_collection("tasks")
        self._counts = database.get_collection("counts", write_concern=QUICK)
        self._durable = database.get_collection("counts", write_concern=DURABLE)
        self._own = f"judicator {judicator}"
        self._lock = threading.Lock()
        self._gathered: Counter[str] = Counter()
        self._loading = threading.Lock()
        self._totals: Counter[str] | None = None  # as stored when we started, and ours since then
        self._changed = False
        self._looking = threading.Lock()
        self._unfinished: dict[Status, int] = {}
        self._oldest_add_ms: int | None = None
        self._good_until_s = 0.0

    def ended(self, status: Status, verdict: Verdict | None) -> None:
        with self._lock:
            self._gathered[f"s.{int(status)}"] += 1
            if verdict is not None:
                self._gathered[f"v.{int(verdict)}"] += 1

    @at_the_edge
    def flush(self) -> None:
        with self._loading:
            if self._totals is None:
                self._totals = _flatten(self._counts.find_one({"_id": self._own}))
        with self._lock:
            self._totals.update(self._gathered)
            self._changed = self._changed or bool(self._gathered)
            self._gathered.clear()
            if not self._changed:
                return
            totals = dict(self._totals)
            self._changed = False
        try:
            # They only grow: whichever of two threads comes last, the larger ones stay.
            self._counts.update_one({"_id": self._own}, {"$max": totals}, upsert=True)
        except Exception:
            self._changed = True
            raise

    @at_the_edge
    def count_all(self, most: int = RECOUNT_MOST) -> Counter[str] | None:
        """All ended tasks, by index; None if they are too many for that."""
        if self._tasks.estimated_document_count() > most:
            return None
        found: Counter[str] = Counter()
        for status in FINAL:
            found[f"s.{int(status)}"] = self._tasks.count_documents(
                {"s": int(status)}, hint="status"
            )
        for verdict in Verdict:
            found[f"v.{int(verdict)}"] = self._tasks.count_documents(
                {"v": int(verdict)}, hint="verdict"
            )
        return found

    @at_the_edge
    def stored(self) -> Counter[str]:
        """The totals of all judicators together."""
        self.flush()
        total: Counter[str] = Counter()
        for document in self._counts.find({}, hint="_id_"):
            total.update(_flatten(document))
        return total

    @at_the_edge
    def make_good(self, missing: Mapping[str, int], session: ClientSession) -> None:
        """Adds what was found to be missing (or too much); for the leader."""
        self._durable.update_one(
            {"_id": "ended"}, {"$inc": dict(missing)}, upsert=True, session=session
        )

    @at_the_edge
    def recount(self, most: int = RECOUNT_MOST) -> None:
        """Counts everything anew, in a database that no judicator uses."""
        found = self.count_all(most)
        if found is not None:
            self._durable.delete_many({"_id": {"$ne": "ended"}})
            self._durable.update_one({"_id": "ended"}, {"$set": dict(found)}, upsert=True)

    def ended_so_far(self) -> tuple[dict[Status, int], dict[Verdict, int]]:
        total = self.stored()
        statuses = {s: n for s in FINAL if (n := total[f"s.{int(s)}"]) > 0}
        verdicts = {v: n for v in Verdict if (n := total[f"v.{int(v)}"]) > 0}
        return statuses, verdicts

    @at_the_edge
    def unfinished(self) -> tuple[dict[Status, int], int | None]:
        """Tasks by status that are not final, and when the oldest that waits was added."""
        with self._looking:
            started_s = time.monotonic()
            if started_s >= self._good_until_s:
                self._unfinished = {
                    status: self._tasks.count_documents({"s": int(status)}, hint="status")
                    for status in Status
                    if status not in FINAL
                }
                self._oldest_add_ms = self._find_oldest()
                cost_s = time.monotonic() - started_s
                self._good_until_s = started_s + max(KEEP_LEAST_S, KEEP_FACTOR * cost_s)
            return self._unfinished, self._oldest_add_ms

    def _find_oldest(self) -> int | None:
        oldest = [
            document["_id"]
            for status in WAITING
            for document in self._tasks.find(
                {"s": int(status)}, {"_id": 1}, sort=[("s", 1), ("_id", 1)], limit=1, hint="status"
            )
        ]
        return min(map(time_ms_of, oldest), default=None)


def _flatten(document: Mapping[str, Any] | None) -> Counter[str]:
    return Counter(
        {
            f"{kind}.{key}": n
            for kind in ("s", "v")
            for key, n in ((document or {}).get(kind) or {}).items()
        }
    )
