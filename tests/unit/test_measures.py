"""The numbers of `oj bench`."""

import pytest

from oj.cli.measures import Run, Timing, histogram, percentile, show_run, summarise, to_plain
from oj.cli.tiny import PROGRAMS, make_task
from oj.errors import Rejected
from oj.model import check_task


def test_a_percentile_is_a_value_that_was_measured():
    values = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert percentile(values, 50) == 3.0
    assert percentile(values, 90) == 5.0
    assert percentile([7.0], 99) == 7.0
    assert summarise([]) is None


def test_a_histogram_has_no_holes_and_counts_everything():
    bins = histogram([0.5, 3.0, 3.0, 40.0])
    assert bins == [(1, 1), (2, 0), (5, 2), (10, 0), (20, 0), (50, 1)]
    assert histogram([1000.0]) == [(2000, 1)]
    assert histogram([]) == []


def make_run(*timings: Timing) -> Run:
    return Run(2, "bench:1", 2, None, list(timings), 0.5)


def test_what_is_not_known_of_a_task_is_left_out():
    run = make_run(Timing("accepted", 10.0, 1.0, 4.0, 5.0), Timing("cancelled", 20.0, 2.0))
    value = to_plain(run)
    assert value["waiting_ms"]["max"] == 4.0
    assert value["total_ms"]["max"] == 20.0
    assert value["tasks_per_s"] == 4.0
    assert not run.all_accepted


def test_a_run_is_shown_with_bars(capsys):
    show_run(make_run(Timing("accepted", 3.0, 1.0, 1.0, 1.0), Timing("accepted", 30.0, 1.0, 9, 9)))
    shown = capsys.readouterr().out
    assert shown.startswith("2 of 2 tasks done: 2 accepted\n4.0 tasks/s over 500 ms\n")
    assert "< 5 ms  1  ####" in shown and "< 50 ms  1  ####" in shown
    show_run(Run(5, "bench:1", 2, None, cancelled=5))
    assert "5 that were not done are cancelled" in capsys.readouterr().out


@pytest.mark.parametrize("language", [None, *PROGRAMS])
def test_every_tiny_task_is_sound(language):
    check_task(make_task(language))


def test_a_language_without_a_tiny_program_is_refused():
    with pytest.raises(Rejected, match="brainfuck"):
        make_task("brainfuck")
