"""Keeps a node that knows only loopback addresses of itself out of a cluster of several machines.

Files as they are installed name 127.0.0.1. On a node that was purged and installed again they meet
data of before, or an etcd that still is a member; what the node then tells of itself would lead
every other one to itself. So it is not told: the daemon refuses to start, and says what to type.

oj-etcd comes first, and those who need it would wait for it for minutes. It leaves its reason in
its runtime directory, where they find it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from oj.errors import Refused
from oj.settings import is_loopback, parse_address

WORD = "refused"  # the file with oj-etcd's reason

Address = tuple[str, int]


def find_others(own_host: str, others: Iterable[str]) -> tuple[str, ...]:
    """The hosts of other machines among these HOST:PORT, if this one is told of as a loopback
    address; nothing where that does not matter."""
    if not is_loopback(own_host):
        return ()
    hosts = dict.fromkeys(parse_address(address)[0] for address in others)
    return tuple(host for host in hosts if not is_loopback(host))


def describe(conf: str, own: str, hosts: Iterable[str], name: str = "") -> str:
    """`name`: the one that the node has in its cluster, where its files say another."""
    listed = sorted(hosts)
    return _describe(conf, own, f"its cluster has {', '.join(listed)}", listed[0], name)


def describe_moved(conf: str, own: str, before: str, name: str = "") -> str:
    """As describe, for the only judicator: there is none that it could join."""
    return _describe(conf, own, f"they know it at {before}", "", name)


def _describe(conf: str, own: str, instead: str, join: str, name: str) -> str:
    words = ["oj setup judicator", f"--join {join}" * bool(join), f"--name {name}" * bool(name)]
    return (
        f"{conf} says that others find this node at {own}, but {instead}: was oj purged and "
        f"installed again here? Run: {' '.join(filter(None, words))}"
    )


def demand_address(conf: str, own: str, others: Iterable[str]) -> None:
    """Raises Refused before a loopback address is told to a cluster of several machines."""
    hosts = find_others(parse_address(own)[0], others)
    if hosts:
        raise Refused(describe(conf, own, hosts))


# --- the word of oj-etcd -------------------------------------------------------------------------


def leave_word(text: str) -> None:
    """For those who wait for this oj-etcd."""
    directory = _runtime_directory()
    if directory:
        path = directory / WORD
        with contextlib.suppress(OSError):
            path.write_text(text + "\n")
            path.chmod(0o644)  # the unit's UMask= would hide it


def take_word_back() -> None:
    directory = _runtime_directory()
    if directory:
        with contextlib.suppress(OSError):
            (directory / WORD).unlink()


def heed_word(etcd: Iterable[Address]) -> None:
    """Raises Refused if the oj-etcd of this machine, which is one of these, refuses to start."""
    directory = _runtime_directory()
    if directory is None or not any(is_loopback(host) for host, _ in etcd):
        return
    with contextlib.suppress(OSError):
        text = (directory.parent / "etcd" / WORD).read_text().strip()
        raise Refused(f"oj-etcd refuses to start: {text}")


def _runtime_directory() -> Path | None:
    """That of the unit; nothing where systemd does not run us."""
    found = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    return Path(found) if found else None
