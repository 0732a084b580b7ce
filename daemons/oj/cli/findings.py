"""What `oj doctor` finds: a sentence, how bad it is, and how to repair it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True)
class Finding:
    """One line of the doctor's report."""

    check: str
    state: str
    message: str
    repair: str = ""


Check = Callable[[], Iterable[Finding]]


def ok(check: str, message: str) -> Finding:
    return Finding(check, OK, message)


def warn(check: str, message: str, repair: str) -> Finding:
    return Finding(check, WARN, message, repair)


def fail(check: str, message: str, repair: str) -> Finding:
    return Finding(check, FAIL, message, repair)


def sentence(error: Exception) -> str:
    """An exception for people."""
    text = getattr(error, "message", "") or getattr(error, "strerror", "") or str(error)
    return str(text) or type(error).__name__
