"""Tasks over HTTP: create, get, wait, list, cancel, rejudge."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from flask import Blueprint, Flask, Response, current_app, g, jsonify, request, url_for

from oj import archive, model, plain
from oj.calls import GET_ALL, GET_RESULT, GET_SUMMARY, GET_TASK
from oj.errors import Missing, Oversized, Rejected
from oj.gateway import forms, json_bounds, storage
from oj.gateway.access import needs, visitor
from oj.gateway.app import judicators, settings
from oj.gateway.bodies import SMALL_BYTES, bill, read_body
from oj.gateway.limits import Seats, Turns
from oj.gateway.problems import Problem
from oj.gateway.reading import Reader, parse_json, read_batch, read_form, read_task, read_time
from oj.model import Status, Task, TaskInfo, Verdict, add_time_ms, check_id
from oj.pairs import pair_tests

LONGEST_WAIT_S = 30.0
MOST_LISTED = 200
MOST_REJUDGED = 100
TURN_WAIT_S = 10.0  # for the other large bodies and tasks of the same client
MOST_READ = 2  # large tasks of one client at one time
SMALL_TESTS = 64
MOST_KNOWN = 10_000
WAIT_RETRY_S = 5  # of who finds no place to wait
KEY_HEADER = "Idempotency-Key"
_FILES = frozenset({"source", "data", "input", "expected", "tests", "archive"})

Made = TypeVar("Made")
routes = Blueprint("tasks", __name__, url_prefix="/api/v1/tasks")


def install(app: Flask) -> None:
    found = app.extensions["oj.settings"]
    app.extensions["oj.waits"] = Seats(
        "waiting requests",
        found.limits.waits,
        found.long_threads // 2,  # the other half is for event streams
        app.extensions["oj.threads"],
        WAIT_RETRY_S,
    )
    app.extensions["oj.parsing"] = Turns(
        "large bodies", 1, app.extensions["oj.threads"], TURN_WAIT_S
    )
    app.extensions["oj.reading"] = LargeTasks(
        Turns("large tasks", MOST_READ, app.extensions["oj.threads"], TURN_WAIT_S)
    )
    app.teardown_request(_end_reading)
    app.register_blueprint(routes)


# ------------------------------------------------------------------ creating


@routes.post("")
@needs("submit")
def create_task() -> tuple[Response, int, dict[str, str]]:
    if request.mimetype == "multipart/form-data":
        task = _read_multipart()
    else:
        task = _read_json(settings().limits.json_bytes, read_task)
    key = request.headers.get(KEY_HEADER)
    if key:
        task = replace(task, key=model.check_word(key, KEY_HEADER))
    [task] = _own([task])
    _spend(1)
    storage.charge_tasks([task])
    task_id = judicators().add(task)
    # Without a key it is new, and what there is to tell of it is known here.
    info = _describe_new(task_id, task) if task.key is None else judicators().get(task_id)
    tasks: LargeTasks = current_app.extensions["oj.reading"]
    tasks.note(info)
    return (
        jsonify(plain.summary(info)),
        201,
        {"Location": url_for("tasks.get_task", task_id=task_id)},
    )


@routes.post("/batch")
@needs("submit")
def create_tasks() -> tuple[Response, int]:
    tasks = _own(_read_json(settings().limits.json_bytes, read_batch))
    _spend(len(tasks))
    storage.charge_tasks(tasks)
    return jsonify(ids=judicators().add_many(tasks)), 201


def _describe_new(task_id: str, task: Task) -> TaskInfo:
    return TaskInfo(
        id=task_id,
        status=Status.PENDING,
        add_time_ms=add_time_ms(task_id),
        report_time_ms=add_time_ms(task_id),
        tests_total=max(1, len(task.tests)),
        language=task.language,
        user=task.user,
        priority=task.priority,
        tags=task.tags,
    )


def _read_json(most_bytes: int, make: Callable[[Any], Made]) -> Made:
    if request.mimetype not in ("application/json", ""):
        raise Problem(415, "the body must be application/json or multipart/form-data")
    small = (request.content_length or 0) <= SMALL_BYTES
    # Counted as it comes in: what has too much in it is not kept until it is whole.
    count = None if small else json_bounds.Count()
    try:
        content = read_body(most_bytes, count.add if count else lambda _: None)
    except Oversized:
        raise
    except Rejected as error:
        raise Problem(400, error.message) from None
    with contextlib.nullcontext() if small else _take_turn():
        try:
            value = parse_json(content, bill().add, count.values if count else None)
        except Rejected as error:
            raise Problem(400, error.message) from None
        return make(value)


def _take_turn() -> contextlib.AbstractContextManager[None]:
    """One large body of each client is parsed at a time."""
    turns: Turns = current_app.extensions["oj.parsing"]
    return turns.take(g.payer)


def _read_multipart() -> Task:
    """A form: plain fields, an optional field `task` of JSON, and files."""
    boundary = request.mimetype_params.get("boundary") or ""
    if not boundary.isascii():
        raise Problem(400, "the form does not say what its boundary is")
    body = read_body()
    with contextlib.nullcontext() if len(body) <= SMALL_BYTES else _take_turn():
        # While the one is taken apart into the other, there are both.
        bill().add(-len(body))
        form = forms.parse(
            body, boundary.encode(), {"task": settings().limits.json_bytes}, bill().add
        )
        return _make_task(form)


def _make_task(form: forms.Form) -> Task:
    described: Any = {}
    fields = dict(form.fields)
    if "task" in fields:
        try:
            described = parse_json(fields.pop("task"), bill().add)
        except Rejected as error:
            raise Rejected(error.message.replace("the body", "task"), "task") from None
    for name in form.files:
        if name not in _FILES:
            raise Rejected(f"{name[:40]!r} is not a file of this form", name[:40])
    task = read_task(
        read_form({name: _decode(name, value) for name, value in fields.items()}, described)
    )
    read = form.files
    source = [_to_file(*one) for one in read.get("source", ())]
    budget = archive.Budget(settings().limits.unpacked_bytes, bill().add)
    for name, content in read.get("archive", ()):
        source += [_to_file(*one) for one in archive.unpack(content, name, budget=budget)]
    return replace(
        task,
        source=(*task.source, *source),
        data=(*task.data, *(_to_file(*one) for one in read.get("data", ()))),
        tests=(*task.tests, *_read_tests(read, budget)),
    )


def _decode(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise Rejected(f"{name[:40]} is no valid text", name[:40]) from None


def _to_file(name: str, content: bytes) -> model.File:
    # A browser may send the whole path of a file.
    return model.File(name.replace("\\", "/").rpartition("/")[2], model.Data(inline=content))


def _read_tests(
    read: dict[str, list[tuple[str, bytes]]], budget: archive.Budget
) -> list[model.Test]:
    tests = []
    for name, content in read.get("tests", ()):
        unpacked = archive.unpack(content, name, budget=budget)
        files = {path.rpartition("/")[2]: body for path, body in unpacked}
        tests += [
            model.Test(word, model.Data(inline=files[given]), model.Data(inline=files[expected]))
            for word, given, expected in pair_tests(files, name)
        ]
    given, expected = read.get("input", ()), read.get("expected", ())
    for i in range(max(len(given), len(expected))):
        tests.append(
            model.Test(
                "",
                model.Data(inline=given[i][1]) if i < len(given) else None,
                model.Data(inline=expected[i][1]) if i < len(expected) else None,
            )
        )
    return tests


def _own(tasks: list[Task]) -> list[Task]:
    """The tasks as the visitor may add them: as his own, unless he is an administrator."""
    one = visitor()
    owned = []
    for task in tasks:
        if task.user and task.user != one.user and not one.is_admin:
            raise Problem(403, "only the role 'admin' may add tasks of other users", "user")
        # Before anything is charged to whoever that is.
        user = model.check_word(task.user or one.user, "user", empty=True)
        owned.append(
            replace(
                task,
                user=user,
                webhook_token=one.owner if task.webhook else None,
            )
        )
    return owned


def _spend(tasks: int) -> None:
    if visitor().quota is None:
        return
    quota = judicators().spend(visitor().owner, tasks)
    if not quota.allowed:
        wait_s = max(1, (quota.reset_ms or 0) // 1000)
        raise Problem(
            429,
            f"the token's quota of {visitor().quota} tasks an hour is used up",
            headers={"Retry-After": str(wait_s)},
            left=quota.left,
        )


# ------------------------------------------------------------------- reading


class LargeTasks:
    """Turns of those who read tasks of many tests, which take tens of milliseconds to decode and
    write, for each byte that is asked for. Which are not so large is known once they were seen:
    how many tests a task has does not change."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self._lock = threading.Lock()
        self._small: OrderedDict[str, None] = OrderedDict()

    def is_small(self, task_id: str) -> bool:
        return task_id in self._small

    def note(self, info: TaskInfo) -> None:
        if info.tests_total > SMALL_TESTS:
            return
        with self._lock:
            self._small[info.id] = None
            if len(self._small) > MOST_KNOWN:
                self._small.popitem(last=False)


