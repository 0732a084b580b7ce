"""Calls the webhooks of ended tasks: signed, bounded in time, and again if they fail.

Which calls are due is kept by the judicators, as part of the tasks; a gateway takes some, makes
them, and says how they went. So nothing is lost with a gateway, and each call is one gateway's at a
time (a receiver may still see one twice: if its answer was lost; OJ-Delivery tells it).

A receiver may be slow on purpose. One deadline bounds a call as a whole: the name, the connection,
TLS, what is sent, headers and body. There are so many places for calls, and one user, and one
receiver, gets a part of them: of who has that part, nothing more is claimed, so that the calls of
others are found behind any number of theirs.

Whoever names a webhook chooses an address that this machine calls. So only public addresses are
called, and those of configured networks; the name is resolved once, and that very address is used,
so that a name cannot change its mind in between. Redirections are not followed.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import ipaddress
import json
import logging
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from flask import Flask

from oj import __version__, codec, plain
from oj.client import Judicators
from oj.clock import Deadline
from oj.errors import Unavailable
from oj.gateway.settings import Settings, Webhooks
from oj.redact import say

try:
    import uwsgi  # type: ignore[import-untyped]  # there is one only inside uWSGI
except ImportError:
    uwsgi = None

log = logging.getLogger("oj.gateway.webhooks")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

EVERY_S = 1.0
CALL_S = 10.0  # from the name to the end of the answer
PLACES = 32  # calls at one time
PLACES_OF_ONE = 4  # of one user, and of one receiver
ANSWER_BYTES = 4096

_PUBLIC = ipaddress.ip_network("2000::/3")  # all of IPv6 that was given to anybody
# Networks whose addresses stand for IPv4 ones, and how many bits follow that one. A gateway may
# have a route for them: by NAT64, or by a tunnel.
_EMBEDDING = (
    (ipaddress.ip_network("::ffff:0:0/96"), 0),
    (ipaddress.ip_network("::ffff:0:0:0/96"), 0),
    (ipaddress.ip_network("64:ff9b::/96"), 0),
    (ipaddress.ip_network("2002::/16"), 80),
)
_RELAYS = ipaddress.ip_network("192.88.99.0/24")  # of 6to4, once


class Forbidden(Exception):
    """An address that must not be called."""


def install(app: Flask) -> None:
    settings: Settings = app.extensions["oj.settings"]
    # One process of each gateway is enough.
    if settings.webhooks.send and uwsgi is not None and uwsgi.worker_id() == 1:
        caller = Caller(app.extensions["oj.judicators"], settings.webhooks)
        threading.Thread(target=caller.run, name="webhooks", daemon=True).start()


def sign(secret: str, moment_s: int, body: bytes) -> str:
    """The value of OJ-Signature."""
    signed = hmac.new(secret.encode(), f"{moment_s}.".encode() + body, hashlib.sha256)
    return f"t={moment_s},v1={signed.hexdigest()}"


def choose_address(host: str, port: int, allowed: Webhooks) -> str:
    """An address of the host that may be called; raises Forbidden or OSError."""
    found = [str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    for text in found:
        address = ipaddress.ip_address(text.partition("%")[0])
        meant = find_embedded(address) or address
        if any(address in network or meant in network for network in allowed.allow):
            return text
        if is_public(address):
            return text
    raise Forbidden(f"{host} is not a public address, and its network is not allowed")


def is_public(address: Address) -> bool:
    if embedded := find_embedded(address):
        return is_public(embedded)
    if address.version == 6:
        if address not in _PUBLIC:
            return False
    elif address in _RELAYS:
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def find_embedded(address: Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that one of IPv6 stands for. (Teredo, too, but that is never public.)"""
    if address.version == 6:
        for network, after in _EMBEDDING:
            if address in network:
                return ipaddress.IPv4Address(int(address) >> after & 0xFFFFFFFF)
    return None


def receiver_of(url: str) -> str:
    """Where a call goes, without what is only a path there."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}".lower()


class Places:
    """Who has how many calls under way."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._users: Counter[str] = Counter()
        self._receivers: Counter[str] = Counter()

    def take(self, user: str, receiver: str) -> None:
        with self._changed:
            self._users[user] += 1
            self._receivers[receiver] += 1

    def give_back(self, user: str, receiver: str) -> None:
        with self._changed:
            for counts, key in ((self._users, user), (self._receivers, receiver)):
                counts[key] -= 1
                if not counts[key]:
                    del counts[key]
            self._changed.notify()

    def look(self) -> tuple[int, list[str], list[str]]:
        """How many calls may be claimed now, and the users and receivers who have enough.

        So few that nobody gets too many if all belong to one; 0: all places are taken."""
        with self._changed:
            free = PLACES - self._users.total()
            users, receivers = (
                [key for key, count in counts.items() if count >= PLACES_OF_ONE]
                for counts in (self._users, self._receivers)
            )
            most = max(
                (
                    count
                    for counts in (self._users, self._receivers)
                    for count in counts.values()
                    if count < PLACES_OF_ONE
                ),
                default=0,
            )
            return max(0, min(free, PLACES_OF_ONE - most)), users, receivers

    def wait(self, timeout_s: float) -> None:
        """Until a place is given back, or for so long."""
        with self._changed:
            self._changed.wait(timeout_s)


