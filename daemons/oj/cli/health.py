"""One look at the whole cluster, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from oj import model, plain
from oj.calls import Calls
from oj.client import Judicators
from oj.clock import Deadline
from oj.errors import Rejected, Unavailable
from oj.rpc import ttypes as rpc
from oj.settings import parse_address

ASK_S = 4.0
PING_S = 2.0
OLD_MS = 60_000  # a task that waits longer than this is worth a word


@dataclass(frozen=True)
class View:
    """What `oj status` shows; what could not be asked is empty, and `unanswered` says why."""

    version: str
    unanswered: dict[str, str]
    judicators: tuple[Any, ...] = ()
    silent: frozenset[str] = frozenset()  # those that are registered but do not serve
    executors: tuple[Any, ...] = ()
    stats: Any = None
    cluster: Any = None  # None: the judicator is too old to tell of etcd and the database

    @property
    def stands_still(self) -> bool:
        """No task is taken in or handed out."""
        if self.cluster is None:
            return "tasks" in self.unanswered
        return not any(m.state == "primary" and m.healthy for m in self.cluster.database)

    def degraded(self) -> list[str]:
        """What is not as it should be, each a sentence; the worst first."""
        found = self._by_judicator() if self.cluster is not None else self._by_ourselves()
        for info in self.executors:
            if plain.executor_state(info) == "draining":
                found.append(f"executor {info.name} is draining; `oj drain {info.name} --off`")
        return found + self._waiting()

    def _by_judicator(self) -> list[str]:
        # What cannot be asked mostly follows from what is told here anyway.
        troubles = list(self.cluster.troubles)
        return troubles or [f"{what} cannot be told: {why}" for what, why in self._unexplained()]

    def _unexplained(self) -> list[tuple[str, str]]:
        return [pair for pair in self.unanswered.items() if pair[0] != "judicators"]

    def _by_ourselves(self) -> list[str]:
        """As far as a judicator that is too old for `cluster` lets us see."""
        found = [f"{what} cannot be told: {why}" for what, why in self.unanswered.items()]
        found += [f"judicator {name} does not serve" for name in sorted(self.silent)]
        if "judicators" not in self.unanswered and not any(j.leader for j in self.judicators):
            found.append("no judicator leads: lost tasks are not returned to the queue")
        for info in self.executors:
            state = plain.executor_state(info)
            if state == "sick":
                found.append(f"executor {info.name} is sick: {info.facts.message or 'no reason'}")
            elif state not in ("ok", "draining"):
                found.append(f"executor {info.name} is {state}")
        serving = [e for e in self.executors if plain.executor_state(e) == "ok"]
        if not serving and "executors" not in self.unanswered:
            found.append("no executor serves")
        return found

    def _waiting(self) -> list[str]:
        oldest_ms = (self.stats and self.stats.oldest_pending_ms) or 0
        if oldest_ms <= OLD_MS:
            return []
        return [
            f"the oldest task has waited {oldest_ms // 1000} s; add executors, or one that has "
            "its language: `oj search --status pending --oldest-first`"
        ]

    def plain(self) -> dict[str, Any]:
        stats = self.stats or rpc.Stats()
        etcd, database = (self.cluster.etcd, self.cluster.database) if self.cluster else ((), ())
        return {
            "version": self.version,
            "judicators": [
                {**plain.judicator(j), "serves": j.name not in self.silent} for j in self.judicators
            ],
            "leader": next((j.name for j in self.judicators if j.leader), None),
            "executors": [plain.executor(e) for e in self.executors],
            "slots": stats.slots or 0,
            "executing": stats.executing or 0,
            "queue": stats.queue or 0,
            "oldest_pending_ms": stats.oldest_pending_ms,
            "by_status": plain.counts(stats.by_status, model.Status),
            "by_verdict": plain.counts(stats.by_verdict, model.Verdict),
            "degraded": self.degraded(),
            "etcd": [plain.etcd_member(m) for m in etcd],
            "database": [plain.database_member(m) for m in database],
            "primary": next((m.name for m in database if m.state == "primary"), None),
            "gateways": [
                plain.gateway(one) for one in (self.cluster and self.cluster.gateways) or ()
            ],
            "seen_from": self.cluster.seen_from if self.cluster else None,
            "unanswered": self.unanswered,
        }


def look(client: Calls) -> View:
    """Asks about each part; Unavailable only if no judicator answers anything at all."""
    version = client.version().oj
    unanswered: dict[str, str] = {}

    def ask(what: str, call: Callable[[Deadline], Any], otherwise: Any) -> Any:
        try:
            return call(Deadline(ASK_S))
        except Unavailable as error:
            unanswered[what] = error.message
            return otherwise

    try:
        cluster = ask("cluster", client.cluster, None)
    except Rejected:  # an old one, which does not know the call
        cluster = None
    if cluster is not None:
        judicators = sorted(cluster.judicators, key=_name)
        silent = frozenset(j.name for j in judicators if not j.healthy)
    else:
        judicators = sorted(ask("judicators", client.judicators, []), key=_name)
        with ThreadPoolExecutor(max(1, min(16, len(judicators)))) as threads:
            serves = list(threads.map(_serves, judicators))
        silent = frozenset(j.name for j, ok in zip(judicators, serves, strict=True) if not ok)
    return View(
        version=version,
        judicators=tuple(judicators),
        silent=silent,
        executors=tuple(sorted(ask("executors", client.executors, []), key=_name)),
        stats=ask("tasks", client.stats, None),
        unanswered=unanswered,
        cluster=cluster,
    )


def _name(info: Any) -> str:
    return str(info.name)


def _serves(judicator: Any) -> bool:
    try:
        with Judicators([parse_address(judicator.address)], learn=False) as one:
            one.ping(Deadline(PING_S))
    except (Unavailable, Rejected, ValueError):
        return False
    return True
