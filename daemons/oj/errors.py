"""The exception roots: whose fault it is decides what happens next.

`Rejected` is the caller's fault (an IDL exception, a 4xx, exit code 2).
`Unavailable` is nobody's fault and worth another try. `Refused` ends a daemon
for good, with the exit code of a wrong configuration. Anything else that
reaches the top of a daemon is a bug: traceback, non-zero exit, restart.
"""

from __future__ import annotations

from collections.abc import Sequence


class Rejected(Exception):
    """The request is wrong and will be wrong again."""

    def __init__(self, message: str, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field


class Missing(Rejected):
    """What the request names does not exist."""


class UnknownCall(Rejected):
    """Who was asked is older than the call."""


class Oversized(Rejected):
    """The request is larger than a limit."""

    def __init__(self, message: str, limit_bytes: int, field: str | None = None) -> None:
        super().__init__(message, field)
        self.limit_bytes = limit_bytes


class Unavailable(Exception):
    """Not now; try again, here or elsewhere."""

    def __init__(self, message: str, retry_ms: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_ms = retry_ms


class Throttled(Unavailable):
    """There is an answer: too much was asked within some time."""


class Refused(Exception):
    """Not like this: a daemon must not start, and no restart mends it; the operator has to act."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class BadSettings(Exception):
    """A configuration with every mistake in it, each a line for people."""

    def __init__(self, mistakes: Sequence[str]) -> None:
        super().__init__("; ".join(mistakes))
        self.mistakes = tuple(mistakes)
