"""The calls of the client library, made through a gateway."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from oj import model, plain
from oj.calls import GET_ATTEMPTS, GET_SUMMARY, UPLOAD_BYTES_PER_S, Calls
from oj.cli.remote import reading
from oj.cli.remote.reading import read
from oj.cli.remote.server import Server
from oj.cli.remote.writing import write_task
from oj.clock import Deadline
from oj.errors import Missing, Rejected, Throttled, Unavailable
from oj.pieces import name_tests
from oj.rpc import ttypes as rpc

API = "/api/v1"
PAGE = 200  # the largest that the API gives
LONGEST_WAIT_S = 25.0
PATIENCE_S = 150.0  # with 429 for too many requests a minute, where nobody set a deadline
# The names of conditions over Thrift, and over HTTP.
_CONDITIONS = {
    "user": "user",
    "statuses": "status",
    "verdicts": "verdict",
    "tags": "tag",
    "language": "language",
    "executor": "executor",
    "added_from": "since",
    "added_before": "until",
    "done": "done",
}


class Gateway(Calls):
    """May be shared by threads: each has a connection of its own."""

    def __init__(self, url: str, token: str, *, timeout_s: float) -> None:
        self._server = Server(url, token, timeout_s)
        self.place = self._server.place

    def close(self) -> None:
        self._server.close()

    def _call(self, method: str, *_: Any, **__: Any) -> Any:
        raise Rejected(f"the call {method} is for inside the cluster: leave out --server")

    def _ask(self, method: str, path: str, body: Any = None, **more: Any) -> Any:
        return self._server.ask(method, f"{API}{path}", body, **more)

    def ping(self, deadline: Deadline | None = None) -> None:
        self.version(deadline)

    def version(self, deadline: Deadline | None = None) -> rpc.Version:
        answer = self._server.ask("GET", "/healthz", deadline=deadline)
        return read(lambda value: rpc.Version(oj=str(value["version"]), protocol=0), answer)

    # ---------------------------------------------------------------- tasks

    def _add(self, tasks: Sequence[model.Task], deadline: Deadline | None) -> list[str]:
        # Each has a key by now, so that sending it again adds nothing.
        if len(tasks) == 1:
            answer = self._ask("POST", "/tasks", write_task(tasks[0]), deadline=deadline)
            return [read(lambda value: str(value["id"]), answer)]
        body = {"tasks": [write_task(task) for task in tasks]}
        answer = self._ask("POST", "/tasks/batch", body, deadline=deadline)
        return read(lambda value: [str(one) for one in value["ids"]], answer)

    def rejudge(self, task_id: str, deadline: Deadline | None = None) -> str:
        answer = self._ask("POST", f"/tasks/{task_id}/rejudge", deadline=deadline, again=False)
        return read(lambda value: str(value["id"]), answer)

    def cancel(self, task_id: str, deadline: Deadline | None = None) -> bool:
        answer = self._ask("POST", f"/tasks/{task_id}/cancel", deadline=deadline)
        return read(lambda value: bool(value["cancelled"]), answer)

    def get(
        self, task_id: str, what: int = GET_SUMMARY, deadline: Deadline | None = None
    ) -> model.TaskInfo:
        """Whatever `what` says: the summary, result and attempts; not what was submitted."""
        return read(reading.task, self._ask("GET", f"/tasks/{task_id}", deadline=deadline))

    def wait(
        self,
        task_id: str,
        known: model.TaskInfo | None = None,
        wait_s: float = 20.0,
        what: int = GET_SUMMARY,
        deadline: Deadline | None = None,
    ) -> model.TaskInfo:
        if deadline:
            wait_s = min(wait_s, deadline.left_s)
        wait_s = min(wait_s, LONGEST_WAIT_S)
        query: dict[str, Any] = {"timeout": f"{wait_s:.3f}"}
        if known is not None:
            query |= {"status": known.status.word, "tests_done": known.tests_done}
        try:
            answer = self._ask(
                "GET", f"/tasks/{task_id}/wait", query=query, wait_s=wait_s, deadline=deadline
            )
        except Unavailable as error:
            if error.retry_ms is None and not isinstance(error, Throttled):
                raise
            # Too many wait, with this token or in all: look now and then instead.
            return self._look_later(task_id, min(wait_s, _pause_s(error)), deadline)
        info = read(reading.task, answer)
        return self.get(task_id) if info.done and what & GET_ATTEMPTS else info

    def _look_later(
        self, task_id: str, pause_s: float, deadline: Deadline | None
    ) -> model.TaskInfo:
        """The task, once there may be asked again; who asks too often waits and goes on."""
        give_up = deadline or Deadline(PATIENCE_S)
        while True:
            time.sleep(min(pause_s, give_up.left_s))
            try:
                return self.get(task_id, deadline=deadline)
            except Throttled as error:
                if give_up.expired:
                    raise
                pause_s = _pause_s(error)

    def follow(self, task_id: str) -> Iterator[model.TaskInfo]:
        """Through the task's event stream; where that does not come or ends, by waiting."""
        value: dict[str, Any] = {}
        info: model.TaskInfo | None = None
        try:
            for sent in self._server.stream(f"{API}/tasks/{task_id}/events"):
                if sent.kind == "task":
                    value |= read(_object, sent.data)
                    info = read(reading.task, value)
                    yield info
                    if info.done:
                        return
        except Unavailable:
            pass
        if info is None:
            yield from super().follow(task_id)
            return
        while not info.done:
            info = self.wait(task_id, info)
            yield info

    def files(self, task_id: str) -> Iterator[tuple[str, Iterator[bytes]]]:
        value = self._ask("GET", f"/tasks/{task_id}")
        for path, place in read(_list_files, value):
            yield path, self._server.fetch(f"{API}/tasks/{task_id}/{place}")

    def search(
        self,
        *,
        cursor: str = "",
        limit: int = 50,
        deadline: Deadline | None = None,
        **conditions: Any,
    ) -> tuple[list[model.TaskInfo], str]:
        query: dict[str, Any] = {"limit": min(limit, PAGE)}
        if cursor:
            query["cursor"] = cursor
        if conditions.pop("oldest_first", None):
            query["order"] = "oldest"
        for name, value in conditions.items():
            if value is None:
                continue
            if name not in _CONDITIONS:
                raise Rejected(f"tasks cannot be searched by {name} from outside", name)
            query[_CONDITIONS[name]] = _condition(value)
        answer = self._ask("GET", "/tasks", query=query, deadline=deadline)
        return read(
            lambda page: ([reading.task(one) for one in page["tasks"]], page["cursor"] or ""),
            answer,
        )

    # -------------------------------------------------------------- cluster

    def executors(self, deadline: Deadline | None = None) -> list[rpc.ExecutorInfo]:
        return read(
            lambda value: [reading.executor(one) for one in value["executors"]],
            self._ask("GET", "/executors", deadline=deadline),
        )

    def languages(self, deadline: Deadline | None = None) -> dict[str, list[str]]:
        return read(
            lambda value: {one["name"]: list(one["versions"]) for one in value["languages"]},
            self._ask("GET", "/languages", deadline=deadline),
        )

    def judicators(self, deadline: Deadline | None = None) -> list[rpc.JudicatorInfo]:
        return read(
            lambda value: [reading.judicator(one) for one in value["judicators"]],
            self._ask("GET", "/judicators", deadline=deadline),
        )

    def stats(self, deadline: Deadline | None = None) -> rpc.Stats:
        return read(reading.stats, self._ask("GET", "/stats", deadline=deadline))

    def cluster(self, deadline: Deadline | None = None) -> rpc.Cluster:
        return read(reading.cluster, self._ask("GET", "/cluster", deadline=deadline))

    def drain(self, executor: str, on: bool = True, deadline: Deadline | None = None) -> None:
        self._ask("POST", f"/executors/{quote(executor)}/drain", {"on": on}, deadline=deadline)

    def happenings(self, cursor: str = "") -> Iterator[rpc.Events]:
        while True:
            for sent in self._server.stream(f"{API}/events", cursor):
                cursor = sent.id or cursor
                found = []
                if sent.kind == "task":
                    found.append(read(reading.event, {**read(_object, sent.data), "at": cursor}))
                yield rpc.Events(events=found, cursor=cursor, gap=sent.kind == "gap")

    # --------------------------------------------------------------- tokens

    def issue_token(
        self, token: rpc.Token, deadline: Deadline | None = None
    ) -> tuple[rpc.Token, str]:
        body: dict[str, Any] = {
            "name": token.name,
            "user": token.user or "",
            "roles": sorted(token.roles or ()),
        }
        if token.quota is not None:
            body["quota"] = token.quota
        if token.expires is not None:
            body["expires"] = plain.time_text(token.expires)
        answer = self._ask("POST", "/tokens", body, deadline=deadline, again=False)
        return read(lambda value: (reading.token(value), str(value["secret"])), answer)

    def tokens(self, deadline: Deadline | None = None) -> list[rpc.Token]:
        return read(
            lambda value: [reading.token(one) for one in value["tokens"]],
            self._ask("GET", "/tokens", deadline=deadline),
        )

    def remove_token(self, token_id: str, deadline: Deadline | None = None) -> None:
        self._ask("DELETE", f"/tokens/{quote(token_id, safe='')}", deadline=deadline, again=False)

    # ---------------------------------------------------------------- blobs

    def has_blobs(self, digests: Iterable[str], deadline: Deadline | None = None) -> set[str]:
        stored = set()
        for digest in digests:
            try:
                self._ask("GET", f"/blobs/{digest}", deadline=deadline)
            except Missing:
                continue
            stored.add(digest)
        return stored

    def _upload(self, digest: str, content: bytes | Path, deadline: Deadline | None) -> None:
        if isinstance(content, bytes):
            size_s = len(content) / UPLOAD_BYTES_PER_S
            self._ask("PUT", f"/blobs/{digest}", content, wait_s=size_s, deadline=deadline)
            return
        with content.open("rb") as file:
            size_s = content.stat().st_size / UPLOAD_BYTES_PER_S
            self._ask("PUT", f"/blobs/{digest}", file, wait_s=size_s, deadline=deadline)


