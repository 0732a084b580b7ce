"""Search over tasks: pages by id, every combination of conditions by an index.

The most selective index is chosen here and not by the database, which would
guess by trying; the other conditions filter what the index yields. A search
that has to look at too much for one page says so instead of working on.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bson import ObjectId
from pymongo.database import Database
from pymongo.errors import ExecutionTimeout

from oj import model
from oj.errors import Rejected
from oj.judicator.store.database import SAFE, at_the_edge
from oj.judicator.store.documents import SUMMARY, Record, to_record
from oj.judicator.store.ids import first_id_at

SEARCH_MS = 4_000
MOST_IDS = 10_000


def _numbers(kind: type[model.Status] | type[model.Verdict], values: Any, where: str) -> list[int]:
    try:
        return sorted(int(kind(value)) for value in values)
    except ValueError as error:
        raise Rejected(f"{where}: {error}", where) from None


def build_query(conditions: Any, cursor: str) -> tuple[dict[str, Any], str, int]:
    """The filter, the index to use, and the direction; raises Rejected."""
    c = conditions
    query: dict[str, Any] = {}
    hint = "_id_"
    ids: dict[str, Any] = {}
    direction = 1 if c.oldest_first else -1
    if c.added_from is not None:
        ids["$gte"] = first_id_at(c.added_from)
    if c.added_before is not None:
        ids["$lt"] = first_id_at(c.added_before)
    if cursor:
        after = ObjectId(model.check_id(cursor, "cursor"))
        if direction > 0:
            ids["$gt"] = after
        else:
            ids["$lt"] = min(after, ids.get("$lt", after))
    statuses = _choose_statuses(c)
    # From the least to the most selective: the last one set is used.
    if statuses is not None:
        query["s"] = {"$in": statuses}
        hint = "status"
    if c.language is not None:
        query["l"] = model.check_word(c.language, "language", empty=True)
        hint = "language"
    if c.verdicts:
        query["v"] = {"$in": _numbers(model.Verdict, c.verdicts, "verdicts")}
        hint = "verdict"
    if c.executor is not None:
        query["e"] = model.check_node(c.executor, "executor")
        hint = "executor"
    if c.user is not None:
        query["u"] = model.check_word(c.user, "user", empty=True)
        hint = "user"
    if c.tags:
        tags = sorted(model.check_word(tag, "tags") for tag in c.tags)
        query["g"] = tags[0]
        if len(tags) > 1:
            query["$and"] = [{"g": tag} for tag in tags[1:]]
        hint = "tag"
    if c.ids is not None:
        ids["$in"] = [ObjectId(i) for i in _check_ids(c.ids)]
        hint = "_id_"
    if ids:
        query["_id"] = ids
    return query, hint, direction


def _choose_statuses(c: Any) -> list[int] | None:
    statuses = None if not c.statuses else set(_numbers(model.Status, c.statuses, "statuses"))
    if c.done is not None:
        side = {int(s) for s in model.Status if (s in model.FINAL) == bool(c.done)}
        statuses = side if statuses is None else statuses & side
    return None if statuses is None else sorted(statuses)


def _check_ids(ids: Iterable[Any]) -> list[str]:
    wanted = sorted(model.check_id(i, "ids") for i in ids)
    if len(wanted) > MOST_IDS:
        raise Rejected(f"ids has more than {MOST_IDS}", "ids")
    return wanted


class Search:
    """Finds tasks."""

    def __init__(self, database: Database[Any]) -> None:
        self._tasks = database.get_collection("tasks", read_concern=SAFE)

    @at_the_edge
    def find(self, conditions: Any, cursor: str, limit: Any) -> tuple[list[Record], str | None]:
        """One page, and the cursor of the next if there is one."""
        if limit is None or limit < 1:
            raise Rejected("limit must be 1 or more", "limit")
        limit = min(limit, model.MAX_PAGE)
        query, hint, direction = build_query(conditions, cursor)
        found = self._tasks.find(
            query,
            SUMMARY,
            sort=[("_id", direction)],
            limit=limit + 1,
            batch_size=limit + 1,
            hint=hint,
            max_time_ms=SEARCH_MS,
        )
        try:
            records = [to_record(document) for document in found]
        except ExecutionTimeout:
            raise Rejected(
                f"the search looked at tasks for {SEARCH_MS // 1000} s without filling a page: "
                "add a condition, such as a time range",
                "conditions",
            ) from None
        more = len(records) > limit
        return records[:limit], records[limit - 1].id if more else None
