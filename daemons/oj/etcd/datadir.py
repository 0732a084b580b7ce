"""What lies in the data directory beside etcd's own files.

member/                  etcd's; data is there when it holds a log
known-members            the cluster as this node last knew it, to ask when it starts again
left                     `oj leave` was here: do not join again by yourself
recover                  `oj recover` was here: start once as the only member
unusable                 why etcd cannot go on from this data, such as that it was removed
set-aside-TIMESTAMP/     data of before, that was no longer of use; the newest two
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oj import etcdmessages
from oj.clock import utc_now
from oj.errors import Unavailable

KEPT_ASIDE = 2
PROXY = "grpc-proxy"  # below a node's data: what a proxy remembers
_METADATA = 1  # the kind of the record in etcd's log that tells node and cluster


@dataclass(frozen=True)
class Known:
    """The cluster as this node last knew it; ids are 0 and lists empty where it did not."""

    cluster_id: int = 0
    member_id: int = 0
    clients: tuple[str, ...] = ()  # HOST:PORT of the others
    names: tuple[str, ...] = ()  # of the same, in the same order
    own_name: str = ""
    own_address: str = ""  # HOST:PORT by which the other members find this one


class DataDirectory:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.left = path / "left"
        self.recover = path / "recover"
        self.unusable = path / "unusable"
        self.known = path / "known-members"

    def prepare(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        # etcd does not start as a member where it finds a directory of this name, which the proxy
        # of earlier versions has left.
        with contextlib.suppress(OSError):
            self.path.joinpath("proxy").rmdir()

    @property
    def has_data(self) -> bool:
        """By etcd's own rule: there is a log. It appears at once and whole."""
        return any(self.path.joinpath("member", "wal").glob("*.wal"))

    def read_known(self) -> Known:
        try:
            values = json.loads(self.known.read_text())
            return Known(
                int(values["cluster"], 16),
                int(values["member"], 16),
                tuple(values["clients"]),
                tuple(values.get("names", ())),
                str(values.get("own_name", "")),
                str(values.get("own_address", "")),
            )
        except FileNotFoundError:
            return Known()
        except (OSError, ValueError, KeyError, TypeError):
            return Known()  # it only helps; an unreadable one must not hinder

    def write_known(self, known: Known) -> None:
        """Raises Unavailable when the disk is full or the directory gone."""
        text = json.dumps(
            {
                "cluster": f"{known.cluster_id:x}",
                "member": f"{known.member_id:x}",
                "clients": list(known.clients),
                "names": list(known.names),
                "own_name": known.own_name,
                "own_address": known.own_address,
            },
            indent=1,
        )
        self._write(self.known, text + "\n")

    def read_unusable(self) -> str:
        """Why the data is of no use; empty when nothing is known."""
        try:
            return self.unusable.read_text().strip()
        except OSError:
            return ""

    def mark(self, marker: Path, text: str) -> None:
        """Leaves one of the marker files, with words for who finds it."""
        self._write(marker, text + "\n")

    def set_aside(self) -> Path:
        """Moves etcd's files to a directory beside them, and keeps the newest two of those."""
        stamp = utc_now().strftime("%Y%m%dT%H%M%S.%fZ")
        target = self.path / f"set-aside-{stamp}"
        target.mkdir(mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(self.known, target / self.known.name)
        with contextlib.suppress(FileNotFoundError):
            self.path.joinpath("member").rename(target / "member")
        self._forget_membership()
        for old in sorted(self.path.glob("set-aside-*"))[:-KEPT_ASIDE]:
            shutil.rmtree(old, ignore_errors=True)
        return target

    def _forget_membership(self) -> None:
        """Who the others are is still of use; which member this was is not."""
        known = self.read_known()
        if known.clients:
            self.write_known(Known(clients=known.clients, names=known.names))
        self.unusable.unlink(missing_ok=True)

    def _write(self, target: Path, text: str) -> None:
        """Whole or not at all, and owned as the directory is: `oj leave` runs as root."""
        new = target.with_name(target.name + ".new")
        try:
            with new.open("w") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            owner = self.path.stat()
            with contextlib.suppress(PermissionError):
                os.chown(new, owner.st_uid, owner.st_gid)
            new.replace(target)
        except OSError as error:
            raise Unavailable(f"cannot write {target}: {error.strerror}") from error


def is_full(path: Path, least_bytes: int = 64 << 20) -> bool:
    """Whether the disk has next to nothing left; etcd allocates 64 MB for its log at a time."""
    try:
        return shutil.disk_usage(path).free < least_bytes
    except OSError:
        return False


def others(addresses: Sequence[str], own: Sequence[str]) -> tuple[str, ...]:
    """The addresses without our own, each once, in order."""
    return tuple(address for address in dict.fromkeys(addresses) if address not in own)


# --- whose data it is ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Origin:
    """Which member of which cluster an etcd's data is of.

    Both numbers are made of the first member's address and a word that oj-etcd takes at random.
    Where etcd was started without that word, clusters that began on loopback are all alike.
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
