"""The conversation with the judicators: two channels, one ledger.

The listener keeps one report parked at a judicator, which answers it the
moment there is work or a cancel. The news go over a second channel the moment
something is finished, and as often as leases and progress ask for. Any news
make the judicator answer the parked report, so the listener parks only when
none are to be expected.

Both fail over by themselves (see client.py), and so may come to different judicators. The one that
the news go to does not know of the report that is parked at the other: nobody would answer it when
a slot has become vacant. So the listener follows the news. A report that failed is given up
only after its connection is closed, and the next is a fresh snapshot.

Where another process has our executor's name, judicators say so and give us nothing. The listener
then asks again and again instead of parking, until that one is gone.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from oj.client import Channel, Judicators
from oj.clock import Deadline, backoff
from oj.errors import Rejected, Unavailable
from oj.executor.jobs import Report
from oj.executor.ledger import Ledger
from oj.incarnation import RENAME
from oj.redact import describe
from oj.rpc import ttypes as rpc

PARK_MS = 20_000
QUIET_S = 1.0  # how long the listener waits for news to be gone
ANSWER_S = 10.0
UNHEARD_S = 3.0  # without an answer for so long, with news to tell, we are degraded
STUCK_S = 60.0  # a parked report alone is answered, or fails, well within this
ASK_AGAIN_S = 1.5  # whether the name is free; judicators expect it every two seconds
FIRST_PAUSE_S, MOST_PAUSE_S = 0.05, 1.0

log = logging.getLogger("oj.executor.reporter")


class Reporter:
    """Two threads that live until `stop`."""

    def __init__(self, executor: str, judicators: Judicators, ledger: Ledger) -> None:
        self._executor = executor
        self._ledger = ledger
        self._stopping = threading.Event()
        self._answered = threading.Event()
        self._answered_s = 0.0  # on the monotonic clock
        self._problem = "no judicator has answered yet"
        self._lock = threading.Lock()
        self._refusal = ""  # why we are given nothing, if another process has our name
        self._heard = 0  # the newest report that told of that
        self._news = judicators.channel(ANSWER_S)
        self._listener = judicators.channel(ANSWER_S)
        self._threads = [
            threading.Thread(target=self._loop, args=(name, channel, act), name=name, daemon=True)
            for name, channel, act in (
                ("news", self._news, self._tell_news),
                ("listener", self._listener, self._listen),
            )
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def wait_first_answer(self, timeout_s: float) -> bool:
        return self._answered.wait(timeout_s)

    @property
    def answered_s(self) -> float:
        """When a judicator answered last, by the monotonic clock."""
        return self._answered_s

    @property
    def refusal(self) -> str:
        """Why judicators give us nothing, if another process has this executor's name."""
        return self._refusal

    def check(self) -> None:
        """Raises Unavailable if judicators do not answer, anything else if we are broken."""
        for thread in self._threads:
            if not thread.is_alive():
                raise RuntimeError(f"the {thread.name} thread has ended")
        unheard_s = time.monotonic() - self._answered_s
        if self._problem and unheard_s > UNHEARD_S:
            raise Unavailable(self._problem)
        if not self._problem and unheard_s > STUCK_S:
            raise RuntimeError(f"no report was answered, and none failed, for {unheard_s:.0f} s")

    def finish(self, timeout_s: float) -> bool:
        """Waits until everything that is finished or given back is acknowledged, then stops."""
        delivered = self._ledger.wait_delivered(timeout_s)
        self._stopping.set()
        return delivered

    def _loop(self, name: str, channel: Channel, act: Callable[[Channel], bool]) -> None:
        pauses = backoff(FIRST_PAUSE_S, MOST_PAUSE_S)
        while not self._stopping.is_set():
            try:
                satisfied = act(channel)
            except Unavailable as error:
                satisfied = channel.called_away
                if not satisfied:
                    self._note(error.message)
                # The listener parks nothing while news travel, and they may travel to one that is
                # lost: what one of the two has found out, the other need not wait for.
                for other in {self._news, self._listener} - {channel}:
                    other.leave_hung()
            except Exception as error:
                log.exception("the %s failed", name)
                self._note(describe(error))
                satisfied = False
            if satisfied:
                pauses = backoff(FIRST_PAUSE_S, MOST_PAUSE_S)
            else:
                self._stopping.wait(next(pauses))
        channel.close()

    def _note(self, problem: str) -> None:
        if not self._problem:
            log.warning("judicators do not answer: %s", problem)
        self._problem = problem

    def _tell_news(self, channel: Channel) -> bool:
        if not self._ledger.wait_for_news(QUIET_S):
            return True
        report = self._ledger.open_report(wait_ms=0, carry=True)
        reply = self._send(channel, report)
        if reply is not None:
            self._listener.join(channel)
        # Nothing acknowledged: another report overtook this one. Not too fast again.
        return reply is not None and (not report.complete or bool(reply.acknowledged))

    def _listen(self, channel: Channel) -> bool:
        if not self._answered.wait(QUIET_S):
            return True
        if self._refusal:
            self._stopping.wait(ASK_AGAIN_S)
            return self._send(channel, self._ledger.open_report(wait_ms=0, carry=False)) is not None
        self._ledger.wait_to_park(QUIET_S)
        report = self._ledger.open_report(wait_ms=PARK_MS, carry=False)
        return self._send(channel, report) is not None

    def _send(self, channel: Channel, report: Report) -> rpc.ReportReply | None:
        try:
            reply = channel.report(
                self._executor,
                self._ledger.incarnation,
                report.complete,
                report.executing,
                report.vacant,
                report.facts,
                report.wait_ms,
                report.number,
                report.settled,
                deadline=Deadline(report.wait_ms / 1000 + ANSWER_S),
            )
        except Rejected as error:
            log.error("a judicator refuses report %d: %s", report.number, error.message)
            self._problem = error.message
            self._ledger.refuse(report, f"the judicator refuses the result: {error.message}")
            return None
        except BaseException:
            # Whatever it was, no answer may come to this number any more.
            channel.close()
            self._ledger.give_up(report)
            raise
        self._ledger.apply(report, reply)
        self._hear_of_holder(report, reply)
        self._answered_s = time.monotonic()
        if self._problem:
            log.info("a judicator answers")
            self._problem = ""
        self._answered.set()
        return reply

    def _hear_of_holder(self, report: Report, reply: rpc.ReportReply) -> None:
        with self._lock:
            if report.number < self._heard:
                return
            self._heard = report.number
            refused, self._refusal = self._refusal, ""
            if reply.holder is not None:
                where = reply.holder.address or "another machine"
                self._refusal = (
                    f"executor {self._executor} runs twice: the one at {where} has the name, and "
                    f"this one takes no tasks until that is gone; {RENAME}"
                )
            if self._refusal and self._refusal != refused:
                log.error("%s", self._refusal)
            elif refused and not self._refusal:
                log.info("executor %s is this one: the other is gone", self._executor)
