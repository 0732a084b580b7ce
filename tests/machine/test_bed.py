"""The bed itself: machines boot, break, come back and go without a trace."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from bed import Bed, BedError, CommandFailed, Machine, cgroups, leftovers
from node import wait_for

TREE = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with Bed() as bed:
        bed.boot("n1", "n2", "n3")
        yield bed


@pytest.fixture
def n1(bed: Bed) -> Machine:
    return bed.machines["n1"]


def traces(name: str) -> list[str]:
    """Whatever of a bed is still there, by its name."""
    mounts = Path("/proc/mounts").read_text().splitlines()
    groups = [
        hierarchy.mount / name
        for hierarchy in cgroups.hierarchies()
        if (hierarchy.mount / name).exists()
    ]
    directory = leftovers.beds_dir() / name
    return [
        *(line for line in mounts if name in line),
        *leftovers.namespaces(name),
        *map(str, groups),
        *(str(path) for path in leftovers.NSPAWN.glob(f"*/{name}*")),
        *([str(directory)] if directory.exists() else []),
        *processes(name),
    ]


def processes(text: str) -> list[str]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if text in line:
            found.append(f"{path.parent.name} {line}")
    return found


def reaches(one: Machine, other: Machine) -> bool:
    command = ["ping", "-c1", "-W1", "-n", other.name]
    return one.run(command, check=False).rc == 0


def test_a_machine_runs_systemd_under_its_own_name_and_identity(bed: Bed) -> None:
    ids = set()
    for name, machine in bed.machines.items():
        assert machine.run("systemctl is-system-running").stdout == "running\n"
        assert machine.run("hostname").stdout == f"{name}\n"
        ids.add(machine.get("/etc/machine-id"))
    assert len(ids) == len(bed.machines)


def test_a_command_gives_its_code_and_what_it_wrote(n1: Machine) -> None:
    result = n1.run("cat; echo worse >&2; exit 3", input="given", check=False)
    assert (result.rc, result.stdout, result.stderr) == (3, "given", "worse\n")
    with pytest.raises(CommandFailed, match="ended with 3\nout\nerr"):
        n1.run("echo out; echo err >&2; exit 3")


def test_a_command_that_does_not_end_is_killed_inside(n1: Machine) -> None:
    started = time.monotonic()
    with pytest.raises(CommandFailed, match="did not end in time"):
        n1.run("echo begun; sleep 4242", timeout_s=0.3)
    assert time.monotonic() - started < 5
    assert n1.run(["pgrep", "-f", "sleep 424[2]"], check=False).rc == 1


def test_files_come_back_as_they_were_put(n1: Machine, tmp_path: Path) -> None:
    data = bytes(range(256)) * 1000
    n1.put(data, "/var/tmp/some/where", mode=0o640, owner="root:mail")
    assert n1.get("/var/tmp/some/where") == data
    assert n1.run("stat -c '%a %U:%G' /var/tmp/some/where").stdout == "640 root:mail\n"
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/file").write_text("content")
    n1.put_tree(tmp_path, "/var/tmp/tree")
    assert n1.get("/var/tmp/tree/sub/file") == b"content"
    with pytest.raises(BedError, match="No such file"):
        n1.get("/nowhere")


def test_a_path_in_a_machine_never_leads_to_the_host(n1: Machine) -> None:
    # /var/run is an absolute link to /run in Debian.
    n1.put("inside", "/var/run/oj-bed-link")
    assert not Path("/run/oj-bed-link").exists()
    assert n1.get("/run/oj-bed-link") == b"inside"


def test_a_service_can_make_cgroups_of_its_own(n1: Machine) -> None:
    """The sandbox depends on it: in its unit's own cgroup, in a hardened unit, on v1 and v2."""
    script = """
        set -e
        case $(stat -fc %T /sys/fs/cgroup) in
        cgroup2fs)
            group=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)
            mkdir $group/run && rmdir $group/run ;;
        *)
            for name in memory pids cpuacct; do
                path=$(grep -E ":([a-z,]*,)?$name(,[a-z,]*)?:" /proc/self/cgroup | cut -d: -f3)
                mkdir /sys/fs/cgroup/$name$path/run
                echo 0 >/sys/fs/cgroup/$name$path/run/tasks
                grep -q "$name.*/run$" /proc/self/cgroup
                echo 0 >/sys/fs/cgroup/$name$path/tasks
                rmdir /sys/fs/cgroup/$name$path/run
            done ;;
        esac
        echo made"""
    properties = ["ProtectSystem=strict", "ProtectHome=yes", "PrivateTmp=yes", "Delegate=yes"]
    words = ["systemd-run", "--wait", "--pipe", "--quiet"]
    words += [f"--property={text}" for text in (*properties, "NoNewPrivileges=yes")]
    assert n1.run([*words, "bash", "-c", script]).stdout == "made\n"


