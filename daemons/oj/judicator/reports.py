"""Reports of executors: who speaks, what is in hand, what is handed out.

What is remembered of an executor between its reports (sessions.py) saves
database calls and is never trusted for long: it is compared with the database
when it differs from the report, when something was taken away from the
executor, and after a second anyway.

A report that has nothing to be told is parked until there is work, a cancel, a
newer report of the same executor, or until its time is up. docs/protocol.md
tells the rules to people.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence, Set

from oj.clock import Deadline
from oj.errors import Missing
from oj.events import Event, tell
from oj.incarnation import RENAME, say_runs_twice
from oj.judicator import numbers
from oj.judicator.broker import Broker
from oj.judicator.report import Assigned, Process, Ref, Reply, Report
from oj.judicator.sessions import InMemory, Session
from oj.judicator.store.documents import Claimed, Progress
from oj.judicator.store.roster import Executor, Roster
from oj.judicator.store.shares import Shares
from oj.judicator.store.tasks import TaskStore
from oj.judicator.tenancy import Claim
from oj.judicator.waiting import Parked, Wake
from oj.model import Status

log = logging.getLogger("oj.judicator")

TRUST_S = 1.0  # how long memory is believed without a look into the database
TRUST_NOTHING_S = 30.0  # the same when nothing is in hand
TOUCH_S = 2.0  # how often an executor's last report is noted
EARLY_S = 0.15  # progress of a task is not stored before it is this old
OFFER_LANGUAGES_S = 3600.0
RIVAL_WAIT_S = 2.0  # see tenancy.ASKING_MS
FRESH_S = 2.0  # longer than a picture of the roster is kept
FORGET_S = 300.0  # a session that is not in the roster and has been silent for so long


class Reports:
    """Takes reports in and answers them."""

    def __init__(self, broker: Broker, store: TaskStore, roster: Roster, shares: Shares) -> None:
        self._broker = broker
        self._store = store
        self._roster = roster
        self._shares = shares
        self._lease_s = broker.rules.lease_s
        self._lock = threading.Lock()
        self._sessions: dict[str, Session] = {}
        # Claims of one judicator queue up here, not in the database, where they
        # would all conflict over the same first task.
        self._claiming = threading.Lock()
        self._takers: dict[str, set[str]] = {}  # language -> executors that take tasks in it
        self._offered_s: dict[str, float] = {}  # language -> when the others were told of it
        # How often an executor was drained or taken back here: what was read before is old then.
        self._decided: Counter[str] = Counter()
        self._told_of: dict[str, str] = {}  # executor -> the rival that the journal told of last
        self._early: set[str] = set()  # executors whose tasks have progress that is not stored
        self._closing = threading.Event()
        broker.on_taken_away = self.taken_away

    # -------------------------------------------------------------- a report

    def report(self, report: Report) -> Reply:
        reply = Reply()
        # Results first: they carry their own fence, and they must be in before
        # anything of an older incarnation is given to others.
        self._broker.finish(report.executor, report.finished)
        reply.acknowledged.extend(Ref(done.id, done.attempt) for done in report.finished)
        session = self._session(report.executor)
        parked: Parked | None = None
        with session.lock:
            for ref in reply.acknowledged:
                session.held.pop(ref.id, None)
            entered = self._enter(session, report, reply)
            replaced = session.incarnation != report.incarnation
            if entered:
                parked = self._take_in(session, report, reply)
        if replaced and not reply.says_something:
            # It has nothing to do here; it shall at least not ask all the time.
            self._closing.wait(min(report.wait_s, RIVAL_WAIT_S))
        if parked is None:
            return reply
        try:
            if not reply.says_something and not reply.want_facts:
                self._sleep(session, report, parked, reply)
        finally:
            self._broker.parked.leave(parked)
        return reply

    def _take_in(self, session: Session, report: Report, reply: Reply) -> Parked | None:
        """What the newest report says and gets; parked if it has to wait."""
        parked: Parked | None = None
        self._compare(session, report, reply)
        reply.drained = session.drained
        reply.want_facts = session.facts is None
        vacant = report.vacant if session.takes_tasks and session.touched_s else 0
        # Drained or not may have changed while no report was parked to be told.
        known, session.told_drained = session.told_drained, session.drained
        told = reply.says_something or known != session.drained or not session.touched_s
        if report.wait_s > 0 and not told:
            # In line first, then the look for work: what is added in between rings.
            parked = Parked(report.executor, session.languages() if vacant else ())
            self._broker.parked.park(parked)
            # A cancel or a drain may have come after the look and before anybody was parked.
            if session.must_look or session.drained != reply.drained:
                parked.ring(Wake.LOOK)
        try:
            if vacant:
                self._claim(session, report, vacant, reply)
        except BaseException:
            if parked:
                self._broker.parked.leave(parked)
            raise
        return parked

    def _session(self, name: str) -> Session:
        with self._lock:
            session = self._sessions.get(name)
            if session is None:
                session = self._sessions[name] = Session(name)
            return session

    def _enter(self, session: Session, report: Report, reply: Reply) -> bool:
        """Whether this is the newest report of the executor's current incarnation."""
        now_s = time.monotonic()
        longer = report.wait_s > session.longest_wait_s
        session.longest_wait_s = max(session.longest_wait_s, report.wait_s)
        known = session.incarnation == report.incarnation
        if known and report.number < session.number:
            return False
        moved = report.address != session.address
        # Also when it is going to wait longer than noted: it would count as silent meanwhile.
        if known and (longer or moved or now_s - session.touched_s > TOUCH_S):
            session.address = report.address
            known = self._touch(session)
        if not known and not self._meet(session, report, reply):
            return False
        session.number = report.number
        self._broker.parked.supersede(session.name)
        if report.facts is not None and report.facts != session.facts:
            self._roster.describe(session.name, session.incarnation, report.facts)
            session.facts = report.facts
        if not known or report.facts is not None or now_s - session.noted_s > OFFER_LANGUAGES_S:
            session.noted_s = now_s
            self._note_languages(session)
        return True

    def _touch(self, session: Session) -> bool:
        """Whether its process has the name still; if not, its next report is told so."""
        session.touched_s = time.monotonic()  # before: what is heard meanwhile takes it back
        current = False
        try:
            current = self._roster.touch(
                session.name, session.incarnation, session.longest_wait_s, session.address
            )
        finally:
            if not current:
                session.touched_s = 0.0
        return current

    def _note_languages(self, session: Session) -> None:
        """Notes who takes tasks in which languages, and lets the others know of these."""
        now_s = time.monotonic()
        if session.takes_tasks:
            with self._lock:
                for name in session.languages():
                    self._takers.setdefault(name, set()).add(session.name)
        names = [
            name
            for name in (session.facts.languages if session.facts else ())
            if now_s - self._offered_s.get(name, -OFFER_LANGUAGES_S) >= OFFER_LANGUAGES_S
        ]
        if names:
            self._roster.offer_languages(names)
            self._offered_s.update(dict.fromkeys(names, now_s))

    def _meet(self, session: Session, report: Report, reply: Reply) -> bool:
        """Takes an incarnation in that this judicator does not know yet."""
        decided = self._decided[session.name]
        claim = Claim(report.incarnation, report.address, report.number, report.settled)
        executor, current = self._roster.enter(report.executor, claim, report.wait_s, report.facts)
        if not current:
            self._refuse(report, executor, reply)
            return False
        if session.incarnation != report.incarnation:
            tell(
                log,
                Event.EXECUTOR_SEEN,
                f"executor {report.executor} reports ({report.incarnation})",
                executor=report.executor,
            )
        session.incarnation = report.incarnation
        session.number = 0
        session.address = report.address
        session.facts = executor.facts
        with self._lock:
            self._told_of.pop(session.name, None)
            if self._decided[session.name] == decided:
                session.drained = executor.drained
        session.told_drained = False
        session.held.clear()
        session.must_look = True
        session.touched_s = time.monotonic()
        session.longest_wait_s = report.wait_s
        return True

    def _refuse(self, report: Report, executor: Executor, reply: Reply) -> None:
        """Tells a process that another one has its executor's name."""
        reply.cancel.extend(Ref(task.id, task.attempt) for task in report.in_hand)
        reply.holder = Process(executor.incarnation, executor.address)
        with self._lock:
            known = self._told_of.get(report.executor) == report.incarnation
            self._told_of[report.executor] = report.incarnation
        if not known:
            said = say_runs_twice(report.executor, executor.address, [report.address])
            tell(
                log,
                Event.EXECUTOR_TWICE,
                f"{said}; {RENAME}",
                executor=report.executor,
                level=logging.ERROR,
            )

    # --------------------------------------------------------------- in hand

    def _compare(self, session: Session, report: Report, reply: Reply) -> None:
        """Brings together what the executor says it has and what we believe."""
        listed = {task.id: task for task in report.in_hand}
        now_s = time.monotonic()
        # Where neither side knows of a task, a lease would bring to light what both forgot.
        trust_s = TRUST_S if listed or session.held else TRUST_NOTHING_S
        if (
            session.must_look
            or now_s - session.looked_s > trust_s
            or not session.agrees_with(report)
        ):
            self._look(session, report)
        for task in report.in_hand:
            memory = session.held.get(task.id)
            if memory is None or memory.attempt != task.attempt:
                reply.cancel.append(Ref(task.id, task.attempt))
                listed.pop(task.id, None)
                continue
            if task.status == Status.RUNNING:
                memory.said_status = Status.RUNNING
            memory.said_tests_done = max(task.tests_done, memory.said_tests_done)
        self._store_progress(session, now_s)
        if listed and now_s - session.renewed_s > self._lease_s / 4:
            self._store.renew(session.name, session.incarnation, listed)
            session.renewed_s = now_s

    def _store_progress(self, session: Session, now_s: float) -> None:
        """Stores what has moved, but not of tasks that have only just been handed out:
        most of these are through before anyone could look."""
        steps: list[Progress] = []
        early = False
        for task_id, memory in session.held.items():
            moved = memory.said_status != memory.status
            if not moved and memory.said_tests_done <= memory.tests_done:
                continue
            if now_s - memory.claimed_s < EARLY_S:
                early = True
                continue
            memory.status, memory.tests_done = memory.said_status, memory.said_tests_done
            steps.append(Progress(task_id, memory.attempt, memory.status, memory.tests_done, moved))
        with self._lock:
            (self._early.add if early else self._early.discard)(session.name)
        if steps:
            self._store.progress(session.name, session.incarnation, steps)
            for step in steps:
                self._broker.waiters.tell(step.id, None)

    def store_progress(self) -> None:
        """Stores what came too early with its report and has not come again."""
        with self._lock:
            sessions = [self._sessions[name] for name in self._early if name in self._sessions]
            self._early.clear()
        for session in sessions:
            with session.lock:
                self._store_progress(session, time.monotonic())

    def _look(self, session: Session, report: Report) -> None:
        """What the database says is in hand; what is not goes to others at once."""
        session.must_look = False
        session.looked_s = time.monotonic()
        listed = {task.id: task.attempt for task in report.in_hand}
        held: dict[str, InMemory] = {}
        found = self._store.find_held(session.name)
        # Another process's: that one is gone, or has the name by now, through another judicator.
        # Then each would take away what the other is given, until no attempts are left.
        if any(task.incarnation != session.incarnation for task in found) and not self._touch(
            session
        ):
            found = [task for task in found if task.incarnation == session.incarnation]
        for task in found:
            if task.incarnation != session.incarnation:
                self._broker.take_away(task, f"{session.name} was restarted")
            elif listed.get(task.id) == task.attempt or task.claim_number > report.settled:
                held[task.id] = session.remember(task)
            else:
                self._broker.take_away(task, f"{session.name} does not have it")
        session.held = held

    # ----------------------------------------------------------- handing out

    def _claim(self, session: Session, report: Report, vacant: int, reply: Reply) -> None:
        languages = session.languages()
        alone = self._alone_with(languages, session.name)
        query = self._store.waiting_query(languages, session.name, alone)
        with numbers.CLAIMS.time(), self._claiming:
            claimed = self._store.claim(
                query, session.name, session.incarnation, report.number, vacant
            )
        for one in claimed:
            self._hand_out(session, report, one)
            reply.assign.append(Assigned(one.id, one.attempt, one.body))

    def _hand_out(self, session: Session, report: Report, one: Claimed) -> None:
        record = one.record
        session.held[one.id] = InMemory(one.attempt, report.number, claimed_s=time.monotonic())
        numbers.CLAIMED.add()
        self._shares.handed_out(record.priority, record.language, one.share)
        tell(
            log,
            Event.ASSIGNED,
            f"task {one.id} assigned to {session.name} (attempt {one.attempt})",
            task=one.id,
            executor=session.name,
            attempt=one.attempt,
        )
        self._broker.waiters.tell(one.id, record)

    def _alone_with(self, languages: Sequence[str], executor: str) -> list[str]:
        """Languages that no other executor takes tasks in, as far as is known."""
        return [name for name in languages if self._takers.get(name, set()) <= {executor}]

    def undelivered(self, report: Report, reply: Reply) -> None:
        """The reply could not be sent: what it assigned goes to others at once."""
        for assigned in reply.assign:
            held = self._store.find_one_held(assigned.id)
            if held and (held.executor, held.incarnation, held.attempt) == (
                report.executor,
                report.incarnation,
                assigned.attempt,
            ):
                self._broker.take_away(held, f"{report.executor} hung up before it was told")

    # --------------------------------------------------------------- waiting

    def _sleep(self, session: Session, report: Report, parked: Parked, reply: Reply) -> None:
        deadline = Deadline(report.wait_s)
        while True:
            reasons = parked.sleep(deadline.left_s)
            if not reasons or Wake.SUPERSEDED in reasons or Wake.CLOSING in reasons:
                return
            if not report.connected():
                return
            self._broker.check_database()
            with session.lock:
                if (session.incarnation, session.number) != (report.incarnation, report.number):
                    return
                if Wake.LOOK in reasons:
                    self._look_again(session, report, reply)
                if not session.touched_s:
                    return  # it shall report anew: another process may have its name
                if Wake.WORK in reasons and session.takes_tasks:
                    parked.offered.clear()
                    self._claim(session, report, 1, reply)
            if reply.says_something or reply.drained != session.drained:
                reply.drained = session.told_drained = session.drained
                return
            self._broker.parked.listen_again(parked)

    def _look_again(self, session: Session, report: Report, reply: Reply) -> None:
        """Something was taken away from the executor while its report was parked."""
        self._look(session, report)
        for task in report.in_hand:
            memory = session.held.get(task.id)
            if memory is None or memory.attempt != task.attempt:
                reply.cancel.append(Ref(task.id, task.attempt))

    # ---------------------------------------------------------- from outside

    def taken_away(self, executor: str, task_id: str) -> None:
        """A task is no longer in this executor's hands: it must hear of it."""
        with self._lock:
            session = self._sessions.get(executor)
        if session is not None:
            session.must_look = True
            self._broker.parked.look(executor)

    def heard_of(self, task_id: str) -> None:
        """Another judicator changed a task: whose session has it in hand?"""
        with self._lock:
            holders = [s for s in self._sessions.values() if task_id in s.held]
        for session in holders:
            # Perhaps because another process has its name: nothing is given before that is known.
            session.touched_s = 0.0
            self.taken_away(session.name, task_id)

    def drain(self, executor: str, on: bool) -> None:
        if not self._roster.drain(executor, on):
            raise Missing(f"there is no executor {executor}", executor)
        log.info("executor %s %s", executor, "drained" if on else "back in service")
        with self._lock:
            self._decided[executor] += 1
            session = self._sessions.get(executor)
            changed = session is not None and session.drained != on
            if session is not None:
                session.drained = on
        if changed:
            self._broker.parked.look(executor)

    def wake_contested(self, find: Callable[[], Set[str]]) -> None:
        """Has executors report of whose name another process reports as well: whether they live
        decides which of the two has it. `find` tells which these are."""
        late_s = time.monotonic() - TOUCH_S
        for name in find():
            with self._lock:
                session = self._sessions.get(name)
            if session is not None and session.touched_s < late_s:
                self._broker.parked.supersede(name)

    def forget(self, executor: str) -> None:
        """What it had in hand goes to others as its leases run out, as with any that is lost."""
        if not self._roster.remove(executor):
            raise Missing(f"there is no executor {executor}", executor)
        log.info("executor %s forgotten, as told", executor)

    def refresh_drained(self, look: Callable[[], Set[str]]) -> None:
        """`look` tells who is drained by what is stored."""
        with self._lock:
            decided = self._decided.copy()
        drained = look()
        with self._lock:
            changed = [
                session
                for name, session in self._sessions.items()
                if session.drained != (name in drained) and self._decided[name] == decided[name]
            ]
            for session in changed:
                session.drained = session.name in drained
        for session in changed:
            self._broker.parked.look(session.name)

    def refresh(self, executors: Sequence[Executor]) -> None:
        """Takes in what the roster says now: who offers what."""
        takers: dict[str, set[str]] = {}
        for executor in executors:
            if executor.takes_tasks and executor.facts:
                for language in (*executor.facts.languages, ""):
                    takers.setdefault(language, set()).add(executor.name)
        with self._lock:
            # Those who have reported since that picture was taken.
            for session in self._sessions.values():
                if session.takes_tasks and time.monotonic() - session.noted_s < FRESH_S:
                    for language in session.languages():
                        takers.setdefault(language, set()).add(session.name)
            self._takers = takers
            now_in = {executor.name: executor.incarnation for executor in executors}
            replaced = [
                session
                for name, session in self._sessions.items()
                if name in now_in and session.incarnation not in ("", now_in[name])
            ]
        for one in replaced:
            # Elsewhere another process took the name over: who is parked here must hear of it.
            one.touched_s = 0.0
            self._broker.parked.supersede(one.name)
        names = {executor.name for executor in executors}
        late_s = time.monotonic() - FORGET_S
        with self._lock:
            for name, session in list(self._sessions.items()):
                if name not in names and session.touched_s < late_s:
                    del self._sessions[name]

    def look_everywhere(self) -> None:
        """Wakes every parked report: news may have been missed."""
        for name in self._broker.parked.executors():
            with self._lock:
                session = self._sessions.get(name)
            if session is not None:
                session.must_look = True
            self._broker.parked.look(name)

    def close(self) -> None:
        self._closing.set()
