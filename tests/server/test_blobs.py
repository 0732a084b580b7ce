"""Blobs over Thrift: sent in pieces, checked, stored once, read by range."""

from __future__ import annotations

import hashlib
import os
import resource
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pymongo
import pytest

import servers
from executors import Caller, FakeExecutor, JudicatorUnderTest
from oj.errors import Rejected, Unavailable
from oj.judicator.store.blobs import Blobs
from oj.rpc import ttypes as rpc


def digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def send(caller: Caller, data: bytes, piece: int = 1 << 20) -> str:
    digest = digest_of(data)
    for offset in range(0, max(1, len(data)), piece):
        part = data[offset : offset + piece]
        last = offset + piece >= len(data)
        assert caller.putBlob(digest, offset, part, last) == offset + len(part)
    return digest


def push(caller: Caller, data: bytes) -> None:
    """Sends a blob as others may be doing, going on wherever the judicator says."""
    digest, offset = digest_of(data), 0
    while offset < len(data):
        part = data[offset : offset + 200_000]
        offset = caller.putBlob(digest, offset, part, offset + len(part) == len(data))


@pytest.mark.parametrize("size", [0, 1, 70_000, 261_120, 261_121, 3 << 20])
def test_a_blob_comes_back_as_it_was_sent(caller: Caller, size: int) -> None:
    data = os.urandom(size)
    digest = digest_of(data)
    send(caller, data)
    assert caller.hasBlobs({digest, "0" * 64}) == {digest}
    got = b""
    while piece := caller.getBlob(digest, len(got), 1 << 20):
        got += piece
    assert got == data


def test_ranges_are_read_by_themselves(caller: Caller) -> None:
    data = os.urandom(600_000)
    digest = send(caller, data)
    for offset, length in ((0, 1), (261_119, 2), (100, 300_000), (599_990, 1000), (600_000, 5)):
        assert caller.getBlob(digest, offset, length) == data[offset : offset + length]
    assert caller.getBlob(digest, 10**12, 5) == b""
    assert len(caller.getBlob(digest, 0, 2**31 - 1)) == len(data)


def test_a_blob_with_a_wrong_digest_is_refused_and_not_kept(caller: Caller) -> None:
    digest = digest_of(os.urandom(10))
    with pytest.raises(rpc.InvalidRequest) as error:
        caller.putBlob(digest, 0, b"something else", True)
    assert error.value.field == "digest"
    assert caller.hasBlobs({digest}) == set()
    assert caller.putBlob(digest, 14, b"more", True) == 0  # nothing of it is left


def test_an_interrupted_sender_is_told_where_to_go_on(
    judicator: JudicatorUnderTest, caller: Caller
) -> None:
    data = os.urandom(3000)
    digest = digest_of(data)
    assert caller.putBlob(digest, 1000, data[1000:], True) == 0  # not begun here
    assert caller.putBlob(digest, 0, data[:1000], False) == 1000
    again = judicator.call()
    assert again.putBlob(digest, 0, data[:1000], False) == 1000
    assert again.putBlob(digest, 2000, data[2000:], True) == 1000
    assert again.putBlob(digest, 1000, data[1000:], True) == 3000
    assert again.hasBlobs({digest}) == {digest}


def test_a_blob_that_is_stored_already_is_not_sent_again(caller: Caller) -> None:
    data = os.urandom(5000)
    digest = send(caller, data)
    assert caller.putBlob(digest, 0, b"whatever", False) == 5000


def test_too_large_pieces_and_blobs_are_refused(caller: Caller) -> None:
    with pytest.raises(rpc.TooLarge) as error:
        caller.putBlob("0" * 64, 0, b"x" * ((1 << 20) + 1), False)
    assert error.value.limit_bytes == 1 << 20
    with pytest.raises(rpc.TooLarge) as error:
        caller.putBlob("0" * 64, 256 << 20, b"x", False)
    assert error.value.limit_bytes == 256 << 20


