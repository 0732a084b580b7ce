"""What each verb shows to people."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Any

from oj import model, plain
from oj.cli.terminal import clean, moment, mood, paint, size, span, table, words
from oj.incarnation import RENAME, say_runs_twice

OUTPUT_LINES = 40  # of a program's output that are shown


def show_task(info: model.TaskInfo, *, details: bool = False, outputs: bool = False) -> None:
    result = info.result
    if details:
        _show_details(info)
    if result and result.tests and info.verdict != model.Verdict.COMPILE_ERROR:
        rows = [
            [
                test.name,
                words(test.verdict.word),
                "" if _was_skipped(test) else span(test.outcome.cpu_us / 1000),
                "" if _was_skipped(test) else span(test.outcome.wall_us / 1000),
                "" if _was_skipped(test) else size(test.outcome.memory_bytes),
                test.message or _end_of(test),
            ]
            for test in result.tests
        ]
        print("\n".join(_test_table(rows)))
    if result and result.compile and (info.verdict == model.Verdict.COMPILE_ERROR or outputs):
        _show_text("compiler", result.compile.stderr, result.compile.stderr_cut)
        _show_text("compiler", result.compile.stdout, result.compile.stdout_cut)
    # A plain command without anything to compare is run for its output.
    if result and (outputs or len(result.tests) == 1):
        for test in result.tests:
            where = f"test {test.name}: " if len(result.tests) > 1 else ""
            _show_text(f"{where}standard output", test.outcome.stdout, test.outcome.stdout_cut)
            _show_text(f"{where}standard error", test.outcome.stderr, test.outcome.stderr_cut)
    if result or info.done:
        _show_verdict(info)


def _test_table(rows: Sequence[Sequence[str]]) -> list[str]:
    header = ("test", "verdict", "cpu", "wall", "memory", "message")
    return table(header, rows, right=("cpu", "wall", "memory"))


def _was_skipped(test: model.TestResult) -> bool:
    return test.verdict == model.Verdict.SKIPPED


def _end_of(test: model.TestResult) -> str:
    """How a program that failed ended, where nobody said more."""
    outcome = test.outcome
    if outcome.signal:
        try:
            return f"signal {outcome.signal} ({signal.Signals(outcome.signal).name})"
        except ValueError:
            return f"signal {outcome.signal}"
    return f"exit code {outcome.exit_code}" if outcome.exit_code else ""


def _show_details(info: model.TaskInfo) -> None:
    facts = [
        ("task", info.id),
        ("status", words(info.status.word)),
        ("language", info.language),
        ("user", info.user),
        ("priority", str(info.priority) if info.priority else ""),
        ("tags", ", ".join(sorted(info.tags))),
        # One that the client made up, to be able to repeat itself, tells nobody anything.
        ("key", "" if re.fullmatch("[0-9a-f]{32}", info.key or "") else info.key or ""),
        ("added", moment(info.add_time_ms)),
        ("executor", info.executor),
        ("tests", f"{info.tests_done} of {info.tests_total}" if not info.done else ""),
    ]
    if info.done and info.report_time_ms and info.add_time_ms:
        facts.append(("took", span(info.report_time_ms - info.add_time_ms)))
    for attempt in info.attempts:
        if len(info.attempts) > 1 or attempt.ended:
            facts.append(
                (f"attempt {attempt.number}", f"{attempt.executor} {attempt.ended}".strip())
            )
    for name, value in facts:
        if value:
            shown = clean(value)
            if name == "status":
                shown = paint(shown, mood(info.status.word))
            print(f"{paint(f'{name:<10}', 'dim')} {shown}")
    if info.result:
        print()


def _show_verdict(info: model.TaskInfo) -> None:
    word = info.verdict.word if info.verdict else info.status.word
    line = paint(words(word), mood(word))
    numbers = []
    result = info.result
    if result and len(result.tests) > 1:
        accepted = sum(test.verdict == model.Verdict.ACCEPTED for test in result.tests)
        numbers.append(f"{accepted} of {len(result.tests)} tests")
    if info.score is not None and 0 < info.score < 1:
        numbers.append(f"score {info.score:.3g}")
    if numbers:
        line += f" ({', '.join(numbers)})"
    message = (result and result.message) or info.message
    print(line + (f": {clean(message)}" if message else ""))


def _show_text(title: str, data: bytes, was_cut: bool) -> None:
    if not data:
        return
    lines = clean(data.decode("utf-8", "replace"), lines=True).rstrip("\n").split("\n")
    hidden = len(lines) - OUTPUT_LINES
    print(paint(f"--- {clean(title)}", "dim"))
    print("\n".join(lines[:OUTPUT_LINES]))
    if hidden > 0:
        print(paint(f"... {hidden} more lines (--json has all that was kept)", "dim"))
    elif was_cut:
        print(paint("... cut here by the judge", "dim"))


def show_tasks(tasks: Sequence[model.TaskInfo], *, more: bool) -> None:
    if not tasks:
        print("no such tasks")
        return
    header = ("id", "added", "status", "verdict", "language", "user", "tests", "executor", "tags")
    rows = [
        [
            info.id,
            moment(info.add_time_ms),
            words(info.status.word),
            words(info.verdict.word) if info.verdict else "",
            info.language,
            info.user,
            f"{info.tests_done}/{info.tests_total}" if info.tests_total else "",
            info.executor,
            " ".join(sorted(info.tags)),
        ]
        for info in tasks
    ]
    print("\n".join(table(header, rows, spare=("tags", "executor", "tests", "user"))))
    if more:
        print(paint("... and more (--limit)", "dim"))


def show_executors(executors: Sequence[Any]) -> None:
    if not executors:
        print("no executors")
        return
    header = ("name", "state", "busy", "seen", "version", "languages")
    now_ms = time.time() * 1000
    rows = []
    for info in executors:
        facts = info.facts
        state = plain.executor_state(info)
        languages = ", ".join(sorted((facts.languages or {}) if facts else {}))
        rows.append(
            [
                info.name,
                state,
                f"{info.executing or 0}/{(facts.slots if facts else 0) or 0}",
                f"{span(max(0.0, now_ms - info.report_time))} ago" if info.report_time else "",
                (facts and facts.version) or "",
                ((facts and facts.message) or "") if state == "sick" else languages,
            ]
        )
    print("\n".join(table(header, rows, right=("busy", "seen"))))
    for info in executors:
        if info.rivals:
            rivals = [one.address or "" for one in info.rivals]
            print(clean(f"{say_runs_twice(info.name, info.address or '', rivals)}; {RENAME}"))


def show_judicators(judicators: Sequence[Any]) -> None:
    if not judicators:
        print("no judicators")
        return
    rows = [[info.name, info.address, "leader" if info.leader else "ok"] for info in judicators]
    print("\n".join(table(("name", "address", "state"), rows)))


def show_languages(languages: Mapping[str, Sequence[str]]) -> None:
    if not languages:
        print("no executor offers a language now")
        return
    rows = [[name, ", ".join(versions)] for name, versions in languages.items()]
    print("\n".join(table(("language", "version"), rows)))
