"""The gateway under clients who mean it no good: it answers everybody else, and stays as it is.

No test here looks at a clock: it is told by states that others are served, which they were not
when a hostile client held all threads or all memory, however long one waited.
"""

from __future__ import annotations

import io
import json
import re
import socket
import tarfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

import loopback
import servers
from gateways import Gateway, Nginx
from oj.cli.remote.gateway import Gateway as RemoteGateway
from oj.client import Judicators
from oj.gateway.app import make_app
from oj.gateway.bodies import ANSWER_BYTES, GRACE_S
from oj.gateway.ini import CONNECTION_BYTES
from oj.gateway.settings import load
from servers import wait_until

RUN = {"execute": {"command": ["/bin/true"]}}
SLEEP = {"execute": {"command": ["/bin/sleep", "300"], "limits": {"wall_ms": 600_000}}}
THREADS = 48  # of each of two processes: fewer connections make the same attack
ATTACKERS = 3 * THREADS
MB = 1 << 20


@pytest.fixture(scope="module")
def cluster(etcd: servers.Etcd, mongod: servers.Mongod) -> Iterator[loopback.Cluster]:
    loopback.prepare()
    with loopback.Cluster(etcd, mongod) as one:
        yield one.start()


@pytest.fixture(scope="module")
def gateway(cluster: loopback.Cluster) -> Iterator[Gateway]:
    one = Gateway(
        cluster.addresses,
        f"threads = {THREADS}\n"
        "[access]\nproxies = 127.0.0.1/32\n"
        "[limits]\nrequests = 1000000\nlogins = 3\nwaits = 4\nunpacked = 32M\n"
        "[webhooks]\nsend = no",
    )
    wait_until(lambda: len(workers(one)) == 2, 60, "both workers")
    yield one
    one.close()


def workers(gateway: Gateway) -> set[int]:
    """The processes of uWSGI that have the application."""
    found = set()
    [master] = gateway.daemon.children()
    for word in Path(f"/proc/{master}/task/{master}/children").read_text().split():
        if b"uWSGI worker" in Path(f"/proc/{word}/cmdline").read_bytes():
            found.add(int(word))
    return found


def find_router(gateway: Gateway) -> int:
    """The process of uWSGI that has the port."""
    [master] = gateway.daemon.children()
    for word in Path(f"/proc/{master}/task/{master}/children").read_text().split():
        if b"uWSGI http" in Path(f"/proc/{word}/cmdline").read_bytes():
            return int(word)
    raise AssertionError("there is no router")


def memory_bytes(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) << 10


def peak_bytes(gateway: Gateway) -> int:
    """The most that any worker has had in memory."""
    texts = [Path(f"/proc/{pid}/status").read_text() for pid in workers(gateway)]
    return max(int(re.search(r"VmHWM:\s+(\d+) kB", text)[1]) for text in texts) << 10


def forget_peaks(gateway: Gateway) -> None:
    for pid in workers(gateway):
        Path(f"/proc/{pid}/clear_refs").write_text("5")


@contextmanager
def unchanged(gateway: Gateway) -> Iterator[None]:
    """No process is replaced meanwhile."""
    before = workers(gateway)
    assert len(before) == 2
    yield
    assert workers(gateway) == before
    assert gateway.daemon.alive


def serves_others(gateway: Gateway, token: str) -> None:
    for _ in range(10):
        assert gateway.call("GET", "/healthz").status == 200
        assert gateway.call("POST", "/api/v1/tasks", RUN, token=token).status == 201

    def logs_in() -> bool:
        """From the address that the attack comes from, where a log-in may have to be repeated."""
        return gateway.call("POST", "/api/v1/session", {"token": token}).status == 200

    wait_until(logs_in, 60, "a log-in")


class SlowBodies:
    """Connections that send a byte of a body now and then, and come again when they are cut."""

    def __init__(self, gateway: Gateway, path: str, token: str = "") -> None:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        if token:
            head += f"Authorization: Bearer {token}\r\n"
        self._head = f"{head}Content-Length: 1000\r\n\r\n".encode()
        self._port = gateway.port
        self._stop = threading.Event()
        self.answers: Counter[bytes] = Counter()
        self._threads = [threading.Thread(target=self._run) for _ in range(ATTACKERS)]

    def __enter__(self) -> SlowBodies:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                with socket.create_connection(("127.0.0.1", self._port), 60) as connection:
                    connection.sendall(self._head)
                    self._trickle(connection)
            except OSError:
                self.answers[b""] += 1
            self._stop.wait(0.2)

    def _trickle(self, connection: socket.socket) -> None:
        connection.settimeout(0.5)
        while not self._stop.is_set():
            connection.sendall(b" ")
            try:
                self.answers[connection.recv(4096)[9:12]] += 1
                return
            except TimeoutError:
                pass


