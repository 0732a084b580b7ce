"""Every query that the store makes uses an index: asked of MongoDB itself.

All commands that the store sends while it is led through everything that it can do are recorded,
and each is given to `explain`.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import CodeType
from typing import Any

import pymongo
import pytest
from bson import ObjectId
from pymongo import monitoring

import servers
from oj.clock import utc_now
from oj.errors import Rejected
from oj.judicator import store as package
from oj.judicator.report import Facts, Finished, Judged
from oj.judicator.store.adding import NewTasks
from oj.judicator.store.blobs import Blobs
from oj.judicator.store.counts import Counts
from oj.judicator.store.documents import NewTask, Progress
from oj.judicator.store.gateways import Gateways
from oj.judicator.store.happenings import Happenings
from oj.judicator.store.history import History
from oj.judicator.store.hooks import Hooks
from oj.judicator.store.ids import IdMaker
from oj.judicator.store.leadership import Leadership, Reign
from oj.judicator.store.roster import Roster
from oj.judicator.store.search import Search
from oj.judicator.store.shares import Shares
from oj.judicator.store.tasks import TaskStore
from oj.judicator.store.tokens import Token, Tokens
from oj.judicator.store.uploads import Uploads
from oj.judicator.tenancy import Claim
from oj.model import Status, Verdict
from oj.rpc.ttypes import Conditions

QUERIES = {"find", "findAndModify", "findandmodify", "update", "delete", "aggregate", "count"}

# UPDATE alone is an insert by upsert; a fast count reads a number that the collection keeps.
BY_INDEX = {"IXSCAN", "IDHACK", "EOF", "COUNT_SCAN", "UPDATE", "RECORD_STORE_FAST_COUNT"}


# They ask for the state of the server, not for documents.
WITHOUT_QUERIES = {"Pinger.ping", "Replicas.look"}


class Recorder(monitoring.CommandListener):
    def __init__(self) -> None:
        self.commands: list[Any] = []

    def started(self, event: Any) -> None:
        # A change stream reads the database's log from a place in it on: that is no search.
        changes = "$changeStream" in str(event.command.get("pipeline", ""))
        if event.command_name in QUERIES and not changes:
            self.commands.append(dict(event.command))

    def succeeded(self, event: Any) -> None:
        pass

    def failed(self, event: Any) -> None:
        pass


def explainable(command: dict[str, Any]) -> list[dict[str, Any]]:
    """The command as explain takes it: without what belongs to the connection, one change each."""
    kept = {
        key: value
        for key, value in command.items()
        if key not in {"lsid", "txnNumber", "$db", "$clusterTime", "$readPreference"}
        and key not in {"writeConcern", "readConcern", "autocommit", "startTransaction", "cursor"}
    }
    if "findandmodify" in kept:
        kept = {"findAndModify": kept.pop("findandmodify"), **kept}
    if "aggregate" in kept:
        kept["cursor"] = {}
    for changes in ("updates", "deletes"):
        if changes in kept:
            return [{**kept, changes: [change]} for change in kept[changes]]
    return [kept]


def stages(plan: Any) -> Iterator[str]:
    """The names of all stages of the winning plans in an explanation."""
    if isinstance(plan, dict):
        for key, value in plan.items():
            if key == "rejectedPlans":
                continue
            if key == "stage" and isinstance(value, str):
                yield value
            yield from stages(value)
    elif isinstance(plan, list):
        for value in plan:
            yield from stages(value)


def new_task(ids: IdMaker, number: int) -> NewTask:
    return NewTask(
        id=ids.make(),
        user=f"u{number % 3}",
        language=f"l{number % 4}",
        priority=number % 2,
        tags=frozenset({f"t{number % 5}"}),
        key=f"k{number}" if number % 2 else None,
        tests_total=1,
        share=number,
        body=b"task",
    )


@pytest.fixture
def recorded(mongod: servers.Mongod, database_name: str, tmp_path: Path) -> Iterator[Any]:
    recorder = Recorder()
    client: Any = pymongo.MongoClient(mongod.uri, event_listeners=[recorder])
    database = client[database_name]
    called: set[CodeType] = set()
    sys.setprofile(lambda frame, *_: called.add(frame.f_code))
    try:
        lead_through(database, tmp_path)
    finally:
        sys.setprofile(None)
    yield database, list(recorder.commands), called
    client.close()


def methods_of_the_store() -> dict[str, CodeType]:
    """Every method that speaks to the database: it turns the database's errors into ours."""
    found = {}
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for name, kind in inspect.getmembers(module, inspect.isclass):
            if not kind.__module__.startswith(f"{package.__name__}."):
                continue  # of the driver, whose methods may be wrapped, too
            for key, method in vars(kind).items():
                whole = inspect.unwrap(method) if inspect.isfunction(method) else method
                if whole is not method and not key.startswith("__"):
                    found[f"{name}.{key}"] = whole.__code__
    return found


