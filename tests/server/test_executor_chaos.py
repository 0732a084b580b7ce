"""oj-box and the executor killed with SIGKILL at random moments of a thousand runs: every task ends
with one result, and the executor that is started again leaves nothing behind.

OJ_SEED repeats the moments of a run that failed.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pymongo
import pytest

import loopback
import servers
from executors import JudicatorUnderTest
from hostile import leftovers
from oj.calls import GET_ALL
from oj.client import Judicators
from oj.clock import Deadline
from oj.model import FINAL, Data, File, Limits, Status, Step, Task, Test, Verdict

TASKS = 250
RUNS_A_TASK = 4
KILLS = 40
USERS = range(loopback.FIRST_UID, loopback.FIRST_UID + loopback.USERS)
# Leaves as much as it can: files in every place, processes in sessions of their own.
PROGRAM = """
echo left >/tmp/left; echo left >/dev/shm/left; echo left >left
setsid sleep 60 & (sleep 60 &)
sleep 0.01; read -r word; echo "$word $((6 * 7))"
"""
LIMITS = Limits(wall_ms=60_000)


class Victim:
    """The executor, and what of it is killed."""

    def __init__(self, daemon: servers.Daemon, client: Judicators, dice: random.Random) -> None:
        self.daemon = daemon
        self.kills: Counter[str] = Counter()
        self.boxes: dict[int, str] = {}  # when each was started, by its number
        self._client = client
        self._dice = dice
        self._lost_init = False

    def wait_moment(self) -> None:
        """Mostly after some tasks more, however fast the machine is; or while it starts."""
        if self._dice.random() < 0.15:
            time.sleep(self._dice.uniform(0, 1.0))
            return
        self._wait_ready()
        enough = self._count_judged() + self._dice.randrange(2 * TASKS // KILLS)
        deadline = Deadline(20)
        while self._count_judged() < enough and not deadline.expired:
            time.sleep(0.01)
        time.sleep(self._dice.uniform(0, 0.1))

    def _wait_ready(self) -> None:
        """Whoever lost a run of its proof refuses to serve; it is started again, as by systemd."""
        try:
            self.daemon.wait_ready()
        except AssertionError:
            if not self._lost_init or self.daemon.popen.returncode != 1:
                raise
            self._start_again()
            self.daemon.wait_ready()

    def _count_judged(self) -> int:
        return self._client.stats().by_status.get(Status.SUCCESS, 0)

    def kill(self, what: str) -> None:
        """The executor, or a process of oj-box; what does not survive that is started again."""
        boxes = self.note_boxes()
        slots = [slot for box in boxes for slot in leftovers.children(box)]
        inits = [init for slot in slots for init in leftovers.children(slot)]
        if what == "executor" or not slots:
            self.daemon.kill()
            self.kills["executor"] += 1
        elif inits and self._dice.random() < 0.2:
            # One run's own: oj-box goes on, and that run counts for nothing.
            _kill(self._dice.choice(inits))
            self.kills["init"] += 1
            self._lost_init = True
            return
        else:
            kind = self._dice.choice(("main", "main", "slot"))
            _kill(self._dice.choice(boxes if kind == "main" else slots))
            self.kills[f"oj-box's {kind}"] += 1
            assert self.daemon.wait(60) == 1, self.daemon.log()
        self._start_again()

    def _start_again(self) -> None:
        """As systemd does, but at once."""
        text = self.daemon.config_path.read_text()
        self.daemon.close()
        self.daemon = servers.start_daemon("executor", text, self.daemon.directory, wait=False)
        self._lost_init = False

    def note_boxes(self) -> list[int]:
        boxes: list[int] = []
        with contextlib.suppress(OSError):
            boxes = self.daemon.children()
        self.boxes.update({pid: started_at(pid) for pid in boxes})
        return boxes

    def lives(self, box: int) -> bool:
        """That one, and not another that was given its number meanwhile."""
        return started_at(box) == self.boxes[box] != ""

    def cgroups(self, box: int) -> list[str]:
        """Of that one, likewise: their names tell when their maker was started."""
        name = f"oj-box.{box}.{self.boxes[box]}"
        return [path for path in leftovers.cgroups(box) if name in path.split("/")]


def started_at(pid: int) -> str:
    """Empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture
