"""Fixtures that every test may use: the tree's own library and real servers.

`etcd` and `mongod` are started once per run; a test keeps apart from others by its own `prefix`
(etcd keys) and `database_name`. `start_daemon` starts one of our daemons and ends it after the
test. What a test wants to break, it starts for itself (`servers.Etcd()`, ...).
"""

from __future__ import annotations

import os
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

# grpc reads it when it is imported; its own resolver waits 3 s where there is no name server.
os.environ.setdefault("GRPC_DNS_RESOLVER", "native")
TREE = Path(__file__).resolve().parents[1]
for folder in (TREE / "tests", TREE / "daemons"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

import hypothesis  # noqa: E402
import pytest  # noqa: E402

import loopback  # noqa: E402
import servers  # noqa: E402

servers.generate_rpc()
servers.use_memory()
# How long an example takes tells how busy the machine is, and nothing about the code.
hypothesis.settings.register_profile(
    "patient", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("patient")


@pytest.fixture(scope="session")
def etcd() -> Iterator[servers.Etcd]:
    """A one-member etcd that all tests share: `.address` is HOST:PORT."""
    server = servers.Etcd()
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture(scope="session")
def mongod() -> Iterator[servers.Mongod]:
    """A replica set of one mongod that all tests share: `.uri`, `.address`."""
    server = servers.Mongod()
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture(scope="session")
def cluster(etcd: servers.Etcd, mongod: servers.Mongod) -> Iterator[loopback.Cluster]:
    """One judicator and one executor that all tests share and none breaks."""
    loopback.prepare()
    with loopback.Cluster(etcd, mongod) as whole:
        yield whole.start()


@pytest.fixture
def directory() -> Iterator[Path]:
    """For servers' data: gone after the test, unlike tmp_path, which outlives three runs."""
    made = servers.make_directory()
    yield made
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def prefix() -> str:
    """A key prefix in etcd that no other test uses."""
    return f"/test-{uuid.uuid4().hex[:12]}/"


@pytest.fixture
def database_name(mongod: servers.Mongod) -> Iterator[str]:
    """A database that no other test uses, dropped afterwards."""
    import pymongo

    name = f"test_{uuid.uuid4().hex[:12]}"
    yield name
    client = pymongo.MongoClient(mongod.uri, serverSelectionTimeoutMS=5000)
    try:
        client.drop_database(name)
    finally:
        client.close()


@pytest.fixture
def start_daemon() -> Iterator[Callable[..., servers.Daemon]]:
    """servers.start_daemon, with every started daemon ended after the test."""
    started: list[servers.Daemon] = []

    def start(role: str, config_text: str, **options: object) -> servers.Daemon:
        wait = options.pop("wait", True)
        daemon = servers.start_daemon(role, config_text, wait=False, **options)  # type: ignore[arg-type]
        started.append(daemon)
        return daemon.wait_ready() if wait else daemon

    yield start
    for daemon in reversed(started):
        daemon.close()
