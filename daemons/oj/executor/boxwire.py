"""The messages between the executor and oj-box: bytes, no sockets.

The other side is daemons/box/box.h (struct message_head, struct answer) and
request.c. Both sides are on one machine, so numbers are in native order; the
version is part of the magic and unknown versions are refused."""

from __future__ import annotations

import enum
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

MAGIC = b"OJB2"
MOST_BYTES = 128 * 1024

_HEAD = struct.Struct("=4sIQIIII6Q")
_ANSWER = struct.Struct("=4sIQiiIIiI6Q256s")
ANSWER_BYTES = _ANSWER.size


class Kind(enum.IntEnum):
    """What is asked of a slot."""

    RUN = 1
    CANCEL = 2
    FORGET = 3


class RunFlag(enum.IntFlag):
    KEEP = 1
    DATA = 2


class AnswerKind(enum.IntEnum):
    RAN = 1
    FAILED = 2
    READY = 3
    FORGOT = 4


class AnswerFlag(enum.IntFlag):
    STDOUT_CUT = 1
    STDERR_CUT = 2
    CANCELLED = 4
    KEPT = 8
    NOT_EXECUTED = 16
    UNCOUNTED = 32
    UNSURE = 64


@dataclass(frozen=True)
class Answer:
    """What a slot, or oj-box itself after its start, says."""

    kind: AnswerKind
    number: int
    exit_code: int
    signal: int
    limit: int
    flags: AnswerFlag
    error: int
    cpu_us: int
    wall_us: int
    memory_bytes: int
    processes: int
    stdout_bytes: int
    stderr_bytes: int
    fault: str


def pack_run(
    number: int,
    flags: RunFlag,
    limits: tuple[int, int, int, int, int, int, int],
    cwd: str,
    argv: Sequence[str],
    env: Mapping[str, str],
) -> bytes:
    """A run; `limits` are cpu_us, wall_us, memory, output, processes, disk, files.

    Raises ValueError for what cannot be said in a message."""
    variables = [f"{name}={value}" for name, value in env.items()]
    strings = [text.encode("utf-8", "surrogateescape") for text in (cwd, *argv, *variables)]
    if any(b"\0" in text for text in strings):
        raise ValueError("a NUL byte in the command, its environment or directory")
    *sizes, files = limits
    head = _HEAD.pack(MAGIC, Kind.RUN, number, flags, len(argv), len(variables), files, *sizes)
    message = head + b"".join(text + b"\0" for text in strings)
    if len(message) > MOST_BYTES:
        raise ValueError(f"command and environment are longer than {MOST_BYTES} bytes")
    return message


def pack_plain(kind: Kind, number: int) -> bytes:
    """A message without a body: CANCEL or FORGET."""
    return _HEAD.pack(MAGIC, kind, number, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


def parse_answer(data: bytes) -> Answer:
    """Raises ValueError if it is not an answer of this version."""
    if len(data) != _ANSWER.size:
        raise ValueError(f"an answer of {len(data)} bytes")
    magic, kind, number, exit_code, signal, limit, flags, error, _, *rest = _ANSWER.unpack(data)
    if magic != MAGIC:
        raise ValueError(f"an answer of another version: {magic!r}")
    cpu_us, wall_us, memory_bytes, processes, stdout_bytes, stderr_bytes, fault = rest
    return Answer(
        kind=AnswerKind(kind),
        number=number,
        exit_code=exit_code,
        signal=signal,
        limit=limit,
        flags=AnswerFlag(flags),
        error=error,
        cpu_us=cpu_us,
        wall_us=wall_us,
        memory_bytes=memory_bytes,
        processes=processes,
        stdout_bytes=stdout_bytes,
        stderr_bytes=stderr_bytes,
        fault=fault.split(b"\0", 1)[0].decode("utf-8", "replace"),
    )
