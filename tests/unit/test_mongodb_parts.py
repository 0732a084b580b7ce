"""The small parts of oj-mongodb: the data directory, mongod's log, names and descriptions."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from oj.errors import Unavailable
from oj.mongodb import data
from oj.mongodb.replicaset import SetMember, State, describe_sync
from oj.mongodb.roster import Record, name_hosts
from oj.mongodb.signs import Signs, read_line
from oj.mongodb.source import Patience

NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)


def test_data_is_set_aside_as_a_whole_and_only_the_newest_two_are_kept(tmp_path: Path) -> None:
    for hour in range(4):
        (tmp_path / "WiredTiger.wt").write_text(str(hour))
        (tmp_path / "journal").mkdir()
        data.mark_useless(tmp_path, "it is stale")
        assert not data.is_empty(tmp_path)
        place = data.set_aside(tmp_path, NOW + timedelta(hours=hour))
        assert data.is_empty(tmp_path)
        assert not data.why_useless(tmp_path)
        assert (place / "WiredTiger.wt").read_text() == str(hour)
        assert (place / "journal").is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "set-aside-20261116T140000Z",
        "set-aside-20261116T150000Z",
    ]


def test_what_an_operator_put_there_outlives_the_data(tmp_path: Path) -> None:
    data.mark_left(tmp_path)
    (tmp_path / "kept-1").mkdir()
    (tmp_path / "WiredTiger.wt").touch()
    data.set_aside(tmp_path, NOW)
    assert data.has_left(tmp_path)
    assert (tmp_path / "kept-1").is_dir()


def test_want_of_room_is_told_with_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data.demand_room(tmp_path)
    monkeypatch.setattr(data, "LEAST_ROOM_BYTES", 1 << 60)
    with pytest.raises(Unavailable, match=r"no room: [0-9]+ MiB are free in .* needs [0-9]+"):
        data.demand_room(tmp_path)
    (tmp_path / "set-aside-1").mkdir()
    with pytest.raises(Unavailable, match="; set-aside-1 can be deleted there"):
        data.demand_room(tmp_path)


def line(severity: str, component: str, message: str, /, **attributes: object) -> str:
    return json.dumps({"s": severity, "c": component, "msg": message, "attr": attributes})


def test_lines_of_mongod_are_told_by_their_severity() -> None:
    assert read_line(line("W", "STORAGE", "Unclean", file="x")) == (
        logging.WARNING,
        'STORAGE: Unclean {"file": "x"}',
    )
    assert read_line(line("I", "REPL", "Stepping"))[0] == logging.DEBUG
    assert read_line("no JSON") == (logging.INFO, "no JSON")


# As mongod 6 writes them, with what clients have written in place of "CANARY".
SLOW = line(
    "I",
    "COMMAND",
    "Slow query",
    type="command",
    ns="oj.tasks",
    appName="oj-judicator",
    command={"update": "tasks", "updates": [{"u": {"$set": {"r.out": "CANARY"}}}], "CANARY": 1},
    originatingCommand={"aggregate": "tasks", "pipeline": ["CANARY"]},
    planSummary="IXSCAN { _id: 1 }",
    keysExamined=1,
    nModified=1,
    errMsg="bad value: CANARY",
    errName="BadValue",
    errCode=2,
    locks={"Global": {"acquireCount": {"w": 1}}},
    storage={"data": {"bytesRead": 4096}},
    remote="127.0.0.1:33000",
    protocol="op_msg",
    durationMillis=123,
)
WITH_DATA = [
    SLOW,
    line(
        "W",
        "QUERY",
        "Plan executor error during findAndModify",
        error={"code": 11000, "codeName": "DuplicateKey", "errmsg": 'dup key: { k: "CANARY" }'},
        stats={"stage": "UPDATE", "filter": "CANARY"},
        cmd={"findAndModify": "CANARY"},
    ),
    line("E", "REPL", "Failed to apply operation", oplogEntry={"o": "CANARY"}, error="is CANARY"),
    line("F", "ASSERT", "Fatal assertion", msgid=1, error="DuplicateKey{ k: 'CANARY' }: dup"),
    line("F", "-", "Invariant failure", expr="x", msg='found {"CANARY": 1} there', file="a.cpp"),
    line("W", "STORAGE", "Strange", document={"a": "CANARY"}, documents=["CANARY"]),
    line("I", "TXN", "transaction", parameters={"CANARY": 1}, readTimestamp="Timestamp(CANARY)"),
    SLOW[:200] + "CANARY",
    "terminate called: what(): document {a: CANARY}",
]


@pytest.mark.parametrize("told", WITH_DATA)
def test_no_line_of_mongod_tells_what_clients_have_written(told: str) -> None:
    assert "CANARY" in told
    assert "CANARY" not in read_line(told)[1]
    assert "CANARY" not in Signs().read_line(told)[1]


def test_a_slow_query_is_told_with_what_is_no_data() -> None:
    level, text = read_line(SLOW)
    assert level == logging.INFO
    for word in (
        "oj.tasks",
        "IXSCAN { _id: 1 }",
        '"durationMillis": 123',
        '"keysExamined": 1',
        "BadValue",
    ):
        assert word in text


def test_errors_that_are_no_data_are_told() -> None:
    away = {"code": 6, "codeName": "HostUnreachable", "errmsg": "n2:7502: Connection refused"}
    assert "n2:7502: Connection refused" in read_line(line("W", "NETWORK", "Lost", error=away))[1]
    full = {"ts_sec": 1, "msg": "pwrite: failed: No space left on device"}
    signs = Signs()
    text = signs.read_line(line("E", "WT", "WiredTiger error message", error=28, message=full))[1]
    assert "pwrite: failed: No space left on device" in text
    assert signs.room


@pytest.mark.parametrize(
    "words", ["No space left on device", "Too stale to catch up", "ROLLBACK: x"]
)
def test_what_clients_write_is_no_sign(words: str) -> None:
    now_s = 0.0
    signs = Signs(clock=lambda: now_s)
    for told in WITH_DATA[:3]:
        signs.read_line(told.replace("CANARY", words))
        signs.read_line(told.replace("CANARY", words).replace('"s": "E"', '"s": "F"'))
    now_s = 61.0
    assert (signs.room, signs.why_useless()) == ("", "")


@pytest.mark.parametrize(
    "last",
    [
        line("F", "ROLLBACK", "Common point must be at least stable timestamp"),
        line("F", "ASSERT", "Invariant failure", file="src/mongo/db/repl/rollback_impl.cpp"),
    ],
)
def test_a_rollback_that_is_impossible_makes_the_data_useless(last: str) -> None:
    signs = Signs()
    assert not signs.why_useless()
    signs.read_line(last)
    assert "given up" in signs.why_useless()


def test_other_ends_of_mongod_do_not_make_the_data_useless() -> None:
    signs = Signs()
    signs.read_line(line("F", "ASSERT", "Invariant failure", file="src/mongo/db/storage/x.cpp"))
    signs.read_line(line("I", "ROLLBACK", "Finding common point"))
    assert not signs.why_useless()
    signs.read_line(line("F", "ROLLBACK", "Cannot write: No space left on device"))
    signs.read_line(line("E", "WT", "error", text="No space left on device"))
    assert signs.room
    assert not signs.why_useless()


def test_a_stale_node_is_given_time_to_find_a_longer_log() -> None:
    now_s = 0.0
    signs = Signs(clock=lambda: now_s)
    signs.read_line(line("E", "REPL", "Too stale to catch up. Entering maintenance mode"))
    assert not signs.why_useless()
    now_s = 61.0
    assert "logs reach back" in signs.why_useless()
    signs.read_line(line("I", "REPL", "No longer too stale. Able to start syncing"))
    assert not signs.why_useless()


def test_members_are_named_as_registered_or_as_before_or_by_their_hosts() -> None:
    before = {"n1": "a:1", "n2": "b:1", "n3": "c:1"}
    registered = {"n1": "a:1", "n3": "c:2"}
    assert name_hosts(["a:1", "b:1", "c:1", "c:2"], registered, before) == {
        "n1": "a:1",
        "n2": "b:1",
        "c:1": "c:1",
        "n3": "c:2",
    }


def test_only_the_only_member_can_start_anew() -> None:
    assert Record("id", {"n1": "a:1"}).is_only("n1")
    assert Record("id", {}).is_only("n1")
    assert not Record("id", {"n2": "a:1"}).is_only("n1")
    assert not Record("id", {"n1": "a:1", "n2": "b:1"}).is_only("n1")


def test_a_sync_is_told_with_its_progress() -> None:
    assert describe_sync(None) == ""
    assert describe_sync({"appliedOps": 0}) == "it looks for a member to copy from"
    half = {"approxTotalDataSize": 100 << 20, "approxTotalBytesCopied": 50 << 20}
    assert describe_sync(half) == "50 of 100 MiB copied"
    done = {**half, "approxTotalBytesCopied": 100 << 20, "appliedOps": 7}
    assert describe_sync(done) == "all of 100 MiB copied, 7 changes since"


def test_a_secondary_asks_for_a_source_when_it_had_none_for_a_while_and_not_all_the_time() -> None:
    primary = SetMember("a:1", "primary", healthy=True, lag_s=0)
    alone = State("secondary", (primary,), me="b:1")
    patience = Patience()
    assert [patience.is_over(alone) for _ in range(10)] == [n in (2, 8) for n in range(10)]


def test_it_does_not_ask_without_a_primary_or_with_a_source_or_as_another() -> None:
    primary = SetMember("a:1", "primary", healthy=True, lag_s=0)
    lost = replace(primary, healthy=False)
    for content in (
        State("secondary", (lost,), me="b:1"),
        State("secondary", (primary,), me="b:1", source="a:1"),
        State("primary", (primary,), me="a:1"),
        State("syncing", (primary,), me="b:1"),
    ):
        alone = State("secondary", (primary,), me="b:1")
        patience = Patience()
        looks = [alone, alone, content, alone, alone]
        assert not any(patience.is_over(state) for state in looks)
