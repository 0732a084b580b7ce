"""The leader's fence in the database: what a leader does, it does only while no newer one is known.

    leader: _id "leader", era, fence, name, session, n (acts), t (the last one)

etcd elects the leader, but a leader that was paused learns too late that it no longer is one. So
each leader writes the etcd revision of its victory here before it acts, and every act is a
transaction that also writes this document, on condition that the revision is still its own. Of an
act and the next leader's arrival one comes first: if it is the arrival, the act does not happen.

An act that its leader left half done, because it was paused, holds locks; the next leader ends the
session that it was done in, whose number is here, and need not wait.

Revisions of another etcd, set up anew, mean nothing beside ours. `era` is a word that each etcd is
given when its first leader arrives.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from bson import Binary, Int64
from bson.binary import UUID_SUBTYPE
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError, PyMongoError

from oj.clock import Deadline
from oj.judicator.store.database import (
    DURABLE,
    QUICK,
    WRITE_MS,
    at_the_edge,
    commit,
    translated,
)

RAISE_MS = 2_000


class Deposed(Exception):
    """A newer leader has arrived."""


@dataclass(frozen=True)
class Reign:
    """One leader's time, from its victory on."""

    era: str
    fence: int


class Leadership:
    """The fence, as one judicator uses it."""

    def __init__(self, database: Database[Any], judicator: str) -> None:
        self._client = database.client
        self._durable = database.get_collection("leader", write_concern=DURABLE)
        self._quick = database.get_collection("leader", write_concern=QUICK)
        self._name = judicator
        self._session: ClientSession | None = None

    @at_the_edge
    def begin(self, reign: Reign) -> None:
        """Ends all earlier reigns; raises Deposed if a later one has begun."""
        self._close_session()
        self._session = self._client.start_session()
        self._end_acts_of_the_last(reign)
        fields = {
            "era": reign.era,
            "fence": Int64(reign.fence),
            "name": self._name,
            "session": bytes(self._session.session_id["id"]).hex(),
        }
        # Equal is our own: the answer to the first try was lost.
        earlier = {"fence": {"$lte": Int64(reign.fence)}}
        older = {"_id": "leader", "$or": [{"era": {"$ne": reign.era}}, earlier]}
        if self._raise(older, fields):
            return
        try:
            self._durable.insert_one({"_id": "leader", **fields})
        except DuplicateKeyError:
            # There since we looked, or a later one.
            if not self._raise(older, fields):
                raise Deposed from None

    def _raise(self, older: Any, fields: Any) -> bool:
        change = {"$set": fields, "$currentDate": {"t": True}}
        found = self._durable.find_one_and_update(older, change, maxTimeMS=RAISE_MS)
        return found is not None

    def _end_acts_of_the_last(self, reign: Reign) -> None:
        found = self._quick.find_one({"_id": "leader"})
        if found is None or (found["era"] == reign.era and found["fence"] > reign.fence):
            return
        number = Binary(bytes.fromhex(found["session"]), UUID_SUBTYPE)
        self._client.admin.command("killSessions", [{"id": number}])

    @contextmanager
    def acting(self, reign: Reign) -> Iterator[ClientSession]:
        """All that is written with the session is done when this ends, or nothing is.

        Raises Deposed, and nothing is, when a later reign has begun.
        """
        session = self._session
        assert session is not None, "begin() comes first"
        deadline = Deadline(WRITE_MS / 1000)
        with translated():
            session.start_transaction(write_concern=DURABLE, max_commit_time_ms=WRITE_MS)
            try:
                yield session
                # At the end: the next leader's arrival waits for this lock, if only briefly.
                outcome = self._quick.update_one(
                    {"_id": "leader", "era": reign.era, "fence": reign.fence},
                    {"$inc": {"n": 1}, "$currentDate": {"t": True}},
                    session=session,
                )
                if outcome.matched_count != 1:
                    raise Deposed
            except BaseException:
                _abort(session)
                raise
            commit(session, deadline)

    def close(self) -> None:
        self._close_session()

    def _close_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.end_session()


def _abort(session: ClientSession) -> None:
    with suppress(PyMongoError):  # the server ends it by itself
        session.abort_transaction()
