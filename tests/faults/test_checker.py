"""The checker sees what is wrong with a history, and nothing wrong with a good one."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from faults.checker import check
from faults.history import Absent, Add, Cancel, History, Inserted, Line, Seen, Written, read

ACCEPTED = {"verdict": "accepted", "executor": "e1", "report_time_ms": 5, "score": 1.0}


def story(task: str = "a", cancelled: bool = False) -> list[Line]:
    """One task's life as it should be: added twice with one key, judged, read by several."""
    status = "cancelled" if cancelled else "success"
    facts = {"report_time_ms": 5} if cancelled else ACCEPTED
    lines: list[Line] = [
        Add(f"key-{task}", 0.0, 1.0, None),
        Add(f"key-{task}", 1.0, 2.0, task),
        Inserted(task, f"key-{task}", (1, 1)),
        Seen(task, 2.0, 2.1, "pending", 0),
        Written(task, (2, 1), "compiling", ("s", "a", "e")),
        Written(task, (3, 1), status, ("s", "v", "r")),
        Seen(task, 2.0, 3.0, status, 1, facts, "wait", "j1"),
        Seen(task, 4.0, 4.1, status, 1, facts | {"result": "d1"}, "get", "j2"),
        Seen(task, 5.0, 5.1, status, 1, facts, "search", "j3"),
    ]
    if cancelled:
        lines.append(Cancel(task, 2.5, 2.9, True))
    return lines


def history(*lines: Line) -> History:
    made = History()
    for line in lines:
        made.note(line)
    return made


def breaches(*lines: Line, **more: object) -> dict[str, int]:
    findings = check(history(*lines), **more)  # type: ignore[arg-type]
    return {word: len(found) for word, found in findings.breaches.items() if found}


def without(kind: type[Line], lines: list[Line] | None = None) -> list[Line]:
    return [line for line in lines or story() if not isinstance(line, kind)]


def test_a_good_history_keeps_every_promise() -> None:
    findings = check(history(*story("a"), *story("b", cancelled=True)), {"e1": [], "e2": []})
    assert findings.kept
    assert findings.tasks == 2
    assert findings.summary() == "0 lost, 0 double, 0 changed"
    assert findings.sentences() == []


BREACHES: dict[str, tuple[str, list[Line]]] = {
    "never ended": ("lost", [Add("k", 0, 1, "x"), Inserted("x", "k", (1, 1))]),
    "still running when last seen": (
        "lost",
        [Add("k", 0, 1, "x"), Inserted("x", "k", (1, 1)), Seen("x", 8, 9, "running")],
    ),
    "not there for a later reader": ("lost", [Absent("a", 2.5, 2.6)]),
    "one key with two ids": ("double", [Add("key-a", 6, 7, "z"), *story("z")]),
    "one id for two keys": ("double", [Add("other", 6, 7, "a")]),
    "stored twice": ("double", [Inserted("a", "key-a", (1, 2))]),
    "stored beside another": ("double", [Inserted("y", "key-a", (1, 2))]),
    "ended twice": ("double", [Written("a", (4, 1), "success", ("s", "r"))]),
    "a result that changes": (
        "changed",
        [Seen("a", 6, 7, "success", 1, ACCEPTED | {"result": "d2"}, "get", "j3")],
    ),
    "another attempt's result": ("changed", [Seen("a", 6, 7, "success", 2, ACCEPTED)]),
    "another executor's result": (
        "changed",
        [Seen("a", 6, 7, "success", 1, ACCEPTED | {"executor": "e2"})],
    ),
    "a later time of the same result": (
        "changed",
        [Seen("a", 6, 7, "success", 1, ACCEPTED | {"report_time_ms": 6})],
    ),
    "written to after its end": ("changed", [Written("a", (9, 1), "running", ("s",))]),
    "back to running": ("stale", [Seen("a", 6, 7, "running", 1, {}, "get", "j2")]),
    "another verdict than the program must have": (
        "wrong",
        [Add("k", 0, 1, "x", ("run_failed", "runtime_error")), *without(Add, story("x"))],
    ),
    "cancelled by nobody": ("broken", without(Cancel, story("x", cancelled=True))),
    "acknowledged by a minority": ("invented", [Add("key-a", 6, 7, "a", node="j1")]),
    "stored, and added by nobody": ("invented", [Inserted("q", "key-q", (1, 9))]),
    "shown, and added by nobody": ("invented", [Seen("q", 6, 7, "success", 1, ACCEPTED)]),
    "a result before it was added": (
        "invented",
        [Add("key-x", 9.5, 9.9, "x"), *without(Add, story("x"))],
    ),
}


