"""What `oj bench` makes of its times: percentiles, a histogram, and how they are shown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from oj.cli.terminal import columns, mood, paint, span, table, words

PERCENTILES = (50, 90, 99)
BAR_COLUMNS = 50
_STEPS = (1, 2, 5)


@dataclass(frozen=True)
class Timing:
    """One task: what we saw of it, and what the judicators noted by their own clock."""

    verdict: str
    total_ms: float  # from when it was due until its end was known here
    adding_ms: float
    waiting_ms: float | None = None  # from added to given to an executor
    judging_ms: float | None = None  # from there to its end


@dataclass
class Run:
    """A whole measurement, or what there is of it."""

    asked: int
    tag: str
    parallel: int
    rate: float | None
    timings: list[Timing] = field(default_factory=list)
    seconds: float = 0.0
    cancelled: int = 0

    @property
    def verdicts(self) -> dict[str, int]:
        return dict(Counter(one.verdict for one in self.timings).most_common())

    @property
    def all_accepted(self) -> bool:
        return len(self.timings) == self.asked == self.verdicts.get("accepted", 0)

    @property
    def tasks_per_s(self) -> float:
        return len(self.timings) / self.seconds if self.seconds > 0 else 0.0

    def parts(self) -> dict[str, list[float]]:
        """The times by what they are of; what is not known of a task is left out."""
        return {
            "total": [one.total_ms for one in self.timings],
            "adding": [one.adding_ms for one in self.timings],
            "waiting": [o.waiting_ms for o in self.timings if o.waiting_ms is not None],
            "judging": [o.judging_ms for o in self.timings if o.judging_ms is not None],
        }


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that so many are not above."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def summarise(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    found = {f"p{percent}": percentile(values, percent) for percent in PERCENTILES}
    found |= {"max": max(values), "mean": sum(values) / len(values)}
    return {name: round(value, 3) for name, value in found.items()}


def histogram(values: Sequence[float]) -> list[tuple[float, int]]:
    """How many are below each bound (1, 2, 5, 10, 20... ms) and not below the one before."""
    if not values:
        return []
    bounds: list[float] = []
    power = 1
    while not bounds or bounds[-1] <= max(values):
        bounds += [step * power for step in _STEPS]
        power *= 10
    counts = [0] * len(bounds)
    for value in values:
        counts[next(i for i, bound in enumerate(bounds) if value < bound)] += 1
    used = [i for i, count in enumerate(counts) if count]
    return [(bounds[i], counts[i]) for i in range(used[0], used[-1] + 1)]


def to_plain(run: Run) -> dict[str, Any]:
    return {
        "asked": run.asked,
        "done": len(run.timings),
        "cancelled": run.cancelled,
        "parallel": run.parallel,
        "rate": run.rate,
        "tag": run.tag,
        "seconds": round(run.seconds, 3),
        "tasks_per_s": round(run.tasks_per_s, 2),
        "verdicts": run.verdicts,
        **{f"{name}_ms": summarise(values) for name, values in run.parts().items()},
        "histogram": [
            {"below_ms": bound, "count": count} for bound, count in histogram(run.parts()["total"])
        ],
    }


def show_run(run: Run) -> None:
    shown = ", ".join(
        f"{count} {paint(words(word), mood(word))}" for word, count in run.verdicts.items()
    )
    print(f"{len(run.timings)} of {run.asked} tasks done: {shown or 'none'}")
    if run.cancelled:
        print(f"{run.cancelled} that were not done are cancelled")
    if not run.timings:
        return
    print(f"{run.tasks_per_s:.1f} tasks/s over {span(run.seconds * 1000)}")
    print()
    header = ("time", *(f"p{percent}" for percent in PERCENTILES), "max", "mean")
    rows = [
        [name, *(_fine(value) for value in found.values())]
        for name, values in run.parts().items()
        if (found := summarise(values))
    ]
    print("\n".join(table(header, rows, right=header[1:])))
    print()
    _show_histogram(histogram(run.parts()["total"]))


def _show_histogram(bins: Sequence[tuple[float, int]]) -> None:
    most = max(count for _, count in bins)
    digits = len(str(most))
    room = max(10, min(BAR_COLUMNS, columns() - 14 - digits))
    for bound, count in bins:
        # Whatever there is, is seen.
        bar = "#" * max(1 if count else 0, round(room * count / most))
        print(f"{'< ' + span(bound):>10}  {count:>{digits}}  {paint(bar, 'blue')}".rstrip())


def _fine(ms: float) -> str:
    return f"{ms:.1f} ms" if ms < 100 else span(ms)
