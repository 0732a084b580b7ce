"""The settings of oj-mongodb and mongod's command line; no I/O but reading the file."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from oj import settings
from oj.errors import BadSettings

Address = tuple[str, int]

LEAST_CACHE_BYTES = 256 << 20  # WiredTiger takes no less
LEAST_OPLOG_BYTES = 64 << 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_WILDCARDS = frozenset({"0.0.0.0", "::"})


@dataclass(frozen=True)
class Settings:
    name: str
    data: Path
    listen: Address
    advertise: str
    replica_set: str
    grace_s: float
    etcd: tuple[Address, ...]
    prefix: str
    program: str
    cache_bytes: int
    oplog_bytes: int
    election_s: float
    heartbeat_s: float
    metrics: Address | None = None

    @property
    def local(self) -> Address:
        """Where the daemon itself finds its mongod."""
        host, port = self.listen
        if host in _WILDCARDS:
            host = "::1" if ":" in host else "127.0.0.1"
        return host, port


def load(path: Path) -> Settings:
    """Reads and checks the file; raises BadSettings with every mistake."""
    values = settings.read(path, "mongodb")
    host, port = values["listen"]
    found = Settings(
        name=settings.default_name(values["name"]),
        data=Path(values["data"]),
        listen=(host, port),
        advertise=values["advertise"] or join_address(host, port),
        replica_set=values["replica_set"],
        grace_s=values["grace"],
        etcd=tuple(values["etcd"]),
        prefix=values["prefix"],
        program=values["mongod"]["program"],
        cache_bytes=values["mongod"]["cache"],
        oplog_bytes=values["mongod"]["oplog"],
        election_s=values["election"]["timeout"],
        heartbeat_s=values["election"]["heartbeat"],
        metrics=values["metrics"],
    )
    mistakes = find_mistakes(found)
    if mistakes:
        raise BadSettings(settings.place(path, mistakes))
    return found


def find_mistakes(found: Settings) -> list[str]:
    """What no single value tells: rules between them, and the machine's say."""
    mistakes = []
    for key, word in (("name", found.name), ("replica_set", found.replica_set)):
        if not _NAME.match(word):
            mistakes.append(f"{key}: '{word}' has signs other than letters, digits, . _ -")
    if not found.data.is_absolute():
        mistakes.append(f"data: '{found.data}' is not an absolute path")
    if found.listen[1] == 0:
        mistakes.append("listen: port 0 would be another one at each start")
    try:
        host, _ = settings.parse_address(found.advertise)
        if host in _WILDCARDS:
            mistakes.append("advertise: must be set when listening on every address")
    except ValueError as error:
        mistakes.append(f"advertise: {error}")
    if not found.etcd:
        mistakes.append("etcd: no address is given")
    if found.grace_s < 10:
        mistakes.append("grace: less than 10s would take a restart for a departure")
    if found.program and not os.access(found.program, os.X_OK):
        mistakes.append(f"mongod.program: there is no program {found.program}")
    if found.cache_bytes < LEAST_CACHE_BYTES:
        mistakes.append("mongod.cache: mongod takes no less than 256M")
    if found.oplog_bytes < LEAST_OPLOG_BYTES:
        mistakes.append("mongod.oplog: less than 64M would not last for a member's absence")
    if not 0.1 <= found.heartbeat_s <= 60:
        mistakes.append("election.heartbeat: is not between 100ms and 60s")
    if found.election_s < 2 * found.heartbeat_s or found.election_s > 600:
        mistakes.append("election.timeout: is not between two heartbeats and 10m")
    return mistakes


def command(found: Settings, program: str) -> list[str]:
    host, port = found.listen
    words = [
        program,
        f"--replSet={found.replica_set}",
        f"--dbpath={found.data}",
        f"--bind_ip={host}",
        f"--port={port}",
        # A socket file left in /tmp by a killed mongod would be in the next one's way.
        "--nounixsocket",
        f"--wiredTigerCacheSizeGB={found.cache_bytes / (1 << 30):g}",
        f"--oplogSize={found.oplog_bytes >> 20}",
        # No query of ours carries JavaScript, and its compiler wants writable code pages.
        "--noscripting",
        # Connections come and go with every client; each would be two lines.
        "--quiet",
        # By zlib's part releases like 6.0.5 tell their memory to whoever connects (CVE-2025-14847),
        # and members are near each other.
        "--networkMessageCompressors=disabled",
        # A clean stop waits this long for clients to move on; 15 s by default.
        "--setParameter=shutdownTimeoutMillisForSignaledShutdown=500",
        # A member whose source has lost its power looks for another one after this and half of an
        # election's time, not after 5 s more: without it there may be no majority.
        "--setParameter=oplogNetworkTimeoutBufferSeconds=1",
        # Each member adds a random part of an election's time to it, at most this one: with 0.15,
        # once in 39 lost primaries two of them stood at the same moment, and nobody won.
        "--setParameter=replElectionTimeoutOffsetLimitFraction=0.3",
        # What is younger than the last checkpoint is done again at each start, and undone by a
        # former primary that has written what nobody else has. With a checkpoint a minute, and so
        # none between starts that follow each other sooner, that once took more than four minutes.
        "--syncdelay=10",
        # Once a second it would sample the whole server for MongoDB's support.
        "--setParameter=diagnosticDataCollectionEnabled=false",
    ]
    if ":" in host:
        words.append("--ipv6")
    return words


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
