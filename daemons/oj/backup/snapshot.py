"""Reads a running cluster as it was at one moment.

The driver for Debian 12 knows no snapshot sessions, so these are plain `find`
commands with `atClusterTime`. Each is one batch that begins behind the last id:
no cursor has to survive, and any member can go on where another broke off. The
moment is the primary's, so that all that was acknowledged before is in it; the
reading is a secondary's where there is one.

The database keeps its past for a few minutes only. What takes longer goes on at
a later moment: each document is whole, and none that was there is missed, as
ids only grow.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from bson import Timestamp
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import ReadPreference
from pymongo.database import Database
from pymongo.errors import OperationFailure, PyMongoError

from oj.clock import Deadline, backoff
from oj.errors import Unavailable
from oj.judicator.store.database import is_passing
from oj.redact import say

BATCH = 1000
CALL_MS = 5_000
PATIENCE_S = 60.0
# The past is gone, or the collection was made or given an index since.
_TOO_OLD = frozenset({239, 246})
_RAW: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument, tz_aware=True)


class Snapshot:
    """All collections at one moment; see above for what takes long."""

    def __init__(self, database: Database[Any]) -> None:
        self._database = database
        self.times: list[int] = []
        self.time = self._now()

    def _now(self) -> Timestamp:
        """A moment that holds all that was acknowledged before this call."""
        command = {"find": "tasks", "limit": 1, "singleBatch": True, "projection": {"_id": 1}}
        reply = self._insist({**command, "readConcern": {"level": "snapshot"}}, primary=True)
        moment = reply["cursor"].get("atClusterTime") or reply["operationTime"]
        self.times.append(moment.time)
        return moment

    def read(self, collection: str, projection: Mapping[str, int] | None = None) -> Iterator[Any]:
        """All documents, raw, in the order of their ids."""
        last: dict[str, Any] = {}
        while batch := self._batch(collection, last, projection):
            yield from batch
            last = {"_id": {"$gt": batch[-1]["_id"]}}

    def _batch(
        self, collection: str, query: Mapping[str, Any], projection: Mapping[str, int] | None
    ) -> list[Any]:
        for _ in range(20):
            try:
                return self._find(
                    collection,
                    query,
                    {"_id": 1},
                    {"level": "snapshot", "atClusterTime": self.time},
                    projection,
                )
            except OperationFailure as error:
                if error.code not in _TOO_OLD:
                    raise
                self.time = self._now()
        raise Unavailable(f"{collection} changes faster than it can be read")

    def read_since(
        self, collection: str, query: Mapping[str, Any], sort: Mapping[str, int], most: int
    ) -> list[Any]:
        """Some documents as they are now, or were at any time since the moment."""
        concern = {"level": "majority", "afterClusterTime": self.time}
        return self._find(collection, query, sort, concern, None, most)

    def _find(
        self,
        collection: str,
        query: Mapping[str, Any],
        sort: Mapping[str, int],
        concern: Mapping[str, Any],
        projection: Mapping[str, int] | None,
        most: int = BATCH,
    ) -> list[Any]:
        command: dict[str, Any] = {
            "find": collection,
            "filter": dict(query),
            "sort": dict(sort),
            "hint": dict(sort),
            "limit": most,
            "singleBatch": True,
            "maxTimeMS": CALL_MS,
            "readConcern": dict(concern),
        }
        if projection is not None:
            command["projection"] = dict(projection)
        return list(self._insist(command)["cursor"]["firstBatch"])

    def _insist(self, command: dict[str, Any], *, primary: bool = False) -> Any:
        """The reply, from whichever member gives one."""
        deadline = Deadline(PATIENCE_S)
        # In turns, because a secondary may be there and yet be far behind.
        members = [ReadPreference.SECONDARY_PREFERRED, ReadPreference.PRIMARY_PREFERRED]
        for number, pause_s in enumerate(backoff(0.2, 2.0)):
            try:
                return self._database.command(
                    command,
                    codec_options=_RAW,
                    read_preference=ReadPreference.PRIMARY if primary else members[number % 2],
                )
            except PyMongoError as error:
                code = getattr(error, "code", None)
                if code in _TOO_OLD or not is_passing(error):
                    raise
                if deadline.expired:
                    words = say(error).partition(", Timeout:")[0][:200]
                    raise Unavailable(f"the database does not answer: {words}") from error
            time.sleep(pause_s)
        raise AssertionError("backoff has no end")
