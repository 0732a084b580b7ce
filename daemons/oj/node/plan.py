"""What the conf files of a node must say for its roles: a pure function of wishes and what is.

Only keys that must be set are named, and only where what stands there does not do: an address on
which nobody else reaches this node, a list without the cluster's present members. Ports, and
anything else that the administrator chose, stay.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from oj.node.conf import Edit
from oj.settings import is_loopback, parse_address

Address = tuple[str, int]

# The daemons of each role, in the order of their start.
ROLES = {
    "judicator": ("etcd", "mongodb", "judicator"),
    "executor": ("etcd", "executor"),
    "gateway": ("etcd", "gateway"),
}
DAEMONS = ("etcd", "mongodb", "judicator", "executor", "gateway")
JUDICATOR_PORT = 7500
ETCD_PORT = 7501


@dataclass(frozen=True)
class Peers:
    """The cluster as it is now, without this node; HOST:PORT each."""

    etcd: tuple[str, ...]
    databases: tuple[str, ...] = ()
    judicators: tuple[str, ...] = ()


@dataclass(frozen=True)
class Wish:
    """What the administrator asked for, with what was found out."""

    roles: tuple[str, ...]
    name: str = ""  # nothing: the one that the files say, or the host's
    address: str = ""  # by which others reach this node; proxies need none
    peers: Peers | None = None
    discover: str = ""
    kept: tuple[str, ...] = ()  # roles that serve here already and stay as they are

    @property
    def member(self) -> bool:
        return "judicator" in self.roles

    @property
    def daemons(self) -> tuple[str, ...]:
        wanted = {daemon for role in self.roles for daemon in ROLES[role]}
        return tuple(daemon for daemon in DAEMONS if daemon in wanted)


Canonical = Callable[[str], str]  # a host as its address, to tell that two names are one


def make_edits(
    wish: Wish, values: Mapping[str, Mapping[str, Any]], canonical: Canonical = str
) -> list[Edit]:
    """The keys to set, of each daemon of the wish and of the client; `values` are those in force.

    An edit may repeat what stands in the file already.
    """
    edits: list[Edit] = []
    for daemon in wish.daemons:
        if wish.name:
            edits.append(Edit(daemon, "name", wish.name))
        edits += _MAKERS[daemon](wish, values, canonical)
    if "client" in values:
        edits += _client(wish, values, canonical)
    return edits


def show_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def local_of(listen: Address) -> str:
    """Where this node itself finds what listens so."""
    host, port = listen
    try:
        if ipaddress.ip_address(host).is_unspecified:
            host = "::1" if ":" in host else "127.0.0.1"
    except ValueError:
        pass
    return show_address(host, port)


# --- the files ---------------------------------------------------------------------------------


def _etcd(wish: Wish, values: Mapping[str, Any], canonical: Canonical) -> list[Edit]:
    now, cluster = values["etcd"], values["etcd"]["cluster"]
    edits = []
    mode = "member" if wish.member else "proxy"
    if now["mode"] != mode:
        edits.append(Edit("etcd", "mode", mode))
    if wish.member:
        edits += _open("etcd", "client", now["client"], wish)
        edits += _open("etcd", "peer", now["peer"], wish)
        edits.append(Edit("etcd", "advertise", wish.address))
    if wish.discover:
        edits.append(Edit("etcd", "discover", wish.discover, "cluster"))
    elif wish.peers:
        edits += _list("etcd", "join", cluster["join"], wish.peers.etcd, canonical, "cluster")
    if cluster["init"] and (wish.peers or not wish.member):
        edits.append(Edit("etcd", "init", "no", "cluster"))
    return edits


def _mongodb(wish: Wish, values: Mapping[str, Any], canonical: Canonical) -> list[Edit]:
    now = values["mongodb"]
    edits = _open("mongodb", "listen", now["listen"], wish)
    edits.append(Edit("mongodb", "advertise", show_address(wish.address, now["listen"][1])))
    return edits + _etcd_list("mongodb", wish, values, canonical)


def _judicator(wish: Wish, values: Mapping[str, Any], canonical: Canonical) -> list[Edit]:
    now = values["judicator"]
    edits = _open("judicator", "listen", now["listen"], wish)
    edits.append(Edit("judicator", "advertise", show_address(wish.address, now["listen"][1])))
    edits += _etcd_list("judicator", wish, values, canonical)
    if wish.peers:
        databases = (local_of(values["mongodb"]["listen"]), *wish.peers.databases)
        edits += _list("judicator", "mongodb", now["mongodb"], databases, canonical)
    return edits


def _executor(wish: Wish, values: Mapping[str, Any], canonical: Canonical) -> list[Edit]:
    return _judicator_list("executor", wish, values, canonical)


def _gateway(wish: Wish, values: Mapping[str, Any], canonical: Canonical) -> list[Edit]:
    now = values["gateway"]
    edits = _judicator_list("gateway", wish, values, canonical)
    # Behind a web server, which it then knows, it listens where that one looks for it.
    if not any(now["access"]["proxies"]) and "gateway" not in wish.kept:
        edits += _open("gateway", "listen", now["listen"], wish)
    return edits


def _client(wish: Wish, values: Mapping[str, Any], canonical: Canonical) -> list[Edit]:
    return _judicator_list("client", wish, values, canonical)


_MAKERS: dict[str, Callable[[Wish, Mapping[str, Any], Canonical], list[Edit]]] = {
    "etcd": _etcd,
    "mongodb": _mongodb,
    "judicator": _judicator,
    "executor": _executor,
    "gateway": _gateway,
}


# --- kinds of keys -----------------------------------------------------------------------------


def _open(role: str, key: str, listen: Address, wish: Wish) -> list[Edit]:
    """Listens for others, too, unless it does so in whichever way."""
    host, port = listen
    if not is_loopback(host):
        return []
    return [Edit(role, key, show_address("::" if ":" in wish.address else "0.0.0.0", port))]


def _etcd_list(
    role: str, wish: Wish, values: Mapping[str, Any], canonical: Canonical
) -> list[Edit]:
    """The local member first: it costs no way, and fails together with who asks."""
    if not wish.peers:
        return []
    wanted = (local_of(values["etcd"]["client"]), *wish.peers.etcd)
    return _list(role, "etcd", values[role]["etcd"], wanted, canonical)


def _judicator_list(
    role: str, wish: Wish, values: Mapping[str, Any], canonical: Canonical
) -> list[Edit]:
    """The judicators of now; those of later are found through the local etcd."""
    now = values[role]
    local = local_of(values["etcd"]["client"])
    edits = []
    if not wish.member or role != "client":
        edits += _list(role, "etcd", now["etcd"], (local,), canonical)
    if wish.peers:
        own = (local_of(values["judicator"]["listen"]),) if wish.member else ()
        wanted = (*own, *wish.peers.judicators)
        edits += _list(role, "judicators", now["judicators"], wanted, canonical)
    return edits


def _list(
    role: str,
    key: str,
    now: Sequence[Address],
    wanted: Sequence[str],
    canonical: Canonical,
    section: str = "",
) -> list[Edit]:
    """Sets a list of addresses, unless the one there means the same under whichever names."""
    if _mean(now, canonical) == _mean([parse_address(word) for word in wanted], canonical):
        return []
    return [Edit(role, key, ", ".join(dict.fromkeys(wanted)), section)]


def _mean(addresses: Sequence[Address], canonical: Canonical) -> set[Address]:
    return {(canonical(host), port) for host, port in addresses}
