"""The gateway as its clients see it: real uWSGI, judicator, executor and sandbox."""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import http.server
import ipaddress
import json
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import loopback
import servers
from gateways import Gateway
from oj.gateway.settings import Webhooks
from oj.gateway.webhooks import Forbidden, choose_address

ADD = "a, b = map(int, input().split())\nprint(a + b)\n"


@pytest.fixture(scope="module")
def cluster(etcd: servers.Etcd, mongod: servers.Mongod) -> Iterator[loopback.Cluster]:
    loopback.prepare()
    with loopback.Cluster(etcd, mongod) as one:
        yield one.start()


@pytest.fixture(scope="module")
def gateway(cluster: loopback.Cluster) -> Iterator[Gateway]:
    one = Gateway(cluster.addresses, "[webhooks]\nsend = no")
    yield one
    one.close()


@pytest.fixture(scope="module")
def ann(gateway: Gateway) -> str:
    return gateway.make_token("submit", user="ann")


@pytest.fixture(scope="module")
def admin(gateway: Gateway) -> str:
    return gateway.make_token("admin", user="root")


def add_task(**more: Any) -> dict[str, Any]:
    return {
        "language": "python",
        "source": [{"name": "add.py", "text": ADD}],
        "tests": [{"input": "1 2", "expected": "3"}, {"input": "5 5", "expected": "10"}],
        **more,
    }


def wait_done(gateway: Gateway, task: str, token: str) -> Any:
    while True:
        value = gateway.call("GET", f"/api/v1/tasks/{task}/wait?timeout=20", token=token).json
        if value["done"]:
            return value


def test_a_task_is_created_judged_and_read_back(gateway: Gateway, ann: str) -> None:
    created = gateway.call("POST", "/api/v1/tasks", add_task(), token=ann)
    assert created.status == 201, created.body
    task = created.json["id"]
    assert created.header("Location") == f"/api/v1/tasks/{task}"
    assert created.json["user"] == "ann"
    done = wait_done(gateway, task, ann)
    assert (done["status"], done["verdict"]) == ("success", "accepted")
    whole = gateway.call("GET", f"/api/v1/tasks/{task}", token=ann)
    assert whole.json["task"]["source"] == [{"name": "add.py", "size": len(ADD), "digest": None}]
    assert [test["verdict"] for test in whole.json["tests"]] == ["accepted", "accepted"]
    tag = whole.header("ETag")
    assert tag
    same = gateway.call("GET", f"/api/v1/tasks/{task}", token=ann, headers={"If-None-Match": tag})
    assert (same.status, same.body) == (304, b"")


def test_downloads_are_exact_and_come_in_ranges(gateway: Gateway, ann: str) -> None:
    content = bytes(range(256)) * 600
    body = add_task(
        data=[{"name": "d/big.bin", "base64": base64.b64encode(content).decode()}],
    )
    task = gateway.call("POST", "/api/v1/tasks", body, token=ann).json["id"]
    path = f"/api/v1/tasks/{task}/data/d/big.bin"
    whole = gateway.call("GET", path, token=ann)
    assert (whole.status, whole.body == content) == (200, True)
    assert whole.header("Content-Disposition") == "attachment; filename*=UTF-8''big.bin"
    part = gateway.call("GET", path, token=ann, headers={"Range": "bytes=1000-1009"})
    assert (part.status, part.body) == (206, content[1000:1010])
    assert part.header("Content-Range") == f"bytes 1000-1009/{len(content)}"
    beyond = gateway.call("GET", path, token=ann, headers={"Range": "bytes=999999999-"})
    assert beyond.status == 416
    source = gateway.call("GET", f"/api/v1/tasks/{task}/source/add.py", token=ann)
    assert source.body.decode() == ADD
    wait_done(gateway, task, ann)
    out = gateway.call("GET", f"/api/v1/tasks/{task}/tests/2/stdout", token=ann)
    assert out.body == b"10\n"


