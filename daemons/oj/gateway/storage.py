"""What users have stored, bounded by the day ([limits] stored).

Counted is what comes in: sources, data, tests, commands, names, and blobs that are not there yet. A
problem's tests that come with every submission are blobs, and count once, if they are above 64 KiB
or their task is above 1 MiB; smaller ones are stored with each task. The count is kept by the
judicators for all gateways. Each process takes from it in steps and uses those up by itself, so
that a small task costs no call; what is left of a step when the process ends is lost to the user
until tomorrow, which is why a step is a small part of the whole.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping

from flask import Flask, current_app, g

from oj.calls import choose_blobs, digest_of
from oj.errors import UnknownCall
from oj.gateway.access import visitor
from oj.gateway.app import judicators, settings
from oj.gateway.problems import Problem
from oj.model import Data, File, Task, Test
from oj.rpc import ttypes as rpc

TASK_BYTES = 512  # of a task without contents
ENTRY_BYTES = 64  # of a file, a test, a tag, an argument, besides what is in it
STEPS = 256  # in a day's worth
LEAST_STEP_BYTES = 4 << 10
MOST_STEP_BYTES = 4 << 20
UNKNOWN_S = 60.0  # before a judicator that is too old for the call is asked again
_KEPT = 10_000

Ask = Callable[[str, int, int], rpc.Quota]


class Storage:
    """What this process may still store for each user, without asking."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._lock = threading.Lock()
        self._left: OrderedDict[str, int] = OrderedDict()
        self._unknown_until_s = 0.0

    def charge(self, user: str, amount_bytes: int, ask: Ask) -> None:
        """`ask` is the call store() of the judicators."""
        if not self._most:
            return
        with self._lock:
            left = self._left.pop(user, 0)
            if left >= amount_bytes:
                self._keep(user, left - amount_bytes)
                return
            if time.monotonic() < self._unknown_until_s:
                return
        step = min(max(self._most // STEPS, LEAST_STEP_BYTES), MOST_STEP_BYTES)
        missing = amount_bytes - left
        allowed = False
        try:
            taken = ask(user, max(step, missing), self._most)
            allowed = taken.allowed
            if allowed:
                left += max(step, missing)
            elif missing < step:
                taken = ask(user, missing, self._most)
                allowed = taken.allowed
                left += missing if allowed else 0
        except UnknownCall:
            # A judicator that is older than this call, during an upgrade.
            self._unknown_until_s = time.monotonic() + UNKNOWN_S
            return
        finally:
            # Also when no judicator answered: what was taken before is still there.
            with self._lock:
                self._keep(user, left - amount_bytes if allowed else left)
        if not taken.allowed:
            wait_s = max(1, (taken.reset_ms or 0) // 1000)
            raise Problem(
                429,
                f"this needs {amount_bytes} bytes, and {(taken.left_bytes or 0) + left} are left "
                f"of the {self._most} that '{user}' may have stored today; "
                "the administrator can raise 'stored' in gateway.conf",
                headers={"Retry-After": str(wait_s)},
                limit_bytes=self._most,
                left_bytes=(taken.left_bytes or 0) + left,
            )

    def _keep(self, user: str, left_bytes: int) -> None:
        self._left[user] = self._left.get(user, 0) + left_bytes
        if len(self._left) > _KEPT:
            self._left.popitem(last=False)


def install(app: Flask) -> None:
    app.extensions["oj.storage"] = Storage(app.extensions["oj.settings"].limits.stored_bytes)


def charge(amount_bytes: int) -> None:
    """Counts what the visitor has stored; 429 if it is too much for one day."""
    charge_users({visitor().user or g.payer: amount_bytes})


def charge_tasks(tasks: list[Task]) -> None:
    charge_users(measure(tasks))


def measure(tasks: list[Task]) -> Counter[str]:
    """What is stored of new tasks, by the user whose day it counts for: his whose task it is,
    whoever adds it. What becomes a blob counts once, and not at all if it is there already."""
    amounts: Counter[str] = Counter()
    if not settings().limits.stored_bytes:
        return amounts
    large = {content: digest_of(content) for content in choose_blobs(tasks)}
    stored = judicators().has_blobs(large.values()) if large else set()
    counted = {content for content, digest in large.items() if digest in stored}
    for task in tasks:
        amount_bytes = _measure_words(task)
        for data in _contents(task):
            content = data.inline if data else None
            if not content or content in counted:
                continue
            amount_bytes += len(content)
            if content in large:
                counted.add(content)
        amounts[task.user or visitor().user or g.payer] += amount_bytes
    return amounts


def charge_users(amounts: Mapping[str, int]) -> None:
    storage: Storage = current_app.extensions["oj.storage"]
    for user, amount_bytes in amounts.items():
        storage.charge(user, amount_bytes, judicators().store)


def _measure_words(task: Task) -> int:
    """What a task takes beside the contents of files and tests: a command alone may have 2 MiB."""
    words = [*task.compile.command, *task.execute.command, *task.tags]
    words += [task.language, task.user, task.key or "", task.webhook or ""]
    entries: tuple[File | Test, ...] = (*task.source, *task.data, *task.tests)
    words += [entry.name for entry in entries]
    # A word that is no valid text is refused later, by the judicators, and has a length until then.
    inside = sum(len(word.encode("utf-8", "surrogatepass")) for word in words)
    digests = sum(len(data.digest) for data in _contents(task) if data and data.digest)
    return TASK_BYTES + inside + digests + ENTRY_BYTES * len(words)


def _contents(task: Task) -> Iterable[Data | None]:
    yield from (file.data for file in (*task.source, *task.data))
    for test in task.tests:
        yield test.input
        yield test.expected
