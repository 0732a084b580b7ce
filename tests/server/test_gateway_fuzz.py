"""Requests that no honest client sends, byte by byte over a socket: none may cost more than itself.

Schemathesis (test_gateway_schema.py) sends sound HTTP with odd values; here the HTTP is odd:
headers, lengths, encodings, forms that are cut or lie about themselves.
"""

from __future__ import annotations

import gzip
import json
import socket
import string
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import loopback
import servers
from gateways import Gateway

EXAMPLES = 80
ANSWER_S = 20.0
TASK = {"language": "python", "source": [{"name": "a.py", "text": "print(1)"}]}
PATHS = (
    "/api/v1/tasks",
    "/api/v1/tasks/batch",
    "/api/v1/tasks/rejudge",
    "/api/v1/session",
    "/api/v1/tokens",
    "/api/v1/executors/nobody/drain",
    "/api/v1/blobs/" + "0" * 64,
)
fuzzed = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],  # a gateway that is down cannot tell which it was
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def processes(gateway: Gateway) -> set[int]:
    """uWSGI's own, below its master."""
    [master] = gateway.daemon.children()
    return {int(pid) for pid in Path(f"/proc/{master}/task/{master}/children").read_text().split()}


@pytest.fixture(scope="module")
def gateway(cluster: loopback.Cluster) -> Iterator[Gateway]:
    """It has the same processes after all of it: none was ended by a request."""
    one = Gateway(
        cluster.addresses,
        "[limits]\nrequests = 1000000\nlogins = 10000\nbody = 256K\n[webhooks]\nsend = no",
    )
    try:
        before = processes(one)
        yield one
        assert len(before) >= 3 and processes(one) == before, one.daemon.log()[-3000:]
    finally:
        one.close()


@pytest.fixture(scope="module")
def admin(gateway: Gateway) -> str:
    return gateway.make_token("admin", user="root")


def send(gateway: Gateway, request: bytes, *, whole: bool = True) -> int | None:
    """The status of the answer; None where the connection was closed without one.

    A request that is not whole ends with the connection: nobody waits for the rest.
    """
    with socket.create_connection(("127.0.0.1", gateway.port), ANSWER_S) as connection:
        connection.settimeout(ANSWER_S)
        answer = b""
        try:
            connection.sendall(request)
            if not whole:
                connection.shutdown(socket.SHUT_WR)
            while b"\r\n" not in answer and (piece := connection.recv(65536)):
                answer += piece
        except OSError:  # it did not read on: its right
            pass
    words = answer.split(None, 2)
    return int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/") else None


