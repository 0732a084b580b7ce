"""What daemons tell of tasks: one line a step, with fields to search by.

`journalctl OJ_TASK=ID` shows a task's whole story across the daemons, and
`journalctl MESSAGE_ID=…` all events of one kind. The message is formatted
before it reaches the handler: JournalHandler would copy arguments into a
field of its own.
"""

from __future__ import annotations

import logging
from enum import Enum


class Event(Enum):
    """Kinds of events, each with its MESSAGE_ID."""

    ADDED = "0e6b1d2b5b0c4d5f9d0a4b6f6f0d1c01"
    ASSIGNED = "0e6b1d2b5b0c4d5f9d0a4b6f6f0d1c02"
    STARTED = "0e6b1d2b5b0c4d5f9d0a4b6f6f0d1c03"
    COMPILED = "0e6b1d2b5b0c4d5f9d0a4b6f6f0d1c04"
    JUDGED = "0e6b1d2b5b0c4d5f9d0a4b6f6f0d1c05"
    RECORDED = "0e6b1d2b5b0c4d5f9d0a4b6f6f0d1c06"
    RETRIED = "0e6b1d2b5b0c4d5f9d0a4b6f6f0d1c07"
    CANCELLED = "0e6b1d2b5b0c4d5f9d0a4b6f6f0d1c08"
    STOPPED = "0e6b1d2b5b0c4d5f9d0a4b6f6f0d1c09"
    DROPPED = "0e6b1d2b5b0c4d5f9d0a4b6f6f0d1c0a"
    GAVE_UP = "0e6b1d2b5b0c4d5f9d0a4b6f6f0d1c0b"
    EXECUTOR_SEEN = "0e6b1d2b5b0c4d5f9d0a4b6f6f0d1c0c"
    EXECUTOR_LOST = "0e6b1d2b5b0c4d5f9d0a4b6f6f0d1c0d"
    LEADING = "0e6b1d2b5b0c4d5f9d0a4b6f6f0d1c0e"
    FOLLOWING = "0e6b1d2b5b0c4d5f9d0a4b6f6f0d1c0f"
    EXECUTOR_TWICE = "0e6b1d2b5b0c4d5f9d0a4b6f6f0d1c10"


def tell(
    log: logging.Logger,
    event: Event,
    message: str,
    *,
    task: str | None = None,
    executor: str | None = None,
    attempt: int | None = None,
    level: int = logging.INFO,
) -> None:
    """Logs one event with its journal fields."""
    if not log.isEnabledFor(level):
        return
    extra: dict[str, str] = {"MESSAGE_ID": event.value}
    if task is not None:
        extra["OJ_TASK"] = task
    if executor is not None:
        extra["OJ_EXECUTOR"] = executor
    if attempt is not None:
        extra["OJ_ATTEMPT"] = str(attempt)
    log.log(level, message, extra=extra)