def test_memory_limits_of_units_hold(n1: Machine) -> None:
    # bash keeps the whole line in memory, and 40 MB of it are more than the unit may have.
    eat = 'x=$(head -c 40000000 /dev/zero | tr "\\0" x); echo ${#x}'
    words = ["systemd-run", "--wait", "--pipe", "--quiet", "--property=MemoryMax=20M"]
    words += ["--property=MemorySwapMax=0", "bash", "-c", eat]
    assert n1.run(words, check=False).rc != 0
    assert n1.run(["bash", "-c", eat]).stdout == "40000000\n"


def test_a_machine_has_no_right_to_the_host_s_clock_and_modules(n1: Machine) -> None:
    withheld = 1 << 25 | 1 << 16  # CAP_SYS_TIME, CAP_SYS_MODULE
    ask = ["grep", "-h", "Cap[PEB]", "/proc/1/status", "/proc/self/status"]
    for words in (ask, ["systemd-run", "--wait", "--pipe", "--quiet", *ask]):
        lines = n1.run(words).stdout.splitlines()
        assert len(lines) == 6
        for line in lines:
            assert int(line.split()[1], 16) & withheld == 0, line


def test_a_hard_power_off_keeps_the_disk_and_tells_nobody(bed: Bed, n1: Machine) -> None:
    n1.run("echo before >/root/kept; sync")
    n1.put("[Service]\nExecStart=sleep infinity\n[Install]\nWantedBy=multi-user.target\n",
           "/etc/systemd/system/steady.service")  # fmt: skip
    n1.run("systemctl enable --now steady")
    leader = n1.leader
    n1.power_off_hard()
    assert not n1.running
    assert not Path(f"/proc/{leader}").exists()
    assert not reaches(bed.machines["n2"], n1)
    with pytest.raises(BedError, match="off"):
        n1.run("true")
    n1.boot()
    assert n1.get("/root/kept") == b"before\n"
    assert n1.run("systemctl is-active steady").stdout == "active\n"
    assert reaches(bed.machines["n2"], n1)
    # The journal goes back beyond the power-off, and nothing in it speaks of a shutdown.
    assert len(n1.run("journalctl --list-boots --no-pager").stdout.splitlines()) == 3
    assert "Shutting down" not in n1.journal("--boot=-1")


def test_a_shutdown_runs_the_machine_s_units_to_their_end(n1: Machine) -> None:
    n1.put("[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStop=touch /root/stopped\n",
           "/etc/systemd/system/polite.service")  # fmt: skip
    n1.run("systemctl daemon-reload; systemctl start polite")
    n1.shut_down()
    assert "Shutting down" in n1.journal("--lines=20")
    n1.boot()
    n1.run("test -e /root/stopped")


def test_cuts_and_heals_are_between_whom_they_say(bed: Bed) -> None:
    n1, n2, n3 = (bed.machines[name] for name in ("n1", "n2", "n3"))
    bed.network.cut("n1", "n2")
    assert not reaches(n1, n2)
    assert not reaches(n2, n1)
    assert reaches(n1, n3)
    assert reaches(n2, n3)
    bed.network.heal("n1", "n2")
    assert reaches(n1, n2)

    bed.network.cut("n3")
    assert not reaches(n1, n3)
    assert not reaches(n3, n2)
    assert bed.outside(["ping", "-c1", "-W1", n3.address]).returncode != 0
    assert reaches(n1, n2)
    bed.network.heal("n3")
    assert reaches(n1, n3)

    bed.network.split(["n1"], ["n2", "n3"])
    assert not reaches(n1, n3)
    assert reaches(n2, n3)
    bed.network.heal()
    assert reaches(n1, n2)
    assert reaches(n1, n3)


