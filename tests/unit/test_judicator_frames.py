"""The walk over messages before they are decoded."""

from __future__ import annotations

import contextlib
import random
import struct
import threading
from typing import Any

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.Thrift import TMessageType
from thrift.transport.TTransport import TMemoryBuffer

from oj.judicator.frames import MOST_ITEMS, Budget, Malformed, check_message
from oj.rpc import Judicator
from oj.rpc import ttypes as rpc


def encode(name: str, arguments: Any, number: int = 5) -> bytes:
    out = TMemoryBuffer()
    protocol = TBinaryProtocol(out)
    protocol.writeMessageBegin(name, TMessageType.CALL, number)
    arguments.write(protocol)
    protocol.writeMessageEnd()
    return bytes(out.getvalue())


FULL_TASK = rpc.Task(
    language="c",
    source=[rpc.File("a", rpc.Data(b"x" * 1000)), rpc.File("b", rpc.Data(None, "0" * 64))],
    compile=rpc.Step(["cc", "a"], rpc.Limits(1, 2, 3, 4, 5, 6)),
    tests=[rpc.Test("t", rpc.Data(b""), rpc.Data(b"y"), 0.5)] * 20,
    tags={"a", "b"},
    compare=2,
    tolerance=0.1,
    stop_on_failure=True,
)
FACTS = rpc.Facts({"c": "12", "python": "3"}, 4, "1", "here", "ok", None, {"kernel": "6"})
MESSAGES = [
    encode("ping", Judicator.ping_args()),
    encode("add", Judicator.add_args(FULL_TASK)),
    encode("addMany", Judicator.addMany_args([FULL_TASK, rpc.Task(), FULL_TASK])),
    encode("hasBlobs", Judicator.hasBlobs_args({"a" * 64, "b" * 64})),
    encode(
        "report",
        Judicator.report_args(
            "ex", "i", [rpc.Completed("x", 1, "i", rpc.Result(10, 1))], [], 3, FACTS, 0, 9, 8
        ),
    ),
    encode("stats", Judicator.stats_result(rpc.Stats({1: 5, 2: 7}, by_verdict={1: 3}))),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_good_messages_pass(message: bytes) -> None:
    name, number = check_message(message)
    assert name in {"ping", "add", "addMany", "hasBlobs", "report", "stats"}
    assert number == 5
    assert check_message(memoryview(message)) == (name, 5)


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_that_is_cut_anywhere_is_malformed(message: bytes) -> None:
    for length in range(len(message)):
        with pytest.raises(Malformed):
            check_message(message[:length])


def test_damaged_messages_pass_or_are_malformed_and_nothing_else() -> None:
    dice = random.Random(7)
    for _ in range(3000):
        message = bytearray(dice.choice(MESSAGES))
        for _ in range(dice.randrange(1, 5)):
            message[dice.randrange(len(message))] = dice.randrange(256)
        with contextlib.suppress(Malformed):
            check_message(bytes(message))


def test_negative_numbers_of_calls_survive() -> None:
    assert check_message(encode("ping", Judicator.ping_args(), -3)) == ("ping", -3)


@pytest.mark.parametrize(
    "body",
    [
        b"\x0c\x00\x01" * 100_000,
        b"\x0f\x00\x01" + b"\x0f\x00\x00\x00\x01" * 100_000,
        b"\x0d\x00\x01" + b"\x0b\x0d\x00\x00\x00\x01\x00\x00\x00\x00" * 1000,
    ],
)
def test_deep_nesting_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed, match=r"deep|short|range"):
        check_message(b"\x80\x01\x00\x01\x00\x00\x00\x03add\x00\x00\x00\x01" + body)


def test_more_items_than_can_be_honest_are_malformed() -> None:
    for kind, size in ((b"\x0c", 1), (b"\x02", 1), (b"\x0a", 8)):
        count = MOST_ITEMS + 1
        body = b"\x0f\x00\x01" + kind + struct.pack("!I", count) + b"\0" * count * size + b"\0"
        with pytest.raises(Malformed, match="too many"):
            check_message(b"\x80\x01\x00\x01\x00\x00\x00\x03add\x00\x00\x00\x01" + body)


@pytest.mark.parametrize(
    "message",
    [b"", b"\0" * 50, b"\x80\x01\x00\x01\xff\xff\xff\xff", b"\x00\x00\x00\x03add\x01\0\0\0\x01\0"],
)
def test_what_is_not_strict_binary_is_malformed(message: bytes) -> None:
    with pytest.raises(Malformed):
        check_message(message)


def test_a_budget_makes_the_rest_wait() -> None:
    budget = Budget(100)
    assert budget.take(60, 0)
    assert not budget.take(60, 0.05)
    threading.Timer(0.05, budget.give, [60]).start()
    assert budget.take(60, 5)
