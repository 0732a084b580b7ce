"""One machine, the packages installed and nothing edited: what its administrator is promised."""

from __future__ import annotations

import json
import re
import signal
import time
from collections.abc import Callable

import pytest

import servers
from node import UNITS, Node, assert_accepted, wait_for

SUM_CPP = """
#include <iostream>
int main() { long a, b; std::cin >> a >> b; std::cout << a + b << std::endl; }
"""
SLOW_COMPILE = "\n".join(
    f"template<int N> struct G{i} {{ static constexpr long v = G{i}<N-1>::v ^ N; }};"
    f"template<> struct G{i}<0> {{ static constexpr long v = {i}; }};"
    f"static_assert(G{i}<800>::v != -1);"
    for i in range(400)
)


@pytest.mark.each_release
def test_a_cpp_program_is_judged_against_several_tests(healthy_node: Node) -> None:
    machine = healthy_node.machine
    machine.put(SUM_CPP, "/root/sum.cpp")
    for name, given, answer in (("1", "1 2", "3"), ("2", "5 5", "10"), ("10", "7 -9", "-2")):
        machine.put(given, f"/root/sum/{name}.in")
        machine.put(answer, f"/root/sum/{name}.ans")
    done = healthy_node.oj("submit", "/root/sum.cpp", "--tests", "/root/sum", "--wait", "--json")
    task = json.loads(done.stdout)
    assert (task["status"], task["verdict"]) == ("success", "accepted")
    assert [test["name"] for test in task["tests"]] == ["1", "2", "10"]
    for test in task["tests"]:
        assert (test["verdict"], test["exit_code"], test["signal"]) == ("accepted", 0, None)
        assert test["memory_bytes"] > 0 and test["wall_ms"] >= 0 and test["cpu_ms"] >= 0
    machine.put("11", "/root/sum/2.ans")
    done = healthy_node.oj(
        "submit", "/root/sum.cpp", "--tests", "/root/sum", "--wait", "--json", check=False
    )
    task = json.loads(done.stdout)
    assert done.rc == 1
    assert (task["status"], task["verdict"]) == ("run_failed", "wrong_answer")


@pytest.mark.each_release
def test_the_journal_tells_one_tasks_whole_story(healthy_node: Node) -> None:
    machine = healthy_node.machine
    machine.put("print(input()[::-1])", "/root/r.py")
    machine.put("abc", "/root/r.in")
    machine.put("cba", "/root/r.ans")
    words = ("submit", "/root/r.py", "--input", "/root/r.in", "--expected", "/root/r.ans")
    task = json.loads(healthy_node.oj(*words, "--wait", "--json").stdout)["id"]

    def story() -> list[dict[str, str]]:
        lines = machine.journal("-o", "json", f"OJ_TASK={task}").splitlines()
        return [json.loads(line) for line in lines]

    # The journal takes lines from several daemons; the last may be a moment behind.
    wait_for("the story is complete", lambda: len(story()) >= 5, 10)
    tellers = {line["_SYSTEMD_UNIT"] for line in story()}
    assert tellers == {"oj-judicator.service", "oj-executor.service"}
    text = "\n".join(line["MESSAGE"] for line in story())
    for word in ("added", "assigned", "started", "judged", "ended as success"):
        assert word in text, f"the story does not say '{word}':\n{text}"
    assert all("MESSAGE_ID" in line for line in story())
    attempts = {line["OJ_ATTEMPT"] for line in story() if "OJ_ATTEMPT" in line}
    assert attempts == {"1"}


@pytest.mark.each_release
def test_no_task_is_lost_when_power_fails(healthy_node: Node) -> None:
    node = healthy_node
    ids = node.add(50, sleep_s=0.4)
    wait_for("some are done, most are not", lambda: len(node.search("success")) >= 5)
    before = {task: node.get(task) for task in ids[:20]}
    node.machine.power_off_hard()
    node.machine.boot()
    node.wait_until_serving()
    results = node.settle(ids)
    assert_accepted(results, ids)
    for task, seen in before.items():
        if seen["status"] == "success":
            assert results[task]["attempt"] == seen["attempt"], "a final result changed"
    recorded = node.recorded()
    assert {task: recorded[task] for task in ids if recorded[task] != 1} == {}


VICTIMS = [
    ("oj-etcd", None),
    ("oj-mongodb", None),
    ("oj-judicator", None),
    ("oj-executor", None),
    ("oj-etcd", "etcd"),
    ("oj-mongodb", "mongod"),
    ("oj-executor", "oj-box"),
]


