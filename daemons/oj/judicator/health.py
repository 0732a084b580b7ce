"""Whether the database and etcd answer, known before somebody asks.

A pulse a thread: it asks its neighbour twice a second, with little time to answer. So a call that
needs a neighbour that is away is refused at once, and does not have to find that out for itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from oj.errors import Unavailable
from oj.redact import describe

log = logging.getLogger("oj.judicator.health")

EVERY_S = 0.5
AWAY_EVERY_S = 0.1  # callers come again as soon as they may
# Without an answer for so long, a neighbour counts as away. A busy machine is no reason for that.
SILENT_S = 3.0
RETRY_MS = 100


class Pulse:
    """A thread that asks one neighbour for signs of life."""

    def __init__(
        self, name: str, ask: Callable[[], None], on_change: Callable[[bool], None]
    ) -> None:
        """`ask` raises Unavailable; `on_change(answers)` is called when that changes."""
        self._name = name
        self._ask = ask
        self._on_change = on_change
        self._problem = ""
        self._asked_s: float | None = None  # while there is no answer
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"pulse of {name}", daemon=True)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()

    def check(self) -> None:
        """Raises Unavailable, at once, while the neighbour is away."""
        problem = self._problem
        if problem:
            raise Unavailable(problem, RETRY_MS)
        # From the question on: that we ourselves stood still is not the neighbour's silence.
        asked_s = self._asked_s
        if asked_s is not None and (silent_s := time.monotonic() - asked_s) > SILENT_S:
            raise Unavailable(f"{self._name} has not answered for {silent_s:.0f} s", RETRY_MS)

    @property
    def answers(self) -> bool:
        try:
            self.check()
        except Unavailable:
            return False
        return True

    def _run(self) -> None:
        while not self._stop.wait(AWAY_EVERY_S if self._problem else EVERY_S):
            problem = ""
            self._asked_s = time.monotonic()
            try:
                self._ask()
            except Unavailable as error:
                problem = error.message
            except Exception as error:
                log.exception("the pulse of %s failed", self._name)
                problem = describe(error)
            changed = bool(problem) != bool(self._problem)
            self._problem = problem
            self._asked_s = None
            if changed and not self._stop.is_set():
                if problem:
                    log.warning("%s is away: %s", self._name, problem)
                else:
                    log.info("%s answers again", self._name)
                self._on_change(not problem)
