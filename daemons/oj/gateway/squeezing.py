"""Answers of some size are sent compressed to whoever takes that."""

from __future__ import annotations

import gzip

from flask import Flask, Response, request

LEAST_BYTES = 1024
LEVEL = 5
_TYPES = ("application/json", "application/problem+json", "text/", "image/svg+xml")


def install(app: Flask) -> None:
    app.after_request(squeeze)


def squeeze(answer: Response) -> Response:
    kind = answer.content_type or ""
    if not kind.startswith(_TYPES) or kind.startswith("text/event-stream"):
        return answer
    answer.vary.add("Accept-Encoding")
    if (
        answer.status_code != 200
        or answer.is_streamed
        or "Content-Encoding" in answer.headers
        or "Content-Range" in answer.headers
        or request.accept_encodings.quality("gzip") <= 0
    ):
        return answer
    answer.direct_passthrough = False
    content = answer.get_data()
    if len(content) < LEAST_BYTES:
        return answer
    tag, _ = answer.get_etag()
    answer.set_data(gzip.compress(content, LEVEL, mtime=0))
    answer.headers["Content-Encoding"] = "gzip"
    if tag:
        answer.set_etag(tag, weak=True)  # the bytes are others
    return answer
