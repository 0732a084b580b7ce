"""Which addresses are this machine's, as its routes tell."""

from __future__ import annotations

import socket

from oj.settings import is_loopback


def source_towards(address: str) -> str:
    """The address of this machine from which packets to that one go; nothing without a way."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))  # sends nothing: it only asks for the route
        except OSError:
            return ""
        return str(probe.getsockname()[0])


def is_own(host: str) -> bool:
    """Whether a host, or one of the addresses that its name has, is on this machine.

    Packets to an own address come from that address. Whether one can be bound to would not tell:
    with net.ipv4.ip_nonlocal_bind, any can.
    """
    if is_loopback(host):
        return True
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return False
    addresses = {str(one[4][0]) for one in found}
    return any(is_loopback(one) or source_towards(one) == one for one in addresses)