def lead_through(database: Any, directory: Path) -> None:
    """Everything that the store can do, once at least."""
    store, roster, shares = TaskStore(database, "j1"), Roster(database), Shares(database)
    counts, search, blobs = Counts(database), Search(database), Blobs(database, directory / "s")
    history, tokens, hooks = History(database), Tokens(database), Hooks(database)
    gateways = Gateways(database)
    gateways.make_indexes()
    for process in ("1", "2"):
        gateways.note("g1", "g1:7580", "1", process, "g1:7580")
    gateways.read_all()
    gateways.remove("g1", "2")
    gateways.remove("g1")
    uploads = Uploads(database)
    for part in (store, roster, shares, blobs, history, tokens, uploads, hooks):
        part.make_indexes()
    ids, adding = IdMaker(), NewTasks(database, "j1")
    adding.add(new_task(ids, 1))
    first = adding.add(new_task(ids, 1))  # the key is there
    adding.add_many([new_task(ids, number) for number in range(2, 120)])
    adding.add_many([new_task(ids, number) for number in range(118, 125)])
    store.get(first, body=True, result=True, ended=True)
    happenings = Happenings(database)
    cursor = happenings.read("", 0.0, 1).cursor
    languages = ["l0", "l1", "l2", "l3", ""]
    query = store.waiting_query(languages, "ex")
    alone = store.waiting_query(languages, "ex", ["l1", ""])
    (one,) = store.claim(query, "ex", "i", 1, 1)
    (two,) = store.claim(alone, "ex", "i", 2, 1)
    many = store.claim(query, "ex", "i", 3, 6)
    assert len(many) == 6 and len(store.claim(alone, "ex", "i", 3, 3)) == 3
    store.find_waiting_languages([*languages, "none"])
    held = store.find_held("ex")
    assert len(held) == 11
    store.find_one_held(one.id)
    store.renew("ex", "i", [one.id, two.id])
    store.progress("ex", "i", [Progress(one.id, 1, Status.RUNNING, 0, True)])
    store.find_expired(0.0, 10)
    judged = Judged(Status.SUCCESS, Verdict.ACCEPTED, 1.0, "", 1, b"result")
    assert store.finish("ex", Finished(one.id, 1, "i", judged))
    assert happenings.read(cursor, 10.0, 5).happenings
    happenings.close()
    store.get(one.id, body=False, result=True, ended=False)  # asks whether its end is safe
    two_more = [Finished(two.id, 1, "i", judged), Finished(first, 7, "i", judged)]
    assert store.finish_many("ex", two_more) == [True, False]
    assert store.retry(held[2], "lost", avoid=True, same_lease=True)
    assert store.retry(held[3], "lost", avoid=False, same_lease=False)
    assert store.give_up(held[4], "lost", "gave up", same_lease=False)
    assert store.cancel(many[-1].id)[0]
    assert store.mend_leases(-60.0)
    roster.enter("ex", Claim("i1"), 1.0)
    roster.enter("ex", Claim("i1"), 1.0)
    roster.enter("ex", Claim("i2"), 1.0)
    roster.enter("ex", Claim("i1"), 1.0)
    roster.touch("ex", "i2", 1.0, "10.0.0.9")
    roster.find_contested()
    roster.describe("ex", "i2", Facts({"c": "1"}))
    roster.drain("ex", True)
    roster.find_drained()
    roster.read_all(1.0)
    roster.drain("ex", False)
    roster.offer_languages(["c"])
    roster.find_languages(60.0)
    leadership = Leadership(database, "j1")
    reign = Reign("era", 1)
    for _ in range(2):
        leadership.begin(reign)
    assert roster.find_silent(-60.0)
    assert roster.mend_times(-60.0)
    with leadership.acting(reign) as session:
        roster.remove_silent("ex", -60.0, session)
    roster.remove("ex")
    shares.take("ann", 0, "c", 3)
    shares.handed_out(0, "c", 2)
    shares.exchange()
    counts.ended(Status.SUCCESS, Verdict.ACCEPTED)
    counts.ended_so_far()
    counts.recount()
    with leadership.acting(reign) as session:
        counts.make_good({"s.10": 1}, session)
    counts.unfinished()
    history.added(one.id)
    history.ended(one.id)
    history.read(0)
    token = tokens.add(Token("", "n", "u", frozenset({"read"}), 5, 0, None, None, "s"), "0" * 64)
    tokens.add(Token("", "n", "u", frozenset({"read"}), 5, 0, None, token.id, None), "1" * 64)
    tokens.add(token, "0" * 64)
    tokens.find("1" * 64)
    tokens.list_all()
    tokens.spend(token.id, 1)
    uploads.take("u", 1, 2)
    uploads.take("u", 2, 2)
    tokens.find_secrets({token.id})
    tokens.remove(token.id)
    with_hook = adding.add(replace(new_task(ids, 200), webhook="http://h/", webhook_token="t"))
    store.cancel(with_hook)
    assert len(hooks.claim(5)) == 1
    hooks.finish(with_hook, 1, delivered=False, message="no")
    hooks.finish(with_hook, 1, delivered=True, message="")
    for conditions in (
        {},
        {"user": "u1"},
        {"statuses": {1, 4}},
        {"verdicts": {1, 2}},
        {"tags": {"t1"}},
        {"tags": {"t1", "t2"}},
        {"language": "l1"},
        {"executor": "ex"},
        {"done": True},
        {"done": False, "user": "u1"},
        {"ids": {first, str(ObjectId())}},
        {"added_from": 0, "added_before": 1 << 41},
        {"user": "u1", "tags": {"t1"}, "statuses": {1}, "language": "l1", "added_from": 0},
    ):
        for oldest_first in (False, True):
            for cursor in ("", first):
                search.find(Conditions(**conditions, oldest_first=oldest_first), cursor, 5)
    data = os.urandom(600_000)
    digest = hashlib.sha256(data).hexdigest()
    blobs.put(digest, 0, data, True)
    blobs.find([digest, "0" * 64])
    blobs.get(digest, 100, 300_000)
    named = blobs.check_stored({digest: "source"})
    adding.add(replace(new_task(ids, 300), new_blobs=named))
    with pytest.raises(Rejected):
        adding.add(replace(new_task(ids, 302), new_blobs={"0" * 64: "source"}))
    blobs.keep(digest)
    unused = hashlib.sha256(b"unused").hexdigest()
    blobs.put(unused, 0, b"unused", True)
    long_ago = utc_now() - timedelta(days=2)
    for _ in range(2):
        database["blobs.files"].update_one({"filename": unused}, {"$set": {"unused": long_ago}})
        found = blobs.find_unused()
        assert len(found) == 1 and blobs.find([unused])
    with leadership.acting(reign) as session:
        assert blobs.take_names(found, session, 0.0) == 1
    with leadership.acting(reign) as session:
        blobs.unmark(session)
    blobs.find_abandoned()
    for done in (False, True):
        with leadership.acting(reign) as session:
            assert blobs.remove_abandoned(found[0], session) is done


