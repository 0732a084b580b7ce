"""What is said of a degraded cluster: a table of pictures and the sentences they give."""

from __future__ import annotations

import re

import pytest

from oj.judicator.troubles import (
    DatabaseMember,
    EtcdMember,
    ExecutorSeen,
    GatewaySeen,
    Judicator,
    Picture,
    find_troubles,
)


def etcd(up: str, down: str = "", learners: str = "") -> list[EtcdMember]:
    return [
        *(EtcdMember(name, leader=name == up[:2]) for name in up.split()),
        *(EtcdMember(name, healthy=False) for name in down.split()),
        *(EtcdMember(name, learner=True) for name in learners.split()),
    ]


def database(**states: str) -> list[DatabaseMember]:
    return [
        DatabaseMember(name, f"{name}:7503", state, state in ("primary", "secondary"))
        for name, state in states.items()
    ]


def picture(**parts: object) -> Picture:
    """All is well with three nodes, but for `parts`."""
    whole = {
        "etcd": etcd("n1 n2 n3"),
        "database": database(n1="primary", n2="secondary", n3="secondary"),
        "judicators": [Judicator("n1", "n1:7500", leader=True), Judicator("n2", "n2:7500")],
        "executors": [ExecutorSeen("ex-1")],
    }
    return Picture(**{**whole, **parts})  # type: ignore[arg-type]


CASES = {
    "two machines go by one name": (
        picture(executors=[ExecutorSeen("e1", address="10.0.0.5", rivals=("10.0.0.6",))]),
        [
            "executor e1 runs twice: 10.0.0.5 and 10.0.0.6; the one at 10.0.0.5 has the name, "
            "and the other takes no tasks; .* oj setup executor --name NAME"
        ],
    ),
    "a gateway is lost": (
        picture(gateways=[GatewaySeen("g1"), GatewaySeen("g2", silent=True)]),
        [
            "gateway g2 is silent; look at `systemctl status oj-gateway` there, "
            "or, if it is gone for good, run `oj remove g2` on a judicator"
        ],
    ),
    "two gateways go by one name": (
        picture(gateways=[GatewaySeen("g1", places=("10.0.0.6", "10.0.0.5:7580"))]),
        [
            "gateway g1 runs twice: 10.0.0.5:7580 and 10.0.0.6; give one of them a name of its "
            "own, there: `name` in gateway.conf"
        ],
    ),
    "all is well": (picture(), []),
    "a single node is well": (
        picture(
            etcd=etcd("n1"),
            database=database(n1="primary"),
            judicators=[Judicator("n1", "n1:7500", leader=True)],
        ),
        [],
    ),
    "an etcd member is down": (
        picture(etcd=etcd("n1 n3", "n2")),
        [
            "etcd member n2 does not answer: 2 of 3 members are left, and no further one can be "
            "spared; look at `systemctl status oj-etcd` there, or `oj remove n2` if it is gone "
            "for good"
        ],
    ),
    "one of five is down": (
        picture(etcd=etcd("n1 n3 n4 n5", "n2")),
        ["etcd member n2 .*: 4 of 5 members are left; look"],
    ),
    "etcd has no majority": (
        picture(etcd=etcd("", "n1 n2 n3"), etcd_problem="no answer in time", leader_known=False),
        [r"etcd has lost its majority \(no answer in time\): 0 of 3 .* \(n1, n2, n3\), or"],
    ),
    "a minority says so": (
        picture(etcd=etcd("n1", "n2 n3"), leader_known=False),
        [r"etcd has lost its majority: 1 of 3 members serves; .* \(n2, n3\)"],
    ),
    "the only etcd is away": (
        picture(etcd=etcd("", "n1"), etcd_problem="cannot be reached", leader_known=False),
        [r"etcd does not answer \(cannot be reached\)"],
    ),
    "a learner": (
        picture(etcd=etcd("n1 n2 n3", learners="n4")),
        ["etcd member n4 is a learner: it has no vote until it has caught up"],
    ),
    "a learner that is down takes no majority away": (
        picture(etcd=[*etcd("n1"), EtcdMember("n2", healthy=False, learner=True)]),
        ["etcd member n2 is a learner: .*; look at `systemctl status oj-etcd` there"],
    ),
    "two members": (
        picture(etcd=etcd("n1 n2"), database=database(n1="primary", n2="secondary")),
        ["etcd has 2 members: without either", "the database has 2 members: without either"],
    ),
    "the local way to etcd fails, the members are well": (
        picture(etcd_problem="no answer in time"),
        [],
    ),
    "the database is away": (
        picture(database=database(n1="unknown"), database_problem="does not answer"),
        [r"the database does not answer \(does not answer\); no task is taken in"],
    ),
    "nothing was ever known of the database": (
        picture(database=[], database_problem="no answer in time"),
        ["the database does not answer"],
    ),
    "no primary, but a majority": (
        picture(database=database(n1="secondary", n2="secondary", n3="down")),
        ["the database has no primary: 2 of 3 members are up and elect one"],
    ),
    "no primary in a minority": (
        picture(database=database(n1="secondary", n2="down", n3="down")),
        [r"the database has lost its majority: 1 of 3 members is up; .* \(n2, n3\)"],
    ),
    "a database member is down": (
        picture(database=database(n1="primary", n2="down", n3="secondary")),
        ["database member n2 is down: 2 of 3 members are left, and no .* `oj remove n2`"],
    ),
    "a database member syncs": (
        picture(database=database(n1="primary", n2="syncing", n3="secondary")),
        ["database member n2 is syncing: 2 of 3 .* until it is through"],
    ),
    "a member without a vote is down": (
        picture(
            database=[
                *database(n1="primary", n2="secondary", n3="secondary"),
                DatabaseMember("n8", "n8:7503", "down", healthy=False, voter=False),
            ]
        ),
        ["database member n8 is down: 3 of 3 members are left; look"],
    ),
    "a member is far behind": (
        picture(
            database=[
                *database(n1="primary", n2="secondary"),
                DatabaseMember("n3", "n3:7503", lag_ms=35_500),
            ]
        ),
        ["database member n3 is 35 s behind"],
    ),
    "nobody leads": (
        picture(judicators=[Judicator("n1", "n1:7500")]),
        ["no judicator leads"],
    ),
    "who leads is not known": (
        picture(judicators=[Judicator("n1", "n1:7500")], leader_known=False),
        [],
    ),
    "a judicator hangs": (
        picture(
            judicators=[
                Judicator("n1", "n1:7500", leader=True),
                Judicator("n2", "n2:7500", healthy=False),
            ]
        ),
        ["judicator n2 does not answer at n2:7500; look at `systemctl status oj-judicator`"],
    ),
    "no executor yet": (picture(executors=[]), ["no executor takes tasks.*oj setup executor"]),
    "executors could not be asked": (picture(executors=None), []),
    "a silent, a sick, a drained and a good executor": (
        picture(
            executors=[
                ExecutorSeen("ex-1", silent=True),
                ExecutorSeen("ex-2", state="sick", message="the canary failed"),
                ExecutorSeen("ex-3", drained=True),
                ExecutorSeen("ex-4"),
            ]
        ),
        ["executor ex-1 is silent", r"executor ex-2 is sick \(the canary failed\); .*oj doctor"],
    ),
    "the worst comes first": (
        picture(
            etcd=etcd("n1 n2", "n3"),
            database=database(n1="secondary", n2="down", n3="down"),
            executors=None,
        ),
        ["the database has lost its majority", "etcd member n3"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_trouble_is_told_with_what_to_do(name: str) -> None:
    seen, expected = CASES[name]
    found = find_troubles(seen)
    assert len(found) == len(expected), found
    for sentence, pattern in zip(found, expected, strict=True):
        assert sentence == pattern or re.match(pattern, sentence), sentence
