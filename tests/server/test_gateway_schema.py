"""The API and its OpenAPI document say the same: both ways, and under a fuzzer's hands."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import loopback
import servers
from gateways import Gateway
from oj.gateway.app import make_app
from oj.gateway.openapi import make_document
from oj.gateway.settings import load

METHODS = {"get", "put", "post", "delete", "patch"}


@pytest.fixture(scope="module")
def gateway(etcd: servers.Etcd, mongod: servers.Mongod) -> Iterator[Gateway]:
    loopback.prepare()
    with loopback.Cluster(etcd, mongod) as cluster:
        cluster.start()
        one = Gateway(
            cluster.addresses,
            "[limits]\nrequests = 1000000\nlogins = 10000\n[webhooks]\nsend = no",
        )
        yield one
        one.close()


def test_every_route_is_documented_and_every_documented_path_is_a_route(tmp_path: Path) -> None:
    (tmp_path / "gateway.conf").write_text("")
    app = make_app(load(tmp_path / "gateway.conf"))
    served = {
        (re.sub(r"<(?:\w+:)?(\w+)>", r"{\1}", rule.rule.removeprefix("/api/v1")), method.lower())
        for rule in app.url_map.iter_rules()
        if rule.rule.startswith("/api/v1/")
        for method in (rule.methods or set()) - {"HEAD", "OPTIONS"}
    }
    documented = {
        (path, method)
        for path, item in make_document()["paths"].items()
        for method in item
        if method in METHODS
    }
    assert served == documented


def test_every_view_says_what_it_needs(tmp_path: Path) -> None:
    (tmp_path / "gateway.conf").write_text("")
    app = make_app(load(tmp_path / "gateway.conf"))
    silent = [name for name, view in app.view_functions.items() if not hasattr(view, "needs")]
    assert silent == []


def test_no_request_that_a_fuzzer_thinks_of_breaks_the_api(gateway: Gateway) -> None:
    """Schemathesis: valid and invalid requests to every operation; answers must be as promised."""
    token = gateway.make_token("admin", user="root")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    run = subprocess.run(
        [
            str(servers.TREE / "build" / "venv" / "bin" / "schemathesis"),
            "run",
            f"{gateway.url}/api/v1/openapi.json",
            f"--url={gateway.url}/api/v1",
            # Streams have no end; other tests read them.
            "--exclude-path-regex=events$",
            f"--header=Authorization: Bearer {token}",
            "--max-examples=12",
            "--seed=1",
            "--checks=not_a_server_error,status_code_conformance,content_type_conformance,"
            "response_schema_conformance",
            "--request-timeout=30",
            "--workers=1",
            "--no-color",
        ],
        cwd=gateway.directory,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
