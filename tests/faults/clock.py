"""A clock of its own for the daemons of a machine.

The machines share the host's clock, which nobody sets. So the daemons of judicators always run with
a library of ours (clock.c) that shows them a time of day that is off by what a file says. (etcd
itself asks the kernel past the C library and keeps the right time.)
"""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterable
from pathlib import Path

from bed import Machine

SOURCE = Path(__file__).resolve().parent / "clock.c"
LIBRARY = "/usr/local/lib/clock.so"
OFFSET = "/etc/clock-offset"


def build(directory: Path) -> Path:
    library = directory / "clock.so"
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "-o", library, SOURCE], check=True)
    return library


def pack(ahead_s: int) -> bytes:
    return struct.pack("=q", ahead_s)


def prepare(machine: Machine, units: Iterable[str], scratch: Path) -> None:
    """Let the daemons of a judicator, which do not run yet, have a clock that can be set."""
    machine.put(build(scratch), LIBRARY)
    for unit in units:
        drop_in = f"[Service]\nEnvironment=LD_PRELOAD={LIBRARY}\n"
        machine.put(drop_in, f"/etc/systemd/system/{unit}.service.d/clock.conf")


def set_clock(machine: Machine, ahead_s: int) -> None:
    # In place: the daemons have the file mapped.
    words = ["dd", f"of={OFFSET}", "conv=notrunc", "status=none"]
    machine.run(words, input=pack(ahead_s))
