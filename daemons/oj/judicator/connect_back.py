"""Connects back to a machine that asks whether others reach it: the call `probe`.

Whoever may call could use this to make the judicator knock at doors, so it is narrow: only the
address that the call came from, a handful of ports, a short time, so many a minute, and the answer
has nothing of what was read but whether it was the caller's own word. What listens says it first,
so that nothing is ever sent into a service that happens to be there.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from oj import model
from oj.errors import Rejected, Unavailable

CONNECT_S = 2.5
WORD_S = 1.5  # after connecting; a daemon that already serves says nothing by itself
WINDOW_S = 60.0
MOST_IN_WINDOW = 120
MOST_OF_ONE = 20
MOST_AT_ONCE = 16


@dataclass(frozen=True)
class Reached:
    """How one port was found."""

    port: int
    connected: bool
    answered: bool = False  # with the word
    problem: str = ""


class Rate:
    """How often may be asked: in all, by one address, and at the same time."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._calls: deque[tuple[float, str]] = deque()
        self._under_way = 0

    @contextmanager
    def admitted(self, host: str) -> Iterator[None]:
        with self._lock:
            self._admit(host)
            self._under_way += 1
        try:
            yield
        finally:
            with self._lock:
                self._under_way -= 1

    def _admit(self, host: str) -> None:
        now_s = self._now()
        while self._calls and self._calls[0][0] <= now_s - WINDOW_S:
            self._calls.popleft()
        of_one = sum(other == host for _, other in self._calls)
        if self._under_way >= MOST_AT_ONCE:
            raise Unavailable("busy with probes of others", retry_ms=1000)
        if len(self._calls) >= MOST_IN_WINDOW or of_one >= MOST_OF_ONE:
            raise Unavailable("asked for probes too often; wait a minute", retry_ms=10_000)
        self._calls.append((now_s, host))


def check_request(ports: Sequence[int] | None, word: str | None) -> tuple[list[int], bytes]:
    """The ports and the word, as they may be asked for."""
    wanted = list(dict.fromkeys(ports or ()))
    if len(wanted) > model.MAX_PROBES:
        raise Rejected(f"ports has more than {model.MAX_PROBES}", "ports")
    for port in wanted:
        if not 1 <= port <= 65535:
            raise Rejected(f"{port} is no port", "ports")
    said = model.check_word(word or "", "word", empty=not wanted)
    return wanted, said.encode()


def try_ports(host: str, ports: Sequence[int], word: bytes) -> list[Reached]:
    """Connects to all of them at once."""
    if not ports:
        return []
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found: dict[int, Reached] = {}
    # Of each connection its port, the moment at which it is given up, and what came so far;
    # None until it stands.
    waiting: dict[socket.socket, tuple[int, float, bytes | None]] = {}
    with selectors.DefaultSelector() as ready:
        try:
            for port in ports:
                sock = socket.socket(family, socket.SOCK_STREAM)
                sock.setblocking(False)
                code = sock.connect_ex((host, port))
                if code not in (0, errno.EINPROGRESS):
                    sock.close()
                    found[port] = Reached(port, False, problem=_describe(code))
                    continue
                waiting[sock] = (port, time.monotonic() + CONNECT_S, None)
                ready.register(sock, selectors.EVENT_WRITE)
            while waiting:
                next_s = min(end_s for _, end_s, _ in waiting.values())
                ready.select(max(0.0, next_s - time.monotonic()))
                for sock, (port, end_s, read) in list(waiting.items()):
                    outcome = _look(sock, port, read, word)
                    late = time.monotonic() >= end_s
                    if isinstance(outcome, bytes) and read is None:
                        ready.modify(sock, selectors.EVENT_READ)
                        waiting[sock] = (port, time.monotonic() + WORD_S, outcome)
                        continue
                    if isinstance(outcome, bytes) and not late:
                        waiting[sock] = (port, end_s, outcome)
                        continue
                    if outcome is None and not late:
                        continue
                    if isinstance(outcome, Reached):
                        found[port] = outcome
                    elif outcome is None:
                        found[port] = Reached(port, False, problem=f"no answer in {CONNECT_S:g} s")
                    else:
                        found[port] = Reached(port, True)
                    ready.unregister(sock)
                    sock.close()
                    del waiting[sock]
        finally:
            for sock in waiting:
                sock.close()
    return [found[port] for port in ports]


def _look(
    sock: socket.socket, port: int, read: bytes | None, word: bytes
) -> Reached | bytes | None:
    """One connection now: how it ended, or what it has said so far, or None: not connected yet."""
    if read is None:
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            return Reached(port, False, problem=_describe(code))
        try:
            sock.getpeername()
        except OSError:
            return None
        return b""
    try:
        piece = sock.recv(len(word) + 1 - len(read))
    except BlockingIOError:
        return read
    except OSError:
        return Reached(port, True)
    read += piece
    if piece and len(read) < len(word):
        return read
    return Reached(port, True, answered=read == word)


def _describe(code: int) -> str:
    if code == errno.ETIMEDOUT:
        return "no answer"
    return os.strerror(code).lower()
