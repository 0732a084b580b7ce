"""The doctor's look at this machine: can it do what the roles on it need?

Reads what every user may read; only the sandbox's own proof needs root. A role is
on this node if its program and its configuration are.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from oj import settings
from oj.cli.findings import Finding, fail, ok, warn
from oj.errors import BadSettings
from oj.node.plan import DAEMONS
from oj.service import WARNING

KERNEL = (5, 10)
NAMESPACES = ("pid", "mnt", "net", "ipc", "uts")
LOW_BYTES, LOW_SHARE = 5 << 30, 0.10
LEAST_BYTES, LEAST_SHARE = 1 << 30, 0.05
BOX_S, CHECK_S, ETCD_S = 180.0, 30.0, 3.0
TOOLS_PATH = "/usr/local/bin:/usr/bin:/bin"  # of programs in the sandbox


class Node:
    """The roles of this machine and how they are configured."""

    def __init__(self, etc: Path) -> None:
        self.etc = etc
        beside = Path(sys.argv[0]).resolve().parent  # in a tree of sources
        self.programs = beside if (beside / "oj-executor").exists() else Path("/usr/libexec/oj")
        self.roles = [
            role
            for role in DAEMONS
            if (self.programs / f"oj-{role}").exists() and (etc / f"{role}.conf").exists()
        ]

    def values(self, role: str) -> dict[str, Any]:
        """The role's settings; nothing if it is not here or they are wrong."""
        try:
            return settings.read(self.etc / f"{role}.conf", role) if role in self.roles else {}
        except BadSettings:
            return {}

    # ------------------------------------------------------------ the kernel

    def kernel(self) -> Iterator[Finding]:
        release = platform.release()
        found = tuple(int(part) for part in re.findall(r"\d+", release)[:2])
        if found < KERNEL:
            yield fail(
                "kernel",
                f"Linux {release} is too old for the sandbox",
                f"run Linux {KERNEL[0]}.{KERNEL[1]} or later; Debian 12 has 6.1",
            )
        else:
            yield ok("kernel", f"Linux {release} on {platform.machine()}")

    def cgroups(self) -> Iterator[Finding]:
        unified = Path("/sys/fs/cgroup/cgroup.controllers")
        if unified.exists():
            version, wanted = "v2", {"memory", "pids", "cpu"}
            there = set(unified.read_text().split())
        else:
            version, wanted = "v1", {"memory", "pids", "cpuacct"}
            there = _mounted_controllers()
        missing = sorted(wanted - there)
        if not missing:
            yield ok("cgroups", f"cgroup {version} with {', '.join(sorted(wanted))}")
            return
        yield self._matters(
            "cgroups",
            f"cgroup {version} without {', '.join(missing)}: limits cannot be enforced",
            "boot without cgroup_disable=; some boards need cgroup_enable=memory on the kernel's "
            "command line; in a container, have the host delegate these controllers",
        )

    def namespaces(self) -> Iterator[Finding]:
        missing = []
        for name in NAMESPACES:
            most = Path(f"/proc/sys/user/max_{name}_namespaces")
            if not Path(f"/proc/self/ns/{name}").exists():
                missing.append(f"{name} (not in this kernel)")
            elif most.exists() and int(most.read_text()) < 1:
                missing.append(f"{name} ({most} is 0)")
        if missing:
            yield self._matters(
                "namespaces",
                f"missing: {', '.join(missing)}",
                "raise the sysctl user.max_*_namespaces, or run a kernel that has them",
            )
        else:
            yield ok("namespaces", ", ".join(NAMESPACES))

    def _matters(self, check: str, message: str, repair: str) -> Finding:
        """Bad on an executor, worth a word elsewhere."""
        return (fail if "executor" in self.roles else warn)(check, message, repair)

    def sandbox(self) -> Iterator[Finding]:
        if "executor" not in self.roles:
            return
        box = Path(self.values("executor").get("box") or self.programs / "oj-box")
        if not box.exists():
            yield fail("sandbox", f"{box} is missing", "install the package oj-executor again")
        elif os.geteuid() != 0:
            yield warn("sandbox", "not tried: only root can", "run oj doctor as root")
        else:
            done = subprocess.run(
                [str(box), "check"], capture_output=True, text=True, timeout=BOX_S, check=False
            )
            lines = (done.stdout + done.stderr).splitlines()
            bad = [line.removeprefix("FAILED").strip() for line in lines if line.startswith("FAIL")]
            if done.returncode or bad:
                why = "; ".join(bad) or (lines[-1] if lines else f"exit code {done.returncode}")
                yield fail(
                    "sandbox",
                    f"limits do not hold here: {why}",
                    f"'{box} check' tells more; see cgroups and kernel above, and oj-box(8)",
                )
            else:
                yield ok("sandbox", f"every limit bites ({len(lines)} trials)")

    # ------------------------------------------------------------- the roles

    def configuration(self) -> Iterator[Finding]:
        if not self.roles:
            yield warn(
                "configuration",
                f"no role of oj is on this machine (looked in {self.etc})",
                "on a node: apt install oj-judicator, oj-executor or oj-gateway",
            )
        for role in self.roles:
            path = self.etc / f"{role}.conf"
            done = subprocess.run(
                [str(self.programs / f"oj-{role}"), "--check", "--config", str(path)],
                capture_output=True,
                text=True,
                timeout=CHECK_S,
                check=False,
            )
            if done.returncode == 0:
                warnings = [
                    line.removeprefix(WARNING)
                    for line in done.stderr.splitlines()
                    if line.startswith(WARNING)
                ]
                if not warnings:
                    yield ok("configuration", f"{path} is fine")
                for warning in warnings:
                    what, _, repair = warning.rpartition("; ")
                    yield warn("configuration", f"{path}: {what}", f"{repair}; man oj-{role}.conf")
                continue
            for mistake in done.stderr.strip().splitlines() or [f"{path} cannot be checked"]:
                yield fail("configuration", mistake, f"mend it; man oj-{role}.conf describes all")

    def units(self) -> Iterator[Finding]:
        if not self.roles:
            return
        if not Path("/run/systemd/system").exists() or not shutil.which("systemctl"):
            yield warn("units", "systemd does not run here", "see that the roles are started")
            return
        for role in self.roles:
            yield from judge_unit(f"oj-{role}", _ask_unit(f"oj-{role}"), self.needs(role))
        if "etcd" in self.roles and _is_active("etcd.service"):
            yield warn(
                "units",
                "Debian's own etcd.service runs beside oj-etcd, which does not use it",
                "systemctl disable --now etcd, unless something else here needs it on port 2379",
            )

    def needs(self, role: str) -> bool:
        """Whether anything here does not work without this role's unit."""
        if role != "etcd" or self.values("etcd").get("mode") != "proxy":
            return True
        if not set(self.roles) <= {"etcd", "gateway"}:
            return True
        # A gateway asks etcd only where it is told of no judicator; none is on this machine.
        told = self.values("gateway").get("judicators", ())
        return all(settings.is_loopback(host) for host, _ in told)

    def etcd(self) -> Iterator[Finding]:
        addresses = {
            tuple(address)
            for role in ("judicator", "executor", "mongodb")
            for address in self.values(role).get("etcd") or ()
        }
        for host, port in sorted(addresses):
            try:
                problem = _ask_etcd(host, port)
            except (OSError, HTTPException, ValueError) as error:
                problem = f"does not answer: {error}"
            waits = _ask_unit("oj-etcd").get("StatusText", "") if settings.is_loopback(host) else ""
            if problem and "members must run" in waits:
                yield fail(
                    "etcd",
                    f"etcd on {host}:{port} {waits}",
                    "it serves by itself once they run; lost for good: see oj recover in oj(1)",
                )
            elif problem:
                yield fail(
                    "etcd",
                    f"etcd on {host}:{port} {problem}",
                    "systemctl status oj-etcd there; it serves while most of its members run",
                )
            else:
                yield ok("etcd", f"etcd on {host}:{port} answers")

    def languages(self, offered: set[str] | None) -> Iterator[Finding]:
        """`offered`: by this node's executor, where that is known."""
        values = self.values("executor")
        if not values:
            return
        installed, absent = set(), []
        for path in sorted(Path(values["languages_directory"]).glob("*.conf")):
            try:
                language = settings.read(path, "language")
            except BadSettings as error:
                yield warn("languages", "; ".join(error.mistakes), "mend it; see oj-languages(5)")
                continue
            name = language["name"] or path.stem
            missing = _find_missing_tool(language)
            if missing:
                absent.append(f"{name} ({missing})")
            else:
                installed.add(name)
        for name in sorted(installed - offered) if offered is not None else ():
            yield warn(
                "languages",
                f"{name} is installed but not offered: its self-test failed, or it is new",
                f"systemctl restart oj-executor; journalctl -u oj-executor -g 'language {name} '",
            )
        shown = sorted(installed if offered is None else offered)
        text = f"{'installed' if offered is None else 'offered'}: {' '.join(shown) or 'none'}"
        if absent:
            text += f"; not installed: {', '.join(absent)}"
        yield ok("languages", text)

    # ----------------------------------------------------------- the machine

    def clock(self) -> Iterator[Finding]:
        synchronized, error_us = _read_clock()
        if synchronized:
            yield ok("clock", f"synchronized, within {max(1, error_us // 1000)} ms")
        else:
            yield warn(
                "clock",
                "the clock is not synchronized",
                "timedatectl set-ntp true (systemd-timesyncd), or install chrony",
            )

    def disk(self) -> Iterator[Finding]:
        places = {"/var/lib/oj"}
        places |= {str(self.values(role).get("state_directory") or "") for role in self.roles}
        seen: set[int] = set()
        for place in sorted(places - {""}):
            path = _nearest(Path(place))
            if path.stat().st_dev not in seen:
                seen.add(path.stat().st_dev)
                yield _look_at_disk(place, path)