def _end_reading(_: BaseException | None) -> None:
    turn: contextlib.AbstractContextManager[None] | None = g.pop("reading", None)
    if turn is not None:
        turn.__exit__(None, None, None)


def look_up(task_id: str, what: int = GET_SUMMARY) -> TaskInfo:
    """A task that the visitor may see; for others it is not there. With more of it than the
    summary, it has a turn until the request ends."""
    tasks: LargeTasks = current_app.extensions["oj.reading"]
    if what != GET_SUMMARY and not tasks.is_small(check_id(task_id)) and "reading" not in g:
        turn = tasks.turns.take(g.payer)
        turn.__enter__()
        g.reading = turn
    info = judicators().get(check_id(task_id), what)
    tasks.note(info)
    if not visitor().may_read(info.user):
        raise Missing(f"there is no task {task_id}", task_id)
    return info


@routes.get("/<task_id>")
@needs("view")
def get_task(task_id: str) -> Response:
    info = look_up(task_id, GET_ALL)
    tag = hashlib.sha256(
        f"{info.id} {info.status} {info.report_time_ms} {info.tests_done} {info.attempt}".encode()
    ).hexdigest()[:24]
    if tag in request.if_none_match:
        answer = Response(status=304)
    else:
        answer = jsonify({**plain.task(info), "task": describe_task(info.task)})
    answer.set_etag(tag)
    answer.headers["Cache-Control"] = "no-cache"
    return answer