@pytest.mark.parametrize("path", ["/api/v1/session", "/api/v1/tasks"])
def test_slow_bodies_hold_nobody_up(gateway: Gateway, path: str) -> None:
    honest = gateway.make_token("submit", user="ann")
    hostile = gateway.make_token("submit", user="eve") if path.endswith("tasks") else ""
    with unchanged(gateway), SlowBodies(gateway, path, hostile) as attack:
        # All of them are there: more than there are threads.
        wait_until(lambda: attack.answers.total() > ATTACKERS, 120, "the attack")
        serves_others(gateway, honest)
    assert attack.answers[b"408"] > 0


def test_strangers_refusals_hold_nobody_up(gateway: Gateway) -> None:
    """Bodies of those who have no token come as fast as they must, from many addresses."""
    honest = gateway.make_token("submit", user="ann")
    stop = threading.Event()
    sent: Counter[str] = Counter()

    def stranger(number: int) -> None:
        head = "POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\n"
        head += f"X-Forwarded-For: 10.0.0.{number % 32}\r\n\r\n"
        while not stop.is_set():
            with suppress(OSError), socket.create_connection(("127.0.0.1", gateway.port)) as one:
                one.sendall(head.encode() + b" " * 10_000)
                sent["begun"] += 1
                for _ in range(100):
                    if stop.wait(0.1):
                        return
                    one.sendall(b" " * 2500)
            stop.wait(0.1)

    task = {**RUN, "data": [{"name": "d", "text": "x" * MB}]}
    with unchanged(gateway), ThreadPoolExecutor(64) as pool:
        for number in range(64):
            pool.submit(stranger, number)
        try:
            wait_until(lambda: sent["begun"] >= 64, 60, "the attack")
            for _ in range(20):
                told = gateway.call("POST", "/api/v1/tasks", task, token=honest)
                assert told.status == 201, told.body
            serves_others(gateway, honest)
        finally:
            stop.set()


def test_large_bodies_that_do_not_come_cost_others_no_memory(cluster: loopback.Cluster) -> None:
    head = (
        f"PUT /api/v1/blobs/{'a' * 64} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 67000000\r\n"
    )
    task = {**RUN, "data": [{"name": "d", "text": "x" * MB}]}
    with Gateway(cluster.addresses, "processes = 1") as one, ExitStack() as stack:
        honest = one.make_token("submit", user="ann")
        for user in ("eve", "mal") * 6:
            token = one.make_token("submit", user=user)
            slow = stack.enter_context(socket.create_connection(("127.0.0.1", one.port), 60))
            slow.sendall(f"{head}Authorization: Bearer {token}\r\n\r\n".encode() + bytes(400_000))
        for _ in range(20):
            told = one.call("POST", "/api/v1/tasks", task, token=honest)
            assert told.status == 201, told.body


def test_behind_nginx_everybody_is_served_as_well(gateway: Gateway) -> None:
    honest = gateway.make_token("submit", user="ann")
    hostile = gateway.make_token("submit", user="eve")
    nginx = Nginx(gateway)
    try:
        outside = nginx.in_front(gateway)
        task = outside.call("POST", "/api/v1/tasks", SLEEP, token=hostile).json["id"]
        path = f"/api/v1/tasks/{task}/wait?timeout=30"
        with unchanged(gateway), ThreadPoolExecutor(ATTACKERS) as pool:
            waits = [
                pool.submit(lambda: outside.call("GET", path, token=hostile).status)
                for _ in range(ATTACKERS)
            ]
            wait_until(lambda: sum(one.done() for one in waits) >= ATTACKERS - 8, 60, "refusals")
            with SlowBodies(outside, "/api/v1/session"):
                serves_others(outside, honest)
            large = b'"' + b" " * (17 * MB) + b'"'
            # It has all of the body by then, and passes the reason on.
            refused = outside.call("POST", "/api/v1/tasks", large, token=hostile)
            assert refused.status == 413 and refused.json["limit_bytes"] == 16 * MB
            outside.call("POST", f"/api/v1/tasks/{task}/cancel", token=hostile)
            assert {one.result() for one in waits} == {200, 429}
    finally:
        nginx.close()


def test_headers_that_stop_are_given_up(gateway: Gateway) -> None:
    with socket.create_connection(("127.0.0.1", gateway.port), 60) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        begun_s = time.monotonic()
        assert connection.recv(4096) == b""
        # uWSGI's own patience is that for a whole answer, 90 s; a stalled machine may double ours.
        assert time.monotonic() - begun_s < 45


def test_headers_without_an_end_cost_the_router_what_its_unit_allows(gateway: Gateway) -> None:
    router = find_router(gateway)
    before = memory_bytes(router)
    with ExitStack() as stack:
        for _ in range(400):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", gateway.port), 60))
            one.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * (60 << 10))
        wait_until(lambda: memory_bytes(router) - before > 300 * (60 << 10), 60, "the headers")
        assert gateway.call("GET", "/healthz").status == 200
        assert memory_bytes(router) - before < 400 * CONNECTION_BYTES + 4 * MB


