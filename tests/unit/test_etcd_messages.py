"""The hand-made messages against those of the library, as far as it knows them."""

from __future__ import annotations

from contextlib import suppress

import pytest
from etcd3 import etcdrpc
from hypothesis import given
from hypothesis import strategies as st

from oj import etcdmessages
from oj.etcdmessages import Member

IDS = st.integers(0, (1 << 64) - 1)
TEXTS = st.lists(st.text(max_size=20), max_size=3)


@given(IDS, IDS, st.text(max_size=10), TEXTS, TEXTS)
def test_members_are_read_as_the_library_writes_them(
    cluster_id: int, member_id: int, name: str, peers: list[str], clients: list[str]
) -> None:
    written = etcdrpc.MemberListResponse(
        header=etcdrpc.ResponseHeader(cluster_id=cluster_id, member_id=1, revision=5),
        members=[etcdrpc.Member(ID=member_id, name=name, peerURLs=peers, clientURLs=clients)] * 2,
    ).SerializeToString()
    assert etcdmessages.read_members(written) == (
        cluster_id,
        [Member(member_id, name, tuple(peers), tuple(clients))] * 2,
    )


@given(IDS, IDS, IDS)
def test_a_status_is_read_as_the_library_writes_it(member_id: int, leader: int, size: int) -> None:
    written = etcdrpc.StatusResponse(
        header=etcdrpc.ResponseHeader(cluster_id=9, member_id=member_id, revision=5),
        version="3.4.23",
        dbSize=size >> 1,
        leader=leader,
    ).SerializeToString()
    status = etcdmessages.read_status(written)
    assert (status.id, status.leader_id, status.db_size_bytes) == (member_id, leader, size >> 1)
    assert (status.version, status.cluster_id, status.revision) == ("3.4.23", 9, 5)
    assert not status.learner
    assert etcdmessages.read_status(written + b"\x50\x01").learner


@given(IDS, st.text(max_size=30))
def test_requests_are_written_as_the_library_reads_them(member_id: int, url: str) -> None:
    removal = etcdrpc.MemberRemoveRequest.FromString(etcdmessages.write_id(member_id))
    assert member_id == removal.ID
    update = etcdrpc.MemberUpdateRequest.FromString(etcdmessages.write_update(member_id, url))
    assert (update.ID, list(update.peerURLs)) == (member_id, [url])
    addition = etcdmessages.write_add(url, learner=True)
    assert list(etcdrpc.MemberAddRequest.FromString(addition).peerURLs) == [url]
    assert addition.endswith(b"\x10\x01")  # field 2, true: a learner


@given(st.binary(max_size=100))
def test_what_is_no_message_is_a_value_error(data: bytes) -> None:
    with suppress(ValueError):
        etcdmessages.read(data)


@pytest.mark.parametrize("data", [b"\x08", b"\x0a\x05abc", b"\x0b", b"\x08" + b"\xff" * 11])
def test_a_message_that_ends_too_early_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        etcdmessages.read(data)
