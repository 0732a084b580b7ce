"""The packages: installed on an untouched machine, upgraded under load, purged, installed again."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator

import pytest

from bed import Bed, Repository
from bed.machine import Disk
from node import UNITS, Node, assert_accepted

pytestmark = pytest.mark.each_release

MOST_EXPOSED = {"oj-etcd": 1.5, "oj-mongodb": 1.5, "oj-judicator": 1.5, "oj-executor": 4.5}

SUM_IN_CPP = """
#include <iostream>
int main() { long a, b; while (std::cin >> a >> b) std::cout << a + b << std::endl; }
"""
SUM_IN_PYTHON = """
import sys
for line in sys.stdin:
    print(sum(map(int, line.split())))
"""
# What each limit is there for, and the verdict that it gives.
BREAKERS = {
    "hoard.cpp": (
        "#include <vector>\nint main() { std::vector<char> v(1 << 30, 1); return v[7]; }"
    ),
    "hoard.py": "x = bytearray(1 << 30)",
    "spin.cpp": "int main() { volatile long n = 0; for (;;) ++n; }",
    "spin.py": "while True: pass",
}
VERDICTS = {"hoard": "memory_limit", "spin": "time_limit"}
TESTS = {"1.in": "1 2\n", "1.ans": "3\n", "2.in": "5 5\n7 -7\n", "2.ans": "10\n0\n"}


@pytest.fixture(scope="module")
def fresh(cluster_bed: Bed, repository: Repository) -> Iterator[Node]:
    """A machine that was untouched until `apt install oj-judicator oj-executor`."""
    machine = cluster_bed.machine("fresh")
    machine.boot()
    machine.add_repository(repository)
    said = machine.install("oj-judicator", "oj-executor").stdout
    machine.put(said, "/root/installed.log")
    yield Node(machine)
    machine.power_off_hard()


@pytest.fixture
def make_node(cluster_bed: Bed, installed: Disk) -> Iterator[Callable[[str], Node]]:
    made: list[Node] = []

    def make(name: str) -> Node:
        machine = cluster_bed.machine(name, installed)
        machine.boot()
        made.append(Node(machine))
        made[-1].wait_until_serving()
        return made[-1]

    yield make
    for node in made:
        node.machine.power_off_hard()


# --- installed -----------------------------------------------------------------------------------


def test_installing_enables_the_units_and_starts_none(fresh: Node) -> None:
    for unit in UNITS:
        assert fresh.show(unit, "UnitFileState") == "enabled"
        assert fresh.state(unit) == "inactive"


def test_the_end_of_an_installation_tells_once_what_to_type_next(fresh: Node) -> None:
    said = fresh.machine.get("/root/installed.log").decode().splitlines()
    (line,) = [one for one in said if one.startswith("oj is installed")]
    assert "systemctl start oj-judicator oj-executor;" in line and "oj setup judicator" in line
    # After everything of oj was configured, and the more so after what it needs.
    assert said.index(line) > max(
        number for number, one in enumerate(said) if one.startswith("Setting up ")
    )


def test_debians_own_etcd_is_not_left_running(fresh: Node) -> None:
    assert fresh.state("etcd") == "inactive"
    assert fresh.show("etcd", "UnitFileState") == "disabled"
    said = fresh.machine.get("/root/installed.log").decode()
    assert "oj-etcd: stopped and disabled Debian's etcd.service" in said


def test_starting_two_units_on_an_untouched_machine_gives_a_judge(fresh: Node) -> None:
    fresh.machine.run("systemctl start oj-judicator oj-executor", timeout_s=120)
    # No waiting from here on: active means serving.
    assert {unit: fresh.state(unit) for unit in UNITS} == dict.fromkeys(UNITS, "active")
    for name, text in TESTS.items():
        fresh.machine.put(text, f"/root/tests/{name}")
    for name, text in {"sum.cpp": SUM_IN_CPP, "sum.py": SUM_IN_PYTHON}.items():
        fresh.machine.put(text, f"/root/{name}")
        done = fresh.oj("submit", f"/root/{name}", "--tests", "/root/tests", "--wait", "--json")
        task = json.loads(done.stdout)
        assert (task["status"], task["verdict"]) == ("success", "accepted")
        assert [test["verdict"] for test in task["tests"]] == ["accepted", "accepted"]


@pytest.mark.parametrize("program", BREAKERS)
def test_a_program_beyond_a_limit_is_told_so(fresh: Node, program: str) -> None:
    fresh.machine.put(BREAKERS[program], f"/root/{program}")
    limits = ("--memory", "64M", "--time", "1s", "--wall", "60s")  # on a busy machine, too
    done = fresh.oj("submit", f"/root/{program}", *limits, "--wait", "--json", check=False)
    task = json.loads(done.stdout)
    assert (done.rc, task["verdict"]) == (1, VERDICTS[program.partition(".")[0]])


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_is_hardened(fresh: Node, unit: str) -> None:
    text = fresh.machine.run(["systemd-analyze", "security", "--no-pager", unit]).stdout
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", text)
    assert exposure, text
    assert float(exposure[1]) <= MOST_EXPOSED[unit]


@pytest.mark.parametrize("unit", UNITS)
def test_systemd_understands_every_line_of_a_unit(fresh: Node, unit: str) -> None:
    command = ["systemd-analyze", "verify", "--man=no", f"/lib/systemd/system/{unit}.service"]
    done = fresh.machine.run(command)
    ours = [line for line in done.stderr.splitlines() if unit in line]
    assert ours == []


@pytest.mark.parametrize("unit", UNITS)
def test_a_daemon_runs_as_its_own_user(fresh: Node, unit: str) -> None:
    pid = fresh.main_pid(unit)
    assert fresh.machine.run(f"ps -o user:32= -p {pid}").stdout.strip() == unit


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_says_what_it_does(fresh: Node, unit: str) -> None:
    assert fresh.show(unit, "StatusText")


def test_nothing_in_the_packages_is_setuid(fresh: Node) -> None:
    listed = fresh.machine.run(["dpkg", "-L", *UNITS, "oj-client", "python3-oj"]).stdout
    paths = [line for line in listed.splitlines() if line.startswith("/")]
    files = fresh.machine.run(["stat", "-c", "%a %F %n", *paths]).stdout.splitlines()
    assert any(line.endswith("/usr/libexec/oj/oj-box") for line in files)
    assert [line for line in files if re.match(r"[2-7][0-7]{3} ", line)] == []
    found = fresh.machine.run("getcap -r /usr/libexec/oj 2>/dev/null || true").stdout
    assert found == ""


def test_the_sandbox_program_is_hardened(fresh: Node) -> None:
    place = "/usr/libexec/oj/oj-box"
    with tempfile.NamedTemporaryFile() as copy:
        copy.write(fresh.machine.get(place))
        copy.flush()
        told = subprocess.run(
            ["readelf", "--wide", "--file-header", "--segments", "--dynamic", copy.name],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
    assert re.search(r"Type: +DYN", told)  # at another address each time
    assert re.search(r"GNU_STACK .* RW ", told) and "GNU_RELRO" in told
    assert re.search(r"FLAGS_1\) .*NOW.*PIE", told)
    assert "INTERP" not in told


def test_the_guides_are_there_to_be_read(fresh: Node) -> None:
    guides = fresh.machine.run("ls /usr/share/doc/python3-oj").stdout.split()
    assert {"operations.md", "administrator.md", "security.md", "measurement.md"} <= set(guides)


def test_programs_and_files_have_man_pages(fresh: Node) -> None:
    pages = ["man1/oj.1", "man5/oj-client.conf.5", "man5/oj-languages.5", "man8/oj-box.8"]
    pages += [f"man8/{unit}.8" for unit in UNITS] + [f"man5/{unit}.conf.5" for unit in UNITS]
    fresh.machine.run(["ls", *(f"/usr/share/man/{page}.gz" for page in pages)])


def test_users_of_daemons_cannot_read_each_others_state(fresh: Node) -> None:
    for unit in UNITS:
        state = f"/var/lib/oj/{unit.removeprefix('oj-')}"
        assert fresh.machine.run(f"stat -c '%U %a' {state}").stdout == f"{unit} 700\n"


# --- a role more ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def working(cluster_bed: Bed, installed: Disk) -> Iterator[Node]:
    """A machine that judges, to which the gateway is added."""
    machine = cluster_bed.machine("working", installed)
    machine.boot()
    yield Node(machine)
    machine.power_off_hard()


def hints(said: str) -> list[str]:
    """The lines of an installation that say what to type next."""
    return [line for line in said.splitlines() if "oj setup" in line or "systemctl start" in line]


START_GATEWAY = (
    "oj serves on this machine; what was added is not started. Type: systemctl start oj-gateway"
)


def test_a_role_added_to_a_working_node_is_only_to_be_started(working: Node) -> None:
    """'oj setup' would have the node leave the cluster that it is in."""
    # As 'oj setup judicator --only' does.
    working.machine.run("systemctl disable --now oj-executor")
    (line,) = hints(working.machine.install("oj-gateway").stdout)
    assert line == START_GATEWAY
    working.machine.run(line.partition("Type: ")[2], timeout_s=120)
    assert working.state("oj-gateway") == "active"


def test_a_role_that_was_removed_and_comes_back_is_named_again(working: Node) -> None:
    machine = working.machine
    machine.run("apt-get -q -y remove oj-gateway")
    assert hints(machine.install("oj-gateway").stdout) == [START_GATEWAY]
    # The whole node: the files are as they were, and nothing runs.
    machine.run("apt-get -q -y remove oj-judicator oj-executor oj-gateway python3-oj")
    (line,) = hints(machine.install("oj-judicator", "oj-gateway", "oj-executor").stdout)
    assert "systemctl start oj-judicator oj-gateway;" in line
    assert "oj setup judicator gateway --join FIRST here" in line
    # Packages that only have to be configured again were installed before.
    assert hints(machine.run("dpkg-reconfigure oj-gateway").stdout) == []


def test_an_upgrade_says_nothing_and_stops_the_etcd_that_0_1_0_left_running(
    working: Node, newer: Repository
) -> None:
    working.machine.run("systemctl enable --now etcd")
    working.machine.add_repository(newer)
    said = working.machine.run("apt-get -q -y dist-upgrade", timeout_s=300).stdout
    assert "+newer" in working.version_of("oj-gateway")
    assert hints(said) == []
    assert "oj-etcd: stopped and disabled Debian's etcd.service" in said
    assert working.state("etcd") == "inactive"
    assert working.show("etcd", "UnitFileState") == "disabled"


def test_an_upgrade_leaves_an_etcd_alone_that_somebody_enabled_since_or_uses(
    working: Node,
) -> None:
    machine = working.machine

    def configure(since: str) -> str:
        """What the postinst does in an upgrade from this version."""
        done = machine.run(f"/var/lib/dpkg/info/oj-etcd.postinst configure {since}")
        assert working.state("etcd") == "active"
        return done.stdout

    machine.run("systemctl enable --now etcd")
    assert "etcd.service" not in configure("0.1.1")
    machine.run("ETCDCTL_API=3 etcdctl --endpoints=127.0.0.1:2379 put theirs 1")
    assert "etcd.service" not in configure("0.1.0")


# --- upgraded ------------------------------------------------------------------------------------


def test_upgrade_under_load_keeps_edited_configuration_and_loses_no_task(
    make_node: Callable[[str], Node], newer: Repository
) -> None:
    node = make_node("upgraded")
    machine = node.machine
    roles = [unit.removeprefix("oj-") for unit in UNITS]
    for role in [*roles, "client"]:
        machine.run(f"echo '# the administrator was here' >>/etc/oj/{role}.conf")
    before = {unit: node.main_pid(unit) for unit in UNITS}
    old = node.version_of("oj-judicator")
    machine.add_repository(newer)

    steady = machine.start(["/root/load.py", "steady", "/root/steady"])
    queued = node.add(60, sleep_s=0.3)
    machine.run("apt-get -q -y dist-upgrade", timeout_s=300)
    machine.run("touch /root/steady.stop")
    _, complaints = steady.communicate(timeout=120)
    assert (steady.returncode, complaints.decode()) == (0, "")

    ids = queued + machine.get("/root/steady").decode().split()
    assert_accepted(node.settle(ids), ids)
    recorded = node.recorded()
    assert [task for task in ids if recorded[task] != 1] == []
    for unit in UNITS:
        assert node.version_of(unit) == f"{old}+newer"
        assert node.state(unit) == "active"
        assert node.main_pid(unit) != before[unit], f"{unit} still runs the old version"
    for role in [*roles, "client"]:
        assert machine.get(f"/etc/oj/{role}.conf").endswith(b"# the administrator was here\n")
    node.wait_until_serving()


# --- purged --------------------------------------------------------------------------------------


def test_purge_leaves_nothing_behind_but_the_data_and_says_so(
    make_node: Callable[[str], Node],
) -> None:
    node = make_node("purged")
    machine = node.machine
    task = node.judge_one()["id"]
    running = node.add(4, sleep_s=55)
    packages = [*UNITS, "oj-client", "python3-oj"]
    said = machine.run(["apt-get", "-q", "-y", "purge", *packages], timeout_s=120).stdout

    assert "keeping the data in /var/lib/oj/mongodb" in said
    assert machine.run("ls -A /var/lib/oj/mongodb").stdout
    processes = machine.run(["ps", "-eo", "user:32=,args="]).stdout
    assert re.findall(r"^(?:oj-|64[0-9]{3} |.*/oj/|.*mongod).*$", processes, re.MULTILINE) == []
    assert machine.run("systemctl list-units --all --no-legend 'oj-*'").stdout == ""
    assert machine.run("systemctl list-unit-files --no-legend 'oj-*'; true").stdout == ""
    assert machine.run("systemctl --failed --no-legend").stdout == ""
    assert machine.run("ls -d /etc/oj /run/oj/*; true").stdout == ""
    assert machine.run("find /sys/fs/cgroup -name '*oj-*'; true").stdout == ""
    assert machine.run(["dpkg", "--audit"]).stdout == ""

    # And who comes back finds everything as it was.
    machine.install("oj-judicator", "oj-executor")
    machine.run("systemctl start oj-judicator oj-executor", timeout_s=120)
    assert node.get(task)["verdict"] == "accepted"
    unfinished = {"pending", "retrying", "compiling", "running"}
    assert {node.get(one)["status"] for one in running} <= unfinished
