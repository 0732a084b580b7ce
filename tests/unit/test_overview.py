"""The one screen of `oj status`, from pictures of clusters in every state."""

from __future__ import annotations

from typing import Any

import pytest

from oj.cli import overview, terminal
from oj.cli.health import View
from oj.rpc import ttypes as rpc


def make_view(**fields: Any) -> View:
    """Three judicators' nodes, which are executors, too, and an executor."""
    nodes = ("n1", "n2", "n3")
    judicators = [rpc.JudicatorInfo(n, f"{n}:7500", n == "n2", True, "1.0") for n in nodes]
    values: dict[str, Any] = {
        "version": "1.0",
        "unanswered": {},
        "judicators": tuple(judicators),
        "executors": tuple(
            rpc.ExecutorInfo(n, facts=rpc.Facts(slots=2, version="1.0", state="ok"), executing=1)
            for n in ("n1", "worker")
        ),
        "stats": rpc.Stats(by_status={10: 7, 1: 2}, queue=2, slots=4, executing=2, by_verdict={}),
        "cluster": rpc.Cluster(
            etcd=[rpc.EtcdMember(n, f"{n}:7501", True, n == "n1", False) for n in nodes],
            database=[
                rpc.DatabaseMember(
                    n, f"{n}:7503", "primary" if n == "n3" else "secondary", True, True, 0
                )
                for n in nodes
            ],
            judicators=judicators,
            troubles=[],
            seen_from="n1",
        ),
    }
    return View(**{**values, **fields})


def shown(view: View, capsys: pytest.CaptureFixture[str]) -> str:
    overview.show_status(view)
    return capsys.readouterr().out


def test_every_node_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(make_view(), capsys).splitlines() == [
        "all is well (oj 1.0, as n1 sees it)",
        "",
        "NODE    ETCD    DATABASE   JUDICATOR  EXECUTOR  BUSY",
        "n1      leader  secondary  ok         ok         1/2",
        "n2      ok      secondary  leader",
        "n3      ok      primary    ok",
        "worker                                ok         1/2",
        "",
        "tasks: 2 running on 4 slots, 2 waiting",
        "by status: 2 pending, 7 success",
    ]


def test_gateways_are_shown_with_the_nodes_that_they_are_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    view = make_view()
    view.cluster.gateways = [
        rpc.GatewayInfo("n1", "n1:7580", "1.0", 1, False),
        rpc.GatewayInfo("web", "web:7580", "1.1", 1, True),
    ]
    lines = {line.split()[0]: line.split() for line in shown(view, capsys).splitlines()[2:7]}
    assert lines["NODE"][-3:] == ["BUSY", "GATEWAY", "VERSION"]
    assert lines["n1"][-3:] == ["1/2", "ok", "1.0"]
    assert lines["web"] == ["web", "silent", "1.1"]
    assert view.plain()["gateways"][1] == {
        "name": "web",
        "address": "web:7580",
        "version": "1.1",
        "silent": True,
        "report_time": "1970-01-01T00:00:00.001Z",
        "places": [],
    }


def test_versions_are_shown_while_they_differ(capsys: pytest.CaptureFixture[str]) -> None:
    view = make_view()
    view.judicators[0].version = "1.1"
    lines = shown(view, capsys).splitlines()
    assert lines[2].endswith("VERSION")
    assert lines[3].endswith("1.0, 1.1")
    assert lines[4].endswith("1.0")


def test_members_that_are_not_well_say_how(capsys: pytest.CaptureFixture[str]) -> None:
    view = make_view(silent=frozenset({"n3"}))
    etcd, database = view.cluster.etcd, view.cluster.database
    etcd[1].healthy, etcd[2].learner = False, True
    database[0].lag_ms, database[1].voter = 90_000, False
    database[2].state, database[2].healthy = "down", False
    view.cluster.troubles.append("database member n3 is down; look there")
    text = shown(view, capsys)
    assert text.startswith("out of service (")  # there is no primary
    assert "  - database member n3 is down; look there\n" in text
    words = {line.split()[0]: line for line in text.splitlines() if line}
    assert "secondary, 90 s behind" in words["n1"]
    assert "away" in words["n2"] and "secondary, no vote" in words["n2"]
    assert words["n3"].split() == ["n3", "learner", "down", "silent"]


def test_a_member_that_is_known_by_its_host_is_on_its_judicators_line() -> None:
    view = make_view()
    view.cluster.database[0].name, view.cluster.database[0].address = "10.0.0.1", "10.0.0.1:7503"
    view.judicators[0].address = "10.0.0.1:7500"
    assert [node.name for node in overview.gather_nodes(view)] == ["n1", "n2", "n3", "worker"]


def test_an_old_judicator_tells_less(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(make_view(cluster=None, silent=frozenset({"n1"})), capsys)
    assert text.startswith("degraded (oj 1.0)\n  - judicator n1 does not serve\n")
    assert "cannot be shown: the judicator's version is older" in text
    assert "NODE    JUDICATOR  EXECUTOR  BUSY" in text


def test_what_cannot_be_asked_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    view = make_view(stats=None, executors=(), unanswered={"tasks": "no answer", "executors": "no"})
    text = shown(view, capsys)
    assert text.startswith("degraded (")
    assert "tasks cannot be told: no answer" in text
    assert "tasks: unknown" in text and "executors: unknown" in text


def test_long_names_fit_into_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "columns", lambda: 80)
    monkeypatch.setattr(overview, "columns", lambda: 80)
    view = make_view()
    long = "executor-in-the-second-room.of-the-third-floor.example.org"
    view.executors[1].name = long
    view.executors[1].facts.state = "sick"
    view.cluster.troubles += [
        f"executor {long} is sick (every limit fails); it takes no tasks until it is mended"
    ]
    view.cluster.database[1].lag_ms = 300_000
    view.stats.by_verdict = dict.fromkeys(range(1, 11), 1234567)
    lines = shown(view, capsys).splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("executor-in-the-") for line in lines)