@pytest.mark.parametrize("word, lines", BREACHES.values(), ids=BREACHES)
def test_a_breach_is_seen(word: str, lines: list[Line]) -> None:
    assert word in breaches(*story(), *lines)


def test_a_task_that_only_the_database_forgot_is_lost() -> None:
    assert breaches(*without(Inserted)) == {"lost": 1}
    assert breaches(*without(Written)) == {"lost": 1}
    assert breaches(*without(Inserted, without(Written)), database=False) == {}


def test_a_result_that_nobody_was_given_to_judge_is_wrong() -> None:
    lines = without(Seen)
    lines.append(Seen("a", 2, 3, "success", 0, ACCEPTED))
    assert breaches(*lines) == {"wrong": 1}


def test_a_cancelled_task_that_succeeds_breaks_its_promise() -> None:
    assert breaches(*story(), Cancel("a", 2.2, 2.3, True)) == {"broken": 1}


def test_a_task_that_was_done_already_must_be_done() -> None:
    lines = [*story(), Cancel("a", 2.0, 2.1, False), Seen("a", 2.2, 2.3, "running")]
    assert breaches(*lines) == {"broken": 1}
    assert breaches(*story(), Cancel("a", 4.0, 4.5, False)) == {}


def test_a_cancel_without_an_answer_may_have_worked_or_not() -> None:
    assert breaches(*story(), Cancel("a", 2.0, 2.1, None)) == {}
    lines = without(Cancel, story(cancelled=True))
    assert breaches(*lines, Cancel("a", 2.0, 2.1, None)) == {}
    # Repeated by the client after its first answer was lost.
    assert breaches(*lines, Cancel("a", 2.0, 3.1, False)) == {}


def test_an_unfinished_view_that_crossed_the_end_is_not_stale() -> None:
    assert breaches(*story(), Seen("a", 2.9, 6.0, "running")) == {}


def test_a_reader_that_crossed_the_acknowledgement_may_miss_the_task() -> None:
    assert breaches(*story(), Absent("a", 1.5, 2.5)) == {}


def test_a_task_whose_caller_got_no_answer_may_show() -> None:
    lines = [line for line in story() if not (isinstance(line, Add) and line.id)]
    assert breaches(*lines) == {}


def test_entries_of_the_database_count_once_however_many_members_have_them() -> None:
    assert (
        breaches(*story(), *(line for line in story() if isinstance(line, Inserted | Written)))
        == {}
    )


def test_what_is_left_on_an_executor_is_told() -> None:
    findings = check(history(*story()), {"e1": ["process 12 sleep 30"], "e2": []})
    assert findings.summary() == "0 lost, 0 double, 0 changed, 1 left"
    assert findings.sentences() == ["left: e1: process 12 sleep 30: is still there"]


def test_many_breaches_of_one_kind_are_cut_short() -> None:
    lines = [Add(f"k{n}", 0, 1, f"x{n}") for n in range(20)]
    findings = check(history(*lines))
    assert findings.count("lost") == 20
    assert findings.sentences()[-1] == "lost: and 12 more"


@pytest.fixture
def line() -> Callable[..., str]:
    return lambda **fields: json.dumps(fields)


def test_lines_are_read_back(line: Callable[..., str]) -> None:
    made = read(
        [
            line(call="add", key="k", t0=1, t1=2, id="a", ends=["success", "accepted"]),
            line(call="cancel", id="a", t0=2, t1=3),
            line(call="seen", id="a", t0=3, t1=4, status="running", attempt=1, how="get", at="j1"),
            line(call="absent", id="b", t0=3, t1=4),
            line(call="inserted", id="a", key="k", stamp=[1, 2]),
            line(call="written", id="a", stamp=[1, 3], status="success", fields=["s"]),
        ]
    )
    assert made == history(
        Add("k", 1, 2, "a"),
        Cancel("a", 2, 3),
        Seen("a", 3, 4, "running", 1, {}, "get", "j1"),
        Absent("b", 3, 4),
        Inserted("a", "k", (1, 2)),
        Written("a", (1, 3), "success", ("s",)),
    )
