"""The settings of oj-etcd and the command lines that they make; no I/O but reading the file."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from oj import settings
from oj.errors import BadSettings

Address = tuple[str, int]

PROGRAM = "etcd"
TOKEN = "oj"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")


@dataclass(frozen=True)
class Settings:
    name: str
    mode: str
    data: Path
    client: Address
    peer: Address
    advertise: str
    heartbeat_s: float
    election_s: float
    quota_bytes: int
    init: bool
    join: tuple[Address, ...]
    discover: str
    expect: int
    metrics: Address | None = None

    @property
    def local(self) -> Address:
        """Where our own health check finds the client port."""
        host, port = self.client
        if is_wildcard(host):
            host = "::1" if ":" in host else "127.0.0.1"
        return host, port


def load(path: Path) -> Settings:
    """Reads and checks the file; raises BadSettings with every mistake."""
    values = settings.read(path, "etcd")
    cluster = values["cluster"]
    given = cluster["init"]
    found = Settings(
        name=settings.default_name(values["name"]),
        mode=values["mode"],
        data=Path(values["data"]),
        client=values["client"],
        peer=values["peer"],
        advertise=values["advertise"],
        heartbeat_s=values["heartbeat"],
        election_s=values["election"],
        quota_bytes=values["quota"],
        init=not (cluster["join"] or cluster["discover"]) if given is None else given,
        join=tuple(cluster["join"]),
        discover=cluster["discover"],
        expect=cluster["expect"],
        metrics=values["metrics"],
    )
    mistakes = find_mistakes(found, given)
    if mistakes:
        raise BadSettings(settings.place(path, mistakes))
    return found


def find_mistakes(found: Settings, init: bool | None) -> list[str]:
    """What no single value tells: rules between them."""
    mistakes = []
    if not _NAME.match(found.name):
        mistakes.append(f"name: '{found.name}' has signs other than letters, digits, . _ -")
    if not found.data.is_absolute():
        mistakes.append(f"data: '{found.data}' is not an absolute path")
    for key, (host, port) in (("client", found.client), ("peer", found.peer)):
        if not is_ip(host):
            mistakes.append(f"{key}: etcd listens on IP addresses only, not on '{host}'")
        elif is_wildcard(host) and not found.advertise:
            mistakes.append(f"{key}: with {host}, advertise must name the host for the others")
        if port == 0:
            mistakes.append(f"{key}: port 0 would be another one at each start")
    if found.client == found.peer:
        mistakes.append("peer: is the same as client")
    if not 0.01 <= found.heartbeat_s <= 10:
        mistakes.append("heartbeat: is not between 10ms and 10s")
    if found.election_s < 5 * found.heartbeat_s or found.election_s > 50:
        mistakes.append("election: is not between five heartbeats and 50s")
    if not 1 << 20 <= found.quota_bytes <= 8 << 30:
        mistakes.append("quota: is not between 1M and 8G")
    return mistakes + find_cluster_mistakes(found, init)


def find_cluster_mistakes(found: Settings, init: bool | None) -> list[str]:
    mistakes = []
    if found.expect > 1 and not found.discover:
        mistakes.append("cluster.expect: is of use with discover only")
    if found.mode == "proxy":
        if init:
            mistakes.append("cluster.init: a proxy cannot make a cluster")
        if not found.join and not found.discover:
            mistakes.append("cluster.join: a proxy needs the client addresses of members")
        return mistakes
    if found.join and init:
        mistakes.append("cluster.init: cannot both make a cluster and join one")
    elif init is False and not found.discover:
        mistakes.append("cluster.init: with no, join or discover must say which cluster")
    return mistakes


def member_command(found: Settings) -> list[str]:
    """etcd's command line for a start on data, which ignores all initial-* options."""
    return [
        PROGRAM,
        f"--name={found.name}",
        f"--data-dir={found.data}",
        f"--listen-client-urls={url(*found.client)}",
        f"--advertise-client-urls=http://{client_address(found)}",
        f"--listen-peer-urls={url(*found.peer)}",
        f"--initial-advertise-peer-urls={peer_url(found)}",
        f"--initial-cluster={found.name}={peer_url(found)}",
        f"--heartbeat-interval={milliseconds(found.heartbeat_s)}",
        f"--election-timeout={milliseconds(found.election_s)}",
        # A member that was cut off must not unseat a working leader when it returns.
        "--pre-vote",
        # Keys of leases come and go for ever; their history is of no use.
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=1h",
        f"--quota-backend-bytes={found.quota_bytes}",
        "--logger=zap",
        "--log-outputs=stderr",
    ]


def initial_command(found: Settings, token: str) -> list[str]:
    """To make a new cluster of this member alone.

    The ids of the cluster and of its first member are made of the token and the peer address, so
    each cluster needs a token of its own: a node that was made anew would else pass for the member
    that it was before.
    """
    return [
        *member_command(found),
        f"--initial-cluster-token={TOKEN}-{token}",
        "--initial-cluster-state=new",
    ]


def joining_command(found: Settings, members: Sequence[tuple[str, str]]) -> list[str]:
    """To start without data as a member that is listed already; members: (name, peer URL)."""
    own = peer_url(found)
    pairs = [(found.name if peer == own else name, peer) for name, peer in members]
    return [
        *(word for word in member_command(found) if not word.startswith("--initial-cluster=")),
        f"--initial-cluster={','.join(f'{name}={peer}' for name, peer in pairs)}",
        "--initial-cluster-state=existing",
    ]


def proxy_command(found: Settings, endpoints: Sequence[str]) -> list[str]:
    host, port = found.client
    return [
        PROGRAM,
        "grpc-proxy",
        "start",
        f"--endpoints={','.join(endpoints)}",
        f"--listen-addr={join_address(host, port)}",
        f"--advertise-client-url={join_address(found.advertise or host, port)}",
        # Not 'proxy': a member does not start in a directory that has one.
        f"--data-dir={found.data / 'grpc-proxy'}",
    ]


def client_address(found: Settings) -> str:
    """HOST:PORT by which others reach the client port."""
    return join_address(found.advertise or found.client[0], found.client[1])


def peer_address(found: Settings) -> str:
    """HOST:PORT by which others reach the peer port."""
    return join_address(found.advertise or found.peer[0], found.peer[1])


def peer_url(found: Settings) -> str:
    return f"http://{peer_address(found)}"


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def url(host: str, port: int) -> str:
    return f"http://{join_address(host, port)}"


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


def is_wildcard(host: str) -> bool:
    return is_ip(host) and host != "localhost" and ipaddress.ip_address(host).is_unspecified
