"""Plans of faults: what may come together, and what a run holds."""

from __future__ import annotations

import random

import pytest

from faults.cluster import EXECUTORS, JUDICATORS
from faults.disks import LostData
from faults.figures import Assigned, running_elsewhere_s, served_elsewhere_s
from faults.members import ComeAndGo, RemoveAndReturn
from faults.plan import catalogue, make_long, make_short, may_combine, must_serve
from faults.power import PowerOff
from faults.view import View
from faults.wires import CutBetween, CutOff, OneWay


@pytest.mark.parametrize("seed", range(20))
def test_a_long_plan_has_as_many_faults_as_asked_for_and_repeats_by_its_seed(seed: int) -> None:
    def texts() -> list[list[str]]:
        plan = make_long(random.Random(seed), 200)
        return [[fault.describe() for fault in group] for group in plan]

    plan = texts()
    assert plan == texts()
    assert sum(map(len, plan)) == 200
    assert {fault for group in plan for fault in group} >= {
        make().describe() for make in catalogue()
    }


@pytest.mark.parametrize("seed", range(20))
def test_what_is_delicate_happens_while_all_other_judicators_are_well(seed: int) -> None:
    for group in [*make_long(random.Random(seed), 200), *make_short(random.Random(seed))]:
        hit = [set(fault.targets) - set(EXECUTORS) for fault in group]
        if any(fault.delicate for fault in group):
            assert len(set().union(*hit)) <= 1 or len(group) == 1


def test_data_is_not_lost_where_another_copy_is_away() -> None:
    lost = LostData("oj-mongodb", "j1")
    assert not may_combine(lost, PowerOff("j2"))
    assert not may_combine(lost, PowerOff("mongod primary"))
    assert not may_combine(PowerOff(*EXECUTORS, "j3"), RemoveAndReturn("j1"))
    assert not may_combine(ComeAndGo("j4", leave=1), CutOff("j1"))
    assert may_combine(lost, PowerOff("e1", "e2"))
    assert may_combine(CutOff("j1"), PowerOff("j2"))


def test_a_cluster_must_serve_with_a_majority_and_an_executor() -> None:
    def serves(*faults: object) -> bool:
        return must_serve(list(faults), JUDICATORS, EXECUTORS)  # type: ignore[arg-type]

    assert serves(PowerOff("j1"), CutOff("e1"))
    assert serves(CutBetween("j1", "j2"))
    assert serves(LostData("oj-etcd", "j3"))
    assert serves(CutBetween("j1", "j2"), OneWay("j3", "j1"))  # all but j1
    assert serves(PowerOff("e1"), OneWay("j1", "e2"))
    assert not serves(CutOff("j1"), OneWay("j3", "j2"))
    assert not serves(PowerOff("j1"), CutOff("j2"))
    assert not serves(PowerOff("e1", "e2"))


# --- figures -------------------------------------------------------------------------------------

EVENTS = [
    Assigned(9.0, "j1", "e1", "a"),
    Assigned(9.5, "j2", "e2", "b"),
    Assigned(10.2, "j2", "e2", "c"),
    Assigned(11.5, "j3", "e1", "d"),
    Assigned(17.0, "j2", "e2", "a"),
]


def test_executors_are_served_when_the_last_of_them_is() -> None:
    assert served_elsewhere_s(EVENTS, 10.0, "j1", ["e1", "e2"]) == pytest.approx(1.5)
    assert served_elsewhere_s(EVENTS, 12.0, "j1", ["e1", "e2"]) is None


def test_tasks_run_elsewhere_when_the_last_of_them_does() -> None:
    assert running_elsewhere_s(EVENTS, 10.0, "e1") == pytest.approx(7.0)
    assert running_elsewhere_s(EVENTS, 10.0, "e2") is None


# --- the view ------------------------------------------------------------------------------------


def healthy() -> View:
    members = {f"10.0.0.{n}": {"state": "SECONDARY", "optime": [1, 100, 1]} for n in (2, 3)}
    members["10.0.0.1"] = {"state": "PRIMARY", "optime": [1, 101, 1]}
    return View(
        etcd={
            j: {"name": j, "leader": "j2", "members": JUDICATORS, "learners": [], "learner": False}
            for j in JUDICATORS
        },
        mongod={
            j: {"state": 1 if j == "j1" else 2, "term": 1, "members": members, "voters": 3}
            for j in JUDICATORS
        },
        judicator={
            j: {"judicators": JUDICATORS, "leader": "j3", "executors": EXECUTORS}
            for j in JUDICATORS
        },
    )


def test_a_healthy_cluster_has_no_troubles_and_known_roles() -> None:
    view = healthy()
    assert view.troubles(JUDICATORS, EXECUTORS) == []
    assert (view.etcd_leader, view.primary, view.secondary, view.leader) == ("j2", "j1", "j2", "j3")


def test_what_is_not_as_it_should_be_is_told() -> None:
    view = healthy()
    view.etcd["j1"]["leader"] = ""  # type: ignore[index]
    view.mongod["j1"]["members"]["10.0.0.2"]["state"] = "RECOVERING"
    view.judicator["j3"]["executors"] = ["e1"]
    assert view.troubles(JUDICATORS, EXECUTORS) == [
        "etcd of j1 knows no leader",
        "mongod of 10.0.0.2 is RECOVERING",
        "judicator j3 has the executors e1",
    ]
    assert len(view.troubles([*JUDICATORS, "j4"], EXECUTORS)) > 3
    silent = View(etcd={}, mongod={}, judicator={})
    assert len(silent.troubles(JUDICATORS, EXECUTORS)) == 7
