"""Machines that find each other by a name in DNS, an executor that leaves, a gateway of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bed import Bed, Machine, Repository
from bed.machine import Disk
from bed.network import NETWORK, OUTSIDE
from node import wait_for

HERE = Path(__file__).resolve().parent
JUDGES, SERVICE = "judges.test", "oj.test"
DAEMONS = ("oj-etcd", "oj-mongodb", "oj-judicator")
SLEEP_S = 30


@dataclass
class Cluster:
    """Three judicators by the addresses of a name, an executor by the records of another."""

    judicators: list[Machine]
    executor: Machine


def oj(machine: Machine, *words: str, code: int = 0) -> Any:
    done = machine.run(["oj", *words], check=False, timeout_s=280)
    assert done.rc == code, f"{machine.name}: oj {' '.join(words)}: {done}"
    assert "Traceback" not in done.stderr
    return done


def status(machine: Machine) -> Any:
    return json.loads(oj(machine, "status", "--json").stdout)


def show(machine: Machine, name: str, *units: str) -> list[str]:
    text = machine.run(["systemctl", "show", "-P", name, *units]).stdout
    return [line for line in text.splitlines() if line]


def submit(machine: Machine, command: str, *words: str) -> Any:
    return json.loads(oj(machine, "submit", "--command", command, "--json", *words).stdout)


def get(machine: Machine, task: str) -> Any:
    return json.loads(oj(machine, "get", task, "--json").stdout)


@contextmanager
def name_server(bed: Bed, zone: dict[str, Any]) -> Iterator[str]:
    """The address of one, on the bed's network and outside every machine."""
    address = f"{NETWORK}.{OUTSIDE}"
    network = f"--net=/run/netns/{bed.network.namespace}"
    command = ["nsenter", network, sys.executable, str(HERE / "name_server.py"), address]
    server = subprocess.Popen(
        bed.enclosed(command), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps(zone))
    server.stdin.close()
    assert server.stdout.readline() == "serving\n"
    yield address
    server.kill()
    server.wait(10)


@pytest.fixture(scope="module")
def cluster(cluster_bed: Bed, installed: Disk, repository: Repository) -> Iterator[Cluster]:
    judicators = cluster_bed.boot("d1", "d2", "d3", disk=installed)
    (executor,) = cluster_bed.boot("d4")
    executor.add_repository(repository)
    executor.install("oj-executor")  # and nothing that only judicators need
    machines = [*judicators, executor]
    zone = {
        JUDGES: [machine.address for machine in judicators],
        f"_oj-etcd._tcp.{SERVICE}": [[machine.name, 7501] for machine in judicators],
    }
    with name_server(cluster_bed, zone) as address:
        for machine in machines:
            machine.put(f"nameserver {address}\n", "/etc/resolv.conf")
        yield Cluster(judicators, executor)
        for machine in machines:
            if machine.running:
                machine.power_off_hard()


def test_machines_that_were_alone_make_one_cluster_when_all_are_there(cluster: Cluster) -> None:
    first, second, third = cluster.judicators
    # The units are enabled, so that each came up as a cluster of its own.
    for machine in cluster.judicators:
        wait_for(
            "it serves alone", lambda m=machine: show(m, "ActiveState", DAEMONS[2])[0] == "active"
        )
    with ThreadPoolExecutor() as pool:

        def set_up(machine: Machine) -> Any:
            return pool.submit(oj, machine, "setup", "judicator", "--only", "--discover", JUDGES)

        early = [set_up(first), set_up(second)]
        silent = f"nothing is heard of {third.address}"
        for machine in (first, second):
            wait_for(
                "it waits for the third",
                lambda m=machine: silent in " ".join(show(m, "StatusText", "oj-etcd")),
                180,
            )
        assert not any(done.done() for done in early)
        for done in (*early, set_up(third)):
            done.result()
    names = [machine.name for machine in cluster.judicators]

    def knows_all(machine: Machine) -> bool:
        told = status(machine)
        parts = ("etcd", "database", "judicators")
        return all(sorted(one["name"] for one in told[part]) == names for part in parts)

    for machine in cluster.judicators:
        # It shows whom it could ask within a second, so that one look may tell too little.
        wait_for("all of them", lambda m=machine: knows_all(m))


def test_a_second_run_with_the_name_restarts_nobody(cluster: Cluster) -> None:
    for machine in cluster.judicators:
        pids = show(machine, "MainPID", *DAEMONS)
        oj(machine, "setup", "judicator", "--discover", JUDGES)
        assert show(machine, "MainPID", *DAEMONS) == pids


