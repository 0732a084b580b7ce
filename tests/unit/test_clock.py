"""Clocks: what is noticed when the time of day jumps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oj.clock import Setback


def steps(*pairs: tuple[float, float]) -> Setback:
    """Looks at these times of day, each beside what the steady clock says then."""
    told: Iterator[float] = iter([t for t, _ in pairs])
    steady: Iterator[float] = iter([s for _, s in pairs])
    return Setback(lambda: next(told), lambda: next(steady))


@pytest.mark.parametrize(
    ("told_s", "set_back_s"),
    [
        ([1000, 1002, 1004], [0, 0]),
        ([1000, 402, 404], [600, 600]),  # it does not come back by itself
        ([1000, 1602, 1004], [0, 600]),  # ahead, and right again
        ([1000, 1602, 1604], [0, 0]),  # timers that are early do no harm
        ([1000, 1001.5, 1003.5], [0.5, 0.5]),
    ],
)
def test_only_a_time_of_day_that_was_set_back_counts(
    told_s: list[float], set_back_s: list[float]
) -> None:
    setback = steps(*zip(told_s, (50, 52, 54), strict=True))
    assert [setback.seconds for _ in set_back_s] == set_back_s
