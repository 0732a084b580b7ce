"""What of an error reaches the journal: where and what kind, and nothing that users wrote."""

from __future__ import annotations

import logging
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bson
import pytest
from pymongo.errors import BulkWriteError, DuplicateKeyError, OperationFailure

import servers
from oj import redact
from oj.codec import unpack
from oj.errors import Rejected, Unavailable
from oj.judicator.store.database import translated
from oj.rpc import ttypes as rpc
from oj.service import JournalHandler

CANARY = "CANARY-7f3a"
DOCUMENT = {"_id": 1, "src": CANARY}
DETAILS = {
    "writeErrors": [{"index": 0, "code": 11000, "errmsg": f"dup: {CANARY}", "op": DOCUMENT}],
    "writeConcernErrors": [],
}


def fail_to_decode() -> None:
    (CANARY.encode() + b"\xff").decode()


def fail_to_encode_a_value() -> None:
    bson.BSON.encode({"a": type(CANARY, (), {"__repr__": lambda _: repr(CANARY)})()})


def fail_in_a_chain() -> None:
    try:
        int(CANARY)
    except ValueError as error:
        try:
            raise KeyError(CANARY) from error
        except KeyError:
            raise RuntimeError("while doing this")  # noqa: B904 - the context is the point


def raise_it(error: BaseException) -> Callable[[], None]:
    def work() -> None:
        raise error

    return work


FAILURES: list[Callable[[], Any]] = [
    fail_to_decode,
    fail_to_encode_a_value,
    fail_in_a_chain,
    lambda: {}[CANARY],
    lambda: float(CANARY),
    lambda: int(f"it's {CANARY}"),
    lambda: Path("/nowhere/x").read_text(CANARY),
    lambda: unpack(rpc.Task, CANARY.encode()),
    raise_it(BulkWriteError(DETAILS)),
    raise_it(DuplicateKeyError(f'dup key: {{ k: "{CANARY}" }}', 11000, DETAILS)),
    raise_it(OperationFailure(f"cannot do '{CANARY}'", 2, {"op": DOCUMENT})),
    raise_it(rpc.InvalidRequest(message=f"no such thing as '{CANARY}'")),
    raise_it(ValueError(f"not closed: '{CANARY}")),
    raise_it(ValueError(f"'a' and \"{CANARY}")),
    raise_it(ConnectionError(f"GET /hook?token={CANARY} failed")),
    raise_it(Exception(DOCUMENT)),
    raise_it(Exception("x", [CANARY])),
]


def error_of(work: Callable[[], Any]) -> BaseException:
    try:
        work()
    except BaseException as error:  # noqa: BLE001 - whatever it is
        return error
    raise AssertionError("it did not fail")


@pytest.mark.parametrize("work", FAILURES)
def test_the_journal_gets_no_values_of_any_field(work: Callable[[], Any]) -> None:
    sent: list[dict[str, Any]] = []
    handler = JournalHandler(
        sender_function=lambda text, /, **fields: sent.append({"MESSAGE": text, **fields})
    )
    handler.setFormatter(redact.Formatter("%(message)s"))
    error = error_of(work)
    record = logging.LogRecord(
        "oj.x",
        logging.ERROR,
        __file__,
        1,
        "task %s failed",
        ("7",),
        (type(error), error, error.__traceback__),
    )
    record.MESSAGE_ID = "0e6b1d2b5b0c4d5f9d0a4b6f6f0d1c01"
    handler.handle(record)
    (fields,) = sent
    assert CANARY not in repr(fields)
    assert fields["MESSAGE"].startswith("task 7 failed\nTraceback (most recent call last):\n")
    assert type(error).__qualname__ in fields["MESSAGE"]
    assert "in work" in fields["MESSAGE"] or __file__ in fields["MESSAGE"]
    assert fields["MESSAGE_ID"] == record.MESSAGE_ID
    assert CANARY not in redact.describe(error)


def test_what_is_about_code_and_what_is_ours_is_told() -> None:
    assert redact.describe(error_of(lambda: None.x)) == (  # type: ignore[attr-defined]
        "AttributeError: 'NoneType' object has no attribute 'x'"
    )
    assert redact.describe(Rejected("language 'x' is not offered")) == (
        "Rejected: language 'x' is not offered"
    )
    assert redact.describe(error_of(lambda: {}["attempt"])) == "KeyError: 'attempt'"
    assert redact.describe(error_of(Path("/nowhere/x").read_text)) == (
        "FileNotFoundError: [Errno 2] No such file or directory: /nowhere/x"
    )
    assert redact.describe(ZeroDivisionError()) == "ZeroDivisionError"


def test_the_ways_to_an_error_are_told_oldest_first() -> None:
    def work() -> None:
        try:
            raise ValueError("first")
        except ValueError as error:
            raise Unavailable("second") from error

    told = redact.format_exception(error_of(work))
    assert told.index("ValueError: first") < told.index("which led to this") < told.index("second")


def test_a_database_that_fails_to_write_tells_callers_no_document() -> None:
    details = {"writeErrors": [{"code": 10107, "errmsg": "not primary", "op": DOCUMENT}]}
    with pytest.raises(Unavailable) as raised, translated():
        raise BulkWriteError(details)
    assert "the database does not answer: batch op errors occurred" in raised.value.message
    assert CANARY not in raised.value.message


@pytest.mark.parametrize("way", ["main", "thread", "unraisable"])
def test_what_nobody_catches_is_told_in_the_same_way(way: str) -> None:
    program = f"""
import _thread, logging, sys, threading
from oj import service
service.start_logging()
def work(): raise ValueError("not a number: '" + sys.argv[1] + "'")
if "{way}" == "thread":
    thread = threading.Thread(target=work, name="worker"); thread.start(); thread.join()
elif "{way}" == "unraisable":
    told, hook = threading.Event(), sys.unraisablehook
    sys.unraisablehook = lambda unraisable: (hook(unraisable), told.set())
    _thread.start_new_thread(work, ()); told.wait(50)
else:
    work()
"""
    done = subprocess.run(
        # Not in the program, whose lines are in tracebacks since Python 3.13.
        [servers.PYTHON, "-c", program, CANARY],
        env={"PYTHONPATH": str(servers.TREE / "daemons"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == (way == "main")
    assert "ValueError: not a number: …" in done.stderr
    assert "in work" in done.stderr
    assert CANARY not in done.stderr


def test_debugging_is_for_our_own_lines_only() -> None:
    program = """
import logging
from oj import service
service.start_logging(logging.DEBUG)
logging.getLogger("pymongo.command").debug("a whole command")
logging.getLogger("oj.x").debug("ours")
"""
    done = subprocess.run(
        [servers.PYTHON, "-c", program],
        env={"PYTHONPATH": str(servers.TREE / "daemons"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert "ours" in done.stderr
    assert "command" not in done.stderr