def _mounted_controllers() -> set[str]:
    found: set[str] = set()
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        left, _, right = line.partition(" - ")
        words = right.split()
        if left and words and words[0] == "cgroup":
            found |= set(words[-1].split(","))
    return found


def _ask_unit(name: str) -> dict[str, str]:
    """What systemd knows of a unit; nothing where there is no systemd."""
    wanted = "--property=LoadState,ActiveState,UnitFileState,StatusText"
    try:
        done = subprocess.run(
            ["systemctl", "show", f"{name}.service", wanted],
            capture_output=True,
            text=True,
            timeout=CHECK_S,
            check=False,
        )
    except FileNotFoundError:
        return {}
    return dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)


def judge_unit(name: str, facts: dict[str, str], needed: bool) -> Iterator[Finding]:
    """`needed`: whether anything on this node does not work without it."""
    status = facts.get("StatusText", "")
    said = f": {status}" if status else ""
    if facts.get("LoadState") != "loaded":
        yield fail("units", f"{name} has no unit", f"install the package {name} again")
    elif (facts.get("ActiveState"), facts.get("UnitFileState")) == ("inactive", "disabled"):
        yield warn(
            "units",
            f"{name} is installed, but disabled: no part of this node",
            f"'oj setup' makes it one; or apt remove {name}",
        )
        return
    elif not needed and facts.get("ActiveState") == "inactive":
        yield ok("units", f"{name} is inactive: nothing on this node needs it")
    elif facts.get("ActiveState") == "activating" and status.startswith("waiting: "):
        yield fail(
            "units",
            f"{name} is {status}",
            f"it goes on by itself once that is there; journalctl -u {name} -n 50 tells more",
        )
    elif facts.get("ActiveState") != "active":
        yield fail(
            "units",
            f"{name} is {facts.get('ActiveState', 'unknown')}{said}",
            f"systemctl restart {name}; journalctl -u {name} -n 50 tells why it stopped",
        )
    elif trouble := tell_trouble(status):
        yield warn("units", f"{name} runs, but {trouble}", f"journalctl -u {name} -n 50")
    else:
        yield ok("units", f"{name} runs{said}")
    if facts.get("UnitFileState") == "disabled":
        yield warn("units", f"{name} does not start with the machine", f"systemctl enable {name}")


