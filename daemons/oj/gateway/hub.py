"""What happens in the cluster, read once for all event streams of this process.

Theory of operation. One thread asks the judicators for events and keeps the last few thousand. A
stream of one task sleeps until something of that task comes; a stream of all tasks looks a few
times a second, so that hundreds of watchers cost a busy cluster little. A watcher whose place is
older than what is kept is served by asking the judicators, who know more, until it has caught up.
"""

from __future__ import annotations

import bisect
import json
import logging
import random
import threading
import time
from dataclasses import dataclass
from typing import Any

from oj import plain
from oj.client import Judicators
from oj.errors import Rejected, Unavailable

log = logging.getLogger("oj.gateway.hub")

KEPT = 4_000
WAIT_S = 20.0
PAUSE_S = 0.5
LOOK_S = 0.25
PAGE = 500
FIRST_S = 10.0  # for the first answer, to which a judicator gives 5 s


@dataclass(frozen=True)
class Happening:
    """One event, with its text as it is sent, made once for all who get it."""

    cursor: str
    task: str
    user: str
    done: bool
    text: str


def to_happening(event: Any) -> Happening:
    value = {key: one for key, one in plain.event(event).items() if one is not None}
    text = f"id: {event.cursor}\nevent: task\ndata: {json.dumps(value)}\n\n"
    return Happening(event.cursor, event.id, value["user"], value["done"], text)


class Hub:
    def __init__(self, judicators: Judicators) -> None:
        self._judicators = judicators
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # woken for all
        self._watched: dict[str, list[threading.Event]] = {}
        self._kept: list[Happening] = []
        self._cursors: list[str] = []
        self._since = ""  # what happened after it is kept
        self._latest = ""
        self._started = False

    def start(self) -> None:
        """Begins to read, with the first watcher."""
        with self._lock:
            if not self._started:
                self._started = True
                threading.Thread(target=self._run, name="hub", daemon=True).start()

    @property
    def latest(self) -> str:
        """Where a watcher begins who has no place yet; waits for the first answer."""
        self.start()
        with self._changed:
            if not self._changed.wait_for(lambda: self._latest, FIRST_S):
                raise Unavailable("no judicator tells what happens", 1000)
            return self._latest

    def after(self, cursor: str, limit: int = PAGE) -> tuple[list[Happening], str] | None:
        """What is kept after the cursor, and the next one; None: the place is too old for us."""
        with self._lock:
            if not self._since or cursor < self._since:
                return None
            first = bisect.bisect_right(self._cursors, cursor)
            found = self._kept[first : first + limit]
            return found, found[-1].cursor if found else max(cursor, self._latest)

    def ask(self, cursor: str) -> tuple[list[Happening], str, bool]:
        """What the judicators know after the cursor, the next one, and whether there is a gap."""
        try:
            news = self._judicators.events(cursor, 0.0, PAGE)
        except Rejected:
            return [], self.latest, True
        return [to_happening(event) for event in news.events], news.cursor, bool(news.gap)

    def watch(self, task: str) -> threading.Event:
        """An event that is set when something of the task has come."""
        self.start()
        bell = threading.Event()
        with self._lock:
            self._watched.setdefault(task, []).append(bell)
        return bell

    def unwatch(self, task: str, bell: threading.Event) -> None:
        with self._lock:
            bells = self._watched.get(task, [])
            if bell in bells:
                bells.remove(bell)
            if not bells:
                self._watched.pop(task, None)

    def wait(self, cursor: str, timeout_s: float) -> None:
        """Until there is something after the cursor; a moment more, for company.

        Each watcher has a moment of its own: all of them at once would keep every other request of
        this process waiting for as long as it takes to write to hundreds of them.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: bool(self._cursors) and self._cursors[-1] > cursor, timeout_s
            )
        time.sleep(LOOK_S * random.uniform(0.5, 1.5))

    def _run(self) -> None:
        channel = self._judicators.channel()
        cursor = ""
        while True:
            try:
                news = channel.events(cursor, WAIT_S if cursor else 0.0, PAGE)
            except Unavailable as error:
                log.info("events: %s", error.message)
                time.sleep(PAUSE_S)
                continue
            except Exception:
                log.exception("events failed")
                cursor = ""
                time.sleep(PAUSE_S)
                continue
            self._keep(news, fresh=not cursor)
            cursor = news.cursor

    def _keep(self, news: Any, *, fresh: bool) -> None:
        found = [to_happening(event) for event in news.events]
        with self._changed:
            if fresh or news.gap:
                self._kept, self._cursors = [], []
                self._since = news.cursor if not found else found[0].cursor
                for bells in self._watched.values():
                    for bell in bells:
                        bell.set()
            self._kept += found
            self._cursors += [one.cursor for one in found]
            surplus = len(self._kept) - KEPT
            if surplus > 0:
                self._since = self._cursors[surplus - 1]
                del self._kept[:surplus], self._cursors[:surplus]
            self._latest = news.cursor
            for one in found:
                for bell in self._watched.get(one.task, ()):
                    bell.set()
            self._changed.notify_all()