@pytest.mark.each_release
def test_killed_daemons_come_back_and_the_load_finishes(healthy_node: Node) -> None:
    node, machine = healthy_node, healthy_node.machine
    load = machine.start(["/root/load.py", "steady", "/root/steady.ids"])
    try:
        for unit, child in VICTIMS:
            main_pid = node.main_pid(unit)
            pid = node.child_pid(unit, child) if child else main_pid
            machine.run(["kill", "-KILL", str(pid)])
            # A new oj-box is started by the same executor; else the whole unit is new.
            if child != "oj-box":
                node.wait_until_replaced(unit, main_pid)
            # Some work between two faults, so that each of them hits a working system.
            assert_accepted(node.settle(more := node.add(4)), more)
    finally:
        machine.run(["touch", "/root/steady.stop"])
    _, errors = load.communicate(timeout=120)
    assert load.returncode == 0, errors.decode()
    ids = machine.get("/root/steady.ids").decode().split()
    assert len(ids) > 50
    assert_accepted(node.settle(ids), ids)
    recorded = node.recorded()
    assert {task: recorded[task] for task in ids if recorded[task] != 1} == {}
    # At this moment it may be a canary.
    wait_for("no program runs", lambda: node.sandboxed() == [])


@pytest.mark.parametrize("unit", UNITS)
def test_a_stopped_daemon_is_replaced_by_the_watchdog(healthy_node: Node, unit: str) -> None:
    node = healthy_node
    ids = node.add(20, sleep_s=0.2)
    pid, restarts = node.main_pid(unit), node.restarts(unit)
    node.machine.run(["kill", "-STOP", str(pid)])
    wait_for(
        f"the watchdog replaces {unit}",
        lambda: node.restarts(unit) > restarts and node.state(unit) == "active",
        150,
    )
    assert node.main_pid(unit) != pid
    assert "atchdog" in node.machine.journal("-u", unit)
    assert_accepted(node.settle(ids), ids)


@pytest.mark.parametrize(("unit", "child"), [("oj-etcd", "etcd"), ("oj-mongodb", "mongod")])
def test_a_stopped_server_is_replaced_by_the_watchdog(
    healthy_node: Node, unit: str, child: str
) -> None:
    node = healthy_node
    ids = node.add(20, sleep_s=0.2)
    pid, restarts = node.child_pid(unit, child), node.restarts(unit)
    node.machine.run(["kill", "-STOP", str(pid)])
    wait_for(
        f"{unit} gets a new {child}",
        lambda: node.restarts(unit) > restarts and node.state(unit) == "active",
        90,
    )
    assert node.child_pid(unit, child) != pid
    assert_accepted(node.settle(ids), ids)


def test_a_task_is_cancelled_before_it_starts(healthy_node: Node) -> None:
    node = healthy_node

    def cancel() -> list[str]:
        blockers = node.add(8, sleep_s=30)
        wait_for("the slots are busy", node.sandboxed, 10)
        [late] = node.add(1, sleep_s=30, user="late")
        for task in (late, *blockers):
            node.oj("cancel", task)
        return [late, *blockers]

    late = assert_it_ends(node, cancel)[0]
    assert node.get(late)["attempt"] in (0, 1)


def test_a_task_is_cancelled_while_it_runs(healthy_node: Node) -> None:
    node = healthy_node
    # Children that have left their parent must go too.
    script = "setsid sleep 50 & (sleep 51 &) ; sleep 52"

    def cancel() -> list[str]:
        words = ("--command", f"/bin/sh -c '{script}'", "--wall", "60s")
        task = node.oj("submit", *words).stdout.strip()
        wait_for("it runs", lambda: len(node.sandboxed()) >= 3, 10)
        node.oj("cancel", task)
        return [task]

    assert_it_ends(node, cancel)


def test_a_task_is_cancelled_while_it_compiles(healthy_node: Node) -> None:
    node = healthy_node
    node.machine.put(SLOW_COMPILE, "/root/slow.cpp")

    def cancel() -> list[str]:
        task = node.oj("submit", "/root/slow.cpp", "--compile-time", "60s").stdout.strip()
        wait_for("it compiles", lambda: any("cc1plus" in line for line in node.sandboxed()), 20)
        node.oj("cancel", task)
        return [task]

    assert_it_ends(node, cancel)


