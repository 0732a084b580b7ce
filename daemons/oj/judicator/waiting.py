"""Calls that wait on the server: parked reports and waits, and who wakes them.

A parked report belongs to one executor and listens for work in its languages;
a new task wakes exactly one parked report that can take it, so five hundred
idle executors do not all run to the database. A waiter waits for news of one
task. Everything here is in memory and never blocks but in `sleep`.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable
from enum import Enum
from typing import Generic, TypeVar

News = TypeVar("News")


class Wake(Enum):
    """Why a parked report was woken."""

    WORK = "a task waits"
    LOOK = "something of its own changed"
    SUPERSEDED = "a newer report of the same executor came"
    CLOSING = "the judicator stops"


class Parked:
    """One report that waits for work."""

    __slots__ = ("_bell", "_reasons", "executor", "languages", "offered")

    def __init__(self, executor: str, languages: Collection[str]) -> None:
        self.executor = executor
        self.languages = tuple(languages)
        self.offered: list[str] = []  # languages it was woken for and has not looked for yet
        self._bell = threading.Semaphore(0)
        self._reasons: set[Wake] = set()

    def ring(self, reason: Wake) -> None:
        self._reasons.add(reason)
        self._bell.release()

    def sleep(self, timeout_s: float) -> set[Wake]:
        """The reasons since it was asked last; empty when the time is up."""
        if self._bell.acquire(timeout=max(0.0, timeout_s)):
            while self._bell.acquire(blocking=False):
                pass
        reasons, self._reasons = self._reasons, set()
        return reasons


class ParkedReports:
    """The reports that wait, findable by executor and by language."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_executor: dict[str, Parked] = {}
        self._by_language: dict[str, OrderedDict[Parked, None]] = {}
        self._closed = False

    def park(self, parked: Parked) -> None:
        """From now on it hears; an older one of the same executor is sent off."""
        with self._lock:
            older = self._by_executor.get(parked.executor)
            if older is not None and older is not parked:
                self._remove(older)
                older.ring(Wake.SUPERSEDED)
            self._by_executor[parked.executor] = parked
            self._listen(parked)
            if self._closed:
                parked.ring(Wake.CLOSING)

    def listen_again(self, parked: Parked) -> None:
        """Back in line for work, after a wake that brought none."""
        with self._lock:
            if self._by_executor.get(parked.executor) is parked:
                self._listen(parked)

    def leave(self, parked: Parked) -> None:
        """It waits no more; work that it was woken for and did not look at goes to another."""
        with self._lock:
            self._remove(parked)
            if self._by_executor.get(parked.executor) is parked:
                del self._by_executor[parked.executor]
            for language in parked.offered:
                self._offer(language, 1, "")
            parked.offered.clear()

    def supersede(self, executor: str) -> None:
        with self._lock:
            older = self._by_executor.pop(executor, None)
            if older is not None:
                self._remove(older)
                older.ring(Wake.SUPERSEDED)

    def offer(self, language: str, count: int = 1, but: str = "") -> None:
        """Wakes up to `count` reports that can take a task of this language, of
        any executor but one."""
        with self._lock:
            self._offer(language, count, but)

    def _offer(self, language: str, count: int, but: str) -> None:
        line = self._by_language.get(language, ())
        # One more than asked for, in case the first is the one left out.
        chosen = [p for p in itertools.islice(line, count + 1) if p.executor != but][:count]
        for parked in chosen:
            self._remove(parked)
            parked.offered.append(language)
            parked.ring(Wake.WORK)

    def look(self, executor: str) -> None:
        """Wakes this executor's report, if one is parked here."""
        with self._lock:
            parked = self._by_executor.get(executor)
            if parked is not None:
                parked.ring(Wake.LOOK)

    def languages(self) -> list[str]:
        """For which some report waits."""
        with self._lock:
            return list(self._by_language)

    def executors(self) -> list[str]:
        with self._lock:
            return list(self._by_executor)

    def close(self) -> None:
        """Sends all off, and whoever parks from now on."""
        with self._lock:
            self._closed = True
            for parked in self._by_executor.values():
                parked.ring(Wake.CLOSING)

    def _listen(self, parked: Parked) -> None:
        for language in parked.languages:
            self._by_language.setdefault(language, OrderedDict())[parked] = None

    def _remove(self, parked: Parked) -> None:
        for language in parked.languages:
            line = self._by_language.get(language)
            if line is not None:
                line.pop(parked, None)
                if not line:
                    del self._by_language[language]


class Waiter(Generic[News]):
    """One call that waits for news of a task."""

    __slots__ = ("_bell", "_lock", "_news", "_rung", "closing")

    def __init__(self) -> None:
        self._bell = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._rung = 0
        self._news: News | None = None
        self.closing = False

    def ring(self, news: News | None) -> None:
        with self._lock:
            # Two pieces of news may come in the wrong order from two threads: then neither is
            # believed, and the caller looks for itself.
            self._news = None if self._rung else news
            self._rung += 1
        self._bell.release()

    def sleep(self, timeout_s: float) -> tuple[bool, News | None]:
        """Whether there was a ring, and the news that came with it, if any did."""
        if not self._bell.acquire(timeout=max(0.0, timeout_s)):
            return False, None
        with self._lock:
            self._rung -= 1
            return True, self._news


class Waiters(Generic[News]):
    """The calls that wait for tasks, by task."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_task: dict[str, list[Waiter[News]]] = {}
        self._closed = False

    def join(self, task_id: str) -> Waiter[News]:
        waiter: Waiter[News] = Waiter()
        with self._lock:
            self._by_task.setdefault(task_id, []).append(waiter)
            if self._closed:
                waiter.closing = True
                waiter.ring(None)
        return waiter

    def leave(self, task_id: str, waiter: Waiter[News]) -> None:
        with self._lock:
            line = self._by_task.get(task_id)
            if line is not None:
                line.remove(waiter)
                if not line:
                    del self._by_task[task_id]

    def tell(self, task_id: str, news: News | None) -> None:
        """Wakes who waits for this task; without news, they look for themselves."""
        with self._lock:
            for waiter in self._by_task.get(task_id, ()):
                waiter.ring(news)

    def tasks(self) -> list[str]:
        with self._lock:
            return list(self._by_task)

    def tell_all(self, task_ids: Iterable[str]) -> None:
        for task_id in task_ids:
            self.tell(task_id, None)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for line in self._by_task.values():
                for waiter in line:
                    waiter.closing = True
                    waiter.ring(None)
