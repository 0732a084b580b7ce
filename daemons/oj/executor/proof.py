"""The proof that every limit bites here: small real runs through the sandbox.

All of it at start, before any task is taken; a part of it, in turn, with each
canary (see slots.py), so that what stops working later is noticed, too. A limit
that does not bite makes every verdict doubtful, so there is no weaker mode:
whoever asks gets SandboxFailure, in words for the operator.
"""

from __future__ import annotations

import itertools
import queue
import tempfile
import threading
from dataclasses import dataclass, replace
from pathlib import Path

from oj.executor.languages import ENVIRONMENT
from oj.executor.sandbox import (
    LimitHit,
    RunLimits,
    RunRequest,
    Sandbox,
    SandboxFailure,
    Usage,
)

# Plenty, for crowded machines, wherever the limit in question is another one.
AMPLE = RunLimits(
    cpu_ms=5_000,
    wall_ms=15_000,
    memory_bytes=64 << 20,
    output_bytes=1 << 20,
    processes=16,
    disk_bytes=16 << 20,
)


@dataclass(frozen=True)
class Probe:
    """A program that cannot but run into one limit, or into none."""

    what: str
    script: str
    limits: RunLimits
    expected: LimitHit


PROBES = (
    Probe("a harmless program", "exit 0", AMPLE, LimitHit.NONE),
    Probe(
        "the cpu limit",
        # Ends by itself, some time after the limit: an endless one would hide in the others.
        "i=0; while [ $i -lt 1000000 ]; do i=$((i + 1)); done",
        replace(AMPLE, cpu_ms=50),
        LimitHit.CPU,
    ),
    # Long enough for a machine that stands still, and short of the sandbox's own patience.
    Probe("the wall limit", "exec sleep 9", replace(AMPLE, wall_ms=50), LimitHit.WALL),
    Probe(
        "the memory limit",
        "head -c 24M /dev/zero | tail -n 1 >/dev/null",  # which keeps all of that one line
        replace(AMPLE, memory_bytes=12 << 20),
        LimitHit.MEMORY,
    ),
    Probe(
        "the limit of processes",
        "for i in 1 2 3 4 5 6 7 8; do sleep 10 & done; exit 1",
        replace(AMPLE, processes=4),
        LimitHit.PROCESSES,
    ),
    Probe(
        "the output limit",
        "exec head -c 512K /dev/zero",
        replace(AMPLE, output_bytes=64 << 10),
        LimitHit.OUTPUT,
    ),
    Probe(
        "the disk limit",
        "head -c 4M /dev/zero >file",
        replace(AMPLE, disk_bytes=1 << 20),
        LimitHit.DISK,
    ),
)


class Proof:
    """The probes, run in an empty directory below `place`. Safe from any thread."""

    def __init__(self, sandbox: Sandbox, place: Path) -> None:
        self._sandbox = sandbox
        self._place = place
        self._turns = itertools.cycle(PROBES[1:])

    def prove_all(self) -> None:
        """Every probe, shared among the slots, and a harmless run in each slot.

        Raises SandboxFailure that names everything that is missing."""
        todo: queue.SimpleQueue[Probe] = queue.SimpleQueue()
        for probe in PROBES[1:]:
            todo.put(probe)
        problems: list[str] = []

        def work(slot: int) -> None:
            probe = PROBES[0]
            while True:
                try:
                    self.prove(slot, probe)
                except SandboxFailure as error:
                    problems.append(str(error))
                except Exception as error:  # noqa: BLE001 - a thread's top: told by the caller
                    problems.append(f"{probe.what} cannot be proven: {error}")
                try:
                    probe = todo.get_nowait()
                except queue.Empty:
                    return

        threads = [
            threading.Thread(target=work, args=(slot,)) for slot in range(self._sandbox.slots)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if problems:
            raise SandboxFailure("; ".join(sorted(set(problems))))

    def prove_slot(self, slot: int) -> None:
        """Every probe in one slot. Raises SandboxFailure."""
        for probe in PROBES:
            self.prove(slot, probe)

    def prove_next(self, slot: int) -> None:
        """One limit, each time the next. Raises SandboxFailure."""
        self.prove(slot, next(self._turns))

    def prove(self, slot: int, probe: Probe) -> None:
        try:
            with tempfile.TemporaryDirectory(prefix="proof-", dir=self._place) as directory:
                Path(directory).chmod(0o755)
                request = RunRequest(
                    ("/bin/sh", "-c", probe.script), directory, probe.limits, env=ENVIRONMENT
                )
                try:
                    with self._sandbox.run(slot, request) as usage:
                        problem = find_problem(probe, usage)
                finally:
                    self._sandbox.forget(slot)
        except OSError as error:
            raise SandboxFailure(f"{probe.what} cannot be proven: {error}") from error
        if problem:
            raise SandboxFailure(problem)


def find_problem(probe: Probe, usage: Usage) -> str:
    """What is wrong with how a probe ended, or ''."""
    if usage.limit_hit is probe.expected:
        if probe.expected is LimitHit.NONE and usage.exit_code != 0:
            return f"{probe.what} does not run: {_end(usage)}"
        return ""
    if probe.expected is LimitHit.NONE:
        return f"{probe.what} runs into the {usage.limit_hit.name.lower()} limit"
    return f"{probe.what} does not bite: the program that exceeds it ended with {_end(usage)}"


def _end(usage: Usage) -> str:
    if usage.limit_hit is not LimitHit.NONE:
        return f"the {usage.limit_hit.name.lower()} limit"
    how = f"signal {usage.signal}" if usage.signal is not None else f"exit code {usage.exit_code}"
    said = usage.stderr.read(200).decode("utf-8", "replace").strip()
    return f"{how} ({said})" if said else how
