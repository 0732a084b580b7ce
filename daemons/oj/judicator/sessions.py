"""What a judicator remembers of an executor between its reports."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from oj.judicator.report import Facts, Report
from oj.judicator.store.documents import Held
from oj.model import Status


@dataclass
class InMemory:
    """A task that the executor has in hand, or that is on its way there."""

    attempt: int
    claim_number: int
    status: Status = Status.COMPILING
    tests_done: int = 0
    claimed_s: float = 0.0
    said_status: Status = Status.COMPILING  # what the executor says; status is what is stored
    said_tests_done: int = 0


@dataclass
class Session:
    """What is remembered of an executor."""

    name: str
    lock: threading.Lock = field(default_factory=threading.Lock)
    incarnation: str = ""
    number: int = 0
    facts: Facts | None = None
    drained: bool = False
    told_drained: bool = False  # what the executor heard of it last
    held: dict[str, InMemory] = field(default_factory=dict)
    must_look: bool = True
    looked_s: float = 0.0
    touched_s: float = 0.0
    renewed_s: float = 0.0
    noted_s: float = 0.0
    longest_wait_s: float = 0.0
    address: str = ""  # where its reports come from

    @property
    def takes_tasks(self) -> bool:
        return not self.drained and self.facts is not None and self.facts.state == "ok"

    def agrees_with(self, report: Report) -> bool:
        """Whether the report has in hand just what we believe, or may have it by now."""
        listed = {task.id: task.attempt for task in report.in_hand}
        return all(
            task_id in self.held and self.held[task_id].attempt == attempt
            for task_id, attempt in listed.items()
        ) and all(
            task_id in listed or memory.claim_number > report.settled
            for task_id, memory in self.held.items()
        )

    def remember(self, task: Held) -> InMemory:
        """A task as the database has it, with what is known beyond that."""
        known = self.held.get(task.id)
        if known is None or known.attempt != task.attempt:
            known = InMemory(task.attempt, task.claim_number)
        known.status, known.tests_done = task.status, task.tests_done
        known.said_status = max(known.said_status, task.status)
        known.said_tests_done = max(known.said_tests_done, task.tests_done)
        return known

    def languages(self) -> tuple[str, ...]:
        # Tasks without a language bring their own commands; anyone may run them.
        return (*(self.facts.languages if self.facts else ()), "")
