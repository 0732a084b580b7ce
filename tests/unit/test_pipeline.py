"""What is made of limits, without running anything."""

from __future__ import annotations

from dataclasses import replace

from oj.executor.languages import Language
from oj.executor.pipeline import stretch
from oj.executor.runs import MOST_DYING_S, RunLimits

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


def test_the_time_to_die_grows_with_memory_and_processes() -> None:
    def dying_s(memory_mib: int, processes: int) -> float:
        return replace(SMALL, memory_bytes=memory_mib << 20, processes=processes).dying_s

    assert dying_s(1, 1) < 0.01
    assert dying_s(256, 64) < 3  # the default: hardly more than ever
    # 500 processes that shared 400 MB took 3.3 s on an idle machine and 6.4 s on a busy one.
    assert 4 * 6.4 < dying_s(2048, 500) < 120
    # Page tables fill the memory before all of it can be shared by ever more processes.
    assert dying_s(2048, 4096) < 3 * dying_s(2048, 500)
    assert dying_s(65536, 4096) == MOST_DYING_S  # on whatever machine, a dead sandbox is noticed
    sizes = (1, 64, 256, 2048, 4096)
    counts = (1, 64, 500, 1024)
    for larger, size in zip(sizes[1:], sizes, strict=False):
        assert all(dying_s(larger, count) > dying_s(size, count) for count in counts)
    for more, count in zip(counts[1:], counts, strict=False):
        assert all(dying_s(size, more) > dying_s(size, count) for size in sizes)
