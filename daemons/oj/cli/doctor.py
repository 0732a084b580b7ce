"""`oj doctor`: looks at this machine and the cluster, and says how to repair what is wrong."""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from oj import plain, settings
from oj.calls import Calls
from oj.cli.findings import FAIL, OK, WARN, Check, Finding, fail, ok, sentence, warn
from oj.cli.machine import Node
from oj.cli.terminal import clean, paint
from oj.cli.verbs import Connect
from oj.errors import BadSettings, Rejected, Unavailable
from oj.incarnation import RENAME, say_runs_twice

AGAIN_S = 1.0
BEHIND_MS = 2_000
AHEAD_MS = 60_000  # an executor's parked report may be old, but not that old
COLOURS = {OK: "green", WARN: "yellow", FAIL: "red"}


def doctor(arguments: argparse.Namespace, connect: Connect) -> int:
    """0: nothing is broken; 1: something is."""
    node = Node(Path(arguments.etc))
    cluster = Cluster(arguments, connect)
    checks: list[tuple[str, Check]] = [
        ("kernel", node.kernel),
        ("cgroups", node.cgroups),
        ("namespaces", node.namespaces),
        ("sandbox", node.sandbox),
        ("configuration", node.configuration),
        ("units", node.units),
        ("disk", node.disk),
        ("clock", node.clock),
        ("etcd", node.etcd),
        ("judicators", cluster.judicators),
        ("members", cluster.members),
        ("executors", cluster.executors),
        ("clock", cluster.clock),
        ("tasks", cluster.tasks),
        ("languages", lambda: node.languages(cluster.offered_here(node))),
    ]
    found: list[Finding] = []
    for name, check in checks:
        for finding in _run(name, check):
            found.append(finding)
            if not arguments.json:
                _show(finding)
    failures = sum(finding.state == FAIL for finding in found)
    warnings = sum(finding.state == WARN for finding in found)
    if arguments.json:
        plain.print_json(
            {
                "ok": not failures,
                "failures": failures,
                "warnings": warnings,
                "checks": [asdict(finding) for finding in found],
            }
        )
    else:
        _conclude(failures, warnings)
    return 1 if failures else 0


def _run(name: str, check: Check) -> Iterator[Finding]:
    """A check that breaks is a finding, too: the others go on."""
    try:
        yield from check()
    except (OSError, ValueError, Rejected, Unavailable, subprocess.SubprocessError) as error:
        yield fail(name, f"cannot be checked: {sentence(error)}", "repair what is said here first")


def _show(finding: Finding) -> None:
    state = paint(f"{finding.state:<5}", COLOURS[finding.state])
    print(f"{state} {finding.check:<14} {clean(finding.message)}", flush=True)
    if finding.repair:
        print(f"{'':<21}{paint('repair:', 'bold')} {clean(finding.repair)}", flush=True)


def _conclude(failures: int, warnings: int) -> None:
    def count(number: int, what: str) -> str:
        return f"{number} {what}{'' if number == 1 else 's'}"

    print()
    if failures:
        more = f" and {count(warnings, 'warning')}" if warnings else ""
        print(paint(count(failures, "problem"), "red") + more)
    elif warnings:
        print(paint(f"nothing is broken; {count(warnings, 'warning')}", "yellow"))
    else:
        print(paint("all is well", "green"))