def test_a_body_that_does_not_come_is_given_up_and_said_so(gateway: Gateway) -> None:
    head = b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n"
    head += b"Content-Type: application/json\r\n\r\n"
    with socket.create_connection(("127.0.0.1", gateway.port), 60) as connection:
        connection.sendall(head + b'{"token"')
        answer = b""
        while piece := connection.recv(4096):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"application/problem+json" in answer
    detail = json.loads(answer.partition(b"\r\n\r\n")[2])["detail"]
    # Not because a read ended before the grace of a body did.
    assert "100 bytes" in detail and "it came too slowly" in detail


@pytest.mark.parametrize("front", ["gateway", "nginx"])
def test_a_log_in_is_answered_at_once_however_it_is_sent(gateway: Gateway, front: str) -> None:
    """Not when the time of its body is up: the connection is closed before that."""
    body = json.dumps({"token": gateway.make_token("submit", user="ann")}).encode()
    head = b"POST /api/v1/session HTTP/1.1\r\nHost: localhost\r\n"
    head += b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    ways = {
        "all in one": [head + body],
        "the body by itself": [head, body],
        "split in the body": [head + body[:20], body[20:]],
        "split in the body, once more": [head, body[:20], body[20:]],
        "a byte at a time": [head, *(bytes([byte]) for byte in body)],
    }
    with ExitStack() as stack:
        port = gateway.port
        if front == "nginx":
            nginx = Nginx(gateway)
            stack.callback(nginx.close)
            port = nginx.port

        def log_in(pieces: list[bytes]) -> bytes:
            with socket.create_connection(("127.0.0.1", port), GRACE_S / 2) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                for piece in pieces:
                    connection.sendall(piece)
                return connection.recv(4096)

        for way, pieces in ways.items():
            late = 0  # which a machine that stalls may be, but not each time
            for _ in range(5):
                try:
                    told = log_in(pieces)
                except TimeoutError:
                    late += 1
                else:
                    assert told.startswith(b"HTTP/1.1 200"), (way, told)
            assert late < 3, way


def test_a_header_that_takes_long_to_read_is_not_read(gateway: Gateway) -> None:
    honest = gateway.make_token("submit", user="ann")
    stop = threading.Event()
    told: Counter[tuple[int, str | None, str]] = Counter()

    def attack() -> None:
        for kind in ("application/json;", "multipart/form-data;"):
            while not stop.is_set():
                hostile = {"Content-Type": kind + " " * 15_000 + "="}
                answer = gateway.call("POST", "/api/v1/session", headers=hostile)
                told[answer.status, answer.header("Connection"), answer.json["field"]] += 1

    with unchanged(gateway), ThreadPoolExecutor(4) as pool:
        attacks = [pool.submit(attack) for _ in range(4)]
        try:
            wait_until(lambda: told.total() >= 100, 60, "the attack")
            serves_others(gateway, honest)
        finally:
            stop.set()
        for one in attacks:
            one.result()
    assert set(told) == {(431, "close", "Content-Type")}


def test_a_body_in_pieces_is_read_to_its_end(gateway: Gateway) -> None:
    token = gateway.make_token("submit", user="ann")
    body = json.dumps(RUN).encode()
    head = f"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    head += f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n\r\n"
    with socket.create_connection(("127.0.0.1", gateway.port), 60) as connection:
        connection.sendall(head.encode())
        for byte in body:
            connection.sendall(bytes([byte]))
        assert connection.recv(4096).startswith(b"HTTP/1.1 201")


def test_a_body_without_a_length_is_refused_with_a_reason(gateway: Gateway) -> None:
    head = f"Authorization: Bearer {gateway.make_token('submit')}\r\n"
    head += "Host: localhost\r\nContent-Type: application/json\r\n"
    body = b"%x\r\n%s\r\n0\r\n\r\n" % (len(json.dumps(RUN)), json.dumps(RUN).encode())
    for path in ("tasks", "session"):
        with socket.create_connection(("127.0.0.1", gateway.port), 60) as connection:
            head_of = f"POST /api/v1/{path} HTTP/1.1\r\n{head}Transfer-Encoding: chunked\r\n\r\n"
            connection.sendall(head_of.encode() + body)
            answer = b""
            while piece := connection.recv(4096):
                answer += piece
        assert answer.startswith(b"HTTP/1.1 411") and answer.count(b"HTTP/1.1") == 1
        problem = json.loads(answer.partition(b"\r\n\r\n")[2])
        assert problem["status"] == 411 and "Content-Length" in problem["detail"]


