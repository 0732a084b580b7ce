"""A machine's cgroups: one in every hierarchy of the host, v1 and v2 alike.

Without one of its own in each, systemd in one machine would work in the same tree as another's.
They also tell, whatever else is lost, which processes belong to a bed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from .errors import BedError

# Joins the cgroups before `--`, then becomes the command after it.
ENTER = """
while [ "$1" != -- ]; do
    echo $$ >"$1/cgroup.procs" || exit 125
    shift
done
shift
exec "$@"
"""


@dataclass(frozen=True)
class Hierarchy:
    """One mounted cgroup tree; `root` is what of the kernel's tree the mount shows."""

    mount: Path
    root: str
    names: frozenset[str]
    is_v2: bool


def hierarchies() -> list[Hierarchy]:
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, right = line.split(" - ", 1)
        kind, _, options = right.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            fields = left.split(" ")
            found.append(
                Hierarchy(
                    Path(fields[4]), fields[3], frozenset(options.split(",")), kind == "cgroup2"
                )
            )
    if not found:
        raise BedError("no cgroup file system is mounted on this host")
    return found


def make(name: str) -> list[Path]:
    """Make the cgroup `name`, which may be a path, in every hierarchy."""
    made = []
    for hierarchy in hierarchies():
        parent = hierarchy.mount
        for part in Path(name).parts:
            if hierarchy.is_v2:
                _pass_controllers_on(parent)
            group = parent / part
            group.mkdir(exist_ok=True)
            # A v1 cpuset starts without processors or memory, and nothing can run in it.
            for setting in ("cpuset.cpus", "cpuset.mems"):
                if not hierarchy.is_v2 and (group / setting).exists():
                    (group / setting).write_text((parent / setting).read_text())
            parent = group
        made.append(parent)
    return made


def _pass_controllers_on(group: Path) -> None:
    wanted = (group / "cgroup.controllers").read_text().split()
    given = (group / "cgroup.subtree_control").read_text().split()
    for controller in sorted(set(wanted) - set(given)):
        try:
            (group / "cgroup.subtree_control").write_text(f"+{controller}")
        except OSError as mistake:
            # Some, such as cpu with real-time processes about, cannot be had; these three must.
            if controller in ("memory", "pids", "cpu"):
                raise BedError(f"cannot enable {controller} in {group}: {mistake}") from mistake


def of_process(pid: int) -> list[Path]:
    """The cgroups that a process is in, as directories."""
    found = []
    mounted = hierarchies()
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        for hierarchy in mounted:
            if hierarchy.is_v2 if not names else set(names.split(",")) <= hierarchy.names:
                shown = path.removeprefix(hierarchy.root.rstrip("/"))
                found.append(hierarchy.mount / shown.lstrip("/"))
                break
    return found


def enter(groups: list[Path], command: list[str]) -> list[str]:
    """The command that runs `command` inside these cgroups."""
    return ["/bin/sh", "-c", ENTER, "sh", *map(str, groups), "--", *command]


def kill(name: str, timeout_s: float = 60) -> None:
    """Kill every process of a cgroup and of those below it, and wait until all are gone."""
    deadline = time.monotonic() + timeout_s
    while pids := set(_pids(name)):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            # Ours are children of this process and stay as zombies until somebody asks.
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        if time.monotonic() > deadline:
            raise BedError(f"processes {sorted(pids)} of {name} survive SIGKILL")
        time.sleep(0.01)


def remove(name: str, timeout_s: float = 60) -> None:
    """Remove an empty cgroup and those below it."""
    deadline = time.monotonic() + timeout_s
    for group in _groups(name):
        while True:
            try:
                group.rmdir()
            except FileNotFoundError:
                break
            except OSError as busy:
                # The kernel lets go of a killed process a moment after it vanished.
                if time.monotonic() > deadline:
                    raise BedError(f"cannot remove {group}: {busy}") from busy
                time.sleep(0.01)
            else:
                break


def _groups(name: str) -> Iterator[Path]:
    for hierarchy in hierarchies():
        for directory, _, _ in os.walk(hierarchy.mount / name, topdown=False):
            yield Path(directory)


def _pids(name: str) -> Iterator[int]:
    for group in _groups(name):
        with suppress(FileNotFoundError, ProcessLookupError, NotADirectoryError):
            yield from map(int, (group / "cgroup.procs").read_text().split())
