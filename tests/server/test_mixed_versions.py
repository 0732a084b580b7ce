"""Old and new versions speak with each other, as they do during a rolling upgrade.

The code of an old client or executor is made from the IDL that was released. An old judicator is
one that speaks that IDL on both sides, in front of a real one: it neither knows nor passes on what
was added since.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.transport.TSocket import TSocket
from thrift.transport.TTransport import TFramedTransport

import idl
import loopback
import servers
from executors import FakeExecutor, JudicatorUnderTest, make_result
from oj import model
from oj.client import Judicators
from oj.clock import Deadline
from oj.errors import Rejected
from oj.node.preflight import Preflight, judge
from oj.rpc import ttypes as rpc
from thrift_servers import ThriftServer

OJ = [servers.PYTHON, str(servers.TREE / "daemons" / "bin" / "oj")]


class Version:
    """Generated code of one released IDL."""

    def __init__(self, path: Path, directory: Path) -> None:
        package = f"released_{path.stem.rpartition('-')[2]}"
        idl.generate_python(path, directory, package)
        self.service: Any = importlib.import_module(f"{package}.Judicator")
        self.types: Any = importlib.import_module(f"{package}.ttypes")

    def connect(self, port: int) -> Any:
        socket = TSocket("127.0.0.1", port)
        socket.setTimeout(30_000)
        transport = TFramedTransport(socket)
        transport.open()
        client = self.service.Client(TBinaryProtocolAccelerated(transport))
        client.transport = transport
        return client


@pytest.fixture(scope="module", params=idl.RELEASED, ids=lambda path: str(path.stem))
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    directory = tmp_path_factory.mktemp("released")
    sys.path.insert(0, str(directory))
    try:
        yield Version(request.param, directory)
    finally:
        sys.path.remove(str(directory))


class OldJudicator:
    """Passes calls on, as far as the old IDL goes."""

    def __init__(self, version: Version, behind_port: int) -> None:
        self._version = version
        self._behind_port = behind_port
        self._local = threading.local()
        self._server = ThriftServer(version.service.Processor(self))
        self.port = self._server.port

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            # A connection for each of the server's threads, which are one for each of ours.
            if not hasattr(self._local, "client"):
                self._local.client = self._version.connect(self._behind_port)
            return getattr(self._local.client, name)(*arguments)

        return call

    def close(self) -> None:
        self._server.close()


@pytest.fixture
def old_judicator(old: Version, judicator: JudicatorUnderTest) -> Iterator[OldJudicator]:
    one = OldJudicator(old, judicator.port)
    yield one
    one.close()


def test_an_old_client_and_an_old_executor_work_with_a_new_judicator(
    old: Version, judicator: JudicatorUnderTest, language: str
) -> None:
    types = old.types
    client, executor = old.connect(judicator.port), old.connect(judicator.port)
    client.ping()
    assert client.version().protocol >= 1
    facts = types.Facts(languages={language: "1"}, slots=2, version="old", state="ok")

    def report(number: int, complete: Any = (), executing: Any = (), vacant: int = 0) -> Any:
        return executor.report(
            "old-executor", "i1", list(complete), list(executing), vacant, facts, 500, number,
            number - 1,
        )  # fmt: skip

    report(1)
    data = b"a large input\n" * 10_000
    digest = hashlib.sha256(data).hexdigest()
    assert client.hasBlobs({digest}) == set()
    assert client.putBlob(digest, 0, data, True) == len(data)
    tests = [types.Test(name="1", input=types.Data(digest=digest))]
    source = [types.File("main", types.Data(inline_data=b"source"))]
    task = types.Task(language=language, source=source, tests=tests, user="old", key="k")
    task_id = client.add(task)
    assert client.addMany([task]) == [task_id]

    [given] = report(2, vacant=1).assign
    assert (given.id, given.attempt, given.task.source) == (task_id, 1, source)
    assert executor.getBlob(digest, 0, 1 << 20) == data
    running = types.Executing(task_id, 1, types.Status.RUNNING, 0)
    report(3, executing=[running])
    seen = client.wait(task_id, types.Status.COMPILING, 25_000, 0, -1)
    assert seen.status == types.Status.RUNNING
    outcome = types.Outcome(cpu_ms=1, wall_ms=2, memory_bytes=3, exit_code=0)
    result = types.Result(
        types.Status.SUCCESS,
        types.Verdict.ACCEPTED,
        tests=[types.TestResult("1", types.Verdict.ACCEPTED, outcome)],
        score=1.0,
    )
    done = report(4, complete=[types.Completed(task_id, 1, "i1", result)])
    assert [ref.id for ref in done.acknowledged] == [task_id]
    info = client.get(task_id, 7)
    assert (info.done, info.verdict, info.result.tests[0].outcome) == (True, 1, outcome)
    page = client.search(types.Conditions(user="old", language=language), "", 10)
    assert [one.id for one in page.tasks] == [task_id]

    other = client.add(types.Task(language=language, source=source))
    assert client.cancel(other) is True
    assert client.get(other, 0).status == types.Status.CANCELLED
    assert "old-executor" in {one.name for one in client.executors()}
    # One of an earlier test may be registered for a moment.
    servers.wait_until(
        lambda: [one.leader for one in client.judicators()] == [True], 60, "one, that leads"
    )
    assert client.stats().by_status[types.Status.SUCCESS] >= 1
    client.drain("old-executor", True)
    assert report(5).drained is True
    with pytest.raises(types.InvalidRequest):
        client.add(types.Task())
    with pytest.raises(types.NotFound):
        client.get("0" * 24, 0)


def test_a_new_client_and_a_new_executor_work_with_an_old_judicator(
    old_judicator: OldJudicator, language: str
) -> None:
    executor = FakeExecutor(old_judicator.port, "new-executor", (language,))
    executor.report()
    with Judicators([("127.0.0.1", old_judicator.port)], learn=False) as client:
        client.ping()
        task = model.Task(
            language=language,
            source=(model.File("main", model.Data(inline=b"x" * 100_000)),),  # a blob by itself
            user="new",
        )
        task_id = client.add(task)
        [given] = executor.take(wait_ms=5000)
        assert given.id == task_id
        reply = executor.report(complete=[executor.completed(given, make_result())])
        assert [ref.id for ref in reply.acknowledged] == [task_id]
        info = client.wait_done(task_id, deadline=Deadline(60))
        assert info.verdict == model.Verdict.ACCEPTED
        found, _ = client.search(user="new", language=language)
        assert [one.id for one in found] == [task_id]
    executor.close()


def test_setup_goes_on_where_a_judicator_is_too_old_to_connect_back(
    old_judicator: OldJudicator,
) -> None:
    place = ("127.0.0.1", old_judicator.port)
    trial = Preflight(joins=True, member=True, source="127.0.0.1", judicators=(("n1", place),))
    seen = trial.look(Deadline(30))
    assert seen.heard[0].old
    judged = judge(seen)
    assert judged.refusals == () and "cannot connect back" in judged.notes[0]


def test_a_gateway_is_told_that_an_old_judicator_lists_none(old_judicator: OldJudicator) -> None:
    with Judicators([("127.0.0.1", old_judicator.port)], learn=False) as client:
        for leaving in (False, True):
            with pytest.raises(Rejected):
                client.announce(rpc.GatewayInfo("g1", process="p1"), leaving=leaving)
        client.ping()  # and that the connection is none the worse for it


def test_oj_status_shows_what_an_old_judicator_can_tell(old_judicator: OldJudicator) -> None:
    environment = {
        **os.environ,
        "PYTHONPATH": str(servers.TREE / "daemons"),
        "OJ_JUDICATOR": f"127.0.0.1:{old_judicator.port}",
    }

    def oj(*words: str) -> str:
        return subprocess.run(
            [*OJ, *words], env=environment, capture_output=True, text=True, check=True, timeout=60
        ).stdout

    assert "cannot be shown: the judicator's version is older" in oj("status")
    status = json.loads(oj("status", "--json"))
    assert (status["leader"], status["etcd"], status["seen_from"]) == ("j1", [], None)


def test_a_real_executor_judges_for_an_old_judicator(
    old: Version, etcd: servers.Etcd, mongod: servers.Mongod
) -> None:
    loopback.prepare()
    with loopback.Cluster(etcd, mongod) as cluster:
        cluster.start(executors=0)
        proxy = OldJudicator(old, cluster.ports[0])
        cluster.ports[0] = proxy.port
        cluster.add_executor()
        with Judicators([("127.0.0.1", proxy.port)], learn=False) as client:
            step = model.Step(("/bin/echo", "hello"), model.Limits(wall_ms=60_000))
            info = client.wait_done(client.add(model.Task(execute=step)), deadline=Deadline(60))
            assert info.verdict == model.Verdict.ACCEPTED
            assert info.result and info.result.tests[0].outcome.stdout == b"hello\n"
        proxy.close()
