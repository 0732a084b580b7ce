"""What happens to all tasks, in order, for those who watch the whole cluster.

Theory of operation. A thread reads MongoDB's change stream, of every judicator's
changes, and keeps the last few thousand events in memory; it starts with the
first caller and ends when nobody has asked for a while. Callers wait for events
after their cursor. A cursor is the stream's resume token, which is the same at
every judicator and sorts as text in the order of events. One that is older than
what is kept here is served from the database's own log; one that even that has
forgotten gets a gap, and the news from now on.
"""

from __future__ import annotations

import bisect
import logging
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from bson import ObjectId
from pymongo.database import Database
from pymongo.errors import OperationFailure, PyMongoError

from oj.clock import Deadline, backoff
from oj.errors import Rejected, Unavailable
from oj.judicator.store.database import at_the_edge, is_passing, to_ms
from oj.model import Status, Verdict
from oj.redact import say

log = logging.getLogger("oj.judicator.store.happenings")

KEPT = 5_000
AWAIT_MS = 1_000
OPEN_S = 5.0
IDLE_S = 120.0
KNOWN = 20_000
MOST_AT_ONCE = 1_000
_CURSOR = re.compile(r"[0-9A-Fa-f]{16,1024}\Z")
_FIELDS = ("s", "v", "td", "e", "a", "sc")

_UPDATED = "updateDescription.updatedFields"
PIPELINE: list[dict[str, Any]] = [
    {
        "$match": {
            "$or": [
                {"operationType": "insert"},
                {
                    "operationType": "update",
                    "$or": [
                        {f"{_UPDATED}.s": {"$exists": True}},
                        {f"{_UPDATED}.td": {"$exists": True}},
                    ],
                },
            ]
        }
    },
    {
        "$project": {
            "operationType": 1,
            "documentKey": 1,
            "wallTime": 1,
            "clusterTime": 1,
            **{f"fullDocument.{name}": 1 for name in ("u", "l", "n", "s", "a")},
            **{f"{_UPDATED}.{name}": 1 for name in _FIELDS},
        }
    },
]


@dataclass(frozen=True)
class Happening:
    cursor: str
    id: str
    status: Status | None
    verdict: Verdict | None
    tests_done: int | None
    tests_total: int
    user: str
    language: str
    time_ms: int
    executor: str
    attempt: int | None
    score: float | None


@dataclass(frozen=True)
class News:
    happenings: tuple[Happening, ...]
    cursor: str
    gap: bool = False


