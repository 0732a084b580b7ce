"""Ids sort by time, and times come out of them again."""

from __future__ import annotations

import time

import pytest

from oj.judicator.store.ids import IdMaker, first_id_at, time_ms_of


def test_ids_never_repeat_and_never_go_back() -> None:
    maker = IdMaker()
    ids = [maker.make() for _ in range(50_000)]
    assert len(set(ids)) == len(ids)
    assert [time_ms_of(i) for i in ids] == sorted(time_ms_of(i) for i in ids)


def test_an_id_tells_when_it_was_made() -> None:
    before = int(time.time() * 1000)
    made = time_ms_of(IdMaker().make())
    assert before - 1 <= made <= int(time.time() * 1000)


@pytest.mark.parametrize(
    "ms", [0, 1, 999, 1000, 1_794_800_117_736, 1_794_800_117_999, 2**42 - 2**40]
)
def test_the_first_id_of_a_time_has_that_time_and_the_one_before_has_not(ms: int) -> None:
    first = first_id_at(ms)
    assert time_ms_of(first) == ms
    number = int.from_bytes(first.binary, "big")
    if number:
        below = type(first)((number - 1).to_bytes(12, "big"))
        assert time_ms_of(below) == ms - 1


def test_times_out_of_range_have_bounds() -> None:
    assert first_id_at(-5) == first_id_at(0)
    assert first_id_at(2**62) > first_id_at(2**41)
