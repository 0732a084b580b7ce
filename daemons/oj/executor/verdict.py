"""The verdict: one pure function from the facts of a run, and the sums over a task.

Nothing here looks at anything but its arguments, so every rule of judging can
be read in, and tested by, one table.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass

from oj.executor.runs import Difference, LimitHit
from oj.model import Result, Status, TestResult, Verdict


@dataclass(frozen=True)
class RunFacts:
    """How a run ended, as far as a verdict depends on it."""

    limit_hit: LimitHit = LimitHit.NONE
    exit_code: int | None = 0
    signal: int | None = None
    cpu_us: int = 0
    cpu_limit_ms: int = 0
    """0: do not look."""
    exec_error: int = 0
    """errno, if there was nothing that could be executed."""
    memory_bytes: int = 0
    memory_allowed_bytes: int = 0
    """To the program, without what its language needs itself."""
    memory_signal: int = 0
    """By which the language's runtime ends a program that has used that up; 0: by none."""


_KILLING = {
    LimitHit.CPU: (Verdict.TIME_LIMIT, "used more CPU time than allowed"),
    LimitHit.WALL: (Verdict.WALL_LIMIT, "idled past the wall-clock limit"),
    LimitHit.MEMORY: (Verdict.MEMORY_LIMIT, "used more memory than allowed"),
    LimitHit.OUTPUT: (Verdict.OUTPUT_LIMIT, "printed more than allowed"),
}

# These do not end a program by themselves: a call of it fails. What counts is
# whether it coped.
_SPOILING = {
    LimitHit.DISK: (Verdict.OUTPUT_LIMIT, "wrote more to files than allowed"),
    LimitHit.PROCESSES: (Verdict.RUNTIME_ERROR, "started more processes than allowed"),
}


def judge_run(facts: RunFacts) -> tuple[Verdict | None, str]:
    """The verdict that the run alone decides, and why; None: its output decides.

    A limit counts more than how the program ended, because it is usually the
    cause: memory that could not be had shows as an exit code. A crash counts
    more than the output: a right answer before a crash is no success.
    """
    if facts.limit_hit in _KILLING:
        return _KILLING[facts.limit_hit]
    if facts.cpu_limit_ms and facts.cpu_us > facts.cpu_limit_ms * 1000:
        # Ended by itself between the limit and the moment it would have been killed.
        return _KILLING[LimitHit.CPU]
    if facts.signal is not None or facts.exit_code != 0:
        if facts.signal == facts.memory_signal and facts.memory_bytes > facts.memory_allowed_bytes:
            # The kernel would have allowed more: the runtime's own needs.
            return _KILLING[LimitHit.MEMORY]
        if facts.limit_hit in _SPOILING:
            return _SPOILING[facts.limit_hit]
        if facts.exec_error:
            return Verdict.RUNTIME_ERROR, f"cannot be executed: {os.strerror(facts.exec_error)}"
        if facts.signal is not None:
            return Verdict.RUNTIME_ERROR, f"ended by signal {facts.signal}"
        return Verdict.RUNTIME_ERROR, f"exit code {facts.exit_code}"
    return None, ""


def judge_output(difference: Difference | None) -> tuple[Verdict, str]:
    """The verdict on what a program printed that ran well, and why."""
    if difference is None:
        return Verdict.ACCEPTED, ""
    if difference.in_space:
        return Verdict.PRESENTATION_ERROR, f"{difference.where}; only white space differs"
    return Verdict.WRONG_ANSWER, difference.where


def judge_compile(facts: RunFacts) -> str | None:
    """Why a compile step failed, or None if it did not."""
    verdict, message = judge_run(facts)
    return None if verdict is None else f"the compiler {_of_compiler(facts, message)}"


def _of_compiler(facts: RunFacts, message: str) -> str:
    if message.startswith("exit code"):
        return f"found errors ({message})"
    if message.startswith("ended by"):
        return f"was {message}"
    return message


def sum_up(tests: Sequence[TestResult], weights: Sequence[float]) -> Result:
    """The result of a task whose tests were run; tests and weights go together.

    The first test that failed gives the verdict, as a contestant expects who
    reads from the top.
    """
    overall = Verdict.ACCEPTED
    message = ""
    for test in tests:
        if test.verdict not in (Verdict.ACCEPTED, Verdict.SKIPPED):
            overall = test.verdict
            message = f"test {test.name}: {test.message}" if test.message else f"test {test.name}"
            break
    total = sum(weights)
    if math.isinf(total):
        weights = [weight / len(weights) for weight in weights]
        total = sum(weights)
    gained = sum(
        weight
        for test, weight in zip(tests, weights, strict=True)
        if test.verdict is Verdict.ACCEPTED
    )
    accepted = overall is Verdict.ACCEPTED
    return Result(
        status=Status.SUCCESS if accepted else Status.RUN_FAILED,
        verdict=overall,
        tests=tuple(tests),
        score=gained / total if total > 0 else float(accepted),
        message=message,
    )
