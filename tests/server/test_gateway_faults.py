"""The gateway when something is killed under its requests: its own processes, or a judicator."""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path

import pytest

import loopback
import servers
from gateways import Gateway
from servers import wait_until

RUN = {"execute": {"command": ["/bin/true"]}}
CALLERS = 4
PAUSE_S = 0.02


@pytest.fixture(scope="module")
def cluster(etcd: servers.Etcd, mongod: servers.Mongod) -> Iterator[loopback.Cluster]:
    loopback.prepare()
    with loopback.Cluster(etcd, mongod) as one:
        yield one.start(judicators=2)


@pytest.fixture(scope="module")
def gateway(cluster: loopback.Cluster) -> Iterator[Gateway]:
    one = Gateway(cluster.addresses, "[limits]\nrequests = 1000000\n[webhooks]\nsend = no")
    yield one
    one.close()


@dataclass
class Seen:
    """What came back: when, and with which status; 0 is no answer at all."""

    answers: list[tuple[float, int]] = field(default_factory=list)
    added: list[str] = field(default_factory=list)

    @property
    def statuses(self) -> Counter[int]:
        return Counter(status for _, status in self.answers)

    @property
    def bad_for_s(self) -> float:
        """From the first to the last answer that was none, or one of 5xx."""
        bad = [at_s for at_s, status in self.answers if not 200 <= status < 500]
        return max(bad) - min(bad) if bad else 0.0

    @property
    def longest_gap_s(self) -> float:
        """The longest time without a good answer to anybody."""
        good = sorted(at_s for at_s, status in self.answers if 200 <= status < 300)
        return max((b - a for a, b in itertools.pairwise(good)), default=0.0)


@contextmanager
def load(gateway: Gateway, token: str) -> Iterator[Seen]:
    """Callers that read and add, meanwhile."""
    seen, stop, lock = Seen(), threading.Event(), threading.Lock()

    def ask(number: int) -> None:
        while not stop.is_set():
            status, made = 0, None
            try:
                if number % 2:
                    status = gateway.call("GET", "/api/v1/tasks?limit=5", token=token).status
                else:
                    answer = gateway.call("POST", "/api/v1/tasks", RUN, token=token)
                    status = answer.status
                    made = answer.json["id"] if status == 201 else None
            except (OSError, HTTPException):
                pass
            with lock:
                seen.answers.append((time.monotonic(), status))
                if made:
                    seen.added.append(made)
            stop.wait(PAUSE_S)

    callers = [threading.Thread(target=ask, args=(number,)) for number in range(CALLERS)]
    for caller in callers:
        caller.start()
    try:
        wait_until(lambda: len(seen.answers) > 20, 60, "requests")
        yield seen
        before = len(seen.answers)
        wait_until(lambda: len(seen.answers) > before + 50, 60, "requests afterwards")
    finally:
        stop.set()
        for caller in callers:
            caller.join()