class Happenings:
    def __init__(self, database: Database[Any]) -> None:
        self._tasks = database.get_collection("tasks")
        self._changed = threading.Condition()
        self._cursors: list[str] = []  # of what is kept, in order
        self._kept: list[Happening] = []
        self._since = ""  # all that happened after this cursor is kept
        self._latest = ""
        self._asked_s = 0.0
        self._running = False
        self._closing = False
        # user, language and number of tests never change
        self._known: OrderedDict[str, tuple[str, str, int]] = OrderedDict()

    def close(self) -> None:
        with self._changed:
            self._closing = True
            self._changed.notify_all()

    @at_the_edge
    def read(self, cursor: str, wait_s: float, limit: int) -> News:
        """Events after the cursor; waits for the first, up to wait_s."""
        if cursor and not _CURSOR.match(cursor):
            raise Rejected("cursor is not one of events()", "cursor")
        limit = max(1, min(limit, MOST_AT_ONCE))
        deadline = Deadline(wait_s)
        with self._changed:
            self._start(Deadline(OPEN_S))
            if not cursor:
                return News((), self._latest)
            if cursor >= self._since:
                return self._wait(cursor, deadline, limit)
            until = self._since
        return self._look_back(cursor, until, limit)

    def _start(self, deadline: Deadline) -> None:
        self._asked_s = time.monotonic()
        if not self._running:
            self._running = True
            self._latest = ""
            threading.Thread(target=self._run, name="happenings", daemon=True).start()
        while not self._latest and not self._closing:
            if not self._changed.wait(deadline.left_s):
                raise Unavailable("the database's change stream does not open", 500)

    def _wait(self, cursor: str, deadline: Deadline, limit: int) -> News:
        while True:
            first = bisect.bisect_right(self._cursors, cursor)
            found = self._kept[first : first + limit]
            if found:
                return News(tuple(found), found[-1].cursor)
            self._asked_s = time.monotonic()
            if self._closing or cursor < self._since or not self._changed.wait(deadline.left_s):
                # As far as the stream has come: nothing of interest up to there.
                return News((), max(cursor, self._latest), gap=cursor < self._since)

    def _look_back(self, cursor: str, until: str, limit: int) -> News:
        """From the database's log, up to where memory begins."""
        changes: list[Any] = []
        came_to = cursor
        try:
            with self._tasks.watch(
                PIPELINE, resume_after={"_data": cursor}, max_await_time_ms=100, batch_size=limit
            ) as stream:
                while len(changes) < limit:
                    change = stream.try_next()
                    if change is None:
                        # Nothing, but perhaps only not yet: it has come a part of the way.
                        token = (stream.resume_token or {}).get("_data", "")
                        came_on, came_to = came_to < token, max(came_to, token)
                        if came_on and token < until:
                            continue
                        break
                    came_to = change["_id"]["_data"]
                    if came_to > until:
                        break
                    changes.append(change)
        except OperationFailure as error:
            if is_passing(error):
                raise
            log.info("a watcher's place is forgotten: %s", error)
            with self._changed:
                return News((), self._latest, gap=True)
        return News(tuple(self._read_all(changes)), min(came_to, until))

    # ---------------------------------------------------------------- thread

    def _run(self) -> None:
        pauses = backoff(0.2, 2.0)
        token: dict[str, Any] | None = None
        while not self._is_over():
            try:
                with self._tasks.watch(
                    PIPELINE, resume_after=token, max_await_time_ms=AWAIT_MS
                ) as stream:
                    while not self._is_over():
                        change = stream.try_next()
                        token = stream.resume_token
                        self._keep(self._read_all([change] if change else []), token)
                        pauses = backoff(0.2, 2.0)
            except PyMongoError as error:
                log.debug("the change stream broke: %s", say(error))
                if isinstance(error, OperationFailure) and not is_passing(error):
                    token = None
                    self._forget()
            except Exception:
                log.exception("the change stream failed")
                token = None
                self._forget()
            time.sleep(next(pauses))

    def _is_over(self) -> bool:
        with self._changed:
            if self._closing or time.monotonic() - self._asked_s > IDLE_S:
                self._running = False
                self._forget_all()
                return True
            return False

    def _forget(self) -> None:
        with self._changed:
            self._forget_all()

    def _forget_all(self) -> None:
        self._cursors.clear()
        self._kept.clear()
        self._since = "~"  # after every cursor: until the stream is open again nothing is kept
        self._latest = ""
        self._changed.notify_all()

    def _keep(self, found: list[Happening], token: Mapping[str, Any] | None) -> None:
        cursor = (token or {}).get("_data", "")
        with self._changed:
            if not self._latest:
                self._since = found[0].cursor if found else cursor
            self._kept += found
            self._cursors += [happening.cursor for happening in found]
            surplus = len(self._kept) - KEPT
            if surplus > 0:
                self._since = self._cursors[surplus - 1]
                del self._kept[:surplus], self._cursors[:surplus]
            self._latest = max(self._latest, cursor)
            self._changed.notify_all()

    # --------------------------------------------------------------- reading

    def _read_all(self, changes: Iterable[Any]) -> list[Happening]:
        changes = list(changes)
        self._learn(changes)
        found = []
        for change in changes:
            task_id = str(change["documentKey"]["_id"])
            inserted = change["operationType"] == "insert"
            fields = (
                change["fullDocument"] if inserted else change["updateDescription"]["updatedFields"]
            )
            with self._changed:
                known = self._known.get(task_id)
            if known is None:
                continue  # removed since
            user, language, tests_total = known
            status, verdict = fields.get("s"), fields.get("v")
            found.append(
                Happening(
                    cursor=change["_id"]["_data"],
                    id=task_id,
                    status=None if status is None else Status(status),
                    verdict=None if verdict is None else Verdict(verdict),
                    tests_done=fields.get("td"),
                    tests_total=tests_total,
                    user=user,
                    language=language,
                    time_ms=_time_ms(change),
                    executor=fields.get("e", ""),
                    attempt=fields.get("a"),
                    score=fields.get("sc"),
                )
            )
        return found

    def _learn(self, changes: list[Any]) -> None:
        wanted = set()
        with self._changed:
            for change in changes:
                task_id = str(change["documentKey"]["_id"])
                if change["operationType"] == "insert":
                    self._note(task_id, change["fullDocument"])
                elif task_id not in self._known:
                    wanted.add(task_id)
        if wanted:
            ids = [ObjectId(task_id) for task_id in wanted]
            found = list(self._tasks.find({"_id": {"$in": ids}}, {"u": 1, "l": 1, "n": 1}))
            with self._changed:
                for document in found:
                    self._note(str(document["_id"]), document)

    def _note(self, task_id: str, document: Mapping[str, Any]) -> None:
        self._known[task_id] = (document["u"], document["l"], document["n"])
        if len(self._known) > KNOWN:
            self._known.popitem(last=False)


def _time_ms(change: Mapping[str, Any]) -> int:
    wall = to_ms(change.get("wallTime"))
    return wall if wall is not None else change["clusterTime"].time * 1000
