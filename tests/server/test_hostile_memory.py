"""The attacks on the kernel's memory: it may grow by a run's limit and 16 MB, and no more.

What is measured is the whole machine's, so these tests are a stage of their own in tests/run, and
the attacks run one at a time. tests/hostile/run shows the numbers; tests/machine/test_cgroup_v2.py
has the same on cgroup v2.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile import collection, kernel_memory, leftovers
from hostile.judging import MIB, Target

TREE = Path(__file__).resolve().parents[2]
SLOTS = [0, 1]
pytestmark = pytest.mark.alone


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    subprocess.run(["make", "-s", "-C", TREE / "daemons" / "box"], check=True)
    box = os.environ.get("OJ_BOX", str(TREE / "build" / "box" / "oj-box"))
    with Target(box, len(SLOTS)) as started:
        before = started.count()
        yield started
        assert leftovers.compare(before, started.count()) == []


@pytest.mark.parametrize("name", collection.measured_names())
def test_an_attack_moves_the_kernels_memory_by_its_limit_at_most(target: Target, name: str) -> None:
    finding = target.measure_attack(name, SLOTS)
    print(f"{finding.verdict}, {(finding.kernel_bytes or 0) / MIB:.1f} MB")
    assert finding.complaints == []


# ---- the judge of all this, judged -------------------------------------------------------------


def test_memory_of_the_kernel_that_has_no_name_in_meminfo_is_measured() -> None:
    def fill_pipes() -> list[int]:
        descriptors: list[int] = []
        for _ in range(48):
            reader, writer = os.pipe2(os.O_NONBLOCK)
            descriptors += reader, writer
            size = fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, MIB)
            os.write(writer, bytes(size))
        return descriptors

    with kernel_memory.Meter(0.002) as meter:
        descriptors = fill_pipes()
        kernel_memory.settle()
        for descriptor in descriptors:
            os.close(descriptor)
    assert meter.grown >= 40 * MIB


def test_memory_of_programs_is_not_measured() -> None:
    grown = []
    for _ in range(3):  # whatever else happens on the machine adds to it
        with kernel_memory.Meter(0.002) as meter, mmap.mmap(-1, 256 * MIB) as memory:
            memory.write(bytes(256 * MIB))
        grown.append(meter.grown)
    assert min(grown) < 16 * MIB


def test_an_attack_that_moves_it_by_more_is_seen(target: Target) -> None:
    # It takes 31 MB of the 64 that it may have, and keeps them for longer than between two samples.
    finding = target.measure_attack("calls-in-waiting", SLOTS, slack_bytes=-48 * MIB)
    assert len(finding.complaints) == 1
    assert finding.complaints[0].startswith("the kernel's memory grew by ")


def test_the_attacks_on_the_kernels_memory_are_many(target: Target) -> None:
    assert len(collection.measured_names()) >= 40
    assert all(target.load(name).measured for name in collection.measured_names())
