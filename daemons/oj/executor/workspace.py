"""The directories of one task on the host: made, filled, and removed.

Names come from strangers. They were checked when the task was added, and are
not trusted here either: each part is opened below the one before, nothing is
followed, nothing that exists is opened. The tree is readable for the slots'
users, below a directory that only the executor can enter; programs never write
to it (see sandbox.py), so removing it is removing what was put there.

Trees without blobs are small and go to the runtime directory, usually in
memory; those with blobs go beside the cache, where a link costs nothing.

This is on the way of every task: hence plain calls of os rather than Path's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from oj.errors import Rejected
from oj.executor.cache import Cache
from oj.model import File

DATA = ".data"  # after the name of a task
FILE_MODE = 0o755  # executable, too: a task may bring a script or a program
DIRECTORY_MODE = 0o777


class Places:
    """Where the trees of tasks are made: two directories that only we can enter."""

    def __init__(self, small: Path, large: Path, cache: Cache) -> None:
        self._small = str(small)
        self._large = str(large)
        self._cache = cache

    def sweep(self) -> int:
        """Removes what earlier processes left behind; returns how many trees."""
        count = 0
        for place in (self._small, self._large):
            for entry in list(Path(place).iterdir()):
                shutil.rmtree(entry, ignore_errors=True)
                count += 1
        return count

    def make(self, name: str, source: Iterable[File], data: Iterable[File]) -> Workspace:
        source, data = tuple(source), tuple(data)
        large = any(file.data.digest is not None for file in (*source, *data))
        workspace = Workspace(f"{self._large if large else self._small}/{name}", self._cache)
        try:
            workspace.fill(source, data)
        except BaseException:
            workspace.remove()
            raise
        return workspace


class Workspace:
    """One task's trees; removed on leaving the context."""

    def __init__(self, source: str, cache: Cache) -> None:
        self.source = source
        self.data: str | None = None
        self._cache = cache
        self._simple: list[str] = []  # files at the top of the source: removed without a walk
        self._deep = False

    def fill(self, source: tuple[File, ...], data: tuple[File, ...]) -> None:
        self._put_tree(self.source, source)
        if data:
            self._deep = True
            self.data = self.source + DATA
            self._put_tree(self.data, data)

    def _put_tree(self, top: str, files: tuple[File, ...]) -> None:
        _make_directory(top)
        for file in files:
            parts = file.name.split("/")
            if not all(parts) or {".", ".."} & set(parts) or "\0" in file.name:
                raise Rejected(f"'{file.name}' is not a file name below the task's directory")
            if len(parts) == 1:
                path = f"{top}/{parts[0]}"
                self._simple.append(path)
                self._put(path, file)
            else:
                self._deep = True
                self._put_below(top, parts, file)

    def _put_below(self, top: str, parts: list[str], file: File) -> None:
        flags = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(top, flags)
        try:
            for part in parts[:-1]:
                try:
                    os.mkdir(part, dir_fd=fd)
                    os.chmod(f"/proc/self/fd/{fd}/{part}", DIRECTORY_MODE)  # noqa: PTH101
                except FileExistsError:
                    pass
                below = os.open(part, flags, dir_fd=fd)
                os.close(fd)
                fd = below
            self._put(f"/proc/self/fd/{fd}/{parts[-1]}", file)
        finally:
            os.close(fd)

    def _put(self, path: str, file: File) -> None:
        if file.data.digest is not None:
            self._cache.link(file.data.digest, path)
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(path, flags, FILE_MODE)
        try:
            os.fchmod(fd, FILE_MODE)
            content = file.data.inline or b""
            while content:
                content = content[os.write(fd, content) :]
        finally:
            os.close(fd)

    def remove(self) -> None:
        if not self._deep:
            try:
                for path in self._simple:
                    os.unlink(path)  # noqa: PTH108
                os.rmdir(self.source)  # noqa: PTH106
                return
            except OSError:
                pass  # the slow way removes whatever there is
        shutil.rmtree(self.source, ignore_errors=True)
        if self.data is not None:
            shutil.rmtree(self.data, ignore_errors=True)

    def __enter__(self) -> Workspace:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.remove()


def _make_directory(path: str) -> None:
    os.mkdir(path)  # noqa: PTH102
    os.chmod(path, DIRECTORY_MODE)  # noqa: PTH101
