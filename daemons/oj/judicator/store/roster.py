"""The executors in MongoDB, and the languages that they have ever offered.

executors: _id name, i incarnation, past (older incarnations), t last report,
           w how long that report may wait, f facts, dr drained
languages: _id name, t when an executor offered it last
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from pymongo import ASCENDING, IndexModel, ReturnDocument, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.database import Database

from oj.judicator.report import Facts
from oj.judicator.store.database import DURABLE, QUICK, at_the_edge, to_ms

PAST_KEPT = 16

_NAMES_ONLY = {"_id": 1}


@dataclass(frozen=True)
class Executor:
    """An executor as the roster knows it."""

    name: str
    incarnation: str
    facts: Facts | None
    report_time_ms: int | None
    drained: bool
    silent: bool = False
    executing: int = 0

    @property
    def takes_tasks(self) -> bool:
        return (
            not self.silent
            and not self.drained
            and self.facts is not None
            and self.facts.state == "ok"
        )


def _to_executor(document: Mapping[str, Any], executing: int = 0) -> Executor:
    return Executor(
        name=document["_id"],
        incarnation=document.get("i", ""),
        facts=_read_facts(document.get("f")),
        report_time_ms=to_ms(document.get("t")),
        drained=bool(document.get("dr")),
        silent=bool(document.get("silent")),
        executing=executing,
    )


def _read_facts(stored: Mapping[str, Any] | None) -> Facts | None:
    if stored is None:
        return None
    # Pairs, because the names may have dots, which mean something in the database.
    pairs = {key: dict(stored.get(key, ())) for key in ("languages", "system")}
    # What a newer judicator stores besides is not for this one.
    known = {field.name: stored[field.name] for field in fields(Facts) if field.name in stored}
    return Facts(**{**known, **pairs})


def _write_facts(facts: Facts) -> dict[str, Any]:
    stored = {key: value for key, value in asdict(facts).items() if value}
    pairs = {key: [*map(list, getattr(facts, key).items())] for key in ("languages", "system")}
    return {**stored, **pairs}


class Roster:
    """Who executes, and what they can do."""

    def __init__(self, database: Database[Any]) -> None:
        self._quick = database.get_collection("executors", write_concern=QUICK)
        self._durable = database.get_collection("executors", write_concern=DURABLE)
        self._tasks = database.get_collection("tasks")
        self._languages = database.get_collection("languages", write_concern=QUICK)

    @at_the_edge
    def make_indexes(self) -> None:
        self._durable.create_indexes(
            [
                IndexModel([("t", ASCENDING)], name="time"),
                IndexModel([("dr", ASCENDING)], name="drained", sparse=True),
            ]
        )

    @at_the_edge
    def enter(
        self, name: str, incarnation: str, wait_s: float, facts: Facts | None = None
    ) -> tuple[Executor, bool]:
        """Takes the report of an incarnation that is new to this judicator.

        Returns the executor and whether the incarnation is its current one: one
        that another has replaced never becomes current again, so a late report
        of a process that is gone cannot free the tasks of its successor.
        """
        old, past = {"$ifNull": ["$i", None]}, {"$ifNull": ["$past", []]}
        own = {"$literal": incarnation}
        replaced = {"$in": [own, past]}
        fields: dict[str, Any] = {
            "past": {
                "$cond": [
                    {"$or": [{"$in": [old, [None, own]]}, replaced]},
                    past,
                    {"$slice": [{"$concatArrays": [past, [old]]}, -PAST_KEPT]},
                ]
            },
            "i": {"$cond": [replaced, old, own]},
            "t": "$$NOW",
            "w": wait_s,
        }
        if facts is not None:
            known = {"$ifNull": ["$f", None]}
            fields["f"] = {"$cond": [replaced, known, {"$literal": _write_facts(facts)}]}
        document = self._quick.find_one_and_update(
            {"_id": name},
            [{"$set": fields}],
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )
        return _to_executor(document), document["i"] == incarnation

    @at_the_edge
    def touch(self, name: str, incarnation: str, wait_s: float) -> bool:
        """Notes a report; False if the incarnation is not the current one (any more)."""
        outcome = self._quick.update_one(
            {"_id": name, "i": incarnation},
            {"$currentDate": {"t": True}, "$set": {"w": wait_s}},
        )
        return outcome.matched_count == 1

    @at_the_edge
    def describe(self, name: str, incarnation: str, facts: Facts) -> None:
        self._quick.update_one(
            {"_id": name, "i": incarnation}, {"$set": {"f": _write_facts(facts)}}
        )

    @at_the_edge
    def drain(self, name: str, on: bool) -> bool:
        """False: there is no such executor."""
        change = {"$set": {"dr": True}} if on else {"$unset": {"dr": ""}}
        return self._durable.update_one({"_id": name}, change).matched_count == 1

    @at_the_edge
    def remove(self, name: str) -> bool:
        """Forgets an executor; False: there is none. One that lives enters again."""
        return self._durable.delete_one({"_id": name}).deleted_count == 1

    @at_the_edge
    def find_drained(self) -> set[str]:
        return {d["_id"] for d in self._quick.find({"dr": True}, _NAMES_ONLY, hint="drained")}

    @at_the_edge
    def read_all(self, grace_s: float) -> list[Executor]:
        """All of them; silent are those whose last report is over for `grace_s`."""
        in_hand = {
            group["_id"]: group["n"]
            for group in self._tasks.aggregate(
                [
                    {"$match": {"o": {"$exists": True}}},
                    {"$group": {"_id": "$o", "n": {"$sum": 1}}},
                ],
                hint="owner",
            )
        }
        overdue = _overdue(grace_s)
        documents = self._quick.aggregate(
            [
                {"$sort": {"_id": 1}},
                {"$addFields": {"silent": overdue}},
                {"$project": {"past": 0}},
            ],
            hint="_id_",
        )
        return [_to_executor(d, in_hand.get(d["_id"], 0)) for d in documents]

    @at_the_edge
    def find_silent(self, forget_s: float) -> list[str]:
        """Executors that have been silent for long. Not drained ones, because
        forgetting them would put them back into service."""
        return [
            d["_id"]
            for d in self._quick.aggregate(
                [
                    {
                        "$match": {
                            "$expr": {
                                "$lt": ["$t", {"$subtract": ["$$NOW", int(forget_s * 1000)]}]
                            },
                            "dr": {"$ne": True},
                        }
                    },
                    {"$project": _NAMES_ONLY},
                ],
                hint="time",
            )
        ]

    @at_the_edge
    def remove_silent(self, name: str, forget_s: float, session: ClientSession) -> bool:
        """Forgets such an executor, unless it has reported meanwhile; for the leader."""
        outcome = self._durable.delete_one(
            {
                "_id": name,
                "dr": {"$ne": True},
                "$expr": {"$lt": ["$t", {"$subtract": ["$$NOW", int(forget_s * 1000)]}]},
            },
            session=session,
        )
        return bool(outcome.deleted_count)

    @at_the_edge
    def mend_times(self, grace_s: float) -> int:
        """The same as with leases (see TaskStore.mend_leases) for reports from the future, whose
        executors would not count as silent for as long."""
        future = {"$gt": ["$t", {"$add": ["$$NOW", int(grace_s * 1000)]}]}
        return self._quick.update_many(
            {"$expr": future}, {"$currentDate": {"t": True}}, hint="time"
        ).modified_count

    # ------------------------------------------------------------- languages

    @at_the_edge
    def offer_languages(self, names: Iterable[str]) -> None:
        self._languages.bulk_write(
            [
                UpdateOne({"_id": name}, {"$currentDate": {"t": True}}, upsert=True)
                for name in names
            ],
            ordered=False,
        )

    @at_the_edge
    def find_languages(self, within_s: float) -> set[str]:
        """Languages that some executor has offered lately; small, one per language."""
        documents = self._languages.aggregate(
            [
                {"$sort": {"_id": 1}},
                {
                    "$match": {
                        "$expr": {"$gt": ["$t", {"$subtract": ["$$NOW", int(within_s * 1000)]}]}
                    }
                },
            ],
            hint="_id_",
        )
        return {document["_id"] for document in documents}


def _overdue(grace_s: float) -> dict[str, Any]:
    """True for an executor whose last report has ended more than `grace_s` ago."""
    end = {"$add": ["$t", {"$multiply": [1000, {"$ifNull": ["$w", 0]}]}]}
    return {"$lt": [end, {"$subtract": ["$$NOW", int(grace_s * 1000)]}]}
