"""/metrics of the gateway, for Prometheus: its own requests, and the cluster as judicators tell it.

Several processes serve; the Prometheus library sums their numbers through files in a directory that
the daemon empties at each start. Only configured networks may ask: names of routes and numbers of
tasks are nobody else's business.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import time
from typing import Any

from flask import Flask, Response, current_app, g, request
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

from oj import __version__, plain
from oj.client import Judicators
from oj.clock import Deadline
from oj.errors import Unavailable
from oj.gateway.access import OPEN, needs
from oj.gateway.app import judicators, settings
from oj.gateway.ini import METRICS_VARIABLE
from oj.gateway.problems import Problem
from oj.model import Status, Verdict

ASK_S = 2.0
# Any other is what a client thinks of, and each value of a label is kept for ever, in a file too.
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS_S = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 30.0)

REQUESTS = Counter(
    "oj_gateway_requests_total", "Requests by route and status", ["route", "method", "status"]
)
SECONDS = Histogram(
    "oj_gateway_request_seconds", "Time to answer; streams do not count", buckets=_BUCKETS_S
)
STREAMS = Gauge("oj_gateway_streams", "Open event streams", multiprocess_mode="livesum")


def install(app: Flask) -> None:
    app.extensions["oj.requests"] = REQUESTS
    app.before_request(_begin)
    app.after_request(_end)
    app.add_url_rule("/metrics", "metrics", tell_metrics)


def _begin() -> None:
    g.begun_s = time.monotonic()


def _end(answer: Response) -> Response:
    route = request.url_rule.rule if request.url_rule else "none"
    method = request.method if request.method in METHODS else "other"
    REQUESTS.labels(route, method, str(answer.status_code)).inc()
    begun_s = getattr(g, "begun_s", None)
    if begun_s is not None and not answer.is_streamed and not route.endswith("/wait"):
        SECONDS.observe(time.monotonic() - begun_s)
    if answer.mimetype == "text/event-stream":
        STREAMS.inc()
        answer.call_on_close(STREAMS.dec)
    return answer


@needs(OPEN)
def tell_metrics() -> Response:
    _check_client()
    registry = CollectorRegistry()
    if METRICS_VARIABLE in os.environ:
        MultiProcessCollector(registry)
    else:
        for one in (REQUESTS, SECONDS, STREAMS):
            registry.register(one)
    text = generate_latest(registry) + generate_latest(_ask_cluster(judicators()))
    return Response(text, content_type=CONTENT_TYPE_LATEST)


def _check_client() -> None:
    address: Any = None
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(g.address)
    if address is None or not any(address in one for one in settings().access.metrics):
        raise Problem(403, "metrics are for configured networks only")


def _ask_cluster(cluster: Judicators) -> CollectorRegistry:
    registry = CollectorRegistry()
    Gauge("oj_gateway_info", "Version", ["version"], registry=registry).labels(__version__).set(1)
    up = Gauge("oj_gateway_cluster_up", "Whether a judicator answers", registry=registry)
    try:
        stats = cluster.stats(Deadline(ASK_S))
    except Unavailable:
        current_app.logger.debug("no judicator answers for metrics")
        return registry
    up.set(1)
    for name, value, help_text in (
        ("oj_queue_tasks", stats.queue, "Tasks that wait"),
        ("oj_queue_oldest_seconds", (stats.oldest_pending_ms or 0) / 1000, "Age of the oldest"),
        ("oj_executors", stats.executors, "Executors that report"),
        ("oj_slots", stats.slots, "Their slots"),
        ("oj_executing_tasks", stats.executing, "Tasks in hand"),
    ):
        Gauge(name, help_text, registry=registry).set(value or 0)
    by_status = Gauge("oj_tasks", "Tasks by status", ["status"], registry=registry)
    for word, count in plain.counts(stats.by_status, Status).items():
        by_status.labels(word).set(count)
    verdicts = Gauge("oj_verdicts", "Ended tasks by verdict", ["verdict"], registry=registry)
    for word, count in plain.counts(stats.by_verdict, Verdict).items():
        verdicts.labels(word).set(count)
    return registry
