"""How much memory the machine's kernel has for itself, sampled while an attack runs.

A memory cgroup counts some of what the kernel keeps for a program and not the rest, and no list of
counters names everything: the pages of pipes and sockets are in none of /proc/meminfo. So this
counts by exclusion: all memory that is neither free, nor a page of a program or a file (those are
on the kernel's lists of pages, and a cgroup counts them), nor slab that the kernel gives back when
others need it. What remains is SUnreclaim, KernelStack, PageTables, Percpu and all that has no
name. Whatever programs allocate for themselves does not move it.

Other programs of the machine have the kernel do things, too, so what is measured is too much rather
than too little: a start that was too high is corrected by the end, and who measures too much may
measure again.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from types import TracebackType

# Not the kernel's: free, on the lists of pages (anonymous, of files, locked), or to be had back.
EXCLUDED = ("MemFree", "Active", "Inactive", "Unevictable", "KReclaimable")
SLACK_BYTES = 16 << 20
"""By how much more than a run's memory limit the kernel's memory may grow."""


def read() -> int:
    """Bytes that the kernel has for itself, now."""
    sizes = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, value = line.split(":")
        sizes[name] = int(value.split()[0]) << 10
    return sizes["MemTotal"] - sum(sizes[name] for name in EXCLUDED) - _cached_by_cores()


def _cached_by_cores() -> int:
    """Free pages that each core has at hand, which do not count as free: up to hundreds of MB."""
    pages = 0
    for line in Path("/proc/zoneinfo").read_text().splitlines():
        name, _, value = line.strip().partition(":")
        if name == "count":
            pages += int(value)
    return pages << 12


def settle(patience_s: float = 3.0) -> int:
    """The same when it no longer falls: the kernel frees much of what a run had a moment later."""
    end = time.monotonic() + patience_s
    least = read()
    falls = time.monotonic()
    while time.monotonic() < min(end, falls + 0.1):
        time.sleep(0.01)
        now = read()
        if now < least - (256 << 10):
            falls = time.monotonic()
        least = min(least, now)
    return least


class Meter:
    """Samples from entry to exit; afterwards `grown` is the most by which it was above what it is
    without the run, and `kept` by how much it was higher at the end than before."""

    grown = kept = 0

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._most = 0
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        last = 0
        while not self._stop.wait(self._pause_s):
            now = read()
            # One sample alone is none: the counters in it are read one after the other, and memory
            # that changes its kind in between is counted twice.
            self._most = max(self._most, min(last, now))
            last = now

    def __enter__(self) -> Meter:
        self._before = self._most = settle()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        after = settle()
        self.kept = after - self._before
        self.grown = self._most - min(self._before, after)
