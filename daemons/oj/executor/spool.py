"""Finished results on disk, one file each, until a judicator has them.

A file is written before its result is sent, so it outlives this process. It
is forced to the disk only when a judicator did not take the result at once:
what a power cut takes in the few milliseconds before is judged again, while a
forced write for every result would cost more than the judging of a small task.

A file is a checksum and the packed `Completed`. One that was cut short by a
crash fails its checksum and is dropped: that task is judged again.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import zlib
from pathlib import Path

from oj.codec import pack, unpack
from oj.rpc import ttypes as rpc

SUFFIX = ".result"

log = logging.getLogger("oj.executor.spool")


class Spool:
    """Safe from any thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._prefix = f"{directory}/"  # joining Paths costs as much as writing the file
        self._lock = threading.Lock()
        self._unsynced: set[str] = set()

    def load(self) -> list[tuple[rpc.Completed, int]]:
        """What earlier processes left, each with its packed size; drops what is damaged."""
        found = []
        for path in sorted(self._directory.glob(f"*{SUFFIX}")):
            data = path.read_bytes()
            body = data[4:]
            try:
                if len(data) < 4 or zlib.crc32(body) != int.from_bytes(data[:4], "big"):
                    raise ValueError("was cut short")
                found.append((unpack(rpc.Completed, body), len(body)))
            except ValueError as error:
                log.warning("dropped the kept result %s: %s", path.name, error)
                path.unlink()
        return found

    def keep(self, completed: rpc.Completed) -> int:
        """Writes one result; returns its packed size."""
        body = pack(completed)
        name = _name(completed.id, completed.attempt)
        # A repeated attempt number with other contents cannot be, so no rename is needed.
        fd = os.open(
            self._prefix + name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600
        )
        try:
            os.writev(fd, [zlib.crc32(body).to_bytes(4, "big"), body])
        finally:
            os.close(fd)
        with self._lock:
            self._unsynced.add(name)
        return len(body)

    def forget(self, task_id: str, attempt: int) -> None:
        name = _name(task_id, attempt)
        with self._lock:
            self._unsynced.discard(name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._prefix + name)  # noqa: PTH108

    def sync(self) -> None:
        """Forces everything that is kept to the disk."""
        with self._lock:
            names, self._unsynced = self._unsynced, set()
        if not names:
            return
        for name in names:
            try:
                _sync(self._directory / name)
            except FileNotFoundError:
                continue  # acknowledged in the meantime
        _sync(self._directory)


def _name(task_id: str, attempt: int) -> str:
    return f"{task_id}-{attempt}{SUFFIX}"


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