def _is_active(unit: str) -> bool:
    command = ["systemctl", "--quiet", "is-active", unit]
    return subprocess.run(command, timeout=CHECK_S, check=False).returncode == 0


def tell_trouble(status: str) -> str:
    """What a daemon's status says of trouble, as the end of a sentence; nothing if all is well."""
    if status.startswith("degraded"):
        return f"is {status}"
    return f"its {status}" if status.startswith("check failed") else ""


def _ask_etcd(host: str, port: int) -> str:
    """What is wrong with an etcd, or ''."""
    connection = HTTPConnection(host, port, timeout=ETCD_S)
    try:
        connection.request("GET", "/health")
        answer = json.loads(connection.getresponse().read(10_000))
        healthy = str(answer.get("health")).lower() == "true"
    finally:
        connection.close()
    return "" if healthy else f"says that it is not well: {answer.get('reason') or answer}"


def _find_missing_tool(language: dict[str, Any]) -> str | None:
    """A program of the language's commands that is not installed here."""
    for text in (language["compile"]["command"], language["run"]["command"], language["version"]):
        words = shlex.split(text)
        if words and not words[0].startswith("{") and not shutil.which(words[0], path=TOOLS_PATH):
            return words[0]
    return None


class _Timex(ctypes.Structure):
    """The start of struct timex of adjtimex(2), and room for the rest."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 40),
    )


def _read_clock() -> tuple[bool, int]:
    """Whether the kernel's clock is synchronized, and its error in microseconds."""
    timex = _Timex()
    state = ctypes.CDLL(None, use_errno=True).adjtimex(ctypes.byref(timex))
    if state < 0:
        raise OSError(ctypes.get_errno(), "adjtimex fails")
    unsynchronized = 0x40
    return not timex.status & unsynchronized, timex.maxerror


def _nearest(path: Path) -> Path:
    """The path itself, or the first above it that is there and may be looked at."""
    while path != path.parent:
        try:
            path.stat()
        except OSError:
            path = path.parent
        else:
            break
    return path


def _look_at_disk(place: str, path: Path) -> Finding:
    usage = shutil.disk_usage(path)
    files = os.statvfs(path)
    share = min(
        usage.free / usage.total if usage.total else 1.0,
        files.f_favail / files.f_files if files.f_files else 1.0,
    )
    free = f"{usage.free / (1 << 30):.1f} GiB ({100 * share:.0f} %) free for {place}"
    repair = f"make room, or give {place} a larger disk; du -xh {place} shows what takes it"
    if usage.free < LEAST_BYTES or share < LEAST_SHARE:
        return fail("disk", f"only {free}", repair)
    if usage.free < LOW_BYTES or share < LOW_SHARE:
        return warn("disk", f"only {free}", repair)
    return ok("disk", free)
