"""Machines where a limit does not bite: the executor refuses to serve, or falls sick and heals."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import loopback
import servers
from oj.calls import GET_ALL
from oj.client import Judicators
from oj.executor.proof import PROBES, Proof
from oj.executor.sandbox import Sandbox, SandboxFailure
from oj.model import Limits, Status, Step, Task
from oj.rpc import ttypes as rpc

FIRST_UID = 76000
LONG = Limits(wall_ms=100_000)


class WornBox:
    """An oj-box (`path`) that loses the limits it is told to; see worn_box.py."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "worn-box"
        self._lost = directory / "lost"
        self.lose("")
        script = Path(__file__).with_name("worn_box.py")
        self.path.write_text(
            f'#!/bin/sh\nexec {servers.PYTHON} {script} {loopback.BOX} {self._lost} "$@"\n'
        )
        self.path.chmod(0o755)

    def lose(self, names: str) -> None:
        part = self._lost.with_suffix(".part")
        part.write_text(names)
        part.rename(self._lost)


@pytest.fixture
def box(directory: Path) -> WornBox:
    loopback.prepare()
    return WornBox(directory)


@pytest.fixture
def few_languages(directory: Path) -> Path:
    languages = directory / "languages.d"
    languages.mkdir()
    (languages / "bash.conf").write_text((loopback.LANGUAGES / "bash.conf").read_text())
    return languages


def test_each_limit_that_does_not_bite_is_named_and_nothing_else(
    box: WornBox, tmp_path: Path
) -> None:
    with Sandbox.start(str(box.path), 2, FIRST_UID) as sandbox:
        proof = Proof(sandbox, tmp_path)
        begun_s = time.monotonic()
        proof.prove_all()
        took_s = time.monotonic() - begun_s
        for lost in ({"cpu", "memory", "processes"}, {"wall", "output", "disk"}):
            box.lose(" ".join(lost))
            with pytest.raises(SandboxFailure) as raised:
                proof.prove_all()
            named = re.findall(
                r"the (?:limit of )?(\w+)(?: limit)? does not bite", f"{raised.value}"
            )
            assert set(named) == lost, raised.value
        box.lose("failing")
        with pytest.raises(SandboxFailure, match="worn out"):
            proof.prove_slot(1)
        box.lose("")
        for _ in PROBES:
            proof.prove_next(1)
    assert took_s < 2 * max(1.0, os.getloadavg()[0])
    assert list(tmp_path.iterdir()) == []


def test_an_executor_refuses_to_serve_where_limits_do_not_bite(
    box: WornBox, directory: Path, few_languages: Path
) -> None:
    box.lose("memory disk")
    executor = servers.Daemon(
        "executor", config(directory, box, few_languages, "127.0.0.1:9"), directory
    )
    with executor:
        status = executor.wait_status("cannot run programs safely here")
        assert "the memory limit does not bite" in status
        assert "the disk limit does not bite" in status
        assert status in executor.log()
        assert executor.wait(60) == 1  # to be started again by systemd
        assert not executor.ready.is_set()


@pytest.fixture
def fresh(
    etcd: servers.Etcd, mongod: servers.Mongod, box: WornBox, directory: Path, few_languages: Path
) -> Iterator[tuple[servers.Daemon, Judicators]]:
    with loopback.Cluster(etcd, mongod) as cluster:
        cluster.start(executors=0)
        address = f"127.0.0.1:{cluster.ports[0]}"
        executor = servers.Daemon(
            "executor", config(directory, box, few_languages, address), directory
        )
        with executor, Judicators(cluster.addresses) as client:
            executor.wait_ready()
            yield executor, client


def config(directory: Path, box: WornBox, languages: Path, judicator: str) -> str:
    directory.chmod(0o755)
    return f"""
name = worn
user = nobody
slots = 2
canary = 200ms
judicators = {judicator}
etcd = ,
state_directory = {directory / "state"}
runtime_directory = {directory / "run"}
languages_directory = {languages}
box = {box.path}
first_uid = {FIRST_UID}
"""


def shell(script: str) -> Task:
    return Task(execute=Step(("/bin/sh", "-c", script), LONG))


def facts(client: Judicators) -> rpc.Facts:
    (known,) = client.executors()
    assert known.facts is not None
    return known.facts


@pytest.mark.parametrize(
    ("lost", "said"),
    [("memory", "the memory limit does not bite"), ("failing", "worn out")],
)
def test_a_sick_executor_gives_its_work_back_and_heals_by_itself(
    fresh: tuple[servers.Daemon, Judicators], box: WornBox, lost: str, said: str
) -> None:
    executor, client = fresh
    task_id = client.add(shell("sleep 100"))
    executor.wait_status(r"^\d+ slots, 1 running")
    box.lose(lost)
    executor.wait_status(f"sick, takes no tasks: .*{said}")

    def given_back() -> bool:
        return client.get(task_id).status is Status.RETRYING

    servers.wait_until(given_back, 5, "the task to be given back")
    servers.wait_until(lambda: facts(client).state == "sick", 5, "the judicator to know")
    assert said in (facts(client).message or "")
    short = client.add(shell("true"))
    assert executor.alive and client.get(short).status is Status.PENDING

    box.lose("")
    attempt, *_ = client.get(task_id, GET_ALL).attempts
    assert said in attempt.ended
    executor.wait_status(r"^\d+ slots")
    servers.wait_until(lambda: facts(client).state == "ok", 5, "the judicator to know")
    servers.wait_until(lambda: client.get(short).done, 10, "the waiting task to be judged")

    def runs_again() -> bool:
        return client.get(task_id).status is Status.RUNNING

    servers.wait_until(runs_again, 20, "the task to run again")
    assert client.get(task_id).attempt == 2
    client.cancel(task_id)