def family(pid: int) -> dict[int, str]:
    """The processes below one, by what they call themselves."""
    found: dict[int, str] = {}
    left = [pid]
    while left:
        one = left.pop()
        try:
            children = Path(f"/proc/{one}/task/{one}/children").read_text().split()
            name = Path(f"/proc/{one}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        found[one] = name
        left += map(int, children)
    return found


def runs(pid: int) -> bool:
    """Whether there is such a process, other than one that has ended and was not asked for yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def workers(gateway: Gateway) -> set[int]:
    return {pid for pid, name in family(gateway.daemon.pid).items() if "uWSGI worker" in name}


def serves(pid: int) -> bool:
    """Whether a worker has loaded the application: then it has its threads."""
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir())) >= 160
    except OSError:  # it has ended meanwhile
        return False


def both_serve(gateway: Gateway) -> bool:
    found = workers(gateway)
    return len(found) == 2 and all(map(serves, found))


def test_a_reload_answers_every_request(gateway: Gateway) -> None:
    token = gateway.make_token("submit")
    # uWSGI passes over one that is only starting.
    wait_until(lambda: both_serve(gateway), 60, "both workers")
    before = workers(gateway)
    with load(gateway, token) as seen:
        gateway.daemon.send(signal.SIGHUP)
        wait_until(
            lambda: len(workers(gateway)) == 2 and not workers(gateway) & before,
            60,
            "new workers",
        )
        wait_until(lambda: both_serve(gateway), 60, "both new workers")
    print(f"\nreload: {dict(seen.statuses)}, longest gap {seen.longest_gap_s:.2f} s")
    assert set(seen.statuses) <= {200, 201}


def test_a_worker_that_is_replaced_ends_what_is_under_way(gateway: Gateway) -> None:
    token = gateway.make_token("submit")
    wait_until(lambda: both_serve(gateway), 60, "both workers")
    before = workers(gateway)
    task = {"execute": {"command": ["/bin/sleep", "60"], "limits": {"wall_ms": 90_000}}}
    made = gateway.call("POST", "/api/v1/tasks", task, token=token).json["id"]
    path = f"/api/v1/tasks/{made}"
    statuses: list[int] = []

    def wait() -> None:
        try:
            answer = gateway.call("GET", f"{path}/wait?timeout=15&status=running", token=token)
            statuses.append(answer.status)
        except (OSError, HTTPException):
            statuses.append(0)

    wait_until(
        lambda: gateway.call("GET", path, token=token).json["status"] == "running", 60, "a run"
    )
    waits = [threading.Thread(target=wait) for _ in range(6)]
    for one in waits:
        one.start()
    # Sent before this one, so that they have come to a worker as well.
    assert gateway.call("GET", path, token=token).status == 200
    gateway.daemon.send(signal.SIGHUP)
    for one in waits:
        one.join()
    assert statuses == [200] * 6
    gateway.call("POST", f"{path}/cancel", token=token)
    wait_until(lambda: both_serve(gateway) and not workers(gateway) & before, 90, "new workers")


def test_a_wrong_file_is_not_loaded_and_the_gateway_goes_on(gateway: Gateway) -> None:
    wait_until(lambda: both_serve(gateway), 60, "both workers")
    before = workers(gateway)
    good = gateway.daemon.config_path.read_text()
    gateway.daemon.config_path.write_text("listen = nowhere\n")
    try:
        gateway.daemon.send(signal.SIGHUP)
        wait_until(lambda: "action on signal" in gateway.daemon.log(), 60, "a word about it")
    finally:
        gateway.daemon.config_path.write_text(good)
    assert workers(gateway) == before
    wait_until(lambda: gateway.call("GET", "/healthz").status == 200, 60, "health")


def test_a_killed_worker_is_replaced(gateway: Gateway) -> None:
    token = gateway.make_token("submit")
    before = workers(gateway)
    victim = min(before)
    with load(gateway, token) as seen:
        os.kill(victim, signal.SIGKILL)
        wait_until(
            lambda: len(workers(gateway)) == 2 and victim not in workers(gateway), 60, "a new one"
        )
    print(f"\nworker killed: {dict(seen.statuses)}, bad for {seen.bad_for_s:.2f} s")
    assert gateway.daemon.alive
    # Only what the killed one had in hand is lost, not one request of each caller after the other.
    assert sum(n for status, n in seen.statuses.items() if not 200 <= status < 300) <= CALLERS * 2


def test_a_killed_master_ends_the_daemon_which_systemd_starts_again(
    cluster: loopback.Cluster,
) -> None:
    one = Gateway(cluster.addresses, "[webhooks]\nsend = no")
    try:
        below = family(one.daemon.pid)
        [master] = one.daemon.children()
        os.kill(master, signal.SIGKILL)
        assert one.daemon.wait(60) == 1
        assert "uwsgi was killed by SIGKILL" in one.daemon.log()
        wait_until(lambda: not servers.accepts(one.port), 60, "the port to be free again")
        wait_until(lambda: not any(map(runs, below)), 60, "the end of every process")
    finally:
        one.close()


def test_a_judicator_lost_under_load_is_hardly_noticed_and_streams_miss_nothing(
    cluster: loopback.Cluster, gateway: Gateway
) -> None:
    token = gateway.make_token("admin", user="root")
    added: set[str] = set()
    ended: set[str] = set()
    gaps = 0
    stop = threading.Event()

    def listen() -> None:
        nonlocal gaps
        last = ""
        while not stop.is_set():
            try:
                with gateway.stream("/api/v1/events", token, last, timeout_s=30) as events:
                    for event in events:
                        last = event.get("id", last)
                        gaps += event.get("event") == "gap"
                        told = json.loads(event["data"])
                        if told.get("done"):
                            ended.add(told["id"])
                        if stop.is_set():
                            return
            except (OSError, HTTPException, AssertionError):
                stop.wait(PAUSE_S)  # also where the new stream is refused for a moment

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()

    def is_heard() -> bool:
        """The stream is open once it tells of a task."""
        gateway.call("POST", "/api/v1/tasks", RUN, token=token)
        return bool(ended)

    wait_until(is_heard, 60, "the stream")
    for number, act in ((0, "kill"), (1, "kill"), (0, "pause"), (1, "pause")):
        with load(gateway, token) as seen:
            getattr(cluster.judicators[number], act)()
        print(
            f"\n{act} judicator {number + 1} of 2: {dict(seen.statuses)}, "
            f"5xx for {seen.bad_for_s:.2f} s, longest gap {seen.longest_gap_s:.2f} s"
        )
        cluster.revive()
        # 2 s is the promise, which the line above shows; a busy machine is no reason to fail.
        assert seen.bad_for_s < 10
        assert set(seen.statuses) <= {200, 201, 503}
        added.update(seen.added)
        wait_until(lambda: not (added - ended), 90, "the end of every task in the stream")
    assert gaps == 0
    stop.set()
    gateway.call("POST", "/api/v1/tasks", RUN, token=token)  # wakes the listener
