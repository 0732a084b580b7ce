"""What mongod's log says that no command does: above all, that it cannot go on from its data.

Two endings need the data to be copied anew. A rollback that is impossible (the set was recovered by
force without writes that this node has confirmed) ends mongod, at each start. A node that was away
for longer than the other members' logs reach back stays in recovery for good.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable

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


class Signs:
    """Reads mongod's lines for the log, and remembers what matters of them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._hopeless = ""
        self._stale_since_s: float | None = None
        self.room = ""  # that there was none left, as the end of a sentence

    def read_line(self, line: str) -> tuple[int, str]:
        level, text = read_line(line)
        if _FULL in text:
            self.room = "there was no room left on the disk"
        elif level == logging.CRITICAL and any(word in text for word in _ROLLBACK):
            self._hopeless = "it has writes that the replica set has given up"
        elif _STALE_NO_MORE in text:
            self._stale_since_s = None
        elif _STALE in text and self._stale_since_s is None:
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
    """A line of mongod's log: JSON, or plain text before its logging has begun."""
    try:
        record = json.loads(line)
        level = _LEVELS.get(record["s"], logging.DEBUG)
        message = record["msg"]
        rest = json.dumps(record["attr"], default=str) if record.get("attr") else ""
        if message == "Slow query":
            level = logging.INFO
        text = f"{record['c']}: {message} {rest}".rstrip()
    except (ValueError, KeyError, TypeError):
        return logging.INFO, line
    return level, text
