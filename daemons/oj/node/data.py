"""The data directories of a node: whose data is in them, and how it is set aside.

Nothing is ever deleted here. What is set aside stays in its state directory, because only that is
writable for the daemon, and so that a disk mounted there is not crossed. Directories that begin
with ASIDE may go when there are newer ones; those that begin with KEPT hold what was judged.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from oj.etcd.datadir import Origin, read_origin

__all__ = ["ASIDE", "KEPT", "LEFT", "Held", "Origin", "look", "read_origin"]

ASIDE = "set-aside-"
KEPT = "kept-"
LEFT = "left"  # the mark of a node that left its cluster for good


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
