"""A task out of a request's body: JSON, or a form with files; every mistake names its field."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from oj.errors import Rejected
from oj.gateway import json_bounds
from oj.model import (
    MAX_ARGUMENTS,
    MAX_FILES,
    MAX_TAGS,
    MAX_TASKS,
    MAX_TESTS,
    Compare,
    Data,
    File,
    Limits,
    Step,
    Task,
    Test,
    check_digest,
)

_COMPARES = {compare.name.lower(): compare for compare in Compare}
_LIMITS = ("cpu_ms", "wall_ms", "memory_bytes", "output_bytes", "processes", "disk_bytes")
_MOST_INTEGER = 1 << 62


class Reader:
    """An object of JSON whose keys are taken one by one, so that those left over can be named."""

    def __init__(self, value: Any, where: str = "") -> None:
        if not isinstance(value, dict):
            raise Rejected(f"{where or 'the body'} must be an object", where or None)
        self._left = dict(value)
        self._where = where

    def place(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

    def take(self, key: str) -> Any:
        return self._left.pop(key, None)

    def text(self, key: str, default: str = "") -> str:
        value = self.take(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise Rejected(f"{self.place(key)} must be text", self.place(key))
        try:
            value.encode()
        except UnicodeEncodeError:
            raise Rejected(f"{self.place(key)} is no valid text", self.place(key)) from None
        return value

    def integer(self, key: str) -> int | None:
        value = self.take(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > _MOST_INTEGER:
            raise Rejected(f"{self.place(key)} must be a whole number", self.place(key))
        return value

    def number(self, key: str, default: float) -> float:
        value = self.take(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise Rejected(f"{self.place(key)} must be a number", self.place(key))
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
        if not math.isfinite(found):
            raise Rejected(f"{self.place(key)} is too large", self.place(key))
        return found

    def truth(self, key: str) -> bool:
        value = self.take(key)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise Rejected(f"{self.place(key)} must be true or false", self.place(key))
        return value

    def each(self, key: str, read: Callable[[Any, str], Any], most: int) -> tuple[Any, ...]:
        """A list, which is not looked into if it has more than so many."""
        value = self.take(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            raise Rejected(f"{self.place(key)} must be a list", self.place(key))
        if len(value) > most:
            raise Rejected(f"{self.place(key)} has more than {most} entries", self.place(key))
        return tuple(read(item, f"{self.place(key)}[{i}]") for i, item in enumerate(value))

    def end(self) -> None:
        for key in self._left:
            shown = key if len(key) <= 40 else key[:40] + "…"
            raise Rejected(f"{self.place(shown)!r} is not known here", self.place(shown))


def parse_json(
    content: bytes, charge: Callable[[int], None] = lambda _: None, values: int | None = None
) -> Any:
    """`charge` is told what memory it takes, before it takes any; `values` is how many it has,
    where they were counted before."""
    values = json_bounds.check(content) if values is None else values
    charge(json_bounds.cost_bytes(content, values))
    try:
        # As text: from bytes the parser would guess UTF-16 and UTF-32 too, where the bytes that
        # were counted are parts of other characters.
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise Rejected("the body is not JSON in UTF-8") from None
    except (ValueError, RecursionError):  # the latter: nested without end
        raise Rejected("the body is not JSON") from None


def read_time(text: str, where: str) -> int:
    """Milliseconds since 1970, out of such a number or of ISO 8601."""
    if text.isascii() and text.isdigit() and len(text) < 15:
        return int(text)
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        value = int(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        value = -1
    if value < 0:
        raise Rejected(f"{where} must be a time such as 2026-03-01T12:00:00Z", where)
    return value


def read_task(value: Any, where: str = "") -> Task:
    """The task that an object of JSON describes; whether it makes sense is for the judicators."""
    body = Reader(value, where)
    compare = body.text("compare", "tokens")
    if compare not in _COMPARES:
        raise Rejected(f"compare must be one of {', '.join(_COMPARES)}", body.place("compare"))
    task = Task(
        language=body.text("language"),
        source=body.each("source", _read_file, MAX_FILES),
        data=body.each("data", _read_file, MAX_FILES),
        compile=_read_step(body, "compile"),
        execute=_read_step(body, "execute"),
        tests=body.each("tests", _read_test, MAX_TESTS),
        user=body.text("user"),
        priority=body.integer("priority") or 0,
        tags=frozenset(body.each("tags", _read_word, MAX_TAGS)),
        key=body.text("key") or None,
        compare=_COMPARES[compare],
        tolerance=body.number("tolerance", 1e-6),
        stop_on_failure=body.truth("stop_on_failure"),
        webhook=body.text("webhook") or None,
    )
    body.end()
    return task


def read_batch(value: Any) -> list[Task]:
    body = Reader(value)
    tasks = body.each("tasks", read_task, MAX_TASKS)
    body.end()
    if not tasks:
        raise Rejected(f"tasks needs 1 to {MAX_TASKS} entries", "tasks")
    return list(tasks)


def _read_word(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise Rejected(f"{where} must be text", where)
    return value


def _read_step(body: Reader, key: str) -> Step:
    value = body.take(key)
    if value is None:
        return Step()
    step = Reader(value, body.place(key))
    command = step.each("command", _read_word, MAX_ARGUMENTS)
    limits = step.take("limits")
    step.end()
    if limits is None:
        return Step(command)
    values = Reader(limits, step.place("limits"))
    found = Limits(**{name: values.integer(name) for name in _LIMITS})
    values.end()
    return Step(command, found)


def _read_file(value: Any, where: str) -> File:
    body = Reader(value, where)
    name = body.text("name")
    data = _read_content(body)
    if data is None:
        raise Rejected(f"{where} needs one of text, base64 and digest", where)
    body.end()
    return File(name, data)


def _read_test(value: Any, where: str) -> Test:
    body = Reader(value, where)
    test = Test(
        name=body.text("name"),
        input=_read_data(body, "input"),
        expected=_read_data(body, "expected"),
        weight=body.number("weight", 1.0),
    )
    body.end()
    return test


def _read_data(body: Reader, key: str) -> Data | None:
    where = body.place(key)
    value = body.take(key)
    if value is None:
        return None
    if isinstance(value, str):
        return Data(inline=_encode(value, where))
    content = Reader(value, where)
    data = _read_content(content)
    if data is None:
        raise Rejected(f"{where} needs one of text, base64 and digest", where)
    content.end()
    return data


def _read_content(body: Reader) -> Data | None:
    given = {key: body.take(key) for key in ("text", "base64", "digest")}
    found = {key: value for key, value in given.items() if value is not None}
    if not found:
        return None
    (key, value), *more = found.items()
    where = body.place(key)
    if more or not isinstance(value, str):
        raise Rejected(f"{where} must be text, and the only one of text, base64, digest", where)
    if key == "text":
        return Data(inline=_encode(value, where))
    if key == "digest":
        return Data(digest=check_digest(value, where))
    try:
        return Data(inline=base64.b64decode(value, validate=True))
    except (binascii.Error, ValueError):
        raise Rejected(f"{where} is not base64", where) from None


def _encode(text: str, where: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise Rejected(f"{where} is no valid text", where) from None


# --------------------------------------------------------------------- form

_PLAIN_FIELDS = ("language", "user", "key", "compare", "webhook")


def read_form(fields: Mapping[str, Any], task: Any) -> dict[str, Any]:
    """The object that a form's plain fields make, over what its field `task` says."""
    body = dict(task) if isinstance(task, dict) else {}
    limits: dict[str, Any] = {}
    for name, value in fields.items():
        if name in _PLAIN_FIELDS:
            body[name] = value
        elif name == "tags":
            # Those beyond are in the last one: read_task() says that there are too many.
            body["tags"] = value.replace(",", " ").split(None, MAX_TAGS)
        elif name == "stop_on_failure":
            body[name] = value.lower() in ("1", "on", "true", "yes")
        elif name in ("priority", *_LIMITS):
            number = _read_integer(value, name)
            (body if name == "priority" else limits)[name] = number
        elif name == "tolerance":
            body[name] = _read_float(value, name)
        else:
            raise Rejected(f"{name[:40]!r} is not a field of this form", name[:40])
    if limits:
        execute = dict(body.get("execute") or {})
        execute["limits"] = {**(execute.get("limits") or {}), **limits}
        body["execute"] = execute
    return body


def _read_integer(value: str, where: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise Rejected(f"{where} must be a whole number", where) from None


def _read_float(value: str, where: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise Rejected(f"{where} must be a number", where) from None
