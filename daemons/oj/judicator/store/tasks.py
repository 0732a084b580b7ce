"""The tasks in MongoDB: every query that is made on them.

How a task's document looks, and its indexes, are in documents.py. Changes to a
task in an executor's hand are fenced by executor, incarnation and attempt.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bson import Binary, ObjectId
from pymongo import ReturnDocument, UpdateOne
from pymongo.client_session import ClientSession
from pymongo.database import Database

from oj.clock import Deadline
from oj.judicator.report import Finished, Judged
from oj.judicator.store.database import DURABLE, QUICK, SAFE, at_the_edge
from oj.judicator.store.documents import (
    CLAIMED,
    HELD,
    INDEXES,
    QUEUE_ORDER,
    SUMMARY,
    Claimed,
    Held,
    Progress,
    Record,
    to_claimed,
    to_held,
    to_record,
)
from oj.model import FINAL, Status, Verdict

MOST_ATTEMPTS_KEPT = 20
CONFIRM_S = 1.0
LOOK_AGAIN_S = 0.02
_FINAL = [int(status) for status in FINAL]
MOST_CLAIMED_BYTES = 8 << 20  # half a frame


class TaskStore:
    """The collection of tasks, as one judicator uses it."""

    def __init__(self, database: Database[Any], judicator: str) -> None:
        self._quick = database.get_collection("tasks", write_concern=QUICK)
        self._durable = database.get_collection("tasks", write_concern=DURABLE)
        self._safe = database.get_collection("tasks", read_concern=SAFE)
        # The word is another one in each process, whose numbers all begin at 1.
        self._marked_by = f"{judicator}:{secrets.token_hex(4)}"
        self._marks = itertools.count(1)

    def _mark(self) -> str:
        # Always another value: a field that is set to what it was before does
        # not show in the change stream.
        return f"{self._marked_by}:{next(self._marks)}"

    @at_the_edge
    def make_indexes(self) -> None:
        self._durable.create_indexes(INDEXES)

    # --------------------------------------------------------------- reading

    @at_the_edge
    def get(self, task_id: str, *, body: bool, result: bool, ended: bool) -> Record | None:
        leave_out = {
            name: 0 for name, wanted in (("b", body), ("r", result), ("at", ended)) if not wanted
        }
        document = self._quick.find_one({"_id": ObjectId(task_id)}, leave_out or None)
        if document is None:
            return None
        record = to_record(document)
        if record.done:
            self._confirm_end(task_id)
        return record

    def _confirm_end(self, task_id: str) -> None:
        """Raises Unavailable unless a majority has the end of this task as well.

        A primary that was cut off may have an end that is going to be undone, and nobody must be
        told of it. (Along one history an end never changes: if a majority has one, it is this.)
        """
        deadline = Deadline(CONFIRM_S)
        while (
            self._safe.find_one({"_id": ObjectId(task_id), "s": {"$in": _FINAL}}, {"_id": 1})
            is None
        ):
            deadline.check("the end of the task is not stored safely yet")
            time.sleep(LOOK_AGAIN_S)

    # -------------------------------------------------------------- claiming

    def _claim_update(self, executor: str, incarnation: str, number: int) -> dict[str, Any]:
        return {
            "$set": {
                "s": int(Status.COMPILING),
                "e": executor,
                "o": executor,
                "i": incarnation,
                "cn": number,
                "td": 0,
                "by": self._mark(),
            },
            "$inc": {"a": 1},
            "$unset": {"q": ""},
            "$currentDate": {"ct": True, "rt": True, "lt": True},
        }

    def waiting_query(
        self, languages: Sequence[str], executor: str, alone: Sequence[str] = ()
    ) -> dict[str, Any]:
        """What waits for this executor: not what it gave back before, unless it
        is alone with the language."""
        query: dict[str, Any] = {"q": True, "l": {"$in": list(languages)}}
        if alone:
            query["$or"] = [{"x": {"$ne": executor}}, {"l": {"$in": list(alone)}}]
        else:
            query["x"] = {"$ne": executor}
        return query

    @at_the_edge
    def claim(
        self,
        query: Mapping[str, Any],
        executor: str,
        incarnation: str,
        number: int,
        vacant: int,
    ) -> list[Claimed]:
        """Gives up to `vacant` of the waiting tasks to the executor: one call for
        one task, two for many, one more if another judicator was in the way."""
        update = self._claim_update(executor, incarnation, number)
        if vacant == 1:
            document = self._quick.find_one_and_update(
                query,
                update,
                projection=CLAIMED,
                sort=QUEUE_ORDER,
                return_document=ReturnDocument.AFTER,
                hint="queue",
            )
            return [to_claimed(document)] if document else []
        found = self._find_waiting(query, vacant)
        if not found:
            return []
        ids = [document["_id"] for document in found]
        outcome = self._quick.update_many({"_id": {"$in": ids}, "q": True}, update)
        if outcome.modified_count < len(found):
            mark = update["$set"]["by"]
            won = {
                document["_id"]
                for document in self._quick.find({"_id": {"$in": ids}, "by": mark}, {"_id": 1})
            }
            found = [document for document in found if document["_id"] in won]
        for document in found:
            document.update(s=Status.COMPILING, e=executor, a=document["a"] + 1, td=0)
        return [to_claimed(document) for document in found]

    def _find_waiting(self, query: Mapping[str, Any], most: int) -> list[dict[str, Any]]:
        """The next tasks in line, no more of them than one answer can carry."""
        found: list[dict[str, Any]] = []
        size_bytes = 0
        with self._quick.find(query, CLAIMED, sort=QUEUE_ORDER, limit=most, hint="queue") as tasks:
            for document in tasks:
                size_bytes += len(document["b"])
                if found and size_bytes > MOST_CLAIMED_BYTES:
                    break
                found.append(document)
        return found

    @at_the_edge
    def find_waiting_languages(self, languages: Iterable[str]) -> list[str]:
        """Those of the languages for which a task waits."""
        names = list(languages)
        found: dict[str, None] = {}
        # One call when nothing waits, which is nearly always.
        while names and (
            document := self._quick.find_one(
                {"q": True, "l": {"$in": names}}, {"l": 1, "_id": 0}, hint="queue"
            )
        ):
            found[document["l"]] = None
            names.remove(document["l"])
        return list(found)

    # --------------------------------------------------------------- in hand

    @at_the_edge
    def find_held(self, executor: str) -> list[Held]:
        """Everything that an executor has in hand, of any incarnation."""
        return [
            to_held(document) for document in self._quick.find({"o": executor}, HELD, hint="owner")
        ]

    @at_the_edge
    def find_one_held(self, task_id: str) -> Held | None:
        document = self._quick.find_one({"_id": ObjectId(task_id), "o": {"$exists": True}}, HELD)
        return to_held(document) if document else None

    @at_the_edge
    def renew(self, executor: str, incarnation: str, ids: Iterable[str]) -> None:
        self._quick.update_many(
            {"_id": {"$in": [ObjectId(i) for i in ids]}, "o": executor, "i": incarnation},
            {"$currentDate": {"lt": True}},
        )

    @at_the_edge
    def progress(self, executor: str, incarnation: str, steps: Iterable[Progress]) -> None:
        self._quick.bulk_write(
            [
                UpdateOne(
                    {
                        "_id": ObjectId(step.id),
                        "o": executor,
                        "i": incarnation,
                        "a": step.attempt,
                    },
                    {
                        "$set": {
                            "s": int(step.status),
                            "td": step.tests_done,
                            "by": self._mark(),
                        },
                        "$currentDate": {"rt": True, "lt": True} if step.moved else {"lt": True},
                    },
                )
                for step in steps
            ],
            ordered=False,
        )

    @at_the_edge
    def find_expired(self, lease_s: float, most: int) -> list[Held]:
        """What is in hand with a lease that ran out, by the database's clock.

        Looks at all that is in hand, which is as much as all executors have slots:
        an index on the lease would cost every task more than this costs a second.
        """
        pipeline = [
            {
                "$match": {
                    "o": {"$exists": True},
                    "$expr": {"$lt": ["$lt", {"$subtract": ["$$NOW", int(lease_s * 1000)]}]},
                }
            },
            {"$limit": most},
            {"$project": HELD},
        ]
        return [to_held(document) for document in self._quick.aggregate(pipeline, hint="owner")]

    @at_the_edge
    def mend_leases(self, lease_s: float) -> int:
        """Begins leases anew that begin in the future: the database's clock was set back, and they
        would not run out for as long. How many; whoever does it, it does no harm."""
        future = {"$gt": ["$lt", {"$add": ["$$NOW", int(lease_s * 1000)]}]}
        return self._quick.update_many(
            {"o": {"$exists": True}, "$expr": future},
            {"$currentDate": {"lt": True}},
            hint="owner",
        ).modified_count

    # ---------------------------------------------------------------- ending

    @at_the_edge
    def finish(self, executor: str, finished: Finished) -> Record | None:
        """Records a result if the task is still in these hands; None if it is not."""
        judged = finished.judged
        assert judged is not None
        document = self._durable.find_one_and_update(
            _fence(executor, finished),
            self._finish_update(judged),
            projection=SUMMARY,
            return_document=ReturnDocument.AFTER,
        )
        return to_record(document, judged.body) if document else None

    @at_the_edge
    def finish_many(self, executor: str, all_finished: Sequence[Finished]) -> list[bool]:
        """The same for several at once, in one call; whether each was recorded."""
        updates = [self._finish_update(f.judged) for f in all_finished if f.judged is not None]
        changes = [
            UpdateOne(_fence(executor, finished), update)
            for finished, update in zip(all_finished, updates, strict=True)
        ]
        outcome = self._durable.bulk_write(changes, ordered=False)
        if outcome.matched_count == len(changes):
            return [True] * len(changes)
        ids = [ObjectId(finished.id) for finished in all_finished]
        marks = {d["_id"]: d["by"] for d in self._quick.find({"_id": {"$in": ids}}, {"by": 1})}
        return [
            marks.get(i) == update["$set"]["by"] for i, update in zip(ids, updates, strict=True)
        ]

    def _finish_update(self, judged: Judged) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "s": int(judged.status),
            "v": int(judged.verdict),
            "sc": judged.score,
            "td": judged.tests_done,
            "r": Binary(judged.body),
            "by": self._mark(),
        }
        if judged.message:
            fields["m"] = judged.message
        return {"$set": fields, "$unset": {"o": "", "lt": ""}, "$currentDate": {"rt": True}}

    @at_the_edge
    def retry(
        self,
        held: Held,
        why: str,
        *,
        avoid: bool,
        same_lease: bool,
        session: ClientSession | None = None,
    ) -> Record | None:
        """Lets a task wait again, in front of its priority: it has waited its turn."""
        update: dict[str, Any] = {
            "$set": {"s": int(Status.RETRYING), "q": True, "h": 0, "td": 0, "by": self._mark()},
            "$unset": {"o": "", "lt": ""},
            "$push": {"at": self._ended(held, why)},
            "$currentDate": {"rt": True},
        }
        if avoid:
            # Only the last one is avoided: if every executor gave it back once, it still goes
            # round until its attempts are used up.
            update["$set"]["x"] = held.executor
        return self._end_attempt(held, update, same_lease, session)

    @at_the_edge
    def give_up(
        self,
        held: Held,
        why: str,
        message: str,
        *,
        same_lease: bool,
        session: ClientSession | None = None,
    ) -> Record | None:
        """Ends a task that could not be judged."""
        update = {
            "$set": {
                "s": int(Status.INTERNAL_ERROR),
                "v": int(Verdict.JUDGE_ERROR),
                "sc": 0.0,
                "m": message,
                "by": self._mark(),
            },
            "$unset": {"o": "", "lt": ""},
            "$push": {"at": self._ended(held, why)},
            "$currentDate": {"rt": True},
        }
        return self._end_attempt(held, update, same_lease, session)

    def _end_attempt(
        self, held: Held, update: Any, same_lease: bool, session: ClientSession | None
    ) -> Record | None:
        fence = held.fence
        if same_lease:
            # The sweep must not take away what was renewed since it looked.
            fence["lt"] = held.lease_time
        document = self._durable.find_one_and_update(
            fence,
            update,
            projection=SUMMARY,
            return_document=ReturnDocument.AFTER,
            session=session,
        )
        return to_record(document) if document else None

    def _ended(self, held: Held, why: str) -> dict[str, Any]:
        entry = {
            "n": held.attempt,
            "e": held.executor,
            "t": held.claim_time,
            "w": why[:500],
        }
        return {"$each": [entry], "$slice": -MOST_ATTEMPTS_KEPT}

    @at_the_edge
    def cancel(self, task_id: str) -> tuple[bool, Record | None]:
        """Whether this call cancelled it, and the task if it exists."""
        unfinished = [int(status) for status in Status if status not in FINAL]
        document = self._durable.find_one_and_update(
            {"_id": ObjectId(task_id), "s": {"$in": unfinished}},
            {
                "$set": {"s": int(Status.CANCELLED), "by": self._mark()},
                "$unset": {"o": "", "lt": "", "q": ""},
                "$currentDate": {"rt": True},
            },
            projection=SUMMARY,
            return_document=ReturnDocument.AFTER,
        )
        if document:
            return True, to_record(document)
        return False, self.get(task_id, body=False, result=False, ended=False)


def _fence(executor: str, finished: Finished) -> dict[str, Any]:
    return {
        "_id": ObjectId(finished.id),
        "o": executor,
        "i": finished.incarnation,
        "a": finished.attempt,
    }
