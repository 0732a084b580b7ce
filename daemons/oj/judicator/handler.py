"""The calls of the IDL: read what was sent, ask the right part, write the answer.

Errors of ours become the IDL's exceptions here; anything else is a bug, is
logged with its traceback by the generated code, and reaches the caller as an
internal error.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from oj import __version__, model
from oj.errors import Missing, Oversized, Rejected, Unavailable
from oj.judicator import connect_back, numbers, wire
from oj.judicator.broker import Added, Broker
from oj.judicator.cluster import Cluster
from oj.judicator.health import Pulse
from oj.judicator.neighbours import Neighbours
from oj.judicator.outward import Outward
from oj.judicator.reports import Reports
from oj.judicator.store.blobs import Blobs
from oj.judicator.store.search import Search
from oj.judicator.troubles import find_troubles
from oj.rpc import ttypes as rpc
from oj.settings import is_loopback

# 2: cluster(), forget(); 3: what gateways need, from events() on; 4: announce(), probe(), store()
PROTOCOL = 4
MOST_DIGESTS = 10_000

F = TypeVar("F", bound=Callable[..., Any])


# Those that the IDL lets answer TooLarge; elsewhere it is an invalid request.
_TELL_SIZES = {"add", "addMany", "putBlob"}
# Those that do without the database.
_WITHOUT_DATABASE = {"judicators", "cluster", "probe"}
# Those that take as long as there is no news: how long says nothing of us.
_WAITING = {"wait", "events", "report"}


def answers(method: F) -> F:
    """Gives our errors the IDL's form, and refuses at once while the database is away."""
    tells_sizes = method.__name__ in _TELL_SIZES
    needs_database = method.__name__ not in _WITHOUT_DATABASE
    name = "" if method.__name__ in _WAITING else method.__name__

    @functools.wraps(method)
    def call(self: Handler, *args: Any) -> Any:
        begun_s = time.monotonic()
        try:
            if needs_database:
                self._database_pulse.check()
            answer = method(self, *args)
            if name:
                numbers.CALLS.note(time.monotonic() - begun_s, name)
            return answer
        except Missing as error:
            numbers.REFUSED.add("request")
            raise rpc.NotFound(error.message, error.field) from None
        except Rejected as error:
            numbers.REFUSED.add("request")
            if isinstance(error, Oversized) and tells_sizes:
                raise rpc.TooLarge(error.message, error.field, error.limit_bytes) from None
            raise rpc.InvalidRequest(error.message, error.field) from None
        except Unavailable as error:
            numbers.REFUSED.add("unavailable")
            raise rpc.Unavailable(error.message, error.retry_ms) from None

    return call  # type: ignore[return-value]


