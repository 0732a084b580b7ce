"""Blobs that no task names are removed, and none that a task names, whoever is first."""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId

import servers
from executors import Caller, FakeExecutor, JudicatorUnderTest
from oj.clock import utc_now
from oj.errors import Missing, Rejected, Unavailable
from oj.judicator.broker import Broker
from oj.judicator.cluster import Cluster
from oj.judicator.leader import Leader
from oj.judicator.settings import Rules
from oj.judicator.store.adding import NewTasks
from oj.judicator.store.blobs import PIECE_BYTES, PIECES_REMOVED, UNUSED_S, Blobs
from oj.judicator.store.counts import Counts
from oj.judicator.store.documents import NewTask
from oj.judicator.store.history import History
from oj.judicator.store.ids import IdMaker
from oj.judicator.store.leadership import Deposed, Leadership, Reign
from oj.judicator.store.roster import Roster
from oj.judicator.store.shares import Shares
from oj.judicator.store.tasks import TaskStore
from oj.model import CHUNK_BYTES
from oj.registry import Registry
from oj.rpc import ttypes as rpc
from oj.settings import parse_address

IDS = IdMaker()
REIGN = Reign("era", 10)


class Node:
    """One judicator's parts that have to do with blobs."""

    def __init__(self, database: Any, directory: Path, name: str) -> None:
        self.database = database
        self.files = database["blobs.files"]
        self.blobs = Blobs(database, directory / name)
        self.adding = NewTasks(database, name)
        self.leadership = Leadership(database, name)

    def send(self, size: int = 300_000) -> str:
        data = os.urandom(size)
        digest = hashlib.sha256(data).hexdigest()
        for offset in range(0, size, CHUNK_BYTES):
            piece = data[offset : offset + CHUNK_BYTES]
            self.blobs.put(digest, offset, piece, offset + len(piece) == size)
        return digest

    def age(self, digest: str, hours: float) -> None:
        """As if that much time had passed."""
        earlier = utc_now() - timedelta(hours=hours)
        changed = self.files.update_one(
            {"filename": digest, "unused": {"$exists": True}}, {"$set": {"unused": earlier}}
        )
        assert changed.matched_count == 1

    def new_task(self, *digests: str) -> NewTask:
        named = {digest: f"source[{i}].data.digest" for i, digest in enumerate(digests)}
        new = self.blobs.check_stored(named)
        return NewTask(IDS.make(), "ann", "c", 0, frozenset(), None, 1, 1, b"task", new_blobs=new)

    def collect(self, reign: Reign = REIGN) -> int:
        """As the leader does; how many are no longer there."""
        unused = self.blobs.find_unused()
        if not unused:
            return 0
        with self.leadership.acting(reign) as session:
            return self.blobs.take_names(unused, session)

    def chunks_of(self, digest: str) -> int:
        file = self.files.find_one({"filename": digest})
        return int(self.database["blobs.chunks"].count_documents({"files_id": file["_id"]}))


@pytest.fixture
def nodes(make_client: Callable[[], Any], database_name: str, tmp_path: Path) -> tuple[Node, Node]:
    """A leader and another judicator."""
    leader, other = (Node(make_client()[database_name], tmp_path, name) for name in ("j1", "j2"))
    leader.blobs.make_indexes()
    TaskStore(leader.database, "j1").make_indexes()
    leader.leadership.begin(REIGN)
    return leader, other


def test_a_blob_that_no_task_named_for_a_day_is_gone(nodes: tuple[Node, Node]) -> None:
    leader, other = nodes
    old, young, used = (leader.send() for _ in range(3))
    leader.adding.add(leader.new_task(used))
    leader.age(old, 25)
    leader.age(young, 23)
    assert leader.collect() == 1
    for node in nodes:
        assert node.blobs.find([old, young, used]) == {young, used}
        with pytest.raises(Missing):
            node.blobs.get(old, 0, 10)
        with pytest.raises(Rejected) as refused:
            node.new_task(used, old)
        assert refused.value.field == "source[1].data.digest"
    assert other.send(10)  # and others come in as ever


def test_a_blob_that_is_gone_can_be_sent_again(nodes: tuple[Node, Node]) -> None:
    leader, other = nodes
    data = os.urandom(5000)
    digest = hashlib.sha256(data).hexdigest()
    for _ in range(2):
        assert other.blobs.put(digest, 0, data, True) == 5000
        leader.age(digest, 25)
        assert leader.collect() == 1
    assert other.blobs.put(digest, 0, data, True) == 5000
    other.adding.add(other.new_task(digest))
    assert leader.blobs.get(digest, 0, 9999) == data


def test_what_a_blob_that_is_gone_took_of_the_disk_is_freed(nodes: tuple[Node, Node]) -> None:
    leader, _ = nodes
    digest, kept = leader.send(3 * PIECES_REMOVED * PIECE_BYTES), leader.send()
    leader.age(digest, 25)
    leader.collect()
    (file,) = leader.files.find({"under_way": False})
    acts = []
    while not any(acts):
        assert len(acts) < 10
        with leader.leadership.acting(REIGN) as session:
            acts.append(leader.blobs.remove_abandoned(file["_id"], session))
    assert acts == [False] * 3 + [True]  # a part at a time
    assert leader.files.count_documents({}) == 1
    assert leader.database["blobs.chunks"].count_documents({}) == leader.chunks_of(kept)


