"""The cluster under test: made from packages with `oj setup`, watched, and found healthy again."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bed import Bed, BedError, Machine, Repository, raise_version
from bed.machine import Disk
from faults import clock
from faults.client import Client, place_program
from faults.view import View

JUDICATORS = ["j1", "j2", "j3"]
EXECUTORS = ["e1", "e2"]
CLIENT = "c1"
JUDICATOR_UNITS = ["oj-etcd", "oj-mongodb", "oj-judicator"]
EXECUTOR_UNITS = ["oj-etcd", "oj-executor"]

# Each state directory is a small disk of its own, which a fault can fill.
MIB = 1 << 20
VOLUMES = {
    "oj-etcd": ("/var/lib/oj/etcd", 512 * MIB),
    "oj-mongodb": ("/var/lib/oj/mongodb", 2048 * MIB),
    "oj-executor": ("/var/lib/oj/executor", 640 * MIB),  # what setup asks for, and some
}
HEALTHY_S = 240
PROGRESS_S = 90


class Stuck(Exception):
    """The cluster did not do in time what it should do by itself."""


class Cluster:
    def __init__(self, bed: Bed, packages: Path, seed: int) -> None:
        self.bed = bed
        self.judicators = list(JUDICATORS)
        self.executors = list(EXECUTORS)
        self.marks: list[dict[str, Any]] = []  # what was done when, for the figures
        self.repository = bed.repository(packages)
        self._packages = packages
        self._seed = seed
        self._pool = ThreadPoolExecutor(max_workers=16)
        self._disks: dict[str, Disk] = {}
        self._newest = 0
        self._versions: dict[str, int] = {}
        self.client: Client

    # --- making it -----------------------------------------------------------------------------

    def form(self) -> float:
        """Installs, sets up and waits until all is healthy; gives the seconds that three ready
        judicators took, from the first `oj setup` on."""
        self._install()
        for name in self.judicators:
            self.make_machine(name, "judicator")
        for name in self.executors:
            self.make_machine(name, "executor")
        self.make_machine(CLIENT, "client")
        self.bed.boot(*self.judicators, *self.executors, CLIENT)
        self.in_parallel(self.prepare, self.judicators)
        started = time.monotonic()
        first, *others = self.judicators
        self.setup(first, "judicator")
        for name in others:
            self.setup(name, "judicator", "--join", first)
        self.client = Client(self.machine(CLIENT), self.judicators, self._seed)
        self.wait_for("three ready judicators", self._judicators_are_ready, HEALTHY_S)
        took_s = time.monotonic() - started
        self.in_parallel(lambda name: self.setup(name, "executor", "--join", first), self.executors)
        self.wait_until_healthy()
        return took_s

    def _install(self) -> None:
        """One disk a role, installed once."""
        wanted = {
            "judicator": ["oj-judicator"],
            "executor": ["oj-executor"],
            "client": ["oj-client", "python3-pymongo"],
        }

        def install(role: str) -> None:
            machine = self.bed.machine(f"{role}disk")
            machine.boot()
            machine.add_repository(self.repository)
            machine.install(*wanted[role])
            # Whatever begins to run does so by `oj setup`.
            if role == "judicator":
                clock.prepare(machine, JUDICATOR_UNITS, self.bed.directory)
            machine.run("ls /lib/systemd/system | grep ^oj- | xargs -r systemctl disable")
            machine.run("rm -rf /var/log/journal/* && truncate -s0 /etc/machine-id")
            machine.shut_down()
            self._disks[role] = machine.save_disk(role)

        self.in_parallel(install, wanted)

    def make_machine(self, name: str, role: str) -> Machine:
        machine = self.bed.machine(name, self._disks[role])
        units = {"judicator": JUDICATOR_UNITS, "executor": EXECUTOR_UNITS}.get(role, [])
        for unit in units:
            if unit in VOLUMES:
                machine.add_volume(*VOLUMES[unit])
        return machine

    def prepare(self, name: str) -> None:
        place_program(self.machine(name))
        # On the machine's own layer of its disk: a later change would make another file there.
        clock.set_clock(self.machine(name), 0)

    def setup(self, name: str, *words: str) -> None:
        self.machine(name).run(["oj", "setup", *words], timeout_s=180)

    def _judicators_are_ready(self) -> bool:
        return not self.look().troubles(self.judicators, [])

    # --- looking at it -------------------------------------------------------------------------

    def machine(self, name: str) -> Machine:
        return self.bed.machines[name]

    @property
    def nodes(self) -> list[str]:
        return [*self.judicators, *self.executors]

    def units_of(self, name: str) -> list[str]:
        return JUDICATOR_UNITS if name in self.judicators else EXECUTOR_UNITS

    def look(self) -> View:
        return View(**self.client.call("look", hosts=self.judicators))

    def count(self) -> dict[str, int]:
        return dict(self.client.call("count"))

    def wait_for(
        self, what: str, condition: Callable[[], Any], timeout_s: float, pause_s: float = 0.2
    ) -> Any:
        end = time.monotonic() + timeout_s
        while True:
            answer = condition()
            if answer:
                return answer
            if time.monotonic() > end:
                raise Stuck(f"{what}: not within {timeout_s:g} s")
            time.sleep(pause_s)

    def wait_until_healthy(self, timeout_s: float = HEALTHY_S) -> float:
        """Every unit active, every member there, a task judged through each judicator."""
        began = time.monotonic()
        end = began + timeout_s
        while troubles := self.troubles():
            if time.monotonic() > end:
                raise Stuck(f"not healthy within {timeout_s:g} s: {'; '.join(troubles)}")
            time.sleep(0.3)
        for host in self.judicators:
            if self.client.call("judge", host=host, timeout_s=60.0, patience_s=90) is None:
                raise Stuck(f"no task could be judged through {host} within 60 s")
        return time.monotonic() - began

    def troubles(self) -> list[str]:
        found = list(self.look().troubles(self.judicators, self.executors))
        found += [line for lines in self.in_parallel(self._inactive, self.nodes) for line in lines]
        return found

    def _inactive(self, name: str) -> list[str]:
        machine = self.machine(name)
        if not machine.running:
            return [f"{name} is off"]
        units = self.units_of(name)
        try:
            states = machine.run(["systemctl", "is-active", *units], check=False).stdout.split()
        except BedError as mistake:
            return [f"{name}: {mistake}"]
        if len(states) < len(units):
            return [f"{name} does not tell the state of its units"]
        pairs = zip(units, states, strict=True)
        return [f"{unit} of {name} is {state}" for unit, state in pairs if state != "active"]

    def wait_for_progress(self, tasks: int = 10, timeout_s: float = PROGRESS_S) -> None:
        """Until so many tasks more were added and so many ended: the cluster serves."""
        before = self.count()

        def enough() -> bool:
            now = self.count()
            return all(now[name] >= before[name] + tasks for name in ("added", "ended"))

        self.wait_for("tasks are added and judged", enough, timeout_s)

    # --- for faults ----------------------------------------------------------------------------

    def in_parallel(self, act: Callable[[Any], Any], things: Iterable[Any]) -> list[Any]:
        return list(self._pool.map(act, things))

    def mark(self, what: str, **fields: Any) -> float:
        """Notes the moment, on the clock that all machines have."""
        now = time.monotonic()
        self.marks.append({"what": what, "t": now, **fields})
        return now

    def upgrade(self, node: str) -> None:
        """The next version of all packages on one node."""
        if self._versions.get(node, 0) == self._newest:
            self._newest += 1
            self._newer = self._make_newer(self._newest)
        self._versions[node] = self._newest
        machine = self.machine(node)
        machine.add_repository(self._newer)
        machine.run(["apt-get", "-q", "-y", "dist-upgrade"], timeout_s=300)

    def _make_newer(self, number: int) -> Repository:
        out = self.bed.directory / f"newer-{number}"
        return self.bed.repository(raise_version(self._packages, out, f"+{number}"))

    def try_minority(self, node: str, timeout_s: float) -> list[dict[str, Any]]:
        """Tries to add a task on a node that is cut off, through its own judicator."""
        key = f"minority-{node}-{time.monotonic_ns()}"
        words = ["python3", "/root/faults/main.py", "minority", node, key, str(timeout_s)]
        lines = self.machine(node).run(words, timeout_s=timeout_s + 30).stdout.splitlines()
        self.client.extra += lines
        return [json.loads(line) for line in lines]
