"""Backup and restore against a real database and judicators, down to files that were damaged."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pymongo.errors import OperationFailure

import servers
from backups import IDS, make_blob, make_document, oj, quiet, store
from executors import Caller, FakeExecutor, JudicatorUnderTest, make_task
from oj.backup import contents, restoring, snapshot, writing
from oj.backup.container import Damaged
from oj.clock import backoff
from oj.errors import Unavailable
from oj.judicator import wire
from oj.judicator.store.blobs import Blobs
from oj.judicator.store.database import connect
from oj.rpc import ttypes as rpc

FINAL = {10, 11, 12, 13, 14}


def insist(call: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """As clients do: a database that is slow for a moment is no failure."""
    for pause_s in itertools.islice(backoff(0.1, 1.0), 60):
        try:
            return call(*arguments, **more)
        except rpc.Unavailable:
            time.sleep(pause_s)
    return call(*arguments, **more)


class Load:
    """Clients that add, cancel and send blobs, and an executor that judges, all the time."""

    def __init__(self, judicator: JudicatorUnderTest) -> None:
        self._judicator = judicator
        self._stop = threading.Event()
        self.acknowledged: list[str] = []
        self.failures: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._guard, args=(act,)) for act in (self._add, self._judge)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        assert self.failures == []

    def _guard(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # noqa: BLE001 - told at the end
            self.failures.append(error)

    def _add(self) -> None:
        with Caller(self._judicator.port) as caller:
            number = 0
            while not self._stop.is_set():
                number += 1
                data = b"input %d\n" % number * 20_000
                digest = hashlib.sha256(data).hexdigest()
                insist(caller.putBlob, digest, 0, data, True)
                one = rpc.Test(input=rpc.Data(digest=digest))
                task_id = insist(
                    caller.add,
                    make_task(
                        tests=[one], user=f"user-{number % 3}", tags={"load"}, key=f"k{number}"
                    ),
                )
                self.acknowledged.append(task_id)
                if number % 10 == 0:
                    insist(caller.cancel, task_id)

    def _judge(self) -> None:
        executor = FakeExecutor(self._judicator.port, "old-1", slots=4)
        try:
            # By itself only report 1 has the facts, and a repeated one has another number.
            insist(executor.report, facts=executor.facts)
            done: list[Any] = []
            held: list[Any] = []
            while not self._stop.is_set():
                reply = insist(
                    executor.report,
                    complete=done,
                    executing=[executor.executing(one) for one in held],
                    vacant=3,
                    wait_ms=200,
                )
                held += reply.assign
                # The first one stays in hand, and the last one for a round.
                done = [executor.completed(one) for one in held[1:-1]]
                held = held[:1] + held[1:][-1:]
        finally:
            executor.close()


def judge_all(judicator: JudicatorUnderTest) -> list[str]:
    """Takes and judges until nothing waits."""
    executor = FakeExecutor(judicator.port, "new-1", slots=50)
    judged: list[str] = []
    try:
        insist(executor.report, facts=executor.facts)
        done: list[Any] = []
        while True:
            reply = insist(executor.report, complete=done, vacant=50, wait_ms=1000)
            if not reply.assign and not done:
                return judged
            done = [executor.completed(one) for one in reply.assign]
            judged += [one.id for one in reply.assign]
    finally:
        executor.close()


def test_a_backup_under_load_is_restored_into_an_empty_cluster(
    start_judicator: Callable[..., JudicatorUnderTest], mongo: Any, tmp_path: Path
) -> None:
    old = start_judicator()
    file = tmp_path / "backup"
    final = {"s": {"$in": sorted(FINAL)}}
    stored = mongo[old.database]["tasks"]
    with Load(old) as load:
        servers.wait_until(lambda: len(load.acknowledged) >= 60, 60, "some load")
        servers.wait_until(lambda: stored.count_documents(final) >= 20, 60, "some ends")
        before = list(load.acknowledged)
        said = json.loads(oj("backup", file, "--etc", old.directory, "--json").stdout)
        seen = len(load.acknowledged)
        servers.wait_until(lambda: len(load.acknowledged) >= seen + 20, 60, "more load")
    assert oj("backup", "--verify", file).stdout.startswith(b"whole: ")
    assert said["unfinished"] > 0

    new = start_judicator()
    done = oj("restore", file, "--etc", new.directory)
    assert b"read all of it back" in done.stdout
    tasks = {task["_id"]: task for task in mongo[new.database]["tasks"].find()}
    assert {str(task_id) for task_id in tasks} >= set(before)
    assert len(tasks) == said["sections"]["tasks"]["count"]
    originals = {task["_id"]: task for task in stored.find()}
    ended = [task for task in tasks.values() if task["s"] in FINAL]
    assert len(ended) >= 20
    for task in ended:
        assert task == originals[task["_id"]]
        assert list(task) == list(originals[task["_id"]])

    waiting = {str(i) for i, task in tasks.items() if task["s"] not in FINAL}
    assert len(waiting) == said["unfinished"]
    assert set(judge_all(new)) == waiting
    with Caller(new.port) as caller:
        for task_id in map(str, tasks):
            info = insist(caller.get, task_id, 7)
            assert info.done
            assert task_id not in waiting or info.status == rpc.Status.SUCCESS
            digest = info.task.tests[0].input.digest
            data = insist(caller.getBlob, digest, 0, 1 << 20)
            assert hashlib.sha256(data).hexdigest() == digest

        def all_counted() -> bool:
            return sum(insist(caller.stats).by_status.values()) == len(tasks)

        servers.wait_until(all_counted, 60, "all of them counted")
        # Whoever repeats what was acknowledged gets the first id, here as there.
        number = load.acknowledged.index(before[0]) + 1
        again = make_task(user=f"user-{number % 3}", key=f"k{number}")
        assert insist(caller.add, again) == before[0]


def test_what_an_executor_had_in_hand_waits_in_front_with_its_attempts(
    make_database: Callable[[], Any], tmp_path: Path
) -> None:
    source, target = make_database(), make_database()
    held = {"e": "ex-1", "o": "ex-1", "i": "inc", "cn": 4, "lt": IDS.make().generation_time}
    running = make_document(7, 3, a=2, td=5, x="ex-2", ct=IDS.make().generation_time, **held)
    pending = make_document(9, 1, a=0, q=True)
    source["tasks"].insert_many([running, pending])
    writing.write_file(source, tmp_path / "b", quiet)
    checked = contents.check(tmp_path / "b", quiet)
    done = restoring.restore(target, tmp_path / "b", checked, quiet)
    assert (done.tasks, done.waiting) == (2, 2)
    again, waits = target["tasks"].find(sort=[("_id", 1)])
    assert not {"o", "i", "lt", "cn", "x"} & set(again)
    assert (again["s"], again["h"], again["a"], again["td"], again["q"]) == (4, 0, 2, 0, True)
    assert [(e["n"], e["e"], e["w"]) for e in again["at"]] == [(2, "ex-1", restoring.INTERRUPTED)]
    assert {**waits, "by": 0} == {**pending, "by": 0}
    assert target[restoring.NOTE].find_one() is None


def test_shares_and_what_an_operator_decided_come_back_and_never_go_backwards(
    make_database: Callable[[], Any], tmp_path: Path
) -> None:
    source, target = make_database(), make_database()
    now = IDS.make().generation_time
    source["users"].insert_one({"_id": "0:c:ann", "n": 70, "t": now})
    source["clocks"].insert_many([{"_id": "0:c", "n": 60}, {"_id": "0:py", "n": 5}])
    source["languages"].insert_one({"_id": "c", "t": now})
    source["executors"].insert_many(
        [{"_id": "ex-1", "i": "a", "dr": True, "t": now}, {"_id": "ex-2", "i": "b", "t": now}]
    )
    target["clocks"].insert_one({"_id": "0:py", "n": 9})
    target["executors"].insert_one({"_id": "ex-1", "i": "z", "t": now})
    writing.write_file(source, tmp_path / "b", quiet)
    checked = contents.check(tmp_path / "b", quiet)
    restoring.restore(target, tmp_path / "b", checked, quiet)
    assert target["users"].find_one()["n"] == 70
    assert {c["_id"]: c["n"] for c in target["clocks"].find()} == {"0:c": 60, "0:py": 9}
    [executor] = target["executors"].find()
    assert (executor["_id"], executor["i"], executor["dr"]) == ("ex-1", "z", True)
    assert target["languages"].find_one()["_id"] == "c"


def test_every_collection_of_a_judicator_is_in_the_backup_or_made_anew(
    start_judicator: Callable[..., JudicatorUnderTest], mongo: Any
) -> None:
    judicator = start_judicator()
    with Load(judicator) as load:
        servers.wait_until(lambda: len(load.acknowledged) >= 30, 60, "some load")
        servers.wait_until(mongo[judicator.database]["counts"].find_one, 60, "counts are written")
    found = set(mongo[judicator.database].list_collection_names())
    made_anew = {"counts", "gateways", "leader", "uploads"}
    assert found - made_anew <= {*contents.SECTIONS, "blobs.files", "blobs.chunks"}


@pytest.fixture
def small(make_database: Callable[[], Any], tmp_path: Path) -> Path:
    database = make_database()
    database["tasks"].insert_many([make_document(n, r=os.urandom(30)) for n in range(40)])
    make_blob(database, os.urandom(5000))
    make_blob(database, b"")
    writing.write_file(database, tmp_path / "small", quiet)
    return tmp_path / "small"


def test_a_file_that_is_cut_off_anywhere_is_refused(small: Path, tmp_path: Path) -> None:
    whole = small.read_bytes()
    cut = tmp_path / "cut"
    for size_bytes in {0, 1, 9, 10, 11, len(whole) - 1, len(whole) - 8} | {
        random.Random(1).randrange(len(whole)) for _ in range(60)
    }:
        cut.write_bytes(whole[:size_bytes])
        with pytest.raises(Damaged):
            contents.check(cut, quiet)
    cut.write_bytes(whole + b"more")
    with pytest.raises(Damaged):
        contents.check(cut, quiet)
    words = oj("backup", "--verify", cut, code=2).stderr.decode()
    assert words.startswith(f"oj: {cut} is not a whole backup: ")


def test_a_flipped_bit_is_refused_unless_it_changes_nothing(small: Path, tmp_path: Path) -> None:
    whole = bytearray(small.read_bytes())
    good = contents.check(small, quiet)
    flipped = tmp_path / "flipped"
    chosen = random.Random(2)
    refused = 0
    positions = [*range(40), *(chosen.randrange(len(whole)) for _ in range(300))]
    for position in positions:
        damaged = bytearray(whole)
        damaged[position] ^= 1 << chosen.randrange(8)
        flipped.write_bytes(damaged)
        try:
            # As in the time that gzip notes of a file, or padding.
            assert contents.check(flipped, quiet) == good
        except Damaged:
            refused += 1
    assert refused > 0.9 * len(positions)


def test_a_damaged_file_changes_nothing_in_the_cluster(
    small: Path, make_database: Callable[[], Any], etc_of: Callable[[Any], Path]
) -> None:
    target = make_database()
    with small.open("r+b") as file:
        file.truncate(small.stat().st_size // 2)
    assert b"cut off" in oj("restore", small, "--etc", etc_of(target), code=2).stderr
    assert target.list_collection_names() == []


def test_a_cluster_that_is_not_empty_is_left_alone(
    small: Path, make_database: Callable[[], Any], etc_of: Callable[[Any], Path]
) -> None:
    target = make_database()
    target["tasks"].insert_many([make_document(n) for n in range(3)])
    make_blob(target, b"blob")
    said = oj("restore", small, "--etc", etc_of(target), code=2).stderr.decode()
    assert "not empty: there are 3 tasks and 1 blob" in said
    assert target["tasks"].count_documents({}) == 3
    assert target[restoring.NOTE].find_one() is None


def test_a_key_that_was_used_meanwhile_stays_with_the_newer_task(
    make_database: Callable[[], Any], tmp_path: Path
) -> None:
    source, target = make_database(), make_database()
    source["tasks"].insert_one(make_document(1, k="key"))
    file = tmp_path / "b"
    writing.write_file(source, file, quiet)
    checked = contents.check(file, quiet)
    restore = restoring.Restore(target, file, checked, quiet, tmp_path / "spool")
    restore._begin()
    newer = make_document(2, k="key")
    target["tasks"].create_index(
        [("u", 1), ("k", 1)],
        name="key",
        unique=True,
        partialFilterExpression={"k": {"$exists": True}},
    )
    target["tasks"].insert_one(newer)
    done = restoring.restore(target, file, checked, quiet)
    assert (done.without_key, done.resumed) == (1, True)
    assert target["tasks"].count_documents({}) == 2
    assert target["tasks"].find_one({"k": "key"})["_id"] == newer["_id"]


def test_what_takes_longer_than_the_database_remembers_goes_on_at_a_later_moment(
    make_database: Callable[[], Any], mongo: Any
) -> None:
    database = make_database()
    store(database, [make_document(n) for n in range(2500)])
    was = mongo.admin.command("getParameter", 1, minSnapshotHistoryWindowInSeconds=1)
    mongo.admin.command("setParameter", 1, minSnapshotHistoryWindowInSeconds=0)
    try:
        view = snapshot.Snapshot(database)
        first = view.time
        documents = view.read("tasks")
        ids = [next(documents)["_id"]]

        def forgotten() -> bool:
            database["other"].insert_one({})
            try:
                database.command(
                    {
                        "find": "tasks",
                        "limit": 1,
                        "singleBatch": True,
                        "readConcern": {"level": "snapshot", "atClusterTime": first},
                    }
                )
            except OperationFailure as error:
                return error.code == 239
            return False

        servers.wait_until(forgotten, 60, "the database forgets")
        ids += [document["_id"] for document in documents]
    finally:
        window_s = was["minSnapshotHistoryWindowInSeconds"]
        mongo.admin.command("setParameter", 1, minSnapshotHistoryWindowInSeconds=window_s)
    assert len(ids) == len(set(ids)) == 2500
    assert ids == sorted(ids)
    assert view.time > first and len(view.times) > 1


def test_nothing_that_is_added_later_is_in_a_snapshot(make_database: Callable[[], Any]) -> None:
    database = make_database()
    database["tasks"].insert_many([make_document(n) for n in range(10)])
    view = snapshot.Snapshot(database)
    database["tasks"].insert_one(make_document(11))
    database["tasks"].update_many({}, {"$set": {"h": 99}})
    found = list(view.read("tasks"))
    assert len(found) == 10
    assert 99 not in {document["h"] for document in found}


def test_a_blob_that_is_broken_in_the_database_is_named_and_left_out(
    make_database: Callable[[], Any], etc_of: Callable[[Any], Path], tmp_path: Path
) -> None:
    database = make_database()
    good, bad = make_blob(database, b"good" * 1000), make_blob(database, b"bad" * 1000)
    file = database["blobs.files"].find_one({"filename": bad})
    database["blobs.chunks"].delete_one({"files_id": file["_id"], "n": 1})
    done = oj("backup", tmp_path / "b", "--etc", etc_of(database), code=1)
    assert f"blob {bad} is broken" in done.stderr.decode()
    checked = contents.check(tmp_path / "b", quiet)
    assert checked.manifest.damaged == [bad]
    assert checked.manifest.count("blobs") == 1
    names = subprocess.run(
        ["tar", "tzf", tmp_path / "b"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert names == ["oj-backup.json", f"blobs/{good}", "manifest.json"]


def test_a_backup_goes_through_a_pipe_and_is_for_its_owner_only(
    small: Path, make_database: Callable[[], Any], etc_of: Callable[[Any], Path], tmp_path: Path
) -> None:
    database = make_database()
    database["tasks"].insert_one(make_document(1))
    done = oj("backup", "-", "--etc", etc_of(database))
    (tmp_path / "piped").write_bytes(done.stdout)
    assert contents.check(tmp_path / "piped", quiet).manifest.count("tasks") == 1
    assert b"1 task and 0 blobs" in done.stderr
    assert small.stat().st_mode & 0o777 == 0o600
    assert not small.with_name("small.part").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["backup", "{tmp}/b", "--etc", "{tmp}/no"], "judicator's node"),
        (["restore", "{tmp}/none"], "No such file"),
        (["backup", "--verify", "{tmp}"], "Is a directory"),
        (["backup", "{tmp}/no/such/place", "--etc", "{etc}"], "No such file"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    make_database: Callable[[], Any],
    etc_of: Callable[[Any], Path],
    tmp_path: Path,
    words: list[str],
    message: str,
) -> None:
    place = {"tmp": tmp_path, "etc": etc_of(make_database())}
    [line] = oj(*(word.format(**place) for word in words), code=2).stderr.decode().splitlines()
    assert line.startswith("oj: ") and message in line


def test_without_a_database_the_exit_code_is_3_and_no_file_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "PATIENCE_S", 0.5)
    client: Any = connect("mongodb://127.0.0.1:1/?replicaSet=oj")
    with pytest.raises(Unavailable, match="the database does not answer"):
        writing.write_file(client["oj"], tmp_path / "b", quiet)
    client.close()
    assert list(tmp_path.iterdir()) == []


def test_blobs_that_tasks_name_are_theirs_again_and_others_may_go(
    make_database: Callable[[], Any], tmp_path: Path
) -> None:
    source, target = make_database(), make_database()
    digests = [make_blob(source, os.urandom(2000)) for _ in range(5)]
    files = [rpc.File("a", rpc.Data(None, digest)) for digest in digests[:2]]
    tests = [rpc.Test(None, rpc.Data(None, digests[2]), rpc.Data(None, digests[3]))]
    for part in ({"source": files, "data": files[:1]}, {"tests": tests}):
        body = wire.encode(rpc.Task(user="0" * 64, **part))
        source["tasks"].insert_one(make_document(1, b=body))
    writing.write_file(source, tmp_path / "b", quiet)
    checked = contents.check(tmp_path / "b", quiet)
    # A client that cannot wait has sent one of them already.
    restoring.Restore(target, tmp_path / "b", checked, quiet, tmp_path / "spool")._begin()
    blobs = Blobs(target, tmp_path / "sent")
    blobs.make_indexes()
    file = source["blobs.files"].find_one({"filename": digests[0]})
    pieces = source["blobs.chunks"].find({"files_id": file["_id"]}, sort=[("n", 1)])
    blobs.put(digests[0], 0, b"".join(piece["data"] for piece in pieces), True)
    restoring.restore(target, tmp_path / "b", checked, quiet)
    unused = target["blobs.files"].find({"unused": {"$exists": True}})
    assert [file["filename"] for file in unused] == digests[4:]
    assert blobs.find(digests) == set(digests)


def test_a_blob_that_is_removed_while_it_is_read_is_not_missed(
    make_database: Callable[[], Any], tmp_path: Path
) -> None:
    database = make_database()
    digests = [make_blob(database, os.urandom(3000)) for _ in range(3)]
    files, chunks = database["blobs.files"], database["blobs.chunks"]

    def remove_the_second(what: str, done: int, _total: int) -> None:
        if what == "reading blobs" and done == 1:
            file = files.find_one_and_update(
                {"filename": digests[1]},
                {"$unset": {"filename": ""}, "$set": {"under_way": False}},
            )
            chunks.delete_one({"files_id": file["_id"], "n": 0})

    manifest = writing.write_file(database, tmp_path / "b", remove_the_second)
    assert manifest.damaged == [] and manifest.count("blobs") == 2