def test_a_sender_that_is_later_than_the_removal_leaves_nothing(nodes: tuple[Node, Node]) -> None:
    leader, other = nodes
    data = os.urandom(5 * PIECE_BYTES)

    class Late(io.BytesIO):
        """Has its blob given up before the last piece is read."""

        def read(self, size: int | None = -1, /) -> bytes:
            piece = super().read(size)
            if not piece:
                (file,) = leader.files.find({"under_way": True})
                with leader.leadership.acting(REIGN) as session:
                    leader.blobs.remove_abandoned(file["_id"], session)
            return piece

    digest = hashlib.sha256(data).hexdigest()
    with pytest.raises(Unavailable):
        other.blobs.store(digest, Late(data), len(data))
    assert other.blobs.find([digest]) == set()
    assert leader.database["blobs.chunks"].count_documents({}) == 0


def test_a_blob_of_a_task_is_never_removed_however_old_it_is(nodes: tuple[Node, Node]) -> None:
    leader, other = nodes
    digest = leader.send()
    leader.age(digest, 24 * 365)
    other.adding.add(other.new_task(digest))  # later than it could have been removed
    assert leader.blobs.find_unused(0.0) == []
    ids = [file["_id"] for file in leader.files.find()]
    with leader.leadership.acting(REIGN) as session:
        assert leader.blobs.take_names(ids, session, 0.0) == 0
    assert leader.blobs.find([digest]) == {digest}


def test_asking_for_an_unused_blob_gives_it_another_day(nodes: tuple[Node, Node]) -> None:
    leader, other = nodes
    asked, sent = leader.send(), leader.send()
    for digest in (asked, sent):
        leader.age(digest, 25)
    found = leader.blobs.find_unused()
    assert len(found) == 2
    assert other.blobs.find([asked]) == {asked}
    assert other.blobs.put(sent, 0, b"whatever", False) == 300_000
    # Also for a leader that has looked before.
    with leader.leadership.acting(REIGN) as session:
        assert leader.blobs.take_names(found, session) == 0
    assert leader.collect() == 0


def test_an_add_that_comes_after_the_removal_is_refused(nodes: tuple[Node, Node]) -> None:
    """Even if the blob was there when its judicator looked."""
    leader, other = nodes
    digest, stays = leader.send(), leader.send()
    new = other.new_task(stays, digest)
    many = [other.new_task(stays), other.new_task(digest)]
    leader.age(digest, 25)
    assert leader.collect() == 1
    with pytest.raises(Rejected) as refused:
        other.adding.add(new)
    assert refused.value.field == "source[1].data.digest"
    assert "send it first" in refused.value.message
    with pytest.raises(Rejected):
        other.adding.add_many(many)
    assert leader.database.tasks.count_documents({}) == 0
    # What was not added keeps nothing.
    leader.age(stays, 25)
    assert leader.collect() == 1


def test_a_removal_that_comes_after_the_add_does_not_happen(nodes: tuple[Node, Node]) -> None:
    leader, other = nodes
    digest = leader.send()
    new = other.new_task(digest)
    leader.age(digest, 25)
    unused = leader.blobs.find_unused()
    with pytest.raises(Unavailable):  # noqa: SIM117
        with leader.leadership.acting(REIGN) as session:
            leader.leadership._quick.find_one({}, session=session)  # what it sees is from now
            other.adding.add(new)
            leader.blobs.take_names(unused, session)
    assert leader.collect() == 0
    assert other.blobs.find([digest]) == {digest}


def test_a_leader_that_was_deposed_removes_nothing(nodes: tuple[Node, Node]) -> None:
    leader, other = nodes
    digest = leader.send()
    leader.age(digest, 25)
    other.leadership.begin(Reign("era", 20))
    with pytest.raises(Deposed):
        leader.collect()
    assert leader.files.find_one({"filename": digest}) is not None


def test_adds_and_removals_at_once_leave_no_task_without_its_blob(
    nodes: tuple[Node, Node],
) -> None:
    leader, other = nodes
    digests = [leader.send(2000) for _ in range(40)]
    news = [[other.new_task(digest) for _ in range(3)] for digest in digests]
    for digest in digests:
        leader.age(digest, 25)
    stop = threading.Event()

    def collect_on() -> None:
        while not stop.is_set():
            unused = leader.blobs.find_unused()
            for file_id in unused[:2]:
                try:
                    with leader.leadership.acting(REIGN) as session:
                        leader.blobs.take_names([file_id], session)
                except Unavailable:
                    pass  # an add was first

    def add(new: NewTask) -> bool:
        def is_stored() -> tuple[bool] | None:
            try:
                other.adding.add(new)
            except Rejected:
                return (False,)
            except Unavailable:
                return None  # whoever adds has to try again
            return (True,)

        return servers.wait_until(is_stored, 60, "an answer")[0]

    thread = threading.Thread(target=collect_on)
    thread.start()
    try:
        with ThreadPoolExecutor(6) as pool:
            # From the end, as the leader removes from the start.
            rounds = [[pool.submit(add, new) for new in same] for same in reversed(news)]
            added = [{future.result() for future in same} for same in rounds]
    finally:
        stop.set()
        thread.join(30)
    for digest, outcomes in zip(reversed(digests), added, strict=True):
        assert len(outcomes) == 1  # all of a blob's tasks, or none
        assert bool(leader.files.find_one({"filename": digest})) == (True in outcomes)