def test_a_one_way_cut_lets_packets_through_the_other_way(bed: Bed) -> None:
    n1, n2 = bed.machines["n1"], bed.machines["n2"]
    assert reaches(n1, n2)
    received = "/proc/net/snmp"

    def echoes(machine: Machine) -> int:
        lines = [line.split() for line in machine.get(received).decode().splitlines()]
        names, values = (line for line in lines if line[0] == "Icmp:")
        return int(values[names.index("InEchos")])

    bed.network.cut("n1", "n2", one_way=True)
    before_1, before_2 = echoes(n1), echoes(n2)
    assert not reaches(n1, n2)  # the question is lost
    assert not reaches(n2, n1)  # the answer is lost
    assert echoes(n2) == before_2
    assert echoes(n1) == before_1 + 1
    bed.network.heal()
    assert reaches(n1, n2)


def test_a_machine_reaches_nothing_beyond_the_bed(n1: Machine) -> None:
    assert n1.run("ip route").stdout.split()[0] == "10.66.0.0/24"
    assert len(n1.run("ip route").stdout.splitlines()) == 1


def test_a_saved_disk_starts_other_machines(bed: Bed) -> None:
    model = bed.machine("model")
    model.boot()
    model.run("echo made >/root/by-model; rm /etc/issue")
    with pytest.raises(BedError, match="is on"):
        model.save_disk("gold")
    identity = model.get("/etc/machine-id")
    model.shut_down()
    gold = model.save_disk("gold")

    copies = bed.boot("copy1", "copy2", disk=gold)
    copies[0].run("echo mine >/root/by-model")
    assert copies[1].get("/root/by-model") == b"made\n"
    assert copies[1].run("test -e /etc/issue", check=False).rc == 1
    assert len({machine.get("/etc/machine-id") for machine in copies} | {identity}) == 3

    copies[0].power_off_hard()
    copies[0].reset_disk()
    copies[0].boot()
    assert copies[0].get("/root/by-model") == b"made\n"
    model.boot()
    assert model.get("/etc/machine-id") == identity


def test_a_volume_outlives_a_power_off_can_be_full_and_goes_with_the_disk(bed: Bed) -> None:
    machine = bed.machine("v1")
    machine.add_volume("/srv/small", 8 << 20)
    machine.boot()
    machine.run("head -c 1000000 /dev/zero >/srv/small/kept")
    machine.fill_volume("/srv/small")
    assert machine.run("echo more >/srv/small/more", check=False).rc != 0
    machine.power_off_hard()
    machine.boot()
    assert machine.run("stat -c %s /srv/small/kept").stdout == "1000000\n"
    machine.free_volume("/srv/small")
    machine.run("head -c 2000000 /dev/zero >/srv/small/more")
    machine.shut_down()
    machine.reset_disk()
    machine.boot()
    assert machine.run("ls /srv/small").stdout == ""
    machine.power_off_hard()


def make_repository(directory: Path, version: str) -> Path:
    """A flat repository with one package, which needs `hello` of Debian and recommends `mawk`."""
    tree = directory / f"tree-{version}"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(
        f"Package: oj-sample\nVersion: {version}\nArchitecture: all\nDepends: hello\n"
        "Recommends: oj-missing | mawk\nMaintainer: nobody <nobody@oj.invalid>\n"
        "Description: a sample\n"
    )
    repository = directory / version
    repository.mkdir()
    subprocess.run(["dpkg-deb", "--build", tree, repository], check=True, capture_output=True)
    index = subprocess.run(
        ["apt-ftparchive", "packages", "."], cwd=repository, check=True, capture_output=True
    )
    (repository / "Packages").write_bytes(index.stdout)
    return repository


