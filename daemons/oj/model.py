"""The vocabulary of the judge: tasks, limits, outcomes, and their rules.

Pure values: no I/O, no clock. The numbers of the enums are those of
thrift/judicator.thrift and are stored in the database, so they never change.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum

from oj.errors import Oversized, Rejected

INLINE_BYTES = 64 << 10
TASK_INLINE_BYTES = 1 << 20
BLOB_BYTES = 256 << 20
CHUNK_BYTES = 1 << 20
MAX_TESTS = 1000
MAX_FILES = 256
MAX_TASKS = 1000
MAX_PAGE = 1000
MAX_PROBES = 8
MAX_WAIT_MS = 60_000
MAX_NAME_BYTES = 255
MAX_PATH_BYTES = 1024
MAX_WORD_BYTES = 128
MAX_TAGS = 32
MAX_ARGUMENTS = 256
MAX_ARGUMENT_BYTES = 8 << 10
MAX_PRIORITY = 100
MAX_URL_CHARS = 2048
MOST_STORED_BYTES = 1 << 50  # that a gateway may ask for, of one user and day


class Status(IntEnum):
    """The life of a task."""

    PENDING = 1
    COMPILING = 2
    RUNNING = 3
    RETRYING = 4
    SUCCESS = 10
    COMPILE_FAILED = 11
    RUN_FAILED = 12
    CANCELLED = 13
    INTERNAL_ERROR = 14

    @property
    def word(self) -> str:
        return self.name.lower()


class Verdict(IntEnum):
    """What the contestant learns."""

    ACCEPTED = 1
    WRONG_ANSWER = 2
    PRESENTATION_ERROR = 3
    TIME_LIMIT = 4
    WALL_LIMIT = 5
    MEMORY_LIMIT = 6
    OUTPUT_LIMIT = 7
    RUNTIME_ERROR = 8
    COMPILE_ERROR = 9
    JUDGE_ERROR = 10
    SKIPPED = 11

    @property
    def word(self) -> str:
        return self.name.lower()


class Compare(IntEnum):
    """How output is compared with the expected output."""

    EXACT = 1
    TOKENS = 2
    FLOATS = 3


WAITING = frozenset({Status.PENDING, Status.RETRYING})
ACTIVE = frozenset({Status.COMPILING, Status.RUNNING})
FINAL = frozenset(
    {
        Status.SUCCESS,
        Status.COMPILE_FAILED,
        Status.RUN_FAILED,
        Status.CANCELLED,
        Status.INTERNAL_ERROR,
    }
)

# A claim moves a waiting task to COMPILING (or RUNNING, without a compile
# step); an executor that is lost moves it to RETRYING. Final is final.
_MOVES: dict[Status, frozenset[Status]] = {
    Status.PENDING: ACTIVE | {Status.CANCELLED, Status.INTERNAL_ERROR},
    Status.RETRYING: ACTIVE | {Status.CANCELLED, Status.INTERNAL_ERROR},
    Status.COMPILING: FINAL | {Status.RUNNING, Status.RETRYING},
    Status.RUNNING: FINAL | {Status.RETRYING},
}


def can_move(old: Status, new: Status) -> bool:
    """Whether a task may go from one status to another."""
    return new in _MOVES.get(old, frozenset())


@dataclass(frozen=True)
class Data:
    """Some bytes: inline, or a blob's digest."""

    inline: bytes | None = None
    digest: str | None = None


@dataclass(frozen=True)
class File:
    name: str
    data: Data


@dataclass(frozen=True)
class Limits:
    """What one step may use; None: the default of whoever runs it."""

    cpu_ms: int | None = None
    wall_ms: int | None = None
    memory_bytes: int | None = None
    output_bytes: int | None = None
    processes: int | None = None
    disk_bytes: int | None = None

    def over(self, defaults: Limits) -> Limits:
        """These limits, with gaps filled from `defaults`."""
        return Limits(
            *(
                getattr(defaults, f.name)
                if getattr(self, f.name) is None
                else getattr(self, f.name)
                for f in fields(Limits)
            )
        )


