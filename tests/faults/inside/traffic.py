"""The load: threads that add, await, cancel, read and search tasks through every fault.

An add that got no answer is repeated with its key until it is acknowledged, so that in the end
nothing is unknown. Waiters follow each task to its end. Readers, one a judicator, look at tasks
that run and at tasks that are done, to see whether anybody is told another story.
"""

from __future__ import annotations

import queue
import random
import sys
import threading
import time
import uuid
from collections import deque

from drafts import Draft, draw
from record import Record

from oj.calls import GET_RESULT
from oj.client import Channel, Judicators
from oj.clock import Deadline
from oj.errors import Missing, Rejected, Unavailable
from oj.model import MAX_PAGE, TaskInfo

PORT = 7500
ADDERS, WAITERS = 3, 8
MOST_OPEN = 120  # tasks that were added and are not done
CANCELLED = 0.05  # of all
ADD_S = 5.0
READ_S = 2.0
READS_PER_S = 4.0  # of each reader
KNOWN = 300  # tasks that readers choose from


class Traffic:
    def __init__(self, hosts: list[str], record: Record, seed: int) -> None:
        self._hosts = hosts
        self._record = record
        self._seed = seed
        self._names: dict[str, str] = {}
        self._open = threading.Semaphore(MOST_OPEN)
        self._to_follow: queue.Queue[str] = queue.Queue()
        self._to_cancel: queue.Queue[tuple[float, str]] = queue.Queue()
        self._recent: deque[str] = deque(maxlen=KNOWN)
        self._lock = threading.Lock()
        self._stop_adding = threading.Event()
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self._adders: list[threading.Thread] = []
        self._next_add_s = 0.0
        self.rate = 10.0
        self.ids: list[str] = []
        self.acknowledged: deque[tuple[float, float]] = deque(maxlen=2000)  # the newest adds
        self.ended = 0
        self.troubles = 0  # answers that a client of ours should never get

    def start(self, rate: float) -> None:
        self.rate = rate
        self._adders = [self._thread(self._add_many, n) for n in range(ADDERS)]
        for number in range(WAITERS):
            self._thread(self._follow_many, number)
        self._thread(self._cancel_many, 0)
        for host in self._hosts:
            self._thread(self._read_many, host)

    def _thread(self, act, *arguments) -> threading.Thread:
        thread = threading.Thread(target=self._guard, args=(act, *arguments), daemon=True)
        thread.start()
        self._threads.append(thread)
        return thread

    def _guard(self, act, *arguments) -> None:
        try:
            act(*arguments)
        except BaseException:
            self.troubles += 1
            raise

    def judicators(self, number: int) -> Judicators:
        """Each thread begins with another one."""
        turned = self._hosts[number % len(self._hosts) :] + self._hosts[: number % len(self._hosts)]
        return Judicators([(host, PORT) for host in turned])

    # --- adding --------------------------------------------------------------------------------

    def _add_many(self, number: int) -> None:
        chance = random.Random(f"{self._seed}/{number}")
        channel = self.judicators(number).channel()
        while self._await_turn():
            key = f"{number}-{uuid.UUID(int=chance.getrandbits(128)).hex}"
            task = self.add(channel, draw(chance, key))
            self._recent.append(task)
            self._to_follow.put(task)
            if chance.random() < CANCELLED:
                self._to_cancel.put((time.monotonic() + chance.uniform(0, 0.5), task))

    def _await_turn(self) -> bool:
        while not self._open.acquire(timeout=0.5):
            if self._stop_adding.is_set():
                return False
        with self._lock:
            now = time.monotonic()
            # What could not be added during an outage is not caught up with in a burst.
            self._next_add_s = max(self._next_add_s, now - 0.5) + 1 / self.rate
            pause_s = self._next_add_s - now
        if self._stop_adding.wait(max(0.0, pause_s)):
            self._open.release()
            return False
        return True

    def add(self, channel: Channel, draft: Draft, most_s: float | None = None) -> str:
        """Adds until it is acknowledged (or for so long)."""
        give_up = Deadline(most_s) if most_s else None
        while True:
            t0 = time.monotonic()
            known = {"key": draft.task.key, "ends": draft.ends}
            try:
                limit_s = give_up.cap(ADD_S) if give_up else ADD_S
                task = channel.add(draft.task, Deadline(limit_s))
            except Unavailable:
                self._record.note("add", t0, id=None, **known)
                if give_up and give_up.expired:
                    raise
            except Rejected as error:
                self._complain(f"add was refused: {error}")
                time.sleep(1)
            else:
                self._record.note("add", t0, id=task, **known)
                with self._lock:
                    self.ids.append(task)
                    self.acknowledged.append((t0, time.monotonic()))
                return task

    # --- following -----------------------------------------------------------------------------

    def _follow_many(self, number: int) -> None:
        channel = self.judicators(number).channel()
        while not self._stop.is_set():
            try:
                task = self._to_follow.get(timeout=0.5)
            except queue.Empty:
                continue
            if self.follow(channel, task, wait_s=3.0):
                self.note_end()
                self._open.release()
            else:
                self._to_follow.put(task)

    def note_end(self) -> None:
        with self._lock:
            self.ended += 1

    def follow_later(self, task: str) -> None:
        """Lets the waiters see to the end of a task that somebody else added."""
        self._open.acquire(blocking=False)
        self._to_follow.put(task)

    def follow(self, channel: Channel, task: str, wait_s: float) -> bool:
        """Waits for the end of a task, and whether it came."""
        t0 = time.monotonic()
        try:
            info = channel.wait(
                task, wait_s=wait_s, what=GET_RESULT, deadline=Deadline(wait_s + ADD_S)
            )
        except Unavailable:
            return False
        except Missing:
            self._record.note("absent", t0, id=task, how="wait", at=self._at(channel))
            time.sleep(0.2)
            return False
        self._record.note_seen(info, t0, "wait", self._at(channel))
        return info.done

    def _cancel_many(self, number: int) -> None:
        channel = self.judicators(number).channel()
        while not self._stop.is_set():
            try:
                when, task = self._to_cancel.get(timeout=0.5)
            except queue.Empty:
                continue
            time.sleep(max(0.0, when - time.monotonic()))
            t0 = time.monotonic()
            answer: bool | None = None
            try:
                answer = channel.cancel(task, Deadline(ADD_S))
            except Unavailable:
                pass
            except Missing:
                self._record.note("absent", t0, id=task, how="cancel", at=self._at(channel))
            self._record.note("cancel", t0, id=task, answer=answer)

    # --- reading -------------------------------------------------------------------------------

    def _read_many(self, host: str) -> None:
        channel = Judicators([(host, PORT)], learn=False).channel(READ_S)
        chance = random.Random(f"{self._seed}/{host}")
        while not self._stop.wait(chance.uniform(0.5, 1.5) / READS_PER_S):
            if not self._recent:
                continue
            if chance.random() < 0.1:
                self.search(channel, "search", limit=50)
            else:
                # One of the newest, which may be just ending, or an older one.
                newest = chance.random() < 0.5
                place = -chance.randint(1, min(len(self._recent), 20 if newest else KNOWN))
                self.get(channel, self._recent[place], "get")

    def get(self, channel: Channel, task: str, how: str, most_s: float = READ_S) -> bool:
        t0 = time.monotonic()
        try:
            info = channel.get(task, GET_RESULT, Deadline(most_s))
        except Unavailable:
            return False
        except Missing:
            self._record.note("absent", t0, id=task, how=how, at=self._at(channel))
            return True
        self._record.note_seen(info, t0, how, self._at(channel))
        return True

    def search(
        self, channel: Channel, how: str, *, limit: int, cursor: str = "", most_s: float = READ_S
    ) -> tuple[list[TaskInfo], str] | None:
        t0 = time.monotonic()
        try:
            page, cursor = channel.search(cursor=cursor, limit=limit, deadline=Deadline(most_s))
        except Unavailable:
            return None
        for info in page:
            self._record.note_seen(info, t0, how, self._at(channel))
        return page, cursor

    # --- the end -------------------------------------------------------------------------------

    def finish(self, timeout_s: float) -> list[str]:
        """No more tasks; waits until all are done, and gives those that are not."""
        deadline = Deadline(timeout_s)
        self._stop_adding.set()
        for thread in self._adders:
            thread.join(deadline.left_s)
        while not deadline.expired and (self.ended < len(self.ids) or self._to_cancel.qsize()):
            time.sleep(0.1)
        self._stop.set()
        for thread in self._threads:
            thread.join(10)
        left = []
        while not self._to_follow.empty():
            left.append(self._to_follow.get())
        return left

    def audit(self, timeout_s: float) -> list[str]:
        """Asks every judicator for everything; gives those that could not be asked."""
        deadline = Deadline(timeout_s)
        unasked = []
        for host in self._hosts:
            channel = Judicators([(host, PORT)], learn=False).channel()
            cursor = ""
            while True:
                found = self.search(
                    channel, "audit", limit=MAX_PAGE, cursor=cursor, most_s=deadline.cap(30)
                )
                if found is None:
                    if not deadline.expired:
                        continue
                    unasked.append(host)
                    break
                cursor = found[1]
                if not cursor:
                    break
        channels = [Judicators([(h, PORT)], learn=False).channel() for h in self._hosts]
        for number, task in enumerate(self.ids):
            channel = channels[number % len(channels)]
            while not self.get(channel, task, "audit", most_s=10):
                if deadline.expired:
                    unasked.append(task)
                    break
        return unasked

    def _at(self, channel: Channel) -> str:
        return channel.address[0] if channel.address else ""

    def _complain(self, sentence: str) -> None:
        self.troubles += 1
        print(f"{time.monotonic():.2f} {sentence}", file=sys.stderr, flush=True)
