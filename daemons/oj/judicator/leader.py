"""What one judicator does for all: takes tasks back whose lease ran out, and forgets executors,
half-sent blobs and blobs that no task ever named, which nobody will come back for.

etcd says who leads. Every act is fenced in the database by the etcd revision of the leader's
victory (store/leadership.py), so that one who was paused and does not know yet that another leads
does nothing.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from oj.clock import Deadline
from oj.errors import Unavailable
from oj.events import Event, tell
from oj.judicator.broker import Broker
from oj.judicator.store.blobs import Blobs
from oj.judicator.store.counts import Counts
from oj.judicator.store.leadership import Deposed, Leadership, Reign
from oj.judicator.store.roster import Roster
from oj.registry import Registry

log = logging.getLogger("oj.judicator.leader")

SWEEP_S = 0.5
TIDY_S = 60.0
ERA_KEY = "judicator/era"
QUIET_S = 3.0  # every judicator writes its totals well within this
REMOVING_S = 1.0
RECOUNTS = 3  # tries to find a quiet moment, one with each tidying


@dataclass(frozen=True)
class Recount:
    """All tasks counted at a moment, to be used if no task ends around it."""

    before: Counter[str]
    found: Counter[str]
    begun_s: float


class Leader:
    """A thread that sweeps while `fence()` is not 0: the revision of our victory."""

    def __init__(
        self,
        fence: Callable[[], int],
        registry: Registry,
        leadership: Leadership,
        broker: Broker,
        roster: Roster,
        blobs: Blobs,
        find_careless: Callable[[], set[str]],
        counts: Counts,
        forget_s: float,
    ) -> None:
        self._fence = fence
        self._registry = registry
        self._leadership = leadership
        self._broker = broker
        self._roster = roster
        self._blobs = blobs
        self._find_careless = find_careless
        self._counts = counts
        self._forget_s = forget_s
        self._reign: Reign | None = None
        self._deposed = 0  # the fence of a reign that is over, whatever etcd told us
        self._tidied_s = time.monotonic()
        # Executors could not renew their leases while the database was away, and it was, as far
        # as we know: let them come first.
        self._patient_until_s = time.monotonic() + self._patience_s
        self._recounts = 0
        self._recount: Recount | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leader", daemon=True)

    def __enter__(self) -> Leader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(2)

    @property
    def _patience_s(self) -> float:
        return self._broker.rules.lease_s / 2

    def _run(self) -> None:
        while not self._stop.wait(SWEEP_S):
            fence = self._fence()
            if fence in (0, self._deposed):
                self._reign = None
                continue
            try:
                if self._reign is None or self._reign.fence != fence:
                    self._begin(fence)
                self.sweep()
            except Deposed:
                self._deposed, self._reign = fence, None
                log.warning("another judicator leads already: sweeps are left to it")
            except Unavailable as error:
                self._patient_until_s = time.monotonic() + self._patience_s
                log.debug("sweep: %s", error)
            except Exception:
                log.exception("the sweep failed")

    def _begin(self, fence: int) -> None:
        _, era = self._registry.put_if_absent(ERA_KEY, uuid.uuid4().hex)
        reign = Reign(era.value, fence)
        self._leadership.begin(reign)
        self._reign = reign
        self._recounts, self._recount = RECOUNTS, None
        log.info("sweeping under fence %d", fence)

    def _act(self) -> AbstractContextManager[Any]:
        assert self._reign is not None
        return self._leadership.acting(self._reign)

    def sweep(self) -> None:
        if time.monotonic() >= self._patient_until_s:
            self._broker.mend_leases()
            while self._broker.expire(self._act) and self._fence():
                pass
        self._use_recount()
        if time.monotonic() - self._tidied_s > TIDY_S:
            self._tidied_s = time.monotonic()
            self.tidy()

    def tidy(self) -> None:
        self._roster.mend_times(self._forget_s)
        for name in self._roster.find_silent(self._forget_s):
            with self._act() as session:
                removed = self._roster.remove_silent(name, self._forget_s, session)
            if removed:
                tell(
                    log,
                    Event.EXECUTOR_LOST,
                    f"executor {name} forgotten: silent for {self._forget_s:g} s",
                    executor=name,
                    level=logging.WARNING,
                )
        self._tidy_blobs()
        if self._recounts:
            self._begin_recount()

    def _tidy_blobs(self) -> None:
        try:
            careless = self._find_careless()
            if careless:
                # What they name keeps its mark, so none is believed that was there with them.
                with self._act() as session:
                    self._blobs.unmark(session)
                names = ", ".join(sorted(careless))
                log.debug("unused blobs are kept: %s does not tell which are used", names)
            unused = [] if careless else self._blobs.find_unused()
            if unused:
                with self._act() as session:
                    count = self._blobs.take_names(unused, session)
                log.info("%d blobs are removed that no task named for a day", count)
            # Leases are waiting: what is left then is for the next time.
            deadline = Deadline(REMOVING_S)
            for file_id in self._blobs.find_abandoned():
                removed = False
                while not removed and not deadline.expired:
                    with self._act() as session:
                        removed = self._blobs.remove_abandoned(file_id, session)
        except Unavailable as error:
            # An add that names one of them was first: nothing to be patient for.
            log.debug("tidying blobs: %s", error.message)

    # -------------------------------------------------------------- counting

    def _begin_recount(self) -> None:
        """Makes good what a judicator that was killed could not write; see counts.py."""
        self._recounts -= 1
        before = self._counts.stored()
        found = self._counts.count_all()
        if found is None:
            self._recounts = 0
        else:
            self._recount = Recount(before, found, time.monotonic())

    def _use_recount(self) -> None:
        recount = self._recount
        if recount is None or time.monotonic() < recount.begun_s + QUIET_S:
            return
        self._recount = None
        if self._counts.stored() != recount.before:
            return  # tasks ended meanwhile
        self._recounts = 0
        missing = Counter(recount.found)
        missing.subtract(recount.before)
        missing = Counter({key: n for key, n in missing.items() if n})
        if missing:
            with self._act() as session:
                self._counts.make_good(missing, session)
            log.info("counts of ended tasks corrected: %s", dict(missing))
