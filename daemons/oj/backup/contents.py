"""What a backup says of itself, and the check that all of it is there.

    oj-backup.json             the header: format, id, version of oj, when and where
    SECTION/00000001.bson ...  documents of a collection, end to end, a few MB each
    blobs/DIGEST               each blob as it is
    manifest.json              the end: how much of everything, with SHA-256

The digest of a section is that of all its documents; that of the blobs is over a
line 'DIGEST LENGTH' of each, as their names already tell what is in them.
"""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, BinaryIO

from oj.backup.container import Damaged, Member, noticing_damage, read_members

FORMAT = 1
HEADER, MANIFEST, BLOBS = "oj-backup.json", "manifest.json", "blobs"
# In the order of the file.
SECTIONS = ("users", "clocks", "languages", "executors", "tokens", "minutes", "tasks")
TEXT_BYTES = 1 << 20  # of header and manifest
DOCUMENT_BYTES = 17 << 20
_BLOB = re.compile("blobs/([0-9a-f]{64})")
_PART = re.compile(r"([a-z]+)/[0-9]{8}\.bson")

Tell = Callable[[str, int, int], None]
"""Progress: what is done, how much of it, of how much (0: that is not known)."""


@dataclass(frozen=True)
class Header:
    id: str
    oj: str
    database: str
    host: str
    begun: str
    format: int = FORMAT


@dataclass
class Section:
    """So much of one kind."""

    count: int = 0
    size_bytes: int = 0
    sha256: str = ""
    _hash: Any = field(default_factory=hashlib.sha256, repr=False, compare=False)

    def add(self, data: bytes) -> None:
        self.count += 1
        self.size_bytes += len(data)
        self._hash.update(data)

    def add_blob(self, digest: str, size_bytes: int) -> None:
        self.count += 1
        self.size_bytes += size_bytes
        self._hash.update(f"{digest} {size_bytes}\n".encode())

    def plain(self) -> dict[str, Any]:
        return {"count": self.count, "bytes": self.size_bytes, "sha256": self._hash.hexdigest()}


@dataclass
class Manifest:
    id: str
    ended: str
    sections: dict[str, dict[str, Any]]
    # Moments of the database's clock that the documents were read at, seconds since 1970.
    times: list[int]
    unfinished: int  # tasks that were not done
    damaged: list[str]  # blobs that were broken in the database and are left out

    def count(self, section: str) -> int:
        return int(self.sections[section]["count"])


@dataclass(frozen=True)
class Checked:
    """A whole backup."""

    header: Header
    manifest: Manifest
    size_bytes: int

    def plain(self) -> dict[str, Any]:
        return {
            "size_bytes": self.size_bytes,
            **asdict(self.header),
            **asdict(self.manifest),
        }


def to_text(value: Header | Manifest) -> bytes:
    return json.dumps(asdict(value), indent=1).encode() + b"\n"


def read_header(member: Member) -> Header:
    """Raises Damaged unless this can be read here."""
    if member.name != HEADER:
        raise Damaged("it is not a backup of oj")
    values = _read_text(member)
    if values.get("format") != FORMAT:
        raise Damaged(
            f"it has format {values.get('format')}, and this version of oj reads {FORMAT}"
        )
    try:
        return Header(**{name: values[name] for name in Header.__dataclass_fields__})
    except KeyError as error:
        raise Damaged(f"its header lacks {error}") from None


def read_manifest(member: Member) -> Manifest:
    values = _read_text(member)
    try:
        return Manifest(**{name: values[name] for name in Manifest.__dataclass_fields__})
    except KeyError as error:
        raise Damaged(f"its manifest lacks {error}") from None


def _read_text(member: Member) -> dict[str, Any]:
    text = member.data.read(TEXT_BYTES)
    try:
        values = json.loads(text)
    except ValueError:
        values = None
    if not isinstance(values, dict):
        raise Damaged(f"{member.name} cannot be read")
    return values


def section_of(member: Member) -> str | None:
    """The collection whose documents these are."""
    found = _PART.fullmatch(member.name)
    return found[1] if found and found[1] in SECTIONS else None


def digest_of(member: Member) -> str | None:
    """The digest of the blob that this is."""
    found = _BLOB.fullmatch(member.name)
    return found[1] if found else None


def split_documents(data: IO[bytes]) -> Iterator[bytes]:
    """BSON documents as they are: each begins with its length."""
    while head := data.read(4):
        size_bytes = struct.unpack("<i", head)[0] if len(head) == 4 else 0
        if not 5 <= size_bytes <= DOCUMENT_BYTES:
            raise Damaged("a document's length is impossible")
        rest = data.read(size_bytes - 4)
        if len(rest) != size_bytes - 4:
            raise Damaged("a document is cut off")
        yield head + rest


def check(path: Path, tell: Tell) -> Checked:
    """Reads the whole file; raises Damaged unless every byte is as it was written."""
    with path.open("rb") as file, noticing_damage():
        return check_stream(file, path.stat().st_size, tell)


def check_stream(file: BinaryIO, size_bytes: int, tell: Tell) -> Checked:
    found = {name: Section() for name in (*SECTIONS, BLOBS)}
    header: Header | None = None
    manifest: Manifest | None = None
    for member in read_members(file):
        tell("checking the file", file.tell(), size_bytes)
        if header is None:
            header = read_header(member)
        elif manifest is not None:
            raise Damaged("something was added behind its end")
        elif member.name == MANIFEST:
            manifest = read_manifest(member)
        elif (section := section_of(member)) is not None:
            for document in split_documents(member.data):
                found[section].add(document)
        elif (digest := digest_of(member)) is not None:
            _check_blob(member, digest)
            found[BLOBS].add_blob(digest, member.size_bytes)
        else:
            raise Damaged(f"'{member.name}' does not belong into it")
    if header is None:
        raise Damaged("it is empty")
    if manifest is None:
        raise Damaged("it is cut off: its manifest is missing")
    if manifest.id != header.id:
        raise Damaged("its two ends are of different backups")
    for name, amount in found.items():
        if amount.plain() != manifest.sections.get(name):
            raise Damaged(f"{name}: not what was written")
    return Checked(header, manifest, size_bytes)


def _check_blob(member: Member, digest: str) -> None:
    real = hashlib.sha256()
    for piece in member.pieces():
        real.update(piece)
    if real.hexdigest() != digest:
        raise Damaged(f"blob {digest} is not what was written")