def test_packages_install_with_what_they_need_and_without_a_network(
    bed: Bed, n1: Machine, tmp_path: Path
) -> None:
    older = bed.repository(make_repository(tmp_path, "1.0"))
    n1.add_repository(older)
    n1.install("oj-sample")
    assert n1.run("hello").stdout == "Hello, world!\n"
    # A new build asks for nothing new, so nothing is fetched, and apt inside upgrades to it.
    newer = bed.repository(make_repository(tmp_path, "1.1"))
    (hello,) = older.path.glob("hello_*.deb")
    assert hello.samefile(newer.path / hello.name)
    n1.add_repository(newer)
    n1.install("oj-sample")
    assert n1.run("dpkg-query -Wf '${Version}' oj-sample").stdout == "1.1"


def test_two_beds_do_not_meet(bed: Bed) -> None:
    with Bed() as other:
        (stranger,) = other.boot("n1")
        assert stranger.address == bed.machines["n1"].address
        bed.machines["n1"].run("echo first >/root/whose")
        assert stranger.run("test -e /root/whose", check=False).rc == 1
        stranger.power_off_hard()
        assert bed.machines["n1"].run("systemctl is-system-running").stdout == "running\n"
        name = other.name
    assert traces(name) == []
    assert bed.machines["n1"].running


def test_nothing_is_left_of_a_bed_that_ends_in_a_failure() -> None:
    name = ""
    with pytest.raises(ZeroDivisionError), Bed() as bed:
        name = bed.name
        (machine,) = bed.boot("n1")
        machine.start("sleep 1000")
        # Names that a careless removal would trip over: cgroups and mounts made inside.
        machine.run("mount -t tmpfs none /mnt")
        machine.run("systemd-run --quiet sleep 1000")
        assert traces(name)
        raise ZeroDivisionError
    assert traces(name) == []


CHILD = """
import sys, time
sys.path.insert(0, sys.argv[1])
from bed import Bed
with Bed() as bed:
    print(bed.name, flush=True)
    machine, = bed.boot("n1")
    machine.start("sleep 1000")
    print("booted", flush=True)
    time.sleep(1000)
"""


def start_child() -> tuple[subprocess.Popen[str], str]:
    # A test run in the background of a shell ignores some signals, and so would its children.
    words = ["env", "--default-signal", sys.executable, "-c", CHILD, str(TREE / "tests")]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    return child, child.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_bed_goes_when_its_owner_is_asked_to_end(number: signal.Signals) -> None:
    child, name = start_child()
    assert child.stdout is not None
    assert child.stdout.readline() == "booted\n"
    child.send_signal(number)
    assert child.wait(90) != 0
    assert traces(name) == []


def test_a_sweep_removes_what_a_killed_owner_left_and_nothing_else(bed: Bed) -> None:
    child, name = start_child()
    assert child.stdout is not None
    assert child.stdout.readline() == "booted\n"
    assert name not in leftovers.sweep()
    assert traces(name)
    child.kill()
    child.wait()
    leftovers.sweep()
    # It may be the sweep of another bed, of tests beside these, that was first.
    wait_for("nothing is left", lambda: traces(name) == [])
    assert bed.machines["n1"].running


def test_a_sweep_removes_a_bed_whose_owner_was_killed_while_it_booted() -> None:
    child, name = start_child()
    child.kill()
    child.wait()

    def swept() -> bool:
        # Again and again: a child of its that is just about to become another program has its lock
        # for a moment. What it had started outside the bed's cgroups ends by itself.
        with suppress(BedError, OSError):
            leftovers.sweep()
        return traces(name) == []

    wait_for("nothing is left", swept)


def test_a_kept_bed_stays_until_it_is_stopped() -> None:
    def bed_command(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tests.bed", *words], cwd=TREE, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    name = bed_command("boot", "n1").split("stop ")[1].strip()
    try:
        assert name not in leftovers.sweep()
        assert name in bed_command("list")
        assert bed_command("enter", name, "n1", "hostname") == "n1\n"
    finally:
        bed_command("stop", name)
    assert traces(name) == []
