"""Backup and restore while members of the database, or they themselves, are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from pymongo.errors import PyMongoError

import servers
from backups import ENVIRONMENT, OJ, make_blob, make_document, oj, quiet, store
from oj.backup import contents, restoring, writing
from oj.judicator.store.database import connect


def test_a_restore_that_was_killed_goes_on(
    make_database: Callable[[], Any], etc_of: Callable[[Any], Path], tmp_path: Path
) -> None:
    source, target = make_database(), make_database()
    documents = [make_document(n, 10 if n % 4 else 1, b=os.urandom(2000)) for n in range(6000)]
    for document in documents:
        if document["s"] == 1:
            document["q"] = True
    store(source, documents)
    digests = [make_blob(source, os.urandom(3000)) for _ in range(60)]
    file = tmp_path / "large"
    writing.write_file(source, file, quiet)
    command = [*OJ, "restore", str(file), "--etc", str(etc_of(target))]

    def queued() -> int:
        return int(target["tasks"].count_documents({"q": True}))

    # After the first word in the database, half way, with blobs, and while queueing.
    moments: list[Callable[[], Any]] = [
        # The note is gone when a restore was faster than this look.
        lambda: target[restoring.NOTE].find_one() or target["tasks"].estimated_document_count(),
        lambda: target["tasks"].estimated_document_count() > 3000,
        lambda: target["blobs.files"].estimated_document_count() > 20,
        lambda: queued() > 0,
    ]
    for moment in moments:
        with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.DEVNULL) as process:
            servers.wait_until(moment, 60, "the restore gets so far")
            process.send_signal(signal.SIGKILL)
    other = tmp_path / "other"
    writing.write_file(source, other, quiet)
    if target[restoring.NOTE].find_one():
        said = oj("restore", other, "--etc", etc_of(target), code=2).stderr.decode()
        assert "half restored" in said
        said = json.loads(oj(*command[2:], "--json").stdout)
        assert said["resumed"] is True
        assert (said["tasks"], said["waiting"], said["blobs"]) == (6000, 1500, 60)
    assert target[restoring.NOTE].find_one() is None
    assert queued() == 1500
    restored = {task["_id"]: task for task in target["tasks"].find()}
    assert len(restored) == 6000
    for document in documents:
        if document["s"] == 10:
            assert restored[document["_id"]] == document
    assert {f["filename"] for f in target["blobs.files"].find({"filename": {"$exists": 1}})} == set(
        digests
    )


@pytest.fixture
def replica_set(directory: Path) -> Iterator[list[servers.Mongod]]:
    """Three members that vote."""
    members = [servers.Mongod(directory / str(number)) for number in range(3)]
    try:
        first, *others = members
        first.start()
        for one in others:
            (one.directory / "mongod").mkdir(parents=True)
            assert first.process is not None
            command = [
                word.replace(str(first.directory), str(one.directory)).replace(
                    str(first.port), str(one.port)
                )
                for word in first.process.command
            ]
            one.process = servers.Process(command, one.directory / "mongod.log")
        client: Any = connect(first.uri)
        for number, one in enumerate(others, 1):
            servers.wait_until(lambda port=one.port: servers.accepts(port), 60, "a member")

            def added(number: int = number, host: str = one.address) -> bool:
                try:
                    config = client.admin.command("replSetGetConfig")["config"]
                    if host in [member["host"] for member in config["members"]]:
                        return True
                    config["members"].append({"_id": number, "host": host})
                    config["version"] += 1  # mongod changes it, too, when a member has caught up
                    client.admin.command("replSetReconfig", config)
                except PyMongoError:
                    return False  # the change before is not through, or an election
                return True

            servers.wait_until(added, 60, "a further vote")

        def settled() -> bool:
            try:
                states = [m["state"] for m in client.admin.command("replSetGetStatus")["members"]]
            except PyMongoError:
                return False
            return sorted(states) == [1, 2, 2]

        servers.wait_until(settled, 60, "a primary and two secondaries")
        client.close()
        yield members
    finally:
        for one in members:
            one.close()


@pytest.mark.parametrize("victim", [0, 1], ids=["the primary", "a secondary"])
def test_a_backup_goes_on_when_a_member_is_killed(
    replica_set: list[servers.Mongod], tmp_path: Path, victim: int
) -> None:
    seeds = ",".join(one.address for one in replica_set)
    client: Any = connect(f"mongodb://{seeds}/?replicaSet=oj")
    database = client["oj"]
    documents = [make_document(n, b=os.urandom(2000)) for n in range(12_000)]
    # Filled with patience: so much writing may bring about an election.
    with pymongo.MongoClient(f"mongodb://{seeds}/?replicaSet=oj", retryWrites=True) as patient:
        store(patient["oj"], documents)
        digests = {make_blob(patient["oj"], os.urandom(3000)) for _ in range(5)}
    killed = []

    def kill_once(what: str, _done: int, _total: int) -> None:
        if what == "reading tasks" and not killed:
            replica_set[victim].kill()
            killed.append(what)

    manifest = writing.write_file(database, tmp_path / "b", kill_once)
    client.close()
    assert killed
    assert manifest.count("tasks") == 12_000 and manifest.count("blobs") == len(digests)
    assert manifest.damaged == []
    assert len(manifest.times) == 1  # still the one moment
    contents.check(tmp_path / "b", quiet)
