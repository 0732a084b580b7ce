"""What oj-mongodb tells of its mongod when Prometheus asks."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from oj.child import Silent
from oj.errors import Unavailable
from oj.metrics import Reading
from oj.mongodb.replicaset import Node


def look(node: Node, data: Path) -> Iterator[Reading]:
    with contextlib.suppress(OSError):
        free_bytes = shutil.disk_usage(data).free
        yield Reading("oj_mongodb_disk_free_bytes", "Room where its data is", free_bytes)
    try:
        state = node.state()
    except (Silent, Unavailable):
        yield Reading("oj_mongodb_up", "Whether it serves in a set with a primary", 0)
        return
    serves = state.word in ("primary", "secondary") and bool(state.primary)
    yield Reading("oj_mongodb_up", "Whether it serves in a set with a primary", serves)
    yield Reading("oj_mongodb_primary", "Whether it is the primary", state.word == "primary")
    yield Reading("oj_mongodb_members", "Members of the replica set", len(state.members))
    yield Reading("oj_mongodb_members_up", "Those that serve", len(state.up))
    own = next((member for member in state.members if member.host == state.me), None)
    if own is not None and own.lag_s is not None:
        yield Reading("oj_mongodb_lag_seconds", "Behind the newest member", own.lag_s)
