"""The rules of a task's life: adding, ending, retrying, cancelling, waiting.

What executors say comes in through reports.py; both tell each other of changes
through the calls that wait here. Whatever changes a task goes through the
store's fences first and is told to those who wait after.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from oj.clock import Deadline
from oj.errors import Missing, Rejected, Unavailable
from oj.events import Event, tell
from oj.judicator import numbers
from oj.judicator.report import Finished
from oj.judicator.settings import Rules
from oj.judicator.store.adding import NewTasks
from oj.judicator.store.counts import Counts
from oj.judicator.store.documents import Held, NewTask, Record
from oj.judicator.store.history import History
from oj.judicator.store.ids import IdMaker
from oj.judicator.store.roster import Roster
from oj.judicator.store.shares import Shares
from oj.judicator.store.tasks import TaskStore
from oj.judicator.waiting import ParkedReports, Waiters
from oj.model import Status, Task

log = logging.getLogger("oj.judicator")

EXPIRED_AT_ONCE = 50  # in one transaction: if one was renewed meanwhile, all wait for the next
LANGUAGES_KEPT_S = 30 * 86400.0


@dataclass(frozen=True)
class Added:
    """A task to add: what it says, its bytes on the wire, and the blobs that it is to keep."""

    task: Task
    body: bytes
    new_blobs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Taken:
    """A task that was taken out of an executor's hands: as it was, as it is, and why."""

    held: Held
    record: Record
    message: str


