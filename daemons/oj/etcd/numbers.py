"""What oj-etcd tells of its etcd when Prometheus asks."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from oj.errors import Unavailable
from oj.etcd.membership import PROBE
from oj.etcdwire import Connection
from oj.metrics import Reading

ASK_S = 2.0


def look_at_member(connection: Connection, data: Path, quota_bytes: int) -> Iterator[Reading]:
    yield from _look_at_disk(data)
    yield Reading("oj_etcd_quota_bytes", "The largest that its file may get", quota_bytes)
    try:
        status = connection.status(timeout_s=ASK_S)
    except Unavailable:
        yield _up(False)
        return
    yield _up(status.leader_id != 0)
    leads = status.leader_id == status.id
    yield Reading("oj_etcd_leader", "Whether this member leads", leads)
    yield Reading("oj_etcd_learner", "Whether it has no vote yet", status.learner)
    yield Reading("oj_etcd_size_bytes", "Its file", status.db_size_bytes)
    yield Reading("oj_etcd_revision", "The newest change that it has", status.revision)
    with contextlib.suppress(Unavailable):
        members = connection.members(timeout_s=ASK_S)
        yield Reading("oj_etcd_members", "Members of the cluster", len(members))


def look_at_proxy(connection: Connection, data: Path) -> Iterator[Reading]:
    yield from _look_at_disk(data)
    try:
        connection.range(PROBE, timeout_s=ASK_S)
        yield _up(True)
    except Unavailable:
        yield _up(False)


def _up(serves: bool) -> Reading:
    return Reading("oj_etcd_up", "Whether it answers and knows a leader", serves)


def _look_at_disk(data: Path) -> Iterator[Reading]:
    with contextlib.suppress(OSError):
        free_bytes = shutil.disk_usage(data).free
        yield Reading("oj_etcd_disk_free_bytes", "Room where its data is", free_bytes)
