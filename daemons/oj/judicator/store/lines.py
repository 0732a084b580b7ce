"""Hangs up on a primary that is gone.

A machine that lost its power, or its network, closes no connection: whoever waits for its answer
would wait for the whole of a socket's timeout, seconds after another node was elected and serves.
The driver notices the loss, but only forgets connections that nobody is using. So we end the
others: their calls fail as if the server had closed them, and are tried again at the new primary.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from pathlib import Path
from typing import Any

from pymongo import monitoring

Address = tuple[str, int]

log = logging.getLogger("oj.judicator.store")


class Hangup(monitoring.ServerHeartbeatListener):
    """Called by the driver's monitors, one thread for each member of the replica set."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._primary: Address | None = None
        self._elected: Any = None  # the id of its election; ids of later ones are greater

    def started(self, event: monitoring.ServerHeartbeatStartedEvent) -> None:
        pass

    def succeeded(self, event: monitoring.ServerHeartbeatSucceededEvent) -> None:
        answer = event.reply.document
        elected = answer.get("electionId")
        if elected is None or not (answer.get("ismaster") or answer.get("isWritablePrimary")):
            return
        with self._lock:
            # A primary that was cut off may go on saying so for a while.
            if self._elected is not None and elected <= self._elected:
                return
            before, self._primary = self._primary, event.connection_id
            self._elected = elected
        if before is not None and before != event.connection_id:
            hang_up(before)

    def failed(self, event: monitoring.ServerHeartbeatFailedEvent) -> None:
        """No reason to: it may be one call that failed, or a client of ours that was closed."""


def hang_up(address: Address) -> int:
    """Ends all connections of this process to that address, and returns how many."""
    try:
        found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
    except OSError:
        return 0  # then nobody can have connected lately either
    peers = {place[4][:2] for place in found}
    ended = sum(_end(int(entry.name), peers) for entry in Path("/proc/self/fd").iterdir())
    if ended:
        log.info("hung up %d connections to %s:%d", ended, *address)
    return ended


def _end(descriptor: int, peers: set[Any]) -> bool:
    """The driver has no way to reach a connection in use, so it is found by its peer. What is
    looked at is our own copy, because the number may be somebody else's the next moment."""
    try:
        copy = os.dup(descriptor)
    except OSError:
        return False
    try:
        sock = socket.socket(fileno=copy)
    except OSError:  # something else than a socket
        os.close(copy)
        return False
    with sock:
        try:
            if sock.getpeername()[:2] not in peers:
                return False
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:  # it is not, or no longer, connected
            return False
        return True
