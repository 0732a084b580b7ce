"""Fills an empty cluster from a backup, and reads all of it back.

A note in the database, `restores`, says that a restore is under way. As long as
it is there, the same file can be restored again after any interruption, and goes
on. Steps: fill, compare, queue.

Judicators may run meanwhile. Ended tasks can be looked at as soon as they are
there; what was not done waits, but without its mark of the queue (`q`), which
comes last, so that nothing is judged before everything is in place.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

import bson
from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from pymongo import UpdateOne
from pymongo.database import Database
from pymongo.errors import BulkWriteError, PyMongoError
from pymongo.read_concern import ReadConcern

from oj.backup.container import Member, noticing_damage, read_members
from oj.backup.contents import BLOBS, Checked, Tell, digest_of, section_of, split_documents
from oj.clock import Deadline, backoff, utc_now
from oj.errors import Rejected, Unavailable
from oj.judicator.store.blobs import Blobs
from oj.judicator.store.counts import Counts
from oj.judicator.store.database import DURABLE, at_the_edge, is_passing
from oj.judicator.store.history import History
from oj.judicator.store.hooks import Hooks
from oj.judicator.store.roster import Roster
from oj.judicator.store.shares import Shares
from oj.judicator.store.tasks import MOST_ATTEMPTS_KEPT, TaskStore
from oj.judicator.store.tokens import Tokens
from oj.model import ACTIVE, FINAL, WAITING, Status

NOTE = "restores"
BATCH = 500
BATCH_BYTES = 4 << 20
PATIENCE_S = 120.0
INTERRUPTED = "the cluster was restored from a backup"
DUPLICATE = 11000
_RAW: CodecOptions[Any] = CodecOptions(document_class=RawBSONDocument)
_FINAL = frozenset(int(status) for status in FINAL)
_ACTIVE = frozenset(int(status) for status in ACTIVE)
# As Thrift writes a digest: its length, and it.
_DIGEST = re.compile(rb"(?=\0\0\0@([0-9a-f]{64}))")

Answer = TypeVar("Answer")


@dataclass
class Restored:
    """What was done, for people and programs."""

    tasks: int = 0
    waiting: int = 0  # those of them that are to be judged again
    blobs: int = 0
    without_key: int = 0  # another task has taken it meanwhile
    changed: int = 0  # cancelled since they were restored
    resumed: bool = False


@at_the_edge
def restore(database: Database[Any], path: Path, checked: Checked, tell: Tell) -> Restored:
    """Raises Rejected, with what is there, unless the cluster is empty."""
    spool = Path(tempfile.mkdtemp(prefix="oj-restore-"))
    try:
        with noticing_damage():
            return Restore(database, path, checked, tell, spool).run()
    finally:
        shutil.rmtree(spool, ignore_errors=True)


class Restore:
    """One restore under way."""

    def __init__(
        self, database: Database[Any], path: Path, checked: Checked, tell: Tell, spool: Path
    ) -> None:
        self._database = database
        self._path = path
        self._checked = checked
        self._tell = tell
        self._id = checked.header.id
        # A name that no judicator can have: all of them hear of what is queued.
        self._mark = f"oj restore:{self._id}"
        self._notes = database.get_collection(NOTE, write_concern=DURABLE)
        self._tasks = database.get_collection("tasks", write_concern=DURABLE)
        self._blobs = Blobs(database, spool)
        self._named: set[bytes] = set()  # digests of the blobs that tasks name
        self._done = Restored()

    def run(self) -> Restored:
        step = _insist(self._begin)
        for part in (
            TaskStore(self._database, "restore"),
            Roster(self._database),
            Shares(self._database),
            Tokens(self._database),
            History(self._database),
            Hooks(self._database),
            self._blobs,
        ):
            _insist(part.make_indexes)
        if step == "filling":
            self._fill()
            self._compare()
            self._note_step("queueing")
        self._queue()
        self._recount()
        _insist(lambda: self._notes.delete_one({"_id": "restore"}))
        self._done.tasks = self._checked.manifest.count("tasks")
        self._done.waiting = self._checked.manifest.unfinished - self._done.changed
        self._done.blobs = self._checked.manifest.count(BLOBS)
        return self._done

    # ------------------------------------------------------------- beginning

    def _begin(self) -> str:
        """The step to go on with."""
        note = self._notes.find_one({"_id": "restore"})
        if note is not None:
            if note["backup"] != self._id:
                raise Rejected(
                    f"another backup, made {note['made']} on {note['host']}, is half restored "
                    "here: restore that one to its end"
                )
            self._done.resumed = True
            return str(note["step"])
        self._check_empty()
        header = self._checked.header
        self._notes.insert_one(
            {
                "_id": "restore",
                "backup": self._id,
                "made": header.begun,
                "host": header.host,
                "step": "filling",
                "t": utc_now(),
            }
        )
        return "filling"

    def _check_empty(self) -> None:
        there = {
            "task": self._database["tasks"].estimated_document_count(),
            "blob": self._database["blobs.files"].estimated_document_count(),
        }
        words = [f"{n} {what}{'' if n == 1 else 's'}" for what, n in there.items() if n]
        if words:
            raise Rejected(
                f"the cluster is not empty: there are {' and '.join(words)} in the database "
                f"'{self._database.name}'; a backup is restored into an empty cluster only"
            )

    def _note_step(self, step: str) -> None:
        _insist(lambda: self._notes.update_one({"_id": "restore"}, {"$set": {"step": step}}))

    # --------------------------------------------------------------- filling

    def _members(self) -> Iterator[Member]:
        with self._path.open("rb") as file:
            yield from read_members(file)

    def _fill(self) -> None:
        counts = dict.fromkeys(("tasks", BLOBS), 0)
        for member in self._members():
            section, digest = section_of(member), digest_of(member)
            if section == "tasks":
                for batch in _batches(split_documents(member.data)):
                    self._note_blobs(batch)
                    self._insert_tasks([self._prepare(document) for document in batch])
                    counts["tasks"] += len(batch)
                    self._show("restoring tasks", counts["tasks"], "tasks")
            elif section is not None:
                self._merge(section, map(bson.decode, split_documents(member.data)))
            elif digest is not None:
                if not _insist(lambda name=digest: self._blobs.find([name])):  # type: ignore[misc]
                    self._store_blob(digest, member)
                if digest.encode() in self._named:
                    _insist(lambda name=digest: self._blobs.keep(name))  # type: ignore[misc]
                counts[BLOBS] += 1
                self._show("restoring blobs", counts[BLOBS], BLOBS)

    def _show(self, what: str, count: int, section: str) -> None:
        self._tell(what, count, self._checked.manifest.count(section))

    def _prepare(self, document: bytes) -> bytes:
        """A task as it is to be stored: ended ones as they were, byte by byte."""
        raw = RawBSONDocument(document)
        if raw["s"] in _FINAL:
            return document
        return bson.encode(let_wait(bson.decode(document), self._mark))

    def _note_blobs(self, documents: Sequence[bytes]) -> None:
        # Tasks are not taken apart for that: it would last longer than to store them, and what
        # only looks like a digest keeps no blob from being removed but one of that name.
        for document in documents:
            self._named.update(_DIGEST.findall(document))

    def _insert_tasks(self, documents: Sequence[bytes]) -> None:
        refused = _insist(lambda: _insert(self._tasks, map(RawBSONDocument, documents)))
        if refused:
            # The user has added another task with the same key since.
            rest = [_without_key(documents[index]) for index in refused]
            _insist(lambda: _insert(self._tasks, map(RawBSONDocument, rest)))

    def _merge(self, section: str, documents: Iterable[dict[str, Any]]) -> None:
        """What is small: numbers and times only ever grow, so judicators may run."""
        collection = self._database.get_collection(section, write_concern=DURABLE)
        for batch in _grouped(documents, BATCH):
            changes = [
                UpdateOne({"_id": document["_id"]}, _to_update(section, document), upsert=True)
                for document in batch
            ]
            _insist(lambda c=changes: collection.bulk_write(c, ordered=False))  # type: ignore[misc]

    def _store_blob(self, digest: str, member: Member) -> None:
        with tempfile.SpooledTemporaryFile(8 << 20) as spool:
            shutil.copyfileobj(member.data, spool)

            def store() -> None:
                spool.seek(0)
                self._blobs.store(digest, cast(BinaryIO, spool), member.size_bytes)

            _insist(store)

    # ------------------------------------------------------------- comparing

    def _compare(self) -> None:
        """Reads everything back, from what a majority has on disk."""
        counts = dict.fromkeys(("tasks", BLOBS), 0)
        for member in self._members():
            digest = digest_of(member)
            if section_of(member) == "tasks":
                for batch in _batches(split_documents(member.data)):
                    self._compare_tasks([self._prepare(document) for document in batch])
                    counts["tasks"] += len(batch)
                    self._show("comparing tasks", counts["tasks"], "tasks")
            elif digest is not None:
                _insist(lambda name=digest: self._compare_blob(name))  # type: ignore[misc]
                counts[BLOBS] += 1
                self._show("comparing blobs", counts[BLOBS], BLOBS)

    def _compare_tasks(self, expected: Sequence[bytes]) -> None:
        tasks = self._database.get_collection(
            "tasks", codec_options=_RAW, read_concern=ReadConcern("majority")
        )
        wanted = {RawBSONDocument(document)["_id"]: document for document in expected}
        found = _insist(
            lambda: {d["_id"]: d.raw for d in tasks.find({"_id": {"$in": list(wanted)}})}
        )
        for task_id, document in wanted.items():
            real = found.get(task_id)
            if real == document:
                continue
            if real is not None and real == _without_key(document):
                self._done.without_key += 1
            elif real is not None and _was_cancelled(document, real):
                self._done.changed += 1
            else:
                raise Rejected(f"task {task_id} is not in the database as it was restored")

    def _compare_blob(self, digest: str) -> None:
        files = self._database["blobs.files"]
        chunks = self._database.get_collection("blobs.chunks", read_concern=ReadConcern("majority"))
        file = files.find_one({"filename": digest}, hint="digest")
        real = hashlib.sha256()
        if file is not None:
            for piece in chunks.find({"files_id": file["_id"]}, sort=[("files_id", 1), ("n", 1)]):
                real.update(piece["data"])
        if real.hexdigest() != digest:
            raise Rejected(f"blob {digest} is not in the database as it was restored")

    # -------------------------------------------------------------- queueing

    def _queue(self) -> None:
        """Lets what was not done wait for executors, the oldest first."""
        waiting = [int(status) for status in WAITING]
        count = 0
        for number in itertools.count(1):

            def queue(mark: str = f"{self._mark}:{number}") -> int:
                # A round that was answered by nobody is found by the next.
                query = {"s": {"$in": waiting}, "by": self._mark}
                found = self._tasks.find(
                    query, {"_id": 1}, sort=[("s", 1), ("_id", 1)], limit=BATCH, hint="status"
                )
                ids = [document["_id"] for document in found]
                self._tasks.update_many(
                    {"_id": {"$in": ids}, **query}, {"$set": {"q": True, "by": mark}}
                )
                return len(ids)

            queued = _insist(queue)
            if not queued:
                return
            count += queued
            self._tell("queueing", count, self._checked.manifest.unfinished)

    def _recount(self) -> None:
        """What ended before, for the statistics, by whichever judicator."""
        self._tell("counting", 0, 0)
        counts = Counts(self._database, "restore")

        def count() -> None:
            missing = counts.count_all(most=1 << 62) or Counter()
            missing.subtract(counts.stored())
            with self._database.client.start_session() as session:
                counts.make_good({name: n for name, n in missing.items() if n}, session)

        _insist(count)


def let_wait(task: dict[str, Any], mark: str) -> dict[str, Any]:
    """An unfinished task as it waits again: in nobody's hand, and not yet in the queue.

    Its attempts stay counted: a result of one that some executor still keeps is
    thereby never taken for a later one's.
    """
    held = task["s"] in _ACTIVE
    waits = {
        name: value
        for name, value in task.items()
        if name not in ("q", "o", "lt", "i", "cn", "x", "by")
    }
    if held:
        ended = {"n": task["a"], "e": task.get("e", ""), "t": task.get("ct"), "w": INTERRUPTED}
        # As any task whose executor was lost: it has waited its turn.
        waits.update(s=int(Status.RETRYING), h=0, td=0)
        waits["at"] = [*task.get("at", ()), ended][-MOST_ATTEMPTS_KEPT:]
    waits["by"] = mark
    return waits


def _to_update(section: str, document: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in document.items() if name != "_id"}
    if section == "executors":
        return {"$set": {"dr": True}, "$setOnInsert": {"t": rest.get("t")}}
    if section in ("tokens", "minutes"):
        return {"$setOnInsert": rest}
    return {"$max": rest}


def _without_key(document: bytes) -> bytes:
    task = bson.decode(document)
    task.pop("k", None)
    return bson.encode(task)


def _was_cancelled(expected: bytes, real: bytes) -> bool:
    return (
        RawBSONDocument(expected)["s"] not in _FINAL
        and RawBSONDocument(real)["s"] == Status.CANCELLED
    )


def _insert(tasks: Any, documents: Iterable[Any]) -> list[int]:
    """Indexes of those whose key is taken; what is there already is left as it is."""
    try:
        tasks.insert_many(documents, ordered=False)
    except BulkWriteError as error:
        details = error.details or {}
        failures = details.get("writeErrors", [])
        if any(failure["code"] != DUPLICATE for failure in failures):
            raise
        if details.get("writeConcernErrors"):
            raise Unavailable("the database does not write to a majority") from error
        return [f["index"] for f in failures if "k" in f.get("keyPattern", {})]
    return []


def _batches(documents: Iterable[bytes]) -> Iterator[list[bytes]]:
    """As many as one message carries."""
    batch: list[bytes] = []
    size_bytes = 0
    for document in documents:
        batch.append(document)
        size_bytes += len(document)
        if len(batch) >= BATCH or size_bytes >= BATCH_BYTES:
            yield batch
            batch, size_bytes = [], 0
    if batch:
        yield batch


def _grouped(documents: Iterable[Any], most: int) -> Iterator[list[Any]]:
    all_of_them = iter(documents)
    while group := list(itertools.islice(all_of_them, most)):
        yield group


def _insist(call: Callable[[], Answer]) -> Answer:
    """Repeats a call, each of which may be, while the database is away for a moment."""
    deadline = Deadline(PATIENCE_S)
    for pause_s in backoff(0.2, 2.0):
        try:
            return call()
        except Unavailable:
            if deadline.expired:
                raise
        except PyMongoError as error:
            if deadline.expired or not is_passing(error):
                raise
        time.sleep(pause_s)
    raise AssertionError("backoff has no end")
