"""Sources, tests and outputs of a task as files, whole or in ranges, and blobs on their way in.

What a stranger wrote is never shown by a browser as a page of ours: every download is an
attachment, of a plain type, in a sandbox of its own (the headers of app.py forbid the rest).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from urllib.parse import quote

from flask import Blueprint, Flask, Response, request
from werkzeug.http import parse_range_header

from oj.calls import GET_RESULT, GET_TASK, digest_of
from oj.errors import Missing, Rejected
from oj.gateway import storage
from oj.gateway.access import needs
from oj.gateway.app import judicators
from oj.gateway.bodies import read_body
from oj.gateway.problems import Problem
from oj.gateway.tasks_api import look_up
from oj.model import CHUNK_BYTES, Data, File, Outcome, TaskInfo, check_digest

routes = Blueprint("downloads", __name__, url_prefix="/api/v1")


def install(app: Flask) -> None:
    app.register_blueprint(routes)


@routes.get("/tasks/<task_id>/source/<path:name>")
@needs("view")
def get_source(task_id: str, name: str) -> Response:
    info = look_up(task_id, GET_TASK)
    return _send_file(info, info.task.source if info.task else (), name)


@routes.get("/tasks/<task_id>/data/<path:name>")
@needs("view")
def get_data(task_id: str, name: str) -> Response:
    info = look_up(task_id, GET_TASK)
    return _send_file(info, info.task.data if info.task else (), name)


@routes.get("/tasks/<task_id>/tests/<int:number>/<part>")
@needs("view")
def get_test(task_id: str, number: int, part: str) -> Response:
    """Input or expected output of a test, or what the program printed."""
    if part in ("stdout", "stderr"):
        info = look_up(task_id, GET_RESULT)
        tests = info.result.tests if info.result else ()
        if not 1 <= number <= len(tests):
            raise Missing(f"task {task_id} has no result of test {number}")
        return _send_bytes(_stream(tests[number - 1].outcome, part), f"{number}.{part}")
    if part not in ("input", "expected"):
        raise Missing("a test has input, expected, stdout and stderr")
    info = look_up(task_id, GET_TASK)
    given = info.task.tests if info.task else ()
    if not 1 <= number <= len(given):
        raise Missing(f"task {task_id} has no test {number}")
    data: Data | None = getattr(given[number - 1], part)
    if data is None:
        raise Missing(f"test {number} has no {part}")
    return _send(data, f"{number}.{'in' if part == 'input' else 'ans'}")


@routes.get("/tasks/<task_id>/compile/<part>")
@needs("view")
def get_compile(task_id: str, part: str) -> Response:
    info = look_up(task_id, GET_RESULT)
    if part not in ("stdout", "stderr") or info.result is None or info.result.compile is None:
        raise Missing(f"task {task_id} has no compile output '{part[:20]}'")
    return _send_bytes(_stream(info.result.compile, part), f"compile.{part}")


def _stream(outcome: Outcome, part: str) -> bytes:
    return outcome.stdout if part == "stdout" else outcome.stderr


def _send_file(info: TaskInfo, files: tuple[File, ...], name: str) -> Response:
    for file in files:
        if file.name == name:
            return _send(file.data, name.rpartition("/")[2])
    raise Missing(f"task {info.id} has no such file")


def _send(data: Data, name: str) -> Response:
    if data.inline is not None:
        return _send_bytes(data.inline, name)
    assert data.digest is not None
    return _send_blob(data.digest, name)


def _headers(name: str, text: bool) -> dict[str, str]:
    return {
        "Content-Type": "text/plain; charset=utf-8" if text else "application/octet-stream",
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "Content-Security-Policy": "default-src 'none'; sandbox",
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",
    }


def _is_text(content: bytes) -> bool:
    try:
        return "\0" not in content.decode()
    except UnicodeDecodeError:
        return False


def _send_bytes(content: bytes, name: str) -> Response:
    tag = digest_of(content)[:32]
    headers = _headers(name, _is_text(content))
    return _in_range(len(content), tag, headers, lambda start, stop: iter([content[start:stop]]))


def _send_blob(digest: str, name: str) -> Response:
    size_bytes = judicators().blob_size(digest)

    def read(start: int, stop: int) -> Iterator[bytes]:
        cluster = judicators()

        def pieces() -> Iterator[bytes]:
            at = start
            while at < stop:
                piece = cluster.get_blob_piece(digest, at, min(CHUNK_BYTES, stop - at))
                if not piece:
                    return
                at += len(piece)
                yield piece

        return pieces()

    return _in_range(size_bytes, digest[:32], _headers(name, False), read)


def _in_range(
    size_bytes: int,
    tag: str,
    headers: dict[str, str],
    read: Callable[[int, int], Iterator[bytes]],
) -> Response:
    if tag in request.if_none_match:
        answer = Response(status=304)
        answer.set_etag(tag)
        return answer
    asked = parse_range_header(request.headers.get("Range"))
    if asked is not None and request.if_range.etag in (None, tag):
        span = asked.range_for_length(size_bytes)
        if span is None:
            raise Problem(
                416,
                f"there are {size_bytes} bytes",
                headers={"Content-Range": f"bytes */{size_bytes}"},
            )
        start, stop = span
        answer = Response(read(start, stop), 206, headers=headers)
        answer.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size_bytes}"
        answer.headers["Content-Length"] = str(stop - start)
    else:
        answer = Response(read(0, size_bytes), 200, headers=headers)
        answer.headers["Content-Length"] = str(size_bytes)
    answer.set_etag(tag)
    return answer


# --------------------------------------------------------------------- blobs


@routes.put("/blobs/<digest>")
@needs("submit")
def put_blob(digest: str) -> Response:
    """Stores the body, so that tasks can name it by its digest."""
    check_digest(digest)
    content = read_body()
    if digest_of(content) != digest:
        raise Rejected("the body is not what the digest says", "digest")
    known = digest in judicators().has_blobs([digest])
    if not known:
        storage.charge(len(content))
        judicators().put_blob(content)
    return Response(status=200 if known else 201)


@routes.get("/blobs/<digest>")
@needs("submit")
def has_blob(digest: str) -> Response:
    """Whether it is stored; its content is told only as part of a task."""
    check_digest(digest)
    if digest not in judicators().has_blobs([digest]):
        raise Missing("there is no such blob")
    return Response(status=204)
