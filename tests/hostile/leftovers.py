"""What a machine holds that runs could leave behind: counted before and after.

Only what belongs to the sandbox under test is looked at, because other things live and die on the
machine meanwhile: processes, files and IPC objects of the slots' users, everything below the
oj-box process, its cgroups, the host's mounts of its kind, the state directory.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

PLACES = ("/tmp", "/var/tmp", "/dev/shm", "/run", "/dev/mqueue", "/var/lib/systemd/coredump")


def processes_of(uids: range) -> list[int]:
    """The living processes of these users."""
    found = []
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid in uids:
                found.append(int(entry.name))
    return found


def describe(pid: int) -> str:
    """What is known of a process, if it is still there."""
    with contextlib.suppress(OSError):
        stat = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)
        groups = Path(f"/proc/{pid}/cgroup").read_text().split()
        ours = [group for group in groups if "oj-box." in group]
        return f"{stat[0]}) state and parent {stat[1].split()[:2]} {ours[:1]}"
    return f"{pid}, gone by now"


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        return [int(word) for word in text.split()]
    return []


def descriptors(pid: int | str) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208


def mounts(pid: int | str) -> int:
    return len(Path(f"/proc/{pid}/mountinfo").read_text().splitlines())


def mounts_of_ours(state: Path | None = None) -> list[str]:
    """The host's mounts that the sandbox made; others come and go."""
    words = [" oj-box "] + ([str(state)] if state else [])
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return [line for line in lines if any(word in f"{line} " for word in words)]


def cgroups(box: int | None) -> list[str]:
    """The cgroups of this oj-box (None: of any that is dead)."""
    found = []
    for path, below, _ in os.walk("/sys/fs/cgroup"):
        # Machines of a test have process numbers of their own.
        below[:] = [name for name in below if not name.startswith("oj-bed-")]
        name = next((part for part in path.split("/") if part.startswith("oj-box.")), None)
        if name is None:
            continue
        owner = int(name.split(".")[1])
        if owner == box or (box is None and not Path(f"/proc/{owner}").exists()):
            found.append(path)
    return found


def _walk(top: str, device: int, depth: int = 3) -> Iterator[os.DirEntry[str]]:
    with contextlib.suppress(OSError):
        for entry in os.scandir(top):
            yield entry
            with contextlib.suppress(OSError):
                if depth and entry.is_dir(follow_symlinks=False) and entry.name != "proc":
                    yield from _walk(entry.path, device, depth - 1)


def files_of(uids: range) -> list[str]:
    """Files of these users in the places where anybody may write."""
    found = []
    for place in PLACES:
        for entry in _walk(place, 0):
            with contextlib.suppress(OSError):
                if entry.stat(follow_symlinks=False).st_uid in uids:
                    found.append(entry.path)
    return found


def tree_of(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def ipc_of(uids: range) -> list[str]:
    """System V objects of these users in the host's own namespace."""
    found = []
    for kind in ("shm", "msg", "sem"):
        head, *lines = Path(f"/proc/sysvipc/{kind}").read_text().splitlines() or [""]
        columns = head.split()
        for line in lines:
            values = dict(zip(columns, line.split(), strict=False))
            if {int(values.get("uid", -1)), int(values.get("cuid", -1))} & set(uids):
                found.append(f"{kind} {values}")
    return found


def keys_of(uids: range) -> list[str]:
    """Users with keys. A kernel without keyrings has none."""
    with contextlib.suppress(OSError):
        lines = Path("/proc/key-users").read_text().splitlines()
        return [line for line in lines if int(line.split(":")[0]) in uids]
    return []


def sockets_of(pid: int) -> int:
    """Unix sockets in the network of a slot, which its next run would share."""
    return len(Path(f"/proc/{pid}/net/unix").read_text().splitlines()) - 1


def count(box: int, uids: range, state: Path) -> dict[str, object]:
    """Everything, while oj-box serves and all its slots are idle."""
    slots = children(box)
    inits = [init for pid in slots for init in children(pid)]
    return {
        "processes of the slots' users": processes_of(uids),
        "slots and inits of oj-box": (len(slots), len(inits)),
        "cgroups of oj-box": len(cgroups(box)),
        "mounts of the host": mounts_of_ours(state),
        "mounts of each slot": [mounts(pid) for pid in slots],
        "mounts of each init": [mounts(pid) for pid in inits],
        "sockets of each slot": [sockets_of(pid) for pid in slots],
        "descriptors of oj-box": [descriptors(pid) for pid in (box, *slots, *inits)],
        "our descriptors": descriptors("self"),
        "files of the slots' users": files_of(uids),
        "files of the executor": tree_of(state),
        "System V objects": ipc_of(uids),
        "keys": keys_of(uids),
    }


def compare(before: dict[str, object], after: dict[str, object]) -> list[str]:
    return [
        f"{what}: {before[what]} before, {after[what]} after"
        for what in before
        if before[what] != after[what]
    ]


def is_idle(slot: int) -> bool:
    """Whether a slot has nothing but an init that waits: with a /proc, but no /box yet."""
    inits = children(slot)
    if len(inits) != 1 or children(inits[0]):
        return False
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{inits[0]}/mountinfo").read_text()
        return " - proc oj-box " in text and " - overlay oj-box " not in text
    return False


def wait_idle(box: int, uids: range, timeout_s: float = 30.0) -> None:
    """Until each slot has cleared its last run away and is ready for the next."""
    deadline = time.monotonic() + timeout_s
    while not all(is_idle(pid) for pid in children(box)) or processes_of(uids):
        if time.monotonic() > deadline:
            return  # the comparison then says what is there
        time.sleep(0.01)


def memory_of(box: int) -> int:
    """Bytes that oj-box and slots have for themselves: told, not compared. Inits have none of their
    own: they share their slot's."""
    total = 0
    for pid in (box, *children(box)):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Private_Dirty:"):
                total += int(line.split()[1]) << 10
    return total
