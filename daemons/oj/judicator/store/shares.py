"""Fair share: who comes next among tasks of equal priority.

Start-time fair queueing. Tasks of one language and priority form a class. Each
task gets a number when it is added: one more than the user's last number in the
class, but not less than the class's clock, which is the number that was handed
out last. Waiting tasks are handed out by number. So a user with a thousand
tasks in the queue and a user with three take turns, nobody earns credit by
being away, and handing out needs nothing but the head of one index.

An executor with several languages takes the lowest number of all of them. A
class that was idle for long would have a clock far behind and push the others
aside until it caught up; so it starts anew from the lowest clock of those that
move. (From the lowest: another class may be behind because few executors have
its language, and the highest clock would put a newcomer behind its backlog.)

    users:  _id "priority:language:user", n last number, t when
    clocks: _id "priority:language", n number handed out last

A user who adds task after task gets numbers in blocks, a few at a time, so that
not every add is a write here; what is left of a block when the clock has passed
it is thrown away. The clocks are kept in memory and shared through the database once a second:
that fairness between judicators lags by a second harms nobody.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import Any

from pymongo import ASCENDING, IndexModel, ReturnDocument, UpdateOne
from pymongo.database import Database

from oj.judicator.store.database import QUICK, at_the_edge

# A user who was away this long starts from the clock anyway.
FORGET_USERS_S = 7 * 86400
# A class that handed nothing out for this long starts anew.
IDLE_S = 600.0


# Numbers are taken ahead by users who have just taken some.
BUSY_S = 1.0
MOST_AHEAD = 32
MOST_BLOCKS = 10_000


@dataclass
class Block:
    """Numbers that were taken for a user and not yet used: next <= number < end."""

    next: int
    end: int
    size: int
    taken_s: float


def _class_of(priority: int, language: str) -> str:
    return f"{priority}:{language}"


class Shares:
    """Numbers for new tasks, and the clocks of what is handed out."""

    def __init__(self, database: Database[Any]) -> None:
        self._users = database.get_collection("users", write_concern=QUICK)
        self._clocks_stored = database.get_collection("clocks", write_concern=QUICK)
        self._lock = threading.Lock()
        self._clocks: dict[str, int] = {}
        self._turned_s: dict[str, float] = {}
        self._blocks: dict[str, Block] = {}
        self._changed: set[str] = set()

    @at_the_edge
    def make_indexes(self) -> None:
        self._users.create_indexes(
            [IndexModel([("t", ASCENDING)], name="time", expireAfterSeconds=FORGET_USERS_S)]
        )

    @at_the_edge
    def take(self, user: str, priority: int, language: str, count: int = 1) -> int:
        """The first of `count` numbers for new tasks of this user."""
        name = _class_of(priority, language)
        key = f"{name}:{user}"
        clock = self._clock(name, priority)
        now_s = time.monotonic()
        with self._lock:
            block = self._blocks.get(key)
            if block is not None and clock < block.next <= block.end - count:
                block.next += count
                return block.next - count
            # As many as were used up since the last time, if that was just now.
            ahead = 1
            if block is not None and now_s - block.taken_s < BUSY_S:
                ahead = min(MOST_AHEAD, 2 * block.size)
        size = max(count, ahead)
        last = {"$max": [{"$ifNull": ["$n", 0]}, clock]}
        document = self._users.find_one_and_update(
            {"_id": key},
            [{"$set": {"n": {"$add": [last, size]}, "t": "$$NOW"}}],
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )
        end = int(document["n"]) + 1
        with self._lock:
            while len(self._blocks) >= MOST_BLOCKS:
                self._blocks.pop(next(iter(self._blocks)))
            self._blocks[key] = Block(end - size + count, end, size, now_s)
        return end - size

    def _clock(self, name: str, priority: int) -> int:
        with self._lock:
            own = self._clocks.get(name, 0)
            fresh_s = time.monotonic() - IDLE_S
            if self._turned_s.get(name, -IDLE_S) >= fresh_s:
                return own
            prefix = f"{priority}:"
            moving = [
                number
                for other, number in self._clocks.items()
                if other.startswith(prefix) and self._turned_s[other] >= fresh_s
            ]
            return max(own, min(moving, default=0))

    def handed_out(self, priority: int, language: str, number: int) -> None:
        """Turns the clock of the class; retried tasks (number 0) do not."""
        if number <= 0:
            return
        name = _class_of(priority, language)
        with self._lock:
            self._turned_s[name] = time.monotonic()
            if number > self._clocks.get(name, 0):
                self._clocks[name] = number
                self._changed.add(name)

    @at_the_edge
    def exchange(self) -> None:
        """Writes what changed here and learns what changed elsewhere."""
        with self._lock:
            changed = {name: self._clocks[name] for name in self._changed}
            self._changed.clear()
        if changed:
            self._clocks_stored.bulk_write(
                [
                    UpdateOne({"_id": name}, {"$max": {"n": number}}, upsert=True)
                    for name, number in changed.items()
                ],
                ordered=False,
            )
        for document in self._clocks_stored.find({}, hint="_id_"):
            with self._lock:
                name, number = document["_id"], document["n"]
                if number > self._clocks.get(name, 0):
                    self._clocks[name] = number
                    self._turned_s[name] = time.monotonic()