def assert_it_ends(node: Node, cancel: Callable[[], list[str]]) -> list[str]:
    """What `cancel` cancels, and within a second nothing of it runs; the tasks of the last time."""
    tasks: list[str] = []

    def measure() -> float:
        tasks[:] = cancel()
        cancelled_at = time.monotonic()
        wait_for("no process is left", lambda: node.sandboxed() == [])
        took_s = time.monotonic() - cancelled_at
        for task in tasks:
            assert node.get(task)["status"] == "cancelled"
        assert "cancelled" in node.machine.journal(f"OJ_TASK={tasks[0]}")
        return took_s

    servers.assert_within(1.2, measure)  # each look costs some 50 ms; the promise is one second
    return tasks


@pytest.mark.parametrize(
    ("role", "mistakes"),
    [
        ("judicator", "listen = nowhere\nname = x\n[[\n"),
        ("judicator", "listen = nowhere\nmax_conections = 3\n[tasks]\nlease = soon\n"),
        ("executor", "slots = many\nnam = x\ncache = huge\n"),
        ("etcd", "mode = sometimes\nnam = x\nclient = 99\n"),
        ("mongodb", "grace = big\nnam = x\nlisten = 99\n"),
    ],
)
def test_a_wrong_configuration_is_named_and_does_not_loop(
    healthy_node: Node, role: str, mistakes: str
) -> None:
    node, machine = healthy_node, healthy_node.machine
    unit, conf = f"oj-{role}", f"/etc/oj/{role}.conf"
    keep = machine.get(conf)
    machine.run(["systemctl", "stop", unit])
    try:
        machine.put(mistakes, conf)
        check = machine.run([f"/usr/libexec/oj/{unit}", "--check"], check=False)
        assert check.rc == 78
        if "[[" in mistakes:  # not even readable: the line is named
            assert re.search(rf"{conf}:\d+: ", check.stderr), check.stderr
        else:
            named = [line for line in check.stderr.splitlines() if line.startswith(conf)]
            assert len(named) == 3, check.stderr
            assert all(re.match(rf"{conf}:\d+: \w", line) for line in named), named
        started = machine.run(["systemctl", "start", unit], check=False)
        assert started.rc != 0
        time.sleep(3)  # three times RestartSec: a loop would show
        assert node.state(unit) == "failed"
        assert node.restarts(unit) == 0
        assert node.show(unit, "ExecMainStatus") == "78"
        told = machine.journal("-u", unit, "-n", "20")
        assert all(
            line.split(": ", 1)[1] in told for line in check.stderr.splitlines() if conf in line
        )
    finally:
        machine.put(keep, conf)
        machine.run(["systemctl", "reset-failed", unit], check=False)
        node.start(*UNITS)


@pytest.mark.each_release
def test_stopping_gives_tasks_back_and_loses_none(healthy_node: Node) -> None:
    node = healthy_node
    ids = node.add(12, sleep_s=1)
    wait_for("some run", node.sandboxed, 10)
    began = time.monotonic()
    node.machine.run(["systemctl", "restart", "oj-executor"])
    assert time.monotonic() - began < 30
    node.machine.run(["systemctl", "restart", "oj-judicator"])
    results = node.settle(ids)
    assert_accepted(results, ids)
    assert max(result["attempt"] for result in results.values()) <= 2


def test_a_signal_to_the_whole_unit_drains_and_ends_no_program(healthy_node: Node) -> None:
    node = healthy_node
    ids = node.add(1, sleep_s=15)
    wait_for("it runs", lambda: node.get(ids[0])["status"] == "running" and node.sandboxed())
    # To every process of the unit: oj-box and judged programs get it, too.
    node.machine.run(["systemctl", "kill", "-s", "USR1", "oj-executor"])
    wait_for("it drains", lambda: "draining" in node.show("oj-executor", "StatusText"))
    [late] = node.add(1)
    results = node.settle(ids)
    assert_accepted(results, ids)
    assert {result["attempt"] for result in results.values()} == {1}
    wait_for("it is drained", lambda: "drained" in node.show("oj-executor", "StatusText"))
    assert node.get(late)["status"] == "pending"
    node.machine.run(["systemctl", "restart", "oj-executor"])
    assert_accepted(node.settle([late]), [late])


@pytest.mark.each_release
def test_a_stopped_machine_starts_again_by_itself(healthy_node: Node) -> None:
    node = healthy_node
    ids = node.add(10, sleep_s=0.5)
    node.machine.reboot()
    node.wait_until_serving()
    assert_accepted(node.settle(ids), ids)


def test_signals_are_named_in_the_result(healthy_node: Node) -> None:
    done = healthy_node.oj(
        "submit", "--command", "/bin/sh -c 'kill -SEGV $$'", "--wait", "--json", check=False
    )
    task = json.loads(done.stdout)
    assert (task["verdict"], task["tests"][0]["signal"]) == ("runtime_error", signal.SIGSEGV)
