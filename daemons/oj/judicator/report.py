"""What an executor says in a report and what it is told: plain values.

The rules are in broker.py; docs/protocol.md explains them to people.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from oj.model import Status, Verdict


@dataclass(frozen=True)
class Judged:
    """A result: what is indexed of it, and all of it as the wire's bytes."""

    status: Status
    verdict: Verdict
    score: float
    message: str
    tests_done: int
    body: bytes


@dataclass(frozen=True)
class Finished:
    """A task that the executor is through with: judged, or given back."""

    id: str
    attempt: int
    incarnation: str
    judged: Judged | None = None
    give_back: str = ""


@dataclass(frozen=True)
class InHand:
    """A task that the executor works on."""

    id: str
    attempt: int
    status: Status | None = None
    tests_done: int = 0


@dataclass(frozen=True)
class Facts:
    """How an executor describes itself."""

    languages: Mapping[str, str] = field(default_factory=dict)
    slots: int = 0
    version: str = ""
    address: str = ""
    state: str = "ok"
    message: str = ""
    system: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    executor: str
    incarnation: str
    finished: tuple[Finished, ...] = ()
    in_hand: tuple[InHand, ...] = ()
    vacant: int = 0
    facts: Facts | None = None
    wait_s: float = 0.0
    number: int = 0
    settled: int = 0
    address: str = ""  # where it comes from, as the judicator sees it
    # Whether the connection that carries this report still stands; asked before
    # a task is handed to a report that was parked for a while.
    connected: Callable[[], bool] = lambda: True


@dataclass(frozen=True)
class Ref:
    """One attempt at one task."""

    id: str
    attempt: int


@dataclass(frozen=True)
class Assigned:
    id: str
    attempt: int
    body: bytes


@dataclass(frozen=True)
class Process:
    """One that reports under an executor's name."""

    incarnation: str
    address: str = ""
    since_ms: int | None = None


@dataclass
class Reply:
    cancel: list[Ref] = field(default_factory=list)
    assign: list[Assigned] = field(default_factory=list)
    acknowledged: list[Ref] = field(default_factory=list)
    drained: bool = False
    want_facts: bool = False
    holder: Process | None = None  # who has the name, if another process has

    @property
    def says_something(self) -> bool:
        return bool(self.cancel or self.assign or self.acknowledged)
