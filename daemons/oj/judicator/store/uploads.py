"""How much each user had stored today: sources, data, tests and blobs, by the database's clock.

    uploads: _id user, d day since 1970, n bytes of that day, x when MongoDB forgets it,
             now and ok of the last time that something was taken

Gateways take in steps of some size (gateway/storage.py), so that not every task is a write here.
A primary that is lost with the last of these counts does nobody harm: they are written quickly.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pymongo import ASCENDING, IndexModel, ReturnDocument
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from oj.judicator.store.database import QUICK, at_the_edge

DAY_MS = 86_400_000


@dataclass(frozen=True)
class Taken:
    allowed: bool
    left_bytes: int
    reset_ms: int


class Uploads:
    def __init__(self, database: Database[Any]) -> None:
        self._uploads = database.get_collection("uploads", write_concern=QUICK)

    @at_the_edge
    def make_indexes(self) -> None:
        self._uploads.create_indexes(
            [IndexModel([("x", ASCENDING)], name="expiry", expireAfterSeconds=0)]
        )

    @at_the_edge
    def take(self, user: str, amount_bytes: int, most_bytes: int) -> Taken:
        """Counts so much more for today, if that is not beyond the most."""
        try:
            document = self._take(user, amount_bytes, most_bytes)
        except DuplicateKeyError:  # another one made it at the same moment
            document = self._take(user, amount_bytes, most_bytes)
        return Taken(
            bool(document["ok"]),
            max(0, most_bytes - int(document["n"])),
            int((document["d"] + 1) * DAY_MS - document["now"]),
        )

    def _take(self, user: str, amount_bytes: int, most_bytes: int) -> Any:
        day = {"$floor": {"$divide": [{"$toLong": "$$NOW"}, DAY_MS]}}
        so_far = {"$cond": [{"$eq": ["$d", day]}, {"$ifNull": ["$n", 0]}, 0]}
        wanted = {"$add": ["$n", amount_bytes]}
        return self._uploads.find_one_and_update(
            {"_id": user},
            [
                {"$set": {"n": so_far, "d": day, "now": {"$toLong": "$$NOW"}}},
                {"$set": {"ok": {"$lte": [wanted, most_bytes]}}},
                {
                    "$set": {
                        "n": {"$cond": ["$ok", wanted, "$n"]},
                        "x": {"$add": ["$$NOW", 2 * DAY_MS]},
                    }
                },
            ],
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )
