"""Which node may go: never one whose going would take a majority away."""

import os
import socket
import subprocess
import time

import pytest

import servers
from oj.errors import Rejected, Unavailable
from oj.etcd.decisions import MemberSeen
from oj.mongodb.replicaset import SetMember
from oj.node.departure import Traces
from oj.node.member import refuse_copy, refuse_without_databases, refuse_without_members
from oj.node.recovery import knock
from oj.node.steps import wait_for


def members(*well):
    return [
        MemberSeen(id=i, name=f"n{i}", peer_urls=(f"http://n{i}:7502",), healthy=healthy)
        for i, healthy in enumerate(well, 1)
    ]


@pytest.mark.parametrize(
    ("well", "name", "why"),
    [
        ((True, True, True), "n3", None),
        ((True, True, False), "n3", None),  # it is down: the two that stay are well
        ((True, True, False), "n1", "only 1 of the 2 members that would stay"),
        ((True, True), "n2", None),
        ((True, False), "n2", "only 1 of 2 members are well"),
        ((True, False, False), "n3", "only 1 of 3 members are well"),
        ((True,), "n1", "the last member"),
        ((True, False, False), "elsewhere", None),
    ],
)
def test_a_member_goes_only_if_those_that_stay_have_a_majority(well, name, why):
    if why is None:
        refuse_without_members(members(*well), name)
        return
    with pytest.raises(Rejected, match=why):
        refuse_without_members(members(*well), name)


def test_a_copy_of_a_members_disk_does_not_take_the_member_out():
    with pytest.raises(Rejected, match="a copy of n2's, which runs at n2 and would be taken out"):
        refuse_copy(members(True, True, True), 2, lambda host: host == "n7")
    refuse_copy(members(True, True, True), 2, lambda host: host == "n2")
    refuse_copy(members(True, False, True), 2, lambda host: host == "n7")  # nothing runs there
    refuse_copy(members(True, True, True), 0, lambda host: host == "n7")  # no data


def databases(**states):
    return [
        SetMember(name, state, healthy=state != "down", lag_s=0.0, votes=not state.endswith("-"))
        for name, state in states.items()
    ]


@pytest.mark.parametrize(
    ("states", "host", "why"),
    [
        ({"a": "primary", "b": "secondary", "c": "secondary"}, "a", None),
        ({"a": "primary", "b": "secondary", "c": "down"}, "c", None),
        ({"a": "primary", "b": "secondary", "c": "down"}, "b", "only 1 of the 2 databases"),
        ({"a": "primary", "b": "syncing-"}, "a", "no other database has a vote yet"),
        ({"a": "primary"}, "a", "no other database has a vote yet"),
        ({"a": "primary"}, "elsewhere", None),
    ],
)
def test_a_database_goes_only_if_those_that_stay_have_a_majority(states, host, why):
    if why is None:
        refuse_without_databases(databases(**states), "n1", host)
        return
    with pytest.raises(Rejected, match=why):
        refuse_without_databases(databases(**states), "n1", host)


def test_a_node_without_any_trace_is_told_from_one_with_some():
    assert Traces("n1").none
    assert not Traces("n1", executor=True).none
    assert not Traces("n1", gateway=True).none


def test_who_listens_is_found_by_knocking():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # bound, but nobody listens
        listening = server.getsockname()
        assert knock({listening, silent.getsockname()}) == [listening]
    assert knock(set()) == []


def test_waiting_tells_what_for_and_why_it_was_in_vain():
    told = []

    def condition():
        raise Unavailable("nobody is there")

    began_s = time.monotonic()
    with pytest.raises(Unavailable, match=r"it happens: not within 0.1 s \(nobody is there\)"):
        wait_for(condition, 0.1, told.append, "it happens")
    assert told == ["it happens (nobody is there)"]
    assert time.monotonic() - began_s >= 0.1


@pytest.mark.parametrize(
    "words",
    [
        "leave --dry-run",
        "remove n1 --dry-run",
        "recover --only-survivor n1 --dry-run",
        "backup FILE --etc DIRECTORY",
    ],
)
def test_a_node_that_has_no_driver_for_the_database_does_without(tmp_path, words):
    """As executors and gateways have none."""
    (tmp_path / "pymongo.py").write_text("raise ModuleNotFoundError(\"No module named 'pymongo'\")")
    path = os.pathsep.join((str(tmp_path), str(servers.TREE / "daemons")))
    words = words.replace("FILE", str(tmp_path / "b")).replace("DIRECTORY", str(tmp_path))
    done = subprocess.run(
        [servers.PYTHON, str(servers.TREE / "daemons/bin/oj"), *words.split()],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        timeout=60,
    )
    # What it says depends on the machine: nothing to do, or that it must be done elsewhere.
    assert done.returncode in (0, 2, 3), done.stdout + done.stderr
    assert done.stderr.count("\n") <= 1
