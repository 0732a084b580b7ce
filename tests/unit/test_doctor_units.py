"""What the doctor says of this machine's units, by what systemd tells of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from oj.cli.machine import Node, judge_unit

TREE = Path(__file__).resolve().parents[2]


def said(needed: bool = True, **facts: str) -> list[tuple[str, str]]:
    known = {"LoadState": "loaded", "ActiveState": "active", "UnitFileState": "enabled", **facts}
    return [(one.state, one.message) for one in judge_unit("oj-etcd", known, needed)]


def test_a_stopped_unit_is_a_failure_where_something_needs_it() -> None:
    assert said() == [("ok", "oj-etcd runs")]
    assert said(ActiveState="inactive") == [("fail", "oj-etcd is inactive")]
    assert said(ActiveState="failed", needed=False)[0][0] == "fail"
    [(state, message)] = said(ActiveState="inactive", needed=False)
    assert state == "ok" and "nothing on this node needs it" in message


def test_one_that_waits_for_others_is_not_told_to_restart() -> None:
    text = "waiting: 2 of 3 members must run; n1, n2 do not answer; start oj-etcd there"
    facts = {"LoadState": "loaded", "ActiveState": "activating", "StatusText": text}
    [found] = judge_unit("oj-etcd", facts, needed=True)
    assert (found.state, found.message) == ("fail", f"oj-etcd is {text}")
    assert "restart" not in found.repair


@pytest.mark.parametrize(
    ("etcd", "others", "needed"),
    [
        ("mode = proxy", {"gateway": "judicators = n1:7500, n2:7500"}, False),
        ("mode = proxy", {"gateway": ""}, True),  # it finds judicators by etcd alone
        ("mode = proxy", {"gateway": "judicators = n1:7500,", "executor": ""}, True),
        ("mode = proxy", {"executor": ""}, True),
        ("mode = member", {"gateway": "judicators = n1:7500,"}, True),
    ],
)
def test_a_gateway_alone_does_without_the_proxy_of_its_node(
    etcd: str,
    others: dict[str, str],
    needed: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "argv", [str(TREE / "daemons" / "bin" / "oj")])
    (tmp_path / "etcd.conf").write_text(etcd + "\n")
    for role, text in others.items():
        (tmp_path / f"{role}.conf").write_text(text + "\n")
    node = Node(tmp_path)
    assert set(node.roles) == {"etcd", *others}
    assert node.needs("etcd") is needed
    assert all(node.needs(role) for role in others)
