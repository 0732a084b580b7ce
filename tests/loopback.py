"""A whole cluster on loopback from the tree: etcd, mongod, judicators, executors, all real.

For tests and benchmarks that need a task judged for real; executors need root for the sandbox.
Everything ends with the process that started it (see servers.py).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import servers

BOX = servers.TREE / "build" / "box" / "oj-box"
LANGUAGES = servers.TREE / "etc" / "languages.d"
# A thousand users for each executor, of this process alone: several test runs share a machine.
USERS = 1000
FIRST_UID = 100_000_000 + os.getpid() % 10_000 * 10 * USERS


def prepare() -> None:
    """What has to be built before oj can be imported and run from the tree."""
    os.environ.setdefault("GRPC_DNS_RESOLVER", "native")
    servers.generate_rpc()
    subprocess.run(
        ["make", "--silent", "-C", str(servers.TREE / "daemons" / "box")],
        check=True,
        stdout=sys.stderr,
    )


class Cluster:
    """Starts with one judicator and one executor; more can be added, and any be killed."""

    def __init__(self, etcd: servers.Etcd | None = None, mongod: servers.Mongod | None = None):
        self.slots = len(os.sched_getaffinity(0))
        self.etcd = etcd
        self.mongod = mongod
        self.database_name = f"loopback_{os.urandom(6).hex()}"
        self.prefix = f"/loopback-{os.urandom(6).hex()}/"
        self.judicators: list[servers.Daemon] = []
        self.executors: list[servers.Daemon] = []
        self.ports: list[int] = []
        self.metrics: dict[str, int] = {}  # ports by the daemon's name, where that is wanted
        self.with_metrics = False
        self._parts = contextlib.ExitStack()

    @property
    def address(self) -> tuple[str, int]:
        """Of the first judicator."""
        return "127.0.0.1", self.ports[0]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [("127.0.0.1", port) for port in self.ports]

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self._parts.close()

    def start(self, judicators: int = 1, executors: int = 1) -> Cluster:
        if self.etcd is None:
            self.etcd = servers.Etcd()
            self._parts.callback(self.etcd.close)
            self.etcd.start()
        if self.mongod is None:
            self.mongod = servers.Mongod()
            self._parts.callback(self.mongod.close)
            self.mongod.start()
        for _ in range(judicators):
            self.add_judicator(wait=False)
        for daemon in self.judicators:
            daemon.wait_ready()
        for _ in range(executors):
            self.add_executor()
        return self

    def add_judicator(self, *, wait: bool = True) -> servers.Daemon:
        self.ports.append(servers.free_port())
        self.judicators.append(self._start_judicator(len(self.ports) - 1))
        return self.judicators[-1].wait_ready() if wait else self.judicators[-1]

    def revive(self) -> None:
        """Judicators that were killed or stopped are back when this returns."""
        for number, daemon in enumerate(self.judicators):
            if daemon.alive:
                daemon.send(signal.SIGCONT)
            else:
                self.judicators[number] = self._start_judicator(number)
        for daemon in self.judicators:
            daemon.wait_ready()

    def _start_judicator(self, number: int) -> servers.Daemon:
        config = self.judicator_config(f"judicator-{number + 1}", self.ports[number])
        daemon = servers.start_daemon("judicator", config, wait=False)
        self._parts.callback(daemon.close)
        return daemon

    def judicator_config(self, name: str, port: int) -> str:
        assert self.etcd and self.mongod
        state = servers.make_directory()
        self._parts.callback(shutil.rmtree, state, ignore_errors=True)
        return f"""
name = {name}
listen = 127.0.0.1:{port}
state_directory = {state}
etcd = {self.etcd.address}
etcd_prefix = {self.prefix}
mongodb = {self.mongod.address}
database = {self.database_name}
{self._metrics_of(name)}
"""

    def _metrics_of(self, name: str) -> str:
        if not self.with_metrics:
            return "metrics ="
        self.metrics[name] = servers.free_port()
        return f"metrics = 127.0.0.1:{self.metrics[name]}"

    def add_executor(
        self, name: str = "", languages: Path = LANGUAGES, copy_of: servers.Daemon | None = None
    ) -> servers.Daemon:
        """`copy_of`: with the state directory of that one, as on a machine that was copied."""
        assert self.etcd
        name = name or f"executor-{len(self.executors) + 1}"
        directory = servers.make_directory()
        directory.chmod(0o755)
        if copy_of is not None:
            copied = ["cp", "-a", str(copy_of.directory / "state"), str(directory / "state")]
            subprocess.run(copied, check=True)
        first_uid = FIRST_UID + USERS * len(self.executors)
        daemon = servers.Daemon(
            "executor",
            f"""
name = {name}
user = nobody
slots = {self.slots}
judicators = {", ".join(f"127.0.0.1:{port}" for port in self.ports)}
etcd = ,
state_directory = {directory / "state"}
runtime_directory = {directory / "run"}
languages_directory = {languages}
box = {BOX}
first_uid = {first_uid}
{self._metrics_of(name)}
""",
            directory=directory,
        )
        self._parts.callback(shutil.rmtree, directory, ignore_errors=True)
        self._parts.callback(daemon.close)
        self.executors.append(daemon)
        daemon.wait_ready()
        return daemon

    def pids(self) -> dict[str, int]:
        """The servers and daemons by name."""
        found = {}
        if self.etcd and self.etcd.process:
            found["etcd"] = self.etcd.process.pid
        if self.mongod and self.mongod.process:
            found["mongod"] = self.mongod.process.pid
        for kind, daemons in (("judicator", self.judicators), ("executor", self.executors)):
            for number, daemon in enumerate(daemons):
                if daemon.alive:
                    found[f"{kind}{number or ''}"] = daemon.pid
        return found

    def sandbox_pids(self) -> list[int]:
        """oj-box and its slots, of all executors."""
        found = []
        left = [pid for daemon in self.executors if daemon.alive for pid in daemon.children()]
        while left:
            found.append(left.pop())
            with contextlib.suppress(OSError):
                text = Path(f"/proc/{found[-1]}/task/{found[-1]}/children").read_text()
                left += map(int, text.split())
        return found
