"""The plain values that JSON carries, of the command and of the API. Keys are only ever added."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

from oj import model
from oj.rpc.constants import HISTOGRAM_STEPS


def print_json(value: Any, out: TextIO | None = None) -> None:
    (out or sys.stdout).write(json.dumps(value, ensure_ascii=False) + "\n")


def time_text(time_ms: int | None) -> str | None:
    """ISO 8601 in UTC, with milliseconds."""
    if not time_ms:
        return None
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def outcome(value: model.Outcome) -> dict[str, Any]:
    return {
        "cpu_ms": value.cpu_ms,
        "wall_ms": value.wall_ms,
        "memory_bytes": value.memory_bytes,
        "exit_code": value.exit_code,
        "signal": value.signal,
        "processes": value.processes,
        "cpu_us": value.cpu_us,
        "wall_us": value.wall_us,
        "stdout": value.stdout.decode("utf-8", "replace"),
        "stdout_cut": value.stdout_cut,
        "stderr": value.stderr.decode("utf-8", "replace"),
        "stderr_cut": value.stderr_cut,
    }


def summary(info: model.TaskInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "status": info.status.word,
        "done": info.done,
        "verdict": info.verdict.word if info.verdict else None,
        "score": info.score,
        "message": info.message or None,
        "language": info.language or None,
        "user": info.user,
        "priority": info.priority,
        "tags": sorted(info.tags),
        "key": info.key,
        "executor": info.executor or None,
        "attempt": info.attempt,
        "add_time": time_text(info.add_time_ms),
        "start_time": time_text(info.start_time_ms),
        "report_time": time_text(info.report_time_ms),
        "tests_done": info.tests_done,
        "tests_total": info.tests_total,
    }


def task(info: model.TaskInfo) -> dict[str, Any]:
    """The whole task, with `compile` and `tests` once it is done."""
    value = summary(info)
    result = info.result
    value["compile"] = outcome(result.compile) if result and result.compile else None
    value["tests"] = [
        {
            "name": test.name,
            "verdict": test.verdict.word,
            "message": test.message or None,
            **outcome(test.outcome),
        }
        for test in (result.tests if result else ())
    ]
    if result:
        value["score"] = result.score
        value["message"] = result.message or value["message"]
    value["attempts"] = [
        {
            "number": attempt.number,
            "executor": attempt.executor,
            "start_time": time_text(attempt.start_time_ms),
            "ended": attempt.ended or None,
        }
        for attempt in info.attempts
    ]
    return value


def executor(info: Any) -> dict[str, Any]:
    facts = info.facts
    return {
        "name": info.name,
        "incarnation": info.incarnation,
        "state": executor_state(info),
        "message": (facts and facts.message) or None,
        "slots": facts.slots if facts else None,
        "executing": info.executing or 0,
        "drained": bool(info.drained),
        "silent": bool(info.silent),
        "languages": dict(sorted((facts.languages or {}).items())) if facts else {},
        "version": facts.version if facts else None,
        "address": info.address or (facts and facts.address) or None,
        "rivals": [process(one) for one in info.rivals or ()],
        "system": dict(sorted((facts.system or {}).items())) if facts else {},
        "report_time": time_text(info.report_time),
    }


def process(info: Any) -> dict[str, Any]:
    return {
        "incarnation": info.incarnation,
        "address": info.address,
        "since": time_text(info.since),
    }


def executor_state(info: Any) -> str:
    """One word for how an executor is: what is worst about it."""
    state: str = (info.facts and info.facts.state) or "ok"
    if info.silent:
        return "silent"
    if state == "sick":
        return state
    return "draining" if info.drained else state


def judicator(info: Any) -> dict[str, Any]:
    return {
        "name": info.name,
        "address": info.address,
        "leader": bool(info.leader),
        "version": info.version,
    }


def gateway(info: Any) -> dict[str, Any]:
    return {
        "name": info.name,
        "address": info.address,
        "version": info.version,
        "silent": bool(info.silent),
        "report_time": time_text(info.report_time),
        "places": list(info.places or ()),
    }


def etcd_member(info: Any) -> dict[str, Any]:
    return {
        "name": info.name,
        "address": info.address,
        "healthy": bool(info.healthy),
        "leader": bool(info.leader),
        "learner": bool(info.learner),
        "message": info.message or None,
    }


def database_member(info: Any) -> dict[str, Any]:
    return {
        "name": info.name,
        "address": info.address,
        "state": info.state,
        "healthy": bool(info.healthy),
        "voter": bool(info.voter),
        "lag_ms": info.lag_ms,
        "message": info.message or None,
    }


def counts(numbers: Mapping[int, int] | None, kind: Any) -> dict[str, int]:
    """Numbers by a Status or Verdict, as words; what a newer judicator adds stays a number."""
    known = {int(one): one.word for one in kind}
    return {known.get(n, str(n)): count for n, count in sorted((numbers or {}).items())}


def token(info: Any) -> dict[str, Any]:
    return {
        "id": info.id,
        "name": info.name,
        "user": info.user or "",
        "roles": sorted(info.roles or ()),
        "quota": info.quota,
        "made": time_text(info.made),
        "expires": time_text(info.expires),
    }


def cluster(info: Any) -> dict[str, Any]:
    return {
        "etcd": [etcd_member(member) for member in info.etcd],
        "database": [database_member(member) for member in info.database],
        "judicators": [{**judicator(one), "healthy": bool(one.healthy)} for one in info.judicators],
        "gateways": [gateway(one) for one in info.gateways or ()],
        "troubles": list(info.troubles),
        "seen_from": info.seen_from,
    }


def event(info: Any) -> dict[str, Any]:
    """What an event tells of a task; what it does not is None."""
    status = model.Status(info.status) if info.status is not None else None
    return {
        "id": info.id,
        "status": status.word if status else None,
        "done": status in model.FINAL,
        "verdict": model.Verdict(info.verdict).word if info.verdict is not None else None,
        "tests_done": info.tests_done,
        "tests_total": info.tests_total,
        "user": info.user or "",
        "language": info.language,
        "executor": info.executor,
        "attempt": info.attempt,
        "score": info.score,
        "time": time_text(info.time),
    }


def minute(info: Any) -> dict[str, Any]:
    return {
        "time": time_text(info.time),
        "added": info.added or 0,
        "ended": counts(info.ended, model.Status),
        "verdicts": counts(info.verdicts, model.Verdict),
        "waiting": list(info.waiting or ()),
        "judging": list(info.judging or ()),
    }


# Entry i of a histogram counts what took less than this; the last one has no bound.
HISTOGRAM_BOUNDS_MS = [1 << step for step in range(HISTOGRAM_STEPS - 1)]
