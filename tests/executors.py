"""A judicator under test, plain callers to it, and simulated executors, which judge nothing.

Tests of the judicator use them to say exactly what an executor would say, at exactly the moment
that matters; benchmarks use them to load a judicator without the cost of running programs.
"""

from __future__ import annotations

import shutil
import socket
import uuid
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TFramedTransport

import servers
from oj import incarnation
from oj.clock import Deadline
from oj.rpc import Judicator
from oj.rpc import ttypes as rpc


class Caller:
    """One connection to a judicator through Thrift's own library, as strangers use it."""

    def __init__(self, port: int, timeout_s: float = 15.0) -> None:
        self._timeout_s = timeout_s
        self.socket = TSocket("127.0.0.1", port)
        self.socket.setTimeout(timeout_s * 1000)
        self.transport = TFramedTransport(self.socket)
        self.client = Judicator.Client(TBinaryProtocolAccelerated(self.transport))
        self.transport.open()
        self.socket.handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.client, name)

        def call(*arguments: Any, timeout_s: float | None = None) -> Any:
            self.socket.setTimeout((timeout_s or self._timeout_s) * 1000)
            return method(*arguments)

        return call

    def close(self) -> None:
        self.transport.close()

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wait_done(self, task_id: str, what: int = 0, timeout_s: float = 20.0) -> Any:
        """Waits for a task's end, as clients do."""
        deadline = Deadline(timeout_s)
        status, info = 0, self.get(task_id, what)
        while not info.done:
            assert not deadline.expired, f"{task_id} is still {info.status}"
            status = info.status
            info = self.wait(task_id, status, 5000, what, -1)
        return info


def make_task(**fields: Any) -> Any:
    """A task that needs no language; fields as in the IDL."""
    fields.setdefault("execute", rpc.Step(command=["/bin/true"]))
    return rpc.Task(**fields)


def make_result(
    status: int = rpc.Status.SUCCESS, verdict: int = rpc.Verdict.ACCEPTED, **fields: Any
) -> Any:
    fields.setdefault(
        "tests",
        [rpc.TestResult("1", verdict, rpc.Outcome(cpu_ms=1, wall_ms=2, exit_code=0))],
    )
    return rpc.Result(status=status, verdict=verdict, **fields)


class FakeExecutor:
    """Says what an executor would say. Numbers its reports; nothing happens by itself."""

    def __init__(
        self,
        port: int,
        name: str = "ex-1",
        languages: tuple[str, ...] = ("c", "python"),
        slots: int = 2,
        state: str = "ok",
        installation: str = "",
    ) -> None:
        self.name, self.port, self.installation = name, port, installation
        # Without an installation as executors of 0.1.0 make it.
        self.incarnation = incarnation.make(installation) if installation else uuid.uuid4().hex
        self.number = 0
        self.settled: int | None = None
        self.facts = rpc.Facts(
            languages=dict.fromkeys(languages, "1.0"), slots=slots, version="test", state=state
        )
        self.caller = Caller(port)

    def report(
        self,
        complete: Any = (),
        executing: Any = (),
        vacant: int = 0,
        wait_ms: int = 0,
        facts: Any = None,
        caller: Caller | None = None,
        number: int | None = None,
        settled: int | None = None,
    ) -> Any:
        if number is None:
            self.number += 1
            number = self.number
        if number == 1 and facts is None:
            facts = self.facts
        return (caller or self.caller).report(
            self.name,
            self.incarnation,
            list(complete),
            list(executing),
            vacant,
            facts,
            wait_ms,
            number,
            number - 1 if settled is None else settled,
            timeout_s=wait_ms / 1000 + 10,
        )

    def take(self, count: int = 1, wait_ms: int = 0) -> list[Any]:
        """Asks for work with nothing in hand."""
        return self.report(vacant=count, wait_ms=wait_ms).assign

    def hear_cancel(self, assignment: Any, wait_ms: int) -> list[str]:
        """What it is to give up. It reports once more, as executors do, when it is told nothing:
        the news may come while its report is on its way in."""
        for _ in range(2):
            executing = [self.executing(assignment)]
            reply = self.report(executing=executing, vacant=1, wait_ms=wait_ms)
            if reply.cancel:
                break
        return [ref.id for ref in reply.cancel]

    def completed(self, assignment: Any, result: Any = None, **fields: Any) -> Any:
        fields.setdefault("incarnation", self.incarnation)
        if "give_back" not in fields:
            fields["result"] = result or make_result()
        return rpc.Completed(assignment.id, assignment.attempt, **fields)

    def executing(self, assignment: Any, status: int = rpc.Status.RUNNING, done: int = 0) -> Any:
        return rpc.Executing(assignment.id, assignment.attempt, status, done)

    def restart(self) -> FakeExecutor:
        """The same executor as a new process."""
        return FakeExecutor(
            self.port,
            self.name,
            tuple(self.facts.languages),
            self.facts.slots,
            self.facts.state,
            self.installation,
        )

    def close(self) -> None:
        self.caller.close()


class JudicatorUnderTest:
    """A running oj-judicator, its port, and callers to it."""

    def __init__(
        self,
        etcd: str,
        mongod: str,
        *,
        name: str = "j1",
        database: str | None = None,
        prefix: str | None = None,
        settings: str = "",
        host: str = "127.0.0.1",
        wait: bool = True,
        **options: Any,
    ) -> None:
        self.name = name
        self.port = servers.free_port()
        self.database = database or f"test_{uuid.uuid4().hex[:12]}"
        self.prefix = prefix or f"/test-{uuid.uuid4().hex[:12]}/"
        self.directory = servers.make_directory()
        self.config = "\n".join(
            [
                f"name = {name}",
                f"listen = {host}:{self.port}",
                f"etcd = {etcd}",
                f"etcd_prefix = {self.prefix}",
                f"mongodb = {mongod}",
                f"database = {self.database}",
                f"state_directory = {self.directory / 'state'}",
                settings,
            ]
        )
        # As the unit has it.
        options.setdefault("env", {"MALLOC_ARENA_MAX": "2", "MALLOC_MMAP_THRESHOLD_": "131072"})
        self._options = options
        self._callers: list[Caller] = []
        self.daemon = servers.start_daemon(
            "judicator", self.config, self.directory, wait=wait, **options
        )

    def call(self, timeout_s: float = 15.0) -> Caller:
        caller = Caller(self.port, timeout_s)
        self._callers.append(caller)
        return caller

    def start_again(self) -> None:
        self.daemon = servers.start_daemon(
            "judicator", self.config, self.directory, **self._options
        )

    def close(self) -> None:
        for caller in self._callers:
            caller.close()
        self.daemon.close()
        shutil.rmtree(self.directory, ignore_errors=True)
