"""One machine: its disk, its power switch, and commands and files inside.

The processes: systemd-nspawn, started by us in the machine's cgroups, is the machine's casing;
its child, the leader, is PID 1 inside. SIGTERM to the casing shuts down in good order. SIGKILL to
the leader is the power plug: the kernel ends everything inside at once. (SIGKILL to the casing
would leave the machine running.) Commands enter the leader's namespaces and cgroups.

What a power-off here does not show: files that were written but not synced survive, because the
page cache is the host's.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import cgroups
from .errors import BedError, CommandFailed
from .tools import SEARCH_PATH, call, unmount_below, wait_for

if TYPE_CHECKING:
    from .network import Network
    from .repository import Repository

SHARED = "/srv/bed"  # the bed's shared directory, as machines see it

# Nothing in a machine may reach beyond it: to the host's clock, and the modules of its kernel.
WITHHELD = ("sys_time", "sys_module")

# On a v1 host nspawn leaves the controllers read-only, and systemd decides as it starts which of
# them it has: so they are made writable before it, in its own place. On v2 there is none of these.
INIT = """
for name in memory pids cpu cpuacct cpu,cpuacct; do
    if mountpoint -q "/sys/fs/cgroup/$name" && ! [ -L "/sys/fs/cgroup/$name" ]; then
        mount -o remount,rw,bind "/sys/fs/cgroup/$name"
    fi
