"""A run: forms the cluster, breaks it group by group under load, and judges the whole."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from bed import Bed, BedError
from faults import figures
from faults.checker import Findings, check
from faults.client import PLACE, place_program
from faults.cluster import Cluster, Stuck
from faults.figures import Assigned
from faults.history import History, read
from faults.plan import Group, make_long, make_short, must_serve

TREE = Path(__file__).resolve().parents[2]
LOGS = TREE / "build" / "fault-logs"
FINISH_S = 300
AUDIT_S = 900
LEFT_S = 20
OPLOG_S = 60


class Run:
    def __init__(self, bed: Bed, arguments: argparse.Namespace) -> None:
        self._seed: int = arguments.seed
        self._rate: float = arguments.rate
        self._wanted: int = arguments.tasks
        self._chance = random.Random(self._seed)
        self._began = time.monotonic()
        self._faults = 0
        self._cluster = Cluster(bed, arguments.packages, self._seed)
        self._samples: dict[str, list[float]] = defaultdict(list)
        self._groups: Iterable[Group] = (
            make_short(self._chance)
            if arguments.short
            else make_long(self._chance, arguments.faults)
        )
        if arguments.only:
            self._groups = [g for g in self._groups if arguments.only in describe(g)]

    def go(self) -> bool:
        """Whether every promise was kept."""
        took_s = self._cluster.form()
        self._samples["three ready judicators from empty machines"].append(took_s)
        self._say(f"three judicators ready in {took_s:.1f} s, two executors, all healthy")
        self._cluster.client.call("start", rate=self._rate)
        self._cluster.wait_for_progress(20)
        stuck = self._break_all()
        findings = self._judge(stuck)
        print(json.dumps(figures.summarise(self._samples)))
        for sentence in [*([stuck] if stuck else []), *findings.sentences()]:
            print(sentence)
        print(
            f"{findings.tasks} tasks, {self._faults} faults, seed {self._seed}: "
            f"{findings.summary()}" + (", stuck" if stuck else ""),
            flush=True,
        )
        return findings.kept and not stuck

    # --- breaking ------------------------------------------------------------------------------

    def _break_all(self) -> str:
        """What the cluster got stuck in, if it did."""
        group: Group = []
        try:
            for group in self._groups:
                self._break(group)
            while self._cluster.count()["added"] < self._wanted:
                self._cluster.wait_for_progress(min(100, self._wanted))
        except (Stuck, BedError) as trouble:
            return f"stuck at {describe(group)}: {trouble}"
        return ""

    def _break(self, group: Group) -> None:
        cluster = self._cluster
        first_mark = len(cluster.marks)
        for fault in group:
            fault.aim(cluster)
        began = time.monotonic()
        begun: Group = []
        try:
            for fault in group:
                begun.append(fault)
                fault.inject(cluster)
            serves = ""
            if must_serve(group, cluster.judicators, cluster.executors):
                before = time.monotonic()
                cluster.wait_for_progress()
                serves = f"serves after {time.monotonic() - before:.1f} s, "
            cluster.in_parallel(lambda fault: fault.hold(cluster), group)
        finally:
            for fault in reversed(begun):
                fault.heal(cluster)
        healthy_s = cluster.wait_until_healthy()
        self._faults += len(group)
        self._read_database()
        self._measure(cluster.marks[first_mark:])
        self._say(
            f"{describe(group)}: {serves}lasted {time.monotonic() - began - healthy_s:.1f} s, "
            f"healthy after {healthy_s:.1f} s"
        )

    def _measure(self, marks: list[dict]) -> None:
        cluster = self._cluster
        offs = [mark for mark in marks if mark["what"] == "power-off"]
        if len(offs) != 1 or len({mark["node"] for mark in marks}) > 1:
            return  # What several faults did together is no figure of one.
        (mark,) = offs
        node, at = mark["node"], mark["t"]
        since = f"--since=@{time.time() - (time.monotonic() - at) - 20:.3f}"
        events: list[Assigned] = []
        for judicator in cluster.judicators:
            text = cluster.machine(judicator).journal(
                "-o", "json", since, f"MESSAGE_ID={figures.ASSIGNED}"
            )
            events += figures.read_assigned(judicator, text)
        took_s: float | None
        if node in cluster.executors:
            took_s = figures.running_elsewhere_s(events, at, node)
            name = "executor killed, its tasks running elsewhere"
        elif "mongod primary" in mark["was"]:
            took_s = cluster.client.call("writes_again", since=at)
            name = "mongod primary killed, writes again"
        else:
            took_s = figures.served_elsewhere_s(events, at, node, cluster.executors)
            name = "judicator killed, executors served elsewhere"
        if took_s is not None:
            self._samples[name].append(took_s)
            self._say(f"  {name}: {took_s:.2f} s")

    def _read_database(self) -> None:
        # From where it has read to: an election in between ends one try, and harms nothing.
        self._cluster.wait_for(
            "the log of every mongod was read",
            lambda: not self._cluster.client.call("read_oplog", hosts=self._cluster.judicators),
            OPLOG_S,
        )

    # --- judging -------------------------------------------------------------------------------

    def _judge(self, stuck: str) -> Findings:
        cluster = self._cluster
        unfinished = cluster.client.call("finish", timeout_s=FINISH_S, patience_s=FINISH_S + 120)
        if unfinished:
            self._say(f"{len(unfinished)} tasks did not end, as {unfinished[0]}")
        unasked = cluster.client.call("audit", timeout_s=AUDIT_S, patience_s=AUDIT_S + 120)
        silent = cluster.client.call("read_oplog", hosts=cluster.judicators)
        history = self._history()
        left = {name: self._left_on(name) for name in cluster.executors} if not stuck else {}
        findings = check(history, left, database=not silent or not stuck)
        if unasked:
            text = f"{len(unasked)} answers of it are missing, as that of {unasked[0]}"
            findings.find("wrong", "the audit", text)
        counted = cluster.count()
        if counted["troubles"]:
            findings.find("wrong", "the client", cluster.client.complaints()[-2000:])
        return findings

    def _history(self) -> History:
        LOGS.mkdir(parents=True, exist_ok=True)
        lines = self._cluster.client.history()
        text = b"\n".join(line.encode() if isinstance(line, str) else line for line in lines)
        (LOGS / "history").write_bytes(text)
        return read(lines)

    def _left_on(self, executor: str) -> list[str]:
        """What judged programs left on an executor; a moment may pass until the last is gone."""
        machine = self._cluster.machine(executor)
        place_program(machine)
        end = time.monotonic() + LEFT_S
        while True:
            found = machine.run(["python3", f"{PLACE}/left.py"]).stdout.split("\n")
            found = [line for line in found if line]
            if not found or time.monotonic() > end:
                return found
            time.sleep(0.5)

    def _say(self, sentence: str) -> None:
        tasks = ""
        if hasattr(self._cluster, "client"):
            tasks = f" {self._cluster.count()['ended']} tasks"
        print(
            f"[{time.monotonic() - self._began:6.1f} s, {self._faults} faults,{tasks}] {sentence}",
            flush=True,
        )


def describe(group: Group) -> str:
    return " + ".join(fault.describe() for fault in group) or "no fault"


def main(arguments: argparse.Namespace) -> int:
    print(f"seed {arguments.seed}", flush=True)
    shutil.rmtree(LOGS, ignore_errors=True)
    kept = False
    with Bed() as bed:
        try:
            kept = Run(bed, arguments).go()
            if kept and not arguments.logs:
                return 0
        except (Stuck, BedError) as trouble:
            print(f"faults: {trouble}", file=sys.stderr)
        except Exception:  # noqa: BLE001 (a mistake in a fault: its logs are wanted too)
            traceback.print_exc()
        # Machines are still as they were when it went wrong.
        bed.save_logs(LOGS)
        print(f"journals and the history are in {LOGS}", file=sys.stderr)
        return 0 if kept else 1
