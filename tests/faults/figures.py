"""How long the cluster took to go on: read from the history, and from the judicators' journals."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

ASSIGNED = "0e6b1d2b5b0c4d5f9d0a4b6f6f0d1c02"  # MESSAGE_ID of oj.events.Event.ASSIGNED

GOALS = {
    "judicator killed, executors served elsewhere": 2.0,
    "executor killed, its tasks running elsewhere": 10.0,
    "mongod primary killed, writes again": 3.0,
    "three ready judicators from empty machines": 60.0,
}


@dataclass(frozen=True)
class Assigned:
    """A judicator gave a task to an executor."""

    t: float
    judicator: str
    executor: str
    task: str


def read_assigned(judicator: str, journal: str) -> list[Assigned]:
    """From `journalctl -o json`; the journal's monotonic clock is that of every machine."""
    entries = (json.loads(line) for line in journal.splitlines())
    return [
        Assigned(
            int(entry["__MONOTONIC_TIMESTAMP"]) / 1e6,
            judicator,
            entry["OJ_EXECUTOR"],
            entry["OJ_TASK"],
        )
        for entry in entries
        if entry.get("MESSAGE_ID") == ASSIGNED
    ]


def served_elsewhere_s(
    events: Iterable[Assigned], killed_at: float, judicator: str, executors: Iterable[str]
) -> float | None:
    """From the end of a judicator until each executor was given work by another one."""
    firsts = []
    for executor in executors:
        later = [
            event.t
            for event in events
            if event.executor == executor and event.judicator != judicator and event.t > killed_at
        ]
        if not later:
            return None
        firsts.append(min(later))
    return max(firsts) - killed_at


def running_elsewhere_s(
    events: Sequence[Assigned], killed_at: float, executor: str
) -> float | None:
    """From the end of an executor until all that it had in hand was given to another one; None if
    it had nothing."""
    had = {event.task for event in events if event.executor == executor and event.t <= killed_at}
    again = [
        event.t
        for event in events
        if event.task in had and event.executor != executor and event.t > killed_at
    ]
    return max(again) - killed_at if again else None


def summarise(samples: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    return {
        name: {
            "goal_s": goal,
            "times": len(samples.get(name, ())),
            "median_s": _round(statistics.median(samples[name])) if samples.get(name) else None,
            "worst_s": _round(max(samples[name])) if samples.get(name) else None,
        }
        for name, goal in GOALS.items()
    }


def _round(seconds: float) -> float:
    return round(seconds, 2)
