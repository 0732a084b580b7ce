"""What a client is told when a request fails: problem details as in RFC 9457.

Every failure leaves through here, whoever raised it: our own errors by what they mean, Werkzeug's
by their status, and anything unforeseen as a 500 that names a number to look for in the journal.
"""

from __future__ import annotations

import json
import logging
import secrets
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from oj.errors import Missing, Oversized, Rejected, Unavailable

log = logging.getLogger("oj.gateway")

CONTENT_TYPE = "application/problem+json"


class Problem(Exception):
    """A failure that the gateway itself finds: a status, a sentence, and the field at fault."""

    def __init__(
        self,
        status: int,
        detail: str,
        field: str | None = None,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.field = status, detail, field
        self.headers = headers or {}
        self.more = more


def write_body(problem: Problem, path: str) -> bytes:
    status = HTTPStatus(problem.status)
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": status.phrase,
        "status": int(status),
        "detail": problem.detail,
        "instance": path,
    }
    if problem.field:
        body["field"] = problem.field
    body.update(problem.more)
    return json.dumps(body).encode() + b"\n"


def write_headers(problem: Problem) -> dict[str, str]:
    return {"Content-Type": CONTENT_TYPE, **problem.headers, "Cache-Control": "no-store"}


def respond(problem: Problem) -> Response:
    answer = Response(write_body(problem, request.path), problem.status)
    answer.headers.update(write_headers(problem))
    return answer


def from_error(error: Exception) -> Problem:
    """Our own errors, as a client of HTTP understands them."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, Oversized):
        return Problem(413, error.message, error.field, limit_bytes=error.limit_bytes)
    if isinstance(error, Missing):
        return Problem(404, error.message, error.field)
    if isinstance(error, Rejected):
        return Problem(422, error.message, error.field)
    if isinstance(error, Unavailable):
        retry_s = max(1, round((error.retry_ms or 1000) / 1000))
        return Problem(503, error.message, headers={"Retry-After": str(retry_s)})
    number = secrets.token_hex(4)
    log.error("request %s: %s %s failed", number, request.method, request.path, exc_info=error)
    return Problem(500, f"an internal error; the journal has it under {number}")


def _from_http(error: HTTPException) -> Response:
    if error.code is None or error.code < 400:
        return error.get_response()  # type: ignore[return-value]
    headers = {}
    allowed = getattr(error, "valid_methods", None)
    if allowed:
        headers["Allow"] = ", ".join(sorted(allowed))
    return respond(Problem(error.code, error.description or error.name, headers=headers))


def install(app: Flask) -> None:
    app.register_error_handler(HTTPException, _from_http)
    app.register_error_handler(Exception, lambda error: respond(from_error(error)))
