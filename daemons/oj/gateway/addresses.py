"""Where a request comes from, and by what a client without a token is counted; no I/O."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from oj.gateway.settings import IpNetwork

# That are looked at: each takes microseconds, and the header has room for 16,000.
MOST_HOPS = 16


def find_client(peer: str, forwarded: str, proxies: Iterable[IpNetwork]) -> str:
    """The address of the client; a proxy that we were told of is believed about it."""
    proxies = tuple(proxies)
    address = peer
    hops = [hop.strip() for hop in forwarded.rsplit(",", MOST_HOPS)[-MOST_HOPS:]]
    while proxies and hops and is_in(address, proxies):
        address = hops.pop() or address
    return address


def is_in(address: str, networks: Iterable[IpNetwork]) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return any(found in network for network in networks)


def network_of(address: str) -> str:
    """The address itself, or the network of 64 bits that a client of IPv6 has for itself."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if found.version == 4 or found.ipv4_mapped:
        return address
    return str(ipaddress.ip_network((int(found) >> 64 << 64, 64)))


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