class Cluster:
    """What the judicators say; asked once, when the first check wants to know."""

    def __init__(self, arguments: argparse.Namespace, connect: Connect) -> None:
        self._arguments = arguments
        self._connect = connect
        self._view: Any = None
        self._now_ms = 0.0

    def judicators(self) -> Iterator[Finding]:
        from oj.cli import health

        try:
            with self._connect(self._arguments) as client:
                self._view = health.look(client)
                if self._view.degraded():
                    # Who was slow for a moment is not broken: what is, is so a second later, too.
                    time.sleep(AGAIN_S)
                    self._view = health.look(client)
                yield _ping(client)
        except BadSettings as error:
            for mistake in error.mistakes:
                yield fail("judicators", mistake, "mend it; see oj-client.conf(5)")
            return
        except Unavailable as error:
            yield fail(
                "judicators",
                f"no judicator answers: {error.message}",
                "systemctl status oj-judicator where one should run; "
                "/etc/oj/client.conf or --judicator says where to look",
            )
            return
        self._now_ms = time.time() * 1000
        for info in self._view.judicators:
            where = f"judicator {info.name} on {info.address}"
            if info.name in self._view.silent:
                yield fail(
                    "judicators",
                    f"{where} does not serve",
                    f"on {info.name}: systemctl status oj-judicator oj-mongodb oj-etcd",
                )
            else:
                yield ok("judicators", f"{where} serves{', and leads' if info.leader else ''}")
        for what, why in self._view.unanswered.items():
            yield fail(what, f"cannot be told: {why}", "see that oj-etcd and oj-mongodb serve")
        if "judicators" not in self._view.unanswered and not any(
            info.leader for info in self._view.judicators
        ):
            yield fail(
                "judicators",
                "no judicator leads: tasks of lost executors stay where they are",
                "see that oj-etcd serves; the judicators elect a leader through it",
            )

    def members(self) -> Iterator[Finding]:
        """Of etcd and the database, as a judicator sees them."""
        cluster = self._view and self._view.cluster
        if not cluster:
            return
        for member in cluster.etcd:
            what = f"etcd member {member.name}"
            if member.healthy:
                yield ok("etcd", f"{what} answers{', and leads' if member.leader else ''}")
            else:
                yield fail(
                    "etcd",
                    f"{what} is away: {member.message or 'no answer'}",
                    f"on {member.name}: systemctl status oj-etcd; gone for good: "
                    f"oj remove {member.name}",
                )
        for member in cluster.database:
            what = f"database member {member.name}"
            if member.healthy:
                yield ok("database", f"{what} is {member.state}")
            else:
                yield fail(
                    "database",
                    f"{what} is {member.state}{': ' if member.message else ''}"
                    f"{member.message or ''}",
                    f"on {member.name}: systemctl status oj-mongodb; gone for good: "
                    f"oj remove {member.name}",
                )

    def executors(self) -> Iterator[Finding]:
        if self._view is None or "executors" in self._view.unanswered:
            return
        serving = 0
        for info in self._view.executors:
            if info.rivals:
                rivals = [one.address or "" for one in info.rivals]
                yield fail(
                    "executors", say_runs_twice(info.name, info.address or "", rivals), RENAME
                )
            state = plain.executor_state(info)
            facts = info.facts
            name = f"executor {info.name}"
            if state == "ok":
                serving += 1
                slots = facts.slots if facts else 0
                yield ok("executors", f"{name} serves, {info.executing or 0} of {slots} slots busy")
            elif state == "sick":
                yield fail(
                    "executors",
                    f"{name} is sick: {(facts and facts.message) or 'it does not say why'}",
                    f"on {info.name}: oj doctor as root; it returns by itself once well",
                )
            elif state == "silent":
                yield warn(
                    "executors",
                    f"{name} is silent since {plain.time_text(info.report_time)}",
                    f"on {info.name}: systemctl status oj-executor",
                )
            else:
                yield warn("executors", f"{name} is {state}", f"oj drain --off {info.name}")
        if not serving:
            yield fail(
                "executors",
                "no executor serves: tasks wait",
                "apt install oj-executor on a machine and point it to the judicators",
            )

    def clock(self) -> Iterator[Finding]:
        """The judicators' clock against ours, by the newest report they noted."""
        times = [
            info.report_time
            for info in (self._view.executors if self._view else ())
            if info.report_time and not info.silent
        ]
        if not times:
            return
        late_ms = self._now_ms - max(times)
        if -BEHIND_MS <= late_ms <= AHEAD_MS:
            yield ok("clock", "agrees with the judicators'")
        else:
            yield fail(
                "clock",
                f"{abs(late_ms) / 1000:.0f} s {'behind' if late_ms < 0 else 'ahead of'} "
                "the judicators' clock",
                "synchronize both: timedatectl set-ntp true, or chrony",
            )

    def tasks(self) -> Iterator[Finding]:
        stats = self._view and self._view.stats
        if not stats:
            return
        oldest_s = (stats.oldest_pending_ms or 0) // 1000
        text = f"{stats.queue or 0} waiting, {stats.executing or 0} running"
        if oldest_s > 60:
            yield warn(
                "tasks",
                f"{text}; the oldest waits since {oldest_s} s",
                "add executors, or one that offers the language of what waits: oj search "
                "--status pending --oldest-first",
            )
        else:
            yield ok("tasks", text)

    def offered_here(self, node: Node) -> set[str] | None:
        """The languages of this machine's executor, if the judicators know it."""
        values = node.values("executor")
        if self._view is None or not values:
            return None
        name = settings.default_name(values["name"])
        for info in self._view.executors:
            if info.name == name and info.facts and not info.silent:
                return set(info.facts.languages or ())
        return None


def _ping(client: Calls) -> Finding:
    try:
        client.ping()
    except Unavailable as error:
        return fail(
            "database",
            f"a judicator answers but cannot serve: {error.message}",
            "systemctl status oj-mongodb oj-etcd on the judicators; most of them must run",
        )
    return ok("database", "a judicator answers, with its database and etcd")
