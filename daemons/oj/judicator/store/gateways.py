"""The gateways in MongoDB: those that have said so lately.

gateways: _id name, a address, v version of oj, t when it said so last
"""

from __future__ import annotations

from dataclasses import dataclass
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


class Gateways:
    def __init__(self, database: Database[Any]) -> None:
        self._gateways = database.get_collection("gateways", write_concern=QUICK)

    @at_the_edge
    def make_indexes(self) -> None:
        expiry = IndexModel([("t", ASCENDING)], name="expiry", expireAfterSeconds=FORGET_S)
        self._gateways.create_indexes([expiry])

    @at_the_edge
    def note(self, name: str, address: str, version: str) -> None:
        self._gateways.update_one(
            {"_id": name},
            {"$set": {"a": address, "v": version}, "$currentDate": {"t": True}},
            upsert=True,
        )

    @at_the_edge
    def remove(self, name: str) -> None:
        self._gateways.delete_one({"_id": name})

    @at_the_edge
    def read_all(self) -> list[Gateway]:
        late = {"$lt": ["$t", {"$subtract": ["$$NOW", SILENT_S * 1000]}]}
        documents = self._gateways.aggregate(
            [{"$sort": {"_id": 1}}, {"$addFields": {"silent": late}}], hint="_id_"
        )
        return [
            Gateway(d["_id"], d["a"], d["v"], to_ms(d["t"]), bool(d["silent"])) for d in documents
        ]
