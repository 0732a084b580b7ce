"""What an executor counts, and what it tells of itself when Prometheus asks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from oj.metrics import Count, Reading, Timing
from oj.model import Verdict

if TYPE_CHECKING:
    from oj.executor.ledger import Ledger

JUDGED = Count(
    "oj_executor_judged_total",
    "Tasks judged, by verdict",
    "verdict",
    [verdict.word for verdict in Verdict],
)
STOPPED = Count("oj_executor_stopped_total", "Tasks stopped because they were cancelled")
GIVEN_BACK = Count("oj_executor_given_back_total", "Tasks that could not be judged here")
FAILURES = Count("oj_executor_sandbox_failures_total", "Failures of the sandbox: the slot is sick")
CANARIES = Count(
    "oj_executor_canaries_total", "Canaries, by how they ended", "outcome", ("good", "bad")
)
BLOBS = Count("oj_executor_blobs_total", "Blobs used, by where they were", "from", ("cache", "far"))
JUDGING = Timing("oj_executor_judging_seconds", "Time from taking a task to its result")

ALL = (JUDGED, STOPPED, GIVEN_BACK, FAILURES, CANARIES, BLOBS, JUDGING)


def look(
    ledger: Ledger,
    languages: Iterable[str],
    sick: bool,
    heard_s: float,
    refused: bool,
    cache_bytes: int,
) -> Iterator[Reading]:
    """`heard_s`: when a judicator answered last, by the monotonic clock."""
    running, queued, kept = ledger.count()
    takes_tasks = not (sick or refused or ledger.pauses())
    yield Reading("oj_executor_up", "Whether it takes tasks", takes_tasks)
    yield Reading("oj_executor_refused", "Whether another process has its name", refused)
    yield Reading("oj_executor_sick", "Whether the sandbox fails", sick)
    yield Reading("oj_executor_slots", "Slots", ledger.slots)
    yield Reading("oj_executor_slots_busy", "Slots that judge a task", running)
    yield Reading("oj_executor_queued_tasks", "Tasks that wait for a slot here", queued)
    yield Reading("oj_executor_kept_results", "Results that no judicator has taken yet", kept)
    yield Reading("oj_executor_cache_bytes", "Blobs kept on disk", cache_bytes)
    silent_s = time.monotonic() - heard_s
    yield Reading("oj_executor_unheard_seconds", "Since a judicator answered last", silent_s)
    for name in languages:
        yield Reading("oj_executor_language", "Languages that work", 1, "language", name)
