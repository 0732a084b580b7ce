"""What this executor has in hand, under one lock, and what its reports say of it.

A task in hand is queued, running, or finished. At every moment each one is in
exactly one place, so that a report (a snapshot of this) never leaves one out: a
judicator gives a task that is not listed to somebody else.

Reports are numbered. A number is open from its snapshot until its answer was
applied or its connection is dead, when no answer to it can come any more;
`settled` is the highest number below which none is open. A judicator may free
what it assigned by a settled report and does not find listed.

Finished tasks travel with the news only. While they are on their way, and if
they are too many for one report, the others list them as executing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator

from oj import codec, model
from oj.errors import Rejected
from oj.executor.jobs import Finished, Job, Report
from oj.executor.pace import BATCH_S, Pace
from oj.executor.spool import Spool
from oj.rpc import ttypes as rpc

REPORT_BYTES = 8 << 20  # of results in one report; a frame is at most 16 MiB
PROGRESS_S = 0.2
LEASE_S = 8.0  # until a judicator says
STOPPING = "the executor is stopping"

log = logging.getLogger("oj.executor.ledger")


class Ledger:
    """Safe from any thread."""

    def __init__(
        self, incarnation: str, slots: int, spool: Spool, report_bytes: int = REPORT_BYTES
    ) -> None:
        self.incarnation = incarnation
        self.slots = slots
        self.judged = 0
        self.lease_s = LEASE_S
        self.drained = False  # by an operator
        self._spool = spool
        self._report_bytes = report_bytes
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)  # there is something to take
        self._news = threading.Condition(self._lock)  # there is something to say
        self._quiet = threading.Condition(self._lock)  # there is nothing (more) to say
        self._queue: deque[Job] = deque()
        self._jobs: dict[tuple[str, int], Job] = {}  # queued and running
        self._finished: dict[tuple[str, int], Finished] = {
            (completed.id, completed.attempt): Finished(completed, size_bytes)
            for completed, size_bytes in spool.load()
        }
        self._number = 0
        self._open: dict[int, int] = {}  # the slots that each offers, by number
        self._facts: rpc.Facts | None = None
        self._facts_due = False
        self._facts_travel = 0  # reports with facts that have not been answered
        self._progress_due = False
        self._reported_s = 0.0
        self._carry_most = 0  # finished tasks in one report; 0: by size only
        self._closed = False
        self._refusing = ""  # why everything is given back, if it is
        self._paused: set[str] = set()  # reasons to take no more
        self._pace = Pace()

    # ------------------------------------------------------------ for slots

    def take(self, timeout_s: float | None = None) -> Job | None:
        """The next task to run, when there is one; None after timeout_s, or when closed."""
        with self._work:
            self._work.wait_for(lambda: self._queue or self._closed, timeout_s)
            if self._closed or not self._queue:
                return None
            job = self._queue.popleft()
            job.started_s = time.monotonic()
            return job

    def advance(self, job: Job, status: model.Status, tests_done: int) -> None:
        """Notes how far a running task is; a report tells it before long."""
        with self._lock:
            job.status, job.tests_done = status, tests_done
            if not self._progress_due:
                self._progress_due = True
                self._news.notify_all()

    def finish(self, job: Job, result: model.Result) -> None:
        """Keeps the result, on disk, until it is acknowledged."""
        completed = rpc.Completed(
            job.id, job.attempt, self.incarnation, codec.result_to_rpc(result)
        )
        if job.unwanted:
            self.drop(job)
            return
        size_bytes = self._keep(completed)
        with self._lock:
            self._pace.note_task(time.monotonic() - job.started_s)
            self.judged += 1
            self._end(job, completed, size_bytes)

    def _keep(self, completed: rpc.Completed) -> int:
        try:
            return self._spool.keep(completed)
        except OSError as error:
            # A full disk: better a result that only this process has than none.
            log.error("the result of task %s cannot be kept on disk: %s", completed.id, error)
            return len(codec.pack(completed))

    def give_back(self, job: Job, reason: str) -> None:
        """Tells the judicator that somebody else must judge this one."""
        completed = rpc.Completed(job.id, job.attempt, self.incarnation, give_back=reason)
        with self._lock:
            self._end(job, completed, len(reason))

    def drop(self, job: Job) -> None:
        """Forgets a cancelled task; its slot is free."""
        with self._lock:
            self._jobs.pop(job.key, None)
            self._quiet.notify_all()

    def _end(self, job: Job, completed: rpc.Completed, size_bytes: int) -> None:
        self._jobs.pop(job.key, None)
        if not job.unwanted:
            self._finished[job.key] = Finished(completed, size_bytes)
        elif completed.result is not None:
            self._spool.forget(*job.key)  # cancelled while it was being written
        self._news.notify_all()

    # --------------------------------------------------------- for reporter

    def wait_for_news(self, timeout_s: float | None = None) -> bool:
        """Until there is something to say that cannot wait; false after timeout_s."""
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._news:
            while True:
                now_s = time.monotonic()
                due_s = self._news_at()
                if due_s <= now_s:
                    return True
                if end_s is not None and now_s >= end_s:
                    return False
                until_s = due_s if end_s is None else min(due_s, end_s)
                self._news.wait(None if until_s == float("inf") else until_s - now_s)

    def _news_at(self) -> float:
        """When there will be something to say, if nothing else happens."""
        if self._facts_due:
            return 0.0
        if any(not finished.travelling for finished in self._finished.values()):
            # With more work at hand, nobody is held up if several travel together.
            return self._reported_s + BATCH_S if self._queue and not self._closed else 0.0
        times = [float("inf")]
        if self._progress_due:
            times.append(self._reported_s + PROGRESS_S)
        if self._jobs:
            times.append(self._reported_s + self.lease_s / 3)
        return min(times)

    def wait_to_park(self, timeout_s: float) -> bool:
        """Until a report would stay parked, as far as one can tell; false after timeout_s.

        News make the judicator answer a parked report. So none is parked while
        facts or something finished wait or travel, nor while tasks that are usually short
        are under way: their end will be news in a moment.
        """
        end_s = time.monotonic() + timeout_s
        with self._quiet:
            while True:
                now_s = time.monotonic()
                park_s = end_s
                if not (self._finished or self._facts_due or self._facts_travel):
                    park_s = self._reported_s + self._pace.hold_s if self._jobs else now_s
                    if park_s <= now_s:
                        return True
                if now_s >= end_s:
                    return False
                self._quiet.wait(min(park_s, end_s) - now_s)

    def wait_delivered(self, timeout_s: float) -> bool:
        """Until everything that is finished or given back is acknowledged."""
        with self._quiet:
            return self._quiet.wait_for(lambda: not self._finished, timeout_s)

    def open_report(self, wait_ms: int, carry: bool) -> Report:
        """A snapshot; `carry`: with the finished tasks and the facts."""
        with self._lock:
            self._number += 1
            complete: list[rpc.Completed] = []
            executing: list[rpc.Executing] = []
            carried_bytes = 0
            for finished in self._finished.values():
                completed = finished.completed
                if (
                    carry
                    and not finished.travelling
                    and (not complete or carried_bytes + finished.size_bytes <= self._report_bytes)
                    and (not self._carry_most or len(complete) < self._carry_most)
                ):
                    finished.travelling = True
                    carried_bytes += finished.size_bytes
                    complete.append(completed)
                elif completed.incarnation == self.incarnation:
                    executing.append(
                        rpc.Executing(completed.id, completed.attempt, int(model.Status.RUNNING))
                    )
            for job in self._jobs.values():
                if not job.unwanted:
                    executing.append(
                        rpc.Executing(job.id, job.attempt, int(job.status), job.tests_done)
                    )
            self._progress_due = False
            self._reported_s = time.monotonic()
            facts = self._facts if carry and self._facts_due else None
            if facts is not None:
                self._facts_due = False
                self._facts_travel += 1
            report = Report(
                number=self._number,
                settled=min(self._open) - 1 if self._open else self._number - 1,
                complete=complete,
                executing=executing,
                vacant=self._vacant(),
                facts=facts,
                wait_ms=wait_ms,
            )
            self._open[report.number] = report.vacant
            return report

    def _vacant(self) -> int:
        if self._closed or self._paused:
            return 0
        return max(0, self.slots * (1 + self._pace.ahead) - len(self._jobs))

    def apply(self, report: Report, reply: rpc.ReportReply) -> None:
        """Does what the answer says."""
        jobs, unreadable = self._read(reply.assign or ())
        cancelled: list[Job] = []
        forgotten: list[tuple[str, int]] = []
        with self._lock:
            if report.wait_ms == 0:
                self._pace.note_round(time.monotonic() - report.taken_s)
            self._end_travel(report)
            for ref in reply.acknowledged or ():
                ended = self._finished.pop((ref.id, ref.attempt), None)
                if ended is not None and ended.completed.result is not None:
                    forgotten.append((ref.id, ref.attempt))
            for ref in reply.cancel or ():
                # A finished one is not looked for: its acknowledgement is on the way.
                if (job := self._jobs.get((ref.id, ref.attempt))) is not None:
                    cancelled += self._abandon(job)
            for completed in unreadable:
                self._finished[(completed.id, completed.attempt)] = Finished(completed, 0)
            for job in jobs:
                cancelled += self._add(job)
            if jobs:
                # They are news to nobody, and their leases are fresh.
                self._reported_s = time.monotonic()
            if reply.lease_ms:
                self.lease_s = reply.lease_ms / 1000
            if reply.want_facts or (report.facts and report.number < self._number):
                # A judicator passes over what a report says that came after a newer one.
                self._facts_due = self._facts is not None
            # Vacancies are reported all the same: the judicator knows, and may undo it.
            self.drained = bool(reply.drained)
            # Only now: what this report assigned is listed from here on.
            self._open.pop(report.number, None)
            if not self._finished:
                self._carry_most = 0
            self._quiet.notify_all()
            if self._facts_due:
                self._news.notify_all()
        for key in forgotten:
            self._spool.forget(*key)
        for job in cancelled:
            job.cancellation.cancel()

    def give_up(self, report: Report) -> None:
        """No answer can come any more: the connection is closed."""
        with self._lock:
            self._end_travel(report)
            self._facts_due |= report.facts is not None
            self._open.pop(report.number, None)
        self._spool.sync()

    def refuse(self, report: Report, reason: str) -> None:
        """A judicator calls the report wrong: finds the result that is to blame."""
        with self._lock:
            self._end_travel(report)
            self._open.pop(report.number, None)
            self._carry_most = 1
            if len(report.complete) != 1:
                return
            (bad,) = report.complete
            self._finished[(bad.id, bad.attempt)] = Finished(
                rpc.Completed(bad.id, bad.attempt, bad.incarnation, give_back=reason[:1000]),
                len(reason),
            )
        self._spool.forget(bad.id, bad.attempt)

    def _end_travel(self, report: Report) -> None:
        self._facts_travel -= report.facts is not None
        for completed in report.complete:
            finished = self._finished.get((completed.id, completed.attempt))
            if finished is not None:
                finished.travelling = False

    def _read(self, assignments: Iterable[rpc.Assignment]) -> tuple[list[Job], list[rpc.Completed]]:
        """The tasks, and the refusals of those that a newer judicator put too well for us."""
        jobs, unreadable = [], []
        for given in assignments:
            try:
                jobs.append(Job(given.id, given.attempt, codec.task_from_rpc(given.task)))
            except Rejected as error:
                unreadable.append(
                    rpc.Completed(
                        given.id, given.attempt, self.incarnation, give_back=error.message
                    )
                )
        return jobs, unreadable

    def _add(self, job: Job) -> Iterator[Job]:
        """Queues a task; returns others of the same id, which have to be killed."""
        if job.key in self._jobs or job.key in self._finished:
            return
        for other in list(self._jobs.values()):
            if other.id == job.id:
                yield from self._abandon(other)
        if self._refusing:
            self._refuse_job(job)
            self._news.notify_all()
            return
        self._jobs[job.key] = job
        self._queue.append(job)
        self._work.notify()

    def _abandon(self, job: Job) -> list[Job]:
        """Unlists a task at once; returns it if it runs and has to be killed."""
        if job.unwanted:
            return []
        job.unwanted = True
        if job in self._queue:
            self._queue.remove(job)
            del self._jobs[job.key]
            return []
        return [job]

    # ------------------------------------------------------------- for main

    def set_facts(self, facts: rpc.Facts) -> None:
        """Tells the judicators, if it is something new."""
        with self._lock:
            if facts != self._facts:
                self._facts, self._facts_due = facts, True
                self._news.notify_all()

    def pause(self, reason: str, on: bool) -> None:
        """Takes no more tasks while there is any reason not to."""
        with self._lock:
            if on != (reason in self._paused):
                self._paused ^= {reason}
                # A parked report offers slots that are no longer free, or none.
                self._facts_due = self._facts is not None
                self._news.notify_all()

    def pauses(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._paused)

    def count(self) -> tuple[int, int, int]:
        """Running, queued, finished but not acknowledged."""
        with self._lock:
            queued = len(self._queue)
            return len(self._jobs) - queued, queued, len(self._finished)

    @property
    def idle(self) -> bool:
        """Nothing is in hand, and no report under way that a task may still come by."""
        with self._lock:
            return not (self._jobs or self._finished or any(self._open.values()))

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Gives everything back that is not finished, kills what runs, lets slots end."""
        with self._lock:
            self._closed = True
            jobs = self._refuse_all(STOPPING)
            self._facts_due = False
            self._work.notify_all()
        for job in jobs:
            job.cancellation.cancel()

    def evacuate(self, reason: str) -> None:
        """Gives everything back that is not finished, and what still comes, until `readmit`."""
        with self._lock:
            if self._closed:
                return
            jobs = self._refuse_all(reason)
        for job in jobs:
            job.cancellation.cancel()

    def readmit(self) -> None:
        with self._lock:
            if not self._closed:
                self._refusing = ""

    def _refuse_all(self, reason: str) -> list[Job]:
        """Returns those that run, to be killed; their slots drop them."""
        self._refusing = reason
        for job in self._queue:
            del self._jobs[job.key]
            self._refuse_job(job)
        self._queue.clear()
        for job in self._jobs.values():
            if not job.unwanted:
                job.unwanted = True
                self._refuse_job(job)
        self._news.notify_all()
        return list(self._jobs.values())

    def _refuse_job(self, job: Job) -> None:
        given_back = rpc.Completed(job.id, job.attempt, self.incarnation, give_back=self._refusing)
        self._finished[job.key] = Finished(given_back, 0)