def seed() -> int:
    return int(os.environ.get("OJ_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


@pytest.fixture
def judicator(etcd: servers.Etcd, mongod: servers.Mongod) -> Iterator[JudicatorUnderTest]:
    # A task may be in the killed executor's hands many times.
    one = JudicatorUnderTest(etcd.address, mongod.address, settings="[tasks]\nmax_attempts = 20\n")
    yield one
    one.close()


@pytest.fixture
def victim(
    etcd: servers.Etcd,
    mongod: servers.Mongod,
    judicator: JudicatorUnderTest,
    seed: int,
    tmp_path: Path,
) -> Iterator[Victim]:
    loopback.prepare()
    languages = tmp_path / "languages.d"
    languages.mkdir()
    (languages / "bash.conf").write_text((loopback.LANGUAGES / "bash.conf").read_text())
    with loopback.Cluster(etcd, mongod) as cluster:
        cluster.ports.append(judicator.port)
        daemon = cluster.add_executor(languages=languages)
        with Judicators([("127.0.0.1", judicator.port)]) as client:
            one = Victim(daemon, client, random.Random(seed))
            yield one
            one.daemon.close()


def make_task(number: int, blob: Data) -> Task:
    """Of every kind that takes another way through the executor."""
    program = File("program", Data(PROGRAM.encode()))
    files: dict[str, object] = {"source": (program,)}
    if number % 3 == 1:
        files = {"source": (program,), "data": (File("more", blob),)}
    elif number % 3 == 2:
        files = {
            "source": (File("source", program.data),),
            "compile": Step(("/bin/sh", "-c", "sleep 0.01; cp source program"), LIMITS),
        }
    tests = tuple(
        Test(input=Data(f"{number}-{n}\n".encode()), expected=Data(f"{number}-{n} 42\n".encode()))
        for n in range(RUNS_A_TASK)
    )
    return Task(execute=Step(("/bin/bash", "program"), LIMITS), tests=tests, **files)  # type: ignore[arg-type]


def count_ends(mongod: servers.Mongod, database: str) -> Counter[str]:
    """How many times each task was given a final status, by the database's own log."""
    ends: Counter[str] = Counter()
    final = {int(status) for status in FINAL}
    client: pymongo.MongoClient[dict[str, object]] = pymongo.MongoClient(
        mongod.address, directConnection=True
    )
    with client:
        for entry in client.local["oplog.rs"].find({"op": {"$in": ["u", "c"]}}):
            # The writes of a transaction are one entry.
            for write in entry["o"].get("applyOps", [entry]):  # type: ignore[attr-defined]
                if write.get("op") == "u" and write["ns"] == f"{database}.tasks":
                    changed = write["o"].get("diff", {})
                    ends[str(write["o2"]["_id"])] += changed.get("u", {}).get("s") in final
    return ends


def find_leftovers(victim: Victim, but_for: frozenset[int] = frozenset()) -> list[str]:
    """All that its sandboxes and tasks could have left."""
    directory = victim.daemon.directory
    kept = [
        str(path)
        for place in ("state/results", "state/tasks", "run/tasks")
        for path in (directory / place).iterdir()
    ]
    blobs = [path.name for path in (directory / "state" / "blobs").iterdir() if len(path.name) < 64]
    return [
        *(leftovers.describe(pid) for pid in leftovers.processes_of(USERS)),
        *(f"process {pid}" for pid in victim.boxes.keys() - but_for if victim.lives(pid)),
        *(path for pid in victim.boxes.keys() - but_for for path in victim.cgroups(pid)),
        *leftovers.files_of(USERS),
        *leftovers.ipc_of(USERS),
        *leftovers.mounts_of_ours(directory),
        *kept,
        *blobs,
    ]


def wait_clean(victim: Victim, but_for: frozenset[int] = frozenset()) -> None:
    deadline = time.monotonic() + 30
    while left := find_leftovers(victim, but_for):
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def test_kills_at_random_moments_lose_nothing_and_leave_nothing_behind(
    victim: Victim, judicator: JudicatorUnderTest, mongod: servers.Mongod, seed: int
) -> None:
    print(f"OJ_SEED={seed}")
    with Judicators([("127.0.0.1", judicator.port)]) as client:
        blob = Data(digest=client.put_blob(b"a blob\n" * 1000))
        ids = client.add_many([make_task(number, blob) for number in range(TASKS)])
        began_s = time.monotonic()
        for number in range(KILLS):
            victim.wait_moment()
            victim.kill("executor" if number % 2 else "oj-box")
        infos = [client.wait_done(task_id, GET_ALL, Deadline(120)) for task_id in ids]
    lost = sum(info.attempt - 1 for info in infos)
    print(
        f"{TASKS} tasks with {RUNS_A_TASK} runs each in {time.monotonic() - began_s:.0f} s; "
        f"{lost} attempts lost by kills of {dict(victim.kills)}"
    )
    bad = [
        info
        for info in infos
        if (info.status, info.verdict) != (Status.SUCCESS, Verdict.ACCEPTED)
        or not info.result
        or len(info.result.tests) != RUNS_A_TASK
    ]
    assert bad == []
    ends = count_ends(mongod, judicator.database)
    assert {task_id: ends[task_id] for task_id in ids} == dict.fromkeys(ids, 1)
    victim.daemon.wait_ready()
    wait_clean(victim, frozenset(victim.note_boxes()))
    assert victim.daemon.stop() == 0
    wait_clean(victim)