def test_a_tasks_events_come_live_and_end_with_it(gateway: Gateway, ann: str) -> None:
    # The stream is open before it ends.
    body = {"execute": {"command": ["/bin/sleep", "10"], "limits": {"wall_ms": 60_000}}}
    task = gateway.call("POST", "/api/v1/tasks", body, token=ann).json["id"]
    with gateway.stream(f"/api/v1/tasks/{task}/events", ann) as events:
        found = list(events)
    assert found[-1]["event"] == "end"
    states = [json.loads(event["data"])["status"] for event in found[:-1]]
    assert states[-1] == "success" and len(states) >= 2
    # Whoever comes back after a break goes on after the last that he had.
    with gateway.stream("/api/v1/events", ann, last_id=found[0]["id"]) as events:
        for event in events:
            value = json.loads(event["data"])
            if value["id"] == task and value.get("done"):
                break


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"language": 5}, "language"),
        ({"source": "x"}, "source"),
        ({"source": [{"name": "../x", "text": ""}]}, "source[0].name"),
        ({"source": [{"name": "x"}]}, "source[0]"),
        ({"source": [{"name": "x", "base64": "%%"}]}, "source[0].base64"),
        ({"tests": [{"input": 5}]}, "tests[0].input"),
        ({"execute": {"limits": {"cpu_ms": -1}}}, "execute.limits.cpu_ms"),
        ({"execute": {"limits": {"cpu": 1}}}, "execute.limits.cpu"),
        ({"compare": "almost"}, "compare"),
        ({"langauge": "python"}, "langauge"),
        ({"webhook": "ftp://x"}, "webhook"),
        ({"priority": 1e400}, "priority"),
    ],
)
def test_a_wrong_task_is_refused_by_field(
    gateway: Gateway, ann: str, change: dict[str, Any], field: str
) -> None:
    answer = gateway.call("POST", "/api/v1/tasks", add_task(**change), token=ann)
    assert answer.status == 422, answer.body
    assert answer.header("Content-Type") == "application/problem+json"
    assert answer.json["field"] == field
    assert answer.json["status"] == 422 and answer.json["detail"]


def test_the_same_key_gives_the_same_task(gateway: Gateway, ann: str) -> None:
    ids = {
        gateway.call(
            "POST", "/api/v1/tasks", add_task(), token=ann, headers={"Idempotency-Key": "once"}
        ).json["id"]
        for _ in range(3)
    }
    assert len(ids) == 1


def test_a_task_of_another_user_is_not_there_without_the_role(
    gateway: Gateway, ann: str, admin: str
) -> None:
    task = gateway.call("POST", "/api/v1/tasks", add_task(), token=ann).json["id"]
    bob = gateway.make_token("submit", user="bob")
    reader = gateway.make_token("read", user="ron")
    for path in ("", "/source/add.py", "/tests/1/input", "/events", "/wait"):
        assert gateway.call("GET", f"/api/v1/tasks/{task}{path}", token=bob).status == 404
        assert gateway.call("GET", f"/api/v1/tasks/{task}{path}").status == 401
    assert gateway.call("GET", f"/api/v1/tasks/{task}", token=reader).status == 200
    assert gateway.call("POST", f"/api/v1/tasks/{task}/cancel", token=bob).status == 404
    assert gateway.call("POST", f"/api/v1/tasks/{task}/cancel", token=reader).status == 403
    assert gateway.call("GET", "/api/v1/tasks?user=ann", token=bob).status == 403
    assert gateway.call("GET", "/api/v1/tasks", token=bob).json["tasks"] == []
    assert gateway.call("POST", "/api/v1/tasks", add_task(user="ann"), token=bob).status == 403
    assert gateway.call("POST", "/api/v1/tasks", add_task(user="bob"), token=admin).status == 201


