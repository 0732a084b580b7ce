"""Reads mongod's log: what may go to the journal of it, and what it says that no command does.

Two endings need the data to be copied anew. A rollback that is impossible (the set was recovered by
force without writes that this node has confirmed) ends mongod, at each start. A node that was away
for longer than the other members' logs reach back stays in recovery for good.

The journal gets no data. The line of a slow query holds the whole command, so the source of a task,
or what a program printed, or a webhook's secret; other lines hold documents in errors, statistics
and entries of the oplog. No list of what to leave out would be complete in the next version. So
of the lines of components that work on data only numbers are told, and the texts of attributes that
are known to be names; of all others also texts, without what they quote, and no objects but errors.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from typing import Any

from oj.redact import LEFT_OUT, redact

PATIENCE_S = 60.0  # another member's log may reach further back

_LEVELS = {
    "F": logging.CRITICAL,
    "E": logging.ERROR,
    "W": logging.WARNING,
    "I": logging.DEBUG,  # hundreds of lines at each start; our own say what matters of them
}
_ROLLBACK = ("ROLLBACK: ", "/rollback_impl.cpp")  # the component, or the place of an assertion
_STALE = "Too stale to catch up"
_STALE_NO_MORE = "No longer too stale"
_FULL = "No space left on device"

# Components that work on clients' commands and documents.
_OF_DATA = frozenset({"COMMAND", "INDEX", "QUERY", "REPL", "ROLLBACK", "TXN", "WRITE"})
# Attributes whose texts are names or addresses, in every line.
_NAMES = frozenset(
    "ns namespace db collection type planSummary codeName errName name appName protocol remote "
    "client host hostAndPort address target syncSource newState oldState state memberState "
    "newPrimary primary path dbpath file version signal index indexName durationMillis".split()
)
_ERRORS = frozenset({"error", "status", "reason", "message", "msg", "frame", "errmsg"})


class Signs:
    """Reads mongod's lines for the log, and remembers what matters of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._hopeless = ""
        self._stale_since_s: float | None = None
        self.room = ""  # that there was none left, as the end of a sentence

    def read_line(self, line: str) -> tuple[int, str]:
        level, text, own = _parse(line)
        if _FULL in own:
            self.room = "there was no room left on the disk"
        elif level == logging.CRITICAL and any(word in own for word in _ROLLBACK):
            self._hopeless = "it has writes that the replica set has given up"
        elif _STALE_NO_MORE in own:
            self._stale_since_s = None
        elif _STALE in own and self._stale_since_s is None:
            self._stale_since_s = self._clock()
        return level, text

    def why_useless(self) -> str:
        """Why mongod cannot go on from its data; nothing if it can, given room."""
        if self.room:
            return ""
        if self._stale_since_s is not None and self._clock() - self._stale_since_s > PATIENCE_S:
            return "it was away for longer than the other members' logs reach back"
        return self._hopeless


def read_line(line: str) -> tuple[int, str]:
    """How serious a line of mongod's log is, and what of it may be told."""
    level, text, _ = _parse(line)
    return level, text


def _parse(line: str) -> tuple[int, str, str]:
    """A line: JSON, or plain text before mongod's logging has begun.

    The third part is what mongod itself says there, to look for signs in: all of it, but nothing
    that a client could have put there."""
    try:
        record = json.loads(line)
        level = _LEVELS.get(record["s"], logging.DEBUG)
        component, message = record["c"], record["msg"]
        attributes = record.get("attr") or {}
        kept = _keep(attributes, of_data=component in _OF_DATA)
        if message == "Slow query":
            level = logging.INFO
        rest = json.dumps(kept, ensure_ascii=False) if attributes else ""
        text = f"{component}: {message} {rest}".rstrip()
        own = text if component in _OF_DATA else f"{component}: {message} {line}"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        if line.startswith("{"):  # cut off, so nothing in it can be told from data
            return logging.INFO, f"a line of {len(line)} characters that is cut off", ""
        return logging.INFO, redact(line), line
    return level, text, own


def _keep(attributes: dict[str, Any], *, of_data: bool) -> dict[str, Any]:
    """The attributes that are no data; … where some were left out."""
    kept: dict[str, Any] = {}
    left_out = False
    for name, value in attributes.items():
        if value is None or isinstance(value, (bool, int, float)):
            kept[name] = value
        elif isinstance(value, str) and (name in _NAMES or not of_data):
            # A plan names the fields of an index, in braces.
            kept[name] = value if name == "planSummary" else redact(value)
        elif isinstance(value, dict) and name in _ERRORS:
            kept[name] = _keep(value, of_data=of_data)
        else:
            left_out = True
    if left_out:
        kept[LEFT_OUT] = LEFT_OUT
    return kept