def test_who_asks_whether_to_send_a_body_is_told_at_once(gateway: Gateway) -> None:
    token = gateway.make_token("submit", user="ann")
    task = {**RUN, "data": [{"name": "d", "text": "x" * 2 * MB}]}
    body = json.dumps(task).encode()
    head = f"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    head += f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
    head += "Expect: 100-continue\r\n\r\n"
    with socket.create_connection(("127.0.0.1", gateway.port), 60) as connection:
        connection.sendall(head.encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 100")
        connection.sendall(body)
        assert connection.recv(4096).startswith(b"HTTP/1.1 201")


def post_at_once(gateway: Gateway, path: str, bodies: list[bytes], token: str = "") -> Counter[int]:
    def post(body: bytes) -> int:
        headers = {"Content-Type": "application/json"}
        try:
            return gateway.call("POST", path, body, token=token or None, headers=headers).status
        except OSError:
            return 0  # it was refused before all of it was sent

    with ThreadPoolExecutor(len(bodies)) as pool:
        return Counter(pool.map(post, bodies))


def test_nested_json_takes_no_memory(gateway: Gateway) -> None:
    honest = gateway.make_token("submit", user="ann")
    hostile = gateway.make_token("submit", user="eve")
    values = b"[" + b"[]," * (5 * MB) + b"[]]"
    deep = b"[" * MB
    with unchanged(gateway):
        # Without a token only a few words are read.
        for path, status in (("session", 413), ("tasks", 401)):
            told = post_at_once(gateway, f"/api/v1/{path}", [values] * 6)
            assert set(told) <= {0, status}
            # Of so much it is read what the answer is waiting behind.
            assert post_at_once(gateway, f"/api/v1/{path}", [values[: 100 << 10]]) == {status: 1}
        told = post_at_once(gateway, "/api/v1/tasks", [values, deep] * 4, hostile)
        assert told[400] > 0 and set(told) <= {0, 400, 429, 503}
        serves_others(gateway, honest)
        refused = gateway.call("POST", "/api/v1/tasks", values, token=hostile)
        assert refused.status == 400 and "values" in refused.json["detail"]
        refused = gateway.call("POST", "/api/v1/tasks", deep, token=hostile)
        assert refused.status == 400 and "nested" in refused.json["detail"]
        large = b'"' + b" " * (17 * MB) + b'"'
        assert gateway.call("POST", "/api/v1/tasks", large, token=hostile).status == 413
    assert peak_bytes(gateway) < 400 * MB  # one such text alone made 430 MB of lists


def make_archive(size_bytes: int) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        member = tarfile.TarInfo("zeros")
        member.size = size_bytes
        archive.addfile(member, io.BytesIO(bytes(size_bytes)))
    return buffer.getvalue()


def part(name: str, content: bytes, more: str = "") -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'
    return head.encode() + content + b"\r\n"


def make_form(archives: list[bytes]) -> tuple[bytes, dict[str, str]]:
    parts = [
        b'--b\r\nContent-Disposition: form-data; name="archive"; filename="a%d.tar.gz"\r\n\r\n' % n
        + archive
        + b"\r\n"
        for n, archive in enumerate(archives)
    ]
    command = b'--b\r\nContent-Disposition: form-data; name="task"\r\n\r\n'
    command += json.dumps(RUN).encode() + b"\r\n"
    return command + b"".join(parts) + b"--b--\r\n", {
        "Content-Type": "multipart/form-data; boundary=b"
    }


def test_the_archives_of_a_form_have_one_budget(gateway: Gateway) -> None:
    honest = gateway.make_token("submit", user="ann")
    hostile = gateway.make_token("submit", user="eve")
    body, headers = make_form([make_archive(100 * MB)] * 5)
    several, _ = make_form([make_archive(20 * MB)] * 2)
    allowed, _ = make_form([make_archive(20 * MB)])

    def post(content: bytes, token: str) -> int:
        try:
            path = "/api/v1/tasks"
            return gateway.call("POST", path, content, token=token, headers=headers).status
        except OSError:
            return 0

    with unchanged(gateway):
        with ThreadPoolExecutor(8) as pool:
            told = set(pool.map(lambda _: post(body, hostile), range(16)))
        assert 413 in told and told <= {0, 408, 413, 429, 503}
        serves_others(gateway, honest)
        refused = gateway.call("POST", "/api/v1/tasks", several, token=honest, headers=headers)
        assert refused.status == 413 and refused.json["limit_bytes"] == 32 * MB
        assert post(allowed, honest) == 201
    assert peak_bytes(gateway) < 400 * MB


FORMS = {
    "header": part("source", b"", '; filename="%s"' % ("a" * 60 * MB)),
    "preamble": b"a" * 60 * MB + b"\r\n" + part("language", b"c"),
    "tags": part("tags", b"a " * 30 * MB),
    "many tags": part("tags", b" ".join(b"%x" % number for number in range(1_300_000))),
    "file": part("task", json.dumps(RUN).encode()) + part("data", b"a" * 60 * MB, '; filename="z"'),
}


@pytest.mark.parametrize("kind", FORMS)
def test_a_form_costs_what_it_is_charged(gateway: Gateway, kind: str) -> None:
    honest = gateway.make_token("submit", user="ann")
    hostile = [gateway.make_token("submit", user=user) for user in ("eve", "mal")]
    body = FORMS[kind] + b"--b--\r\n"
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    status = {"header": 400, "preamble": 400, "file": 201}.get(kind, 422)

    def post(token: str) -> int:
        try:
            path = "/api/v1/tasks"
            return gateway.call("POST", path, body, token=token, headers=headers).status
        except OSError:
            return 0

    with unchanged(gateway):
        forget_peaks(gateway)
        with ThreadPoolExecutor(8) as pool:
            told = Counter(pool.map(post, hostile * 8))
        assert set(told) <= {0, status, 429, 503} and told[status]
        serves_others(gateway, honest)
        assert post(honest) == status
    assert peak_bytes(gateway) < 480 * MB


def test_waiting_requests_of_one_token_leave_room_for_others(gateway: Gateway) -> None:
    honest = gateway.make_token("submit", user="ann")
    hostile = gateway.make_token("submit", user="eve")
    task = gateway.call("POST", "/api/v1/tasks", SLEEP, token=hostile).json["id"]
    path = f"/api/v1/tasks/{task}/wait?timeout=30"
    answers: list[tuple[int, str | None]] = []

    def wait() -> None:
        for _ in range(5):
            try:
                answer = gateway.call("GET", path, token=hostile)
            except ConnectionError:
                continue  # the attacker was too slow to ask: uWSGI waits for some seconds only
            answers.append((answer.status, answer.header("Retry-After")))
            return

    with unchanged(gateway):
        threads = [threading.Thread(target=wait, daemon=True) for _ in range(ATTACKERS)]
        for thread in threads:
            thread.start()
        # Four in each of two processes wait; the others are told at once to come again.
        wait_until(lambda: len(answers) >= ATTACKERS - 8, 60, "refusals")
        assert set(answers) == {(429, "5")}
        serves_others(gateway, honest)
        other = gateway.call("POST", "/api/v1/tasks", SLEEP, token=honest).json["id"]
        waited = gateway.call("GET", f"/api/v1/tasks/{other}/wait?timeout=0.1", token=honest)
        assert waited.status == 200
        # Our own client looks now and then instead.
        remote = RemoteGateway(gateway.url, hostile, timeout_s=60.0)
        seen = remote.wait(task, wait_s=1.0)
        assert seen.id == task and not seen.done
        for one, token in ((task, hostile), (other, honest)):
            gateway.call("POST", f"/api/v1/tasks/{one}/cancel", token=token)
        for thread in threads:
            thread.join()
    assert Counter(status for status, _ in answers)[200] >= 4


def wait_for_room_in_the_minute(room_s: float = 15.0) -> None:
    """Calls are counted by the minute of the clock."""
    left_s = 60 - time.time() % 60
    if left_s < room_s:
        time.sleep(left_s)


def test_wrong_tokens_are_limited_and_right_ones_pass(gateway: Gateway) -> None:
    right, fresh = gateway.make_token("submit"), gateway.make_token("read")
    wait_for_room_in_the_minute()
    statuses = [
        gateway.call("POST", "/api/v1/session", {"token": f"oj_{n}"}).status for n in range(5)
    ]
    assert statuses == [401, 401, 401, 429, 429]
    assert gateway.call("GET", "/api/v1/stats", token="oj_wrong").status == 429
    for token in (right, fresh):
        assert gateway.call("GET", "/api/v1/stats", token=token).status == 200
        assert gateway.call("POST", "/api/v1/session", {"token": token}).status == 200


def test_a_flood_of_wrong_tokens_leaves_those_that_were_right(cluster: loopback.Cluster) -> None:
    with Gateway(cluster.addresses, "[limits]\nrequests = 20\nlogins = 3") as strict:
        right = strict.make_token("read")
        wait_for_room_in_the_minute()
        assert strict.call("GET", "/api/v1/stats", token=right).status == 200
        for number in range(25):
            strict.call("GET", "/api/v1/stats", token=f"oj_{number}")
        assert strict.call("GET", "/api/v1/stats", token=right).status == 200
        # From here on nothing is looked up that was not right before.
        unknown = strict.call("GET", "/api/v1/stats", token=strict.make_token("read"))
        assert unknown.status == 429 and unknown.header("Retry-After")


def test_what_needs_no_token_is_counted_by_address(cluster: loopback.Cluster) -> None:
    limits = "[access]\nproxies = 127.0.0.1/32\n[limits]\nrequests = 3\n"
    with Gateway(cluster.addresses, limits) as strict:
        token = strict.make_token("read")

        def ask(address: str, path: str = "/healthz") -> int:
            return strict.call("GET", path, headers={"X-Forwarded-For": address}).status

        wait_for_room_in_the_minute()
        told = [ask("192.0.2.1", path) for path in ("/healthz", "/api/v1/openapi.json", "/") * 5]
        assert told == [200] * 12 + [429] * 3
        refused = strict.call("GET", "/healthz", headers={"X-Forwarded-For": "192.0.2.1"})
        assert int(refused.header("Retry-After") or 0) > 0
        assert ask("192.0.2.2") == 200
        opened = strict.call(
            "POST", "/api/v1/session", {"token": token}, headers={"X-Forwarded-For": "192.0.2.1"}
        )
        assert opened.status == 200
        # On this machine somebody looks whether it serves.
        assert [strict.call("GET", "/healthz").status for _ in range(20)] == [200] * 20


def test_the_cookie_is_bound_to_the_host_over_https(gateway: Gateway) -> None:
    token = gateway.make_token("submit")
    proxied = {"X-Forwarded-Proto": "https", "X-Forwarded-For": "192.0.2.1"}
    opened = gateway.call("POST", "/api/v1/session", {"token": token}, headers=proxied)
    cookie = opened.header("Set-Cookie") or ""
    assert cookie.startswith("__Host-oj_session=oj_s_")
    assert "Secure" in cookie and "Path=/" in cookie and "Domain" not in cookie
    name, _, secret = cookie.partition(";")[0].partition("=")

    def ask(cookie_name: str, headers: dict[str, str]) -> int:
        sent = {**headers, "Cookie": f"{cookie_name}={secret}"}
        return gateway.call("GET", "/api/v1/session", headers=sent).status

    assert ask(name, proxied) == 200
    # What a subdomain or plain HTTP could have set does not count over HTTPS.
    assert ask("oj_session", proxied) == 401
    plain = gateway.call("POST", "/api/v1/session", {"token": token})
    assert (plain.header("Set-Cookie") or "").startswith("oj_session=")


def test_what_a_user_may_have_stored_in_a_day_is_bounded(cluster: loopback.Cluster) -> None:
    with Gateway(cluster.addresses, "[limits]\nstored = 300K\n") as small:
        ann, same = (small.make_token("submit", user="ann-stored") for _ in range(2))
        other = small.make_token("submit", user="ben-stored")

        def submit(token: str, letter: str, size: int) -> int:
            task = {**RUN, "data": [{"name": "d", "text": letter * size}]}
            return small.call("POST", "/api/v1/tasks", task, token=token).status

        assert submit(ann, "a", 100_000) == 201
        # It is there already, and counts once.
        assert [submit(ann, "a", 100_000) for _ in range(5)] == [201] * 5
        assert submit(same, "b", 150_000) == 201
        task = {**RUN, "data": [{"name": "d", "text": "c" * 100_000}]}
        refused = small.call("POST", "/api/v1/tasks", task, token=ann)
        assert refused.status == 429 and int(refused.header("Retry-After") or 0) > 0
        assert "'ann-stored'" in refused.json["detail"] and "gateway.conf" in refused.json["detail"]
        assert refused.json["limit_bytes"] == 300 << 10
        assert submit(other, "c", 100_000) == 201


def test_contents_that_become_blobs_count_once(cluster: loopback.Cluster) -> None:
    with Gateway(cluster.addresses, "[limits]\nstored = 300K\n") as small:
        token = small.make_token("submit", user="dan-stored")
        files = [{"name": name, "text": "e" * 100_000} for name in ("d", "e")]
        batch = {"tasks": [{**RUN, "data": files}] * 3}
        for _ in range(2):
            assert small.call("POST", "/api/v1/tasks/batch", batch, token=token).status == 201
        more = {**RUN, "data": [{"name": "d", "text": "f" * 150_000}]}
        assert small.call("POST", "/api/v1/tasks", more, token=token).status == 201
        # Smaller ones are stored with each task.
        files = [{"name": "d", "text": "g" * 20_000}]
        batch = {"tasks": [{**RUN, "data": files}] * 3}
        assert small.call("POST", "/api/v1/tasks/batch", batch, token=token).status == 429


def test_a_task_counts_for_whose_it_is_whoever_adds_it(cluster: loopback.Cluster) -> None:
    with Gateway(cluster.addresses, "[limits]\nstored = 100K\n") as small:
        owner = small.make_token("submit", user="fay-stored")
        admin = small.make_token("admin", user="root-stored")
        task = {**RUN, "data": [{"name": "d", "text": "h" * 60_000}]}
        of_another = {**task, "user": "fay-stored"}
        assert small.call("POST", "/api/v1/tasks", of_another, token=admin).status == 201
        for token, sent in ((owner, task), (admin, of_another)):
            refused = small.call("POST", "/api/v1/tasks", sent, token=token)
            assert refused.status == 429 and "'fay-stored'" in refused.json["detail"]
        assert small.call("POST", "/api/v1/tasks", task, token=admin).status == 201


def test_a_name_that_cannot_be_refuses_its_task_and_nothing_else(
    cluster: loopback.Cluster,
) -> None:
    with Gateway(cluster.addresses, "processes = 1\n[limits]\nstored = 100K\n") as small:
        admin = small.make_token("admin", user="root-names")
        eve = small.make_token("submit", user="eve-names")
        for user in ("a\nb", "x" * 129):
            sent = {**RUN, "user": user}
            refused = small.call("POST", "/api/v1/tasks", sent, token=admin)
            assert refused.json["field"] == "user" and refused.status in (413, 422)
            refused = small.call("POST", "/api/v1/tasks/batch", {"tasks": [sent]}, token=admin)
            assert refused.json["field"] == "user" and refused.status in (413, 422)
        # The bound still holds, for commands too.
        large = {"execute": {"command": ["/bin/true", *["x" * 8000] * 20]}}
        refused = small.call("POST", "/api/v1/tasks", large, token=eve)
        assert refused.status == 429 and refused.json["limit_bytes"] == 100 << 10


def test_tasks_are_rejudged_together_or_not_at_all(cluster: loopback.Cluster) -> None:
    with Gateway(cluster.addresses, "[limits]\nstored = 300K\n") as small:
        token = small.make_token("submit", user="gus-stored")
        task = {**RUN, "data": [{"name": "d", "text": "i" * 60_000}]}
        ids = [small.call("POST", "/api/v1/tasks", task, token=token).json["id"] for _ in range(3)]
        refused = small.call("POST", "/api/v1/tasks/rejudge", {"ids": ids}, token=token)
        assert refused.status == 429
        listed = small.call("GET", "/api/v1/tasks", token=token).json["tasks"]
        assert {one["id"] for one in listed} == set(ids)
        # Nothing was taken for the two for which there is enough.
        again = small.call("POST", "/api/v1/tasks/rejudge", {"ids": ids[:1]}, token=token)
        assert again.status == 201 and list(again.json["ids"]) == ids[:1]


def test_a_flood_of_wrong_cookies_leaves_sessions_that_were_opened(
    cluster: loopback.Cluster, gateway: Gateway
) -> None:
    with Gateway(cluster.addresses, "[limits]\nrequests = 20\nlogins = 3") as strict:
        token = strict.make_token("read")

        def log_in(at: Gateway) -> str:
            opened = at.call("POST", "/api/v1/session", {"token": token})
            return (opened.header("Set-Cookie") or "").partition(";")[0]

        def ask(cookie: str) -> tuple[int, str]:
            answer = strict.call("GET", "/api/v1/stats", headers={"Cookie": cookie})
            return answer.status, answer.json.get("detail", "")

        elsewhere = log_in(gateway)
        wait_for_room_in_the_minute()
        own = log_in(strict)
        for number in range(25):
            ask(f"oj_session=oj_s_{number}")
        assert ask(own)[0] == 200
        # One that was not seen here before is not looked up.
        status, detail = ask(elsewhere)
        assert status == 429 and "wrong sessions" in detail


def test_files_of_the_page_that_nobody_takes_hold_few_threads(gateway: Gateway) -> None:
    honest = gateway.make_token("submit", user="ann")
    path = "/static/codemirror/lib/codemirror.js"
    assert len(gateway.call("GET", path).body) > ANSWER_BYTES
    squeezed = gateway.call("GET", path, headers={"Accept-Encoding": "gzip"})
    assert squeezed.status == 200 and len(squeezed.body) < ANSWER_BYTES
    told: Counter[bytes] = Counter()
    with unchanged(gateway), ExitStack() as stack:
        for _ in range(ATTACKERS):
            one = stack.enter_context(socket.socket())
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            # As over a network: with the segments of loopback the kernel takes all of it.
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 536)
            one.settimeout(60)
            one.connect(("127.0.0.1", gateway.port))
            one.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            told[one.recv(12)[9:]] += 1
        # A third of the threads for long requests, of each of two processes; more only where the
        # first of them were given up meanwhile.
        assert told[b"429"] > ATTACKERS / 2 and set(told) == {b"200", b"429"}
        serves_others(gateway, honest)
        # A class that loads the page is not refused beside it.
        with ThreadPoolExecutor(16) as pool:
            compressed = {"Accept-Encoding": "gzip"}
            calls = [pool.submit(gateway.call, "GET", path, headers=compressed) for _ in range(100)]
            assert {one.result().status for one in calls} == {200}


