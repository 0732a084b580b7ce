"""The parser of oj-box's messages, and that both sides speak the same language.

request.c has no side effects, so it is loaded as a library and called as it is.
"""

from __future__ import annotations

import ctypes
import random
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from oj.executor import boxwire

SOURCES = Path(__file__).resolve().parents[2] / "daemons" / "box"
LIMITS = (1_000_000, 3_000_000, 64 << 20, 1 << 20, 16, 8 << 20, 1000)
HEAD_BYTES = 80


class Parser:
    """request_parse() of the C side."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        # struct request: the head and pointers; what is in it does not matter here
        self._request = ctypes.create_string_buffer(1 << 18)

    def __call__(self, message: bytes) -> str | None:
        """None if the message is right, else the reason."""
        fault = ctypes.create_string_buffer(256)
        result = self._library.request_parse(
            self._request, message, ctypes.c_size_t(len(message)), fault
        )
        assert result in (0, -1)
        return None if result == 0 else fault.value.decode()

    def quantity(self, function: str, text: str) -> int | None:
        value = ctypes.c_uint64()
        call = getattr(self._library, function)
        call.restype = ctypes.c_bool
        return value.value if call(text.encode(), ctypes.byref(value)) else None


@pytest.fixture(scope="module")
def parse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parser]:
    library = tmp_path_factory.mktemp("box") / "request.so"
    sources = [str(SOURCES / name) for name in ("request.c", "fail.c")]
    subprocess.run(
        ["gcc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-O1", "-o", library, *sources], check=True
    )
    yield Parser(ctypes.CDLL(str(library)))


def pack(**changes: object) -> bytes:
    given: dict[str, object] = {
        "number": 7,
        "flags": boxwire.RunFlag(0),
        "limits": LIMITS,
        "cwd": "/box",
        "argv": ["./main", "a b", ""],
        "env": {"PATH": "/usr/bin"},
    }
    given.update(changes)
    return boxwire.pack_run(**given)  # type: ignore[arg-type]


def test_what_the_client_packs_is_what_the_box_parses(parse: Parser) -> None:
    assert parse(pack()) is None
    assert parse(pack(env={}, argv=["x"])) is None
    assert parse(pack(flags=boxwire.RunFlag(3), argv=["\u00e4\udcff"] * 4096)) is None
    for kind in (boxwire.Kind.CANCEL, boxwire.Kind.FORGET):
        assert parse(boxwire.pack_plain(kind, 1)) is None


def changed(offset: int, value: bytes) -> bytes:
    message = pack()
    return message[:offset] + value + message[offset + len(value) :]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "only 0 bytes"),
        (pack()[: HEAD_BYTES - 1], "only 79 bytes"),
        (pack() + b"\0" * boxwire.MOST_BYTES, "bytes"),
        (changed(0, b"OJB1"), "not of this version"),
        (changed(4, struct.pack("=I", 9)), "unknown kind 9"),
        (changed(16, struct.pack("=I", 8)), "unknown flags"),
        (changed(20, struct.pack("=I", 0)), "0 arguments"),
        (changed(20, struct.pack("=I", 4097)), "4097 arguments"),
        (changed(20, struct.pack("=I", 4)), "variable 0 is missing"),
        (changed(20, struct.pack("=I", 5)), "argument 4 is missing"),
        (changed(20, struct.pack("=I", 2)), "bytes too many"),
        (changed(24, struct.pack("=I", 2)), "variable 1 is missing"),
        (changed(24, struct.pack("=I", 1 << 31)), "variables"),
        (changed(28, struct.pack("=I", 0)), "limit of files"),
        (changed(28, struct.pack("=I", (1 << 20) + 1)), "limit of files"),
        (changed(HEAD_BYTES, b"b"), "no absolute working directory"),
        (pack(cwd=""), "no absolute working directory"),
        (pack(argv=["", "a"]), "the command is empty"),
        (pack()[:-1], "variable 0 is missing"),
        (pack() + b"x", "1 bytes too many"),
        (pack(limits=(0, 1, 4096, 1, 1, 1, 9)), "time limit"),
        (pack(limits=(1, 0, 4096, 1, 1, 1, 9)), "time limit"),
        (pack(limits=(1, 1 << 63, 4096, 1, 1, 1, 9)), "time limit"),
        (pack(limits=(1, 1, 0, 1, 1, 1, 9)), "memory limit"),
        (pack(limits=(1, 1, 1 << 60, 1, 1, 1, 9)), "memory limit"),
        (pack(limits=(1, 1, 4096, 1 << 60, 1, 1, 9)), "size limit"),
        (pack(limits=(1, 1, 4096, 1, 0, 1, 9)), "process limit"),
        (pack(limits=(1, 1, 4096, 1, 1, 1 << 60, 9)), "size limit"),
        (boxwire.pack_plain(boxwire.Kind.CANCEL, 1) + b"x", "1 bytes too many"),
    ],
)
def test_wrong_messages_are_refused_with_a_reason(
    parse: Parser, message: bytes, reason: str
) -> None:
    assert reason in (parse(message) or "accepted")


def test_random_damage_never_breaks_the_parser(parse: Parser) -> None:
    chance = random.Random(4)
    message = pack()
    for _ in range(20_000):
        damaged = bytearray(message)
        for _ in range(chance.randrange(1, 6)):
            damaged[chance.randrange(len(damaged))] = chance.choice((0, 1, 255, 128, 47))
        parse(bytes(damaged[: chance.randrange(len(damaged) + 1)]))
    assert parse(message) is None


@pytest.mark.parametrize(
    ("function", "text", "value"),
    [
        ("parse_duration", "2s", 2_000_000),
        ("parse_duration", "1500ms", 1_500_000),
        ("parse_duration", "3", 3_000_000),
        ("parse_duration", "1m", 60_000_000),
        ("parse_duration", "soon", None),
        ("parse_duration", "-1s", None),
        ("parse_duration", "99999999999999999s", None),
        ("parse_size", "64M", 64 << 20),
        ("parse_size", "1gib", 1 << 30),
        ("parse_size", "4096", 4096),
        ("parse_size", "1x", None),
        ("parse_size", "", None),
    ],
)
def test_durations_and_sizes_are_read(
    parse: Parser, function: str, text: str, value: int | None
) -> None:
    assert parse.quantity(function, text) == value


def test_answers_are_parsed_and_others_refused() -> None:
    numbers = (1, 5, -1, 9, 3, 1, 2, 0, 1, 2, 3, 4, 5, 6)
    data = struct.pack("=4sIQiiIIiI6Q256s", boxwire.MAGIC, *numbers, b"why")
    answer = boxwire.parse_answer(data)
    assert (answer.kind, answer.number, answer.exit_code) == (boxwire.AnswerKind.RAN, 5, -1)
    assert (answer.signal, answer.limit, answer.fault) == (9, 3, "why")
    assert (answer.flags, answer.error) == (boxwire.AnswerFlag.STDOUT_CUT, 2)
    assert (answer.cpu_us, answer.wall_us, answer.stderr_bytes) == (1, 2, 6)
    for wrong in (b"", data[:-1], b"OJB1" + data[4:], data[:4] + b"\x09" + data[5:]):
        with pytest.raises(ValueError, match=r"answer|AnswerKind"):
            boxwire.parse_answer(wrong)
