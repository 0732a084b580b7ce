"""The dashboard and the alert rules speak of numbers that the code tells."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from oj.executor import numbers as executor
from oj.judicator import numbers as judicator
from oj.metrics import Timing

TREE = Path(__file__).resolve().parents[2]
DASHBOARD = TREE / "share" / "grafana" / "oj-dashboard.json"
ALERTS = TREE / "share" / "prometheus" / "oj-alerts.yaml"
NAME = re.compile(r"\boj_[a-z0-9_]+")


def exported() -> set[str]:
    """Every name that a daemon tells, as it stands in the code."""
    found: set[str] = set()
    sources = [*(TREE / "daemons" / "oj").rglob("numbers.py"), TREE / "daemons/oj/metrics.py"]
    for path in [*sources, TREE / "daemons/oj/gateway/metrics.py"]:
        found |= set(re.findall(r'"(oj_[a-z0-9_]+)"', path.read_text()))
    timings = {one.name for one in (*judicator.ALL, *executor.ALL) if isinstance(one, Timing)}
    for name in timings | {"oj_gateway_request_seconds"}:
        assert name in found
        found |= {f"{name}_bucket", f"{name}_count", f"{name}_sum"}
    return found


def expressions() -> dict[str, str]:
    """What is asked of Prometheus, by where it is asked."""
    found = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            found[f"{panel['title']} {target['refId']}"] = target["expr"]
    for rule in rules():
        found[rule["alert"]] = rule["expr"]
    return found


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


@pytest.mark.parametrize("place", sorted(expressions()))
def test_every_number_that_is_asked_for_is_told(place: str) -> None:
    asked = set(NAME.findall(expressions()[place]))
    assert asked or "up{" in expressions()[place]
    assert asked - exported() == set()


def test_numbers_have_the_names_that_prometheus_wants() -> None:
    for one in (*judicator.ALL, *executor.ALL):
        assert one.name.endswith("_seconds" if isinstance(one, Timing) else "_total"), one.name


def test_alerts_have_names_of_their_own_and_say_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"] and rule["annotations"]["description"]


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        own = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not own & cells, panel["title"]
        cells |= own
