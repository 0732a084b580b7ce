"""The table of verdicts."""

from __future__ import annotations

import errno

import pytest

from oj.executor.runs import Difference, LimitHit
from oj.executor.verdict import RunFacts, judge_compile, judge_output, judge_run, sum_up
from oj.model import Status, TestResult, Verdict

KILLED = {"exit_code": None, "signal": 9}
ABORTED = {"exit_code": None, "signal": 6, "memory_allowed_bytes": 64, "memory_signal": 6}


@pytest.mark.parametrize(
    ("facts", "verdict"),
    [
        (RunFacts(), None),
        (RunFacts(exit_code=1), Verdict.RUNTIME_ERROR),
        (RunFacts(exit_code=None, signal=11), Verdict.RUNTIME_ERROR),
        (RunFacts(exit_code=127), Verdict.RUNTIME_ERROR),
        (RunFacts(exit_code=127, exec_error=errno.ENOENT), Verdict.RUNTIME_ERROR),
        (RunFacts(LimitHit.MEMORY, exit_code=126, exec_error=errno.ENOMEM), Verdict.MEMORY_LIMIT),
        (RunFacts(LimitHit.CPU, **KILLED), Verdict.TIME_LIMIT),
        (RunFacts(LimitHit.CPU, exit_code=None, signal=24), Verdict.TIME_LIMIT),
        (RunFacts(LimitHit.WALL, **KILLED), Verdict.WALL_LIMIT),
        (RunFacts(LimitHit.MEMORY, **KILLED), Verdict.MEMORY_LIMIT),
        # A runtime that turns the failed allocation into an exception.
        (RunFacts(LimitHit.MEMORY, exit_code=1), Verdict.MEMORY_LIMIT),
        # A child of it was killed for memory; the rest went on as if nothing had been.
        (RunFacts(LimitHit.MEMORY, exit_code=0), Verdict.MEMORY_LIMIT),
        (RunFacts(LimitHit.OUTPUT, **KILLED), Verdict.OUTPUT_LIMIT),
        (RunFacts(LimitHit.OUTPUT, exit_code=0), Verdict.OUTPUT_LIMIT),
        # A runtime that needs memory of its own, and aborts when the program's is used up.
        (RunFacts(**ABORTED, memory_bytes=65), Verdict.MEMORY_LIMIT),
        (RunFacts(**ABORTED, memory_bytes=64), Verdict.RUNTIME_ERROR),
        (RunFacts(**{**ABORTED, "memory_signal": 0}, memory_bytes=65), Verdict.RUNTIME_ERROR),
        (RunFacts(**{**ABORTED, "signal": 11}, memory_bytes=65), Verdict.RUNTIME_ERROR),
        # Calls that fail do not end a program: it may cope.
        (RunFacts(LimitHit.DISK, exit_code=0), None),
        (RunFacts(LimitHit.DISK, exit_code=1), Verdict.OUTPUT_LIMIT),
        (RunFacts(LimitHit.DISK, exit_code=None, signal=25), Verdict.OUTPUT_LIMIT),
        (RunFacts(LimitHit.PROCESSES, exit_code=0), None),
        (RunFacts(LimitHit.PROCESSES, exit_code=1), Verdict.RUNTIME_ERROR),
        # Ended by itself just past its time.
        (RunFacts(cpu_us=1_000_001, cpu_limit_ms=1000), Verdict.TIME_LIMIT),
        (RunFacts(cpu_us=1_000_000, cpu_limit_ms=1000), None),
        (RunFacts(exit_code=1, cpu_us=2_000_000, cpu_limit_ms=1000), Verdict.TIME_LIMIT),
    ],
)
def test_the_facts_of_a_run_decide_its_verdict(facts: RunFacts, verdict: Verdict | None) -> None:
    found, message = judge_run(facts)
    assert found is verdict
    assert bool(message) == (verdict is not None)


@pytest.mark.parametrize(
    ("difference", "verdict", "message"),
    [
        (None, Verdict.ACCEPTED, ""),
        (Difference("line 1: wrong"), Verdict.WRONG_ANSWER, "line 1: wrong"),
        (
            Difference("line 1: wrong", in_space=True),
            Verdict.PRESENTATION_ERROR,
            "line 1: wrong; only white space differs",
        ),
    ],
)
def test_how_the_output_differs_decides_the_verdict_of_a_good_run(
    difference: Difference | None, verdict: Verdict, message: str
) -> None:
    assert judge_output(difference) == (verdict, message)


@pytest.mark.parametrize(
    ("facts", "problem"),
    [
        (RunFacts(), None),
        (RunFacts(exit_code=1), "the compiler found errors (exit code 1)"),
        (
            RunFacts(exit_code=126, exec_error=errno.EACCES),
            "the compiler cannot be executed: Permission denied",
        ),
        (RunFacts(exit_code=None, signal=11), "the compiler was ended by signal 11"),
        (RunFacts(LimitHit.CPU, **KILLED), "the compiler used more CPU time than allowed"),
        (RunFacts(LimitHit.MEMORY, exit_code=1), "the compiler used more memory than allowed"),
        (RunFacts(LimitHit.OUTPUT, **KILLED), "the compiler printed more than allowed"),
    ],
)
def test_a_failed_compile_step_says_why(facts: RunFacts, problem: str | None) -> None:
    assert judge_compile(facts) == problem


def results_of(*verdicts: Verdict) -> list[TestResult]:
    return [TestResult(str(n), verdict) for n, verdict in enumerate(verdicts, 1)]


A, W, T, S = Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.TIME_LIMIT, Verdict.SKIPPED


@pytest.mark.parametrize(
    ("verdicts", "weights", "status", "overall", "score"),
    [
        ([A], [1], Status.SUCCESS, A, 1.0),
        ([A, A], [1, 3], Status.SUCCESS, A, 1.0),
        ([A, W, T], [1, 1, 2], Status.RUN_FAILED, W, 0.25),
        ([T, W, A], [1, 1, 2], Status.RUN_FAILED, T, 0.5),
        ([A, W, S], [1, 1, 2], Status.RUN_FAILED, W, 0.25),
        ([A, A], [0, 0], Status.SUCCESS, A, 1.0),
        ([A, W], [0, 0], Status.RUN_FAILED, W, 0.0),
        ([W, A], [0, 5], Status.RUN_FAILED, W, 1.0),
        ([A, W], [1.5e308, 1.5e308], Status.RUN_FAILED, W, 0.5),
    ],
)
def test_the_first_failed_test_gives_the_verdict_and_weights_the_score(
    verdicts: list[Verdict],
    weights: list[float],
    status: Status,
    overall: Verdict,
    score: float,
) -> None:
    result = sum_up(results_of(*verdicts), weights)
    assert (result.status, result.verdict, result.score) == (status, overall, score)
    assert len(result.tests) == len(verdicts)


def test_the_message_of_a_task_is_that_of_its_first_failed_test() -> None:
    tests = [TestResult("one", A), TestResult("two", W, message='line 1: "5" is wrong')]
    assert sum_up(tests, [1, 1]).message == 'test two: line 1: "5" is wrong'
