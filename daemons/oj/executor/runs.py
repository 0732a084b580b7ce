"""One run of a program: what is asked for, what it may use, which limit it hit, and how
its output differs from the expected one. Only data."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

PAGE_BYTES = 4096
ENTRY_BYTES = 8  # of a page table
MOST_DYING_S = 600.0  # or a sandbox that died on a large machine would be noticed after hours


class LimitHit(enum.IntEnum):
    """Which limit ended or spoilt the run, decided from kernel facts."""

    NONE = 0
    CPU = 1
    WALL = 2
    MEMORY = 3
    OUTPUT = 4
    PROCESSES = 5
    DISK = 6


@dataclass(frozen=True)
class RunLimits:
    """What one run may use. All are enforced by the kernel or by oj-box."""

    cpu_ms: int
    wall_ms: int
    memory_bytes: int
    """Everything charged to the run's cgroup: heap, stack, page cache it caused, and files
    written to /box, /tmp and /dev/shm, which are in memory."""
    output_bytes: int
    """Of stdout and of stderr, each. The run is killed at the first byte beyond it."""
    processes: int
    """Processes and threads at one time."""
    disk_bytes: int
    """Written to /box, /tmp and /dev/shm together; also the largest single file."""
    files: int = 4096
    """Files and directories made in /box, /tmp and /dev/shm together. Each costs kernel memory."""

    @property
    def dying_s(self) -> float:
        """How long the kernel may take to take everything back from killed processes.

        The most work is in memory that all processes share: each takes it out of its own page
        table. Page tables count as memory of the run, so n processes can share a fraction of it
        only: n mappings of S bytes need S + n * S * 8 / 4096 bytes. 500 processes that shared
        400 MB were gone after 3.3 s on two idle cores, 63 ns for each page of each process; here
        it is eight times that, for busy machines. A page that is given back takes 0.2 us, a
        process 0.1 ms: ten times that."""
        share = self.processes / (PAGE_BYTES + ENTRY_BYTES * self.processes)
        pages = self.memory_bytes / PAGE_BYTES
        dying_s = 0.5e-6 * self.memory_bytes * share + 2e-6 * pages + 1e-3 * self.processes
        return min(dying_s, MOST_DYING_S)


@dataclass(frozen=True)
class RunRequest:
    """One program to run once."""

    argv: Sequence[str]
    """argv[0] is a path (relative to `cwd`) or a name to be found in env's PATH."""
    directory: str
    """The tree on the host that the program sees as /box."""
    limits: RunLimits
    env: Mapping[str, str] = field(default_factory=dict)
    """The whole environment; nothing is inherited."""
    writable: bool = False
    """Keep what the program changes in /box as a layer for the slot's later runs of
    `directory`: the compile step. Kept only if it ended with exit code 0 within its limits."""
    data: str | None = None
    """A second directory on the host, laid over the tree and the layer."""
    stdin: str | int | None = None
    """A path, or a file descriptor (not closed here), or None for an empty input."""
    cwd: str = "/box"


@dataclass(frozen=True)
class Difference:
    """How an output differs from the expected one."""

    where: str  # for people
    in_space: bool = False  # every word is right, the white space around them is not
