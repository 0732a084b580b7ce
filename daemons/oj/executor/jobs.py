"""A task in hand, a finished one, a report: what the ledger keeps and tells."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from oj import model
from oj.executor.sandbox import Cancellation
from oj.rpc import ttypes as rpc


class Job:
    """One task in hand."""

    def __init__(self, task_id: str, attempt: int, task: model.Task) -> None:
        self.id = task_id
        self.attempt = attempt
        self.task = task
        self.cancellation = Cancellation()
        self.status = model.Status.COMPILING
        self.tests_done = 0
        self.unwanted = False  # no report lists it any more; its result is dropped
        self.started_s = 0.0  # on the monotonic clock

    @property
    def key(self) -> tuple[str, int]:
        return self.id, self.attempt


@dataclass
class Finished:
    """A task whose result, or refusal, has not been acknowledged yet."""

    completed: rpc.Completed
    size_bytes: int
    travelling: bool = False  # in a report that has not been answered


@dataclass
class Report:
    """One snapshot; the arguments of the call."""

    number: int
    settled: int
    complete: list[rpc.Completed]
    executing: list[rpc.Executing]
    vacant: int
    facts: rpc.Facts | None
    wait_ms: int
    taken_s: float = field(default_factory=time.monotonic)
