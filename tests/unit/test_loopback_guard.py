"""A node whose files name loopback addresses does not enter a cluster of several machines."""

import pytest

from oj import loopback_guard
from oj.errors import Refused
from oj.loopback_guard import (
    demand_address,
    describe,
    describe_moved,
    find_others,
    heed_word,
    leave_word,
    take_word_back,
)

LOCAL = [("127.0.0.1", 7501)]


@pytest.mark.parametrize(
    ("own", "others", "found"),
    [
        ("127.0.0.1", ["10.0.0.1:7501", "10.0.0.2:7501"], ("10.0.0.1", "10.0.0.2")),
        ("localhost", ["n1:7501"], ("n1",)),
        ("::1", ["[fd00::1]:7501"], ("fd00::1",)),
        ("127.0.0.1", ["127.0.0.1:8501", "localhost:7501"], ()),  # all on one machine
        ("127.0.0.1", [], ()),
        ("10.0.0.3", ["10.0.0.1:7501"], ()),
    ],
)
def test_others_matter_only_where_this_node_is_told_of_as_loopback(own, others, found):
    assert find_others(own, others) == found


def test_the_refusal_has_the_command_that_mends_it():
    with pytest.raises(Refused) as refused:
        demand_address("mongodb.conf", "127.0.0.1:7503", ["10.0.0.2:7503", "10.0.0.1:7503"])
    assert "mongodb.conf says that others find this node at 127.0.0.1:7503" in str(refused.value)
    assert str(refused.value).endswith("Run: oj setup judicator --join 10.0.0.1")
    demand_address("mongodb.conf", "10.0.0.3:7503", ["10.0.0.2:7503"])


def test_the_only_judicator_is_told_to_set_itself_up_again_and_by_which_name():
    told = describe_moved("etcd.conf", "127.0.0.1:7502", "10.0.0.1")
    assert "they know it at 10.0.0.1" in told and told.endswith("Run: oj setup judicator")
    told = describe_moved("etcd.conf", "127.0.0.1:7502", "10.0.0.1", "n3")
    assert told.endswith("Run: oj setup judicator --name n3")
    told = describe("etcd.conf", "127.0.0.1:7502", ["10.0.0.2"], "n3")
    assert told.endswith("Run: oj setup judicator --join 10.0.0.2 --name n3")


def test_who_would_wait_for_etcd_reads_why_it_refuses(tmp_path, monkeypatch):
    for unit in ("etcd", "mongodb"):
        (tmp_path / unit).mkdir()
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "mongodb"))
    heed_word(LOCAL)
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "etcd"))
    leave_word("it is so")
    assert (tmp_path / "etcd" / loopback_guard.WORD).stat().st_mode & 0o777 == 0o644
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "mongodb"))
    with pytest.raises(Refused, match="oj-etcd refuses to start: it is so"):
        heed_word(LOCAL)
    heed_word([("10.0.0.1", 7501)])  # it does not need the one of this machine
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path / "etcd"))
    take_word_back()
    heed_word(LOCAL)


def test_without_systemd_there_is_no_word(monkeypatch):
    monkeypatch.delenv("RUNTIME_DIRECTORY", raising=False)
    leave_word("lost")
    take_word_back()
    heed_word(LOCAL)
