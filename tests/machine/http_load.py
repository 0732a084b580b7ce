#!/usr/bin/python3
"""Requests to the gateway of a machine under test; runs inside it, on the standard library alone.

http_load.py METHOD PATH            one request with a JSON body from standard input, if any
http_load.py steady FILE            four callers ask until FILE.stop exists; prints what came back
http_load.py judge                  adds a task, waits for its end, prints it

The token is in /root/token, so that no command line has it.
"""

import http.client
import itertools
import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

PLACE = ("127.0.0.1", 7580)
CALLERS = 4
PAUSE_S = 0.1  # the gateway allows 1200 requests a minute, and two tests may share one
HEADERS = {"Content-Type": "application/json"}


def call(method: str, path: str, body: Any = None, timeout_s: float = 30) -> tuple[int, Any]:
    """Status and JSON of an answer; status 0 when there was none."""
    token = Path("/root/token").read_text().strip()
    connection = http.client.HTTPConnection(*PLACE, timeout=timeout_s)
    try:
        sent = None if body is None else json.dumps(body).encode()
        connection.request(method, path, sent, HEADERS | {"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        text = answer.read()
    except (OSError, http.client.HTTPException) as error:
        return 0, f"{type(error).__name__}: {error}"
    finally:
        connection.close()
    try:
        return answer.status, json.loads(text)
    except ValueError:
        return answer.status, text.decode(errors="replace")


def judge() -> dict[str, Any]:
    task = {
        "language": "python",
        "source": [{"name": "sum.py", "text": "print(sum(map(int, input().split())))"}],
        "tests": [{"input": "1 2\n", "expected": "3\n"}, {"input": "4 5\n", "expected": "9\n"}],
    }
    end = time.monotonic() + 60
    task["key"] = f"judge-{time.time_ns()}"
    # Told to try again, as while a lost judicator's place is taken, one does.
    while (answer := call("POST", "/api/v1/tasks", task))[0] in (0, 503):
        if time.monotonic() > end:
            break
        time.sleep(0.5)
    status, made = answer
    if status not in (200, 201):
        return {"status_code": status, "answer": made}
    end = time.monotonic() + 60
    while True:
        status, now = call("GET", f"/api/v1/tasks/{made['id']}/wait?timeout=10")
        if (status == 200 and now.get("done")) or time.monotonic() > end:
            return dict(now)


def steady(file: Path) -> dict[str, Any]:
    """What was answered when: how many of each status, and the longest time without a good one."""
    stop = file.with_suffix(".stop")
    seen: list[tuple[float, float, int, str]] = []  # begun, ended, status, what
    lock = threading.Lock()

    def ask(number: int) -> None:
        add = {"execute": {"command": ["/bin/true"]}}
        while not stop.exists():
            begun_s = time.monotonic()
            if number % 2:
                status, told = call("GET", "/api/v1/tasks?limit=5")
            else:
                status, told = call("POST", "/api/v1/tasks", add)
            with lock:
                what = "" if 200 <= status < 300 else str(told)[:200]
                seen.append((begun_s, time.monotonic(), status, what))
            time.sleep(PAUSE_S)

    callers = [threading.Thread(target=ask, args=(number,)) for number in range(CALLERS)]
    for caller in callers:
        caller.start()
    file.touch()
    for caller in callers:
        caller.join()
    bad = sorted(ended for _, ended, status, _ in seen if not 200 <= status < 300)
    good = sorted(ended for _, ended, status, _ in seen if 200 <= status < 300)
    statuses: dict[str, int] = {}
    for _, _, status, _ in seen:
        statuses[str(status)] = statuses.get(str(status), 0) + 1
    return {
        "requests": len(seen),
        "statuses": statuses,
        "bad_for_s": bad[-1] - bad[0] if bad else 0.0,
        "longest_gap_s": max((b - a for a, b in itertools.pairwise(good)), default=0.0),
        "slowest_s": max(ended - begun for begun, ended, _, _ in seen),
        "told": sorted({what for *_, what in seen if what})[:5],
    }


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    if verb == "steady":
        print(json.dumps(steady(Path(words[0]))))
    elif verb == "judge":
        print(json.dumps(judge()))
    elif verb.isupper() and words:
        text = sys.stdin.read()
        code, said = call(verb, words[0], json.loads(text) if text else None)
        print(json.dumps({"status": code, "body": said}))
    else:
        sys.exit(__doc__)