def test_the_leader_removes_them_when_it_tidies(
    nodes: tuple[Node, Node], etcd: servers.Etcd
) -> None:
    node, other = nodes
    unused, used = node.send(), node.send()
    other.adding.add(other.new_task(used))
    # As if it had been sent the day before, which its id tells, too.
    file = node.files.find_one_and_delete({"filename": unused})
    long_ago = utc_now() - timedelta(seconds=UNUSED_S + 60)
    old_id = ObjectId.from_datetime(long_ago)
    node.files.insert_one({**file, "_id": old_id, "unused": long_ago})
    chunks = node.database["blobs.chunks"]
    chunks.update_many({"files_id": file["_id"]}, {"$set": {"files_id": old_id}})
    store, roster, shares = (
        TaskStore(node.database, "j1"),
        Roster(node.database),
        Shares(node.database),
    )
    roster.make_indexes()
    counts = Counts(node.database, "j1")
    history = History(node.database)
    broker = Broker(node.adding, store, shares, roster, counts, history, Rules())
    with Registry(parse_address(etcd.address), f"/{node.database.name}/") as registry:
        fence = REIGN.fence + 1
        leader = Leader(
            lambda: fence,
            registry,
            node.leadership,
            broker,
            roster,
            node.blobs,
            Cluster(registry, roster, counts).find_careless,
            counts,
            3600.0,
        )
        leader._begin(fence)

        def tidy_until(count: int, query: dict[str, Any]) -> None:
            """It leaves what takes long for the next time."""

            def is_tidy() -> bool:
                leader.tidy()
                return bool(node.files.count_documents(query) == count)

            servers.wait_until(is_tidy, 60, "a tidy database")

        tidy_until(1, {})
        assert [file["filename"] for file in node.files.find()] == [used]
        assert chunks.count_documents({}) == node.chunks_of(used)
        # One of an older judicator is there, which may have named it without a word.
        doubtful = node.send()
        node.age(doubtful, 25)
        registry.put("judicator/service/old", "10.0.0.1:7500")
        registry.put("judicator/able/j1", "this keeps-blobs that")
        registry.put("judicator/service/j1", "10.0.0.2:7500")
        believed = {"filename": doubtful, "unused": {"$exists": False}}
        tidy_until(1, believed)
        registry.delete("judicator/service/old")
        leader.tidy()
        assert node.files.count_documents(believed) == 1


def test_no_blob_is_marked_while_an_older_judicator_serves(
    judicator: JudicatorUnderTest, caller: Caller, mongo: Any, etcd: servers.Etcd
) -> None:
    files = mongo[judicator.database]["blobs.files"]

    def is_marked() -> bool:
        data = os.urandom(1000)
        digest = hashlib.sha256(data).hexdigest()
        caller.putBlob(digest, 0, data, True)
        return "unused" in files.find_one({"filename": digest})

    with Registry(parse_address(etcd.address), judicator.prefix) as registry:
        assert is_marked()
        registry.put("judicator/service/old", "10.0.0.1:7500")
        try:
            assert not is_marked()
        finally:
            registry.delete("judicator/service/old")
        assert is_marked()


def test_a_judicator_does_not_believe_in_a_blob_that_is_gone(
    judicator: JudicatorUnderTest,
    caller: Caller,
    mongo: Any,
    task: Callable[..., Any],
    executor: Callable[..., FakeExecutor],
) -> None:
    # Once any executor was seen, as by another test, a language that nobody offers is refused.
    executor()
    data = os.urandom(100_000)
    digest = hashlib.sha256(data).hexdigest()
    caller.putBlob(digest, 0, data, True)
    assert caller.hasBlobs({digest}) == {digest}
    taken = mongo[judicator.database]["blobs.files"].update_one(
        {"filename": digest},
        {"$unset": {"filename": "", "unused": ""}, "$set": {"under_way": False}},
    )
    assert taken.modified_count == 1
    named = task(tests=[rpc.Test(input=rpc.Data(None, digest))])
    with pytest.raises(rpc.InvalidRequest) as refused:
        caller.add(named)
    assert refused.value.field == "tests[0].input.digest"
    with pytest.raises(rpc.InvalidRequest) as refused:
        caller.addMany([task(), named])
    assert refused.value.field == "tasks[1].tests[0].input.digest"
    assert caller.putBlob(digest, 0, data, True) == len(data)
    assert caller.get(caller.addMany([task(), named])[1], 0).status == rpc.Status.PENDING
