"""The judicator's configuration as checked values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from oj import settings
from oj.errors import BadSettings, Rejected
from oj.model import check_node

Address = tuple[str, int]


@dataclass(frozen=True)
class Rules:
    """The [tasks] section of the configuration."""

    lease_s: float = 8.0
    max_attempts: int = 5
    languages: frozenset[str] = frozenset()  # accepted even if no executor ever offered them


@dataclass(frozen=True)
class JudicatorSettings:
    name: str
    listen: Address
    advertise: str
    etcd: tuple[Address, ...]
    etcd_prefix: str
    mongodb: tuple[Address, ...]
    replica_set: str
    database: str
    state_directory: Path
    max_connections: int
    rules: Rules
    forget_s: float
    metrics: Address | None = None


def load(path: Path) -> JudicatorSettings:
    """Reads and checks the file; raises BadSettings with every mistake."""
    values = settings.read(path, "judicator")
    tasks, executors = values["tasks"], values["executors"]
    name = settings.default_name(values["name"])
    mistakes = []
    try:
        check_node(name, f"name: '{name}'")
    except Rejected as error:
        mistakes.append(error.message)
    for key in ("etcd", "mongodb"):
        if not values[key]:
            mistakes.append(f"{key}: at least one HOST:PORT is needed")
    if values["advertise"]:
        try:
            settings.parse_address(values["advertise"])
        except ValueError as error:
            mistakes.append(f"advertise: {error}")
    if not values["state_directory"].startswith("/"):
        mistakes.append(f"state_directory: '{values['state_directory']}' is not an absolute path")
    if tasks["lease"] < 2 or tasks["lease"] > 300:
        mistakes.append("tasks.lease: must be between 2s and 5m")
    if executors["forget"] < 60:
        mistakes.append("executors.forget: must be at least 1m")
    for key in ("replica_set", "database"):
        if not re.fullmatch(r"[A-Za-z0-9_-]+", values[key]):
            mistakes.append(f"{key}: letters, digits, '_' and '-' only")
    if mistakes:
        raise BadSettings(settings.place(path, mistakes))
    return JudicatorSettings(
        name=name,
        listen=values["listen"],
        advertise=values["advertise"],
        etcd=tuple(values["etcd"]),
        etcd_prefix=values["etcd_prefix"],
        mongodb=tuple(values["mongodb"]),
        replica_set=values["replica_set"],
        database=values["database"],
        state_directory=Path(values["state_directory"]),
        max_connections=values["max_connections"],
        rules=Rules(
            lease_s=tasks["lease"],
            max_attempts=tasks["max_attempts"],
            languages=frozenset(filter(None, tasks["languages"])),
        ),
        forget_s=executors["forget"],
        metrics=values["metrics"],
    )


def format_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def choose_advertised(config: JudicatorSettings, port: int, host_name: str) -> str:
    """The address that others are told: as configured, or made from `listen`."""
    if config.advertise:
        return config.advertise
    host = config.listen[0]
    return format_address(host_name if host in ("0.0.0.0", "::") else host, port)


def make_uri(addresses: tuple[Address, ...] | list[Address], replica_set: str) -> str:
    hosts = ",".join(format_address(*address) for address in addresses)
    return f"mongodb://{hosts}/?replicaSet={replica_set}"
