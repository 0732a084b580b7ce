#!/usr/bin/python3
"""Load for a machine under test; runs inside it on the installed library.

load.py add COUNT SLEEP_S USER      adds tasks, prints their ids
load.py settle TIMEOUT_S            reads ids, waits for each, prints how they ended
load.py steady FILE                 adds and awaits until FILE.stop exists; ids go to FILE
load.py recorded                    how often each task was given a final status
"""

import json
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from oj.client import Judicators
from oj.clock import Deadline
from oj.errors import Unavailable
from oj.model import FINAL, Limits, Step, Task

PLACE = [("127.0.0.1", 7500)]


def make(sleep_s: float, user: str) -> Task:
    command = ("/bin/sleep", str(sleep_s)) if sleep_s else ("/bin/true",)
    return Task(execute=Step(command, Limits(wall_ms=60_000)), user=user)


def add(count: int, sleep_s: float, user: str) -> list[str]:
    with Judicators(PLACE) as judicators:
        return judicators.add_many([make(sleep_s, user)] * count, Deadline(60))


def settle(ids: list[str], timeout_s: float) -> dict[str, dict[str, object]]:
    deadline = Deadline(timeout_s)
    ended: dict[str, dict[str, object]] = {}
    with Judicators(PLACE) as judicators:
        for task in ids:
            info = judicators.wait_done(task, deadline=deadline)
            ended[task] = {
                "status": info.status.word,
                "verdict": info.verdict.word if info.verdict else None,
                "attempt": info.attempt,
                "executor": info.executor,
            }
    return ended


def steady(file: Path) -> None:
    """Four callers that add a task and await it, over and over."""
    stop = file.with_suffix(".stop")
    lock = threading.Lock()

    def call(judicators: Judicators, out: object) -> None:
        while not stop.exists():
            try:
                task = judicators.add(make(0.05, "steady"), Deadline(300))
                with lock:
                    out.write(task + "\n")  # type: ignore[attr-defined]
                    out.flush()  # type: ignore[attr-defined]
                judicators.wait_done(task, deadline=Deadline(300))
            except Unavailable as error:
                print(f"gave up on a call: {error}", file=sys.stderr)

    with Judicators(PLACE) as judicators, file.open("w") as out:
        callers = [threading.Thread(target=call, args=(judicators, out)) for _ in range(4)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()


def recorded() -> Counter[str]:
    """By the database's own log of writes, which no crash of a daemon leaves behind."""
    counts: Counter[str] = Counter()
    final = {int(status) for status in FINAL}
    client: MongoClient[Any] = MongoClient("127.0.0.1", 7503, directConnection=True)
    with client:
        for entry in client.local["oplog.rs"].find({"op": {"$in": ["u", "c"]}}):
            # The writes of a transaction are one entry.
            for write in entry["o"].get("applyOps", [entry]):
                if write.get("op") == "u" and write["ns"] == "oj.tasks":
                    diff = write["o"].get("diff", {})
                    if diff.get("u", {}).get("s") in final:
                        counts[str(write["o2"]["_id"])] += 1
    return counts


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    if verb == "add":
        print(json.dumps(add(int(words[0]), float(words[1]), words[2])))
    elif verb == "settle":
        print(json.dumps(settle(json.load(sys.stdin), float(words[0]))))
    elif verb == "recorded":
        print(json.dumps(recorded()))
    elif verb == "steady":
        steady(Path(words[0]))
    else:
        sys.exit(__doc__)
