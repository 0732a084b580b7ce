"""The document of a task, its indexes, and the values it is read into.

A task is one document with short names, because there may be millions:

    _id  id (ids.py)          u  user            l  language ("" for none)
    p    priority             g  tags            k  idempotency key
    n    number of tests      b  the task, as the wire's bytes
    s    status               v  verdict         sc score      m  message
    td   tests done           r  the result, as the wire's bytes
    e    executor, the last   i  its incarnation a  attempt
    ct   when claimed         rt when the status changed last
    at   attempts that ended without a result: n, e, t, w (why)
    x    executors that gave it back
    q    true while it waits  h  its place in the fair share
    o    executor that has it; only while it is in hand
    cn   number of the report that claimed it
    lt   when its lease was renewed last; only while it is in hand
    wh   its webhook (hooks.py)
    by   who wrote last, `judicator:count`: others' change streams look at it

`q` and `o` exist only while they mean something, so that the indexes on them
hold nothing but what waits or is in hand, however many tasks are done.
Times other than that of adding are set by the database's clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from bson import Binary, ObjectId
from pymongo import ASCENDING, DESCENDING, IndexModel

from oj.judicator.store.database import to_ms
from oj.judicator.store.ids import time_ms_of
from oj.model import FINAL, Status, Verdict

QUEUE = [("l", ASCENDING), ("p", DESCENDING), ("h", ASCENDING), ("_id", ASCENDING)]
QUEUE_ORDER = [("p", DESCENDING), ("h", ASCENDING), ("_id", ASCENDING)]
OWNER = [("o", ASCENDING)]
KEY = [("u", ASCENDING), ("k", ASCENDING)]


def _then_id(field_name: str) -> list[tuple[str, int]]:
    return [(field_name, ASCENDING), ("_id", ASCENDING)]


INDEXES = [
    IndexModel(QUEUE, name="queue", partialFilterExpression={"q": True}),
    IndexModel(OWNER, name="owner", partialFilterExpression={"o": {"$exists": True}}),
    IndexModel(KEY, name="key", unique=True, partialFilterExpression={"k": {"$exists": True}}),
    IndexModel(_then_id("u"), name="user"),
    IndexModel(_then_id("s"), name="status"),
    IndexModel(_then_id("l"), name="language"),
    IndexModel(_then_id("v"), name="verdict", partialFilterExpression={"v": {"$exists": True}}),
    IndexModel(_then_id("g"), name="tag", partialFilterExpression={"g": {"$exists": True}}),
    IndexModel(_then_id("e"), name="executor", partialFilterExpression={"e": {"$exists": True}}),
]

_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)
SUMMARY = dict.fromkeys(("b", "r", "at"), 0)
CLAIMED = {"r": 0, "at": 0}
HELD = dict.fromkeys(("o", "i", "a", "cn", "ct", "s", "td", "e", "lt", "l"), 1)


@dataclass(frozen=True)
class NewTask:
    """A task to be stored."""

    id: ObjectId
    user: str
    language: str
    priority: int
    tags: frozenset[str]
    key: str | None
    tests_total: int
    share: int
    body: bytes
    webhook: str | None = None
    webhook_token: str | None = None
    # Blobs that no task has named before, each with the field that does: stored with the task is
    # that they are in use.
    new_blobs: Mapping[str, str] = field(default_factory=dict)

    def document(self, mark: str) -> dict[str, Any]:
        document: dict[str, Any] = {
            "_id": self.id,
            "u": self.user,
            "l": self.language,
            "p": self.priority,
            "n": self.tests_total,
            "s": int(Status.PENDING),
            "a": 0,
            "q": True,
            "h": self.share,
            "by": mark,
            "b": Binary(self.body),
        }
        if self.tags:
            document["g"] = sorted(self.tags)
        if self.key is not None:
            document["k"] = self.key
        if self.webhook is not None:
            document["wh"] = {"o": True, "u": self.webhook, "n": 0, "at": _LONG_AGO}
            if self.webhook_token is not None:
                document["wh"]["t"] = self.webhook_token
        return document


@dataclass(frozen=True)
class Record:
    """A task as stored; which of the bodies are there depends on what was asked."""

    id: str
    status: Status
    verdict: Verdict | None
    executor: str
    attempt: int
    add_time_ms: int
    start_time_ms: int | None
    report_time_ms: int | None
    tests_done: int
    tests_total: int
    score: float | None
    message: str
    language: str
    user: str
    priority: int
    tags: tuple[str, ...]
    key: str | None
    body: bytes | None = None
    result: bytes | None = None
    ended: tuple[Mapping[str, Any], ...] = field(default=())

    @property
    def done(self) -> bool:
        return self.status in FINAL


def to_record(document: Mapping[str, Any], result: bytes | None = None) -> Record:
    get = document.get
    verdict = get("v")
    return Record(
        id=str(document["_id"]),
        status=Status(document["s"]),
        verdict=None if verdict is None else Verdict(verdict),
        executor=get("e", ""),
        attempt=document["a"],
        add_time_ms=time_ms_of(document["_id"]),
        start_time_ms=to_ms(get("ct")),
        report_time_ms=to_ms(get("rt")),
        tests_done=get("td", 0),
        tests_total=document["n"],
        score=get("sc"),
        message=get("m", ""),
        language=document["l"],
        user=document["u"],
        priority=document["p"],
        tags=tuple(get("g", ())),
        key=get("k"),
        body=get("b"),
        result=get("r", result),
        ended=tuple(get("at", ())),
    )


@dataclass(frozen=True)
class Claimed:
    id: str
    attempt: int
    body: bytes
    share: int
    record: Record


@dataclass(frozen=True)
class Held:
    """A task in an executor's hand, with all that fences a change to it."""

    id: str
    executor: str
    incarnation: str
    attempt: int
    claim_number: int
    status: Status
    tests_done: int
    language: str
    claim_time: Any
    lease_time: Any

    @property
    def fence(self) -> dict[str, Any]:
        return {
            "_id": ObjectId(self.id),
            "o": self.executor,
            "i": self.incarnation,
            "a": self.attempt,
        }


def to_held(document: Mapping[str, Any]) -> Held:
    return Held(
        id=str(document["_id"]),
        executor=document["o"],
        incarnation=document["i"],
        attempt=document["a"],
        claim_number=document.get("cn", 0),
        status=Status(document["s"]),
        tests_done=document.get("td", 0),
        language=document["l"],
        claim_time=document.get("ct"),
        lease_time=document.get("lt"),
    )


@dataclass(frozen=True)
class Progress:
    """What an executor says of a task that it has in hand."""

    id: str
    attempt: int
    status: Status
    tests_done: int
    moved: bool  # the status is another one than before


def to_claimed(document: Mapping[str, Any]) -> Claimed:
    return Claimed(
        str(document["_id"]), document["a"], document["b"], document["h"], to_record(document)
    )
