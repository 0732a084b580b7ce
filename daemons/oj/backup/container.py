"""The file of a backup: a tar archive, compressed by gzip, written and read as a stream.

Any tar opens it. Nothing is read or held that is larger than a piece, however
large the file is; damage of any kind is `Damaged`.
"""

from __future__ import annotations

import contextlib
import gzip
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, BinaryIO

from oj.errors import Rejected

PIECE_BYTES = 256 << 10
# A third of the time of the default level, for files that are hardly larger.
LEVEL = 2


class Damaged(Rejected):
    """The file is not a whole backup."""


class Writer:
    """Members, one after the other; `close` ends the archive."""

    def __init__(self, out: BinaryIO) -> None:
        self._gzip = gzip.GzipFile("", "wb", LEVEL, out, mtime=0)
        self._tar = tarfile.TarFile(fileobj=self._gzip, mode="w", format=tarfile.USTAR_FORMAT)

    def add(self, name: str, size_bytes: int, data: IO[bytes], time_s: float) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mtime, member.mode = size_bytes, int(time_s), 0o600
        self._tar.addfile(member, data)
        self._tar.members.clear()  # type: ignore[attr-defined] # there may be millions

    def close(self) -> None:
        self._tar.close()
        self._gzip.close()


@dataclass(frozen=True)
class Member:
    name: str
    size_bytes: int
    data: IO[bytes]

    def pieces(self) -> Iterator[bytes]:
        while piece := self.data.read(PIECE_BYTES):
            yield piece


@contextlib.contextmanager
def noticing_damage() -> Iterator[None]:
    """Around all reading of members."""
    try:
        yield
    except EOFError:
        raise Damaged("it is cut off") from None
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error) as error:
        raise Damaged(str(error)) from None


def read_members(file: BinaryIO) -> Iterator[Member]:
    """The members in order, each to be used before the next is asked for.

    Raises Damaged, also when nothing but the end is missing.
    """
    with gzip.GzipFile(fileobj=file, mode="rb") as unpacked:
        with tarfile.open(fileobj=unpacked, mode="r|") as tar:
            while (member := tar.next()) is not None:
                data = tar.extractfile(member) if member.isreg() else None
                if data is None:
                    raise Damaged(f"'{member.name}' is no plain file")
                yield Member(member.name, member.size, data)
                tar.members.clear()  # type: ignore[attr-defined]
        # The checksum is behind the last byte.
        while rest := unpacked.read(PIECE_BYTES):
            if rest.count(0) != len(rest):
                raise Damaged("something was added behind its end")
