"""The data directories of a node: whose data is in them, and how it is set aside.

Nothing is ever deleted here. What is set aside stays in its state directory, because only that is
writable for the daemon, and so that a disk mounted there is not crossed. Directories that begin
with ASIDE may go when there are newer ones; those that begin with KEPT hold what was judged.
"""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from oj import etcdmessages

ASIDE = "set-aside-"
KEPT = "kept-"
LEFT = "left"  # the mark of a node that left its cluster for good
_METADATA = 1  # the kind of the record in etcd's log that tells node and cluster


@dataclass(frozen=True)
class Held:
    """What one data directory has in it."""

    directory: Path
    filled: bool
    left: bool
    used: bool = False  # it has anything at all

    def set_aside(self, keep: bool) -> Path:
        """Moves everything in it into a directory of its own there; returns that."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        into = self.directory / f"{KEPT if keep else ASIDE}{stamp}"
        owner = self.directory.stat()
        into.mkdir(mode=0o700)
        os.chown(into, owner.st_uid, owner.st_gid)
        for path in self.directory.iterdir():
            if not _is_aside(path):
                path.rename(into / path.name)
        return into

    def unmark(self) -> None:
        (self.directory / LEFT).unlink(missing_ok=True)


def look(directory: Path) -> Held:
    try:
        paths = list(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        paths = []
    names = {path.name for path in paths if not _is_aside(path)}
    return Held(directory, bool(names & {"member", "WiredTiger"}), LEFT in names, bool(names))


def _is_aside(path: Path) -> bool:
    return path.name.startswith((ASIDE, KEPT))


@dataclass(frozen=True)
class Origin:
    """Which member of which cluster an etcd's data is of.

    Both numbers are needed with the name: etcd makes them of the first member's address, so that
    all clusters that began on loopback addresses have the same ones.
    """

    cluster_id: int
    member_id: int


def read_origin(directory: Path) -> Origin | None:
    """Whose an etcd member's data is; None when there is none or it is broken.

    Each file of etcd's log begins with the checksum's record and the one that tells node and
    cluster, so that a member need not run to be asked.
    """
    for path in sorted((directory / "member" / "wal").glob("*.wal")):
        with path.open("rb") as file:
            found = _parse_log(file.read(4096))
        if found is not None:
            return found
    return None


def _parse_log(data: bytes) -> Origin | None:
    at = 0
    while at + 8 <= len(data):
        (head,) = struct.unpack_from("<Q", data, at)
        # The upper byte tells how much padding follows, if its highest bit is set.
        length = head & ((1 << 56) - 1)
        padding = (head >> 56) & 7 if head >> 63 else 0
        record = data[at + 8 : at + 8 + length]
        at += 8 + length + padding
        if not length or len(record) < length:
            return None
        try:
            fields = etcdmessages.read(record)
            if fields.get(1) == [_METADATA]:
                metadata = etcdmessages.read(b"".join(b for b in fields[3] if isinstance(b, bytes)))
                return Origin(int(metadata[2][0]), int(metadata[1][0]))
        except (ValueError, KeyError):
            return None
    return None
