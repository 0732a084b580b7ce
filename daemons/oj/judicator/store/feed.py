"""Changes that other judicators make to tasks, from MongoDB's change stream.

Our own changes are left out by the server: every change that others care about
sets `by` to its maker. The stream goes on where it broke off; when that is not
possible, everybody who waits here is told to look for himself.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from typing import Any

from pymongo.database import Database
from pymongo.errors import PyMongoError

from oj.clock import backoff
from oj.model import Status
from oj.redact import say

log = logging.getLogger("oj.judicator.store.feed")

AWAIT_MS = 2_000

# After these a task is no longer in the hands that it was in.
_TAKEN_AWAY = frozenset({Status.RETRYING, Status.CANCELLED, Status.INTERNAL_ERROR})


class Feed:
    """A thread that reads the stream."""

    def __init__(
        self,
        database: Database[Any],
        judicator: str,
        changed: Callable[[str, bool, str | None, bool], None],
        missed: Callable[[], None],
    ) -> None:
        """`changed(task, waits, language, taken_away)`; `missed()` after a gap."""
        self._tasks = database.get_collection("tasks")
        self._pipeline = make_pipeline(judicator)
        self._changed = changed
        self._missed = missed
        self._stop = threading.Event()
        self.running = threading.Event()  # the stream is open
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()  # it may still wait for news; it changes nothing any more

    def _run(self) -> None:
        pauses = backoff(0.2, 2.0)
        while not self._stop.is_set():
            try:
                self._read()
                pauses = backoff(0.2, 2.0)
            except PyMongoError as error:
                log.debug("the change stream broke: %s", say(error))
            except Exception:
                log.exception("the change stream failed")
            self.running.clear()
            self._stop.wait(next(pauses))

    def _read(self) -> None:
        with self._tasks.watch(self._pipeline, max_await_time_ms=AWAIT_MS) as stream:
            self.running.set()
            self._missed()
            while stream.alive and not self._stop.is_set():
                change = stream.try_next()
                if change is not None:
                    self._tell(change)

    def _tell(self, change: Any) -> None:
        task_id = str(change["documentKey"]["_id"])
        if change["operationType"] == "insert":
            self._changed(task_id, True, change["fullDocument"]["l"], False)
            return
        fields = change["updateDescription"]["updatedFields"]
        taken_away = fields.get("s") in _TAKEN_AWAY
        self._changed(task_id, bool(fields.get("q")), None, taken_away)


def make_pipeline(judicator: str) -> list[dict[str, Any]]:
    own = re.compile("^" + re.escape(judicator) + ":")
    updated = "updateDescription.updatedFields"
    return [
        {
            "$match": {
                "$or": [
                    {"operationType": "insert", "fullDocument.by": {"$not": own}},
                    {
                        "operationType": "update",
                        f"{updated}.by": {"$exists": True, "$not": own},
                    },
                ]
            }
        },
        {
            "$project": {
                "operationType": 1,
                "documentKey": 1,
                "fullDocument.l": 1,
                f"{updated}.s": 1,
                f"{updated}.q": 1,
            }
        },
    ]
