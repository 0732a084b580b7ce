"""Removing a bed by its name alone, in order or after its owner was killed.

Nothing is looked up in the memory of the process that made the bed: names are enough. A bed is
alive as long as somebody holds the lock in its directory; one that was told to stay has a file
`kept` and is left alone until it is stopped by name.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from . import cgroups
from .errors import BedError
from .tools import cache_dir, call, locked, remove_tree, unmount_below

PREFIX = "oj-bed-"
NSPAWN = Path("/run/systemd/nspawn")


def beds_dir() -> Path:
    return cache_dir() / "beds"


def making_lock() -> Path:
    """Held while a bed takes its name, and while a sweep looks which names are taken."""
    return beds_dir() / ".lock"


def take_lock(directory: Path) -> int | None:
    """Lock a bed for this process; None if another process has it, or it is just going."""
    try:
        descriptor = os.open(directory / "lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def namespaces(name: str) -> list[str]:
    return [path.name for path in Path("/run/netns").glob(f"{name}*") if _of(path.name, name)]


def destroy(name: str) -> None:
    """Remove all that a bed made. Every step is tried, and the first mistake is raised after.

    The directory goes last, and only if all else went: it is the record for the next sweep.
    """
    mistakes: list[BedError | OSError] = []
    directory = beds_dir() / name

    def attempt(step: Callable[..., object], *arguments: object) -> None:
        try:
            step(*arguments)
        except (BedError, OSError) as mistake:
            mistakes.append(mistake)

    attempt(cgroups.kill, name)
    attempt(unmount_below, directory)
    for namespace in namespaces(name):
        attempt(call, "ip", "netns", "delete", namespace)
    attempt(cgroups.remove, name)
    for path in NSPAWN.glob(f"*/{name}-*"):
        attempt(remove_tree, path)
    if mistakes:
        raise mistakes[0]
    # Out of sight of sweeps first: looking for its lock, they would put a file into it.
    going = directory.with_name(f".{name}")
    if directory.exists():
        directory.rename(going)
    remove_tree(going)


def sweep() -> list[str]:
    """Remove what beds left whose owner is gone; returns their names.

    Only beds with a directory in this cache are looked at: another cache, as in a chroot, has its
    own. One that resists does not keep the others; the first mistake is raised after all were
    tried.
    """
    swept = []
    mistakes: list[BedError | OSError] = []
    for directory in sorted(beds_dir().glob(f"{PREFIX}*")):
        with locked(making_lock()):
            if (directory / "kept").exists():
                continue
            lock = take_lock(directory)
        if lock is None:
            continue
        try:
            destroy(directory.name)
            swept.append(directory.name)
        except (BedError, OSError) as mistake:
            mistakes.append(mistake)
        finally:
            os.close(lock)
    for directory in beds_dir().glob(f".{PREFIX}*"):
        remove_tree(directory)
    if mistakes:
        raise mistakes[0]
    return swept


def _of(namespace: str, name: str) -> bool:
    return namespace == name or namespace.startswith(name + "-")