class Handler:
    """Implements the generated Judicator.Iface."""

    def __init__(
        self,
        broker: Broker,
        reports: Reports,
        search: Search,
        blobs: Blobs,
        cluster: Cluster,
        neighbours: Neighbours,
        outward: Outward,
        database_pulse: Pulse,
        etcd_pulse: Pulse,
        name: str,
        current: threading.local,
        host: str = "",
    ) -> None:
        self._broker = broker
        self._reports = reports
        self._search = search
        self._blobs = blobs
        self._cluster = cluster
        self._neighbours = neighbours
        self._outward = outward
        self._database_pulse = database_pulse
        self._etcd_pulse = etcd_pulse
        self._name = name
        self._current = current  # .connection is that of the calling thread
        self._host = host  # of this machine, for who connects from it
        self._probes = connect_back.Rate()

    @answers
    def ping(self) -> None:
        self._etcd_pulse.check()

    def version(self) -> rpc.Version:
        return rpc.Version(oj=__version__, protocol=PROTOCOL)

    # ----------------------------------------------------------------- tasks

    def _find_blobs(self, tasks: Sequence[Added], places: Iterable[str] = ("",)) -> list[Added]:
        """The same, each with those of its blobs that no task has named before.

        Raises Rejected if one is not stored; its place comes before the field of the task.
        """
        digests = [wire.digests_of(added.task) for added in tasks]
        named: dict[str, str] = {}
        for place, of_task in zip(places, digests, strict=True):
            for digest, where in of_task.items():
                named.setdefault(digest, place + where)
        new = self._blobs.check_stored(named)
        if not new:
            return list(tasks)
        return [
            replace(added, new_blobs={digest: new[digest] for digest in of_task if digest in new})
            for added, of_task in zip(tasks, digests, strict=True)
        ]

    @answers
    def add(self, task: Any) -> str:
        (added,) = self._find_blobs([wire.read_task(task)])
        return self._broker.add(added)

    @answers
    def addMany(self, tasks: Any) -> list[str]:
        if tasks is None or len(tasks) > model.MAX_TASKS:
            raise Rejected(f"tasks needs at most {model.MAX_TASKS}", "tasks")
        added = []
        for i, task in enumerate(tasks):
            try:
                added.append(wire.read_task(task))
            except Oversized as error:
                field = f"tasks[{i}].{error.field or ''}".rstrip(".")
                raise Oversized(error.message, error.limit_bytes, field) from None
            except Rejected as error:
                field = f"tasks[{i}].{error.field or ''}".rstrip(".")
                raise Rejected(error.message, field) from None
        places = [f"tasks[{i}]." for i in range(len(added))]
        return self._broker.add_many(self._find_blobs(added, places))

    @answers
    def cancel(self, id: Any) -> bool:
        return self._broker.cancel(model.check_id(id))

    @answers
    def get(self, id: Any, what: Any) -> rpc.TaskInfo:
        task_id, what = model.check_id(id), _read_what(what)
        record = self._broker.get(task_id, **_wanted(what))
        return wire.write_info(record, what)

    @answers
    def wait(
        self, id: Any, known_status: Any, wait_ms: Any, what: Any, known_tests_done: Any
    ) -> rpc.TaskInfo:
        task_id, what = model.check_id(id), _read_what(what)
        try:
            known = None if known_status is None else model.Status(known_status)
        except ValueError:
            raise Rejected(f"{known_status} is not a Status", "known_status") from None
        tests_done = -1 if known_tests_done is None else known_tests_done
        record = self._broker.wait(
            task_id, known, tests_done, wire.read_wait(wait_ms), **_wanted(what)
        )
        return wire.write_info(record, what)

    @answers
    def search(self, conditions: Any, cursor: Any, limit: Any) -> rpc.Page:
        records, after = self._search.find(conditions or rpc.Conditions(), cursor or "", limit)
        return rpc.Page(tasks=[wire.write_info(record) for record in records], cursor=after)

    # ----------------------------------------------------------------- blobs

    @answers
    def hasBlobs(self, digests: Any) -> set[str]:
        wanted = digests or set()
        if len(wanted) > MOST_DIGESTS:
            raise Rejected(f"digests has more than {MOST_DIGESTS}", "digests")
        for digest in wanted:
            model.check_digest(digest, "digests")
        return self._blobs.find(wanted)

    @answers
    def putBlob(self, digest: Any, offset: Any, data: Any, last: Any) -> int:
        model.check_digest(digest)
        return self._blobs.put(digest, offset or 0, data or b"", bool(last))

    @answers
    def getBlob(self, digest: Any, offset: Any, length: Any) -> bytes:
        model.check_digest(digest)
        return self._blobs.get(digest, offset or 0, length or 0)

    # --------------------------------------------------------------- cluster

    @answers
    def report(
        self,
        executor: Any,
        incarnation: Any,
        complete: Any,
        executing: Any,
        vacant: Any,
        facts: Any,
        wait_ms: Any,
        number: Any,
        settled: Any,
    ) -> rpc.ReportReply:
        connection = self._current.connection
        report = wire.read_report(
            executor,
            incarnation,
            complete,
            executing,
            vacant,
            facts,
            wait_ms,
            number,
            settled,
            connection.stands,
            self._caller_host(),
        )
        begun_s = time.monotonic()
        reply = self._reports.report(report)
        if not report.wait_s:
            numbers.CALLS.note(time.monotonic() - begun_s, "report")
        if reply.assign:
            connection.on_undelivered = lambda: self._reports.undelivered(report, reply)
        return wire.write_reply(reply, self._broker.rules.lease_s)

    def _caller_host(self) -> str:
        host = str(self._current.connection.host)
        return self._host if is_loopback(host) else host  # as others find this machine

    @answers
    def executors(self) -> list[rpc.ExecutorInfo]:
        return [wire.write_executor(executor) for executor in self._cluster.executors()]

    @answers
    def judicators(self) -> list[rpc.JudicatorInfo]:
        self._etcd_pulse.check()
        return [
            rpc.JudicatorInfo(name=name, address=address, leader=leads)
            for name, address, leads in self._cluster.judicators()
        ]

    @answers
    def stats(self) -> rpc.Stats:
        stats = self._cluster.stats()
        return rpc.Stats(
            by_status={int(status): n for status, n in stats.by_status.items()},
            queue=stats.queue,
            oldest_pending_ms=stats.oldest_pending_ms,
            by_verdict={int(verdict): n for verdict, n in stats.by_verdict.items()},
            executors=stats.executors,
            slots=stats.slots,
            executing=stats.executing,
        )

    @answers
    def cluster(self) -> rpc.Cluster:
        picture = self._neighbours.look()
        return wire.write_cluster(picture, find_troubles(picture), self._name)

    @answers
    def probe(self, ports: Any, word: Any) -> rpc.Probe:
        came_ms = int(time.time() * 1000)
        host = self._current.connection.host
        wanted, said = connect_back.check_request(ports, word)
        with self._probes.admitted(host):
            found = connect_back.try_ports(host, wanted, said)
        return rpc.Probe(
            address=host,
            time=came_ms,
            ports=[
                rpc.Reached(one.port, one.connected, one.answered, one.problem or None)
                for one in found
            ],
        )

    # -------------------------------------------------------------- gateways

    @answers
    def events(self, cursor: Any, wait_ms: Any, limit: Any) -> rpc.Events:
        return self._outward.events(cursor or "", wire.read_wait(wait_ms), limit or 0)

    @answers
    def history(self, since: Any) -> list[rpc.Minute]:
        return self._outward.history(since or 0)

    @answers
    def addToken(self, token: Any, hash: Any) -> rpc.Token:
        return self._outward.add_token(token, hash)

    @answers
    def findToken(self, hash: Any) -> rpc.Token:
        return self._outward.find_token(hash)

    @answers
    def tokens(self) -> list[rpc.Token]:
        return self._outward.list_tokens()

    @answers
    def removeToken(self, id: Any) -> None:
        self._outward.remove_token(id)

    @answers
    def spend(self, id: Any, tasks: Any) -> rpc.Quota:
        return self._outward.spend(id, tasks)

    @answers
    def store(self, user: Any, bytes: Any, most_bytes: Any) -> rpc.Quota:
        return self._outward.store(user, bytes, most_bytes)

    @answers
    def claimHooks(self, limit: Any, busy_users: Any, busy_receivers: Any) -> list[rpc.Hook]:
        return self._outward.claim_hooks(limit or 0, busy_users or (), busy_receivers or ())

    @answers
    def finishHook(self, id: Any, attempt: Any, delivered: Any, message: Any) -> None:
        self._outward.finish_hook(id, attempt, bool(delivered), message)

    @answers
    def announce(self, gateway: Any, leaving: Any) -> None:
        self._outward.announce(gateway, bool(leaving), self._caller_host())

    @answers
    def drain(self, executor: Any, on: Any) -> None:
        self._reports.drain(model.check_node(executor, "executor"), bool(on))

    @answers
    def forget(self, executor: Any) -> None:
        self._reports.forget(model.check_node(executor, "executor"))


def _read_what(what: Any) -> int:
    if what is None:
        return 0
    if not 0 <= what <= 7:
        raise Rejected(f"{what} is not a sum of GET_*", "what")
    return int(what)


def _wanted(what: int) -> dict[str, bool]:
    return {"body": bool(what & 1), "result": bool(what & 2), "ended": bool(what & 4)}
