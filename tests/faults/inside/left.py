#!/usr/bin/python3
"""What judged programs left on an executor where nothing is judged: a line for each thing."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

SLOT_USERS = range(64100, 64600)


def find() -> list[str]:
    found = []
    for entry in os.scandir("/proc"):
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid in SLOT_USERS:
                words = Path(f"/proc/{entry.name}/cmdline").read_text().replace("\0", " ")
                found.append(f"process {entry.name} {words}")
    for path, _, _ in os.walk("/sys/fs/cgroup"):
        # One directory for each oj-box, named after its process.
        name = Path(path).name
        if name.startswith("oj-box.") and not Path(f"/proc/{name.split('.')[1]}").exists():
            found.append(f"cgroup {path}")
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    found += [f"mount {line.split()[4]}" for line in mounts if " oj-box " in line]
    return found


if __name__ == "__main__":
    print("\n".join(find()))