def test_an_executor_finds_them_by_records_of_the_service(cluster: Cluster) -> None:
    executor = cluster.executor
    oj(executor, "setup", "executor", "--discover", SERVICE)
    assert show(executor, "ActiveState", "oj-etcd", "oj-executor") == ["active"] * 2
    assert submit(executor, "/bin/true", "--wait")["verdict"] == "accepted"
    # After a boot it knows no more than the name, too.
    executor.reboot()
    assert submit(executor, "/bin/true", "--wait")["verdict"] == "accepted"


def test_an_executor_that_leaves_ends_what_it_runs_and_takes_no_more(cluster: Cluster) -> None:
    first, executor = cluster.judicators[0], cluster.executor
    running = submit(first, f"/bin/sleep {SLEEP_S}", "--wall", "60s")["id"]
    wait_for("it runs", lambda: get(first, running)["status"] == "running")
    leaving = executor.start(["oj", "leave", "--yes"])
    wait_for(
        "it drains", lambda: "draining" in " ".join(show(executor, "StatusText", "oj-executor"))
    )
    later = submit(first, "/bin/true")["id"]
    out, errors = leaving.communicate(timeout=120)
    assert leaving.returncode == 0, out + errors
    # At once, without a wait: it was not given back, and its result has arrived.
    ended = get(first, running)
    assert (ended["verdict"], ended["attempt"]) == ("accepted", 1)
    assert get(first, later)["status"] == "pending"
    assert status(first)["executors"] == []
    units = (DAEMONS[0], "oj-executor")
    assert show(executor, "ActiveState", *units) == ["inactive"] * 2
    assert show(executor, "UnitFileState", *units) == ["disabled"] * 2

    oj(executor, "setup", "executor", "--discover", SERVICE)
    wait_for("the task that waited is judged", lambda: get(first, later)["done"])
    assert get(first, later)["executor"] == executor.name


def test_an_executor_leaves_at_once_if_told_and_is_removed_by_force_only(cluster: Cluster) -> None:
    first, executor = cluster.judicators[0], cluster.executor

    def names() -> list[str]:
        return [one["name"] for one in status(first)["executors"]]

    running = submit(first, "/bin/sleep 300", "--wall", "300s")["id"]
    wait_for("it runs", lambda: get(first, running)["status"] == "running")
    refused = oj(first, "remove", executor.name, "--yes", code=2).stderr
    assert "still answers (executor)" in refused and "--force" in refused
    oj(executor, "leave", "--now", "--yes")
    assert get(first, running)["status"] in ("pending", "retrying")
    wait_for("it is off the list", lambda: names() == [])
    oj(first, "cancel", running)

    oj(executor, "setup", "executor", "--discover", SERVICE)
    wait_for("it is on the list", lambda: names() == [executor.name])
    oj(first, "remove", executor.name, "--force", "--yes")
    # It lives, and so it comes back.
    wait_for("it is on the list again", lambda: names() == [executor.name])
    assert submit(first, "/bin/true", "--wait")["verdict"] == "accepted"


def test_a_gateway_on_a_machine_of_its_own_serves_and_leaves(
    cluster: Cluster, cluster_bed: Bed, repository: Repository
) -> None:
    first = cluster.judicators[0]
    (gateway,) = cluster_bed.boot("d5")
    gateway.add_repository(repository)
    gateway.install("oj-gateway")
    oj(gateway, "setup", "gateway", "--join", first.name)
    assert show(gateway, "ActiveState", "oj-etcd", "oj-gateway") == ["active"] * 2
    # From another machine, as people do.
    script = f"import urllib.request as r;print(r.urlopen('http://{gateway.name}:7580/healthz',timeout=20).read().decode())"
    ask = ["/usr/bin/python3", "-c", script]
    wait_for("it is well", lambda: '"ok"' in first.run(ask, check=False).stdout)
    gateway.put(HERE / "http_load.py", "/root/http_load.py", mode=0o755)
    gateway.run("umask 077; oj token add test --user ann --role submit --role read >/root/token")
    told = json.loads(gateway.run(["/root/http_load.py", "judge"], timeout_s=120).stdout)
    assert (told.get("verdict"), told.get("executor")) == ("accepted", cluster.executor.name), told

    # The judicator that it was told to join is not the only one that it knows.
    first.power_off_hard()
    told = json.loads(gateway.run(["/root/http_load.py", "judge"], timeout_s=120).stdout)
    assert told.get("verdict") == "accepted", told

    oj(gateway, "leave", "--yes")
    assert show(gateway, "ActiveState", "oj-etcd", "oj-gateway") == ["inactive"] * 2
    assert show(gateway, "UnitFileState", "oj-etcd", "oj-gateway") == ["disabled"] * 2
    gateway.power_off_hard()
