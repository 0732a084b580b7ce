"""By which address others reach this machine."""

from __future__ import annotations

import socket

from oj.errors import Rejected
from oj.own_addresses import is_own, source_towards
from oj.settings import is_loopback

__all__ = ["canonical", "check", "choose", "is_own", "resolve", "source_towards"]

ELSEWHERE = "192.0.2.1"  # kept free for documentation, so it is reached by the default route


def resolve(host: str) -> str:
    """A host's address as this machine sees it; Rejected when it has none."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Rejected(f"'{host}' has no address here: mend /etc/hosts or DNS") from None
    # IPv4 first: what listens on 0.0.0.0 is not reached otherwise.
    found.sort(key=lambda one: one[0] != socket.AF_INET)
    return str(found[0][4][0])


def canonical(host: str) -> str:
    """The address of a host, or the name itself where it has none."""
    try:
        return resolve(host)
    except Rejected:
        return host


def choose(given: str, configured: str, towards: str, before: str = "") -> tuple[str, str]:
    """The address (or name) for others, and why this one. Rejected when none will do.

    `before`: the one at which others know this node, as far as it has noted it.
    """
    for address, why in (
        (given, "as told with --address"),
        (configured, "as configured already"),
    ):
        if address and not (address == configured and is_loopback(canonical(address))):
            return check(address), why
    if before and not is_loopback(canonical(before)) and is_own(before):
        return before, "the one at which others know this node"
    if towards:
        address = source_towards(resolve(towards))
        if address:
            return check(address), f"the one from which {towards} is reached"
    address = source_towards(ELSEWHERE)
    if address:
        return check(address), "the one of the default route"
    name = socket.gethostname()
    try:
        return check(resolve(name)), f"the one of the host name {name}"
    except Rejected as error:
        raise Rejected(
            f"there is no address by which others reach this machine: {error.message}; "
            "name one with --address"
        ) from None


def check(address: str) -> str:
    """The address if others can use it."""
    found = resolve(address)
    if is_loopback(found):
        what = found if found == address else f"{address}, here {found},"
        raise Rejected(f"{what} leads every node to itself: name another one with --address")
    return address
