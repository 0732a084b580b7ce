"""Between the structs on the wire and what the judicator works with.

Tasks and results are stored as their bytes on the wire: they are handed on as
they came, and the database need not take them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TTransport import TMemoryBuffer

from oj import codec, model
from oj.errors import Rejected
from oj.judicator.broker import Added
from oj.judicator.report import Facts, Finished, InHand, Judged, Process, Ref, Reply, Report
from oj.judicator.store.database import to_ms
from oj.judicator.store.documents import Record
from oj.judicator.store.roster import Executor
from oj.judicator.troubles import Picture
from oj.rpc import ttypes as rpc

# A result larger than this loses its outputs: a document holds 16 MiB at most.
RESULT_BYTES = 10 << 20
MOST_REPORTED = 4096
MOST_VACANT = 1024
MESSAGE_CHARS = 1000

S = TypeVar("S")


def encode(struct: Any) -> bytes:
    out = TMemoryBuffer()
    struct.write(TBinaryProtocolAccelerated(out))
    return bytes(out.getvalue())


def decode(kind: Callable[[], S], data: bytes) -> S:
    struct: Any = kind()
    struct.read(TBinaryProtocolAccelerated(TMemoryBuffer(data)))
    return struct


# ------------------------------------------------------------------- task


def read_task(task: rpc.Task | None) -> Added:
    """A sound task; raises Rejected or Oversized with the field."""
    plain = codec.task_from_rpc(task)
    model.check_task(plain)
    return Added(plain, encode(task))


def digests_of(task: model.Task) -> dict[str, str]:
    """The blobs that a task names, each with the field that does."""
    found: dict[str, str] = {}
    for where, files in (("source", task.source), ("data", task.data)):
        for i, file in enumerate(files):
            if file.data.digest is not None:
                found.setdefault(file.data.digest, f"{where}[{i}].data.digest")
    for i, test in enumerate(task.tests):
        for where, data in (("input", test.input), ("expected", test.expected)):
            if data is not None and data.digest is not None:
                found.setdefault(data.digest, f"tests[{i}].{where}.digest")
    return found


def write_info(record: Record, what: int = 0) -> rpc.TaskInfo:
    info = rpc.TaskInfo(
        id=record.id,
        status=int(record.status),
        done=record.done,
        verdict=None if record.verdict is None else int(record.verdict),
        executor=record.executor or None,
        attempt=record.attempt,
        add_time=record.add_time_ms,
        start_time=record.start_time_ms,
        report_time=record.report_time_ms or record.add_time_ms,
        tests_done=record.tests_done,
        tests_total=record.tests_total,
        score=record.score,
        message=record.message or None,
        language=record.language or None,
        user=record.user,
        priority=record.priority,
        tags=set(record.tags) or None,
        key=record.key,
    )
    if what & 1 and record.body is not None:
        info.task = decode(rpc.Task, record.body)
    if what & 2 and record.done:
        info.result = (
            decode(rpc.Result, record.result)
            if record.result is not None
            else rpc.Result(
                status=int(record.status),
                verdict=info.verdict,
                message=record.message or None,
            )
        )
    if what & 4:
        info.attempts = _write_attempts(record)
    return info


def _write_attempts(record: Record) -> list[rpc.Attempt]:
    attempts = [
        rpc.Attempt(number=a["n"], executor=a["e"], start_time=to_ms(a.get("t")), ended=a["w"])
        for a in record.ended
    ]
    if record.attempt and (not attempts or attempts[-1].number != record.attempt):
        attempts.append(
            rpc.Attempt(
                number=record.attempt,
                executor=record.executor,
                start_time=record.start_time_ms,
                ended="cancelled" if record.status == model.Status.CANCELLED else None,
            )
        )
    return attempts


# ----------------------------------------------------------------- report


def _text(value: Any, most: int = MESSAGE_CHARS) -> str:
    return value[:most] if isinstance(value, str) else ""


def _count(value: Any, where: str, most: int) -> int:
    """A number from 0 up, cut to `most`."""
    if value is None:
        return 0
    if value < 0:
        raise Rejected(f"{where} is negative", where)
    return min(int(value), most)


def read_wait(wait_ms: int | None) -> float:
    return _count(wait_ms, "wait_ms", model.MAX_WAIT_MS) / 1000


def read_report(
    executor: str,
    incarnation: str,
    complete: Sequence[rpc.Completed] | None,
    executing: Sequence[rpc.Executing] | None,
    vacant: int | None,
    facts: rpc.Facts | None,
    wait_ms: int | None,
    number: int | None,
    settled: int | None,
    connected: Callable[[], bool],
    address: str = "",
) -> Report:
    model.check_node(executor, "executor")
    model.check_word(incarnation, "incarnation")
    for where, items in (("complete", complete), ("executing", executing)):
        if items is not None and len(items) > MOST_REPORTED:
            raise Rejected(f"{where} has more than {MOST_REPORTED} entries", where)
    return Report(
        executor=executor,
        incarnation=incarnation,
        finished=tuple(_read_completed(c, f"complete[{i}]") for i, c in enumerate(complete or ())),
        in_hand=tuple(_read_executing(e, f"executing[{i}]") for i, e in enumerate(executing or ())),
        vacant=_count(vacant, "vacant", MOST_VACANT),
        facts=None if facts is None else _read_facts(facts),
        wait_s=read_wait(wait_ms),
        number=_count(number, "number", (1 << 62)),
        settled=_count(settled, "settled", (1 << 62)),
        connected=connected,
        address=address,
    )


def _read_attempt(attempt: Any, where: str) -> int:
    if not isinstance(attempt, int) or attempt < 1:
        raise Rejected(f"{where}.attempt is not the number of an attempt", f"{where}.attempt")
    return attempt


def _read_completed(completed: rpc.Completed, where: str) -> Finished:
    model.check_id(completed.id, f"{where}.id")
    attempt = _read_attempt(completed.attempt, where)
    model.check_word(completed.incarnation, f"{where}.incarnation")
    if completed.give_back is not None:
        return Finished(
            completed.id,
            attempt,
            completed.incarnation,
            give_back=_text(completed.give_back) or "without a reason",
        )
    return Finished(
        completed.id,
        attempt,
        completed.incarnation,
        judged=_read_result(completed.result, f"{where}.result"),
    )


def _read_result(result: rpc.Result | None, where: str) -> Judged:
    plain = codec.result_from_rpc(result, where)
    if plain.status == model.Status.CANCELLED:
        raise Rejected(f"{where}.status: only a client cancels", f"{where}.status")
    body = encode(result)
    if len(body) > RESULT_BYTES:
        body = encode(_without_outputs(result))
    return Judged(
        status=plain.status,
        verdict=plain.verdict,
        score=plain.score,
        message=_text(plain.message),
        tests_done=len(plain.tests),
        body=body,
    )


def _without_outputs(result: Any) -> Any:
    outcomes = [result.compile, *(test.outcome for test in result.tests or ())]
    for outcome in outcomes:
        if outcome is None:
            continue
        for stream in ("stdout", "stderr"):
            if getattr(outcome, f"{stream}_data"):
                setattr(outcome, f"{stream}_data", b"")
                setattr(outcome, f"{stream}_cut", True)
    return result


def _read_executing(executing: rpc.Executing, where: str) -> InHand:
    model.check_id(executing.id, f"{where}.id")
    status = executing.status
    return InHand(
        executing.id,
        _read_attempt(executing.attempt, where),
        model.Status(status) if status in (int(s) for s in model.ACTIVE) else None,
        _count(executing.tests_done, f"{where}.tests_done", model.MAX_TESTS),
    )


def _read_facts(facts: rpc.Facts) -> Facts:
    def words(pairs: Any) -> dict[str, str]:
        kept = list((pairs or {}).items())[:256]
        return {_text(k, 64): _text(v, 256) for k, v in kept if k}

    return Facts(
        languages=words(facts.languages),
        slots=_count(facts.slots, "facts.slots", 65536),
        version=_text(facts.version),
        address=_text(facts.address),
        state=_text(facts.state) or "ok",
        message=_text(facts.message),
        system=words(facts.system),
    )


def write_reply(reply: Reply, lease_s: float) -> rpc.ReportReply:
    return rpc.ReportReply(
        cancel=[_write_ref(ref) for ref in reply.cancel],
        assign=[
            rpc.Assignment(id=a.id, attempt=a.attempt, task=decode(rpc.Task, a.body))
            for a in reply.assign
        ],
        acknowledged=[_write_ref(ref) for ref in reply.acknowledged],
        drained=reply.drained or None,
        want_facts=reply.want_facts or None,
        lease_ms=int(lease_s * 1000),
        holder=_write_process(reply.holder) if reply.holder else None,
    )


def _write_process(process: Process) -> rpc.Process:
    return rpc.Process(process.incarnation, process.address or None, process.since_ms)


def _write_ref(ref: Ref) -> rpc.TaskRef:
    return rpc.TaskRef(id=ref.id, attempt=ref.attempt)


# ---------------------------------------------------------------- cluster


def write_executor(executor: Executor) -> rpc.ExecutorInfo:
    facts = executor.facts
    return rpc.ExecutorInfo(
        name=executor.name,
        incarnation=executor.incarnation,
        facts=None
        if facts is None
        else rpc.Facts(
            languages=dict(facts.languages),
            slots=facts.slots,
            version=facts.version,
            address=facts.address,
            state=facts.state,
            message=facts.message or None,
            system=dict(facts.system),
        ),
        report_time=executor.report_time_ms,
        executing=executor.executing,
        drained=executor.drained,
        silent=executor.silent,
        address=executor.address or None,
        rivals=[
            _write_process(Process(rival.incarnation, rival.address, rival.since_ms))
            for rival in executor.rivals
        ]
        or None,
    )


def write_cluster(picture: Picture, troubles: list[str], seen_from: str) -> rpc.Cluster:
    return rpc.Cluster(
        etcd=[
            rpc.EtcdMember(
                name=member.name,
                address=member.address or None,
                healthy=member.healthy,
                leader=member.leader,
                learner=member.learner,
                message=member.message or None,
            )
            for member in picture.etcd
        ],
        database=[
            rpc.DatabaseMember(
                name=member.name,
                address=member.address,
                state=member.state,
                healthy=member.healthy,
                voter=member.voter,
                lag_ms=member.lag_ms,
                message=member.message or None,
            )
            for member in picture.database
        ],
        judicators=[
            rpc.JudicatorInfo(
                name=judicator.name,
                address=judicator.address,
                leader=judicator.leader,
                healthy=judicator.healthy,
                version=judicator.version or None,
            )
            for judicator in picture.judicators
        ],
        troubles=troubles,
        seen_from=seen_from,
        gateways=[
            rpc.GatewayInfo(
                name=gateway.name,
                address=gateway.address or None,
                version=gateway.version or None,
                report_time=gateway.report_time_ms,
                silent=gateway.silent,
                places=list(gateway.places) or None,
            )
            for gateway in picture.gateways
        ],
    )