class Broker:
    """What may happen to a task."""

    def __init__(
        self,
        new_tasks: NewTasks,
        store: TaskStore,
        shares: Shares,
        roster: Roster,
        counts: Counts,
        history: History,
        rules: Rules,
        check_database: Callable[[], None] = lambda: None,
    ) -> None:
        """`check_database` raises Unavailable, at once, while the database is away."""
        self.rules = rules
        self.check_database = check_database
        self.parked = ParkedReports()
        self.waiters: Waiters[Record] = Waiters()
        # Called with (executor, task) when a task is taken out of its hands.
        self.on_taken_away: Callable[[str, str], None] = lambda executor, task: None
        self._new_tasks = new_tasks
        self._store = store
        self._shares = shares
        self._roster = roster
        self._counts = counts
        self._history = history
        self._ids = IdMaker()
        self._languages: set[str] = set()

    # ---------------------------------------------------------------- adding

    def add(self, added: Added) -> str:
        self._check_language(added.task.language, "language")
        task = added.task
        share = self._shares.take(task.user, task.priority, task.language)
        new = self._new(added, share)
        task_id = self._new_tasks.add(new)
        if task_id == str(new.id):
            self._tell_added(task_id, task)
            self.parked.offer(task.language)
        return task_id

    def add_many(self, added: Sequence[Added]) -> list[str]:
        """All or none; ids in the same order."""
        if not added:
            return []
        places: dict[tuple[str, int, str], list[int]] = {}
        for place, one in enumerate(added):
            task = one.task
            self._check_language(task.language, f"tasks[{place}].language")
            places.setdefault((task.user, task.priority, task.language), []).append(place)
        share_of: dict[int, int] = {}
        for (user, priority, language), mine in places.items():
            first = self._shares.take(user, priority, language, len(mine))
            share_of.update({place: first + i for i, place in enumerate(mine)})
        new = [self._new(one, share_of[place]) for place, one in enumerate(added)]
        ids = self._new_tasks.add_many(new)
        fresh = [
            one.task
            for one, mine, task_id in zip(added, new, ids, strict=True)
            if str(mine.id) == task_id
        ]
        for task, task_id in zip(
            fresh, (i for i, n in zip(ids, new, strict=True) if i == str(n.id)), strict=True
        ):
            self._tell_added(task_id, task)
        languages = [task.language for task in fresh]
        for language in set(languages):
            self.parked.offer(language, languages.count(language))
        return ids

    def _new(self, added: Added, share: int) -> NewTask:
        task = added.task
        return NewTask(
            id=self._ids.make(),
            user=task.user,
            language=task.language,
            priority=task.priority,
            tags=task.tags,
            key=task.key,
            tests_total=max(1, len(task.tests)),
            share=share,
            body=added.body,
            webhook=task.webhook,
            webhook_token=task.webhook_token,
            new_blobs=added.new_blobs,
        )

    def _tell_added(self, task_id: str, task: Task) -> None:
        self._history.added(task_id)
        numbers.ADDED.add()
        tell(
            log,
            Event.ADDED,
            f"task {task_id} added ({task.language or 'no language'}, user '{task.user}')",
            task=task_id,
        )

    def _check_language(self, language: str, where: str) -> None:
        """Refuses a language that no executor has offered for a month.

        Whether one that offers it is alive just now does not matter: it may be
        restarting. As long as no executor has ever been seen, all are accepted.
        """
        if not language or language in self.rules.languages or language in self._languages:
            return
        # Before a refusal always a look: an executor may have offered it just now.
        self._languages = self._roster.find_languages(LANGUAGES_KEPT_S)
        if self._languages and language not in self._languages:
            known = ", ".join(sorted(self._languages | self.rules.languages))
            raise Rejected(f"no executor offers '{language}'; known: {known}", where)

    # --------------------------------------------------------------- reading

    def get(self, task_id: str, *, body: bool, result: bool, ended: bool) -> Record:
        record = self._store.get(task_id, body=body, result=result, ended=ended)
        if record is None:
            raise Missing(f"there is no task {task_id}", task_id)
        return record

    def wait(
        self,
        task_id: str,
        known_status: Status | None,
        known_tests_done: int,
        wait_s: float,
        *,
        body: bool,
        result: bool,
        ended: bool,
    ) -> Record:
        """As get, once there is something that the caller does not know, or time is up."""

        def is_news(record: Record) -> bool:
            return (
                record.done
                or (known_status is not None and record.status != known_status)
                or 0 <= known_tests_done < record.tests_done
            )

        deadline = Deadline(wait_s)
        # In line first, then the look: a change in between rings.
        waiter = self.waiters.join(task_id)
        try:
            record = self.get(task_id, body=body, result=result, ended=ended)
            while not is_news(record) and not waiter.closing:
                rung, news = waiter.sleep(deadline.left_s)
                if not rung:
                    break
                if news is not None and not is_news(news):
                    continue
                if news is not None and not body and not ended:
                    return news
                self.check_database()
                record = self.get(task_id, body=body, result=result, ended=ended)
            return record
        finally:
            self.waiters.leave(task_id, waiter)

    # ---------------------------------------------------------------- ending

    def cancel(self, task_id: str) -> bool:
        """Whether this call cancelled the task."""
        cancelled, record = self._store.cancel(task_id)
        if record is None:
            raise Missing(f"there is no task {task_id}", task_id)
        if cancelled:
            tell(log, Event.CANCELLED, f"task {task_id} cancelled", task=task_id)
            self._ended(record)
            if record.executor:
                self.on_taken_away(record.executor, task_id)
        return cancelled

    def finish(self, executor: str, all_finished: Sequence[Finished]) -> None:
        """Records results; drops those of tasks that are in other hands by now."""
        judged = [finished for finished in all_finished if finished.judged is not None]
        if len(judged) == 1:
            record = self._store.finish(executor, judged[0])
            self._take_note(executor, judged[0], record is not None, record)
        elif judged:
            recorded = self._store.finish_many(executor, judged)
            for finished, was_recorded in zip(judged, recorded, strict=True):
                self._take_note(executor, finished, was_recorded, None)
        for finished in all_finished:
            if finished.judged is None:
                self._give_back(executor, finished)

    def _take_note(
        self, executor: str, finished: Finished, recorded: bool, record: Record | None
    ) -> None:
        judged = finished.judged
        if not recorded or judged is None:
            self._drop(executor, finished)
            return
        tell(
            log,
            Event.RECORDED,
            f"task {finished.id} ended as {judged.status.word}, {judged.verdict.word} "
            f"(attempt {finished.attempt} at {executor})",
            task=finished.id,
            executor=executor,
            attempt=finished.attempt,
        )
        self._counts.ended(judged.status, judged.verdict)
        self._history.ended(finished.id)
        numbers.ENDED.add(judged.verdict.word)
        self.waiters.tell(finished.id, record)

    def _ended(self, record: Record) -> None:
        self._counts.ended(record.status, record.verdict)
        numbers.ENDED.add((record.verdict or record.status).word)
        self._history.ended(record.id)
        self.waiters.tell(record.id, record)

    def _drop(self, executor: str, finished: Finished) -> None:
        record = self._store.get(finished.id, body=False, result=False, ended=False)
        if (
            record
            and record.done
            and (record.executor, record.attempt)
            == (
                executor,
                finished.attempt,
            )
        ):
            # Sent again because the acknowledgement was lost, or just cancelled.
            log.debug("task %s is done already", finished.id)
            self.waiters.tell(finished.id, None)
            return
        numbers.DROPPED.add()
        state = f"is {record.status.word} at attempt {record.attempt}" if record else "is unknown"
        tell(
            log,
            Event.DROPPED,
            f"task {finished.id}: dropped what {executor} says of attempt {finished.attempt}; "
            f"it {state}",
            task=finished.id,
            executor=executor,
            attempt=finished.attempt,
            level=logging.WARNING,
        )

    def _give_back(self, executor: str, finished: Finished) -> None:
        held = self._store.find_one_held(finished.id)
        if held is None or (held.executor, held.incarnation, held.attempt) != (
            executor,
            finished.incarnation,
            finished.attempt,
        ):
            self._drop(executor, finished)
            return
        self.take_away(held, f"given back: {finished.give_back}", avoid=True)

    def take_away(self, held: Held, why: str, *, avoid: bool = False) -> None:
        """Ends an attempt without a result: the task waits again, or is given up."""
        ended = self._end_attempt(held, why, avoid=avoid, same_lease=False)
        if ended is not None:
            self._tell_taken(ended, avoid=avoid)

    def _end_attempt(
        self, held: Held, why: str, *, avoid: bool, same_lease: bool, session: Any = None
    ) -> Taken | None:
        if held.attempt >= self.rules.max_attempts:
            message = f"gave up after {held.attempt} attempts; the last: {why}"
            record = self._store.give_up(held, why, message, same_lease=same_lease, session=session)
        else:
            message = f"is to be retried: {why}"
            record = self._store.retry(
                held, why, avoid=avoid, same_lease=same_lease, session=session
            )
        # None: somebody else was first.
        return None if record is None else Taken(held, record, message)

    def _tell_taken(self, taken: Taken, *, avoid: bool) -> None:
        held, record = taken.held, taken.record
        (numbers.GIVEN_UP if record.done else numbers.RETRIED).add()
        tell(
            log,
            Event.GAVE_UP if record.done else Event.RETRIED,
            f"task {held.id} {taken.message} (attempt {held.attempt} at {held.executor})",
            task=held.id,
            executor=held.executor,
            attempt=held.attempt,
            level=logging.ERROR if record.done else logging.WARNING,
        )
        self.on_taken_away(held.executor, held.id)
        if record.done:
            self._ended(record)
        else:
            self.waiters.tell(held.id, record)
            self.parked.offer(held.language, but=held.executor if avoid else "")

    def expire(self, acting: Callable[[], AbstractContextManager[Any]]) -> int:
        """Takes away what is in hand under a lease that ran out; the leader's sweep.

        `acting` makes it one act of the leader's: all of it happens, or nothing does.
        """
        expired = self._store.find_expired(self.rules.lease_s, EXPIRED_AT_ONCE)
        if not expired:
            return 0
        try:
            with acting() as session:
                ended = [
                    self._end_attempt(
                        held,
                        f"nothing heard of it from {held.executor}",
                        avoid=False,
                        same_lease=True,
                        session=session,
                    )
                    for held in expired
                ]
        except Unavailable:
            # Perhaps it happened all the same: whoever waits shall look.
            self.waiters.tell_all(held.id for held in expired)
            raise
        for taken in filter(None, ended):
            self._tell_taken(taken, avoid=False)
        return len(expired)

    def mend_leases(self) -> None:
        """Part of the same sweep: leases that only a clock that was set back keeps from running
        out."""
        mended = self._store.mend_leases(self.rules.lease_s)
        if mended:
            log.warning("the database's clock was set back: %d leases begin anew", mended)

    # ---------------------------------------------------------- from outside

    def heard_of(self, task_id: str, *, waits: bool, language: str | None) -> None:
        """Another judicator changed a task."""
        self.waiters.tell(task_id, None)
        if waits:
            if language is None:
                record = self._store.get(task_id, body=False, result=False, ended=False)
                if record is None:
                    return
                language = record.language
            self.parked.offer(language)

    def look_for_work(self) -> None:
        """Wakes parked reports if work waits for them: a net under lost wake-ups."""
        languages = self.parked.languages()
        if languages:
            for language in self._store.find_waiting_languages(languages):
                self.parked.offer(language)

    def close(self) -> None:
        """Answers whoever waits."""
        self.parked.close()
        self.waiters.close()