def test_a_body_at_speed_that_gives_way_is_told_so(cluster: loopback.Cluster) -> None:
    length = 8 * MB
    head = f"PUT /api/v1/blobs/{'a' * 64} HTTP/1.1\r\nHost: localhost\r\n"
    head += f"Content-Length: {length}\r\n"
    with Gateway(cluster.addresses, "processes = 1\n[limits]\nbody = 8M\nmemory = 24M\n") as one:
        tokens = [one.make_token("submit", user=user) for user in ("eve", "mal")]
        pauses_s = (0.1, 0.1, 0.01, 0.01)  # those that are behind give way to the others

        def send(token: str, pause_s: float) -> bytes:
            with socket.create_connection(("127.0.0.1", one.port), 60) as connection:
                connection.sendall(f"{head}Authorization: Bearer {token}\r\n\r\n".encode())
                # All that was announced can be sent, whatever happens to it meanwhile.
                for _ in range(4 * length // MB):
                    connection.sendall(bytes(MB // 4))
                    time.sleep(pause_s / 4)
                answer = b""
                while b"\r\n\r\n" not in answer:
                    answer += connection.recv(4096)
                return answer

        with ThreadPoolExecutor(4) as pool:
            told = [answer for _ in range(5) for answer in pool.map(send, tokens * 2, pauses_s)]
        statuses = Counter(answer[9:12] for answer in told)
        # Read to the end, it is not what its digest says.
        assert statuses[b"503"] and statuses[b"422"], statuses
        assert set(statuses) <= {b"422", b"429", b"503"}
        for answer in told:
            assert answer.startswith(b"HTTP/1.1 422") or b"\r\nRetry-After: " in answer


def test_large_tasks_of_one_token_are_read_two_at_a_time(cluster: loopback.Cluster) -> None:
    with Gateway(cluster.addresses, "processes = 1\nthreads = 16") as one:
        token, other = one.make_token("submit", user="ann"), one.make_token("read")
        many = {**SLEEP, "tests": [{"input": {"text": str(n)}} for n in range(1000)]}
        large, small = (
            one.call("POST", "/api/v1/tasks", task, token=token).json["id"]
            for task in (many, SLEEP)
        )

        def read(path: str) -> Counter[int]:
            with ThreadPoolExecutor(16) as pool:
                calls = [pool.submit(lambda: one.call("GET", path, token=token)) for _ in range(60)]
                wait_until(lambda: any(call.done() for call in calls), 60, "an answer")
                # Others have turns of their own.
                assert one.call("GET", path, token=other).status == 200
                return Counter(call.result().status for call in calls)

        assert read(f"/api/v1/tasks/{small}") == {200: 60}
        # Who waits for one, and knows it otherwise, reads it as well.
        waited = f"{large}/wait?status=success&tests_done=7&timeout=1"
        for path in (large, f"{large}/tests/7/input", waited):
            # Two are read, and three wait, a third of the threads for that.
            told = read(f"/api/v1/tasks/{path}")
            assert set(told) == {200, 429}, told
        for task in (large, small):
            one.call("POST", f"/api/v1/tasks/{task}/cancel", token=token)


def test_who_waits_for_a_large_task_reads_it_in_a_turn(
    cluster: loopback.Cluster, gateway: Gateway, tmp_path: Path
) -> None:
    token = gateway.make_token("submit", user="ann")
    many = {**SLEEP, "tests": [{"input": {"text": str(n)}} for n in range(100)]}
    tasks = [
        gateway.call("POST", "/api/v1/tasks", task, token=token).json["id"]
        for task in (many, SLEEP)
    ]
    (tmp_path / "gateway.conf").write_text(gateway.config)
    app = make_app(load(tmp_path / "gateway.conf"))
    threads, turns = app.extensions["oj.threads"], app.extensions["oj.reading"].turns
    with Judicators(cluster.addresses) as judicators:
        payer = judicators.find_token(token).id

    def wait_for(task: str) -> int:
        path = f"/api/v1/tasks/{task}/wait?timeout=0.1"
        headers = {"Authorization": f"Bearer {token}"}
        return app.test_client().get(path, headers=headers).status_code

    with ThreadPoolExecutor(1) as pool:
        with ExitStack() as stack:
            for _ in range(2):
                stack.enter_context(turns.take(payer))
            assert wait_for(tasks[1]) == 200
            call = pool.submit(wait_for, tasks[0])
            waits = app.extensions["oj.waits"]
            wait_until(lambda: threads.held == 1 and not waits.total, 60, "the end of the wait")
        assert call.result() == 200
    assert threads.held == 0 and not turns._running
    for task in tasks:
        gateway.call("POST", f"/api/v1/tasks/{task}/cancel", token=token)


def test_who_finds_no_place_to_wait_looks_now_and_then(cluster: loopback.Cluster) -> None:
    with Gateway(cluster.addresses, "processes = 1\nthreads = 16") as one:
        token = one.make_token("submit", user="ann")
        task = one.call("POST", "/api/v1/tasks", SLEEP, token=token).json["id"]
        path = f"/api/v1/tasks/{task}/wait?timeout=30"
        others = [one.make_token("read") for _ in range(3)]
        with ThreadPoolExecutor(12) as pool:
            waits = [
                pool.submit(lambda other=other: one.call("GET", path, token=other).status)
                for other in others
                for _ in range(4)
            ]
            # Five places, half of eleven threads, of which each token has three at most.
            wait_until(lambda: sum(wait.done() for wait in waits) >= 7, 60, "refusals")
            refused = one.call("GET", path, token=token)
            assert refused.status == 503 and refused.header("Retry-After")
            seen = RemoteGateway(one.url, token, timeout_s=10.0).wait(task, wait_s=1.0)
            assert seen.id == task and not seen.done
            one.call("POST", f"/api/v1/tasks/{task}/cancel", token=token)
            assert Counter(wait.result() for wait in waits)[200] == 5
