"""How fast tasks and reports go of late, and what follows: how many tasks to
fetch ahead, and for how long a report would not stay parked."""

from __future__ import annotations

import math

SHORT_S = 0.1  # tasks below this are fetched ahead
AHEAD_MOST = 8  # tasks a slot
HOLD_S = 0.02
BATCH_S = 0.01  # between two reports of finished tasks while there is more to do
WEIGHT = 0.25  # of the newest in the mean


class Pace:
    """Moving means. Not locked: its owner does."""

    def __init__(self) -> None:
        self._task_s = 1.0
        self._round_s = 0.0

    def note_task(self, took_s: float) -> None:
        self._task_s += (took_s - self._task_s) * WEIGHT

    def note_round(self, took_s: float) -> None:
        """From a report to its answer."""
        self._round_s += (took_s - self._round_s) * WEIGHT

    @property
    def short(self) -> bool:
        return self._task_s < SHORT_S

    @property
    def ahead(self) -> int:
        """Tasks a slot that wait here, to keep it busy over the way to the judicator and
        back; none if tasks are long, since another executor might be free."""
        if not self.short:
            return 0
        needed = math.ceil((self._round_s + BATCH_S) / self._task_s)
        return max(1, min(needed, AHEAD_MOST, int(SHORT_S / self._task_s)))

    @property
    def hold_s(self) -> float:
        """How long to expect the end of a task that is under way, rather than to park."""
        return min(2 * self._task_s, HOLD_S) if self.short else 0.0
