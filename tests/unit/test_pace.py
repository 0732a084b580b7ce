"""How far ahead to fetch, from how fast things go."""

from __future__ import annotations

import pytest

from oj.executor.pace import AHEAD_MOST, Pace


@pytest.mark.parametrize(
    ("task_s", "round_s", "ahead"),
    [
        (1.0, 0.01, 0),  # long tasks: others may be free
        (0.2, 0.5, 0),
        (0.08, 0.005, 1),
        (0.02, 0.005, 1),
        (0.005, 0.01, 4),
        (0.005, 0.5, AHEAD_MOST),
        (0.03, 0.5, 3),  # no more than a tenth of a second's work
        (0.0001, 0.0, AHEAD_MOST),
    ],
)
def test_short_tasks_are_fetched_ahead_over_the_round_trip(
    task_s: float, round_s: float, ahead: int
) -> None:
    pace = Pace()
    for _ in range(100):
        pace.note_task(task_s)
        pace.note_round(round_s)
    assert pace.ahead == ahead
    assert pace.hold_s == pytest.approx(0 if task_s > 0.1 else min(0.02, 2 * task_s))


def test_a_new_executor_fetches_nothing_ahead() -> None:
    assert Pace().ahead == 0
