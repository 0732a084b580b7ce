"""The Flask application: its parts put together, and what every answer has in common.

It talks to the cluster only through the client library: no database, and etcd only to find it.
"""

from __future__ import annotations

import importlib

from flask import Flask, Response, current_app, jsonify, request

from oj import __version__
from oj.client import Judicators
from oj.clock import Deadline
from oj.errors import Oversized, Unavailable
from oj.gateway import problems
from oj.gateway.settings import Settings

HEALTH_S = 2.0
# Characters of headers that a library parses in time that grows with the square of their length, or
# with so much for each character that 16 KiB of them, which uWSGI takes, are worth an attack. What
# clients send is far below: the boundary of a form has 70 at most.
LONGEST_HEADERS = {
    "Content-Type": 256,
    "If-Match": 1024,
    "If-None-Match": 1024,
    "Accept": 4096,
    "Accept-Encoding": 1024,
}
_VARIABLES = {
    "CONTENT_TYPE" if name == "Content-Type" else f"HTTP_{name.upper().replace('-', '_')}": name
    for name in LONGEST_HEADERS
}
# Each has a function `install(app)`. In this order, so that what guards comes before what serves.
PARTS = (
    "metrics",
    "bodies",
    "squeezing",
    "access",
    "storage",
    "cluster_api",
    "tasks_api",
    "downloads",
    "events_api",
    "tokens_api",
    "webhooks",
    "openapi",
    "pages",
)
SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def make_app(settings: Settings) -> Flask:
    app = Flask("oj.gateway", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = settings.limits.body_bytes
    app.config["JSON_SORT_KEYS"] = False
    app.extensions["oj.settings"] = settings
    app.extensions["oj.judicators"] = Judicators(
        settings.judicators, settings.etcd, timeout_s=settings.timeout_s
    )
    problems.install(app)
    # First of all: nothing has looked at a header before.
    app.before_request(_bound_headers)
    app.before_request(_bound_body)
    app.after_request(_secure)
    _tell_health.needs = "open"  # type: ignore[attr-defined]
    app.add_url_rule("/healthz", "healthz", _tell_health)
    for part in PARTS:
        importlib.import_module(f"oj.gateway.{part}").install(app)
    return app


def judicators() -> Judicators:
    """The cluster, for the request at hand."""
    found: Judicators = current_app.extensions["oj.judicators"]
    return found


def settings() -> Settings:
    found: Settings = current_app.extensions["oj.settings"]
    return found


def _tell_health() -> Response:
    try:
        judicators().ping(Deadline(HEALTH_S))
    except Unavailable as error:
        return problems.respond(problems.from_error(error))
    return jsonify(status="ok", version=__version__)


def _bound_headers() -> None:
    for variable, name in _VARIABLES.items():
        most = LONGEST_HEADERS[name]
        if len(request.environ.get(variable, "")) > most:
            raise problems.Problem(
                431,
                f"the header {name} is longer than {most} characters",
                name,
                headers={"Connection": "close"},
            )


def _bound_body() -> None:
    """Whatever the body is; Werkzeug before 2.3 bounds forms only."""
    if "HTTP_TRANSFER_ENCODING" in request.environ:
        # uWSGI passes pieces on as they are, and nothing here is read without a bound.
        raise problems.Problem(
            411,
            "bodies in pieces (Transfer-Encoding) are not taken: send Content-Length",
            headers={"Connection": "close"},
        )
    most = settings().limits.body_bytes
    if (request.content_length or 0) > most:
        raise Oversized(f"the body is larger than {most} bytes", most)


def _secure(answer: Response) -> Response:
    for name, value in SECURITY_HEADERS.items():
        answer.headers.setdefault(name, value)
    if request.path.startswith("/api/") or request.path == "/healthz":
        answer.headers.setdefault("Cache-Control", "no-store")
    if answer.status_code in (204, 304):
        # They have no body, but uWSGI's router ends one: on a connection that stays open, a browser
        # would take that for the beginning of the next answer.
        answer.headers["Connection"] = "close"
    return answer
