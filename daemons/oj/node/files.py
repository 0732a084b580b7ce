"""The files of this node: configuration in etc/oj, daemons' data, and how they are written."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from oj import settings
from oj.errors import BadSettings, Rejected
from oj.node import data
from oj.node.plan import DAEMONS

CHECK_S = 60.0
SCRATCH = ".new"  # what a file is called until it was checked


class Files:
    """Those below one root directory: `/`, or that of an image."""

    def __init__(self, root: str = "/") -> None:
        self.root = Path(root)
        self.live = root == "/"  # so that its units are this machine's
        self.etc = self.root / "etc/oj"
        beside = Path(sys.argv[0]).resolve().parent  # in a tree of sources
        installed = self.root / "usr/libexec/oj"
        self.programs = beside if (beside / "oj-executor").exists() else installed

    def path(self, role: str) -> Path:
        return self.etc / f"{role}.conf"

    def has(self, daemon: str) -> bool:
        """Whether a daemon is installed here, with its configuration."""
        return self.path(daemon).exists() and (self.programs / f"oj-{daemon}").exists()

    def installed(self) -> tuple[str, ...]:
        return tuple(daemon for daemon in DAEMONS if self.has(daemon))

    def demand(self, daemons: Iterable[str]) -> None:
        missing = [f"oj-{daemon}" for daemon in daemons if not self.has(daemon)]
        if missing:
            raise Rejected(
                f"not installed here: {', '.join(missing)}; apt install {' '.join(missing)}"
            )

    def values(self, roles: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The settings in force, with defaults; BadSettings with the mistakes of all files."""
        found: dict[str, dict[str, Any]] = {}
        mistakes: list[str] = []
        for role in roles:
            try:
                found[role] = settings.read(self.path(role), role)
            except BadSettings as error:
                mistakes += error.mistakes
        if mistakes:
            raise BadSettings(mistakes)
        return found

    def held(self, values: Mapping[str, Any]) -> data.Held:
        """What is in the data directory of etcd or mongodb, by its settings."""
        return data.look(self.root / str(values["data"]).lstrip("/"))

    def write(self, texts: Mapping[str, str]) -> None:
        """Replaces files, all or none: each new one is checked by its daemon first."""
        with contextlib.ExitStack() as stack:
            made = {
                role: stack.enter_context(_scratch(self.path(role).resolve(), text))
                for role, text in texts.items()
            }
            mistakes = [m for role, path in made.items() for m in self._check(role, path)]
            if mistakes:
                raise BadSettings(mistakes)
            for role, path in made.items():
                path.replace(self.path(role).resolve())
        if texts:
            _sync(self.etc)

    def _check(self, role: str, path: Path) -> list[str]:
        program = self.programs / f"oj-{role}"
        if not self.live or not program.exists():  # an image's, or that of the command itself
            try:
                settings.read(path, role)
            except BadSettings as error:
                return [m.replace(str(path), str(self.path(role))) for m in error.mistakes]
            return []
        command = [str(program), "--check", "--config", str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=CHECK_S, check=False)
        if done.returncode == 0:
            return []
        lines = done.stderr.splitlines() or [f"{path}: {program.name} --check fails"]
        return [line.replace(str(path), str(self.path(role))) for line in lines]


@contextlib.contextmanager
def _scratch(path: Path, text: str) -> Iterator[Path]:
    """The new text beside a file, with its mode and owner; gone afterwards unless renamed."""
    new = path.with_name(path.name + SCRATCH)
    old = path.stat()
    try:
        with new.open("w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), old.st_mode & 0o7777)
            os.fchown(file.fileno(), old.st_uid, old.st_gid)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        yield new
    finally:
        new.unlink(missing_ok=True)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
