"""The gateways in MongoDB: those that have said so lately.

gateways: _id name, a space, and the process; a address, v version of oj, w where it is as people
          find it, f when it said so first, t last

Each process has a document of its own, so that two that go by one name are told from one that was
started again: the older of two still speaks after the younger one has begun to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pymongo import ASCENDING, IndexModel
from pymongo.database import Database

from oj.judicator.store.database import QUICK, at_the_edge, to_ms

SILENT_S = 20  # gateways say that they serve every five seconds
FORGET_S = 3600  # as long as a silent executor is listed by default


@dataclass(frozen=True)
class Gateway:
    name: str
    address: str = ""
    version: str = ""
    report_time_ms: int | None = None
    silent: bool = False
    places: Sequence[str] = ()  # of all its processes, if there are several at once


class Gateways:
    def __init__(self, database: Database[Any]) -> None:
        self._gateways = database.get_collection("gateways", write_concern=QUICK)

    @at_the_edge
    def make_indexes(self) -> None:
        expiry = IndexModel([("t", ASCENDING)], name="expiry", expireAfterSeconds=FORGET_S)
        self._gateways.create_indexes([expiry])

    @at_the_edge
    def note(self, name: str, address: str, version: str, process: str, place: str) -> None:
        told = {"a": address, "v": version, "w": place}
        fields = {key: {"$literal": value} for key, value in told.items()}
        done = self._gateways.update_one(
            {"_id": f"{name} {process}"},
            [{"$set": {**fields, "f": {"$ifNull": ["$f", "$$NOW"]}, "t": "$$NOW"}}],
            upsert=True,
        )
        if done.upserted_id is not None:
            self._gateways.delete_many({**_of(name), "$expr": _IS_LATE})

    @at_the_edge
    def remove(self, name: str, process: str = "") -> None:
        """A process with those that it came after, which have crashed; without one, the name."""
        if not process:
            self._gateways.delete_many(_of(name))
        elif found := self._gateways.find_one_and_delete({"_id": f"{name} {process}"}):
            self._gateways.delete_many({**_of(name), "t": {"$lte": found["f"]}})

    @at_the_edge
    def read_all(self) -> list[Gateway]:
        documents = self._gateways.aggregate(
            [{"$sort": {"_id": 1}}, {"$addFields": {"silent": _IS_LATE}}], hint="_id_"
        )
        return [_merge(name, list(group)) for name, group in groupby(documents, _name_of)]


_IS_LATE = {"$lt": ["$t", {"$subtract": ["$$NOW", SILENT_S * 1000]}]}


def _of(name: str) -> dict[str, Any]:
    """All processes of a name, which has no space: '!' comes next."""
    return {"_id": {"$gte": f"{name} ", "$lt": f"{name}!"}}


def _name_of(document: Mapping[str, Any]) -> str:
    return str(document["_id"]).partition(" ")[0]


def _merge(name: str, documents: list[Mapping[str, Any]]) -> Gateway:
    """What the processes of one name are together: what the latest is, which may have rivals."""
    latest = max(documents, key=lambda one: one["t"])
    at_once = [one for one in documents if not one["silent"] and one["t"] > latest["f"]]
    return Gateway(
        name,
        latest["a"],
        latest["v"],
        to_ms(latest["t"]),
        bool(latest["silent"]),
        tuple(one["w"] for one in at_once) if len(at_once) > 1 else (),
    )
