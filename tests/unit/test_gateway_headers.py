"""Headers: what a hostile one costs to read, and those that are longer than anybody needs."""

from __future__ import annotations

import time
from ipaddress import ip_network
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from werkzeug.test import EnvironBuilder, run_wsgi_app

from oj.gateway.access import _find_cookie
from oj.gateway.addresses import MOST_HOPS, find_client
from oj.gateway.app import LONGEST_HEADERS, make_app
from oj.gateway.metrics import METHODS, REQUESTS
from oj.gateway.settings import load

LENGTH = 15_000  # uWSGI takes 16 KiB of headers
# What a request with the worst header may cost, compared with one that has a harmless header of the
# same length. Those that take the square of the time were beyond 20, and 1000.
MOST_TIMES = 5
PIECES = [" ", "\t", ",", ", ", '"', "\\", '\\"', ";", ";a*=b", "; a=b", ";q=", "=", "x,", '"a",']
PIECES += ["W/", "1-2,", "*", ":", ".", "%", "-", "9", "127.0.0.1,"]
BEGINNINGS = {
    "Content-Type": ["", "application/json;", "multipart/form-data;", 'a/b;a="', "a/b;a*="],
    "Content-Length": [""],
    "Cookie": ["", "oj_session=", 'a="', "a="],
    "If-None-Match": ["", '"'],
    "If-Match": [""],
    "If-Range": ["", '"', "Mon, "],
    "If-Modified-Since": ["", "Mon, 01 "],
    "If-Unmodified-Since": ["Mon, 01 "],
    "Range": ["", "bytes=", "bytes=0-"],
    "Accept": ["", "a/b;", "a/b;q="],
    "Accept-Encoding": ["", "gzip;", "gzip;q="],
    "Accept-Language": [""],
    "Authorization": ["", "Basic ", "Digest ", "Bearer "],
    "X-Forwarded-For": [""],
    "X-Forwarded-Proto": [""],
    "X-CSRF-Token": [""],
    "Host": ["", "a:"],
    "Cache-Control": [""],
    "Expect": [""],
    "Transfer-Encoding": [""],
}
# Secrets that are longer than any are not looked up, which would take a judicator.
ENDS = {"Cookie": ("x" * 201, "x" * 201 + '"'), "Authorization": ("x" * 201,)}
CALLS = [
    ("POST", "/api/v1/session"),
    ("GET", "/static/codemirror/lib/codemirror.js"),
    ("GET", "/none"),
    ("GET", "/"),
    ("GET", "/api/v1/session"),
]


@pytest.fixture
def client(tmp_path: Path) -> FlaskClient:
    """Nobody judges: what strangers send is answered without."""
    path = tmp_path / "gateway.conf"
    path.write_text(
        "judicators = 127.0.0.1:1\netcd = ,\ntimeout = 500ms\n[access]\nproxies = 127.0.0.0/8\n"
        "[limits]\nrequests = 1000000\nlogins = 10000\n"
    )
    return make_app(load(path)).test_client(use_cookies=False)


def cost_s(client: FlaskClient, method: str, path: str, headers: dict[str, str]) -> float:
    # Not by the client itself, which wants to make sense of the headers as well.
    environment = EnvironBuilder(path, method=method, headers=headers).get_environ()
    environment["HTTP_HOST"] = headers.get("Host", "localhost")
    begun_s = time.process_time()
    body, status, _ = run_wsgi_app(client.application, environment, buffered=True)
    b"".join(body)
    assert not status.startswith("500"), headers
    return time.process_time() - begun_s


@pytest.mark.parametrize("name", BEGINNINGS)
def test_no_header_costs_more_than_its_length(client: FlaskClient, name: str) -> None:
    for method, path in CALLS:
        sent = {} if name == "Content-Type" else {"Content-Type": "application/json"}
        harmless_s = [
            cost_s(client, method, path, {**sent, "X-Harmless": "a" * LENGTH}) for _ in range(5)
        ]
        most_s = MOST_TIMES * sorted(harmless_s)[2]
        for beginning in BEGINNINGS[name]:
            for piece in PIECES:
                for end in ENDS.get(name, ("", "=", '"', "x")):
                    value = (beginning + piece * LENGTH)[:LENGTH] + end
                    # The best of some: the machine does other things as well.
                    times = (cost_s(client, method, path, {**sent, name: value}) for _ in range(9))
                    assert any(one <= most_s for one in times), (path, beginning, piece, end)


@pytest.mark.parametrize("name", LONGEST_HEADERS)
@pytest.mark.parametrize(
    "path", ["/api/v1/session", "/api/v1/tasks", "/api/v1/openapi.json", "/none"]
)
def test_a_header_that_is_too_long_is_named(client: FlaskClient, name: str, path: str) -> None:
    longest = LONGEST_HEADERS[name]
    for method in ("GET", "POST"):
        allowed = client.open(path, method=method, headers={name: "a" * longest})
        assert allowed.status_code != 431
        refused = client.open(path, method=method, headers={name: "a" * (longest + 1)})
        assert refused.status_code == 431 and refused.mimetype == "application/problem+json"
        assert refused.json is not None and refused.json["field"] == name
        assert f"{name} is longer than {longest} characters" in refused.json["detail"]
        assert refused.headers["Connection"] == "close"


@pytest.mark.parametrize(
    ("header", "found"),
    [
        ("oj_session=oj_s_a-b", "oj_s_a-b"),
        ("a=b; oj_session=oj_s_a; c=d", "oj_s_a"),
        ("a=b;oj_session=oj_s_a;", "oj_s_a"),
        ('theme="a\\"b"; oj_session=oj_s_a', "oj_s_a"),
        ("oj_session=first; oj_session=second", "first"),
        ("__Host-oj_session=other; xoj_session=other", ""),
        ("oj_session", ""),
        ("oj_session=a=b", "a=b"),
        ("", ""),
    ],
)
def test_the_session_is_found_among_cookies(header: str, found: str) -> None:
    assert _find_cookie(header, "oj_session") == found


def test_methods_that_clients_think_of_are_one_metric(client: FlaskClient) -> None:
    def count() -> dict[str, float]:
        return {
            sample.labels["method"]: sample.value
            for metric in REQUESTS.collect()
            for sample in metric.samples
            if sample.name.endswith("_total") and sample.labels["route"] == "none"
        }

    before = count().get("other", 0.0)
    for number in range(20):
        assert client.open("/none", method=f"METHOD{number}").status_code == 404
    assert client.open("/none", method="GET").status_code == 404
    found = count()
    assert found["other"] == before + 20 and set(found) <= {*METHODS, "other"}


def test_so_many_hops_of_proxies_are_looked_at() -> None:
    proxies = [ip_network("10.0.0.0/8")]
    chain = ", ".join(f"10.0.0.{n}" for n in range(1, MOST_HOPS))
    assert find_client("10.0.0.99", f"192.0.2.1, {chain}", proxies) == "192.0.2.1"
    assert find_client("10.0.0.99", f"192.0.2.1, 10.1.0.0, {chain}", proxies) == "10.1.0.0"