@routes.get("/<task_id>/wait")
@needs("view")
def wait_for_task(task_id: str) -> Response:
    """The task once it is not (any longer) as the caller knows it, or after `timeout` seconds."""
    timeout_s = _number("timeout", 20.0, LONGEST_WAIT_S)
    status = request.args.get("status")
    known = None
    if status is not None:
        tests_done = int(_number("tests_done", -1, model.MAX_TESTS, least=-1))
        known = TaskInfo(id=task_id, status=_word(Status, status, "status"), tests_done=tests_done)
    look_up(task_id)
    tasks: LargeTasks = current_app.extensions["oj.reading"]
    # Results of many tests are not read while it waits, but afterwards, in a turn.
    small = tasks.is_small(task_id)
    waits: Seats = current_app.extensions["oj.waits"]
    waits.enter(g.payer)
    try:
        info = judicators().wait(task_id, known, timeout_s, GET_RESULT if small else GET_SUMMARY)
    finally:
        waits.leave(g.payer)
    return jsonify(plain.task(info if small else look_up(task_id, GET_RESULT)))


def describe_task(task: Task | None) -> dict[str, Any] | None:
    """What was submitted, without the data, which are downloads."""
    if task is None:
        return None
    return {
        "language": task.language or None,
        "source": [_describe_file(file) for file in task.source],
        "data": [_describe_file(file) for file in task.data],
        "compile": _describe_step(task.compile),
        "execute": _describe_step(task.execute),
        "tests": [
            {
                "name": test.name or str(number),
                "weight": test.weight,
                "input": _describe_data(test.input),
                "expected": _describe_data(test.expected),
            }
            for number, test in enumerate(task.tests, 1)
        ],
        "compare": task.compare.name.lower(),
        "tolerance": task.tolerance,
        "stop_on_failure": task.stop_on_failure,
    }


def _describe_file(file: model.File) -> dict[str, Any]:
    return {"name": file.name, **(_describe_data(file.data) or {})}


def _describe_data(data: model.Data | None) -> dict[str, Any] | None:
    if data is None:
        return None
    if data.inline is not None:
        return {"size": len(data.inline), "digest": None}
    return {"size": None, "digest": data.digest}