def test_rejudging_makes_a_new_task_and_leaves_the_old(gateway: Gateway, ann: str) -> None:
    task = gateway.call("POST", "/api/v1/tasks", add_task(), token=ann).json["id"]
    before = wait_done(gateway, task, ann)
    again = gateway.call("POST", f"/api/v1/tasks/{task}/rejudge", token=ann)
    assert again.status == 201 and again.json["id"] != task
    assert wait_done(gateway, again.json["id"], ann)["tags"] == [f"rejudge:{task}"]
    assert wait_done(gateway, task, ann) == before


def test_a_page_logs_in_with_a_cookie_and_needs_the_csrf_token(gateway: Gateway, ann: str) -> None:
    assert gateway.call("GET", "/api/v1/session").status == 401
    opened = gateway.call("POST", "/api/v1/session", {"token": ann})
    assert opened.status == 200 and ann not in opened.body.decode()
    cookie = opened.header("Set-Cookie") or ""
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and ann not in cookie
    headers = {"Cookie": cookie.partition(";")[0]}
    assert gateway.call("GET", "/api/v1/session", headers=headers).json["user"] == "ann"
    refused = gateway.call("POST", "/api/v1/tasks", add_task(), headers=headers)
    assert refused.status == 403
    allowed = {**headers, "X-CSRF-Token": opened.json["csrf"]}
    assert gateway.call("POST", "/api/v1/tasks", add_task(), headers=allowed).status == 201
    assert gateway.call("DELETE", "/api/v1/session", headers=allowed).status == 204
    assert gateway.call("GET", "/api/v1/session", headers=headers).status == 401