def make(path: str, headers: list[tuple[bytes, bytes]], body: bytes, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: localhost", b"Connection: close"]
    lines += [name + b": " + value for name, value in headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def check(gateway: Gateway, status: int | None) -> None:
    assert status is None or status < 500, gateway.daemon.log()[-3000:]
    wait_for_health(gateway)


def wait_for_health(gateway: Gateway) -> None:
    """Its judicator has 2 s to answer, which a busy machine may take."""
    servers.wait_until(lambda: gateway.call("GET", "/healthz").status == 200, 60, "health")


names = st.text(string.ascii_letters + string.digits + "-_", min_size=1, max_size=40)
values = st.binary(max_size=300).map(lambda raw: raw.translate(None, b"\r\n\0"))
KNOWN = (
    b"Accept",
    b"Accept-Encoding",
    b"Authorization",
    b"Content-Encoding",
    b"Content-Length",
    b"Content-Range",
    b"Content-Type",
    b"Cookie",
    b"Expect",
    b"Idempotency-Key",
    b"If-Match",
    b"If-Modified-Since",
    b"If-None-Match",
    b"If-Range",
    b"Last-Event-ID",
    b"Origin",
    b"Range",
    b"Transfer-Encoding",
    b"Upgrade",
    b"X-CSRF-Token",
    b"X-Forwarded-For",
    b"X-Forwarded-Proto",
)
headers = st.lists(st.tuples(st.sampled_from(KNOWN) | names.map(str.encode), values), max_size=12)


@fuzzed
@given(path=st.sampled_from(("/", "/metrics", "/nowhere", *PATHS)), odd=headers)
def test_odd_headers(
    gateway: Gateway, admin: str, path: str, odd: list[tuple[bytes, bytes]]
) -> None:
    token = [(b"Authorization", f"Bearer {admin}".encode())]
    for method in ("GET", "POST"):
        check(gateway, send(gateway, make(path, token + odd, b"{}", method), whole=False))


def test_no_header_ends_a_process(gateway: Gateway) -> None:
    """uWSGI took the scheme from X-Forwarded-Proto, and died of one that is not UTF-8."""
    before = processes(gateway)
    for name in KNOWN:
        send(gateway, make("/api/v1/languages", [(name, b"\xff\xfe\x80")], b"", "GET"), whole=False)
        send(gateway, make("/healthz", [(name, b"\x80")], b"", "GET"), whole=False)
    wait_for_health(gateway)
    assert len(before) >= 3 and processes(gateway) == before


@pytest.mark.parametrize("size", [4_000, 20_000, 70_000, 1_000_000])
@pytest.mark.parametrize("where", ["path", "query", "header", "many headers", "cookie"])
def test_oversized_heads(gateway: Gateway, where: str, size: int) -> None:
    path, more = "/api/v1/tasks", []
    if where == "path":
        path += "/" + "x" * size
    elif where == "query":
        path += "?user=" + "x" * size
    elif where == "header":
        more = [(b"Idempotency-Key", b"x" * size)]
    elif where == "cookie":
        more = [(b"Cookie", b"oj_session=" + b"x" * size)]
    else:
        more = [(f"X-{n}".encode(), b"y" * 50) for n in range(size // 60)]
    check(gateway, send(gateway, make(path, more, b"", "GET")))


@pytest.mark.parametrize(
    ("length", "body"),
    [
        (b"-1", b"{}"),
        (b"1e3", b"{}"),
        (b"99999999999999999999", b"{}"),
        (b"9000000", b"{}"),
        (b"300000", b"x" * 300_000),
        (b"1000", b"{}"),
        (b"0", b"{}"),
        (b"2, 2", b"{}"),
        (b"", b"{}"),
        (b" 2", b"{}"),
        (b"0x2", b"{}"),
    ],
    ids=range(11),
)
def test_lengths_that_lie(gateway: Gateway, admin: str, length: bytes, body: bytes) -> None:
    head = [
        (b"Authorization", f"Bearer {admin}".encode()),
        (b"Content-Type", b"application/json"),
        (b"Content-Length", length),
    ]
    for path in PATHS:
        check(gateway, send(gateway, make(path, head, body), whole=False))


@pytest.mark.parametrize(
    "body",
    [
        b"2\r\n{}\r\n0\r\n\r\n",
        b"zz\r\n{}\r\n0\r\n\r\n",
        b"-2\r\n{}\r\n0\r\n\r\n",
        b"ffffffffffffffff\r\n{}",
        b"2\r\n{}",
        b"2;x=y\r\n{}\r\n0\r\nTrailer: x\r\n\r\n",
        b"40000\r\n" + b"x" * 0x40000 + b"\r\n0\r\n\r\n",
    ],
    ids=range(7),
)
@pytest.mark.parametrize("also_length", [False, True])
def test_chunks_that_are_none(gateway: Gateway, admin: str, body: bytes, also_length: bool) -> None:
    head = [
        (b"Authorization", f"Bearer {admin}".encode()),
        (b"Content-Type", b"application/json"),
        (b"Transfer-Encoding", b"chunked"),
    ]
    if also_length:
        head.append((b"Content-Length", b"2"))
    check(gateway, send(gateway, make("/api/v1/tasks", head, body), whole=False))


TEXT = json.dumps(TASK)
ENCODED = {
    "utf-16": (b"application/json; charset=utf-16", TEXT.encode("utf-16")),
    "latin-1": (b"application/json", TEXT.replace("print", "pr\xefnt").encode("latin-1")),
    "a mark in front": (b"application/json", b"\xef\xbb\xbf" + TEXT.encode()),
    "an unknown charset": (b"application/json; charset=klingon", TEXT.encode()),
    "gzip": (b"application/json", gzip.compress(TEXT.encode())),
    "half a letter": (b"application/json", TEXT.encode() + b"\xc3"),
    "a lone surrogate": (b"application/json", TEXT.replace("print", "\\ud800").encode()),
    "NUL": (b"application/json", TEXT.replace("print", "\\u0000").encode()),
    "depth": (b"application/json", b"[" * 100_000),
    "deep objects": (b"application/json", b'{"a":' * 50_000),
    "a long number": (b"application/json", b'{"priority": ' + b"9" * 100_000 + b"}"),
    "not a number": (b"application/json", b'{"priority": NaN, "tolerance": Infinity}'),
    "the same twice": (b"application/json", b'{"language": "c", "language": ["c"]}'),
    "a form of words": (b"application/x-www-form-urlencoded", b"task=%ff%fe&language=%00"),
    "a type that is none": (b"\xff\xfe/;;;=", TEXT.encode()),
}


@pytest.mark.parametrize("name", ENCODED)
def test_encodings(gateway: Gateway, admin: str, name: str) -> None:
    kind, body = ENCODED[name]
    head = [
        (b"Authorization", f"Bearer {admin}".encode()),
        (b"Content-Type", kind),
        (b"Content-Length", str(len(body)).encode()),
    ]
    for path in PATHS:
        method = "PUT" if "blobs" in path else "POST"
        check(gateway, send(gateway, make(path, head, body, method)))


def part(name: str, content: bytes, more: str = "") -> bytes:
    return (
        f'--b\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'.encode()
        + content
        + b"\r\n"
    )


FORM = (
    part("task", json.dumps(TASK).encode())
    + part("source", b"print(2)", '; filename="b.py"')
    + part("tests", b"PK\x03\x04 no zip", '; filename="t.zip"')
    + part("cpu_ms", b"1000")
    + b"--b--\r\n"
)


@fuzzed
@given(data=st.data())
def test_broken_forms(gateway: Gateway, admin: str, data: st.DataObject) -> None:
    """A sound form, then cut, repeated, overwritten or given another boundary."""
    body = bytearray(FORM)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(0, len(body) - 1)))
        kind = data.draw(st.sampled_from(("cut", "overwrite", "insert", "repeat")))
        if kind == "cut":
            del body[at : at + data.draw(st.integers(1, 60))]
        elif kind == "overwrite":
            body[at : at + 8] = data.draw(st.binary(max_size=8))
        elif kind == "insert":
            body[at:at] = data.draw(
                st.sampled_from((b"\r\n", b"--b\r\n", b"--b--", b"\0", b'"', b";"))
            )
        else:
            body[at:at] = body[at : at + 200]
    boundary = data.draw(st.sampled_from((b"b", b"b", b"b", b"", b'"b', b"c", b"b" * 300, b"\xff")))
    head = [
        (b"Authorization", f"Bearer {admin}".encode()),
        (b"Content-Type", b"multipart/form-data; boundary=" + boundary),
        (b"Content-Length", str(len(body)).encode()),
    ]
    check(gateway, send(gateway, make("/api/v1/tasks", head, bytes(body))))


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "/etc/passwd", "..", ".", "", "a\0b", "\xff", "x" * 5000, "con\r\nX: y"],
    ids=range(9),
)
def test_names_of_files_that_lead_elsewhere(gateway: Gateway, admin: str, name: str) -> None:
    body = part("language", b"python") + part("source", b"1", f'; filename="{name}"') + b"--b--\r\n"
    head = [
        (b"Authorization", f"Bearer {admin}".encode()),
        (b"Content-Type", b"multipart/form-data; boundary=b"),
        (b"Content-Length", str(len(body)).encode()),
    ]
    check(gateway, send(gateway, make("/api/v1/tasks", head, body)))


@fuzzed
@given(noise=st.binary(min_size=1, max_size=2000))
def test_noise(gateway: Gateway, noise: bytes) -> None:
    check(gateway, send(gateway, noise + b"\r\n\r\n", whole=False))
