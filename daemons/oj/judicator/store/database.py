"""The way to MongoDB: connections, time limits, and errors as ours.

Every call has a time limit, so that a database that is away makes callers fail
quickly and no thread hangs. Library errors become Unavailable here, once.
"""

from __future__ import annotations

import atexit
import functools
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from pymongo import MongoClient
from pymongo.client_session import ClientSession
from pymongo.errors import (
    BulkWriteError,
    ConnectionFailure,
    ExecutionTimeout,
    OperationFailure,
    PyMongoError,
    WTimeoutError,
)
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from oj.clock import Deadline
from oj.errors import Unavailable
from oj.judicator.store.lines import Hangup
from oj.redact import say

# How long a call waits for a primary: nearly all of an election, and no longer than a caller may
# be kept waiting when there is none.
SELECT_MS = 1_000
CONNECT_MS = 1_000
SOCKET_MS = 4_000
WRITE_MS = 3_000
# The driver looks this often for what changed in the replica set, and twice as often while a call
# waits for a primary.
HEARTBEAT_MS = 1_000
PING_MS = 2_000
RETRY_MS = 100
# Connections, and how long a call waits for a free one: hundreds of executors
# that report at once after a restart shall queue up, not fail.
POOL = 32
QUEUE_MS = 8_000

# Once such a write is answered, it survives the loss of any minority.
DURABLE = WriteConcern(w="majority", j=True, wtimeout=WRITE_MS)
# What a majority has can no longer be undone. Reads of what a client may rely on use it: a primary
# that was cut off shows for some seconds what only it has, and will lose.
SAFE = ReadConcern("majority")
# For what a later report repairs if it is lost: claims (fenced), leases, progress.
QUICK = WriteConcern(w=1)

# A server that is stepping down, starting, shutting down or full of them; or the act was ended
# (11601), as that of a leader is by the next one.
_PASSING = frozenset(
    {6, 7, 89, 91, 112, 133, 134, 189, 202, 246, 251, 262, 317, 358, 364, 9001}
    | {10058, 10107, 11600, 11601, 11602, 13388, 13435, 13436}
)
# A full disk has no code of its own. It passes when somebody makes room, or another is primary.
_NO_SPACE = "No space left on device"
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (naive UTC is what the driver hands over)

F = TypeVar("F", bound=Callable[..., Any])

# When the process ends, the driver waits for its threads, two for each member and client, up to a
# second each and one after the other: 8 s for a stop that is done in a quarter of one. They only
# watch, and none has to come to an end. There is no public way to say so; since 4.9 the
# function is in the first module. (If a newer driver has it elsewhere, a stop takes longer, and
# tests/unit/test_libraries.py fails.)
for _module in ("pymongo.synchronous.monitor", "pymongo.monitor"):
    with suppress(ImportError, AttributeError):
        atexit.unregister(importlib.import_module(_module)._shutdown_resources)


def connect(uri: str) -> MongoClient[Any]:
    """A client; it connects by itself, and again after every outage."""
    return MongoClient(
        uri,
        appname="oj-judicator",
        serverSelectionTimeoutMS=SELECT_MS,
        connectTimeoutMS=CONNECT_MS,
        socketTimeoutMS=SOCKET_MS,
        waitQueueTimeoutMS=QUEUE_MS,
        maxPoolSize=POOL,
        heartbeatFrequencyMS=HEARTBEAT_MS,
        # Our callers repeat whatever failed, and every write may be repeated. The
        # driver's way costs a second write for each (the server keeps the image of
        # what findAndModify returned), a quarter of the database's time.
        retryWrites=False,
        # A read that a hung server does not answer is not worth the same time again.
        retryReads=False,
        event_listeners=[Hangup()],
    )


def connect_to_ping(uri: str) -> MongoClient[Any]:
    """A client for signs of life alone: never in a queue behind others, never long."""
    return MongoClient(
        uri,
        appname="oj-judicator pulse",
        serverSelectionTimeoutMS=SELECT_MS,
        connectTimeoutMS=CONNECT_MS,
        socketTimeoutMS=PING_MS,
        maxPoolSize=2,
        heartbeatFrequencyMS=HEARTBEAT_MS,
        retryReads=False,
    )


def is_passing(error: PyMongoError) -> bool:
    """Whether trying again may help."""
    if isinstance(error, (ConnectionFailure, WTimeoutError, ExecutionTimeout)):
        return True
    if isinstance(error, BulkWriteError):
        details = error.details or {}
        failures = [*details.get("writeErrors", ()), *details.get("writeConcernErrors", ())]
        # 64: a majority did not confirm it in time.
        return all(
            failure.get("code") in _PASSING | {64} or _NO_SPACE in failure.get("errmsg", "")
            for failure in failures
        )
    return isinstance(error, OperationFailure) and (
        error.code in _PASSING
        or error.has_error_label("TransientTransactionError")
        or _NO_SPACE in str(error)
    )


@contextmanager
def translated() -> Iterator[None]:
    """Turns the driver's passing errors into Unavailable; others are bugs."""
    try:
        yield
    except PyMongoError as error:
        if is_passing(error):
            words = say(error).partition(", Timeout:")[0][:200]
            raise Unavailable(f"the database does not answer: {words}", RETRY_MS) from error
        raise


def at_the_edge(method: F) -> F:
    """The same for a whole method."""

    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        with translated():
            return method(*args, **kwargs)

    return call  # type: ignore[return-value]


def commit(session: ClientSession, deadline: Deadline) -> None:
    """Commits, also when the answer is lost on the way: again does no harm."""
    while True:
        try:
            session.commit_transaction()
            return
        except PyMongoError as error:
            if not error.has_error_label("UnknownTransactionCommitResult"):
                raise
            deadline.check("a transaction")


class Pinger:
    """Asks the primary for a sign of life."""

    def __init__(self, client: MongoClient[Any]) -> None:
        self._admin = client.get_database("admin")

    @at_the_edge
    def ping(self) -> None:
        self._admin.command("ping")


def to_ms(time: datetime | None) -> int | None:
    """A stored time as milliseconds since 1970."""
    if time is None:
        return None
    if time.tzinfo is not None:
        return int((time - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
    return int((time - _EPOCH).total_seconds() * 1000)


def from_ms(time_ms: int) -> datetime:
    """The same back, as the driver stores it."""
    return _EPOCH + timedelta(milliseconds=time_ms)
