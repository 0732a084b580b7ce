"""New tasks into MongoDB: each under its key once, and many all or none."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import Any

from pymongo.database import Database
from pymongo.errors import (
    AutoReconnect,
    BulkWriteError,
    DuplicateKeyError,
    OperationFailure,
    ServerSelectionTimeoutError,
)

from oj.clock import Deadline
from oj.errors import Rejected, Unavailable
from oj.judicator.store.blobs import keep
from oj.judicator.store.database import DURABLE, QUICK, SAFE, WRITE_MS, at_the_edge, commit
from oj.judicator.store.documents import NewTask

LOOK_AGAIN_S = 0.02


class NewTasks:
    """The way in for tasks, as one judicator uses it."""

    def __init__(self, database: Database[Any], judicator: str) -> None:
        self._client = database.client
        self._quick = database.get_collection("tasks", write_concern=QUICK)
        self._durable = database.get_collection("tasks", write_concern=DURABLE)
        self._majority = database.get_collection("tasks", read_concern=SAFE)
        self._files = database.get_collection("blobs.files")
        self._mark = f"{judicator}:0"

    @at_the_edge
    def add(self, task: NewTask) -> str:
        """Stores a task; the id of the first one if the user's key is there already.

        Raises Rejected if a blob of it is not stored any more.
        """
        if task.new_blobs:
            return self.add_many([task])[0]
        document = task.document(self._mark)
        try:
            try:
                self._durable.insert_one(document)
            except ServerSelectionTimeoutError:
                raise  # there is no primary, and we have waited for one
            except AutoReconnect:
                # A new primary, perhaps: once more, under the same id.
                self._durable.insert_one(document)
        except DuplicateKeyError:
            # The id is ours alone: if that is there, the first try got through, and
            # if it is not, it was the key.
            return self._first_with_key(task)
        return str(task.id)

    def _first_with_key(self, task: NewTask) -> str:
        deadline = Deadline(WRITE_MS / 1000)
        while not deadline.expired:
            query: dict[str, Any] = (
                {"_id": task.id} if task.key is None else {"u": task.user, "k": task.key}
            )
            # Only what a majority has: the other add may not be durable yet.
            found = self._majority.find_one(query, {"_id": 1})
            if found:
                return str(found["_id"])
            time.sleep(LOOK_AGAIN_S)
        raise Unavailable("the first task with this key is not stored safely yet", 200)

    @at_the_edge
    def add_many(self, tasks: Sequence[NewTask]) -> list[str]:
        """Stores all or none, in one transaction; ids in the same order."""
        deadline = Deadline(WRITE_MS / 1000)
        while True:
            first: dict[tuple[str, str], str] = self._find_keys(tasks)
            new: list[NewTask] = []
            ids: list[str] = []
            for task in tasks:
                if task.key is not None:
                    known = first.setdefault((task.user, task.key), str(task.id))
                    ids.append(known)
                    if known != str(task.id):
                        continue
                else:
                    ids.append(str(task.id))
                new.append(task)
            if not new or self._insert_all(new, deadline):
                return ids
            deadline.check("adding tasks")
            time.sleep(LOOK_AGAIN_S * random.random())

    def _find_keys(self, tasks: Sequence[NewTask]) -> dict[tuple[str, str], str]:
        keys: dict[str, list[str]] = {}
        for task in tasks:
            if task.key is not None:
                keys.setdefault(task.user, []).append(task.key)
        found: dict[tuple[str, str], str] = {}
        for user, of_user in keys.items():
            for document in self._majority.find(
                {"u": user, "k": {"$in": of_user}}, {"k": 1}, hint="key"
            ):
                found[user, document["k"]] = str(document["_id"])
        return found

    def _insert_all(self, tasks: Sequence[NewTask], deadline: Deadline) -> bool:
        """False: a key was taken in the meantime, or a blob changed; look again."""
        documents = [task.document(self._mark) for task in tasks]
        new_blobs = {digest: at for task in tasks for digest, at in task.new_blobs.items()}
        with self._client.start_session() as session:
            session.start_transaction(write_concern=DURABLE)
            try:
                if new_blobs:
                    keep(self._files, new_blobs, session)
                self._quick.insert_many(documents, session=session, ordered=True)
            except Rejected:
                session.abort_transaction()
                raise
            except (BulkWriteError, OperationFailure) as error:
                session.abort_transaction()
                code = getattr(error, "code", None)
                if isinstance(error, BulkWriteError):
                    failures = (error.details or {}).get("writeErrors", [])
                    code = failures[0]["code"] if failures else code
                # A taken key, or one that another transaction is just taking, or a blob that
                # another one keeps or removes.
                if code in (11000, 112):
                    return False
                raise
            commit(session, deadline)
            return True
