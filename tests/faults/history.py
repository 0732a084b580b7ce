"""What clients and the database saw: the lines that load.py writes, as values.

Each line is a JSON object whose `call` names its kind; `t0` and `t1` are the host's monotonic clock
in seconds, before the call and after its answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

FINAL = frozenset({"success", "compile_failed", "run_failed", "cancelled", "internal_error"})


@dataclass(frozen=True)
class Add:
    """One `add`; `id` is None if no answer came. `ends` are the (status, verdict) it may have."""

    key: str
    t0: float
    t1: float
    id: str | None = None
    ends: tuple[str, str] = ("success", "accepted")
    node: str = ""  # the machine that the caller sat on, where it was not the client host


@dataclass(frozen=True)
class Cancel:
    """One `cancel`; `answer` is None if no answer came."""

    id: str
    t0: float
    t1: float
    answer: bool | None = None


@dataclass(frozen=True)
class Seen:
    """A task as an answer showed it; `facts` are its fields that are fixed once it is done."""

    id: str
    t0: float
    t1: float
    status: str
    attempt: int = 1
    facts: Mapping[str, Any] = field(default_factory=dict)
    how: str = "get"
    at: str = ""  # the judicator that answered

    @property
    def done(self) -> bool:
        return self.status in FINAL


@dataclass(frozen=True)
class Absent:
    """An answer that there is no such task."""

    id: str
    t0: float
    t1: float
    how: str = "get"
    at: str = ""


@dataclass(frozen=True)
class Inserted:
    """The database wrote a new task down."""

    id: str
    key: str
    stamp: tuple[int, int]


@dataclass(frozen=True)
class Written:
    """The database changed a task; `fields` are those that tell of its state or result."""

    id: str
    stamp: tuple[int, int]
    status: str | None
    fields: tuple[str, ...] = ()


Line = Add | Cancel | Seen | Absent | Inserted | Written

_KINDS: dict[str, type[Line]] = {
    "add": Add,
    "cancel": Cancel,
    "seen": Seen,
    "absent": Absent,
    "inserted": Inserted,
    "written": Written,
}


@dataclass
class History:
    """Everything, sorted by kind; each list in the order of the lines."""

    adds: list[Add] = field(default_factory=list)
    cancels: list[Cancel] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    absent: list[Absent] = field(default_factory=list)
    inserted: list[Inserted] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)

    def note(self, line: Line) -> None:
        {
            Add: self.adds,
            Cancel: self.cancels,
            Seen: self.seen,
            Absent: self.absent,
            Inserted: self.inserted,
            Written: self.written,
        }[type(line)].append(line)  # type: ignore[attr-defined]


def read(lines: Iterable[str | bytes]) -> History:
    history = History()
    for text in lines:
        fields = json.loads(text)
        kind = _KINDS[fields.pop("call")]
        for name in ("ends", "stamp", "fields"):
            if name in fields:
                fields[name] = tuple(fields[name])
        history.note(kind(**fields))
    return history
