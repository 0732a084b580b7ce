"""The units of this machine, through systemctl."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from oj.errors import Unavailable

PROPERTIES = ("Id", "ActiveState", "UnitFileState", "StatusText", "NRestarts", "ExecMainStatus")
LOOK_EVERY_S = 0.25
QUICK_S, STOP_S = 30.0, 180.0


@dataclass(frozen=True)
class Unit:
    """How a unit is."""

    name: str  # without .service
    state: str = "inactive"
    enabled: bool = False
    status: str = ""
    code: int = 0

    @property
    def runs(self) -> bool:
        return self.state not in ("inactive", "failed")


def unit_of(daemon: str) -> str:
    return f"oj-{daemon}"


def look(daemons: Sequence[str]) -> dict[str, Unit]:
    """The units of these daemons, by daemon."""
    if not daemons:
        return {}
    properties = [f"--property={name}" for name in PROPERTIES]
    names = [f"{unit_of(daemon)}.service" for daemon in daemons]
    text = systemctl("show", *properties, *names, timeout_s=QUICK_S)
    found = {}
    for block in text.strip().split("\n\n"):
        values = dict(line.partition("=")[::2] for line in block.splitlines())
        name = values.get("Id", "").removesuffix(".service")
        found[name.removeprefix("oj-")] = Unit(
            name,
            values.get("ActiveState", "inactive"),
            values.get("UnitFileState") == "enabled",
            values.get("StatusText", ""),
            int(values.get("ExecMainStatus") or 0),
        )
    return found


def enable(daemons: Sequence[str]) -> None:
    _each("enable", daemons, QUICK_S)


def disable(daemons: Sequence[str]) -> None:
    _each("disable", daemons, QUICK_S)


def stop(daemons: Sequence[str], timeout_s: float = STOP_S) -> None:
    """Stops them, the last started first, and waits until they are gone."""
    # systemd takes one at a time, so that only who is named first is sure to stop before others.
    _each("stop", daemons[::-1], timeout_s)


def start(daemons: Sequence[str]) -> None:
    """Has them started in their order; does not wait."""
    failed = [daemon for daemon, unit in look(daemons).items() if unit.state == "failed"]
    _each("reset-failed", failed, QUICK_S)
    _each("start", daemons, QUICK_S, "--no-block")


def _each(verb: str, daemons: Sequence[str], timeout_s: float, *options: str) -> None:
    if daemons:
        systemctl(verb, "--quiet", *options, *map(unit_of, daemons), timeout_s=timeout_s)


def systemctl(*words: str, timeout_s: float) -> str:
    try:
        done = subprocess.run(
            ["systemctl", *words], capture_output=True, text=True, timeout=timeout_s, check=False
        )
    except FileNotFoundError:
        raise Unavailable("there is no systemctl: this machine is not run by systemd") from None
    except subprocess.TimeoutExpired:
        raise Unavailable(f"systemctl {' '.join(words)} takes more than {timeout_s:g} s") from None
    if done.returncode:
        raise Unavailable(f"systemctl {words[0]}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def wait_until_ready(
    daemons: Sequence[str], timeout_s: float, tell: Callable[[str], None]
) -> list[Unit]:
    """Waits until all are ready, telling about the first that is not; those that never were."""
    end_s = time.monotonic() + timeout_s
    while True:
        found = look(daemons)
        waiting = [found[daemon] for daemon in daemons if found[daemon].state != "active"]
        given_up = [unit for unit in waiting if unit.state == "failed"]
        if not waiting or given_up or time.monotonic() > end_s:
            return given_up or waiting
        first = waiting[0]
        tell(f"{first.name}: {first.status or 'starting'}")
        time.sleep(LOOK_EVERY_S)


def kill(daemon: str, signal: str) -> None:
    """Sends a signal to a daemon itself, not to what it has started."""
    systemctl("kill", "--kill-whom=main", f"--signal={signal}", unit_of(daemon), timeout_s=QUICK_S)
