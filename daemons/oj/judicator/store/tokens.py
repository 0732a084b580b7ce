"""Tokens of the gateways' users in MongoDB: hashes and rights, never a secret that opens a door.

tokens: _id id, h SHA-256 of the secret, n name, u user, r roles, q tasks an hour,
        t made, x expires (MongoDB removes it then), p parent of a session,
        hs secret that signs webhooks, w the hour of c, c tasks added in it,
        now and ok of the last time that it was spent from
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pymongo import ASCENDING, IndexModel, ReturnDocument
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from oj.errors import Missing, Rejected
from oj.judicator.store.database import DURABLE, at_the_edge, to_ms

HOUR_MS = 3_600_000
_NEVER = datetime(9999, 1, 1, tzinfo=UTC)
ROLES = frozenset({"submit", "read", "admin"})


@dataclass(frozen=True)
class Token:
    id: str
    name: str
    user: str
    roles: frozenset[str]
    quota: int | None
    made_ms: int
    expires_ms: int | None
    parent: str | None
    webhook_secret: str | None


@dataclass(frozen=True)
class Spent:
    allowed: bool
    left: int | None
    reset_ms: int | None


class Tokens:
    def __init__(self, database: Database[Any]) -> None:
        self._tokens = database.get_collection("tokens", write_concern=DURABLE)

    @at_the_edge
    def make_indexes(self) -> None:
        self._tokens.create_indexes(
            [
                IndexModel([("h", ASCENDING)], name="hash", unique=True),
                IndexModel([("p", ASCENDING)], name="parent", sparse=True),
                IndexModel([("x", ASCENDING)], name="expiry", expireAfterSeconds=0),
            ]
        )

    @at_the_edge
    def add(self, token: Token, digest: str) -> Token:
        if token.parent is not None and not self._tokens.find_one(
            {"_id": token.parent}, {"_id": 1}
        ):
            raise Rejected("parent is not a token", "parent")
        document: dict[str, Any] = {
            "_id": secrets.token_hex(8),
            "h": digest,
            "n": token.name,
            "u": token.user,
            "r": sorted(token.roles),
            "t": datetime.now(UTC),
        }
        if token.quota is not None:
            document["q"] = token.quota
        if token.expires_ms is not None:
            document["x"] = datetime.fromtimestamp(token.expires_ms / 1000, UTC)
        if token.parent is not None:
            document["p"] = token.parent
        if token.webhook_secret is not None:
            document["hs"] = token.webhook_secret
        try:
            self._tokens.insert_one(document)
        except DuplicateKeyError:
            # Said twice because the first answer was lost, or a secret that is no secret.
            known = self._tokens.find_one({"h": digest}, hint="hash")
            if known is None or (known["u"], known["n"]) != (token.user, token.name):
                raise Rejected("hash is in use", "hash") from None
            return to_token(known)
        return to_token(document)

    @at_the_edge
    def find(self, digest: str) -> Token:
        document = self._tokens.find_one(
            {"h": digest, "$expr": {"$gt": [{"$ifNull": ["$x", _NEVER]}, "$$NOW"]}},
            hint="hash",
        )
        if document is None or not self._has_parent(document):
            raise Missing("there is no such token")
        return to_token(document)

    def _has_parent(self, document: Mapping[str, Any]) -> bool:
        parent = document.get("p")
        return parent is None or self._tokens.find_one({"_id": parent}, {"_id": 1}) is not None

    @at_the_edge
    def list_all(self) -> list[Token]:
        """All but sessions, the oldest first."""
        found = self._tokens.find({"_id": {"$gt": ""}, "p": {"$exists": False}}, hint="_id_")
        return sorted(map(to_token, found), key=lambda token: token.made_ms)

    @at_the_edge
    def remove(self, token_id: str) -> None:
        self._tokens.delete_many({"p": token_id}, hint="parent")
        if self._tokens.delete_one({"_id": token_id}).deleted_count == 0:
            raise Missing(f"there is no token {token_id}", token_id)

    @at_the_edge
    def spend(self, token_id: str, tasks: int) -> Spent:
        """Takes from what the token may still add in this hour, by the database's clock."""
        hour = {"$floor": {"$divide": [{"$toLong": "$$NOW"}, HOUR_MS]}}
        spent = {"$cond": [{"$eq": ["$w", hour]}, {"$ifNull": ["$c", 0]}, 0]}
        document = self._tokens.find_one_and_update(
            {"_id": token_id},
            [
                {"$set": {"c": spent, "w": hour, "now": {"$toLong": "$$NOW"}}},
                {
                    "$set": {
                        "ok": {
                            "$lte": [{"$add": ["$c", tasks]}, {"$ifNull": ["$q", 1 << 40]}],
                        }
                    }
                },
                {"$set": {"c": {"$cond": ["$ok", {"$add": ["$c", tasks]}, "$c"]}}},
            ],
            return_document=ReturnDocument.AFTER,
        )
        if document is None:
            raise Missing(f"there is no token {token_id}", token_id)
        if document.get("q") is None:
            return Spent(True, None, None)
        reset_ms = int((document["w"] + 1) * HOUR_MS - document["now"])
        return Spent(bool(document["ok"]), max(0, document["q"] - int(document["c"])), reset_ms)

    @at_the_edge
    def find_secrets(self, ids: set[str]) -> dict[str, str]:
        """What signs the webhooks of these tokens."""
        found = self._tokens.find({"_id": {"$in": sorted(ids)}}, {"hs": 1})
        return {document["_id"]: document["hs"] for document in found if document.get("hs")}


def to_token(document: Mapping[str, Any]) -> Token:
    return Token(
        id=document["_id"],
        name=document["n"],
        user=document["u"],
        roles=frozenset(document["r"]),
        quota=document.get("q"),
        made_ms=to_ms(document["t"]) or 0,
        expires_ms=to_ms(document.get("x")),
        parent=document.get("p"),
        webhook_secret=document.get("hs"),
    )
