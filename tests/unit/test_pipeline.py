"""What the pipeline makes of limits, without running anything."""

from __future__ import annotations

from dataclasses import replace

from oj.executor.languages import Language
from oj.executor.pipeline import stretch
from oj.executor.runs import RunLimits

SMALL = RunLimits(
    cpu_ms=1, wall_ms=1, memory_bytes=1, output_bytes=1, processes=1, disk_bytes=1, files=1
)
PLAIN = Language("plain", "", "main.x", run=("x",))


def test_a_language_stretches_time_and_memory_and_nothing_else() -> None:
    slow = replace(PLAIN, cpu_factor=3.0, memory_extra_bytes=1000)
    limits = replace(SMALL, cpu_ms=100, wall_ms=500)
    assert stretch(limits, PLAIN) == limits
    assert stretch(limits, slow) == replace(limits, cpu_ms=300, wall_ms=1500, memory_bytes=1001)


def test_no_language_makes_a_limit_of_nothing() -> None:
    assert stretch(SMALL, replace(PLAIN, cpu_factor=0.1)) == SMALL
