"""The gateway's configuration as checked values."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oj import settings
from oj.errors import BadSettings, Rejected
from oj.model import MOST_STORED_BYTES, check_node

Address = tuple[str, int]
IpNetwork = ipaddress.IPv4Network | ipaddress.IPv6Network

LEAST_BODY_BYTES = 64 << 10


@dataclass(frozen=True)
class Access:
    """Who may come in, and how he is told from others."""

    anonymous_reads: bool
    proxies: tuple[IpNetwork, ...]  # whose X-Forwarded-* headers are believed
    secure_cookie: str  # auto: as the request came in
    session_s: float
    metrics: tuple[IpNetwork, ...]  # who may ask for /metrics


@dataclass(frozen=True)
class Limits:
    body_bytes: int
    requests: int  # a minute and client
    logins: int  # failed ones a minute and client
    streams: int  # at one time, of one client
    waits: int  # the same
    bodies: int  # the same, on their way in
    pace_bytes: int  # a second, below which a body is given up
    json_bytes: int
    unpacked_bytes: int  # of all archives of a request
    memory_bytes: int  # that large requests of a process have in hand
    stored_bytes: int  # a day and user; 0: no limit


@dataclass(frozen=True)
class Webhooks:
    send: bool
    allow: tuple[IpNetwork, ...]  # private networks that may be called nevertheless


@dataclass(frozen=True)
class Settings:
    name: str
    listen: Address
    processes: int
    threads: int
    judicators: tuple[Address, ...]
    etcd: tuple[Address, ...]
    timeout_s: float
    runtime_directory: Path
    program: str
    access: Access
    limits: Limits
    webhooks: Webhooks

    # The threads of each process. Bodies, those that wait for a seat, and long requests together
    # leave the reserve, whatever `threads` is: or a health check would find no thread.

    @property
    def body_threads(self) -> int:
        """For bodies on their way in; as many again are for log-ins, and to wait for a seat."""
        return max(2, self.threads // 8)

    @property
    def login_threads(self) -> int:
        """For bodies of log-ins, where long requests leave no more."""
        return max(1, self.body_threads // 4)

    @property
    def long_threads(self) -> int:
        """For event streams, waiting requests and large downloads."""
        return self.threads - 2 * self.body_threads - self.reserved_threads

    @property
    def reserved_threads(self) -> int:
        """For requests that hold a thread for as long as they compute, and no longer."""
        return max(1, self.threads // 10)

    @property
    def local(self) -> Address:
        """Where the daemon's own check finds the port."""
        host, port = self.listen
        return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port


def load(path: Path) -> Settings:
    """Reads and checks the file; raises BadSettings with every mistake."""
    values = settings.read(path, "gateway")
    access, limits, webhooks = values["access"], values["limits"], values["webhooks"]
    mistakes: list[str] = []
    found = Settings(
        name=settings.default_name(values["name"]),
        listen=values["listen"],
        processes=values["processes"],
        threads=values["threads"],
        judicators=tuple(values["judicators"]),
        etcd=tuple(values["etcd"]),
        timeout_s=values["timeout"],
        runtime_directory=Path(values["runtime_directory"]),
        program=values["uwsgi"],
        access=Access(
            anonymous_reads=access["anonymous"] == "read",
            proxies=_read_networks(access["proxies"], "access.proxies", mistakes),
            secure_cookie=access["secure_cookie"],
            session_s=access["session"],
            metrics=_read_networks(access["metrics"], "access.metrics", mistakes),
        ),
        limits=Limits(
            body_bytes=limits["body"],
            requests=limits["requests"],
            logins=limits["logins"],
            streams=limits["streams"],
            waits=limits["waits"],
            bodies=limits["bodies"],
            pace_bytes=limits["pace"],
            json_bytes=limits["json"],
            unpacked_bytes=limits["unpacked"],
            memory_bytes=limits["memory"] or 4 * limits["body"],
            stored_bytes=limits["stored"],
        ),
        webhooks=Webhooks(
            send=webhooks["send"],
            allow=_read_networks(webhooks["allow"], "webhooks.allow", mistakes),
        ),
    )
    mistakes += find_mistakes(found)
    if mistakes:
        raise BadSettings(settings.place(path, mistakes))
    return found


def find_mistakes(found: Settings) -> list[str]:
    """What no single value tells: rules between them."""
    mistakes = []
    try:
        check_node(found.name, "name")
    except Rejected as error:
        mistakes.append(f"name: {error.message}")
    if found.listen[1] == 0:
        mistakes.append("listen: port 0 would be another one at each start")
    if not found.judicators and not found.etcd:
        mistakes.append("judicators: neither judicators nor etcd say where the cluster is")
    if not 0.5 <= found.timeout_s <= 60:
        mistakes.append("timeout: is not between 500ms and 1m")
    if not found.runtime_directory.is_absolute():
        mistakes.append(f"runtime_directory: '{found.runtime_directory}' is not an absolute path")
    if found.program and not os.access(found.program, os.X_OK):
        mistakes.append(f"uwsgi: there is no program {found.program}")
    if not 60 <= found.access.session_s <= 90 * 86400:
        mistakes.append("access.session: is not between 1m and 90d")
    if found.limits.body_bytes < LEAST_BODY_BYTES:
        mistakes.append("limits.body: less than 64K leaves no room for a program")
    if found.limits.pace_bytes < 1:
        mistakes.append("limits.pace: less than 1 byte a second would wait for ever")
    if found.limits.json_bytes < LEAST_BODY_BYTES:
        mistakes.append("limits.json: less than 64K leaves no room for a program")
    if found.limits.memory_bytes < 3 * found.limits.body_bytes:
        mistakes.append(
            "limits.memory: is less than three times limits.body, so that no such body has room"
        )
    if found.limits.stored_bytes > MOST_STORED_BYTES:
        mistakes.append("limits.stored: is more than 1024T; 0 means no limit")
    return mistakes


def _read_networks(words: list[Any], key: str, mistakes: list[str]) -> tuple[IpNetwork, ...]:
    found = []
    for word in filter(None, words):
        try:
            found.append(ipaddress.ip_network(word))
        except ValueError:
            mistakes.append(f"{key}: '{word}' is not a network such as 10.0.0.0/8")
    return tuple(found)