class Caller:
    def __init__(self, judicators: Judicators, allowed: Webhooks) -> None:
        self._judicators = judicators
        self._allowed = allowed
        self._places = Places()

    def run(self) -> None:
        while True:
            try:
                if not self._start_due():
                    self._places.wait(EVERY_S)
                continue
            except Unavailable:
                pass  # the streams say so already
            except Exception:
                log.exception("webhooks failed")
            time.sleep(EVERY_S)

    def _start_due(self) -> bool:
        """Starts some of the calls that are due; whether there were any."""
        count, busy_users, busy_receivers = self._places.look()
        hooks = self._judicators.claim_hooks(count, busy_users, busy_receivers) if count else []
        for hook in hooks:
            who = hook.task.user or "", receiver_of(hook.url)
            thread = threading.Thread(
                target=self._deliver, args=(hook, who), name="webhook", daemon=True
            )
            self._places.take(*who)
            try:
                thread.start()
            except RuntimeError:
                self._places.give_back(*who)
                raise
        return bool(hooks)

    def _deliver(self, hook: Any, who: tuple[str, str]) -> None:
        task = hook.task.id
        deadline = Deadline(CALL_S)
        look_up = _LookUp(hook.url, self._allowed)
        told = ""
        try:
            try:
                problem = self._call(hook, look_up, deadline)
            except (OSError, http.client.HTTPException, ValueError, Forbidden) as error:
                problem, told = str(error) or type(error).__name__, say(error)
            if problem and deadline.expired:
                problem = told = f"took longer than {CALL_S:g} s"
            try:
                self._judicators.finish_hook(task, hook.attempt, not problem, problem)
            except Unavailable:
                log.warning("webhook of task %s: could not tell how it went", task)
            if problem:
                log.info("webhook of task %s, call %d: %s", task, hook.attempt, told or problem)
            look_up.join()  # nothing can end it, so it keeps the place
        finally:
            self._places.give_back(*who)

    def _call(self, hook: Any, look_up: _LookUp, deadline: Deadline) -> str:
        """What went wrong, or nothing."""
        parts = urlsplit(hook.url)
        host = parts.hostname or ""
        secure = parts.scheme == "https"
        port = parts.port or (443 if secure else 80)
        task = plain.summary(codec.info_from_rpc(hook.task))
        body = json.dumps({"event": "task.done", "task": task}).encode()
        headers = {
            "Host": parts.netloc.rpartition("@")[2],
            "Content-Type": "application/json",
            "User-Agent": f"oj-gateway/{__version__}",
            # The same each time, for a receiver whose answer to the first call was lost.
            "OJ-Delivery": hook.task.id,
            "OJ-Attempt": str(hook.attempt),
        }
        if hook.secret:
            headers["OJ-Signature"] = sign(hook.secret, int(time.time()), body)
        address = look_up.wait(deadline)
        connection = http.client.HTTPConnection(host, port)
        with contextlib.ExitStack() as undo:
            undo.callback(connection.close)
            connected = socket.create_connection((address, port), max(0.001, deadline.left_s))
            undo.callback(connected.close)
            if secure:
                # The handshake comes later, under the same guard as all else.
                connected = ssl.create_default_context().wrap_socket(
                    connected, server_hostname=host, do_handshake_on_connect=False
                )
                undo.callback(connected.close)
            connection.sock = connected
            undo.enter_context(_ended_at(connected, deadline))
            if isinstance(connected, ssl.SSLSocket):
                connected.do_handshake()
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            # The call has arrived, whatever becomes of the rest of the answer.
            with contextlib.suppress(OSError, http.client.HTTPException):
                answer.read(ANSWER_BYTES)
        return "" if 200 <= answer.status < 300 else f"answered {answer.status}"


class _LookUp:
    """Resolves a name, in a thread of its own: that can neither be bounded in time nor ended."""

    def __init__(self, url: str, allowed: Webhooks) -> None:
        self._url = url
        self._allowed = allowed
        self._thread: threading.Thread | None = None
        self._found = ""
        self._error: Exception | None = None

    def wait(self, deadline: Deadline) -> str:
        """The address to call. Raises what choose_address raises, or TimeoutError."""
        self._thread = threading.Thread(target=self._resolve, name="webhook-name", daemon=True)
        self._thread.start()
        self._thread.join(deadline.left_s)
        if self._thread.is_alive():
            raise TimeoutError("its name is not resolved")
        if self._error is not None:
            raise self._error
        return self._found

    def _resolve(self) -> None:
        try:
            parts = urlsplit(self._url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
            self._found = choose_address(parts.hostname or "", port, self._allowed)
        except (OSError, ValueError, Forbidden) as error:
            self._error = error

    def join(self) -> None:
        if self._thread is not None:
            self._thread.join()


@contextlib.contextmanager
def _ended_at(connected: socket.socket, deadline: Deadline) -> Iterator[None]:
    """Ends the connection at the deadline, whatever waits for it: a timeout of the socket's own
    begins anew with each byte."""
    connected.settimeout(max(0.001, deadline.left_s))

    def end() -> None:
        # Of the socket alone, not SSLSocket's, which another thread may be using.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(connected, socket.SHUT_RDWR)

    timer = threading.Timer(deadline.left_s, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
