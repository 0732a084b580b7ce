"""Who listens on a port of this machine: one of our units, or somebody else.

As the kernel tells in /proc: the sockets that listen, and the processes of a unit's cgroup with the
sockets that they have open. Only root sees the latter of all processes.
"""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterator
from pathlib import Path

PROC = Path("/proc")
LISTENS = "0A"


def is_held_by(unit: str, address: str, port: int) -> bool:
    """Whether all that keeps `address` (all, when empty) and `port` from us is that unit's."""
    wanted = find_listeners(address, port)
    return bool(wanted) and wanted <= set(find_sockets(unit))


def find_listeners(address: str, port: int) -> set[str]:
    """The numbers of the sockets that listen on a port, at this address or at any."""
    found = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (PROC / "net" / table).read_text().splitlines()[1:]
        except FileNotFoundError:  # no IPv6
            continue
        for line in lines:
            words = line.split()
            host, _, number = words[1].partition(":")
            if words[3] != LISTENS or int(number, 16) != port:
                continue
            there = parse_address(host)
            if not address or there.is_unspecified or str(there) == address:
                found.add(words[9])
    return found


def parse_address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """As the kernel shows it: 32-bit words in the machine's order of bytes."""
    words = (bytes.fromhex(text[at : at + 8]) for at in range(0, len(text), 8))
    found = ipaddress.ip_address(
        b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    )
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return mapped or found


def find_sockets(unit: str) -> Iterator[str]:
    """The numbers of the sockets that processes of a unit have."""
    for cgroup in PROC.glob("[0-9]*/cgroup"):
        try:
            if f"/{unit}.service" not in cgroup.read_text():
                continue
            for descriptor in cgroup.parent.joinpath("fd").iterdir():
                name = str(descriptor.readlink())
                if name.startswith("socket:["):
                    yield name[8:-1]
        except OSError:
            continue  # it has ended meanwhile
