"""Webhooks that are due: part of their tasks, so that none is lost between an end and its call.

    tasks: wh {o open, u url, t token, n calls so far, at when the next is due, m the last failure}

`wh.o` is removed when the call got through or was given up; the index holds only open ones.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bson import ObjectId
from pymongo import ASCENDING, IndexModel, ReturnDocument
from pymongo.database import Database

from oj.judicator.store.database import DURABLE, QUICK, at_the_edge
from oj.judicator.store.documents import SUMMARY, Record, to_record
from oj.model import FINAL

LEASE_MS = 60_000
MOST_CALLS = 10
FIRST_PAUSE_MS = 5_000
LONGEST_PAUSE_MS = 6 * 3_600_000
MESSAGE_CHARS = 200

INDEX = IndexModel(
    [("wh.o", ASCENDING), ("s", ASCENDING), ("wh.at", ASCENDING)],
    name="hooks",
    partialFilterExpression={"wh.o": True},
)


@dataclass(frozen=True)
class Hook:
    record: Record
    url: str
    token: str
    attempt: int


def _urls_of(receiver: str) -> re.Pattern[str]:
    return re.compile(f"^{re.escape(receiver)}(?:/|$)", re.IGNORECASE)


def pause_ms(attempt: int) -> int:
    """After a failed call: 5 s, 20 s, 80 s, … up to six hours."""
    return min(FIRST_PAUSE_MS * 4 ** (attempt - 1), LONGEST_PAUSE_MS)


class Hooks:
    def __init__(self, database: Database[Any]) -> None:
        self._quick = database.get_collection("tasks", write_concern=QUICK)
        self._durable = database.get_collection("tasks", write_concern=DURABLE)

    @at_the_edge
    def make_indexes(self) -> None:
        self._durable.create_indexes([INDEX])

    @at_the_edge
    def claim(
        self, limit: int, busy_users: Sequence[str] = (), busy_receivers: Sequence[str] = ()
    ) -> list[Hook]:
        """Those that are due; each is the caller's for a minute, by the database's clock.

        Without those of busy users and receivers, however many: who waits behind them is found."""
        due: dict[str, Any] = {
            "wh.o": True,
            "s": {"$in": sorted(int(status) for status in FINAL)},
            "$expr": {"$lte": ["$wh.at", "$$NOW"]},
        }
        if busy_users:
            due["u"] = {"$nin": list(busy_users)}
        if busy_receivers:
            due["wh.u"] = {"$nin": [_urls_of(receiver) for receiver in busy_receivers]}
        claimed: list[Hook] = []
        while len(claimed) < limit:
            document = self._quick.find_one_and_update(
                due,
                [
                    {
                        "$set": {
                            "wh.at": {"$add": ["$$NOW", LEASE_MS]},
                            "wh.n": {"$add": ["$wh.n", 1]},
                        }
                    }
                ],
                projection=SUMMARY,
                return_document=ReturnDocument.AFTER,
                hint="hooks",
            )
            if document is None:
                break
            hook = document["wh"]
            claimed.append(Hook(to_record(document), hook["u"], hook.get("t", ""), int(hook["n"])))
        return claimed

    @at_the_edge
    def finish(self, task_id: str, attempt: int, *, delivered: bool, message: str) -> None:
        fence = {"_id": ObjectId(task_id), "wh.o": True, "wh.n": attempt}
        if delivered:
            self._durable.update_one(fence, {"$unset": {"wh.o": "", "wh.m": ""}})
        elif attempt >= MOST_CALLS:
            given_up = {"$set": {"wh.m": message[:MESSAGE_CHARS]}, "$unset": {"wh.o": ""}}
            self._durable.update_one(fence, given_up)
        else:
            later = {"wh.at": {"$add": ["$$NOW", pause_ms(attempt)]}}
            told = {"wh.m": {"$literal": message[:MESSAGE_CHARS]}}
            self._durable.update_one(fence, [{"$set": {**later, **told}}])