# The most that anyone may ask for; executors may be configured to give less.
MOST = Limits(
    cpu_ms=3_600_000,
    wall_ms=7_200_000,
    memory_bytes=1 << 40,
    output_bytes=1 << 30,
    processes=4096,
    disk_bytes=16 << 30,
)


@dataclass(frozen=True)
class Step:
    command: tuple[str, ...] = ()
    limits: Limits = Limits()


@dataclass(frozen=True)
class Test:
    __test__ = False  # not for pytest

    name: str = ""
    input: Data | None = None
    expected: Data | None = None
    weight: float = 1.0


@dataclass(frozen=True)
class Task:
    """One program to be judged once."""

    language: str = ""
    source: tuple[File, ...] = ()
    data: tuple[File, ...] = ()
    compile: Step = Step()
    execute: Step = Step()
    tests: tuple[Test, ...] = ()
    user: str = ""
    priority: int = 0
    tags: frozenset[str] = frozenset()
    key: str | None = None
    compare: Compare = Compare.TOKENS
    tolerance: float = 1e-6
    stop_on_failure: bool = False
    webhook: str | None = None  # called by a gateway once the task is done
    webhook_token: str | None = None


@dataclass(frozen=True)
class Outcome:
    """What one run used and how it ended."""

    cpu_us: int = 0
    wall_us: int = 0
    memory_bytes: int = 0
    processes: int = 0
    exit_code: int | None = None
    signal: int | None = None
    stdout: bytes = b""
    stdout_cut: bool = False
    stderr: bytes = b""
    stderr_cut: bool = False

    @property
    def cpu_ms(self) -> int:
        return self.cpu_us // 1000

    @property
    def wall_ms(self) -> int:
        return self.wall_us // 1000


@dataclass(frozen=True)
class TestResult:
    __test__ = False

    name: str
    verdict: Verdict
    outcome: Outcome = Outcome()
    message: str = ""


@dataclass(frozen=True)
class Result:
    """How a task ended."""

    status: Status
    verdict: Verdict
    compile: Outcome | None = None
    tests: tuple[TestResult, ...] = field(default=())
    score: float = 0.0
    message: str = ""


_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_LANGUAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+#._-]{0,63}\Z")
_TASK_ID = re.compile(r"[0-9a-f]{24}\Z")
_URL = re.compile(r"https?://[A-Za-z0-9._~%:\[\]-]+(?:/[!-~]*)?\Z")
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which UTF-8 does not have
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")


def check_id(task_id: object, where: str = "id") -> str:
    """A task's id as `add` returns it: 24 hex digits."""
    if not isinstance(task_id, str) or not _TASK_ID.match(task_id):
        raise Rejected(f"{where} is not a task id (24 hex digits)", where)
    return task_id


def add_time_ms(task_id: str) -> int:
    """When a task was added, which its id tells: four bytes of seconds, two of their fraction."""
    return int(task_id[:8], 16) * 1000 + (int(task_id[8:12], 16) * 1000 >> 16)


def check_digest(digest: object, where: str = "digest") -> str:
    if not isinstance(digest, str) or not _DIGEST.match(digest):
        raise Rejected(f"{where} is not a lower-case hex SHA-256", where)
    return digest


def check_node(name: object, where: str) -> str:
    """The name of an executor or judicator."""
    if not isinstance(name, str) or not _NODE.match(name):
        raise Rejected(f"{where} is not a node name (letters, digits, '.', '_', '-')", where)
    return name