done
exec /lib/systemd/systemd
"""

ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "SYSTEMD_COLORS": "0",
    "SYSTEMD_PAGER": "",
}


@dataclass(frozen=True)
class Result:
    """How a command inside a machine ended."""

    rc: int
    stdout: str
    stderr: str
    wall_s: float


@dataclass(frozen=True)
class Disk:
    """The saved state of a stopped machine, to start others from; `layers` top first."""

    name: str
    layers: tuple[Path, ...]


class Machine:
    """Made by Bed.machine()."""

    def __init__(
        self,
        name: str,
        directory: Path,
        network: Network,
        group: str,
        disk: Disk,
        options: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.directory = directory
        self.options = list(options)
        self._network = network
        self._group = group
        self._disk = disk
        self._root = directory / "root"
        self._casing: subprocess.Popen[bytes] | None = None
        self._volumes: dict[str, tuple[Path, int]] = {}

    # --- power ---------------------------------------------------------------------------------

    def boot(self, timeout_s: float = 300, *, degraded: bool = False) -> None:
        """Switch on and wait until systemd says `running` (or `degraded`, where that is fine)."""
        self.power_on()
        self.wait_until_running(timeout_s, degraded=degraded)

    def power_on(self) -> None:
        """Switch on and wait only until PID 1 runs."""
        if self.running:
            raise BedError(f"{self.name} is on already")
        self._mount()
        self._network.plug_in(self.name)
        groups = cgroups.make(self._group)
        command = [
            "systemd-nspawn",
            "--quiet",
            f"--directory={self._root}",
            f"--machine={self._group.replace('/', '-')}",
            f"--hostname={self.name}",
            f"--network-namespace-path={self._network.path_of(self.name)}",
            "--register=no",
            "--keep-unit",
            "--capability=all",
            f"--drop-capability={','.join(f'CAP_{name.upper()}' for name in WITHHELD)}",
            "--link-journal=no",
            "--resolv-conf=off",
            "--timezone=off",
            "--console=read-only",
            "--kill-signal=SIGRTMIN+3",
            f"--bind-ro={self.directory.parent / 'shared'}:{SHARED}",
            f"--bind-ro={self.directory.parent / 'shared/hosts'}:/etc/hosts",
            *self.options,
            "/bin/sh",
            "-c",
            INIT,
        ]
        with (self.directory / "console.log").open("ab") as console:
            self._casing = subprocess.Popen(
                cgroups.enter(groups, command),
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
                env=ENVIRONMENT
                | {"PATH": SEARCH_PATH, "SYSTEMD_NSPAWN_API_VFS_WRITABLE": "network"},
            )
        self._write_pid(self._casing.pid)
        try:
            wait_for(self._has_started, 20, f"PID 1 of {self.name}")
        except BedError as mistake:
            raise BedError(f"{mistake}; its console says:\n{self.console()[-2000:]}") from mistake

    def wait_until_running(self, timeout_s: float = 300, *, degraded: bool = False) -> None:
        deadline = time.monotonic() + timeout_s
        state = "silent"
        while (left_s := deadline - time.monotonic()) > 0:
            if not self.running:
                raise BedError(
                    f"{self.name} went off while it booted; its console says:\n"
                    f"{self.console()[-2000:]}"
                )
            answer = self._try("systemctl", "is-system-running", "--wait", timeout_s=left_s)
            state = answer.strip() or state
            if state == "running" or (degraded and state == "degraded"):
                return
            if state == "degraded":
                failed = self._try("systemctl", "--failed", "--plain", "--no-legend")
                raise BedError(f"{self.name} is degraded; failed units:\n{failed}")
            time.sleep(0.02)
        raise BedError(f"{self.name} is still {state} after {timeout_s:g} s")

    def shut_down(self, timeout_s: float = 90) -> None:
        """Shut down in good order, as `systemctl poweroff` does."""
        if not self.running:
            return
        with suppress(ProcessLookupError):
            os.kill(self._casing_pid(), signal.SIGTERM)
        self.wait_until_off(timeout_s)

    def wait_until_off(self, timeout_s: float = 90) -> None:
        pid = self._casing_pid()
        if pid and not _wait_for_end(pid, timeout_s):
            raise BedError(f"{self.name} did not go off in {timeout_s:g} s")
        self._came_off()

    def power_off_hard(self) -> None:
        """Pull the plug: the network falls silent, then everything inside is gone."""
        if not self.running:
            raise BedError(f"{self.name} is off already")
        # The cable first: dying processes must not get to say goodbye to their peers.
        self._network.unplug(self.name)
        leader = self.leader
        with suppress(ProcessLookupError):
            os.kill(leader, signal.SIGKILL)
        self.wait_until_off(60)

    def reboot(self, timeout_s: float = 150) -> None:
        """Shut down in good order and boot again."""
        self.shut_down(timeout_s)
        self.boot(timeout_s)

    @property
    def running(self) -> bool:
        pid = self._casing_pid()
        return bool(pid) and not _wait_for_end(pid, 0)

    @property
    def leader(self) -> int:
        """The host's number of the machine's PID 1."""
        leader = self._find_leader()
        if leader is None:
            raise BedError(f"{self.name} is off")
        return leader

    @property
    def address(self) -> str:
        return self._network.address(self.name)

    # --- inside --------------------------------------------------------------------------------

    def run(
        self,
        command: str | Sequence[str],
        *,
        input: str | bytes | None = None,  # as in subprocess.run
        timeout_s: float = 60,
        check: bool = True,
        env: dict[str, str] | None = None,
    ) -> Result:
        """Run a command inside as root: words, or one string for bash.

        Raises CommandFailed if it fails (unless check is off) or does not end in time.
        """
        started = time.monotonic()
        done = self._run(command, input, timeout_s, env)
        result = Result(
            done.returncode,
            done.stdout.decode(errors="replace"),
            done.stderr.decode(errors="replace"),
            time.monotonic() - started,
        )
        if check and result.rc != 0:
            raise CommandFailed(
                f"{self.name}: {_show(command)}", result.rc, result.stdout, result.stderr
            )
        return result

    def start(
        self, command: str | Sequence[str], *, env: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a command inside with pipes to it, and leave it to the caller."""
        return subprocess.Popen(
            self.entering(_words(command), env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def entering(self, words: Sequence[str], env: dict[str, str] | None = None) -> list[str]:
        """The command of the host that runs these words inside."""
        leader = self.leader
        variables = [f"{key}={value}" for key, value in (ENVIRONMENT | (env or {})).items()]
        return cgroups.enter(
            # With PID 1, so that what runs counts to the machine and dies with it.
            cgroups.of_process(leader),
            [
                # nsenter would bring all of the host's rights along.
                "setpriv",
                f"--bounding-set={','.join(f'-{name}' for name in WITHHELD)}",
                "nsenter",
                f"--target={leader}",
                "--all",
                "--root",
                "--wd",
                "/usr/bin/env",
                "-i",
                *variables,
                *words,
            ],
        )

    def put(
        self, content: str | bytes | Path, path: str, *, mode: int = 0o644, owner: str = "root:root"
    ) -> None:
        """Write a file inside; a Path is the file of the host to copy."""
        data = content.read_bytes() if isinstance(content, Path) else content
        user, _, group = owner.partition(":")
        self.run(
            ["install", "-D", f"-m{mode:o}", f"-o{user}", f"-g{group or user}", "/dev/stdin", path],
            input=data,
        )

    def put_tree(self, source: Path, path: str) -> None:
        """Copy a directory's contents into a directory inside."""
        packed = subprocess.run(
            ["tar", "-C", source, "--owner=0", "--group=0", "-c", "."],
            capture_output=True,
            check=True,
        )
        self.run(["mkdir", "-p", path])
        self.run(["tar", "-C", path, "-x"], input=packed.stdout)

    def get(self, path: str) -> bytes:
        """Read a file of the machine."""
        done = self._run(["cat", "--", path], None, 60, None)
        if done.returncode != 0:
            raise BedError(f"{self.name}: {done.stderr.decode(errors='replace').strip()}")
        return done.stdout

    def journal(self, *arguments: str) -> str:
        """What journalctl prints with these arguments, on a machine that is on or off."""
        if self.running:
            return self.run(["journalctl", "--no-pager", "--quiet", *arguments]).stdout
        self._mount()
        # --directory of a root would look for the host's machine id.
        logs = self._root / "var/log/journal"
        return call("journalctl", "--no-pager", "--quiet", f"--directory={logs}", *arguments)

    def console(self) -> str:
        """What was printed on the console since the machine was made."""
        path = self.directory / "console.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # --- packages ------------------------------------------------------------------------------

    def add_repository(self, repository: Repository) -> None:
        """Let apt inside use a repository of this bed, in place of any before."""
        source = f"deb [trusted=yes] file:{SHARED}/{repository.name} ./\n"
        self.put(source, "/etc/apt/sources.list.d/bed.list")
        self.run(["apt-get", "-q", "update"])

    def install(self, *packages: str, timeout_s: float = 300) -> Result:
        return self.run(["apt-get", "-q", "-y", "install", *packages], timeout_s=timeout_s)

    # --- disk ----------------------------------------------------------------------------------

    def add_volume(self, path: str, size_bytes: int) -> None:
        """Give the machine, which is off, a small disk of its own at a path inside; it outlives
        power-offs and can be filled up."""
        if self.running:
            raise BedError(f"{self.name} is on: no volume can be added")
        place = self.directory / "volumes" / path.strip("/").replace("/", "-")
        place.mkdir(parents=True)
        # In memory: so no two volumes, nor the host, wait for one platter.
        call("mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=0755", "volume", place)
        self.options.append(f"--bind={place}:{path}")
        self._volumes[path] = (place, size_bytes)

    def fill_volume(self, path: str) -> None:
        """Let a volume have room for nothing beyond what is on it now."""
        place, _ = self._volumes[path]
        for _ in range(100):
            state = os.statvfs(place)
            used_bytes = (state.f_blocks - state.f_bfree) * state.f_frsize
            # It may have grown meanwhile, and then the kernel refuses.
            with suppress(CommandFailed):
                call("mount", "-o", f"remount,size={used_bytes}", place)
                return
        raise BedError(f"{path} of {self.name} grows too fast to be filled up")

    def free_volume(self, path: str) -> None:
        """Let a volume have its full size again."""
        place, size_bytes = self._volumes[path]
        call("mount", "-o", f"remount,size={size_bytes}", place)

    def save_disk(self, name: str) -> Disk:
        """Keep the disk of this machine, which is off, as one that others can start from.

        The machine itself goes on from it too. Nothing is copied.
        """
        if self.running:
            raise BedError(f"{self.name} is on: shut it down before its disk is saved")
        unmount_below(self._root)
        saved = self.directory.parent / "disks" / name
        saved.parent.mkdir(exist_ok=True)
        (self.directory / "upper").rename(saved)
        self._disk = Disk(self.name, (saved, *self._disk.layers))
        return self._disk

    def reset_disk(self, disk: Disk | None = None) -> None:
        """Throw away what was written since the machine was made or its disk saved."""
        if self.running:
            raise BedError(f"{self.name} is on: its disk cannot be reset")
        unmount_below(self._root)
        call("rm", "-rf", "--one-file-system", self.directory / "upper", self.directory / "work")
        for place, _ in self._volumes.values():
            call("find", place, "-mindepth", "1", "-delete")
        self._disk = disk or self._disk

    def _mount(self) -> None:
        for name in ("upper", "work", "root"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        if self._root.is_mount():
            return
        lower = ":".join(map(str, self._disk.layers))
        upper, work = self.directory / "upper", self.directory / "work"
        call(
            "mount", "-t", "overlay", "overlay",
            "-o", f"lowerdir={lower},upperdir={upper},workdir={work}", self._root,
        )  # fmt: skip
        (self._root / "etc/hostname").write_text(self.name + "\n")
        # A disk of another machine must not bring its identity along.
        if self._disk.name != self.name and not (upper / "etc/machine-id").exists():
            (self._root / "etc/machine-id").write_text("")

    # --- processes -----------------------------------------------------------------------------

    def _run(
        self,
        command: str | Sequence[str],
        given: str | bytes | None,
        timeout_s: float,
        env: dict[str, str] | None,
    ) -> subprocess.CompletedProcess[bytes]:
        # Killing nsenter would leave the command alone inside, so the limit is kept there; the
        # outer one is for a machine that goes off or hangs.
        words = ["timeout", "--kill-after=1", f"{timeout_s:.3f}", *_words(command)]
        data = given.encode() if isinstance(given, str) else given
        started = time.monotonic()
        try:
            done = subprocess.run(
                self.entering(words, env),
                input=data,
                stdin=subprocess.DEVNULL if data is None else None,
                capture_output=True,
                timeout=timeout_s + 5,
            )
        except subprocess.TimeoutExpired as late:
            raise CommandFailed(
                f"{self.name}: {_show(command)}",
                None,
                (late.stdout or b"").decode(errors="replace"),
                (late.stderr or b"").decode(errors="replace"),
            ) from late
        if done.returncode in (124, 137) and time.monotonic() - started >= timeout_s:
            raise CommandFailed(
                f"{self.name}: {_show(command)}",
                None,
                done.stdout.decode(errors="replace"),
                done.stderr.decode(errors="replace"),
            )
        return done

    def _try(self, *words: str, timeout_s: float = 10) -> str:
        """What a command printed, or nothing if it could not be run at all."""
        try:
            return self.run(words, check=False, timeout_s=timeout_s).stdout
        except (BedError, FileNotFoundError):
            return ""

    def _has_started(self) -> bool:
        if not self.running:
            raise BedError(f"{self.name} did not start")
        leader = self._find_leader()
        # Until nspawn's set-up and our shell became systemd, there is nothing to enter.
        return leader is not None and _read(f"/proc/{leader}/comm").strip() == "systemd"

    def _find_leader(self) -> int | None:
        casing = self._casing_pid()
        if not casing:
            return None
        for child in _read(f"/proc/{casing}/task/{casing}/children").split():
            for line in _read(f"/proc/{child}/status").splitlines():
                numbers = line.split()[1:]
                if line.startswith("NSpid:") and len(numbers) > 1 and numbers[-1] == "1":
                    return int(child)
        return None

    def _write_pid(self, pid: int) -> None:
        (self.directory / "casing.json").write_text(json.dumps([pid, _start_time(pid)]))

    def _casing_pid(self) -> int:
        """nspawn's number, or 0; read from its file, as another process may have started it."""
        try:
            pid, started = json.loads((self.directory / "casing.json").read_text())
        except FileNotFoundError:
            return 0
        return pid if _start_time(pid) == started else 0

    def _came_off(self) -> None:
        if self._casing is not None:
            self._casing.wait()
            self._casing = None
        (self.directory / "casing.json").unlink(missing_ok=True)
        self._network.unplug(self.name)
        cgroups.kill(self._group)
        cgroups.remove(self._group)


def _words(command: str | Sequence[str]) -> list[str]:
    return ["/bin/bash", "-c", command] if isinstance(command, str) else list(command)


def _show(command: str | Sequence[str]) -> str:
    return command if isinstance(command, str) else shlex.join(command)


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _start_time(pid: int) -> int:
    """When a process started, in the kernel's ticks; a pid alone may be somebody else's by now."""
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return int(fields[19]) if fields else -1


def _wait_for_end(pid: int, timeout_s: float) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ready, _, _ = select.select([descriptor], [], [], timeout_s)
        return bool(ready)
    finally:
        os.close(descriptor)