def test_a_quota_stops_a_token(gateway: Gateway) -> None:
    statuses = []
    for _ in range(2):
        hour = int(time.time() // 3600)
        token = gateway.make_token("submit", user="eve", quota=2)
        statuses = [
            gateway.call("POST", "/api/v1/tasks", add_task(), token=token).status for _ in range(3)
        ]
        if int(time.time() // 3600) == hour:
            break  # by the hour of the clock: where one ends in between, there are two more
    assert statuses == [201, 201, 429]


def test_the_cluster_is_told(gateway: Gateway, admin: str) -> None:
    for path in ("languages", "executors", "judicators", "stats", "cluster", "history", "tokens"):
        answer = gateway.call("GET", f"/api/v1/{path}", token=admin)
        assert answer.status == 200 and answer.json, path
        assert gateway.call("GET", f"/api/v1/{path}").status == 401, path
    servers.wait_until(
        lambda: gateway.call("GET", "/healthz").json.get("status") == "ok", 60, "health"
    )

    def listed() -> Any:
        return gateway.call("GET", "/api/v1/cluster", token=admin).json["gateways"]

    [itself] = servers.wait_until(listed, 60, "the gateway on the list")
    assert itself["address"] == f"127.0.0.1:{gateway.port}" and not itself["silent"]


def test_one_client_may_ask_so_often_in_a_minute(cluster: loopback.Cluster) -> None:
    strict = Gateway(cluster.addresses, "[limits]\nrequests = 3")
    try:
        one, other = strict.make_token("read"), strict.make_token("read")
        # A minute may end in between: then there are three more.
        answers = [strict.call("GET", "/api/v1/stats", token=one) for _ in range(7)]
        assert [answer.status for answer in answers[:3]] == [200, 200, 200]
        refused = next(answer for answer in answers if answer.status == 429)
        assert 1 <= int(refused.header("Retry-After") or 0) <= 60
        assert strict.call("GET", "/api/v1/stats", token=other).status == 200
    finally:
        strict.close()


def test_long_answers_are_compressed_for_who_takes_that(gateway: Gateway, admin: str) -> None:
    plain = gateway.call("GET", "/api/v1/openapi.json", token=admin)
    assert plain.header("Content-Encoding") is None
    squeezed = gateway.call(
        "GET", "/api/v1/openapi.json", token=admin, headers={"Accept-Encoding": "gzip"}
    )
    assert squeezed.header("Content-Encoding") == "gzip"
    assert "Accept-Encoding" in (squeezed.header("Vary") or "")
    assert gzip.decompress(squeezed.body) == plain.body
    refused = gateway.call(
        "GET", "/api/v1/openapi.json", token=admin, headers={"Accept-Encoding": "gzip;q=0"}
    )
    assert refused.body == plain.body


class Receiver:
    """A site that takes webhooks; fails the first calls if told."""

    def __init__(self, failures: int = 0) -> None:
        self.calls: list[tuple[dict[str, str], bytes]] = []
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.calls.append((dict(self.headers), body))
                self.send_response(500 if len(receiver.calls) <= failures else 204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/done?x=1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_a_webhook_is_called_signed_and_again_if_it_fails(cluster: loopback.Cluster) -> None:
    gateway = Gateway(cluster.addresses, "[webhooks]\nallow = 127.0.0.0/8")
    receiver = Receiver(failures=1)
    try:
        root = gateway.make_token("admin", user="root")
        made = gateway.call(
            "POST", "/api/v1/tokens", {"name": "site", "user": "s", "roles": ["submit"]}, token=root
        ).json
        body = add_task(webhook=receiver.url)
        task = gateway.call("POST", "/api/v1/tasks", body, token=made["secret"]).json["id"]
        servers.wait_until(lambda: len(receiver.calls) >= 2, 60, "the second call")
        for attempt, (headers, content) in enumerate(receiver.calls, 1):
            assert (headers["OJ-Delivery"], headers["OJ-Attempt"]) == (task, str(attempt))
            moment, _, signature = headers["OJ-Signature"].partition(",v1=")
            signed = f"{moment.removeprefix('t=')}.".encode() + content
            assert (
                signature
                == hmac.new(made["webhook_secret"].encode(), signed, hashlib.sha256).hexdigest()
            )
            told = json.loads(content)
            assert told["event"] == "task.done"
            assert (told["task"]["id"], told["task"]["verdict"]) == (task, "accepted")
    finally:
        gateway.close()
        receiver.close()


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "localhost", "0.0.0.0", "224.0.0.1"]
)
def test_a_webhook_reaches_no_private_address(host: str) -> None:
    closed = Webhooks(send=True, allow=())
    with pytest.raises(Forbidden):
        choose_address(host, 80, closed)


def test_a_webhook_reaches_what_was_allowed() -> None:
    allowed = Webhooks(send=True, allow=(ipaddress.ip_network("10.0.0.0/8"),))
    assert choose_address("10.0.0.1", 80, allowed) == "10.0.0.1"
    assert choose_address("8.8.8.8", 80, allowed) == "8.8.8.8"


def test_metrics_tell_requests_of_all_processes_and_the_cluster(gateway: Gateway) -> None:
    before = gateway.call("GET", "/metrics").body.decode()
    for _ in range(20):
        servers.wait_until(lambda: gateway.call("GET", "/healthz").status == 200, 60, "health")

    def count(text: str) -> float:
        found = re.search(
            r'oj_gateway_requests_total\{method="GET",route="/healthz",status="200"\} (\S+)', text
        )
        return float(found[1]) if found else 0.0

    def ask() -> str | None:
        """Once a judicator has answered in time, too."""
        text = gateway.call("GET", "/metrics").body.decode()
        return text if "oj_gateway_cluster_up 1.0" in text else None

    after = servers.wait_until(ask, 60, "a cluster that is up")
    assert count(after) - count(before) >= 20
    assert re.search(r"oj_executors 1\.0", after)


def test_metrics_are_not_for_strangers(cluster: loopback.Cluster) -> None:
    one = Gateway(cluster.addresses, "[access]\nmetrics = 10.0.0.0/8")
    try:
        assert one.call("GET", "/metrics").status == 403
    finally:
        one.close()