def check_word(word: object, where: str, *, empty: bool = False) -> str:
    """A short line of text: a user, a tag, a key, a test's name."""
    if not isinstance(word, str):
        raise Rejected(f"{where} is not text", where)
    if not word and not empty:
        raise Rejected(f"{where} is empty", where)
    if len(word.encode("utf-8", "replace")) > MAX_WORD_BYTES:
        raise Oversized(f"{where} is longer than {MAX_WORD_BYTES} bytes", MAX_WORD_BYTES, where)
    if not word.isprintable():
        raise Rejected(f"{where} has characters that cannot be printed", where)
    return word


def check_file_name(name: object, where: str) -> str:
    """A relative path that stays below the directory it is put in."""
    if not isinstance(name, str) or not name:
        raise Rejected(f"{where} is not a file name", where)
    encoded = name.encode("utf-8", "replace")
    if len(encoded) > MAX_PATH_BYTES:
        raise Oversized(f"{where} is longer than {MAX_PATH_BYTES} bytes", MAX_PATH_BYTES, where)
    if not name.isprintable() or "\\" in name:
        raise Rejected(f"{where} has characters that are not allowed in a file name", where)
    for part in name.split("/"):
        if part in ("", ".", ".."):
            raise Rejected(f"{where} must be relative, without empty parts, '.' or '..'", where)
        if len(part.encode("utf-8", "replace")) > MAX_NAME_BYTES:
            raise Oversized(
                f"{where} has a part longer than {MAX_NAME_BYTES} bytes", MAX_NAME_BYTES, where
            )
    return name


def _check_data(data: Data, where: str) -> int:
    """Checks one Data and returns how many bytes it holds inline."""
    if (data.inline is None) == (data.digest is None):
        raise Rejected(f"{where} needs exactly one of inline_data and digest", where)
    if data.digest is not None:
        check_digest(data.digest, f"{where}.digest")
        return 0
    assert data.inline is not None
    if not isinstance(data.inline, bytes):
        raise Rejected(f"{where}.inline_data is not bytes", f"{where}.inline_data")
    if len(data.inline) > INLINE_BYTES:
        raise Oversized(
            f"{where}.inline_data is larger than {INLINE_BYTES} bytes: send it as a blob",
            INLINE_BYTES,
            f"{where}.inline_data",
        )
    return len(data.inline)


def _check_files(files: Sequence[File], where: str) -> int:
    if len(files) > MAX_FILES:
        raise Rejected(f"{where} has more than {MAX_FILES} files", where)
    inline_bytes = 0
    seen: set[str] = set()
    for number, file in enumerate(files):
        here = f"{where}[{number}]"
        check_file_name(file.name, f"{here}.name")
        if file.name in seen:
            raise Rejected(f"{here}.name repeats '{file.name}'", f"{here}.name")
        seen.add(file.name)
        inline_bytes += _check_data(file.data, f"{here}.data")
    for name in seen:
        parts = name.split("/")
        for depth in range(1, len(parts)):
            if "/".join(parts[:depth]) in seen:
                raise Rejected(f"{where}: '{name}' lies below a file", where)
    return inline_bytes


def _check_limits(limits: Limits, where: str) -> None:
    for f in fields(Limits):
        value, most = getattr(limits, f.name), getattr(MOST, f.name)
        if value is None:
            continue
        here = f"{where}.{f.name}"
        if not isinstance(value, int) or value <= 0:
            raise Rejected(f"{here} must be above 0", here)
        if value > most:
            raise Rejected(f"{here} must be at most {most}", here)


def _check_step(step: Step, where: str) -> None:
    _check_limits(step.limits, f"{where}.limits")
    if len(step.command) > MAX_ARGUMENTS:
        raise Rejected(f"{where}.command has more than {MAX_ARGUMENTS} words", f"{where}.command")
    for number, word in enumerate(step.command):
        here = f"{where}.command[{number}]"
        if not isinstance(word, str) or "\0" in word or (number == 0 and not word):
            raise Rejected(f"{here} is not a word of a command", here)
        if _SURROGATE.search(word):
            raise Rejected(f"{here} is not UTF-8", here)
        if len(word.encode("utf-8", "replace")) > MAX_ARGUMENT_BYTES:
            raise Oversized(
                f"{here} is longer than {MAX_ARGUMENT_BYTES} bytes", MAX_ARGUMENT_BYTES, here
            )


