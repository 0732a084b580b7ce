"""The bed: several machines on one network, removed without a trace whatever happens.

with Bed() as bed:
    one, two = bed.boot("n1", "n2")
    print(one.run("ping -c1 n2").stdout)
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import threading
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType, TracebackType

from . import cgroups, leftovers, root, tools
from .errors import BedError
from .machine import Disk, Machine
from .network import Network
from .repository import Repository


class Bed:
    def __init__(self, packages: Sequence[str] = root.PACKAGES, release: str = root.HOST) -> None:
        """A bed whose machines start from a base root with these packages of Debian, in the
        release that the host has, too, or another."""
        self.machines: dict[str, Machine] = {}
        self.release = release
        self._packages = packages
        self._lock: int | None = None
        self._handlers: dict[int, object] = {}

    # --- life ----------------------------------------------------------------------------------

    def __enter__(self) -> Bed:
        tools.install()
        try:
            leftovers.sweep()
        except (BedError, OSError) as mistake:
            # Another's leftovers are a pity, but no reason not to begin.
            warnings.warn(f"cannot remove what an earlier run left: {mistake}", stacklevel=2)
        self._base = root.base(self._packages, self.release)
        with tools.locked(leftovers.making_lock()):
            self._name(leftovers.PREFIX + secrets.token_hex(3))
            self.directory.mkdir()
            self._lock = leftovers.take_lock(self.directory)
        self._catch_signals()
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the bed with all that is in it, unless it was told to stay."""
        try:
            if not (self.directory / "kept").exists():
                leftovers.destroy(self.name)
        finally:
            self._restore_signals()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def keep(self) -> None:
        """Let the bed stay after this process; `python3 -m tests.bed stop NAME` removes it."""
        state = {
            "release": self.release,
            "packages": list(self._packages),
            "machines": {name: self.network.number(name) for name in self.machines},
        }
        (self.directory / "kept").write_text(json.dumps(state))

    @classmethod
    def open(cls, name: str) -> Bed:
        """A bed that was told to stay."""
        kept = leftovers.beds_dir() / name / "kept"
        if not kept.exists():
            raise BedError(f"there is no kept bed {name}")
        state = json.loads(kept.read_text())
        bed = cls(state["packages"], state["release"])
        bed._base = root.base(bed._packages, bed.release)
        bed._name(name)
        for machine, number in state["machines"].items():
            bed._add(machine, number=number)
        return bed

    def remove(self) -> None:
        """Remove a bed that was told to stay."""
        (self.directory / "kept").unlink(missing_ok=True)
        self.close()

    # --- machines ------------------------------------------------------------------------------

    def machine(self, name: str, disk: Disk | None = None, options: Sequence[str] = ()) -> Machine:
        """Make a machine, switched off; `options` are further ones of systemd-nspawn."""
        machine = self._add(name, disk=disk, options=options)
        self._write_hosts()
        return machine

    def boot(self, *names: str, disk: Disk | None = None, timeout_s: float = 300) -> list[Machine]:
        """Boot several machines at once, and make those that are not there yet."""
        machines = [self.machines.get(name) or self.machine(name, disk) for name in names]
        with ThreadPoolExecutor(max_workers=max(len(machines), 1)) as pool:
            list(pool.map(lambda machine: machine.boot(timeout_s), machines))
        return machines

    def shut_down(self, timeout_s: float = 90) -> None:
        """Shut down every machine in good order, all at once."""
        machines = [machine for machine in self.machines.values() if machine.running]
        with ThreadPoolExecutor(max_workers=max(len(machines), 1)) as pool:
            list(pool.map(lambda machine: machine.shut_down(timeout_s), machines))

    # --- around them ---------------------------------------------------------------------------

    def repository(self, ours: Path, extra: Sequence[str] = ()) -> Repository:
        """A repository for the machines: the packages of the flat repository `ours`, all that
        they depend on or recommend, and `extra` packages of Debian with theirs."""
        count = len(list(self._shared.glob("repository-*")))
        scratch = self.directory / "scratch"
        return Repository.make(
            self._shared / f"repository-{count + 1}",
            ours,
            extra,
            self._base,
            scratch,
            self.enclosed,
        )

    def outside(
        self, command: Sequence[str], timeout_s: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of the host on the bed's network, outside every machine."""
        words = ["nsenter", f"--net=/run/netns/{self.network.namespace}", *command]
        return subprocess.run(
            self.enclosed(words), text=True, capture_output=True, timeout=timeout_s
        )

    def enclosed(self, command: Sequence[str]) -> list[str]:
        """The command that runs `command` so that it ends with the bed at the latest."""
        return cgroups.enter(cgroups.make(f"{self.name}/outside"), list(command))

    def save_logs(self, directory: Path) -> None:
        """Write every machine's console and journal to a directory."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, machine in self.machines.items():
            (directory / f"{name}.console").write_text(machine.console())
            try:
                text = machine.journal("--output=short-precise")
            except BedError as mistake:
                text = f"{mistake}\n"
            (directory / f"{name}.journal").write_text(text)

    # --- parts ---------------------------------------------------------------------------------

    def _name(self, name: str) -> None:
        self.name = name
        self.directory = leftovers.beds_dir() / name
        self._shared = self.directory / "shared"
        self.network = Network(name)

    def _make(self) -> None:
        # A disk of a machine cannot lie on an overlay, which is what many containers' root is.
        if (
            tools.call("stat", "--file-system", "--format=%T", self.directory).strip()
            == "overlayfs"
        ):
            raise BedError(
                f"{self.directory} lies on an overlay, where no machine's disk can be: "
                "set OJ_CACHE to a directory of another file system"
            )
        self._shared.mkdir(mode=0o755)
        self.network.make()
        self._write_hosts()

    def _add(
        self,
        name: str,
        *,
        number: int | None = None,
        disk: Disk | None = None,
        options: Sequence[str] = (),
    ) -> Machine:
        # The name is also that of an interface and of a host.
        if name in self.machines or not (name.isascii() and name.isalnum() and len(name) <= 15):
            raise BedError(f"{name!r} is taken or no good name for a machine")
        self.network.add(name, number)
        directory = self.directory / name
        directory.mkdir(exist_ok=True)
        machine = Machine(
            name,
            directory,
            self.network,
            f"{self.name}/{name}",
            disk or Disk(name, (self._base,)),
            options,
        )
        self.machines[name] = machine
        return machine

    def _write_hosts(self) -> None:
        # In place: the machines have this very file mounted.
        (self._shared / "hosts").write_text(self.network.hosts())

    def _catch_signals(self) -> None:
        """Make SIGTERM and SIGHUP unwind the stack, as SIGINT does, so that the bed is removed."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                self._handlers[number] = signal.signal(number, _unwind)

    def _restore_signals(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._handlers.clear()


def _unwind(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)
