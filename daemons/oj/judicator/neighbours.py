"""A picture of the cluster: every neighbour is asked at once, with little time to answer.

Theory of operation. Each question has a thread of its own, and nobody waits longer than a second
for any of them; one that is still not answered then is not asked again before it is. What does not
answer is shown as it was known last. So an operator gets a picture in any state of the cluster,
which is when he needs it. Connections to etcd's members are kept between two looks.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from oj.clock import Deadline
from oj.errors import Unavailable
from oj.etcdmessages import Member, MemberStatus
from oj.etcdwire import Connection
from oj.judicator.store.gateways import Gateway
from oj.judicator.store.replicas import Replicas
from oj.judicator.store.roster import Executor
from oj.judicator.troubles import (
    DatabaseMember,
    EtcdMember,
    ExecutorSeen,
    GatewaySeen,
    Judicator,
    Picture,
)
from oj.link import BROKEN, connect
from oj.redact import describe
from oj.registry import Registry, format_address
from oj.settings import parse_address

ANSWER_S = 0.9
MEMBERS_PREFIX = "mongodb/member/"

Address = tuple[str, int]


class Questions:
    """Asks many at once, and waits for all of them only so long."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: set[str] = set()

    def ask(self, questions: dict[str, Callable[[], Any]], timeout_s: float) -> dict[str, Any]:
        """The answers by name; an Unavailable for who raised one or did not answer in time."""
        answers: dict[str, Any] = {name: Unavailable("no answer in time") for name in questions}
        came: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        asked = 0
        for name, question in questions.items():
            with self._lock:
                if name in self._open:
                    continue  # whoever asked before still waits
                self._open.add(name)
            asked += 1
            threading.Thread(
                target=self._run, args=(name, question, came), name="question", daemon=True
            ).start()
        deadline = Deadline(timeout_s)
        for _ in range(asked):
            try:
                name, answer = came.get(timeout=max(0.001, deadline.left_s))
            except queue.Empty:
                break
            answers[name] = answer
        return answers

    def _run(
        self, name: str, question: Callable[[], Any], came: queue.SimpleQueue[tuple[str, Any]]
    ) -> None:
        answer: Any
        try:
            answer = question()
        except Unavailable as error:
            answer = error
        except Exception as error:  # noqa: BLE001 - told to the operator with the picture
            answer = Unavailable(describe(error)[:200])
        finally:
            with self._lock:
                self._open.discard(name)
        came.put((name, answer))


class Neighbours:
    """Who belongs to the cluster, and how they fare."""

    def __init__(
        self,
        etcd: Sequence[Address],
        registry: Registry,
        replicas: Replicas,
        judicators: Callable[[], list[tuple[str, str, bool]]],
        executors: Callable[[], list[Executor]],
        gateways: Callable[[], list[Gateway]],
    ) -> None:
        self._etcd = [format_address(*address) for address in etcd]
        self._registry = registry
        self._replicas = replicas
        self._judicators = judicators
        self._executors = executors
        self._gateways = gateways
        self._questions = Questions()
        self._lock = threading.Lock()
        self._connections: dict[str, Connection] = {}
        self._members: list[Member] = []  # of etcd, as known last
        self._database: list[DatabaseMember] = []
        self._peers: list[tuple[str, str, bool]] = []

    def close(self) -> None:
        with self._lock:
            connections, self._connections = self._connections, {}
        for connection in connections.values():
            connection.close()

    def look(self) -> Picture:
        endpoints = list(dict.fromkeys([*self._etcd, *map(_client_address, self._members)]))
        first = self._questions.ask(
            {
                **self._about_etcd(endpoints),
                "quorum": self._registry.ping,
                "names": lambda: self._registry.get_prefix(MEMBERS_PREFIX),
                "judicators": self._judicators,
                "database": self._replicas.look,
                "executors": self._executors,
                "gateways": self._gateways,
            },
            ANSWER_S,
        )
        self._remember(first, endpoints)
        # Who was not known a moment ago, and the judicators as they are registered now.
        members = [_client_address(member) for member in self._members]
        second = self._questions.ask(
            {
                **self._about_etcd(a for a in members if a and a not in endpoints),
                **{f"version {name}": _ask_version(address) for name, address, _ in self._peers},
            },
            ANSWER_S,
        )
        answers = {**first, **second}
        return Picture(
            etcd=self._describe_etcd(answers),
            database=_describe_database(self._database, answers["database"], answers["names"]),
            judicators=[
                Judicator(
                    name,
                    address,
                    leader,
                    healthy=isinstance(answers[f"version {name}"], str),
                    version=_text(answers[f"version {name}"]),
                )
                for name, address, leader in self._peers
            ],
            executors=_describe_executors(answers["executors"]),
            gateways=_describe_gateways(answers["gateways"]),
            leader_known=not isinstance(answers["judicators"], Unavailable),
            etcd_problem=_problem(answers["quorum"]),
            database_problem=_problem(answers["database"]),
        )

    def _remember(self, answers: dict[str, Any], endpoints: Iterable[str]) -> None:
        lists = [answers[f"members {address}"] for address in endpoints if address]
        known = [found for found in lists if not isinstance(found, Unavailable) and found]
        with self._lock:
            if known:
                # A member that was cut off may not know of the latest change: most win.
                self._members = max(
                    known, key=lambda found: sum(_ids(f) == _ids(found) for f in known)
                )
            if not isinstance(answers["database"], Unavailable):
                self._database = answers["database"]
            if not isinstance(answers["judicators"], Unavailable):
                self._peers = answers["judicators"]
            else:
                # Nobody can say who leads now.
                self._peers = [(name, address, False) for name, address, _ in self._peers]

    # ------------------------------------------------------------------ etcd

    def _about_etcd(self, addresses: Iterable[str]) -> dict[str, Callable[[], Any]]:
        questions: dict[str, Callable[[], Any]] = {}
        for address in filter(None, addresses):
            connection = self._connection(address)
            questions[f"members {address}"] = partial(connection.members, timeout_s=ANSWER_S)
            questions[f"status {address}"] = partial(connection.status, timeout_s=ANSWER_S)
        return questions

    def _connection(self, address: str) -> Connection:
        with self._lock:
            if address not in self._connections:
                self._connections[address] = Connection(address)
            return self._connections[address]

    def _describe_etcd(self, answers: dict[str, Any]) -> list[EtcdMember]:
        members = self._members or [Member(0, address, (), (address,)) for address in self._etcd]
        said = {
            status.id: status
            for name, status in answers.items()
            if name.startswith("status ") and isinstance(status, MemberStatus)
        }
        found = []
        for member in members:
            address = _client_address(member)
            answer: Any = said.get(member.id) or answers.get(f"status {address}")
            healthy, message = _judge_member(member, answer)
            leader = any(status.leader_id == member.id for status in said.values())
            found.append(
                EtcdMember(
                    name=member.name or address or "unnamed",
                    address=address,
                    healthy=healthy,
                    leader=healthy and leader,
                    learner=member.learner,
                    message=message,
                )
            )
        return sorted(found, key=lambda member: member.name)


