"""The worker threads: each takes a task from the ledger, judges it, and goes on.

A slot is one place in the sandbox and one thread here. Between tasks, once in a
while, each tries a canary: a run that always works and one that must not. So it
does at once after a task that could not be judged for this machine's fault.
While a canary fails the executor is sick: it takes nothing, and what it has in
hand goes back, because no verdict of such a machine can be trusted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol

from oj.clock import Deadline, backoff
from oj.events import Event, tell
from oj.executor import numbers
from oj.executor.jobs import Job
from oj.executor.ledger import Ledger
from oj.executor.pipeline import CannotJudge, Pipeline
from oj.executor.sandbox import RunCancelled, SandboxFailure
from oj.model import Result, Status, Verdict
from oj.redact import describe

SICK = "sick"

log = logging.getLogger("oj.executor.slots")


class Canary(Protocol):
    """Raises CannotJudge if the slot does not do what it must; `whole`: looks at every limit."""

    def __call__(self, slot: int, *, whole: bool) -> None: ...


class Slots:
    """Starts and ends the threads."""

    def __init__(
        self,
        executor: str,
        ledger: Ledger,
        pipeline: Pipeline,
        canary: Canary,
        canary_s: float,
        sick: Callable[[str], None],
    ) -> None:
        self._executor = executor
        self._ledger = ledger
        self._pipeline = pipeline
        self._canary = canary
        self._canary_s = canary_s
        self._sick = sick  # called with a reason, and with "" when well again
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._sick_slots: set[int] = set()
        self._threads = [
            threading.Thread(target=self._work, args=(slot,), name=f"slot-{slot}", daemon=True)
            for slot in range(ledger.slots)
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float) -> None:
        """Gives everything back, kills what runs and waits for the threads."""
        self._stop.set()
        self._ledger.close()
        deadline = Deadline(timeout_s)
        for thread in self._threads:
            thread.join(deadline.left_s)

    def check(self) -> None:
        dead = [thread.name for thread in self._threads if not thread.is_alive()]
        if dead:
            raise RuntimeError(f"threads ended: {', '.join(dead)}")

    def _work(self, slot: int) -> None:
        # One slot after the other, so that there is always one for a task.
        next_s = time.monotonic() + self._canary_s * (slot + 1) / self._ledger.slots
        while not self._ledger.closed:
            now_s = time.monotonic()
            if now_s >= next_s:
                self._look(slot)
                next_s = time.monotonic() + self._canary_s
                continue
            job = self._ledger.take(next_s - now_s)
            if job is None:
                continue
            try:
                with ExitStack() as cleaning:
                    problem = self._judge(slot, job, cleaning)
            except SandboxFailure as error:
                # Judged, but the slot could not be cleaned for the next one.
                problem = f"the sandbox failed: {error}"
                self._mark(slot, problem)
            except Exception as error:
                log.exception("task %s failed here", job.id)
                self._ledger.give_back(job, describe(error)[:500])
                continue
            if problem:
                self._recover(slot)

    def _judge(self, slot: int, job: Job, cleaning: ExitStack) -> str:
        """Judges and hands over the result; returns what ails this machine, if anything."""
        self._tell(job, Event.STARTED, f"started in slot {slot}")
        compiling = False

        def advance(status: Status, tests_done: int) -> None:
            nonlocal compiling
            if compiling and status is Status.RUNNING:
                self._tell(job, Event.COMPILED, "compiled")
            compiling = status is Status.COMPILING
            if status is not job.status or tests_done:
                self._ledger.advance(job, status, tests_done)

        name = f"{job.id}-{job.attempt}"
        try:
            result = self._pipeline.judge(slot, name, job.task, job.cancellation, advance, cleaning)
        except RunCancelled:
            self._ledger.drop(job)
            numbers.STOPPED.add()
            self._tell(job, Event.STOPPED, "stopped")
        except CannotJudge as error:
            self._tell(job, Event.STOPPED, f"given back: {error.reason}", logging.WARNING)
            if error.sick:
                self._mark(slot, error.reason)
            self._ledger.give_back(job, error.reason)
            numbers.GIVEN_BACK.add()
            return error.reason if error.sick else ""
        else:
            # First the judicator, then the journal: somebody waits.
            self._ledger.finish(job, result)
            numbers.JUDGED.add(result.verdict.word)
            numbers.JUDGING.note(time.monotonic() - job.started_s)
            self._tell(job, Event.JUDGED, _sentence(result))
        return ""

    def _mark(self, slot: int, reason: str) -> None:
        with self._lock:
            self._sick_slots.add(slot)
        numbers.FAILURES.add()
        self._ledger.pause(SICK, True)
        self._sick(reason)

    def _look(self, slot: int) -> None:
        """The canary of an executor that seems to be well."""
        try:
            self._canary(slot, whole=False)
        except CannotJudge as error:
            self._fall_sick(slot, error.reason)
            self._recover(slot)

    def _fall_sick(self, slot: int, reason: str) -> None:
        log.error("slot %d cannot run programs safely: %s", slot, reason)
        self._mark(slot, reason)
        self._ledger.evacuate(f"the executor is sick: {reason}"[:500])

    def _recover(self, slot: int) -> None:
        """Tries until everything works again; nothing is taken meanwhile."""
        for pause_s in backoff(0.2, 10.0):
            try:
                self._canary(slot, whole=True)
            except CannotJudge as error:
                self._fall_sick(slot, error.reason)
            else:
                with self._lock:
                    self._sick_slots.discard(slot)
                    well = not self._sick_slots
                if well:
                    log.info("slot %d runs programs safely again", slot)
                    self._ledger.readmit()
                    self._ledger.pause(SICK, False)
                    self._sick("")
                return
            if self._stop.wait(pause_s):
                return

    def _tell(self, job: Job, event: Event, what: str, level: int = logging.INFO) -> None:
        tell(
            log,
            event,
            f"task {job.id} {what} (attempt {job.attempt})",
            task=job.id,
            executor=self._executor,
            attempt=job.attempt,
            level=level,
        )


def _sentence(result: Result) -> str:
    if result.verdict is Verdict.COMPILE_ERROR:
        return f"judged: {result.verdict.word}"
    accepted = sum(test.verdict is Verdict.ACCEPTED for test in result.tests)
    return f"judged: {result.verdict.word}, {accepted} of {len(result.tests)} tests accepted"
