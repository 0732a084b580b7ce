"""Deadlines and pauses on the monotonic clock; the wall clock only for storing."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from oj.errors import Unavailable


class Deadline:
    """A point on the monotonic clock that is passed down through calls."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left_s(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - time.monotonic())

    @property
    def expired(self) -> bool:
        return time.monotonic() >= self._end

    def check(self, what: str) -> None:
        """Raises Unavailable once the deadline has passed."""
        if self.expired:
            raise Unavailable(f"{what}: no answer in time")

    def cap(self, seconds: float) -> float:
        """A timeout for one call: `seconds`, but not past the deadline."""
        return max(0.001, min(seconds, self.left_s))


class Setback:
    """Notices that the time of day was set back, which a clock that only runs cannot be."""

    def __init__(
        self, told: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic
    ) -> None:
        self._told = told
        self._steady = steady
        self._most_s = told() - steady()

    @property
    def seconds(self) -> float:
        """How far the time of day is behind the furthest that it was ahead, at any look."""
        offset_s = self._told() - self._steady()
        self._most_s = max(self._most_s, offset_s)
        return self._most_s - offset_s


def backoff(first_s: float, most_s: float) -> Iterator[float]:
    """Pauses that double up to `most_s`, jittered so that a herd spreads out."""
    pause_s = first_s
    while True:
        yield pause_s * random.uniform(0.5, 1.0)
        pause_s = min(most_s, pause_s * 2)


def utc_now() -> datetime:
    return datetime.now(UTC)
