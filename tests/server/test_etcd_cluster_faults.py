"""Real etcd members that lose their data, are removed, leave and return."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from etcd_nodes import Node, Nodes
from oj.errors import Missing, Refused, Rejected
from oj.etcd import membership
from oj.etcd.datadir import DataDirectory
from oj.loopback_guard import heed_word
from servers import wait_until


@pytest.fixture
def nodes(directory: Path) -> Iterator[Nodes]:
    with contextlib.closing(Nodes(directory)) as made:
        yield made


@pytest.fixture
def three(nodes: Nodes) -> list[Node]:
    return nodes.start_three()


def test_data_that_was_lost_is_replaced_by_joining_anew(three: list[Node]) -> None:
    n1, n2, n3 = three
    n1.write("key", "value")
    before = n1.member("n2").id
    n2.kill()
    shutil.rmtree(n2.data)
    n2.start()
    n2.wait_value("key", "value")
    n3.wait_lists("n1", "n2", "n3")
    wait_until(lambda: n3.member("n2").id != before, 60, "another n2")


def test_all_start_again_on_their_data(three: list[Node]) -> None:
    three[0].write("key", "value")
    notes = DataDirectory(three[2].data)  # n2 is in them a moment after it got its vote
    wait_until(lambda: {"n1", "n2"} <= set(notes.read_known().names), 60, "n3 to know both")
    three[0].kill()
    three[1].kill()
    # Whether it has been up or comes up: it is not to blame, and says who is.
    missing = "2 of 3 members must run; n1, n2 do not answer; start oj-etcd there"
    assert three[2].daemon
    three[2].daemon.wait_status(f"^degraded: member n3: {missing}$")
    three[2].kill()
    alone = three[2].start(wait=False)
    alone.wait_status(f"^waiting: {missing}$")
    daemons = [*(node.start(wait=False) for node in three[:2]), alone]
    for daemon in daemons:
        daemon.wait_ready(120)
        assert "starting again" in daemon.statuses[0]
    three[1].wait_value("key", "value")


def test_a_member_that_was_removed_sets_its_data_aside_and_joins_anew(three: list[Node]) -> None:
    n1, n2, _ = three
    n1.write("key", "value")
    membership.remove_member([n1.endpoint], "n2")
    assert n2.daemon.wait(60) == 1
    daemon = n2.start()  # as systemd would
    assert any("was removed from its cluster" in status for status in daemon.statuses)
    n2.wait_value("key", "value")
    n1.wait_lists("n1", "n2", "n3")
    [aside] = n2.data.glob("set-aside-*")
    assert (aside / "member" / "wal").is_dir()
    with pytest.raises(Missing):
        membership.remove_member([n1.endpoint], "n9")


def test_who_leaves_stays_away_until_told_and_nobody_leaves_against_the_majority(
    three: list[Node],
) -> None:
    n1, n2, n3 = three
    membership.leave(n3.settings())
    assert n3.daemon.wait(60) == 1
    n1.wait_lists("n1", "n2")
    away = n3.start(wait=False)
    assert away.wait(30) == 78
    away.wait_status("oj setup judicator --join")
    # Of two, one that is down cannot be done without.
    n2.kill()
    for refused in (
        lambda: membership.leave(n1.settings()),
        lambda: membership.remove_member([n1.endpoint], "n2"),
    ):
        with pytest.raises(Rejected, match="no majority"):
            refused()
    assert not (n1.data / "left").exists()
    n2.start()
    # Told to come back.
    (n3.data / "left").unlink()
    n3.start()
    n1.wait_lists("n1", "n2", "n3")


def test_the_first_member_does_not_make_a_second_cluster_when_its_data_is_lost(
    three: list[Node],
) -> None:
    n1, n2, _ = three
    n2.write("key", "value")
    assert not n1.cluster, "it has nothing in its file that tells of the others"
    n1.kill()
    shutil.rmtree(n1.data)
    n1.start()
    n1.wait_value("key", "value")
    n2.wait_lists("n1", "n2", "n3")


def test_data_deleted_under_a_running_member_makes_it_join_anew(three: list[Node]) -> None:
    n1, n2, _ = three
    before = n1.member("n2").id
    shutil.rmtree(n2.data / "member")
    assert n2.daemon.wait(60) == 1
    assert "is gone" in n2.daemon.log()
    n2.start()
    n1.wait_lists("n1", "n2", "n3")
    wait_until(lambda: n1.member("n2").id != before, 60, "another n2")


def test_data_that_cannot_be_read_is_set_aside_where_others_have_it(three: list[Node]) -> None:
    n1, n2, _ = three
    n2.kill()
    log = sorted((n2.data / "member" / "wal").glob("*.wal"))[0]
    content = bytearray(log.read_bytes())
    content[500:600] = b"\xff" * 100
    log.write_bytes(content)
    failed = n2.start(wait=False)
    assert failed.wait(60) == 1
    daemon = n2.start()
    assert any("the data is of no use" in status for status in daemon.statuses)
    n1.wait_lists("n1", "n2", "n3")


def knows_others(node: Node, nodes: list[Node]) -> bool:
    others = {other.client for other in nodes if other is not node}
    return set(DataDirectory(node.data).read_known().clients) == others


def test_one_survivor_goes_on_alone_when_told_and_the_others_join_it(three: list[Node]) -> None:
    n1, n2, n3 = three
    n1.write("key", "value")
    # Each notes who belongs to the cluster every few seconds.
    wait_until(lambda: all(knows_others(node, three) for node in three), 60, "all to know all")
    n1.kill()
    with pytest.raises(Rejected, match="answers"):
        membership.force_new_cluster(n3.settings())
    # Not even when the mark is there.
    n3.daemon.stop()
    (n3.data / "recover").touch()
    refused = n3.start(wait=False)
    assert refused.wait(60) == 78
    refused.wait_status("not recovered")
    n2.kill()
    membership.force_new_cluster(n3.settings())
    n3.start()
    assert not (n3.data / "recover").exists()
    n3.wait_value("key", "value")
    n3.wait_lists("n3")
    for node in (n1, n2):
        node.start()
        assert list(node.data.glob("set-aside-*"))
    n3.wait_lists("n1", "n2", "n3")
    n1.wait_value("key", "value")


def copy(original: Node, number: int, *but: str) -> Node:
    """A node with the data of another one, as it is on the disk of a machine that was cloned."""
    clone = original.nodes.make(number)
    clone.name = original.name
    shutil.copytree(original.data, clone.data, ignore=shutil.ignore_patterns(*but))
    return clone


def assert_refused(clone: Node, original: Node) -> None:
    daemon = clone.start(wait=False)
    assert daemon.wait(60) == 78
    daemon.wait_status(f"a copy of {original.name}'s, which runs at {original.client}")
    daemon.wait_status("oj setup judicator --join")


def test_a_copy_of_a_member_that_runs_does_not_start_beside_it(three: list[Node]) -> None:
    n1, n2, _ = three
    n1.write("key", "value")
    wait_until(lambda: all(knows_others(node, three) for node in three), 60, "all to know all")
    before = n2.member("n1")
    clone = copy(n1, 8)
    assert_refused(clone, n1)
    # Another node may be told to it, and its own notes be gone.
    (clone.data / "known-members").unlink()
    clone.cluster = f"join = {n2.client}"
    assert_refused(clone, n1)
    # With nothing of the data, but all of the files: it does not take the place of the living.
    shutil.rmtree(clone.data)
    clone.top = f"advertise = {n1.host}\n"
    wait_clone = clone.start(wait=False)
    wait_clone.wait_status(f"n1 runs at {n1.client}, which etcd.conf names as the address of this")
    wait_clone.close()
    assert n2.member("n1").id == before.id and n2.member("n1").peer_urls == before.peer_urls
    n2.wait_lists("n1", "n2", "n3")


def test_a_copy_of_an_only_member_is_no_second_cluster_of_the_same_number(nodes: Nodes) -> None:
    n1 = nodes.make(1)
    n1.start()
    n1.write("key", "value")
    clone = copy(n1, 8)
    clone.cluster = f"join = {n1.client}"
    assert_refused(clone, n1)
    n1.wait_lists("n1")
    # When the original is gone for good, its copy is as good.
    n1.kill()
    clone.start()
    clone.wait_value("key", "value")


def test_a_member_whose_files_know_only_loopback_does_not_return_to_other_machines(
    three: list[Node], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n1, _, n3 = three
    before = n1.member("n3").peer_urls
    n3.kill()
    # As on a node of a real cluster: the others have addresses of their own.
    directory = DataDirectory(n3.data)
    known = directory.read_known()
    directory.write_known(replace(known, clients=("10.9.0.1:7501", *known.clients)))
    for unit in ("etcd", "mongodb"):
        (tmp_path / unit).mkdir()
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "etcd"))
    away = n3.start(wait=False)
    assert away.wait(60) == 78
    away.wait_status("oj setup judicator --join 10.9.0.1")
    assert n1.member("n3").peer_urls == before
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "mongodb"))
    with pytest.raises(Refused, match="oj setup judicator"):
        heed_word([n3.endpoint])
    # With the files mended, it goes on with its data.
    directory.write_known(known)
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "etcd"))
    n3.start()
    n1.wait_lists("n1", "n2", "n3")
    assert list((tmp_path / "etcd").iterdir()) == []


def test_a_loopback_address_is_not_told_to_others_though_the_notes_of_them_are_gone(
    three: list[Node],
) -> None:
    n1, n2, n3 = three
    before = n1.member("n3").peer_urls
    for node in (n2, n3):
        node.kill()
    # As on a node of a real cluster: another has an address of its own.
    n3.daemon = n3.start()
    with membership.connect(n1.client) as connection:
        connection.update_member(n1.member("n2").id, "http://10.9.0.2:7502", timeout_s=8)
    n3.kill()
    (n3.data / "known-members").unlink()
    n3.top = "advertise = 127.0.0.77\n"
    away = n3.start(wait=False)
    assert away.wait(60) == 78
    away.wait_status("oj setup judicator --join 10.9.0.2")
    n3.top = ""
    n3.start()
    assert n1.member("n3").peer_urls == before