def test_many_senders_of_the_same_blob_store_it_once(
    judicator: JudicatorUnderTest, mongod: servers.Mongod
) -> None:
    data = os.urandom(900_000)
    digest = digest_of(data)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: push(judicator.call(), data), range(6)))
    client: Any = pymongo.MongoClient(mongod.uri)
    files = client[judicator.database]["blobs.files"]
    assert files.count_documents({"filename": digest}) == 1
    assert files.count_documents({"under_way": True}) == 0
    client.close()


def test_senders_at_two_judicators_store_it_once(
    judicator: JudicatorUnderTest,
    start_judicator: Callable[..., JudicatorUnderTest],
    mongod: servers.Mongod,
) -> None:
    other = start_judicator(name="j2", database=judicator.database, prefix=judicator.prefix)
    data = os.urandom(2_000_000)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda j: push(j.call(), data), (judicator, other)))
    client: Any = pymongo.MongoClient(mongod.uri)
    database = client[judicator.database]
    (file,) = database["blobs.files"].find({"filename": digest_of(data)})
    pieces = database["blobs.chunks"].count_documents({"files_id": file["_id"]})
    assert pieces == -(-len(data) // file["chunkSize"])
    client.close()


def test_a_task_may_name_stored_blobs(
    caller: Caller, executor: Callable[..., FakeExecutor], task: Callable[..., Any]
) -> None:
    ex = executor()
    digest = send(caller, os.urandom(100_000))
    tests = [rpc.Test(input=rpc.Data(None, digest), expected=rpc.Data(b"x"))]
    task_id = caller.add(task(tests=tests))
    (assigned,) = [a for a in ex.take(10) if a.id == task_id]
    assert assigned.task.tests[0].input.digest == digest


def test_half_sent_blobs_do_not_survive_a_restart(
    start_judicator: Callable[..., JudicatorUnderTest],
) -> None:
    one = start_judicator()
    data = os.urandom(1000)
    digest = digest_of(data)
    assert one.call().putBlob(digest, 0, data[:500], False) == 500
    spool = one.directory / "state" / "spool"
    assert len(list(spool.iterdir())) == 1
    one.daemon.kill()
    one.start_again()
    assert not list(spool.iterdir())
    assert one.call().putBlob(digest, 500, data[500:], True) == 0


def test_a_piece_that_found_no_room_does_no_harm_when_it_comes_again(
    make_database: Callable[[], Any], tmp_path: Path
) -> None:
    blobs = Blobs(make_database(), tmp_path / "spool")
    blobs.make_indexes()
    data = os.urandom(2 << 20)
    digest, half = digest_of(data), 1 << 20
    assert blobs.put(digest, 0, data[:half], False) == half
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # As on a full disk, a part of the piece still finds room.
    resource.setrlimit(resource.RLIMIT_FSIZE, (half + 1000, hard))
    try:
        with pytest.raises(Unavailable, match="cannot be kept"):
            blobs.put(digest, half, data[half:], True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert blobs.put(digest, half, data[half:], True) == len(data)
    assert blobs.get(digest, 0, half) + blobs.get(digest, half, half) == data


def test_a_sender_of_a_blob_that_was_given_up_begins_anew(
    make_database: Callable[[], Any], tmp_path: Path
) -> None:
    blobs = Blobs(make_database(), tmp_path / "spool")
    blobs.make_indexes()
    data = os.urandom(1000)
    digest = digest_of(data)
    assert blobs.put(digest, 0, data[:500], False) == 500
    with pytest.raises(Rejected, match="does not have this digest"):
        blobs.put(digest, 500, b"something else", True)
    assert not list((tmp_path / "spool").iterdir())
    assert blobs.put(digest, 500, data[500:], True) == 0
    assert blobs.put(digest, 0, data, True) == 1000
    assert blobs.get(digest, 0, 1000) == data
