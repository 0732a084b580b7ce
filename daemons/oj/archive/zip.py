"""Zip archives: stored or deflated files, one directory at the end, nothing around them.

Of zipfile only the reading of entries is used, after the directory was found to be
small. What was added in front, behind or as a second directory is refused, because
programs disagree on what such a file contains.
"""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import BinaryIO

from oj import model
from oj.archive.rules import Bounds, Collected, shown
from oj.errors import Rejected

CHUNK_BYTES = 64 << 10
DIRECTORY_ENTRY_BYTES = 46 + model.MAX_PATH_BYTES + 256  # generous

_END = struct.Struct("<4s4H2LH")
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_UTF8 = 0x800


def read(file: BinaryIO, size_bytes: int, collected: Collected) -> None:
    entries = _check_directory(file, size_bytes, collected.bounds)
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            if len(members) != entries:
                raise Rejected("its directory and its end disagree")
            for member in members:
                collected.count()
                _read_member(archive, member, collected)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise Rejected(f"it is damaged: {error}") from None
    except UnicodeDecodeError:
        raise Rejected("it has a name that is not UTF-8") from None
    except (OSError, ValueError, struct.error, RuntimeError, OverflowError) as error:
        # zipfile's ways to say that a number in the file makes no sense.
        raise Rejected(f"it is damaged: {type(error).__name__}") from None


def _check_directory(file: BinaryIO, size_bytes: int, bounds: Bounds) -> int:
    """Looks at the end of the file before anything is read by it; the number of entries."""
    tail_bytes = min(size_bytes, _END.size + 0xFFFF)
    file.seek(size_bytes - tail_bytes)
    tail = file.read(tail_bytes)
    at = tail.rfind(b"PK\5\6")
    if at < 0 or len(tail) - at < _END.size:
        raise Rejected("it is cut off, or something was added to it")
    _, disk, first_disk, here, entries, directory_bytes, offset, comment_bytes = _END.unpack_from(
        tail, at
    )
    if 0xFFFF in (entries, here) or 0xFFFFFFFF in (directory_bytes, offset):
        raise Rejected("it is a zip64 archive, which only very large ones have to be")
    if disk or first_disk or here != entries:
        raise Rejected("it is a part of several")
    if at + _END.size + comment_bytes != len(tail):
        raise Rejected("something was added behind its end")
    if offset + directory_bytes != size_bytes - tail_bytes + at:
        raise Rejected("something was added in front of it or inside it")
    if entries > bounds.entries or directory_bytes > bounds.entries * DIRECTORY_ENTRY_BYTES:
        raise Rejected(f"it has more than {bounds.entries} entries")
    file.seek(0)
    return entries


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, collected: Collected) -> None:
    raw = member.orig_filename  # zipfile cuts `filename` at a NUL
    if not member.flag_bits & _UTF8 and not raw.isascii():
        raise Rejected(f"entry {shown(raw)} has a name that is not marked as UTF-8")
    if member.flag_bits & _ENCRYPTED:
        raise Rejected(f"entry {shown(raw)} is encrypted")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise Rejected(f"entry {shown(raw)} is {_KINDS.get(kind, 'no plain file')}")
    if raw.endswith("/") or kind == stat.S_IFDIR:
        if member.file_size or member.compress_size > 2:  # an empty deflate stream has two
            raise Rejected(f"entry {shown(raw)} is a directory with content")
        collected.add_directory(raw)
        return
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Rejected(f"entry {shown(raw)} is compressed in a way other than deflate")

    def chunks() -> Iterator[bytes]:
        try:
            with archive.open(member) as stream:
                while chunk := stream.read(CHUNK_BYTES):
                    yield chunk
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise Rejected(f"entry {shown(raw)} is damaged: {error}") from None

    collected.add_file(raw, member.file_size, chunks())


_KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
}
