"""Work that is told before it is done: a list of steps, each a sentence and an act."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from oj.errors import Unavailable

Tell = Callable[[str], None]
LOOK_EVERY_S = 0.5


@dataclass(frozen=True)
class Step:
    """What is going to be done, and how; `act` may tell about its progress."""

    text: str
    act: Callable[[Tell], None]


def wait_for(condition: Callable[[], bool], timeout_s: float, tell: Tell, what: str) -> None:
    """Raises Unavailable when it does not come true in time; what cannot be asked is not true."""
    end_s = time.monotonic() + timeout_s
    problem = ""
    while True:
        try:
            if condition():
                return
            problem = ""
        except Unavailable as error:
            problem = f" ({error.message})"
        if time.monotonic() > end_s:
            raise Unavailable(f"{what}: not within {timeout_s:g} s{problem}")
        tell(what + problem)
        time.sleep(LOOK_EVERY_S)
