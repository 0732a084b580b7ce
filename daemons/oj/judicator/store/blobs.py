"""Blobs: large data, stored once under its SHA-256, in GridFS's collections.

    blobs.files   _id, filename = digest, length, chunkSize, uploadDate,
                  unused = since when; only until the first task names it,
                  under_way = true while it is being stored, false while it is removed
    blobs.chunks  files_id, n, data

A blob under way has a file document without a filename; setting the filename,
which is unique, is what makes it exist. So a crash leaves no half blob under a
digest, and of two senders at once one wins and the other cleans up after itself.

A blob is `unused` until a task names it: the transaction that adds the first such task takes the
mark away, for good, as tasks stay for good. What is unused for a day the leader makes one under way
again, by taking its name away, and then removes like one that was not sent to its end. Both write
the same document, so of an add and a removal one comes first: the add keeps the blob or is refused.
Whoever asks for an unused blob, as senders do before they add, gives it another day. Judicators of
before that take no mark away: while there is one, no blob gets a mark or has one for long.

Pieces gather in a spool directory until the last one came: nothing enters the
database that does not have the digest it claims to have.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from bson import Binary, ObjectId
from pymongo import ASCENDING, IndexModel
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from oj.clock import Deadline, utc_now
from oj.errors import Missing, Oversized, Rejected, Unavailable
from oj.judicator.store.database import DURABLE, SAFE, WRITE_MS, at_the_edge
from oj.model import BLOB_BYTES, CHUNK_BYTES

log = logging.getLogger("oj.judicator.store.blobs")

PIECE_BYTES = 255 << 10
SPOOLS = 64
SPOOL_TOTAL_BYTES = 2 << 30
SPOOL_IDLE_S = 600.0
KNOWN = 100_000
ABANDONED_S = 3600
UNUSED_S = 86400.0
RENEWED_S = 3600.0  # asking changes nothing for a blob that is younger
MOST_REMOVED = 100  # at once
PIECES_REMOVED = 32
LOOK_AGAIN_S = 0.02


@dataclass
class Spool:
    """A blob that is being sent."""

    path: Path
    file: BinaryIO
    lock: threading.Lock = field(default_factory=threading.Lock)
    size: int = 0
    hash: Any = field(default_factory=hashlib.sha256)
    used_s: float = field(default_factory=time.monotonic)


class Blobs:
    """Takes blobs in, gives them out."""

    def __init__(
        self,
        database: Database[Any],
        spool_directory: Path,
        may_mark: Callable[[], bool] = lambda: True,
    ) -> None:
        """`may_mark` tells whether all that add tasks take the marks of blobs away."""
        self._files = database.get_collection(
            "blobs.files", write_concern=DURABLE, read_concern=SAFE
        )
        self._chunks = database.get_collection("blobs.chunks", write_concern=DURABLE)
        self._directory = spool_directory
        self._may_mark = may_mark
        self._lock = threading.Lock()
        self._spools: dict[str, Spool] = {}
        # Digests that tasks name, with their length: these are never changed or removed, so what
        # was seen once stays true.
        self._known: dict[str, int] = {}
        spool_directory.mkdir(parents=True, exist_ok=True)
        for left in spool_directory.iterdir():
            left.unlink()

    @at_the_edge
    def make_indexes(self) -> None:
        self._files.create_indexes(
            [
                IndexModel(
                    [("filename", ASCENDING)],
                    name="digest",
                    unique=True,
                    partialFilterExpression={"filename": {"$exists": True}},
                ),
                IndexModel([("under_way", ASCENDING)], name="under_way", sparse=True),
                IndexModel([("unused", ASCENDING)], name="unused", sparse=True),
            ]
        )
        self._chunks.create_indexes(
            [IndexModel([("files_id", ASCENDING), ("n", ASCENDING)], name="piece", unique=True)]
        )

    # --------------------------------------------------------------- looking

    @at_the_edge
    def find(self, digests: Iterable[str]) -> set[str]:
        """Those that are stored, and stay for as long as it takes to add a task."""
        return set(self._find_lengths(digests))

    def _find_lengths(self, digests: Iterable[str]) -> dict[str, int]:
        wanted = set(digests)
        lengths = {d: length for d in wanted if (length := self._known.get(d)) is not None}
        missing = wanted - lengths.keys()
        if missing:
            late = self._look(missing, lengths)
            if late:
                for some in _grouped(late):
                    self._files.update_many(
                        {"filename": {"$in": some}, "unused": {"$exists": True}},
                        {"$currentDate": {"unused": True}},
                        hint="digest",
                    )
                # The leader may have been first.
                for digest in late:
                    del lengths[digest]
                self._look(late, lengths)
        return lengths

    def _look(self, digests: Iterable[str], lengths: dict[str, int]) -> set[str]:
        """Notes the lengths of those that are stored; returns which have long been unused."""
        late = set()
        shown = {"filename": 1, "length": 1, "unused": 1, "late": _unused_for(RENEWED_S), "_id": 0}
        for some in _grouped(digests):
            for document in self._files.find({"filename": {"$in": some}}, shown, hint="digest"):
                digest = document["filename"]
                lengths[digest] = document["length"]
                if "unused" not in document:
                    self._remember(digest, document["length"])
                elif document["late"]:
                    late.add(digest)
        return late

    def check_stored(self, named: Mapping[str, str]) -> dict[str, str]:
        """Raises Rejected with the field that names a blob which is not there.

        Those of the blobs that no task may have named before: adding this one has to keep them.
        """
        if not named:
            return {}
        found = self.find(named)
        for digest, where in named.items():
            if digest not in found:
                raise _not_stored(where)
        return {digest: where for digest, where in named.items() if digest not in self._known}

    def _remember(self, digest: str, length: int) -> None:
        with self._lock:
            while len(self._known) >= KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[digest] = length

    @at_the_edge
    def _length(self, digest: str) -> int | None:
        return self._find_lengths([digest]).get(digest)

    # --------------------------------------------------------------- reading

    @at_the_edge
    def get(self, digest: str, offset: int, length: int) -> bytes:
        if offset < 0 or length < 0:
            where = "offset" if offset < 0 else "length"
            raise Rejected(f"{where} is negative", where)
        file = self._files.find_one(
            {"filename": digest}, {"length": 1, "chunkSize": 1}, hint="digest"
        )
        if file is None:
            raise Missing(f"there is no blob {digest}", digest)
        end = min(offset + min(length, CHUNK_BYTES), file["length"])
        if offset >= end:
            return b""
        size = file["chunkSize"]
        first, last = offset // size, (end - 1) // size
        pieces = self._chunks.find(
            {"files_id": file["_id"], "n": {"$gte": first, "$lte": last}},
            {"data": 1, "_id": 0},
            sort=[("files_id", 1), ("n", 1)],
            hint="piece",
        )
        data = b"".join(piece["data"] for piece in pieces)
        wanted: bytes = data[offset - first * size : end - first * size]
        if len(wanted) != end - offset:
            raise RuntimeError(f"blob {digest} is damaged in the database")
        return wanted

    # --------------------------------------------------------------- writing

    def put(self, digest: str, offset: int, data: bytes, last: bool) -> int:
        """Takes one piece; returns the offset that is expected next."""
        if offset < 0:
            raise Rejected("offset is negative", "offset")
        if len(data) > CHUNK_BYTES:
            raise Oversized(f"data is larger than {CHUNK_BYTES} bytes", CHUNK_BYTES, "data")
        if offset + len(data) > BLOB_BYTES:
            raise Oversized(f"the blob is larger than {BLOB_BYTES} bytes", BLOB_BYTES, "data")
        length = self._length(digest)
        if length is not None:
            return length
        spool = self._open(digest, offset)
        if spool is None:
            return 0
        with spool.lock:
            if spool.file.closed:
                return 0  # given up while we waited for the lock
            if spool.size != offset:
                return spool.size
            _write_at(spool.file, offset, data)
            spool.hash.update(data)
            spool.size += len(data)
            spool.used_s = time.monotonic()
            if not last:
                return spool.size
            try:
                if spool.hash.hexdigest() != digest:
                    raise Rejected("the data does not have this digest; send it anew", "digest")
                with spool.path.open("rb") as file:
                    self.store(digest, file, spool.size)
            finally:
                self._discard(digest, spool)
            return spool.size

    def _open(self, digest: str, offset: int) -> Spool | None:
        """The spool of this blob; None if there is none and this is not the start."""
        with self._lock:
            spool = self._spools.get(digest)
            if spool is not None or offset > 0:
                return spool
            self._sweep_locked()
            if len(self._spools) >= SPOOLS:
                raise Unavailable("too many blobs are being sent just now", 1000)
            if sum(s.size for s in self._spools.values()) > SPOOL_TOTAL_BYTES:
                raise Unavailable("too much data is being sent just now", 1000)
            path = self._directory / digest
            try:
                file = path.open("wb", buffering=0)  # no buffer: a write fails when it fails
            except OSError as error:
                raise _cannot_keep(error) from error
            spool = self._spools[digest] = Spool(path, file)
            return spool

    def _discard(self, digest: str, spool: Spool) -> None:
        """With the spool's lock held: nobody writes to what is closed here."""
        with self._lock:
            if self._spools.get(digest) is spool:
                self._drop(digest, spool)

    def _drop(self, digest: str, spool: Spool) -> None:
        del self._spools[digest]
        spool.file.close()
        with contextlib.suppress(OSError):
            spool.path.unlink()

    def sweep(self) -> None:
        """Gives up blobs whose sender has gone."""
        with self._lock:
            self._sweep_locked()

    def _sweep_locked(self) -> None:
        late_s = time.monotonic() - SPOOL_IDLE_S
        for digest, spool in list(self._spools.items()):
            # One that is in use is not idle, however long the database takes.
            if spool.used_s < late_s and spool.lock.acquire(blocking=False):
                try:
                    log.warning("gave up blob %s: its sender has gone", digest)
                    self._drop(digest, spool)
                finally:
                    spool.lock.release()

    @at_the_edge
    def store(self, digest: str, file: BinaryIO, length: int) -> None:
        """Stores what is known to have this digest, for a task to name it."""
        file_id = ObjectId()
        self._files.insert_one(
            {
                "_id": file_id,
                "length": length,
                "chunkSize": PIECE_BYTES,
                "uploadDate": utc_now(),
                "under_way": True,
            }
        )
        try:
            for batch in _batches(file, file_id):
                self._chunks.insert_many(batch)
            change: dict[str, Any] = {"$set": {"filename": digest}, "$unset": {"under_way": ""}}
            if self._may_mark():
                change["$currentDate"] = {"unused": True}
            named = self._files.update_one({"_id": file_id, "under_way": True}, change)
        except DuplicateKeyError:
            self._chunks.delete_many({"files_id": file_id})  # another sender was first
            self._files.delete_one({"_id": file_id})
            self._wait_for(digest)
            return
        if named.matched_count == 0:
            self._chunks.delete_many({"files_id": file_id})
            raise Unavailable("storing the blob took so long that it was given up", 1000)

    def _wait_for(self, digest: str) -> None:
        """Until a majority has what another sender stores."""
        deadline = Deadline(WRITE_MS / 1000)
        while not self.find([digest]):
            deadline.check("another sender's blob is not stored safely yet")
            time.sleep(LOOK_AGAIN_S)

    @at_the_edge
    def keep(self, digest: str) -> None:
        """Makes a stored blob that of a task which is there already; for a restore."""
        self._files.update_one({"filename": digest}, {"$unset": {"unused": ""}}, hint="digest")

    # -------------------------------------------------------------- removing

    @at_the_edge
    def find_unused(self, unused_s: float = UNUSED_S) -> list[ObjectId]:
        """Some of those that no task has named for so long."""
        documents = self._files.aggregate(
            [
                {"$match": _removable(unused_s)},
                {"$limit": MOST_REMOVED},
                {"$project": {"_id": 1}},
            ],
            hint="unused",
        )
        return [document["_id"] for document in documents]

    @at_the_edge
    def unmark(self, session: ClientSession) -> None:
        """Keeps all that are unused now, for good; for the leader."""
        self._files.update_many(
            {"unused": {"$exists": True}}, {"$unset": {"unused": ""}}, session=session
        )

    @at_the_edge
    def take_names(
        self, file_ids: Sequence[ObjectId], session: ClientSession, unused_s: float = UNUSED_S
    ) -> int:
        """From now on these are not there, but those that were asked for since; for the leader."""
        return self._files.update_many(
            {"_id": {"$in": list(file_ids)}, **_removable(unused_s)},
            {"$unset": {"filename": "", "unused": ""}, "$set": {"under_way": False}},
            session=session,
        ).modified_count

    @at_the_edge
    def find_abandoned(self) -> list[ObjectId]:
        """What a judicator that was killed left half stored, and what was taken its name."""
        late = ObjectId.from_datetime(
            utc_now().fromtimestamp(time.time() - ABANDONED_S, tz=utc_now().tzinfo)
        )
        return [
            document["_id"]
            for document in self._files.find(
                {"under_way": {"$exists": True}, "_id": {"$lt": late}},
                {"_id": 1},
                hint="under_way",
                limit=MOST_REMOVED,
            )
        ]

    @at_the_edge
    def remove_abandoned(self, file_id: ObjectId, session: ClientSession) -> bool:
        """Removes a part of such a blob, unless it was completed meanwhile; for the leader.

        Whether nothing is left to be removed. A large one in one transaction would be more than
        the database's cache holds.
        """
        outcome = self._files.update_one(
            {"_id": file_id, "under_way": {"$exists": True}},
            {"$set": {"under_way": False}},  # its sender, if there is one after all, is late
            session=session,
        )
        if outcome.matched_count == 0:
            return True
        first = self._chunks.find_one(
            {"files_id": file_id},
            {"n": 1},
            sort=[("files_id", 1), ("n", 1)],
            hint="piece",
            session=session,
        )
        if first is None:
            self._files.delete_one({"_id": file_id}, session=session)
            return True
        self._chunks.delete_many(
            {"files_id": file_id, "n": {"$lt": first["n"] + PIECES_REMOVED}}, session=session
        )
        return False

    def close(self) -> None:
        for spool in self._spools.values():
            with contextlib.suppress(OSError):
                spool.path.unlink()


