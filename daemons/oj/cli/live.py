"""`oj watch` without a task: the whole cluster as it goes, on a screen or in lines.

Two threads learn, one from what happens to tasks and one by asking for the rest every other
second; this one draws what they know. Where there is no terminal, every event is a line.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from oj import plain
from oj.calls import Calls
from oj.cli.frame import Picture, draw, to_moved
from oj.cli.screen import Screen
from oj.cli.terminal import clean, is_terminal, mood, paint, words
from oj.cli.verbs import Connect
from oj.clock import Deadline, backoff
from oj.errors import Rejected, Throttled, Unavailable

LOOK_S = 2.0
ASK_S = 4.0
DRAW_S = 1.0  # at least; at most ten times a second
PAUSE_S = 0.1
TROUBLES_S = 10.0
RECALLED = 50


def watch_cluster(arguments: argparse.Namespace, connect: Connect) -> int:
    with connect(arguments, long=True) as cluster:
        where = f"oj {cluster.version().oj} at {_name(cluster, arguments)}"
        dumb = not is_terminal(sys.stdout) or os.environ.get("TERM", "dumb") == "dumb"
        if arguments.json or dumb:
            return _print_events(cluster, arguments.json)
        return _Live(cluster, where).run()


def _name(cluster: Calls, arguments: argparse.Namespace) -> str:
    place = getattr(cluster, "place", None)
    if place is not None:
        return str(place.name)
    given = arguments.judicator
    return f"{given[0][0]}:{given[0][1]}" if given else "this cluster"


def _happenings(cluster: Calls) -> Iterator[Any]:
    """As the client library tells them, and an Unavailable in between where they are lost."""
    cursor = ""
    pauses = backoff(0.5, 5.0)
    while True:
        try:
            for news in cluster.happenings(cursor):
                cursor = news.cursor or cursor
                pauses = backoff(0.5, 5.0)
                yield news
        except Unavailable as error:
            yield error
            time.sleep(max(next(pauses), min(60.0, (error.retry_ms or 0) / 1000)))


# --------------------------------------------------------------------- lines


def _print_events(cluster: Calls, as_json: bool) -> int:
    for news in _happenings(cluster):
        if isinstance(news, Unavailable):
            print(f"oj: the cluster does not answer: {news.message}", file=sys.stderr, flush=True)
            continue
        if news.gap:
            print("oj: some events are missing here", file=sys.stderr, flush=True)
        for event in news.events:
            if as_json:
                plain.print_json(plain.event(event))
            else:
                print(_line(event))
        sys.stdout.flush()
    return 0


def _line(event: Any) -> str:
    value = plain.event(event)
    word = value["verdict"] or value["status"] or "?"
    when = time.strftime("%H:%M:%S", time.localtime((event.time or 0) / 1000 or time.time()))
    parts = [
        f"{value['tests_done']} of {value['tests_total']} tests"
        if (value["tests_total"] or 0) > 1
        else "",
        value["language"] or "",
        f"of {value['user']}" if value["user"] else "",
        f"on {value['executor']}" if value["executor"] else "",
    ]
    told = clean(", ".join(filter(None, parts)))
    return f"{when}  {event.id}  {paint(f'{words(word):<18}', mood(word))}  {told}".rstrip()


# -------------------------------------------------------------------- screen


class _Live:
    def __init__(self, cluster: Calls, where: str) -> None:
        self._cluster = cluster
        encoding = (sys.stdout.encoding or "").lower().replace("-", "")
        self._picture = Picture(where, unicode=encoding.startswith("utf"))
        self._lock = threading.Lock()
        self._screen: Screen | None = None
        self._failed: Exception | None = None
        self._listens = threading.Event()
        self._recalled = False

    def run(self) -> int:
        with Screen() as self._screen:
            for work in (self._listen, self._look):
                threading.Thread(target=self._guard, args=(work,), daemon=True).start()
            while self._failed is None:
                columns, rows = self._screen.size()
                with self._lock:
                    lines = draw(self._picture, columns, rows, time.time())
                self._screen.draw(lines)
                time.sleep(PAUSE_S)
                if "q" in self._screen.wait(DRAW_S).lower():
                    return 0
        raise self._failed

    def _guard(self, work: Any) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  # raised again where the screen is left
            self._failed = error
            self._wake()

    def _wake(self) -> None:
        if self._screen is not None:
            self._screen.wake()

    def _listen(self) -> None:
        for news in _happenings(self._cluster):
            if isinstance(news, Throttled):
                raise news
            if isinstance(news, Unavailable):
                continue  # the other thread notices, too, and says so
            with self._lock:
                if not self._listens.is_set():
                    self._recalled = False  # it may have looked before, tired of waiting
                if news.gap:
                    # Of what was under way, the end may be missing.
                    self._picture.forget_unfinished()
                    self._recalled = False
                for event in news.events:
                    self._picture.note(event)
            self._listens.set()
            if news.events:
                self._wake()

    def _look(self) -> None:
        troubles_at = 0.0
        # Only then: the end of a task that is recalled as running is heard of.
        self._listens.wait(ASK_S)
        while True:
            try:
                self._recall()
                stats = self._cluster.stats(Deadline(ASK_S))
                executors = sorted(
                    self._cluster.executors(Deadline(ASK_S)), key=lambda info: str(info.name)
                )
                troubles = None
                if time.monotonic() >= troubles_at:
                    troubles_at = time.monotonic() + TROUBLES_S
                    troubles = self._ask_troubles()
                with self._lock:
                    self._picture.stats, self._picture.executors = stats, executors
                    self._picture.trouble, self._picture.heard = "", time.time()
                    if troubles is not None:
                        self._picture.troubles = troubles
            except Unavailable as error:
                with self._lock:
                    self._picture.trouble = error.message
            self._wake()
            time.sleep(LOOK_S)

    def _recall(self) -> None:
        """The newest tasks, so that the screen does not begin empty, nor lacks what was missed."""
        with self._lock:
            if self._recalled:
                return
            self._recalled = True  # before it is asked: a gap meanwhile makes it false again
        try:
            found, _ = self._cluster.search(limit=RECALLED, deadline=Deadline(ASK_S))
        except Unavailable:
            self._recalled = False
            raise
        old = {info.id: to_moved(info) for info in reversed(found)}
        with self._lock:
            self._picture.tasks = {**old, **self._picture.tasks}

    def _ask_troubles(self) -> list[str] | None:
        try:
            return list(self._cluster.cluster(Deadline(ASK_S)).troubles)
        except Rejected:  # an old judicator, which does not know the call
            return None
