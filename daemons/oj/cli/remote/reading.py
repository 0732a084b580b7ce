"""From the plain values of JSON (see oj.plain) back to what the client library answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from oj import model
from oj.errors import Rejected
from oj.rpc import ttypes as rpc

T = TypeVar("T")

_STATUSES = {one.word: one for one in model.Status}
_VERDICTS = {one.word: one for one in model.Verdict}


def read(convert: Callable[[Any], T], value: Any) -> T:
    """The converted value; Rejected if the server does not speak as it should."""
    try:
        return convert(value)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Rejected(
            f"the server's answer is not understood ({type(error).__name__}: {error}); "
            "is it of another version?"
        ) from None


def time_ms(text: str | None) -> int | None:
    if not text:
        return None
    return round(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() * 1000)


def _outcome(value: Mapping[str, Any]) -> model.Outcome:
    return model.Outcome(
        cpu_us=value["cpu_us"],
        wall_us=value["wall_us"],
        memory_bytes=value["memory_bytes"],
        processes=value["processes"],
        exit_code=value["exit_code"],
        signal=value["signal"],
        stdout=value["stdout"].encode("utf-8", "replace"),
        stdout_cut=value["stdout_cut"],
        stderr=value["stderr"].encode("utf-8", "replace"),
        stderr_cut=value["stderr_cut"],
    )


def task(value: Mapping[str, Any]) -> model.TaskInfo:
    """A summary or a whole task, without what was submitted."""
    status = _STATUSES[value["status"]]
    verdict = _VERDICTS[value["verdict"]] if value.get("verdict") else None
    return model.TaskInfo(
        id=value["id"],
        status=status,
        verdict=verdict,
        executor=value.get("executor") or "",
        attempt=value.get("attempt") or 0,
        add_time_ms=time_ms(value.get("add_time")) or 0,
        start_time_ms=time_ms(value.get("start_time")),
        report_time_ms=time_ms(value.get("report_time")),
        tests_done=value.get("tests_done") or 0,
        tests_total=value.get("tests_total") or 0,
        score=value.get("score"),
        message=value.get("message") or "",
        language=value.get("language") or "",
        user=value.get("user") or "",
        priority=value.get("priority") or 0,
        tags=frozenset(value.get("tags") or ()),
        key=value.get("key"),
        result=_result(value, status, verdict),
        attempts=tuple(
            model.Attempt(
                one["number"],
                one["executor"],
                time_ms(one["start_time"]) or 0,
                one["ended"] or "",
            )
            for one in value.get("attempts") or ()
        ),
    )


def _result(
    value: Mapping[str, Any], status: model.Status, verdict: model.Verdict | None
) -> model.Result | None:
    tests, compiled = value.get("tests") or (), value.get("compile")
    if status not in model.FINAL or verdict is None or not (tests or compiled):
        return None
    return model.Result(
        status=status,
        verdict=verdict,
        compile=_outcome(compiled) if compiled else None,
        tests=tuple(
            model.TestResult(
                test["name"], _VERDICTS[test["verdict"]], _outcome(test), test["message"] or ""
            )
            for test in tests
        ),
        score=value.get("score") or 0.0,
        message=value.get("message") or "",
    )


def executor(value: Mapping[str, Any]) -> rpc.ExecutorInfo:
    facts = None
    if value["slots"] is not None or value["languages"]:
        state = value["state"]
        facts = rpc.Facts(
            languages=dict(value["languages"]),
            slots=value["slots"],
            version=value["version"],
            address=value["address"],
            state="ok" if state == "silent" else state,
            message=value["message"],
            system=dict(value["system"]),
        )
    return rpc.ExecutorInfo(
        name=value["name"],
        incarnation=value["incarnation"],
        facts=facts,
        report_time=time_ms(value["report_time"]),
        executing=value["executing"],
        drained=value["drained"],
        silent=value["silent"],
        address=value["address"],
        rivals=[
            rpc.Process(one["incarnation"], one["address"], time_ms(one["since"]))
            for one in value.get("rivals", ())
        ],
    )


def judicator(value: Mapping[str, Any]) -> rpc.JudicatorInfo:
    return rpc.JudicatorInfo(
        name=value["name"],
        address=value["address"],
        leader=value["leader"],
        healthy=value.get("healthy"),
        version=value.get("version"),
    )


def cluster(value: Mapping[str, Any]) -> rpc.Cluster:
    return rpc.Cluster(
        etcd=[
            rpc.EtcdMember(**{key: one[key] for key in _ETCD if key in one})
            for one in value["etcd"]
        ],
        database=[
            rpc.DatabaseMember(**{key: one[key] for key in _DATABASE if key in one})
            for one in value["database"]
        ],
        judicators=[judicator(one) for one in value["judicators"]],
        troubles=list(value["troubles"]),
        seen_from=value["seen_from"],
        gateways=[
            rpc.GatewayInfo(
                name=one["name"],
                address=one["address"],
                version=one["version"],
                report_time=time_ms(one["report_time"]),
                silent=one["silent"],
            )
            for one in value.get("gateways", ())
        ],
    )


_ETCD = ("name", "address", "healthy", "leader", "learner", "message")
_DATABASE = ("name", "address", "state", "healthy", "voter", "lag_ms", "message")


def stats(value: Mapping[str, Any]) -> rpc.Stats:
    return rpc.Stats(
        by_status=_counts(value["by_status"], _STATUSES),
        queue=value["queue"],
        oldest_pending_ms=value["oldest_pending_ms"],
        by_verdict=_counts(value["by_verdict"], _VERDICTS),
        executors=value["executors"],
        slots=value["slots"],
        executing=value["executing"],
    )


def _counts(numbers: Mapping[str, int], known: Mapping[str, Any]) -> dict[int, int]:
    return {int(known.get(word, word)): count for word, count in numbers.items()}


def token(value: Mapping[str, Any]) -> rpc.Token:
    return rpc.Token(
        id=value["id"],
        name=value["name"],
        user=value["user"],
        roles=set(value["roles"]),
        quota=value["quota"],
        made=time_ms(value["made"]),
        expires=time_ms(value["expires"]),
        webhook_secret=value.get("webhook_secret"),
    )


def event(value: Mapping[str, Any]) -> rpc.TaskEvent:
    """What a stream tells, with its place there as `at`."""
    return rpc.TaskEvent(
        cursor=value["at"],
        id=value["id"],
        status=_STATUSES[value["status"]] if value.get("status") else None,
        verdict=_VERDICTS[value["verdict"]] if value.get("verdict") else None,
        tests_done=value.get("tests_done"),
        tests_total=value.get("tests_total"),
        user=value.get("user"),
        language=value.get("language"),
        time=time_ms(value.get("time")),
        executor=value.get("executor"),
        attempt=value.get("attempt"),
        score=value.get("score"),
    )
