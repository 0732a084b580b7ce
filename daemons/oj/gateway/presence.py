"""Tells the judicators that this gateway serves, so that `oj status` shows it."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable

from oj import __version__
from oj.client import Judicators
from oj.clock import Deadline
from oj.errors import Rejected, Unavailable
from oj.gateway.settings import Settings
from oj.rpc import ttypes as rpc

EVERY_S = 5.0
ASK_S = 5.0
FAREWELL_S = 1.0
UNKNOWN_S = 60.0  # before a judicator that is too old for this is tried again

log = logging.getLogger("oj.gateway.presence")


class Presence:
    """A thread of the daemon, from when it serves until it stops.

    It alone speaks, so that the good-bye cannot be overtaken by a word that it serves, after which
    this gateway would be on the list for an hour as silent.
    """

    def __init__(self, settings: Settings, in_order: Callable[[], bool] = lambda: True) -> None:
        """`in_order` tells as the daemon stops whether it was told to; one that failed stays on the
        list, and is silent there unless systemd's restart mends it."""
        host, port = settings.listen
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._gateway = rpc.GatewayInfo(
            settings.name, address, __version__, process=uuid.uuid4().hex
        )
        self._in_order = in_order
        self._leaves = False
        self._judicators = Judicators(settings.judicators, settings.etcd, timeout_s=ASK_S)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="presence", daemon=True)

    def __enter__(self) -> Presence:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Stopped in order is not silent: it is taken off the list."""
        self._leaves = kind is None and self._in_order()
        self._stop.set()
        self._thread.join(ASK_S + FAREWELL_S)  # as long as one call, and only if nobody answers

    def _run(self) -> None:
        self._say_that_it_serves()
        if self._leaves:
            try:
                leaving = Deadline(FAREWELL_S)
                self._judicators.announce(self._gateway, leaving=True, deadline=leaving)
            except (Rejected, Unavailable) as error:
                log.debug("no farewell: %s", error.message)

    def _say_that_it_serves(self) -> None:
        pause_s = 0.0
        while not self._stop.wait(pause_s):
            pause_s = EVERY_S
            try:
                self._judicators.announce(self._gateway, deadline=Deadline(ASK_S))
            except Unavailable as error:
                log.debug("nobody hears that this gateway serves: %s", error.message)
            except Rejected as error:
                log.debug("a judicator does not list gateways: %s", error.message)
                pause_s = UNKNOWN_S
            except Exception:
                log.exception("cannot tell that this gateway serves")
                pause_s = UNKNOWN_S