def check_task(task: Task) -> None:
    """Raises Rejected or Oversized, naming the field, if the task is not sound."""
    if task.language and not _LANGUAGE.match(task.language):
        raise Rejected("language is not a language's name", "language")
    if not task.language and not task.execute.command:
        raise Rejected("a task needs a language or an execute.command", "language")
    if task.language and not task.source:
        raise Rejected("a task with a language needs a source file", "source")
    inline_bytes = _check_files(task.source, "source") + _check_files(task.data, "data")
    names = {file.name for file in task.source}
    for number, file in enumerate(task.data):
        if file.name in names:
            raise Rejected(f"data[{number}].name is also a source file", f"data[{number}].name")
    _check_step(task.compile, "compile")
    _check_step(task.execute, "execute")
    if len(task.tests) > MAX_TESTS:
        raise Rejected(f"tests has more than {MAX_TESTS}", "tests")
    for number, test in enumerate(task.tests):
        here = f"tests[{number}]"
        check_word(test.name, f"{here}.name", empty=True)
        if test.input is not None:
            inline_bytes += _check_data(test.input, f"{here}.input")
        if test.expected is not None:
            inline_bytes += _check_data(test.expected, f"{here}.expected")
        if not (math.isfinite(test.weight) and test.weight >= 0):
            raise Rejected(f"{here}.weight must be 0 or more", f"{here}.weight")
    if inline_bytes > TASK_INLINE_BYTES:
        raise Oversized(
            f"the task holds more than {TASK_INLINE_BYTES} bytes inline: send blobs",
            TASK_INLINE_BYTES,
        )
    check_word(task.user, "user", empty=True)
    if not -MAX_PRIORITY <= task.priority <= MAX_PRIORITY:
        raise Rejected(f"priority must be between -{MAX_PRIORITY} and {MAX_PRIORITY}", "priority")
    if len(task.tags) > MAX_TAGS:
        raise Rejected(f"tags has more than {MAX_TAGS}", "tags")
    for tag in task.tags:
        check_word(tag, "tags")
    if task.key is not None:
        check_word(task.key, "key")
    if not (math.isfinite(task.tolerance) and task.tolerance >= 0):
        raise Rejected("tolerance must be 0 or more", "tolerance")
    if task.webhook is not None:
        check_webhook(task.webhook)
    if task.webhook_token is not None:
        check_word(task.webhook_token, "webhook_token")


def check_webhook(url: object, where: str = "webhook") -> str:
    """An address that a gateway could call; whether it may is its own affair."""
    if not isinstance(url, str) or not _URL.match(url):
        raise Rejected(f"{where} is not an http or https URL", where)
    if len(url) > MAX_URL_CHARS:
        raise Oversized(f"{where} is longer than {MAX_URL_CHARS} characters", MAX_URL_CHARS, where)
    return url


@dataclass(frozen=True)
class Attempt:
    """One try to judge a task."""

    number: int
    executor: str
    start_time_ms: int = 0
    ended: str = ""


@dataclass(frozen=True)
class TaskInfo:
    """A task as the judicators know it."""

    id: str
    status: Status
    verdict: Verdict | None = None
    executor: str = ""
    attempt: int = 0
    add_time_ms: int = 0
    start_time_ms: int | None = None
    report_time_ms: int | None = None
    tests_done: int = 0
    tests_total: int = 0
    score: float | None = None
    message: str = ""
    language: str = ""
    user: str = ""
    priority: int = 0
    tags: frozenset[str] = frozenset()
    key: str | None = None
    task: Task | None = None
    result: Result | None = None
    attempts: tuple[Attempt, ...] = ()

    @property
    def done(self) -> bool:
        return self.status in FINAL