def _judge_member(member: Member, answer: Any) -> tuple[bool, str]:
    if isinstance(answer, MemberStatus):
        if answer.id != member.id and member.id:
            return False, "another member answers at its address"
        return bool(answer.leader_id), "" if answer.leader_id else "knows no leader"
    if answer is None:
        return False, "has not been started yet"
    return False, _problem(answer)


def _describe_database(
    known: Sequence[DatabaseMember], answer: Any, names: Any
) -> list[DatabaseMember]:
    nodes = {} if isinstance(names, Unavailable) else {a: name for name, a in names.items()}
    found = []
    for member in known:
        named = replace(member, name=nodes.get(member.address) or _host(member.address))
        if isinstance(answer, Unavailable):
            named = replace(named, state="unknown", healthy=False, lag_ms=None)
        found.append(named)
    return sorted(found, key=lambda member: member.name)


def _describe_executors(answer: Any) -> list[ExecutorSeen] | None:
    if isinstance(answer, Unavailable):
        return None
    return [
        ExecutorSeen(
            executor.name,
            executor.silent,
            executor.drained,
            executor.facts.state if executor.facts else "ok",
            executor.facts.message if executor.facts else "",
            executor.address,
            tuple(rival.address for rival in executor.rivals),
        )
        for executor in answer
    ]


def _describe_gateways(answer: Any) -> list[GatewaySeen]:
    if isinstance(answer, Unavailable):
        return []
    return [
        GatewaySeen(one.name, one.address, one.version, one.silent, one.report_time_ms, one.places)
        for one in answer
    ]


def _ask_version(address: str) -> Callable[[], str]:
    def ask() -> str:
        deadline = Deadline(ANSWER_S)
        try:
            link = connect([parse_address(address)], deadline, lambda *_: None)
        except (OSError, ValueError) as error:
            raise Unavailable(str(error)) from None
        try:
            link.deadline, link.quiet_s = deadline, None
            return str(link.call("version").oj)
        except BROKEN as error:
            raise Unavailable(str(error)) from None
        finally:
            link.close()

    return ask


def _client_address(member: Member) -> str:
    """HOST:PORT of a member; nothing before its first start."""
    urls = member.client_urls
    return urls[0].partition("://")[2] or urls[0] if urls else ""


def _ids(members: Sequence[Member]) -> list[int]:
    return sorted(member.id for member in members)


def _host(address: str) -> str:
    return address.rpartition(":")[0].strip("[]")


def _problem(answer: Any) -> str:
    return answer.message if isinstance(answer, Unavailable) else ""


def _text(answer: Any) -> str:
    return answer if isinstance(answer, str) else ""