def _write_at(file: BinaryIO, offset: int, data: bytes) -> None:
    """Puts a piece where it belongs, over what is left there of a try that found no room."""
    try:
        file.seek(offset)
        file.truncate()
        left = memoryview(data)
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise _cannot_keep(error) from error


def _cannot_keep(error: OSError) -> Unavailable:
    return Unavailable(f"the blob cannot be kept here: {error.strerror}", 1000)


def keep(files: Collection[Any], named: Mapping[str, str], session: ClientSession) -> None:
    """Makes stored blobs those of a task that is added in the same transaction.

    Raises Rejected with the field that names one which was removed meanwhile.
    """
    for some in _grouped(named):
        digests = {"filename": {"$in": some}}
        change = {"$unset": {"unused": ""}}
        outcome = files.update_many(digests, change, hint="digest", session=session)
        if outcome.matched_count < len(some):
            there = {f["filename"] for f in files.find(digests, hint="digest", session=session)}
            raise _not_stored(next(named[digest] for digest in some if digest not in there))


def _grouped(digests: Iterable[str]) -> Iterator[list[str]]:
    """As many as a command carries easily."""
    rest = iter(digests)
    while some := list(itertools.islice(rest, 10_000)):
        yield some


def _not_stored(where: str) -> Rejected:
    return Rejected(f"{where}: no such blob is stored; send it first", where)


def _unused_for(seconds: float) -> dict[str, Any]:
    return {"$lt": ["$unused", {"$subtract": ["$$NOW", int(seconds * 1000)]}]}


def _removable(unused_s: float) -> dict[str, Any]:
    return {"unused": {"$exists": True}, "$expr": _unused_for(unused_s)}


def _batches(file: BinaryIO, file_id: ObjectId) -> Iterator[list[dict[str, Any]]]:
    """Chunk documents, a few MB at a time."""
    batch: list[dict[str, Any]] = []
    number = 0
    while data := file.read(PIECE_BYTES):
        batch.append({"files_id": file_id, "n": number, "data": Binary(data)})
        number += 1
        if len(batch) == 16:
            yield batch
            batch = []
    if batch:
        yield batch