def test_no_query_of_the_store_scans_a_collection_or_sorts_in_memory(recorded: Any) -> None:
    database, commands, _ = recorded
    seen: set[str] = set()
    for command in commands:
        for one in explainable(command):
            name = next(iter(one))
            explanation = database.command("explain", one, verbosity="queryPlanner")
            found = set(stages(explanation))
            seen.add(f"{name} {one[name]}")
            text = f"{one} -> {sorted(found)}"
            assert "COLLSCAN" not in found, text
            assert "SORT" not in found, text
            assert found & BY_INDEX, text
    assert {"find tasks", "findAndModify tasks", "update tasks", "aggregate tasks"} <= seen
    assert {"findAndModify executors", "find blobs.chunks", "findAndModify users"} <= seen


def test_no_query_of_the_store_is_forgotten_here(recorded: Any) -> None:
    _, _, called = recorded
    forgotten = {name for name, code in methods_of_the_store().items() if code not in called}
    assert forgotten == WITHOUT_QUERIES


def test_a_claim_looks_at_no_more_than_it_takes(recorded: Any) -> None:
    database, _, _ = recorded
    store = TaskStore(database, "j1")
    query = store.waiting_query(["l0", "l1", "l2", "l3", ""], "ex")
    explanation = database.command(
        "explain",
        {
            "find": "tasks",
            "filter": query,
            "sort": {"p": -1, "h": 1, "_id": 1},
            "limit": 3,
            "hint": "queue",
        },
        verbosity="executionStats",
    )
    stats = explanation["executionStats"]
    assert stats["nReturned"] == 3
    assert stats["totalDocsExamined"] <= 3 + 5
    assert stats["totalKeysExamined"] <= 3 + 2 * 5
