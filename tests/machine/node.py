"""A machine with oj on it, as an administrator and a user see it."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bed import Machine

UNITS = ("oj-etcd", "oj-mongodb", "oj-judicator", "oj-executor")
HERE = Path(__file__).resolve().parent


def wait_for(what: str, condition: Callable[[], Any], timeout_s: float = 60) -> Any:
    """The first true answer of `condition`; fails when none comes in time."""
    end = time.monotonic() + timeout_s
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < end, f"{what}: not within {timeout_s} s"
        time.sleep(0.1)


class Node:
    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        machine.put(HERE / "load.py", "/root/load.py", mode=0o755)

    # --- units ---------------------------------------------------------------------------------

    def start(self, *units: str) -> None:
        self.machine.run(["systemctl", "start", *(units or UNITS[2:])], timeout_s=120)

    def show(self, unit: str, name: str) -> str:
        return self.machine.run(["systemctl", "show", "-P", name, unit]).stdout.strip()

    def state(self, unit: str) -> str:
        return self.show(unit, "ActiveState")

    def main_pid(self, unit: str) -> int:
        return int(self.show(unit, "MainPID"))

    def restarts(self, unit: str) -> int:
        return int(self.show(unit, "NRestarts"))

    def child_pid(self, unit: str, name: str) -> int:
        """The process of this name in a unit."""
        return int(
            self.machine.run(
                f"for p in $(systemctl show -P ControlGroup {unit} >/dev/null; "
                f"pgrep -x {name}); do "
                f"grep -q {unit} /proc/$p/cgroup && echo $p && break; done"
            ).stdout.strip()
        )

    def wait_until_replaced(self, unit: str, old_pid: int, timeout_s: float = 60) -> None:
        wait_for(
            f"{unit} is back",
            lambda: self.state(unit) == "active" and self.main_pid(unit) != old_pid,
            timeout_s,
        )

    def wait_until_serving(self, timeout_s: float = 90) -> None:
        wait_for(
            "all units active",
            lambda: all(self.state(unit) == "active" for unit in UNITS),
            timeout_s,
        )
        wait_for("a task is judged", lambda: self.judge_one().get("verdict") == "accepted", 60)

    def version_of(self, package: str) -> str:
        return self.machine.run(["dpkg-query", "-W", "-f", "${Version}", package]).stdout

    # --- tasks ---------------------------------------------------------------------------------

    def oj(self, *words: str, check: bool = True, timeout_s: float = 60, **more: Any) -> Any:
        return self.machine.run(["oj", *words], check=check, timeout_s=timeout_s, **more)

    def judge_one(self) -> dict[str, Any]:
        result = self.oj("submit", "--command", "/bin/true", "--wait", "--json", check=False)
        return dict(json.loads(result.stdout)) if result.stdout.startswith("{") else {}

    def get(self, task: str) -> dict[str, Any]:
        return dict(json.loads(self.oj("get", task, "--json").stdout))

    def search(self, status: str, user: str = "load") -> list[dict[str, Any]]:
        words = ("search", "--user", user, "--status", status, "--limit", "100", "--json")
        return list(json.loads(self.oj(*words).stdout)["tasks"])

    def add(self, count: int, sleep_s: float = 0.0, user: str = "load") -> list[str]:
        out = self.machine.run(["/root/load.py", "add", str(count), str(sleep_s), user]).stdout
        return list(json.loads(out))

    def settle(self, ids: Sequence[str], timeout_s: float = 120) -> dict[str, dict[str, Any]]:
        """Waits until all are done, and tells how each ended."""
        out = self.machine.run(
            ["/root/load.py", "settle", str(timeout_s)],
            input=json.dumps(list(ids)),
            timeout_s=timeout_s + 30,
        ).stdout
        return dict(json.loads(out))

    def recorded(self) -> Counter[str]:
        """How often each task was given a final status, by the database's own log.

        Not by the judicators' journal: one that is killed between its write and
        its log line leaves none, and has recorded the result nevertheless.
        """
        return Counter(json.loads(self.machine.run(["/root/load.py", "recorded"]).stdout))

    def sandboxed(self) -> list[str]:
        """Processes of judged programs: those of the slots' users."""
        return self.machine.run(
            "ps -eo pid=,uid=,args= | awk '$2 >= 64100 && $2 < 64600'"
        ).stdout.splitlines()


def assert_accepted(results: dict[str, dict[str, Any]], ids: Sequence[str]) -> None:
    assert set(results) == set(ids), "a task was lost"
    wrong = {i: r for i, r in results.items() if r["verdict"] != "accepted"}
    assert not wrong, f"{len(wrong)} of {len(ids)} did not end well: {list(wrong.items())[:3]}"
