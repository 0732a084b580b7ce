"""The executors in MongoDB, and the languages that they have ever offered.

executors: _id name, i incarnation, a the address that its reports come from, past (older
           incarnations), t last report, w how long that report may wait, f facts, dr drained,
           rs (those that a restart replaced: i, and t when), v version of all these,
           rv rivals: i, a as above, s since when, l last report, n number of the first, c a copy
languages: _id name, t when an executor offered it last
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from pymongo import ASCENDING, IndexModel, ReturnDocument, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from oj.errors import Unavailable
from oj.judicator.report import Facts
from oj.judicator.store.database import DURABLE, QUICK, at_the_edge, from_ms, to_ms
from oj.judicator.tenancy import SHOWN_MS, Claim, Replaced, Rival, Tenancy, decide

_NAMES_ONLY = {"_id": 1}
# When rivals asked last, and those of them that still do.
_ASKED = {"$max": "$rv.l"}
_LATELY = {"$subtract": ["$$NOW", SHOWN_MS]}
_RIVALS_LATELY = {
    "$filter": {
        "input": {"$ifNull": ["$rv", []]},
        "as": "rival",
        "cond": {"$gt": ["$$rival.l", _LATELY]},
    }
}
_TRIES = 20  # to be the one that changes who has a name, among judicators that do so at once


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
    address: str = ""
    rivals: tuple[Rival, ...] = ()

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
        address=document.get("a", ""),
        rivals=_read_rivals(document),
    )


def _read_tenancy(document: Mapping[str, Any]) -> Tenancy:
    return Tenancy(
        incarnation=document.get("i", ""),
        address=document.get("a", ""),
        reported_ms=to_ms(document.get("t")) or 0,
        wait_s=document.get("w", 0.0),
        past=tuple(document.get("past", ())),
        replaced=tuple(Replaced(one["i"], to_ms(one["t"]) or 0) for one in document.get("rs", ())),
        rivals=_read_rivals(document),
    )


def _read_rivals(document: Mapping[str, Any]) -> tuple[Rival, ...]:
    return tuple(
        Rival(
            rival["i"],
            rival["a"],
            to_ms(rival["s"]) or 0,
            to_ms(rival["l"]) or 0,
            rival["n"],
            copy=rival.get("c", False),
        )
        for rival in document.get("rv", ())
    )


def _write_tenancy(tenancy: Tenancy) -> tuple[dict[str, Any], dict[str, Any]]:
    """What is set and what is taken away; the times of its own report are the caller's."""
    stored: dict[str, Any] = {
        "i": tenancy.incarnation,
        "a": tenancy.address,
        "past": list(tenancy.past),
    }
    if tenancy.replaced:
        stored["rs"] = [{"i": r.incarnation, "t": from_ms(r.at_ms)} for r in tenancy.replaced]
    if tenancy.rivals:
        stored["rv"] = [
            {
                "i": rival.incarnation,
                "a": rival.address,
                "s": from_ms(rival.since_ms),
                "l": from_ms(rival.last_ms),
                "n": rival.number,
                **({"c": True} if rival.copy else {}),
            }
            for rival in tenancy.rivals
        ]
    return stored, {key: "" for key in ("rs", "rv") if key not in stored}


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
                IndexModel([("rv.l", ASCENDING)], name="rivals", sparse=True),
            ]
        )

    @at_the_edge
    def enter(
        self, name: str, claim: Claim, wait_s: float, facts: Facts | None = None
    ) -> tuple[Executor, bool]:
        """Takes the report of an incarnation that is new to this judicator.

        Returns the executor and whether the incarnation has its name now (see tenancy.py). The
        report of one that has not is no sign of life of the executor.
        """
        described = {"f": _write_facts(facts)} if facts is not None else {}
        filter_: dict[str, Any]
        change: dict[str, Any]
        for _ in range(_TRIES):
            before = self._read_now(name)
            if before is None:
                stored, _ = _write_tenancy(Tenancy(claim.incarnation, claim.address))
                stored |= {"w": wait_s, "v": 1, **described}
                change = {"$setOnInsert": stored, "$currentDate": {"t": True}}
                # One that another judicator stores meanwhile has a version, and is not found.
                filter_ = {"_id": name, "v": {"$exists": False}, "i": {"$exists": False}}
            else:
                known = _read_tenancy(before)
                tenancy = decide(known, claim, to_ms(before["now"]) or 0)
                stored, gone = _write_tenancy(tenancy)
                change = {"$set": stored, "$inc": {"v": 1}, "$unset": gone}
                if tenancy.incarnation == claim.incarnation:
                    stored |= {"w": wait_s, **described}
                    change["$currentDate"] = {"t": True}
                if tenancy.incarnation != known.incarnation and not described:
                    gone["f"] = ""  # they are of the process that had the name before
                filter_ = {"_id": name, "i": before.get("i"), "v": before.get("v")}
                if tenancy.incarnation != known.incarnation:
                    filter_["t"] = before.get("t")  # it may just have shown that it lives
            if not change.get("$unset", True):
                del change["$unset"]
            try:
                document = self._quick.find_one_and_update(
                    filter_,
                    change,
                    upsert=before is None,
                    return_document=ReturnDocument.AFTER,
                )
            except DuplicateKeyError:
                continue
            if document is not None:
                return _to_executor(document), document["i"] == claim.incarnation
        raise Unavailable(f"too many judicators hear of the executor {name} at once")

    def _read_now(self, name: str) -> dict[str, Any] | None:
        """An executor's document, with the database's time as `now`."""
        found = self._quick.aggregate(
            [{"$match": {"_id": name}}, {"$addFields": {"now": "$$NOW"}}], hint="_id_"
        )
        return next(iter(found), None)

    @at_the_edge
    def touch(self, name: str, incarnation: str, wait_s: float, address: str) -> bool:
        """Notes a report and where it came from; False if the incarnation is not the current one
        (any more)."""
        outcome = self._quick.update_one(
            {"_id": name, "i": incarnation},
            {"$currentDate": {"t": True}, "$set": {"w": wait_s, "a": address}},
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
    def find_contested(self) -> set[str]:
        """Names under which another process reports as well, or did a moment ago."""
        return {
            d["_id"]
            for d in self._quick.aggregate(
                [
                    {"$match": {"rv": {"$exists": True}, "$expr": {"$gt": [_ASKED, _LATELY]}}},
                    {"$project": _NAMES_ONLY},
                ],
                hint="rivals",
            )
        }

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
                {"$addFields": {"silent": overdue, "rv": _RIVALS_LATELY}},
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
