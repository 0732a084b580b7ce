"""A gateway under test: the real daemon with real uWSGI, and plain HTTP to it."""

from __future__ import annotations

import copy
import http.client
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import servers
from oj.client import Judicators
from oj.rpc import ttypes as rpc
from oj.tokens import make_secret

UNIT = servers.TREE / "units" / "oj-gateway.service"
# How the allocator behaves is a part of how much memory a gateway needs.
ENVIRONMENT = dict(re.findall(r"(MALLOC_\w+)=(\S+)", UNIT.read_text()))


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        return next((v for k, v in self.headers.items() if k.lower() == name.lower()), None)


class Gateway:
    """Started beside judicators; makes tokens through them, as `oj token` does."""

    def __init__(self, judicators: Iterable[tuple[str, int]], settings: str = "") -> None:
        self.judicators = list(judicators)
        self.port = servers.free_port()
        self.directory = servers.make_directory()
        self.config = "\n".join(
            [
                "name = g1",
                f"listen = 127.0.0.1:{self.port}",
                "judicators = " + ", ".join(f"{host}:{port}" for host, port in self.judicators),
                "etcd = ,",
                f"runtime_directory = {self.directory / 'run'}",
                settings,
            ]
        )
        os.environ.update(ENVIRONMENT)
        self.daemon = servers.start_daemon("gateway", self.config, self.directory)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Gateway:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.daemon.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def make_token(
        self,
        *roles: str,
        user: str = "ann",
        quota: int | None = None,
        expires_ms: int | None = None,
    ) -> str:
        secret = make_secret()
        with Judicators(self.judicators) as cluster:
            cluster.add_token(
                rpc.Token(
                    name="test", user=user, roles=set(roles), quota=quota, expires=expires_ms
                ),
                secret,
            )
        return secret

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
    ) -> Answer:
        """One request; a body that is no bytes goes as JSON."""
        sent = dict(headers or {})
        if token is not None:
            sent["Authorization"] = f"Bearer {token}"
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request(method, path, body, sent)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    @contextmanager
    def stream(
        self, path: str, token: str | None = None, last_id: str = "", timeout_s: float = 60.0
    ) -> Iterator[Iterator[dict[str, str]]]:
        """Server-sent events, each as its fields."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if last_id:
            headers["Last-Event-ID"] = last_id
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            yield _read_events(answer)
        finally:
            connection.close()


class Nginx(servers.Process):
    """nginx in front of a gateway, with the file that the package brings, but for TLS."""

    SOURCE = servers.TREE / "share" / "nginx" / "oj-gateway.conf"

    def __init__(self, gateway: Gateway) -> None:
        self.port = servers.free_port()
        self.directory = servers.make_directory()
        self.directory.chmod(0o755)
        config = self.directory / "nginx.conf"
        config.write_text(self._write(self.SOURCE.read_text(), gateway.port))
        super().__init__(
            ["nginx", "-e", "stderr", "-p", str(self.directory), "-c", str(config)],
            self.directory / "log",
        )
        servers.wait_until(lambda: servers.accepts(self.port), 60, "nginx")

    def _write(self, text: str, gateway: int) -> str:
        _, _, secure = text.partition("listen 443")
        zones = "".join(re.findall(r"(?m)^limit_conn_zone .*\n", text))
        server = "server {\n    listen 443" + secure
        server = re.sub(r"(?m)^ *(ssl_|listen \[).*\n", "", server)
        server = re.sub(r"listen 443.*;", f"listen 127.0.0.1:{self.port};", server)
        server = server.replace("127.0.0.1:7580", f"127.0.0.1:{gateway}")
        return (
            "daemon off;\npid nginx.pid;\nworker_processes auto;\n"
            "events { worker_connections 768; }\n"
            "http {\naccess_log off;\n"
            + "".join(
                f"{kind}_temp_path {kind};\n"
                for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
            )
            + zones
            + server
            + "}\n"
        )

    def in_front(self, gateway: Gateway) -> Gateway:
        """The same gateway, asked through this."""
        found = copy.copy(gateway)
        found.port = self.port
        return found

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def _read_events(answer: http.client.HTTPResponse) -> Iterator[dict[str, str]]:
    fields: dict[str, str] = {}
    for raw in answer:
        line = raw.decode().rstrip("\n")
        if not line:
            if "data" in fields:
                yield fields
            fields = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
