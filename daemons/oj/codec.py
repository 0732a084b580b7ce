"""Between the model and the structs on the wire, both ways.

What comes from the wire is not trusted: Thrift leaves out fields of a wrong
type and passes unknown enum numbers through, so each `*_from_rpc` checks what
it needs and raises Rejected with the field's path. Whether a task makes sense
is for model.check_task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, TypeVar

from thrift.protocol.TBinaryProtocol import TBinaryProtocolAcceleratedFactory
from thrift.Thrift import TException
from thrift.TSerialization import deserialize, serialize

from oj import model
from oj.errors import Rejected
from oj.redact import say
from oj.rpc import ttypes as rpc

E = TypeVar("E", bound=IntEnum)
T = TypeVar("T")


def _enum(kind: type[E], value: int | None, where: str) -> E:
    try:
        return kind(value)  # type: ignore[arg-type]  # None is no value of any of them
    except ValueError:
        raise Rejected(f"{where}: {value} is not a {kind.__name__}", where) from None


def _each(
    items: Iterable[Any] | None, convert: Callable[[Any, str], T], where: str
) -> tuple[T, ...]:
    return tuple(convert(item, f"{where}[{i}]") for i, item in enumerate(items or ()))


def _or(value: T | None, default: T) -> T:
    return default if value is None else value


# ------------------------------------------------------------------ bytes

_PACKING = TBinaryProtocolAcceleratedFactory()


def pack(struct: Any) -> bytes:
    """A struct as bytes, to be kept on disk."""
    return serialize(struct, _PACKING)


def unpack(kind: type[T], data: bytes) -> T:
    """What `pack` made; ValueError if it is something else."""
    try:
        struct = deserialize(kind(), data, _PACKING)
        struct.validate()
    except (TException, EOFError, TypeError) as error:
        raise ValueError(f"is not a {kind.__name__}: {say(error)}") from None
    return struct


# ------------------------------------------------------------------- task


def _data_from_rpc(data: rpc.Data, where: str) -> model.Data:
    return model.Data(data.inline_data, data.digest)


def _data_to_rpc(data: model.Data | None) -> rpc.Data | None:
    return None if data is None else rpc.Data(data.inline, data.digest)


def _file_from_rpc(file: rpc.File, where: str) -> model.File:
    if file.name is None or file.data is None:
        raise Rejected(f"{where} needs a name and data", where)
    return model.File(file.name, _data_from_rpc(file.data, f"{where}.data"))


def _file_to_rpc(file: model.File) -> rpc.File:
    return rpc.File(file.name, _data_to_rpc(file.data))


def _limits_from_rpc(limits: rpc.Limits | None) -> model.Limits:
    if limits is None:
        return model.Limits()
    return model.Limits(
        limits.cpu_ms,
        limits.wall_ms,
        limits.memory_bytes,
        limits.output_bytes,
        limits.processes,
        limits.disk_bytes,
    )


def _limits_to_rpc(limits: model.Limits) -> rpc.Limits | None:
    if limits == model.Limits():
        return None
    return rpc.Limits(
        limits.cpu_ms,
        limits.wall_ms,
        limits.memory_bytes,
        limits.output_bytes,
        limits.processes,
        limits.disk_bytes,
    )


def _step_from_rpc(step: rpc.Step | None) -> model.Step:
    if step is None:
        return model.Step()
    return model.Step(tuple(step.command or ()), _limits_from_rpc(step.limits))


def _step_to_rpc(step: model.Step) -> rpc.Step | None:
    if step == model.Step():
        return None
    return rpc.Step(list(step.command) or None, _limits_to_rpc(step.limits))


def _test_from_rpc(test: rpc.Test, where: str) -> model.Test:
    return model.Test(
        test.name or "",
        None if test.input is None else _data_from_rpc(test.input, f"{where}.input"),
        None if test.expected is None else _data_from_rpc(test.expected, f"{where}.expected"),
        _or(test.weight, 1.0),
    )


def _test_to_rpc(test: model.Test) -> rpc.Test:
    return rpc.Test(
        test.name or None, _data_to_rpc(test.input), _data_to_rpc(test.expected), test.weight
    )


def task_from_rpc(task: rpc.Task | None, where: str = "task") -> model.Task:
    if task is None:
        raise Rejected(f"{where} is missing", where)
    return model.Task(
        language=task.language or "",
        source=_each(task.source, _file_from_rpc, "source"),
        data=_each(task.data, _file_from_rpc, "data"),
        compile=_step_from_rpc(task.compile),
        execute=_step_from_rpc(task.execute),
        tests=_each(task.tests, _test_from_rpc, "tests"),
        user=task.user or "",
        priority=_or(task.priority, 0),
        tags=frozenset(task.tags or ()),
        key=task.key,
        compare=_enum(model.Compare, _or(task.compare, model.Compare.TOKENS), "compare"),
        tolerance=_or(task.tolerance, 1e-6),
        stop_on_failure=bool(task.stop_on_failure),
        webhook=task.webhook,
        webhook_token=task.webhook_token,
    )


def task_to_rpc(task: model.Task) -> rpc.Task:
    return rpc.Task(
        language=task.language or None,
        source=[_file_to_rpc(file) for file in task.source] or None,
        data=[_file_to_rpc(file) for file in task.data] or None,
        compile=_step_to_rpc(task.compile),
        execute=_step_to_rpc(task.execute),
        tests=[_test_to_rpc(test) for test in task.tests] or None,
        user=task.user or None,
        priority=task.priority or None,
        tags=set(task.tags) or None,
        key=task.key,
        compare=int(task.compare),
        tolerance=task.tolerance,
        stop_on_failure=task.stop_on_failure or None,
        webhook=task.webhook,
        webhook_token=task.webhook_token,
    )


# ----------------------------------------------------------------- result


def _outcome_from_rpc(outcome: rpc.Outcome | None) -> model.Outcome:
    if outcome is None:
        return model.Outcome()
    return model.Outcome(
        cpu_us=_or(outcome.cpu_us, _or(outcome.cpu_ms, 0) * 1000),
        wall_us=_or(outcome.wall_us, _or(outcome.wall_ms, 0) * 1000),
        memory_bytes=_or(outcome.memory_bytes, 0),
        processes=_or(outcome.processes, 0),
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        stdout=outcome.stdout_data or b"",
        stdout_cut=bool(outcome.stdout_cut),
        stderr=outcome.stderr_data or b"",
        stderr_cut=bool(outcome.stderr_cut),
    )


def _outcome_to_rpc(outcome: model.Outcome) -> rpc.Outcome:
    return rpc.Outcome(
        cpu_ms=outcome.cpu_ms,
        wall_ms=outcome.wall_ms,
        memory_bytes=outcome.memory_bytes,
        exit_code=outcome.exit_code,
        signal=outcome.signal,
        stdout_data=outcome.stdout,
        stdout_cut=outcome.stdout_cut,
        stderr_data=outcome.stderr,
        stderr_cut=outcome.stderr_cut,
        processes=outcome.processes,
        cpu_us=outcome.cpu_us,
        wall_us=outcome.wall_us,
    )


def _test_result_from_rpc(test: rpc.TestResult, where: str) -> model.TestResult:
    return model.TestResult(
        test.name or "",
        _enum(model.Verdict, test.verdict, f"{where}.verdict"),
        _outcome_from_rpc(test.outcome),
        test.message or "",
    )


def result_from_rpc(result: rpc.Result | None, where: str = "result") -> model.Result:
    if result is None:
        raise Rejected(f"{where} is missing", where)
    status = _enum(model.Status, result.status, f"{where}.status")
    if status not in model.FINAL:
        raise Rejected(f"{where}.status is not a final one", f"{where}.status")
    return model.Result(
        status=status,
        verdict=_enum(model.Verdict, result.verdict, f"{where}.verdict"),
        compile=None if result.compile is None else _outcome_from_rpc(result.compile),
        tests=_each(result.tests, _test_result_from_rpc, f"{where}.tests"),
        score=_or(result.score, 0.0),
        message=result.message or "",
    )


def result_to_rpc(result: model.Result) -> rpc.Result:
    return rpc.Result(
        status=int(result.status),
        verdict=int(result.verdict),
        compile=None if result.compile is None else _outcome_to_rpc(result.compile),
        tests=[
            rpc.TestResult(
                test.name, int(test.verdict), _outcome_to_rpc(test.outcome), test.message or None
            )
            for test in result.tests
        ],
        score=result.score,
        message=result.message or None,
    )


# ------------------------------------------------------------------- info


def info_from_rpc(info: rpc.TaskInfo) -> model.TaskInfo:
    return model.TaskInfo(
        id=info.id,
        status=_enum(model.Status, info.status, "status"),
        verdict=None if info.verdict is None else _enum(model.Verdict, info.verdict, "verdict"),
        executor=info.executor or "",
        attempt=_or(info.attempt, 0),
        add_time_ms=_or(info.add_time, 0),
        start_time_ms=info.start_time,
        report_time_ms=info.report_time,
        tests_done=_or(info.tests_done, 0),
        tests_total=_or(info.tests_total, 0),
        score=info.score,
        message=info.message or "",
        language=info.language or "",
        user=info.user or "",
        priority=_or(info.priority, 0),
        tags=frozenset(info.tags or ()),
        key=info.key,
        task=None if info.task is None else task_from_rpc(info.task),
        # A cancelled task has a result on the wire, but was never judged.
        result=(
            None
            if info.result is None or info.result.verdict is None
            else result_from_rpc(info.result)
        ),
        attempts=tuple(
            model.Attempt(a.number, a.executor or "", _or(a.start_time, 0), a.ended or "")
            for a in info.attempts or ()
        ),
    )
