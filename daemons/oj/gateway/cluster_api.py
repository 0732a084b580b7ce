"""What the API tells of the cluster itself."""

from __future__ import annotations

import time
from typing import Any

from flask import Blueprint, Flask, Response, jsonify, request

from oj import model, plain
from oj.errors import Rejected
from oj.gateway.access import needs
from oj.gateway.app import judicators
from oj.gateway.bodies import SMALL_BYTES, read_body
from oj.gateway.reading import Reader, parse_json
from oj.model import check_node

MOST_MINUTES = 1440

routes = Blueprint("cluster", __name__, url_prefix="/api/v1")


def install(app: Flask) -> None:
    app.register_blueprint(routes)


@routes.get("/languages")
@needs("view")
def list_languages() -> Response:
    """Every language that an executor offers now, with the versions that there are."""
    found = judicators().languages()
    return jsonify(
        languages=[{"name": name, "versions": versions} for name, versions in found.items()]
    )


@routes.get("/executors")
@needs("view")
def list_executors() -> Response:
    return jsonify(executors=[plain.executor(info) for info in judicators().executors()])


@routes.get("/judicators")
@needs("view")
def list_judicators() -> Response:
    return jsonify(judicators=[plain.judicator(info) for info in judicators().judicators()])


@routes.get("/stats")
@needs("view")
def tell_stats() -> Response:
    stats = judicators().stats()
    value: dict[str, Any] = {
        "queue": stats.queue or 0,
        "oldest_pending_ms": stats.oldest_pending_ms,
        "by_status": plain.counts(stats.by_status, model.Status),
        "by_verdict": plain.counts(stats.by_verdict, model.Verdict),
        "executors": stats.executors or 0,
        "slots": stats.slots or 0,
        "executing": stats.executing or 0,
    }
    return jsonify(value)


@routes.get("/cluster")
@needs("view")
def tell_cluster() -> Response:
    """Members of etcd and of the database, judicators, and what is degraded."""
    return jsonify(plain.cluster(judicators().cluster()))


@routes.get("/history")
@needs("view")
def tell_history() -> Response:
    """What happened minute by minute, the oldest first; only minutes in which something did."""
    text = request.args.get("minutes", "60")
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= MOST_MINUTES):
        raise Rejected(f"minutes must be between 1 and {MOST_MINUTES}", "minutes")
    since_ms = (int(time.time()) // 60 - int(text) + 1) * 60_000
    minutes = [plain.minute(minute) for minute in judicators().history(since_ms)]
    return jsonify(minutes=minutes, bounds_ms=plain.HISTOGRAM_BOUNDS_MS)


@routes.post("/executors/<name>/drain")
@needs("admin")
def drain_executor(name: str) -> Response:
    """Takes an executor out of service once it has finished what it runs, or back in."""
    body = Reader(parse_json(read_body(SMALL_BYTES)))
    on = body.take("on")
    body.end()
    if not isinstance(on, bool):
        raise Rejected("on must be true or false", "on")
    judicators().drain(check_node(name, "executor"), on)
    return jsonify(executor=name, drained=on)
