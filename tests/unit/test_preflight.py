"""What `oj setup` makes of what it tried: which sentence, and whether it goes on."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from oj.node import port_holders, preflight
from oj.node.preflight import REFUSED, Heard, Listeners, Port, Room, Seen, Target, judge

PORTS = (
    Port(7500, "judicator", "judicator"),
    Port(7501, "etcd, clients", "etcd"),
    Port(7503, "mongod", "mongodb"),
)
GATEWAY = Port(7580, "gateway", "gateway", needed=False)
WELL = Heard("n1", version="0.2.0", seen_as="10.0.0.3")
SEEN = Seen(joins=True, member=True, version="0.2.0", address="10.0.0.3", heard=(WELL,))


def heard(**fields):
    return replace(SEEN, heard=(replace(WELL, **fields),))


def test_where_all_is_well_nothing_is_said():
    assert judge(SEEN) == preflight.Judgement((), ())
    assert judge(Seen(joins=False, member=True, version="0.2.0")) == preflight.Judgement((), ())


def test_a_closed_firewall_is_named_with_ports_direction_and_rules():
    closed = tuple((port, "no answer in 2.5 s") for port in PORTS)
    (told,) = judge(heard(closed=closed)).refusals
    assert told.startswith(
        "n1 does not reach this node at 10.0.0.3, TCP 7500 (judicator), 7501 (etcd, clients), "
        "7503 (mongod): no answer in 2.5 s. A firewall is closed"
    )
    assert "administrator.md, 'Firewall'" in told


def test_a_daemon_that_is_not_up_yet_is_no_closed_firewall():
    closed = tuple((port, "connection refused") for port in PORTS[:2])
    (told,) = judge(replace(heard(closed=closed), started=True)).refusals
    assert told == (
        "nothing listens yet where n1 would reach this node at 10.0.0.3, TCP 7500 (judicator), "
        "7501 (etcd, clients)"
    )
    # Before anything was started this process answers, and only something on the way refuses.
    assert "A firewall is closed" in judge(heard(closed=closed)).refusals[0]


def test_what_was_found_at_another_address_is_no_hindrance():
    # As behind a translation of what goes out: the advertised address was not tried.
    there = {"seen_as": "10.9.9.9"}
    (told,) = judge(heard(**there)).notes
    assert told == "n1 sees this node at 10.9.9.9, not at 10.0.0.3: the ports were tried there"
    closed = tuple((port, "no answer in 2.5 s") for port in (PORTS[0], GATEWAY))
    judged = judge(heard(closed=closed, strange=(PORTS[2],), **there))
    assert judged.refusals == ()
    assert judged.notes == (
        "n1 sees this node at 10.9.9.9, not at 10.0.0.3: the ports were tried there, TCP 7500 "
        "(judicator), 7580 (gateway): no answer in 2.5 s; 7503 (mongod): something else answers; "
        "see that n1 reaches this node at 10.0.0.3",
    )
    # One that sees it there has tried it.
    both = (replace(WELL, closed=closed[:1]), replace(WELL, node="n2", closed=closed, **there))
    (told,) = judge(replace(SEEN, heard=both)).refusals
    assert told.startswith("n1 does not reach this node at 10.0.0.3, TCP 7500 (judicator): no")


def test_judicators_that_find_the_same_share_a_sentence():
    closed = ((PORTS[0], "no answer"), (PORTS[2], "no route to host"))
    both = (replace(WELL, closed=closed), replace(WELL, node="n2", closed=closed))
    (told,) = judge(replace(SEEN, heard=both)).refusals
    assert told.startswith(
        "n1, n2 do not reach this node at 10.0.0.3, TCP 7500 (judicator): no answer; "
        "7503 (mongod): no route to host."
    )


def test_a_port_that_only_people_use_is_worth_a_note():
    judged = judge(heard(closed=((GATEWAY, "no answer"),)))
    assert not judged.refusals and "7580 (gateway)" in judged.notes[0]


def test_another_machine_at_the_address_is_noticed():
    (told,) = judge(heard(strange=(PORTS[0],))).refusals
    assert "something else than this machine answers n1 at 10.0.0.3" in told


def test_a_port_in_use_is_named_with_the_way_to_find_who_has_it():
    (told,) = judge(replace(SEEN, taken=(PORTS[2],))).refusals
    assert "port 7503 (mongod) is in use" in told and "ss -ltnp sport = :7503" in told


@pytest.mark.parametrize("problem", ["no answer in 3 s", "no route to host"])
def test_ports_of_others_that_are_not_reached_are_named(problem):
    targets = tuple(Target("n2", ("10.0.0.2", n), w) for n, w in ((7501, "etcd"), (7503, "mongod")))
    (told,) = judge(replace(SEEN, unreached=tuple((t, problem) for t in targets))).refusals
    assert told.startswith(
        f"this node does not reach n2 at 10.0.0.2, TCP 7501 (etcd), 7503 (mongod): {problem}."
    )


def test_a_name_that_is_not_known_here_is_not_blamed_on_a_firewall():
    unknown = Target("n2", ("n2.invalid", 7500), "judicator")
    silent = Target("n2", ("10.0.0.2", 7501), "etcd")
    unreached = ((unknown, "name or service not known"), (silent, "no answer in 3 s"))
    closed, other = judge(replace(SEEN, unreached=unreached)).refusals
    assert closed.startswith("this node does not reach n2 at 10.0.0.2, TCP 7501 (etcd): no answer")
    assert "A firewall is closed" in closed
    assert other == (
        "this node does not reach n2 at n2.invalid, TCP 7500 (judicator): name or service not known"
    )


@pytest.mark.parametrize("code", [errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EPERM])
def test_what_a_firewall_answers_is_blamed_on_it(code):
    problem = os.strerror(code).lower()
    unreached = ((Target("n2", ("10.0.0.2", 7500), "judicator"), problem),)
    (told,) = judge(replace(SEEN, unreached=unreached)).refusals
    assert f"{problem}. A firewall is closed" in told


def test_who_only_uses_judicators_does_with_one_of_them():
    closed = tuple(
        (Target("n2", ("10.0.0.2", n), w), "no route to host")
        for n, w in ((7500, "judicator"), (7501, "etcd, clients"))
    )
    both = (WELL, replace(WELL, node="n2", problem="no route to host", seen_as=""))
    seen = replace(SEEN, member=False, heard=both, unreached=closed)
    (told,) = judge(seen).notes
    assert not judge(seen).refusals
    assert "this node does not reach n2 at 10.0.0.2, TCP 7500 (judicator), 7501" in told
    # A member needs each of the others, and nobody does without any.
    assert len(judge(replace(seen, member=True)).refusals) == 1
    assert len(judge(replace(seen, heard=both[1:])).refusals) == 1
    refused = (Target("n1", ("10.0.0.1", 7500), "judicator"), REFUSED)
    assert len(judge(replace(seen, unreached=(refused, *closed))).refusals) == 1


def test_where_nothing_listens_just_now_is_no_hindrance():
    target = Target("n2", ("10.0.0.2", 7503), "mongod")
    judged = judge(replace(SEEN, unreached=((target, REFUSED),)))
    assert not judged.refusals and "n2, TCP 10.0.0.2:7503 (mongod)" in judged.notes[0]


@pytest.mark.parametrize(
    ("behind_s", "member", "kind", "words"),
    [
        (0.4, True, None, ""),
        (1.5, True, "note", "1.5 s behind n1's"),
        (-1.5, True, "note", "1.5 s ahead of n1's"),
        (5.5, True, "refusal", "5.5 s behind n1's, and 5 s is the most"),
        (-6.0, True, "refusal", "6.0 s ahead of n1's"),
        (6.0, False, "note", "6.0 s behind"),
        (-75.0, False, "refusal", "75.0 s ahead of n1's, and 60 s is the most"),
    ],
)
def test_a_wrong_clock_is_told_and_one_that_breaks_leases_refused(behind_s, member, kind, words):
    judged = judge(replace(heard(behind_s=behind_s), member=member))
    told = {"refusal": judged.refusals, "note": judged.notes}
    for name, sentences in told.items():
        assert len(sentences) == (name == kind)
        assert all(words in one and "timedatectl" in one for one in sentences)


@pytest.mark.parametrize(
    ("theirs", "kind", "words"),
    [
        ("0.2.0", None, ""),
        ("0.2.0+newer", "note", "oj on n1 is 0.2.0+newer, and 0.2.0 here"),
        ("0.1.0", "note", "they work together"),
        ("1.0.0", "refusal", "'apt upgrade' here first"),
    ],
)
def test_versions_that_cannot_work_together_are_refused(theirs, kind, words):
    judged = judge(heard(version=theirs))
    assert len(judged.refusals) == (kind == "refusal")
    assert len(judged.notes) == (kind == "note")
    assert words in " ".join([*judged.refusals, *judged.notes])


def test_a_newer_node_asks_for_an_upgrade_there():
    (told,) = judge(replace(heard(version="1.2.0"), version="2.0.0")).refusals
    assert "'apt upgrade' there first" in told


def test_a_name_in_use_is_refused_with_the_ways_out():
    seen = replace(SEEN, executor="e1", executors=("e1", "e2"))
    (told,) = judge(seen).refusals
    for words in (
        "an executor e1 that lives",
        "--name",
        "'oj leave' there",
        "'oj remove e1'",
        "half a minute",
    ):
        assert words in told
    assert not judge(replace(seen, executor="e3")).refusals


def test_too_little_room_is_refused_with_both_numbers():
    room = Room(Path("/var/lib/oj/mongodb"), 1 << 30)
    (told,) = judge(replace(SEEN, low=((room, 80 << 20),))).refusals
    assert "/var/lib/oj/mongodb has 80 MB free, and needs 1024" in told


def test_rooms_of_one_file_system_are_added_up():
    rooms = [Room(Path(f"/proc/self/{n}"), n << 20) for n in (1, 2)]
    rooms.append(Room(Path("/sys/there/is/none"), 4 << 20))
    one, other = preflight.share_rooms(rooms)
    assert one == Room(rooms[0].path, 3 << 20, (rooms[1].path,)) and other == rooms[2]
    (told,) = judge(replace(SEEN, low=((one, 1 << 20),))).refusals
    assert "/proc/self/1, /proc/self/2 have 1 MB free, and together need 3: make room" in told


def test_an_older_judicator_is_told_in_a_line_and_not_waited_for():
    judged = judge(heard(old=True, seen_as=""))
    assert not judged.refusals
    assert judged.notes == (
        "n1 runs oj 0.2.0, which cannot connect back: whether it reaches this node was not tried",
    )


def test_that_nobody_could_be_asked_is_told():
    judged = judge(heard(problem="connection refused", version="", seen_as=""))
    assert not judged.refusals and "no judicator of the cluster answers" in judged.notes[0]


# --- the parts that look -------------------------------------------------------------------------


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_listener_says_its_word_and_knows_who_called():
    port = Port(free_port(), "judicator", "judicator")
    with (
        Listeners("127.0.0.1", [port], "a word") as listeners,
        socket.create_connection(("127.0.0.1", port.number), 20) as sock,
    ):
        assert sock.recv(100) == b"a word"
        assert listeners.callers == {("127.0.0.1", port.number)}
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port.number), 20)


def test_a_listener_leaves_a_port_in_use_to_its_owner():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = Port(server.getsockname()[1], "judicator", "judicator")
        with Listeners("127.0.0.1", [port], "a word") as listeners:
            assert listeners.taken == [port] and not listeners.foreign


def test_a_daemon_on_loopback_is_not_in_the_way_of_another_address():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = Port(server.getsockname()[1], "judicator", "judicator")
        with Listeners("127.0.0.2", [port], "a word") as listeners:
            assert not listeners.taken
            with contextlib.closing(
                socket.create_connection(("127.0.0.2", port.number), 20)
            ) as sock:
                assert sock.recv(100) == b"a word"


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::", "::1"])
def test_who_listens_on_a_port_is_told_by_the_address(host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        number = int(server.getsockname()[1])
        inode = str(os.fstat(server.fileno()).st_ino)
        assert port_holders.find_listeners("", number) == {inode}
        local = "::1" if host == "::1" else "127.0.0.1"
        assert port_holders.find_listeners(local, number) == {inode}
        elsewhere = port_holders.find_listeners("10.9.0.1", number)
        assert elsewhere == ({inode} if host in ("0.0.0.0", "::") else set())
        # It is no unit's of ours that would, though one may be starting just now.
        assert not port_holders.is_held_by("oj-mongodb", local, number)
    assert not port_holders.find_listeners("", number)


def test_an_address_of_another_machine_is_noticed():
    port = Port(free_port(), "judicator", "judicator")
    with Listeners("192.0.2.77", [port], "a word") as listeners:
        assert listeners.foreign


def test_only_nodes_that_live_are_tried_and_proxies_need_less():
    judicators = {"n1": "10.0.0.1:7500"}
    databases = {"n1": "10.0.0.1:7503", "n9": "10.0.0.9:7503"}
    members = {
        "n1": ("10.0.0.1:7501", "10.0.0.1:7502"),
        "n9": ("10.0.0.9:7501", "10.0.0.9:7502"),
    }
    found = preflight.find_targets(judicators, databases, members, member=True)
    assert [target.address for target in found] == [
        ("10.0.0.1", port) for port in (7500, 7501, 7502, 7503)
    ]
    found = preflight.find_targets(judicators, databases, members, member=False)
    assert [target.address[1] for target in found] == [7500, 7501]
