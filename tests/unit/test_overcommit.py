"""Slots times memory against the machine's: what is warned of or noted, and what is said to set."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oj import settings
from oj.executor.overcommit import GIB, MIB, Demand, advise, reserve_bytes

DEFAULTS = settings.read(Path(__file__).parents[2] / "etc" / "executor.conf", "executor")


def by_default(slots: int, most_bytes: int | None = None) -> Demand:
    return Demand(
        slots,
        DEFAULTS["run"]["memory"],
        DEFAULTS["compile"]["memory"],
        most_bytes or DEFAULTS["most"]["memory"],
        most_bytes is not None,
    )


@pytest.mark.parametrize(
    ("slots", "gib"), [(1, 2), (1, 4), (2, 4), (2, 8), (4, 8), (8, 16), (16, 32), (64, 128)]
)
def test_the_configuration_that_it_came_with_is_not_warned_of(slots: int, gib: int) -> None:
    assert advise(by_default(slots), gib * GIB).warnings == ()


@pytest.mark.parametrize(("slots", "gib"), [(1, 1), (2, 2), (4, 4), (8, 4), (128, 128)])
def test_compilers_that_do_not_fit_are_warned_of_by_default_as_well(slots: int, gib: int) -> None:
    (warning,) = advise(by_default(slots), gib * GIB).warnings
    assert "(compile.memory)" in warning


@pytest.mark.parametrize(("slots", "gib", "noted"), [(2, 8, True), (2, 12, False), (1, 4, True)])
def test_what_tasks_may_ask_for_by_default_is_a_note(slots: int, gib: int, noted: bool) -> None:
    advice = advise(by_default(slots), gib * GIB)
    assert advice.warnings == ()
    assert bool(advice.notes) == noted
    assert all("(most.memory)" in note for note in advice.notes)


def test_what_tasks_may_ask_for_is_warned_of_where_it_was_set() -> None:
    assert advise(by_default(2, 4 * GIB), 16 * GIB) == settings.Advice()
    (warning,) = advise(by_default(2, 4 * GIB), 8 * GIB).warnings
    assert warning == (
        "2 slots of up to 4.0 GiB of memory (most.memory) are 8.0 GiB, and this machine has "
        "7.0 GiB for programs (8.0 GiB less 1.0 GiB for the system); "
        "set slots = 1 or most.memory = 3584M"
    )


@pytest.mark.parametrize("total_bytes", [128 * MIB, 700 * MIB, GIB, 3 * GIB, 64 * GIB, 1 << 40])
@pytest.mark.parametrize("slots", [1, 2, 3, 16, 128])
@pytest.mark.parametrize("most_bytes", [None, 64 * MIB, 4 * GIB, 1 << 40])
def test_each_way_that_is_named_ends_the_warning(
    total_bytes: int, slots: int, most_bytes: int | None
) -> None:
    demand = by_default(slots, most_bytes)
    for warning in advise(demand, total_bytes).warnings:
        key = re.search(r"\((\w+)\.memory\)", warning)
        assert key is not None
        smaller = re.search(r"\.memory = (\d+)M", warning)
        fewer = re.search(r"slots = (\d+)", warning)
        assert smaller or fewer or warning.endswith("; give it more memory")
        field = f"{key[1]}_bytes"
        if smaller:
            mended = replace_field(demand, field, int(smaller[1]) * MIB)
            assert not any(key[0] in one for one in advise(mended, total_bytes).warnings)
        if fewer:
            mended = replace_field(demand, "slots", int(fewer[1]))
            assert not any(key[0] in one for one in advise(mended, total_bytes).warnings)


def replace_field(demand: Demand, field: str, value: int) -> Demand:
    return Demand(**{**vars(demand), field: value})


def test_the_reserve_is_between_half_a_gibibyte_and_four() -> None:
    assert reserve_bytes(GIB) == 512 * MIB
    assert reserve_bytes(8 * GIB) == GIB
    assert reserve_bytes(1 << 40) == 4 * GIB


def test_whether_a_value_was_set_is_told_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "executor.conf"
    path.write_text("[run]\nmemory = 1G\n[most]\n# memory = 2G\n")
    assert not settings.is_set(path, "most.memory")
    assert settings.is_set(path, "run.memory")
    path.write_text("[most]\nmemory = 2G\n")
    assert settings.is_set(path, "most.memory")
