"""`oj doctor` on a booted machine: quiet where all is well, precise where it is not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from node import UNITS, Node, wait_for


def diagnose(node: Node) -> tuple[int, dict[str, Any]]:
    done = node.oj("doctor", "--json", check=False, timeout_s=180)
    return done.rc, json.loads(done.stdout)


def found(answer: dict[str, Any], check: str) -> list[dict[str, str]]:
    return [one for one in answer["checks"] if one["check"] == check]


@pytest.mark.each_release
def test_the_doctor_finds_nothing_broken_on_a_node_as_installed(healthy_node: Node) -> None:
    # A status line that tells of a slow moment stays for seconds.
    tries = (diagnose(healthy_node) for _ in range(3))
    code, answer = next((one for one in tries if one[0] == 0), diagnose(healthy_node))
    failures = [one for one in answer["checks"] if one["state"] == "fail"]
    assert (code, failures) == (0, [])
    assert [one["state"] for one in found(answer, "sandbox")] == ["ok"]
    assert len(found(answer, "units")) == len(UNITS)
    assert {one["state"] for one in found(answer, "units")} == {"ok"}
    assert {one["state"] for one in found(answer, "configuration")} == {"ok"}
    (languages,) = [one for one in found(answer, "languages") if one["state"] == "ok"]
    assert "offered: " in languages["message"] and " python" in languages["message"]


def test_the_doctor_names_a_stopped_unit_and_how_to_start_it(healthy_node: Node) -> None:
    node = healthy_node
    node.machine.run("systemctl stop oj-executor")
    try:
        code, answer = diagnose(node)
        assert code == 1
        (stopped,) = [one for one in found(answer, "units") if one["state"] != "ok"]
        assert stopped["state"] == "fail" and "oj-executor is inactive" in stopped["message"]
        assert "systemctl restart oj-executor" in stopped["repair"]
    finally:
        node.machine.run("systemctl start oj-executor")
    wait_for("the doctor is content again", lambda: diagnose(node)[0] == 0)
