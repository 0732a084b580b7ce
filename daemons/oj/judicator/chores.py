"""What every judicator does once a second, leader or not.

It exchanges the clocks of the fair share, notes who is drained and who offers
what, writes counts, and stretches the net under lost wake-ups.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from oj.errors import Unavailable
from oj.judicator.broker import Broker
from oj.judicator.cluster import Cluster
from oj.judicator.reports import Reports
from oj.judicator.store.blobs import Blobs
from oj.judicator.store.counts import Counts
from oj.judicator.store.history import History
from oj.judicator.store.shares import Shares

log = logging.getLogger("oj.judicator.chores")

EVERY_S = 1.0
LOOK_AROUND_S = 4.0  # hundreds of executors are not looked at every second


class Chores:
    """A thread with a list of small things to do."""

    def __init__(
        self,
        broker: Broker,
        reports: Reports,
        shares: Shares,
        counts: Counts,
        history: History,
        blobs: Blobs,
        cluster: Cluster,
        check_database: Callable[[], None] = lambda: None,
    ) -> None:
        self._broker = broker
        self._reports = reports
        self._shares = shares
        self._counts = counts
        self._history = history
        self._blobs = blobs
        self._cluster = cluster
        self._check_database = check_database
        self._looked_around_s = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="chores", daemon=True)

    def __enter__(self) -> Chores:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(2)
        try:
            self._check_database()
            self._counts.flush()
            self._history.flush()
            self._shares.exchange()
        except Unavailable as error:
            log.warning("the last counts are lost: %s", error)

    def _run(self) -> None:
        while not self._stop.wait(EVERY_S):
            try:
                self.do_all()
            except Unavailable as error:
                log.debug("chores: %s", error.message)
            except Exception:
                log.exception("a chore failed")

    def do_all(self) -> None:
        self._broker.look_for_work()
        self._reports.store_progress()
        self._reports.refresh_drained(self._cluster.drained)
        self._reports.wake_contested(self._cluster.contested)
        if time.monotonic() - self._looked_around_s > LOOK_AROUND_S:
            self._looked_around_s = time.monotonic()
            self._reports.refresh(self._cluster.executors_lately())
        self._shares.exchange()
        self._counts.flush()
        self._history.flush()
        self._blobs.sweep()
