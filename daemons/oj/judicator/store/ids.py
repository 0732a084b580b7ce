"""Task ids: 12 bytes that sort by time of adding and are unique in the cluster.

An ObjectId by its form (so that the database's tools show its time), with a
finer clock inside: 4 bytes of seconds, 2 bytes of their fraction, 3 random
bytes of this process, 3 bytes that count. Ids made by different judicators
thus sort by time, and the time of adding needs no field of its own.
"""

from __future__ import annotations

import os
import threading
import time

from bson import ObjectId

from oj.model import add_time_ms

_FRACTIONS = 1 << 16


class IdMaker:
    """Makes ids that never repeat and, within this process, never go back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.urandom(3)
        self._count = int.from_bytes(os.urandom(3), "big")
        self._last = 0

    def make(self) -> ObjectId:
        ticks = time.time_ns() * _FRACTIONS // 1_000_000_000
        with self._lock:
            self._last = max(self._last, ticks)
            ticks = self._last
            self._count = (self._count + 1) & 0xFFFFFF
            if self._count == 0:
                # The counter went round: a new tick keeps the order.
                self._last = ticks = ticks + 1
            count = self._count
        return ObjectId(ticks.to_bytes(6, "big") + self._process + count.to_bytes(3, "big"))


def time_ms_of(task_id: ObjectId) -> int:
    """When the task was added."""
    return add_time_ms(str(task_id))


def first_id_at(time_ms: int) -> ObjectId:
    """The lowest id of a task added at this time or later."""
    seconds, ms = divmod(max(0, time_ms), 1000)
    ticks = min((seconds << 16) + -(-ms * _FRACTIONS // 1000), (1 << 48) - 1)
    return ObjectId(ticks.to_bytes(6, "big") + bytes(6))
