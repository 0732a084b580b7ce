"""Calls the webhooks of ended tasks: signed, bounded in time, and again if they fail.

Which calls are due is kept by the judicators, as part of the tasks; a gateway takes some, makes
them, and says how they went. So nothing is lost with a gateway, and each call is one gateway's at a
time (a receiver may still see one twice: if its answer was lost; OJ-Delivery tells it).

Whoever names a webhook chooses an address that this machine calls. So only public addresses are
called, and those of configured networks; the name is resolved once, and that very address is used,
so that a name cannot change its mind in between. Redirections are not followed.
"""

from __future__ import annotations

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
from typing import Any
from urllib.parse import urlsplit

from flask import Flask

from oj import __version__, codec, plain
from oj.client import Judicators
from oj.errors import Unavailable
from oj.gateway.settings import Settings, Webhooks

try:
    import uwsgi  # type: ignore[import-untyped]  # there is one only inside uWSGI
except ImportError:
    uwsgi = None

log = logging.getLogger("oj.gateway.webhooks")

EVERY_S = 1.0
TIMEOUT_S = 10.0
AT_ONCE = 8
ANSWER_BYTES = 4096


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
        mapped = getattr(address, "ipv4_mapped", None)
        address = mapped or address
        if any(address in network for network in allowed.allow):
            return text
        if address.is_global and not address.is_multicast:
            return text
    raise Forbidden(f"{host} is not a public address, and its network is not allowed")


class Caller:
    def __init__(self, judicators: Judicators, allowed: Webhooks) -> None:
        self._judicators = judicators
        self._allowed = allowed

    def run(self) -> None:
        while True:
            try:
                hooks = self._judicators.claim_hooks(AT_ONCE)
                threads = [threading.Thread(target=self._deliver, args=(hook,)) for hook in hooks]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                if hooks:
                    continue
            except Unavailable:
                pass  # the streams say so already
            except Exception:
                log.exception("webhooks failed")
            time.sleep(EVERY_S)

    def _deliver(self, hook: Any) -> None:
        task = hook.task.id
        try:
            problem = self._call(hook)
        except (OSError, http.client.HTTPException, ValueError, Forbidden) as error:
            problem = str(error) or type(error).__name__
        try:
            self._judicators.finish_hook(task, hook.attempt, not problem, problem)
        except Unavailable:
            log.warning("webhook of task %s: could not tell how it went", task)
        if problem:
            log.info("webhook of task %s, call %d: %s", task, hook.attempt, problem)

    def _call(self, hook: Any) -> str:
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
        address = choose_address(host, port, self._allowed)
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        try:
            plain_socket = socket.create_connection((address, port), TIMEOUT_S)
            connection.sock = (
                ssl.create_default_context().wrap_socket(plain_socket, server_hostname=host)
                if secure
                else plain_socket
            )
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            answer.read(ANSWER_BYTES)
        finally:
            connection.close()
        return "" if 200 <= answer.status < 300 else f"answered {answer.status}"
