"""What `oj setup` finds before it changes anything, and how mistakes by hand are mended: closed
firewalls, names in use, full disks, a member that was purged and installed again.

The firewalls have the rules of the guide for administrators, word for word, but for the addresses.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bed import Bed, Machine, Result
from bed.machine import Disk
from faults import clock
from node import wait_for
from test_setup import (
    DAEMONS,
    judge_one,
    measure,
    oj,
    soon,
    states,
    status_of,
    wait_for_nodes,
)

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "administrator.md"
ALL = (*DAEMONS, "oj-executor")
LATE_S = 15.0  # as --timeout
AFTERWARDS_S = 5.0  # beyond it, for the cause
ONLY_SSH = """\
flush ruleset
table inet only_ssh {
    chain input {
        type filter hook input priority filter; policy drop;
        tcp dport 22 accept
    }
}
"""


def rules(role: str, judicators: list[Machine], every: list[Machine]) -> str:
    """Those of the guide, for these machines."""
    (text,) = re.findall(
        rf"```nft\n(flush ruleset\ntable inet {role} .*?)```", GUIDE.read_text(), re.DOTALL
    )
    example = "192.0.2.1, 192.0.2.2, 192.0.2.3"
    text = text.replace(example, ", ".join(machine.address for machine in judicators))
    text = text.replace("192.0.2.0/24", ", ".join(machine.address for machine in every))
    assert "192.0.2." not in text
    return str(text)


@dataclass
class Site:
    bed: Bed
    first: Machine
    second: Machine
    third: Machine

    @property
    def every(self) -> list[Machine]:
        return [self.first, self.second, self.third]

    def guard(self, machine: Machine, role: str, judicators: list[Machine]) -> None:
        """Loads a role's rules into a machine's network."""
        self.load(machine, rules(role, judicators, self.every))

    def load(self, machine: Machine, text: str) -> None:
        place = self.bed.network.path_of(machine.name)
        command = ["nsenter", f"--net={place}", "nft", "-f", "-"]
        subprocess.run(command, input=text, text=True, check=True, timeout=60)


@pytest.fixture(scope="module")
def site(cluster_bed: Bed, installed: Disk) -> Iterator[Site]:
    machines = cluster_bed.boot("p1", "p2", "p3", disk=installed)
    # The units are enabled, so that each came up as a judge of its own.
    for machine in machines:
        wait_for("it serves alone", lambda m=machine: states(m, *ALL) == ["active"] * 4, 120)
    yield Site(cluster_bed, *machines)
    for machine in machines:
        if machine.running:
            machine.power_off_hard()


def picture(machine: Machine) -> tuple[str, str]:
    """All that a setup would change."""
    files = machine.run("cat /etc/oj/*.conf").stdout
    return files, machine.run(["systemctl", "show", "-P", "MainPID", *ALL]).stdout


def refuse(machine: Machine, *words: str, code: int = 2, env: dict[str, str] | None = None) -> str:
    """The sentence with which a setup is refused; that it has changed nothing, and came soon."""
    before = picture(machine)
    said = soon(machine, "setup", *words, code=code, env=env).stderr
    assert picture(machine) == before
    assert code != 2 or "nothing was changed" in said
    return said


def executors(machine: Machine) -> list[str]:
    told = json.loads(oj(machine, "status", "--json").stdout)
    return sorted(one["name"] for one in told["executors"])


@pytest.mark.each_release
def test_a_judge_that_becomes_a_judicator_keeps_its_executor_and_gateway(site: Site) -> None:
    site.first.install("oj-gateway")
    site.first.run("systemctl start oj-gateway", timeout_s=120)
    said = oj(site.first, "setup", "judicator").stdout
    assert "Keep the executor and gateway" in said
    assert states(site.first, *ALL, "oj-gateway") == ["active"] * 5
    assert executors(site.first) == ["p1"]
    script = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:7580/healthz').status)"
    assert site.first.run(["python3", "-c", script]).stdout == "200\n"
    judge_one(site.first)


def test_a_judicator_that_lets_nobody_in_is_named(site: Site) -> None:
    site.load(site.first, ONLY_SSH)
    try:
        said = refuse(site.second, "judicator", "--join", "p1", code=3)
    finally:
        site.load(site.first, "flush ruleset\n")
    ports = "7500 (judicator), 7501 (etcd, clients)"
    assert f"this node does not reach p1 at {site.first.address}, TCP {ports}: no answer" in said
    assert f"let this node {site.second.address} in to these ports of p1" in said
    wait_for("p1 is well again", lambda: states(site.first, *ALL) == ["active"] * 4, 120)
    judge_one(site.first)


def test_a_wrong_clock_is_named(site: Site, tmp_path: Path) -> None:
    machine = site.second
    machine.put(clock.build(tmp_path), clock.LIBRARY)
    # gRPC asks the kernel past the library: with a clock behind, all its deadlines would be over.
    machine.put(clock.pack(30), clock.OFFSET)
    try:
        said = refuse(machine, "judicator", "--join", "p1", env={"LD_PRELOAD": clock.LIBRARY})
    finally:
        machine.run(["rm", clock.LIBRARY, clock.OFFSET])
    assert re.search(r"the clock of this machine is (29|30)\.\d s ahead of p1's, and 5 s is", said)


def test_status_says_at_once_that_nothing_listens_here(site: Site) -> None:
    machine = site.second
    machine.run("systemctl stop oj-judicator", timeout_s=120)
    try:
        done = soon(machine, "status", code=3, most_s=3)  # of the 10 s that it would wait
    finally:
        machine.run("systemctl start oj-judicator", timeout_s=120)
    assert "127.0.0.1:7500" in done.stderr and "refused" in done.stderr.lower()


def test_a_closed_firewall_of_the_new_node_is_named_before_anything_changes(site: Site) -> None:
    site.guard(site.second, "executor", [])
    said = refuse(site.second, "judicator", "--join", "p1")
    ports = "7500 (judicator), 7501 (etcd, clients), 7502 (etcd, peers), 7503 (mongod)"
    assert f"p1 does not reach this node at {site.second.address}, TCP {ports}: no answer" in said
    assert states(site.second, *ALL) == ["active"] * 4
    assert executors(site.second) == ["p2"]  # a judge of its own, as before


def test_a_closed_firewall_of_a_member_is_named_with_its_direction(site: Site) -> None:
    site.guard(site.second, "judicator", [site.first, site.second])
    # The new judicator was forgotten on the first one: it is but one of the nodes there.
    site.guard(site.first, "judicator", [site.first])
    said = refuse(site.second, "judicator", "--join", "p1")
    where = f"p1 at {site.first.address}, TCP 7502 (etcd, peers), 7503 (mongod): no answer"
    assert f"this node does not reach {where}" in said


def test_a_port_of_another_program_and_too_small_a_disk_are_named(site: Site) -> None:
    machine = site.third
    script = f"import socket; x = socket.create_server(('{machine.address}', 7503)); input()"
    port = machine.start(["/usr/bin/python3", "-c", script])
    try:
        listening = f"ss -Hltn src {machine.address}:7503"
        wait_for("it listens", lambda: machine.run(listening).stdout)
        machine.run("systemctl stop oj-mongodb oj-judicator")
        machine.run("mount -t tmpfs -o size=300m tmpfs /var/lib/oj/mongodb")
        try:
            said = refuse(machine, "judicator", "--join", "p1", "--set-data-aside")
        finally:
            machine.run("umount /var/lib/oj/mongodb")
    finally:
        port.communicate(b"\n", timeout=60)
    assert "port 7503 (mongod) is in use by another program here" in said
    assert "/var/lib/oj/mongodb has 300 MB free, and needs 1024" in said
    machine.run("systemctl start oj-mongodb oj-judicator", timeout_s=200)


def test_too_small_a_disk_of_an_executor_is_named(site: Site) -> None:
    machine = site.third
    machine.run("mount -t tmpfs -o size=64m tmpfs /var/lib/oj/executor")
    try:
        said = refuse(machine, "executor", "--join", "p1")
    finally:
        machine.run("umount /var/lib/oj/executor")
    assert "/var/lib/oj/executor has 64 MB free, and needs 512" in said


def test_what_is_not_ready_in_time_is_named_with_the_ports_to_look_at(site: Site) -> None:
    machine = site.third
    machine.run(
        "cp /etc/oj/executor.conf /root && sed -i '1i box = /bin/true' /etc/oj/executor.conf"
    )
    words = ("setup", "executor", "--join", "p1", "--timeout", f"{LATE_S:g}s")
    done = soon(machine, *words, code=3, most_s=LATE_S + AFTERWARDS_S + 2)
    assert "oj-executor is not ready after" in done.stderr
    assert "must be open from this node to p1: TCP 7500 (judicator), 7501 (etcd" in done.stderr
    machine.run("sed -i '/^box = /d' /etc/oj/executor.conf")


@pytest.mark.each_release
def test_behind_the_rules_of_the_guide_an_executor_judges(site: Site) -> None:
    judicators = [site.first, site.second]
    for machine in judicators:
        site.guard(machine, "judicator", judicators)
    site.guard(site.third, "executor", judicators)
    oj(site.third, "setup", "executor", "--join", "p1")
    wait_for("the executors", lambda: executors(site.first) == ["p1", "p3"])


def test_the_name_of_a_living_executor_is_refused(site: Site) -> None:
    said = refuse(site.second, "executor", "--join", "p1", "--name", "p3")
    assert "the cluster has an executor p3 that lives" in said and "'oj remove p3'" in said
    # Not for a machine that has all that the executor's has, but its address.
    paths = ("/etc/machine-id", "/var/lib/oj/executor/installation")
    own = {path: site.second.get(path) for path in paths}

    def give(path: str, content: bytes) -> None:
        site.second.run(["tee", path], input=content)  # in place, with its owner

    try:
        for path in paths:
            give(path, site.third.get(path))
        said = refuse(site.second, "executor", "--join", "p1", "--name", "p3")
    finally:
        for path, content in own.items():
            give(path, content)
    assert "the cluster has an executor p3 that lives" in said
    # The executor itself may be set up again under its name, and not under a judicator's.
    assert "Nothing to do" in oj(site.third, "setup", "executor", "--join", "p1").stdout
    said = soon(site.third, "setup", "executor", "--name", "p1", code=2).stderr
    assert f"the cluster has a judicator p1 at {site.first.address}" in said


def is_drained(machine: Machine) -> bool:
    told = machine.run(["systemctl", "show", "-P", "StatusText", "oj-executor"])
    return "drained" in told.stdout


@pytest.mark.each_release
def test_with_the_rules_of_the_guide_a_cluster_forms_and_judges(site: Site) -> None:
    oj(site.second, "setup", "judicator", "--join", "p1")
    for machine in (site.first, site.second):
        wait_for_nodes(machine, "p1", "p2")
    wait_for("the executors", lambda: executors(site.first) == ["p1", "p2", "p3"])
    others = (site.first, site.second)
    for machine in others:
        oj(site.first, "drain", machine.name)
    # Other judicators hear of it a moment later.
    wait_for("the drain", lambda: all(is_drained(machine) for machine in others))
    task = judge_one(site.second)
    assert json.loads(oj(site.first, "get", task, "--json").stdout)["executor"] == "p3"


def test_a_voters_database_is_never_removed_by_the_way(site: Site) -> None:
    said = site.second.run(["apt-get", "-s", "--auto-remove", "remove", "oj-judicator"]).stdout
    removed = re.findall(r"^Remv (\S+)", said, re.MULTILINE)
    assert "oj-judicator" in removed
    assert not {"oj-mongodb", "oj-mongod", "oj-etcd"} & set(removed)


def test_the_doctor_names_debians_etcd_where_it_runs(site: Site) -> None:
    machine = site.third
    machine.run("systemctl start etcd")
    try:
        done = machine.run(["oj", "doctor", "--json"], check=False, timeout_s=200)
    finally:
        machine.run("systemctl stop etcd")
    (found,) = [
        one for one in json.loads(done.stdout)["checks"] if "etcd.service" in one["message"]
    ]
    assert found["state"] == "warn" and "systemctl disable --now etcd" in found["repair"]


def purge(machine: Machine) -> None:
    """Purges all that is installed, and installs a judicator again; its data stays."""
    purged = machine.run(["apt-get", "-q", "-y", "purge", *ALL, "oj-client"], timeout_s=200)
    assert purged.rc == 0
    machine.install("oj-judicator")


def start_in_vain(machine: Machine, command: str) -> None:
    """Starts a judicator, of which each daemon soon names a command instead."""

    def start() -> Result:
        done = machine.run("systemctl start oj-judicator", check=False, timeout_s=200)
        assert done.rc != 0
        return done

    measure("a node that was purged", start)
    for unit in DAEMONS:
        assert states(machine, unit) == ["failed"]
        assert status_of(machine, unit).strip().endswith(f"Run: {command}")


# Without linearizable, so that a member tells what it knows though it has no majority; etcdctl asks
# for it since 3.5.
MEMBERS = """
import urllib.request
asked = urllib.request.Request("http://127.0.0.1:7501/v3/cluster/member/list", b"{}")
print(urllib.request.urlopen(asked, timeout=30).read().decode())
"""


def test_a_member_that_was_purged_and_installed_again_says_how_it_comes_back(site: Site) -> None:
    first, second = site.first, site.second
    task = judge_one(first)
    purge(second)
    command = f"oj setup judicator --join {first.address}"
    start_in_vain(second, command)
    # Of two members one is no majority: what this one would tell is not confirmed, nor told.
    listed = first.run(["/usr/bin/python3", "-c", MEMBERS]).stdout
    assert f"http://{second.address}:7502" in listed and "127.0.0.1" not in listed
    oj(second, *command.split()[1:])
    for machine in (first, second):
        wait_for_nodes(machine, "p1", "p2")
    assert "accepted" in oj(second, "get", task).stdout
    judge_one(second)


def test_the_only_judicator_that_was_purged_says_how_it_comes_back(
    cluster_bed: Bed, installed: Disk
) -> None:
    (alone,) = cluster_bed.boot("p4", disk=installed)
    try:
        wait_for("it serves alone", lambda: states(alone, *ALL) == ["active"] * 4, 120)
        oj(alone, "setup", "judicator")
        task = judge_one(alone)
        purge(alone)
        # As one has it that was set up with --name.
        alone.run("hostname vm17")
        start_in_vain(alone, "oj setup judicator --name p4")
        # It would know the name by itself, too.
        said = oj(alone, "setup", "judicator").stdout
        assert "Node p4: judicator" in said and "the data here is of p4" in said
        assert f"Address {alone.address}: the one at which others know this node" in said
        wait_for_nodes(alone, "p4")
        listed = alone.run("ETCDCTL_API=3 etcdctl --endpoints=127.0.0.1:7501 member list").stdout
        assert f"http://{alone.address}:7501" in listed and "127.0.0.1" not in listed
        assert "accepted" in oj(alone, "get", task).stdout
        oj(alone, "submit", "--command", "/bin/true")  # and goes on
    finally:
        alone.power_off_hard()
