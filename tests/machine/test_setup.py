"""A cluster's life by its commands: machines come, go, are lost, and one survivor goes on."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

import servers
from bed import Bed, Machine, Result
from bed.machine import Disk
from node import wait_for

DAEMONS = ("oj-etcd", "oj-mongodb", "oj-judicator")
FORMED_S = 60.0
NAMED_S = 10.0  # until a mistake is named


@dataclass
class Cluster:
    """Three judicators and a fourth machine, which is first alone and then an executor."""

    judicators: list[Machine]
    fourth: Machine
    formed_s: float = 0.0
    task: str = ""

    def form(self) -> None:
        """From machines that only have the packages to three judicators that are ready."""
        first, *more = self.judicators
        started_s = time.monotonic()
        oj(first, "setup", "judicator", "--only")
        with ThreadPoolExecutor() as pool:
            words = ("setup", "judicator", "--only", "--join", first.name)
            list(pool.map(lambda m: oj(m, *words), more))
        self.formed_s = time.monotonic() - started_s


def oj(machine: Machine, *words: str, code: int = 0) -> Any:
    done = machine.run(["oj", *words], check=False, timeout_s=280)
    assert done.rc == code, f"{machine.name}: oj {' '.join(words)}: {done}"
    assert "Traceback" not in done.stderr
    return done


def measure(what: str, act: Callable[[], Result], most_s: float = NAMED_S) -> Result:
    """What came of it, within its time; a busy machine may be slow once."""
    found: list[Result] = []

    def once() -> float:
        found[:] = [act()]
        return found[0].wall_s

    servers.assert_within(most_s, once)
    print(f"{what}: {found[0].wall_s:.1f} s")
    return found[0]


def soon(
    machine: Machine,
    *words: str,
    code: int,
    most_s: float = NAMED_S,
    env: dict[str, str] | None = None,
) -> Result:
    """A command that fails, with its sentence in time."""

    def act() -> Result:
        done = machine.run(["oj", *words], check=False, timeout_s=280, env=env)
        assert done.rc == code, f"{machine.name}: oj {' '.join(words)}: {done}"
        assert "Traceback" not in done.stderr
        return done

    return measure(f"oj {' '.join(words)}", act, most_s)


def status_of(machine: Machine, unit: str) -> str:
    return machine.run(["systemctl", "show", "-P", "StatusText", unit]).stdout


def nodes(machine: Machine) -> dict[str, list[str]]:
    """The names of all that the cluster has, as one of its judicators says."""
    told = json.loads(oj(machine, "status", "--json").stdout)
    return {part: sorted(m["name"] for m in told[part]) for part in ("etcd", "database")}


def wait_for_nodes(machine: Machine, *names: str) -> None:
    """A judicator shows whom it could ask within a second, so that one look may tell too little."""
    wanted = {part: list(names) for part in ("etcd", "database")}
    wait_for(f"{', '.join(names)} in the cluster", lambda: nodes(machine) == wanted, 120)


def judge_one(machine: Machine) -> str:
    done = oj(machine, "submit", "--command", "/bin/true", "--wait", "--json")
    assert json.loads(done.stdout)["verdict"] == "accepted"
    return str(json.loads(done.stdout)["id"])


def states(machine: Machine, *units: str) -> list[str]:
    text = machine.run(["systemctl", "is-active", *units], check=False).stdout
    return text.split()


@pytest.fixture(scope="module")
def cluster(cluster_bed: Bed, installed: Disk) -> Iterator[Cluster]:
    machines = cluster_bed.boot("s1", "s2", "s3", "s4", disk=installed)
    # The units are enabled, so that each came up as a cluster of its own.
    cluster = Cluster(machines[:3], machines[3])
    cluster.form()
    yield cluster
    for machine in machines:
        if machine.running:
            machine.power_off_hard()


@pytest.mark.each_release
def test_empty_machines_become_three_ready_judicators(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        print(f"\n  three ready judicators in {cluster.formed_s:.1f} s", end=" ")
    for machine in cluster.judicators:
        assert states(machine, *DAEMONS, "oj-executor") == ["active"] * 3 + ["inactive"]
        wait_for_nodes(machine, "s1", "s2", "s3")
    told = json.loads(oj(cluster.judicators[0], "status", "--json").stdout)
    # The executor that the first one had when it was alone is forgotten, not lost.
    assert told["executors"] == []
    assert cluster.formed_s < FORMED_S


def test_a_second_run_finds_nothing_to_do(cluster: Cluster) -> None:
    for machine in cluster.judicators:
        pids = machine.run(["systemctl", "show", "-P", "MainPID", *DAEMONS]).stdout
        assert "Nothing to do" in oj(machine, "setup", "judicator").stdout
        # With --join it may learn of who joined at the same time; that restarts nobody.
        oj(machine, "setup", "judicator", "--join", "s1" if machine.name != "s1" else "s2")
        assert machine.run(["systemctl", "show", "-P", "MainPID", *DAEMONS]).stdout == pids


def test_a_node_with_tasks_does_not_hide_them_unless_told(cluster: Cluster) -> None:
    alone = cluster.fourth
    oj(alone, "submit", "--command", "/bin/true")
    refused = oj(alone, "setup", "executor", "--join", "s1", code=2)
    assert "has tasks of its own" in refused.stderr and "--set-data-aside" in refused.stderr
    oj(alone, "setup", "executor", "--join", "s2", "--set-data-aside")
    assert alone.run("ls /var/lib/oj/mongodb").stdout.startswith("kept-2")
    assert states(alone, *DAEMONS, "oj-executor") == ["active", "inactive", "inactive", "active"]
    cluster.task = judge_one(alone)


def test_a_node_leaves_stays_away_and_comes_back(cluster: Cluster) -> None:
    first, second, third = cluster.judicators
    assert "--yes" in oj(third, "leave", code=2).stderr
    assert "still answers" in oj(first, "remove", "s3", "--yes", code=2).stderr
    oj(third, "leave", "--yes")
    wait_for_nodes(first, "s1", "s2")
    third.run("systemctl start oj-etcd", check=False)
    wait_for("etcd refuses", lambda: states(third, "oj-etcd") == ["failed"])
    assert "oj setup" in third.run("systemctl show -P StatusText oj-etcd").stdout
    oj(third, "setup", "judicator", "--join", "s2")
    wait_for_nodes(second, "s1", "s2", "s3")


def test_a_node_alone_of_three_says_who_is_missing(cluster: Cluster) -> None:
    first, second, third = cluster.judicators
    for machine in (second, third):
        machine.power_off_hard()
    said = "2 of 3 members must run; s2, s3 do not answer"

    def begin() -> Result:
        """As after a power cut, from which this machine is the first one back."""
        first.run("systemctl kill --signal=KILL oj-etcd; systemctl reset-failed oj-etcd")
        began_s = time.monotonic()
        wait_for("it starts", lambda: states(first, "oj-etcd") == ["activating"])
        wait_for("its status", lambda: said in status_of(first, "oj-etcd"))
        return Result(0, "", "", time.monotonic() - began_s)

    measure(said, begin)

    # It goes on for longer with what it asks of the cluster, but says this as soon as it knows.
    script = f"""
        exec 3< <(oj doctor 2>/dev/null)
        grep -m1 -F '{said}' <&3
        found=$?
        kill $!
        exit $found
    """
    measure("oj doctor", lambda: first.run(script, timeout_s=180))


def test_a_copy_of_a_judicators_disk_does_not_take_its_place(
    cluster: Cluster, cluster_bed: Bed
) -> None:
    first, second, third = cluster.judicators
    disk = third.save_disk("s3")
    copy = cluster_bed.machine("s5", disk)
    for machine in (second, third):
        machine.power_on()
    wait_for("s3 serves", lambda: states(third, *DAEMONS) == ["active"] * 3, 120)
    wait_for_nodes(first, "s1", "s2", "s3")
    pids = third.run(["systemctl", "show", "-P", "MainPID", *DAEMONS]).stdout
    # Its hostname is another one, but all of its data and files are those of s3.
    copy.boot(degraded=True)

    def start() -> Result:
        done = copy.run("systemctl start oj-judicator", check=False, timeout_s=200)
        assert done.rc != 0
        return done

    measure("a copy's start", start)
    said = f"the data here is a copy of s3's, which runs at {third.address}:7501"
    for unit in DAEMONS:
        assert said in status_of(copy, unit)
    told = soon(copy, "leave", "--yes", code=2).stderr
    assert f"a copy of s3's, which runs at {third.address} and would be taken out" in told
    told = soon(copy, "setup", "executor", "--join", "s1", "--name", "s3", code=2).stderr
    assert f"the data here is a copy of s3's, which runs at {third.address}: set it aside" in told
    (command,) = re.findall("'oj (setup .*)'", told)
    # On a disk of its own a directory can be renamed; here those of the saved disk cannot.
    copy.run("""
        for place in /var/lib/oj/{etcd,mongodb}/*/; do
            cp -a "$place" /root/moved && rm -r "$place" && mv /root/moved "${place%/}" || exit 1
        done
    """)
    oj(copy, *command.replace("NAME", "s5").split())
    assert states(copy, "oj-etcd", "oj-executor") == ["active", "active"]
    # That name is its own now, and no other one that lives.
    told = soon(copy, "setup", "executor", "--name", "s4", code=2).stderr
    assert "the cluster has an executor s4 that lives" in told
    # Nothing of it has touched the original.
    assert third.run(["systemctl", "show", "-P", "MainPID", *DAEMONS]).stdout == pids
    wait_for_nodes(first, "s1", "s2", "s3")
    assert "accepted" in oj(third, "get", cluster.task).stdout
    copy.power_off_hard()


def test_a_node_that_is_gone_is_removed(cluster: Cluster) -> None:
    first, _, third = cluster.judicators
    third.power_off_hard()
    oj(first, "remove", "s3", "--yes")
    wait_for_nodes(first, "s1", "s2")
    assert "knows no node s3" in oj(first, "remove", "s3", "--yes", code=2).stderr


def test_one_survivor_goes_on_alone_and_another_returns_to_it(cluster: Cluster) -> None:
    first, second, _ = cluster.judicators
    refused = oj(second, "recover", "--only-survivor", "s2", code=2).stderr
    assert "not the only one left" in refused and f"{first.address}:7501" in refused
    first.power_off_hard()
    said = "2 of 2 members must run; s1 does not answer"

    def told() -> bool:
        return said in second.run("oj doctor", check=False, timeout_s=180).stdout

    wait_for("the doctor says who is missing", told, 60)
    assert "not s1" in oj(second, "recover", "--only-survivor", "s1", code=2).stderr
    assert "no majority" in oj(second, "remove", "s1", "--yes", code=2).stderr
    oj(second, "recover", "--only-survivor", "s2")
    wait_for_nodes(second, "s2")
    assert "accepted" in oj(second, "get", cluster.task).stdout
    judge_one(cluster.fourth)
    assert "last judicator" in oj(second, "leave", "--yes", code=2).stderr
    # What was given up finds it out by itself.
    first.power_on()
    wait_for_nodes(second, "s1", "s2")
    first.wait_until_running(300)
    assert "set-aside-2" in first.run("ls /var/lib/oj/etcd").stdout
    judge_one(first)
