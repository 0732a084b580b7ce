"""Blobs on disk, fetched once, checked, bounded: the tests of many tasks.

Files are named by their digest and never change, so a file that is there is
whole: it was written beside its place, checked, and renamed. What was used
least recently goes first when the bound is passed; who has a file open keeps
it. The order of use survives a restart as the files' times.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import BinaryIO

from oj.executor import numbers

PART = ".part"

log = logging.getLogger("oj.executor.cache")

Fetch = Callable[[str, BinaryIO], int]
"""Writes the blob of a digest, checked against it, and returns its size; or raises."""


class Cache:
    """Safe from any thread."""

    def __init__(self, directory: Path, most_bytes: int, fetch: Fetch) -> None:
        self._directory = directory
        self._most_bytes = most_bytes
        self._fetch = fetch
        self._lock = threading.Lock()
        self._sizes: OrderedDict[str, int] = OrderedDict()  # least recently used first
        self._total_bytes = 0
        self._coming: dict[str, Future[None]] = {}
        self._load()

    def _load(self) -> None:
        found = []
        for path in self._directory.iterdir():
            if path.name.endswith(PART):
                path.unlink()
                continue
            info = path.stat()
            found.append((info.st_mtime_ns, path.name, info.st_size))
        for _, digest, size_bytes in sorted(found):
            self._sizes[digest] = size_bytes
            self._total_bytes += size_bytes
        self._shrink()

    def open(self, digest: str) -> int:
        """A descriptor of the blob, read-only and at its start; the caller closes it."""
        return self._use(
            digest, lambda path: os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        )

    def link(self, digest: str, to: str) -> None:
        """Puts the blob into a tree on the same file system, without copying it."""

        def make(path: str) -> int:
            os.link(path, to, follow_symlinks=False)
            return 0

        self._use(digest, make)

    def _use(self, digest: str, use: Callable[[str], int]) -> int:
        """Under the lock, and so never when it is just being pushed out by others."""
        path = str(self._directory / digest)
        while True:
            with self._lock:
                if digest in self._sizes:
                    try:
                        result = use(path)
                    except FileNotFoundError:
                        # Deleted by hand: once more.
                        self._total_bytes -= self._sizes.pop(digest)
                        continue
                    self._sizes.move_to_end(digest)
                    with contextlib.suppress(FileNotFoundError):
                        os.utime(path)
                    numbers.BLOBS.add("cache")
                    return result
                coming = self._coming.get(digest)
                mine = coming is None
                if coming is None:
                    coming = self._coming[digest] = Future()
            if mine:
                return self._fetch_and_use(digest, use, coming)
            coming.result()

    def _fetch_and_use(self, digest: str, use: Callable[[str], int], coming: Future[None]) -> int:
        """One of those who ask at once fetches it; the others wait for that."""
        numbers.BLOBS.add("far")
        try:
            size_bytes = self._bring(digest)
        except BaseException as error:
            with self._lock:
                del self._coming[digest]
            coming.set_exception(error)
            raise
        log.info("blob %s is cached (%d bytes)", digest, size_bytes)
        try:
            with self._lock:
                del self._coming[digest]
                self._sizes[digest] = size_bytes
                self._total_bytes += size_bytes
                try:
                    return use(str(self._directory / digest))
                finally:
                    self._shrink(keep=digest)
        finally:
            coming.set_result(None)

    def _bring(self, digest: str) -> int:
        part = self._directory / f"{digest}{PART}"
        fd = os.open(
            part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644
        )
        try:
            with os.fdopen(fd, "wb") as file:
                size_bytes = self._fetch(digest, file)
                # A power cut must not leave a file that is only long enough.
                file.flush()
                os.fsync(file.fileno())
            part.chmod(0o644)  # whatever the umask: programs read it where it is linked
            part.rename(self._directory / digest)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return size_bytes

    def _shrink(self, keep: str = "") -> None:
        for digest in list(self._sizes):
            if self._total_bytes <= self._most_bytes:
                break
            if digest != keep:
                self._total_bytes -= self._sizes.pop(digest)
                (self._directory / digest).unlink(missing_ok=True)

    @property
    def total_bytes(self) -> int:
        with self._lock:
            return self._total_bytes
