"""The live screen's picture: whatever happens, it fits."""

import pytest

from oj.cli.frame import LATEST, Picture, draw
from oj.cli.terminal import width
from oj.model import Status, Verdict
from oj.rpc import ttypes as rpc

NOW = 1_700_000_000.0


def make_picture(executors=2, tasks=3, **more):
    picture = Picture("oj 1 at judge.example", **more)
    picture.stats = rpc.Stats(
        by_status={},
        by_verdict={1: 120, 2: 3},
        queue=12,
        oldest_pending_ms=3000,
        slots=8,
        executing=5,
    )
    picture.executors = [
        rpc.ExecutorInfo(
            name=f"executor-{n}",
            facts=rpc.Facts(slots=4, state="ok", languages={"c": "1"}),
            executing=n % 5,
            report_time=int(NOW * 1000),
        )
        for n in range(executors)
    ]
    for number in range(tasks):
        picture.note(make_event(number))
    return picture


def make_event(number, status=Status.RUNNING, **more):
    return rpc.TaskEvent(
        cursor="c",
        id=f"{number:024x}",
        status=status,
        time=int(NOW * 1000),
        tests_done=1,
        tests_total=3,
        user="名前" * 20,
        language="c",
        **more,
    )


@pytest.mark.parametrize("size", [(80, 24), (200, 60), (40, 10), (20, 5), (1, 1)])
@pytest.mark.parametrize("executors", [0, 1, 500])
@pytest.mark.parametrize("tasks", [0, 100])
def test_a_picture_fits(size, executors, tasks):
    picture = make_picture(executors, tasks)
    picture.troubles = ["something is wrong " * 20] * 9
    lines = draw(picture, *size, NOW)
    assert len(lines) <= size[1]
    assert all(width(line) <= max(20, size[0]) for line in lines)


def test_a_picture_of_80_by_24_has_everything():
    lines = draw(make_picture(), 80, 24, NOW)
    text = "\n".join(lines)
    assert lines[1].startswith("tasks       12 waiting, the oldest for 3 s; 5 running on 8 slots [")
    assert "120 accepted, 3 wrong answer" in text
    assert "executor-1  ok        [#####...............] 1/4" in text
    assert f"{2:024x}  running" in text and "1/3, c, of" in text


def test_many_executors_leave_room_for_tasks():
    text = "\n".join(draw(make_picture(500, 20), 80, 24, NOW))
    assert "... and " in text and text.count("running  ") >= 3


def test_the_latest_to_move_is_on_top_and_old_ones_are_forgotten():
    picture = make_picture(tasks=LATEST + 10)
    assert len(picture.tasks) == LATEST
    picture.note(make_event(LATEST, Status.SUCCESS, verdict=Verdict.ACCEPTED))
    picture.note(make_event(LATEST, Status.SUCCESS, verdict=Verdict.ACCEPTED))
    lines = draw(picture, 80, 24, NOW)
    first = next(i for i, line in enumerate(lines) if line.startswith("TASK")) + 1
    assert lines[first].startswith(f"{LATEST:024x}  accepted")
    assert len(picture.ended) == 1


def test_a_cluster_that_is_not_heard_of_says_so_and_stays_as_it_was():
    picture = make_picture()
    picture.trouble, picture.heard = "no answer in time", NOW - 7
    lines = draw(picture, 80, 24, NOW)
    assert lines[1] == "! the cluster does not answer: no answer in time; shown as 7 s ago"
    assert any("12 waiting" in line for line in lines)


def test_the_throughput_curve_needs_no_unicode():
    picture = make_picture(unicode=False)
    picture.ended.extend([NOW - 1] * 30)
    line = draw(picture, 80, 24, NOW)[2]
    assert line.startswith("throughput  3.0 tasks/s") and line.isascii() and line.endswith("@")


def test_what_a_terminal_would_obey_is_not_shown():
    picture = make_picture()
    picture.note(make_event(1, executor="\033[2J"))
    assert "\033" not in "".join(draw(picture, 80, 24, NOW))
