"""Server-sent events: of one task, and of all that the visitor may see.

Each event's id is a cursor; a browser that comes back with Last-Event-ID goes on after it, at this
gateway or another. A `gap` says that some may be missing: then a watcher looks at the tasks anew.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator

from flask import Blueprint, Flask, Response, current_app, g, request

from oj import plain
from oj.client import Judicators
from oj.errors import Unavailable
from oj.gateway.access import Visitor, needs, visitor
from oj.gateway.app import judicators
from oj.gateway.hub import Happening, Hub
from oj.gateway.limits import Seats
from oj.gateway.tasks_api import look_up
from oj.model import TaskInfo

HEARTBEAT_S = 15.0
RETRY_MS = 1000
RETRY_S = 5  # of who finds no place
LONGEST_S = 3600.0  # then the browser comes again by itself
GAP = "event: gap\ndata: {}\n\n"

routes = Blueprint("events", __name__, url_prefix="/api/v1")


def install(app: Flask) -> None:
    found = app.extensions["oj.settings"]
    app.extensions["oj.hub"] = Hub(app.extensions["oj.judicators"])
    app.extensions["oj.streams"] = Seats(
        "event streams",
        found.limits.streams,
        found.long_threads,
        app.extensions["oj.threads"],
        RETRY_S,
    )
    app.register_blueprint(routes)


def hub() -> Hub:
    found: Hub = current_app.extensions["oj.hub"]
    return found


@routes.get("/events")
@needs("view")
def stream_all() -> Response:
    cursor = _last_event_id() or hub().latest
    return _stream(_all(hub(), visitor(), cursor))


@routes.get("/tasks/<task_id>/events")
@needs("view")
def stream_one(task_id: str) -> Response:
    cursor = _last_event_id() or hub().latest
    info = look_up(task_id)  # after the cursor was taken: nothing falls between
    return _stream(_one(hub(), judicators(), info, cursor))


def _last_event_id() -> str:
    given = request.headers.get("Last-Event-ID", "") or request.args.get("last_event_id", "")
    return given if given.isascii() and given.isalnum() and len(given) <= 1024 else ""


def _stream(pieces: Iterator[str]) -> Response:
    streams: Seats = current_app.extensions["oj.streams"]
    client = g.payer
    streams.enter(client)
    answer = Response(pieces, content_type="text/event-stream; charset=utf-8")
    answer.call_on_close(lambda: streams.leave(client))
    answer.headers["Cache-Control"] = "no-store"
    answer.headers["X-Accel-Buffering"] = "no"
    return answer


class _Reader:
    """A watcher's place in what happens."""

    def __init__(self, source: Hub, cursor: str) -> None:
        self._source = source
        self.cursor = cursor
        self.gap = False

    def next(self) -> list[Happening]:
        """What has happened since the last time; `gap` tells whether some may be missing."""
        kept = self._source.after(self.cursor)
        self.gap = False
        if kept is None:
            try:
                found, self.cursor, self.gap = self._source.ask(self.cursor)
            except Unavailable:
                time.sleep(1.0)
                return []
            return found
        found, self.cursor = kept
        return found

    def skip(self, bell: threading.Event) -> None:
        """Goes to where the hub is, unless the bell says that something of our task is on the way.

        On a busy cluster thousands of events of others pass while one task waits in the queue; who
        read them all at the end would have to ask the judicators for those that are not kept.
        """
        latest = self._source.latest
        if not bell.is_set():  # it rings no later than the hub moves on
            self.cursor = max(self.cursor, latest)


def _all(source: Hub, one: Visitor, cursor: str) -> Iterator[str]:
    reader = _Reader(source, cursor)
    ends_s = time.monotonic() + LONGEST_S
    yield f"retry: {RETRY_MS}\n\n"
    while time.monotonic() < ends_s:
        found = reader.next()
        pieces = [GAP] if reader.gap else []
        pieces += [happening.text for happening in found if one.may_read(happening.user)]
        if pieces:
            yield "".join(pieces)
        if not found and not reader.gap:
            before_s = time.monotonic()
            source.wait(reader.cursor, HEARTBEAT_S)
            if time.monotonic() - before_s >= HEARTBEAT_S:
                yield f": {reader.cursor}\n\n"


def _one(source: Hub, cluster: Judicators, info: TaskInfo, cursor: str) -> Iterator[str]:
    bell = source.watch(info.id)
    try:
        reader = _Reader(source, cursor)
        ends_s = time.monotonic() + LONGEST_S
        yield f"retry: {RETRY_MS}\n\n" + _snapshot(info, cursor)
        done = info.done
        while not done and time.monotonic() < ends_s:
            bell.clear()
            found = reader.next()
            if reader.gap:
                now = cluster.get(info.id)
                done = now.done
                yield _snapshot(now, reader.cursor)
            for happening in found:
                if happening.task == info.id and not done:
                    done = happening.done
                    yield happening.text
            if not found and not done and not bell.wait(HEARTBEAT_S):
                reader.skip(bell)
                yield ": still there\n\n"
        if done:
            yield "event: end\ndata: {}\n\n"
    finally:
        source.unwatch(info.id, bell)


def _snapshot(info: TaskInfo, cursor: str) -> str:
    return f"id: {cursor}\nevent: task\ndata: {json.dumps(plain.summary(info))}\n\n"
