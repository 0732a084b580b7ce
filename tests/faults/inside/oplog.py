"""What the database itself wrote down about tasks: the log that its members copy.

Only what a majority has is read: the rest may yet be undone. Entries are the same on every member,
and each member's are read, because one that lost its data begins a log anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from bson import Timestamp
from looking import Looking
from pymongo.errors import PyMongoError
from pymongo.read_concern import ReadConcern
from record import Record

from oj.model import Status

TASKS = "oj.tasks"
# Of a task's document (daemons/oj/judicator/store/documents.py): what must not change in the end.
TELLING = frozenset("s v sc m r e a td u l k b".split())


class Oplog:
    def __init__(self, looking: Looking, record: Record) -> None:
        self._looking = looking
        self._record = record
        self._read_to: dict[str, Timestamp] = {}

    def read_new(self, hosts: list[str]) -> list[str]:
        """Notes what was written since the last time; gives the hosts that did not answer."""
        silent = []
        for host in hosts:
            try:
                self._read(host)
            except PyMongoError:
                silent.append(host)
        return silent

    def _read(self, host: str) -> None:
        collection = self._looking.mongod(host).local.get_collection(
            "oplog.rs", read_concern=ReadConcern("majority")
        )
        since = self._read_to.get(host, Timestamp(0, 0))
        query = {"ts": {"$gt": since}, "$or": [{"ns": TASKS}, {"op": "c"}]}
        lines = []
        for entry in collection.find(query, {"ts": 1, "op": 1, "ns": 1, "o": 1, "o2": 1}):
            since = entry["ts"]
            lines += [json.dumps(line) for line in _lines(entry, since)]
        self._record.write(*lines)
        self._read_to[host] = since


def _lines(entry: Mapping[str, Any], stamp: Timestamp) -> Iterator[dict[str, Any]]:
    if entry["op"] == "c":
        for inner in entry["o"].get("applyOps", ()):
            yield from _lines(inner, stamp)
        return
    if entry.get("ns") != TASKS:
        return
    if entry["op"] == "i":
        task = entry["o"]
        yield {
            "call": "inserted",
            "id": str(task["_id"]),
            "key": task.get("k", ""),
            "stamp": [stamp.time, stamp.inc],
        }
    elif entry["op"] in ("u", "d"):
        fields = _changed(entry["o"]) if entry["op"] == "u" else {"deleted": True}
        telling = TELLING & fields.keys() or {"deleted"} & fields.keys()
        if telling:
            status = fields.get("s")
            yield {
                "call": "written",
                "id": str((entry.get("o2") or entry["o"])["_id"]),
                "stamp": [stamp.time, stamp.inc],
                "status": Status(status).word if status is not None else None,
                "fields": sorted(telling),
            }


def _changed(update: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that an update set or removed, in either of MongoDB's notations."""
    if "diff" in update:
        diff = update["diff"]
        return {**diff.get("u", {}), **diff.get("i", {}), **dict.fromkeys(diff.get("d", {}))}
    if "$v" in update or any(name.startswith("$") for name in update):
        return {**update.get("$set", {}), **dict.fromkeys(update.get("$unset", {}))}
    return dict(update)
