"""The sandbox on cgroup v2, in a virtual machine with Debian's own kernel: see tests/vm.

All commands of the chosen tests run in one boot. They are the same tests that run on this machine,
whose cgroups may be v1. The machine is emulated, so whatever can be compiled here is.

OJ_RELEASE names another release of Debian than the host's: the kernel and everything else are then
that one's, with the oj-box of its package. The short part is done for both in tests/run.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

import vm
from bed import build, root
from hostile import ahead, collection

TREE = Path(__file__).resolve().parents[2]
RELEASE = os.environ.get("OJ_RELEASE", root.HOST)
PACKAGES = Path(os.environ.get("OJ_PACKAGES", build.directory(RELEASE)))
BOX = "build/box/oj-box"
BUILT = "build/hostile"
TIMEOUT_S = 3000  # a bound, not the expectation: without KVM, next to busy neighbours

# As in oj-executor.service.
CAPABILITIES = (
    "CAP_SYS_ADMIN CAP_SETUID CAP_SETGID CAP_SETPCAP CAP_CHOWN CAP_FOWNER CAP_DAC_OVERRIDE "
    "CAP_KILL CAP_SYS_CHROOT"
)
UNIT = (
    "systemd-run --quiet --wait --pipe --collect --working-directory=$PWD --setenv=OJ_SLOW=1"
    f" --setenv=OJ_BOX=$PWD/{BOX} --setenv=PYTHONPATH=daemons"
    " -p Delegate=yes -p OOMPolicy=continue -p TasksMax=infinity -p NoNewPrivileges=yes"
    f" -p 'CapabilityBoundingSet={CAPABILITIES}'"
)

Ended = dict[str, vm.Ended]

COMMANDS = {
    "version": "test -f /sys/fs/cgroup/cgroup.controllers && . /etc/os-release &&"
    f' echo "$VERSION_CODENAME" && uname -r && {BOX} --version',
    "check": f"{BOX} check",  # asks systemd for a scope of its own
    "proof": f"{UNIT} /usr/bin/python3 -B tests/vm/prove.py {BOX}",
    "sandbox": f"{UNIT} /usr/bin/python3 -B -m pytest --noconftest -q --tb=short --color=no"
    " -p no:cacheprovider --durations=10 tests/server/test_sandbox.py",
    "hostile": f"tests/hostile/run --built {BUILT}",
}
# Attacks with several right verdicts where not the sandbox but this decides:
DECIDED_BY = {
    "descriptor-bomb": "the size of the kernel's structures",
    "fork-at-exit": "how fast it forks",
    "fork-bomb-exec": "how fast it forks",
    "xattr-bomb": "the kernel: tmpfs has attributes of users since 6.6",
    "yield-for-ever": "how fast the machine is",
}
FOUND = re.compile(r"^(?:ok|FAILED) +(\S+) +(\S+) +[0-9.]+ s(?: .*)?$", re.MULTILINE)


@pytest.fixture(scope="module")
def ended(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    """How the commands ended that the chosen tests are about."""
    vm.install()
    chosen = {
        mark.args[0] for item in request.session.items for mark in item.iter_markers("command")
    }
    commands = {name: text for name, text in COMMANDS.items() if name in chosen}
    subprocess.run(["make", "-s", "-C", TREE / "daemons" / "box", "all", "dynamic"], check=True)
    built = {BOX: TREE / BOX, f"{BOX}-dynamic": TREE / f"{BOX}-dynamic"}
    if RELEASE != root.HOST:
        built[BOX] = unpack_box(tmp_path_factory.mktemp("package"))
    if "hostile" in commands:
        built[BUILT] = tmp_path_factory.mktemp("hostile")
        ahead.build(built[BUILT])
    done = vm.run_all([*commands.values()], timeout_s=TIMEOUT_S, built=built)
    return dict(zip(commands, done, strict=True))


def unpack_box(directory: Path) -> Path:
    """The oj-box that was built on the release itself."""
    (package,) = PACKAGES.glob("oj-executor_*.deb")
    subprocess.run(["dpkg-deb", "--extract", package, directory], check=True)
    return directory / "usr/libexec/oj/oj-box"


def expect_success(one: vm.Ended) -> None:
    assert one.exit_code == 0, f"{one.command}\n{one.output}"


@pytest.mark.each_release
@pytest.mark.command("version")
def test_the_machine_has_cgroup_v2_and_runs_the_sandbox(ended: Ended) -> None:
    expect_success(ended["version"])
    assert ended["version"].output.split()[0] == RELEASE


@pytest.mark.each_release
@pytest.mark.command("check")
def test_every_limit_bites(ended: Ended) -> None:
    expect_success(ended["check"])
    assert "cgroup v2 accounts" in ended["check"].output


@pytest.mark.each_release
@pytest.mark.command("proof")
def test_the_executors_own_proof_succeeds(ended: Ended) -> None:
    expect_success(ended["proof"])


@pytest.mark.command("sandbox")
def test_the_sandbox_passes_its_tests_with_few_capabilities(ended: Ended) -> None:
    expect_success(ended["sandbox"])
    assert " passed" in ended["sandbox"].output
    assert "skipped" not in ended["sandbox"].output


@pytest.mark.command("hostile")
def test_the_hostile_collection_ends_as_it_should(ended: Ended) -> None:
    expect_success(ended["hostile"])


@pytest.mark.command("hostile")
def test_every_attack_gets_the_same_verdict_here_and_there(ended: Ended) -> None:
    there = dict(FOUND.findall(ended["hostile"].output))
    done = subprocess.run(
        [TREE / "tests" / "hostile" / "run", "--no-measuring"],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    here = dict(FOUND.findall(done.stdout))
    assert set(there) == set(here) == set(collection.names()), done.stdout
    for name in sorted(here):
        if here[name] != there[name]:
            print(f"{name}: {here[name]} here, {there[name]} on cgroup v2 {DECIDED_BY.get(name)}")
    others = {name for name in here if here[name] != there[name]}
    # What hoards the kernel's memory for a second gets as far as the machine is fast.
    assert others <= DECIDED_BY.keys() | {*collection.measured_names()}
