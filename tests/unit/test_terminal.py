"""What people see: cells, units, colours, and nothing that a terminal would obey."""

import io

import pytest

from oj.cli import terminal


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (None, ""),
        (0, "0 ms"),
        (999, "999 ms"),
        (1250, "1.25 s"),
        (65_000, "65 s"),
        (600_000, "10 min"),
        (7_200_000, "2 h"),
        (400_000_000, "5 d"),
    ],
)
def test_spans_have_a_fitting_unit(ms, text):
    assert terminal.span(ms) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (None, ""),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3_565_158, "3.4 MiB"),
        (256 << 20, "256 MiB"),
        (5 << 40, "5.0 TiB"),
    ],
)
def test_sizes_have_a_fitting_unit(size_bytes, text):
    assert terminal.size(size_bytes) == text


def test_columns_are_aligned_and_numbers_are_to_the_right():
    lines = terminal.table(
        ("test", "verdict", "cpu"),
        [["1", "accepted", "12 ms"], ["eleven", "wrong answer", "1.25 s"]],
        right=("cpu",),
    )
    assert lines == [
        "TEST    VERDICT          CPU",
        "1       accepted       12 ms",
        "eleven  wrong answer  1.25 s",
    ]


def test_columns_without_content_are_left_out():
    assert terminal.table(("id", "user", "tags"), [["1", "", "a"], ["2", "", ""]]) == [
        "ID  TAGS",
        "1   a",
        "2",
    ]


def test_a_narrow_terminal_loses_spare_columns_and_wraps_the_last(monkeypatch):
    monkeypatch.setattr(terminal.sys, "stdout", Screen())
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setenv("NO_COLOR", "1")
    rows = [["1", "somewhere far away", "several words that are long"]]
    assert terminal.table(("id", "place", "text"), rows, spare=("place",)) == [
        "ID  TEXT",
        "1   several words that are",
        "    long",
    ]


def test_wide_characters_count_twice():
    assert terminal.width("日本") == 4
    assert terminal.cut("日本語", 5) == "日本…"


def test_escape_sequences_of_a_contestant_do_not_reach_the_terminal():
    assert "\033" not in "".join(terminal.table(("test",), [["\033]0;owned\007"]]))
    assert terminal.clean("a\nb\033[2J\r", lines=True) == "a\nb\ufffd[2J\ufffd"


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_colours_are_for_terminals_that_want_them(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert terminal.paint("ok", "green", Screen()) == "\033[32mok\033[0m"
    assert terminal.paint("ok", "green", io.StringIO()) == "ok"
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal.paint("ok", "green", Screen()) == "ok"


def test_progress_elsewhere_than_on_a_terminal_is_a_line_per_change():
    stream = io.StringIO()
    with terminal.Progress(stream) as progress:
        progress.show("running", 1, 3, "on ex-1")
        progress.show("running", 1, 3, "on ex-1")
        progress.show("running", 2, 3, "on ex-1")
    lines = stream.getvalue().splitlines()
    assert [line.split("s  ", 1)[1] for line in lines] == [
        "running, 1 of 3 tests, on ex-1",
        "running, 2 of 3 tests, on ex-1",
    ]


def test_progress_leaves_a_clean_line_on_a_terminal(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    stream = Screen()
    with terminal.Progress(stream) as progress:
        progress.show("running", 1, 3, "")
    assert stream.getvalue().endswith("\r\033[K")
