"""Makes a backup of a running cluster.

Documents first, as they were at one moment, then the blobs that are there: a
blob is stored before the task that names it, and then never changed or removed,
so every blob that such a task needs is among them.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import os
import secrets
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

from pymongo.database import Database
from pymongo.errors import PyMongoError

from oj import __version__
from oj.backup.container import Writer
from oj.backup.contents import (
    BLOBS,
    HEADER,
    MANIFEST,
    SECTIONS,
    Header,
    Manifest,
    Section,
    Tell,
    to_text,
)
from oj.backup.snapshot import Snapshot
from oj.clock import utc_now
from oj.judicator.store.database import at_the_edge
from oj.model import FINAL

PART_BYTES = 4 << 20
PIECES = 16  # of a blob that are read at once
IN_MEMORY_BYTES = 8 << 20
_FINAL = frozenset(int(status) for status in FINAL)


def write_file(database: Database[Any], path: Path, tell: Tell) -> Manifest:
    """A file that is there whole or not at all."""
    part = path.with_name(path.name + ".part")
    try:
        # Sources and results are nobody else's business.
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            manifest = write(database, out, tell)
            out.flush()
            os.fsync(out.fileno())
        part.rename(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return manifest


@at_the_edge
def write(database: Database[Any], out: BinaryIO, tell: Tell) -> Manifest:
    backup = Backup(database, Writer(out), tell)
    return backup.run()


class Backup:
    """One backup under way."""

    def __init__(self, database: Database[Any], writer: Writer, tell: Tell) -> None:
        self._database = database
        self._writer = writer
        self._tell = tell
        self._found = {name: Section() for name in (*SECTIONS, BLOBS)}
        self._unfinished = 0
        self._damaged: list[str] = []

    def run(self) -> Manifest:
        header = Header(
            id=secrets.token_hex(16),
            oj=__version__,
            database=self._database.name,
            host=socket.gethostname(),
            begun=_now_text(),
        )
        self._add(HEADER, to_text(header))
        snapshot = Snapshot(self._database)
        for name in SECTIONS:
            self._write_section(name, snapshot)
        self._write_blobs(Snapshot(self._database))
        manifest = Manifest(
            id=header.id,
            ended=_now_text(),
            sections={name: section.plain() for name, section in self._found.items()},
            times=snapshot.times,
            unfinished=self._unfinished,
            damaged=self._damaged,
        )
        self._add(MANIFEST, to_text(manifest))
        self._writer.close()
        return manifest

    def _add(self, name: str, data: bytes) -> None:
        self._writer.add(name, len(data), io.BytesIO(data), time.time())

    def _estimate(self, name: str) -> int:
        """For the progress only; 0: not known."""
        try:
            return self._database[name].estimated_document_count()
        except PyMongoError:
            return 0

    def _write_section(self, name: str, snapshot: Snapshot) -> None:
        # Of executors, only what an operator decided: the rest they tell anew.
        projection = {"dr": 1, "t": 1} if name == "executors" else None
        total = self._estimate(name)
        section = self._found[name]
        numbers = itertools.count(1)
        part = bytearray()
        for document in snapshot.read(name, projection):
            if name == "executors" and not document.get("dr"):
                continue
            if name == "tasks":
                self._unfinished += document["s"] not in _FINAL
            section.add(document.raw)
            part += document.raw
            if len(part) >= PART_BYTES:
                self._add(f"{name}/{next(numbers):08}.bson", bytes(part))
                part.clear()
                self._tell(f"reading {name}", section.count, total)
        if part:
            self._add(f"{name}/{next(numbers):08}.bson", bytes(part))
        self._tell(f"reading {name}", section.count, total)

    def _write_blobs(self, snapshot: Snapshot) -> None:
        total = self._estimate("blobs.files")
        for file in snapshot.read("blobs.files"):
            digest = file.get("filename")
            if digest is None:
                continue  # one that is being sent just now
            with tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES) as spool:
                # To its end before it is written: only then is it known to be whole.
                if not _copy_blob(snapshot, file, spool):
                    same = {"_id": file["_id"], "filename": digest}
                    if snapshot.read_since(BLOBS + ".files", same, {"_id": 1}, 1):
                        self._damaged.append(digest)
                    continue  # or it was removed meanwhile, because no task needs it
                spool.seek(0)
                sent_s = file["uploadDate"].timestamp()
                self._writer.add(f"{BLOBS}/{digest}", file["length"], spool, sent_s)
            self._found[BLOBS].add_blob(digest, file["length"])
            self._tell("reading blobs", self._found[BLOBS].count, total)


def _copy_blob(snapshot: Snapshot, file: Any, out: IO[bytes]) -> bool:
    """Whether what the database holds is what the digest says."""
    real = hashlib.sha256()
    for piece in _read_pieces(snapshot, file["_id"]):
        real.update(piece)
        out.write(piece)
    return out.tell() == file["length"] and real.hexdigest() == file["filename"]


def _read_pieces(snapshot: Snapshot, file_id: Any) -> Iterator[bytes]:
    expected = 0
    while pieces := snapshot.read_since(
        "blobs.chunks",
        {"files_id": file_id, "n": {"$gte": expected}},
        {"files_id": 1, "n": 1},
        PIECES,
    ):
        for piece in pieces:
            yield bytes(piece["data"])
            expected = piece["n"] + 1


def _now_text() -> str:
    return utc_now().isoformat(timespec="seconds").replace("+00:00", "Z")