def _describe_step(step: model.Step) -> dict[str, Any]:
    limits = {
        name: getattr(step.limits, name)
        for name in step.limits.__dataclass_fields__
        if getattr(step.limits, name) is not None
    }
    return {"command": list(step.command) or None, "limits": limits}


# ------------------------------------------------------------------- listing


@routes.get("")
@needs("view")
def list_tasks() -> Response:
    arguments = request.args
    one = visitor()
    user = arguments.get("user")
    if not one.roles & {"read", "admin"}:
        if user not in (None, one.user):
            raise Problem(403, "the token shows tasks of its own user only", "user")
        user = one.user
    order = arguments.get("order", "newest")
    if order not in ("newest", "oldest"):
        raise Rejected("order must be newest or oldest", "order")
    conditions: dict[str, Any] = {
        "user": user,
        "statuses": _words(Status, "status"),
        "verdicts": _words(Verdict, "verdict"),
        "tags": set(arguments.getlist("tag")) or None,
        "language": arguments.get("language"),
        "executor": arguments.get("executor"),
        "added_from": _time("since"),
        "added_before": _time("until"),
        "oldest_first": order == "oldest",
    }
    if "done" in arguments:
        if arguments["done"] not in ("true", "false"):
            raise Rejected("done must be true or false", "done")
        conditions["done"] = arguments["done"] == "true"
    limit = int(_number("limit", 50, MOST_LISTED, least=1))
    found, cursor = judicators().search(
        cursor=arguments.get("cursor", ""), limit=limit, **conditions
    )
    return jsonify(tasks=[plain.summary(info) for info in found], cursor=cursor or None)


def _word(kind: Any, text: str, field: str) -> Any:
    known = {one.word: one for one in kind}
    if text not in known:
        raise Rejected(f"{field} must be one of {', '.join(known)}", field)
    return known[text]


def _words(kind: Any, field: str) -> set[int] | None:
    given = [word for text in request.args.getlist(field) for word in text.split(",") if word]
    return {int(_word(kind, word, field)) for word in given} or None


def _number(field: str, default: float, most: float, least: float = 0.0) -> float:
    text = request.args.get(field)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise Rejected(f"{field} must be between {least:g} and {most:g}", field)
    return value


def _time(field: str) -> int | None:
    text = request.args.get(field)
    return None if text is None else read_time(text, field)


# ------------------------------------------------------------------ changing


def _look_up_to_change(task_id: str, what: int = GET_SUMMARY) -> TaskInfo:
    info = look_up(task_id, what)
    if not visitor().may_change(info.user):
        raise Problem(403, "only its user or the role 'admin' may do this")
    return info


@routes.post("/<task_id>/cancel")
@needs("submit")
def cancel_task(task_id: str) -> Response:
    info = _look_up_to_change(task_id)
    return jsonify(id=info.id, cancelled=judicators().cancel(info.id))


@routes.post("/<task_id>/rejudge")
@needs("submit")
def rejudge_task(task_id: str) -> tuple[Response, int, dict[str, str]]:
    info = _look_up_to_change(task_id, GET_TASK)
    _spend(1)
    storage.charge_tasks([info.task] if info.task else [])
    again = judicators().rejudge(info.id)
    return jsonify(id=again), 201, {"Location": url_for("tasks.get_task", task_id=again)}


@routes.post("/rejudge")
@needs("submit")
def rejudge_tasks() -> tuple[Response, int]:
    body = _read_json(SMALL_BYTES, Reader)
    ids = body.each("ids", check_id, MOST_REJUDGED)
    body.end()
    if not ids:
        raise Rejected(f"ids needs 1 to {MOST_REJUDGED} entries", "ids")
    found = [_look_up_to_change(task_id).id for task_id in dict.fromkeys(ids)]
    _spend(len(found))
    # All or none of them: measured one after the other, so that one at a time is in memory.
    amounts: Counter[str] = Counter()
    for task_id in found:
        info = look_up(task_id, GET_TASK)
        amounts += storage.measure([info.task] if info.task else [])
    storage.charge_users(amounts)
    return jsonify(ids={task_id: judicators().rejudge(task_id) for task_id in found}), 201