def _list_files(value: dict[str, Any]) -> list[tuple[str, str]]:
    """Of each file its path, as oj.pieces has it, and where the API has it."""
    found = []
    task = value.get("task") or {}
    for kind in ("source", "data"):
        for file in task.get(kind) or ():
            found.append((f"{kind}/{file['name']}", f"{kind}/{quote(file['name'])}"))
    tests = task.get("tests") or ()
    for number, name in enumerate(name_tests([test["name"] for test in tests]), 1):
        for part, ending in (("input", "in"), ("expected", "ans")):
            if tests[number - 1][part] is not None:
                found.append((f"tests/{name}.{ending}", f"tests/{number}/{part}"))
    results = value.get("tests") or ()
    outputs = [("compile", "compile", value.get("compile") or {})]
    for number, name in enumerate(name_tests([test["name"] for test in results]), 1):
        outputs.append((name, f"tests/{number}", results[number - 1]))
    for name, place, outcome in outputs:
        for part, ending in (("stdout", "out"), ("stderr", "err")):
            if outcome.get(part):
                found.append((f"outputs/{name}.{ending}", f"{place}/{part}"))
    return found


def _pause_s(error: Unavailable) -> float:
    return max(0.1, 1.0 if error.retry_ms is None else error.retry_ms / 1000)


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("no object")
    return value


def _condition(value: Any) -> Any:
    """As a query carries it: words for statuses and verdicts, lists for several."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (set, frozenset, list, tuple)):
        return sorted(one.word if hasattr(one, "word") else str(one) for one in value)
    return value
