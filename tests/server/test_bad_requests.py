"""Whatever is sent to a judicator: a typed error or a closed connection, and it serves on."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TApplicationException, TMessageType, TType
from thrift.transport.TTransport import TMemoryBuffer, TTransportException

import servers
from executors import Caller, FakeExecutor, JudicatorUnderTest, make_result, make_task
from oj.rpc import Judicator
from oj.rpc import ttypes as rpc

MakeTask = Callable[..., Any]
UNKNOWN_ID = "0123456789abcdef01234567"
CALL_ADD = b"\x80\x01\x00\x01\x00\x00\x00\x03add\x00\x00\x00\x01"


@pytest.fixture(autouse=True)
def serves_on(judicator: JudicatorUnderTest) -> Iterator[None]:
    """After each test: the same process, and it answers a newcomer."""
    pid = judicator.daemon.pid
    yield
    assert judicator.daemon.alive and judicator.daemon.pid == pid
    with Caller(judicator.port) as caller:
        assert caller.version().oj


@pytest.fixture(scope="module", autouse=True)
def half_sent(judicator: JudicatorUnderTest) -> Iterator[tuple[socket.socket, float]]:
    """A connection with half a frame, and when that was sent."""
    with connect(judicator) as sock:
        sock.sendall(struct.pack("!I", 1000) + b"\x80\x01")
        yield sock, time.monotonic()


def memory_mb(judicator: JudicatorUnderTest) -> float:
    for line in Path(f"/proc/{judicator.daemon.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no VmRSS")


def connect(judicator: JudicatorUnderTest) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", judicator.port), 5)
    sock.settimeout(20)
    return sock


def is_closed(sock: socket.socket) -> bool:
    """Reads to the end; True when the other side has closed."""
    try:
        while sock.recv(65536):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def send_call(sock: socket.socket, name: str, write: Callable[[TBinaryProtocol], None]) -> None:
    out = TMemoryBuffer()
    protocol = TBinaryProtocol(out)
    protocol.writeMessageBegin(name, TMessageType.CALL, 1)
    write(protocol)
    protocol.writeMessageEnd()
    sock.sendall(struct.pack("!I", len(out.getvalue())) + out.getvalue())


def read_answer(sock: socket.socket, result: Any) -> Any:
    """The result struct of an answer, or the TApplicationException that came instead."""
    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack("!I", data[:4])[0]:
        piece = sock.recv(65536)
        assert piece, "closed without an answer"
        data += piece
    protocol = TBinaryProtocol(TMemoryBuffer(data[4:]))
    _, kind, _ = protocol.readMessageBegin()
    if kind == TMessageType.EXCEPTION:
        result = TApplicationException()
    result.read(protocol)
    return result


def field(task: Any, **changes: Any) -> Any:
    for name, value in changes.items():
        setattr(task, name, value)
    return task


WRONG_TASKS: list[tuple[str, dict[str, Any], str]] = [
    ("no language and no command", {"language": None, "execute": None}, "language"),
    ("a language that is no name", {"language": "c\n"}, "language"),
    ("a language without source", {"source": None}, "source"),
    ("a name that climbs", {"source": [rpc.File("../x", rpc.Data(b""))]}, "source[0].name"),
    ("a name from the root", {"source": [rpc.File("/x", rpc.Data(b""))]}, "source[0].name"),
    ("a name with an empty part", {"source": [rpc.File("a//b", rpc.Data(b""))]}, "source[0].name"),
    ("no data", {"source": [rpc.File("a", None)]}, "source[0]"),
    ("neither bytes nor digest", {"source": [rpc.File("a", rpc.Data())]}, "source[0].data"),
    ("both", {"source": [rpc.File("a", rpc.Data(b"x", "0" * 64))]}, "source[0].data"),
    (
        "a blob that is not stored",
        {"source": [rpc.File("a", rpc.Data(None, "0" * 64))]},
        "source[0].data.digest",
    ),
    (
        "a test's blob that is not stored",
        {"tests": [rpc.Test(), rpc.Test(input=rpc.Data(None, "1" * 64))]},
        "tests[1].input.digest",
    ),
    (
        "a digest that is none",
        {"tests": [rpc.Test(expected=rpc.Data(None, "XYZ"))]},
        "tests[0].expected.digest",
    ),
    (
        "a negative limit",
        {"execute": rpc.Step(limits=rpc.Limits(cpu_ms=-1))},
        "execute.limits.cpu_ms",
    ),
    (
        "no memory at all",
        {"compile": rpc.Step(limits=rpc.Limits(memory_bytes=0))},
        "compile.limits.memory_bytes",
    ),
    (
        "an absurd limit",
        {"execute": rpc.Step(limits=rpc.Limits(wall_ms=2**31 - 1))},
        "execute.limits.wall_ms",
    ),
    ("a priority out of range", {"priority": 101}, "priority"),
    ("a negative weight", {"tests": [rpc.Test(weight=-1.0)]}, "tests[0].weight"),
    ("a weight that is no number", {"tests": [rpc.Test(weight=float("nan"))]}, "tests[0].weight"),
    ("an unknown comparison", {"compare": 99}, "compare"),
    ("a negative tolerance", {"tolerance": -0.1}, "tolerance"),
    ("an empty key", {"key": ""}, "key"),
    ("an empty tag", {"tags": {""}}, "tags"),
    ("a user with a line break", {"user": "a\nb"}, "user"),
    ("a command with a NUL", {"execute": rpc.Step(command=["a\0b"])}, "execute.command[0]"),
    ("too many tests", {"tests": [rpc.Test()] * 1001}, "tests"),
]


@pytest.mark.parametrize(
    ("changes", "where"), [w[1:] for w in WRONG_TASKS], ids=[w[0] for w in WRONG_TASKS]
)
def test_a_wrong_task_is_refused_by_its_field(
    caller: Caller, task: MakeTask, changes: dict[str, Any], where: str
) -> None:
    with pytest.raises(rpc.InvalidRequest) as error:
        caller.add(field(task(), **changes))
    assert error.value.field == where
    assert error.value.message
    with pytest.raises(rpc.InvalidRequest) as error:
        caller.addMany([make_task(), field(task(), **changes)])
    assert error.value.field == f"tasks[1].{where}"


def test_too_much_inline_data_is_refused_with_the_limit(caller: Caller, task: MakeTask) -> None:
    with pytest.raises(rpc.TooLarge) as error:
        caller.add(task(source=[rpc.File("a", rpc.Data(b"x" * 65537))]))
    assert (error.value.field, error.value.limit_bytes) == ("source[0].data.inline_data", 65536)
    files = [rpc.File(f"f{i}", rpc.Data(b"x" * 65536)) for i in range(17)]
    with pytest.raises(rpc.TooLarge) as error:
        caller.add(task(source=files))
    assert error.value.limit_bytes == 1 << 20
    with pytest.raises(rpc.TooLarge) as error:
        caller.add(task(user="u" * 200))
    assert error.value.limit_bytes == 128


def test_a_100_mb_source_costs_one_connection(
    judicator: JudicatorUnderTest, task: MakeTask
) -> None:
    before = memory_mb(judicator)
    with (
        Caller(judicator.port) as caller,
        pytest.raises((TTransportException, BrokenPipeError, ConnectionResetError)),
    ):
        caller.add(task(source=[rpc.File("a", rpc.Data(b"x" * 100_000_000))]))
    assert memory_mb(judicator) - before < 30


def test_a_language_that_no_executor_ever_offered_is_refused(
    caller: Caller, task: MakeTask, executor: Callable[..., FakeExecutor], language: str
) -> None:
    ex = executor()
    ex.close()
    with pytest.raises(rpc.InvalidRequest) as error:
        caller.add(task(language="brainfuck-2000"))
    assert error.value.field == "language"
    assert language in error.value.message  # says what is there
    assert caller.add(task())  # though nobody who offers it is connected


@pytest.mark.parametrize("task_id", ["", "x", "../../etc", UNKNOWN_ID.upper(), "0" * 25])
def test_an_id_that_is_none_is_refused(caller: Caller, task_id: str) -> None:
    for call in (
        lambda: caller.get(task_id, 0),
        lambda: caller.cancel(task_id),
        lambda: caller.wait(task_id, 1, 0, 0, -1),
    ):
        with pytest.raises(rpc.InvalidRequest) as error:
            call()
        assert error.value.field == "id"


def test_an_unknown_id_is_not_found(caller: Caller) -> None:
    for call in (
        lambda: caller.get(UNKNOWN_ID, 7),
        lambda: caller.cancel(UNKNOWN_ID),
        lambda: caller.wait(UNKNOWN_ID, 1, 5000, 0, -1),
    ):
        with pytest.raises(rpc.NotFound) as error:
            call()
        assert error.value.id == UNKNOWN_ID
    with pytest.raises(rpc.NotFound):
        caller.drain("nobody", True)
    with pytest.raises(rpc.NotFound):
        caller.getBlob("0" * 64, 0, 10)


def test_numbers_out_of_range_are_refused(caller: Caller) -> None:
    for call, where in (
        (lambda: caller.get(UNKNOWN_ID, 8), "what"),
        (lambda: caller.get(UNKNOWN_ID, -1), "what"),
        (lambda: caller.wait(UNKNOWN_ID, 99, 0, 0, -1), "known_status"),
        (lambda: caller.wait(UNKNOWN_ID, 1, -5, 0, -1), "wait_ms"),
        (lambda: caller.search(rpc.Conditions(), "", 0), "limit"),
        (lambda: caller.search(rpc.Conditions(), "", -3), "limit"),
        (lambda: caller.search(rpc.Conditions(), "nonsense", 5), "cursor"),
        (lambda: caller.search(rpc.Conditions(statuses={77}), "", 5), "statuses"),
        (lambda: caller.search(rpc.Conditions(verdicts={0}), "", 5), "verdicts"),
        (lambda: caller.search(rpc.Conditions(ids={"x"}), "", 5), "ids"),
        (lambda: caller.search(rpc.Conditions(user="u" * 500), "", 5), "user"),
        (lambda: caller.getBlob("0" * 64, -1, 5), "offset"),
        (lambda: caller.getBlob("0" * 64, 0, -5), "length"),
        (lambda: caller.getBlob("zz", 0, 5), "digest"),
        (lambda: caller.putBlob("0" * 64, -1, b"", True), "offset"),
        (lambda: caller.hasBlobs({"zz"}), "digests"),
        (lambda: caller.drain("../x", True), "executor"),
        (lambda: caller.addMany([rpc.Task()] * 1001), "tasks"),
    ):
        with pytest.raises(rpc.InvalidRequest) as error:
            call()
        assert error.value.field == where


def test_a_wrong_report_is_refused_by_its_field(caller: Caller) -> None:
    def report(**changes: Any) -> Any:
        fields = {
            "executor": "ex",
            "incarnation": "i",
            "complete": [],
            "executing": [],
            "vacant": 0,
            "facts": None,
            "wait_ms": 0,
            "number": 1,
            "settled": 0,
        }
        return caller.report(*{**fields, **changes}.values())

    for changes, where in (
        ({"executor": "a/b"}, "executor"),
        ({"executor": ""}, "executor"),
        ({"incarnation": ""}, "incarnation"),
        ({"incarnation": "x" * 500}, "incarnation"),
        ({"vacant": -1}, "vacant"),
        ({"wait_ms": -1}, "wait_ms"),
        ({"executing": [rpc.Executing("x", 1)]}, "executing[0].id"),
        ({"executing": [rpc.Executing(UNKNOWN_ID, 0)]}, "executing[0].attempt"),
        ({"complete": [rpc.Completed(UNKNOWN_ID, 1, "i")]}, "complete[0].result"),
        (
            {"complete": [rpc.Completed(UNKNOWN_ID, 1, "i", rpc.Result(status=3, verdict=1))]},
            "complete[0].result.status",
        ),
        (
            {"complete": [rpc.Completed(UNKNOWN_ID, 1, "i", make_result(status=13))]},
            "complete[0].result.status",
        ),
        ({"executing": [rpc.Executing(UNKNOWN_ID, 1)] * 5000}, "executing"),
    ):
        with pytest.raises(rpc.InvalidRequest) as error:
            report(**changes)
        assert error.value.field == where


def test_arguments_of_wrong_types_get_an_error(judicator: JudicatorUnderTest) -> None:
    def wrong_field(protocol: TBinaryProtocol) -> None:  # get(id=i64, what=string)
        protocol.writeFieldBegin("id", TType.I64, 1)
        protocol.writeI64(7)
        protocol.writeFieldBegin("what", TType.STRING, 2)
        protocol.writeString("all")
        protocol.writeFieldStop()

    def wrong_items(protocol: TBinaryProtocol) -> None:  # hasBlobs(digests=set<i32>)
        protocol.writeFieldBegin("digests", TType.SET, 1)
        protocol.writeSetBegin(TType.I32, 2)
        protocol.writeI32(1)
        protocol.writeI32(2)
        protocol.writeFieldStop()

    def task_as_text(protocol: TBinaryProtocol) -> None:  # add(task=string)
        protocol.writeFieldBegin("task", TType.STRING, 1)
        protocol.writeString("int main() {}")
        protocol.writeFieldStop()

    def not_utf8(protocol: TBinaryProtocol) -> None:  # cancel(id=bytes)
        protocol.writeFieldBegin("id", TType.STRING, 1)
        protocol.writeBinary(b"\xff\xfe\xfd")
        protocol.writeFieldStop()

    for name, write, result in (
        ("get", wrong_field, Judicator.get_result()),
        ("hasBlobs", wrong_items, Judicator.hasBlobs_result()),
        ("add", task_as_text, Judicator.add_result()),
        ("cancel", not_utf8, Judicator.cancel_result()),
        ("get", lambda p: p.writeFieldStop(), Judicator.get_result()),
        ("report", lambda p: p.writeFieldStop(), Judicator.report_result()),
        ("addMany", lambda p: p.writeFieldStop(), Judicator.addMany_result()),
    ):
        with connect(judicator) as sock:
            send_call(sock, name, write)
            answer = read_answer(sock, result)
            assert isinstance(answer, TApplicationException) or answer.invalid, name


def test_an_unknown_call_is_refused_and_the_connection_goes_on(
    judicator: JudicatorUnderTest,
) -> None:
    with connect(judicator) as sock:
        send_call(sock, "selfDestruct", lambda p: p.writeFieldStop())
        answer = read_answer(sock, None)
        assert answer.type == TApplicationException.UNKNOWN_METHOD
        send_call(sock, "version", lambda p: p.writeFieldStop())
        assert read_answer(sock, Judicator.version_result()).success.oj


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: oj\r\n\r\n",
        b"\x00" * 64,
        b"\xff" * 64,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"x" * 500,
        struct.pack("!I", 20) + b"\x80\x01\x00\x01" + b"\xff" * 16,
        struct.pack("!I", 8) + b"\x00\x00\x00\x03abcd",
        struct.pack("!I", (16 << 20) + 1),
        struct.pack("!I", 30)
        + b"\x80\x01\x00\x01\x00\x00\x00\x03add\x00\x00\x00\x01"
        + b"\x0f" * 15,
    ],
)
def test_garbage_costs_one_connection(judicator: JudicatorUnderTest, data: bytes) -> None:
    with connect(judicator) as sock:
        sock.sendall(data)
        assert is_closed(sock)


def test_random_garbage_in_good_frames_costs_connections_only(
    judicator: JudicatorUnderTest,
) -> None:
    dice = random.Random(20)
    for _ in range(200):
        body = CALL_ADD + bytes(dice.randrange(16) for _ in range(dice.randrange(1, 200)))
        with connect(judicator) as sock:
            sock.sendall(struct.pack("!I", len(body)) + body)
            sock.shutdown(socket.SHUT_WR)
            assert is_closed(sock)


def test_a_message_that_nests_without_end_does_not_end_the_process(
    judicator: JudicatorUnderTest,
) -> None:
    for opening in (b"\x0c\x00\x63", b"\x0f\x00\x63\x0f\x00\x00\x00\x01"):
        body = CALL_ADD + opening + opening[-5 if opening[0] == 15 else -3 :] * 300_000
        with connect(judicator) as sock:
            sock.sendall(struct.pack("!I", len(body)) + body)
            assert is_closed(sock)


def test_a_frame_full_of_empty_items_does_not_fill_the_memory(
    judicator: JudicatorUnderTest,
) -> None:
    before = memory_mb(judicator)
    count = 15 << 20
    body = b"".join(
        [
            b"\x80\x01\x00\x01\x00\x00\x00\x07addMany\x00\x00\x00\x01",
            b"\x0f\x00\x01\x0c" + struct.pack("!I", count),
            b"\x00" * count,
            b"\x00",
        ]
    )
    with connect(judicator) as sock:
        sock.sendall(struct.pack("!I", len(body)) + body)
        assert is_closed(sock)
    assert memory_mb(judicator) - before < 60


def test_200_idle_connections_cost_little_and_hold_nobody_up(
    judicator: JudicatorUnderTest,
) -> None:
    before = memory_mb(judicator)
    idle = [connect(judicator) for _ in range(200)]
    try:
        for sock in idle[:100]:
            sock.sendall(struct.pack("!I", 5000))  # half of them have begun a frame
        with Caller(judicator.port) as caller:

            def ask() -> float:
                begun = time.monotonic()
                for _ in range(20):
                    caller.version()
                return time.monotonic() - begun

            servers.assert_within(2, ask)
        assert memory_mb(judicator) - before < 60
    finally:
        for sock in idle:
            sock.close()


def test_many_large_frames_at_once_do_not_fill_the_memory(judicator: JudicatorUnderTest) -> None:
    before = memory_mb(judicator)
    senders = [connect(judicator) for _ in range(30)]
    piece = os.urandom(1 << 20)
    try:
        for sock in senders:
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sock.send(struct.pack("!I", 16 << 20) + piece)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            for sock in senders:
                with contextlib.suppress(BlockingIOError, ConnectionError):
                    sock.send(piece)
            time.sleep(0.02)
        assert memory_mb(judicator) - before < 150
    finally:
        for sock in senders:
            sock.close()


def test_connections_above_the_limit_are_closed(
    start_judicator: Callable[..., JudicatorUnderTest],
) -> None:
    small = start_judicator(settings="max_connections = 16")
    kept: list[Caller] = []

    def is_full() -> bool:
        """One at a time: its check of itself has a connection now and then."""
        try:
            caller = small.call()
            caller.version()
        except (TTransportException, ConnectionError):
            return False
        kept.append(caller)
        return len(kept) == 16

    servers.wait_until(is_full, 60, "16 connections")
    with pytest.raises((TTransportException, ConnectionError)):
        small.call().version()
    kept[0].version()
    kept.pop().close()
    servers.wait_until(lambda: _answers(small), 5)


def _answers(judicator: JudicatorUnderTest) -> bool:
    try:
        with Caller(judicator.port) as caller:
            return bool(caller.version().oj)
    except (TTransportException, ConnectionError):
        return False


def test_a_half_sent_frame_is_given_up_after_a_while(
    half_sent: tuple[socket.socket, float],
) -> None:
    sock, sent_s = half_sent  # before the other tests, so that they need not wait for this
    assert is_closed(sock)
    assert time.monotonic() - sent_s > 5


def test_a_port_that_is_taken_is_named(
    start_judicator: Callable[..., JudicatorUnderTest],
    start_daemon: Callable[..., servers.Daemon],
) -> None:
    first = start_judicator()
    second = start_daemon("judicator", first.config, wait=False)
    assert second.wait(30) == 1
    told = f"cannot listen on 127.0.0.1:{first.port}: Address already in use"
    assert told in second.log() and "Traceback" not in second.log()
    servers.wait_until(lambda: second.status == told, what="the status")
