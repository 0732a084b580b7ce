"""The hostile collection (tests/hostile), and whether many runs leave anything behind.

tests/hostile/run does the same by hand, with larger numbers; test_hostile_memory.py has the attacks
on the kernel's memory, which need a quiet machine.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile import collection, leftovers
from hostile.judging import Finding, Target, in_every_slot
from oj.model import Outcome, Result, Status, TestResult, Verdict

TREE = Path(__file__).resolve().parents[2]
SLOTS = 2
ATTACK = "test_an_attack_ends_as_expected_and_achieves_nothing"


@pytest.fixture(scope="module")
def target() -> Iterator[Target]:
    subprocess.run(["make", "-s", "-C", TREE / "daemons" / "box"], check=True)
    box = os.environ.get("OJ_BOX", str(TREE / "build" / "box" / "oj-box"))
    with Target(box, SLOTS) as started:
        before = started.count()
        yield started
        assert leftovers.compare(before, started.count()) == []


@pytest.fixture(scope="module")
def findings(target: Target, request: pytest.FixtureRequest) -> dict[str, Finding]:
    """Those attacks that were asked for, all slots at work at once."""
    wanted = [
        item.callspec.params["name"]
        for item in request.session.items
        if item.path == request.path and item.originalname == ATTACK
    ]
    found: list[Finding] = []
    target.try_all(wanted, found.append)
    return {finding.name: finding for finding in found}


@pytest.mark.parametrize("name", sorted({*collection.names()} - {*collection.measured_names()}))
def test_an_attack_ends_as_expected_and_achieves_nothing(
    findings: dict[str, Finding], name: str
) -> None:
    assert findings[name].complaints == []


def test_runs_and_cancelled_runs_leave_nothing_behind(target: Target) -> None:
    before = target.count()

    def work(slot: int) -> None:
        target.run_many(slot, 150)
        target.cancel_many(slot, 25)

    in_every_slot(work, SLOTS)
    assert leftovers.compare(before, target.count()) == []


# ---- the judges of all this, judged ------------------------------------------------------------


def test_what_is_left_behind_is_seen(target: Target) -> None:
    uid = target.uids.start
    before = target.count()
    file = Path(f"/tmp/oj-hostile-left-{os.getpid()}")
    libc = ctypes.CDLL(None, use_errno=True)
    # IPC_PRIVATE, IPC_CREAT: an object of the slot's user, made by a process of that user
    make = "import ctypes; print(ctypes.CDLL(None).shmget(0, 4096, 0o1600))"
    made = subprocess.run(
        ["/usr/bin/python3", "-c", make], user=uid, group=uid, capture_output=True, check=True
    )
    sleeper = subprocess.Popen(["/bin/sleep", "60"], user=uid, group=uid)
    slot = leftovers.children(target.box)[0]
    bind = "import socket; s = socket.socket(socket.AF_UNIX); s.bind('\\0left'); print(); input()"
    listener = subprocess.Popen(
        ["nsenter", f"--net=/proc/{slot}/ns/net", "/usr/bin/python3", "-c", bind],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert listener.stdout is not None
    listener.stdout.readline()
    try:
        file.touch()
        os.chown(file, uid, uid)
        (target.state / "small" / "left").touch()
        subprocess.run(["mount", "-t", "tmpfs", "oj-box", target.state / "large"], check=True)
        with file.open():
            after = leftovers.count(target.box, target.uids, target.state)
    finally:
        subprocess.run(["umount", target.state / "large"])
        sleeper.kill()
        sleeper.wait()
        listener.kill()
        listener.communicate()
        file.unlink()
        (target.state / "small" / "left").unlink()
        libc.shmctl(int(made.stdout), 0, None)  # IPC_RMID
    told = {line.split(":")[0] for line in leftovers.compare(before, after)}
    assert told == {
        "processes of the slots' users",
        "files of the slots' users",
        "files of the executor",
        "System V objects",
        "our descriptors",
        "mounts of the host",
        "sockets of each slot",
    }
    assert leftovers.compare(before, target.count()) == []


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        (Outcome(stdout=b"held\n"), []),
        (Outcome(stdout=b"\nESCAPED by the window\nheld\n"), ["ESCAPED by the window"]),
        (Outcome(stderr=b"ESCAPED\n"), ["ESCAPED"]),
        (Outcome(stdout=b"a SECRET b"), ["the secret got out"]),
        (Outcome(processes=33), ["had 33 processes"]),
        (Outcome(memory_bytes=1 << 30), [f"had {1 << 30} bytes of memory"]),
    ],
)
def test_an_escape_is_seen(target: Target, outcome: Outcome, words: list[str]) -> None:
    stdout = outcome.stdout.replace(b"SECRET", target.secret.encode())
    told = Outcome(**{**vars(outcome), "stdout": stdout})
    result = Result(
        Status.SUCCESS, Verdict.ACCEPTED, tests=(TestResult("1", Verdict.ACCEPTED, told),)
    )
    assert target.examine(target.load("mount"), result) == words


def test_another_verdict_than_expected_is_a_complaint(target: Target) -> None:
    result = Result(Status.SUCCESS, Verdict.ACCEPTED)
    assert "and not time_limit" in target.examine(target.load("fork-bomb"), result)[0]


def test_the_collection_is_large_and_says_what_each_attack_tries(target: Target) -> None:
    attacks = [target.load(name) for name in collection.names()]
    assert len(attacks) >= 60
    assert all(attack.tries and attack.verdicts for attack in attacks)
