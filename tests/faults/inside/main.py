#!/usr/bin/python3
"""The client host's program: makes the load, and looks at the cluster when asked.

main.py HISTORY SEED HOST...    takes commands as lines of JSON, answers each with one
main.py minority NODE KEY TIMEOUT_S
    on a node that is cut off: tries to add through its own judicator, prints lines of history

A command is {"do": NAME, ...}; the answer is what it returns, or {"error": ...}.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("GRPC_DNS_RESOLVER", "native")

from drafts import plain
from looking import Looking
from oplog import Oplog
from pymongo.errors import PyMongoError
from record import Record
from traffic import PORT, Traffic

from oj.client import Judicators
from oj.clock import Deadline
from oj.errors import Unavailable


class Commands:
    def __init__(self, path: Path, seed: int, hosts: list[str]) -> None:
        self._record = Record(path)
        self._looking = Looking()
        self._oplog = Oplog(self._looking, self._record)
        self._traffic = Traffic(hosts, self._record, seed)
        self._numbers = itertools.count(1)
        self._seed = seed

    def start(self, rate: float) -> None:
        self._traffic.start(rate)

    def look(self, hosts: list[str]) -> dict[str, Any]:
        return self._looking.look(hosts)

    def judge(self, host: str, timeout_s: float) -> float | None:
        """How long one task takes through this judicator; None if it is not done in time."""
        began = time.monotonic()
        deadline = Deadline(timeout_s)
        channel = Judicators([(host, PORT)], learn=False).channel()
        draft = plain(f"probe-{self._seed}-{next(self._numbers)}-{os.urandom(4).hex()}")
        with channel:
            try:
                task = self._traffic.add(channel, draft, timeout_s)
            except Unavailable:
                return None
            while not self._traffic.follow(channel, task, wait_s=2.0):
                if deadline.expired:
                    # Somebody must see its end nevertheless.
                    self._traffic.follow_later(task)
                    return None
        self._traffic.note_end()
        return time.monotonic() - began

    def count(self) -> dict[str, int]:
        traffic = self._traffic
        self._record.flush()
        return {
            "added": len(traffic.ids),
            "ended": traffic.ended,
            "troubles": traffic.troubles,
        }

    def writes_again(self, since: float) -> float | None:
        """How long after this moment an add that began later was acknowledged."""
        later = [t1 for t0, t1 in list(self._traffic.acknowledged) if t0 > since]
        return min(later) - since if later else None

    def read_oplog(self, hosts: list[str]) -> list[str]:
        return self._oplog.read_new(hosts)

    def checkpoint(self, host: str) -> str:
        """Lets a mongod write all that it has in memory to its disk, or try to."""
        try:
            self._looking.mongod(host).admin.command("fsync")
        except PyMongoError as error:
            return str(error)
        return ""

    def finish(self, timeout_s: float) -> list[str]:
        return self._traffic.finish(timeout_s)

    def audit(self, timeout_s: float) -> list[str]:
        return self._traffic.audit(timeout_s)

    def close(self) -> None:
        self._record.flush()


def serve(path: Path, seed: int, hosts: list[str]) -> None:
    commands = Commands(path, seed, hosts)
    for line in sys.stdin:
        fields = json.loads(line)
        try:
            answer = getattr(commands, fields.pop("do"))(**fields)
        except Exception as error:  # noqa: BLE001 (the caller decides)
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def try_minority(node: str, key: str, timeout_s: float) -> None:
    deadline = Deadline(timeout_s)
    channel = Judicators([("127.0.0.1", PORT)], learn=False).channel()
    draft = plain(key)
    while not deadline.expired:
        t0 = time.monotonic()
        task = None
        with contextlib.suppress(Unavailable):
            task = channel.add(draft.task, Deadline(deadline.cap(3.0)))
        line = {"call": "add", "key": key, "t0": t0, "t1": time.monotonic(), "id": task}
        print(json.dumps({**line, "ends": draft.ends, "node": node}), flush=True)
        if task:
            return
        time.sleep(0.3)


if __name__ == "__main__":
    if sys.argv[1] == "minority":
        try_minority(sys.argv[2], sys.argv[3], float(sys.argv[4]))
    else:
        serve(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
