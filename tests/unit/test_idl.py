"""The IDL changes only in ways that mixed versions can live with, and the check would notice."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

import idl
from oj import model
from oj.rpc import constants
from oj.rpc import ttypes as rpc


@pytest.mark.parametrize("released", idl.RELEASED, ids=lambda path: str(path.stem))
def test_who_speaks_a_released_idl_is_understood(released: Path) -> None:
    assert idl.find_breaks(idl.describe(released), idl.describe(idl.CURRENT)) == []


def replaced(pattern: str, other: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        changed, count = re.subn(pattern, other, text, count=1)
        assert count == 1, pattern
        return changed

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (replaced(r"  2: optional string digest .*\n", ""), "field 2 (digest) is gone"),
        (replaced(r"(1: optional) i32 cpu_ms", r"\1 i64 cpu_ms"), "field 1 (cpu_ms) has another"),
        (replaced(r"2: optional i32 wall_ms", "2: required i32 wall_ms"), "was optional and is"),
        (replaced(r"1: required string name,", "1: optional string name,"), "was required and is"),
        (replaced(r"1: optional i32 cpu_ms", "1: optional i32 cpu"), "name was cpu_ms and is cpu"),
        (replaced(r"1: optional i32 cpu_ms,", "9: optional i32 cpu_ms,"), "field 1 (cpu_ms) is"),
        (replaced(r"(2: required Data data)", r"\1, 3: required i32 x"), "(x) is new and required"),
        (replaced(r"COMPILING = 2", "COMPILING = 20"), "COMPILING is no longer 2"),
        (replaced(r"MAX_TESTS = 1000", "MAX_TESTS = 100"), "constant MAX_TESTS has changed"),
        (replaced(r"  Stats stats\(\).*\n", ""), "call stats is gone"),
        (replaced(r"bool cancel\(", "i32 cancel("), "call cancel returns something else"),
        (replaced(r"cancel\(1: string id\)", "cancel(1: i64 id)"), "field 1 (id) has another type"),
        (replaced(r"2: bool on", "2: required bool on"), "was req_out and is required"),
        (
            replaced(r"(void ping\(\) throws \(1: Unavailable unavailable)", r"\1, 2: NotFound no"),
            "call ping throws something else",
        ),
    ],
)
def test_a_change_that_breaks_somebody_is_noticed(
    change: Callable[[str], str], told: str, tmp_path: Path
) -> None:
    path = tmp_path / "judicator.thrift"
    path.write_text(change(idl.CURRENT.read_text()))
    breaks = idl.find_breaks(idl.describe(idl.CURRENT), idl.describe(path))
    assert any(told in sentence for sentence in breaks), breaks


@pytest.mark.parametrize(
    "change",
    [
        replaced(r"(2: required Data data)", r"\1, 3: optional i32 x"),
        replaced(r"(  void ping\(\))", r"  i32 more(1: i32 x)\n\1"),
        replaced(r"cancel\(1: string id\)", "cancel(1: string id, 2: string why)"),
        replaced(r"(INTERNAL_ERROR = 14)", r"\1, ODD = 15"),
        replaced(r"(struct Data \{)", r"struct New { 1: required i32 x }\n\1"),
    ],
)
def test_what_is_only_added_is_fine(change: Callable[[str], str], tmp_path: Path) -> None:
    path = tmp_path / "judicator.thrift"
    path.write_text(change(idl.CURRENT.read_text()))
    assert idl.find_breaks(idl.describe(idl.CURRENT), idl.describe(path)) == []


def test_the_numbers_of_the_idl_are_those_that_are_checked() -> None:
    limit = re.compile(r"(MAX|INLINE|TASK_INLINE|BLOB|CHUNK)_")
    checked = {name: value for name, value in vars(model).items() if limit.match(name)}
    del checked["MAX_URL_CHARS"]  # of a webhook, which is for gateways
    told = {name: value for name, value in vars(constants).items() if limit.match(name)}
    assert told == checked


@pytest.mark.parametrize("name", ["Status", "Verdict", "Compare"])
def test_the_words_of_the_idl_are_those_of_the_model(name: str) -> None:
    words: dict[str, int] = getattr(rpc, name)._NAMES_TO_VALUES
    assert words == {one.name: int(one) for one in getattr(model, name)}
