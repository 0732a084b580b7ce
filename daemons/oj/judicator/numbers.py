"""What a judicator counts, and what it tells of itself when Prometheus asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from oj.errors import Unavailable
from oj.metrics import Count, Reading, Timing
from oj.model import Verdict

if TYPE_CHECKING:
    from oj.judicator.broker import Broker
    from oj.judicator.cluster import Cluster
    from oj.judicator.health import Pulse

ADDED = Count("oj_judicator_added_total", "Tasks added here")
CLAIMED = Count("oj_judicator_claimed_total", "Tasks handed out to executors here")
ENDED = Count(
    "oj_judicator_ended_total",
    "Tasks whose end was recorded here, by verdict (or how else they ended)",
    "verdict",
    [verdict.word for verdict in Verdict],
)
RETRIED = Count("oj_judicator_retried_total", "Attempts that ended without a result")
GIVEN_UP = Count("oj_judicator_given_up_total", "Tasks given up after too many attempts")
DROPPED = Count("oj_judicator_dropped_total", "Results of tasks that were in other hands by then")
REFUSED = Count(
    "oj_judicator_refused_total",
    "Calls refused: for what was asked, or because a neighbour was away",
    "why",
    ("request", "unavailable"),
)
CALLS = Timing("oj_judicator_call_seconds", "Time to answer a call that does not wait", "call")
CLAIMS = Timing("oj_judicator_claim_seconds", "Time to claim tasks for a report")

ALL = (ADDED, CLAIMED, ENDED, RETRIED, GIVEN_UP, DROPPED, REFUSED, CALLS, CLAIMS)


def look(
    leading: Callable[[], bool],
    streams: Callable[[], bool],
    database: Pulse,
    etcd: Pulse,
    broker: Broker,
    cluster: Cluster,
) -> Iterator[Reading]:
    """`streams`: whether the change stream is open."""
    yield Reading("oj_judicator_up", "Whether it serves", 1)
    yield Reading("oj_judicator_leader", "Whether the sweeps are its own", leading())
    yield Reading("oj_judicator_change_stream", "Whether it hears of others' changes", streams())
    yield Reading("oj_judicator_database_up", "Whether the database answers", database.answers)
    yield Reading("oj_judicator_etcd_up", "Whether etcd answers", etcd.answers)
    yield Reading(
        "oj_judicator_parked_executors", "Executors that wait here", len(broker.parked.executors())
    )
    yield Reading(
        "oj_judicator_waiters", "Tasks that callers wait for", len(broker.waiters.tasks())
    )
    if not database.answers:
        return
    try:
        stats = cluster.stats()
    except Unavailable:
        return
    age_s = (stats.oldest_pending_ms or 0) / 1000
    yield Reading("oj_judicator_queue_tasks", "Tasks that wait, in the cluster", stats.queue)
    yield Reading("oj_judicator_queue_oldest_seconds", "How long the oldest has waited", age_s)
    yield Reading("oj_judicator_executors", "Executors of the cluster", stats.executors)
    yield Reading("oj_judicator_slots", "Their slots", stats.slots)
    yield Reading("oj_judicator_executing_tasks", "Tasks in their hands", stats.executing)
