"""A judicator for the tests that speak to one, and what they need to keep apart in it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import servers
from executors import Caller, FakeExecutor, JudicatorUnderTest, make_task
from oj.judicator.store import database
from oj.rpc import ttypes as rpc


@pytest.fixture(scope="session")
def judicator(etcd: servers.Etcd, mongod: servers.Mongod) -> Iterator[JudicatorUnderTest]:
    """A judicator that tests share; each keeps to a language of its own."""
    running = JudicatorUnderTest(etcd.address, mongod.address)
    yield running
    running.close()


@pytest.fixture
def start_judicator(
    etcd: servers.Etcd, mongod: servers.Mongod
) -> Iterator[Callable[..., JudicatorUnderTest]]:
    """Starts judicators of the test's own."""
    started: list[JudicatorUnderTest] = []

    def start(
        etcd_address: str = etcd.address, mongod_address: str = mongod.address, **options: Any
    ) -> JudicatorUnderTest:
        started.append(JudicatorUnderTest(etcd_address, mongod_address, **options))
        return started[-1]

    yield start
    for one in reversed(started):
        one.close()


@pytest.fixture
def caller(judicator: JudicatorUnderTest) -> Iterator[Caller]:
    with Caller(judicator.port) as one:
        yield one


@pytest.fixture
def language() -> str:
    """A language that no other test uses."""
    return f"lang-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def task(language: str) -> Callable[..., Any]:
    """Makes tasks in the test's language."""

    def make(**fields: Any) -> Any:
        fields.setdefault("language", language)
        fields.setdefault("source", [rpc.File("a", rpc.Data(b"source"))])
        return make_task(**fields)

    return make


@pytest.fixture
def executor(judicator: JudicatorUnderTest, language: str) -> Iterator[Callable[..., FakeExecutor]]:
    """Makes executors that have the test's language and have reported once."""
    made: list[FakeExecutor] = []

    def make(name: str | None = None, port: int = judicator.port, **options: Any) -> FakeExecutor:
        options.setdefault("languages", (language,))
        one = FakeExecutor(port, name or f"ex-{uuid.uuid4().hex[:8]}", **options)
        made.append(one)
        one.report()
        return one

    yield make
    for one in made:
        one.close()


@pytest.fixture
def make_client(mongod: servers.Mongod) -> Iterator[Callable[[], Any]]:
    """Makes clients of the shared database, as judicators have them, but patient.

    A judicator answers that the database is slow and is called again; a test calls once.
    """
    made: list[Any] = []

    def make() -> Any:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("SELECT_MS", "CONNECT_MS", "SOCKET_MS"):
                patch.setattr(database, name, 60_000)
            made.append(database.connect(mongod.uri))
        return made[-1]

    yield make
    for client in made:
        client.close()


@pytest.fixture
def mongo(make_client: Callable[[], Any]) -> Any:
    return make_client()


@pytest.fixture
def make_database(mongo: Any) -> Iterator[Callable[[], Any]]:
    """Makes databases that no other test uses."""
    made: list[str] = []

    def make() -> Any:
        made.append(f"test_{uuid.uuid4().hex[:12]}")
        return mongo[made[-1]]

    yield make
    for name in made:
        mongo.drop_database(name)


@pytest.fixture
def etc_of(tmp_path: Path, etcd: servers.Etcd, mongod: servers.Mongod) -> Callable[[Any], Path]:
    """The configuration of a judicator's node with this database."""

    def write(of: Any) -> Path:
        directory = tmp_path / f"etc-{of.name}"
        directory.mkdir(exist_ok=True)
        (directory / "judicator.conf").write_text(
            f"mongodb = {mongod.address}\netcd = {etcd.address}\ndatabase = {of.name}\n"
        )
        return directory

    return write
